"""A layer's matrix, checked, frozen, and stored dense or sparse, whichever is cheaper to work with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from layercert.arrays import LinearMap, Matrix, Vector
from layercert.errors import ModelError

#: A sparse matrix with more places than this, of which less than this part is filled, stays sparse. Up to there a dense
#: product takes a millisecond (a 3x3 convolution: 0.9 ms, sparse 0.1 ms); four times as many places take 8 ms, 64 times
#: 160 ms (sparse 4.5 ms), since a dense matrix no longer fits into the cache. Compiled kernels want dense matrices.
SPARSE_PLACES = 2**22
SPARSE_PART = 0.25


def frozen(array: ArrayLike, name: str) -> Vector:
    """A float64 copy that cannot be written to; ModelError unless all its numbers are finite."""
    try:
        a = real(array)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"{name} must be an array of real numbers, got {type(array).__name__}") from None
    if not np.isfinite(a).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
        raise _not_finite(name, float(a[at]), at)
    a.setflags(write=False)
    return a


def _not_finite(name: str, value: float, at: tuple[int, ...]) -> ModelError:
    return ModelError(
        f"{name} holds {value} at {at}; weights must be finite numbers, check how the model was trained or saved"
    )


def frozen_sparse(matrix: Any, name: str) -> LinearMap:
    """Checked as a dense one is; made dense unless it is large and has few entries."""
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ModelError(f"{name} must be a non-empty matrix (out, in), got shape {matrix.shape}")
    W = csr_array(matrix, dtype=np.float64, copy=True)
    W.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(W.data))
    if len(bad):
        row = int(np.searchsorted(W.indptr, bad[0], side="right")) - 1
        raise _not_finite(name, float(W.data[bad[0]]), (row, int(W.indices[bad[0]])))
    W.eliminate_zeros()
    if W.shape[0] * W.shape[1] <= SPARSE_PLACES or W.nnz >= SPARSE_PART * W.shape[0] * W.shape[1]:
        return dense(W)
    for array in (W.data, W.indices, W.indptr):
        array.setflags(write=False)
    return W


def dense(W: LinearMap) -> Matrix:
    """W as an array; itself where it is one."""
    if isinstance(W, np.ndarray):
        return W
    array: Matrix = W.toarray()
    array.setflags(write=False)
    return array


def dense_bytes(W: LinearMap) -> int:
    """The memory that W takes, or would take, as an array."""
    return 8 * int(W.shape[0]) * int(W.shape[1])


def terms(W: LinearMap) -> int:
    """The most terms of a row's product with a vector: what a rounding error grows with. Zeros not stored add none."""
    return int(W.shape[1]) if isinstance(W, np.ndarray) else int(np.diff(W.indptr).max(initial=0))


def real(array: ArrayLike) -> Vector:
    """A float64 copy; complex numbers are refused where numpy would drop their imaginary part."""
    if hasattr(array, "detach"):  # a tensor of PyTorch, which may have gradients or live on another device
        tensor = array.detach().cpu()
        array = tensor.numpy() if tensor.is_complex() else tensor.double().numpy()
    if np.iscomplexobj(array):
        raise TypeError("complex")
    return np.array(array, dtype=np.float64, order="C")
