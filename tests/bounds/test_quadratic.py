"""Parabolas above ReLUs in rational arithmetic, and the fall of curved functions against brute force."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from layercert.bounds.quadratic import curved_fall, least_slope, offset_above

#: Bounds and curvatures of very different sizes.
SCALES = [1e-80, 1e-9, 1.0, 1e9, 1e60]


def exact_gap(s: float, q: float, v: float, z0: float, lo: float, hi: float) -> Fraction:
    """The least of v + s dz + q dz^2 - relu(z) on [lo, hi], exactly: at an end, at 0 or at a vertex of either piece."""
    S, Q, V, Z, L, H = (Fraction(a) for a in (s, q, v, z0, lo, hi))
    points = {L, H, Fraction(0)}
    if Q > 0:
        points |= {Z - S / (2 * Q), Z + (1 - S) / (2 * Q)}
    return min(V + S * (z - Z) + Q * (z - Z) ** 2 - max(z, Fraction(0)) for z in points if L <= z <= H)


@pytest.mark.parametrize("scale", SCALES)
def test_a_parabola_is_above_relu_exactly(scale: float) -> None:
    rng = np.random.default_rng(0)
    for case in range(300):
        lo, hi = -scale * rng.exponential(), scale * rng.exponential()
        z0 = rng.uniform(lo, hi) if case % 3 else rng.choice([lo, hi, 0.0, 2 * hi])
        q = 0.0 if case % 10 == 0 else float(np.exp(rng.uniform(-8, 8))) / scale
        s = rng.normal() if case % 2 or q == 0.0 else least_slope(q, lo, hi, min(max(z0, lo), hi))
        v = offset_above(s, q, z0, lo, hi)
        gap = exact_gap(s, q, v, z0, lo, hi)
        assert gap >= 0
        reach = max(abs(lo - z0), abs(hi - z0))
        assert gap <= 1e-13 * (abs(lo) + abs(hi) + abs(z0) + (abs(s) + 1) * reach + q * reach**2) + 1e-149


def test_the_least_parabola_touches_relu_at_its_point() -> None:
    """No other slope of the same curvature gives less at z, and the sharpest parabolas lose nothing there."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        lo, hi = -rng.exponential(), rng.exponential()
        z, q = rng.uniform(lo, hi), float(np.exp(rng.uniform(-4, 4)))
        best = offset_above(least_slope(q, lo, hi, z), q, z, lo, hi)
        others = [offset_above(s, q, z, lo, hi) for s in np.linspace(-3, 4, 400)]
        assert best <= min(others) + 1e-12
        sharp = 0.25 / abs(z)  # touches relu at z and -z
        assert offset_above(least_slope(sharp, lo, hi, z), sharp, z, lo, hi) <= max(z, 0.0) + 1e-12


def falls(seed: int, boxed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """g, D and the rooms below and above, in units of the ball."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    g, D = rng.normal(size=n), rng.exponential(size=n) * rng.choice([0.0, 0.1, 1.0, 10.0], size=n)
    below, above = np.minimum(rng.exponential(size=(2, n)), 1.0) if boxed else np.ones((2, n))
    if boxed and seed % 4 == 0:
        below[0] = 0.0  # x on the edge of the domain
    return g, D, below, above


@pytest.mark.parametrize("boxed", [False, True])
def test_nothing_falls_further(boxed: bool) -> None:
    rng = np.random.default_rng(7)
    for seed in range(150):
        g, D, below, above = falls(seed, boxed)
        drop = curved_fall(g, D, below, above)
        steps = rng.normal(size=(4000, len(g)))
        steps *= rng.choice([1.0, 0.5], size=(4000, 1)) / np.linalg.norm(steps, axis=1, keepdims=True)
        steps = np.clip(steps, -below, above)
        deepest = float((-(steps @ g) + steps**2 @ D).max())
        assert drop >= deepest
        if not D.any():  # without curvature it is the fall of a linear function, up to the search for mu
            assert drop <= deepest * 1.05 + 0.02 * np.abs(g).sum()


@pytest.mark.parametrize("scale", SCALES)
def test_nothing_falls_further_at_any_scale(scale: float) -> None:
    """Along g itself, in rationals: a unit step is (-3/5, 4/5) where g is."""
    for D in (0.0, 0.3, 40.0):
        g, bends = np.array([3.0, -4.0]) * scale, np.array([D, D]) * scale
        step = [Fraction(-3, 5), Fraction(4, 5)]
        fall = sum(Fraction(b) * t * t - Fraction(a) * t for a, b, t in zip(g, bends, step, strict=True))
        drop = curved_fall(g, bends, np.ones(2), np.ones(2))
        assert fall <= Fraction(drop) <= Fraction(101, 100) * fall


def test_one_coordinate_by_hand() -> None:
    """g = 2, D = 4 on [-1, 1]: the least of 2 t - 4 t^2 is at t = -1."""

    def fall(g: float, D: float, below: float, above: float) -> float:
        return curved_fall(*(np.array([value]) for value in (g, D, below, above)))

    assert fall(2.0, 4.0, 1.0, 1.0) == pytest.approx(6.0, rel=1e-2)
    assert fall(0.0, 0.0, 1.0, 1.0) < 1e-100
    assert 0.0 <= fall(2.0, 4.0, 0.0, 0.5) < 0.1  # t >= 0: only the curvature falls
    assert fall(2.0, 12.0, 0.0, 0.5) == pytest.approx(2.0, abs=0.1)
    assert math.isinf(fall(np.inf, 1.0, 1.0, 1.0))
