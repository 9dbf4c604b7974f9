"""Whole numbers and alternatives among the inputs: exact by branching on inputs.

A node is a box of inputs. Its problem forgets that some inputs are whole: the nearest unsafe point of the box, from the
point c of the box nearest to x, by any search. Every coordinate of v in the box has |v_i - x_i| = |v_i - c_i| +
|c_i - x_i|, so ||v - x||^p >= ||v - c||^p + ||c - x||^p (the larger of the two for l_inf): a bound for the box. Where
the nearest point is not whole, the box is cut beside it, or once for each alternative of a group. Boxes wait in the
order of their bounds, and the least bound of all is proved at any time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from layercert.arrays import Vector
from layercert.problem import Problem
from layercert.questions import Discrete
from layercert.search.incumbent import GRACE, Incumbent
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.result import Result

#: A closed problem with ordinary inputs: the nearest unsafe point, within its radius.
Ask: TypeAlias = "Callable[[Problem], Result]"
#: Sums of powers lose less than this, relative.
LOSS = 1e-14
#: A box is searched a little beyond what would close it, so that it is closed in spite of rounding.
BEYOND = 1e-12


@dataclass(eq=False)
class Box:
    """A box of inputs, what is proved about it, and its parts: `group` (one per member) or `axis` (<= cut, > cut)."""

    low: Vector
    high: Vector
    bound: float = 0.0
    group: int | None = None
    axis: int | None = None
    cut: float = 0.0
    parts: list[Box] = field(default_factory=list)

    def leaves(self) -> Iterator[Box]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(eq=False)
class Branching:
    """The search of one problem; it can be stopped between two boxes, and its bounds hold at any time."""

    problem: Problem
    discrete: Discrete
    gap: float
    enough: float = 0.0  # a witness at this distance or nearer ends the search
    root: Box = field(init=False)
    incumbent: Incumbent = field(init=False)
    programs: int = 0
    boxes: int = 0
    last: Result | None = None
    looked: bool = False  # at x itself: before that nothing is proved, not even a radius of 0

    def __post_init__(self) -> None:
        self.incumbent = Incumbent(self.problem)
        self.root = Box(*root_box(self.problem, self.discrete))
        self._queue = [(0.0, 0, self.root)]

    @property
    def upper(self) -> float:
        return self.incumbent.distance

    @property
    def found(self) -> bool:
        """Is there a witness within the radius?"""
        return self.incumbent.witness is not None and self.upper <= self.problem.radius

    @property
    def lower(self) -> float:
        """No admissible unsafe point is nearer."""
        return min(self.upper, *(box.bound for box in self.root.leaves()))

    @property
    def cutoff(self) -> float:
        return min(self.problem.radius * (1.0 + BEYOND), self.upper)

    def run(self, ask: Ask, late: Callable[[], bool]) -> bool:
        """Go on until the answer is there (True) or it is late (False)."""
        waiting = 0
        while self._queue:
            if self.found and self.upper <= self.enough:
                return True
            bound, _, box = heapq.heappop(self._queue)
            if self.boxes and self._closed(bound):  # x itself is looked at in any case
                return True
            if self.boxes and late():
                heapq.heappush(self._queue, (bound, -1, box))
                return False
            for part in self._expand(box, ask):
                waiting += 1
                heapq.heappush(self._queue, (part.bound, waiting, part))
        return True

    def _closed(self, bound: float) -> bool:
        """Nothing nearer than the radius is left, or, where the nearest point is asked for, none nearer by the gap."""
        return bound >= self.problem.radius or (self.enough == 0.0 and bound >= self.upper * (1.0 - self.gap))

    def _expand(self, box: Box, ask: Ask) -> list[Box]:
        """Bound a box by its own problem; its parts, if it needs any."""
        asked, away = self.inside(box, self.cutoff)
        result = self._answer(ask, asked)
        box.bound = max(box.bound, joined(self.problem.norm.p, result.lower, away))
        if result.status == "robust" and result.lower >= asked.reach * (1.0 - 5e-10):
            box.bound = math.inf  # nothing unsafe in the whole box
        if result.witness is None and box.bound == 0.0:  # x may be unsafe itself, and there was no time to say so
            self.offer(asked.x)
        if result.witness is not None and not self.offer(result.witness):
            near = self.discrete.nearest(result.witness, box.low, box.high)
            if not self.offer(near) and math.isinf(self.upper):
                # no admissible witness yet: the best with these whole numbers
                held = replace(asked, x=np.where(self.discrete.among, near, asked.x), domain=self._held(box, near))
                found = self._answer(ask, replace(held, radius=math.inf)).witness
                if found is not None:
                    self.offer(found)
        self.looked = True  # the root's nearest point is x
        if self._closed(box.bound):
            return []
        self._split(box, asked.x, result.witness)
        for part in box.parts:
            part.bound = max(box.bound, self.inside(part, math.inf)[1])
        return box.parts

    def _answer(self, ask: Ask, asked: Problem) -> Result:
        self.last = result = ask(asked)
        self.programs, self.boxes = self.programs + result.programs, self.boxes + 1
        return result

    def _held(self, box: Box, near: Vector) -> tuple[Vector, Vector]:
        among = self.discrete.among
        return np.where(among, near, box.low), np.where(among, near, box.high)

    def offer(self, v: Vector) -> bool:
        """Take a point if it is admissible and unsafe. True if it is admissible, whatever it is worth."""
        if not self.discrete.admits(v):
            return False
        with clock.extended(GRACE):  # what was found in time is not lost
            self.incumbent.take(v)
        return True

    def inside(self, box: Box, cutoff: float) -> tuple[Problem, float]:
        """The problem of a box, up to the cutoff, and how far its nearest point c is at least."""
        problem = self.problem
        c = np.clip(problem.x, box.low, box.high)
        away = problem.distance(c)
        away = math.nextafter(away, 0.0) if away > 0 else 0.0
        rest = left_of(problem.norm.p, cutoff * (1.0 + BEYOND), away)
        return replace(problem, x=c, domain=(box.low, box.high), radius=rest, discrete=None), away

    def _split(self, box: Box, c: Vector, v: Vector | None) -> None:
        """Cut a box beside its nearest point, where that is not admissible; else where the bound lost something."""
        open_groups = [g for g, members in enumerate(self.discrete.groups) if (box.low < box.high)[list(members)].any()]
        axes = [i for i in self.discrete.integer if box.low[i] < box.high[i]]
        if v is None:
            v = c
        loose = {g: float(np.sort(v[list(self.discrete.groups[g])])[:-1].sum()) for g in open_groups}
        broken = {i: abs(float(v[i]) - round(float(v[i]))) for i in axes}
        if loose and max(loose.values()) >= max(broken.values(), default=0.0):
            g = max(loose, key=lambda k: loose[k])
            self._split_group(box, g)
        elif broken and max(broken.values()) > 0:
            i = max(broken, key=lambda k: broken[k])
            self._split_axis(box, i, math.floor(float(v[i])))
        elif axes:  # whole already: what is lost is |v_i - c_i| beside |c_i - x_i|
            i = max(axes, key=lambda k: abs(float(v[k] - c[k])))
            self._split_axis(box, i, float(c[i]) if c[i] < box.high[i] else float(c[i]) - 1.0)

    def _split_axis(self, box: Box, i: int, cut: float) -> None:
        cut = min(max(cut, box.low[i]), box.high[i] - 1.0)
        below, above = Box(box.low, box.high.copy()), Box(box.low.copy(), box.high)
        below.high[i], above.low[i] = cut, cut + 1.0
        box.axis, box.cut, box.parts = i, cut, [below, above]

    def _split_group(self, box: Box, g: int) -> None:
        box.group = g
        for k in self.discrete.groups[g]:
            part = Box(box.low.copy(), box.high.copy())
            for j in self.discrete.groups[g]:
                part.low[j], part.high[j] = max(box.low[j], float(j == k)), min(box.high[j], float(j == k))
            if (part.low <= part.high).all():
                box.parts.append(part)


def root_box(problem: Problem, discrete: Discrete) -> tuple[Vector, Vector]:
    """The domain, its ends whole where inputs are."""
    n = len(problem.x)
    low, high = problem.domain or (np.full(n, -math.inf), np.full(n, math.inf))
    low, high = low.copy(), high.copy()
    whole = list(discrete.integer)
    low[whole], high[whole] = np.ceil(low[whole]), np.floor(high[whole])
    for members in discrete.groups:
        at = list(members)
        low[at], high[at] = np.clip(np.ceil(low[at]), 0.0, 1.0), np.clip(np.floor(high[at]), 0.0, 1.0)
    return low, high


def joined(p: float, a: float, b: float) -> float:
    """(a^p + b^p)^(1/p), rounded down; the larger one for p = inf."""
    top = max(a, b)
    if math.isinf(p) or math.isinf(top) or min(a, b) == 0.0:
        return top
    share = min(a, b) / top
    return float(max(top, top * (1.0 + share**p) ** (1.0 / p) * (1.0 - LOSS)))


def left_of(p: float, whole: float, part: float) -> float:
    """A number whose p-th power with that of the part makes at least that of the whole."""
    if math.isinf(p) or math.isinf(whole) or part == 0.0:
        return whole
    if part >= whole:
        return 0.0
    return float(whole * (1.0 - (part / whole) ** p + LOSS) ** (1.0 / p) * (1.0 + LOSS))
