"""A kernel of the checker: lower bounds of linear functions on the cap {w in ball and box : g.w + s <= 0}.

For every lam >= 0 and every w of the cap, h.w >= h.w + lam (g.w + s) >= lam s - fall(h + lam g). The right side is
concave in lam; a few meeting tangents find a good lam, and any lam is sound. For every split |t| = t1 + t2 into parts
>= 0, fall(t) <= r ||t1||_q + t2.room: t1 = 0 is exact for l_inf, for other norms a few steps come near the best split.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import TINY, Matrix, Vector
from layercert.compiled.jit import njit_sums

#: Evaluations of the concave function for each row.
ROUNDS = 6
#: Steps towards the best split.
SPLITS = 3


@njit_sums
def lowest_on_cap(
    G: Matrix, g: Vector, s: float, r: float, q: float, down: Vector, up: Vector
) -> tuple[Vector, Vector]:
    """A lower bound, rounded down, of each row of G on the cap, and the multiplier that gave it.

    g of length 0 stands for no cap.
    """
    m, n = G.shape
    capped = len(g) > 0
    low, best_lam = np.empty(m), np.zeros(m)
    g_size = 0.0
    if capped:
        g_size = _length(g, q)
    grow = 1.0 + 2.3e-16 * (2 * n + 64)
    for i in range(m):
        value, drop, slope = _evaluate(G[i], g, 0.0, s, r, q, down, up)
        size = _length(G[i], q)
        best = -drop * grow
        if capped and slope > 0.0 and g_size > 0.0 and size > 0.0:
            left, left_value, left_slope = 0.0, value, slope
            right, right_value, right_slope = -1.0, 0.0, 0.0
            lam = 0.5 * size / g_size
            for _ in range(ROUNDS):
                value, drop, slope = _evaluate(G[i], g, lam, s, r, q, down, up)
                # the entries of h + lam g are rounded, whatever cancels
                slip = 4.6e-16 * (r * (size + lam * g_size) + lam * abs(s)) * grow
                proved = lam * s - drop * grow - slip
                if proved > best:
                    best, best_lam[i] = proved, lam
                if slope > 0.0:
                    left, left_value, left_slope = lam, value, slope
                    if right < 0.0:
                        lam *= 3.0
                        continue
                else:
                    right, right_value, right_slope = lam, value, slope
                bend = left_slope - right_slope
                if not bend > 0.0:
                    break
                meet = (right_value - left_value + left_slope * left - right_slope * right) / bend
                if not (left < meet and meet < right):
                    break
                if left_value + left_slope * (meet - left) - best <= 1e-3 * abs(best):
                    break  # nothing left to gain between the tangents
                lam = meet
        low[i] = best - 2.3e-16 * abs(best)
    return low, best_lam


@njit_sums
def _evaluate(
    h: Vector, g: Vector, lam: float, s: float, r: float, q: float, down: Vector, up: Vector
) -> tuple[float, float, float]:
    """For t = h + lam g: lam s - fall(t) (for guidance), fall(t) and the slope in lam."""
    drop, slope = _box_alone(h, g, lam, down, up)
    if q > 1.0:
        mu = np.inf  # everything against the ball
        low, high = 0.0, _largest(h, g, lam, down, up)
        for step in range(2 * SPLITS if np.isinf(q) else SPLITS):  # halvings go slower
            total, inner, length, filled = _split(h, g, lam, mu, r, q, down, up)
            if total < drop:
                drop, slope = total, inner
            if not np.isinf(q):
                mu = length
            else:  # p = 1: the best mu is where the rooms above it add up to r
                if step > 0 and filled > r:
                    low = mu
                elif step > 0:
                    high = mu
                mu = 0.5 * (low + high)
    return lam * s - drop, drop, s - slope


@njit_sums
def _box_alone(h: Vector, g: Vector, lam: float, down: Vector, up: Vector) -> tuple[float, float]:
    """sum_j |t_j| room_j and its slope; exact for l_inf."""
    capped = len(g) > 0
    drop, slope = 0.0, 0.0
    for j in range(len(h)):
        gj = g[j] if capped else 0.0
        t = h[j] + lam * gj
        room = down[j] if t > 0.0 else up[j]
        drop += abs(t) * room
        slope += gj * room if t > 0.0 else -gj * room
    return drop, slope


@njit_sums
def _split(
    h: Vector, g: Vector, lam: float, mu: float, r: float, q: float, down: Vector, up: Vector
) -> tuple[float, float, float, float]:
    """r ||t1||_q + t2.room for t1_j = min(|t_j|, mu (room_j/r)^(p-1)), its slope, ||t1||_q, filled rooms (p = 1)."""
    if not np.isinf(q) and q != 2.0:
        return _split_lp(h, g, lam, mu, r, q, down, up)
    capped = len(g) > 0
    over, power, inner, top, top_slope, filled = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(h)):
        gj = g[j] if capped else 0.0
        t = h[j] + lam * gj
        room = down[j] if t > 0.0 else up[j]
        if not room > 0.0:
            continue
        a = abs(t)
        side = gj if t > 0.0 else -gj
        if np.isinf(q):
            part = min(a, mu)
            if a > mu:
                inner += side * room
                filled += room
            if part > top:
                top, top_slope = part, side
        else:
            part = min(a, mu * (room / r))
            power += part * part
            inner += part * side
        over += (a - part) * room
    if np.isinf(q):
        return r * top + over, inner + (r - filled) * top_slope, top, filled
    length = np.sqrt(power) + TINY  # squares of what is smaller than TINY vanish
    return r * length + over, r * inner / max(length, 1e-300), length, filled


@njit_sums
def _split_lp(
    h: Vector, g: Vector, lam: float, mu: float, r: float, q: float, down: Vector, up: Vector
) -> tuple[float, float, float, float]:
    """The same for any other q, in units of the largest part: for p near 1 the powers of 0.5 vanish already."""
    capped = len(g) > 0
    top = 0.0
    for j in range(len(h)):
        t = h[j] + lam * (g[j] if capped else 0.0)
        top = max(top, _part(t, down[j] if t > 0.0 else up[j], mu, r, q))
    over, power, inner = 0.0, 0.0, 0.0
    for j in range(len(h)):
        gj = g[j] if capped else 0.0
        t = h[j] + lam * gj
        room = down[j] if t > 0.0 else up[j]
        part = _part(t, room, mu, r, q)
        over += (abs(t) - part) * room
        if part > 0.0:
            power += (part / top) ** q
            inner += (part / top) ** (q - 1.0) * (gj if t > 0.0 else -gj)
    root = power ** (1.0 / q)
    return r * top * root + over, r * inner / max(root, 1.0) ** (q - 1.0), top * root, 0.0


@njit_sums
def _part(t: float, room: float, mu: float, r: float, q: float) -> float:
    """What a coordinate keeps in t1; a coordinate without room keeps nothing."""
    if not room > 0.0:
        return 0.0
    return float(abs(t) if np.isinf(mu) else min(abs(t), mu * (room / r) ** (1.0 / (q - 1.0))))


@njit_sums
def _largest(h: Vector, g: Vector, lam: float, down: Vector, up: Vector) -> float:
    """The largest |t_j| of the coordinates that can move."""
    capped = len(g) > 0
    top = 0.0
    for j in range(len(h)):
        t = h[j] + lam * (g[j] if capped else 0.0)
        if (down[j] if t > 0.0 else up[j]) > 0.0:
            top = max(top, abs(t))
    return top


@njit_sums
def _length(h: Vector, q: float) -> float:
    """||h||_q, in units of the largest entry."""
    top, total = 0.0, 0.0
    for j in range(len(h)):
        top = max(top, abs(h[j]))
    if np.isinf(q) or not top > 0.0:
        return top
    for j in range(len(h)):
        a = abs(h[j]) / top
        total += a if q == 1.0 else a * a if q == 2.0 else a**q
    return float(top * (total if q == 1.0 else np.sqrt(total) if q == 2.0 else total ** (1.0 / q)))
