"""SciPy's L-BFGS-B on the separable dual for 1 < p < inf, then Newton steps on the rows that are active.

In units of a length t: minimise sum_c |w_c|^p/p + h.w subject to A w <= r/t, lo/t <= w <= hi/t, with the dual

    F(lam) = sum_c min_w (|w|^p/p + g_c w) - lam.r/t,   g = A^T lam + h,   lam >= 0 off the equality

The inner minimum is one formula, so a box costs nothing, and grad F = A w - r/t. Without a tilt every t gives the
answer, and one near the distance gives it in good numbers. With a tilt h, Young's inequality
||w|| = min_t (||w||^p/(p t^(p-1)) + t (p-1)/p) makes the t with ||w|| = 1 the right one, and lam the multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from layercert.arrays import Mask, Matrix, Vector, least_squares
from layercert.norms import Box, Norm
from layercert.programs.program import Candidates, Programs
from layercert.programs.solvers.scaling import Scaled, at_sight, beyond, box_ends
from layercert.system import clock

_RESIDUAL = 1e-13  # of a unit row, in units of the distance
_NOISE = 1e-15  # of the terms of F: a few roundings, below which its growth is not seen
_COARSE, _FINE = 1e-4, 1e-15  # relative progress at which L-BFGS-B stops
_FAR = 1e4  # times the cutoff: multipliers that prove this much are a ray of emptiness for all purposes


class Smooth:
    """Quasi-Newton on the dual, for any 1 < p < inf."""

    name = "lbfgs"

    def supports(self, programs: Programs) -> bool:
        return 1.0 < programs.norm.p < math.inf

    def solve(self, programs: Programs) -> Candidates:
        answers = Candidates.none(programs)
        todo = at_sight(programs, answers)
        scaled = Scaled.of(programs)
        lengths = scaled.lengths()
        with np.errstate(all="ignore"):  # a dual without a maximum overflows on its way; NaN is no claim
            for i in todo:
                self._solve_one(programs, scaled, int(i), float(lengths[i]), answers)
        return answers

    def _solve_one(self, programs: Programs, scaled: Scaled, i: int, t: float, answers: Candidates) -> None:
        lo, hi = box_ends(programs)
        h = np.zeros(len(lo)) if programs.tilt is None else programs.tilt
        e = int(scaled.faces[i])

        def dual(t: float) -> _Dual:
            return _Dual(programs.norm, scaled.A, scaled.r / t, e, lo / t, hi / t, h)

        cutoff = programs.cutoff * (1 + 1e-9)
        try:
            t, state = _nearest(dual, t, cutoff) if programs.tilt is None else _tilted(dual, t, _FAR * cutoff)
            answers.steps[i] = t * dual(t).onto_rows(state)
            answers.multipliers[i] = scaled.weight * state.lam
        except _BeyondError as found:
            answers.multipliers[i] = beyond(programs, scaled.weight * found.lam)


@dataclass(frozen=True, eq=False)
class _State:
    """Multipliers, and what they say: F(lam), its gradient (the rows' residual), the point and g."""

    lam: Vector
    value: float
    noise: float  # what rounding leaves open of the value: its terms may be far larger than itself
    gradient: Vector
    w: Vector
    g: Vector


class _BeyondError(Exception):
    """These multipliers prove the cutoff."""

    def __init__(self, lam: Vector) -> None:
        self.lam = lam


@dataclass(frozen=True, eq=False)
class _Dual:
    """The dual of one program with unit rows."""

    norm: Norm
    A: Matrix
    r: Vector
    e: int
    lo: Vector
    hi: Vector
    h: Vector

    def at(self, lam: Vector) -> _State:
        g = lam @ self.A + self.h
        w = np.clip(-np.sign(g) * np.abs(g) ** (self.norm.q - 1.0), self.lo, self.hi)
        length = float((np.abs(w) ** self.norm.p).sum()) / self.norm.p
        F = length + float(g @ w) - float(lam @ self.r)
        terms = length + float(np.abs(g) @ np.abs(w)) + float(np.abs(lam) @ np.abs(self.r))
        return _State(lam, F, _NOISE * terms, self.A @ w - self.r, w, g)

    def start(self) -> Vector:
        """The farthest single row, solved exactly without box and tilt (unit rows: its dual norm is one)."""
        lam = np.zeros(len(self.r))
        j = int(np.argmin(self.r))
        if self.e >= 0 and abs(self.r[self.e]) >= -self.r[j]:
            j = self.e
        if self.r[j] < 0 or j == self.e:
            lam[j] = -np.sign(self.r[j]) * abs(self.r[j]) ** (self.norm.p - 1.0)
        return lam

    def bound(self, lam: Vector) -> float:
        """The distance that these multipliers prove, whatever their size (without a tilt)."""
        s = np.array([-(lam @ self.r)])
        return float(self.norm.prove_halfspace((lam @ self.A)[None], s, Box(self.lo, self.hi))[0])

    def climb(self, lam: Vector, stop: float, precision: float, steps: int = 1000) -> _State:
        """L-BFGS-B from lam; raises _BeyondError as soon as F >= stop."""
        from scipy.optimize import minimize

        def loss(lam: Vector) -> tuple[float, Vector]:
            clock.check()
            state = self.at(lam)
            if state.value >= stop:
                raise _BeyondError(lam.copy())
            return -state.value, -state.gradient

        bounds: list[tuple[float | None, None]] = [
            (None, None) if j == self.e else (0.0, None) for j in range(len(lam))
        ]
        options: Any = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20, "ftol": precision, "gtol": 10 * precision}
        found = minimize(loss, lam, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return self.at(np.asarray(found.x))

    def finish(self, state: _State, stop: float) -> _State:
        """Newton from here; where it does not arrive, a fine climb first."""
        state = self.newton(state, stop)
        if self.residual(state) > 1e3 * _RESIDUAL:
            state = self.newton(self.climb(state.lam, stop, _FINE), stop)
        return state

    def newton(self, state: _State, stop: float) -> _State:
        """Damped Newton on the active and the violated rows."""
        q = self.norm.q
        for _ in range(30):
            if state.value >= stop:
                raise _BeyondError(state.lam)
            if self.residual(state) < _RESIDUAL:
                break
            free = (state.lam > 1e-14) | (state.gradient > _RESIDUAL)
            if self.e >= 0:
                free[self.e] = True
            # -F'' on these rows: A diag(|dw/dg|) A^T, nothing where the box holds w
            moving = (state.w > self.lo) & (state.w < self.hi)
            slope = np.where(moving, (q - 1.0) * np.maximum(np.abs(state.g), 1e-14) ** (q - 2.0), 0.0)
            A = self.A[free]
            better = self._step(state, free, (A * slope) @ A.T)
            if better is None:
                break
            state = better
        return state

    def _step(self, state: _State, free: Mask, H: Matrix) -> _State | None:
        """The first damped step that gains; Levenberg's term grows where the quadratic model fails."""
        size, residual = float(np.trace(H)) + 1e-300, self.residual(state)
        for damping in (1e-14, 1e-11, 1e-8, 1e-5, 1e-2):
            direction = np.linalg.solve(H + damping * size * np.eye(len(H)), state.gradient[free])
            for t in (1.0, 0.5, 0.2, 0.05):
                lam = state.lam.copy()
                lam[free] += t * direction
                trial = self.at(self._project(lam))
                if trial.value > state.value + state.noise or (
                    trial.value >= state.value - state.noise and self.residual(trial) < residual
                ):
                    return trial
        return None

    def onto_rows(self, state: _State) -> Vector:
        """The point, put onto the active rows where that costs least.

        For p > 2 a tiny g leaves w undetermined in double precision, so multipliers alone do not give a point. Least
        change in the metric of the objective's second derivative (p-1)|w|^(p-2); repeated for rows that turn up.
        """
        p, w = self.norm.p, state.w
        if p <= 2.0:
            return w
        active = state.lam > 1e-6 * float(state.lam.max(initial=0.0))
        if self.e >= 0:
            active[self.e] = True
        largest, top = float(np.abs(state.g).max(initial=0.0)), float(np.abs(w).max(initial=0.0))
        lo, hi = np.maximum(self.lo, -top), np.minimum(self.hi, top)  # a free coordinate must not become the longest
        for _ in range(30):
            missed = self.A @ w - self.r
            if max(float(np.abs(missed[active]).max(initial=0.0)), float(missed.max(initial=0.0))) < _RESIDUAL:
                break
            active |= missed > 0.0
            size = np.abs(w) / max(top, 1e-300)
            # a box end that g presses against stays, the others are free to leave
            pressed = np.abs(state.g + np.sign(w) * np.abs(w) ** (p - 1.0)) > 1e-9 * largest
            held = ((w <= lo) | (w >= hi)) & pressed
            inverse = np.where(held, 0.0, 1.0 / (size ** (p - 2.0) + 1e-9))
            A = self.A[active]
            correction = least_squares((A * inverse) @ A.T, missed[active], 1e-13)
            w = np.clip(w - inverse * (correction @ A), lo, hi)
        return w

    def residual(self, state: _State) -> float:
        """Largest violation of the optimality conditions in the rows."""
        part = np.where((state.lam > 0) | (state.gradient > 0), np.abs(state.gradient), 0.0)
        if self.e >= 0:
            part[self.e] = abs(state.gradient[self.e])
        return float(part.max(initial=0.0))

    def _project(self, lam: Vector) -> Vector:
        kept = np.maximum(lam, 0.0)
        if self.e >= 0:
            kept[self.e] = lam[self.e]
        return kept


def _nearest(dual: Callable[[float], _Dual], t: float, cutoff: float) -> tuple[float, _State]:
    """The optimum in units near its own distance: far from them, |w|^p spans more than L-BFGS-B can see."""
    p = dual(t).norm.p
    lam: Vector | None = None
    for _ in range(30):
        program = dual(t)
        stop = _power(cutoff / t, p)
        state = program.climb(program.start() if lam is None else lam, stop, _COARSE, 100)
        ratio = program.bound(state.lam)
        if t * ratio >= cutoff:
            raise _BeyondError(state.lam)
        if not ratio > 0.0 or abs(p * math.log(ratio)) < math.log(10.0):  # ratio^p itself may overflow
            break
        t *= ratio
        lam = state.lam / float(program.norm.dual(state.g))  # at distance one ||g||_q is one
    return t, program.finish(state, stop)


def _tilted(dual: Callable[[float], _Dual], t: float, far: float) -> tuple[float, _State]:
    """The root of ||w|| = 1 in the unit t, by a guarded secant in logarithms."""
    low, high = 0.0, math.inf
    lam: Vector | None = None
    last: tuple[float, float] | None = None
    for _ in range(60):
        program = dual(t)
        norm = program.norm
        stop = _power(far / t, norm.p)
        if lam is None:
            lam = program.climb(program.start(), stop, _COARSE).lam
        state = program.finish(program.at(lam), stop)
        lam = state.lam
        size = norm.value(state.w)
        low, high = (t, high) if size > 1.0 else (low, t)
        y = math.log(size) if size > 0 else -1.0
        if abs(y) <= 1e-13 or high <= low * (1 + 1e-14):
            break
        x = math.log(t)
        slope = None if last is None or last[0] == x else (y - last[1]) / (x - last[0])
        last = (x, y)
        guess = t * math.exp(min(max(-y / slope, -3.0), 3.0)) if slope else t * size
        t = guess if low < guess < high else (2.0 * t if math.isinf(high) else 0.5 * (low + high))
    return t, state


def _power(length: float, p: float) -> float:
    """length^p/p, inf where that overflows."""
    if not length > 0:
        return 0.0
    return math.exp(p * math.log(length)) / p if p * math.log(length) < 700 else math.inf
