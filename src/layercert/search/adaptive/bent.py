"""Kernels of backward passes in which neurons have facets beside their chords (hulls.py), several lanes at once.

Where A_i < 0, relu(z_i) has the part `share` of its upper bound from its facet a.x + c, the rest from its chord. What
facets add to the rounding errors of model.py: |A| share times a row and a constant, each rounded some times.

For any e >= 0, A_i relu(z_i) = (max(A_i, 0) + e) relu(z_i) - (max(-A_i, 0) + e) relu(z_i), and each part has a line of
its own. What e adds is never above 0, and is 0 where z_i is at an end of its range: so e is the multiplier of
lo <= z_i <= hi, which programs use where such an end holds their point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, Indices, Matrix, Vector
from layercert.compiled.jit import inner_sums, njit_sums
from layercert.compiled.packed import times_transposed
from layercert.search.adaptive.lanes import Pass
from layercert.search.adaptive.lines import is_on, is_open, upper
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, OWN, PHASE, Model


class Bends(NamedTuple):
    """The facets of one node, for all neurons; those without one have a share of 0."""

    share: Vector
    begin: Indices  # per neuron, and one more: where its entries begin
    column: NDArray[np.int32]  # in the layer below
    weight: Vector  # a
    constant: Vector  # c, rounded up
    size: Vector  # what a unit of it errs by
    both: Vector  # e, how much of both lines a neuron has beside what A asks for; its facet counts where it is on, too


class Descent(NamedTuple):
    """What a pass adds up, per lane, and what it leaves at each layer: coef.x^(k-1) + value[k] - error <= F there."""

    c: Vector
    error: Vector
    drift: Vector
    coef: Matrix  # neurons x lanes; without lines nobody asks
    value: Matrix  # layers x lanes
    slip: Matrix


@inner_sums
def own_lines(state: Matrix, bends: Bends, i: int, a: float) -> tuple[float, float, float, float]:
    """The line of a neuron with coefficient a: A relu(z) >= S z + constant + T (its facet): S, constant, T.

    The last is what multiplies Q in the error.
    """
    phase, lo, hi = state[PHASE, i], state[LO, i], state[HI, i]
    beta = state[BETA, i]
    if is_open(phase, lo, hi):
        below, above = max(a, 0.0) + bends.both[i], max(-a, 0.0) + bends.both[i]
        S = below * state[ALPHA, i]
        if above == 0.0:
            return S, 0.0, 0.0, below
        T = -above * bends.share[i]
        slant, offset = upper(lo, hi)
        chord = -above - T
        return S + chord * slant, chord * offset, T, below + above
    if is_on(phase, lo):
        T = -(max(-a, 0.0) + bends.both[i]) * bends.share[i]
        return a - T - beta * phase, 0.0, T, abs(a) - 2.0 * T + beta
    return -beta * phase, 0.0, 0.0, abs(a) + beta


@njit_sums
def descend(model: Model, state: Matrix, bends: Bends, A: Matrix, top: int, sums: Descent) -> Matrix:
    """From coefficients A over the outputs of layer `top` (neurons x lanes) to those of the input, a line per lane."""
    net, m = model.net, A.shape[1]
    c, error, drift = sums.c, sums.error, sums.drift
    for k in range(top, -1, -1):
        first, n = net.noff[k], net.noff[k + 1] - net.noff[k]
        S, T, live = np.zeros((n, m)), np.zeros((n, m)), np.zeros(n, np.bool_)
        for j in range(n):
            i = first + j
            b, Q = net.b[i] if k > 0 else model.z0[i], model.Q[i]
            for r in range(m):
                a = A[j, r]
                if len(sums.coef) > 0:
                    sums.coef[i, r] = a
                if a == 0.0 and state[BETA, i] == 0.0 and bends.both[i] == 0.0:
                    continue
                S[j, r], constant, T[j, r], size = own_lines(state, bends, i, a)
                c[r] += constant + S[j, r] * b + T[j, r] * bends.constant[i]
                error[r] += size * Q + abs(T[j, r]) * bends.size[i]
                live[j] = True
                if k == 0:
                    drift[r] += abs(S[j, r]) * model.D[i]
        for r in range(m):
            sums.value[k, r], sums.slip[k, r] = c[r], OWN * error[r]
        below, _ = times_transposed(net, k, S, live)
        for j in range(n):
            if bends.share[first + j] > 0.0:
                for t in range(bends.begin[first + j], bends.begin[first + j + 1]):
                    for r in range(m):
                        below[bends.column[t], r] += T[j, r] * bends.weight[t]
        A = below
    return A.T.copy()


@njit_sums
def room_for(layers: int, neurons: int, lanes: int) -> Descent:
    """Sums that begin with nothing."""
    return Descent(
        np.zeros(lanes), np.full(lanes, TINY), np.zeros(lanes), np.zeros((neurons, lanes)),
        np.empty((layers, lanes)), np.empty((layers, lanes)),
    )  # fmt: skip


@njit_sums
def bent_pass(model: Model, state: Matrix, mu: Vector, clause: int, bends: Bends) -> tuple[Pass, Vector]:
    """The backward pass of one node (lanes.backward) with facets in it, and the coefficients A of its layers."""
    net = model.net
    L = len(net.noff) - 1
    n = net.noff[L] - net.noff[L - 1]
    A, sums = np.zeros((n, 1)), room_for(L + 1, net.noff[L], 1)
    first = model.first[clause]
    for a in range(len(mu)):
        sums.c[0] += mu[a] * model.c[first + a]
        sums.error[0] += mu[a] * model.row_error[first + a]
        for j in range(n):
            A[j, 0] += mu[a] * model.R[first + a, j]
    sums.value[L], sums.slip[L] = sums.c, OWN * sums.error
    g = descend(model, state, bends, A, L - 1, sums)
    done = Pass(g, sums.c - OWN * sums.error, OWN * sums.drift, sums.value.T.copy(), sums.slip.T.copy())
    return done, sums.coef[:, 0].copy()
