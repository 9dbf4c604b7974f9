"""Balls that are proved before that of the witness: every bound on the way holds, and the answer stays the same."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from helpers.brute import brute_force
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import search
from layercert.search.adaptive.frontier import Frontier
from layercert.search.adaptive.search import adaptive
from layercert.search.adaptive.tree import Ball
from layercert.search.events import Bound
from layercert.search.task import Task


def small(seed: int, p: float) -> Problem:
    rng = np.random.default_rng(seed)
    sizes = [3, 5, 4, 3]
    weights = [rng.normal(size=(m, n)) for n, m in pairwise(sizes)]
    net = Network.from_arrays(weights, [0.5 * rng.normal(size=m) for m in sizes[1:]])
    return robustness(net, rng.normal(size=3), p, domain=(-4, 4))


@pytest.mark.parametrize("rounds", [0, 8])
@pytest.mark.parametrize("p", [2.0, math.inf])
def test_climbing_proves_only_what_is_true(p: float, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced on small networks, up to the witness itself; with 0 rounds every ball but the easiest is given up."""
    monkeypatch.setattr(search, "MANY", 0)
    monkeypatch.setattr(search, "ATTEMPTS", 3)
    monkeypatch.setattr(search, "HOPEFUL", 1.0)
    monkeypatch.setattr(search, "CLIMB_ROUNDS", rounds)
    radii: list[float] = []
    run = Ball.run
    monkeypatch.setattr(Ball, "run", lambda ball, *first: (radii.append(ball.radius), run(ball, *first))[1])
    climbed = 0
    for seed in range(6):
        problem = small(seed, p)
        true, _ = brute_force(problem)
        if not 0 < true < math.inf:
            continue
        radii.clear()
        task = Task(problem, make_chain("default", problem.norm))
        list(task.attack())
        bounds = [event.lower for event in adaptive(task) if isinstance(event, Bound)]
        assert max(bounds) == pytest.approx(true, rel=1e-6)
        assert all(bound <= true * (1 + 1e-9) for bound in bounds)
        assert pytest.approx(true, rel=1e-6) == task.U
        climbed += len(radii) > 1
    assert climbed


def nearly_known(seed: int) -> tuple[Task, float]:
    """A task with a witness, and its true distance."""
    problem = small(seed, 2.0)
    task = Task(problem, make_chain("default", problem.norm))
    list(task.attack())
    return task, brute_force(problem)[0]


@pytest.mark.parametrize("dense", [False, True])
def test_balls_grow_from_what_is_proved(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ball is the last proved radius times the growth; one that is not proved halves it, or is the last one."""
    task, true = nearly_known(1)
    tried: list[float] = []

    def told(ball: Ball) -> object:
        tried.append(ball.radius)
        yield Bound(ball.radius if len(tried) != 2 else 0.0)  # the second is not proved

    monkeypatch.setattr(Ball, "run", told)
    monkeypatch.setattr(search, "hulls", lambda problem: not dense)
    low = 0.3 * true
    list(search._climb(task, search.suited(task.problem.network), None, low, task.U))
    expected = [low * search.CLIMB, low * search.CLIMB**2, low * search.CLIMB * (0.5 + 0.5 * search.CLIMB)]
    if dense:
        assert tried == pytest.approx(expected[:2])
    else:
        assert tried[:3] == pytest.approx(expected)
        assert tried[-1] >= search.HOPEFUL * task.goal


@pytest.mark.parametrize("hulled", [False, True])
@pytest.mark.parametrize("least", [-0.1, 0.1])
def test_a_ball_whose_root_is_hopeless_is_left_after_its_cheap_rounds(
    least: float, hulled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are hulls, and only there: elsewhere rounds raise such roots beyond U all the same."""
    task, true = nearly_known(1)
    rounds: list[float] = []

    def run(ball: Ball) -> object:
        try:
            for ball.rounds in range(1, 100):
                yield Bound(0.0)
        finally:
            rounds.append(ball.rounds)

    monkeypatch.setattr(Ball, "run", run)
    monkeypatch.setattr(Frontier, "least", property(lambda frontier: least))
    monkeypatch.setattr(search, "hulls", lambda problem: hulled)
    list(search._climb(task, search.suited(task.problem.network), None, 0.3 * true, task.U))
    assert rounds and set(rounds) == {2 if hulled and least < 0 else search.CLIMB_ROUNDS + 1}
