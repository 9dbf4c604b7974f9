"""The Recorder of certificates: keeps the trees of a search and their parameters, rounded to what will be stored."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Vector
from layercert.search.adaptive.model import Kept, Model, Played
from layercert.search.adaptive.record import BallRecorder, Fixed, Halfspace, Tightened

#: Slopes of rows are kept as parts of this, and multipliers up to this size.
PARTS, MOST = 255, 1e29
#: Numbers of rows' parameters that may be kept per node, and in all before there are fewer.
PER_NODE, IN_ALL = 1 << 17, 1 << 28
#: More balls than this are not remembered.
BALLS = 8
#: Bytes of rounds that are kept for each.
NOTED = 1 << 27


class Snapshot(NamedTuple):
    """The parameters of all rows as some passes left them (model.Kept), slopes as parts of 255."""

    at: Indices
    slopes: NDArray[np.uint8]
    known: NDArray[np.bool_]  # per row: had it a pass?
    betas: NDArray[np.float32]  # signed; none where all are zero
    pulls: NDArray[np.float32]


class Stage(NamedTuple):
    """A halfspace of a node, the neurons of which it excludes one side, and what it proves of the node."""

    own: Halfspace
    fixed: Fixed
    bound: float


@dataclass
class Plan:
    """A node: the parameters of its halfspaces, the last one first (of a node that is no root, the last one and the
    first); its rows; the search's split of it if any; what was fixed there, in order."""

    owns: list[Halfspace] = field(default_factory=list)
    rows: Snapshot | None = None
    bound: float = -math.inf
    entry: float = -math.inf  # the bound before anything was fixed; but for roots, the first one
    neuron: int = -1  # counted over all layers
    children: tuple[int, int] | None = None
    root: bool = False
    stages: list[Stage] = field(default_factory=list)
    trail: list[Stage | Tightened] = field(default_factory=list)  # stages, and the rounds between them, in order


class Forest:
    """What was recorded of one ball: a tree per clause."""

    def __init__(self, radius: float, model: Model | None = None, played: dict[int, Played] | None = None) -> None:
        """played: the rows by hulls behind the model's bounds, by layer; none: nobody listed them."""
        self.radius, self.model, self.played = radius, model, played
        self._lock = threading.Lock()
        self.plans: dict[int, Plan] = {}
        self.roots: dict[int, int] = {}  # by clause
        self._last: Snapshot | None = None
        self._since, self._taken, self._share = 0, 0, PER_NODE
        self._noted, self._told_last = 0, np.zeros(0, np.uint8)

    def plan(self, node: int) -> Plan:
        return self.plans.setdefault(node, Plan())

    def reached(self, clauses: int) -> float:
        """The distance that the leaves of all trees prove."""
        if len(self.roots) < clauses:
            return 0.0
        least, waiting = math.inf, list(self.roots.values())
        while waiting:
            plan = self.plans.get(waiting.pop())
            if plan is None:
                return 0.0
            if plan.children is None:
                least = min(least, plan.bound)
            else:
                waiting += plan.children
        return least

    def root(self, node: int, clause: int) -> None:
        self.roots[clause] = node
        self.plan(node).root = True

    def rows(self, node: int, kept: Kept) -> None:
        """Rows are kept as often as their number allows."""
        with self._lock:
            self._since += 1
            if self._last is None or self.plan(node).root or self._since * self._share >= len(kept.slopes):
                self._last, self._since = snapshot(kept), 0
                self._taken += len(kept.slopes)
                if self._taken > IN_ALL:
                    self._taken, self._share = 0, self._share // 2
            self.plan(node).rows = self._last

    def bounded(self, node: int, bound: float, own: Halfspace) -> None:
        plan = self.plan(node)
        if bound > plan.bound or not plan.owns:
            # a root's bounds are those of the whole ball, so that its first halfspaces are of use as well
            owns = [_copied(own), *plan.owns]
            plan.owns = owns if plan.root else _ends(owns)
        if not plan.stages and (plan.root or plan.entry == -math.inf):
            plan.entry = bound
        plan.bound = max(plan.bound, bound)

    def fixed(self, node: int, own: Halfspace, fixed: Fixed) -> None:
        plan = self.plan(node)
        plan.stages.append(Stage(_copied(own), fixed, plan.bound))
        plan.trail.append(plan.stages[-1])

    def tightened(self, node: int, done: Tightened) -> None:
        with self._lock:
            if self._told_last is not done.slopes:  # rounds that were told together share them
                self._told_last = done.slopes
                self._noted += done.slopes.nbytes + done.splits.nbytes
            self._noted += done.own.alpha.nbytes + done.own.beta.nbytes
            if self._noted <= NOTED:
                self.plan(node).trail.append(done)

    def split(self, node: int, neuron: int, children: tuple[int, int]) -> None:
        plan = self.plan(node)
        plan.neuron, plan.children = neuron, children

    def join(self, other: Forest, here: Callable[[int], int]) -> None:
        """What became of some nodes elsewhere; here(number) is a node's number in this forest."""
        for snapshot in {id(plan.rows): plan.rows for plan in other.plans.values() if plan.rows is not None}.values():
            self._taken += len(snapshot.slopes)
            if self._taken <= IN_ALL:
                self._last = snapshot
        for number, theirs in other.plans.items():
            plan = self.plan(here(number))
            if theirs.owns and (theirs.bound > plan.bound or not plan.owns):
                owns = [*theirs.owns, *plan.owns]
                plan.owns = owns if plan.root else _ends(owns)
            plan.entry = theirs.entry if plan.entry == -math.inf else plan.entry
            plan.stages += theirs.stages
            plan.bound = max(plan.bound, theirs.bound)
            if theirs.rows is not None:
                plan.rows = theirs.rows if self._taken <= IN_ALL else self._last
            if theirs.children is not None:
                on, off = theirs.children
                plan.neuron, plan.children = theirs.neuron, (here(on), here(off))


class Recording:
    """The forests of the balls that were searched."""

    def __init__(self) -> None:
        self.forests: list[Forest] = []

    def reaches(self, radius: float, clauses: int) -> bool:
        """Does what was told prove this radius? Not where parts of a tree were worked on elsewhere."""
        return self.forest_for(radius, clauses).reached(clauses) >= radius

    def ball(self, radius: float, model: Model, played: dict[int, Played] | None = None) -> Forest:
        if len(self.forests) >= BALLS:  # those that reach least, but for the largest, which may not be done
            largest = max(self.forests, key=lambda forest: forest.radius)
            others = [forest for forest in self.forests if forest is not largest]
            self.forests.remove(min(others, key=lambda forest: forest.reached(len(forest.roots))))
        self.forests.append(Forest(radius, model, played))
        return self.forests[-1]

    def packed(self, ball: BallRecorder, made: int, *, brief: bool = False) -> bytes:
        from layercert.certify.kept import packed

        assert isinstance(ball, Forest)
        return packed(self, ball, made, brief)

    def elsewhere(self) -> Recording:
        return Recording()

    def join(self, ball: BallRecorder, record: bytes, here: Callable[[int], int]) -> None:
        from layercert.certify.kept import unpacked

        assert isinstance(ball, Forest)
        ball.join(unpacked(record), here)

    def resumed(self, record: bytes, model: Model | None, played: dict[int, Played] | None = None) -> Forest:
        from layercert.certify.kept import resumed

        return resumed(self, record, model, played)

    def forest_for(self, radius: float, clauses: int) -> Forest:
        """What is worth replaying for a proof in the ball of this radius: the smallest that reaches it."""
        wide = [forest for forest in self.forests if forest.radius >= radius and forest.plans]
        proved = [forest for forest in wide if forest.reached(clauses) >= radius]
        if proved:
            return min(proved, key=lambda forest: len(forest.plans))
        return max(wide or self.forests, key=lambda forest: forest.reached(clauses), default=Forest(radius))


def _ends(owns: list[Halfspace]) -> list[Halfspace]:
    """The last one and the first."""
    return owns[:1] if len(owns) == 1 else [owns[0], owns[-1]]


def _copied(own: Halfspace) -> Halfspace:
    """Not the views of what a kernel will overwrite."""
    alpha, beta, weights = (np.array(part, dtype=np.float64) for part in own[:3])
    return Halfspace(alpha, beta, weights, own.facets)


def snapshot(kept: Kept) -> Snapshot:
    starts = np.minimum(kept.at[:-1], max(len(kept.slopes) - 1, 0))
    known = (np.diff(kept.at) > 0) & (kept.slopes[starts] >= 0 if len(kept.slopes) else False)
    slopes = np.rint(np.clip(kept.slopes, 0.0, 1.0) * np.float32(PARTS)).astype(np.uint8)
    betas = np.zeros(0, np.float32)
    if kept.betas.any():
        betas = np.nan_to_num(np.clip(kept.betas, -MOST, MOST), nan=0.0)
    return Snapshot(kept.at, slopes, known, betas, in_range(kept.pulls).astype(np.float32))


def in_range(values: Vector) -> Vector:
    """Multipliers that a certificate may hold: finite, >= 0, and not too large."""
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), 0.0, MOST)


def scaled(own: Halfspace) -> Halfspace:
    """The same halfspace in range: beta and the weights scaled together, so that the largest is at most one."""
    from layercert.certify.digest import fitted

    return Halfspace(*fitted(*own[:3]), own.facets)
