"""How far a forward pass in floating point may be from the network as a function of real numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layercert.arrays import EPS, SMALLEST, LinearMap, Vector, gamma
from layercert.linear_maps import terms


def float64_error(
    maps: Sequence[LinearMap], biases: Sequence[Vector], x: Vector, inherited: Vector | float = 0.0
) -> Vector:
    """For each output, of a pass in float64 at x, which may itself be wrong by `inherited`.

    The error of a layer is gamma times its terms in absolute value, and ReLU does not enlarge what it inherits. Each
    product may underflow, those of this analysis too.
    """
    h, error = x, np.zeros_like(x) + inherited
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (W, b) in enumerate(zip(maps, biases, strict=True)):
            size, operations = abs(W), terms(W) + 4
            noise = gamma(operations)
            error = (size @ error * (1 + noise) + noise * (size @ np.abs(h) + np.abs(b))) * (1 + noise)
            error = error + 4.0 * operations * SMALLEST
            h = W @ h + b
            if i < len(maps) - 1:
                h = np.maximum(h, 0.0)
    return np.asarray(error)


def float32_error(
    maps: Sequence[LinearMap], biases: Sequence[Vector], x: Vector, reach: Vector | float = 0.0
) -> Vector:
    """For each output, of a pass in float32 with sums in any order, at all points within `reach` of x in each
    coordinate, rounded to float32 first."""
    info = np.finfo(np.float32)
    unit, smallest = float(info.eps) / 2, float(info.smallest_subnormal)
    size = np.abs(x) + reach  # pushed through the absolute weights it bounds all values
    error = unit * size + smallest
    with np.errstate(over="ignore", invalid="ignore"):
        for W, b in zip(maps, biases, strict=True):
            absolute = abs(W)
            noise = gamma(terms(W) + 4) * (unit / EPS) + unit  # float64 weights are rounded to float32 as well
            error = (absolute @ error) * (1 + noise) + noise * (absolute @ size + np.abs(b))
            # products that underflow, and weights that do once they are float32
            error = error + smallest * (4.0 * terms(W) + 8.0 + float(error.sum() + size.sum()))
            size = absolute @ size + np.abs(b)
    return np.asarray(error * 1.01)
