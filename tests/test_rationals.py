"""Float64 numbers as whole numbers over a power of two, at every magnitude, and rationals rounded to a known side."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from layercert.network import Network
from layercert.rationals import float_above, float_below, over_one_denominator, root_above, times_power_of_two, whole

#: Subnormal, tiny, plain, with many bits, huge.
NUMBERS = np.array([0.0, -0.0, 5e-324, -3e-320, 2.5e-308, 0.1, -1.0, 1 / 3, 2.0**60, -1.7976931348623157e308])


def test_whole_numbers_are_the_floats() -> None:
    n, e = whole(NUMBERS)
    assert [times_power_of_two(a, e) for a in n] == [Fraction(v) for v in NUMBERS.tolist()]
    assert whole(np.zeros(3)) == ([0, 0, 0], 0)
    assert whole(np.zeros(0)) == ([], 0)


def test_fractions_over_one_denominator() -> None:
    values = [Fraction(1, 3), Fraction(-7, 10), Fraction(0.1)]
    n, e, D = over_one_denominator(values)
    assert [times_power_of_two(a, e) / D for a in n] == values


@pytest.mark.parametrize("q", [Fraction(1, 3), Fraction(-1, 3), Fraction(0), Fraction(1, 10**400), Fraction(0.1)])
def test_rounded_to_a_known_side(q: Fraction) -> None:
    low, high = float_below(q), float_above(q)
    assert low <= q <= high
    assert high == low if Fraction(low) == q else high == math.nextafter(low, math.inf)
    assert math.copysign(1.0, float_above(Fraction(0))) == 1.0  # no distance of -0


def test_roots() -> None:
    for k in (1, 2, 3, 5, 64):
        for n in (0, 1, 2, 7, 10**30, 3**k, 3**k + 1, (10**20) ** k, (10**20) ** k - 1):
            root = root_above(n, k)
            assert root**k >= n and (root == 0 or (root - 1) ** k < n)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e70])
def test_the_network_in_whole_numbers_is_the_network_in_fractions(scale: float) -> None:
    rng = np.random.default_rng(0)
    W = [scale * rng.normal(size=(4, 3)), rng.normal(size=(3, 4)) / scale, rng.normal(size=(2, 3))]
    b = [scale * rng.normal(size=4), rng.normal(size=3) * 1e-200, np.zeros(2)]
    W[1][0, 1] = 0.0
    net = Network.from_arrays(W, b)
    for x in ([Fraction(1, 3), Fraction(-2, 7), Fraction(5)], rng.normal(size=3) * 1e-150, np.zeros(3)):
        h = [Fraction(v) for v in x]
        for i in range(3):
            h = [
                sum((Fraction(float(w)) * v for w, v in zip(row, h, strict=True)), Fraction(float(c)))
                for row, c in zip(W[i], b[i], strict=True)
            ]
            h = h if i == 2 else [max(v, Fraction(0)) for v in h]
        assert net.exact(x) == h
