"""One step of the simplex method of simplex.py: along which ray the multipliers move, and how far.

The dual value is concave and piecewise linear on the ray. Its slope is the violation that is repaired; every kink of a
coordinate uses up a part of it, and the step ends where nothing is left or where a row loses its multiplier.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import axpy, dot, largest
from layercert.compiled.jit import inner, inner_sums
from layercert.programs.kernels.lp import Basis, BasisScratch, Lp


@inner
def row_weight(A: Matrix, pinned: Vector, B: Indices, X: Matrix, k: int, i: int, q: Vector) -> float:
    """q = (row i over B) X, the active rows' part of row i; returns 1 + ||q||^2, its steepest-edge weight."""
    for a in range(k):
        q[a] = 0.0
    for b in range(k):
        t = A[i, B[b]] if B[b] < A.shape[1] else -pinned[i]
        for a in range(k):
            q[a] += t * X[b, a]
    return 1.0 + dot(q, q, k)


@inner
def dual_ray(lp: Lp, basis: Basis, k: int, row: int, position: int, sign: float, work: BasisScratch) -> None:
    """The ray (dlam, dg) along which the chosen violation is the slope of the dual value."""
    A, K, X, q, dlam, dg = lp.A, basis.K, basis.X, work.q, work.dlam, work.dg
    if row >= 0:
        row_weight(A, basis.pinned, basis.B, X, k, row, q)
    for c in range(len(dg)):
        dg[c] = sign * A[row, c] if row >= 0 else 0.0
    for a in range(k):
        dlam[a] = -sign * (q[a] if row >= 0 else X[position, a])
        axpy(dlam[a], A[K[a]], dg)


@inner
def first_row_to_leave(basis: Basis, k: int, e: int, dlam: Vector) -> tuple[int, float]:
    """Position in K of the first multiplier to fall to zero, and where; the equality's may have either sign."""
    K, lam = basis.K, basis.lam
    smallest = 1e-12 * largest(dlam, k)
    out, cap = -1, np.inf
    for a in range(k):
        if -dlam[a] > smallest and K[a] != e and max(lam[K[a]], 0.0) < -dlam[a] * cap:
            out, cap = a, max(lam[K[a]], 0.0) / -dlam[a]
    return out, cap


@inner
def kinks_ahead(lp: Lp, basis: Basis, k: int, position: int, sign: float, tau: float, work: BasisScratch) -> int:
    """Every kink the ray will pass, and the slope it will use up; the number of places used (inf = no kink)."""
    g, side, basic, up, down = basis.g, basis.side, basis.basic, lp.up, lp.down
    dg, when, weight = work.dg, work.when, work.weight
    n = len(g)
    # below this an entry of dg is rounding; when all are, the row depends on the active ones
    noise = (1.0 + dot(work.dlam, work.dlam, k) ** 0.5) * (1.0 / n if lp.homogeneous else 1.0)
    smallest = max(1e-12 * largest(dg, n), 1e-15 * noise)
    # no branches on the data below, so that the loops use vector instructions
    if lp.homogeneous:
        for c in range(n):
            ahead = (dg[c] * side[c] > smallest) & (not basic[c])
            t = -g[c] / dg[c]
            when[c] = (t if t > 0.0 else 0.0) if ahead else np.inf
            weight[c] = abs(dg[c]) * (min(1.0, tau * up[c]) + min(1.0, tau * down[c]))
        return n
    for kink, start, room in ((-1.0, 0, up), (1.0, n, down)):
        for c in range(n):
            # side 1 meets -1, then 1; side 0 meets the one it moves to; side -1 meets 1, then -1
            ahead = (dg[c] * (side[c] + 0.5 * kink) > smallest) & (not basic[c])
            t = (kink - g[c]) / dg[c]
            when[start + c] = (t if t > 0.0 else 0.0) if ahead else np.inf
            weight[start + c] = abs(dg[c]) * room[c] if ahead else 0.0
    if position >= 0 and sign * basis.kink[position] > 0.0:  # the leaving column has its other kink ahead
        c = basis.B[position]
        j = c if sign > 0.0 else n + c
        when[j], weight[j] = 2.0, up[c] if sign > 0.0 else down[c]
    return 2 * n


@inner_sums
def weight_before(when: Vector, weight: Vector, places: int, cap: float) -> float:
    total = 0.0
    for j in range(places):
        total += weight[j] if when[j] < cap else 0.0
    return total


@inner
def where_it_stops(
    when: Vector, weight: Vector, places: int, cap: float, slope: float, order: Indices, spare: Indices
) -> int:
    """The first kink before `cap` at which the kinks passed use up the slope; -1 when they never do.

    The place is first narrowed down by sums over everything before a kink picked at random (these run in vector
    instructions), then found by quickselect, without branches on the data: each pass writes the nearer half first
    and the farther half to the back.
    """
    slope *= 1.0 - 1e-12  # what is left within rounding is nothing
    if not weight_before(when, weight, places, cap) >= slope:
        return -1
    low, high, used, draw = -1.0, cap, 0.0, 1
    for _ in range(8):
        middle = -1.0
        for _ in range(12):
            draw = (draw * 1103515245 + 12345) & 0x7FFFFFFF
            t = when[(draw >> 8) % places]
            if low < t < high:
                middle = t
                break
        if middle < 0.0:
            break
        before = weight_before(when, weight, places, middle)
        if before >= slope:
            high = middle
        else:
            low, used = middle, before
    count = 0
    for j in range(places):
        order[count] = j
        count += (when[j] >= low) & (when[j] < high)
    while True:
        middle = when[order[count // 2]]
        near, far, before, same = 0, 0, 0.0, 0.0
        for i in range(count):
            j = order[i]
            t = when[j]
            spare[near], spare[places - 1 - far] = j, j
            near += t < middle
            far += t > middle
            before += weight[j] if t < middle else 0.0
            same += weight[j] if t == middle else 0.0
        if near > 0 and used + before >= slope:
            count = near
            for i in range(count):
                order[i] = spare[i]
        elif far == 0 or used + before + same >= slope:
            best = order[count // 2]  # among ties the largest weight is the most stable pivot
            for i in range(count):
                j = order[i]
                if when[j] == middle and weight[j] > weight[best]:
                    best = j
            return best
        else:
            used += before + same
            count = far
            for i in range(count):
                order[i] = spare[places - 1 - i]


@inner
def last_kink(when: Vector, places: int) -> int:
    last = -1
    for j in range(places):
        if when[j] < np.inf and (last < 0 or when[j] > when[last]):
            last = j
    return last
