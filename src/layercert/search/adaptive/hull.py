"""Kernels of upper planes: what a neuron is at most, as a plane over the activations u of the layer below.

The line su z + iu of the triangle knows the range of z = W u + b only. The convex hull of relu over the *box* of u is
tighter (Anderson et al. 2019). With Lc_j, Uc_j the ends of coordinate j that make W_j u_j least and greatest and
l(I) = b + sum_I W_j Lc_j + sum_rest W_j Uc_j, every set I and h with l(I) >= 0 > l(I + h) gives a cut

    relu(z) <= sum_I W_j (u_j - Lc_j) + l(I) (u_h - Lc_h) / (Uc_h - Lc_h)

and the least of them at a point comes from filling I in the order of (u_j - Lc_j) / (Uc_j - Lc_j). A neuron's plane is
a mean of such cuts and the line; each fold moves it towards the one that is least at the node's nearest point. A plane
of a node holds in its children too, whose boxes are smaller.

Rounding. |P_j| <= |W_j| and |q| <= M + Z: a backward pass over planes errs like one over weights (model.py). In a cut,
l(I) errs by less than 2 gamma(3 width + 8) M; then the plane may fall short by as much, and by as much again where the
sign of l(I) or l(I + h) is not what it seems; its constant errs by gamma(width + 2) M. That is less than 2 Q, and a
fold's 12 roundings of M + Z are less than Q / 8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Vector
from layercert.compiled.jit import njit_sums
from layercert.search.adaptive.model import COEF, HI, LO, PHASE

OFF, ON, UNSTABLE = 0, 1, 2
#: Halvings of the threshold that separates I from the rest; what is left between is filled one by one.
HALVINGS = 10


class Relaxation(NamedTuple):
    """What stands for the neurons: kinds, upper lines su z + iu, and above the first layer planes P u + q."""

    kind: NDArray[np.int8]
    su: Vector
    iu: Vector
    P: Vector  # packed as the weights
    q: Vector


@njit_sums
def relaxation(model, state):  # type: ignore[no-untyped-def]
    """Triangles on the bounds of the node."""
    N = state.shape[1]
    relaxed = Relaxation(np.empty(N, np.int8), np.empty(N), np.empty(N), np.empty(len(model.Wh)), np.empty(N))
    lines(state, relaxed.kind, relaxed.su, relaxed.iu)
    triangles(model, relaxed)
    return relaxed


@njit_sums
def lines(state, kind, su, iu):  # type: ignore[no-untyped-def]
    """Classify every neuron; its upper line su*z + iu >= relu(z) on [lo, hi] is above both ends, rounded up."""
    for i in range(len(kind)):
        phase, lo, hi = state[PHASE, i], state[LO, i], state[HI, i]
        su[i], iu[i] = 0.0, 0.0
        if phase > 0 or (phase == 0 and lo >= 0.0):
            kind[i] = ON
            su[i] = 1.0
        elif phase < 0 or hi <= 0.0:
            kind[i] = OFF
        else:
            kind[i] = UNSTABLE
            su[i] = min(hi / (hi - lo), 1.0)
            iu[i] = max(-su[i] * lo, (1.0 - su[i]) * hi) * (1.0 + 1e-15) + 1e-300


@njit_sums
def triangles(model, relaxed):  # type: ignore[no-untyped-def]
    """The plane of every unstable neuron above the first layer becomes the line of its triangle."""
    noff, woff = model.noff, model.woff
    for k in range(1, len(noff) - 1):
        width = noff[k] - noff[k - 1]
        for i in range(noff[k], noff[k + 1]):
            if relaxed.kind[i] == UNSTABLE:
                at = woff[k] + (i - noff[k]) * width
                for j in range(at, at + width):
                    relaxed.P[j] = relaxed.su[i] * model.Wh[j]
                relaxed.q[i] = relaxed.su[i] * model.b[i] + relaxed.iu[i] + 2.0 * model.Q[i]


@njit_sums
def fold(model, state, relaxed, h, z, pace):  # type: ignore[no-untyped-def]
    """Move each plane that counts by `pace` (at most 1) towards the lowest one at pre-activations z, activations h."""
    noff = model.noff
    for k in range(1, len(noff) - 1):
        below, width = noff[k - 1], noff[k] - noff[k - 1]
        low, high, u = np.zeros(width), np.zeros(width), np.empty(width)
        for j in range(width):
            if relaxed.kind[below + j] != OFF:
                low[j] = max(state[LO, below + j], 0.0)
                high[j] = max(state[HI, below + j], low[j])
            u[j] = min(max(h[below + j], low[j]), high[j])
        rank, plane = np.empty(width), np.empty(width)
        for i in range(noff[k], noff[k + 1]):
            if relaxed.kind[i] != UNSTABLE or state[COEF, i] >= 0.0:
                continue
            at = model.woff[k] + (i - noff[k]) * width
            W, P = model.Wh[at : at + width], relaxed.P[at : at + width]
            constant = cut(W, model.b[i], low, high, u, rank, plane)
            own, lowest = relaxed.q[i], constant
            for j in range(width):
                own += P[j] * u[j]
                lowest += plane[j] * u[j]
            line = relaxed.su[i] * z[i] + relaxed.iu[i]
            if line <= lowest:
                constant, lowest = relaxed.su[i] * model.b[i] + relaxed.iu[i], line
                for j in range(width):
                    plane[j] = relaxed.su[i] * W[j]
            if lowest < own:
                for j in range(width):
                    P[j] += pace * (plane[j] - P[j])
                relaxed.q[i] += pace * (constant + 2.0 * model.Q[i] - relaxed.q[i]) + 0.125 * model.Q[i]


@njit_sums
def cut(W, b, low, high, u, rank, plane):  # type: ignore[no-untyped-def]
    """The cut that is least at u, or nearly: fills plane and returns its constant (inf: there is none)."""
    width = len(W)
    full, least = b, b  # l of nothing, l of all
    for j in range(width):
        room = high[j] - low[j]
        plane[j] = 0.0
        full += max(W[j] * low[j], W[j] * high[j])
        least += min(W[j] * low[j], W[j] * high[j])
        rank[j] = 2.0
        if W[j] != 0.0 and room > 0.0:
            rank[j] = (u[j] - low[j] if W[j] > 0.0 else high[j] - u[j]) / room
    if least >= 0.0 or full <= 0.0:
        return np.inf
    inside, outside = -1.0, 1.5
    for _ in range(HALVINGS):
        threshold, level = 0.5 * (inside + outside), full
        for j in range(width):
            level -= abs(W[j]) * (high[j] - low[j]) if rank[j] <= threshold else 0.0
        if level >= 0.0:
            inside = threshold
        else:
            outside = threshold
    level, constant = full, 0.0
    for j in range(width):
        if rank[j] <= inside:
            plane[j] = W[j]
            level -= abs(W[j]) * (high[j] - low[j])
    for j in range(width):
        if inside < rank[j] <= outside and level >= 0.0:
            drop = abs(W[j]) * (high[j] - low[j])
            plane[j] = W[j] if level >= drop else level / drop * W[j]
            level -= drop
    for j in range(width):
        constant -= plane[j] * (low[j] if W[j] > 0.0 else high[j])
    return constant if level < 0.0 else np.inf
