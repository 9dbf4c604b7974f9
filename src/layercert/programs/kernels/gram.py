"""p = 2: a dual active-set method (Goldfarb and Idnani 1983) that sees the rows only through their Gram matrix.

    minimise 1/2 ||w||^2  subject to  A w <= r, row e an equality;   rows of length one, G = A A^T

The iterate is w = -A_K^T lam for the active rows K, exact for those rows: G_KK lam = -r_K. A violated row i enters with
a growing multiplier; on the way rows of K may lose theirs and leave. The dual value D = 1/2 ||w||^2 only grows, so
every iterate proves a distance, and the method stops as soon as the cutoff is proved. All faces of a region start from
the region's own optimum, which is one step away from most of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Matrix, Vector
from layercert.compiled.dense import axpy, backward, copy, dot, forward
from layercert.compiled.jit import inner, njit
from layercert.compiled.timer import Timer, late
from layercert.programs.kernels.scaled import FAILED, FAR, NO_ROW, OPTIMAL, ZERO
from layercert.programs.kernels.units import in_own_units, in_units, is_time_to_look

#: Share of a row's margin that the method itself uses; the rest is left to the rounding of the final check.
SHARE = 0.25
#: Below this squared distance from the span of the active rows the Gram matrix loses too many digits: use the rows.
NEARLY_DEPENDENT = 1e-7


class GramRows(NamedTuple):
    """What is asked: unit rows scale_i A_i, their margins, and the Gram matrix with its `known` rows filled in."""

    A: Matrix
    scale: Vector
    r: Vector
    slack: Vector
    growth: Vector
    G: Matrix
    known: Mask
    timer: Timer


class Active(NamedTuple):
    """Where the method stands: the first k entries of K and lam count, G_KK = L L^T, y = A w - r."""

    K: Indices
    lam: Vector
    L: Matrix
    y: Vector
    barred: Mask  # rows in K, and rows that may no longer enter


class Direction(NamedTuple):
    """Row i against the active rows: d solves G_KK d = G_Ki, v = A_i - A_K^T d, dy = A v."""

    d: Vector
    v: Vector
    dy: Vector
    error: Vector  # what a first solution left of the active rows


@inner
def know(rows: GramRows, i: int) -> None:
    """Compute G_i when it is first needed: a single program touches few of them."""
    if rows.known[i]:
        return
    for j in range(len(rows.r)):
        if rows.known[j]:
            rows.G[i, j] = rows.G[j, i]
        else:
            rows.G[i, j] = rows.scale[i] * rows.scale[j] * dot(rows.A[i], rows.A[j], rows.A.shape[1])
    rows.known[i] = True


@inner
def drop(active: Active, k: int, position: int) -> int:
    """Take one row out of K; rotations restore the triangle of L."""
    K, lam, L, _, barred = active
    barred[K[position]] = False
    for i in range(position, k - 1):
        K[i], lam[i] = K[i + 1], lam[i + 1]
        for j in range(i + 2):
            L[i, j] = L[i + 1, j]
    for i in range(position, k - 1):
        length = np.hypot(L[i, i], L[i, i + 1])
        c, s = L[i, i] / length, L[i, i + 1] / length
        L[i, i], L[i, i + 1] = length, 0.0
        for j in range(i + 1, k - 1):
            left, right = L[j, i], L[j, i + 1]
            L[j, i] = c * left + s * right
            L[j, i + 1] = c * right - s * left
    return k - 1


@inner
def direction(rows: GramRows, active: Active, k: int, i: int, to: Direction) -> float:
    """Fill `to` for the entering row i and return ||v||^2; zero when the row depends on the active ones."""
    K, _, L, _, _ = active
    d, v, dy, again = to
    know(rows, i)
    Gi = rows.G[i]
    for j in range(k):
        d[j] = Gi[K[j]]
    forward(L, k, d)
    square = Gi[i]
    for j in range(k):
        L[k, j] = d[j]
        square -= d[j] * d[j]
    backward(L, k, d)
    if square > NEARLY_DEPENDENT:
        copy(Gi, dy)
        for j in range(k):
            axpy(-d[j], rows.G[K[j]], dy)
        return square
    # the difference of Gram entries is mostly rounding here: form v itself, and make it orthogonal to A_K twice
    A, scale = rows.A, rows.scale
    for c in range(len(v)):
        v[c] = scale[i] * A[i, c]
    total = 1.0
    for j in range(k):
        axpy(-d[j] * scale[K[j]], A[K[j]], v)
        total += abs(d[j])
    for j in range(k):
        again[j] = scale[K[j]] * dot(A[K[j]], v, len(v))
    forward(L, k, again)
    backward(L, k, again)
    for j in range(k):
        d[j] += again[j]
        axpy(-again[j] * scale[K[j]], A[K[j]], v)
    square = dot(v, v, len(v))
    if square <= (1e-14 * total) ** 2:
        square = 0.0
    for row in range(len(dy)):
        dy[row] = scale[row] * dot(A[row], v, len(v)) if square > 0.0 else 0.0
    return square


@inner
def proves_cutoff(rows: GramRows, active: Active, k: int, U: float) -> bool:
    """Do the multipliers prove a distance of U or more, the margins of the rows deducted?"""
    K, lam, _, y, _ = active
    gain = drift = square = 0.0
    for j in range(k):
        i = K[j]
        gain -= lam[j] * rows.r[i] + abs(lam[j]) * rows.slack[i]
        drift += abs(lam[j]) * rows.growth[i]
        square -= lam[j] * (y[i] + rows.r[i])  # G lam = -(y + r)
    return gain > 0.0 and gain >= U * (np.sqrt(max(square, 0.0)) + drift)


@inner
def most_violated(rows: GramRows, active: Active, k: int, e: int, D: float) -> int:
    """The row to enter next, the equality before all others; -1 at the optimum."""
    slack, growth = rows.slack, rows.growth
    lam, y, barred = active.lam, active.y, active.barred
    length, rounding = np.sqrt(2.0 * D), 0.0
    for j in range(k):
        rounding += 4e-16 * abs(lam[j])
    if e >= 0 and not barred[e] and abs(y[e]) > SHARE * (slack[e] + growth[e] * length) + rounding:
        return e
    best, worst = rounding, -1
    for i in range(len(y)):
        if y[i] > best and not barred[i] and y[i] > SHARE * (slack[i] + growth[i] * length) + rounding:
            best, worst = y[i], i
    return worst


@inner
def bar_active(active: Active, k: int) -> None:
    """No row is barred but those in K."""
    K, barred = active.K, active.barred
    for i in range(len(barred)):
        barred[i] = False
    for j in range(k):
        barred[K[j]] = True


@inner
def first_to_leave(active: Active, k: int, e: int, sign: float, d: Vector) -> tuple[int, float]:
    """Position in K of the first multiplier to fall to zero, and the step to there; the equality's may cross it."""
    K, lam, _, _, _ = active
    step, position = np.inf, -1
    for j in range(k):
        fall = sign * d[j]
        if fall > 1e-13 and K[j] != e and lam[j] < step * fall:
            step, position = lam[j] / fall, j
    return position, max(step, 0.0)


@inner
def ascend(rows: GramRows, active: Active, k: int, D: float, e: int, U: float, to: Direction) -> tuple[int, int, float]:
    """Goldfarb-Idnani from the present state to the optimum with row e an equality; status, k, D."""
    K, lam, L, y, barred = active
    d, dy = to.d, to.dy
    half = 0.5 * U * U
    steps = 50 * len(y) + 100
    bar_active(active, k)
    ignored = False  # a row that contradicts K by rounding only; another K may decide otherwise
    while steps > 0:
        if half <= D and proves_cutoff(rows, active, k, U):
            return FAR, k, D
        i = most_violated(rows, active, k, e, D)
        if i < 0:
            return OPTIMAL, k, D
        sign = -1.0 if i == e and y[i] < 0.0 else 1.0
        own = 0.0  # multiplier of the entering row
        while True:
            steps -= 1
            if is_time_to_look(steps, rows.A) and late(rows.timer):
                return FAILED, k, D
            square = direction(rows, active, k, i, to)
            leaving, step = first_to_leave(active, k, e, sign, d)
            violation = sign * y[i]
            full = max(violation, 0.0) / square if square > 0.0 else np.inf
            if min(step, full) == np.inf:  # the row contradicts the active ones: they prove the set empty, or nearly
                gain, drift = -sign * rows.r[i] - rows.slack[i], rows.growth[i]
                for j in range(k):
                    gain += sign * d[j] * rows.r[K[j]] - abs(d[j]) * rows.slack[K[j]]
                    drift += abs(d[j]) * rows.growth[K[j]]
                if gain <= 0.0 or (np.isfinite(U) and gain < U * drift):  # by no more than rounding
                    barred[i] = ignored = True
                    break
                for j in range(k):
                    lam[j] = -sign * d[j]
                K[k], lam[k] = i, sign
                return FAR, k + 1, np.inf
            t = min(step, full)
            D += t * violation - 0.5 * t * t * square
            own += t
            for j in range(k):
                lam[j] -= t * sign * d[j]
            axpy(-t * sign, dy, y)
            if full <= step:
                L[k, k] = np.sqrt(square)
                K[k], lam[k], barred[i], y[i] = i, sign * own, True, 0.0
                k += 1
                if ignored:
                    bar_active(active, k)
                    ignored = False
                break
            lam[leaving] = 0.0
            k = drop(active, k, leaving)
            K[k], lam[k] = i, sign * own
            if half <= D and proves_cutoff(rows, active, k + 1, U):
                return FAR, k + 1, D
            if steps <= 0:
                return FAILED, k + 1, D
    return FAILED, k, D


@inner
def refresh(rows: GramRows, active: Active, k: int, e: int) -> tuple[float, bool]:
    """Solve G_KK lam = -r_K anew, which wipes out the rounding of all updates; D, and is it still the optimum?"""
    K, lam, L, y, _ = active
    D = 0.0
    for j in range(k):
        lam[j] = -rows.r[K[j]]
    forward(L, k, lam)
    for j in range(k):
        D += 0.5 * lam[j] * lam[j]
    backward(L, k, lam)
    for i in range(len(y)):
        y[i] = -rows.r[i]
    for j in range(k):
        if K[j] != e and lam[j] < 0.0:
            lam[j] = 0.0
        axpy(-lam[j], rows.G[K[j]], y)
    return D, most_violated(rows, active, k, e, D) < 0


@inner
def nearest_point(rows: GramRows, active: Active, k: int, error: Vector, w: Vector) -> None:
    """w = -A_K^T lam, with one correction computed from the rows themselves: the Gram matrix knows fewer digits."""
    A, scale, r = rows.A, rows.scale, rows.r
    K, lam, L, _, _ = active
    for j in range(k):
        axpy(-lam[j] * scale[K[j]], A[K[j]], w)
    for j in range(k):
        error[j] = scale[K[j]] * dot(A[K[j]], w, len(w)) - r[K[j]]
    forward(L, k, error)
    backward(L, k, error)
    for j in range(k):
        axpy(-error[j] * scale[K[j]], A[K[j]], w)


@inner
def to_optimum(
    rows: GramRows, active: Active, k: int, D: float, e: int, U: float, to: Direction
) -> tuple[int, int, float]:
    """`ascend`, checked at its end in fresh arithmetic and continued where the old one was misled."""
    status = FAILED
    for _ in range(4):
        status, k, D = ascend(rows, active, k, D, e, U, to)
        if status != OPTIMAL:
            break
        D, still = refresh(rows, active, k, e)
        if still:
            break
        status = FAILED
    return status, k, D


@njit
def solve_family(rows: GramRows, faces: Indices, U: float) -> tuple[Indices, Matrix, Matrix]:
    """Every face of one region: statuses, nearest points, multipliers."""
    m, n = rows.A.shape
    r = rows.r
    to = Direction(np.empty(m + 1), np.empty(n), np.empty(m), np.empty(m + 1))
    home = Active(np.empty(m + 1, np.int64), np.zeros(m + 1), np.zeros((m + 1, m + 1)), -r, np.zeros(m, np.bool_))
    active = Active(np.empty(m + 1, np.int64), np.zeros(m + 1), np.zeros((m + 1, m + 1)), -r, np.zeros(m, np.bool_))
    statuses = np.full(len(faces), FAILED, np.int64)
    points = np.zeros((len(faces), n))
    multipliers = np.zeros((len(faces), m))

    region, k_home, D_home = to_optimum(rows, home, ZERO, 0.0, NO_ROW, U, to)
    for f in range(len(faces)):
        e = faces[f]
        K, lam, L, y, barred = active
        if region == FAILED and e >= 0:
            k, D = 0, 0.0
            for i in range(m):
                y[i], barred[i] = -r[i], False
        else:
            k, D = k_home, D_home
            for i in range(m):
                y[i], barred[i] = home.y[i], home.barred[i]
            for j in range(k):
                K[j], lam[j] = home.K[j], home.lam[j]
                for i in range(j + 1):
                    L[j, i] = home.L[j, i]
        status = region
        if e >= 0 and region != FAR:  # a region beyond the cutoff has all its faces there
            status, k, D = to_optimum(rows, active, k, D, e, U, to)
        if status == OPTIMAL:
            nearest_point(rows, active, k, to.error, points[f])
        statuses[f] = status
        for j in range(k):
            multipliers[f, K[j]] = lam[j]
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
    G: Matrix,
) -> tuple[Matrix, Matrix]:
    """Points and multipliers of a family in its own units; G is A A^T, or empty to have it filled in where needed."""
    m, n = A.shape
    units = in_units(r, slack, growth, size, n, cutoff)
    scale = 1.0 / size
    known = np.full(m, len(G) > 0)
    if len(G) == 0:
        G = np.empty((m, m))
    else:
        for i in range(m):
            for j in range(m):
                G[i, j] *= scale[i] * scale[j]
    rows = GramRows(A, scale, units.r, units.slack, units.growth, G, known, timer)
    statuses, points, multipliers = solve_family(rows, faces, units.U)
    in_own_units(statuses, points, multipliers, size, units.unit)
    return points, multipliers
