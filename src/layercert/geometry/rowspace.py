"""The row space of W^0: without a box, an l_2 search needs as many coordinates as the first layer has neurons.

Every row of every region is a combination of the rows of W^0. So the part of an offset w outside their span changes no
neuron and only adds to ||w||_2: with W^0 = (Q R)^T and Q^T Q = I, the nearest points are w = Q v, and ||w|| = ||v||.

The computed factors are not trusted, only measured. If ||Qc^T Qc - I|| <= delta < 1, then the polar decomposition
Qc = Q H has an exact isometry Q with ||H - I|| <= delta, and row i of W^0 is Q R_i up to a vector no longer than

    error_i = ||W^0_i - Qc R_i|| + delta ||R_i||

For an offset w take v = Q^T w: ||v|| <= ||w|| and |W^0_i w - R_i v| <= error_i ||w||. Hence `error` joins the margins
that grow with ||w||, and what is proved of all v is proved of all w.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem

#: Fewer inputs than this cost less than the rotation.
MANY_INPUTS = 32
#: Columns of Q are multiplied in pieces of this length: the rounding of a sum grows with its longest chain.
PIECE = 32


@dataclass(frozen=True, eq=False)
class RowSpace:
    """Coordinates v of offsets w = Q v; `rows` is W^0 in these coordinates."""

    basis: Matrix  # Q^T: orthonormal rows
    rows: Matrix
    error: Vector

    def lift(self, v: Matrix) -> Matrix:
        """Offsets in R^n, along the last axis."""
        return np.asarray(v @ self.basis)

    def coordinates(self, w: Vector) -> Vector:
        return np.asarray(self.basis @ w)


def row_space(problem: Problem) -> RowSpace | None:
    """The row space, where it saves dimensions; only l_2 without a box is the same after a rotation."""
    if problem.norm.p != 2.0 or problem.box is not None:
        return None
    return of_network(problem.network)


@lru_cache(maxsize=4)  # one network is asked about many inputs
def of_network(network: Network) -> RowSpace | None:
    W = network.weights[0]
    d, n = W.shape
    if n < MANY_INPUTS or 2 * d > n:
        return None
    Q, R = np.linalg.qr(W.T)
    length = Norm(2.0)
    delta = _defect(Q)
    rounding = gamma(d + 4) * length((np.abs(Q) @ np.abs(R)).T)
    error = (length(W - (Q @ R).T) + rounding + delta * length(R.T)) * (1.0 + gamma(4 * n + 64))
    if not delta < 0.5 or not np.isfinite(error).all():
        return None
    return RowSpace(np.ascontiguousarray(Q.T), np.ascontiguousarray(R.T), error)


def _defect(Q: Matrix) -> float:
    """An upper bound of ||Q^T Q - I||_2 by the Frobenius norm."""
    n, d = Q.shape
    square, size = -np.eye(d), np.eye(d)
    for start in range(0, n, PIECE):
        part = Q[start : start + PIECE]
        square += part.T @ part
        size += np.abs(part.T) @ np.abs(part)
    chain = PIECE + -(-n // PIECE) + 4
    return float(np.linalg.norm(square) + gamma(chain) * np.linalg.norm(size)) * (1.0 + gamma(d * d + 64))
