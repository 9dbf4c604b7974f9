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


def test_balls_grow_from_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ball is the last proved radius times the growth; a ball that is not proved halves the growth."""
    problem = small(1, 2.0)
    true, _ = brute_force(problem)
    task = Task(problem, make_chain("default", problem.norm))
    list(task.attack())
    tried: list[float] = []

    def told(ball: Ball) -> object:
        tried.append(ball.radius)
        yield Bound(ball.radius if len(tried) != 2 else 0.0)  # the second is not proved

    monkeypatch.setattr(Ball, "run", told)
    low = 0.3 * true
    list(search._climb(task, search.suited(problem.network), None, low, task.U))
    expected = [low * search.CLIMB, low * search.CLIMB**2, low * search.CLIMB * (0.5 + 0.5 * search.CLIMB)]
    assert tried[:3] == pytest.approx(expected)
    assert tried[-1] >= search.HOPEFUL * task.goal
