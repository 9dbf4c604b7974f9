"""The checker goes on with the numbers that the prover had: what a row counts for at most is in the file.

Without limits its bounds are a little better than the prover's, and on a ball that is far larger than what decides a
multiplier that cancels one leaves much of the other.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.standalone import alone
from layercert.certificate.claim import Certificate
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import Objectives, StepFloats
from layercert.certificate.steps import StepTree
from layercert.certify.digest import lowered
from layercert.certify.doubt import Doubt
from layercert.network import Network
from layercert.system import clock


def large_ball(seed: int) -> tuple[Network, np.ndarray, Any, Any, float]:
    """A small network, x, a norm, a domain with fixed and free inputs, and a radius from 1e3 to 1e8."""
    rng = np.random.default_rng(seed)
    depth = rng.integers(1, 4)
    sizes = [int(rng.integers(1, 4)), *map(int, rng.integers(1, 7, depth)), 2]
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    net = Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in sizes[1:]])
    n = sizes[0]
    x, norm = rng.uniform(-1, 1, n), [1, 2, math.inf, 1.5][int(rng.integers(4))]
    low = np.where(rng.random(n) < 0.4, x, np.where(rng.random(n) < 0.5, -1e9, -math.inf))
    fixed, near, up = rng.random(n) < 0.4, rng.random(n) < 0.5, x + 10.0 ** rng.integers(-2, 9)
    domain = (low, np.where(fixed, x, np.where(near, up, math.inf)))
    return net, x, norm, domain if rng.random() < 0.7 else None, 10.0 ** rng.uniform(3, 8)


def proved(seed: int) -> tuple[Network, Certificate] | None:
    """The certificate of a robust ball, or of one a little smaller than the nearest unsafe point's distance."""
    net, x, norm, domain, radius = large_ball(seed)

    def verify(radius: float) -> lc.Result:
        return lc.verify(net, x, radius, norm, domain=domain, certificate=True, method="adaptive", time_limit=20)

    with clock.of_processor():  # what a busy machine does meanwhile does not count
        r = verify(radius)
        r = r if r.status == "robust" else verify(r.upper * (1 - 1e-4))
    return None if r.certificate is None else (net, r.certificate)


#: Of the first two thousand, those whose certificate was handed out though one of our checkers rejects it.
REJECTED_BEFORE = [242, 672, 674, 729, 811, 903]


@pytest.mark.parametrize("seed", REJECTED_BEFORE)
def test_all_checkers_follow_on_balls_far_larger_than_what_decides(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    found = proved(seed)
    assert found is not None
    net, certificate = found
    for exact in (False, True):
        report = lc.check(net, certificate, exact=exact)
        assert report.ok, report.reason
    net.save(tmp_path / "network.npz")
    certificate.save(tmp_path / "proof.npz")
    assert alone.main([str(tmp_path / "proof.npz"), str(tmp_path / "network.npz")]) == 0


def test_without_limits_the_checker_does_not_follow() -> None:
    """So that the test above tests them."""
    followed = 0
    for seed in REJECTED_BEFORE[1:]:
        found = proved(seed)
        assert found is not None
        net, certificate = found
        trees = [replace(tree, limit=None) for tree in certificate.trees if isinstance(tree, StepTree)]
        followed += lc.check(net, replace(certificate, trees=tuple(trees))).ok
    assert followed < len(REJECTED_BEFORE) - 1


def test_a_limit_is_a_little_below_the_bound() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=1000) * 10.0 ** rng.integers(-300, 300, 1000)
    low = lowered(values)
    assert (low <= values).all() and (values - low <= 2e-9 * np.abs(values)).all()
    assert lowered(np.array([-math.inf, 0.0])).tolist() == [-math.inf, 0.0]
    digits = np.frexp(low)[0] * 2.0**30
    assert (digits == np.rint(digits)).all() and (low < values).any()


def doubt_of(radius: float) -> tuple[Doubt, Any]:
    """Of a small network on a ball, and its start as a region."""
    rng = np.random.default_rng(3)
    net = Network.from_arrays([rng.normal(size=(4, 3)), rng.normal(size=(2, 4))], [rng.normal(size=4), np.zeros(2)])
    floats = StepFloats(Setting(net, rng.uniform(-1, 1, 3), 2.0, radius, None), 2.0)
    return Doubt(floats), floats.start


def test_lines_move_no_farther_than_is_said() -> None:
    """Bounds of the start changed by their slips, at any point where |z| <= T."""
    doubt, start = doubt_of(100.0)
    moves = doubt.lines(start, np.full((1, 8), -1))[0]
    assert (moves > 0).all()  # all four are open
    rng = np.random.default_rng(0)
    farthest = np.zeros(4)
    z = np.stack([-doubt.T, doubt.T])

    def line(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        return hi / (hi - lo) * z - hi * lo / (hi - lo)

    for _ in range(200):
        shifts = [doubt.slips[end::2] * rng.choice([-1, 1], 4) for end in (0, 1)]
        lo, hi = start.lo[0] + shifts[0], start.hi[0] + shifts[1]
        farthest = np.maximum(farthest, np.abs(line(lo, hi) - line(start.lo[0], start.hi[0])).max(axis=0))
    rounding = 1e-15 * doubt.T
    assert (farthest <= moves * 1.01 + rounding).all() and (farthest + rounding >= 0.3 * moves).all()
    given = np.zeros((1, 8), np.int64)  # by rows: these are the checker's too
    assert not doubt.lines(start, given).any()


def test_a_neuron_that_reads_none_but_dead_ones_moves_nothing() -> None:
    """Its range is nothing but rounding, so that its line can be any; where one of its inputs lives, that counts."""
    rng = np.random.default_rng(4)
    W = [rng.normal(size=(3, 2)), np.array([[1.0, -1.0, 0.0], [1.0, -1.0, 1.0]]), rng.normal(size=(2, 2))]
    net = Network.from_arrays(W, [np.array([-50.0, -60.0, 0.5]), np.zeros(2), np.zeros(2)])
    floats = StepFloats(Setting(net, np.zeros(2), 2.0, 1.0, None), 2.0)
    doubt, start = Doubt(floats), floats.start
    assert start.side[0, :2].tolist() == [-1, -1] and start.side[0, 3] == 0
    assert 0 < start.hi[0, 3] - start.lo[0, 3] < 1e-9 and start.hi[0, 4] > 0.1
    moves = doubt.lines(start, np.full((1, 10), -1))[0]
    assert doubt.T[3] == 0 and moves[3] < 1e-9 and 0 < doubt.T[4] < 10
    assert doubt.any  # the checker may find it off: the proof is tried


def test_where_bounds_of_the_start_decide_a_closing_is_a_doubt() -> None:
    doubt, start = doubt_of(1e6)
    floats = doubt.floats
    assert not doubt.any
    own = Objectives(np.full((1, 4), 0.5), np.zeros((1, 4)), np.ones((1, 1)))
    halves = floats.halfspaces(np.array([[1.0, -1.0]]), np.zeros(1), start, own)
    lines, closed = doubt.lines(start, np.full((1, 8), -1)), np.array([True])
    moves = doubt.halfspaces(lines, halves, False, np.array([False]))
    assert moves[0] > 0 and not doubt.any
    reach = float(np.asarray(halves.s - floats.setting.r * np.linalg.norm(halves.g, axis=1))[0])
    far = halves._replace(s=halves.s - reach + 1000.0 * moves)
    doubt.halfspaces(lines, far, False, closed)
    assert not doubt.any
    doubt.halfspaces(lines, halves._replace(s=halves.s - reach + 2.0 * moves), False, closed)
    assert doubt.any


def test_facets_move_with_the_bounds_of_their_inputs() -> None:
    """Their lines rest on the box of the layer below, whose ends differ by their slips."""
    rng = np.random.default_rng(4)
    sizes = [3, 4, 5, 2]
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    net = Network.from_arrays(weights, [rng.normal(size=m) for m in sizes[1:]])
    floats = StepFloats(Setting(net, rng.uniform(-1, 1, 3), math.inf, 0.5, None), 2.0)
    doubt = Doubt(floats)
    widest = np.maximum(doubt.slips[0:8:2], doubt.slips[1:8:2])
    np.testing.assert_allclose(doubt.facets, [0, 0, 0, 0, *(np.abs(weights[1]) @ widest)])
    own = Objectives(np.full((1, 9), 0.5), np.zeros((1, 9)), np.ones((1, 1)))
    halves = floats.halfspaces(np.array([[1.0, -1.0]]), np.zeros(1), floats.start, own)
    lines, none = np.zeros((1, 9)), np.array([False])
    assert doubt.halfspaces(lines, halves, False, none) == 0.0
    expected = np.abs(halves.uppers.coef[:, 0]) @ doubt.facets
    np.testing.assert_allclose(doubt.halfspaces(lines, halves, True, none), expected)
