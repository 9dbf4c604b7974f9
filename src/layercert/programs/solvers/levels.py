"""Tilted programs by plain ones, for p = inf and p = 1: min ||w|| + h.w = min over beta of D(beta) + beta.

D(beta) is the distance to the rows and h.w <= beta together, which the compiled kernel answers. D is convex, and the
multiplier mu of the added row is minus its slope; so every answer is a tangent of D + beta, and where the two tangents
nearest to the optimum meet is the next beta. Their multipliers, weighted so that mu = 1, are those of the tilted
program: ||h + A^T lam||_q <= 1 as an average of two such vectors. Where no point has so small an h.w, the ray that
proves it takes the place of the tangent on the left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from layercert.arrays import Vector
from layercert.geometry import Polyhedron
from layercert.programs.kernels import SimplexKernel
from layercert.programs.program import Candidates, Programs
from layercert.programs.solvers.scaling import at_sight, beyond
from layercert.system import clock

#: Gap between D + beta and its tangents, relative to D, at which a program is solved.
SOLVED = 1e-11
#: How far above a border, relative, the kernel finds its points again.
CLOSE = 1e-13
#: Answers of the kernel for one program.
TRIALS = 60
#: The first of them go where the slope seems to be zero, the others where the tangents meet: D has many small pieces.
GUESSES = 3


@dataclass(frozen=True, eq=False)
class _Tangent:
    """D at one beta: the point, the multipliers with ||g_1||_q = 1, and mu."""

    beta: float
    value: float  # D + beta
    w: Vector
    lam: Vector
    mu: float

    def at(self, beta: float) -> float:
        return self.value + (1.0 - self.mu) * (beta - self.beta)


@dataclass(frozen=True, eq=False)
class _Ray:
    """Multipliers that prove that nothing lies below beta = border: lam.r + mu beta + |g|.room < 0 there."""

    border: float
    lam: Vector
    mu: float


class Levels:
    """The simplex kernel for tilted programs."""

    name = "kernel-tilted"

    def __init__(self) -> None:
        self._kernel = SimplexKernel()

    def supports(self, programs: Programs) -> bool:
        return programs.tilt is not None and programs.norm.p in (1.0, math.inf)

    def solve(self, programs: Programs) -> Candidates:
        answers = Candidates.none(programs)
        todo = at_sight(programs, answers)
        if not len(todo):
            return answers
        plain = replace(programs, tilt=None, cutoff=math.inf)
        start = self._kernel.solve(plain.take(todo))
        line = _Line(self._kernel, programs)
        for i, w, lam in zip(todo, start.steps, start.multipliers, strict=True):
            if not np.isfinite(w[0]):
                answers.multipliers[i] = beyond(programs, lam)
                continue
            clock.check()  # a dozen programs each, of hundreds in a batch
            best, weights = line.solve(int(programs.equalities[i]), w, lam)
            answers.steps[i], answers.multipliers[i] = best.w, weights
        return answers


class _Line:
    """The search for beta, with the rows and h in one matrix."""

    def __init__(self, kernel: SimplexKernel, programs: Programs) -> None:
        assert programs.tilt is not None
        self._kernel, self._programs, self._h = kernel, programs, programs.tilt
        rows = programs.rows
        self._A = np.vstack([rows.A, programs.tilt])
        self._enough = programs.cutoff * (1.0 + 1e-9)
        self._margins = np.append(rows.slack, 0.0), np.append(rows.growth, 0.0)

    def solve(self, e: int, w: Vector, lam: Vector) -> tuple[_Tangent, Vector]:
        """The best point found, and multipliers for it."""
        right = self._tangent(float(self._h @ w), w, np.append(lam, 0.0))  # where h.w <= beta begins to matter
        left: _Tangent | None = None
        ray: _Ray | None = None
        best = right
        step = 0.5 * abs(right.beta) + 1e-3 * self._programs.norm.value(w)
        for trial in range(TRIALS):
            if left is not None:
                beta = _slope_one(left, right) if trial < GUESSES else _meeting(left, right)
            elif ray is not None:  # a hair above the border
                beta = ray.border + CLOSE * max(abs(ray.border), right.beta - ray.border)
            else:
                beta = right.beta - step
                step *= 4.0
            if not beta < right.beta or (left is not None and not left.beta < beta):
                break
            found = self._ask(e, beta)
            if isinstance(found, _Ray):
                if left is not None or not found.mu > 0.0 or (ray is not None and not found.border > ray.border):
                    break  # by rounding only
                ray = found
                continue
            best = min(best, found, key=lambda t: t.value)
            if found.mu >= 1.0:
                left = found
            else:
                right = found
            floor = -math.inf
            if left is not None:
                floor = right.at(_meeting(left, right))
            elif ray is not None:
                floor = right.at(ray.border)
            if best.value - floor <= SOLVED * (best.value - best.beta) or floor >= self._enough:
                break
        if left is None:
            return best, right.lam if ray is None else right.lam + (1.0 - right.mu) / ray.mu * ray.lam
        share = (1.0 - right.mu) / (left.mu - right.mu)
        return best, share * left.lam + (1.0 - share) * right.lam

    def _ask(self, e: int, beta: float) -> _Tangent | _Ray:
        p = self._programs
        rows = Polyhedron(self._A, np.append(p.rows.r, beta), *self._margins)
        answer = self._kernel.solve(Programs(rows, np.array([e]), p.norm, p.box))
        w, lam = answer.steps[0], answer.multipliers[0]
        if np.isfinite(w[0]):
            return self._tangent(beta, w, lam)
        room = 0.0
        if p.box is not None:
            g = lam @ self._A
            room = float(np.abs(g) @ np.nan_to_num(p.box.room(g), posinf=0.0))
        mu = float(lam[-1])
        return _Ray(-(float(lam[:-1] @ p.rows.r) + room) / mu if mu > 0.0 else math.inf, lam[:-1], mu)

    def _tangent(self, beta: float, w: Vector, lam: Vector) -> _Tangent:
        """p = 1: the kernel's multipliers have ||g_1||_inf = 1. p = inf: g_1 is g where the box does not hold w."""
        length = self._programs.norm.value(w)
        if math.isinf(self._programs.norm.p):
            g = np.abs(lam @ self._A)
            size = float(g[np.abs(w) >= length * (1.0 - 1e-9)].sum())
            lam = lam / size if size > 0.0 else np.zeros_like(lam)
        return _Tangent(beta, length + beta, w, lam[:-1], float(lam[-1]))


def _slope_one(left: _Tangent, right: _Tangent) -> float:
    """Where mu would be 1 if it were linear in beta."""
    return right.beta + (1.0 - right.mu) / (left.mu - right.mu) * (left.beta - right.beta)


def _meeting(left: _Tangent, right: _Tangent) -> float:
    """Where the two tangents cross."""
    difference = (left.value - (1.0 - left.mu) * left.beta) - (right.value - (1.0 - right.mu) * right.beta)
    return difference / (left.mu - right.mu)
