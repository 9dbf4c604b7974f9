"""Array types used everywhere: float64 vectors and matrices, int8 signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Sparse: TypeAlias = "csr_array[np.float64]"
#: A Matrix or a Sparse; products with either are written alike, which the type stubs of scipy cannot follow.
LinearMap: TypeAlias = Any
Signs: TypeAlias = NDArray[np.int8]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.intp]

#: Unit roundoff of float64: every rounded operation is exact up to a factor 1 + e, |e| <= EPS.
EPS = float(np.finfo(np.float64).eps) / 2

#: Numbers up to LARGE can be multiplied along any path of a network without overflow, and what underflow takes from all
#: products of a pass together stays below TINY: the absolute part of every rounding margin. See magnitude.py.
LARGE = 1e75
TINY = 1e-150

#: The least positive float64. A product that underflows is wrong by at most half of it; sums never are.
SMALLEST = 5e-324


def gamma(operations: int) -> float:
    """Bound of the relative error of a chain of rounded operations (Higham's gamma_k), itself rounded up."""
    return 1.01 * operations * EPS / (1.0 - operations * EPS)
