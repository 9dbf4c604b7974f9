"""A ReLU between two lines, and one step of a backward pass through them: the one home of both in the searches.

On its bounds lo <= z <= hi a neuron that may have either sign is held by

    alpha z <= relu(z) <= su z + iu,    su = hi/(hi - lo),  iu = -su lo,

where any alpha in [0, 1] is valid. The checker has lines of its own (certificate/floats.py), on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import LinearMap, Vector

#: alpha from (lo, hi, su) of unstable neurons.
Slopes = Callable[[Vector, Vector, Vector], Vector]


def upper_line(lo: Any, hi: Any) -> tuple[Any, Any]:
    """su and iu for lo < 0 < hi: numbers (compiled kernels use this function too) or vectors.

    Above relu at both ends, whatever the rounding: the larger of the offsets that lo and hi ask for, rounded up, and a
    hair more, since a product of tiny bounds may underflow.
    """
    su = np.minimum(hi / (hi - lo), 1.0)
    iu = np.maximum(-su * lo, (1.0 - su) * hi) * (1.0 + 1e-15) + 1e-300
    return su, iu


def fast_lin(lo: Vector, hi: Vector, su: Vector) -> Vector:
    """Both lines parallel (Weng et al. 2018)."""
    return su


def crown(lo: Vector, hi: Vector, su: Vector) -> Vector:
    """The lower line with the smaller area (Zhang et al. 2018)."""
    return np.where(hi > -lo, 1.0, 0.0)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """One layer of ReLUs between two lines: alpha*z <= relu(z) <= su*z + iu for lo <= z <= hi."""

    lo: Vector
    hi: Vector
    alpha: Vector
    su: Vector
    iu: Vector

    @staticmethod
    def of(lo: Vector, hi: Vector, slopes: Slopes = crown) -> Relaxed:
        unstable = (lo < 0) & (hi > 0)
        line, offset = upper_line(np.where(unstable, lo, -1.0), np.where(unstable, hi, 1.0))
        su = np.where(unstable, line, (lo >= 0).astype(np.float64))
        alpha = np.where(unstable, slopes(lo, hi, su), su)
        return Relaxed(lo, hi, alpha, su, np.where(unstable, offset, 0.0))

    def through(self, A: LinearMap, alpha: Vector | None = None) -> tuple[LinearMap, Vector]:
        """S, c with S z + c <= A relu(z): the lower line where A > 0, the upper one where A < 0.

        A may be a vector, a matrix or a sparse matrix; `alpha` are other lower lines than the layer's own.
        """
        alpha = self.alpha if alpha is None else alpha
        if isinstance(A, np.ndarray):
            positive, negative = np.maximum(A, 0.0), np.minimum(A, 0.0)
            return positive * alpha + negative * self.su, np.asarray(negative @ self.iu)
        at, above = A.indices, A.data < 0
        S = csr_array((A.data * np.where(above, self.su[at], alpha[at]), at, A.indptr), shape=A.shape, copy=True)
        upper = csr_array((np.where(above, A.data, 0.0), at, A.indptr), shape=A.shape, copy=True)
        S.eliminate_zeros()  # neurons that are off
        return S, np.asarray(upper @ self.iu)
