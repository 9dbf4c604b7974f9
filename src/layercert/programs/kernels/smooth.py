"""1 < p < inf, with and without a box: damped projected Newton on the separable dual.

    maximise F(lam) = sum_c min_w (|w|^p/p + g_c w) - lam.r,   g = A^T lam,   lam >= 0 off the equality

The inner minimum w(g) = -sign(g) |g|^(q-1), cut off at the box, is one formula, so a box costs nothing (dual.py). The
gradient A w - r is the violation of the rows. Newton works on the rows that have a multiplier and the worst of the
violated ones (newton.py), and every iterate proves a distance: dist^p/p >= F. Where p > 2, w is a root of g, which a
tiny g leaves undetermined in floating point: so at the end Newton works on the point itself (polish.py), which costs it
little.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import copy
from layercert.compiled.jit import njit
from layercert.compiled.timer import Timer
from layercert.programs.kernels.dual import SHARE, Dual, NewtonScratch, Smooth, power
from layercert.programs.kernels.newton import climb
from layercert.programs.kernels.polish import polish
from layercert.programs.kernels.scaled import FAILED, FAR, NO_ROW, OPTIMAL
from layercert.programs.kernels.units import in_own_units, in_units, rooms, unit_rows


@njit
def solve_family(ask: Smooth, faces: Indices, U: float) -> tuple[Indices, Matrix, Matrix]:
    """Every face of one region: statuses, nearest points, multipliers."""
    m, n = ask.A.shape
    r, slack, p = ask.r, ask.slack, ask.p
    work = NewtonScratch(
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
        region, F = climb(ask, dual, trial, NO_ROW, U, work)
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
            polish(ask, dual, e, F, work)
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
    down, up = rooms(down, up, n, units.unit)
    A = unit_rows(A, size)
    ask = Smooth(A, units.r, units.slack, units.growth, up, down, powers(up, p), powers(down, p), p, timer)
    statuses, points, multipliers = solve_family(ask, faces, units.U)
    in_own_units(statuses, points, multipliers, size, units.unit)
    return points, multipliers
