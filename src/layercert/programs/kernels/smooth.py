"""1 < p < inf, with and without a box: damped projected Newton on the separable dual.

    maximise F(lam) = sum_c min_w (|w|^p/p + g_c w) - lam.r,   g = A^T lam,   lam >= 0 off the equality

The inner minimum w(g) = -sign(g) |g|^(q-1), cut off at the box, is one formula, so a box costs nothing. The gradient
A w - r is the violation of the rows. Newton works on the rows that have a multiplier and the worst of the violated
ones, and every iterate proves a distance: dist^p/p >= F. Where p > 2, w is a root of g, which a tiny g leaves
undetermined in floating point: so at the end Newton works on the point itself (`settle`), which costs it little.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.programs.kernels.dense import axpy, backward, cholesky, copy, dot, forward, largest
from layercert.programs.kernels.jit import inner, njit
from layercert.programs.kernels.scaled import FAILED, FAR, OPTIMAL
from layercert.programs.kernels.units import in_own_units, in_units, rooms, unit_rows

#: Share of a row's margin that the method itself uses; the rest is left to the rounding of the final check.
SHARE = 0.25
#: Relative gap between the point's value and F at which a program is solved.
GAP = 1e-11
#: Violated rows that may get a multiplier in one step.
NEWCOMERS = 2
#: Newton steps.
STEPS = 120


class Smooth(NamedTuple):
    """What is asked: unit rows, their margins, the room of each coordinate and its p-th power."""

    A: Matrix
    r: Vector
    slack: Vector
    growth: Vector
    up: Vector
    down: Vector
    up_p: Vector
    down_p: Vector
    p: float


class Dual(NamedTuple):
    """Where the method stands."""

    lam: Vector
    g: Vector
    w: Vector


class Work(NamedTuple):
    """Arrays reused by every step."""

    y: Vector  # A w - r
    free: Indices
    d: Vector
    scaled: Matrix  # active rows times the root of the slopes
    H: Matrix
    L: Matrix
    slope: Vector
    rest: Vector  # |w|^(p-1) sign(w) + g, zero at the optimum


@inner
def power(x: float, exponent: float) -> float:
    """x**exponent for x >= 0, the common exponents without logarithms."""
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == 0.5:
        return np.sqrt(x)
    return x**exponent


@inner
def respond(g: Vector, w: Vector, up: Vector, down: Vector, up_p: Vector, down_p: Vector, p: float) -> float:
    """w(g) and the sum of the inner minima; |w|^p = |w||g| as long as the box does not hold w."""
    q = p / (p - 1.0)
    total = 0.0
    for c in range(len(g)):
        size = abs(g[c])
        length = power(size, q - 1.0)
        room, room_p = (down[c], down_p[c]) if g[c] > 0.0 else (up[c], up_p[c])
        if length < room:
            total -= length * size / q
        else:
            length = room
            total += room_p / p - room * size
        w[c] = -length if g[c] > 0.0 else length
    return total


@inner
def evaluate(ask: Smooth, dual: Dual) -> float:
    """g and w for the multipliers; returns F."""
    lam, g, w = dual
    for c in range(len(g)):
        g[c] = 0.0
    F = 0.0
    for i in range(len(lam)):
        if lam[i] != 0.0:
            axpy(lam[i], ask.A[i], g)
            F -= lam[i] * ask.r[i]
    return F + respond(g, w, ask.up, ask.down, ask.up_p, ask.down_p, ask.p)


@inner
def length_of(F: float, p: float) -> float:
    return (p * F) ** (1.0 / p) if F > 0.0 else 0.0


@inner
def proves_cutoff(ask: Smooth, lam: Vector, F: float, U: float) -> bool:
    """Would a point nearer than U contradict F, the margins of the rows deducted?"""
    loss = 0.0
    for i in range(len(lam)):
        loss += abs(lam[i]) * (ask.slack[i] + ask.growth[i] * U)
    return F - loss >= U**ask.p / ask.p


@inner
def choose_free(
    ask: Smooth, lam: Vector, y: Vector, free: Indices, e: int, length: float, newcomers: int
) -> tuple[int, float]:
    """Rows that have a multiplier, and the most violated of the others; their number, and the worst residual.

    The residual is in units of the tolerance. More than a few newcomers at once get multipliers that are taken back one
    by one later.
    """
    count, worst = 0, 0.0
    for i in range(len(lam)):
        tolerance = SHARE * (ask.slack[i] + ask.growth[i] * length)
        if i == e or lam[i] > 0.0:
            free[count] = i
            count += 1
            worst = max(worst, abs(y[i]) / tolerance)
        else:
            worst = max(worst, y[i] / tolerance)
    held, last = count, np.inf
    while count < held + newcomers:
        best = -1
        for i in range(len(lam)):
            # a row that is mostly noise has a wide margin: it may lie far out and not be violated at all
            violated = y[i] > SHARE * (ask.slack[i] + ask.growth[i] * length)
            if violated and i != e and lam[i] <= 0.0 and y[i] < last and (best < 0 or y[i] > y[best]):
                best = i
        if best < 0:
            break
        last = y[best]
        free[count] = best
        count += 1
    return count, worst


@inner
def gram(A: Matrix, free: Indices, k: int, slope: Vector, scaled: Matrix, H: Matrix) -> float:
    """H = A_K diag(slope) A_K^T, the curvature of -F on the rows K; returns its largest diagonal entry."""
    n = len(slope)
    for c in range(n):
        slope[c] = np.sqrt(slope[c])
    top = 0.0
    for a in range(k):
        row, source = scaled[a], A[free[a]]
        for c in range(n):
            row[c] = source[c] * slope[c]
        for b in range(a + 1):
            H[a, b] = dot(row, scaled[b], n)
        top = max(top, H[a, a])
    return top


@inner
def dual_slopes(ask: Smooth, dual: Dual, slope: Vector) -> None:
    """|dw/dg| = (q-1) |w|/|g|, nothing where the box holds w."""
    q1 = 1.0 / (ask.p - 1.0)
    g, w = dual.g, dual.w
    least = 1e-14 * largest(g, len(g))
    for c in range(len(g)):
        room = ask.down[c] if g[c] > 0.0 else ask.up[c]
        size = max(abs(g[c]), least)
        slope[c] = q1 * power(size, q1 - 1.0) if abs(w[c]) < room and size > 0.0 else 0.0


@inner
def step_to_zero(lam: Vector, free: Indices, d: Vector, k: int, e: int) -> float:
    """How far the first multiplier is from zero along d."""
    cap = np.inf
    for a in range(k):
        if d[a] < 0.0 and free[a] != e and lam[free[a]] > 0.0:
            cap = min(cap, lam[free[a]] / -d[a])
    return cap


@inner
def try_step(ask: Smooth, dual: Dual, to: Dual, free: Indices, d: Vector, k: int, t: float, e: int) -> float:
    """The projected step; F there."""
    copy(dual.lam, to.lam)
    for a in range(k):
        i = free[a]
        to.lam[i] += t * d[a]
        if i != e and to.lam[i] <= 1e-15 * dual.lam[i]:  # zero up to the rounding of a step that was to end there
            to.lam[i] = 0.0
    return evaluate(ask, to)


@inner
def held_at_zero(lam: Vector, free: Indices, d: Vector, k: int, e: int) -> int:
    """Position of the row without a multiplier whose direction is most negative; -1: none."""
    worst = -1
    for a in range(k):
        if d[a] < 0.0 and free[a] != e and lam[free[a]] <= 0.0 and (worst < 0 or d[a] < d[worst]):
            worst = a
    return worst


@inner
def leave_out(H: Matrix, free: Indices, k: int, position: int) -> int:
    """Take one row out of the free ones and of H."""
    for a in range(position, k - 1):
        free[a] = free[a + 1]
        for b in range(position):
            H[a, b] = H[a + 1, b]
        for b in range(position, a + 1):
            H[a, b] = H[a + 1, b + 1]
    return k - 1


@inner
def newton(H: Matrix, L: Matrix, y: Vector, free: Indices, k: int, extra: float, d: Vector) -> float:
    """d with (H + extra I) d = y on the free rows; returns y.d, -1 where H is not definite enough."""
    if not cholesky(H, L, k, extra):
        return -1.0
    for a in range(k):
        d[a] = y[free[a]]
    forward(L, k, d)
    promise = dot(d, d, k)
    backward(L, k, d)
    return promise


@inner
def line_search(
    ask: Smooth,
    dual: Dual,
    trial: Dual,
    y: Vector,
    free: Indices,
    d: Vector,
    k: int,
    t: float,
    e: int,
    F: float,
    attempts: int,
) -> float:
    """Halve the step until F gains its share of what the gradient promises; -inf when no attempt does."""
    cap = step_to_zero(dual.lam, free, d, k, e)
    for attempt in range(attempts):
        better = try_step(ask, dual, trial, free, d, k, t, e)
        promise = 0.0
        for a in range(k):
            promise += y[free[a]] * (trial.lam[free[a]] - dual.lam[free[a]])
        if promise > 0.0 and better >= F + 0.2 * promise and better > F:
            return better
        # among dependent rows a direction may be endless: go no farther than the first multiplier at zero
        t = cap if attempt == 3 and cap < t else 0.5 * t
    return -np.inf


@inner
def climb(ask: Smooth, dual: Dual, trial: Dual, e: int, U: float, work: Work) -> tuple[int, float]:
    """Newton from the present multipliers; OPTIMAL also where rounding ends the progress. Status and F."""
    A, r, lam, w = ask.A, ask.r, dual.lam, dual.w
    y, free, d, slope, H, L = work.y, work.free, work.d, work.slope, work.H, work.L
    m, n = A.shape
    F = evaluate(ask, dual)
    for _ in range(STEPS):
        length = length_of(F, ask.p)
        if length >= min(U, 1e12) and (not np.inf > U or proves_cutoff(ask, lam, F, U)):
            return FAR, F
        for i in range(m):
            y[i] = dot(A[i], w, n) - r[i]
        k, worst = choose_free(ask, lam, y, free, e, length, NEWCOMERS)
        if worst <= 1.0:
            return OPTIMAL, F
        dual_slopes(ask, dual, slope)
        # where the box holds everything there is no curvature: the ratio of lengths stands in
        top = max(gram(A, free, k, slope, work.scaled, H), largest(w, n) / largest(dual.g, n))
        better = -np.inf
        damping = 1e-14
        while better == -np.inf and damping < 1e3:
            extra = damping * top + 1e-200
            damping *= 1e3
            promise = newton(H, L, y, free, k, extra, d)
            if promise < 0.0:
                continue
            if promise <= 1e-15 * F:
                return OPTIMAL, F
            better = line_search(ask, dual, trial, y, free, d, k, 1.0, e, F, 6)
            if better > -np.inf:
                break
            # Nearly dependent rows: cutting negative multipliers off turns the direction around. Leave the rows out
            # that would go below zero at once, and go no farther than the first multiplier at zero.
            out = held_at_zero(lam, free, d, k, e)
            while out >= 0 and promise >= 0.0:
                k = leave_out(H, free, k, out)
                promise = newton(H, L, y, free, k, extra, d)
                out = held_at_zero(lam, free, d, k, e)
            if promise > 0.0:
                t = min(1.0, step_to_zero(lam, free, d, k, e))
                better = line_search(ask, dual, trial, y, free, d, k, t, e, F, 16)
        if better == -np.inf:
            return OPTIMAL, F
        F = better
        copy(trial.lam, lam)
        copy(trial.g, dual.g)
        copy(trial.w, w)
    return FAILED, F


@inner
def settle(ask: Smooth, dual: Dual, e: int, F: float, work: Work) -> None:
    """Newton on the point itself: least |w|^p/p on the rows with a multiplier and those it violates, inside the box."""
    A, r, p, lam, w, g = ask.A, ask.r, ask.p, dual.lam, dual.w, dual.g
    y, free, d, slope, H, L, rest = work.y, work.free, work.d, work.slope, work.H, work.L, work.rest
    m, n = A.shape
    length, press = length_of(F, p), 1e-9 * largest(g, n)
    for attempt in range(20):
        for i in range(m):
            y[i] = dot(A[i], w, n) - r[i]
        k, worst = choose_free(ask, lam, y, free, e, length, m)
        if worst <= 1.0:
            value = 0.0
            for c in range(n):
                value += power(abs(w[c]), p) / p
            if value - F <= GAP * value:
                return
        top = largest(w, n)
        curvature = (p - 1.0) * power(top, p - 2.0)
        for c in range(n):
            size = abs(w[c])
            force = power(size, p - 1.0)
            rest[c] = (force if w[c] > 0.0 else -force) + g[c]
            # a bound holds what g presses against it; what merely lies there may leave, unless it keeps coming back
            least = press if attempt <= 8 else -np.inf
            held = (w[c] >= ask.up[c] and -rest[c] > least) or (-w[c] >= ask.down[c] and rest[c] > least)
            size = size / top if top > 0.0 else 1.0
            if p > 2.0:
                slope[c] = 1.0 / (power(size, p - 2.0) + 1e-12)
            else:
                slope[c] = power(max(size, 1e-14), 2.0 - p)
            slope[c] = 0.0 if held else slope[c] / curvature
        for a in range(k):
            d[a] = y[free[a]]
            row = A[free[a]]
            for c in range(n):
                d[a] -= row[c] * slope[c] * rest[c]
        for c in range(n):
            w[c] -= slope[c] * rest[c]
        diagonal = gram(A, free, k, slope, work.scaled, H)
        damping = 1e-15
        while not cholesky(H, L, k, damping * diagonal + 1e-200):
            damping *= 100.0
            if not damping < 1.0:
                return
        forward(L, k, d)
        backward(L, k, d)
        for a in range(k):
            row = work.scaled[a]
            for c in range(n):
                w[c] -= d[a] * slope[c] * row[c]  # both hold the root of the slope
        for c in range(n):
            w[c] = min(max(w[c], -ask.down[c]), ask.up[c])


@njit
def solve_family(ask: Smooth, faces: Indices, U: float) -> tuple[Indices, Matrix, Matrix]:
    """Every face of one region: statuses, nearest points, multipliers."""
    m, n = ask.A.shape
    r, slack, p = ask.r, ask.slack, ask.p
    work = Work(
        np.empty(m),
        np.empty(m, np.int64),
        np.empty(m),
        np.empty((m, n)),
        np.empty((m, m)),
        np.zeros((m, m)),
        np.empty(n),
        np.empty(n),
    )
    dual = Dual(np.zeros(m), np.empty(n), np.empty(n))
    trial = Dual(np.zeros(m), np.empty(n), np.empty(n))
    home = np.zeros(m)
    statuses = np.full(len(faces), FAILED, np.int64)
    points = np.zeros((len(faces), n))
    multipliers = np.zeros((len(faces), m))

    worst, inside = 0, True
    for i in range(m):
        if r[i] < r[worst]:
            worst = i
        inside = inside and r[i] >= -SHARE * slack[i]
    region = OPTIMAL
    if not inside:
        dual.lam[worst] = (-r[worst]) ** (p - 1.0)  # the nearest point of its halfspace, exact without a box
        region, F = climb(ask, dual, trial, -1, U, work)
        copy(dual.lam, home)
    for f in range(len(faces)):
        e = faces[f]
        if inside and (e < 0 or abs(r[e]) <= SHARE * slack[e]):
            statuses[f] = OPTIMAL  # x itself
            continue
        if region == FAR:
            statuses[f] = FAR
            copy(home, multipliers[f])
            continue
        copy(home, dual.lam)
        if inside:
            dual.lam[e] = -np.sign(r[e]) * abs(r[e]) ** (p - 1.0)
        status, F = climb(ask, dual, trial, e, U, work)
        if status == OPTIMAL:
            settle(ask, dual, e, F, work)
            copy(dual.w, points[f])
        copy(dual.lam, multipliers[f])
        statuses[f] = status
    return statuses, points, multipliers


@njit
def powers(v: Vector, p: float) -> Vector:
    result = np.empty(len(v))
    for c in range(len(v)):
        result[c] = power(v[c], p) if v[c] < np.inf else np.inf
    return result


@njit
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
) -> tuple[Matrix, Matrix]:
    """Points and multipliers of a family in its own units."""
    n = A.shape[1]
    units = in_units(r, slack, growth, size, n, cutoff)
    down, up = rooms(down, up, n, units.unit)
    A = unit_rows(A, size)
    ask = Smooth(A, units.r, units.slack, units.growth, up, down, powers(up, p), powers(down, p), p)
    statuses, points, multipliers = solve_family(ask, faces, units.U)
    in_own_units(statuses, points, multipliers, size, units.unit)
    return points, multipliers
