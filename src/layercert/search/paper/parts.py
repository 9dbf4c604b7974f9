"""The parts a LayerCert variant is composed of: goals with their restrictions M, and the set of seen patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from layercert.arrays import Vector
from layercert.bounds.linear import relax
from layercert.geometry import Cell, Polyhedron
from layercert.problem import Clause
from layercert.search.task import Task


@dataclass(frozen=True, eq=False)
class Goal:
    """Some clauses, the set M that holds all their unsafe points within U, and the point of M nearest to x."""

    number: int
    clauses: tuple[Clause, ...]
    M: Polyhedron
    distance: float
    step: Vector


def no_restriction(task: Task) -> list[Goal]:
    """M is the whole space: one goal for all clauses, starting at x."""
    n = task.cells.inputs
    return [Goal(0, task.problem.clauses, Polyhedron.everything(n), 0.0, np.zeros(n))]


def crown_restriction(task: Task) -> list[Goal]:
    """One goal per clause [E7]: the halfspace under CROWN's linear lower bound on the ball of radius U (section 5)."""
    relaxation = relax(task.cells.root, task.U)
    if relaxation is None:  # an unbounded ball, or a network without hidden layers
        return no_restriction(task)
    goals: list[Goal] = []
    for number, clause in enumerate(task.problem.clauses):
        M = relaxation.lower(clause)
        start = None if M is None else warm_start(task, M)
        if M is not None and start is not None:
            goals.append(Goal(number, (clause,), M, *start))
    return goals


def warm_start(task: Task, M: Polyhedron) -> tuple[float, Vector] | None:
    """The point of M nearest to x: closed form for one halfspace; None when it is beyond U."""
    norm, box = task.problem.norm, task.problem.box
    if not len(M):
        return 0.0, np.zeros(task.cells.inputs)
    if len(M) > 1:
        return task.nearest(M)
    lower = float(norm.prove_halfspace(M.A, -M.r - M.slack, box, M.growth)[0])
    if lower >= task.cutoff:
        return None
    distance, step = norm.halfspace(M.A[0], -float(M.r[0]), box)
    if not np.isfinite(distance):  # empty but for rounding: let the programs decide
        return task.nearest(M)
    task.book(np.array([lower]), np.array([distance]))
    return lower, step


def always(A: Cell, U: float, clauses: tuple[Clause, ...]) -> bool:
    """contains_db that never prunes."""
    return True


class Seen(Protocol):
    """S of the algorithms: which patterns need no further distance."""

    def queued(self, A: Cell) -> None: ...

    def visited(self, A: Cell) -> bool:
        """Called when A is taken from the queue; True when it had been visited before."""
        ...

    def __contains__(self, A: Cell) -> bool: ...


class SeenEarly:
    """A pattern is seen as soon as it is queued (LayerCert): one program per pattern."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def queued(self, A: Cell) -> None:
        self._keys.add(A.key)

    def visited(self, A: Cell) -> bool:
        return False

    def __contains__(self, A: Cell) -> bool:
        return A.key in self._keys


class SeenLate:
    """A pattern is seen when it is taken from the queue, as in GeoCert (the paper's ablation)."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def queued(self, A: Cell) -> None:
        pass

    def visited(self, A: Cell) -> bool:
        if A.key in self._keys:
            return True
        self._keys.add(A.key)
        return False

    def __contains__(self, A: Cell) -> bool:
        return A.key in self._keys
