"""Kernels for the part of the ball where unsafe points can be: the least value of a linear function there.

A node's halfspace g.w + s <= 0 holds for all its unsafe points, and only these matter. So pre-activations need bounds
on the cap {w in the ball and the box: g.w <= -s} alone; the nearer the node's bound is to U, the smaller the cap. For
every multiplier lam >= 0

    h.w >= h.w + lam (g.w + s) >= lam s - fall(h + lam g)      for all w of the cap,

a concave function of lam, maximised by intersecting tangents. Any lam is sound; rounding is taken off at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import FEW, Vector
from layercert.compiled.jit import inner_sums
from layercert.compiled.norms import over
from layercert.search.adaptive.fall import fall, room_of
from layercert.search.adaptive.model import Model

#: Evaluations of the concave function; more bring nothing measurable.
ROUNDS = 7
#: Tangents that differ by less than this, relative to their slope, meet nowhere that could be told.
PARALLEL = 1e-12
#: Where less than this is to be gained between the tangents, relative to the best value, the search for lam ends.
LITTLE = 1e-3
#: Steps towards the least point of l_p inside a box.
STEPS = 8
#: They end where the length changes by less than this.
STEADY = 0.02


class Cap(NamedTuple):
    """{w in the box: ||w|| <= U and g.w + s <= 0}."""

    U: float
    g: Vector
    s: float
    size: float  # ||g||_q; 0: no halfspace, the whole ball


def whole_ball(inputs: int, U: float) -> Cap:
    """The ball inside the box."""
    return Cap(float(U), np.zeros(inputs), 0.0, 0.0)


@inner_sums
def lowest(h: Vector, sign: float, cap: Cap, model: Model, warm: Vector) -> tuple[float, float]:
    """A lower bound, rounded down, of sign*h.w on the cap, and its lam; `warm` is room for one number (fall.py)."""
    U, g, s, g_size = cap.U, cap.g, cap.s, cap.size
    warm[0] = 0.0
    up = over(len(h))
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
            proved = value - FEW * U * (h_size + lam * g_size) - FEW * lam * abs(s)
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
            if bend <= PARALLEL * abs(left_slope):
                break
            meet = (right_value - left_value + left_slope * left - right_slope * right) / bend
            if not left < meet < right:
                break
            # no gain to be had between the tangents
            if left_value + left_slope * (meet - left) - best <= LITTLE * abs(best):
                break
            lam = meet
    return best, at


@inner_sums
def minimiser(h: Vector, lam: float, cap: Cap, model: Model, w: Vector) -> None:
    """Where (h + lam g).w is least on ball and box (roughly, with a box and other p): a hint, nothing is proved."""
    U, g = cap.U, cap.g
    n, p = len(h), model.p
    if p == 1.0:
        fill(h, lam, U, model, g, w)
        return
    if np.isinf(p):
        for j in range(n):
            t = h[j] + lam * g[j]
            room = room_of(t, j, U, model)
            w[j] = -room if t > 0.0 else room
        return
    top, mu = 0.0, 0.0
    for j in range(n):
        t = h[j] + lam * g[j]
        w[j] = -t if room_of(t, j, U, model) > 0.0 else 0.0
        top = max(top, abs(w[j]))
    if top == 0.0:
        return
    for j in range(n):
        w[j] *= (abs(w[j]) / top) ** (1.0 / (p - 1.0) - 1.0) / top if p != 2.0 and w[j] != 0.0 else 1.0 / top
    for _ in range(STEPS if model.boxed else 1):  # the length of what the box leaves of mu w must be U
        length = 0.0
        for j in range(n):
            size = abs(w[j]) if mu == 0.0 else min(abs(w[j]), mu * room_of(-w[j], j, U, model))
            length += size * size if p == 2.0 else size**p
        last, mu = mu, (np.sqrt(length) if p == 2.0 else length ** (1.0 / p)) / U
        if mu == 0.0:
            return
        if last - mu < STEADY * mu and last > 0.0:
            break
    for j in range(n):
        w[j] = min(max(w[j] / mu, model.box_lo[j]), model.box_hi[j])


@inner_sums
def fill(h: Vector, lam: float, U: float, model: Model, g: Vector, w: Vector) -> None:
    """For p = 1: the steepest coordinates go as far as the box lets them, until the ball is used up."""
    n, left = len(h), U
    for j in range(n):
        w[j] = 0.0
    while left > 0.0:
        at, top = -1, 0.0
        for j in range(n):
            t = h[j] + lam * g[j]
            if w[j] == 0.0 and abs(t) > top and room_of(t, j, U, model) > 0.0:
                at, top = j, abs(t)
        if at < 0:
            return
        t = h[at] + lam * g[at]
        used = min(left, room_of(t, at, U, model))
        w[at] = -used if t > 0.0 else used
        left -= used
