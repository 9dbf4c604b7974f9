"""The paper's theorems as properties of the searches, and its Appendix A as a worked example."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import assume, given

from helpers.brute import brute_force
from helpers.tiny import examples, generic, seeds
from layercert.methods import METHODS
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.programs.chain import SolverChain
from layercert.programs.program import Programs, Solutions
from layercert.programs.stacks import make_chain
from layercert.search.events import Event, Queue, Visit
from layercert.search.task import Task


class RecordingChain(SolverChain):
    """Remembers the number of rows of every program."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(make_chain("default", problem.norm).solvers)
        self.sizes: list[int] = []

    def solve(self, programs: Programs) -> Solutions:
        self.sizes += [len(programs.rows)] * len(programs)
        return super().solve(programs)


class UnprunedTask(Task):
    """Without Appendix C: every row stays in every program."""

    @property
    def ball(self) -> float:
        return math.inf


@dataclass
class Trace:
    """What a search did: visits in order, the sizes of its programs, its answer."""

    visits: list[Visit] = field(default_factory=list)
    queued: list[Queue] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    distance: float = math.inf


def trace(method: str, problem: Problem, kind: type[Task] = Task) -> Trace:
    chain = RecordingChain(problem)
    task = kind(problem, chain)
    events: list[Event] = list(METHODS[method].search(task))
    return Trace(
        [e for e in events if isinstance(e, Visit)],
        [e for e in events if isinstance(e, Queue)],
        chain.sizes,
        task.U,
    )


@examples(dev=25, ci=80)
@given(seed=seeds)
def test_layercert_visits_full_patterns_in_ascending_order(seed: int) -> None:
    """Theorem 4.1."""
    problem = generic(seed)
    for method in ("layercert-basic", "layercert-ia", "layercert-both", "geocert"):
        distances = [v.distance for v in trace(method, problem).visits if v.cell.is_full]
        assert all(b >= a - 1e-9 * max(1.0, a) for a, b in itertools.pairwise(distances))


@examples(dev=25, ci=80)
@given(seed=seeds)
def test_geocert_and_layercert_visit_the_same_regions(seed: int) -> None:
    """Corollary of Theorem 4.1: the same full patterns, in the same order up to ties."""
    problem = generic(seed)
    geo, layer = trace("geocert", problem), trace("layercert-basic", problem)
    assume(no_ties(geo) and no_ties(layer))
    full = [v.cell.key for v in layer.visits if v.cell.is_full]
    assert full == [v.cell.key for v in geo.visits]


@examples(dev=25, ci=80)
@given(seed=seeds)
def test_layercert_never_solves_more_nor_larger_programs_than_geocert(seed: int) -> None:
    """Theorem 4.2: an injection of LayerCert's programs into GeoCert's, each with a subset of the rows.

    Such an injection exists only if, sorted by size, each of LayerCert's programs is no larger than GeoCert's.
    """
    problem = generic(seed)
    geo, layer = trace("geocert", problem, UnprunedTask), trace("layercert-basic", problem, UnprunedTask)
    assume(no_ties(geo) and no_ties(layer))  # the theorem's hypothesis
    assert_no_more_nor_larger(layer, geo)


@examples(dev=25, ci=80)
@given(seed=seeds)
def test_the_same_with_domain_based_pruning(seed: int) -> None:
    """Theorem C.1, where it holds: as long as no program of a region comes after the region's own boundary lowered U.

    GeoCert looks for the decision boundary of a region before the region's faces, LayerCert has solved the faces of
    the earlier layers by then; with a U that the boundary lowers, GeoCert's faces are pruned by the smaller ball
    (docs/paper-notes.md, E10). With U already at the answer both prune alike.
    """
    problem = generic(seed)
    true, _ = brute_force(problem)
    assume(math.isfinite(true) and true > 1e-6)
    tight = problem.within(min(problem.radius, true * (1 + 1e-6)))
    geo, layer = trace("geocert", tight), trace("layercert-basic", tight)
    assume(no_ties(geo) and no_ties(layer))
    assert_no_more_nor_larger(layer, geo)


def assert_no_more_nor_larger(layer: Trace, geo: Trace) -> None:
    assert len(layer.sizes) <= len(geo.sizes)
    largest = zip(sorted(layer.sizes, reverse=True), sorted(geo.sizes, reverse=True), strict=False)
    assert all(a <= b for a, b in largest)


def no_ties(t: Trace) -> bool:
    """The theorem's hypothesis: full regions at different distances, and none at the distance of the answer."""
    d = sorted(v.distance for v in t.visits if v.cell.is_full)
    apart = all(b - a > 1e-9 * max(1.0, b) for a, b in itertools.pairwise(d))
    keys = [q.distance for q in t.queued]
    return apart and all(abs(k - t.distance) > 1e-9 * max(1.0, k) for k in keys)


@examples(dev=25, ci=80)
@given(seed=seeds)
def test_late_marking_only_repeats_programs(seed: int) -> None:
    """The ablation visits what LayerCert-Basic visits and solves at least as many programs."""
    problem = generic(seed)
    early, late = trace("layercert-basic", problem), trace("layercert-basic-late", problem)
    assume(no_ties(early))
    assert len(late.sizes) >= len(early.sizes)
    assert {v.cell.key for v in late.visits} == {v.cell.key for v in early.visits}


class TestAppendixA:
    """The worked example: two inputs, z^1 = v, z^2 = relu(v_1) + relu(v_2) - 1, x = (-1, -1.25)."""

    network = Network.from_arrays(
        [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [[1.0], [0.0]]], [[0.0, 0.0], [-1.0], [0.0, 10.0]]
    )
    # The output is (relu(z^2), 10): class 1 until relu(z^2) reaches 10, i.e. z^2 = 10, far away at radius 2.
    problem = robustness(network, [-1.0, -1.25], "l2", radius=3.0)

    @staticmethod
    def names(visits: list[Visit]) -> list[str]:
        return [repr(v.cell).removeprefix("Cell(").removesuffix(")") for v in visits]

    def test_geocert_order(self) -> None:
        """The quadrants by distance, each with z^2 off; then z^2 on behind the nearer axis.

        From x the axis v_1 = 0 is at 1, v_2 = 0 at 1.25, the corner at sqrt(1 + 1.25^2) = 1.60. z^2 = 0 is v_1 = 1 in
        the lower right quadrant, at distance 2; v_2 = 1 in the upper left, at 2.25; v_1 + v_2 = 1 in the upper right,
        at 3.25/sqrt 2 = 2.30.
        """
        t = trace("geocert", self.problem)
        assert self.names(t.visits) == ["--|-", "+-|-", "-+|-", "++|-", "+-|+", "-+|+", "++|+"]
        assert np.allclose(
            [v.distance for v in t.visits], [0, 1, 1.25, math.hypot(1, 1.25), 2, 2.25, 3.25 / math.sqrt(2)]
        )

    def test_layercert_order(self) -> None:
        """Each quadrant is entered in layer 1 and its nearest child follows at the same distance."""
        t = trace("layercert-basic", self.problem)
        names = self.names(t.visits)
        assert names == ["--", "--|-", "+-", "+-|-", "-+", "-+|-", "++", "++|-", "+-|+", "-+|+", "++|+"]
        assert [n for n in names if "|" in n] == self.names(trace("geocert", self.problem).visits)

    def test_the_upper_right_quadrant_is_measured_once(self) -> None:
        """In layer 1 LayerCert computes the distance to the quadrant ++ once, GeoCert from two sides."""
        layer, geo = trace("layercert-basic", self.problem), trace("geocert", self.problem)
        assert [repr(q.cell) for q in layer.queued].count("Cell(++)") == 1
        assert [repr(q.cell) for q in geo.queued].count("Cell(++|-)") == 2
        assert len(layer.sizes) < len(geo.sizes)
