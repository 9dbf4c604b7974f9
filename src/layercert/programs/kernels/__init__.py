"""Distance kernels compiled by numba: the fast path of every search. Importing this package does not load numba."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.norms import Norm
from layercert.programs.kernels.scaled import OPTIMAL, Scaled, rays_of_zero_rows
from layercert.programs.program import Candidates, Programs, Solver

__all__ = ["GramKernel", "KernelSolver", "SimplexKernel", "kernels"]

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
    def _run(self, entry: Any, programs: Programs, scaled: Scaled) -> Answers: ...

    def solve(self, programs: Programs) -> Candidates:
        rays = rays_of_zero_rows(programs)
        scaled = Scaled.of(programs)
        if not len(scaled.r):
            k, n = len(programs), programs.rows.A.shape[1]
            answer = scaled.candidates(programs, np.full(k, OPTIMAL), np.zeros((k, n)), np.zeros((k, 0)))
        else:
            answer = scaled.candidates(programs, *self._run(self._ready(), programs, scaled))
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

    def _run(self, entry: Any, programs: Programs, scaled: Scaled) -> Answers:
        A, m = scaled.A, len(scaled.r)
        if 8 * len(scaled.faces) >= m:
            G, known = A @ A.T, np.ones(m, np.bool_)
        else:  # a few programs touch a few rows of G only: the kernel fills them in
            G, known = np.empty((m, m)), np.zeros(m, np.bool_)
        answers: Answers = entry(A, scaled.r, scaled.slack, scaled.growth, scaled.faces, scaled.U, G, known)
        return answers


class SimplexKernel(KernelSolver):
    """p = inf and p = 1, with and without a box: dual simplex with a compact basis and long steps."""

    name = "kernel-lp"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p in (1.0, math.inf) and programs.tilt is None

    def _entry(self) -> Any:
        from layercert.programs.kernels.simplex import solve_family

        return solve_family

    def _run(self, entry: Any, programs: Programs, scaled: Scaled) -> Answers:
        from layercert.programs.kernels.simplex import Lp

        A, r = scaled.A, scaled.r
        down, up = rooms(programs, scaled)
        boxed = np.flatnonzero(np.minimum(up, down) < scaled.U)
        homogeneous = math.isinf(programs.norm.p)
        AT = np.ascontiguousarray(A.T)
        lp = Lp(A, AT, r, scaled.slack, scaled.growth, up, down, boxed, homogeneous)
        answers: Answers = entry(lp, scaled.faces, scaled.U)
        return answers


def rooms(programs: Programs, scaled: Scaled) -> tuple[Vector, Vector]:
    """How far each coordinate may go down and up, both >= 0, in the kernel's unit of length."""
    box, n = programs.box, programs.rows.A.shape[1]
    if box is None:
        return np.full(n, math.inf), np.full(n, math.inf)
    return -box.lo / scaled.unit, box.hi / scaled.unit


def kernels(norm: Norm, announce: Callable[[str], None] | None = None) -> list[Solver]:
    """The kernels for a norm, in the order in which to try them."""
    if norm.p in (1.0, math.inf):
        return [SimplexKernel(announce)]
    return [GramKernel(announce)] if norm.p == 2.0 else []
