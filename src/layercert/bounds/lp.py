"""The linear programming relaxation of single ReLUs as a restriction M, found as halfspaces where they are needed.

The set of inputs that the LP relaxation cannot exclude is an intersection of CROWN halfspaces, one a choice of
slopes alpha. At a point x + w an LP over the hidden layers alone says whether the relaxation excludes it, and the LP's
duals are slopes whose halfspace does. The LP is not trusted: any slopes in [0, 1] give a valid halfspace.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import block_array, csr_array, eye_array

from layercert.arrays import Sparse, Vector
from layercert.bounds.linear import Relaxation
from layercert.geometry import Polyhedron
from layercert.problem import Clause
from layercert.system import clock


def lp_cut(relaxation: Relaxation, clause: Clause, w: Vector) -> Polyhedron | None:
    """A row g.w' + c <= 0 that holds at every unsafe point of the ball and region and is violated at w, if any."""
    below = relaxation.cell.below
    network = relaxation.cell.cells.network
    z = below.G @ w + below.z
    for row in range(len(clause.d)):
        A = clause.C[row] @ network.weights[-1]
        duals = _hidden_lp(relaxation, A, z)
        slopes = _slopes_from_duals(relaxation, A, duals, z)
        layers = tuple(replace(layer, alpha=a) for layer, a in zip(relaxation.layers, slopes, strict=True))
        only = Clause(clause.C[row : row + 1], clause.d[row : row + 1], clause.target)
        cut = replace(relaxation, layers=layers).lower(only)
        if cut is None:  # the row excludes the whole ball: say so by an impossible row
            n = below.G.shape[1]
            return Polyhedron(np.zeros((1, n)), -np.ones(1), np.zeros(1), np.zeros(1))
        size = float(np.abs(cut.r).max()) + float(np.abs(cut.A).max())
        if float(cut.residual(w)[0]) > 1e-7 * size:
            return cut
    return None


def _hidden_lp(relaxation: Relaxation, A: Vector, z: Vector) -> list[Vector]:
    """Minimise A x^L over the relaxed hidden layers with the first pre-activations fixed at z.

    Returns the multipliers of the rows x^i >= z^i for the layers behind the first one (zeros if the LP fails).
    """
    from scipy.optimize import linprog  # half a second to import: only for the method that needs it

    layers = relaxation.layers
    network, level = relaxation.cell.cells.network, relaxation.cell.level
    first = layers[0]
    low = [np.maximum(z, 0.0) * (first.su > 0)]
    high = [np.maximum(np.where(first.su > 0, first.su * z + first.iu, 0.0), low[0])]
    sizes = [len(layer.lo) for layer in layers]
    start = np.concatenate([[0], np.cumsum(sizes)])
    blocks: list[list[Sparse | None]] = []
    rhs: list[Vector] = []
    for i in range(1, len(layers)):
        W, b, layer = network.weights[level + i], network.biases[level + i], layers[i]
        live = (layer.su > 0).astype(np.float64)
        low.append(np.zeros(sizes[i]))
        high.append(np.where(live > 0, np.inf, 0.0))
        one = eye_array(sizes[i], format="csr")
        for factor, sign in ((live, -1.0), (-layer.su, 1.0)):  # z - x <= 0, then x <= su z + iu
            row: list[Sparse | None] = [csr_array((sizes[i], n)) if i == 1 else None for n in sizes]
            row[i - 1], row[i] = csr_array(factor[:, None] * W), sign * one
            blocks.append(row)
        rhs += [-live * b, layer.su * b + layer.iu]
    if not blocks:
        return []
    cost = np.zeros(int(start[-1]))
    cost[start[-2] :] = A
    bounds = list(zip(np.concatenate(low).tolist(), np.concatenate(high).tolist(), strict=True))
    limit: Any = {"time_limit": max(clock.left(), 0.01)} if math.isfinite(clock.left()) else {}
    rows: Any = block_array(blocks, format="csr")
    answer = linprog(cost, rows, np.concatenate(rhs), bounds=bounds, method="highs", options=limit)
    clock.check()
    if not answer.success:
        return [np.zeros(n) for n in sizes[1:]]
    multipliers = -np.asarray(answer.ineqlin.marginals)
    duals: list[Vector] = []
    at = 0
    for n in sizes[1:]:
        duals.append(multipliers[at : at + n])
        at += 2 * n
    return duals


def _slopes_from_duals(relaxation: Relaxation, A: Vector, duals: list[Vector], z: Vector) -> list[Vector]:
    """alpha_i = multiplier of x >= z over the coefficient of x, layer by layer backwards; clipped to [0, 1]."""
    network, level = relaxation.cell.cells.network, relaxation.cell.level
    slopes: list[Vector] = [layer.alpha for layer in relaxation.layers]
    for i in range(len(relaxation.layers) - 1, -1, -1):
        layer = relaxation.layers[i]
        unstable = (layer.lo < 0) & (layer.hi > 0)
        if i == 0:
            wanted = (z > 0).astype(np.float64)
        else:
            positive = A > 1e-12
            wanted = np.where(positive, duals[i - 1] / np.where(positive, A, 1.0), layer.alpha)
        slopes[i] = np.where(unstable, np.clip(wanted, 0.0, 1.0), layer.alpha)
        if i > 0:
            S, _ = layer.through(A, slopes[i])
            A = S @ network.weights[level + i]
    return slopes
