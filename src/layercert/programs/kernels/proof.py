"""The duality bound inside a box, compiled: what `Norm.prove_halfspace` proves, without its sorting and its copies.

For every split |g| = g1 + g2, g1, g2 >= 0:  dist >= (s - g2.room) / (||g1||_q + drift). Every split is a proof, so
finding a good one needs no care; evaluating it does. The terms of all sums are >= 0, so one margin covers any order.

The best split belongs to the nearest point u = min(room, tau*direction), direction = (|g|/top)^(q-1), where tau solves
an equation that is concave and piecewise linear: Newton from below takes a handful of steps. For p = 1 the coordinates
with |g| above a threshold are filled, and the threshold is found by bisection.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.norms import Box, Norm
from layercert.programs.kernels.dense import largest, total
from layercert.programs.kernels.jit import entry, njit, njit_sums


def bound_in_box(norm: Norm, box: Box, g: Matrix, s: Vector, drift: Vector) -> Vector:
    """Proved lower bounds of the distance from x to {x + w : g.w - drift*||w|| <= -s} in the box, a row of g each."""
    n = g.shape[1]
    bounds: Vector = prove_rows(
        np.ascontiguousarray(g), s, drift, -box.lo, box.hi, norm.p, 1.0 + gamma(2 * n + 64), gamma(4), gamma(8)
    )
    return bounds


@entry
def prove_rows(
    g: Matrix, s: Vector, drift: Vector, down: Vector, up: Vector, p: float, over: float, four: float, eight: float
) -> Vector:
    """over = 1 + the relative error of any sum of n terms; four, eight = that of as many operations."""
    k, n = g.shape
    size, room, direction, keep, terms = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    t = np.zeros(k)
    for i in range(k):
        top = towards(g[i], down, up, size, room)
        one = p == 1.0
        corner = threshold(size, room, s[i], top, keep) if one else fill(size, room, direction, s[i], top, p, keep)
        t[i] = evaluate(size, keep, room, s[i], drift[i], p, over, four, eight, terms)
        if corner:
            for c in range(n):  # the whole box may fall short of s, and then it pays alone
                keep[c] = 0.0
            t[i] = max(t[i], evaluate(size, keep, room, s[i], drift[i], p, over, four, eight, terms))
    return t


@njit
def towards(g: Vector, down: Vector, up: Vector, size: Vector, room: Vector) -> float:
    """|g| and the room of each coordinate in the direction of -g; returns the largest |g|."""
    for c in range(len(g)):
        size[c] = abs(g[c])
        room[c] = down[c] if g[c] > 0.0 else up[c]
    return largest(size, len(size))


@njit_sums
def fill(size: Vector, room: Vector, direction: Vector, s: float, top: float, p: float, keep: Vector) -> bool:
    """g1 for p > 1: all of |g| where tau*direction < room, what the slope of the norm explains elsewhere.

    Returns whether everything is full.
    """
    n = len(size)
    power = 1.0 / (p - 1.0)  # q - 1
    for c in range(n):
        direction[c] = 1.0 if power == 0.0 else size[c] / top
    if power != 0.0 and power != 1.0:
        for c in range(n):
            direction[c] = direction[c] ** power
    tau = slope = 0.0
    for _ in range(40):
        paid = slope = 0.0
        for c in range(n):
            full = room[c] < tau * direction[c]
            paid += size[c] * room[c] if full else 0.0
            slope += 0.0 if full else size[c] * direction[c]
        new = (s - paid) / slope
        if not new > tau * (1.0 + 1e-15):
            break
        tau = new
    corner = slope == 0.0
    if corner:  # the slope of the coordinate that filled up last
        tau = 0.0
        for c in range(n):
            last = room[c] / direction[c]
            if size[c] > 0.0 and last < np.inf:
                tau = max(tau, last)
    for c in range(n):
        keep[c] = size[c]
        if room[c] < tau * direction[c]:
            part = 0.0 if power == 0.0 else top * (room[c] / tau) ** (p - 1.0)
            keep[c] = min(size[c], part)
    return corner


@njit_sums
def threshold(size: Vector, room: Vector, s: float, top: float, keep: Vector) -> bool:
    """g1 for p = 1: |g| cut off at the least level above which the coordinates, filled up, do not reach s.

    Returns whether everything is full.
    """
    low, high = 0.0, top
    for _ in range(60):
        level = 0.5 * (low + high)
        paid = 0.0
        for c in range(len(size)):
            paid += size[c] * room[c] if size[c] > level else 0.0
        if paid < s:
            high = level
        else:
            low = level
        if high - low <= 1e-16 * top:
            break
    corner = low == 0.0
    if corner:  # the coordinate that filled up last
        high = top
        for c in range(len(size)):
            if size[c] > 0.0 and room[c] > 0.0:
                high = min(high, size[c])
    for c in range(len(size)):  # an endless room cannot be filled
        if not room[c] < np.inf:
            high = max(high, size[c])
    for c in range(len(size)):
        keep[c] = min(size[c], high)
    return corner


@njit
def evaluate(
    size: Vector,
    keep: Vector,
    room: Vector,
    s: float,
    drift: float,
    p: float,
    over: float,
    four: float,
    eight: float,
    terms: Vector,
) -> float:
    """(s - g2.room)/(||g1||_q + drift), rounded down; inf when nothing can make up for s, 0 when it proves nothing.

    Only sums of finished terms, all >= 0, are left to the compiler's choice of order.
    """
    for c in range(len(size)):
        rest = (size[c] - keep[c]) * over
        terms[c] = rest * room[c] if rest > 0.0 else 0.0
    cost = total(terms) * over
    length = largest(keep, len(keep))
    if p > 1.0 and length > 0.0:
        top, q = length, 1.0 if p == np.inf else p / (p - 1.0)
        for c in range(len(size)):
            part = keep[c] / top
            terms[c] = part if q == 1.0 else (part * part if q == 2.0 else part**q)
        length = total(terms)
        length = top * (length if q == 1.0 else (np.sqrt(length) if q == 2.0 else length ** (1.0 / q)))
    gain = s - cost - four * (abs(s) + cost)
    length = (length + drift) * over
    if not gain > 0.0 or not length >= 0.0:
        return 0.0
    return gain / length * (1.0 - eight) if length > 0.0 else np.inf
