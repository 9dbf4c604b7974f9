"""Kernels of branching: score the open neurons, bound the children of the best few for real, keep the best split."""

from __future__ import annotations

import numpy as np

from layercert.arrays import Indices
from layercert.compiled.jit import njit_sums
from layercert.compiled.timer import Timer, late
from layercert.search.adaptive.ascent import optimise
from layercert.search.adaptive.bound import Batch as Batch
from layercert.search.adaptive.bound import Effort, deepen
from layercert.search.adaptive.lanes import lanes_of, store
from layercert.search.adaptive.lines import fix, scores
from layercert.search.adaptive.model import ROWS, Kept, Model

#: What a child that gains nothing is worth, so that in the product the other's gain still counts.
CREDIT = 1e-6


@njit_sums
def batch_of(nodes: int, neurons: int, rows: int, inputs: int) -> Batch:
    """Room for some nodes."""
    return Batch(
        np.empty((nodes, ROWS, neurons)), np.zeros((nodes, rows)), np.empty(nodes, np.intp), np.empty(nodes),
        np.zeros((nodes, inputs)), np.full((nodes, 1), -1, np.intp),
    )  # fmt: skip


@njit_sums
def progress(parent: float, value: float, U: float) -> float:
    """How far a child gets, in units of U, or of the parent's own value at x where that is negative."""
    if parent >= 0.0:
        return (min(value, U) - parent) / U + CREDIT
    if value < 0.0:
        return (value - parent) / -parent + CREDIT
    return 1.0 + min(value, U) / U


@njit_sums
def expand(
    model: Model, kept: Kept, parents: Batch, U: float, goal: float, effort: Effort, timer: Timer
) -> tuple[Batch, Indices]:
    """Split some nodes: a batch with two children each, on first (bound inf: empty), and the neurons.

    A probe bounds both children of a candidate with a few steps; the product of their bounds, cut at U, decides.
    A neuron of -1 says that the time was up before the node was split.
    """
    nodes, _, N = parents.states.shape
    rows, inputs = parents.mus.shape[1], parents.points.shape[1]
    children = batch_of(2 * nodes, N, rows, inputs)
    neurons = np.full(nodes, -1, np.intp)
    score = np.empty(N)
    for n in range(nodes):
        if late(timer):
            return children, neurons
        scores(parents.states[n], score)
        tried = np.empty(effort.candidates, np.intp)
        count = 0
        for i in parents.wanted[n]:
            if i < 0 or count == effort.candidates:
                break
            if score[i] >= 0.0:  # still open
                tried[count] = i
                count += 1
        told = count > 0
        while count < effort.candidates and not told:
            i = int(np.argmax(score))
            if score[i] < 0.0 or (count > 0 and score[i] <= 0.0):
                break
            tried[count] = i
            count += 1
            score[i] = -1.0
        neurons[n] = probe(model, parents, n, tried[:count], children, (U, goal), effort.probe_steps, timer)
    deepen(model, kept, children, U, goal, effort, timer)
    return children, neurons


@njit_sums
def probe(
    model: Model, parents: Batch, n: int, tried: Indices, children: Batch, goals: tuple[float, float], steps: int,
    timer: Timer,
) -> int:  # fmt: skip
    """Both children of each candidate side by side; the best pair becomes children 2n and 2n+1. Returns their neuron.

    goals: U, and the bound at which a node is closed.
    """
    U, goal = goals
    count, parent = len(tried), parents.bounds[n]
    states, mus = np.empty((2 * count, *parents.states[n].shape)), np.empty((2 * count, parents.mus.shape[1]))
    clauses = np.full(2 * count, parents.clauses[n])
    for a in range(2 * count):
        states[a] = parents.states[n]
        mus[a] = parents.mus[n]
        fix(states[a], tried[a // 2], 1.0 - 2.0 * (a % 2))
    lanes = lanes_of(model, states, mus, clauses)
    w = np.zeros((2 * count, parents.points.shape[1]))
    values = np.maximum(optimise(model, lanes, goal, steps, w, timer), parent)
    best, at = -1.0, -1
    for c in range(count):
        gain = progress(parent, values[2 * c], U) * progress(parent, values[2 * c + 1], U)
        if gain > best:
            best, at = gain, c
    for side in range(2):
        child, lane = 2 * n + side, 2 * at + side
        store(lanes, lane, children.states[child], children.mus[child])
        children.clauses[child] = parents.clauses[n]
        children.bounds[child] = values[lane]
        children.points[child] = w[lane]
    return tried[at]
