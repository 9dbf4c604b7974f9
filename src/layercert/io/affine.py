"""A tensor inside a network, as an affine function of inputs and ReLU neurons: what all readers compute with.

    value.flat = A v + c,    v = the network's inputs, then all neurons made so far (`layercert.io.tape`)

Affine operations of a model change A and c; a ReLU makes new neurons, and every other piecewise linear operation is
written as ReLUs here: |v| = relu(v) + relu(-v), max(a, b) = b + relu(a - b), and so on. So consecutive affine
operations become one layer.

How exact that is: a single affine operation between two ReLUs keeps its weights unchanged, however reshaped,
transposed or permuted, since every sum then has at most one term other than zero. Where several are fused,
their products and sums are rounded to float64, in a fixed order (no BLAS). A Gemm whose alpha or beta is not 1
counts as several, a folded normalisation too; products of two float32 numbers are exact in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, vstack

from layercert.arrays import Indices, Mask, Sparse, Vector
from layercert.errors import ModelError
from layercert.heads import is_sigmoid
from layercert.io.tape import Tape, layers, widened
from layercert.network import Network

Constant: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

#: Tensors of more numbers than this are refused before any memory is asked for; one layer of VGG16 on 224 x 224 has
#: 3.2 million.
MOST_NUMBERS = 2**26


def sized(shape: Sequence[int]) -> Shape:
    """The shape, unless it is absurd: a damaged file may announce anything."""
    if math.prod(shape) > MOST_NUMBERS:
        raise ModelError(
            f"a tensor of shape {tuple(shape)} has {math.prod(shape)} numbers, more than the {MOST_NUMBERS} that are "
            "supported; is the file damaged?"
        )
    return tuple(shape)


@dataclass(frozen=True, eq=False)
class Affine:
    """A tensor of this shape whose flattened entries are A v + c; the tape knows what v is."""

    tape: Tape
    shape: Shape
    A: Sparse
    c: Vector
    #: The element type the model computes with; a cast to a wider one changes nothing.
    dtype: str = "float64"
    #: An order-preserving operation left out on top (Softmax, Sigmoid); only reshaping may follow it.
    dropped: str = ""

    @staticmethod
    def input(shape: Shape, dtype: str = "float64") -> Affine:
        n = math.prod(sized(shape))
        return Affine(Tape(n), shape, csr_array(eye_array(n, dtype=np.float64, format="csr")), np.zeros(n), dtype)

    def constant(self, array: Constant) -> Affine:
        """A constant as a value of the same network."""
        values = np.asarray(array, dtype=np.float64)
        return replace(self, shape=values.shape, A=csr_array((values.size, self.tape.size)), c=values.reshape(-1))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ids(self) -> Indices:
        """The position of every entry: what reshaping does to these, it does to the value (see `gather`)."""
        return np.arange(self.size).reshape(self.shape)

    @property
    def is_input(self) -> bool:
        """The network's input itself, reshaped at most."""
        A = self.A
        return (
            self.size == self.tape.inputs == A.nnz
            and not self.c.any()
            and bool((A.data == 1.0).all() and (A.indices == np.arange(A.nnz)).all())
        )

    # Affine operations.

    def gather(self, ids: Indices) -> Affine:
        """The tensor whose entry i is this one's entry ids[i]: reshaped, transposed, sliced, broadcast."""
        sized(ids.shape)
        flat = ids.reshape(-1)
        if np.array_equal(flat, np.arange(self.size)):
            return replace(self, shape=ids.shape)
        return replace(self, shape=ids.shape, A=csr_array(self.A[flat]), c=self.c[flat])

    def plus(self, constant: Constant) -> Affine:
        y = self.broadcast(constant.shape)
        return replace(y, c=y.c + np.broadcast_to(constant, y.shape).reshape(-1))

    def times(self, constant: Constant) -> Affine:
        y = self.broadcast(constant.shape)
        k = np.broadcast_to(constant, y.shape).reshape(-1)
        return replace(y, A=_with_data(y.A, y.A.data * _per_entry(y.A, k)), c=y.c * k)

    def over(self, constant: Constant) -> Affine:
        """Divided, not multiplied by a reciprocal: one rounding instead of two."""
        y = self.broadcast(constant.shape)
        k = np.broadcast_to(constant, y.shape).reshape(-1)
        return replace(y, A=_with_data(y.A, y.A.data / _per_entry(y.A, k)), c=y.c / k)

    def negated(self) -> Affine:
        return replace(self, A=-self.A, c=-self.c)

    def add(self, other: Affine) -> Affine:
        """The sum of two branches."""
        a, b = self.broadcast(other.shape), other.broadcast(self.shape)
        n = self.tape.size
        return replace(a, A=csr_array(widened(a.A, n) + widened(b.A, n)), c=a.c + b.c)

    def mapped(self, M: Sparse, shape: Shape) -> Affine:
        """The tensor of this shape with flattened entries M (A v + c)."""
        return replace(self, shape=shape, A=csr_array(M @ self.A), c=np.asarray(M @ self.c))

    def matmul(self, W: Constant) -> Affine:
        """self @ W as numpy and ONNX define it, for vectors, matrices and stacks of matrices."""
        x = self.ids[None, :] if len(self.shape) == 1 else self.ids
        V = W[:, None] if W.ndim == 1 else W
        if min(x.ndim, V.ndim) == 0 or x.shape[-1] != V.shape[-2]:
            raise ValueError(f"shapes {self.shape} and {W.shape} do not fit for a matrix product")
        if V.ndim == 2 and x.size == x.shape[-1]:  # one row: the usual layer, which may be large
            k, m = V.shape
            data, columns = np.ascontiguousarray(V.T, dtype=np.float64), np.tile(np.arange(k, dtype=np.int32), m)
            M = csr_array((data.reshape(-1), columns, np.arange(0, k * m + 1, k)), shape=(m, k))
            return self.mapped(M, (*self.shape[:-1], *W.shape[1:]))
        lead = np.broadcast_shapes(x.shape[:-2], V.shape[:-2])
        shape = (*lead, x.shape[-2], V.shape[-1])
        sized((*shape, V.shape[-2]))
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
        return self.mapped(M, out.shape)

    def rmatmul(self, W: Constant) -> Affine:
        """W @ self, through (W X)^T = X^T W^T."""
        if W.ndim == 0 or len(self.shape) == 0:
            raise ValueError(f"shapes {W.shape} and {self.shape} do not fit for a matrix product")
        x, V = self.gather(_transposed(self.ids)), _transposed(W)
        y = x.matmul(V)
        return y.gather(_transposed(y.ids)) if min(len(self.shape), W.ndim) > 1 else y

    def broadcast(self, shape: Shape) -> Affine:
        return self.gather(np.broadcast_to(self.ids, np.broadcast_shapes(self.shape, shape)))

    # Piecewise linear operations: each a few ReLUs.

    def relu(self) -> Affine:
        """New neurons, except for constants and for the positive multiples of neurons that ReLU does not change."""
        count = np.diff(self.A.indptr)
        keep = (count == 0) | ((count == 1) & self.tape.nonnegative(self.A, self.c))
        fresh = self._neurons(~keep)
        if not keep.any():
            return fresh
        same = replace(self, A=_rows_only(self.A, keep), c=np.where(keep, np.maximum(self.c, 0.0), 0.0))
        return same.add(fresh)

    def leaky(self, slope: Constant) -> Affine:
        """v where v > 0, slope * v elsewhere: relu(v) - slope * relu(-v)."""
        return self.relu().add(self.negated().relu().times(-slope))

    def maximum(self, other: Affine) -> Affine:
        """max(a, b) = b + relu(a - b)."""
        a, b = self.broadcast(other.shape), other.broadcast(self.shape)
        return b.held().add(a.add(b.negated()).relu())

    def held(self) -> Affine:
        """The same value from neurons of its own, relu(v) or relu(v) - relu(-v), where it depends on several.

        What is added to a new neuron must be carried past it (`layercert.io.tape`): one value, not all it is made of.
        """
        many = np.diff(self.A.indptr) > 1
        if not many.any():
            return self
        signed = many & ~self.tape.nonnegative(self.A, self.c)
        same = replace(self, A=_rows_only(self.A, ~many), c=np.where(many, 0.0, self.c))
        return same.add(self._neurons(many)).add(self.negated()._neurons(signed).negated())

    def _neurons(self, rows: Mask) -> Affine:
        """relu of some entries, 0 for the others."""
        at = np.flatnonzero(rows)
        if len(at) == 0:
            return replace(self, A=csr_array((self.size, self.tape.size)), c=np.zeros(self.size))
        A = self.A if len(at) == self.size else csr_array(self.A[at])
        made = self.tape.relu(A, self.c[at])
        picked = csr_array((np.ones(len(at)), (at, made)), shape=(self.size, self.tape.size))
        return replace(self, A=picked, c=np.zeros(self.size))

    # The end.

    def network(self, source: str) -> Network:
        """The network that computes this value; after a last ReLU comes the identity as output layer."""
        if self.size == 1 and self.dropped and not is_sigmoid(self.dropped):
            raise ModelError(
                f"the output is one number out of {self.dropped}, which depends on the other classes; "
                "let the model give the scores of all classes"
            )
        made = layers(self.tape, self.A, self.c)
        network = Network.from_arrays([W for W, _ in made], [b for _, b in made], source)
        return replace(network, dropped=self.dropped, input_range=self.tape.clipped)


def concatenate(parts: Sequence[Affine], axis: int) -> Affine:
    """Branches joined along an axis."""
    starts = np.cumsum([0, *(part.size for part in parts)])
    ids = np.concatenate([part.ids + start for part, start in zip(parts, starts[:-1], strict=True)], axis=axis)
    n = parts[0].tape.size
    A = csr_array(vstack([widened(part.A, n) for part in parts], format="csr"))
    joined = replace(parts[0], shape=(A.shape[0],), A=A, c=np.concatenate([part.c for part in parts]))
    return joined.gather(ids)


def _transposed(array: NDArray[Any]) -> NDArray[Any]:
    return np.swapaxes(array, -1, -2) if array.ndim > 1 else array


def _per_entry(A: Sparse, rows: Vector) -> Vector:
    """The number of each row, repeated for every entry that A stores in that row."""
    return np.repeat(rows, np.diff(A.indptr))


def _with_data(A: Sparse, data: Vector) -> Sparse:
    # not the same index arrays: scipy sorts them in place whenever it likes (`abs` does), with the data of one matrix
    return csr_array((data, A.indices.copy(), A.indptr.copy()), shape=A.shape)


def _rows_only(A: Sparse, rows: Mask) -> Sparse:
    """A with the other rows empty."""
    kept = np.repeat(rows, np.diff(A.indptr))
    count = np.where(rows, np.diff(A.indptr), 0)
    return csr_array((A.data[kept], A.indices[kept], np.concatenate([[0], np.cumsum(count)])), shape=A.shape)
