"""Solvers in order of preference: what one cannot decide falls to the next, and everything is counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from layercert.programs.program import GAP, Programs, Solutions, Solver, check, gap_closed
from layercert.system import clock


def forgive(solver: Solver, error: Exception) -> None:
    """A solver that crashes has no answer, and the next one is asked. The tests do not forgive: see their conftest."""


class SolverChain:
    """Answers distance programs with proofs. `programs` counts questions, not the solvers' attempts at them."""

    def __init__(self, solvers: Sequence[Solver], gap: float = GAP, rotates: bool = True) -> None:
        self.solvers = tuple(solvers)
        self.gap = gap
        self.rotates = rotates  # may programs be stated in the row space of the first layer?
        self.programs = 0
        self.rows = 0  # constraints over all programs, to compare sizes (Theorem 4.2)
        self.solved_by: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()  # programs a solver was given and left undecided
        self.crashes: Counter[str] = Counter()  # of these, the ones on which it raised an error
        self.undecided = 0
        self._counting = threading.Lock()

    def solve(self, programs: Programs) -> Solutions:
        """Checked answers for the whole family; `decided` is False where every solver failed. Any thread may ask."""
        with self._counting:
            self.programs += len(programs)
            self.rows += len(programs) * len(programs.rows)
        answers: Solutions | None = None
        todo = np.arange(len(programs))
        for solver in self.solvers:
            if not len(todo):
                break
            part = programs if answers is None else programs.take(todo)
            if not solver.supports(part):
                continue
            if answers is not None:
                clock.check()  # what one solver leaves to the next takes longer each time
            try:
                with np.errstate(all="ignore"):  # rows of any scale: what overflows or vanishes is no claim that holds
                    claims = solver.solve(part)
            except Exception as error:
                forgive(solver, error)
                with self._counting:
                    self.crashes[solver.name] += len(part)
                    self.fallbacks[solver.name] += len(part)
                continue
            found = check(part, claims, self.gap)
            if answers is None:
                answers = found
            else:
                answers = answers.merge(todo, found)
                # bounds from different solvers may close the gap together
                answers.decided[todo] |= gap_closed(answers.lower[todo], answers.value[todo], self.gap)
            left = todo[~answers.decided[todo]]
            with self._counting:
                self.solved_by[solver.name] += len(todo) - len(left)
                self.fallbacks[solver.name] += len(left)
            todo = left
        with self._counting:
            self.undecided += len(todo)
        return Solutions.empty(programs) if answers is None else answers

    def count(self, programs: int, rows: int) -> None:
        """Book programs that were answered by `recheck` and are questions of their own after all."""
        self.programs += programs
        self.rows += programs * rows

    def recheck(self, programs: Programs) -> Solutions:
        """As `solve`, for questions that are part of another one: answered and proved, but not counted again."""
        programs_before, rows_before = self.programs, self.rows
        try:
            return self.solve(programs)
        finally:
            self.programs, self.rows = programs_before, rows_before
