"""A family in the units its kernel works in, and the answers back in its own: unit rows, lengths near one.

Row i is divided by ||A_i||_q, so that r_i becomes the signed distance from x to its hyperplane, and all lengths by a
common unit. Compiled, because a small program is solved in less time than numpy takes for a dozen short vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector, gamma
from layercert.compiled.jit import inner, known_to_kernels, njit
from layercert.programs.kernels.scaled import OPTIMAL, TINY

known_to_kernels(gamma)

#: A program with more entries than this is large; a small one looks at the clock every so many steps.
LARGE, LOOK_EVERY = 10_000, 16


class Units(NamedTuple):
    """Right-hand sides with the margins `check` grants them; U is the cutoff with the rounding of the proof added."""

    unit: float
    U: float
    r: Vector
    slack: Vector  # a row counts as satisfied up to slack + growth*||w||, and a bound is proved against as much
    growth: Vector


@njit
def in_units(r: Vector, slack: Vector, growth: Vector, size: Vector, n: int, cutoff: float) -> Units:
    m = len(r)
    unit = cutoff
    if not 0.0 < cutoff < np.inf:
        unit = 0.0
        for i in range(m):
            unit = max(unit, abs(r[i] / size[i]))
    if not TINY < unit < 1.0 / TINY:
        unit = 1.0
    noise = gamma(m + 4)  # of the product A^T lam in the proof
    U = cutoff / unit * (1.0 + gamma(4 * n + 200))
    units = Units(unit, U, np.empty(m), np.empty(m), np.empty(m))
    for i in range(m):
        units.r[i] = r[i] / size[i] / unit
        units.slack[i] = slack[i] / (size[i] * unit) + noise * abs(units.r[i])
        units.growth[i] = growth[i] / size[i] + noise
    return units


@inner
def is_time_to_look(step: int, A: Matrix) -> bool:
    """At the clock: at every step of a large program, now and then in a small one, where a step takes no longer."""
    return A.size > LARGE or step % LOOK_EVERY == 0


@njit
def unit_rows(A: Matrix, size: Vector) -> Matrix:
    m, n = A.shape
    rows = np.empty((m, n))
    for i in range(m):
        inverse = 1.0 / size[i]
        for c in range(n):
            rows[i, c] = A[i, c] * inverse
    return rows


@njit
def rooms(down: Vector, up: Vector, n: int, unit: float) -> tuple[Vector, Vector]:
    """How far each coordinate may go down and up, both >= 0; a box that is not there is given by empty vectors."""
    if len(up) == 0:
        return np.full(n, np.inf), np.full(n, np.inf)
    return down / unit, up / unit


@inner
def in_own_units(statuses: Indices, points: Matrix, multipliers: Matrix, size: Vector, unit: float) -> None:
    """The kernel's answers as the programs state them: a point where it found one, multipliers always."""
    for f in range(len(statuses)):
        for c in range(points.shape[1]):
            points[f, c] = points[f, c] * unit if statuses[f] == OPTIMAL else np.nan
        for i in range(len(size)):
            multipliers[f, i] /= size[i]
