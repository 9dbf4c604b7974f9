"""Array types used everywhere: float64 vectors and matrices, int8 signs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Tensor: TypeAlias = NDArray[np.float64]
Sparse: TypeAlias = "csr_array[np.float64]"
#: A Matrix or a Sparse; products with either are written alike, which the type stubs of scipy cannot follow.
LinearMap: TypeAlias = Any
Signs: TypeAlias = NDArray[np.int8]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.intp]

#: Unit roundoff of float64: every rounded operation is exact up to a factor 1 + e, |e| <= EPS.
EPS = float(np.finfo(np.float64).eps) / 2

#: Covers nine rounded operations: the margin of a short formula, relative to its terms (what is left may cancel).
FEW = 1e-15

#: Numbers up to LARGE can be multiplied along any path of a network without overflow, and what underflow takes from all
#: products of a pass together stays below TINY: the absolute part of every rounding margin. See magnitude.py.
LARGE = 1e75
TINY = 1e-150

#: The least positive float64. A product that underflows is wrong by at most half of it; sums never are.
SMALLEST = 5e-324


def gamma(operations: int) -> float:
    """Bound of the relative error of a chain of rounded operations (Higham's gamma_k), itself rounded up."""
    return 1.01 * operations * EPS / (1.0 - operations * EPS)


def least_squares(A: Matrix, b: Vector, rcond: float) -> Vector:
    """The shortest x with the least ||A x - b||; zeros where there is none to be had.

    LAPACK writes to the terminal about numbers that are not finite, and may give up: whoever asks here proves what it
    makes of the answer, so a useless one will do.
    """
    if np.isfinite(A).all() and np.isfinite(b).all():
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.lstsq(A, b, rcond=rcond)[0])
    return np.zeros(A.shape[1])
