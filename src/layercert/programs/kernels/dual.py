"""The separable dual of 1 < p < inf (smooth.py): its value, its point, which rows count, and its curvature on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import axpy, clear, dot
from layercert.compiled.jit import inner
from layercert.compiled.timer import Timer

#: Share of a row's margin that the method itself uses; the rest is left to the rounding of the final check.
SHARE = 0.25


class Smooth(NamedTuple):
    """What is asked: unit rows, their margins, the room of each coordinate and its p-th power."""

    A: Matrix
    r: Vector
    slack: Vector
    growth: Vector
    up: Vector
    down: Vector
    up_p: Vector
    down_p: Vector
    p: float
    timer: Timer


class Dual(NamedTuple):
    """Where the method stands."""

    lam: Vector
    g: Vector
    w: Vector


class NewtonScratch(NamedTuple):
    """Arrays reused by every step."""

    y: Vector  # A w - r
    free: Indices
    d: Vector
    scaled: Matrix  # active rows times the root of the slopes
    H: Matrix
    L: Matrix
    slope: Vector
    rest: Vector  # |w|^(p-1) sign(w) + g, zero at the optimum


@inner
def power(x: float, exponent: float) -> float:
    """x**exponent for x >= 0, the common exponents without logarithms."""
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == 0.5:
        return np.sqrt(x)
    return x**exponent


@inner
def respond(g: Vector, w: Vector, up: Vector, down: Vector, up_p: Vector, down_p: Vector, p: float) -> float:
    """w(g) and the sum of the inner minima; |w|^p = |w||g| as long as the box does not hold w."""
    q = p / (p - 1.0)
    total = 0.0
    for c in range(len(g)):
        size = abs(g[c])
        length = power(size, q - 1.0)
        room, room_p = (down[c], down_p[c]) if g[c] > 0.0 else (up[c], up_p[c])
        if length < room:
            total -= length * size / q
        else:
            length = room
            total += room_p / p - room * size
        w[c] = -length if g[c] > 0.0 else length
    return total


@inner
def evaluate(ask: Smooth, dual: Dual) -> float:
    """g and w for the multipliers; returns F."""
    lam, g, w = dual
    clear(g)
    F = 0.0
    for i in range(len(lam)):
        if lam[i] != 0.0:
            axpy(lam[i], ask.A[i], g)
            F -= lam[i] * ask.r[i]
    return F + respond(g, w, ask.up, ask.down, ask.up_p, ask.down_p, ask.p)


@inner
def length_of(F: float, p: float) -> float:
    return (p * F) ** (1.0 / p) if F > 0.0 else 0.0


@inner
def proves_cutoff(ask: Smooth, lam: Vector, F: float, U: float) -> bool:
    """Would a point nearer than U contradict F, the margins of the rows deducted?"""
    loss = 0.0
    for i in range(len(lam)):
        loss += abs(lam[i]) * (ask.slack[i] + ask.growth[i] * U)
    return F - loss >= U**ask.p / ask.p


@inner
def choose_free(
    ask: Smooth, lam: Vector, y: Vector, free: Indices, e: int, length: float, newcomers: int
) -> tuple[int, float]:
    """Rows that have a multiplier, and the most violated of the others; their number, and the worst residual.

    The residual is in units of the tolerance. More than a few newcomers at once get multipliers that are taken back one
    by one later.
    """
    count, worst = 0, 0.0
    for i in range(len(lam)):
        tolerance = SHARE * (ask.slack[i] + ask.growth[i] * length)
        if i == e or lam[i] > 0.0:
            free[count] = i
            count += 1
            worst = max(worst, abs(y[i]) / tolerance)
        else:
            worst = max(worst, y[i] / tolerance)
    held, last = count, np.inf
    while count < held + newcomers:
        best = -1
        for i in range(len(lam)):
            # a row that is mostly noise has a wide margin: it may lie far out and not be violated at all
            violated = y[i] > SHARE * (ask.slack[i] + ask.growth[i] * length)
            if violated and i != e and lam[i] <= 0.0 and y[i] < last and (best < 0 or y[i] > y[best]):
                best = i
        if best < 0:
            break
        last = y[best]
        free[count] = best
        count += 1
    return count, worst


@inner
def gram(A: Matrix, free: Indices, k: int, slope: Vector, scaled: Matrix, H: Matrix) -> float:
    """H = A_K diag(slope) A_K^T, the curvature of -F on the rows K; returns its largest diagonal entry."""
    n = len(slope)
    for c in range(n):
        slope[c] = np.sqrt(slope[c])
    top = 0.0
    for a in range(k):
        row, source = scaled[a], A[free[a]]
        for c in range(n):
            row[c] = source[c] * slope[c]
        for b in range(a + 1):
            H[a, b] = dot(row, scaled[b], n)
        top = max(top, H[a, a])
    return top
