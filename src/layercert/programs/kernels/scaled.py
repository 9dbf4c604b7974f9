"""What all kernels share: what they say of a program, and families with zero rows.

A zero row is no constraint, or it is violated everywhere and then it is the proof of emptiness itself. Kernels divide
by the lengths of the rows, so they are given the family without them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layercert.arrays import Indices, Matrix
from layercert.programs.program import Candidates, Programs, row_sizes

#: What a kernel says of one program: a nearest point, a proof that it is beyond the cutoff, or neither.
OPTIMAL, FAR, FAILED = 0, 1, 2
#: A region's equality, and other constants to begin with. Typed: numba compiles all that a literal reaches once more.
NO_ROW: Any = np.int64(-1)
ZERO: Any = np.int64(0)
NO: Any = np.bool_(False)

#: A row shorter than this is a zero row: dividing by it would overflow.
TINY = 1e-250


def without_zero_rows(programs: Programs) -> tuple[Programs, Indices]:
    """The same family over the rows that are not zero, and which these are; the face of a zero row is the region."""
    rows = programs.rows
    live = np.flatnonzero(row_sizes(rows, programs.norm) > TINY)
    number = np.full(len(rows) + 1, -1, dtype=np.intp)
    number[live] = np.arange(len(live))
    faces = number[programs.equalities]
    return Programs(rows.take(live), faces, programs.norm, programs.box, programs.cutoff, programs.tilt), live


def with_zero_rows(programs: Programs, live: Indices, answer: Candidates) -> Candidates:
    """The answers for the whole family: zero rows have no multiplier, unless one alone proves a program empty."""
    multipliers = np.zeros((len(programs), len(programs.rows)))
    multipliers[:, live] = answer.multipliers
    rays = rays_of_zero_rows(programs)
    if rays is not None:
        empty = np.isfinite(rays).all(axis=1)
        multipliers[empty] = rays[empty]
        answer.steps[empty] = np.nan
    return Candidates(answer.steps, multipliers)


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
