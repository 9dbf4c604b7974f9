"""Interval arithmetic for the start of a proof: what the bounds of a layer's inputs say of its neurons.

    lo_i = sum over w > 0 of w max(lo_j, 0) + sum over w < 0 of w max(hi_j, 0) + b_i,      hi_i the other way round

Behind max pooling many neurons carry an output of the layer below on, z_i = x_j. A backward pass with the lower line
z_j of x_j = relu(z_j) bounds such a neuron from below by lo_j < 0; here it is 0, and the neuron is on.
A sum errs by at most gamma times its absolute terms, what underflow may take besides. Where every term has a factor
that is zero nothing is rounded at all, and the bound is 0 itself: a neuron that is on must not be open for rounding.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import TINY, Vector
from layercert.compiled.jit import njit_sums
from layercert.compiled.packed import PackedNetwork


@njit_sums
def narrow_by_intervals(net: PackedNetwork, k: int, noise: float, lo: Vector, hi: Vector) -> None:
    """Take what the bounds of layer k - 1 > -1 leave to the neurons of layer k, where it is better."""
    under = net.noff[k - 1]
    for i in range(net.noff[k], net.noff[k + 1]):
        b, at = net.b[i], net.ptr[i]
        least, most, below, above = b, b, abs(b), abs(b)
        moved, raised = b != 0.0, b != 0.0  # has the sum a term at all? A product may vanish and is one
        for t in range(at, net.ptr[i + 1]):
            j, w = under + (t - at if net.whole[k] else net.index[t]), net.data[t]
            low, high = max(lo[j], 0.0), max(hi[j], 0.0)
            if w < 0.0:
                low, high = high, low
            least += w * low
            most += w * high
            below += abs(w) * low
            above += abs(w) * high
            moved = moved or (w != 0.0 and low != 0.0)
            raised = raised or (w != 0.0 and high != 0.0)
        least -= (1.01 * noise * below + TINY) if moved else 0.0
        most += (1.01 * noise * above + TINY) if raised else 0.0
        if np.isfinite(least):
            lo[i] = max(lo[i], least)
        if np.isfinite(most):
            hi[i] = min(hi[i], most)
