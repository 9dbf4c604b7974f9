"""Kernels for the part of the ball where unsafe points can be: the least value of a linear function there.

A node's halfspace g.w + s <= 0 holds for all its unsafe points, and only these matter. So pre-activations need bounds
on the cap {w in the ball and the box: g.w <= -s} alone; the nearer the node's bound is to U, the smaller the cap. For
every multiplier lam >= 0

    h.w >= h.w + lam (g.w + s) >= lam s - fall(h + lam g)      for all w of the cap,

a concave function of lam, maximised by intersecting tangents. Any lam is sound; rounding is taken off at the end.
"""

from __future__ import annotations

import numpy as np

from layercert.programs.kernels.jit import inner_sums
from layercert.search.adaptive.fall import fall

#: Evaluations of the concave function; more bring nothing measurable.
ROUNDS = 7


@inner_sums
def lowest(h, sign, U, model, g, s, g_size, warm):  # type: ignore[no-untyped-def]
    """A lower bound, rounded down, of sign*h.w on the cap, and its lam; g_size = ||g||_q, or 0 when there is no cap.

    `warm` is room for one number (fall.py).
    """
    warm[0] = 0.0
    up = 1.0 + 2.3e-16 * (2 * len(h) + 128)
    drop, tilt, h_size = fall(h, sign, 0.0, g, U, model, warm)
    value, slope = -drop * up, s - tilt
    best, at = value, 0.0
    if g_size > 0.0 and slope > 0.0 and h_size > 0.0:
        left, left_value, left_slope = 0.0, value, slope
        lam = 0.5 * h_size / g_size
        right, right_value, right_slope = -1.0, 0.0, 0.0
        for _ in range(ROUNDS):
            drop, tilt, _ = fall(h, sign, lam, g, U, model, warm)
            value, slope = lam * s - drop * up, s - tilt
            # the entries of h + lam g are rounded, whatever cancels
            proved = value - 1e-15 * U * (h_size + lam * g_size) - 1e-15 * lam * abs(s)
            if proved > best:
                best, at = proved, lam
            if slope > 0.0:
                left, left_value, left_slope = lam, value, slope
                if right < 0.0:
                    lam *= 3.0
                    continue
            else:
                right, right_value, right_slope = lam, value, slope
            bend = left_slope - right_slope
            if bend <= 1e-12 * abs(left_slope):
                break
            meet = (right_value - left_value + left_slope * left - right_slope * right) / bend
            if not left < meet < right:
                break
            # no gain to be had between the tangents
            if left_value + left_slope * (meet - left) - best <= 1e-3 * abs(best):
                break
            lam = meet
    return best, at


@inner_sums
def minimiser(h, lam, U, model, g, w):  # type: ignore[no-untyped-def]
    """Where (h + lam g).w is least on the ball (roughly, with a box and p < inf): a hint, nothing is proved."""
    n = len(h)
    length = 0.0
    for j in range(n):
        t = h[j] + lam * g[j]
        room = min(U, -model.box_lo[j] if t > 0.0 else model.box_hi[j])
        if np.isinf(model.p):
            w[j] = -room if t > 0.0 else room
        else:
            w[j] = -t if room > 0.0 else 0.0
            length += w[j] * w[j]
    if not np.isinf(model.p) and length > 0.0:
        for j in range(n):
            w[j] *= U / np.sqrt(length)
            w[j] = min(max(w[j], model.box_lo[j]), model.box_hi[j])
