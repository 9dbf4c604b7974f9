"""Kernels of norms: ||w||_p for any p >= 1. `norms.py` has the same for arrays in Python."""

from __future__ import annotations

import numpy as np

from layercert.arrays import Vector
from layercert.compiled.jit import inner, inner_sums, njit_sums


@inner
def dual_exponent(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    if p == 1.0:
        return np.inf
    return 1.0 if p == np.inf else p / (p - 1.0)


@inner_sums
def over(n: int) -> float:
    """What a sum over n coordinates, a norm or a support function, is multiplied by not to be too small.

    Two roundings per coordinate, in any order, and 64 of each kind more for powers and roots: docs/rounding.md.
    """
    return 1.0 + 2.3e-16 * (2 * n + 128)


@njit_sums
def lp_norm(w: Vector, p: float) -> float:
    """||w||_p in float64, scaled by the largest entry: no overflow, no loss of tiny vectors."""
    top = 0.0
    for i in range(len(w)):
        top = max(top, abs(w[i]))
    if np.isinf(p) or top == 0.0:
        return top
    total = 0.0
    if p == 1.0:
        for i in range(len(w)):
            total += abs(w[i])
        return total
    if p == 2.0:
        for i in range(len(w)):
            total += (w[i] / top) ** 2
        return top * np.sqrt(total)
    for i in range(len(w)):
        total += (abs(w[i]) / top) ** p
    return top * total ** (1.0 / p)
