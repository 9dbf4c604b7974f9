"""Walks end at real witnesses, never farther than where they began, and cross pieces that a slide stops at."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.brute import brute_force
from helpers.networks import NORMS, networks
from layercert.attack.attack import STEPS, WALKED, attack
from layercert.attack.kernel import PackedProblem, run
from layercert.attack.walk import into_ball, walks
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.system import clock

ROUNDS = 3


@given(networks(), st.sampled_from(NORMS), st.booleans(), st.integers(0, 1000), st.integers(0, 2))
def test_walks_end_at_witnesses_that_are_no_farther(net: Network, p: float, boxed: bool, seed: int, part: int) -> None:
    x = np.random.default_rng(seed).uniform(0, 1, net.inputs)
    problem = robustness(net, x, p, domain=(0, 1) if boxed else None)
    asked = PackedProblem.of(problem)
    first, w, clause = run(asked, math.inf, STEPS, 2, 0, False, clock.timer())
    if clause < 0 or problem.violated(x) is not None:
        return
    distance, step, at = walks(asked, w, clause, first, ROUNDS, part, clock.timer())
    assert distance <= first
    assert distance == pytest.approx(problem.norm.value(step), rel=1e-12)
    assert distance >= brute_force(problem)[0] * (1 - 1e-8) - 1e-9
    assert float(problem.clauses[at].margins(net(x + step)).max()) <= 1e-9
    assert problem.norm.value(problem.into_domain(x + step) - (x + step)) <= 1e-12


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_a_point_is_put_back_into_the_ball(p: float) -> None:
    rng = np.random.default_rng(0)
    for radius in (0.1, 1.0, 100.0):
        w = rng.normal(size=7)
        before = w.copy()
        into_ball(w, radius, p)
        assert np.linalg.norm(w, p) <= radius * (1 + 1e-12)
        if np.linalg.norm(before, p) <= radius:
            assert (w == before).all()


def wide(seed: int) -> Problem:
    """Ten inputs, three layers: many linear pieces, and valleys that a slide from x does not see."""
    rng = np.random.default_rng(seed)
    sizes = [10, 150, 150, 4]
    weights = [rng.normal(size=(m, n)) / math.sqrt(n) for n, m in pairwise(sizes)]
    return robustness(Network.from_arrays(weights, [0.3 * rng.normal(size=m) for m in sizes[1:]]), np.zeros(10), "l2")


@pytest.mark.parametrize("threads", [1, 3])
def test_walks_find_what_slides_miss(threads: int) -> None:
    """On networks with many pieces the attack ends nearer with walks, on some of them clearly."""
    gains = []
    for seed in range(8):
        problem = wide(seed)
        assert problem.network.neurons > WALKED
        slid, _, clause = run(PackedProblem.of(problem), math.inf, STEPS, 4, 0, False, clock.timer())
        found = attack(problem, threads=threads)
        assert clause >= 0 and found is not None and problem.violated(problem.x + found[0] * (1 + 1e-9)) is not None
        gains.append(slid / found[1])
    assert min(gains) >= 1.0
    assert max(gains) > 1.02
