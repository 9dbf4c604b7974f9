"""Linear lower bounds of a network on a ball: Fast-Lin and CROWN, going backwards through the layers (section 5).

On a ball (and a partial region) each unstable neuron is held between two lines over its pre-activation bounds [lo, hi]
(relu.py). Fast-Lin takes the lower line parallel to the upper one; CROWN takes z where hi > -lo and 0 elsewhere.
Rounding: a backward pass only multiplies absolute weights, so its error is at most gamma times the magnitude that the
absolute weights give the same terms; that is added to every bound (`_Magnitude`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import TINY, Matrix, Vector, gamma
from layercert.bounds.ball import Ball
from layercert.bounds.interval import affine_interval, first_interval
from layercert.bounds.relu import Relaxed, Slopes, crown
from layercert.geometry import Cell, Polyhedron
from layercert.problem import Clause
from layercert.system import clock


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Pre-activation bounds of the layers behind a cell, on its region inside a ball."""

    cell: Cell
    ball: Ball
    layers: tuple[Relaxed, ...]  # layers level+1 .. L
    error: tuple[Vector, ...]  # what a backward pass may be wrong by, for layers level+2 .. L and the output

    def lower(self, clause: Clause) -> Polyhedron | None:
        """Rows g.w + c <= 0 that every unsafe point of the ball (and the region) satisfies: the restriction M.

        g.w + c is a lower bound of C f - d. None when a row proves that there is no such point at all.
        """
        network = self.cell.cells.network
        A = clause.C @ network.weights[-1]
        c = clause.C @ network.biases[-1] - clause.d
        G, s = _backward(self.cell, self.layers, A, c)
        slack = np.abs(clause.C) @ self.error[-1] + gamma(8) * np.abs(clause.d)
        if bool((s - slack - self.ball.fall(G) > 0).any()):
            return None
        return Polyhedron(G, -s, slack, np.zeros(len(s)))


def relax(cell: Cell, U: float, slopes: Slopes = crown) -> Relaxation | None:
    """Bound the layers behind a cell by repeated backward passes.

    None when the ball is unbounded or there is nothing to relax.
    Each layer takes the better of its backward bound and interval arithmetic.
    """
    network = cell.cells.network
    ball = Ball(cell.cells.problem, U)
    if cell.is_full or math.isinf(ball.radius):
        return None
    lo, hi = first_interval(cell, ball)
    layers = [Relaxed.of(lo, hi, slopes)]
    total = _Magnitude.first(cell, ball, lo, hi)
    errors: list[Vector] = []
    for i in range(cell.level + 1, network.L + 1):
        clock.check()
        W, b = network.weights[i], network.biases[i]
        total = total.next(W, b)
        errors.append(total.error)
        if i == network.L:
            break
        by_interval = affine_interval(W, b, np.maximum(layers[-1].lo, 0.0), np.maximum(layers[-1].hi, 0.0))
        G, s = _backward(cell, tuple(layers), W, b)
        lower = s - ball.fall(G) - total.error
        G, s = _backward(cell, tuple(layers), -W, -b)
        upper = -(s - ball.fall(G)) + total.error
        lo, hi = np.maximum(lower, by_interval[0]), np.minimum(upper, by_interval[1])
        layers.append(Relaxed.of(lo, np.maximum(lo, hi), slopes))
        total = total.seen(lo, hi)
    return Relaxation(cell, ball, tuple(layers), tuple(errors))


def _backward(cell: Cell, layers: tuple[Relaxed, ...], A: Matrix, c: Vector) -> tuple[Matrix, Vector]:
    """G, s with G w + s <= A x^k + c, where x^k is the output of the last of these layers."""
    network = cell.cells.network
    for i, layer in reversed(list(enumerate(layers))):
        clock.check()
        S, constant = layer.through(A)
        c = c + constant
        if i == 0:  # the first relaxed layer is affine in w on the region
            below = cell.below
            return S @ below.G, c + S @ below.z
        k = cell.level + i
        c = c + S @ network.biases[k]
        A = S @ network.weights[k]
    return A, c


@dataclass(frozen=True, eq=False)
class _Magnitude:
    """Size of the terms of a backward pass, with every sign taken as the worst; gamma times it bounds the rounding."""

    total: Vector
    hull: Vector
    inherited: Vector  # the error already in the composed map of the cell, pushed through the absolute weights
    operations: int

    @staticmethod
    def first(cell: Cell, ball: Ball, lo: Vector, hi: Vector) -> _Magnitude:
        below = cell.below
        total = np.abs(below.z) + ball.radius * cell.cells.problem.norm.dual(below.G)
        inherited = below.slack + below.growth * ball.radius
        return _Magnitude(total, np.maximum(np.abs(lo), np.abs(hi)), inherited, 32 + 2 * below.G.shape[1])

    def next(self, W: Matrix, b: Vector) -> _Magnitude:
        size = np.abs(W)
        total = size @ (self.total + self.hull) + np.abs(b)
        operations = self.operations + W.shape[1] + 16
        return _Magnitude(total, np.zeros_like(total), size @ self.inherited * 1.01, operations)

    def seen(self, lo: Vector, hi: Vector) -> _Magnitude:
        return _Magnitude(self.total, np.maximum(np.abs(lo), np.abs(hi)), self.inherited, self.operations)

    @property
    def error(self) -> Vector:
        return gamma(self.operations) * self.total + self.inherited + TINY
