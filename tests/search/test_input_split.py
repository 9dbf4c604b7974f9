"""Input splitting: exact against brute force and the adaptive search, its kernels against rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import example, given

import layercert as lc
from helpers.boxes import band, exact_layers, random_net
from helpers.brute import brute_force, only_ties
from helpers.tiny import degenerate, examples, generic, seeds
from layercert.methods import METHODS, Method, choose
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.programs.stacks import make_chain
from layercert.search.events import Bound, Improve
from layercert.search.input_split import Effort, input_split, open_neurons
from layercert.search.input_split.boxes import Boxes, Workers, default_threads
from layercert.search.input_split.exclude import linear_rows, shave, weigh
from layercert.search.input_split.forms import spread
from layercert.search.input_split.frontier import Frontier
from layercert.search.input_split.model import build, scratch
from layercert.search.input_split.search import LONGER, Cover, sides_of
from layercert.search.task import Task
from layercert.system import clock


def measured(problem: Problem, method: str = "input-split") -> lc.Result:
    return lc.measure(
        problem.network, problem.x, problem.norm.p, problem.label, problem.radius, problem.domain, method=method
    )


# Against brute force


@examples(dev=25, ci=150)
@example(seed=160)  # its nearest unsafe point is a tie that no float64 point attains
@given(seed=seeds)
def test_the_distance_is_that_of_brute_force(seed: int) -> None:
    for problem in (generic(seed), degenerate(seed)):
        true, _ = brute_force(problem)
        r = measured(problem)
        assert r.lower <= true * (1 + 1e-9) + 1e-12 and r.upper >= true * (1 - 1e-7) - 1e-12
        if true <= problem.radius * (1 - 1e-6) and math.isfinite(true):
            if r.status == "undecided" and only_ties(problem, true):
                assert r.lower == pytest.approx(true, rel=2e-6)  # right, but no float64 point attains the tie
                continue
            assert r.status == "exact" and r.upper == pytest.approx(true, rel=2e-6, abs=1e-9)
        elif true > problem.radius * (1 + 1e-6) or (math.isinf(true) and problem.domain is not None):
            assert r.status == "robust"


@pytest.fixture
def boxes_alone(monkeypatch: pytest.MonkeyPatch) -> str:
    """The method when a box is finished by programs only once it is one linear piece, or tiny."""
    effort = Effort(threads=1, batch=4, root=0, few=0)
    monkeypatch.setitem(METHODS, "alone", Method("alone", partial(input_split, effort=effort), "for tests"))
    return "alone"


def test_boxes_do_most_of_the_work_where_programs_are_kept_back(boxes_alone: str) -> None:
    for seed in range(40):
        problem = generic(seed)
        if not math.isinf(problem.norm.p) or problem.domain is None:
            continue
        true, _ = brute_force(problem)
        r = measured(problem, boxes_alone)
        assert r.lower <= true * (1 + 1e-9) + 1e-12 and r.upper >= true * (1 - 1e-7) - 1e-12
        assert r.status == ("exact" if true <= problem.radius else "robust")


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("inputs", [3, 4, 5])
def test_it_agrees_with_the_adaptive_search(inputs: int, norm: str) -> None:
    rng = np.random.default_rng(inputs)
    net = random_net(rng, inputs, 10, 10, 3)
    for _ in range(2):
        x = rng.uniform(-1, 1, inputs)
        ours, theirs = (lc.measure(net, x, norm, domain=(-1, 1), method=m) for m in ("input-split", "adaptive"))
        assert ours.status == theirs.status
        assert ours.upper == pytest.approx(theirs.upper, rel=3e-6)
        r = 0.9 * theirs.lower if math.isfinite(theirs.upper) else 0.5
        assert lc.verify(net, x, r, norm, domain=(-1, 1), method="input-split").status == "robust"
        if math.isfinite(theirs.upper):
            v = lc.verify(net, x, 1.1 * theirs.upper, norm, domain=(-1, 1), method="input-split")
            assert v.status == "not_robust" and v.upper <= 1.1 * theirs.upper


def test_networks_without_hidden_layers_and_without_clauses() -> None:
    # logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3
    net = Network.from_arrays([[[-1.0], [1.0]]], [[1.0, 0.0]])
    assert lc.measure(net, [0.2], method="input-split").upper == pytest.approx(0.3)
    nothing = Problem(net, np.array([0.2]), (), Norm(math.inf), 1.0)
    events = list(input_split(Task(nothing, make_chain("default", nothing.norm), 1.0)))
    assert [e.lower for e in events if isinstance(e, Bound)] == [1.0]


# Clauses with several rows


def run(problem: Problem, any_witness: bool) -> tuple[float, float]:
    task = Task(problem, make_chain("default", problem.norm), enough=problem.radius if any_witness else 0.0)
    lower, upper = 0.0, math.inf
    for event in chain(() if any_witness else task.attack(), input_split(task, Effort(threads=1, root=0))):
        if isinstance(event, Bound):
            lower = max(lower, event.lower)
        elif isinstance(event, Improve):
            assert problem.margin(problem.x + event.step) <= 1e-12
            upper = min(upper, event.distance)
    return lower, upper


def test_all_rows_of_a_clause_count() -> None:
    # from 0.1 the nearest point with |t| >= 0.7 is 0.7
    lower, upper = run(band(0.7, 0.9), any_witness=False)
    assert lower <= 0.6 * (1 + 1e-12) and upper == pytest.approx(0.6) and lower == pytest.approx(0.6, rel=1e-6)
    # |t| >= 0.7 and |t| <= 0.69 exclude each other, no row is positive everywhere
    assert run(band(0.7, 0.69), any_witness=False)[0] >= 2.1
    assert run(band(0.7, 0.69), any_witness=True)[0] >= 2.1
    assert run(band(0.7, 0.9), any_witness=True)[1] <= 2.1


# The kernels against rational arithmetic


@examples(dev=40, ci=200)
@given(seed=seeds)
def test_bounds_hold_in_rational_arithmetic(seed: int) -> None:
    """Neurons lie within their bounds, rows above their linear bounds, and shaving loses no unsafe point."""
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 4)), *rng.integers(1, 6, size=int(rng.integers(1, 4))).tolist(), 3]
    scale = 10.0 ** rng.uniform(-6, 6)
    net = random_net(rng, *sizes)
    net = Network.from_arrays([W * (scale if i == 0 else 1.0) for i, W in enumerate(net.weights)], net.biases)
    n = sizes[0]
    lo = rng.normal(size=n)
    hi = lo + 10.0 ** rng.uniform(-13, 0.5, size=n) * (rng.random(n) < 0.9)
    C, d = rng.normal(size=(2, 3)), rng.normal(size=2)
    problem = Problem(net, lo, (Clause(C, d),), Norm(math.inf), 1.0, (lo, hi))
    model = build(problem)
    s, side = scratch(model), np.zeros(net.neurons, np.int8)
    mid = lo + 0.5 * (hi - lo)
    rad = np.maximum(hi - mid, mid - lo) * (1 + 4e-16)
    assert spread(model, s, mid, rad, side, clock.timer()) >= 0
    linear_rows(model, s, side, 0, 2)
    margin = weigh(s, 2, rad, model.noise)
    best, G, base = s.best.copy(), s.G.copy(), s.s.copy()
    left_lo, left_hi = lo.copy(), hi.copy()
    something = shave(s, 2, mid, left_lo, left_hi, model.noise)
    live = side >= 0
    for _ in range(6):
        t = rng.random(n).round(1)  # ends and middles are frequent
        point = np.clip(lo + t * (hi - lo), lo, hi)
        z, f = exact_layers(net, [Fraction(float(v)) for v in point])
        for i in range(net.neurons):
            if live[i]:
                assert Fraction(float(s.lo[i])) <= z[i] <= Fraction(float(s.hi[i]))
            else:
                assert z[i] <= 0
        rows = [
            sum((Fraction(float(c)) * y for c, y in zip(row, f, strict=True)), -Fraction(float(e)))
            for row, e in zip(C, d, strict=True)
        ]
        for r in range(2):
            w = [Fraction(float(p)) - Fraction(float(m)) for p, m in zip(point, mid, strict=True)]
            line = sum((Fraction(float(g)) * x for g, x in zip(G[r], w, strict=True)), Fraction(float(base[r])))
            assert line <= rows[r]
        assert sum((Fraction(float(m)) * r for m, r in zip(best, rows, strict=True)), Fraction(0)) >= Fraction(margin)
        if max(rows) <= 0:
            assert margin <= 0 and something
            assert (left_lo <= point).all() and (point <= left_hi).all()


def test_numbers_that_would_overflow_prove_nothing() -> None:
    net = Network.from_arrays([[[1e200]], [[1.0], [0.0]]], [[0.0], [1.0, 0.0]])
    problem = lc.problem.robustness(net, [0.5], radius=0.1)
    side = np.zeros((1, 1), np.int8)
    with Workers(build(problem), 1) as workers:
        found = workers(Boxes(np.array([[0.4]]), np.array([[0.6]]), side, np.zeros(1, np.intp), np.zeros(1)))
    assert found.unstable[0] == -1 and found.margin[0] == -math.inf


def test_networks_too_large_for_forms_are_refused() -> None:
    net = Network.from_arrays([np.zeros((9000, 1)), np.zeros((2, 9000))], [np.ones(9000), [1.0, 0.0]])
    with pytest.raises(lc.LayerCertError, match=r"would need 1236 MiB a thread .*; use the method 'adaptive'"):
        list(input_split(Task(lc.problem.robustness(net, [0.0]), make_chain("default", Norm(math.inf)), 1.0)))


def test_the_clock_is_watched_between_programs() -> None:
    """A box is finished by up to 2^11 programs: an event after each of them lets a time limit end it."""
    rng = np.random.default_rng(2)
    net = Network.from_arrays([rng.normal(size=(7, 3)), rng.normal(size=(2, 7))], [np.zeros(7), rng.normal(size=2)])
    task = Task(lc.problem.robustness(net, 0.01 * rng.normal(size=3), 3.0), make_chain("default", Norm(3.0)))
    events = list(input_split(task))
    assert task.chain.programs > 20 and len(events) >= task.chain.programs


def test_walls_out_of_reach_are_left_out() -> None:
    """From 0 in [-1, 2]: a ball of radius 1.5 meets the wall below; a wall that x is behind stays in any case."""
    problem = lc.problem.robustness(Network.from_arrays([[[1.0], [0.0]]], [[0.0, 1.0]]), [0.0])
    low, high = np.array([-1.0]), np.array([2.0])
    assert sides_of(problem, low, high, 1.5).A.tolist() == [[-1.0]]
    assert sides_of(problem, low, high, 3.0).A.tolist() == [[1.0], [-1.0]]
    assert len(sides_of(problem, low, high, 0.5)) == 0
    assert sides_of(problem, np.array([1.0]), high, 0.5).r.tolist() == [np.nextafter(-1.0, 0.0)]


# The frontier, threads, the choice


def test_the_frontier_gives_back_every_box_once_and_the_nearest_first() -> None:
    rng = np.random.default_rng(0)
    for nearest in (True, False):
        frontier = Frontier(1, 2, nearest)
        waiting: list[float] = []
        for _ in range(60):
            keys = rng.random(int(rng.integers(0, 40))).round(2)
            m = len(keys)
            frontier.push(Boxes(keys[:, None], keys[:, None] + 1, np.zeros((m, 2), np.int8), np.zeros(m, int), keys))
            waiting += keys.tolist()
            assert frontier.least() == min(waiting, default=math.inf)
            out = frontier.pop(int(rng.integers(1, 30)))
            assert (out.lo[:, 0] == out.key).all() and (out.hi[:, 0] == out.key + 1).all()
            if nearest:
                assert sorted(out.key) == sorted(waiting)[: len(out)]
                waiting = sorted(waiting)[len(out) :]
            else:
                assert out.key.tolist() == waiting[len(waiting) - len(out) :]
                waiting = waiting[: len(waiting) - len(out)]
        assert len(frontier) == len(waiting)


def test_answers_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(3)
    net = random_net(rng, 4, 20, 20, 3)
    problem = lc.problem.robustness(net, rng.uniform(-1, 1, 4), domain=(-np.ones(4), np.ones(4)))
    model = build(problem)
    lo = rng.uniform(-1, 0.5, (200, 4))
    answers = []
    for threads in (1, 3):
        boxes = Boxes(lo.copy(), lo + 0.3, np.zeros((200, net.neurons), np.int8), np.arange(200) % 2, np.zeros(200))
        with Workers(model, threads) as workers:
            found = workers(boxes)
        answers.append((found.margin, boxes.lo, boxes.hi, boxes.side, found.unstable))
    for one, other in zip(*answers, strict=True):
        assert (one == other).all()


def test_the_number_of_threads_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert default_threads() == 1
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    assert default_threads() >= 1


def test_the_choice_of_the_method() -> None:
    rng = np.random.default_rng(0)
    small, wide = random_net(rng, 5, 50, 50, 3), random_net(rng, 30, 50, 3)
    x = np.zeros(5)
    assert choose(lc.problem.robustness(small, x, radius=2.0)) == "input-split"
    assert choose(lc.problem.robustness(small, x, radius=1e-6)) == "adaptive"
    assert choose(lc.problem.robustness(small, x), U=1e-6) == "adaptive"
    assert choose(lc.problem.robustness(small, x, "l2", radius=2.0)) == "adaptive"
    assert choose(lc.problem.robustness(wide, np.zeros(30), radius=2.0)) == "adaptive"
    assert open_neurons(lc.problem.robustness(small, x), 1e-9) == 0


def test_the_kernel_looks_at_the_clock_inside_a_box() -> None:
    """A box of a wide network takes seconds; what is left then is open, and no box counts as closed."""
    rng = np.random.default_rng(0)
    sizes = [200, 300, 300, 2]
    net = Network.from_arrays(
        [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [rng.normal(size=b) for b in sizes[1:]]
    )
    problem = lc.robustness(net, rng.normal(size=200), math.inf)
    lo, hi = np.tile(problem.x - 1.0, (2, 1)), np.tile(problem.x + 1.0, (2, 1))
    side = np.zeros((2, net.neurons), np.int8)
    with Workers(build(problem), 1) as workers:
        boxes = Boxes(lo, hi, side, np.zeros(2, np.intp), np.zeros(2))
        with clock.until(None, looks=3), pytest.raises(clock.OutOfTime):
            workers(boxes)
        assert not side[1].any()  # the second box was not begun
        assert (workers(boxes).unstable >= 0).all()


def test_several_threads_take_longer_rounds_of_what_waits() -> None:
    problem = generic(0)
    task = Task(problem, make_chain("default", problem.norm), 1.0)
    one, two = (Cover(task, Effort(threads=threads, batch=4), 1.0) for threads in (1, 2))
    for waiting, rounds in ((3, (4, 8)), (40, (4, 10)), (10_000, (4, LONGER * 8))):
        one.frontier.size = two.frontier.size = waiting
        assert (one._round(), two._round()) == rounds
