"""Dykstra's cyclic projections for p = 2 (the paper's alternative to a QP solver), with a polish on the rows it finds.

Each set keeps the increment it was last left with. For a row that increment is a multiple of the row's normal, so the
factors are multipliers, and they prove a bound at any time (Boyle and Dykstra 1986; Hildreth 1957 for rows alone).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layercert.arrays import Mask, Matrix, Vector, least_squares
from layercert.norms import Box, Norm
from layercert.programs.program import Candidates, Programs
from layercert.programs.solvers.scaling import Scaled, at_sight, box_ends
from layercert.system import clock

_SWEEPS = 3000
_EVERY = 10  # sweeps between two attempts to finish on the active rows
_REPAIRS = 10  # changes of the active rows in one attempt
_EXACT = 1e-12
_L2 = Norm(2.0)


class Dykstra:
    """Projections onto one row after the other, and onto the box, for p = 2."""

    name = "dykstra"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p == 2.0 and programs.tilt is None

    def solve(self, programs: Programs) -> Candidates:
        answers = Candidates.none(programs)
        todo = at_sight(programs, answers)
        if not len(todo):
            return answers
        scaled = Scaled.of(programs)
        lo, hi = box_ends(programs)
        lengths = scaled.lengths()
        for i in todo:
            length = float(lengths[i])
            e = int(scaled.faces[i])
            program = _Projection(scaled.A, scaled.r / length, e, lo / length, hi / length)
            w, lam = program.solve(programs.cutoff * (1 + 1e-9) / length)
            answers.steps[i] = w * length
            answers.multipliers[i] = scaled.weight * lam
        return answers


@dataclass(frozen=True, eq=False)
class _Projection:
    """The projection of 0 onto unit rows A w <= r (row e an equality) and the box lo <= w <= hi."""

    A: Matrix
    r: Vector
    e: int
    lo: Vector
    hi: Vector

    def solve(self, cutoff: float) -> tuple[Vector, Vector]:
        lam = np.zeros(len(self.r))  # row j was left with the increment lam_j A_j
        z = np.zeros(len(self.lo))  # the box with this one
        w = np.zeros_like(z)
        before = lam.copy()
        for sweep in range(1, _SWEEPS + 1):
            clock.check()
            for j in range(len(lam)):
                step = float(self.A[j] @ w) - self.r[j]
                if j != self.e:
                    step = max(step, -lam[j])
                if step != 0.0:
                    lam[j] += step
                    w -= step * self.A[j]
            y = w + z
            w = np.clip(y, self.lo, self.hi)
            z = y - w
            if self.dual(lam, z) >= 0.5 * cutoff**2:
                return np.full_like(w, np.nan), lam
            if sweep % _EVERY == 0:
                finished = self.finish(lam > _EXACT, z != 0.0, w)
                if finished is not None:
                    return finished
                ray = lam - before  # where nothing meets, the increments grow along a ray that separates
                if self.apart(ray) >= cutoff:
                    return np.full_like(w, np.nan), ray
                before = lam.copy()
        return w, lam

    def apart(self, lam: Vector) -> float:
        """The distance that these multipliers prove."""
        lam = np.where(np.arange(len(lam)) == self.e, lam, np.maximum(lam, 0.0))
        bound = _L2.prove_halfspace((lam @ self.A)[None], np.array([-(lam @ self.r)]), Box(self.lo, self.hi))
        return float(bound[0])

    def dual(self, lam: Vector, z: Vector) -> float:
        """The dual value of the increments: at most half the square of the distance."""
        w = lam @ self.A + z
        ends = np.where(z > 0, self.hi, self.lo)
        return -0.5 * float(w @ w) - float(lam @ self.r) - float(z @ np.where(z != 0.0, ends, 0.0))

    def finish(self, rows: Mask, ends: Mask, w: Vector) -> tuple[Vector, Vector] | None:
        """The optimum, if the active rows are known up to a few: drop a row that pulls, add one that is missed."""
        rows = rows.copy()
        if self.e >= 0:
            rows[self.e] = True
        for _ in range(_REPAIRS):
            point, lam = self.on(rows, ends, w)
            size = max(1.0, float(np.abs(lam).max(initial=0.0)))
            pull, missed = -lam, self.A @ point - self.r
            if self.e >= 0:
                pull[self.e] = 0.0
                missed[self.e] = abs(missed[self.e])
            if pull.max() > _EXACT * size:
                rows[int(pull.argmax())] = False
            elif missed.max() > _EXACT * size:
                if rows[int(missed.argmax())]:
                    return None  # these rows do not meet
                rows[int(missed.argmax())] = True
            else:
                return (point, lam) if self.held(point, point + lam @ self.A) < 1e-9 * size else None
        return None

    def on(self, rows: Mask, ends: Mask, w: Vector) -> tuple[Vector, Vector]:
        """The nearest point of these rows as equalities, with w's own value at the box ends, and its multipliers."""
        point = np.where(ends, np.clip(w, self.lo, self.hi), 0.0)
        active, free = self.A[rows], ~ends
        target = self.r[rows] - active @ point
        point[free] = least_squares(active[:, free], target, _EXACT)  # least norm: w = -A^T lam, A w = target
        lam = np.zeros(len(self.r))
        lam[rows] = least_squares(active[:, free].T, -point[free], _EXACT)
        return point, lam

    def held(self, point: Vector, g: Vector) -> float:
        """How much of the slope g the box does not hold (up at lo, down at hi), or how far the point is outside."""
        rest = np.where(point >= self.hi, np.maximum(g, 0.0), np.abs(g))
        rest = np.where(point <= self.lo, np.minimum(rest, np.maximum(-g, 0.0)), rest)
        outside = np.maximum(self.lo - point, point - self.hi)
        return max(float(rest.max()), float(outside.max()) * 1e3)
