"""A family of programs in the units its kernel works in: unit rows, lengths near one, zero rows taken out.

Row i is divided by ||A_i||_q, so that r_i becomes the signed distance from x to its hyperplane, and all lengths by a
common unit. A zero row is no constraint, or it is violated everywhere and then it is the proof of emptiness itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Indices, Matrix, Vector, gamma
from layercert.programs.program import Candidates, Programs

#: What a kernel says of one program: a nearest point, a proof that it is beyond the cutoff, or neither.
OPTIMAL, FAR, FAILED = 0, 1, 2

#: A row shorter than this is a zero row: dividing by it would overflow.
TINY = 1e-250


@dataclass(frozen=True, eq=False)
class Scaled:
    """Unit rows A w <= r with the margins `check` grants them, the faces asked for, and the way back."""

    A: Matrix
    r: Vector
    slack: Vector  # a row counts as satisfied up to slack + growth*||w||, and a bound is proved against as much
    growth: Vector
    faces: Indices  # equality rows, numbered as the rows of A; -1 for none
    U: float  # cutoff, with the rounding of the final proof added
    unit: float
    size: Vector
    live: Indices  # row i of A is row live[i] of the programs

    @staticmethod
    def of(programs: Programs) -> Scaled:
        rows = programs.rows
        m, n = rows.A.shape
        all_sizes = programs.norm.dual(rows.A)
        live = np.flatnonzero(all_sizes > TINY)
        size = all_sizes[live]
        r = rows.r[live] / size
        unit = programs.cutoff if 0.0 < programs.cutoff < math.inf else float(np.abs(r).max(initial=0.0))
        if not TINY < unit < 1 / TINY:
            unit = 1.0
        r /= unit
        noise = gamma(m + 4)  # of the product A^T lam in the proof
        number = np.full(m + 1, -1, dtype=np.intp)
        number[live] = np.arange(len(live))
        return Scaled(
            np.ascontiguousarray(rows.A[live] / size[:, None]),
            r,
            rows.slack[live] / (size * unit) + noise * np.abs(r),
            rows.growth[live] / size + noise,
            number[programs.equalities],
            programs.cutoff / unit * (1.0 + gamma(4 * n + 200)),
            unit,
            size,
            live,
        )

    def candidates(self, programs: Programs, status: Indices, steps: Matrix, multipliers: Matrix) -> Candidates:
        """The kernel's answers in the programs' own units; NaN where it found no point, or failed."""
        steps = np.where((status == OPTIMAL)[:, None], steps * self.unit, np.nan)
        lam = np.zeros((len(programs), len(programs.rows)))
        lam[:, self.live] = multipliers / self.size
        return Candidates(steps, np.where((status == FAILED)[:, None], np.nan, lam))


def rays_of_zero_rows(programs: Programs) -> Matrix | None:
    """Multipliers that prove a program empty by a zero row alone, NaN for the other programs; None if there is none."""
    rows, faces = programs.rows, programs.equalities
    zero = programs.norm.dual(rows.A) <= TINY
    if not zero.any():
        return None
    broken = np.flatnonzero(zero & (rows.r < -rows.slack))
    missed = (faces >= 0) & zero[faces] & (np.abs(rows.r[faces]) > rows.slack[faces])
    if not len(broken) and not missed.any():
        return None
    rays = np.zeros((len(programs), len(rows)))
    if len(broken):
        rays[:, broken[0]] = 1.0
        return rays
    rays[missed, faces[missed]] = -np.sign(rows.r[faces[missed]])
    rays[~missed] = np.nan
    return rays
