"""The checker's kernel for boxes of inputs: bounds of every neuron by affine forms, then of a clause's rows.

On a box every quantity is q = centre + sum_j form_j eps_j + (an error up to slip), all |eps_j| <= 1. Inputs have one
symbol each. A layer's rows are sums of forms; a neuron that may change sign brings one symbol more, for relu(z) is
su z + iu/2 up to iu/2. `size` is a row's |b| + sum |W| (|centre| + sum |form|), which no value, term or partial sum
exceeds; rounding a row costs at most 4 unit size, unit being gamma of all additions in it. Rows of the clause are
bounded by one backward pass (lower line 0 or z, whichever is nearer), taken at its word: at each neuron it errs by less
than unit (4 |z| + 5 size) |A|.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import TINY, Indices, Matrix, Signs, Tensor, Vector, gamma
from layercert.compiled.jit import njit_sums
from layercert.network import Network

#: Larger numbers might overflow further on: nothing is proved about such a box.
HUGE = 1e150


class Net(NamedTuple):
    """A network and one clause's rows; W[k] is padded to a square."""

    widths: Indices  # n_0 (inputs), n_1..n_L
    W: Tensor  # (L, widest, widest)
    b: Matrix
    R: Matrix  # C W^L
    d: Vector  # C b^L - d
    R_slip: Matrix  # what R is wrong by for each unit of x^L
    d_slip: Vector
    unit: float


def pack(network: Network, C: Matrix, d: Vector) -> Net:
    widths = np.array([network.inputs, *network.widths])
    widest = int(widths.max())
    W, b = np.zeros((network.L, widest, widest)), np.zeros((network.L, widest))
    for k in range(network.L):
        W[k, : widths[k + 1], : widths[k]] = network.weights[k]
        b[k, : widths[k + 1]] = network.biases[k]
    last, bias = network.weights[-1], network.biases[-1]
    unit = gamma(2 * (int(widths.sum()) + widest + network.classes) + 256)
    size = np.abs(C)
    return Net(
        widths, W, b, C @ last, C @ bias - d,
        4.0 * unit * (size @ np.abs(last)), 4.0 * unit * (size @ np.abs(bias) + np.abs(d)) + TINY, unit,
    )  # fmt: skip


class Forms(NamedTuple):
    """Affine forms of some neurons, one after the other: q = centre + row.eps up to slip."""

    row: Matrix  # a column per symbol
    centre: Vector
    slip: Vector
    size: Vector  # no value is larger


class BoxScratch(NamedTuple):
    """Memory, overwritten by every box. The layer index 0 stands for the inputs."""

    live: Indices  # (L + 1, widest): neurons that are not off
    number: Indices  # how many they are
    lo: Matrix  # (L + 1, widest), pre-activations; the box itself in row 0
    hi: Matrix
    su: Matrix
    iu: Matrix
    size: Matrix
    influence: Tensor  # (L + 1, widest, inputs): how far an input can move a pre-activation
    here: Forms  # pre-activations of the present layer
    below: Forms  # outputs of the layer below
    A: Matrix
    coef: Tensor  # (rows, L + 1, widest)
    G: Matrix  # (rows, inputs)
    s: Vector
    mid: Vector
    rad: Vector


def work(net: Net) -> BoxScratch:
    depth, widest, rows, n = len(net.widths), net.W.shape[1], len(net.d), int(net.widths[0])
    symbols = int(net.widths.sum())
    lo, hi, su, iu, size = (np.zeros((depth, widest)) for _ in range(5))
    here, below = (
        Forms(np.zeros((widest, symbols)), np.zeros(widest), np.zeros(widest), np.zeros(widest)) for _ in range(2)
    )
    return BoxScratch(
        np.zeros((depth, widest), np.intp), np.zeros(depth, np.intp), lo, hi, su, iu, size,
        np.zeros((depth, widest, n)), here, below, np.zeros((2, widest)), np.zeros((rows, depth, widest)),
        np.zeros((rows, n)), np.zeros(rows), np.zeros(n), np.zeros(n),
    )  # fmt: skip


@njit_sums
def bound_neurons(net: Net, w: BoxScratch, lo: Vector, hi: Vector, side: Signs) -> bool:
    """Bounds of all neurons on the box; False when numbers are too large.

    side[k, i] is +1 or -1 where neuron i of layer k is known to be on or off all over the box; it is filled in.
    """
    inputs_of(w, lo, hi)
    symbols = len(lo)
    for k in range(1, len(net.widths)):
        live, fresh = 0, 0
        for i in range(net.widths[k]):
            if side[k, i] < 0:
                continue
            size, low, high = row_of(net, w, k, i, live, symbols)
            if not size < HUGE:
                return False
            if side[k, i] > 0:
                low = max(low, 0.0)
            elif high <= 0.0:
                side[k, i] = -1
                continue
            elif low >= 0.0:
                side[k, i] = 1
            else:
                fresh += 1
            w.lo[k, i], w.hi[k, i], w.size[k, i] = low, high, size
            w.live[k, live] = i
            live += 1
        w.number[k] = live
        outputs_of(net, w, k, side, symbols, fresh)
        symbols += fresh
    return True


@njit_sums
def inputs_of(w: BoxScratch, lo: Vector, hi: Vector) -> None:
    """The forms of the inputs: one symbol each."""
    n = len(lo)
    for j in range(n):
        w.mid[j] = 0.5 * lo[j] + 0.5 * hi[j]
        w.rad[j] = max(hi[j] - w.mid[j], w.mid[j] - lo[j]) * (1.0 + 4e-16)
        w.live[0, j], w.lo[0, j], w.hi[0, j] = j, lo[j], hi[j]
        w.below.row[j, :n] = 0.0
        w.below.row[j, j] = w.rad[j]
        w.below.centre[j], w.below.slip[j], w.below.size[j] = w.mid[j], 0.0, abs(w.mid[j]) + w.rad[j]
    w.number[0] = n


@njit_sums
def row_of(net: Net, w: BoxScratch, k: int, i: int, place: int, symbols: int) -> tuple[float, float, float]:
    """The form of neuron i of layer k, put at a place of `here`; the size of its terms, and its bounds."""
    below = w.below
    value = net.b[k - 1, i]
    size, error, least, most = abs(value), 0.0, value, value
    row = w.here.row[place]
    row[:symbols] = 0.0
    for q in range(w.number[k - 1]):
        j = w.live[k - 1, q]
        a = net.W[k - 1, i, j]
        value += a * below.centre[q]
        size += abs(a) * below.size[q]
        error += abs(a) * below.slip[q]
        bottom, top = w.lo[k - 1, j], w.hi[k - 1, j]
        if k > 1:
            bottom = max(bottom, 0.0)
        least += min(a * bottom, a * top)
        most += max(a * bottom, a * top)
        other = below.row[q]
        for t in range(symbols):
            row[t] += a * other[t]
    total = 0.0
    for t in range(symbols):
        total += abs(row[t])
    error = 1.01 * error + 4.0 * net.unit * size + TINY
    w.here.centre[place], w.here.slip[place], w.here.size[place] = value, error, abs(value) + total
    low = max(value - total - error, least - 2.0 * net.unit * size)
    high = min(value + total + error, most + 2.0 * net.unit * size)
    return size, low, high


@njit_sums
def outputs_of(net: Net, w: BoxScratch, k: int, side: Signs, symbols: int, fresh: int) -> None:
    """What relu makes of the forms of layer k; a neuron that may change sign brings a fresh symbol."""
    here, below = w.here, w.below
    new = symbols
    for q in range(w.number[k]):
        i = w.live[k, q]
        row, out = here.row[q], below.row[q]
        w.influence[k, i] = np.abs(row[: len(w.mid)])
        out[symbols : symbols + fresh] = 0.0
        su, iu, slip = 1.0, 0.0, here.slip[q]
        if side[k, i] == 0:
            low, high = w.lo[k, i], w.hi[k, i]
            su = min(high / (high - low), 1.0)
            iu = max(-su * low, (1.0 - su) * high) * (1.0 + 1e-15) + 1e-300  # above both ends, rounded up
            out[new] = 0.5 * iu
            new += 1
            slip += net.unit * (here.size[q] + iu)
        w.su[k, i], w.iu[k, i] = su, iu
        for t in range(symbols):
            out[t] = su * row[t]
        below.size[q] = max(here.size[q] + iu, w.hi[k, i])
        below.centre[q], below.slip[q] = su * here.centre[q] + 0.5 * iu, slip


@njit_sums
def bound_rows(net: Net, w: BoxScratch, side: Signs) -> None:
    """G and s with G_r.(v - mid) + s_r <= row r at every v of the box."""
    L = len(net.widths) - 1
    for r in range(len(net.d)):
        A, B = w.A[0], w.A[1]
        total, error = net.d[r], net.d_slip[r]
        for q in range(w.number[L]):
            i = w.live[L, q]
            A[q] = net.R[r, i]
            error += net.R_slip[r, i] * (w.hi[L, i] if L > 0 else abs(w.mid[i]) + w.rad[i])
        for k in range(L, 0, -1):
            B[: w.number[k - 1]] = 0.0
            for q in range(w.number[k]):
                i = w.live[k, q]
                a = A[q]
                w.coef[r, k, i] = abs(a)
                error += abs(a) * net.unit * (4.0 * max(abs(w.lo[k, i]), w.hi[k, i]) + 5.0 * w.size[k, i])
                if side[k, i] == 0:
                    if a < 0.0:
                        total += a * w.iu[k, i]
                        a *= w.su[k, i]
                    elif w.hi[k, i] <= -w.lo[k, i]:
                        a = 0.0
                if a != 0.0:
                    total += a * net.b[k - 1, i]
                    for t in range(w.number[k - 1]):
                        B[t] += a * net.W[k - 1, i, w.live[k - 1, t]]
            A, B = B, A
        for j in range(len(w.mid)):
            w.G[r, j] = A[j]
            total += A[j] * w.mid[j]
            error += net.unit * abs(A[j]) * (abs(w.mid[j]) + w.rad[j])
        w.s[r] = total - 1.01 * error
