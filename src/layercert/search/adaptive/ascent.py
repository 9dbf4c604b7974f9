"""Kernels of the ascent: the distance bounds of nodes, maximised over alpha, beta and mu (docs/adaptive.md)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Mask, Matrix, Tensor, Vector
from layercert.compiled.jit import njit_sums
from layercert.compiled.timer import Timer, late
from layercert.search.adaptive.halfspace import distance
from layercert.search.adaptive.lanes import Lanes, backward, forward, relax
from layercert.search.adaptive.model import ALPHA, BETA, COEF, PHASE, POINT, SHARE, SINK, Model

#: Adam's decay rates of the mean and of the square, and how the steps shrink.
DECAY, SQUARE_DECAY, PACE = 0.9, 0.999, 0.96
#: A full step of a lower line, and of the multiplier of a split in units of its layer's largest coefficient.
ALPHA_STEP = 0.25
LEAST_REACH, MOST_REACH = 0.05, 0.3
#: A step aims at this multiple of what the bound lacks. Without it a node that is nearly closed stalls: every full step
#: from its parent's parameters leads away from them (PERFORMANCE.md, 2026-11-17).
POLYAK = 1.5
#: How the steps of beta grow while the bound rises, and shrink where it does not.
REACH_GROWTH, REACH_DECAY = 1.5, 0.5
#: So that Adam divides by something where a slope is zero, and a row of weight zero can come back.
NOT_ZERO, LEAST_WEIGHT = 1e-12, 1e-6


class Adam(NamedTuple):
    """The moments of the slopes, and how far a full step goes."""

    mean: Matrix
    square: Matrix
    mean_bias: float  # the weight that the zeros from before the first step have in each
    square_bias: float
    reach: Vector  # per lane: a full step of a split's multiplier, in this layer


@njit_sums
def optimise(model: Model, lanes: Lanes, goal: float, steps: int, best_w: Matrix, timer: Timer) -> Vector:
    """`climb` with steps of the usual length."""
    return climb(model, lanes, goal, steps, (LEAST_REACH, MOST_REACH), best_w, timer)


@njit_sums
def climb(
    model: Model, lanes: Lanes, goal: float, steps: int, reaches: tuple[float, float], best_w: Matrix, timer: Timer
) -> Vector:
    """Maximise the proved distance bounds over alpha, beta (and mu): Adam on their supergradients; done at the goal.

    Leaves the best alpha, beta, coefficients and mu in the lanes, the nearest points of their halfspaces in best_w and
    the relaxed pre-activations there in POINT. steps = 0: one evaluation as the lanes are. Where nothing is proved the
    (negative) bound of the value at x is returned: how far the node is from a first bound.
    """
    net, state = model.net, lanes.state
    L = len(net.noff) - 1
    N, m = lanes.lower.shape
    z, moves, mean, square = np.empty((N, m)), np.empty((N, m)), np.zeros((N, m)), np.zeros((N, m))
    lacks, part = np.empty(m), np.empty(m)
    shares = np.zeros((3, len(model.facets.neurons), m))  # Adam's moments of their slopes, and their moves
    unit, reach = np.zeros((L, m)), np.full(m, reaches[0])
    keep, keep_mu = state[ALPHA : COEF + 1].copy(), lanes.mu.copy()
    best, better, w = np.full(m, -np.inf), np.zeros(m, np.bool_), np.empty_like(best_w)
    mean_bias, square_bias, pace = 1.0, 1.0, 1.0
    for step in range(steps + 1):
        found = backward(model, lanes)
        open_lanes = 0
        for r in range(m):
            d = distance(found.g[r], found.s[r], found.drift[r], model, w[r])
            value = d if found.s[r] > 0.0 else found.s[r]  # below zero the value at x is what must rise
            better[r] = value > best[r]
            if better[r]:
                best[r] = value
                best_w[r] = w[r]
                for a in range(len(keep_mu)):
                    keep_mu[a, r] = lanes.mu[a, r]
            if step > 0:
                reach[r] = (
                    min(REACH_GROWTH * reach[r], reaches[1]) if better[r] else max(REACH_DECAY * reach[r], reaches[0])
                )
            open_lanes += best[r] < goal
            lacks[r] = POLYAK * found.s[r] * (goal - d) / d if d > 0.0 else np.inf
        h = forward(model, lanes, w, z)
        keep_better(model, lanes, z, better, keep)
        if step == steps or open_lanes == 0 or late(timer):
            break
        if step == 0:
            for k in range(L):
                for i in range(net.noff[k], net.noff[k + 1]):
                    for r in range(m):
                        unit[k, r] = max(unit[k, r], abs(state[COEF, i, r]))
        mean_bias, square_bias, pace = mean_bias * DECAY, square_bias * SQUARE_DECAY, pace * PACE
        gain = np.zeros(m)
        for k in range(L):
            adam = Adam(mean, square, mean_bias, square_bias, reach * unit[k])
            directions(lanes, (net.noff[k], net.noff[k + 1]), z, moves, adam, gain)
        share_directions(model, lanes, shares, mean_bias, square_bias, gain)
        for r in range(m):  # Polyak: no further than what is missing asks for, where the slopes can be believed
            part[r] = pace
            if lacks[r] < pace * gain[r]:
                part[r] = lacks[r] / gain[r]
        ascend(lanes, moves, part)
        ascend_shares(model, lanes, shares, part)
        if len(lanes.mu) > 1:
            reweigh(model, lanes, h, pace)
    for a in range(len(keep)):
        for i in range(N):
            for r in range(m):
                state[ALPHA + a, i, r] = keep[a, i, r]
    for a in range(len(keep_mu)):
        for r in range(m):
            lanes.mu[a, r] = keep_mu[a, r]
    relax(model, lanes)
    return best


@njit_sums
def keep_better(model: Model, lanes: Lanes, z: Matrix, better: Mask, keep: Tensor) -> None:
    """Remember the parameters of the lanes that are better than ever, and where their neurons are."""
    N, m = z.shape
    state = lanes.state
    for i in range(N):
        for r in range(m):
            if better[r]:
                state[POINT, i, r], state[SINK, i, r] = z[i, r], 0.0
    for f in range(len(model.facets.neurons)):
        i = model.facets.neurons[f]
        for r in range(m):
            if better[r]:
                state[SINK, i, r] = -state[SHARE, i, r] * lanes.tilt[f, r]
    for a in range(len(keep)):
        for i in range(N):
            for r in range(m):
                if better[r]:
                    keep[a, i, r] = state[ALPHA + a, i, r]


@njit_sums
def directions(lanes: Lanes, layer: tuple[int, int], z: Matrix, moves: Matrix, adam: Adam, gain: Vector) -> None:
    """Adam's directions, times a full step, for the neurons layer[0]..layer[1] - 1; docs/adaptive.md has the slopes.

    Adds to `gain` what a full step of each lane would bring, were the bound linear in its parameters.
    """
    state = lanes.state
    mean, square, mean_bias, square_bias, reach = adam
    for i in range(layer[0], layer[1]):
        coef, phase, alpha, beta = state[COEF, i], state[PHASE, i], state[ALPHA, i], state[BETA, i]
        for r in range(len(gain)):
            free = 1.0 if lanes.offset[i, r] > 0.0 else 0.0  # only open neurons have an offset
            slope = free * max(coef[r], 0.0) * z[i, r] - phase[r] * z[i, r]
            mean[i, r] = DECAY * mean[i, r] + (1.0 - DECAY) * slope
            square[i, r] = SQUARE_DECAY * square[i, r] + (1.0 - SQUARE_DECAY) * slope * slope
            move = (mean[i, r] / (1.0 - mean_bias)) / (np.sqrt(square[i, r] / (1.0 - square_bias)) + NOT_ZERO)
            old = alpha[r] if free > 0.0 else beta[r]
            new = max(old + (ALPHA_STEP * free + abs(phase[r]) * reach[r]) * move, 0.0)
            moves[i, r] = (min(new, 1.0) if free > 0.0 else new) - old
            gain[r] += slope * moves[i, r]


@njit_sums
def ascend(lanes: Lanes, moves: Matrix, pace: Vector) -> None:
    """Go a part of the way, one per lane."""
    alpha, beta = lanes.state[ALPHA], lanes.state[BETA]
    N, m = moves.shape
    for i in range(N):
        for r in range(m):
            if lanes.offset[i, r] > 0.0:
                alpha[i, r] = min(max(alpha[i, r] + pace[r] * moves[i, r], 0.0), 1.0)
                lanes.lower[i, r] = alpha[i, r]
            else:
                beta[i, r] = max(beta[i, r] + pace[r] * moves[i, r], 0.0)


@njit_sums
def share_directions(
    model: Model, lanes: Lanes, shares: Tensor, mean_bias: float, square_bias: float, gain: Vector
) -> None:
    """The same for the shares of facets: the slope of V is A (facet - chord) where A < 0."""
    for f in range(shares.shape[1]):
        i = model.facets.neurons[f]
        coef, share = lanes.state[COEF, i], lanes.state[SHARE, i]
        mean, square, moves = shares[0, f], shares[1, f], shares[2, f]
        for r in range(len(gain)):
            slope = min(coef[r], 0.0) * lanes.tilt[f, r]
            mean[r] = DECAY * mean[r] + (1.0 - DECAY) * slope
            square[r] = SQUARE_DECAY * square[r] + (1.0 - SQUARE_DECAY) * slope * slope
            move = (mean[r] / (1.0 - mean_bias)) / (np.sqrt(square[r] / (1.0 - square_bias)) + NOT_ZERO)
            moves[r] = min(max(share[r] + ALPHA_STEP * move, 0.0), 1.0) - share[r]
            gain[r] += slope * moves[r]


@njit_sums
def ascend_shares(model: Model, lanes: Lanes, shares: Tensor, pace: Vector) -> None:
    """Go a part of the way, as for the other parameters."""
    for f in range(shares.shape[1]):
        share = lanes.state[SHARE, model.facets.neurons[f]]
        for r in range(len(pace)):
            share[r] = min(max(share[r] + pace[r] * shares[2, f, r], 0.0), 1.0)


@njit_sums
def reweigh(model: Model, lanes: Lanes, h: Matrix, pace: float) -> None:
    """Move the weights of the clause's rows towards those that are largest at the relaxed point."""
    for r in range(h.shape[1]):
        first = model.first[lanes.clause[r]]
        count = model.first[lanes.clause[r] + 1] - first
        value, scale, weight = np.empty(count), 1e-300, 0.0
        for a in range(count):
            total = model.c[first + a]
            for j in range(len(h)):
                total += model.R[first + a, j] * h[j, r]
            value[a] = total
            scale = max(scale, abs(total))
        for a in range(count):
            lanes.mu[a, r] = max(lanes.mu[a, r], LEAST_WEIGHT) * np.exp(pace * value[a] / scale)
            weight += lanes.mu[a, r]
        for a in range(count):
            lanes.mu[a, r] /= weight


@njit_sums
def drop_betas(model: Model, lanes: Lanes) -> None:
    """Forget the multipliers of splits where that is better: what was right for an ancestor may be far too large.

    The ascent's steps are too short to find back from there. COEF is overwritten.
    """
    betas = lanes.state[BETA]
    if np.max(betas) == 0.0:
        return
    N, m = betas.shape
    saved, w = betas.copy(), np.empty(model.net.inputs)
    values = np.empty((2, m))
    for turn in range(2):
        found = backward(model, lanes)
        for r in range(m):
            d = distance(found.g[r], found.s[r], found.drift[r], model, w)
            values[turn, r] = d if found.s[r] > 0.0 else found.s[r]
        betas[:] = 0.0
    for i in range(N):
        for r in range(m):
            if values[0, r] >= values[1, r]:
                betas[i, r] = saved[i, r]
