"""1 < p < inf (smooth.py): damped projected Newton on the dual, with a line search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import backward, cholesky, copy, dot, forward, largest
from layercert.compiled.jit import inner
from layercert.compiled.timer import late
from layercert.programs.kernels.dual import (
    Dual,
    NewtonScratch,
    Smooth,
    choose_free,
    evaluate,
    gram,
    length_of,
    power,
    proves_cutoff,
)
from layercert.programs.kernels.scaled import FAILED, FAR, OPTIMAL
from layercert.programs.kernels.units import is_time_to_look

#: Violated rows that may get a multiplier in one step.
NEWCOMERS = 2
#: Newton steps.
STEPS = 120
#: Part of the gain that the gradient promises which a step must bring (Armijo's rule).
SHARE = 0.2
#: Halvings of a step, while there is another direction to try and when there is none.
FEW, MANY = 6, 16


class Step(NamedTuple):
    """Where a line search begins: how many rows are free, the row that is an equality (-1: none), the first length."""

    k: int
    e: int
    t: float


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
    ask: Smooth, dual: Dual, trial: Dual, first: Step, F: float, attempts: int, work: NewtonScratch
) -> float:
    """Halve the step until F gains its share of what the gradient promises; -inf when no attempt does."""
    y, free, d = work.y, work.free, work.d
    k, e, t = first
    cap = step_to_zero(dual.lam, free, d, k, e)
    for attempt in range(attempts):
        better = try_step(ask, dual, trial, free, d, k, t, e)
        promise = 0.0
        for a in range(k):
            promise += y[free[a]] * (trial.lam[free[a]] - dual.lam[free[a]])
        if promise > 0.0 and better >= F + SHARE * promise and better > F:
            return better
        # among dependent rows a direction may be endless: go no farther than the first multiplier at zero
        t = cap if attempt == 3 and cap < t else 0.5 * t
    return -np.inf


@inner
def climb(ask: Smooth, dual: Dual, trial: Dual, e: int, U: float, work: NewtonScratch) -> tuple[int, float]:
    """Newton from the present multipliers; OPTIMAL also where rounding ends the progress. Status and F."""
    A, r, lam, w = ask.A, ask.r, dual.lam, dual.w
    y, free, d, slope, H, L = work.y, work.free, work.d, work.slope, work.H, work.L
    m, n = A.shape
    F = evaluate(ask, dual)
    for step in range(STEPS):
        if is_time_to_look(step, A) and late(ask.timer):
            return FAILED, F
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
            better = line_search(ask, dual, trial, Step(k, e, 1.0), F, FEW, work)
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
                better = line_search(ask, dual, trial, Step(k, e, t), F, MANY, work)
        if better == -np.inf:
            return OPTIMAL, F
        F = better
        copy(trial.lam, lam)
        copy(trial.g, dual.g)
        copy(trial.w, w)
    return FAILED, F
