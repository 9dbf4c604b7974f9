"""A tensor inside a network, as an affine function of the last ReLU layer: what all readers compute with.

    value.flat = A h + c,    h = the output of the last ReLU, or the network's input before the first one

Operations of a model change A and c; a ReLU closes the layer (A, c) and starts again from h = relu(A h + c).
So consecutive affine operations become one layer.

How exact that is: a single affine operation between two ReLUs keeps its weights unchanged, however reshaped,
transposed or permuted, since every sum then has at most one term other than zero. Where several are fused,
their products and sums are rounded to float64, in a fixed order (no BLAS). A Gemm whose alpha or beta is not 1
counts as several; products of two float32 numbers are exact in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from layercert.arrays import Indices, Matrix, Vector
from layercert.network import Network

Constant: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Sparse: TypeAlias = "csr_array[np.float64]"


@dataclass(frozen=True, eq=False)
class Affine:
    """A tensor of this shape whose flattened entries are A h + c, and the layers that lead to h."""

    shape: Shape
    A: Sparse
    c: Vector
    layers: tuple[tuple[Sparse, Vector], ...] = ()
    #: The element type the model computes with; a cast to a wider one changes nothing.
    dtype: str = "float64"
    #: An order-preserving operation left out on top (Softmax); only reshaping may follow it.
    dropped: str = ""

    @staticmethod
    def input(shape: Shape, dtype: str = "float64") -> Affine:
        return Affine(shape, *_identity(math.prod(shape)), dtype=dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ids(self) -> Indices:
        """The position of every entry: what reshaping does to these, it does to the value (see `gather`)."""
        return np.arange(self.size).reshape(self.shape)

    def gather(self, ids: Indices) -> Affine:
        """The tensor whose entry i is this one's entry ids[i]: reshaped, transposed, sliced, broadcast."""
        flat = ids.reshape(-1)
        if np.array_equal(flat, np.arange(self.size)):
            return replace(self, shape=ids.shape)
        return replace(self, shape=ids.shape, A=csr_array(self.A[flat]), c=self.c[flat])

    def plus(self, constant: Constant) -> Affine:
        y = self._broadcast(constant.shape)
        return replace(y, c=y.c + np.broadcast_to(constant, y.shape).reshape(-1))

    def times(self, constant: Constant) -> Affine:
        y = self._broadcast(constant.shape)
        k = np.broadcast_to(constant, y.shape).reshape(-1)
        return replace(y, A=_with_data(y.A, y.A.data * _per_entry(y.A, k)), c=y.c * k)

    def over(self, constant: Constant) -> Affine:
        """Divided, not multiplied by a reciprocal: one rounding instead of two."""
        y = self._broadcast(constant.shape)
        k = np.broadcast_to(constant, y.shape).reshape(-1)
        return replace(y, A=_with_data(y.A, y.A.data / _per_entry(y.A, k)), c=y.c / k)

    def matmul(self, W: Constant) -> Affine:
        """self @ W as numpy and ONNX define it, for vectors, matrices and stacks of matrices."""
        x = self.ids[None, :] if len(self.shape) == 1 else self.ids
        V = W[:, None] if W.ndim == 1 else W
        if min(x.ndim, V.ndim) == 0 or x.shape[-1] != V.shape[-2]:
            raise ValueError(f"shapes {self.shape} and {W.shape} do not fit for a matrix product")
        lead = np.broadcast_shapes(x.shape[:-2], V.shape[:-2])
        shape = (*lead, x.shape[-2], V.shape[-1])
        out = np.arange(math.prod(shape)).reshape(shape)
        # out[.., i, j] = sum over k of x[.., i, k] V[.., k, j]: the map has an entry for each (.., i, k, j)
        entry, row, column = np.broadcast_arrays(
            V[..., None, :, :].astype(np.float64), out[..., :, None, :], x[..., :, :, None]
        )
        M = csr_array((entry.reshape(-1), (row.reshape(-1), column.reshape(-1))), shape=(out.size, self.size))
        if W.ndim == 1:
            out = out[..., 0]
        if len(self.shape) == 1:
            out = out[0] if W.ndim == 1 else out[..., 0, :]
        return replace(self, shape=out.shape, A=csr_array(M @ self.A), c=np.asarray(M @ self.c))

    def rmatmul(self, W: Constant) -> Affine:
        """W @ self, through (W X)^T = X^T W^T."""
        if W.ndim == 0 or len(self.shape) == 0:
            raise ValueError(f"shapes {W.shape} and {self.shape} do not fit for a matrix product")
        x, V = self.gather(_transposed(self.ids)), _transposed(W)
        y = x.matmul(V)
        return y.gather(_transposed(y.ids)) if min(len(self.shape), W.ndim) > 1 else y

    def relu(self) -> Affine:
        if self._is_selection_of_relus():
            return self
        return replace(Affine.input(self.shape, self.dtype), layers=(*self.layers, (self.A, self.c)))

    def network(self, source: str) -> Network:
        """The network that computes this value; after a last ReLU comes the identity as output layer."""
        layers = (*self.layers, (self.A, self.c))
        network = Network.from_arrays([A.toarray() for A, _ in layers], [c for _, c in layers], source)
        return replace(network, dropped=self.dropped)

    def _broadcast(self, shape: Shape) -> Affine:
        return self.gather(np.broadcast_to(self.ids, np.broadcast_shapes(self.shape, shape)))

    def _is_selection_of_relus(self) -> bool:
        """Each entry is an output of the last ReLU, so another ReLU changes nothing."""
        one_each = bool((np.diff(self.A.indptr) == 1).all() and (self.A.data == 1.0).all())
        return len(self.layers) > 0 and one_each and not self.c.any()


def _identity(n: int) -> tuple[Sparse, Vector]:
    return csr_array(eye_array(n, dtype=np.float64, format="csr")), np.zeros(n)


def _transposed(array: NDArray[Any]) -> NDArray[Any]:
    return np.swapaxes(array, -1, -2) if array.ndim > 1 else array


def _per_entry(A: Sparse, rows: Vector) -> Vector:
    """The number of each row, repeated for every entry that A stores in that row."""
    return np.repeat(rows, np.diff(A.indptr))


def _with_data(A: Sparse, data: Matrix) -> Sparse:
    return csr_array((data, A.indices, A.indptr), shape=A.shape)
