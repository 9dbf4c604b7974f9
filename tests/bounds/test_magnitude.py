"""Numbers near the ends of the range of doubles: squares that vanish, products that overflow. Nothing may be wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import layercert as lc
from helpers.brute import brute_force
from helpers.tiny import generic
from layercert.bounds.magnitude import out_of_range
from layercert.norms import Norm
from layercert.problem import Clause, Problem

METHODS = ["adaptive", "layercert-both", "geocert", "geocert-lip", "input-split", "large"]
#: Seeds of tiny.generic with an unsafe point, in l_1, l_3, l_2, l_2 and l_inf.
SEEDS = [17, 21, 23, 33, 37]


def scaled(problem: Problem, where: str, factor: float) -> lc.Network | None:
    """The same classifier with other numbers: layers scaled up and later ones back down; None if it does not fit."""
    layers = problem.network.L + 1
    factors = {
        "first": [factor] + [1.0] * (layers - 1),
        "last": [1.0] * (layers - 1) + [factor],
        "there and back": [factor] + [1.0] * (layers - 2) + [1.0 / factor],
    }[where]
    so_far = np.cumprod(factors)
    with np.errstate(over="ignore", under="ignore"):
        W = [w * f for w, f in zip(problem.network.weights, factors, strict=True)]
        b = [v * f for v, f in zip(problem.network.biases, so_far, strict=True)]
    sizes = np.abs(np.concatenate([a.ravel() for a in (*W, *b)]))  # generic networks have no zeros
    return lc.Network.from_arrays(W, b) if sizes.min() > 1e-300 and sizes.max() < math.inf else None


@pytest.mark.parametrize("where", ["first", "last", "there and back"])
@pytest.mark.parametrize("factor", [1e-200, 1e-160, 1e155, 1e290])
def test_extreme_weights_never_make_a_wrong_answer(where: str, factor: float) -> None:
    judged = 0
    for seed in SEEDS:
        problem = generic(seed)
        truth, _ = brute_force(problem)
        net = scaled(problem, where, factor)
        if net is None:
            continue
        for method in METHODS:
            r = lc.measure(net, problem.x, problem.norm.p, domain=problem.domain, method=method, time_limit=0.2)
            judged += 1
            assert r.status != "robust", (seed, method)
            assert r.lower <= truth * (1 + 1e-6), (seed, method)
            assert r.upper >= truth * (1 - 1e-6), (seed, method)
    assert judged or where == "there and back"


@pytest.mark.parametrize("factor", [1e-40, 1e-8, 1e8, 1e40])
def test_large_and_small_weights_are_exact(factor: float) -> None:
    for seed in SEEDS:
        problem = generic(seed)
        truth, _ = brute_force(problem)
        net = scaled(problem, "first", factor)
        assert net is not None
        r = lc.measure(net, problem.x, problem.norm.p, domain=problem.domain)
        assert r.status == "exact"
        assert r.upper == pytest.approx(truth, rel=1e-6)


def test_what_does_not_fit_is_named() -> None:
    problem = generic(17)
    assert out_of_range(problem, 1.0) == ""
    net = scaled(problem, "first", 1e155)
    assert net is not None
    r = lc.measure(net, problem.x, problem.norm.p, certificate=True)
    assert r.status == "undecided"
    assert "double precision" in r.note
    assert r.lower == 0.0
    assert math.isfinite(r.upper) or r.witness is None


def test_a_proof_is_refused_where_numbers_overflow() -> None:
    from layercert.certify import Unproved, prove
    from layercert.problem import robustness

    problem = generic(17)
    net = scaled(problem, "last", 1e155)
    assert net is not None
    with pytest.raises(Unproved, match="double precision"):
        prove(robustness(net, problem.x, problem.norm.p), 0.01, None, math.inf)


@pytest.mark.parametrize("p", [1.001, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("size", [1e-200, 1e-155, 0.4, 1e60])
@pytest.mark.parametrize("boxed", [False, True])
def test_the_checker_lets_no_power_vanish(p: float, size: float, boxed: bool) -> None:
    """A linear function with equal coefficients falls by size * n^(1/q) on the ball, less inside a box."""
    from layercert.certificate.cap import lowest_on_cap

    n, r = 12, 0.5
    q = p / (p - 1.0)
    room = np.full(n, 0.01 if boxed else r)
    row = np.full((1, n), size)
    truth = size * (n * 0.01 if boxed else r * n ** (1.0 / q))  # the box lies inside the ball
    for cap in (np.zeros(0), np.full(n, size)):  # the second: g.w - 1e9 size <= 0 cuts nothing off
        low, _ = lowest_on_cap(row, cap, -1e9 * size, r, q, room, room)
        assert low[0] <= -truth * (1 - 1e-12)
        assert low[0] >= -truth * (1 + 1e-9) - 1e-149


def test_the_checker_refuses_what_its_margins_do_not_cover() -> None:
    """The certificate of one network, signed over to the same network with numbers that overflow or vanish."""
    problem = generic(23)
    r = lc.measure(problem.network, problem.x, problem.norm.p, domain=problem.domain, certificate=True)
    assert r.certificate is not None and lc.check(problem.network, r.certificate).ok
    huge, tiny = scaled(problem, "last", 1e100), scaled(problem, "last", 1e-200)
    assert huge is not None and tiny is not None
    report = lc.check(huge, replace(r.certificate, network=huge.sha256))
    assert not report.ok and "--exact" in report.reason
    assert not lc.check(tiny, replace(r.certificate, network=tiny.sha256, radius=2 * r.upper, witness=None)).ok


@pytest.mark.parametrize("p", [1.0001, 1.01, 1.5, 2.0, 3.0, 50.0, 1000.0])
@pytest.mark.parametrize("r", [1e-9, 0.3, 1e7])
def test_no_power_hides_an_input_that_can_move(p: float, r: float) -> None:
    """The input with the largest coefficient is fixed by the box: what is left falls by 0.01 r, says every kernel."""
    from layercert.bounds.ball import Ball
    from layercert.certificate.cap import lowest_on_cap
    from layercert.certificate.reach import fall as checked_fall
    from layercert.certificate.setting import Setting
    from layercert.problem import robustness
    from layercert.search.adaptive.fall import fall
    from layercert.search.adaptive.model import build

    t, x, free = np.array([1.0, 0.01]), np.zeros(2), np.array([0.0, 2.0 * r])
    net = lc.Network.from_arrays([t[None], [[1.0], [0.0]]], [[0.0], [1.0, 0.0]])
    problem = robustness(net, x, p, domain=(-free, free))
    setting = Setting(net, x, p, r, (-free, free))
    model, root = build(problem, r)
    values = [
        fall(t, 1.0, 0.0, np.zeros(2), r, model, np.zeros(1))[0],
        -lowest_on_cap(t[None], np.zeros(0), 0.0, r, setting.q, *setting.room)[0][0],
        checked_fall(setting, t[None])[0],
        Ball(problem, r).fall(t[None])[0],
    ]
    assert values == pytest.approx([0.01 * r] * 4, rel=1e-9)
    assert min(values) >= 0.01 * r * (1 - 1e-13)  # the search adds its margin later
    assert root[1:3, 0] == pytest.approx([-0.01 * r, 0.01 * r], rel=1e-9)


@pytest.mark.parametrize("seed", [3, 10, 18])
def test_all_norms_agree_where_one_input_moves(seed: int) -> None:
    """And not the one that counts most."""
    rng = np.random.default_rng(seed)
    sizes = [4, 6, 5, 3]
    W = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    b = [rng.normal(size=m) * 0.5 for m in sizes[1:]]
    x, free = rng.normal(size=4), np.array([0.0, 0.0, 0.0, 30.0])
    W[0][:, 3] *= 0.1
    net = lc.Network.from_arrays(W, b)
    true = lc.measure(net, x, "linf", domain=(x - free, x + free))
    assert true.status == "exact"
    for p in (1.001, 1.05, 50.0, 1000.0):
        r = lc.measure(net, x, p, domain=(x - free, x + free), certificate=True)
        assert r.status == "exact" and r.upper == pytest.approx(true.upper, rel=1e-6), p
        assert r.certificate is not None and lc.check(net, r.certificate).ok, p


@pytest.mark.parametrize("p", [50.0, 1000.0])
def test_large_p_is_nearly_linf(p: float) -> None:
    """Powers p of ratios far from one overflow in a solver: here it would crash, for users it had no answer."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        net = lc.Network.from_arrays(
            [rng.normal(size=(6, 12)), rng.normal(size=(5, 6)), rng.normal(size=(3, 5))],
            [rng.normal(size=6) * 0.5, rng.normal(size=5) * 0.5, rng.normal(size=3) * 0.5],
        )
        x = rng.normal(size=12)
        near = lc.measure(net, x, "linf", radius=100.0)
        r = lc.measure(net, x, p, radius=100.0, method="layercert-both", time_limit=0.3)
        assert r.lower <= near.upper * 12 ** (1 / p) * (1 + 1e-6)
        assert r.upper >= near.lower * (1 - 1e-6)


def test_coefficients_of_a_clause_count_as_they_are() -> None:
    """Not only times the weights of the last layer: an error that vanishes in those products would be enlarged."""
    net = lc.Network.from_arrays([[[1.0]], [[1e-200], [1e-200]]], [[0.0], [0.0, 0.0]])
    for top, said in ((1e70, ""), (1e250, "numbers of this network grow beyond")):
        clause = Clause(np.array([[top, -top]]), np.zeros(1))
        problem = Problem(net, np.array([1e-140]), (clause,), Norm(math.inf))
        assert out_of_range(problem, 1e-141).startswith(said) and bool(out_of_range(problem, 1e-141)) is bool(said)
