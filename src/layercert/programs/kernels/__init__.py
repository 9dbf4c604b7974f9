"""Distance kernels compiled by numba: the fast path of every search. Importing this package does not load numba."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from layercert.arrays import Matrix
from layercert.norms import Norm
from layercert.programs.kernels.scaled import TINY, with_zero_rows, without_zero_rows
from layercert.programs.program import Candidates, Programs, Solver, row_sizes
from layercert.system import clock

__all__ = ["GramKernel", "KernelSolver", "SimplexKernel", "SmoothKernel", "kernels"]

Answers = tuple[Matrix, Matrix]  # points (NaN for none), multipliers

#: From this many products on a whole Gram matrix is left to BLAS.
LARGE = 100_000
NO_MATRIX = np.empty((0, 0))


class KernelSolver(ABC):
    """A compiled kernel behind the `Solver` protocol: scaling and zero rows."""

    name: str

    @abstractmethod
    def supports(self, programs: Programs) -> bool: ...

    @cached_property
    @abstractmethod
    def _entry(self) -> Any:
        """The compiled function that solves a family."""

    def _run(self, entry: Any, programs: Programs) -> Answers:
        answers: Answers = entry(*programs.arrays, programs.equalities, programs.cutoff, clock.timer())
        return answers

    def solve(self, programs: Programs) -> Candidates:
        k, (m, n) = len(programs), programs.rows.A.shape
        if m == 0:
            return Candidates(np.zeros((k, n)), np.zeros((k, 0)))
        if min(row_sizes(programs.rows, programs.norm).tolist()) <= TINY:
            live, which = without_zero_rows(programs)
            return with_zero_rows(programs, which, self.solve(live))
        answers = self._run(self._entry, programs)
        clock.check()  # a kernel that gave up: the other solvers are not asked any more
        return Candidates(*answers)


class GramKernel(KernelSolver):
    """p = 2 without a box: dual active set on the Gram matrix."""

    name = "kernel-l2"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p == 2.0 and programs.box is None and programs.tilt is None

    @cached_property
    def _entry(self) -> Any:
        from layercert.programs.kernels.gram import answer

        return answer

    def _run(self, entry: Any, programs: Programs) -> Answers:
        A = programs.rows.A
        m, n = A.shape
        # the kernel computes the entries it needs: only for many faces of many long rows BLAS is worth its call
        G = A @ A.T if 8 * len(programs) >= m and m * m * n > LARGE else NO_MATRIX
        answers: Answers = entry(*programs.arrays, programs.equalities, programs.cutoff, clock.timer(), G)
        return answers


class SimplexKernel(KernelSolver):
    """p = inf and p = 1, with and without a box: dual simplex with a compact basis and long steps."""

    name = "kernel-lp"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p in (1.0, math.inf) and programs.tilt is None

    @cached_property
    def _entry(self) -> Any:
        from layercert.programs.kernels.simplex import answer

        return answer


class SmoothKernel(KernelSolver):
    """1.1 <= p <= 12 (beyond, doubles hold too little of the dual), with and without a box: projected Newton."""

    name = "kernel-smooth"

    def supports(self, programs: Programs) -> bool:
        return 1.1 <= programs.norm.p <= 12.0 and programs.tilt is None

    @cached_property
    def _entry(self) -> Any:
        from layercert.programs.kernels.smooth import answer

        return answer


def kernels(norm: Norm) -> list[Solver]:
    """The kernels for a norm, in the order in which to try them."""
    if norm.p in (1.0, math.inf):
        return [SimplexKernel()]
    smooth = SmoothKernel()
    return [GramKernel(), smooth] if norm.p == 2.0 else [smooth]
