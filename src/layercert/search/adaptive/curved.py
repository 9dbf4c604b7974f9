"""Kernels of bounds with parabolas in the first layer, for l_2 on sparse layers (theorem: bounds/quadratic.py).

A backward pass comes down to the outputs of the first layer by lines, as everywhere; there each open neuron with a
negative coefficient takes a parabola instead of its upper line. Its curvature is 1 / (4 R), so that it touches relu at
about z = R and z = -R, with

    R^2 = z0^2 + (share U ||W_i||_1)^2,

z0 the value at x. Sharp parabolas (small shares) lose little near x but ask much of (2); which share is best depends on
how many neurons a row has. Some are tried; lines alone, which are what `layers.py` has, are the limit of large ones.
Steps are in units of the ball, as there.

Rounding. As in model.py, with A the exact numbers they are, for the layers above. In the first layer z - z0 is W_i.w up
to an error of at most Q_i (that of the computed z0), so a row loses at most |A| (|s| Q + q (2 reach Q + Q^2)) by it,
|dz| <= reach on the ball; the roundings of a v, a s and of the sums are at most `noise` times their terms.
No certificate knows these bounds: a search that is recorded does without them.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import FEW, TINY, Indices, Mask, Matrix, Vector
from layercert.bounds.quadratic import curved_fall, least_slope, offset_above
from layercert.compiled.jit import njit_sums
from layercert.compiled.norms import over
from layercert.compiled.packed import PackedNetwork, times_transposed
from layercert.compiled.timer import Timer, late
from layercert.network import Network
from layercert.norms import Norm
from layercert.search.adaptive.lanes import Lanes, backward
from layercert.search.adaptive.layers import LANES, narrow, relax_lines
from layercert.search.adaptive.lines import is_on, is_open
from layercert.search.adaptive.model import COEF, HI, LO, OWN, PHASE, Model
from layercert.search.adaptive.rows import NeuronRows, Sums

#: Shares of the ball that are tried: the small one serves rows that read the whole input, the large one those of a
#: convolution.
SHARES = np.array([0.05, 0.2])


def is_suited(network: Network, norm: Norm) -> bool:
    """Has the network a sparse first layer below another one, and is the ball one of l_2?"""
    return norm.p == 2.0 and network.L > 1 and not network.packed.whole[0]


@njit_sums
def curve_layer(model: Model, state: Matrix, U: float, k: int, timer: Timer) -> None:
    """Narrow the bounds of the open neurons of layer k > 0 on the ball of radius U. Those below have theirs."""
    net = model.net
    neurons, count = np.empty(net.noff[k + 1] - net.noff[k], np.intp), 0
    for i in net.order[net.noff[k] : net.noff[k + 1]]:
        if is_open(state[PHASE, i], state[LO, i], state[HI, i]):
            neurons[count] = i
            count += 1
    parabolas = parabolas_of(model, state, U)
    for start in range(0, count, LANES // 2):
        if late(timer):
            return
        part = neurons[start : min(start + LANES // 2, count)]
        A, live, sums = down_to_first(model, state, k, part)
        best = first_layer(model, state, U, A, live, sums, parabolas)
        for n in range(len(part)):
            narrow(state, part[n], best[2 * n], -best[2 * n + 1])  # both hold: never the wrong way round


@njit_sums
def curve_objective(model: Model, lanes: Lanes, U: float) -> Vector:
    """A lower bound of F on the ball for every lane, with the lines above the first layer that the lane has."""
    n, m = model.net.noff[1], lanes.lower.shape[1]
    found = backward(model, lanes)
    sums = Sums(np.empty(m), np.empty(m), np.zeros(m))
    for r in range(m):
        sums.c[r], sums.error[r] = found.value[r, 1], found.error[r, 1]
    best = np.empty(m)
    for r in range(m):  # lanes may differ in their neurons' bounds
        state = lanes.state[:, :, r].copy()
        A = state[COEF, :n].copy().reshape((n, 1))
        own = Sums(sums.c[r : r + 1], sums.error[r : r + 1], sums.drift[r : r + 1])
        best[r] = first_layer(model, state, U, A, np.ones(n, np.bool_), own, parabolas_of(model, state, U))[0]
    return best


@njit_sums
def down_to_first(model: Model, state: Matrix, k: int, neurons: Indices) -> tuple[Matrix, Mask, Sums]:
    """The coefficients of the first layer's outputs in both rows of each neuron (`layers.rows_backward`, in part)."""
    net, m = model.net, 2 * len(neurons)
    base, under = net.noff[k], net.noff[k - 1]
    sums = Sums(np.empty(m), np.empty(m), np.zeros(m))
    A, live = np.zeros((base - under, m)), np.zeros(base - under, np.bool_)
    none = np.empty((base, 0))
    rows = NeuronRows(np.empty(m, np.intp), np.empty(m), False, none, none, np.zeros(m), none)
    for r in range(m):
        i, side = neurons[r // 2], 1.0 - 2.0 * (r % 2)
        rows.neurons[r], rows.sides[r] = i, side
        sums.c[r] = side * net.b[i]
        sums.error[r] = model.noise * abs(net.b[i]) + TINY
        at = net.ptr[i]
        for t in range(at, net.ptr[i + 1]):
            j = t - at if net.whole[k] else net.index[t]
            A[j, r] = side * net.data[t]
            live[j] = True
    for layer in range(k - 1, 0, -1):
        relax_lines(model, state, rows, layer, A, live, sums)
        A, live = times_transposed(net, layer, A, live)
    return A, live, sums


@njit_sums
def parabolas_of(model: Model, state: Matrix, U: float) -> Matrix:
    """q U ||W_i||_1, s, v of (1) and the error for a coefficient of size 1, for each share and first-layer neuron."""
    net = model.net
    n = net.noff[1]
    out = np.zeros((4 * len(SHARES), n))
    for i in range(n):
        lo, hi, z0, Q = state[LO, i], state[HI, i], model.z0[i], model.Q[i]
        if not is_open(state[PHASE, i], lo, hi):
            continue
        length = row_size(net, i)
        reach = max(abs(lo - z0), abs(hi - z0))
        for a in range(len(SHARES)):
            q = 0.25 / max(np.sqrt(z0 * z0 + (SHARES[a] * U * length) ** 2), 1e-100)
            s = least_slope(q, lo, hi, min(max(z0, lo), hi))
            v = offset_above(s, q, z0, lo, hi)
            terms = abs(v) + abs(s) * reach + q * reach * reach
            out[4 * a, i], out[4 * a + 1, i], out[4 * a + 2, i] = q * (U * length), s, v
            out[4 * a + 3, i] = Q * (1.0 + abs(s) + q * (2.0 * reach + 3.0 * Q)) + 4.0 * model.noise * terms
    return out


@njit_sums
def row_size(net: PackedNetwork, i: int) -> float:
    """||W_i||_1 of a first-layer neuron, rounded up."""
    total = 0.0
    for t in range(net.ptr[i], net.ptr[i + 1]):
        total += abs(net.data[t])
    return total * over(net.ptr[i + 1] - net.ptr[i])


@njit_sums
def first_layer(model: Model, state: Matrix, U: float, A: Matrix, live: Mask, sums: Sums, parabolas: Matrix) -> Vector:
    """Lower bounds on the ball of the rows A x^1 + sums.c, x^1 the first layer's outputs: the best of all shares."""
    net = model.net
    n, m = A.shape
    best = np.full(m, -np.inf)
    below, above = rooms(model.box_lo, model.box_hi, U)
    S, T = np.empty((n, m)), np.empty((n, m))
    for a in range(len(SHARES)):
        c, error, drift, alive = sums.c.copy(), sums.error.copy(), np.zeros(m), live.copy()
        for i in range(n):
            if not live[i]:
                continue
            z0, Q, D = model.z0[i], model.Q[i], model.D[i]
            line, slope, bend = A[i], S[i], T[i]
            if is_open(state[PHASE, i], state[LO, i], state[HI, i]):
                bent, s = parabolas[4 * a, i], parabolas[4 * a + 1, i]
                v, e = parabolas[4 * a + 2, i], parabolas[4 * a + 3, i]
                low = 1.0 if z0 > 0.0 else 0.0  # the lower line that touches relu at x
                for r in range(m):
                    up, down = max(line[r], 0.0), min(line[r], 0.0)
                    slope[r] = up * low + down * s
                    bend[r] = -down * bent
                    c[r] += up * low * z0 + down * v
                    error[r] += up * Q - down * e
                    drift[r] += abs(slope[r]) * D
            elif is_on(state[PHASE, i], state[LO, i]):
                for r in range(m):
                    slope[r], bend[r] = line[r], 0.0
                    c[r] += line[r] * z0
                    error[r] += abs(line[r]) * Q
                    drift[r] += abs(line[r]) * D
            else:
                alive[i] = False
        G, _ = times_transposed(net, 0, S, alive)
        bends = times_absolute(net, T, alive)
        G, bends = (U * G).T.copy(), (U * bends).T.copy()
        for r in range(m):
            drop = curved_fall(G[r], bends[r], below, above)
            size = abs(c[r]) + drop + OWN * (error[r] + U * drift[r])
            value = c[r] - drop - OWN * (error[r] + U * drift[r]) - FEW * size
            if value > best[r]:  # nothing is proved by what is no number
                best[r] = value
    return best


@njit_sums
def rooms(lo: Vector, hi: Vector, U: float) -> tuple[Vector, Vector]:
    """How far each coordinate can go down and up in the box, in units of the ball, rounded up."""
    below, above = np.empty(len(lo)), np.empty(len(lo))
    for j in range(len(lo)):
        below[j] = min(1.0, -lo[j] / U * (1.0 + FEW))
        above[j] = min(1.0, hi[j] / U * (1.0 + FEW))
    return below, above


@njit_sums
def times_absolute(net: PackedNetwork, T: Matrix, live: Mask) -> Matrix:
    """D of (2) divided by U for every lane, rounded up; T has U ||W_i||_1 in it. The first layer must not be whole."""
    m = T.shape[1]
    out = np.zeros((net.inputs, m))
    for j in range(net.inputs):
        row, count = out[j], 0
        for t in range(net.column[net.coff[0] + j], net.column[net.coff[0] + j + 1]):
            i = net.tindex[t]
            if live[i]:
                size, count = abs(net.tdata[t]), count + 1
                for r in range(m):
                    row[r] += size * T[i, r]
        up = over(count)
        for r in range(m):
            row[r] *= up
    return out
