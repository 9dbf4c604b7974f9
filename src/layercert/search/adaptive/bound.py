"""Kernels of one node's bound: rounds of tightening its neurons on the cap and of ascending again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Tensor, Vector
from layercert.compiled.jit import njit_sums
from layercert.compiled.timer import Timer, late
from layercert.search.adaptive.ascent import climb, drop_betas, optimise
from layercert.search.adaptive.cap import Cap
from layercert.search.adaptive.halfspace import dual_norm
from layercert.search.adaptive.lanes import Constants, Pass, backward, lanes_of, store
from layercert.search.adaptive.layers import tighten
from layercert.search.adaptive.model import ALPHA, BETA, COEF, SHARE, Kept, Model
from layercert.search.adaptive.trail import PARTS, begin_round, in_parts

#: A round that gains this much more than the last one is not the last, if it gains this share of U.
SPEEDING, SLIGHTEST = 1.2, 1e-4
#: Rounds go on while they close this share of the gap to U, or of the (negative) value at x.
WORTHWHILE, WORTHWHILE_BELOW = 0.03, 0.1
#: Nodes without a bound that gained nothing get so many steps more, in which a multiplier of a split may go this far.
#: Most of them are empty, which only large multipliers show: a node of 28 splits was split a thousand times for want of
#: them (PERFORMANCE.md, 2026-11-18).
INSISTENCE, FARTHEST_REACH = 80, 1.0


class Batch(NamedTuple):
    """Nodes that are worked on together."""

    states: Tensor  # node, row of the state, neuron
    mus: Matrix  # node, row of its clause
    clauses: Indices
    bounds: Vector
    points: Matrix  # where the node's halfspace is nearest to x: the next attack starts there
    wanted: Indices  # node, neurons that are the candidates for a split; -1 and what follows: none


class Effort(NamedTuple):
    """How hard a node is worked on, as kernels see it."""

    candidates: int
    probe_steps: int
    steps: int
    rounds: int
    passes: int


@njit_sums
def cap_of(model: Model, found: Pass, r: int, U: float) -> Cap:
    """Where the unsafe points of lane r are: g.w <= -s + drift ||w|| and ||w|| <= U."""
    s = found.s[r] - found.drift[r] * U
    return Cap(U, found.g[r], max(s, -1e300), dual_norm(found.g[r], model.p))


@njit_sums
def deepen(model: Model, kept: Kept, batch: Batch, U: float, goal: float, effort: Effort, timer: Timer) -> None:
    """Raise the bounds of some nodes in place, to inf where one is empty: rounds, and more steps where they fail."""
    before = batch.bounds.copy()
    go_round(model, kept, batch, U, goal, effort, timer)
    insist(model, batch, before, goal, timer)


@njit_sums
def insist(model: Model, batch: Batch, before: Vector, goal: float, timer: Timer) -> None:
    """More steps, and longer ones, for nodes without a bound whose rounds brought nothing."""
    stuck = np.flatnonzero((batch.bounds < 0.0) & (batch.bounds <= before))
    if len(stuck) == 0 or late(timer):
        return
    lanes = lanes_of(model, batch.states[stuck], batch.mus[stuck], batch.clauses[stuck])
    w = np.zeros((len(stuck), model.net.inputs))
    values = climb(model, lanes, goal, INSISTENCE, (FARTHEST_REACH, FARTHEST_REACH), w, timer)
    for a in range(len(stuck)):
        n = stuck[a]
        if values[a] > batch.bounds[n]:
            store(lanes, a, batch.states[n], batch.mus[n])
            batch.points[n], batch.bounds[n] = w[a], values[a]


@njit_sums
def go_round(model: Model, kept: Kept, batch: Batch, U: float, goal: float, effort: Effort, timer: Timer) -> None:
    """Tighten each node on its cap and optimise again, as long as that closes the gap to U or gains speed."""
    states, mus, clauses, bounds, points = batch.states, batch.mus, batch.clauses, batch.bounds, batch.points
    nodes, _, N = states.shape
    last = np.full(nodes, np.inf)
    going = np.empty(nodes, np.intp)
    count = 0
    for n in range(nodes):
        if bounds[n] < goal:
            going[count] = n
            count += 1
    for _ in range(effort.rounds):
        if count == 0 or late(timer):
            return
        part = going[:count].copy()
        if len(kept.trail.node) > 0:
            for n in part:
                in_parts(states[n, ALPHA], PARTS)
                in_parts(states[n, SHARE], PARTS)
        lanes = lanes_of(model, states[part], mus[part], clauses[part])
        found = backward(model, lanes)
        left = 0
        for a in range(count):
            n = part[a]
            for i in range(N):
                states[n, COEF, i] = lanes.state[COEF, i, a]
            cap, above = cap_of(model, found, a, U), Constants(found.value[a], found.error[a])
            if len(kept.trail.node) > 0:
                begin_round(kept.trail, n, states[n, ALPHA], states[n, BETA], states[n, SHARE], mus[n])
            if tighten(model, kept, states[n], cap, above, effort.passes, timer):
                part[left] = n
                left += 1
            else:
                bounds[n] = np.inf
        if left == 0:
            return
        part = part[:left].copy()
        lanes = lanes_of(model, states[part], mus[part], clauses[part])
        drop_betas(model, lanes)
        w = np.zeros((left, model.net.inputs))
        values = optimise(model, lanes, goal, effort.steps, w, timer)
        count = 0
        for a in range(left):
            n = part[a]
            store(lanes, a, states[n], mus[n])
            points[n] = w[a]
            before, bounds[n] = bounds[n], max(bounds[n], values[a])
            gain = bounds[n] - before
            if bounds[n] < goal and goes_on(before, bounds[n], gain, last[n], U):
                going[count] = n
                count += 1
            last[n] = gain


@njit_sums
def goes_on(before: float, bound: float, gain: float, last: float, U: float) -> bool:
    """Is another round worth it?"""
    if gain > SPEEDING * last and gain > SLIGHTEST * U:
        return True  # faster and faster
    if bound < 0.0:
        return bound >= (1.0 - WORTHWHILE_BELOW) * before
    return before < 0.0 or U - bound <= (1.0 - WORTHWHILE) * (U - before)
