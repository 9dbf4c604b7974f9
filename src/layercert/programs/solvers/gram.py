"""DAQP: projections for p = 2 by a dual active set, in a space with as many dimensions as there are rows.

Only the part of w in the span of the rows (and of the box sides that can bind) matters, so coordinates without a box
side are rotated into that span: w = (w_B, Q v), ||w|| = ||(w_B, v)||. A tilted program is a projection too: with
||w|| = min_s (||w||^2/s + s)/2 its solution is the projection of -s h with ||w|| = s, and a root of that in s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from layercert.arrays import Mask, Matrix, Vector
from layercert.programs.program import Candidates, Programs
from layercert.programs.solvers.scaling import Scaled, at_sight, beyond, box_ends
from layercert.system import clock

_SETTINGS = {"primal_tol": 1e-11, "dual_tol": 1e-12, "sing_tol": 1e-14, "eq_reduction": -1}
_FREE = 1e30  # DAQP's infinity
_OPTIMAL, _INFEASIBLE = 1, -1  # DAQP's exit flags; every other one fails closed
_EQUALITY = 5


@dataclass(frozen=True)
class Gram:
    """Dual active set of DAQP for p = 2, unless more than `sides` coordinates can meet the box."""

    sides: float = math.inf
    name: str = "daqp"

    def supports(self, programs: Programs) -> bool:
        return programs.norm.p == 2.0 and int(np.count_nonzero(_boxed(programs))) <= self.sides

    def solve(self, programs: Programs) -> Candidates:
        answers = Candidates.none(programs)
        todo = at_sight(programs, answers)
        if not len(todo):
            return answers
        scaled = Scaled.of(programs)
        space = _Space.of(programs, scaled)
        lengths = scaled.lengths()
        model = _Model(space, scaled.r)
        for i in todo:
            clock.check()
            e, length = int(scaled.faces[i]), float(lengths[i])
            u, lam, is_ray = (model.project if programs.tilt is None else model.tilted)(e, length, programs.cutoff)
            if u is not None:
                answers.steps[i] = space.point(u) * length
            if lam is not None:
                answers.multipliers[i] = scaled.weight * lam
                if is_ray and programs.tilt is not None:
                    answers.multipliers[i] = beyond(programs, answers.multipliers[i])
        return answers


@dataclass(frozen=True, eq=False)
class _Space:
    """Coordinates u = (w_B, v): B the coordinates with a box side, w elsewhere = Q v."""

    boxed: Mask
    lo: Vector  # box of w_B
    hi: Vector
    Q: Matrix
    A: Matrix  # the rows in these coordinates
    h: Vector | None  # the tilt in these coordinates

    @staticmethod
    def of(programs: Programs, scaled: Scaled) -> _Space:
        lo, hi = box_ends(programs)
        boxed = _boxed(programs)
        tilt = [] if programs.tilt is None else [programs.tilt[None]]
        spanning = np.concatenate([scaled.A, *tilt])
        rest = spanning[:, ~boxed]
        if rest.shape[1] > rest.shape[0]:
            Q, R = np.linalg.qr(rest.T)
            reduced = R.T
        else:
            Q, reduced = np.eye(rest.shape[1]), rest
        rows = np.ascontiguousarray(np.hstack([spanning[:, boxed], reduced]))
        m = len(scaled.A)
        h = None if programs.tilt is None else rows[m]
        return _Space(boxed, lo[boxed], hi[boxed], Q, rows[:m], h)

    def point(self, u: Vector) -> Vector:
        b = len(self.lo)
        w = np.empty(len(self.boxed))
        w[self.boxed] = u[:b]
        w[~self.boxed] = self.Q @ u[b:]
        return w


def _boxed(programs: Programs) -> Mask:
    """Coordinates with a box side that can bind: without a tilt, only sides nearer than the cutoff."""
    lo, hi = box_ends(programs)
    far = programs.cutoff if programs.tilt is None else math.inf
    return (-lo < far) | (hi < far)


class _Model:
    """One DAQP workspace for all faces of a family."""

    def __init__(self, space: _Space, r: Vector) -> None:
        import daqp

        self._space, self._r = space, r
        self._daqp: Any = daqp.Model()
        k = space.A.shape[1]
        self._zero = np.zeros(k)
        b, m = len(space.lo), len(r)
        self._box, self._rows = slice(0, b), slice(b, b + m)
        sense = np.zeros(b + m, dtype=np.int32)
        upper = np.concatenate([space.hi, r])
        self._daqp.setup(np.eye(k), self._zero.copy(), space.A, upper, np.full(b + m, -_FREE), sense)
        self._daqp.settings = _SETTINGS

    def _solve(self, e: int, length: float, bound: float, f: Vector) -> tuple[int, Vector, Vector]:
        """minimise |u|^2/2 + f.u over the face in units of `length`: DAQP's flag, u and all multipliers."""
        space = self._space
        b, m = len(space.lo), len(self._r)
        lower, upper = np.full(b + m, -_FREE), np.empty(b + m)
        lower[self._box] = np.maximum(space.lo / length, -_FREE)
        upper[self._box] = np.minimum(space.hi / length, _FREE)
        upper[self._rows] = self._r / length
        sense = np.zeros(b + m, dtype=np.int32)
        if e >= 0:
            lower[b + e], sense[b + e] = upper[b + e], _EQUALITY
        self._daqp.settings = {"fval_bound": min(bound, _FREE)}
        self._daqp.update(f=f, bupper=upper, blower=lower, sense=sense)
        u, _, flag, info = self._daqp.solve()
        return int(flag), u.copy(), info["lam"].copy()  # views of DAQP's workspace

    def project(self, e: int, length: float, cutoff: float) -> tuple[Vector | None, Vector | None, bool]:
        bound = 0.5 * (min(cutoff, 1e14 * length) / length * (1 + 1e-9)) ** 2
        flag, u, lam = self._solve(e, length, bound, self._zero)
        if flag == _OPTIMAL:
            return u, lam[self._rows], False
        if flag == _INFEASIBLE:  # the multipliers at the end are a ray, or prove the bound
            return None, lam[self._rows], True
        return None, None, False

    def tilted(self, e: int, length: float, cutoff: float) -> tuple[Vector | None, Vector | None, bool]:
        """The root of ||w(s)|| = s, w(s) = projection of -s h: piecewise linear in s, so chords find its piece."""
        h = self._space.h
        assert h is not None
        low, high = 0.0, math.inf
        last: tuple[float, Vector] | None = None
        s = 1.0
        for _ in range(80):
            flag, u, lam = self._solve(e, length, _FREE, s * h)
            if flag != _OPTIMAL:
                return None, lam[self._rows] if flag == _INFEASIBLE else None, flag == _INFEASIBLE
            size = float(np.linalg.norm(u))
            low, high = (s, high) if size > s else (low, s)
            if abs(size - s) <= 1e-14 * s or high <= low * (1 + 1e-15):
                break
            root = None if last is None else _on_chord(*last, s, u)
            last = (s, u)
            if root is None or not low < root < high:
                root = 2.0 * s if math.isinf(high) else 0.5 * (low + high)
            s = root
        return u, lam[self._rows] / s, False


def _on_chord(s0: float, u0: Vector, s1: float, u1: Vector) -> float | None:
    """The s >= 0 with ||u|| = s on the line through (s0, u0) and (s1, u1)."""
    if s0 == s1:
        return None
    du = (u1 - u0) / (s1 - s0)
    # |u1 + t du|^2 = (s1 + t)^2
    a, b, c = float(du @ du) - 1.0, float(u1 @ du) - s1, float(u1 @ u1) - s1 * s1
    disc = b * b - a * c
    if a == 0.0 or disc < 0.0:
        return None
    roots = ((-b - math.sqrt(disc)) / a, (-b + math.sqrt(disc)) / a)
    return s1 + min((t for t in roots if s1 + t > 0), key=abs, default=0.0) or None
