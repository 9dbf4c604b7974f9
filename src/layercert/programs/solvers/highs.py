"""HiGHS: linear programs for p = inf (homogenised) and p = 1 (split columns), and their tilted variants.

One model serves a family: a face is the region with one row turned into an equality, so only row bounds change between
solves and the dual simplex goes on from its last basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.programs.highs_time import give_time
from layercert.programs.program import Candidates, Programs
from layercert.programs.solvers.scaling import Scaled, at_sight, beyond, box_ends
from layercert.system import clock

_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",  # it would throw the basis away
    "solver": "simplex",
    "simplex_strategy": 1,  # dual
    "small_matrix_value": 1e-12,  # the default drops entries of composed rows
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


_DUAL, _PRIMAL = 1, 4  # HiGHS's simplex_strategy
_NOTHING = 1e-11  # tau = 0, up to the tolerance: no point at any distance


class Highs:
    """Dual simplex of HiGHS for p = 1 and p = inf."""

    name = "highs"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p == 1.0 or math.isinf(programs.norm.p)

    def solve(self, programs: Programs) -> Candidates:
        answers = Candidates.none(programs)
        todo = at_sight(programs, answers)
        if not len(todo):
            return answers
        scaled = Scaled.of(programs)
        form = _form(programs, scaled)
        model = _Model(form)
        for i in todo:
            clock.check()
            # not beyond the cutoff: the bound on tau must not stand in for multipliers
            reach = min(float(scaled.reach[i]), programs.cutoff)
            with model.face(int(scaled.faces[i]), reach):
                found = _ratio(programs, form, model) if form.tau and programs.tilt is not None else model.run()
            if found.z is not None:
                answers.steps[i] = form.step(found.z)
            if found.lam is not None:
                lam = scaled.weight * found.lam
                answers.multipliers[i] = beyond(programs, lam) if found.is_ray else lam
        return answers


def _ratio(programs: Programs, form: _Form, model: _Model) -> _Found:
    """p = inf with a tilt: ||w|| + h.w = (1 + h.s)/tau, a ratio of two linear functions, by Dinkelbach's method.

    V is the least ratio when min 1 + h.s - V tau = 0, and the multipliers of that linear program are those of ours.
    """
    h = programs.tilt
    assert h is not None
    n = len(h)
    found = model.run()  # the nearest point: where to begin, or a proof that there is none before the cutoff
    if found.lam is None:
        return found
    if found.z is None:  # ||w|| is beyond what ||w|| + h.w >= (1 - ||h||)*||w|| needs: its share of the multipliers
        flat = 1.0 - float(programs.norm.dual(h))
        g = found.lam @ form.dense[:, :n]
        lo, hi = box_ends(programs)
        moving = np.where(g > 0, -lo, hi) >= programs.cutoff / flat  # the box pays for the others
        size = float(np.abs(g[moving]).sum())
        return _Found(None, found.lam * (flat / size) if size > 0 else found.lam, is_ray=size == 0)
    if not found.z[n] > _NOTHING:
        return _Found(None, found.lam, is_ray=True)
    with model.primal():
        for _ in range(50):
            V = (1.0 + float(h @ found.z[:n])) / float(found.z[n])
            model.minimise(np.append(h, -V))
            better = model.run()
            if better.z is None or not better.z[n] > _NOTHING:
                break
            found = better
            assert found.z is not None
            if 1.0 + float(h @ found.z[:n]) - V * float(found.z[n]) > -1e-14:
                break
    return found


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


@dataclass(frozen=True, eq=False)
class _Found:
    """Columns, multipliers of the polyhedron's rows, and whether these are a ray that proves emptiness."""

    z: Vector | None
    lam: Vector | None
    is_ray: bool


def _form(programs: Programs, scaled: Scaled) -> _Form:
    if programs.norm.p == 1.0:
        return _split(programs, scaled)
    # ||w|| + h.w >= (1 - ||h||)*||w||, so no point that matters is longer than this
    flat = 1.0 - (0.0 if programs.tilt is None else float(programs.norm.dual(programs.tilt)))
    return _homogenised(scaled, *box_ends(programs), programs.cutoff / flat) if flat > 0 else _tilted(programs, scaled)


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


def _homogenised(scaled: Scaled, lo: Vector, hi: Vector, cutoff: float) -> _Form:
    """p = inf: w = t s, tau = 1/t; maximise tau subject to A s <= tau r, -1 <= s <= 1: n + 1 columns, never infeasible.

    A box end beyond the cutoff cannot bind; one at zero takes a side of s; the others are rows s_i <= tau hi_i.
    """
    length = scaled.length()
    m, n = scaled.A.shape
    above = np.flatnonzero((hi > 0) & (hi < cutoff))
    below = np.flatnonzero((lo < 0) & (-lo < cutoff))
    tau = np.full(len(above) + len(below), n)
    sides = np.concatenate([np.ones(len(above)), -np.ones(len(below))])
    ends = np.concatenate([hi[above], -lo[below]]) / length

    def step(z: Vector) -> Vector:
        t = z[n]
        return z[:n] * (length / t) if t > _NOTHING else np.full(n, np.nan)

    return _Form(
        dense=np.hstack([scaled.A, -scaled.r[:, None] / length]),
        upper=np.zeros(m),
        pairs=np.column_stack([np.concatenate([above, below]), tau]),
        values=np.column_stack([sides, -ends]),
        cost=np.append(np.zeros(n), -1.0),
        low=np.append(np.where(lo < 0, -1.0, 0.0), 0.0),
        high=np.append(np.where(hi > 0, 1.0, 0.0), math.inf),
        stop=-length / (cutoff * (1 + 1e-9)) if cutoff > 0 else -math.inf,
        step=step,
        tau=2.0 * length,
    )


def _tilted(programs: Programs, scaled: Scaled) -> _Form:
    """p = inf with a tilt steeper than the norm: minimise t + h.w subject to -t <= w <= t, the plain program."""
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
        self._highs = highspy.Highs()
        self._status = highspy.HighsModelStatus
        for option, value in _OPTIONS.items():
            self._highs.setOptionValue(option, value)
        self._stop = form.stop if math.isfinite(form.stop) else math.inf
        self._highs.setOptionValue("objective_bound", self._stop)
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

    @contextmanager
    def face(self, equality: int, reach: float) -> Iterator[None]:
        """One row as an equality; reach <= the distance."""
        highs, tau = self._highs, self._form.tau
        if tau is not None:  # a bounded column spares the simplex its first phase
            highs.changeColBounds(len(self._form.cost) - 1, 0.0, tau / max(reach, 1e-12 * tau))
        if equality >= 0:
            highs.changeRowBounds(equality, self._form.upper[equality], self._form.upper[equality])
        yield
        if equality >= 0:
            highs.changeRowBounds(equality, -math.inf, self._form.upper[equality])

    @contextmanager
    def primal(self) -> Iterator[None]:
        """Other costs from a basis whose point stays feasible: the primal simplex, and no bound to stop at."""
        highs = self._highs
        highs.setOptionValue("objective_bound", math.inf)
        highs.setOptionValue("simplex_strategy", _PRIMAL)
        yield
        self.minimise(self._form.cost)
        highs.setOptionValue("objective_bound", self._stop)
        highs.setOptionValue("simplex_strategy", _DUAL)

    def minimise(self, cost: Vector) -> None:
        self._highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    def run(self) -> _Found:
        highs, m = self._highs, len(self._form.upper)
        give_time(highs)
        highs.run()
        status = highs.getModelStatus()
        if status == self._status.kTimeLimit:
            clock.check()
        if status in (self._status.kOptimal, self._status.kObjectiveBound):
            found = highs.getSolution()
            z = np.array(found.col_value) if status == self._status.kOptimal else None
            return _Found(z, -np.array(found.row_dual)[:m], is_ray=False)
        if status == self._status.kInfeasible:
            _, exists, ray = highs.getDualRay()
            if exists:
                return _Found(None, -np.array(ray)[:m], is_ray=True)
        return _Found(None, None, is_ray=False)
