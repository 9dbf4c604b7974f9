"""What a certificate's witness proves: that a point is unsafe, and how far from x it is at most.

Both are decided in rational numbers where floats leave a doubt. The distance is found the other way round from the
search's: a float64 is guessed, and proved to be no less than the true length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from layercert.arrays import Vector
from layercert.certificate.rejected import Rejected
from layercert.norms import WeightedNorm
from layercert.problem import Problem

#: The claimed distance may differ by this much (relative) from what is proved; more is taken for another claim.
SAME = 1e-9
#: Powers of whole p up to this one are compared exactly, those of any other p with so many decimal digits.
MOST_POWER, DIGITS = 64, 40


def prove_witness(problem: Problem, witness: Vector, claimed: float, exact: bool) -> float:
    """The witness is an unsafe point of the domain: its distance from x, rounded up. Rejected otherwise.

    exact: settle even what floats are sure of in rational numbers.
    """
    if witness.shape != problem.x.shape or not np.isfinite(witness).all():
        raise Rejected("the witness does not fit the input")
    if problem.domain is not None and not ((problem.domain[0] <= witness) & (witness <= problem.domain[1])).all():
        raise Rejected("the witness is outside the domain")
    if not unsafe(problem, witness, exact):
        raise Rejected("the witness is not unsafe")
    weights = problem.norm.weights if isinstance(problem.norm, WeightedNorm) else None
    distance = distance_up(problem.x, witness, problem.norm.p, weights)
    if not claimed >= distance * (1.0 - SAME):
        raise Rejected(f"the witness is farther than the claimed {claimed}: it lies at distance {distance}")
    if not claimed <= distance * (1.0 + SAME) + 1e-12:
        raise Rejected(f"the witness is nearer than the claimed {claimed}: it lies at distance {distance}")
    return distance


def unsafe(problem: Problem, v: Vector, exact: bool) -> bool:
    """Does some clause hold at v, for the network as a function of real numbers?"""
    if not exact:
        return problem.is_unsafe(v)
    f = problem.network.exact(v)
    return any(max(clause.exact_margins(f)) <= 0 for clause in problem.clauses)


def distance_up(x: Vector, v: Vector, p: float, weights: Vector | None = None) -> float:
    """The least float64 that is proved to be no less than ||weights * (v - x)||_p (inf beyond all of them)."""
    at = np.flatnonzero(x != v)
    if not len(at):
        return 0.0
    moved, unit = _differences(x[at], v[at])
    if weights is not None:
        counts, scale = _whole(weights[at])
        moved, unit = [m * w for m, w in zip(moved, counts, strict=True)], unit * scale
    at_most = _comparison(moved, unit, p)
    length = _guess(moved, unit, p)
    while not at_most(length):
        length = math.nextafter(length, math.inf)
    while at_most(below := math.nextafter(length, 0.0)):
        length = below
    return length


def _differences(x: Vector, v: Vector) -> tuple[list[int], Fraction]:
    """|v - x| exactly: whole numbers, and what one of them is worth."""
    whole, unit = _whole(np.concatenate([x, v]))
    return [abs(b - a) for a, b in zip(whole[: len(x)], whole[len(x) :], strict=True)], unit


def _whole(values: Vector) -> tuple[list[int], Fraction]:
    """Finite numbers as whole ones, and the power of two that one of these is worth: a float64 is m 2^e, |m| < 2^53."""
    parts, exponents = np.frexp(values)
    whole = (parts * 2.0**53).astype(np.int64)
    least = int(exponents[whole != 0].min(initial=2000)) - 53
    shifts = np.where(whole != 0, exponents - 53 - least, 0)
    unit = Fraction(2) ** least
    return [m << e for m, e in zip(whole.tolist(), shifts.tolist(), strict=True)], unit


def _guess(moved: list[int], unit: Fraction, p: float) -> float:
    """The l_p length up to a few roundings."""
    top = max(moved)
    root = 1.0 if math.isinf(p) else math.fsum((m / top) ** p for m in moved) ** (1.0 / p)
    try:
        return float(top * unit) * root
    except OverflowError:
        return math.inf


def _comparison(moved: list[int], unit: Fraction, p: float) -> Callable[[float], bool]:
    """Is the l_p length of a vector of positive numbers, in this unit, proved to be at most a given one?"""
    top = max(moved) * unit
    if math.isinf(p) or len(moved) == 1:
        return lambda length: length >= top
    if p == 1.0:
        total = sum(moved) * unit
        return lambda length: length >= total
    if p.is_integer() and p <= MOST_POWER:
        power = int(p)
        powers = sum(m**power for m in moved) * unit**power
        return lambda length: math.isinf(length) or Fraction(length) ** power >= powers
    return lambda length: (
        math.isinf(length) or (length >= top and _powers([m * unit / Fraction(length) for m in moved], p) <= 1)
    )


def _powers(shares: list[Fraction], p: float) -> Decimal:
    """The sum of share^p for shares in (0, 1], rounded up."""
    with localcontext(Context(prec=DIGITS, rounding=ROUND_CEILING)):
        total, last = Decimal(0), Decimal(10) ** (1 - DIGITS)
        for share in shares:
            up = Decimal(share.numerator) / Decimal(share.denominator)
            # ln and exp are rounded to the nearest: one unit of the last digit covers them
            exponent = min(Decimal(p) * (up.ln() * (1 - last) + last), Decimal(0))
            total += Decimal(1) if share == 1 else max(exponent, Decimal(-1000)).exp() * (1 + last)
        return total
