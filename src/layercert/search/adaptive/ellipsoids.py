"""Distances proved by ellipsoids (theorem: bounds/ellipsoid.py): which multipliers, for which ball.

A chain of multipliers that fit each other is known: those of a layer may be some part of those of the layer below,
divided by the square of its weights' norm. From there they ascend. With L_t(c)^2 = b.M^-1 b for each row b of F, the
derivative by log t_i is -t_i (v_i^2 - beta_i v_i s_i (J_i w + N_i v)) at y = (w, v) = M^-1 b, as by the envelope
theorem. A barrier -log det M keeps off the edge, where M^-1 is known in one direction only: its derivative is the same
expression in the mean over a normal distribution with the covariance M^-1, for which some random signs will do (the
trace estimator of Hutchinson). All of it is a hint, in single precision: one factorisation in double proves the best.

A ball that is too large opens neurons and widens ranges, one that is too small cuts the distance off. So balls are
looked for whose distance is just below their radius.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import spotrf, spotrs

from layercert.arrays import Indices, Matrix, Vector
from layercert.bounds.ellipsoid import Bends, Ellipsoid, Rows, bends_of
from layercert.problem import Problem
from layercert.search.adaptive.model import HI, LO, Model
from layercert.system import clock

#: More neurons than this are too many for dense matrices: a factorisation takes a tenth of a second, and with 3,500 of
#: them four seconds.
MOST = 2000
#: Of the largest multipliers that a layer alone allows, so much is left for the layers above.
PART = 0.5
#: Multiplications for the norm of a layer's weights.
POWERS = 8
#: How far (in logarithms) multipliers are drawn back until there is an ellipsoid; those of higher layers farther.
FALLS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
#: Steps at most, and how far a multiplier moves in one (in its logarithm).
STEPS, PACE = 40, 0.2
#: Weight of the barrier at first, and what is left of it after each step.
BARRIER, EASE = 3e-3, 0.87
#: Multipliers of another ball are past the first so many steps.
EASED = 8
#: The farther rows count less, by this power of their lengths.
POWER = 6
#: Random signs per step.
PROBES = 16
#: Averages of the derivatives, and of their squares, over steps.
MEAN, MEAN_SQUARE = 0.7, 0.8
#: A step that ends outside of the cone is cut to this part, and all that follow to that one.
CUT, SLOWER = 0.4, 0.8
#: Numbers below LEAST are zero, logarithms of t at most FARTHEST: what is too small for single precision is 20 times as
#: slow. So would be factors of sparse matrices, whose entries fall off: FILL is taken from all places.
LEAST, FARTHEST, FILL = 1e-12, 16.0, 1e-6
#: What the proof takes, in steps.
PROOF = 6.0
#: The ascent is over where this many steps gained less than this part.
LATEST, WORTHWHILE = 8, 0.005
#: In double precision, what single precision left at the edge is drawn back by this, if need be twice as far each time.
BACK, TRIES = 2e-3, 5


def is_suited(problem: Problem) -> bool:
    """Is the ball one of l_2, and are matrices of all neurons affordable?"""
    return problem.norm.p == 2.0 and problem.network.neurons <= MOST


@dataclass(eq=False)
class Ellipsoids:
    """Distances that are proved in balls of one problem. Multipliers that were good in one ball begin in the next."""

    problem: Problem
    known: Vector = field(init=False)  # of each neuron: log of t beta^2, in units of the input
    noise: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.known = np.full(self.problem.network.neurons, np.nan)
        self.noise = np.random.default_rng(0)

    def prove(self, model: Model, state: Matrix, radius: float, steps: int = STEPS) -> float:
        """A distance up to which there is nothing unsafe, at most the radius, whose ball the state is about."""
        with np.errstate(all="ignore"):  # what is no number proves nothing
            return self._prove(model, state, radius, steps)

    def _prove(self, model: Model, state: Matrix, radius: float, steps: int) -> float:
        bounds = state[LO], state[HI]
        network = self.problem.network
        of = model.R, model.c, model.row_error
        bends, rows = bends_of(network, self.problem.x, radius, bounds, of, model.noise)
        clock.check()
        if not (np.isfinite(bends.J).all() and np.isfinite(bends.N).all() and (bends.reach < math.inf).all()):
            return 0.0
        ascent = Ascent(bends, rows, model.first, self.noise)
        known = self.known[bends.neurons]
        if not ascent.begin(known):
            return 0.0
        before = clock.now()
        for _ in ascent.run(steps, EASED if np.isfinite(known).any() else 0):
            if clock.left() < PROOF * (clock.now() - before):
                break
            before = clock.now()
        found = ascent.proved()
        self.known[bends.neurons] = ascent.best - ascent.unit
        return found


class Ascent:
    """Multipliers for one ball: log t per bend, in units."""

    def __init__(self, bends: Bends, rows: Rows, first: Indices, noise: np.random.Generator) -> None:
        self.bends, self.rows, self.first, self.noise = bends, rows, first, noise
        self.beta = (1.0 / (1.0 + bends.start)).astype(np.float32)
        self.gram = bends.J @ bends.J.T
        self.J, self.N = single(bends.J), single(bends.N)
        self.half = 0.5 * self.N
        size = np.sqrt(np.diag(self.gram))
        self.K = (self.gram - FILL * size[:, None] * size).astype(np.float32)
        positive = rows.value > 0.0
        value = np.where(positive, rows.value, math.inf)[:, None]  # a row that is not positive at x proves nothing
        self.g, self.A = single(rows.slope / value), single(np.minimum(rows.bends, 0.0) / value)
        self.usable = positive
        #: log t is this much larger than log t beta^2 in units of the input, which changes least from ball to ball
        self.unit = 2.0 * (np.log(bends.reach / bends.radius) - np.log(self.beta))
        self.best = np.zeros(len(self.beta))
        self.far = -math.inf  # distance for `best`, in units of the ball, which single precision says
        self._factor = np.zeros((0, 0), np.float32)
        self._t = self._c = np.zeros(0, np.float32)

    def begin(self, known: Vector) -> bool:
        """The chain, or what another ball had; False where there is no ellipsoid to be had."""
        if not all(self.usable[begin:end].any() for begin, end in pairwise(self.first)):
            return False
        log = self._chain() + self.unit
        kept = np.isfinite(known)
        log[kept] = known[kept] + self.unit[kept]
        layer = np.repeat(np.arange(len(self.bends.first) - 1), np.diff(self.bends.first))
        for fall in FALLS:  # a common factor would leave N as it is
            self.best = log - fall * (1.0 + 0.5 * layer)
            if self._is_inside(self.best):
                return True
        return False

    def _chain(self) -> Vector:
        """log t beta^2 in units of the input: t beta = 4 part / norm^2 of the layer, times that of the layer below."""
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
            log[part] = at + np.log(self.beta[part])
            at, below = at + math.log(PART), part
        return log

    def _is_inside(self, log: Vector) -> bool:
        """Is M positive definite? Then it is factored."""
        t = np.exp(np.clip(log, -FARTHEST, FARTHEST)).astype(np.float32)
        c = t * self.beta
        X = self.K * (-0.25 * c)  # its lower half: N has no other
        X -= self.half
        X *= c[:, None]
        at = np.arange(len(t))
        X[at, at] += t
        # LAPACK wants columns: the transpose, without a copy
        factor, failed = spotrf(X.T, lower=0, clean=0, overwrite_a=1) if len(t) else (X, 0)
        inside = failed == 0 and bool((np.diag(factor) > 0.0).all())  # false for what is no number
        if inside:
            self._factor, self._t, self._c = factor, t, c
        return inside

    def run(self, steps: int, eased: int = 0) -> Iterator[float]:
        """Ascend; the distance so far after each step, in units of the ball. The barrier is `eased` steps on."""
        n = len(self.beta)
        at, move = self.best.copy(), np.zeros(n)
        mean, square, taken, pace, inside = np.zeros(n), np.zeros(n), 0, PACE, True
        history: list[float] = []
        for turn in range(steps):
            if not inside:
                move, pace = CUT * move, SLOWER * pace
                inside = self._is_inside(at + move)
                continue
            at = at + move
            far, slope = self._value(BARRIER * EASE ** (turn + eased))
            if far > self.far:
                self.far, self.best = far, at.copy()
            yield self.far
            history.append(self.far)
            if self.far >= 1.0 or not np.isfinite(slope).all():
                return
            if len(history) > 2 * LATEST and history[-1] < (1.0 + WORTHWHILE) * history[-1 - LATEST]:
                return
            taken += 1
            mean = MEAN * mean + (1.0 - MEAN) * slope
            square = MEAN_SQUARE * square + (1.0 - MEAN_SQUARE) * slope * slope
            root = np.sqrt(square / (1.0 - MEAN_SQUARE**taken)) + 1e-12
            move = -pace * (mean / (1.0 - MEAN**taken)) / root
            inside = self._is_inside(at + move)

    def _value(self, barrier: float) -> tuple[float, Vector]:
        """The distance, in units, and the derivative of the rows' lengths and the barrier by log t."""
        n, rows = len(self.beta), len(self.g)
        t, c, J, N, beta = self._t, self._c, self.J, self.N, self.beta
        right = self.A + 0.5 * c * (self.g @ J.T)
        signs = self.noise.choice(np.array([-1.0, 1.0], np.float32), size=(PROBES, n))
        both = np.asfortranarray(np.concatenate([right, signs]).T)
        found = spotrs(self._factor, both, lower=0)[0].T if n else both.T
        v, x = found[:rows], found[rows:]
        u = self.g + 0.5 * (v * c) @ J
        square = np.maximum((self.g * self.g).sum(1) + (right * v).sum(1), 1e-30)
        far, weight = self._weights(square)
        moved = u @ J.T + v @ N.T
        slope = -(weight[:, None] * (v * v - beta * v * moved)).sum(0)
        spread = 0.5 * (x * c) @ self.K + x @ N.T
        slope -= barrier * ((x - beta * spread) * signs).mean(0)
        return far, (slope * t).astype(np.float64)

    def _weights(self, square: Vector) -> tuple[float, Vector]:
        """How far away all clauses are, each by its best row, and what these rows count."""
        weight, least = np.zeros(len(square), np.float32), math.inf
        for begin, end in pairwise(self.first):
            mine = np.where(self.usable[begin:end], square[begin:end], math.inf)
            at = int(np.argmin(mine))
            weight[begin + at] = mine[at]
            least = min(least, 1.0 / math.sqrt(float(mine[at])))
        most = float(weight.max())
        weight = (weight / most) ** POWER
        return least, weight / (weight.sum() * square)

    def proved(self) -> float:
        """The distance that the best multipliers prove, in double precision."""
        layer = np.repeat(np.arange(1, len(self.bends.first)), np.diff(self.bends.first))
        back = 0.0
        for _ in range(TRIES):
            t = np.exp(np.clip(self.best - back * layer, -FARTHEST, FARTHEST))
            ellipsoid = Ellipsoid(self.bends, t / (1.0 + self.bends.start), self.gram)
            if ellipsoid.found:
                far = ellipsoid.distances(self.rows)
                ends = pairwise(self.first)
                return min(float(far[begin:end].max()) for begin, end in ends)
            back = 2.0 * back if back else BACK
        return 0.0


def single(A: Matrix) -> NDArray[np.float32]:
    """In single precision, without what is too small."""
    out = A.astype(np.float32)
    out[np.abs(out) < LEAST] = 0.0
    return out
