"""Cuts of few inputs: the answers of small networks against brute force, with the limits of size taken away."""

from __future__ import annotations

import math

import numpy as np
import pytest

import layercert as lc
from helpers.boxes import random_net
from helpers.brute import brute_force
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import adaptive, cutting, forward
from layercert.search.adaptive.model import HI, LO
from layercert.search.events import Bound
from layercert.search.task import Task


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "MANY_NEURONS", 0)


def problem_with(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    network = random_net(rng, int(rng.integers(1, 4)), 6, 5, 3)
    x = rng.normal(size=network.inputs)
    half = rng.uniform(0.05, 1.5, size=network.inputs)
    f, clauses = network(x), list[Clause]()
    for m in rng.integers(1, 3, size=2):
        C = rng.normal(size=(m, 3))
        clauses.append(Clause(C, C @ f - rng.uniform(0.1, 1.0, size=m)))  # safe at x
    return Problem(network, x, tuple(clauses), Norm(math.inf), domain=(x - half, x + rng.random() * half))


def task_of(problem: Problem, radius: float) -> Task:
    return Task(problem, make_chain("default", problem.norm), radius, enough=radius)


@pytest.mark.parametrize("seed", range(40))
def test_any_unsafe_point_is_found_or_excluded(seed: int) -> None:
    problem = problem_with(seed)
    true = brute_force(problem)[0]
    for radius in (0.5 * min(true, 2.0), min(1.5 * true, 2.0)):
        task, proved = task_of(problem, radius), 0.0
        for event in adaptive(task):
            if isinstance(event, Bound):
                proved = max(proved, event.lower)
            if task.incumbent.distance <= radius:
                break
        assert proved <= true * (1.0 + 1e-9)
        if true > radius:
            assert proved >= min(radius, problem.reach * (1.0 - 1e-9))
        else:
            assert task.incumbent.distance <= radius * (1.0 + 1e-6)


def test_parts_cover_the_box_and_hold_what_they_say() -> None:
    """Of a box and its halves: bounds of the neurons at points inside, and sides that the halves take over."""
    problem = problem_with(3)
    rng, cover = np.random.default_rng(0), cutting.Cover(task_of(problem, 0.8), 0.8)
    pieces = [cover.root()]
    for _ in range(15):
        piece = pieces.pop(0)
        found = cover.bound(piece)
        for _ in range(20):
            v = piece.low + (piece.high - piece.low) * rng.random(len(piece.low))
            z = np.concatenate(problem.network.preactivations(v))
            assert (found.state[LO] <= z + 1e-12).all() and (z <= found.state[HI] + 1e-12).all()
            margins = np.array([problem.clauses[c].margins(problem.network(v)).max() for c in piece.clauses])
            assert (margins[found.closed] > 0).all()
        if found.closed.all():
            continue
        one, other = cover.halves(piece, found, np.flatnonzero(~found.closed))
        (j,) = np.flatnonzero((one.high != piece.high) | (other.low != piece.low))
        assert one.high[j] == other.low[j] and one.low[j] == piece.low[j] and other.high[j] == piece.high[j]
        pieces += [one, other]


def test_what_no_cut_closes_is_left_to_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last box the ordinary search answers: a part of the ball where no attack finds the unsafe points."""
    monkeypatch.setattr(cutting, "MOST_BOXES", 0)
    rng = np.random.default_rng(1)
    network = random_net(rng, 2, 12, 12, 3)
    x = rng.normal(size=2)
    label = int(network(x).argmax())
    radius = lc.measure(network, x, "linf", domain=(-9.0, 9.0)).lower
    assert lc.verify(network, x, 0.99 * radius, "linf", label, (-9.0, 9.0)).status == "robust"


def test_only_verify_questions_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the nearest point, nor other norms; a wide network's answer comes from cuts."""
    cut: list[float] = []
    by_inputs = cutting.by_inputs
    monkeypatch.setattr(cutting, "by_inputs", lambda task, radius: cut.append(radius) or by_inputs(task, radius))
    rng = np.random.default_rng(2)
    network = Network.from_arrays(
        [rng.normal(size=(40, 8)), rng.normal(size=(10, 40)), rng.normal(size=(2, 10))],
        [rng.normal(size=40), rng.normal(size=10), np.zeros(2)],
    )
    x = rng.normal(size=8)
    exact = lc.measure(network, x, "linf", domain=(-9.0, 9.0))
    assert exact.status == "exact" and not cut
    lc.verify(network, x, 0.5 * exact.lower, "l2", domain=(-9.0, 9.0))
    assert not cut
    assert lc.verify(network, x, 0.3 * exact.lower, "linf", domain=(-9.0, 9.0)).status == "robust"
    assert lc.verify(network, x, 1.3 * exact.upper, "linf", domain=(-9.0, 9.0)).status == "not_robust"
    assert cut
