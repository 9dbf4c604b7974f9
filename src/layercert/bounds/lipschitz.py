"""Local Lipschitz constants in the manner of Fast-Lip (Weng et al. 2018), for every p.

The gradient of a row of C f on any region that meets the ball is C W^L D_L W^{L-1} .. D_1 W^0 with D diagonal, 1 for
neurons that are always on, 0 for those always off, and 0 or 1 for the rest. Interval arithmetic over the unknown
entries bounds each partial derivative; the dual norm of these bounds is a Lipschitz constant for l_p distances.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Vector, gamma
from layercert.bounds.linear import Relaxation
from layercert.geometry import Cells
from layercert.problem import Clause
from layercert.system import clock


def fast_lip(cells: Cells, clause: Clause, relaxation: Relaxation | None) -> Vector:
    """A Lipschitz constant of each row of C f on the ball of a relaxation of the root (without one: everywhere)."""
    network = cells.network
    low = high = clause.C @ network.weights[-1]
    for i in range(network.L, 0, -1):
        clock.check()
        if relaxation is None:
            on = off = np.zeros(network.widths[i - 1], dtype=np.bool_)
        else:
            layer = relaxation.layers[i - 1]
            on, off = layer.lo >= 0, layer.hi <= 0
        low = np.where(off, 0.0, np.where(on, low, np.minimum(low, 0.0)))
        high = np.where(off, 0.0, np.where(on, high, np.maximum(high, 0.0)))
        W = network.weights[i - 1]
        Wp, Wn = np.maximum(W, 0.0), np.minimum(W, 0.0)
        low, high = low @ Wp + high @ Wn, high @ Wp + low @ Wn
    slope = np.maximum(np.abs(low), np.abs(high))
    # error of the interval products, relative to the absolute products
    total = np.abs(clause.C) @ np.abs(network.weights[-1])
    for W in network.weights[-2::-1]:
        total = total @ np.abs(W)
    operations = 8 + sum(W.shape[0] + 4 for W in network.weights)
    norm = cells.problem.norm
    return np.asarray(norm.dual(slope + 2 * gamma(operations) * total) * (1 + gamma(network.inputs + 32)))
