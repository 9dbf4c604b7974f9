"""What a row is, the pass that bounds one neuron from one side, and what is kept of it from visit to visit.

A row of layer k is z + pull F, and F is known as a function of the layer's inputs, or of its outputs: then the row has
lower lines of its own in its own layer too, and multipliers of the splits there (layers.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.jit import inner, njit_sums
from layercert.search.adaptive.model import ALPHA, PHASE, POINT, Kept

#: How far the kept lower lines of a row move towards its least point: the store serves all nodes, and a part of the way
#: averages over those that used it (PERFORMANCE.md, 2026-11-15).
WARM_PACE = 0.3


class NeuronRows(NamedTuple):
    """Backward passes of one layer. Without parameters of their own (`own`) the matrices have no lanes."""

    neurons: Indices
    sides: Vector  # +1: from below, -1: from above
    own: bool
    slopes: Matrix  # of the lower lines of all neurons below, or of those of the row's own layer too
    betas: Matrix  # multipliers of splits, of the same neurons
    pulls: Vector  # multiplier of the objective
    coef: Matrix  # coefficients of the last pass


class Objective(NamedTuple):
    """The upper part of F: coef.x + value - error <= F at the node's points, x the outputs of a layer's neurons."""

    first: int  # neuron of that layer
    coef: Vector
    value: float
    error: float


class Sums(NamedTuple):
    """What a backward pass adds up, per row: G.w + c - error - drift ||w|| <= the row's value."""

    c: Vector
    error: Vector
    drift: Vector


@inner
def place(neuron: int, r: int) -> int:
    """Where `Kept` has row r: rows come in pairs, the one that bounds the neuron from below before the other."""
    return 2 * neuron + r % 2


@njit_sums
def recall(kept: Kept, state: Matrix, neurons: Indices, base: int, own: bool) -> tuple[NeuronRows, Vector]:
    """Rows with the parameters of their last pass, or those for a first one; and how far lines may move.

    Lines and multipliers in the rows' own layer are for nodes with splits: at a root they cost more than they bring.
    """
    m, row = 2 * len(neurons), place(neurons[0], 0)
    lanes, top = m if own else 0, base
    if own and np.any(state[PHASE] != 0.0):
        top = kept.at[row + 1] - kept.at[row]
    rows = NeuronRows(
        np.empty(m, np.intp), np.empty(m), own, np.empty((top, lanes)), np.zeros((top, lanes)), np.zeros(m),
        np.zeros((top, lanes)),
    )  # fmt: skip
    pace = np.ones(m)
    for r in range(m):
        rows.neurons[r] = neurons[r // 2]
        rows.sides[r] = 1.0 - 2.0 * (r % 2)
        if not own:
            continue
        row = place(rows.neurons[r], r)
        at = kept.at[row]
        if kept.slopes[at] >= 0.0:
            for i in range(top):
                slope = kept.slopes[at + i]
                rows.slopes[i, r] = slope if slope >= 0.0 else state[ALPHA, i]
                rows.betas[i, r] = max(kept.betas[at + i] * state[PHASE, i], 0.0)
            rows.pulls[r] = kept.pulls[row]
            pace[r] = WARM_PACE
        else:
            for i in range(base):
                rows.slopes[i, r] = 1.0 if state[POINT, i] > 0.0 else 0.0
            for i in range(base, top):
                rows.slopes[i, r] = state[ALPHA, i]
    return rows, pace


@njit_sums
def keep(kept: Kept, state: Matrix, rows: NeuronRows) -> None:
    """For `recall` at the next pass, of this node or any other."""
    for r in range(len(rows.neurons)):
        row = place(rows.neurons[r], r)
        at = kept.at[row]
        kept.pulls[row] = rows.pulls[r]
        for i in range(len(rows.slopes)):
            kept.slopes[at + i] = rows.slopes[i, r]
            if state[PHASE, i] != 0.0:
                kept.betas[at + i] = rows.betas[i, r] * state[PHASE, i]
