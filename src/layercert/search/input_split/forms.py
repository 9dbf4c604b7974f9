"""Kernel of the neurons' bounds on a box: affine forms, layer by layer (model.py has the mathematics)."""

from __future__ import annotations

import numpy as np

from layercert.arrays import TINY, Matrix, Vector
from layercert.bounds.relu import upper_line
from layercert.compiled.jit import known_to_kernels, njit_sums
from layercert.compiled.timer import Timer, late
from layercert.search.input_split.model import HUGE, Model, Scratch, Sides

known_to_kernels(upper_line)

#: Errors are sums of thousands of terms: their own rounding is far below this.
UP = 1.01
#: What `spread` says of a box that holds too large numbers, and of one that it had no time for.
TOO_LARGE, LATE = -1, -2
#: Products between two looks at the clock: less than a millisecond.
LOOK = 1 << 20


@njit_sums
def spread(model: Model, s: Scratch, mid: Vector, rad: Vector, side: Sides, timer: Timer) -> int:
    """Bounds of all neurons on the box; the number of unstable ones, TOO_LARGE, or LATE when the time is up.

    side is +1 or -1 where a neuron is known to be on or off (from a larger box), and is filled in.
    """
    n, L = len(mid), len(model.noff) - 1
    symbols, unstable, work = n, 0, 0
    for k in range(L):
        base, width = model.noff[k], model.noff[k + 1] - model.noff[k]
        live = 0
        for i in range(width):
            if side[base + i] < 0:
                continue
            row = s.form[live]
            work += n if k == 0 else s.number[k - 1] * symbols
            if work > LOOK:
                work = 0
                if late(timer):
                    return LATE
            if k == 0:
                value, reach, size, slip = _first(model, i, mid, rad, row)
                s.z0[i] = value
                low, high = -np.inf, np.inf
            else:
                value, size, slip, low, high = _centre(model, s, k, i, live)
                combine(s.W[k, live], s.number[k - 1], s.post, symbols, row)
                reach = 0.0
                for j in range(symbols):
                    reach += abs(row[j])
            if not size < HUGE:
                return TOO_LARGE
            slip = UP * slip + 4.0 * model.step * size + TINY
            lo = max(value - reach - slip, low - 2.0 * model.step * size)
            hi = min(value + reach + slip, high + 2.0 * model.step * size)
            at = base + i
            if side[at] > 0:
                lo = max(lo, 0.0)
            elif hi <= 0.0:
                side[at] = -1
                continue
            elif lo >= 0.0:
                side[at] = 1
            s.lo[at], s.hi[at] = lo, hi
            s.Q[at] = model.noise * (4.0 * max(abs(lo), abs(hi)) + 3.0 * size)
            s.live[k, live] = i
            s.value[live], s.reach[live], s.slip[live] = value, reach, slip
            live += 1
        s.number[k] = live
        fresh = 0
        for q in range(live):
            fresh += side[base + s.live[k, q]] == 0
        if not _activate(model, s, k, symbols, fresh, side, timer):
            return LATE
        symbols += fresh
        unstable += fresh
    return unstable


@njit_sums
def _first(model: Model, i: int, mid: Vector, rad: Vector, row: Vector) -> tuple[float, float, float, float]:
    """The form of a first-layer neuron: its symbols are the inputs."""
    value, reach, size = model.b[i], 0.0, abs(model.b[i])
    for j in range(len(mid)):
        w = model.W0[i, j]
        row[j] = w * rad[j]
        value += w * mid[j]
        reach += abs(row[j])
        size += abs(w) * (abs(mid[j]) + rad[j])
    return value, reach, size, 0.0


@njit_sums
def _centre(model: Model, s: Scratch, k: int, i: int, live: int) -> tuple[float, float, float, float, float]:
    """Centre and error terms of a row, and its bounds by interval arithmetic; gathers its weights."""
    base, below = model.noff[k], model.noff[k - 1]
    start = model.woff[k] + i * (base - below)
    value = model.b[base + i]
    size, slip, low, high = abs(value), 0.0, value, value
    weights = s.W[k, live]
    for q in range(s.number[k - 1]):
        j = s.live[k - 1, q]
        w = model.Wh[start + j]
        weights[q] = w
        value += w * s.centre[q]
        size += abs(w) * s.size[q]
        slip += abs(w) * s.rest[q]
        least, most = w * max(s.lo[below + j], 0.0), w * s.hi[below + j]
        low += min(least, most)
        high += max(least, most)
    return value, size, slip, low, high


@njit_sums
def combine(weights: Vector, count: int, rows: Matrix, width: int, out: Vector) -> None:
    """out = weights . rows, four rows at a time."""
    for j in range(width):
        out[j] = 0.0
    q = 0
    while q + 4 <= count:
        a, b, c, d = weights[q], weights[q + 1], weights[q + 2], weights[q + 3]
        ra, rb, rc, rd = rows[q], rows[q + 1], rows[q + 2], rows[q + 3]
        for j in range(width):
            out[j] += a * ra[j] + b * rb[j] + c * rc[j] + d * rd[j]
        q += 4
    while q < count:
        a = weights[q]
        row = rows[q]
        for j in range(width):
            out[j] += a * row[j]
        q += 1


@njit_sums
def _activate(model: Model, s: Scratch, k: int, symbols: int, fresh: int, side: Sides, timer: Timer) -> bool:
    """Forms of the live neurons' outputs; every unstable one brings a symbol of its own. False: no time for it."""
    base, new, n, work = model.noff[k], symbols, s.influence.shape[1], 0
    for q in range(s.number[k]):
        work += 8 * (symbols + fresh)  # memory that is touched for the first time is slow
        if work > LOOK:
            work = 0
            if late(timer):
                return False
        at = base + s.live[k, q]
        row, out = s.form[q], s.post[q]
        for j in range(n):
            s.influence[at, j] = abs(row[j])
        for j in range(symbols, symbols + fresh):
            out[j] = 0.0
        lo, hi = s.lo[at], s.hi[at]
        if side[at] > 0:
            for j in range(symbols):
                out[j] = row[j]
            s.centre[q], s.rest[q] = s.value[q], s.slip[q]
            s.size[q] = max(abs(s.value[q]) + s.reach[q], hi)
            continue
        su, iu = upper_line(lo, hi)
        s.su[at], s.iu[at] = su, iu
        for j in range(symbols):
            out[j] = su * row[j]
        out[new] = 0.5 * iu
        new += 1
        whole = abs(s.value[q]) + s.reach[q] + iu
        s.centre[q] = su * s.value[q] + 0.5 * iu
        s.rest[q] = s.slip[q] + model.step * whole
        s.size[q] = max(whole, hi)
    return True
