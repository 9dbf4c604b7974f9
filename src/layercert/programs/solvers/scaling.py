"""What every adapter does first: rows of unit size, a length near the answer's, and the cases that need no solver."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Indices, Matrix, Vector, least_squares
from layercert.programs.program import Candidates, Programs, row_sizes


@dataclass(frozen=True, eq=False)
class Scaled:
    """The rows A w <= r with ||A_j||_q = 1, and what is known of each program at sight.

    reach[i] <= the distance of program i: the farthest hyperplane that separates x from it. A solver's tolerances are
    absolute, so programs are solved in units of such a length. `weight` turns multipliers of these rows into ours.
    A constant row that is left after `at_sight` is always true: it becomes 0 <= 0, and its face is the region.
    """

    A: Matrix
    r: Vector
    faces: Indices
    weight: Vector
    reach: Vector

    @staticmethod
    def of(programs: Programs) -> Scaled:
        rows = programs.rows
        size = row_sizes(rows, programs.norm)
        weight = 1.0 / np.where(size > 0, size, 1.0)
        r = np.where(size > 0, rows.r * weight, 0.0)
        e = programs.equalities
        faces = np.where((e >= 0) & (size[e] > 0), e, -1) if len(rows) else e
        violated = float((-r).max(initial=0.0))
        reach = np.full(len(programs), violated)
        on = np.flatnonzero(faces >= 0)
        reach[on] = np.maximum(violated, np.abs(r[faces[on]]))
        return Scaled(rows.A * weight[:, None], r, faces, weight, reach)

    def length(self) -> float:
        """One length for the whole family: the median of what is known, or of the rows when x is inside."""
        known = self.reach[self.reach > 0]
        if not len(known):
            known = np.abs(self.r[self.r != 0])
        return float(np.median(known)) if len(known) else 1.0

    def lengths(self) -> Vector:
        """A length for each program."""
        return np.where(self.reach > 0, self.reach, self.length())


def at_sight(programs: Programs, candidates: Candidates) -> Indices:
    """Answer the programs that need no solver, and return the others.

    Those that hold x itself (distance 0, no multipliers), and those that a constant row alone makes empty.
    """
    rows, e = programs.rows, programs.equalities
    constant = np.asarray(~rows.A.any(axis=1))
    broken = np.flatnonzero(constant & (rows.r < -rows.slack))
    if len(broken):
        candidates.multipliers[:] = beyond(programs, np.eye(len(rows))[broken[0]])
        return np.zeros(0, dtype=np.intp)
    off = (e >= 0) & constant[e] & (rows.r[e] > rows.slack[e]) if len(rows) else np.zeros(len(e), dtype=np.bool_)
    for i in np.flatnonzero(off):
        candidates.multipliers[i] = beyond(programs, -np.eye(len(rows))[e[i]])
    # a tilt steeper than the norm leads away from x; any other leaves x the best point
    steep = programs.tilt is not None and float(programs.norm.dual(programs.tilt)) > 1.0
    if steep or bool((rows.r < -rows.slack).any()):
        return np.flatnonzero(~off)
    here = (e < 0) if not len(rows) else (e < 0) | (np.abs(rows.r[e]) <= rows.slack[e])
    candidates.steps[here] = 0.0
    candidates.multipliers[here] = 0.0
    return np.flatnonzero(~here & ~off)


def box_ends(programs: Programs) -> tuple[Vector, Vector]:
    """lo and hi, infinite without a box."""
    n = programs.rows.A.shape[1]
    if programs.box is None:
        return np.full(n, -math.inf), np.full(n, math.inf)
    return programs.box.lo, programs.box.hi


def beyond(programs: Programs, ray: Vector) -> Vector:
    """For a tilted program: the multiple of a ray (A^T ray = 0, ray.r < 0) that proves the cutoff twice over."""
    rows = programs.rows
    if programs.tilt is None or not math.isfinite(programs.cutoff) or not np.isfinite(ray).all():
        return ray
    lo, hi = box_ends(programs)
    room = np.maximum(-lo, hi)
    endless = np.isinf(room)
    used = np.flatnonzero(np.abs(ray) > 1e-9 * np.abs(ray).max(initial=0.0))
    if endless.any() and len(used):
        # what a solver leaves of A^T ray is multiplied too: take it out where no box pays for it
        A = rows.A[used][:, endless]
        exact = np.zeros_like(ray)
        exact[used] = ray[used] - A @ least_squares(A, ray[used], 1e-12)
        ray = exact
    g = ray @ rows.A
    allowed = np.where(g > 0, -lo, hi)
    gain = -float(ray @ rows.r) - float(np.abs(g) @ np.where(np.isfinite(allowed), allowed, 0.0))
    if not gain > 0:
        return ray
    # where the tilt is steeper than the norm, the box alone bounds the objective from below
    depth = float(np.abs(programs.tilt) @ np.where(endless, 0.0, room))
    return ray * (2.0 * (abs(programs.cutoff) + depth) / gain)
