"""Kernels of branching: score the free neurons, bound the children of the best few for real, keep the best split."""

from __future__ import annotations

import numpy as np

from layercert.compiled.dense import copy, copy_rows
from layercert.compiled.jit import njit_sums
from layercert.search.adaptive.bound import deepen, ease, optimise
from layercert.search.adaptive.hull import relaxation
from layercert.search.adaptive.model import ALPHA, COEF, HI, LO, PHASE, POINT

#: No folds in probes: the parent's planes do. Typed, lest numba compile `optimise` a second time for the constant 0.
NEVER = np.int64(0)


@njit_sums
def scores(state, out):  # type: ignore[no-untyped-def]
    """How much a split may bring: what the neuron's line loses at POINT, weighted by its coefficient; -1: not free.

    What it loses at worst decides among equals.
    """
    for i in range(len(out)):
        lo, hi, a = state[LO, i], state[HI, i], state[COEF, i]
        out[i] = -1.0
        if state[PHASE, i] == 0.0 and lo < 0.0 < hi:
            z = min(max(state[POINT, i], lo), hi)
            if a < 0.0:
                worst = a * hi * lo / (hi - lo)
                here = -a * (hi * (z - lo) / (hi - lo) - max(z, 0.0))
            else:
                worst = a * min(hi, -lo)
                here = a * (max(z, 0.0) - state[ALPHA, i] * z)
            out[i] = here + 1e-3 * worst


@njit_sums
def fix(state, neuron, phase):  # type: ignore[no-untyped-def]
    state[PHASE, neuron] = phase
    if phase > 0:
        state[LO, neuron] = max(state[LO, neuron], 0.0)
    else:
        state[HI, neuron] = min(state[HI, neuron], 0.0)


@njit_sums
def progress(parent, value, U):  # type: ignore[no-untyped-def]
    """How far a child gets, in units of U, or of the parent's own value at x where that is negative."""
    if parent >= 0.0:
        return (min(value, U) - parent) / U + 1e-6
    if value < 0.0:
        return (value - parent) / -parent + 1e-6
    return 1.0 + min(value, U) / U


@njit_sums
def expand(
    model,
    state,
    mu,
    first,
    parent,
    U,
    goal,
    candidates,
    probe,
    steps,
    rounds,
    passes,
    every,
    again,
    kids,
    kid_mu,
    bounds,
    points,
):  # type: ignore[no-untyped-def]
    """Split one node. Fills kids (2 states), kid_mu, bounds (inf: empty) and points; returns the neuron.

    A probe bounds both children of a candidate with a few steps; the product of their bounds, cut at U, decides.
    """
    N = state.shape[1]
    relaxed = relaxation(model, state)
    if every > 0:  # planes were not kept: they take more room than all the rest of a node
        ease(model, state, mu, first, relaxed, np.empty(N), np.empty_like(points[0]), points[0])
        optimise(model, state, mu, first, goal, again, every, relaxed, points[0])
    P, q = relaxed.P.copy(), relaxed.q.copy()
    score = np.empty(N)
    scores(state, score)
    trial = np.empty_like(kids)
    trial_mu = np.empty_like(kid_mu)
    trial_w = np.empty_like(points)
    value = np.empty(2)
    best, neuron = -1.0, -1
    for c in range(min(candidates, N)):
        i = 0  # the best one left
        for j in range(1, N):
            if score[j] > score[i]:
                i = j
        if score[i] < 0.0 or (c > 0 and score[i] <= 0.0):
            break
        for side in range(2):
            copy_rows(state, trial[side])
            copy(mu, trial_mu[side])
            fix(trial[side], i, 1.0 - 2.0 * side)
            bound = optimise(model, trial[side], trial_mu[side], first, goal, probe, NEVER, relaxed, trial_w[side])
            value[side] = max(parent, bound)
        gain = progress(parent, value[0], U) * progress(parent, value[1], U)
        if gain > best:
            best, neuron = gain, i
            for side in range(2):
                copy_rows(trial[side], kids[side])
            copy_rows(trial_mu, kid_mu)
            copy_rows(trial_w, points)
            copy(value, bounds)
        if value[0] >= goal and value[1] >= goal:
            break
        score[i] = -1.0  # had its turn
    for side in range(2):
        if bounds[side] >= goal:
            continue
        copy(P, relaxed.P)
        copy(q, relaxed.q)
        bounds[side] = deepen(
            model, kids[side], kid_mu[side], first, U, goal, bounds[side], steps, rounds, passes, every, relaxed,
            points[side],
        )  # fmt: skip
    return neuron
