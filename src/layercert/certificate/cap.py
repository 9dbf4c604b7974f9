"""The checker's one compiled kernel: lower bounds of linear functions on the cap {w in ball and box : g.w + s <= 0}.

For every lam >= 0 and every w of the cap, h.w >= h.w + lam (g.w + s) >= lam s - fall(h + lam g). The right side is
concave in lam; a few meeting tangents find a good lam, and any lam is sound. Here fall is the better of two bounds: r
times the dual norm over the coordinates that can move, and the sum of |h_j| times the room; for l_inf the second is
exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: Sums may be reordered (their error bound holds for any order), which lets them use vector instructions.
FAST = {"reassoc", "contract", "nsz"}
#: Evaluations of the concave function for each row.
ROUNDS = 6


@njit(cache=True, fastmath=FAST)
def lowest_on_cap(G: Any, g: Any, s: float, r: float, q: float, down: Any, up: Any) -> Any:
    """A lower bound, rounded down, of each row of G on the cap, and the multiplier that gave it.

    g of length 0 stands for no cap.
    """
    m, n = G.shape
    capped = len(g) > 0
    low, best_lam = np.empty(m), np.zeros(m)
    g_size = 0.0
    if capped:
        _, _, _, g_size = _evaluate(g, g, 0.0, 0.0, r, q, down, up)
    grow = 1.0 + 2.3e-16 * (2 * n + 64)
    for i in range(m):
        value, drop, slope, size = _evaluate(G[i], g, 0.0, s, r, q, down, up)
        best = -drop * grow
        if capped and slope > 0.0 and g_size > 0.0 and size > 0.0:
            left, left_value, left_slope = 0.0, value, slope
            right, right_value, right_slope = -1.0, 0.0, 0.0
            lam = 0.5 * size / g_size
            for _ in range(ROUNDS):
                value, drop, slope, _ = _evaluate(G[i], g, lam, s, r, q, down, up)
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


@njit(cache=True, fastmath=FAST)
def _evaluate(h: Any, g: Any, lam: float, s: float, r: float, q: float, down: Any, up: Any) -> Any:
    """For t = h + lam g: lam s - fall(t) (for guidance), fall(t), the slope in lam, and ||h||_q."""
    n = len(h)
    capped = len(g) > 0
    by_room, slope_room, power, slope_ball, size, top = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    top_slope = 0.0
    for j in range(n):
        gj = g[j] if capped else 0.0
        t = h[j] + lam * gj
        room = down[j] if t > 0.0 else up[j]
        a = abs(t)
        by_room += a * room
        slope_room += gj * room if t > 0.0 else -gj * room
        if q == 1.0:
            size += abs(h[j])
        elif np.isinf(q):
            size = max(size, abs(h[j]))
            if room > 0.0 and a > top:
                top = a
                top_slope = gj if t > 0.0 else -gj
        elif q == 2.0:
            size += h[j] * h[j]
            if room > 0.0:
                power += t * t
                slope_ball += t * gj
        else:
            size += abs(h[j]) ** q
            if room > 0.0 and a > 0.0:
                power += a**q
                slope_ball += a ** (q - 1.0) * gj if t > 0.0 else -(a ** (q - 1.0)) * gj
    if q == 1.0:
        return lam * s - by_room, by_room, s - slope_room, size
    if np.isinf(q):
        ball, slope = r * top, r * top_slope
    elif q == 2.0:
        length = np.sqrt(power)
        ball, slope = r * length, r * slope_ball / max(length, 1e-300)
        size = np.sqrt(size)
    else:
        length = power ** (1.0 / q)
        ball, slope = r * length, r * slope_ball / max(length ** (q - 1.0), 1e-300)
        size = size ** (1.0 / q)
    if by_room < ball:
        return lam * s - by_room, by_room, s - slope_room, size
    return lam * s - ball, ball, s - slope, size
