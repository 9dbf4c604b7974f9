"""How far linear functions can fall on the ball inside the box, rounded up: max of -t.w, for each row t.

For every split |t| = t1 + t2 into parts >= 0 and every w of ball and box, -t.w <= r ||t1||_q + t2.room, where room_j is
how far coordinate j can go against t_j. Equality holds for t1_j = min(|t_j|, m room_j^(p-1)) with the right m, so that
m is what has to be found; any m gives a bound. In units of r the right m satisfies

    m^q (1 - sum over full of room^p) = sum over the others of |t|^q,      full: |t_j| > m room_j^(p-1).

Starting with none that is full, m falls from step to step and more become full, until none does: as Newton's method.
For p = 1 the sum of room over {|t| > m} must pass r. For p = inf the box alone is exact.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import TINY, Matrix, Vector, gamma
from layercert.certificate.setting import Setting, dual_norm

#: Most steps towards m; each bound on the way is valid.
STEPS = 30


def fall(setting: Setting, T: Matrix) -> Vector:
    """max -t.w over the ball and box, rounded up, for each row t of T."""
    n = T.shape[1]
    up = 1.0 + gamma(4 * n + 128)
    if math.isinf(setting.p):
        down, rise = setting.room
        return np.asarray((np.maximum(T, 0.0) @ down - np.minimum(T, 0.0) @ rise) * up + TINY)
    size = np.abs(setting.unweighted(T))
    if setting.domain is None:
        return setting.r * dual_norm(size, setting.q) * up + TINY
    down, rise = setting.room
    if setting.weights is not None:
        down, rise = (np.nextafter(way * setting.weights, np.inf) for way in (down, rise))
    room = np.where(T > 0, down, rise)
    part = np.minimum(size, _threshold(setting, size, room))
    over = (size - part) * room
    return np.asarray((setting.r * dual_norm(part, setting.q) + over.sum(axis=1)) * up + TINY)


def _threshold(setting: Setting, size: Matrix, room: Matrix) -> Matrix:
    """The most that each coordinate keeps in t1."""
    top = size.max(axis=1, initial=0.0)
    if setting.p == 1.0:
        order = np.argsort(-size, axis=1)
        filled = np.cumsum(np.take_along_axis(room, order, 1), axis=1)
        at = np.minimum((filled < setting.r).sum(axis=1), size.shape[1] - 1)
        kept = np.take_along_axis(size, np.take_along_axis(order, at[:, None], 1), 1)
        return np.asarray(np.where(filled[:, -1:] < setting.r, 0.0, kept))
    p, q = setting.p, setting.q
    share = np.minimum(room / setting.r, 1.0)
    unit = size / np.where(top > 0, top, 1.0)[:, None]
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        ceiling = share if p == 2.0 else share ** (p - 1.0)
        square, fill = (unit * unit, share * share) if p == 2.0 else (unit**q, share**p)
        m = square.sum(axis=1) ** (1.0 / q)
        full = np.zeros(size.shape, np.bool_)
        for _ in range(STEPS):
            more = unit > m[:, None] * ceiling
            if not (more & ~full).any():
                break
            full |= more
            left = 1.0 - (fill * full).sum(axis=1)
            m = np.where(left > 0, ((square * ~full).sum(axis=1) / np.maximum(left, TINY)) ** (1.0 / q), 0.0)
        return np.asarray(np.nan_to_num(m[:, None] * ceiling, nan=0.0) * top[:, None])
