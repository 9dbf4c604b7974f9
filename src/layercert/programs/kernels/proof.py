"""The check of a family's answers, compiled: what `program.prove` and `program.verify` mean, without numpy's copies.

Bound. For a point w of the true set, lam.(A w) <= lam.r + |lam|.slack + |lam|.growth*||w||, and the computed
g = A^T lam is off by at most gamma_m |A|^T |lam|, which acts like more growth. So with s = -lam.r less its margins and
every split |g| = g1 + g2, g1, g2 >= 0:  dist >= (s - g2.room) / (||g1||_q + drift). Every split is a proof, so finding
a good one needs no care; evaluating it does. The terms of all sums there are >= 0: one margin covers every order.

The best split belongs to the nearest point u = min(room, tau*direction), direction = (|g|/top)^(q-1), where tau solves
an equation that is concave and piecewise linear: Newton from below takes a handful of steps. For p = 1 the coordinates
with |g| above a threshold are filled, and the threshold is found by bisection among the |g| themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Matrix, Vector, gamma
from layercert.compiled.dense import axpy, dot, largest, total
from layercert.compiled.jit import inner, inner_sums, known_to_kernels, njit
from layercert.compiled.norms import dual_exponent
from layercert.norms import Box, Norm

known_to_kernels(gamma)

#: The rooms of a box that is not there.
NO_BOX = np.empty(0)


class FamilyRows(NamedTuple):
    """Rows with their margins, and the box as room below and above."""

    A: Matrix
    r: Vector
    slack: Vector
    growth: Vector
    size: Vector
    down: Vector
    up: Vector
    boxed: bool
    p: float


@njit
def rows_of(
    A: Matrix, r: Vector, slack: Vector, growth: Vector, size: Vector, down: Vector, up: Vector, p: float
) -> FamilyRows:
    """From what `Programs.arrays` gives. Entry points (here and `answer` in gram, simplex, smooth) take these flat:
    a named tuple of nine arrays takes 2.6 microseconds per call to reach compiled code, as long as some programs take,
    flat ones a third (PERFORMANCE.md).
    """
    boxed, n = len(up) > 0, A.shape[1]
    if not boxed:
        down, up = np.full(n, np.inf), np.full(n, np.inf)
    return FamilyRows(A, r, slack, growth, size, down, up, boxed, p)


class Margins(NamedTuple):
    """Relative errors: of a product with A^T, 1 + that of a sum over n coordinates, of four and of eight operations."""

    noise: float
    over: float
    four: float
    eight: float


@inner
def margins_of(m: int, n: int) -> Margins:
    return Margins(gamma(m + 4), 1.0 + gamma(2 * n + 64), gamma(4), gamma(8))


class SplitScratch(NamedTuple):
    size: Vector
    room: Vector
    direction: Vector
    keep: Vector
    terms: Vector


@njit
def sizes_of(A: Matrix, p: float) -> Vector:
    """||A_i||_q of each row."""
    m, n = A.shape
    q = dual_exponent(p)
    sizes, size, terms = np.empty(m), np.empty(n), np.empty(n)
    for i in range(m):
        square = dot(A[i], A[i], n) if q == 2.0 else 0.0
        if 1e-200 < square < 1e200:  # in one pass, where no square leaves the range of doubles
            sizes[i] = np.sqrt(square)
            continue
        for c in range(n):
            size[c] = abs(A[i, c])
        sizes[i] = length_of(size, q, terms)
    return sizes


@njit  # flat arrays: `rows_of` says why
def check_rows(
    A: Matrix,
    r: Vector,
    slack: Vector,
    growth: Vector,
    size: Vector,
    down: Vector,
    up: Vector,
    p: float,
    equalities: Indices,
    multipliers: Matrix,
    steps: Matrix,
    cutoff: float,
    gap: float,
) -> tuple[Vector, Vector, Mask, bool]:
    """Bounds, values, what is decided, and whether nothing is left to do: all decided, every given point good."""
    rows = rows_of(A, r, slack, growth, size, down, up, p)
    lower = bounds_from(rows, multipliers, equalities)
    good, values = verified(rows, steps, equalities)
    decided, clean = np.empty(len(lower), np.bool_), True
    for f in range(len(lower)):
        closed = good[f] and values[f] - lower[f] <= gap * values[f]
        decided[f] = lower[f] >= cutoff or closed
        given = values[f] < np.inf
        clean = clean and decided[f] and (good[f] or not given)
        if not given:
            for c in range(steps.shape[1]):
                steps[f, c] = np.nan
    return lower, values, decided, clean


@njit  # flat arrays: `rows_of` says why
def prove_rows(
    A: Matrix,
    r: Vector,
    slack: Vector,
    growth: Vector,
    size: Vector,
    down: Vector,
    up: Vector,
    p: float,
    equalities: Indices,
    multipliers: Matrix,
) -> Vector:
    """Proved lower bounds of the distances, from any multipliers."""
    return bounds_from(rows_of(A, r, slack, growth, size, down, up, p), multipliers, equalities)


@njit  # flat arrays: `rows_of` says why
def verify_rows(
    A: Matrix,
    r: Vector,
    slack: Vector,
    growth: Vector,
    size: Vector,
    down: Vector,
    up: Vector,
    p: float,
    equalities: Indices,
    steps: Matrix,
) -> tuple[Mask, Vector]:
    """Which points satisfy all rows up to their rounding margin, and their lengths."""
    return verified(rows_of(A, r, slack, growth, size, down, up, p), steps, equalities)


@njit
def bounds_from(rows: FamilyRows, multipliers: Matrix, equalities: Indices) -> Vector:
    k, m = multipliers.shape
    n = rows.A.shape[1]
    margins = margins_of(m, n)
    A, r, slack, growth, size = rows.A, rows.r, rows.slack, rows.growth, rows.size
    work = SplitScratch(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    lam, g, t = np.empty(m), np.empty(n), np.zeros(k)
    for f in range(k):
        if not admissible(multipliers[f], equalities[f], lam):
            continue
        for c in range(n):
            g[c] = 0.0
        gain = loss = drift = doubt = 0.0
        for i in range(m):
            if lam[i] != 0.0:
                axpy(lam[i], A[i], g)
                gain -= lam[i] * r[i]
                loss += abs(lam[i]) * slack[i]
                doubt += abs(lam[i] * r[i])
                drift += abs(lam[i]) * (growth[i] + margins.noise * size[i])
        s = gain - loss * (1.0 + margins.noise) - margins.noise * doubt
        t[f] = bound(g, s, drift * (1.0 + margins.noise), rows, margins, work)
    return t


@inner
def admissible(given: Vector, e: int, lam: Vector) -> bool:
    """The multipliers with what may not be cut off, scaled (the bound is homogeneous); False when none is left.

    Products of those dropped for being tiny might underflow, an error that no relative margin covers.
    """
    top = 0.0
    for i in range(len(lam)):
        lam[i] = given[i] if np.isfinite(given[i]) and (given[i] > 0.0 or i == e) else 0.0
        top = max(top, abs(lam[i]))
    if top == 0.0:
        return False
    for i in range(len(lam)):
        lam[i] /= top
        if abs(lam[i]) < 1e-100:
            lam[i] = 0.0
    return True


def bound_in_box(norm: Norm, box: Box | None, g: Matrix, s: Vector, drift: Vector) -> Vector:
    """Proved lower bounds of the distance from x to {x + w : g.w - drift*||w|| <= -s} in the box, one per row of g."""
    down, up = (NO_BOX, NO_BOX) if box is None else (-box.lo, box.hi)
    bounds: Vector = bounds_of(np.ascontiguousarray(g), s, drift, down, up, norm.p)
    return bounds


@njit
def bounds_of(g: Matrix, s: Vector, drift: Vector, down: Vector, up: Vector, p: float) -> Vector:
    n = g.shape[1]
    none = np.empty(0)
    rows = rows_of(np.empty((0, n)), none, none, none, none, down, up, p)
    margins = margins_of(0, n)
    work = SplitScratch(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    t = np.zeros(len(g))
    for i in range(len(g)):
        t[i] = bound(g[i], s[i], drift[i], rows, margins, work)
    return t


@inner
def bound(g: Vector, s: float, drift: float, rows: FamilyRows, margins: Margins, work: SplitScratch) -> float:
    size, room, direction, keep, terms = work
    p = rows.p
    top = towards(g, rows.down, rows.up, size, room)
    if not rows.boxed:  # nothing to split off
        return evaluate(size, size, room, s, drift, p, margins, terms)
    one = p == 1.0
    corner = threshold(size, room, s, top, keep) if one else fill(size, room, direction, s, top, p, keep)
    t = evaluate(size, keep, room, s, drift, p, margins, terms)
    if corner:
        for c in range(len(keep)):  # the whole box may fall short of s, and then it pays alone
            keep[c] = 0.0
        t = max(t, evaluate(size, keep, room, s, drift, p, margins, terms))
    return t


@inner
def towards(g: Vector, down: Vector, up: Vector, size: Vector, room: Vector) -> float:
    """|g| and the room of each coordinate in the direction of -g; returns the largest |g|."""
    for c in range(len(g)):
        size[c] = abs(g[c])
        room[c] = down[c] if g[c] > 0.0 else up[c]
    return largest(size, len(size))


@inner_sums
def fill(size: Vector, room: Vector, direction: Vector, s: float, top: float, p: float, keep: Vector) -> bool:
    """g1 for p > 1: all of |g| where tau*direction < room, what the slope of the norm explains elsewhere.

    Returns whether everything is full.
    """
    n = len(size)
    power = 1.0 / (p - 1.0)  # q - 1
    for c in range(n):
        direction[c] = 1.0 if power == 0.0 else size[c] / top
    if power != 0.0 and power != 1.0:
        for c in range(n):
            direction[c] = direction[c] ** power
    tau = slope = 0.0
    for _ in range(40):
        paid = slope = 0.0
        for c in range(n):
            full = room[c] < tau * direction[c]
            paid += size[c] * room[c] if full else 0.0
            slope += 0.0 if full else size[c] * direction[c]
        new = (s - paid) / slope
        if not new > tau * (1.0 + 1e-15):
            break
        tau = new
    corner = slope == 0.0
    if corner:  # the slope of the coordinate that filled up last
        tau = 0.0
        for c in range(n):
            last = room[c] / direction[c]
            if size[c] > 0.0 and last < np.inf:
                tau = max(tau, last)
    for c in range(n):
        keep[c] = size[c]
        if room[c] < tau * direction[c]:
            part = 0.0 if power == 0.0 else top * (room[c] / tau) ** (p - 1.0)
            keep[c] = min(size[c], part)
    return corner


@inner_sums
def threshold(size: Vector, room: Vector, s: float, top: float, keep: Vector) -> bool:
    """g1 for p = 1: |g| cut off at the least level above which the coordinates, filled up, do not reach s.

    That level is 0 or one of the sizes themselves, so the bisection runs between two of them until they meet: halving
    an interval alone leaves the level 1e-16*top too high, which is a lot where the sizes differ by as much.
    Returns whether everything is full.
    """
    low, high = 0.0, top  # the level is in [low, high], and both are candidates
    while low < high:
        level = 0.5 * low + 0.5 * high
        if not level < high:
            level = low
        paid, below, above = 0.0, 0.0, high
        for c in range(len(size)):
            filled = size[c] > level
            paid += size[c] * room[c] if filled else 0.0
            above = min(above, size[c] if filled else high)
            below = max(below, 0.0 if filled else size[c])
        if paid < s:
            high = max(below, low)
        else:
            low = above
    corner = high == 0.0
    if corner:  # the coordinate that filled up last
        high = top
        for c in range(len(size)):
            if size[c] > 0.0 and room[c] > 0.0:
                high = min(high, size[c])
    for c in range(len(size)):  # an endless room cannot be filled
        if not room[c] < np.inf:
            high = max(high, size[c])
    for c in range(len(size)):
        keep[c] = min(size[c], high)
    return corner


@inner
def evaluate(
    size: Vector, keep: Vector, room: Vector, s: float, drift: float, p: float, margins: Margins, terms: Vector
) -> float:
    """(s - g2.room)/(||g1||_q + drift), rounded down; inf when nothing can make up for s, 0 when it proves nothing.

    Only sums of finished terms, all >= 0, are left to the compiler's choice of order.
    """
    over, four, eight = margins.over, margins.four, margins.eight
    for c in range(len(size)):
        rest = (size[c] - keep[c]) * over
        terms[c] = rest * room[c] if rest > 0.0 else 0.0
    cost = total(terms) * over
    length = length_of(keep, dual_exponent(p), terms)
    gain = s - cost - four * (abs(s) + cost)
    length = (length + drift) * over
    if not gain > 0.0 or not length >= 0.0:
        return 0.0
    return gain / length * (1.0 - eight) if length > 0.0 else np.inf


@inner
def length_of(v: Vector, q: float, terms: Vector) -> float:
    """||v||_q for v >= 0, scaled by its largest entry so that nothing leaves the range of doubles."""
    top = largest(v, len(v))
    if q == np.inf or top == 0.0:
        return top
    for c in range(len(v)):
        part = v[c] / top
        terms[c] = part if q == 1.0 else (part * part if q == 2.0 else part**q)
    length = total(terms)
    return top * (length if q == 1.0 else (np.sqrt(length) if q == 2.0 else length ** (1.0 / q)))


@njit
def verified(rows: FamilyRows, steps: Matrix, equalities: Indices) -> tuple[Mask, Vector]:
    """Which points satisfy all rows up to their rounding margin, and their lengths (inf where there is no point).

    A point is put into the box first, in place.
    """
    k, n = steps.shape
    A, r, slack, growth, down, up = rows.A, rows.r, rows.slack, rows.growth, rows.down, rows.up
    good, lengths, size, terms = np.zeros(k, np.bool_), np.full(k, np.inf), np.empty(n), np.empty(n)
    for f in range(k):
        w, e = steps[f], equalities[f]
        given = True
        for c in range(n):
            if not abs(w[c]) <= 1e100:  # NaN where there is no point; farther ones only overflow
                given = False
                break
            w[c] = min(max(w[c], -down[c]), up[c])
            size[c] = abs(w[c])
        if not given:
            continue
        good[f], lengths[f] = True, length_of(size, rows.p, terms)
        for i in range(len(r)):
            residual = dot(A[i], w, n) - r[i]
            if i == e:
                residual = abs(residual)
            if not residual <= slack[i] + growth[i] * lengths[f]:
                good[f] = False
                break
    return good, lengths
