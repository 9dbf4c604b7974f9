"""Kernels of nodes side by side, as lanes: every array has a line per neuron and a column per node, so that one weight
meets all of them. What one lane holds does not depend on the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Tensor, Vector
from layercert.compiled.jit import njit_sums
from layercert.compiled.packed import times_layer, times_transposed
from layercert.search.adaptive.lines import is_on, is_open, upper
from layercert.search.adaptive.model import ALPHA, BETA, COEF, HI, LO, OWN, PHASE, SHARE, Model


class Lanes(NamedTuple):
    """Nodes side by side."""

    state: Tensor  # rows of the state, neurons, lanes
    lower: Matrix  # lines of every neuron: lower * z, upper * z + offset
    upper: Matrix
    offset: Matrix
    mu: Matrix  # weights of the clause's rows, one line per row
    clause: Indices
    constant: Matrix  # of the facets, a line each
    tilt: Matrix  # facet minus chord, at the last point that `forward` was asked about


class Constants(NamedTuple):
    """Of the linear bounds of F that a pass goes through: COEF.x^(k-1) + value[k] - error[k] <= F, for each layer k.

    The last place, one more than there are layers, is about the outputs of the last one.
    """

    value: Vector
    error: Vector


class Pass(NamedTuple):
    """What a backward pass leaves, per lane: g.w + s - drift ||w|| <= F(x + w) on the node."""

    g: Matrix  # a line per lane
    s: Vector  # its error taken off
    drift: Vector
    value: Matrix  # lane, layer, and one more: the Constants
    error: Matrix


@njit_sums
def lanes_of(model: Model, states: Tensor, mus: Matrix, clauses: Indices) -> Lanes:
    """Lanes from states (lane, row, neuron) and weights (lane, clause's row)."""
    m, rows, N = states.shape
    state, mu = np.empty((rows, N, m)), np.empty((mus.shape[1], m))
    for r in range(m):
        for a in range(rows):
            for i in range(N):
                state[a, i, r] = states[r, a, i]
        for a in range(len(mu)):
            mu[a, r] = mus[r, a]
    bent = len(model.facets.neurons)
    lanes = Lanes(
        state, np.empty((N, m)), np.empty((N, m)), np.empty((N, m)), mu, clauses, np.zeros((bent, m)),
        np.zeros((bent, m)),
    )  # fmt: skip
    relax(model, lanes)
    return lanes


@njit_sums
def store(lanes: Lanes, r: int, state: Matrix, mu: Vector) -> None:
    """A lane as a node's state and weights."""
    rows, N, _ = lanes.state.shape
    for a in range(rows):
        for i in range(N):
            state[a, i] = lanes.state[a, i, r]
    for a in range(len(mu)):
        mu[a] = lanes.mu[a, r]


@njit_sums
def relax(model: Model, lanes: Lanes) -> None:
    """The lines of every neuron on its bounds."""
    phase, lo, hi, alpha = lanes.state[PHASE], lanes.state[LO], lanes.state[HI], lanes.state[ALPHA]
    N, m = lo.shape
    for i in range(N):
        for r in range(m):
            low, up, off = 0.0, 0.0, 0.0
            if is_open(phase[i, r], lo[i, r], hi[i, r]):
                low = alpha[i, r]
                up, off = upper(lo[i, r], hi[i, r])
            elif is_on(phase[i, r], lo[i, r]):
                low, up = 1.0, 1.0
            lanes.lower[i, r], lanes.upper[i, r], lanes.offset[i, r] = low, up, off
    if len(model.facets.neurons) > 0:
        relax_facets(model, lanes)


@njit_sums
def relax_facets(model: Model, lanes: Lanes) -> None:
    """The constants of facets on the boxes of their inputs: relu is the larger of 0 and z (hulls.py)."""
    net, facets = model.net, model.facets
    phase, lo, hi = lanes.state[PHASE], lanes.state[LO], lanes.state[HI]
    m = lo.shape[1]
    off, on = np.empty(m), np.empty(m)
    for k in range(len(net.noff) - 1):
        for f in range(facets.first[k], facets.first[k + 1]):
            i = facets.neurons[f]
            off[:] = 0.0
            on[:] = net.b[i] if k > 0 else model.z0[i]
            for t in range(facets.begin[f], facets.begin[f + 1]):
                a, rest, j = facets.weight[t], facets.rest[t], facets.column[t]
                if k == 0:
                    low, high = facets.low[j], facets.high[j]
                    zero, over = max(-a * low, -a * high), max(rest * low, rest * high)
                    for r in range(m):
                        off[r] += zero
                        on[r] += over
                else:
                    j += net.noff[k - 1]
                    for r in range(m):
                        high = max(hi[j, r], 0.0) if phase[j, r] >= 0.0 else 0.0
                        low = min(max(lo[j, r], 0.0), high)
                        off[r] += max(-a * low, -a * high)
                        on[r] += max(rest * low, rest * high)
            for r in range(m):
                lanes.constant[f, r] = max(off[r], on[r]) + facets.noise[f]


@njit_sums
def backward(model: Model, lanes: Lanes) -> Pass:
    """One pass from F to the input; fills COEF."""
    net = model.net
    L = len(net.noff) - 1
    coef, beta, phase = lanes.state[COEF], lanes.state[BETA], lanes.state[PHASE]
    m = coef.shape[1]
    total, error, drift = np.zeros(m), np.zeros(m), np.zeros(m)
    value_above, error_above = np.empty((m, L + 1)), np.empty((m, L + 1))
    start_rows(model, lanes, total, error)
    for r in range(m):
        value_above[r, L], error_above[r, L] = total[r], OWN * error[r]
    below = np.empty((0, m))
    for k in range(L - 1, -1, -1):
        base, n = net.noff[k], net.noff[k + 1] - net.noff[k]
        S, live = np.empty((n, m)), np.empty(n, np.bool_)
        for j in range(n):
            i = base + j
            A, lower, upper, offset = coef[i], lanes.lower[i], lanes.upper[i], lanes.offset[i]
            Q, b = model.Q[i], net.b[i] if k > 0 else model.z0[i]
            size = 0.0
            for r in range(m):
                low = min(A[r], 0.0)
                value = max(A[r], 0.0) * lower[r] + low * upper[r] - beta[i, r] * phase[i, r]
                error[r] += (abs(A[r]) + beta[i, r]) * Q
                total[r] += low * offset[r] + value * b
                S[j, r] = value
                size = max(size, abs(value))
            live[j] = size > 0.0
            if k == 0:
                for r in range(m):
                    drift[r] += abs(S[j, r]) * model.D[i]
        begin, end = model.facets.first[k], model.facets.first[k + 1]
        own = np.zeros((end - begin, m))
        if end > begin:
            bend(model, lanes, k, S, own, total, error)
        for r in range(m):
            value_above[r, k], error_above[r, k] = total[r], OWN * error[r]
        below, _ = times_transposed(net, k, S, live)
        for f in range(begin, end):
            for t in range(model.facets.begin[f], model.facets.begin[f + 1]):
                a, line = model.facets.weight[t], below[model.facets.column[t]]
                for r in range(m):
                    line[r] += own[f - begin, r] * a
        if k > 0:
            for j in range(len(below)):
                for r in range(m):
                    coef[net.noff[k - 1] + j, r] = below[j, r]
    return Pass(below.T.copy(), total - OWN * error, OWN * drift, value_above, error_above)


@njit_sums
def bend(model: Model, lanes: Lanes, k: int, S: Matrix, own: Matrix, total: Vector, error: Vector) -> None:
    """Give the facets of layer k their shares of what its chords have: A share, left in `own`, of the neuron's A."""
    net, facets = model.net, model.facets
    for f in range(facets.first[k], facets.first[k + 1]):
        i = facets.neurons[f]
        b = net.b[i] if k > 0 else model.z0[i]
        A, share, line = lanes.state[COEF, i], lanes.state[SHARE, i], own[f - facets.first[k]]
        for r in range(len(total)):
            if A[r] < 0.0 and lanes.offset[i, r] > 0.0:
                line[r] = A[r] * share[r]
                chord = line[r] * lanes.upper[i, r]
                S[i - net.noff[k], r] -= chord
                total[r] += line[r] * (lanes.constant[f, r] - lanes.offset[i, r]) - chord * b
                error[r] -= 2.0 * line[r] * (model.Q[i] + facets.noise[f])


@njit_sums
def start_rows(model: Model, lanes: Lanes, total: Vector, error: Vector) -> None:
    """The clause's rows, weighted: the coefficients of the last layer, the constant and its error."""
    net = model.net
    L = len(net.noff) - 1
    coef = lanes.state[COEF]
    base, n = net.noff[L - 1], net.noff[L] - net.noff[L - 1]
    for r in range(len(total)):
        for j in range(n):
            coef[base + j, r] = 0.0
        first = model.first[lanes.clause[r]]
        for a in range(model.first[lanes.clause[r] + 1] - first):
            mu = lanes.mu[a, r]
            if mu != 0.0:
                total[r] += mu * model.c[first + a]
                error[r] += mu * model.row_error[first + a]
                for j in range(n):
                    coef[base + j, r] += mu * model.R[first + a, j]


@njit_sums
def forward(model: Model, lanes: Lanes, points: Matrix, z: Matrix) -> Matrix:
    """The relaxed network at x + points, every neuron on the line that the backward pass used for it.

    Fills z; returns the activations of the last layer.
    """
    net = model.net
    h = points.T.copy()
    m = h.shape[1]
    for k in range(len(net.noff) - 1):
        Z = times_layer(net, k, h)
        for j in range(len(Z)):
            i = net.noff[k] + j
            b = net.b[i] if k > 0 else model.z0[i]
            A, lower, upper, offset = lanes.state[COEF, i], lanes.lower[i], lanes.upper[i], lanes.offset[i]
            for r in range(m):
                value = Z[j, r] + b
                z[i, r] = value
                Z[j, r] = lower[r] * value if A[r] >= 0.0 else upper[r] * value + offset[r]
        for f in range(model.facets.first[k], model.facets.first[k + 1]):
            i, tilt = model.facets.neurons[f], lanes.tilt[f]
            j = i - net.noff[k]
            for r in range(m):
                tilt[r] = lanes.constant[f, r] - lanes.upper[i, r] * z[i, r] - lanes.offset[i, r]
            for t in range(model.facets.begin[f], model.facets.begin[f + 1]):
                a, line = model.facets.weight[t], h[model.facets.column[t]]
                for r in range(m):
                    tilt[r] += a * line[r]
            for r in range(m):
                if lanes.state[COEF, i, r] < 0.0 and lanes.offset[i, r] > 0.0:
                    Z[j, r] += lanes.state[SHARE, i, r] * tilt[r]
                else:
                    tilt[r] = 0.0
        h = Z
    return h
