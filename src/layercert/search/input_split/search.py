"""Input splitting: the ball as a box, cut in two until a linear bound excludes the unsafe set or a program finds it.

The distance from x to a box is a proved bound of everything in it, so the least one among the open boxes is a bound of
the distance asked for. A box is closed by the kernel (boxes.py), by lying beyond U, or exactly, by one distance program
for each linear piece that meets it, once these are few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from layercert.arrays import Indices, Matrix, Vector, gamma
from layercert.geometry import Polyhedron
from layercert.network import Network
from layercert.problem import Problem
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.search import GROWTH, affine
from layercert.search.events import Bound, Event
from layercert.search.input_split.boxes import Boxes, Findings, Workers, default_threads
from layercert.search.input_split.frontier import Frontier
from layercert.search.input_split.model import build, require_room
from layercert.search.task import Task

#: Beyond this many inputs there are too many directions to cut, beyond this many neurons forms are too long.
FEW_INPUTS, MOST_NEURONS = 6, 4096
#: Several threads take a quarter of the boxes that wait, up to so many times their batch: between two rounds one works
#: alone, for as long as the others examine a dozen boxes each.
SHARE, LONGER = 4, 16


@dataclass(frozen=True)
class Effort:
    """How the work is cut up."""

    threads: int = field(default_factory=default_threads)
    batch: int = 64  # boxes a thread and round
    root: int = 6  # with at most so many unstable neurons the whole ball is a matter of a few programs
    few: int = 3  # a box with at most so many unstable neurons is finished by programs, if the distance is asked for;
    more: int = 8  # one more for every so many cuts that did not close it,
    most: int = 10  # and never more than these


def input_split(task: Task, effort: Effort | None = None) -> Iterator[Event]:
    """The nearest unsafe point, exactly; every Bound is proved, rounding included."""
    problem = task.problem
    if not problem.clauses:
        yield Bound(task.U)
        return
    if problem.network.L == 0:
        yield from affine(task)
        return
    require_room(problem.network)
    if task.U <= 0:
        return
    if effort is None:
        effort = Effort() if task.threads is None else Effort(threads=task.threads)
    whole = task.known_size or task.cutoff >= problem.reach
    radius = task.cutoff if whole else min(task.cutoff, task.first_radius())
    while True:
        cover = Cover(task, effort, radius)
        yield from cover.run()
        if radius >= task.cutoff:
            return
        radius = min(GROWTH * radius, task.cutoff)


class Cover:
    """The boxes that cover a ball around x; the part of it that matters shrinks as witnesses are found."""

    def __init__(self, task: Task, effort: Effort, radius: float) -> None:
        self.task, self.effort, self.radius = task, effort, radius
        self.any = task.enough > 0.0  # does any unsafe point within the radius do, near or far?
        self.closed = math.inf  # least distance of what was closed by it alone, or by a program
        self.boxes = 0
        self.widths = np.zeros(task.problem.network.inputs)
        self.leaves = Leaves(task)
        problem = task.problem
        self.model = build(problem)
        self.frontier = Frontier(problem.network.inputs, problem.network.neurons, nearest=not self.any)

    @property
    def U(self) -> float:
        """The radius of the ball, or the distance of a witness inside it."""
        return min(self.radius, self.task.cutoff)

    @property
    def goal(self) -> float:
        """A box this far away is closed. A radius is proved in full, a witness's distance up to the gap."""
        return min(self.radius, self.task.goal)

    def run(self) -> Iterator[Event]:
        problem, effort = self.task.problem, self.effort
        m = len(problem.clauses)
        lo, hi = around(problem, self.U)
        self.widths = hi - lo
        self.frontier.push(
            Boxes(
                np.tile(lo, (m, 1)), np.tile(hi, (m, 1)), np.zeros((m, problem.network.neurons), np.int8),
                np.arange(m), np.zeros(m),
            )
        )  # fmt: skip
        lower = 0.0
        with Workers(self.model, effort.threads) as workers:
            while len(self.frontier):
                boxes = self.frontier.pop(self._round())
                lower = max(lower, min(float(boxes.key.min()), self.frontier.least(), self.closed))
                yield Bound(min(lower, self.U))  # in every round, raised or not: whoever listens watches the clock
                boxes = self._inside(boxes)
                found = workers(boxes)
                self.boxes += len(boxes)
                yield from self._witnesses(boxes, found)
                yield from self._open(boxes, found)
        yield Bound(min(self.U, self.closed))

    def _round(self) -> int:
        """How many boxes are examined at once."""
        most = self.effort.batch * self.effort.threads
        return most if self.effort.threads == 1 else min(max(most, len(self.frontier) // SHARE), LONGER * most)

    def _inside(self, boxes: Boxes) -> Boxes:
        """The boxes nearer than U, cut down to today's ball."""
        near = boxes.key < self.goal
        self.closed = min(self.closed, float(boxes.key[~near].min(initial=math.inf)))
        boxes = boxes.take(near)
        if self.radius > self.U:
            lo, hi = around(self.task.problem, self.U)
            np.maximum(boxes.lo, lo, out=boxes.lo)
            np.minimum(boxes.hi, hi, out=boxes.hi)
            boxes = boxes.take((boxes.lo <= boxes.hi).all(axis=1))  # nothing is left of a box that only touches it
        return boxes

    def _witnesses(self, boxes: Boxes, found: Findings) -> Iterator[Event]:
        """Points of open boxes that turned out unsafe; where the distance matters, the nearest of their pieces."""
        hits = np.flatnonzero((found.margin <= 0) & (found.value <= 0))
        for i in hits[np.argsort(found.value[hits], kind="stable")][: 1 if self.any else 4]:
            step = found.point[i] - self.task.problem.x
            clause = int(boxes.clause[i])
            yield from self._improve(step, self.task.problem.norm.value(step), clause)
            if not self.any:
                yield from self._polish(step, clause)

    def _improve(self, step: Vector, distance: float, clause: int) -> Iterator[Event]:
        if distance < self.U or distance <= self.task.enough:  # the end of a domain may be both U and enough
            yield from self.task.suggest(step, self.task.problem.clauses[clause])

    def _polish(self, step: Vector, clause: int) -> Iterator[Event]:
        """The nearest unsafe point of the linear piece of a point."""
        problem = self.task.problem
        z = np.concatenate(problem.network.preactivations(problem.x + step))
        everywhere = np.ones(len(z), np.bool_)
        answer = self.leaves.solve(np.where(z > 0, 1.0, -1.0), everywhere, problem.clauses[clause], self.U)
        yield from self._improve(answer.step, answer.value, clause)

    def _open(self, boxes: Boxes, found: Findings) -> Iterator[Event]:
        """Finish what is nearly linear by programs, cut the other open boxes in two."""
        still = found.margin <= 0
        boxes, unstable, axis = boxes.take(still), found.unstable[still], found.axis[still]
        if not len(boxes):
            return
        rows = np.arange(len(boxes))
        lo, hi = boxes.lo[rows, axis], boxes.hi[rows, axis]
        cut = lo + 0.5 * (hi - lo)
        stuck = ~((lo < cut) & (cut < hi))
        done = (unstable >= 0) & (unstable <= self._few(boxes))
        for i in np.flatnonzero(done):
            yield from self._finish(boxes.take(slice(i, i + 1)))
        lost = stuck & ~done
        self.closed = min(self.closed, float(boxes.key[lost].min(initial=math.inf)))
        which = ~done & ~lost
        parents, axis, cut = boxes.take(which), axis[which], cut[which]
        rows = np.arange(len(parents))
        for lower_half in (True, False):
            kids = parents.take(slice(None))
            kids = Boxes(kids.lo.copy(), kids.hi.copy(), kids.side, kids.clause, kids.key)
            (kids.hi if lower_half else kids.lo)[rows, axis] = cut
            kids.key = np.maximum(kids.key, distances(self.task.problem, kids.lo, kids.hi))
            self.frontier.push(kids)

    def _few(self, boxes: Boxes) -> Indices:
        """With how many unstable neurons each box is better finished than cut."""
        with np.errstate(divide="ignore", invalid="ignore"):
            cuts = np.log2(self.widths / (boxes.hi - boxes.lo), where=self.widths > 0, out=np.zeros_like(boxes.lo))
        effort = self.effort
        few = -effort.more if self.any else effort.few
        total = np.minimum(cuts.sum(axis=1), 1e3)
        later = np.minimum(few + total.astype(np.intp) // effort.more, effort.most)
        return np.where(total == 0, effort.root, later)

    def _finish(self, box: Boxes) -> Iterator[Event]:
        """One program for each linear piece that may meet the box."""
        problem = self.task.problem
        clause = int(box.clause[0])
        side = box.side[0]
        free = np.flatnonzero(side == 0)
        walls = sides_of(problem, box.lo[0], box.hi[0], self.U)
        lower = math.inf
        for choice in itertools.product((1.0, -1.0), repeat=len(free)):
            sides = side.astype(np.float64)
            sides[free] = choice
            answer = self.leaves.solve(sides, side == 0, problem.clauses[clause], self.U, walls)
            lower = min(lower, answer.lower)
            yield Bound(0.0)  # says nothing, but whoever listens also watches the clock
            yield from self._improve(answer.step, answer.value, clause)
        self.closed = min(self.closed, max(lower, float(box.key[0])))


def suits(network: Network) -> bool:
    """Is the network one that input splitting is made for?"""
    return network.L > 0 and network.inputs <= FEW_INPUTS and network.neurons <= MOST_NEURONS


def open_neurons(problem: Problem, U: float) -> int:
    """How many neurons may change sign in the ball of radius U: one box's worth of work (all, if bounds overflow)."""
    lo, hi = around(problem, U)
    neurons = problem.network.neurons
    side = np.zeros((1, neurons), np.int8)
    with Workers(build(problem), 1) as workers:
        found = workers(Boxes(lo[None].copy(), hi[None].copy(), side, np.zeros(1, np.intp), np.zeros(1)))
    return int(found.unstable[0]) if found.unstable[0] >= 0 else neurons


def around(problem: Problem, U: float) -> tuple[Vector, Vector]:
    """The ends of the box around the ball of radius U, inside the domain, rounded outward."""
    lo, hi = np.nextafter(problem.x - U, -np.inf), np.nextafter(problem.x + U, np.inf)
    if problem.domain is None:
        return lo, hi
    return np.maximum(lo, problem.domain[0]), np.minimum(hi, problem.domain[1])


def distances(problem: Problem, lo: Matrix, hi: Matrix) -> Vector:
    """The distance from x to each box, rounded down."""
    apart = np.maximum(np.maximum(lo - problem.x, problem.x - hi), 0.0)
    return problem.norm(apart) * (1.0 - gamma(2 * lo.shape[1] + 64))


def sides_of(problem: Problem, lo: Vector, hi: Vector, U: float) -> Polyhedron:
    """A box as rows over offsets from x, rounded outward; without the sides that the ball of radius U does not meet."""
    eye = np.eye(len(lo))
    ends = np.concatenate([np.nextafter(hi - problem.x, np.inf), np.nextafter(problem.x - lo, np.inf)])
    near = ends < U
    none = np.zeros(int(near.sum()))
    return Polyhedron(np.concatenate([eye, -eye])[near], ends[near], none, none)
