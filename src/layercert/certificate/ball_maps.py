"""Layers in ball arithmetic: dense ones as matrices of balls, those with many zeros by their entries alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import Indices, LinearMap, Matrix

#: A layer with a larger part of entries that are not zero is a matrix: the library multiplies these itself.
FILLED = 0.3


class SparseBalls:
    """The entries of a matrix, row by row; `A * W` and `W * A` for matrices A of balls."""

    def __init__(self, W: csr_array[np.float64], flint: Any) -> None:
        self.mat, self.shape = flint.arb_mat, W.shape
        ends, columns = W.indptr.tolist(), W.indices.tolist()
        balls = [flint.arb(v) for v in W.data.tolist()]
        self.rows = [list(zip(columns[a:b], balls[a:b], strict=True)) for a, b in pairwise(ends)]

    def __rmul__(self, A: Any) -> Any:
        out = self.mat(A.nrows(), self.shape[1])
        for i in range(A.nrows()):
            sums: dict[int, Any] = {}
            for r, row in enumerate(self.rows):
                a = A[i, r]
                if not a.is_zero():
                    for column, w in row:
                        sums[column] = sums[column] + a * w if column in sums else a * w
            for column, value in sums.items():
                out[i, column] = value
        return out

    def __mul__(self, A: Any) -> Any:
        out = self.mat(self.shape[0], A.ncols())
        for r, row in enumerate(self.rows):
            for j in range(A.ncols()):
                out[r, j] = sum((w * A[column, j] for column, w in row), start=0 * A[0, j])
        return out


def ball_map(W: LinearMap, flint: Any) -> Any:
    """A layer's matrix, to be multiplied with matrices of balls from either side."""
    rows, columns = W.shape
    filled = np.count_nonzero(W) if isinstance(W, np.ndarray) else W.nnz
    if filled > FILLED * rows * columns:
        return ball_matrix(W if isinstance(W, np.ndarray) else W.toarray(), flint)
    return SparseBalls(csr_array(W), flint)


def ball_matrix(A: Matrix, flint: Any) -> Any:
    return flint.arb_mat([[flint.arb(float(v)) for v in row] for row in A])


def some_rows(W: LinearMap, at: Indices) -> Matrix:
    """Rows of a layer as a dense matrix."""
    rows = W[at]
    return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())
