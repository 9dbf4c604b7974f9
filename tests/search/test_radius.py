"""Inside the radius or not: decided exactly, by every method, for points that float64 takes for points of the ball."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import layercert as lc
from helpers import tiny
from layercert import run
from layercert.attack.strict import harden
from layercert.methods import choose
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import robustness
from layercert.result import Status
from layercert.session import How, Session

# f_0 - f_1 = v + 1e-20: the nearest tie of x = 0.1 is -1e-20, at 0.1 + 1e-20, and 0.1 - (-1e-20) is 0.1 in float64
JUST_OUTSIDE = Network.from_arrays([[[1.0], [0.0]]], [[1e-20, 0.0]])


@pytest.mark.parametrize("method", ["adaptive", "geocert", "layercert-both", "input-split", "mip", "large"])
def test_a_point_just_outside_the_radius_does_not_count(method: str) -> None:
    r = lc.verify(JUST_OUTSIDE, [0.1], radius=0.1, label=0, method=method)
    assert r.status != "not_robust"
    assert r.witness is None or r.upper > 0.1


def test_the_upper_bound_is_never_below_the_witness() -> None:
    r = lc.measure(JUST_OUTSIDE, [0.1], label=0)
    assert r.status == "exact" and r.witness is not None
    assert Fraction(r.upper) >= abs(Fraction(float(r.witness[0])) - Fraction(0.1)) >= Fraction(0.1) + Fraction(1e-20)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 1.5])
def test_a_radius_at_the_witness_itself_holds_it(norm: str | float) -> None:
    rng = np.random.default_rng(1)
    net = Network.from_arrays([rng.normal(size=(6, 3)), rng.normal(size=(3, 6))], [rng.normal(size=6), np.zeros(3)])
    x = rng.normal(size=3)
    r = lc.measure(net, x, norm)
    assert r.witness is not None
    problem = robustness(net, x, norm, radius=r.upper)
    assert problem.distance(r.witness) == r.upper <= problem.radius


def test_a_hardened_witness_stays_within_the_radius() -> None:
    """The runtime wants a point beyond the radius: it does not get one."""

    def stubborn(v: np.ndarray) -> np.ndarray:
        return np.array([0.0, 1.0]) if v[0] >= 0.5 + 1e-7 else np.array([1.0, 0.0])

    plain = Network.from_arrays([[[-1.0], [1.0]]], [[1.0, 0.0]])  # a tie at 0.5
    net = Network(plain.weights, plain.biases, "stubborn", stubborn)
    v = np.array([0.5])
    at_the_edge = robustness(net, [0.0], radius=0.5, label=0)
    moved, holds = harden(at_the_edge, v)
    assert at_the_edge.distance(moved) <= 0.5 and holds.runtime_agrees is False
    moved, holds = harden(robustness(net, [0.0], label=0), v)
    assert moved[0] > 0.5 and holds.runtime_agrees


def test_bounds_that_met_still_meet_after_the_witness_was_hardened() -> None:
    """Exact is exact up to the gap, whatever the runtime wants: here it wants more than there is left."""

    def stubborn(v: np.ndarray) -> np.ndarray:
        return np.array([0.0, 1.0]) if v[0] >= 0.5 + 1e-7 else np.array([1.0, 0.0])

    plain = Network.from_arrays([[[-1.0], [1.0]]], [[1.0, 0.0]])
    net = Network(plain.weights, plain.biases, "stubborn", stubborn)
    for gap in (1e-6, 0.1):
        session = Session(robustness(net, [0.0], label=0), How(gap=gap))
        assert session.progress.incumbent.take(np.array([0.5]))
        session.progress.lower = np.nextafter(0.5 * (1.0 - gap), 1.0)
        assert session.progress.met()
        r = run._result(session, Status.EXACT, "", session.how)
        assert r.upper - r.lower <= gap * r.upper and r.upper == 0.5
        assert r.holds is not None and r.holds.runtime_agrees is False
        session.progress.lower = 0.5 * (1.0 - gap) + 2e-7  # now there is room for it
        r = run._result(session, Status.EXACT, "", session.how)
        assert r.upper - r.lower <= gap * r.upper and r.upper > 0.5
        assert r.holds is not None and r.holds.runtime_agrees


def test_small_networks_without_an_end_are_not_cut_into_boxes() -> None:
    """Nothing unsafe within 1e6 times the size of x: boxes of that size took a minute, and no certificate was made."""
    problem = replace(tiny.generic(3107790045), norm=Norm(math.inf), radius=math.inf)
    assert problem.domain is None and choose(problem) == "adaptive"


@pytest.mark.parametrize("method", ["adaptive", "layercert-both", "geocert", "input-split", "large"])
@pytest.mark.parametrize("norm", ["linf", "l1", "l2"])
def test_a_radius_larger_than_the_domain_is_robust_where_all_of_it_is(method: str, norm: str) -> None:
    """f_0 - f_1 = 3 - relu(v_0) - relu(v_1) is at least 1 for v in [0, 1]^2, none of which is farther than 2 from x."""
    net = lc.Network.from_arrays([np.eye(2), [[-1.0, -1.0], [0.0, 0.0]]], [[0.0, 0.0], [3.0, 0.0]])
    for radius in (2.5, 1e6, 1e80):
        found = lc.verify(net, [0.25, 0.5], radius, norm, domain=(0, 1), method=method, certificate=True)
        assert found.status == "robust" and "no unsafe point anywhere" in found.note
        assert found.certificate is not None and lc.check(net, found.certificate).ok
    smaller = lc.verify(net, [0.25, 0.5], 0.1, norm, domain=(0, 1), method=method)
    assert smaller.status == "robust" and not smaller.note
    nearer = lc.Network.from_arrays([np.eye(2), [[-1.0, -1.0], [0.0, 0.0]]], [[0.0, 0.0], [1.9, 0.0]])
    assert lc.verify(nearer, [0.25, 0.5], 1e6, norm, domain=(0, 1), method=method).status == "not_robust"
