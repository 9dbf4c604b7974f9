"""Distance kernels compiled by numba: the fast path of every search. Importing this package does not load numba."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from layercert.arrays import Indices, Matrix
from layercert.norms import Norm
from layercert.programs.kernels.scaled import OPTIMAL, Scaled, rays_of_zero_rows
from layercert.programs.program import Candidates, Programs, Solver

__all__ = ["GramKernel", "KernelSolver", "SimplexKernel", "SmoothKernel", "kernels"]

Answers = tuple[Indices, Matrix, Matrix]  # statuses, points, multipliers


class KernelSolver(ABC):
    """A compiled kernel behind the `Solver` protocol: scaling, zero rows, and the first compilation."""

    name: str
    _announced = False

    def __init__(self, announce: Callable[[str], None] | None = None) -> None:
        self._announce = announce

    @abstractmethod
    def supports(self, programs: Programs) -> bool: ...

    @abstractmethod
    def _entry(self) -> Any:
        """The compiled function that solves a family."""

    @abstractmethod
    def _run(self, entry: Any, scaled: Scaled) -> Answers: ...

    def solve(self, programs: Programs) -> Candidates:
        scaled = Scaled.of(programs)
        rays = None if len(scaled.live) == len(programs.rows) else rays_of_zero_rows(programs)
        if not len(scaled.r):
            k, n = len(programs), programs.rows.A.shape[1]
            answer = scaled.candidates(np.full(k, OPTIMAL), np.zeros((k, n)), np.zeros((k, 0)))
        else:
            answer = scaled.candidates(*self._run(self._ready(), scaled))
        if rays is not None:
            empty = np.isfinite(rays).all(axis=1)
            answer.multipliers[empty] = rays[empty]
            answer.steps[empty] = np.nan
        return answer

    def _ready(self) -> Any:
        """The entry point; says so, once, when the machine code has to be made first."""
        entry = self._entry()
        if not type(self)._announced:
            from layercert.programs.kernels.jit import announce, is_compiled

            type(self)._announced = True
            if not is_compiled(entry):
                tell = self._announce or announce
                tell(f"compiling the {self.name} distance kernel for this machine: about 20 s, this once")
        return entry


class GramKernel(KernelSolver):
    """p = 2 without a box: dual active set on the Gram matrix."""

    name = "kernel-l2"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p == 2.0 and programs.box is None and programs.tilt is None

    def _entry(self) -> Any:
        from layercert.programs.kernels.gram import solve_family

        return solve_family

    def _run(self, entry: Any, scaled: Scaled) -> Answers:
        from layercert.programs.kernels.gram import Rows

        A, m = scaled.rows(), len(scaled.r)
        inverse = 1.0 / scaled.size
        if 8 * len(scaled.faces) >= m:
            G, known = A @ A.T * inverse * inverse[:, None], np.ones(m, np.bool_)
        else:  # a few programs touch a few rows of G only: the kernel fills them in
            G, known = np.empty((m, m)), np.zeros(m, np.bool_)
        rows = Rows(A, inverse, scaled.r, scaled.slack, scaled.growth, G, known)
        answers: Answers = entry(rows, scaled.faces, scaled.U)
        return answers


class SimplexKernel(KernelSolver):
    """p = inf and p = 1, with and without a box: dual simplex with a compact basis and long steps."""

    name = "kernel-lp"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p in (1.0, math.inf) and programs.tilt is None

    def _entry(self) -> Any:
        from layercert.programs.kernels.simplex import solve_family

        return solve_family

    def _run(self, entry: Any, scaled: Scaled) -> Answers:
        from layercert.programs.kernels.lp import Lp

        A, (down, up) = scaled.unit_rows(), scaled.rooms()
        boxed = np.flatnonzero(np.minimum(up, down) < scaled.U)
        homogeneous = math.isinf(scaled.programs.norm.p)
        AT = np.ascontiguousarray(A.T)
        lp = Lp(A, AT, scaled.r, scaled.slack, scaled.growth, up, down, boxed, homogeneous)
        answers: Answers = entry(lp, scaled.faces, scaled.U)
        return answers


class SmoothKernel(KernelSolver):
    """1.1 <= p <= 12 (beyond, doubles hold too little of the dual), with and without a box: projected Newton."""

    name = "kernel-smooth"

    def supports(self, programs: Programs) -> bool:
        return 1.1 <= programs.norm.p <= 12.0 and programs.tilt is None

    def _entry(self) -> Any:
        from layercert.programs.kernels.smooth import solve_family

        return solve_family

    def _run(self, entry: Any, scaled: Scaled) -> Answers:
        from layercert.programs.kernels.smooth import Smooth

        p = scaled.programs.norm.p
        A, (down, up) = scaled.unit_rows(), scaled.rooms()
        ask = Smooth(A, scaled.r, scaled.slack, scaled.growth, up, down, up**p, down**p, p)
        answers: Answers = entry(ask, scaled.faces, scaled.U)
        return answers


def kernels(norm: Norm, announce: Callable[[str], None] | None = None) -> list[Solver]:
    """The kernels for a norm, in the order in which to try them."""
    if norm.p in (1.0, math.inf):
        return [SimplexKernel(announce)]
    smooth = SmoothKernel(announce)
    return [GramKernel(announce), smooth] if norm.p == 2.0 else [smooth]
