"""How far linear functions can fall on the ball inside the box, rounded up: max of -t.w, for each row t.

For every split |t| = t1 + t2 into parts >= 0 and every w of ball and box, -t.w <= r ||t1||_q + t2.room, where room_j is
how far coordinate j can go against t_j. Equality holds for t1_j = min(|t_j|, m (room_j / r)^(p-1)) with the right m, so
that m is what has to be found; any m gives a bound. With rooms in units of r the right m satisfies

    m^q (1 - sum over full of room^p) = sum over the others of |t|^q,      full: |t_j| > m room_j^(p-1).

Starting with none that is full, m falls from step to step and more become full, until none does: as Newton's method.
The powers are in units of the largest |t_j| that is not full: for p near 1 those of a tenth vanish already.
For p = 1 the rooms of {|t| > m} must add up to r. For p = inf the box alone is exact.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import TINY, Indices, Matrix, Vector
from layercert.certificate.setting import Reach, Setting
from layercert.compiled.jit import njit_sums

#: Most steps towards m, and when to stop for p = 2; each bound on the way is valid.
STEPS, NEAR = 30, 1e-6
#: Full is what exceeds its share by more than this: the largest of all equals m but for rounding, and is not full.
ROUNDED = 1.0 + 1e-12


def fall(setting: Setting, T: Matrix) -> Vector:
    """max -t.w over the ball and box, rounded up, for each row t of T."""
    return np.asarray(falls(np.ascontiguousarray(T), setting.reach))


def kept(setting: Setting, T: Matrix) -> Matrix:
    """t1 of the best split, up to rounding; any is sound."""
    if math.isinf(setting.p):
        return np.zeros_like(T)
    if setting.domain is None:
        return np.abs(T)
    return np.asarray(kept_parts(np.ascontiguousarray(T), setting.reach))


def lowest_point(setting: Setting, T: Matrix) -> Matrix:
    """Where each row is least on ball and box, roughly: a hint, nothing is proved with it."""
    down, rise = setting.room
    if math.isinf(setting.p):
        return np.where(T > 0, -down, rise)
    room, size = np.where(T > 0, down, rise), np.abs(T)
    m = thresholds(np.ascontiguousarray(T), setting.r, setting.p, setting.q, down, rise)
    if setting.p == 1.0:
        return np.asarray(-np.sign(T) * np.where(size >= m[:, None], room, 0.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        step = setting.r * (size / m[:, None]) ** (setting.q - 1.0)
    return np.asarray(-np.sign(T) * np.minimum(np.nan_to_num(step, nan=0.0, posinf=np.inf), room))


@njit_sums
def falls(T: Matrix, reach: Reach) -> Vector:
    """`fall` for kernels. What is not a number, or too large for a sum, has no finite fall."""
    if np.isinf(reach.p):
        out = fall_linf(T, reach.down, reach.rise)
    elif not reach.boxed:
        out = reach.r * dual_norms(T, reach.q)
    elif reach.p == 2.0:
        out = fall_l2(T, reach.r, reach.down, reach.rise)
    else:
        part = kept_parts(T, reach)
        out = reach.r * dual_norms(part, reach.q)
        for i in range(len(T)):
            over = 0.0
            for j in range(T.shape[1]):
                over += (abs(T[i, j]) - part[i, j]) * (reach.down[j] if T[i, j] > 0.0 else reach.rise[j])
            out[i] = out[i] + over if np.isfinite(np.sum(T[i])) else np.nan
    return out * reach.up + TINY


@njit_sums
def kept_parts(T: Matrix, reach: Reach) -> Matrix:
    """t1 of the best split inside a box, for finite p."""
    out, m = np.abs(T), thresholds(T, reach.r, reach.p, reach.q, reach.down, reach.rise)
    for i in range(len(T)):
        for j in range(T.shape[1]):
            most = m[i]
            if reach.p != 1.0:
                share = min((reach.down[j] if T[i, j] > 0.0 else reach.rise[j]) / reach.r, 1.0)
                most *= share ** (reach.p - 1.0)
            out[i, j] = min(out[i, j], most)
    return out


@njit_sums
def dual_norms(T: Matrix, q: float) -> Vector:
    """||t||_q of each row, scaled against overflow; not a number where an entry is none."""
    out = np.empty(len(T))
    for i in range(len(T)):
        top, total = 0.0, 0.0
        for j in range(T.shape[1]):
            top, total = max(top, abs(T[i, j])), total + abs(T[i, j])
        if q == 1.0 or top == 0.0 or np.isnan(total) or np.isinf(top):
            out[i] = total
        elif np.isinf(q):
            out[i] = top
        else:
            power = 0.0
            for j in range(T.shape[1]):
                size = abs(T[i, j]) / top
                power += size * size if q == 2.0 else size**q
            out[i] = (np.sqrt(power) if q == 2.0 else power ** (1.0 / q)) * top
    return out


@njit_sums
def tilted(G: Matrix, lam: Vector, g: Matrix, half: Indices) -> Matrix:
    """G + lam g, row by row, in place of G; row i has the function g[half[i]]."""
    for i in range(len(G)):
        if lam[i] != 0.0:
            own = g[half[i]]
            for j in range(len(own)):
                G[i, j] += lam[i] * own[j]
    return G


@njit_sums
def fall_linf(T: Matrix, down: Vector, up: Vector) -> Vector:
    """Coordinate by coordinate, which is exact; not yet rounded up."""
    out = np.empty(len(T))
    for i in range(len(T)):
        total = 0.0
        for j in range(T.shape[1]):
            total += max(T[i, j], 0.0) * down[j] + max(-T[i, j], 0.0) * up[j]
        out[i] = total if np.isfinite(np.sum(T[i])) else np.nan
    return out


@njit_sums
def fall_l2(T: Matrix, r: float, down: Vector, up: Vector) -> Vector:
    """r ||t1||_2 + t2.room for each row, not yet rounded up."""
    out = np.empty(len(T))
    falls, rises = np.minimum(down / r, 1.0), np.minimum(up / r, 1.0)
    for i in range(len(T)):
        whole = 0.0
        for j in range(T.shape[1]):
            whole += abs(T[i, j])
        if whole > 1e-100 and whole < 1e100:
            out[i] = r * split_l2(T[i], falls, rises)
        else:  # nothing, no number at all, or none whose squares are
            out[i] = r * whole
    return out


@njit_sums
def split_l2(t: Vector, falls: Vector, rises: Vector) -> float:
    """||t1||_2 + t2.room in units of r, for nearly the best m: the bound is least there, so that the error of m is
    squared. A number and its opposite, one of which is cut off at 0, stand for |t|: such loops are vectorised."""
    n, power = len(t), 0.0
    for j in range(n):
        power += t[j] * t[j]
    m = np.sqrt(power)  # too large: whatever has no room counts
    for _ in range(STEPS):
        power, filled, limit = 0.0, 0.0, m * ROUNDED
        for j in range(n):
            a, b = max(t[j], 0.0), max(-t[j], 0.0)
            full = 1.0 if a > limit * falls[j] else 0.0
            full_up = 1.0 if b > limit * rises[j] else 0.0
            filled += full * falls[j] * falls[j] + full_up * rises[j] * rises[j]
            power += (1.0 - full) * a * a + (1.0 - full_up) * b * b
        if filled >= 1.0:  # by rounding: the full ones fill the ball, and m is what they need
            break
        last, m = m, np.sqrt(power / (1.0 - filled))
        if not m < last * (1.0 - NEAR):
            break
    total, over = 0.0, 0.0
    for j in range(n):
        a, b = max(t[j], 0.0), max(-t[j], 0.0)
        part, part_up = min(a, m * falls[j]), min(b, m * rises[j])
        total += part * part + part_up * part_up
        over += (a - part) * falls[j] + (b - part_up) * rises[j]
    return float(np.sqrt(total) + over + TINY)  # squares of what is smaller vanish


@njit_sums
def thresholds(T: Matrix, r: float, p: float, q: float, down: Vector, up: Vector) -> Vector:
    """m for each row; a hint, any m >= 0 is sound."""
    rows, n = T.shape
    out = np.zeros(rows)
    size, share = np.empty(n), np.empty(n)
    for i in range(rows):
        top = 0.0
        for j in range(n):
            top = max(top, abs(T[i, j]))
        if not (top > 0.0 and top < np.inf):
            continue
        for j in range(n):
            size[j] = abs(T[i, j]) / top
            share[j] = min((down[j] if T[i, j] > 0.0 else up[j]) / r, 1.0)
        out[i] = top * (_full_l1(size, share) if p == 1.0 else _newton(size, share, p, q))
    return out


@njit_sums
def _full_l1(size: Vector, share: Vector) -> float:
    """The size at which the rooms of the larger ones fill the ball; 0 where they never do."""
    left = 1.0
    for at in np.argsort(-size):
        left -= share[at]
        if left <= 0.0:
            return float(size[at])
    return 0.0


@njit_sums
def _newton(size: Vector, share: Vector, p: float, q: float) -> float:
    """m in units of the largest size, for 1 < p < inf."""
    m = np.inf
    for _ in range(STEPS):
        unit = 1.0  # squares need no other
        if p != 2.0:
            unit = 0.0
            for j in range(len(size)):
                if not _is_full(size[j], share[j], m, p):
                    unit = max(unit, size[j])
        power, filled = 0.0, 0.0
        for j in range(len(size)):
            if _is_full(size[j], share[j], m, p):
                filled += share[j] * share[j] if p == 2.0 else share[j] ** p
            elif unit > 0.0:
                power += size[j] * size[j] if p == 2.0 else (size[j] / unit) ** q
        if filled >= 1.0:  # by rounding: the full ones fill the ball, and m is what they need
            break
        last, m = m, unit * (power / (1.0 - filled)) ** (1.0 / q)
        if not m < last * (1.0 - 1e-12):
            break
    return float(m)


@njit_sums
def _is_full(size: float, share: float, m: float, p: float) -> bool:
    if not share > 0.0:
        return True
    return size > m * (share if p == 2.0 else share ** (p - 1.0)) * ROUNDED
