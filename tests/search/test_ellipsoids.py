"""Distances proved by ellipsoids: never beyond the truth, farther than lines, and only where nothing is recorded."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import layercert as lc
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import ellipsoids, search
from layercert.search.adaptive.ellipsoids import Ellipsoids
from layercert.search.adaptive.model import build
from layercert.search.adaptive.tree import Ball, Effort
from layercert.search.task import Task
from layercert.system import clock


def question(seed: int, domain: tuple[float, float] | None, hidden: int = 2) -> Problem:
    rng = np.random.default_rng(seed)
    widths = [4, *([7] * hidden), 3]
    weights = [rng.normal(size=(m, n)) for n, m in pairwise(widths)]
    if seed % 3 == 0:
        weights[0][0], weights[0][2] = 0.0, weights[0][1]  # a dead neuron, and two alike
    biases = [0.3 * rng.normal(size=m) for m in widths[1:]]
    return robustness(Network.from_arrays(weights, biases), rng.uniform(size=4), "l2", domain=domain)


def proved(problem: Problem, radius: float, steps: int = 40) -> float:
    model, root = build(problem, radius)
    return Ellipsoids(problem).prove(model, root, radius, steps)


def test_only_balls_of_l2_have_ellipsoids() -> None:
    problem = question(0, None)
    assert ellipsoids.is_suited(problem)
    assert not ellipsoids.is_suited(robustness(problem.network, problem.x, "linf"))


@pytest.mark.parametrize("domain", [None, (0.0, 1.0)])
@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_no_distance_is_beyond_the_truth(domain: tuple[float, float] | None, hidden: int) -> None:
    """In balls of all sizes, with the first multipliers, with others, and with those of another ball."""
    shares = []
    for seed in range(10 if hidden < 3 else 4):  # the truth takes seconds
        problem = question(seed, domain, hidden)
        exact = lc.measure(problem.network, problem.x, "l2", domain=domain, method="layercert-both")
        if exact.status != "exact" or not math.isfinite(exact.upper):  # the whole domain is safe
            continue
        best, ellipsoids = 0.0, Ellipsoids(problem)
        for share in (0.3, 0.8, 1.2, 2.0):
            radius = share * exact.upper
            model, root = build(problem, radius)
            for steps in (1, 30):
                found = ellipsoids.prove(model, root, radius, steps)
                assert found <= min(radius, exact.upper * (1 + 1e-9))
                best = max(best, found)
        shares.append(best / exact.upper)
    assert len(shares) > 1 and np.median(shares) > (0.7 if hidden < 3 else 0.25)


def test_multipliers_ascend() -> None:
    gains = [
        proved(question(seed, None, 3), 2.0, 30) / max(proved(question(seed, None, 3), 2.0, 1), 1e-9)
        for seed in range(6)
    ]
    assert min(gains) >= 1.0 and max(gains) > 1.05


def test_ellipsoids_prove_what_lines_and_parabolas_do_not() -> None:
    """Neurons of two layers that cannot all move at once, with weights of both signs."""
    rng = np.random.default_rng(3)
    n = 24
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    first, second = turn, np.linalg.qr(rng.normal(size=(n, n)))[0]
    network = Network.from_arrays(
        [first, second, np.stack([np.zeros(n), np.ones(n)])], [np.zeros(n), np.zeros(n), np.array([6.0, 0.0])]
    )
    problem = robustness(network, np.zeros(n), "l2")  # all layers shorten a step: sum h <= sqrt(n) ||w||
    true = 6.0 / math.sqrt(n)
    found = proved(problem, 2.0 * true)
    assert 0.99 * true <= found <= 2.0 * true
    task = Task(problem, make_chain("default", problem.norm))
    ball = Ball(task, Effort(), None, 0.9 * found)
    assert ball.quick() < ball.U


def test_of_several_rows_one_must_hold_and_of_several_clauses_each() -> None:
    """A point is unsafe where w_1 >= 0.5 and relu(w_2) >= 2, or where w_1 <= -1: in a ball of 4 by rows alone."""
    network = Network.from_arrays(
        [np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), np.eye(3)], [np.zeros(3), np.zeros(3)]
    )
    both = Clause(np.array([[-1.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), np.array([-0.5, -2.0]))
    left = Clause(np.array([[1.0, -1.0, 0.0]]), np.array([-1.0]))
    for clauses, distance in (((both,), 2.0), ((left,), 1.0), ((both, left), 1.0), ((left, both), 1.0)):
        problem = Problem(network, np.zeros(2), clauses, Norm(2.0))
        assert proved(problem, 4.0, 60) == pytest.approx(distance, rel=0.05)
        assert proved(problem, 4.0, 60) <= distance


def test_what_is_unsafe_at_once_is_at_distance_zero() -> None:
    network = Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    clause = Clause(np.array([[1.0, 0.0]]), np.array([0.0]))
    assert proved(Problem(network, np.zeros(2), (clause,), Norm(2.0)), 1.0) == 0.0


@pytest.mark.parametrize(("weights", "inputs"), [(1e30, 1e-170), (1e60, 1e-175), (1e-70, 1e60), (1e-3, 1e-120)])
def test_no_distance_is_beyond_the_truth_at_any_scale(weights: float, inputs: float) -> None:
    some = 0
    for seed in range(4):
        problem = question(seed, None)
        distance = lc.measure(problem.network, problem.x, "l2", label=problem.label).upper
        first, *rest = problem.network.weights
        network = Network.from_arrays(
            [first * weights, *rest], [b * (weights * inputs) for b in problem.network.biases]
        )
        same = robustness(network, problem.x * inputs, "l2", label=problem.label)
        found = proved(same, 1.5 * inputs * distance)
        some += found > 0.3 * inputs * distance
        assert found <= inputs * distance * (1 + 1e-9)
    assert some > 0 or weights * inputs < 1e-110


def balls(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Radii in which ellipsoids are looked for from now on."""
    found: list[float] = []
    prove = Ellipsoids.prove

    def told(own: Ellipsoids, model: object, state: object, radius: float, **how: float) -> float:
        found.append(radius)
        return prove(own, model, state, radius, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Ellipsoids, "prove", told)
    return found


def test_a_search_begins_with_ellipsoids_and_a_recorded_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MANY", 0)
    radii = balls(monkeypatch)
    problem = question(5, (0.0, 1.0), 3)
    exact = lc.measure(problem.network, problem.x, "l2", domain=(0, 1), method="layercert-both")
    found: list[float] = []
    answer = lc.measure(
        problem.network, problem.x, "l2", domain=(0, 1), method="adaptive", watch=lambda now, _: found.append(now.lower)
    )
    assert len(radii) > 1 and answer.upper == pytest.approx(exact.upper, rel=1e-6)
    assert all(bound <= exact.upper * (1 + 1e-9) for bound in found)
    radii.clear()
    assert lc.measure(problem.network, problem.x, "l2", domain=(0, 1), method="adaptive", certificate=True).certificate
    assert not radii


def test_lines_come_first_where_forms_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the first form is a little farther than they prove, but not farther than half the witness."""
    problem = question(5, (0.0, 1.0), 3)
    for slow in (0, 10**9):
        monkeypatch.setattr(search, "SLOW", slow)
        task = Task(problem, make_chain("default", problem.norm))
        radii = balls(monkeypatch)
        bounds = [bound.lower for bound in search._quick_bounds(task, Effort(), None, 0.0, 2.0)]
        monkeypatch.undo()
        first = bounds[: -len(radii)]
        assert bool(first) == (slow == 0)
        assert radii[0] == pytest.approx(min(1.0, search.LARGER * max(first)) if first else 1.0)


def test_multipliers_of_a_ball_begin_in_the_next() -> None:
    """In units of the input; what does not fit another ball is forgotten."""
    problem = question(4, None, 3)
    ellipsoids, radius = Ellipsoids(problem), 1.0
    model, root = build(problem, radius)
    first = ellipsoids.prove(model, root, radius, 40)
    assert 0.0 < first < radius
    again = ellipsoids.prove(model, root, radius, 1)
    assert again == pytest.approx(first, rel=1e-3)
    assert again > proved(problem, radius, 1)
    known = np.isfinite(ellipsoids.log[0])
    assert known.any()
    ellipsoids.log[:, known] = 15.0  # nowhere near positive definite
    assert ellipsoids.prove(model, root, radius, 1) == pytest.approx(proved(problem, radius, 1), rel=1e-6)


def test_a_proof_is_made_where_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of its own, on which only steps take time: a fiftieth of a second each."""
    problem = question(5, None, 3)
    model, root = build(problem, 2.0)
    look, turns = ellipsoids.Ascent._look, list[int]()

    def slow(own: ellipsoids.Ascent, signs: NDArray[np.float32]) -> tuple[ellipsoids.View, NDArray[np.float32]]:
        turns.append(1)
        return look(own, signs)

    monkeypatch.setattr(ellipsoids.Ascent, "_look", slow)
    monkeypatch.setattr(clock, "now", lambda: 0.02 * len(turns))
    with clock.until(0.2):
        assert Ellipsoids(problem).prove(model, root, 2.0) > 0.0
        assert clock.left() > 0.0
    assert 3 < len(turns) < 10
