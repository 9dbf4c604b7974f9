"""Where the simplex method of simplex.py stands: rows, basis, the sides of the coordinates, and what follows from them.

Rows in homogenised form: A_B s_B + moving - tau*left <= 0, where `moving` is A over the coordinates of length t and
left = r - A w over those held by their bound. A coordinate whose bound comes below the growing t is held there for
good: that is all a box costs. p = 1 is the same with tau = 1 and nothing moving.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Matrix, Vector
from layercert.compiled.dense import axpy, copy, dot, invert, largest, replace_column, two_dots
from layercert.compiled.jit import inner, njit
from layercert.compiled.timer import Timer

#: From this share of the coordinates on, what they do to the rows is computed anew instead of one by one.
MANY = 0.15


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
    timer: Timer


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


class BasisScratch(NamedTuple):
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
    both: Matrix  # a basis and its inverse
    unit: Vector  # the sides of all coordinates at once: those of length t, and those at their bounds
    bound: Vector


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


@inner
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


@inner
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


@inner
def crossed(side: float, kink: float, slope: float) -> float:
    """The side of a coordinate after its g has passed a kink: down when g rises, up when it falls; p = 1 rests at 0."""
    if slope > 0.0:
        return min(side, 0.0 if kink < 0.0 else -1.0)
    return max(side, 0.0 if kink > 0.0 else 1.0)


@inner
def turn(lp: Lp, basis: Basis, columns: Indices, count: int, dg: Vector, tau: float, work: BasisScratch) -> None:
    """Send the listed coordinates (numbered as kinks: c, or n + c for the second kink of p = 1) to their next side."""
    AT, up, down, homogeneous = lp.AT, lp.up, lp.down, lp.homogeneous
    side, held, basic, moving, left = basis.side, basis.held, basis.basic, basis.moving, basis.left
    n = len(side)
    if homogeneous and len(lp.boxed) > 0 and count > MANY * n:
        for j in range(count):
            c = columns[j]
            if not basic[c]:
                side[c] = crossed(side[c], 0.0, dg[c])
                held[c] = (up[c] if side[c] > 0.0 else down[c]) * tau <= 1.0
        load(lp, basis, work)
        return
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


@inner
def bind(lp: Lp, basis: Basis, tau: float) -> bool:
    """p = inf: coordinates whose bound has come below t are held by it from now on; were there any?"""
    boxed, up, down, AT = lp.boxed, lp.up, lp.down, lp.AT
    side, held, basic, moving, left = basis.side, basis.held, basis.basic, basis.moving, basis.left
    found = False
    for j in range(len(boxed)):
        c = boxed[j]
        room = up[c] if side[c] > 0.0 else down[c]
        if not held[c] and room * tau < 1.0 - 1e-13 and not basic[c]:
            axpy(-side[c], AT[c], moving)
            axpy(-side[c] * room, AT[c], left)
            held[c] = found = True
    return found


@inner
def load(lp: Lp, basis: Basis, work: BasisScratch) -> None:
    """moving and left from the sides alone."""
    A, r, up, down = lp.A, lp.r, lp.up, lp.down
    side, held, basic = basis.side, basis.held, basis.basic
    unit, bound = work.unit, work.bound
    for c in range(len(side)):
        s = 0.0 if basic[c] else side[c]
        unit[c] = 0.0 if held[c] else s
        bound[c] = 0.0
        if held[c] and s != 0.0:
            bound[c] = up[c] if s > 0.0 else -down[c]
    for i in range(len(r)):
        basis.moving[i], basis.left[i] = 0.0, r[i]
        if lp.homogeneous and len(lp.boxed):
            basis.moving[i], at_bounds = two_dots(A[i], unit, bound, len(side))
            basis.left[i] -= at_bounds
        elif lp.homogeneous:
            basis.moving[i] = dot(A[i], unit, len(side))
        elif len(lp.boxed):
            basis.left[i] -= dot(A[i], bound, len(side))


@inner
def refresh(lp: Lp, basis: Basis, k: int, tau: float, work: BasisScratch) -> bool:
    """Recompute everything from K, B and the sides, which wipes out the rounding of all updates."""
    K, B, kink, X, lam, g, side, _, _, left, pinned, basic, _ = basis
    load(lp, basis, work)
    copy(left, pinned)
    both = work.both
    for a in range(k):
        for b in range(k):
            both[a, b] = lp.A[K[a], B[b]] if B[b] < len(g) else -pinned[K[a]]
            both[a, k + b] = 0.0
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
    wrong, noise = 0, 1e-12 * largest(g, len(g))  # coordinates on the wrong side, by no more than rounding
    for c in range(len(g)):
        work.order[wrong] = c
        work.dg[c] = g[c]
        wrong += lp.homogeneous & (g[c] * side[c] > noise) & (not basic[c])
    turn(lp, basis, work.order, wrong, work.dg, tau, work)
    return True


@inner
def rescale(basis: Basis, k: int, work: BasisScratch) -> bool:
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


@inner
def basic_values(lp: Lp, basis: Basis, k: int, work: BasisScratch) -> float:
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


@inner
def length_of(lp: Lp, basis: Basis, k: int, tau: float, work: BasisScratch) -> float:
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


@inner
def proves_cutoff(lp: Lp, basis: Basis, k: int, value: float, U: float) -> bool:
    """Do the multipliers prove a distance of U or more, the margins of the rows deducted?"""
    gain = loss = drift = 0.0
    for a in range(k):
        i = basis.K[a]
        gain -= basis.lam[i] * basis.left[i]
        loss += abs(basis.lam[i]) * lp.slack[i]
        drift += abs(basis.lam[i]) * lp.growth[i]
    if not lp.homogeneous:
        return value - loss >= U * (1.0 + drift)
    length = 0.0
    for c in range(len(basis.g)):
        if not basis.held[c] and not basis.basic[c]:
            length += abs(basis.g[c])
    return gain > loss and gain - loss >= U * (length + drift)
