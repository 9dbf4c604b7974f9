"""Interval arithmetic on a ball and a partial region: the cheap `contains_db` of LayerCert-IA (section 5) [E6].

Up to layer l the network is exactly affine on R_A, so the first interval is that of an affine function on the ball;
deeper layers are bounded neuron by neuron, every step rounded outward.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import TINY, Matrix, Vector, gamma
from layercert.bounds.ball import Ball
from layercert.geometry import Cell
from layercert.problem import Clause

Interval = tuple[Vector, Vector]


def affine_interval(W: Matrix, b: Vector, lo: Vector, hi: Vector) -> Interval:
    """Bounds of W v + b for lo <= v <= hi, rounded outward."""
    Wp, Wn = np.maximum(W, 0.0), np.minimum(W, 0.0)
    low = _times(Wp, lo) + _times(Wn, hi) + b
    high = _times(Wp, hi) + _times(Wn, lo) + b
    size = _times(np.abs(W), np.maximum(np.abs(lo), np.abs(hi))) + np.abs(b)
    error = gamma(2 * W.shape[1] + 4) * size + TINY
    return low - error, high + error


def _times(W: Matrix, v: Vector) -> Vector:
    """W v where 0 * inf is 0: a missing weight does not feel an unbounded input."""
    if np.isfinite(v).all():
        return np.asarray(W @ v)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(W != 0, W * v, 0.0).sum(axis=1))


def first_interval(cell: Cell, ball: Ball) -> Interval:
    """Bounds of the next layer's pre-activations (or the outputs) on R_A inside the ball, where they are affine."""
    below = cell.below
    drop, rise = ball.fall(below.G), ball.fall(-below.G)
    with np.errstate(invalid="ignore"):
        error = below.slack + np.where(below.growth > 0, below.growth * ball.radius, 0.0)
    error = error + gamma(4) * np.abs(below.z)
    return below.z - drop - error, below.z + rise + error


def output_interval(cell: Cell, ball: Ball) -> Interval:
    """Bounds of x^L (or of f when the pattern is full) over R_A inside the ball."""
    network = cell.cells.network
    lo, hi = first_interval(cell, ball)
    for W, b in zip(network.weights[cell.level + 1 : -1], network.biases[cell.level + 1 : -1], strict=True):
        lo, hi = affine_interval(W, b, np.maximum(lo, 0.0), np.maximum(hi, 0.0))
    return lo, hi


def interval_contains_db(cell: Cell, U: float, clauses: tuple[Clause, ...]) -> bool:
    """False only if R_A and the ball of radius U hold no point where one of the clauses is satisfied."""
    network = cell.cells.network
    lo, hi = output_interval(cell, Ball(cell.cells.problem, U))
    last, b = network.weights[-1], network.biases[-1]
    for clause in clauses:
        if cell.is_full:
            low, _ = affine_interval(clause.C, -clause.d, lo, hi)
        else:
            # C W^L as one matrix keeps what the outputs have in common; its own rounding is added to the bound
            CW, Cb = clause.C @ last, clause.C @ b - clause.d
            size = np.abs(clause.C) @ np.abs(last)
            post = np.maximum(hi, 0.0)
            low, _ = affine_interval(CW, Cb, np.maximum(lo, 0.0), post)
            noise = gamma(len(b) + 4) * (_times(size, post) + np.abs(clause.C) @ np.abs(b) + np.abs(clause.d))
            low = low - noise
        if not bool((low > 0).any()):
            return True
    return False
