"""The hierarchy of patterns with its rows in rational arithmetic: exact at x, whatever cancels there.

In float64 the constant of a row, its value at x, is wrong by the rounding of everything that was added to get there.
Where x is nearer to the boundary than that, or where large numbers cancel, no distance can be proved with such rows.
Here whole numbers are multiplied and added, nothing is lost, and every entry of a row is rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, gamma
from layercert.geometry.cells import Cell, Cells, LayerMap
from layercert.geometry.polyhedron import Polyhedron
from layercert.problem import Clause
from layercert.rationals import times_power_of_two, whole
from layercert.scaled import Scaled
from layercert.system import clock

#: How far a hyperplane may be told to be away; searches look no farther than LARGE.
FAR = 10**100

Whole = NDArray[Any]  # of Python's whole numbers


@dataclass(frozen=True, eq=False)
class _Exact:
    """The numbers n * 2**e."""

    n: Whole
    e: int

    @staticmethod
    def of(values: NDArray[np.float64]) -> _Exact:
        n, e = whole(values.reshape(-1))
        exact = np.empty(len(n), dtype=object)
        exact[:] = n
        return _Exact(exact.reshape(values.shape), e)

    def plus(self, other: _Exact) -> _Exact:
        low = min(self.e, other.e)
        return _Exact(self.n * (1 << self.e - low) + other.n * (1 << other.e - low), low)

    def times(self, other: _Exact) -> _Exact:
        clock.check()
        return _Exact(self.n @ other.n, self.e + other.e)


class CentredCells(Cells):
    """The same cells; rows are exact but for one rounding per entry, and of a size near one.

    A row is multiplied by a power of two, which changes nothing about where it holds: so it is neither too large nor
    too small for the margins for underflow. In scaled coordinates the network is the one that was asked about, at
    x + S w, and its clauses are those of the question: what the scaled problem has lost to rounding is not lost here.
    """

    def __init__(self, view: Scaled) -> None:
        super().__init__(view.problem)
        self.view = view
        network, n = view.original.network, self.network.inputs
        self._layers = [(_Exact.of(W), _Exact.of(b)) for W, b in zip(network.weights, network.biases, strict=True)]
        # x + S w as an affine function of w: the last column is its constant
        slopes = np.hstack([np.diag(view.scale), np.zeros((n, 1))])
        self._start = _Exact.of(slopes).plus(_last_column(_Exact.of(view.original.x), n))
        self._exact: dict[bytes, _Exact] = {}

    def below(self, A: Cell) -> LayerMap:
        rows = self._rounded(self._below(A))
        # LayerMap is z = G w + z, a polyhedron A w <= r
        return LayerMap(self.problem, rows.A, -rows.r, rows.slack, rows.growth)

    def unsafe(self, A: Cell, clause: Clause) -> Polyhedron:
        clause = self.view.clause(clause)
        f = _Exact.of(clause.C).times(self._below(A))
        return self._rounded(f.plus(_last_column(_Exact.of(-clause.d), self.inputs)))

    def _below(self, A: Cell) -> _Exact:
        """The affine map of the next layer on a region, a column per input and one for the constants."""
        known = self._exact.get(A.key)
        if known is None:
            W, b = self._layers[A.level]
            if A.parent is None:
                values = self._start
            else:
                above = self._below(A.parent)
                on = (A.signs > 0).astype(object)
                values = _Exact(above.n * on[:, None], above.e)
            known = self._exact[A.key] = W.times(values).plus(_last_column(b, self.inputs))
        return known

    def _rounded(self, rows: _Exact) -> Polyhedron:
        """G w + z <= 0 for each row of (G, z), as floats with their margins."""
        table = np.array([_near_one(row) for row in rows.n.tolist()]).reshape(-1, self.inputs + 1)
        G, z = np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()
        # one rounding per entry, and those of evaluating a row at a point
        noise = 2.0 * gamma(self.inputs + 8)
        return Polyhedron(G, -z, noise * np.abs(z) + TINY, noise * self.problem.norm.dual(np.abs(G)))


def _last_column(values: _Exact, before: int) -> _Exact:
    table = np.zeros((len(values.n), before + 1), dtype=object)
    table[:, -1] = values.n
    return _Exact(table, values.e)


def _near_one(row: Sequence[int]) -> list[float]:
    """The row times a power of two, such that its largest coefficient is between a half and one."""
    bits = max((abs(v).bit_length() for v in row[:-1]), default=0)
    if bits == 0:  # a constant: only its sign counts
        return [*([0.0] * (len(row) - 1)), float((row[-1] > 0) - (row[-1] < 0))]
    most = FAR << bits  # beyond it only the sign counts: no point of any ball comes near
    return [float(times_power_of_two(max(-most, min(v, most)), -bits)) for v in row]
