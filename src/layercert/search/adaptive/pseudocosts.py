"""What to split where no node has a bound yet: neurons whose splits brought much, in the tree so far or in a trial.

The kernels' score of a neuron is what its own line loses in F. In a deep network that is the least of it: a split in
the first layers narrows the ranges of all neurons above, which only a round of tightening shows. So children of a few
neurons of each layer are tightened for trial, and what real splits bring is averaged with that: the pseudocosts of
mixed-integer solvers. Nothing is proved here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.search.adaptive.bound import Batch, Effort, deepen
from layercert.search.adaptive.branch import CREDIT
from layercert.search.adaptive.lines import fix, scores
from layercert.search.adaptive.model import HI, LO, open_mask
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.node import Node
    from layercert.search.adaptive.worker import Worker

#: Neurons of each layer that are tried, and of all layers by what their own lines lose.
TRIED, SCORED = 3, 4
#: What the last split of a neuron brought counts for this much of its mean.
PACE = 0.5
#: Where no split promises this part of the gap, others are to be looked for.
SLIGHT = 0.05


class Pseudocosts:
    """Per neuron the share of the gap that its two children close, per unit of the height of its triangle."""

    def __init__(self, neurons: int) -> None:
        self.gains = np.full((2, neurons), np.nan)

    def add(self, node: Node, neuron: int, bounds: tuple[float, float]) -> None:
        """A node without a bound was split; a child that has one closed all of the gap."""
        parent, height = node.bound, float(heights(node.state[:, neuron : neuron + 1])[0])
        for side in range(2):
            gain = (max(min(bounds[side], 0.0), parent) / -parent + 1.0) / height
            mean = self.gains[side, neuron]
            self.gains[side, neuron] = gain if math.isnan(mean) else mean + PACE * (gain - mean)

    def best(self, state: Matrix) -> tuple[int, float]:
        """The open neuron whose children promise most, and what (the geometric mean of both); -1: none is known."""
        there = np.flatnonzero(open_mask(state) & ~np.isnan(self.gains[0]))
        if not len(there):
            return -1, 0.0
        worth = (self.gains[0, there] + CREDIT) * (self.gains[1, there] + CREDIT) * heights(state)[there] ** 2
        at = int(np.argmax(worth))
        return int(there[at]), math.sqrt(float(worth[at]))


def heights(state: Matrix) -> Vector:
    """How far the upper lines of the open neurons lie above relu at 0; 0 for others."""
    lo, hi, is_open = state[LO], state[HI], open_mask(state)
    return np.where(is_open, -lo * hi / np.where(is_open, hi - lo, 1.0), 0.0)


def candidates(worker: Worker, state: Matrix) -> Indices:
    """Of each layer the open neurons whose upper line may lie highest above relu, weighted by what reads them."""
    network, noff = worker.task.problem.network, worker.ball.model.net.noff
    height, hi = heights(state), state[HI]
    found: list[Indices] = []
    for k in range(network.L):
        part = slice(noff[k], noff[k + 1])
        reads = np.ones(network.classes) if k + 1 == network.L else (hi[noff[k + 1] : noff[k + 2]] > 0).astype(float)
        worth = height[part] * np.asarray(reads @ abs(network.maps[k + 1]))
        order = np.argsort(-worth, kind="stable")[:TRIED]
        found.append(noff[k] + order[worth[order] > 0])
    score = np.empty(state.shape[1])
    scores(state, score)
    order = np.argsort(-score, kind="stable")[:SCORED]
    found.append(order[score[order] > 0])
    return np.unique(np.concatenate(found).astype(np.intp))


def try_out(worker: Worker, node: Node, costs: Pseudocosts) -> None:
    """Both children of some neurons of each layer, tightened once."""
    ball, tried = worker.ball, candidates(worker, node.state)
    if not len(tried):
        return
    m, U = 2 * len(tried), ball.U
    states = np.repeat(node.state[None], m, axis=0)
    for n in range(m):
        fix(states[n], int(tried[n // 2]), 1.0 - 2.0 * (n % 2))
    mus = np.zeros((m, ball.rows))
    mus[:, : len(node.weights)] = node.weights
    batch = Batch(
        states, mus, np.full(m, node.clause, np.intp), np.full(m, node.bound), np.zeros((m, ball.model.net.inputs)),
        np.full((m, 1), -1, np.intp),
    )  # fmt: skip
    deepen(ball.model, worker.kept, batch, U, U, Effort(0, 0, worker.effort.steps, 1, 1), clock.timer())
    clock.check()
    for c, neuron in enumerate(tried):
        costs.add(node, int(neuron), (batch.bounds[2 * c], batch.bounds[2 * c + 1]))
