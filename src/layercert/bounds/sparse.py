"""Linear bounds of a network with sparse layers on a ball: intervals, then backward passes a few rows at a time.

The same relaxation as in `layercert.bounds.linear`, for networks whose layers are never made dense: a row of a
convolution sees a small part of the layer below, so its coefficients stay sparse on the way back to the input.

Rounding, a posteriori (as in search/adaptive/model.py). A backward pass computes coefficients A_k over the outputs of
layer k and a number c; taken as the exact numbers they are,

    row(x + w) >= G.w + c - error    for every w of the ball,    error = noise |c| + sum_k |A_k| Q_k

S = A * slope is rounded once, against |z| <= Z; A_{k-1} = S W by gamma |S||W|, against x^{k-1} <= max(hi, 0), that is
M = |W| max(hi, 0) + |b| (for the first layer |W^0|(|x| + |w|) + |b|, which also holds the error of G); c is a sum of
terms of at most |S|(Z + M). All of it is at most Q = noise (4 Z + 3 M), noise being gamma of all chains of roundings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import EPS, TINY, LinearMap, Matrix, Vector, gamma
from layercert.bounds.ball import Ball
from layercert.bounds.relu import Relaxed
from layercert.linear_maps import terms
from layercert.norms import box_around
from layercert.problem import Clause, Problem

#: Rows are taken so many at a time that a dense matrix of their coefficients has this many places (64 MiB).
PLACES = 2**23
#: Coefficients that fill more than this part of their places are kept dense.
FULL = 0.3


@dataclass(frozen=True, eq=False)
class Layer:
    """The lines of one layer, and the size of rounding errors at it."""

    lines: Relaxed
    Q: Vector

    @staticmethod
    def of(lo: Vector, hi: Vector, M: Vector, noise: float) -> Layer:
        Q = noise * (4.04 * np.maximum(np.abs(lo), np.abs(hi)) + 3.03 * M)
        return Layer(Relaxed.of(lo, hi), Q)


class SparseRelaxation:
    """Bounds of every layer on the ball of radius r around x, inside the domain; complete when `build` has ended."""

    def __init__(self, problem: Problem, r: float) -> None:
        network = problem.network
        self.problem, self.network, self.r = problem, network, r
        self.layers: list[Layer] = []
        self.noise = gamma(2 * (network.neurons + max([*network.widths, 0]) + network.inputs) + 128)
        low, self.up = box_around(r, len(problem.x), problem.box)
        self.down = -low  # how far each coordinate may fall and rise
        self.z0 = np.asarray(network.maps[0] @ problem.x + network.biases[0])

    def build(self) -> Iterator[int]:
        """Bounds layer by layer; yields the number of the layer after each chunk of rows."""
        network = self.network
        size = np.abs(self.problem.x) + np.maximum(self.down, self.up)
        for k in range(network.L):
            W, b = network.maps[k], network.biases[k]
            M = np.asarray(abs(W) @ size + np.abs(b))
            if k == 0:
                error = 2.02 * self.noise * M + TINY
                lo, hi = self.z0 - self._fall(W) - error, self.z0 + self._fall(-W) + error
            else:
                below = self.layers[-1].lines
                lo, hi = _interval(W, b, np.maximum(below.lo, 0.0), np.maximum(below.hi, 0.0))
                yield from self._tighten(k, lo, hi)
            self.layers.append(Layer.of(lo, hi, M, self.noise))
            size = np.maximum(hi, 0.0)
            yield k

    def _tighten(self, k: int, lo: Vector, hi: Vector) -> Iterator[int]:
        """Backward passes for the neurons of layer k that may have either sign."""
        W, b = self.network.maps[k], self.network.biases[k]
        open_ = np.flatnonzero((lo < 0) & (hi > 0))
        step = max(1, PLACES // max(self.network.inputs, *self.network.widths[:k]))
        for start in range(0, len(open_), step):
            rows = open_[start : start + step]
            part = W[rows]
            lower, _, _ = self._lowest(part, b[rows])
            upper, _, _ = self._lowest(-part, -b[rows])
            lo[rows] = np.maximum(lo[rows], lower)
            # rounding may put the two the wrong way round, by less than either is wrong
            hi[rows] = np.maximum(np.minimum(hi[rows], -upper), lo[rows])
            yield k

    def distance(self, clause: Clause) -> float:
        """Every point of the clause is at least this far from x, or farther than r.

        It satisfies all rows of the clause, and each row's lower bound is a halfspace that holds it.
        """
        best = 0.0
        for fast_lin in (False, True):
            G, s = self.lower(clause, fast_lin)
            best = max(best, float(self.problem.norm.prove_halfspace(G, s, self.problem.box).max()))
        return min(best, self.r)

    def lower(self, clause: Clause, fast_lin: bool = False) -> tuple[Matrix, Vector]:
        """G, s with G w + s <= C f(x + w) - d for every w of the ball, rounding included.

        The lower lines of unstable neurons are CROWN's, or Fast-Lin's, which are parallel to the upper ones.
        """
        W, b = self.network.maps[-1], self.network.biases[-1]
        reach = np.abs(self.problem.x) + np.maximum(self.down, self.up)
        size = np.maximum(self.layers[-1].lines.hi, 0.0) if self.layers else reach
        # C W^L and C b - d are rounded themselves
        own = 4.04 * self.noise * (np.abs(clause.C) @ (abs(W) @ size + np.abs(b)) + np.abs(clause.d)) + TINY
        G, s, error = self._backward(np.asarray(clause.C @ W), clause.C @ b - clause.d, fast_lin)
        dense: Matrix = G.toarray() if _is_sparse(G) else np.asarray(G)
        return dense, (s - error - own) - 4 * EPS * (np.abs(s) + error + own)

    def _lowest(self, A: LinearMap, c: Vector) -> tuple[Vector, Vector, Vector]:
        """Lower bounds of the rows A x^k + c on the ball, and the parts they come from."""
        G, s, error = self._backward(A, c)
        fall = self._fall(G)
        return s - fall - error - 8 * EPS * (np.abs(s) + fall), s, error

    def _backward(self, A: LinearMap, c: Vector, fast_lin: bool = False) -> tuple[LinearMap, Vector, Vector]:
        """G, s, error with G w + s - error <= A x^k + c for every w of the ball, x^k the last bounded layer."""
        network = self.network
        error = self.noise * np.abs(c) + TINY
        for k in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[k]
            A = _sparse_or_dense(A)
            error = error + np.asarray(abs(A) @ layer.Q)
            S, constant = layer.lines.through(A, layer.lines.su if fast_lin else None)
            c = c + constant + np.asarray(S @ (self.z0 if k == 0 else network.biases[k]))
            A = S @ network.maps[k]
        if not self.layers:
            c = c + np.asarray(A @ self.problem.x)
        return A, c, error

    def _fall(self, G: LinearMap) -> Vector:
        """max -g.w over the ball, one per row of G, rounded up."""
        if not _is_sparse(G):
            return Ball(self.problem, self.r).fall(np.asarray(G))
        size = abs(G)
        positive, negative = csr_array((size + G) * 0.5), csr_array((size - G) * 0.5)  # exact: halves of doubles
        by_room = np.asarray(positive @ self.down + negative @ self.up)
        up = 1.0 + gamma(terms(G) + 32)
        q = self.problem.norm.q
        return np.asarray((by_room if q == 1.0 else np.minimum(by_room, self.r * _row_norms(size, q))) * up)


def _is_sparse(A: LinearMap) -> bool:
    return not isinstance(A, np.ndarray)


def _sparse_or_dense(A: LinearMap) -> LinearMap:
    if _is_sparse(A):
        return A.toarray() if A.nnz > FULL * A.shape[0] * A.shape[1] else A
    return A


def _interval(W: LinearMap, b: Vector, lo: Vector, hi: Vector) -> tuple[Vector, Vector]:
    """Bounds of W v + b for lo <= v <= hi, by centre and radius, rounded outward."""
    middle = 0.5 * (lo + hi)
    radius = np.maximum(hi - middle, middle - lo) * (1.0 + 4 * EPS)
    size = abs(W)
    centre, spread = np.asarray(W @ middle + b), np.asarray(size @ radius)
    error = gamma(2 * terms(W) + 16) * np.asarray(size @ (np.abs(middle) + radius) + np.abs(b)) + TINY
    return centre - spread - error, centre + spread + error


def _row_norms(size: LinearMap, q: float) -> Vector:
    """||g||_q of each row of a sparse matrix with entries >= 0, scaled by the largest entry against underflow."""
    top: Matrix = size.max(axis=1).toarray().reshape(-1)
    if np.isinf(q):
        return top
    rows = np.repeat(np.arange(size.shape[0]), np.diff(size.indptr))
    scaled = size.data / np.where(top > 0, top, 1.0)[rows]
    return np.asarray(np.bincount(rows, weights=scaled**q, minlength=len(top)) ** (1.0 / q) * top)
