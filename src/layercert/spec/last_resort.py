"""A case of a property decided in rational arithmetic, where float64 cannot: the last resort, for small networks.

Where the unsafe set is touched but not entered, or numbers are too large or too small for proofs in float64, searches
end without an answer. A small network has few linear pieces. They are gone through one by one, and on each of them the
case is a set of linear inequalities with rational coefficients (`rational_program`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from scipy.sparse import csr_array

from layercert.arrays import LinearMap, Vector
from layercert.network import Network
from layercert.spec.cases import Case, Row
from layercert.spec.rational_program import ZERO, Inequality, feasible

#: Larger networks are left alone: fractions are some thousand times slower than floats.
MOST_INPUTS, MOST_NEURONS, MOST_WEIGHTS = 16, 150, 10_000
#: Programs to solve before giving up: a second or so.
MOST_PROGRAMS = 400


class Verdict(Enum):
    """What became of a case without a counterexample at hand."""

    EMPTY = "no point of the case is a counterexample"
    OPEN = "too large to decide in rationals"


class _TooMany(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """The case has more pieces than are looked at."""


@dataclass(frozen=True)
class Affine:
    """a . u + c, for u = x - low."""

    a: tuple[Fraction, ...]
    c: Fraction

    def at(self, u: Sequence[Fraction]) -> Fraction:
        return self.c + sum((v * w for v, w in zip(self.a, u, strict=True) if v), ZERO)


def decide(case: Case, network: Network, near: Vector | None = None) -> list[Fraction] | Verdict:
    """A counterexample, exactly, or a verdict; pieces next to the point `near` are looked at first."""
    inputs, weights = network.inputs, sum(csr_array(W).nnz for W in network.maps)
    if inputs > MOST_INPUTS or network.neurons > MOST_NEURONS or weights > MOST_WEIGHTS:
        return Verdict.OPEN
    try:
        u = _Pieces(case, network, near).search()
    except _TooMany:
        return Verdict.OPEN
    if u is None:
        return Verdict.EMPTY
    return [side.low + v for side, v in zip(case.box, u, strict=True) if side.low is not None]


class _Pieces:
    """The linear pieces of a network on a box, depth first."""

    def __init__(self, case: Case, network: Network, near: Vector | None) -> None:
        self.case, self.programs = case, 0
        sides = [(s.low, s.high) for s in case.box]
        low = [low for low, _ in sides if low is not None]
        self.width = [high - low for low, high in sides if low is not None and high is not None]
        middle = [w / 2 for w in self.width]
        self.near = middle if near is None else [Fraction(v) - q for v, q in zip(near.tolist(), low, strict=True)]
        unit = [tuple(Fraction(int(i == j)) for j in range(len(low))) for i in range(len(low))]
        self.inputs = [Affine(a, q) for a, q in zip(unit, low, strict=True)]
        self.box = []
        for i, side in enumerate(case.box):
            self.box.append(Inequality(unit[i], self.width[i], side.high_strict))
            if side.low_strict:
                self.box.append(Inequality([-v for v in unit[i]], ZERO, True))
        self.layers = [_fractions(W, b) for W, b in zip(network.maps, network.biases, strict=True)]

    def search(self) -> list[Fraction] | None:
        if self._point([]) is None:
            return None  # the box itself is empty
        return self._layer(0, self.inputs, [])

    def _layer(self, depth: int, values: list[Affine], known: list[Inequality]) -> list[Fraction] | None:
        """A counterexample where layer `depth` reads these values and `known` holds; None: there is none."""
        z = [_combined(row, bias, values) for row, bias in self.layers[depth]]
        if depth == len(self.layers) - 1:
            return self._in_a_region(z, known)
        return self._neurons(depth, z, [], known)

    def _neurons(
        self, depth: int, z: list[Affine], done: list[Affine], known: list[Inequality]
    ) -> list[Fraction] | None:
        """The same where the first neurons of a layer have their phases."""
        zero = Affine((ZERO,) * len(self.width), ZERO)
        done = list(done)
        for i in range(len(done), len(z)):
            lowest, highest = self._range(z[i])
            if lowest >= 0 or highest <= 0:
                done.append(z[i] if lowest >= 0 else zero)
                continue
            on = (z[i], Inequality([-v for v in z[i].a], z[i].c))
            off = (zero, Inequality(z[i].a, -z[i].c))
            for value, phase in (on, off) if z[i].at(self.near) > 0 else (off, on):
                more = [*known, phase]
                if self._point(more) is not None:
                    found = self._neurons(depth, z, [*done, value], more)
                    if found is not None:
                        return found
            return None
        return self._layer(depth + 1, done, known)

    def _in_a_region(self, y: list[Affine], known: list[Inequality]) -> list[Fraction] | None:
        for region in self.case.regions:
            found = self._point([*known, *(_inequality(row, y) for row in region)])
            if found is not None:
                return found
        return None

    def _point(self, known: list[Inequality]) -> list[Fraction] | None:
        self.programs += 1
        if self.programs > MOST_PROGRAMS:
            raise _TooMany
        return feasible([*self.box, *known], len(self.width))

    def _range(self, z: Affine) -> tuple[Fraction, Fraction]:
        """Of an affine function on the box."""
        ends = [(v * w, ZERO) if v < 0 else (ZERO, v * w) for v, w in zip(z.a, self.width, strict=True)]
        return z.c + sum((low for low, _ in ends), ZERO), z.c + sum((high for _, high in ends), ZERO)


def _fractions(W: LinearMap, b: Vector) -> list[tuple[list[tuple[int, Fraction]], Fraction]]:
    """The rows of a layer, without zeros."""
    S = csr_array(W)
    ends = S.indptr.tolist()
    cells = [(int(j), Fraction(float(v))) for j, v in zip(S.indices, S.data, strict=True)]
    return [(cells[ends[i] : ends[i + 1]], Fraction(float(v))) for i, v in enumerate(b)]


def _combined(row: list[tuple[int, Fraction]], bias: Fraction, values: list[Affine]) -> Affine:
    a, c = [ZERO] * len(values[0].a), bias
    for j, weight in row:
        value = values[j]
        if weight and (value.c or any(value.a)):
            a = [s + weight * v for s, v in zip(a, value.a, strict=True)]
            c += weight * value.c
    return Affine(tuple(a), c)


def _inequality(row: Row, y: list[Affine]) -> Inequality:
    z = _combined(list(row.coefficients), ZERO, y)
    return Inequality(z.a, row.bound - z.c, row.strict)
