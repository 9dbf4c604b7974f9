"""Distances proved by quadratic forms (theorem: bounds/ellipsoid.py): which multipliers, for which ball.

A chain of multipliers c that fit each other is known: those of a layer may be some part of those of the layer below,
divided by the square of its weights' norm. From there all of them ascend together. The squared distance D of a row is
the least value over y = (w, v) of the form (4), so that at this y, by the envelope theorem, the derivative is v^2 - v u
by c, v^2 - v by tau, and by a multiplier of a line what the line lacks there. A barrier log det M keeps off the edge,
where M^-1 is known in one direction only: its derivative is the same expression in the mean over a normal distribution
with the covariance M^-1, for which some random signs will do (the trace estimator of Hutchinson). The scale of all that
belongs to a row (l) is the best one in closed form, since D is quadratic in it. All of this is a hint, in single
precision: one factorisation in double proves the best.

A ball that is too large opens neurons and widens ranges, one that is too small cuts the distance off. So balls are
looked for whose distance is just below their radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import spotrf, spotrs

from layercert.arrays import Indices, Matrix, Vector
from layercert.bounds.ellipsoid import Bends, Form, Multipliers, Rows, bends_of
from layercert.problem import Problem
from layercert.search.adaptive.model import HI, LO, Model
from layercert.system import clock

#: More neurons than this are too many for dense matrices: with 3,900 open ones a step takes 0.3 s, the first proof five
#: seconds and a gibibyte.
MOST = 6000
#: Of the largest multipliers that a layer alone allows, so much is left for the layers above.
PART = 0.5
#: Multiplications for the norm of a layer's weights.
POWERS = 8
#: How far (in logarithms) multipliers are drawn back until there is a form; those of higher layers farther.
FALLS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
#: Of a bend that begins at once, tau is at first this part of c.
NARROWEST = 1e-3
#: Steps at most, and how far c and tau move in one (in their logarithm), at first and at least.
STEPS, PACE, LEAST_PACE = 40, 0.07, 1e-3
#: The first so many steps are shorter: Adam knows no sizes yet.
WARM = 4
#: How far multipliers of lines move, in units of what moves their neuron by its standard deviation. They move together:
#: where there are more than so many bends, each moves less.
LINE_PACE, TOGETHER, LEAST_SQUARE = 0.15, 1000, 1e-3
#: Weight of the barrier at first, and what is left of it after each step.
BARRIER, EASE, LEAST_BARRIER = 3e-3, 0.97, 3e-4
#: The farther rows count less, by this power of their distances.
POWER = 12
#: Random signs per step, and the share of the last ones in what is known of the diagonal of M^-1.
PROBES, LAST = 16, 0.05
#: Averages of the derivatives, and of their squares, over steps: of c and tau, of multipliers of lines.
MOMENTS, LINE_MOMENTS = (0.7, 0.8), (0.8, 0.9)
#: A derivative counts as so many times its usual size at most, and no size is below the last part of the mean one: a
#: single large one would stop its multiplier for dozens of steps.
USUAL, SMALL, NONE = 3.0, 0.1, 0.01
#: A step that ends outside of the cone is cut to this part, and all that follow to that one.
CUT, SLOWER, FASTER = 0.4, 0.8, 1.05
#: Numbers below LEAST are zero, logarithms of multipliers at most FARTHEST: what is too small for single precision is
#: 20 times as slow. So would be factors of sparse matrices, whose entries fall off: FILL is taken from all places.
LEAST, FARTHEST, FILL = 1e-12, 20.0, 1e-6
#: What the proof takes, in steps.
PROOF = 6.0
#: The ascent is over where this many steps gained less than this part, or where it is so far beyond the ball.
LATEST, WORTHWHILE, BEYOND = 10, 0.01, 1.3
#: In double precision, what single precision left at the edge is drawn back by this, if need be twice as far each time.
BACK, TRIES = 2e-3, 5


def is_suited(problem: Problem) -> bool:
    """Is the ball one of l_2, and are matrices of all neurons affordable?"""
    return problem.norm.p == 2.0 and problem.network.neurons <= MOST


class Found(NamedTuple):
    """Multipliers, and the least squared distance of all clauses that they say, in units."""

    square: float
    log: Matrix  # of c and of tau, per bend
    lines: NDArray[np.float32]  # alpha, sigma, lam of each row and bend, for l = 1
    scale: Vector  # l of each row, times F(x)


@dataclass(eq=False)
class Ellipsoids:
    """Distances that are proved in balls of one problem. Multipliers that were good in one ball begin in the next."""

    problem: Problem
    log: Matrix = field(init=False)  # of each neuron, in units of the input
    lines: NDArray[np.float32] = field(init=False)
    noise: np.random.Generator = field(init=False)
    #: what the last ball's multipliers said, were there no end of the ball; a hint
    beyond: float = 0.0

    def __post_init__(self) -> None:
        self.log = np.full((2, self.problem.network.neurons), np.nan)
        self.lines = np.zeros((3, 0, self.problem.network.neurons), np.float32)
        self.noise = np.random.default_rng(0)

    def prove(self, model: Model, state: Matrix, radius: float, steps: int = STEPS, enough: float = BEYOND) -> float:
        """A distance up to which there is nothing unsafe, at most the radius, whose ball the state is about.

        The ascent ends with multipliers that say `enough` times the radius.
        """
        with np.errstate(all="ignore"):  # what is no number proves nothing
            return self._prove(model, state, radius, (steps, enough))

    def _prove(self, model: Model, state: Matrix, radius: float, until: tuple[int, float]) -> float:
        bounds = state[LO], state[HI]
        network = self.problem.network
        of = model.R, model.c, model.row_error
        bends, rows = bends_of(network, self.problem.x, radius, bounds, of, model.noise)
        clock.check()
        if not (
            np.isfinite(bends.J).all() and np.isfinite(bends.N).all() and np.isfinite(bends.reach + bends.other).all()
        ):
            return 0.0
        began = clock.now()
        ascent = Ascent(bends, rows, model.first, self.noise)
        clock.check()
        known = self.log[:, bends.neurons], self.lines[:, :, bends.neurons]
        if not (ascent.begin(*known) or (np.isfinite(known[0]).any() and ascent.begin(*nothing(known)))):
            return 0.0
        if clock.left() < clock.now() - began:  # the proof takes as long as what was built for the ascent
            return 0.0
        ascent.run(*until)
        found = ascent.proved()
        self._keep(ascent)
        return found

    def _keep(self, ascent: Ascent) -> None:
        """In units of the input, which change least from ball to ball."""
        bends, best = ascent.bends, ascent.best
        self.beyond = bends.radius * math.sqrt(max(best.square, 0.0))
        self.log[:, bends.neurons] = best.log - ascent.unit
        if self.lines.shape[1] != best.lines.shape[1]:
            self.lines = np.zeros((3, best.lines.shape[1], self.log.shape[1]), np.float32)
        self.lines[:, :, bends.neurons] = best.lines / bends.reach.astype(np.float32)


class Moments:
    """Adam: the mean of the derivatives so far over the root of their mean square."""

    def __init__(self, shape: tuple[int, ...], keep: tuple[float, float]) -> None:
        self.keep, self.taken = keep, 0
        self.mean, self.square = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def step(self, slope: NDArray[np.float32]) -> NDArray[np.float32]:
        """Where to go, at most about 1 in each place."""
        first, second = self.keep
        if self.taken > 0:
            usual = np.sqrt(self.square / (1.0 - second**self.taken))
            usual = USUAL * (usual + SMALL * float(usual.mean()))
            slope = np.clip(slope, -usual, usual)
        self.taken += 1
        self.mean = first * self.mean + (1.0 - first) * slope
        self.square = second * self.square + (1.0 - second) * slope * slope
        size = np.sqrt(self.square / (1.0 - second**self.taken))
        size += NONE * float(size.mean()) + 1e-30
        return np.asarray(self.mean / (1.0 - first**self.taken) / size)


class View(NamedTuple):
    """Where the forms of all rows are least, with the best scales."""

    square: NDArray[np.float32]  # D per row
    scale: NDArray[np.float32]
    v: NDArray[np.float32]
    u: NDArray[np.float32]


class Ascent:
    """Multipliers for one ball, in units. Rows are divided by their value at x."""

    def __init__(self, bends: Bends, rows: Rows, first: Indices, noise: np.random.Generator) -> None:
        self.bends, self.noise = bends, noise
        usable = np.flatnonzero(rows.value > 0.0)  # a row that is not positive at x proves nothing
        self.first = np.searchsorted(usable, first)  # per clause, and one more: its first usable row
        self.rows = Rows(rows.value[usable], rows.slope[usable], rows.bends[usable], rows.error[usable])
        self.gram = bends.J @ bends.J.T
        size = np.sqrt(np.diag(self.gram))
        self.K = (self.gram - FILL * size[:, None] * size).astype(np.float32)
        self.J, self.N = single(bends.J), single(bends.N)
        self.half = 0.5 * self.N
        self.a, self.L = bends.start.astype(np.float32), bends.other.astype(np.float32)
        self.top = 1.0 / (1.0 + self.L)
        value = self.rows.value[:, None]
        self.g, self.A = single(self.rows.slope / value), single(self.rows.bends / value)
        #: log c and log tau are so much larger than in units of the input: c v^2 and the linear part, tau v, stay
        self.unit = np.log(bends.reach) * np.array([[2.0], [1.0]]) - 2.0 * math.log(bends.radius)
        self.log = np.zeros((2, len(self.a)))
        self.lines = np.zeros((3, *self.A.shape), np.float32)
        self.best = Found(-math.inf, self.log, self.lines, np.zeros(len(usable)))
        self._factor = np.zeros((0, 0), np.float32)
        self._c = self._tau = np.zeros(0, np.float32)
        self._variance = np.zeros(0, np.float32)  # the diagonal of X^-1, as far as random signs tell

    def begin(self, log: Matrix, lines: NDArray[np.float32]) -> bool:
        """The chain, or what another ball had; False where there is no form to be had."""
        if (np.diff(self.first) == 0).any():
            return False
        a = self.bends.start
        c = self._chain() + self.unit[0]
        start = np.stack([c, c + np.log(np.maximum(a, NARROWEST))])
        kept = np.isfinite(log[0])
        start[:, kept] = log[:, kept] + self.unit[:, kept]
        self.lines[:] = 0.0
        self.lines[0] = np.maximum(self.A, 0.0)  # coefficients of bends that are not positive
        if lines.shape[1] == len(self.A):
            self.lines[:, :, kept] = lines[:, :, kept] * self.bends.reach[kept].astype(np.float32)
        layer = np.repeat(np.arange(len(self.bends.first) - 1), np.diff(self.bends.first))
        best, none = (-math.inf, 0.0), np.zeros((0, len(a)), np.float32)
        for fall in FALLS:  # a common factor would leave N as it is
            clock.check()
            if self._is_inside(start - fall * (1.0 + 0.5 * layer)):
                square, _ = self._weights(self._look(none)[0].square)
                if not square > best[0]:
                    break
                best = square, fall
        self.log = start - best[1] * (1.0 + 0.5 * layer)
        return best[0] > 0.0 and self._is_inside(self.log)

    def _chain(self) -> Vector:
        """log c in units of the input: 4 part / norm^2 of the layer, times that of the layer below."""
        size = self.bends.reach / self.bends.radius
        unit = float(size.max(initial=0.0))
        size = (size / unit if unit > 0.0 else size).astype(np.float32)
        log, at = np.zeros(len(size)), -2.0 * math.log(max(unit, 1e-300))
        first, below = self.bends.first, slice(0, 0)
        for begin, end in pairwise(first):
            part = slice(int(begin), int(end))
            if begin == end:
                continue
            v = np.ones(end - begin, np.float32)
            norm = 1.0
            for _ in range(POWERS):
                if below.stop == 0:
                    v = size[part] * (self.K[part, part] @ (size[part] * v))
                else:
                    into = (size[part] * v) @ self.N[part, below] / size[below]
                    v = size[part] * (self.N[part, below] @ (into / size[below]))
                norm = max(float(np.linalg.norm(v)), 1e-30)
                v = v / norm
            at += math.log(4.0 / norm)
            log[part] = at
            at, below = at + math.log(PART), part
        return log

    def _is_inside(self, log: Matrix) -> bool:
        """Is M positive definite? Then it is factored."""
        c, tau = np.exp(np.clip(log, -FARTHEST, FARTHEST)).astype(np.float32)
        X = self.K * (-0.25 * c)  # its lower half: N has no other
        X -= self.half
        X *= c[:, None]
        at = np.arange(len(c))
        X[at, at] += c + tau
        # LAPACK wants columns: the transpose, without a copy
        factor, failed = spotrf(X.T, lower=0, clean=0, overwrite_a=1) if len(c) else (X, 0)
        inside = failed == 0 and bool((np.diag(factor) > 0.0).all())  # false for what is no number
        if inside:
            self._factor, self._c, self._tau = factor, c, tau
        return inside

    def run(self, steps: int, enough: float = BEYOND) -> None:
        """Ascend, so many steps at most, or until the time is up but for the proof."""
        of_log, of_lines = Moments(self.log.shape, MOMENTS), Moments(self.lines.shape, LINE_MOMENTS)
        pace, history, before = PACE, [0.0], clock.now()
        steps = steps if len(self.a) else 1
        for turn in range(steps):
            signs = self.noise.choice(np.array([-1.0, 1.0], np.float32), size=(PROBES, len(self.a)))
            view, x = self._look(signs)
            square, weight = self._weights(view.square)
            if square > self.best.square:
                self.best = Found(square, self.log, self.lines.copy(), view.scale.astype(np.float64))
            history.append(math.sqrt(max(self.best.square, 0.0)))
            over = len(history) > LATEST and history[-1] < (1.0 + WORTHWHILE) * history[-1 - LATEST]
            if over or history[-1] >= enough or turn + 1 == steps:
                return
            slope = self._slope(view, weight, (x, signs), max(BARRIER * EASE**turn, LEAST_BARRIER))
            if not np.isfinite(slope).all():
                return
            self._move_lines(view, square, of_lines)
            move = pace * min(1.0, (turn + 1) / WARM) * of_log.step(slope)
            while not self._is_inside(self.log + move):
                move, pace = CUT * move, SLOWER * pace
                if pace < LEAST_PACE:
                    return
            self.log, pace = self.log + move, min(FASTER * pace, PACE)
            if clock.left() < PROOF * (clock.now() - before):
                return
            before = clock.now()

    def _look(self, signs: NDArray[np.float32]) -> tuple[View, NDArray[np.float32]]:
        """The least points of all rows, and M^-1 signs."""
        c, J, N, a = self._c, self.J, self.N, self.a
        alpha, sigma, lam = self.lines
        count = len(self.A)
        q = sigma - lam * self.top
        # the last row is what all have in common, the linear part of the constraints
        slope = np.concatenate([self.g + q @ J, np.zeros((1, J.shape[1]), np.float32)])
        bent = np.concatenate([self.A + q @ N - alpha - sigma + lam, (c * a - self._tau)[None]])
        value = 1.0 - q @ a - lam @ (self.top * self.L)
        right = np.concatenate([bent + 0.5 * c * (slope @ J.T), signs])
        found = spotrs(self._factor, np.asfortranarray(right.T), lower=0)[0].T if len(c) else right
        v, x = -0.5 * found[: count + 1], found[count + 1 :]
        w = 0.5 * ((v * c) @ J - slope)
        own = (slope[:count] * w[:count]).sum(1) + (bent[:count] * v[:count]).sum(1)
        cross = v[:count] @ bent[count]
        scale = np.maximum((value + cross) / np.maximum(-own, 1e-30), 0.0)
        square = scale * value + 0.5 * (scale * (scale * own + 2.0 * cross) + v[count] @ bent[count])
        v = scale[:, None] * v[:count] + v[count]
        u = (scale[:, None] * w[:count] + w[count]) @ J.T + v @ N.T - a
        return View(square, scale, v, u), x

    def _slope(
        self, view: View, weight: NDArray[np.float32], probes: tuple[NDArray[np.float32], ...], barrier: float
    ) -> NDArray[np.float32]:
        """The derivative of the rows' squared distances and the barrier by log c and log tau."""
        v, (x, signs), t = view.v, probes, self._c + self._tau
        spread = 0.5 * (x * self._c) @ self.K + x @ self.N.T
        variance = np.maximum((x * signs).mean(0), 1.0 / t)
        if len(self._variance):
            variance = (1.0 - LAST) * self._variance + LAST * variance
        self._variance = variance
        by_c = (weight[:, None] * v * (v - view.u)).sum(0) + barrier * (((x - spread) * signs).mean(0) - 1.0 / t)
        by_tau = (weight[:, None] * v * (v - 1.0)).sum(0) + barrier * ((x * signs).mean(0) - 1.0 / t)
        return np.stack([self._c * by_c, self._tau * by_tau])

    def _move_lines(self, view: View, square: float, moments: Moments) -> None:
        """A step of alpha, sigma and lam, towards what each line lacks at its row's least point."""
        v, u, top, of_w = view.v, view.u, self.top, np.diag(self.K)
        lacks = np.stack([-v, u - v, v - top * (u + self.L)])
        variance = np.stack([self._variance, self._variance + of_w, self._variance + top * top * of_w])
        unit = math.sqrt(max(square, LEAST_SQUARE)) / np.sqrt(np.maximum(variance, LEAST))[:, None]
        # in units of this size, the scale of a row cancels
        scale = np.maximum(view.scale, LEAST)[:, None]
        pace = LINE_PACE * min(1.0, TOGETHER / max(len(v[0]), 1))
        step = pace * unit * moments.step((lacks * unit).astype(np.float32)) / scale
        step = np.maximum(self.lines + step, 0.0) - self.lines
        # all bends together may go too far: a row's part of the step is the best one of a parabola through both ends
        before, gain = self.lines, view.scale * (lacks * step).sum((0, 2))
        self.lines = before + step
        there = self._look(np.zeros((0, len(self.a)), np.float32))[0].square
        part = np.clip(gain / np.maximum(2.0 * (gain + view.square - there), LEAST), 0.0, 1.0)
        self.lines = before + part[:, None] * step

    def _weights(self, squares: NDArray[np.float32]) -> tuple[float, NDArray[np.float32]]:
        """The least squared distance of all clauses, each by its best row, and what these rows count."""
        weight, least = np.zeros(len(squares)), math.inf
        best = [begin + int(np.argmax(squares[begin:end])) for begin, end in pairwise(self.first)]
        least = float(squares[best].min())
        weight[best] = (max(least, LEAST) / np.maximum(squares[best], LEAST)) ** (0.5 * POWER)
        return least, (weight / (weight.sum() * max(least, LEAST))).astype(np.float32)

    def proved(self) -> float:
        """The distance that the best multipliers prove, in double precision."""
        best, back = self.best, 0.0
        layer = np.repeat(np.arange(1, len(self.bends.first)), np.diff(self.bends.first))
        row = best.scale / self.rows.value
        lines = best.lines * best.scale[:, None]
        by = Multipliers(row, *lines)
        for _ in range(TRIES):
            clock.check()
            c, tau = np.exp(np.clip(best.log - back * layer, -FARTHEST, FARTHEST))
            form = Form(self.bends, c, tau, self.gram)
            if form.found:
                far = form.distances(self.rows, by)
                return min(float(far[begin:end].max()) for begin, end in pairwise(self.first))
            back = 2.0 * back if back else BACK
        return 0.0


def nothing(known: tuple[Matrix, NDArray[np.float32]]) -> tuple[Matrix, NDArray[np.float32]]:
    """What is known before the first ball."""
    log, lines = known
    return np.full_like(log, np.nan), lines[:, :0]


def single(A: Matrix) -> NDArray[np.float32]:
    """In single precision, without what is too small."""
    out = A.astype(np.float32)
    out[np.abs(out) < LEAST] = 0.0
    return out
