"""The best witness of a search, in one place: who finds an unsafe point offers it here, and U is read from here."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Vector
from layercert.attack.attack import NOISE, is_noise, settle
from layercert.problem import Clause, Problem
from layercert.scaled import Scaled
from layercert.system import clock

#: Seconds beyond the time limit for a look at a point that was found in time: in exact arithmetic, in the model's own
#: runtime.
GRACE = 0.3


@dataclass(frozen=True, eq=False)
class Witness:
    """A point that is unsafe in exact arithmetic, its distance from x, and a clause that holds there."""

    point: Vector
    distance: float
    clause: Clause


class Incumbent:
    """The nearest witness so far. It changes in `take` and nowhere else.

    Any number of threads may read and offer: a witness is replaced whole, one offer at a time.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._witness: Witness | None = None
        self._nearest = math.inf
        self._unsettled: Vector | None = None
        self._lock = threading.RLock()

    @property
    def witness(self) -> Witness | None:
        """The nearest witness, None as long as there is none."""
        return self._witness

    @property
    def point(self) -> Vector | None:
        held = self.witness
        return None if held is None else held.point

    @property
    def clause(self) -> Clause | None:
        held = self.witness
        return None if held is None else held.clause

    @property
    def distance(self) -> float:
        """The upper bound of the distance asked for: that of the witness, inf without one."""
        held = self.witness
        return math.inf if held is None else held.distance

    @property
    def noise(self) -> float:
        """What rounding may hide of the distance where the witness is x but for rounding; 0 if it is another point."""
        x, v = self.problem.x, self.problem.x if self.point is None else self.point
        if not is_noise(x, v):
            return 0.0
        return NOISE * self.problem.norm.value(np.where(v != x, x, 0.0))

    @property
    def nearest(self) -> float:
        """How near a point was offered: no search needs to look beyond.

        It is the witness's distance but for the millionth by which settling may move a point, or less where a point
        nearer than the witness is unsafe up to rounding only: then no bound can be proved beyond that one.
        """
        return self._nearest

    @property
    def unsettled(self) -> Vector | None:
        """The last offset from x that was unsafe up to rounding only."""
        return self._unsettled

    def offer(self, step: Vector, clause: Clause) -> bool:
        """Suggest the point x + step, unsafe up to rounding. True if it (or one beside it) is the new witness."""
        length = self.problem.norm.value(step)
        with self._lock:
            if length >= self.distance:
                return False
            with clock.extended(GRACE):  # what was found in time is not lost
                point = settle(self.problem, step, clause)
                self._nearest = min(self._nearest, length)  # not before: where the time is up, nobody knows the point
                if point is None:
                    self._unsettled = step.copy()
                    return False
                return self.take(point)

    def propose(self, step: Vector, clause: Clause) -> bool:
        """Suggest x + step, which a solver takes for unsafe: it counts if it (or a point beside it) is the new witness.

        Solvers have tolerances of their own. Where the network's numbers are small, their point may be far from unsafe,
        and unlike one that is so up to rounding it says nothing about how far a bound can be proved.
        """
        length = self.problem.norm.value(step)
        with self._lock:
            if length >= self.distance:
                return False
            with clock.extended(GRACE):
                point = settle(self.problem, step, clause)
                if point is None or not self.take(point):
                    return False
                self._nearest = min(self._nearest, length)
                return True

    def take(self, point: Vector) -> bool:
        """Hold a point of the domain as the witness, if it is nearer and unsafe in exact arithmetic."""
        distance = self.problem.distance(point)
        with self._lock:
            if distance >= self.distance:
                return False
            clause = self.problem.holding(point)
            if clause is None:
                return False
            self._nearest = min(self._nearest, distance)
            self._witness = Witness(point, distance, clause)
            return True

    def recall(self, point: Vector | None, nearest: float, unsettled: Vector | None) -> None:
        """What another search of the same problem held; the point is looked at again."""
        with self._lock:
            if point is not None:
                self.take(point)
            self._nearest = min(self._nearest, nearest)
            if unsettled is not None:
                self._unsettled = unsettled

    def seen_in(self, view: Scaled) -> Incumbent:
        """The same incumbent for a search in scaled coordinates; itself where nothing is scaled."""
        return self if view.problem is view.original else _SeenScaled(self, view)


class _SeenScaled(Incumbent):
    """An incumbent in scaled coordinates. It holds nothing itself: all it is told goes to the one it stands for."""

    def __init__(self, own: Incumbent, view: Scaled) -> None:
        super().__init__(view.problem)
        self._own, self._view = own, view

    @property
    def witness(self) -> Witness | None:
        own, view = self._own.witness, self._view
        if own is None:
            return None
        at = next(i for i, each in enumerate(view.original.clauses) if each is own.clause)
        point = view.problem.x + view.inwards(own.point - view.original.x)
        return Witness(point, view.within(own.distance), view.problem.clauses[at])

    @property
    def nearest(self) -> float:
        return self._view.within(self._own.nearest)

    @property
    def unsettled(self) -> Vector | None:
        own = self._own.unsettled
        return None if own is None else self._view.inwards(own)

    def offer(self, step: Vector, clause: Clause) -> bool:
        return self._own.offer(self._view.offset(step), self._view.clause(clause))

    def propose(self, step: Vector, clause: Clause) -> bool:
        return self._own.propose(self._view.offset(step), self._view.clause(clause))

    def take(self, point: Vector) -> bool:
        original = self._view.original
        # the scaled domain is a little larger than the one that was asked for
        return self._own.take(original.into_domain(original.x + self._view.offset(point - self.problem.x)))

    def recall(self, point: Vector | None, nearest: float, unsettled: Vector | None) -> None:
        if point is not None:
            self.take(point)
        if nearest < self.nearest:
            self._own.recall(None, self._view.inside(nearest), None)
        if unsettled is not None:
            self._own.recall(None, math.inf, self._view.offset(unsettled))
