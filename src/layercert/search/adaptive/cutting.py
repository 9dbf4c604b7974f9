"""Few inputs, many neurons: is there an unsafe point? Boxes of inputs, each bounded as a root is, and cut in two.

A split of one of ten thousands of open neurons changes next to nothing, half the range of one of a dozen inputs closes
half of these neurons. What has one side in a box has it in all parts of the box, so that a part costs less than the
whole. This is about l_inf alone, whose balls are boxes.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from layercert.arrays import Indices, Mask, Matrix, Signs, Vector, gamma
from layercert.attack.kernel import COARSE, PackedProblem, seek
from layercert.problem import Problem
from layercert.search.adaptive import forward
from layercert.search.adaptive.ascent import optimise
from layercert.search.adaptive.cap import whole_ball
from layercert.search.adaptive.lanes import Constants, Lanes, lanes_of
from layercert.search.adaptive.layers import tighten_layer
from layercert.search.adaptive.model import (
    ALPHA,
    COEF,
    HI,
    LO,
    NO_HULLS,
    OF_TERMS,
    POINT,
    ROWS,
    Model,
    build,
    keep_rows,
    open_mask,
)
from layercert.search.events import Bound, Event
from layercert.search.task import Task
from layercert.system import clock

#: Steps of ascent for the clauses of a box.
STEPS = 10
#: Steps of the attack from a box that stays open.
SEEK_STEPS = 10
#: So many boxes: what they leave open holds what no cut closes, such as the tip of an unsafe region no attack finds.
MOST_BOXES = 200


def is_suited(problem: Problem) -> bool:
    """Is cutting inputs the better way?"""
    return forward.is_suited(problem.network) and math.isinf(problem.norm.p) and problem.domain is not None


@dataclass(frozen=True, eq=False)
class Piece:
    """A box of inputs, the clauses that may hold in it, and the neurons that have one side there (+1 on, -1 off)."""

    low: Vector
    high: Vector
    sides: Signs
    clauses: Indices
    key: float  # proved distance from x
    depth: int  # how often it was cut


@dataclass(frozen=True, eq=False)
class Bounded:
    """What is known of a box: its neurons and their forms, and each of its clauses."""

    state: Matrix
    forms: list[forward.Forms]
    closed: Mask  # per clause: it holds nowhere in the box
    points: Matrix  # per clause: offset from the middle where its lines are least
    lanes: Lanes | None


def by_inputs(task: Task, radius: float) -> Generator[Event, None, bool]:
    """Events of a search for any unsafe point within the radius; False: it is left to splits of neurons."""
    cover = Cover(task, radius)
    yield Bound(0.0)
    queue = [(0.0, 0, cover.root())]
    made = 0
    while queue:
        key, _, piece = heappop(queue)
        yield Bound(min(key, radius))
        found = cover.bound(piece)
        still = np.flatnonzero(~found.closed)
        if not len(still):
            continue
        yield from cover.witnesses(task, piece, found, still)
        if made >= MOST_BOXES:
            return False
        for part in cover.halves(piece, found, still):
            made += 1
            heappush(queue, (part.key, made, part))
    yield Bound(radius)
    return True


class Cover:
    """Boxes of one ball, and the model that serves them all."""

    def __init__(self, task: Task, radius: float) -> None:
        self.problem, self.radius = task.problem, radius
        problem = task.problem
        assert problem.domain is not None
        self.low = np.maximum(np.nextafter(problem.x - radius, -np.inf), problem.domain[0])
        self.high = np.minimum(np.nextafter(problem.x + radius, np.inf), problem.domain[1])
        self.asked = PackedProblem.of(problem)
        self.model, self.state = build(problem, radius, hulled=NO_HULLS)
        # the first layer is taken at the middle of each box: its margin there
        first = slice(0, int(self.model.net.noff[1]))
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        W, b = problem.network.maps[0], problem.network.biases[0]
        self.model.Q[first] += OF_TERMS * self.model.noise * np.asarray(abs(W) @ size + np.abs(b))

    def root(self) -> Piece:
        """All of the ball."""
        clauses = np.arange(len(self.problem.clauses))
        return Piece(self.low, self.high, sides_of(self.state), clauses, 0.0, 0)

    def bound(self, piece: Piece) -> Bounded:
        """Bound the neurons of a box, then its clauses."""
        if piece.depth == 0:  # `build` has bounded its neurons
            return self._clauses(piece, self.model, self.state, self._forms(), self.radius)
        network, noff = self.problem.network, self.model.net.noff
        model, U = self._centred(piece)
        room = forward.room_of(model.box_lo, model.box_hi, U)
        state = np.zeros((ROWS, len(piece.sides)))
        state[LO] = np.where(piece.sides > 0, np.maximum(self.state[LO], 0.0), self.state[LO])
        state[HI] = np.where(piece.sides < 0, np.minimum(self.state[HI], 0.0), self.state[HI])
        cap, kept = whole_ball(network.inputs, U), keep_rows(model.net, 0)
        above = Constants(np.zeros(network.L + 1), np.zeros(network.L + 1))
        forms: list[forward.Forms] = []
        for k in range(network.L):
            part = slice(noff[k], noff[k + 1])
            forms.append(forward.into(forms[-1] if forms else None, model, network, state, k, room))
            if not tighten_layer(model, kept, state, cap, above, k, 0, clock.timer()):
                return Bounded(state, forms, np.ones(len(piece.clauses), np.bool_), np.zeros((0, network.inputs)), None)
            clock.check()
            state[POINT, part] = state[LO, part] + state[HI, part]
        state[ALPHA] = state[POINT] > 0
        return self._clauses(piece, model, state, forms, U)

    def _forms(self) -> list[forward.Forms]:
        """Those of all of the ball, from the bounds of its neurons."""
        network = self.problem.network
        room, forms = forward.room_of(self.model.box_lo, self.model.box_hi, self.radius), list[forward.Forms]()
        for k in range(network.L):
            forms.append(forward.into(forms[-1] if forms else None, self.model, network, self.state, k, room))
        return forms

    def _clauses(self, piece: Piece, model: Model, state: Matrix, forms: list[forward.Forms], U: float) -> Bounded:
        """Which clauses hold nowhere in the box, all of which is nearer to its middle than U."""
        first = model.first
        count = int(np.diff(first).max())
        mus = np.zeros((len(piece.clauses), count))
        for a, clause in enumerate(piece.clauses):
            mus[a, : first[clause + 1] - first[clause]] = 1.0 / (first[clause + 1] - first[clause])
        states = np.repeat(state[None], len(mus), axis=0)
        lanes = lanes_of(model, states, mus, piece.clauses.astype(np.intp))
        points = np.zeros((len(mus), model.net.inputs))
        bounds = optimise(model, lanes, U, STEPS, points, clock.timer())
        clock.check()
        return Bounded(state, forms, bounds >= U, points, lanes)

    def middle(self, piece: Piece) -> Vector:
        """The point that offsets in a box are taken from: its middle, or x for all of the ball."""
        if piece.depth == 0:
            return self.problem.x
        return np.clip(0.5 * piece.low + 0.5 * piece.high, piece.low, piece.high)

    def _centred(self, piece: Piece) -> tuple[Model, float]:
        """The model with the middle of a box for x, and a radius beyond all of the box."""
        W, b = self.problem.network.maps[0], self.problem.network.biases[0]
        middle = self.middle(piece)
        low, high = np.nextafter(piece.low - middle, -np.inf), np.nextafter(piece.high - middle, np.inf)
        U = 1.001 * float(max(-low.min(), high.max()))
        return self.model._replace(z0=np.asarray(W @ middle + b), box_lo=low, box_hi=high), U

    def witnesses(self, task: Task, piece: Piece, found: Bounded, still: Indices) -> Iterator[Event]:
        """Unsafe points of a box: its middle, where the lines of its clauses are least, or a short way from there."""
        x, points = self.problem.x, found.points[still]
        for w in (np.zeros_like(x), *points):
            point = np.clip(self.middle(piece) + w, piece.low, piece.high)
            clause = self.problem.holding(point)
            if clause is not None:
                yield from task.suggest(point - x, clause)
                return
        turn = piece.depth % len(still)  # one clause per box: an attack takes as long as a part of the box's bounds
        at = int(piece.clauses[still[turn]])
        start = np.clip(self.middle(piece) + points[turn], piece.low, piece.high) - x
        distance, w = seek(self.asked, at, start, SEEK_STEPS, self.radius, COARSE, clock.timer())
        if distance < self.radius:
            yield from task.suggest(w, self.problem.clauses[at])

    def halves(self, piece: Piece, found: Bounded, still: Indices) -> Iterator[Piece]:
        """Both halves of a box, cut where that promises most."""
        j = self._axis(piece, found, still)
        cut = 0.5 * piece.low[j] + 0.5 * piece.high[j]
        sides, clauses = sides_of(found.state), piece.clauses[still]
        for low, high in ((piece.low[j], cut), (cut, piece.high[j])):
            lows, highs = piece.low.copy(), piece.high.copy()
            lows[j], highs[j] = low, high
            apart = float(np.maximum(np.maximum(lows - self.problem.x, self.problem.x - highs), 0.0).max())
            yield Piece(lows, highs, sides, clauses, max(piece.key, apart * (1.0 - gamma(64))), piece.depth + 1)

    def _axis(self, piece: Piece, found: Bounded, still: Indices) -> int:
        """The input that is to blame most for what the open neurons cost the clauses that are left.

        A neuron costs |A| times the offset of its upper line, which shrinks with its range; an input is to blame for
        its part of that range.
        """
        assert found.lanes is not None
        state, noff = found.state, self.model.net.noff
        radii = 0.5 * (piece.high - piece.low)
        cost = np.abs(found.lanes.state[COEF][:, still]).max(axis=1) * found.lanes.offset[:, still[0]]
        blame = 1e-12 * radii / max(float(radii.max()), 1e-300)
        for k, forms in enumerate(found.forms):
            open_ones = np.flatnonzero(open_mask(state[:, noff[k] : noff[k + 1]]))
            reach = np.abs(0.5 * (forms.lower[open_ones, :-1] + forms.upper[open_ones, :-1])) * radii
            whole = reach.sum(axis=1)
            share = np.divide(cost[noff[k] + open_ones], whole, out=np.zeros(len(whole)), where=whole > 0)
            blame += share @ reach
        return int(np.argmax(np.where(radii > 0, blame, -1.0)))


def sides_of(state: Matrix) -> Signs:
    """+1 and -1 where the neurons of a state have one side."""
    on, off = state[LO] >= 0.0, state[HI] <= 0.0
    return np.where(off, -1, np.where(on, 1, 0)).astype(np.int8)
