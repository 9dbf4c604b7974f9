"""Distance programs (problems 7 and 9): what is asked, what a solver hands back, and the check that decides.

    minimise ||w||_p  subject to  A w <= r, row e an equality, lo <= w <= hi

A family of programs shares its rows and differs in e (the faces of one region); e = -1 stands for no equality.
A solver is never trusted: it returns a point and multipliers, and `check` turns them into a proved lower bound and a
verified point, whatever they are. An equality row's multiplier may have either sign, the others are cut off at zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Mask, Matrix, Vector, gamma, least_squares
from layercert.geometry import Polyhedron
from layercert.norms import Box, Norm

#: Relative gap between a point and its proved bound below which a program counts as solved.
GAP = 1e-9


Arrays = tuple[Matrix, Vector, Vector, Vector, Vector, Vector, Vector, float]

_ENDLESS = np.empty(0)


@dataclass(frozen=True, eq=False)
class Programs:
    """A family of distance programs over common rows, one for each entry of `equalities`."""

    rows: Polyhedron
    equalities: Indices
    norm: Norm
    box: Box | None = None
    cutoff: float = math.inf  # an answer proved to be at or beyond this needs no point
    tilt: Vector | None = None  # minimise ||w|| + tilt.w instead (GeoCert-Lip)

    def __len__(self) -> int:
        return len(self.equalities)

    @cached_property
    def arrays(self) -> Arrays:
        """A, r, slack, growth, ||A_i||_q, rooms down and up (empty without a box), p: as compiled code takes them."""
        rows, box = self.rows, self.box
        down, up = (_ENDLESS, _ENDLESS) if box is None else (-box.lo, box.hi)
        A = np.ascontiguousarray(rows.A)
        return A, rows.r, rows.slack, rows.growth, row_sizes(rows, self.norm), down, up, self.norm.p

    def take(self, index: Indices) -> Programs:
        return Programs(self.rows, self.equalities[index], self.norm, self.box, self.cutoff, self.tilt)


def single(rows: Polyhedron, norm: Norm, box: Box | None = None, cutoff: float = math.inf) -> Programs:
    """The distance to a polyhedron itself: one program without an equality."""
    return Programs(rows, np.array([-1], dtype=np.intp), norm, box, cutoff)


@dataclass(frozen=True, eq=False)
class Candidates:
    """A solver's claims, a row per program: the point x + w and the multipliers; NaN where it has none."""

    steps: Matrix
    multipliers: Matrix

    @staticmethod
    def none(programs: Programs) -> Candidates:
        k, (m, n) = len(programs), programs.rows.A.shape
        return Candidates(np.full((k, n), np.nan), np.full((k, m), np.nan))


class Solver(Protocol):
    """An adapter translates, it never decides."""

    @property
    def name(self) -> str: ...

    def supports(self, programs: Programs) -> bool: ...

    def solve(self, programs: Programs) -> Candidates: ...


@dataclass(frozen=True, eq=False)
class Solutions:
    """Checked answers: lower is proved, rounding included; value belongs to a verified point (inf without one)."""

    steps: Matrix
    multipliers: Matrix
    lower: Vector
    value: Vector
    decided: Mask

    @staticmethod
    def empty(programs: Programs) -> Solutions:
        none = Candidates.none(programs)
        k = len(programs)
        lower = prove(programs, none.multipliers)  # zero, but for a tilt steeper than the norm
        return Solutions(none.steps, none.multipliers, lower, np.full(k, math.inf), np.zeros(k, np.bool_))

    def merge(self, index: Indices, other: Solutions) -> Solutions:
        """These answers with those at `index` improved by `other`: each bound is valid, so keep the better of each."""
        lower, value = self.lower.copy(), self.value.copy()
        steps, multipliers, decided = self.steps.copy(), self.multipliers.copy(), self.decided.copy()
        raised = other.lower > lower[index]
        nearer = other.value < value[index]
        lower[index[raised]] = other.lower[raised]
        multipliers[index[raised]] = other.multipliers[raised]
        value[index[nearer]] = other.value[nearer]
        steps[index[nearer]] = other.steps[nearer]
        decided[index] |= other.decided
        return Solutions(steps, multipliers, lower, value, decided)


def check(programs: Programs, candidates: Candidates, gap: float = GAP) -> Solutions:
    """Prove and verify a solver's claims: its point against the rows, its multipliers by the duality bound."""
    if programs.tilt is None:  # in one compiled pass, where nothing is left to do by hand
        from layercert.programs.kernels import proof

        steps, lam = np.array(candidates.steps, order="C"), np.ascontiguousarray(candidates.multipliers)
        e, cutoff = programs.equalities, programs.cutoff
        lower, value, decided, clean = proof.check_rows(*programs.arrays, e, lam, steps, cutoff, gap)
        if clean:
            return Solutions(steps, candidates.multipliers, lower, value, decided)
    lower = prove(programs, candidates.multipliers)
    steps, value = verify(programs, candidates.steps)
    # a tilted value is a difference of two lengths: the gap is relative to these
    scale = np.zeros_like(value) if programs.tilt is None else np.nan_to_num(programs.norm(steps))
    decided = (lower >= programs.cutoff) | gap_closed(lower, value, gap, scale)
    # a gap that only the rows' own rounding margins keep open is not the solver's to close
    open_ = np.flatnonzero(~decided & np.isfinite(value))
    if len(open_):
        nominal = _nominal(programs.take(open_), candidates.multipliers[open_])
        decided[open_] = gap_closed(nominal, value[open_], gap, scale[open_])
    return Solutions(steps, candidates.multipliers, lower, value, decided)


def gap_closed(lower: Vector, value: Vector, gap: float, scale: Vector | float = 0.0) -> Mask:
    """A verified point within the relative gap of its bound."""
    there = np.isfinite(value)
    point = np.where(there, value, 0.0)
    return there & (point - lower <= gap * np.maximum(np.abs(point), scale))


def prove(programs: Programs, multipliers: Matrix) -> Vector:
    """Lower bounds from any multipliers: dist >= -lam.r / ||A^T lam||_q, with outward rounding and the rows' margins.

    For a point w of the (true) set, lam.(A w) <= lam.r + |lam|.slack + |lam|.growth * ||w||; the computed g = A^T lam
    differs from the exact one by at most gamma_m |A|^T |lam|, which acts like more growth.
    """
    if programs.tilt is None:
        from layercert.programs.kernels import proof

        return proof.prove_rows(*programs.arrays, programs.equalities, np.ascontiguousarray(multipliers))
    rows, norm = programs.rows, programs.norm
    lam = _admissible(programs, multipliers)
    size = np.abs(lam)
    noise = gamma(lam.shape[1] + 4)
    drift = size @ (rows.growth + noise * row_sizes(rows, norm)) * (1 + noise)
    s = -(lam @ rows.r) - size @ rows.slack * (1 + noise) - noise * (size @ np.abs(rows.r))
    return _bound(programs, lam @ rows.A, s, drift)


@lru_cache(maxsize=4)
def row_sizes(rows: Polyhedron, norm: Norm) -> Vector:
    """||A_i||_q of each row; a region's faces are asked for, solved and proved with the same rows."""
    from layercert.programs.kernels import proof

    return proof.sizes_of(np.ascontiguousarray(rows.A), norm.p)


def _nominal(programs: Programs, multipliers: Matrix) -> Vector:
    """What the multipliers would prove if the rows had no rounding error: their merit, not a bound."""
    lam = _admissible(programs, multipliers)
    s = -(lam @ programs.rows.r)
    # tilted multipliers lie on the dual sphere: a hair outside is forgiven here
    forgiven = 0.0 if programs.tilt is None else -1e-11
    return _bound(programs, lam @ programs.rows.A, s, np.full_like(s, forgiven))


def _admissible(programs: Programs, multipliers: Matrix) -> Matrix:
    """The multipliers with what may not be cut off: negative ones off the equality, and all that is not finite."""
    k, m = multipliers.shape
    lam = np.where(np.isfinite(multipliers), multipliers, 0.0)
    free = np.zeros((k, m), dtype=np.bool_)
    bound_to = np.flatnonzero(programs.equalities >= 0)
    free[bound_to, programs.equalities[bound_to]] = True
    lam = np.where(free, lam, np.maximum(lam, 0.0))
    largest = np.abs(lam).max(axis=1, initial=0.0, keepdims=True)
    if programs.tilt is None:  # the bound is homogeneous in lam: scale it to be safe from overflow
        lam = lam / np.where(largest > 0, largest, 1.0)
        largest = np.ones_like(largest)
    # products of tinier ones might underflow, an error that no relative margin covers; huge ones overflow
    return np.where((np.abs(lam) < 1e-100 * largest) | (largest > 1e100), 0.0, lam)


def _bound(programs: Programs, g: Matrix, s: Vector, drift: Vector) -> Vector:
    if programs.tilt is None:
        return programs.norm.prove_halfspace(g, s, programs.box, drift)
    from layercert.programs.tilted import prove_tilted

    return prove_tilted(programs, g, s, drift)


def verify(programs: Programs, steps: Matrix) -> tuple[Matrix, Vector]:
    """The points that satisfy all rows up to their rounding margin (after a small correction), and their values."""
    from layercert.programs.kernels import proof

    e = programs.equalities
    w = np.array(steps, order="C")
    ok, values = proof.verify_rows(*programs.arrays, e, w)
    for _ in range(3):  # a solver's tolerance is coarser than ours: move the point onto the rows it misses
        todo = np.flatnonzero(~ok & np.isfinite(values))
        if not len(todo) or not len(programs.rows):
            break
        moved = np.array([_onto_rows(programs, int(e[i]), w[i]) for i in todo])
        ok[todo], values[todo] = proof.verify_rows(*programs.arrays, e[todo], moved)
        w[todo] = moved
    w[~ok], values[~ok] = np.nan, math.inf
    if programs.tilt is not None:
        values[ok] += w[ok] @ programs.tilt
    return w, values


def _onto_rows(programs: Programs, equality: int, w: Vector) -> Vector:
    """One least-squares step that puts the violated rows (and the equality) exactly right; box bounds stay put."""
    rows, box = programs.rows, programs.box
    residual = rows.residual(w)
    near = residual > -0.5 * rows.slack
    target = np.where(residual > 0, residual, 0.0)
    if equality >= 0:
        near[equality] = True
        target[equality] = residual[equality]
    act: NDArray[np.intp] = np.flatnonzero(near)
    A = rows.A[act]
    free = np.ones(A.shape[1], dtype=np.bool_) if box is None else (w > box.lo) & (w < box.hi)
    step = np.zeros_like(w)
    if free.any() and len(act):
        step[free] = least_squares(A[:, free], -target[act], 1e-12)
    moved = w + step
    return moved if box is None else box.clip(moved)
