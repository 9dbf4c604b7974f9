"""The last resort of a search that rounding has stopped: a small network again, with rows that are exact at x.

A search in float64 ends without an answer where the margins for rounding are larger than what is to be told apart: x is
nearer to the boundary than the rounding of a forward pass, or large numbers cancel. LayerCert-Basic on `CentredCells`
has no such margins. What it proves is proved for any norm and domain. A witness must be a float64 point all the same,
so where the unsafe points nearest to x lie between the floats around it, the bounds come as near as these are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from layercert.arrays import Vector
from layercert.bounds.magnitude import out_of_range
from layercert.geometry import Cells, CentredCells
from layercert.problem import Clause, Problem
from layercert.programs.chain import SolverChain
from layercert.scaled import Scaled
from layercert.search.events import Bound, Event, Improve, Visit, translated
from layercert.search.incumbent import Incumbent
from layercert.search.paper.layercert import layercert
from layercert.search.paper.parts import SeenEarly, always, no_restriction
from layercert.search.task import GAP, Task
from layercert.system import clock

#: Products of whole numbers to spend before giving up, some 4 million per second; what is proved by then stays.
MOST_PRODUCTS = 2_000_000
#: Regions to visit before giving up, however small the network is.
MOST_VISITS = 400
#: Programs to solve before giving up, in l_1, l_2 and l_inf, where one takes some 0.2 ms, and in other norms, where it
#: takes up to ten; and those that no solver decides: they are slow, and the bound stays below theirs.
MOST_PROGRAMS, MOST_SMOOTH, MOST_UNDECIDED = 2000, 150, 4
#: How many floats, and what part of the distance, an unsafe float64 point may be away from the nearest unsafe one.
FLOATS = (0, 1, 2, 4, 8, 16)
PUSHES = (1e-13, 1e-11, 1e-9, 1e-8, 1e-7, 5e-7)


def small(problem: Problem) -> bool:
    """Is the network small enough for whole numbers?"""
    return _visits(problem) > 0


def _visits(problem: Problem) -> int:
    """How many regions may be visited."""
    sizes = (problem.network.inputs, *problem.network.widths, problem.network.classes)
    products = sum(m * n for n, m in pairwise(sizes)) * (problem.network.inputs + 1)
    return min(MOST_VISITS, MOST_PRODUCTS // products)


class CentredTask(Task):
    """A task whose rows are exact at x, and whose witnesses are sought float by float.

    Attributes:
        view: The problem, and the one in scaled coordinates that the task is about.
        witness: The incumbent of the problem itself.
    """

    def __init__(self, view: Scaled, witness: Incumbent, before: Task) -> None:
        super().__init__(view.problem, before.chain, before.limit, witness.seen_in(view), gap=before.gap)
        self.view, self.witness = view, witness

    @cached_property
    def cells(self) -> Cells:
        return CentredCells(self.view)

    def suggest(self, step: Vector, clause: Clause) -> Iterator[Event]:
        for v in beside(self.view.original, self.view.offset(step), self.view.clause(clause)):
            clock.check()
            if self.witness.take(v):
                yield Improve(step.copy(), self.incumbent.distance, clause)
                return
        yield from super().suggest(step, clause)


def beside(problem: Problem, step: Vector, clause: Clause) -> Iterator[Vector]:
    """Points of the domain next to x + step, nearest first: straight on, and down the slope of the clause's worst row.

    Nothing here is trusted: whoever takes a point looks at it in exact arithmetic.
    """
    network, length = problem.network, problem.norm.value(step)
    start = problem.x + step
    F, _ = network.linear_piece(network.pattern(start))
    row = clause.C[int(clause.margins(network(start)).argmax())] @ F
    down = -problem.norm.steepest(row[None])[0]
    outwards = step / length if length > 0 else step
    for many in FLOATS:
        yield from _moved(problem, start, many * np.spacing(np.abs(start)), np.sign(step), np.sign(down))
    for part in PUSHES:
        yield from _moved(problem, start, np.full(len(step), part * length), outwards, down)


def _moved(problem: Problem, start: Vector, size: Vector, *ways: Vector) -> Iterator[Vector]:
    for way in ways:
        v = problem.into_domain(start + size * way)
        if np.isfinite(v).all():
            yield v


def without_rounding(before: Task, view: Scaled, incumbent: Incumbent) -> Iterator[float]:
    """Lower bounds of the problem, by LayerCert-Basic on rows that are exact at x; what it finds goes to the incumbent.

    They hold wherever it stops.

    Args:
        before: The task of the search that ended without an answer.
        view: The problem, and the one in scaled coordinates that this task was about.
        incumbent: The witness of the problem.

    Yields:
        One proved bound after the other.
    """
    left = _visits(view.problem)
    fresh = Incumbent(view.original)  # which has not heard of points that are unsafe up to rounding only
    if incumbent.point is not None:
        fresh.take(incumbent.point)
    task = CentredTask(view, fresh, before)
    if out_of_range(view.problem, task.cutoff):
        return
    chain, plain = task.chain, task.problem.norm.p in (1.0, 2.0, math.inf)
    solved, failed = chain.programs + (MOST_PROGRAMS if plain else MOST_SMOOTH), chain.undecided + MOST_UNDECIDED
    for event in translated(view, layercert(task, always, no_restriction, SeenEarly)):
        if fresh.point is not None:
            incumbent.take(fresh.point)
        if isinstance(event, Bound):
            yield event.lower
        left -= isinstance(event, Visit)
        if left < 0 or chain.programs > solved or chain.undecided > failed:
            return


def settle_on_its_piece(incumbent: Incumbent, chain: SolverChain, view: Scaled) -> None:
    """Where the nearest point could not be settled, try the nearest one of its own linear piece."""
    problem = view.original
    if incumbent.unsettled is None or not problem.network.fits_dense:
        return
    step = view.inwards(incumbent.unsettled)
    length = view.problem.norm.value(step)
    fresh = Incumbent(problem)
    task = Task(view.problem, chain, length * (1.0 + GAP), fresh.seen_in(view))
    for _ in task.decision(task.cells.full(task.cells.coordinates(step)), view.problem.clauses):
        pass
    if fresh.point is not None:
        incumbent.take(fresh.point)
