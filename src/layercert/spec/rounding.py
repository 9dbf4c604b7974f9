"""Rationals onto floating-point numbers, always in a known direction."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from layercert.rationals import float_above, float_below

__all__ = ["decimal_text", "float32_above", "float32_below", "float_above", "float_below"]


def float32_below(q: Fraction, strict: bool = False) -> float:
    """The largest float32 <= q (or < q); -inf when there is none."""
    with np.errstate(over="ignore"):
        f = np.float32(float(q))
    while float(f) > q or (strict and float(f) == q):
        f = np.nextafter(f, np.float32(-np.inf))
    return float(f)


def float32_above(q: Fraction, strict: bool = False) -> float:
    """The least float32 >= q (or > q); inf when there is none."""
    return -float32_below(-q, strict)


def decimal_text(q: Fraction) -> str | None:
    """q written out as a decimal number, exactly; None when it has no finite expansion."""
    twos = (q.denominator & -q.denominator).bit_length() - 1
    rest, fives = q.denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    short = repr(float(q))
    if Fraction(short) == q:
        return short
    places = max(twos, fives)
    digits = q.numerator * 10**places // q.denominator
    # scaleb rounds to the context's precision: it must hold every digit
    return str(Decimal(digits).scaleb(-places, Context(prec=len(str(abs(digits))) + 1)))
