"""Interval arithmetic at the start of a proof: sound in every checker, used where the file says so, exact at zero."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.standalone import alone, around
from layercert.certificate.balls import precision
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.intervals import narrow_by_intervals
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.certificate.step_balls import StepBalls
from layercert.certificate.step_floats import StepFloats
from layercert.certificate.steps import StepTree
from layercert.errors import InputError
from layercert.network import Network

KINDS = ("floats", "balls", "alone", "alone, exact")


def starts(net: Network, x: np.ndarray, p: float, r: float, intervals: bool = True) -> dict[str, np.ndarray]:
    """lo and hi of all neurons, as two lines, in every checker."""
    setting = Setting(net, x, p, r, None, intervals)
    floats = StepFloats(setting).start
    with precision():
        balls = StepBalls(setting).start
    other = [around(net.weights, net.biases, x, p, r, exact, intervals=intervals).start[:2] for exact in (False, True)]
    found = np.stack([floats.lo[0], floats.hi[0]]), np.stack([np.concatenate(balls.lo), np.concatenate(balls.hi)])
    return dict(zip(KINDS, (*found, *other), strict=True))


def exactly(net: Network, v: np.ndarray) -> list[Fraction]:
    """All pre-activations at a point, in rationals."""
    h, z = [Fraction(float(t)) for t in v], list[Fraction]()
    for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        rows = zip(W, b, strict=True)
        own = [
            sum((Fraction(float(w)) * t for w, t in zip(row, h, strict=True)), Fraction(float(c))) for row, c in rows
        ]
        z, h = z + own, [max(t, Fraction(0)) for t in own]
    return z


def interval_in_rationals(net: Network, k: int, lo: np.ndarray, hi: np.ndarray) -> tuple[list[Fraction], ...]:
    """What the bounds of layer k - 1 say of layer k."""
    low, high = ([max(Fraction(float(v)), Fraction(0)) for v in ends] for ends in (lo, hi))
    out: tuple[list[Fraction], ...] = ([], [])
    for row, c in zip(net.weights[k], net.biases[k], strict=True):
        for at, (a, b) in enumerate(((low, high), (high, low))):
            terms = (Fraction(float(w)) * (s if w > 0 else t) for w, s, t in zip(row, a, b, strict=True))
            out[at].append(sum(terms, Fraction(float(c))))
    return out


def network_of(rng: np.random.Generator, sizes: list[int]) -> Network:
    """Many weights and biases are zero, and numbers are of many sizes."""
    weights = [rng.normal(size=(m, n)) * rng.integers(0, 2, (m, n)) for n, m in itertools.pairwise(sizes)]
    scales = [10.0 ** rng.choice([-200, -9, 0, 0, 0], size=W.shape) for W in weights]
    biases = [rng.normal(size=m) * 10.0 ** rng.choice([-200, -17, 0], m) * rng.integers(0, 2, m) for m in sizes[1:]]
    return Network.from_arrays([W * s for W, s in zip(weights, scales, strict=True)], biases)


def test_bounds_of_a_layer_are_those_of_rational_arithmetic_rounded_outward() -> None:
    """The kernel and ball arithmetic by themselves: nothing is known of the layer before. Products vanish, sums
    cancel, and where all terms are zero the bound is zero itself."""
    zeros = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [3, 6, 5, 2])
        lo, hi = -rng.random(11) * 10.0 ** rng.choice([-200, -8, 0], 11), rng.random(11)
        lo[:3] = rng.choice([0.0, 1e-200, 0.25], 3)
        hi[3:5] = rng.choice([-1.0, 0.0, 1e-190], 2)
        hi = np.maximum(lo, hi)
        lo[6:], hi[6:] = -1e300, 1e300
        low, high = interval_in_rationals(net, 1, lo[:6], hi[:6])
        setting = Setting(net, np.zeros(3), 2.0, 1.0, None, True)
        with precision():
            region = Region([lo[:6], lo[6:]], [hi[:6], hi[6:]], [np.zeros(6), np.zeros(5)])
            balls = [StepBalls(setting)._interval(1, region, side) for side in (1.0, -1.0)]
        narrow_by_intervals(net.packed, 1, setting.noise, lo, hi)
        for i in range(5):
            size = float(abs(net.weights[1][i]) @ np.maximum(hi[:6], 0.0) + abs(net.biases[1][i]))
            for least, most in ((lo[6 + i], hi[6 + i]), (balls[0][i], -balls[1][i])):
                assert Fraction(float(least)) <= low[i] and high[i] <= Fraction(float(most))
                assert least >= float(low[i]) - 1e-12 * size - 2e-150 and most <= float(high[i]) + 1e-12 * size + 2e-150
                W = net.weights[1][i]
                none = net.biases[1][i] == 0 and not ((W > 0) & (lo[:6] > 0) | (W < 0) & (hi[:6] > 0)).any()
                assert none == (least == 0)
                zeros += none
    assert zeros > 10


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_bounds_hold_at_points_in_every_checker(p: float) -> None:
    """In rational arithmetic, nothing rounded."""
    better = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        net, x, r = network_of(rng, [3, 4, 4, 4, 2]), rng.normal(size=3), float(10.0 ** rng.uniform(-1, 1))
        plain, found = starts(net, x, p, r, False), starts(net, x, p, r)
        for kind, (lo, hi) in found.items():
            assert (lo >= plain[kind][0] - 1e-9).all() and (hi <= plain[kind][1] + 1e-9).all()
            better += int((hi - lo < 0.99 * (plain[kind][1] - plain[kind][0])).sum())
        for _ in range(20):
            w = rng.choice([-1.0, 0.0, 1.0], 3) * rng.random(3)
            w *= 0.999 * r / max(float(np.linalg.norm(w, p)), 1e-9)
            for lo, hi in found.values():
                for z, least, most in zip(exactly(net, x + w), lo, hi, strict=True):
                    assert Fraction(float(least)) <= z <= Fraction(float(most))
    assert better > 20


def test_a_neuron_that_carries_an_output_on_is_on_in_every_checker() -> None:
    """As behind max pooling. The lower line of the neuron below has the slope 1, so that a backward pass sees -1."""
    net = Network.from_arrays([np.eye(1), np.eye(1), np.ones((2, 1))], [np.zeros(1), np.zeros(1), np.zeros(2)])
    x = np.array([0.25])
    for lo, hi in starts(net, x, 2.0, 1.0).values():
        assert lo[1] == 0.0 and hi[1] == pytest.approx(1.25)
    for lo, _ in starts(net, x, 2.0, 1.0, intervals=False).values():
        assert lo[1] == pytest.approx(-0.75)


def test_a_product_that_vanishes_is_no_zero() -> None:
    """z^2 = -1e-200 x^1 with 0 <= x^1 <= 1e-200: it is below 0, by less than any float64 number."""
    weights = [np.full((1, 1), 1e-200), np.full((1, 1), -1e-200), np.ones((2, 1))]
    net = Network.from_arrays(weights, [np.zeros(1), np.zeros(1), np.zeros(2)])
    for lo, hi in starts(net, np.array([0.5]), math.inf, 0.5).values():
        assert lo[1] < 0.0 and hi[1] >= 0.0


def hand_made() -> tuple[Network, Certificate]:
    """f_0 - f_1 = 0.7 - relu(v) + 0.6 v on [-1, 1.5], at least 0.1 there, with relu(v) carried through a second layer.
    One leaf, one halfspace, no rows. Chords of relu(v) alone: at least 0.1. With a chord for the neuron that carries
    it, too: no more than -0.5."""
    weights = [np.ones((2, 1)), np.eye(2), np.array([[0.0, 0.6], [1.0, 0.0]])]
    net = Network.from_arrays(weights, [np.array([0.0, 10.0]), np.zeros(2), np.array([0.7 - 6.0, 0.0])])
    nothing, none = np.zeros(0, np.int64), np.zeros(0)
    tree = StepTree(
        layer=np.zeros(1, np.int64), neuron=np.zeros(1, np.int64), steps=np.ones(1, np.int64),
        objective=np.zeros(1, np.int64), uses=np.zeros(1, np.int64), row=nothing, lam=none, mu=np.ones((1, 1)),
        alpha=np.ones((1, 4)), beta=np.zeros((1, 4)), target=nothing, side=nothing, pull=none, slope_count=nothing,
        slope_at=nothing, slope=none, split_count=nothing, split_at=nothing, split=none,
    )  # fmt: skip
    x = np.array([0.25])
    claim = Certificate(
        net.sha256, x, math.inf, None, 0, ((np.array([[1.0, -1.0]]), np.zeros(1), 1),), 1.25, None, math.inf, (tree,),
        intervals=True,
    )  # fmt: skip
    return net, claim


def verdicts(net: Network, certificate: Certificate, folder: Path) -> list[bool]:
    """Of the four checkers."""
    net.save(folder / "network.npz")
    certificate.save(folder / "proof.npz")
    paths = [str(folder / "proof.npz"), str(folder / "network.npz")]
    codes = [alone.main(paths), alone.main([*paths, "--exact"])]
    assert all(code in (0, 1) for code in codes)
    loaded = load_certificate(folder / "proof.npz")
    return [check(net, loaded).ok, check(net, loaded, exact=True).ok, *(code == 0 for code in codes)]


def test_a_proof_that_needs_intervals_is_refused_without_them(tmp_path: Path) -> None:
    net, good = hand_made()
    assert verdicts(net, good, tmp_path) == [True] * 4
    assert verdicts(net, replace(good, intervals=False), tmp_path) == [False] * 4
    assert "leaf 0 is not proved" in check(net, replace(good, intervals=False)).reason
    # v = -1.35 has 0.7 - 0.81 < 0: nobody may prove that
    assert verdicts(net, replace(good, radius=1.6), tmp_path) == [False] * 4


@pytest.mark.parametrize("value", ["yes", None, 2, [True], {}])
def test_what_is_neither_true_nor_false_is_not_readable(value: Any, tmp_path: Path, capsys: Any) -> None:
    net, good = hand_made()
    net.save(tmp_path / "network.npz")
    arrays = good.arrays()
    header = json.loads(arrays["header"].tobytes()) | {"intervals": value}
    np.savez(tmp_path / "proof.npz", **arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    with pytest.raises(InputError, match="intervals must be true or false"):
        load_certificate(tmp_path / "proof.npz")
    assert alone.main([str(tmp_path / "proof.npz"), str(tmp_path / "network.npz")]) == 2
    assert "NOT READABLE" in capsys.readouterr().err


def test_a_false_claim_about_a_carried_neuron_is_refused(tmp_path: Path) -> None:
    """The neuron reads relu(v) with the weight 1 and the bias -1e-17: it is no longer on, and not by rounding."""
    net, good = hand_made()
    moved = Network.from_arrays(net.weights, [net.biases[0], np.array([-1e-17, 0.0]), net.biases[2]])
    for lo, _ in starts(moved, good.x, good.p, good.radius).values():
        assert lo[2] < 0.0
    weak = Network.from_arrays([net.weights[0], -np.eye(2), net.weights[2]], net.biases)  # z = -relu(v) <= 0: off
    for lo, hi in starts(weak, good.x, good.p, good.radius).values():
        assert hi[2] == 0.0 and lo[2] < -1.0
    assert verdicts(weak, replace(good, network=weak.sha256), tmp_path) == [False] * 4  # 0.6 relu(-v - 10) is nothing


def test_certificates_say_that_they_start_with_intervals(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise([4, 8, 8, 3])]
    net = Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in (8, 8, 3)])
    result = lc.measure(net, rng.uniform(-1, 1, 4), "l2", certificate=True)
    assert result.certificate is not None and result.certificate.intervals
    result.certificate.save(tmp_path / "proof.npz")
    assert load_certificate(tmp_path / "proof.npz").intervals
    boxes = lc.verify(net, result.x, 0.01, "linf", method="input-split", certificate=True).certificate
    assert boxes is not None and not boxes.intervals  # cuts of the input have no start
