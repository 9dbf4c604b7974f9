"""Networks in rational numbers, written for the audit alone: nothing here is shared with what it judges.

A float64 is a rational number, and so is everything that a ReLU network makes of it. Along a segment the network is
linear between finitely many points, which are rational too: `Exact.first` finds where on it an unsafe output is met
first, whatever the scale of the weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from layercert.network import Network

ZERO = Fraction(0)
#: What is claimed about lengths in norms other than 1, 2 and inf, which are computed in float64 here.
SLIP = 1e-12


def rational(v: Sequence[float] | np.ndarray) -> list[Fraction]:
    return [Fraction(float(value)) for value in v]


class Unsafe(NamedTuple):
    """Output polyhedra {f : C f <= d}, as rationals."""

    clauses: list[list[tuple[list[Fraction], Fraction]]]

    @staticmethod
    def other_classes(label: int, classes: int) -> Unsafe:
        """Any other class is at least as large as the label's."""
        rows = []
        for j in range(classes):
            if j != label:
                rows.append([([Fraction((k == label) - (k == j)) for k in range(classes)], ZERO)])
        return Unsafe(rows)

    @staticmethod
    def targets(targets: Sequence[int], classes: int) -> Unsafe:
        """One of the targets is at least as large as all other classes."""
        return Unsafe(
            [
                [([Fraction((k == i) - (k == j)) for k in range(classes)], ZERO) for i in range(classes) if i != j]
                for j in targets
            ]
        )

    @staticmethod
    def of(clauses: Sequence[tuple[np.ndarray, np.ndarray]]) -> Unsafe:
        return Unsafe([[(rational(c), Fraction(float(b))) for c, b in zip(C, d, strict=True)] for C, d in clauses])

    def holds(self, f: Sequence[Fraction]) -> bool:
        return any(all(_dot(c, f) <= d for c, d in clause) for clause in self.clauses)


class Exact:
    """A network as a function of rational numbers."""

    def __init__(self, network: Network) -> None:
        self.layers = [
            ([[(j, Fraction(float(w))) for j, w in enumerate(row) if w != 0] for row in np.asarray(W)], rational(b))
            for W, b in zip(network.weights, network.biases, strict=True)
        ]

    def __call__(self, v: Sequence[Fraction]) -> list[Fraction]:
        h = list(v)
        for i, (rows, bias) in enumerate(self.layers):
            z = [b + sum((w * h[j] for j, w in row), ZERO) for row, b in zip(rows, bias, strict=True)]
            h = z if i == len(self.layers) - 1 else [max(value, ZERO) for value in z]
        return h

    def pieces(
        self, x: Sequence[Fraction], d: Sequence[Fraction], top: Fraction
    ) -> Iterator[tuple[Fraction, Fraction, list[Fraction], list[Fraction]]]:
        """Intervals [a, b] of t in [0, top], in order, on which the outputs at x + t d are u + t v."""
        yield from self._pieces(0, list(x), list(d), ZERO, top)

    def _pieces(
        self, i: int, u: list[Fraction], v: list[Fraction], a: Fraction, b: Fraction
    ) -> Iterator[tuple[Fraction, Fraction, list[Fraction], list[Fraction]]]:
        rows, bias = self.layers[i]
        zu = [c + sum((w * u[j] for j, w in row), ZERO) for row, c in zip(rows, bias, strict=True)]
        zv = [sum((w * v[j] for j, w in row), ZERO) for row in rows]
        if i == len(self.layers) - 1:
            yield a, b, zu, zv
            return
        kinks = sorted({-p / q for p, q in zip(zu, zv, strict=True) if q and a < -p / q < b})
        ends = [a, *kinks, b]
        for lo, hi in itertools.pairwise(ends):
            middle = (lo + hi) / 2
            on = [p + q * middle > 0 for p, q in zip(zu, zv, strict=True)]
            yield from self._pieces(
                i + 1,
                [p if o else ZERO for p, o in zip(zu, on, strict=True)],
                [q if o else ZERO for q, o in zip(zv, on, strict=True)],
                lo,
                hi,
            )

    def first(self, x: Sequence[Fraction], d: Sequence[Fraction], unsafe: Unsafe, top: Fraction) -> Fraction | None:
        """The least t in [0, top] with an unsafe output at x + t d; None when there is none."""
        for a, b, u, v in self.pieces(x, d, top):
            times = [t for clause in unsafe.clauses if (t := _enters(clause, u, v, a, b)) is not None]
            if times:
                return min(times)
        return None


def _dot(c: Sequence[Fraction], f: Sequence[Fraction]) -> Fraction:
    return sum((p * q for p, q in zip(c, f, strict=True) if p), ZERO)


def _enters(
    clause: list[tuple[list[Fraction], Fraction]],
    u: list[Fraction],
    v: list[Fraction],
    a: Fraction,
    b: Fraction,
) -> Fraction | None:
    """The least t in [a, b] at which all rows hold."""
    for c, d in clause:
        at, slope = _dot(c, u) - d, _dot(c, v)  # at + slope t <= 0
        if slope > 0:
            b = min(b, -at / slope)
        elif slope < 0:
            a = max(a, -at / slope)
        elif at > 0:
            return None
        if a > b:
            return None
    return a


class Length(NamedTuple):
    """||weights * w||_p, compared with float64 numbers."""

    p: float
    weights: list[Fraction] | None = None

    def below(self, w: Sequence[Fraction], bound: float) -> bool:
        """Is the length less than the bound, beyond doubt?"""
        return math.isinf(bound) or self._compare(w, bound, SLIP) < 0

    def above(self, w: Sequence[Fraction], bound: float) -> bool:
        """Is the length greater than the bound, beyond doubt?"""
        return math.isfinite(bound) and self._compare(w, bound, SLIP) > 0

    def _compare(self, w: Sequence[Fraction], bound: float, slip: float) -> int:
        """The sign of length - bound; 0 also where float64 could not tell."""
        sizes = [abs(value) for value in w]
        if self.weights is not None:
            sizes = [s * size for s, size in zip(self.weights, sizes, strict=True)]
        b, top = Fraction(bound), max(sizes, default=ZERO)
        if math.isinf(self.p):
            return _sign(top - b)
        if self.p == 1.0:
            return _sign(sum(sizes, ZERO) - b)
        if self.p == 2.0:
            return _sign(sum((s * s for s in sizes), ZERO) - b * b)
        if top == 0:
            return _sign(-b)
        root = sum(float(s / top) ** self.p for s in sizes) ** (1.0 / self.p)
        length = top * Fraction(root)
        return _sign(length - b) if abs(length - b) > Fraction(slip) * length else 0


def _sign(q: Fraction) -> int:
    return (q > 0) - (q < 0)
