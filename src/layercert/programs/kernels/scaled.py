"""A family of programs in the units its kernel works in: unit rows, lengths near one, zero rows taken out.

Row i is divided by ||A_i||_q, so that r_i becomes the signed distance from x to its hyperplane, and all lengths by a
common unit. A zero row is no constraint, or it is violated everywhere and then it is the proof of emptiness itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Indices, Matrix, Vector, gamma
from layercert.programs.program import Candidates, Programs, row_sizes

#: What a kernel says of one program: a nearest point, a proof that it is beyond the cutoff, or neither.
OPTIMAL, FAR, FAILED = 0, 1, 2

#: A row shorter than this is a zero row: dividing by it would overflow.
TINY = 1e-250


@dataclass(frozen=True, eq=False)
class Scaled:
    """Unit rows with the margins `check` grants them, the faces asked for, and the way back."""

    programs: Programs
    live: Indices  # the rows that are not zero; everything below is numbered as they are
    size: Vector
    unit: float
    r: Vector
    slack: Vector  # a row counts as satisfied up to slack + growth*||w||, and a bound is proved against as much
    growth: Vector
    faces: Indices  # equality rows; -1 for none
    U: float  # cutoff, with the rounding of the final proof added

    @staticmethod
    def of(programs: Programs) -> Scaled:
        rows = programs.rows
        m, n = rows.A.shape
        sizes = row_sizes(rows, programs.norm)
        live = np.flatnonzero(sizes > TINY)
        size, r, slack, growth, faces = sizes, rows.r, rows.slack, rows.growth, programs.equalities
        if len(live) < m:
            size, r, slack, growth = size[live], r[live], slack[live], growth[live]
            number = np.full(m + 1, -1, dtype=np.intp)
            number[live] = np.arange(len(live))
            faces = number[faces]
        r = r / size
        unit = programs.cutoff if 0.0 < programs.cutoff < math.inf else float(np.abs(r).max(initial=0.0))
        if not TINY < unit < 1 / TINY:
            unit = 1.0
        r /= unit
        noise = gamma(m + 4)  # of the product A^T lam in the proof
        slack = slack / (size * unit) + noise * np.abs(r)
        growth = growth / size + noise
        U = programs.cutoff / unit * (1.0 + gamma(4 * n + 200))
        return Scaled(programs, live, size, unit, r, slack, growth, faces, U)

    def rows(self) -> Matrix:
        """The live rows as they are, in one block of memory."""
        A = self.programs.rows.A
        return np.ascontiguousarray(A if len(self.live) == len(A) else A[self.live])

    def unit_rows(self) -> Matrix:
        return self.rows() / self.size[:, None]

    def rooms(self) -> tuple[Vector, Vector]:
        """How far each coordinate may go down and up, both >= 0."""
        box, n = self.programs.box, self.programs.rows.A.shape[1]
        if box is None:
            return np.full(n, math.inf), np.full(n, math.inf)
        return -box.lo / self.unit, box.hi / self.unit

    def candidates(self, status: Indices, steps: Matrix, multipliers: Matrix) -> Candidates:
        """The kernel's answers in the programs' own units: a point where it found one, multipliers always."""
        steps *= self.unit
        steps[status != OPTIMAL] = np.nan
        multipliers /= self.size
        if len(self.live) < len(self.programs.rows):
            lam = np.zeros((len(status), len(self.programs.rows)))
            lam[:, self.live] = multipliers
            multipliers = lam
        return Candidates(steps, multipliers)


def rays_of_zero_rows(programs: Programs) -> Matrix | None:
    """Multipliers that prove a program empty by a zero row alone, NaN for the other programs; None if there is none."""
    rows, faces = programs.rows, programs.equalities
    zero = row_sizes(rows, programs.norm) <= TINY
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
