"""Kernels about one linear function: its dual norm, and the proved distance to where it is zero."""

from __future__ import annotations

import numpy as np

from layercert.arrays import FEW, Vector
from layercert.compiled.dense import clear
from layercert.compiled.halfspace import nearest_step
from layercert.compiled.jit import njit_sums
from layercert.compiled.norms import dual_exponent, lp_norm, over
from layercert.search.adaptive.model import Model

#: Squares up to this, and down to its inverse, leave room for their sums in the range of doubles.
SQUARES = 1e200


@njit_sums
def dual_norm(g: Vector, p: float) -> float:
    """||g||_q; powers are accurate to a few units, covered by the callers' 64."""
    return lp_norm(g, dual_exponent(p))


@njit_sums
def distance(g: Vector, s: float, drift: float, model: Model, w: Vector) -> float:
    """Proved lower bound of ||w|| over the box points with g.w - drift ||w|| <= -s; fills w with the nearest point.

    For every split |g| = g1 + g2 into nonnegative parts, s <= ||w|| (||g1||_q + drift) + g2.room (as
    Norm.prove_halfspace). The nearest point gives the best split: a coordinate stopped by the box keeps in g1 what the
    norm's slope explains. A box that falls short of s by less than the drift excludes nothing, nor does a halfspace
    with anything in it that is not a finite number: comparisons with NaN are false, whatever they ask.
    """
    size = s + drift
    for j in range(len(g)):
        size += abs(g[j])
    if not (s > 0.0 and size < np.inf):
        clear(w)
        return 0.0
    if np.isinf(model.p):
        return _distance_linf(g, s, drift, model, w)
    if model.p == 2.0:
        return _distance_l2(g, s, drift, model, w)
    return _distance_lp(g, s, drift, model, w)


@njit_sums
def _distance_linf(g: Vector, s: float, drift: float, model: Model, w: Vector) -> float:
    """w_j = -sign(g_j) min(t, room_j). What the full coordinates cost is linear in t between their rooms: Newton."""
    n, box_lo, box_hi, boxed = len(g), model.box_lo, model.box_hi, model.boxed
    up = over(n)
    t, cost, keep = 0.0, 0.0, 0.0
    if not boxed:
        for j in range(n):
            keep += abs(g[j])
        t = s / keep if keep > 0.0 else np.inf
        for j in range(n):
            w[j] = -t if g[j] > 0.0 else t
    else:
        for _ in range(n + 2):
            cost, keep = 0.0, 0.0
            for j in range(n):
                size = abs(g[j])
                room = -box_lo[j] if g[j] > 0.0 else box_hi[j]
                full = room <= t
                cost += size * room if full else 0.0
                keep += 0.0 if full else size
            further = (s - cost) / keep if keep > 0.0 else np.inf
            if not further > t * (1.0 + FEW):
                break
            t = further
            if np.isinf(t):
                break
        for j in range(n):
            w[j] = -min(t, -box_lo[j]) if g[j] > 0.0 else min(t, box_hi[j])
    left = s - cost * up - FEW * (s + cost)
    if left <= 0.0:
        return 0.0
    size = keep * up + drift
    return left / size * (1.0 - FEW) if size > 0.0 else np.inf


@njit_sums
def _distance_l2(g: Vector, s: float, drift: float, model: Model, w: Vector) -> float:
    """w_j = -sign(g_j) min(room_j, tau |g_j|), and g1_j = min(|g_j|, room_j / tau). Nothing is proved beyond 1e100."""
    n, box_lo, box_hi, boxed = len(g), model.box_lo, model.box_hi, model.boxed
    up = over(n)
    total = 0.0
    for j in range(n):
        total += g[j] * g[j]
    if not 1.0 / SQUARES < total < SQUARES:
        clear(w)
        if total == 0.0 and dual_norm(g, 2.0) == 0.0:  # all zero, not just too small for squares
            return np.inf if drift == 0.0 else s / drift * (1.0 - FEW)
        return 0.0
    if not boxed:
        for j in range(n):
            w[j] = -(s / total) * g[j]
        return s / (np.sqrt(total) * up + drift) * (1.0 - FEW)
    tau, cost, keep = 0.0, 0.0, 0.0
    for _ in range(n + 2):
        cost, keep = 0.0, 0.0
        for j in range(n):
            size = abs(g[j])
            room = -box_lo[j] if g[j] > 0.0 else box_hi[j]
            full = room <= tau * size
            cost += size * room if full and size > 0.0 else 0.0
            keep += 0.0 if full else size * size
        further = (s - cost) / keep if keep > 0.0 else np.inf
        if not further > tau * (1.0 + FEW):
            break
        tau = further
        if np.isinf(tau):
            break
    for j in range(n):
        w[j] = -min(tau * g[j], -box_lo[j]) if g[j] > 0.0 else min(-tau * g[j], box_hi[j])
    if np.isinf(tau):
        for j in range(n):
            w[j] = -box_lo[j] if g[j] > 0.0 else (box_hi[j] if g[j] < 0.0 else 0.0)
    else:
        cost, keep = 0.0, 0.0
        for j in range(n):
            size = abs(g[j])
            room = min(-box_lo[j] if g[j] > 0.0 else box_hi[j], 1e250)
            part = min(size, room / tau)
            cost += (size - part) * room
            keep += part * part
    left = s - cost * up - FEW * (s + cost)
    if left <= 0.0:
        return 0.0
    size = np.sqrt(keep) * up + drift  # the drift alone where every coordinate is full: it may still reach s
    return left / size * (1.0 - FEW) if size > 0.0 else np.inf


@njit_sums
def _distance_lp(g: Vector, s: float, drift: float, model: Model, w: Vector) -> float:
    n, p = len(g), model.p
    up = over(n)
    _, tau = nearest_step(g, s, model.box_lo, model.box_hi, model.boxed, p, w)
    if not model.boxed:
        size = dual_norm(g, p) * up + drift
        return s / size * (1.0 - FEW) if size > 0.0 else np.inf
    keep = np.empty(n)
    cost = 0.0
    top = 0.0
    for j in range(n):
        top = max(top, abs(g[j]))
    for j in range(n):
        size = abs(g[j])
        room = -model.box_lo[j] if g[j] > 0 else model.box_hi[j]
        keep[j] = size
        if size == 0.0 or not np.isfinite(room):
            continue
        if p == 1.0:
            keep[j] = min(size, tau)
        elif abs(w[j]) >= room:  # stopped by the box
            if np.isinf(p) or np.isinf(tau):
                keep[j] = 0.0
            else:
                free = tau * (size / top) ** (1.0 / (p - 1.0))
                if free > room:
                    keep[j] = size * (room / free) if p == 2.0 else size * (room / free) ** (p - 1.0)
        if keep[j] < size:
            cost += (size - keep[j]) * room
    cost *= up
    left = s - cost - FEW * (s + cost)
    if left <= 0.0:
        return 0.0
    size = dual_norm(keep, p) * up + drift
    return left / size * (1.0 - FEW) if size > 0.0 else np.inf
