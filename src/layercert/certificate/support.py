"""How far a linear function can fall on the ball cut by the box, rounded up.

For every split |g| = g1 + g2 into parts >= 0, -g.w <= r*||g1||_q + g2.room for all w in the ball and the box. The split
is found from the point where the function is least; whatever it is, the formula is a valid bound.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.certificate.setting import Setting, dual_norm


def lowest_point(setting: Setting, G: Matrix) -> Matrix:
    """For each row g, the w of the ball and box where g.w is least (up to rounding; used for guidance only)."""
    down, up = setting.room
    size = np.abs(G)
    room = np.where(G > 0, down, up)
    if math.isinf(setting.p):
        return -np.sign(G) * room
    if setting.p == 1.0:
        order = np.argsort(-size, axis=1)
        space = np.take_along_axis(np.where(size > 0, room, 0.0), order, 1)
        left = setting.r - (np.cumsum(space, axis=1) - space)
        u = np.zeros_like(G)
        np.put_along_axis(u, order, np.clip(left, 0.0, space), 1)
        return -np.sign(G) * u
    shape = size / np.maximum(size.max(axis=1, keepdims=True, initial=0.0), 1e-300)
    shape = shape ** (setting.q - 1.0)
    # u = min(room, tau*shape) with ||u||_p = r: the coordinates fill up in the order of room/shape; in units of r,
    # since powers of r may leave the range of doubles
    space = room / setting.r
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        stop = np.where(shape > 0, space / shape, np.inf)
        order = np.argsort(stop, axis=1)
        power = np.take_along_axis(shape**setting.p, order, 1)
        filled = np.cumsum(np.take_along_axis(np.where(shape > 0, space, 0.0) ** setting.p, order, 1), axis=1)
        rest = np.cumsum(power[:, ::-1], axis=1)[:, ::-1]
        before = np.concatenate([np.zeros((len(G), 1)), filled[:, :-1]], axis=1)
        tau = (np.maximum(1.0 - before, 0.0) / rest) ** (1.0 / setting.p)
    fits = tau <= np.take_along_axis(stop, order, 1)
    first = fits.argmax(axis=1)
    chosen = np.where(fits.any(axis=1), tau[np.arange(len(G)), first], np.inf)
    with np.errstate(invalid="ignore"):
        moved = np.where(shape > 0, chosen[:, None] * shape, 0.0)
        u = np.where(moved < space, np.minimum(moved * setting.r, room), np.where(shape > 0, room, 0.0))
    return -np.sign(G) * u


def unfilled(setting: Setting, G: Matrix, W: Matrix) -> Matrix:
    """g1 of the split for the points W: all of |g| where the box does not bind, what the norm explains elsewhere."""
    down, up = setting.room
    size, u = np.abs(G), np.abs(W)
    room = np.where(G > 0, down, up)
    if math.isinf(setting.p):
        return np.asarray(np.where(room < setting.r, 0.0, size))
    full = u >= room
    if setting.p == 1.0:
        threshold = np.where(full, 0.0, size).max(axis=1, keepdims=True, initial=0.0)
        return np.asarray(np.minimum(size, threshold))
    # stationarity: g1 = c * u^(p-1), with the c of the longest u that the box does not stop
    free = np.where(full, 0.0, u)
    k = free.argmax(axis=1)[:, None]
    longest = np.take_along_axis(free, k, 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(longest > 0, np.take_along_axis(size, k, 1) * (u / longest) ** (setting.p - 1.0), 0.0)
    part = np.where(full, share, size)
    return np.asarray(np.clip(np.nan_to_num(part, nan=0.0, posinf=np.inf), 0.0, size))


def fall(setting: Setting, G: Matrix) -> Vector:
    """max -g.w over the ball and box, rounded up, for each row of G."""
    down, up = setting.room
    size = np.abs(G)
    room = np.where(G > 0, down, up)
    keep = size if setting.domain is None else unfilled(setting, G, lowest_point(setting, G))
    over = np.maximum(size - keep, 0.0) * (1.0 + gamma(4))
    total = setting.r * dual_norm(keep, setting.q) + (over * room).sum(axis=1)
    return np.asarray(total * (1.0 + gamma(2 * G.shape[1] + 64)))
