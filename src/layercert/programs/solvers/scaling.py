"""What every adapter does first: rows of unit size, a length near the answer's, and the cases that need no solver."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.programs.program import Candidates, Programs


@dataclass(frozen=True, eq=False)
class Scaled:
    """The rows A w <= r with ||A_j||_q = 1 (zero rows stay), and what is known of each program at sight.

    reach[i] <= the distance of program i: the farthest hyperplane that separates x from it. A solver's tolerances are
    absolute, so programs are solved in units of such a length. `weight` turns multipliers of these rows into ours.
    """

    A: Matrix
    r: Vector
    weight: Vector
    reach: Vector

    @staticmethod
    def of(programs: Programs) -> Scaled:
        rows = programs.rows
        size = programs.norm.dual(rows.A)
        weight = 1.0 / np.where(size > 0, size, 1.0)
        r = rows.r * weight
        violated = float(np.where(size > 0, -r, 0.0).max(initial=0.0))
        reach = np.full(len(programs), violated)
        on = np.flatnonzero(programs.equalities >= 0)
        e = programs.equalities[on]
        reach[on] = np.maximum(violated, np.where(size[e] > 0, np.abs(r[e]), 0.0))
        return Scaled(rows.A * weight[:, None], r, weight, reach)

    def length(self) -> float:
        """One length for the whole family: the median of what is known, or of the rows when x is inside."""
        known = self.reach[self.reach > 0]
        if not len(known):
            known = np.abs(self.r[self.r != 0])
        return float(np.median(known)) if len(known) else 1.0

    def lengths(self) -> Vector:
        """A length for each program."""
        return np.where(self.reach > 0, self.reach, self.length())


def inside(programs: Programs, candidates: Candidates) -> Indices:
    """Answer the programs that hold x itself (distance 0, no multipliers) and return the others."""
    rows = programs.rows
    # a tilt steeper than the norm leads away from x; any other leaves x the best point
    steep = programs.tilt is not None and float(programs.norm.dual(programs.tilt)) > 1.0
    if steep or bool((rows.r < -rows.slack).any()):
        return np.arange(len(programs))
    e = programs.equalities
    here = (e < 0) if not len(rows) else (e < 0) | (np.abs(rows.r[e]) <= rows.slack[e])
    candidates.steps[here] = 0.0
    candidates.multipliers[here] = 0.0
    return np.flatnonzero(~here)


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
        exact[used] = ray[used] - A @ np.linalg.lstsq(A, ray[used], rcond=1e-12)[0]
        ray = exact
    gain = -float(ray @ rows.r)
    if not gain > 0:
        return ray
    # where the tilt is steeper than the norm, the box alone bounds the objective from below
    depth = float(np.abs(programs.tilt) @ np.where(endless, 0.0, room))
    return ray * (2.0 * (abs(programs.cutoff) + depth) / gain)
