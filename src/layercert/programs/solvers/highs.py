"""HiGHS: linear programs for p = inf (homogenised) and p = 1 (split columns), and their tilted variants.

One model serves a family: a face is the region with one row turned into an equality, so only row bounds change between
solves and the dual simplex goes on from its last basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.programs.program import Candidates, Programs
from layercert.programs.solvers.scaling import Scaled, beyond, box_ends, inside

_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",  # it would throw the basis away
    "solver": "simplex",
    "small_matrix_value": 1e-12,  # the default drops entries of composed rows
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


class Highs:
    """Dual simplex of HiGHS for p = 1 and p = inf."""

    name = "highs"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p == 1.0 or math.isinf(programs.norm.p)

    def solve(self, programs: Programs) -> Candidates:
        answers = Candidates.none(programs)
        todo = inside(programs, answers)
        if not len(todo):
            return answers
        scaled = Scaled.of(programs)
        form = _form(programs, scaled)
        model = _Model(form)
        for i in todo:
            z, lam, is_ray = model.solve(int(programs.equalities[i]), float(scaled.reach[i]))
            if z is not None:
                answers.steps[i] = form.step(z)
            if lam is not None:
                answers.multipliers[i] = scaled.weight * lam
                if is_ray and programs.tilt is not None:
                    answers.multipliers[i] = beyond(programs, answers.multipliers[i])
        return answers


@dataclass(frozen=True, eq=False)
class _Form:
    """minimise cost.z subject to the polyhedron's rows (dense), rows of two entries <= 0, and low <= z <= high."""

    dense: Matrix
    upper: Vector
    pairs: Indices  # columns of the sparse rows
    values: Matrix
    cost: Vector
    low: Vector
    high: Vector
    stop: float  # an objective beyond this proves the cutoff
    step: Callable[[Vector], Vector]  # w from z
    tau: float | None = None  # homogenised: the last column is tau <= this over the distance


def _form(programs: Programs, scaled: Scaled) -> _Form:
    if programs.norm.p == 1.0:
        return _split(programs, scaled)
    return _homogenised(programs, scaled) if programs.tilt is None else _tilted(programs, scaled)


def _split(programs: Programs, scaled: Scaled) -> _Form:
    """p = 1: w = u - v with u, v >= 0, so that ||w||_1 + h.w is linear and the box is column bounds."""
    length = scaled.length()
    n = scaled.A.shape[1]
    lo, hi = box_ends(programs)
    h = np.zeros(n) if programs.tilt is None else programs.tilt
    return _Form(
        dense=np.hstack([scaled.A, -scaled.A]),
        upper=scaled.r / length,
        pairs=np.zeros((0, 2), dtype=np.intp),
        values=np.zeros((0, 2)),
        cost=np.concatenate([1.0 + h, 1.0 - h]),
        low=np.zeros(2 * n),
        high=np.concatenate([hi, -lo]) / length,
        stop=programs.cutoff * (1 + 1e-9) / length,
        step=lambda z: (z[:n] - z[n:]) * length,
    )


def _homogenised(programs: Programs, scaled: Scaled) -> _Form:
    """p = inf: w = t s, tau = 1/t; maximise tau subject to A s <= tau r, -1 <= s <= 1: n + 1 columns, never infeasible.

    A box end beyond the cutoff cannot bind; one at zero takes a side of s; the others are rows s_i <= tau hi_i.
    """
    length = scaled.length()
    m, n = scaled.A.shape
    lo, hi = box_ends(programs)
    above = np.flatnonzero((hi > 0) & (hi < programs.cutoff))
    below = np.flatnonzero((lo < 0) & (-lo < programs.cutoff))
    tau = np.full(len(above) + len(below), n)
    sides = np.concatenate([np.ones(len(above)), -np.ones(len(below))])
    ends = np.concatenate([hi[above], -lo[below]]) / length

    def step(z: Vector) -> Vector:
        t = z[n]
        return z[:n] * (length / t) if t > 1e-11 else np.full(n, np.nan)

    return _Form(
        dense=np.hstack([scaled.A, -scaled.r[:, None] / length]),
        upper=np.zeros(m),
        pairs=np.column_stack([np.concatenate([above, below]), tau]),
        values=np.column_stack([sides, -ends]),
        cost=np.append(np.zeros(n), -1.0),
        low=np.append(np.where(lo < 0, -1.0, 0.0), 0.0),
        high=np.append(np.where(hi > 0, 1.0, 0.0), math.inf),
        stop=-length / (programs.cutoff * (1 + 1e-9)) if programs.cutoff > 0 else -math.inf,
        step=step,
        tau=2.0 * length,
    )


def _tilted(programs: Programs, scaled: Scaled) -> _Form:
    """p = inf with a tilt: minimise t + h.w subject to -t <= w <= t, the plain program."""
    length = scaled.length()
    m, n = scaled.A.shape
    lo, hi = box_ends(programs)
    above, below = np.flatnonzero(hi > 0), np.flatnonzero(lo < 0)
    sides = np.concatenate([np.ones(len(above)), -np.ones(len(below))])
    assert programs.tilt is not None
    return _Form(
        dense=np.hstack([scaled.A, np.zeros((m, 1))]),
        upper=scaled.r / length,
        pairs=np.column_stack([np.concatenate([above, below]), np.full(len(sides), n)]),
        values=np.column_stack([sides, -np.ones(len(sides))]),
        cost=np.append(programs.tilt, 1.0),
        low=np.append(lo, 0.0) / length,
        high=np.append(hi / length, math.inf),
        stop=programs.cutoff * (1 + 1e-9) / length,
        step=lambda z: z[:n] * length,
    )


class _Model:
    """One HiGHS model for all faces of a family."""

    def __init__(self, form: _Form) -> None:
        import highspy

        self._form = form
        self._upper = form.upper
        self._highs = highspy.Highs()
        self._status = highspy.HighsModelStatus
        for option, value in _OPTIONS.items():
            self._highs.setOptionValue(option, value)
        if math.isfinite(form.stop):
            self._highs.setOptionValue("objective_bound", form.stop)
        m, columns = form.dense.shape
        extra = len(form.pairs)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = columns, m + extra
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = form.cost, form.low, form.high
        lp.row_lower_ = np.full(m + extra, -math.inf)
        lp.row_upper_ = np.append(form.upper, np.zeros(extra))
        row, column = np.nonzero(form.dense)
        start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=m))])
        matrix = lp.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.num_col_, matrix.num_row_ = columns, m + extra
        matrix.start_ = np.append(start, start[-1] + 2 * np.arange(1, extra + 1)).astype(np.int32)
        matrix.index_ = np.append(column, form.pairs.ravel()).astype(np.int32)
        matrix.value_ = np.append(form.dense[row, column], form.values.ravel())
        self._highs.passModel(lp)

    def solve(self, equality: int, reach: float) -> tuple[Vector | None, Vector | None, bool]:
        """Columns, multipliers of the polyhedron's rows, and whether these are a ray that proves emptiness."""
        highs, m = self._highs, len(self._upper)
        if self._form.tau is not None:  # a bounded column spares the simplex its first phase; reach <= the distance
            highs.changeColBounds(len(self._form.cost) - 1, 0.0, self._form.tau / max(reach, 1e-12 * self._form.tau))
        if equality >= 0:
            highs.changeRowBounds(equality, self._upper[equality], self._upper[equality])
        highs.run()
        status = highs.getModelStatus()
        z: Vector | None = None
        lam: Vector | None = None
        if status in (self._status.kOptimal, self._status.kObjectiveBound):
            found = highs.getSolution()
            if status == self._status.kOptimal:
                z = np.array(found.col_value)
            lam = -np.array(found.row_dual)[:m]
        elif status == self._status.kInfeasible:
            _, exists, ray = highs.getDualRay()
            if exists:
                lam = -np.array(ray)[:m]
        if equality >= 0:
            highs.changeRowBounds(equality, -math.inf, self._upper[equality])
        return z, lam, status == self._status.kInfeasible
