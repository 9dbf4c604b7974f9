"""p = inf and p = 1: a dual simplex method with a compact basis and long steps (bound flipping).

    minimise ||w||_p  subject to  A w <= r, row e an equality, every coordinate within its room

For multipliers lam the sign of g = A^T lam decides where each coordinate goes. p = inf: w_c = -sign(g_c) min(t, room_c)
with the common length t; homogenised by tau = 1/t, s = tau w. p = 1: w_c is at its bound where |g_c| > 1 and zero where
|g_c| < 1. At a kink (g_c = 0 for p = inf, g_c = -1 or 1 for p = 1) a coordinate may lie anywhere between: it is basic.
Active rows K and basic columns B (for p = inf tau is the first of them) meet in the basis, a k x k matrix; its inverse
X is kept. A dual step may pass many kinks before its slope is used up, each turns one coordinate to its other side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import axpy, border, copy, dot, remove, replace_column, replace_row
from layercert.compiled.jit import inner, njit
from layercert.compiled.timer import Timer, late
from layercert.programs.kernels.lp import (
    Basis,
    BasisScratch,
    Lp,
    add_column,
    basic_values,
    bind,
    copy_basis,
    crossed,
    length_of,
    load,
    new_basis,
    proves_cutoff,
    refresh,
    rescale,
    turn,
)
from layercert.programs.kernels.ray import (
    dual_ray,
    first_row_to_leave,
    kinks_ahead,
    last_kink,
    row_weight,
    where_it_stops,
)
from layercert.programs.kernels.scaled import FAILED, FAR, NO, NO_ROW, OPTIMAL, ZERO
from layercert.programs.kernels.units import in_own_units, in_units, is_time_to_look, rooms, unit_rows

#: Share of a row's margin that the method itself uses; the rest is left to the rounding of the final check.
SHARE = 0.25
#: How far a basic coordinate may lie outside its bounds, in units of the common length.
OUTSIDE = 1e-13
#: Pivots between two fresh factorisations of the basis.
REFRESH = 40
#: Steps without progress after which the choice of the next row is shaken, to leave a cycle of degenerate vertices.
PATIENCE = 30
#: A pivot smaller than this, with unit rows, leaves a singular basis.
SINGULAR = 1e-14


class Exchange(NamedTuple):
    """A step of the method: what enters the basis, what leaves it, and how far the dual goes.

    In comes the violated row, or out goes the column at a `position` of B: the other one is -1. In comes the column of
    the kink `coming`, or out goes the row K[out]: the other one is -1. `sign` is the side of the violation, t the
    length of the dual step, and tau the inverse of the present length (p = inf).
    """

    row: int
    position: int
    sign: float
    out: int
    coming: int
    t: float
    tau: float


@inner
def price(
    lp: Lp, basis: Basis, k: int, e: int, tau: float, length: float, shaken: int, work: BasisScratch
) -> tuple[int, int, float]:
    """What to repair next, by dual steepest edge: (row, -1, violation), (-1, place in B, violation) or (-1, -1, 0)."""
    A, slack, growth, up, down = lp.A, lp.slack, lp.growth, lp.up, lp.down
    tight, pinned, B, X, kink = basis.tight, basis.pinned, basis.B, basis.X, basis.kink
    activity, z, q = work.activity, work.z, work.q
    reach = 1.0 if lp.homogeneous else length
    if e >= 0 and not tight[e] and abs(activity[e]) > SHARE * (slack[e] * tau + growth[e] * reach):
        return e, -1, activity[e]
    best, row, position, violation = 0.0, -1, -1, 0.0
    for i in range(len(slack)):
        v = activity[i]
        if v > best and not tight[i] and v > SHARE * (slack[i] * tau + growth[i] * reach):
            score = v / np.sqrt(row_weight(A, pinned, B, X, k, i, q))
            if shaken > 0:
                shaken = (shaken * 1103515245 + 12345) & 0x7FFFFFFF
                score *= 0.1 + (shaken >> 16) / 32768.0
            if score > best:
                best, row, violation = score, i, v
    outside = (OUTSIDE if shaken == 0 else 100.0 * OUTSIDE) * reach
    for b in range(1 if lp.homogeneous else 0, k):
        high, low = up[B[b]], -down[B[b]]
        if lp.homogeneous:
            high, low = min(1.0, tau * high), max(-1.0, tau * low)
        elif kink[b] < 0.0:
            low = 0.0
        else:
            high = 0.0
        if z[b] > high + outside or z[b] < low - outside:
            v = z[b] - high if z[b] > high else z[b] - low
            score = abs(v) / np.sqrt(dot(X[b], X[b], k))
            if score > best:
                best, row, position, violation = score, -1, b, v
    return row, position, violation


@inner
def pivot(lp: Lp, basis: Basis, k: int, exchange: Exchange, work: BasisScratch) -> int:
    """Walk t along the ray, turn what was passed, then exchange. Returns the new k, -1 when the basis is singular."""
    row, position, sign, out, coming, t, tau = exchange
    AT, up, down = lp.AT, lp.up, lp.down
    K, B, kink, X, lam, g, side, held, moving, left, _, basic, tight = basis
    dg, when, order, u, p = work.dg, work.when, work.order, work.u, work.z
    n = len(g)
    for a in range(k):
        lam[K[a]] += t * work.dlam[a]
    if row >= 0:
        lam[row] += sign * t
    axpy(t, dg, g)
    leaving = B[position] if position >= 0 else -1
    passed = kink[position] if position >= 0 else 0.0
    count = 0
    for j in range(n if lp.homogeneous else 2 * n):
        order[count] = j
        count += when[j] < t
    turn(lp, basis, order, count, dg, tau, work)
    at = 0.0 if lp.homogeneous else (-1.0 if coming < n else 1.0)
    column = coming if coming < n else coming - n
    if leaving >= 0:
        if column == leaving:
            kink[position] = g[column] = at
            return k
        if not lp.homogeneous and when[leaving if sign > 0.0 else n + leaving] < t and sign * passed > 0.0:
            passed = -passed
        basic[leaving] = False
        side[leaving] = crossed(-sign, passed, -sign)
        if lp.homogeneous:
            held[leaving] = (up[leaving] if sign > 0.0 else down[leaving]) * tau <= 1.0
        add_column(AT[leaving], 1.0, side[leaving], held[leaving], up[leaving], down[leaving], moving, left)
    if column >= 0:
        add_column(AT[column], -1.0, side[column], held[column], up[column], down[column], moving, left)
        basic[column], g[column] = True, at
        for a in range(k):
            u[a] = AT[column, K[a]]
        for b in range(k):
            p[b] = dot(X[b], u, k)
    else:
        lam[K[out]], tight[K[out]] = 0.0, False
    if row >= 0:
        tight[row] = True
    if row >= 0 and column >= 0:
        corner = AT[column, row] - dot(work.q, u, k)
        if not abs(corner) > SINGULAR:
            return -1
        border(X, k, p, work.q, corner)
        K[k], B[k], kink[k] = row, column, at
        return k + 1
    if row >= 0:
        replace_row(X, k, work.q, out)
        K[out] = row
        return k
    if column >= 0:
        replace_column(X, k, p, position)
        B[position], kink[position] = column, at
        return k
    remove(X, k, out, position)
    last = k - 1
    K[out], B[position], kink[position] = K[last], B[last], kink[last]
    return last


@inner
def ascend(lp: Lp, basis: Basis, k: int, e: int, U: float, fresh: bool, work: BasisScratch) -> tuple[int, int]:
    """Dual simplex from the present basis to the optimum with row e an equality; status and k.

    Where the rows contradict each other the multipliers are left as the ray that proves it.
    """
    since, best, stalled = 0, -1.0, 0
    for step in range(20 * len(lp.r) + 500):
        if is_time_to_look(step, lp.A) and late(lp.timer):
            return FAILED, k
        if lp.homogeneous and not rescale(basis, k, work):
            return FAILED, k
        tau = basic_values(lp, basis, k, work)
        if lp.homogeneous and tau > 0.0 and bind(lp, basis, tau):
            continue
        length = length_of(lp, basis, k, tau, work)
        if length >= min(U, 1e12) and (not np.inf > U or proves_cutoff(lp, basis, k, length, U)):
            return FAR, k
        stalled = 0 if length > best * (1.0 + 1e-13) else stalled + 1
        best = max(best, length)
        row, position, violation = price(lp, basis, k, e, tau, length, step if stalled > PATIENCE else 0, work)
        sign = 1.0 if violation > 0.0 else -1.0
        out, coming, t = -1, -1, 0.0
        if row >= 0 or position >= 0:
            dual_ray(lp, basis, k, row, position, sign, work)
            out, t = first_row_to_leave(basis, k, e, work.dlam)
            places = kinks_ahead(lp, basis, k, position, sign, tau, work)
            coming = where_it_stops(work.when, work.weight, places, t, abs(violation), work.order, work.spare)
            if lp.homogeneous and coming < 0 and out < 0:
                # held coordinates made the slope positive for ever, at this t: any kink is progress, take the last
                coming = last_kink(work.when, places)
            if coming >= 0:
                out, t = -1, work.when[coming]
        ends = out < 0 and coming < 0
        if not fresh and (ends or since >= REFRESH):  # an end is believed only in fresh arithmetic
            if not refresh(lp, basis, k, tau, work):
                return FAILED, k
            since, fresh = 0, True
        elif row < 0 and position < 0:
            return OPTIMAL, k
        elif ends:
            for a in range(k):
                basis.lam[basis.K[a]] = work.dlam[a]
            if row >= 0:
                basis.lam[row] = sign
            return FAR, k
        else:
            k = pivot(lp, basis, k, Exchange(row, position, sign, out, coming, t, tau), work)
            if k < 0:
                return FAILED, 0
            since, fresh = since + 1, False
    return FAILED, k


@inner
def start_at(lp: Lp, basis: Basis, row: int, work: BasisScratch) -> int:
    """p = inf: the optimum of one row alone, tau basic in it; p = 1: the empty basis at w = 0. Returns k."""
    m, n = lp.A.shape
    for i in range(m):
        basis.lam[i], basis.tight[i] = 0.0, False
    for c in range(n):
        basis.g[c] = basis.side[c] = 0.0
        basis.basic[c], basis.held[c] = False, True
    k = 0
    if lp.homogeneous:
        basis.K[0], basis.B[0], basis.kink[0] = row, n, 1.0  # the "kink" of tau: its dual equation is g = 1
        basis.tight[row] = True
        basis.X[0, 0] = basis.lam[row] = -1.0 / lp.r[row]
        axpy(basis.lam[row], lp.A[row], basis.g)
        for c in range(n):
            up = basis.g[c] <= 0.0
            basis.side[c] = 1.0 if up else -1.0
            basis.held[c] = (lp.up[c] if up else lp.down[c]) == 0.0
        k = 1
    load(lp, basis, work)
    copy(basis.left, basis.pinned)
    return k


@inner
def write_point(lp: Lp, basis: Basis, k: int, work: BasisScratch, w: Vector) -> None:
    up, down, side = lp.up, lp.down, basis.side
    for a in range(k):  # one refinement: what the inverse left in the active rows
        work.u[a] = -work.activity[basis.K[a]]
    for b in range(k):
        work.z[b] += dot(basis.X[b], work.u, k)
    t = 1.0 / work.z[0] if lp.homogeneous else 1.0
    for c in range(len(w)):
        if not basis.held[c]:
            w[c] = min(t, up[c]) if side[c] > 0.0 else -min(t, down[c])
        elif side[c] != 0.0:
            w[c] = up[c] if side[c] > 0.0 else -down[c]
    for b in range(1 if lp.homogeneous else 0, k):
        c = basis.B[b]
        w[c] = min(max(work.z[b] * t, -down[c]), up[c])


@njit
def solve_family(lp: Lp, faces: Indices, U: float) -> tuple[Indices, Matrix, Matrix]:
    """Every face of one region: statuses, nearest points, multipliers."""
    m, n = lp.A.shape
    r, slack = lp.r, lp.slack
    size = min(m, n + 1) + 2
    work = BasisScratch(
        np.empty(size),
        np.empty(m),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(n),
        np.empty(2 * n + 1),
        np.empty(2 * n + 1),
        np.empty(2 * n + 1, np.int64),
        np.empty(2 * n + 1, np.int64),
        np.empty((size, 2 * size)),
        np.empty(n),
        np.empty(n),
    )
    statuses = np.full(len(faces), FAILED, np.int64)
    points = np.zeros((len(faces), n))
    multipliers = np.zeros((len(faces), m))
    home, basis = new_basis(m, n), new_basis(m, n)

    worst, inside = ZERO, True
    for i in range(m):
        if r[i] < r[worst]:
            worst = i
        inside = inside and r[i] >= -SHARE * slack[i]
    region, k_home = OPTIMAL, 0
    if not inside:
        region, k_home = ascend(lp, home, start_at(lp, home, worst, work), NO_ROW, U, NO, work)
    for f in range(len(faces)):
        e = faces[f]
        away = e >= 0 and abs(r[e]) > SHARE * slack[e]
        if inside and not away:
            statuses[f] = OPTIMAL  # x itself
            continue
        if region == FAR:
            statuses[f] = FAR
            copy(home.lam, multipliers[f])
            continue
        warm = region == OPTIMAL and not inside
        if warm:
            k = k_home
            copy_basis(home, basis, k)
        else:
            k = start_at(lp, basis, e if away else worst, work)
        statuses[f], k = ascend(lp, basis, k, e, U, warm, work)
        copy(basis.lam, multipliers[f])
        if statuses[f] == OPTIMAL:
            write_point(lp, basis, k, work, points[f])
    return statuses, points, multipliers


@njit  # flat arrays: `rows_of` in proof.py says why
def answer(
    A: Matrix,
    r: Vector,
    slack: Vector,
    growth: Vector,
    size: Vector,
    down: Vector,
    up: Vector,
    p: float,
    faces: Indices,
    cutoff: float,
    timer: Timer,
) -> tuple[Matrix, Matrix]:
    """Points and multipliers of a family in its own units; at the end of the time what there is by then."""
    n = A.shape[1]
    units = in_units(r, slack, growth, size, n, cutoff)
    A = unit_rows(A, size)
    down, up = rooms(down, up, n, units.unit)
    boxed, count = np.empty(n, np.int64), 0
    for c in range(n):
        boxed[count] = c
        count += min(up[c], down[c]) < units.U
    lp = Lp(A, A.T.copy(), units.r, units.slack, units.growth, up, down, boxed[:count], p == np.inf, timer)
    statuses, points, multipliers = solve_family(lp, faces, units.U)
    in_own_units(statuses, points, multipliers, size, units.unit)
    return points, multipliers
