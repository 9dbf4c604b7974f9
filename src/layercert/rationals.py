"""Float64 numbers as the rational numbers they are, and rationals as float64 numbers on a known side.

A float64 is a whole number times a power of two. With one power for a whole array, sums and products are those of
Python's whole numbers: exact at any magnitude, and much faster than fractions, which look for common divisors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from operator import mul

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import LinearMap, Vector
from layercert.system import clock


def lowest_exponent(values: Vector) -> int:
    """The e of `whole`: the exponent of the last bit that any of the values may have; 0 where all are zero."""
    mantissa, exponent = np.frexp(values)
    return int(exponent[mantissa != 0].min()) - 53 if mantissa.any() else 0


def whole(values: Vector, e: int | None = None) -> tuple[list[int], int]:
    """Whole numbers n and one exponent e with values = n * 2**e, exactly; the values must be finite.

    e may be given, if it is at most that of the values themselves.
    """
    e = lowest_exponent(values) if e is None else e
    mantissa, exponent = np.frexp(values)
    n = np.ldexp(mantissa, 53).astype(np.int64)
    shift = np.where(n != 0, exponent - 53 - e, 0)
    return [a << b for a, b in zip(n.tolist(), shift.tolist(), strict=True)], e


def over_one_denominator(values: Vector | Sequence[Fraction]) -> tuple[list[int], int, int]:
    """Whole numbers n, an exponent e and a denominator D > 0 with values = n * 2**e / D, exactly."""
    if isinstance(values, np.ndarray):
        n, e = whole(values)
        return n, e, 1
    fractions = [v if isinstance(v, Fraction) else Fraction(float(v)) for v in values]
    D = math.lcm(*(v.denominator for v in fractions))
    return [v.numerator * (D // v.denominator) for v in fractions], 0, D


def times_power_of_two(n: int, e: int) -> Fraction:
    """n * 2**e."""
    return Fraction(n << e) if e >= 0 else Fraction(n, 1 << -e)


def forward(maps: Sequence[LinearMap], biases: Sequence[Vector], x: Vector | Sequence[Fraction]) -> list[Fraction]:
    """The outputs of affine layers with ReLU between them, exactly."""
    h, e, D = over_one_denominator(x)  # x^i = h * 2**e / D, in whole numbers
    for i, (W, b) in enumerate(zip(maps, biases, strict=True)):
        live = [j for j, v in enumerate(h) if v]
        S = csr_array(W[:, live])
        w_exponent = lowest_exponent(S.data)
        shift, b_exponent = whole(b)
        low = min(e + w_exponent, b_exponent)
        up, b_up = e + w_exponent - low, b_exponent - low
        active = [h[j] for j in live]
        ends = S.indptr.tolist()
        z = []
        for j, own in enumerate(shift):
            clock.check()
            row = slice(ends[j], ends[j + 1])
            w, _ = whole(S.data[row], w_exponent)
            product = sum(map(mul, w, [active[k] for k in S.indices[row].tolist()]))
            z.append((product << up) + (own * D << b_up))
        h, e = z if i == len(maps) - 1 else [max(v, 0) for v in z], low
    return [times_power_of_two(v, e) / D for v in h]


def float_below(q: Fraction) -> float:
    """The largest float64 <= q."""
    f = float(q)
    return f if f <= q else math.nextafter(f, -math.inf)


def float_above(q: Fraction) -> float:
    """The least float64 >= q."""
    f = float(q)
    return f if f >= q else math.nextafter(f, math.inf)


def root_above(n: int, k: int) -> int:
    """The least whole number whose k-th power is at least n (n >= 0, k >= 1)."""
    if n <= 1 or k == 1:
        return n
    if k == 2:
        root = math.isqrt(n)
        return root + int(root * root < n)
    root = 1 << -(-n.bit_length() // k)  # above the root: Newton's steps fall from here, until one does not
    while (lower := int((k - 1) * root + n // root ** (k - 1)) // k) < root:
        root = lower
    return root + int(root**k < n)
