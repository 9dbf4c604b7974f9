"""The ball in which a certificate is checked, and the sizes that bound all rounding errors of the float checker.

T_k bounds |z^k| (and so relu(z^k)) on the ball: T_1 = |W^0||x| + |b^0| + r ||W^0||_q row by row, and
T_{k+1} = |W^k| T_k + |b^k|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from layercert.arrays import LARGE, SMALLEST, Matrix, Vector, gamma
from layercert.certificate.entries import Entries, entries_of
from layercert.network import Network

#: Entries of a sparse layer that are made dense at one time.
MOST_AT_ONCE = 1 << 22


class Reach(NamedTuple):
    """The ball inside the box, as kernels see it."""

    p: float
    q: float
    r: float
    boxed: bool
    down: Vector  # how far each coordinate may fall and rise
    rise: Vector
    up: float  # what covers the rounding of a fall


@dataclass(frozen=True, eq=False)
class Setting:
    """A network on the ball ||w||_p <= r around x, inside a box. `intervals`: a proof by steps starts with interval
    arithmetic beside its backward passes."""

    network: Network
    x: Vector
    p: float
    r: float
    domain: tuple[Vector, Vector] | None
    intervals: bool = False

    @property
    def q(self) -> float:
        if self.p == 1.0:
            return math.inf
        return 1.0 if math.isinf(self.p) else self.p / (self.p - 1.0)

    @cached_property
    def room(self) -> tuple[Vector, Vector]:
        """How far each coordinate may fall and rise: the box and the ball, rounded up."""
        n = self.network.inputs
        if self.domain is None:
            return np.full(n, self.r), np.full(n, self.r)
        low, high = self.domain
        down = np.where(low == self.x, 0.0, np.nextafter(self.x - low, np.inf))
        up = np.where(high == self.x, 0.0, np.nextafter(high - self.x, np.inf))
        return np.minimum(down, self.r), np.minimum(up, self.r)

    @cached_property
    def reach(self) -> Reach:
        up = 1.0 + gamma(4 * self.network.inputs + 128)
        return Reach(self.p, self.q, self.r, self.domain is not None, *self.room, up)

    @cached_property
    def z0(self) -> Vector:
        """z^1 at x, rounded; its error is at most gamma * T_1."""
        return np.asarray(self.network.maps[0] @ self.x + self.network.biases[0])

    @cached_property
    def row_sizes(self) -> Vector:
        """||W^0_i||_q, rounded up."""
        up, W = 1.0 + gamma(2 * self.network.inputs + 64), self.network.maps[0]
        more = 4.0 * SMALLEST  # what lengths of the least float64 numbers may be rounded by; a radius can make it large
        if isinstance(W, np.ndarray):
            return dual_norm(W, self.q) * up + more
        step = max(1, MOST_AT_ONCE // W.shape[1])
        parts = [dual_norm(W[i : i + step].toarray(), self.q) * up for i in range(0, W.shape[0], step)]
        return np.concatenate(parts) + more

    @cached_property
    def entries(self) -> Entries:
        """Of the rows of all neurons, for facets."""
        return entries_of(self.network.maps)

    @cached_property
    def T(self) -> tuple[Vector, ...]:
        weights, biases = self.network.maps, self.network.biases
        size = abs(weights[0]) @ np.abs(self.x) + np.abs(biases[0]) + self.r * self.row_sizes
        # more than underflow may take from a sum: ball arithmetic starts from these bounds at any magnitude
        sizes = [size * (1.0 + self.noise) + 1e-300]
        for W, b in zip(weights[1:], biases[1:], strict=True):
            sizes.append((abs(W) @ sizes[-1] + np.abs(b)) * (1.0 + self.noise) + 1e-300)
        return tuple(sizes)

    def in_range(self, C: Matrix, d: Vector) -> bool:
        """Is every number that a pass can meet at most LARGE? Then margins in float64 hold (arrays.py).

        Inputs and coefficients count as they are too, not only times weights: what a product with tiny weights loses
        by underflow, they enlarge.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            size = np.abs(C)
            tops = [float(t.max()) for t in self.T] + [float((size @ self.T[-1] + np.abs(d)).max())]
            pull = np.ones(len(size)) @ size
            tops += [float(np.abs(self.x).max()), self.r, float(pull.max())]
            for W in reversed(self.network.maps):
                pull = np.maximum(pull, 1.0) @ abs(W)
                tops.append(float(pull.max()))
        return all(top <= LARGE for top in tops)

    @cached_property
    def noise(self) -> float:
        """gamma of the longest chain of roundings in one backward pass."""
        return gamma(4 * (self.network.inputs + self.network.neurons + self.network.classes) + 256)


def dual_norm(G: Matrix, q: float) -> Vector:
    """||g||_q along the last axis, scaled against overflow; accurate to a few roundings an entry."""
    from layercert.certificate.reach import dual_norms

    rows = np.ascontiguousarray(G, dtype=np.float64).reshape(-1, G.shape[-1])
    return np.asarray(dual_norms(rows, q).reshape(G.shape[:-1]))
