"""Tilted distance programs: minimise ||w||_p + h.w over the rows, as GeoCert-Lip's priority needs [E9].

For multipliers lam the Lagrangian is ||w|| + (h + A^T lam).w - lam.r. With g = h + A^T lam split as |g| = g1 + g2 its
least value over the box is at least -lam.r - g2.room - delta*||w||, where delta = ||g1||_q - 1 if that is positive.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.norms import Norm
from layercert.programs.program import Programs


def prove_tilted(programs: Programs, g: Matrix, s: Vector, drift: Vector) -> Vector:
    """Proved lower bounds; g = A^T lam, s = -lam.r less its margins, drift = the rows' growth under lam.

    Multipliers from a solver lie on the dual sphere, so a small delta is the rule. Its cost is bounded in two ways: by
    the box (||w|| <= reach), and by the value itself, value >= (1 - ||h||_q)*||w||, which gives
    value >= s' - delta*value/(1 - ||h||_q), that is value >= s' / (1 + delta/(1 - ||h||_q)) for s' >= 0.
    """
    assert programs.tilt is not None
    h, norm, box = programs.tilt, programs.norm, programs.box
    up = 1.0 + gamma(4 * len(h) + 64)
    total = g + h
    error = gamma(4) * (np.abs(g) + np.abs(h))
    size = np.abs(total)
    steep = float(norm.dual(h)) * up
    value, reach = s, math.inf
    if box is not None:
        reach = norm.value(np.maximum(-box.lo, box.hi)) * up
        room = box.room(total)
        keep = _keep(size, room, np.maximum(1.0 - norm.dual(error) - drift, 0.0), norm)
        over = np.where(keep < size, size - keep, 0.0) * up
        cost = (over * np.where(over > 0, room, 0.0)).sum(axis=1) * up
        value, size = s - cost, keep
        value = value - gamma(4) * (np.abs(s) + cost)
    length = (norm.dual(size) + norm.dual(error) + drift) * up
    delta = np.maximum(length - 1.0, 0.0) * up
    best = np.where(delta == 0.0, value, -math.inf)
    if steep < 1.0:
        shrink = (1.0 + delta / ((1.0 - steep) * (1.0 - gamma(4)))) * (1.0 + gamma(8))
        best = np.maximum(best, np.where(value > 0, value / shrink, -math.inf))
    loss = delta * np.where(delta > 0, reach, 0.0)
    best = np.fmax(best, value - loss - gamma(4) * (np.abs(value) + loss))
    # without multipliers: ||w|| + h.w >= (1 - ||h||_q)*||w||, against the box where that is negative
    floor = 0.0 if steep <= 1.0 else (1.0 - steep) * reach * up
    return np.fmax(best, floor)  # a NaN proves nothing


def _keep(size: Matrix, room: Matrix, target: Vector, norm: Norm) -> Matrix:
    """g1 of the split: maximise g1.room subject to 0 <= g1 <= |g|, ||g1||_q <= target (all of |g| at infinite room).

    Stationarity gives g1 = min(|g|, kappa*room^(p-1)), and the norm of that is increasing in kappa: one sort finds it.
    """
    endless = np.isinf(room)
    room = np.where(endless, 0.0, room)
    if norm.p == 1.0:  # q = inf: every coordinate on its own
        return np.where(endless, size, np.minimum(size, target[:, None]))
    if math.isinf(norm.p):  # q = 1: the roomiest first
        order = np.argsort(-room, axis=1, kind="stable")
        wanted = np.take_along_axis(np.where(endless, 0.0, size), order, 1)
        left = target - np.where(endless, size, 0.0).sum(axis=1)
        before = np.cumsum(wanted, axis=1) - wanted
        kept = np.empty_like(size)
        np.put_along_axis(kept, order, np.clip(left[:, None] - before, 0.0, wanted), 1)
        return np.where(endless, size, kept)
    q = norm.q
    top = room.max(axis=1, keepdims=True, initial=0.0)
    shape = (room / np.where(top > 0, top, 1.0)) ** (norm.p - 1.0)
    live = ~endless & (shape > 0)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        stop = np.where(live, size / np.where(live, shape, 1.0), math.inf)  # kappa at which all of |g| is kept
        order = np.argsort(stop, axis=1, kind="stable")
        stop = np.take_along_axis(stop, order, 1)
        volume = np.take_along_axis(np.where(live, size, 0.0), order, 1) ** q
        slope = np.take_along_axis(np.where(live, shape, 0.0), order, 1) ** q
        filled = np.cumsum(volume, axis=1) - volume
        rest = np.cumsum(slope[:, ::-1], axis=1)[:, ::-1]
        left = target**q - (np.where(endless, size, 0.0) ** q).sum(axis=1)
        kappa = np.maximum((left[:, None] - filled) / np.where(rest > 0, rest, 1.0), 0.0) ** (1.0 / q)
    enough = (rest > 0) & (kappa <= stop)
    first = enough.argmax(axis=1)[:, None]
    chosen = np.where(np.take_along_axis(enough, first, 1), np.take_along_axis(kappa, first, 1), math.inf)
    with np.errstate(invalid="ignore"):
        kept = np.where(live, np.minimum(size, np.where(live, chosen * shape, 0.0)), 0.0)
    return np.where(endless, size, kept)
