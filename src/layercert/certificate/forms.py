"""The checker's kernel for boxes of inputs: bounds of every neuron by affine forms, then of a clause's rows.

On a box every quantity is q = centre + sum_j form_j eps_j + (an error up to slip), all |eps_j| <= 1. Inputs have one
symbol each. A layer's rows are sums of forms; a neuron that may change sign brings one symbol more, for relu(z) is
su z + iu/2 up to iu/2. `size` is a row's |b| + sum |W| (|centre| + sum |form|), which no value, term or partial sum
exceeds; rounding a row costs at most 4 unit size, unit being gamma of all additions in it. Rows of the clause are
bounded by one backward pass (lower line 0 or z, whichever is nearer), taken at its word: at each neuron it errs by less
than unit (4 |z| + 5 size) |A|.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from layercert.arrays import TINY, Matrix, Vector, gamma
from layercert.compiled.jit import njit_sums
from layercert.network import Network

#: Larger numbers might overflow further on: nothing is proved about such a box.
HUGE = 1e150


class Net(NamedTuple):
    """A network and one clause's rows; W[k] is padded to a square."""

    widths: Any  # n_0 (inputs), n_1..n_L
    W: Any  # (L, widest, widest)
    b: Any
    R: Any  # C W^L
    d: Any  # C b^L - d
    R_slip: Any  # what R is wrong by for each unit of x^L
    d_slip: Any
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


class Work(NamedTuple):
    """Memory, overwritten by every box. The layer index 0 stands for the inputs."""

    live: Any  # (L + 1, widest): neurons that are not off
    number: Any  # how many they are
    lo: Any  # (L + 1, widest), pre-activations; the box itself in row 0
    hi: Any
    su: Any
    iu: Any
    size: Any
    pull: Any  # (L + 1, widest, inputs): how far an input can move a pre-activation
    form: Any  # of the present layer
    below: Any  # of the outputs of the layer below
    scalars: Any  # centre, reach, slip of the present layer; centre, slip, size below
    A: Any
    coef: Any  # (rows, L + 1, widest)
    G: Any  # (rows, inputs)
    s: Any
    mid: Any
    rad: Any


def work(net: Net) -> Work:
    depth, widest, rows, n = len(net.widths), net.W.shape[1], len(net.d), int(net.widths[0])
    symbols = int(net.widths.sum())
    parts = [
        np.zeros((depth, widest), np.intp), np.zeros(depth, np.intp), *(np.zeros((depth, widest)) for _ in range(5)),
        np.zeros((depth, widest, n)), np.zeros((widest, symbols)), np.zeros((widest, symbols)), np.zeros((6, widest)),
        np.zeros((2, widest)), np.zeros((rows, depth, widest)), np.zeros((rows, n)), np.zeros(rows), np.zeros(n),
        np.zeros(n),
    ]  # fmt: skip
    return Work._make(parts)


@njit_sums
def bound_neurons(net: Any, w: Any, lo: Any, hi: Any, side: Any) -> bool:
    """Bounds of all neurons on the box; False when numbers are too large.

    side[k, i] is +1 or -1 where neuron i of layer k is known to be on or off all over the box; it is filled in.
    """
    n = len(lo)
    centre, reach, slip = w.scalars[0], w.scalars[1], w.scalars[2]
    from_centre, from_slip, from_size = w.scalars[3], w.scalars[4], w.scalars[5]
    for j in range(n):
        w.mid[j] = 0.5 * lo[j] + 0.5 * hi[j]
        w.rad[j] = max(hi[j] - w.mid[j], w.mid[j] - lo[j]) * (1.0 + 4e-16)
        w.live[0, j], w.lo[0, j], w.hi[0, j] = j, lo[j], hi[j]
        w.below[j, :n] = 0.0
        w.below[j, j] = w.rad[j]
        from_centre[j], from_slip[j], from_size[j] = w.mid[j], 0.0, abs(w.mid[j]) + w.rad[j]
    w.number[0] = n
    symbols = n
    for k in range(1, len(net.widths)):
        under, live, fresh = w.number[k - 1], 0, 0
        for i in range(net.widths[k]):
            if side[k, i] < 0:
                continue
            value = net.b[k - 1, i]
            size, error, least, most = abs(value), 0.0, value, value
            row = w.form[live]
            row[:symbols] = 0.0
            for q in range(under):
                j = w.live[k - 1, q]
                a = net.W[k - 1, i, j]
                value += a * from_centre[q]
                size += abs(a) * from_size[q]
                error += abs(a) * from_slip[q]
                bottom, top = w.lo[k - 1, j], w.hi[k - 1, j]
                if k > 1:
                    bottom = max(bottom, 0.0)
                least += min(a * bottom, a * top)
                most += max(a * bottom, a * top)
                other = w.below[q]
                for t in range(symbols):
                    row[t] += a * other[t]
            if not size < HUGE:
                return False
            total = 0.0
            for t in range(symbols):
                total += abs(row[t])
            error = 1.01 * error + 4.0 * net.unit * size + TINY
            low = max(value - total - error, least - 2.0 * net.unit * size)
            high = min(value + total + error, most + 2.0 * net.unit * size)
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
            centre[live], reach[live], slip[live] = value, total, error
            live += 1
        w.number[k] = live
        new = symbols
        for q in range(live):
            i = w.live[k, q]
            row, out = w.form[q], w.below[q]
            w.pull[k, i] = np.abs(row[:n])
            out[symbols : symbols + fresh] = 0.0
            su, iu = 1.0, 0.0
            if side[k, i] == 0:
                low, high = w.lo[k, i], w.hi[k, i]
                su = min(high / (high - low), 1.0)
                iu = max(-su * low, (1.0 - su) * high) * (1.0 + 1e-15) + 1e-300  # above both ends, rounded up
                out[new] = 0.5 * iu
                new += 1
                slip[q] += net.unit * (abs(centre[q]) + reach[q] + iu)
            w.su[k, i], w.iu[k, i] = su, iu
            for t in range(symbols):
                out[t] = su * row[t]
            from_size[q] = max(abs(centre[q]) + reach[q] + iu, w.hi[k, i])
            from_centre[q], from_slip[q] = su * centre[q] + 0.5 * iu, slip[q]
        symbols += fresh
    return True


@njit_sums
def bound_rows(net: Any, w: Any, side: Any) -> None:
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
