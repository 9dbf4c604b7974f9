"""p = inf and p = 1: a dual simplex method with a compact basis and long steps (bound flipping).

    minimise ||w||_p  subject to  A w <= r, row e an equality, every coordinate within its room

For multipliers lam the sign of g = A^T lam decides where each coordinate goes. p = inf: w_c = -sign(g_c) min(t, room_c)
with the common length t; homogenised by tau = 1/t, s = tau w. p = 1: w_c is at its bound where |g_c| > 1 and zero where
|g_c| < 1. At a kink (g_c = 0 for p = inf, g_c = -1 or 1 for p = 1) a coordinate may lie anywhere between: it is basic.
Active rows K and basic columns B (for p = inf tau is the first of them) meet in the basis, a k x k matrix; its inverse
X is kept. A dual step may pass many kinks before its slope is used up, each turns one coordinate to its other side.

Rows in homogenised form: A_B s_B + moving - tau*left <= 0, where `moving` is A over the coordinates of length t and
left = r - A w over those held by their bound. A coordinate whose bound comes below the growing t is held there for
good: that is all a box costs. p = 1 is the same with tau = 1 and nothing moving.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Matrix, Vector
from layercert.programs.kernels.dense import (
    axpy,
    border,
    copy,
    dot,
    invert,
    largest,
    remove,
    replace_column,
    replace_row,
)
from layercert.programs.kernels.jit import njit, njit_sums
from layercert.programs.kernels.scaled import FAILED, FAR, OPTIMAL

#: Share of a row's margin that the method itself uses; the rest is left to the rounding of the final check.
SHARE = 0.25
#: How far a basic coordinate may lie outside its bounds, in units of the common length.
OUTSIDE = 1e-13
#: Pivots between two fresh factorisations of the basis.
REFRESH = 40
#: Steps without progress after which the choice of the next row is shaken, to leave a cycle of degenerate vertices.
PATIENCE = 30


class Lp(NamedTuple):
    """What is asked: unit rows, their margins, and how far each coordinate may go up and down."""

    A: Matrix
    AT: Matrix
    r: Vector
    slack: Vector
    growth: Vector
    up: Vector
    down: Vector
    boxed: Indices  # coordinates that a bound may hold
    homogeneous: bool  # p = inf, or else p = 1


class Basis(NamedTuple):
    """Where the method stands; the first k entries of K, B and kink count. Column n is tau."""

    K: Indices
    B: Indices
    kink: Vector
    X: Matrix
    lam: Vector
    g: Vector
    side: Vector  # of the coordinates outside B: 1 up, -1 down, 0 at zero
    held: Mask  # by its bound, not by t
    moving: Vector
    left: Vector
    pinned: Vector  # `left` as X knows it: the column of tau is -pinned
    basic: Mask
    tight: Mask


class Work(NamedTuple):
    """Arrays reused by every step."""

    z: Vector  # values of the basic columns
    activity: Vector
    q: Vector
    u: Vector
    dlam: Vector
    dg: Vector
    when: Vector  # kinks ahead on the dual ray: how far, and how much slope each uses up
    weight: Vector
    order: Indices
    spare: Indices


@njit
def new_basis(m: int, n: int) -> Basis:
    size = min(m, n + 1) + 2
    return Basis(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size),
        np.zeros((size, size)),
        np.zeros(m),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n, np.bool_),
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
        np.zeros(n, np.bool_),
        np.zeros(m, np.bool_),
    )


@njit
def copy_basis(source: Basis, to: Basis, k: int) -> None:
    for a in range(k):
        to.K[a], to.B[a], to.kink[a] = source.K[a], source.B[a], source.kink[a]
        for b in range(k):
            to.X[a, b] = source.X[a, b]
    for c in range(len(to.g)):
        to.g[c], to.side[c], to.held[c] = source.g[c], source.side[c], source.held[c]
        to.basic[c] = source.basic[c]
    for i in range(len(to.lam)):
        to.lam[i], to.tight[i] = source.lam[i], source.tight[i]
        to.moving[i], to.left[i], to.pinned[i] = source.moving[i], source.left[i], source.pinned[i]


@njit
def add_column(
    column: Vector, share: float, side: float, held: bool, up: float, down: float, moving: Vector, left: Vector
) -> None:
    """Add (share 1) or take away (-1) what one coordinate outside the basis does to the rows."""
    if not held:
        axpy(share * side, column, moving)
    elif side > 0.0 and up > 0.0:
        axpy(-share * up, column, left)
    elif side < 0.0 and down > 0.0:
        axpy(share * down, column, left)


@njit
def crossed(side: float, kink: float, slope: float) -> float:
    """The side of a coordinate after its g has passed a kink: down when g rises, up when it falls; p = 1 rests at 0."""
    if slope > 0.0:
        return min(side, 0.0 if kink < 0.0 else -1.0)
    return max(side, 0.0 if kink > 0.0 else 1.0)


@njit
def turn(lp: Lp, basis: Basis, columns: Indices, count: int, dg: Vector, tau: float) -> None:
    """Send the listed coordinates (numbered as kinks: c, or n + c for the second kink of p = 1) to their next side."""
    AT, up, down, homogeneous = lp.AT, lp.up, lp.down, lp.homogeneous
    side, held, basic, moving, left = basis.side, basis.held, basis.basic, basis.moving, basis.left
    n = len(side)
    for j in range(count):
        c = columns[j] if columns[j] < n else columns[j] - n
        if basic[c]:  # the column that leaves: its side is settled later
            continue
        old, was_held = side[c], held[c]
        side[c] = crossed(old, 0.0 if homogeneous else (-1.0 if columns[j] < n else 1.0), dg[c])
        if homogeneous:
            held[c] = (up[c] if side[c] > 0.0 else down[c]) * tau <= 1.0
        if not held[c] and not was_held:
            axpy(side[c] - old, AT[c], moving)
        else:
            add_column(AT[c], -1.0, old, was_held, up[c], down[c], moving, left)
            add_column(AT[c], 1.0, side[c], held[c], up[c], down[c], moving, left)


@njit
def bind(lp: Lp, basis: Basis, tau: float) -> bool:
    """p = inf: coordinates whose bound has come below t are held by it from now on; were there any?"""
    boxed, up, down, AT = lp.boxed, lp.up, lp.down, lp.AT
    side, held, basic, moving, left = basis.side, basis.held, basis.basic, basis.moving, basis.left
    found = False
    for j in range(len(boxed)):
        c = boxed[j]
        room = up[c] if side[c] > 0.0 else down[c]
        if not held[c] and room * tau < 1.0 - 1e-15 and not basic[c]:
            axpy(-side[c], AT[c], moving)
            axpy(-side[c] * room, AT[c], left)
            held[c] = found = True
    return found


@njit
def load(lp: Lp, basis: Basis, work: Work) -> None:
    """moving and left from the sides alone."""
    A, r, up, down = lp.A, lp.r, lp.up, lp.down
    side, held, basic = basis.side, basis.held, basis.basic
    unit, bound = work.dg, work.when
    for c in range(len(side)):
        s = 0.0 if basic[c] else side[c]
        unit[c] = 0.0 if held[c] else s
        bound[c] = 0.0
        if held[c] and s != 0.0:
            bound[c] = up[c] if s > 0.0 else -down[c]
    for i in range(len(r)):
        basis.moving[i] = dot(A[i], unit, len(side)) if lp.homogeneous else 0.0
        basis.left[i] = r[i] - dot(A[i], bound, len(side)) if len(lp.boxed) else r[i]


@njit
def refresh(lp: Lp, basis: Basis, k: int, tau: float, work: Work) -> bool:
    """Recompute everything from K, B and the sides, which wipes out the rounding of all updates."""
    K, B, kink, X, lam, g, side, _, _, left, pinned, basic, _ = basis
    load(lp, basis, work)
    copy(left, pinned)
    both = np.zeros((k, 2 * k))
    for a in range(k):
        for b in range(k):
            both[a, b] = lp.A[K[a], B[b]] if B[b] < len(g) else -pinned[K[a]]
        both[a, k + a] = 1.0
    if not invert(both, k):
        return False
    for a in range(k):
        lam[K[a]] = 0.0
        for b in range(k):
            X[b, a] = both[b, k + a]
            lam[K[a]] += X[b, a] * kink[b]
    for c in range(len(g)):
        g[c] = 0.0
    for a in range(k):
        axpy(lam[K[a]], lp.A[K[a]], g)
    for b in range(k):
        if B[b] < len(g):
            g[B[b]] = kink[b]
    wrong = 0  # coordinates on the wrong side by rounding only
    for c in range(len(g)):
        work.order[wrong] = c
        work.dg[c] = g[c]
        wrong += lp.homogeneous & (g[c] * side[c] > 0.0) & (not basic[c])
    turn(lp, basis, work.order, wrong, work.dg, tau)
    return True


@njit
def settle(basis: Basis, k: int, work: Work) -> bool:
    """p = inf: bring the column of tau up to date in X, and scale lam so that -lam.left = 1 again."""
    K, _, _, X, lam, g, _, _, _, left, pinned, _, _ = basis
    gain, same = 0.0, True
    for a in range(k):
        work.u[a] = -left[K[a]]
        gain -= lam[K[a]] * left[K[a]]
        same = same and left[K[a]] == pinned[K[a]]
    if same:
        return True
    for b in range(k):
        work.q[b] = dot(X[b], work.u, k)
    if not gain > 0.0 or not abs(work.q[0]) > 1e-13:
        return False
    replace_column(X, k, work.q, 0)
    copy(left, pinned)
    for a in range(k):
        lam[K[a]] /= gain
    for c in range(len(g)):
        g[c] /= gain
    return True


@njit
def basic_values(lp: Lp, basis: Basis, k: int, work: Work) -> float:
    """z_B and the activity of every row, tau times A w - r; returns tau."""
    K, B, _, X, _, _, _, _, moving, left, _, _, _ = basis
    z, activity = work.z, work.activity
    for a in range(k):
        work.u[a] = -moving[K[a]] if lp.homogeneous else left[K[a]]
    for b in range(k):
        z[b] = dot(X[b], work.u, k)
    tau = z[0] if lp.homogeneous else 1.0
    for i in range(len(activity)):
        activity[i] = moving[i] - tau * left[i]
    for b in range(1 if lp.homogeneous else 0, k):
        axpy(z[b], lp.AT[B[b]], activity)
    return tau


@njit
def length_of(lp: Lp, basis: Basis, k: int, tau: float, work: Work) -> float:
    """The dual value, a lower bound of the distance: t, or the length of the basic point for p = 1."""
    if lp.homogeneous:
        return 1.0 / tau if tau > 0.0 else np.inf
    boxed, side, basic, up, down = lp.boxed, basis.side, basis.basic, lp.up, lp.down
    value = -dot(basis.kink, work.z, k)
    for j in range(len(boxed)):
        c = boxed[j]
        if side[c] != 0.0 and not basic[c]:
            value += up[c] if side[c] > 0.0 else down[c]
    return value


@njit
def proves_cutoff(lp: Lp, basis: Basis, k: int, value: float, U: float) -> bool:
    """Do the multipliers prove a distance of U or more, the margins of the rows deducted?"""
    loss = drift = 0.0
    for a in range(k):
        i = basis.K[a]
        loss += abs(basis.lam[i]) * lp.slack[i]
        drift += abs(basis.lam[i]) * lp.growth[i]
    if lp.homogeneous:
        return loss < 1.0 and 1.0 - loss >= U * (1.0 / value + drift)
    return value - loss >= U * (1.0 + drift)


@njit
def row_weight(A: Matrix, pinned: Vector, B: Indices, X: Matrix, k: int, i: int, q: Vector) -> float:
    """q = (row i over B) X, the active rows' part of row i; returns 1 + ||q||^2, its steepest-edge weight."""
    for a in range(k):
        q[a] = 0.0
    for b in range(k):
        t = A[i, B[b]] if B[b] < A.shape[1] else -pinned[i]
        for a in range(k):
            q[a] += t * X[b, a]
    return 1.0 + dot(q, q, k)


@njit
def price(
    lp: Lp, basis: Basis, k: int, e: int, tau: float, length: float, shaken: int, work: Work
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


@njit
def dual_ray(lp: Lp, basis: Basis, k: int, row: int, position: int, sign: float, work: Work) -> None:
    """The ray (dlam, dg) along which the chosen violation is the slope of the dual value."""
    A, K, X, q, dlam, dg = lp.A, basis.K, basis.X, work.q, work.dlam, work.dg
    if row >= 0:
        row_weight(A, basis.pinned, basis.B, X, k, row, q)
    for c in range(len(dg)):
        dg[c] = sign * A[row, c] if row >= 0 else 0.0
    for a in range(k):
        dlam[a] = -sign * (q[a] if row >= 0 else X[position, a])
        axpy(dlam[a], A[K[a]], dg)


@njit
def first_row_to_leave(basis: Basis, k: int, e: int, dlam: Vector) -> tuple[int, float]:
    """Position in K of the first multiplier to fall to zero, and where; the equality's may have either sign."""
    K, lam = basis.K, basis.lam
    smallest = 1e-12 * largest(dlam, k)
    out, cap = -1, np.inf
    for a in range(k):
        if -dlam[a] > smallest and K[a] != e and max(lam[K[a]], 0.0) < -dlam[a] * cap:
            out, cap = a, max(lam[K[a]], 0.0) / -dlam[a]
    return out, cap


@njit
def kinks_ahead(lp: Lp, basis: Basis, position: int, sign: float, tau: float, work: Work) -> int:
    """Every kink the ray will pass, and the slope it will use up; the number of places used (inf = no kink)."""
    g, side, basic, up, down = basis.g, basis.side, basis.basic, lp.up, lp.down
    dg, when, weight = work.dg, work.when, work.weight
    n = len(g)
    smallest = 1e-12 * largest(dg, n)
    # no branches on the data below, so that the loops use vector instructions
    if lp.homogeneous:
        for c in range(n):
            ahead = (dg[c] * side[c] > smallest) & (not basic[c])
            t = -g[c] / dg[c]
            when[c] = (t if t > 0.0 else 0.0) if ahead else np.inf
            weight[c] = abs(dg[c]) * (min(1.0, tau * up[c]) + min(1.0, tau * down[c]))
        return n
    for kink, start, room in ((-1.0, 0, up), (1.0, n, down)):
        for c in range(n):
            # side 1 meets -1, then 1; side 0 meets the one it moves to; side -1 meets 1, then -1
            ahead = (dg[c] * (side[c] + 0.5 * kink) > smallest) & (not basic[c])
            t = (kink - g[c]) / dg[c]
            when[start + c] = (t if t > 0.0 else 0.0) if ahead else np.inf
            weight[start + c] = abs(dg[c]) * room[c] if ahead else 0.0
    if position >= 0 and sign * basis.kink[position] > 0.0:  # the leaving column has its other kink ahead
        c = basis.B[position]
        j = c if sign > 0.0 else n + c
        when[j], weight[j] = 2.0, up[c] if sign > 0.0 else down[c]
    return 2 * n


@njit_sums
def weight_before(when: Vector, weight: Vector, places: int, cap: float) -> float:
    total = 0.0
    for j in range(places):
        total += weight[j] if when[j] < cap else 0.0
    return total


@njit
def where_it_stops(
    when: Vector, weight: Vector, places: int, cap: float, slope: float, order: Indices, spare: Indices
) -> int:
    """The first kink before `cap` at which the kinks passed use up the slope; -1 when they never do.

    Quickselect without branches on the data: each pass writes the nearer half to the front, the farther to the back.
    """
    if not weight_before(when, weight, places, cap) >= slope:
        return -1
    count = 0
    for j in range(places):
        order[count] = j
        count += when[j] < cap
    used = 0.0
    while True:
        middle = when[order[count // 2]]
        near, far, before, same = 0, 0, 0.0, 0.0
        for i in range(count):
            j = order[i]
            t = when[j]
            spare[near], spare[places - 1 - far] = j, j
            near += t < middle
            far += t > middle
            before += weight[j] if t < middle else 0.0
            same += weight[j] if t == middle else 0.0
        if near > 0 and used + before >= slope:
            count = near
            for i in range(count):
                order[i] = spare[i]
        elif far == 0 or used + before + same >= slope:
            best = order[count // 2]  # among ties the largest weight is the most stable pivot
            for i in range(count):
                j = order[i]
                if when[j] == middle and weight[j] > weight[best]:
                    best = j
            return best
        else:
            used += before + same
            count = far
            for i in range(count):
                order[i] = spare[places - 1 - i]


@njit
def pivot(
    lp: Lp,
    basis: Basis,
    k: int,
    row: int,
    position: int,
    sign: float,
    out: int,
    coming: int,
    t: float,
    tau: float,
    work: Work,
) -> int:
    """Walk t along the ray, turn what was passed, then exchange: in comes the row or out goes the column at `position`,
    in comes the column of kink `coming` or out goes the row K[out]. Returns the new k, -1 when the basis is singular.
    """
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
    turn(lp, basis, order, count, dg, tau)
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
        if not abs(corner) > 1e-14:
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


@njit
def ascend(lp: Lp, basis: Basis, k: int, e: int, U: float, fresh: bool, work: Work) -> tuple[int, int]:
    """Dual simplex from the present basis to the optimum with row e an equality; status and k.

    Where the rows contradict each other the multipliers are left as the ray that proves it.
    """
    since, best, stalled = 0, -1.0, 0
    for step in range(20 * len(lp.r) + 500):
        if lp.homogeneous and not settle(basis, k, work):
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
            places = kinks_ahead(lp, basis, position, sign, tau, work)
            coming = where_it_stops(work.when, work.weight, places, t, abs(violation), work.order, work.spare)
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
            k = pivot(lp, basis, k, row, position, sign, out, coming, t, tau, work)
            if k < 0:
                return FAILED, 0
            since, fresh = since + 1, False
    return FAILED, k


@njit
def start_at(lp: Lp, basis: Basis, row: int, work: Work) -> int:
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


@njit
def write_point(lp: Lp, basis: Basis, k: int, work: Work, w: Vector) -> None:
    up, down, side = lp.up, lp.down, basis.side
    t = 1.0 / work.z[0] if lp.homogeneous else 1.0
    for c in range(len(w)):
        if not basis.held[c]:
            w[c] = side[c] * t
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
    work = Work(
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
    )
    statuses = np.full(len(faces), FAILED, np.int64)
    points = np.zeros((len(faces), n))
    multipliers = np.zeros((len(faces), m))
    home, basis = new_basis(m, n), new_basis(m, n)

    worst, inside = 0, True
    for i in range(m):
        if r[i] < r[worst]:
            worst = i
        inside = inside and r[i] >= -SHARE * slack[i]
    region, k_home = OPTIMAL, 0
    if not inside:
        region, k_home = ascend(lp, home, start_at(lp, home, worst, work), -1, U, False, work)
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
