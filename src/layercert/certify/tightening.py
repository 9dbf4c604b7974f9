"""A round of tightening at a node, compiled: all open neurons are bounded on the cap, layer by layer, by the checker's
own passes, with what each row needs for the file.

Rows take the parameters that the search left. Where they move, a first pass says where to, as in the search
(search/adaptive/layers.py), and a second one counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Matrix, Vector
from layercert.certificate.facets import FacetLanes
from layercert.certificate.lanes import Ground, Regions, Uses, functions, least, take
from layercert.certificate.step_floats import LANES, Halfspaces
from layercert.certify.digest import Digest, cap_multipliers, digest, limits_of, line_moves_of, recall, stored, worth
from layercert.certify.recording import PARTS, Snapshot
from layercert.compiled.jit import njit
from layercert.search.adaptive.cap import Cap
from layercert.search.adaptive.layers import repull, rows_touch
from layercert.search.adaptive.model import HI, LO, PHASE, ROWS, Model
from layercert.search.adaptive.rows import WARM_PACE, NeuronRows, Objective

#: A bound that narrows its neuron's range by less than this share is not worth a row, unless it settles the sign.
NARROWER = 0.01
#: The same for rows that the search told, which took them: what it did next rests on all of them.
NARROWER_TOLD = 0.001


class Node(NamedTuple):
    """A node, its halfspace, and what its rows begin with."""

    regions: Regions
    at: int  # its line there
    halves: Halfspaces
    half: int  # its line there
    cap: Cap
    known: Snapshot  # parameters of rows
    touch: Vector  # lower slopes of rows without
    moving: bool  # rows move, in a snapshot that is the node's own
    given_by: Indices  # which events gave the bounds
    event: int  # of its halfspace
    events: int  # so many there are


class Slips(NamedTuple):
    """How far bounds can be from those of another checker (doubt.py)."""

    start: Vector
    T: Vector
    half: float  # how far the node's halfspace can move


class Bounded(NamedTuple):
    """Rows of a layer that proved something: their neurons and sides, pulls and multipliers of the cap, what they
    proved, and what they need."""

    target: Indices
    side: Vector
    pull: Vector
    lam: Vector
    limit: Vector
    own: Digest


class Passed(NamedTuple):
    """Rows of one layer after their passes: the coefficients of all neurons below, multipliers of the cap, bounds."""

    uses: Uses
    trace: Matrix
    lams: Vector
    values: Vector


class Told(NamedTuple):
    """Rows that the search used in one round (record.Tightened), with numbers that can be stored."""

    neurons: Indices
    sides: Vector
    pulls: Vector
    lams: Vector
    slope_begin: Indices
    slopes: NDArray[np.uint8]
    split_begin: Indices
    split_end: Indices
    split_at: NDArray[np.int32]
    splits: NDArray[np.float32]


@njit
def tighten(ground: Ground, model: Model, node: Node, slips: Slips, none: FacetLanes) -> tuple[list[Bounded], int]:
    """What rows prove, in the order of their events, and a neuron that is left without any value, or -1.

    Bounds and `given_by` are changed. `none`: rows have no facets here.
    """
    events, line = node.events, np.zeros(len(ground.Q))
    found = []
    for k in range(len(ground.net.noff) - 1):
        free = open_neurons(ground, node, k)
        if k > 0:
            line_moves_of(node.regions, node.at, node.given_by, slips.start, slips.T, line)
        for begin in range(0, len(free), LANES // 2):
            passed = pass_of(ground, model, node, k, free[begin : begin + LANES // 2], none)
            own, empty = take_rows(node, passed, line, slips.half, events, NARROWER)
            if len(own.target) > 0:
                found.append(own)
            events += len(own.target)
            if empty >= 0:
                return found, empty
    return found, -1


@njit
def follow(ground: Ground, node: Node, slips: Slips, told: Told, none: FacetLanes) -> tuple[list[Bounded], int]:
    """The same by the rows of a round of the search, as they are told: one pass for each."""
    noff, events, line = ground.net.noff, node.events, np.zeros(len(ground.Q))
    found = []
    begin, last = 0, len(ground.net.noff) - 2
    # a round without an objective (search/adaptive/shared.py) is for halfspaces to come, which read the last layer
    blind = not np.any(node.halves.uppers.coef[noff[last] :, node.half] != 0.0)
    while begin < len(told.neurons):
        k = np.searchsorted(noff, told.neurons[begin], side="right") - 1
        rows, count = np.empty(LANES, np.intp), 0
        while begin < len(told.neurons) and count < LANES and told.neurons[begin] < noff[k + 1]:
            i = told.neurons[begin]
            read = k < last or blind or node.halves.uppers.coef[i, node.half] < 0.0
            if read and node.regions.side[node.at, i] == 0:
                rows[count] = begin
                count += 1
            begin += 1
        if count == 0:
            continue
        if k > 0:
            line_moves_of(node.regions, node.at, node.given_by, slips.start, slips.T, line)
        uses, trace = told_uses(node, told, rows[:count], noff[k], none), np.zeros((noff[k], count))
        lams = told.lams[rows[:count]]
        passed = Passed(uses, trace, lams, bounds_of(ground, node, k, uses, trace, lams))
        own, empty = take_rows(node, passed, line, slips.half, events, NARROWER_TOLD)
        if len(own.target) > 0:
            found.append(own)
        events += len(own.target)
        if empty >= 0:
            return found, empty
    return found, -1


@njit
def told_uses(node: Node, told: Told, rows: Indices, below: int, none: FacetLanes) -> Uses:
    """Some rows of one layer with the parameters that the search had."""
    m, many = len(rows), False
    slopes = np.empty((below, m))
    for t in range(m):
        at = told.slope_begin[rows[t]]
        many = many or told.split_end[rows[t]] > told.split_begin[rows[t]]
        for i in range(below):
            slopes[i, t] = told.slopes[at + i] / PARTS
    splits = np.zeros((below if many else 0, m))
    for t in range(m):
        for e in range(told.split_begin[rows[t]], told.split_end[rows[t]]):
            i = told.split_at[e]
            if told.splits[e] * node.regions.side[node.at, i] > 0.0:
                splits[i, t] = told.splits[e]
    at, half = np.full(m, node.at, np.intp), np.full(m, node.half, np.intp)
    return Uses(at, half, told.neurons[rows], told.sides[rows], told.pulls[rows], slopes, splits, none)


@njit
def bounds_of(ground: Ground, node: Node, k: int, uses: Uses, trace: Matrix, lams: Vector) -> Vector:
    """What rows prove on the cap with these multipliers of it; `trace` is filled."""
    G, c, size = functions(ground, node.regions, node.halves, k, uses, trace)
    return least(ground.reach, G, c, size, node.halves, uses.half, lams)


@njit
def take_rows(node: Node, passed: Passed, line: Vector, half: float, events: int, share: float) -> tuple[Bounded, int]:
    """What some rows of one layer proved goes into the node's bounds; those that were worth it, their events numbered
    from `events` on, and a neuron that is left without any value, or -1.

    line: how far upper lines below can move, half: how far the node's halfspace can (doubt.py); rows count for that
    much less.
    """
    uses, trace, lams = passed.uses, passed.trace, passed.lams
    values = limits_of(line, trace, passed.values, (lams + uses.pull) * half)
    regions, empty = node.regions, -1
    which = worth(values, uses.neuron, uses.side, regions.lo[node.at], regions.hi[node.at], share)
    rests = np.full(len(which), -1, np.int64)
    for t in range(len(which)):
        if lams[which[t]] > 0.0 or uses.pull[which[t]] > 0.0:
            rests[t] = node.event
    own = digest(trace, (regions, node.at), uses.slopes, uses.splits, node.given_by, which, rests)
    used = Uses(
        uses.node[which], uses.half[which], uses.neuron[which], uses.side[which], uses.pull[which], uses.slopes,
        uses.splits, uses.facets,
    )  # fmt: skip
    values = values[which]
    gone = take(regions, used, values)
    for t in range(len(which)):
        node.given_by[2 * used.neuron[t] + (1 if used.side[t] < 0.0 else 0)] = events + t
        if gone[t] and empty < 0:
            empty = used.neuron[t]
    return Bounded(used.neuron, used.side, used.pull, lams[which], values, own), empty


@njit
def open_neurons(ground: Ground, node: Node, k: int) -> Indices:
    """Those of layer k that rows are worth while for."""
    net, count = ground.net, 0
    out = np.empty(net.noff[k + 1] - net.noff[k], np.intp)
    for i in net.order[net.noff[k] : net.noff[k + 1]]:
        # no row reads bounds of the last layer, and F those below a chord alone
        read = k < len(net.noff) - 2 or node.halves.uppers.coef[i, node.half] < 0.0
        if read and node.regions.side[node.at, i] == 0:
            out[count] = i
            count += 1
    return out[:count]


@njit
def pass_of(ground: Ground, model: Model, node: Node, k: int, neurons: Indices, none: FacetLanes) -> Passed:
    """Both sides of some neurons."""
    m, below = 2 * len(neurons), ground.net.noff[k]
    both, side = np.concatenate((neurons, neurons)), np.ones(m)
    side[len(neurons) :] = -1.0
    rows, signs = 2 * both, node.regions.side[node.at, :below]
    rows[len(neurons) :] += 1
    at, half = np.full(m, node.at, np.intp), np.full(m, node.half, np.intp)
    moves = node.moving and k > 0 and are_kept(node.known, rows)
    for turn in range(2 if moves else 1):
        slopes, splits, pulls = recall(node.known, rows, signs, node.touch[:below], len(node.known.betas) > 0)
        uses, trace = Uses(at, half, both, side, pulls, slopes, splits, none), np.zeros((below, m))
        G, c, size = functions(ground, node.regions, node.halves, k, uses, trace)
        lams = cap_multipliers(G, node.cap, model)
        if turn == 0 and moves:
            move(model, node, k, uses, G, trace, lams)
    return Passed(uses, trace, lams, least(ground.reach, G, c, size, node.halves, half, lams))


@njit
def are_kept(known: Snapshot, rows: Indices) -> bool:
    """Has the snapshot room for the parameters of these rows?"""
    for r in range(len(rows)):  # noqa: SIM110 - compiled
        if known.at[rows[r] + 1] <= known.at[rows[r]]:
            return False
    return True


@njit
def move(model: Model, node: Node, k: int, uses: Uses, G: Matrix, trace: Matrix, lams: Vector) -> None:
    """Move the parameters of rows after a pass, as the search moves its own."""
    regions, known, m, below = node.regions, node.known, len(lams), len(trace)
    state, betas, pace = np.zeros((ROWS, regions.lo.shape[1])), np.zeros((below, m)), np.ones(m)
    state[PHASE], state[LO], state[HI] = regions.phase[node.at], regions.lo[node.at], regions.hi[node.at]
    if len(uses.splits):
        for i in range(below):
            for r in range(m):
                betas[i, r] = max(uses.splits[i, r] * state[PHASE, i], 0.0)
    rows = 2 * uses.neuron
    for r in range(m):
        rows[r] += 1 if uses.side[r] < 0.0 else 0
        if known.known[rows[r]]:
            pace[r] = WARM_PACE
    moved = NeuronRows(uses.neuron, uses.side, True, uses.slopes, betas, uses.pull, trace)
    h = rows_touch(model, state, moved, k, G, lams, node.cap, pace)
    under, uppers = model.net.noff[k - 1], node.halves.uppers
    objective = Objective(under, uppers.coef[under:below, node.half].copy(), uppers.constant[k, node.half], 0.0)
    repull(model, state, moved, k, objective, h, lams)
    stored(known, rows, regions.phase[node.at, :below], moved)
