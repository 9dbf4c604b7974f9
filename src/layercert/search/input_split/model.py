"""A problem as the kernels of boxes see it: packed arrays, the sizes of rounding errors, and their scratch memory.

Forms. On a box mid + w, |w_j| <= rad_j, every pre-activation is an affine form in symbols eps_j in [-1, 1]

    z_i = value_i + sum_j form_ij eps_j + theta_i,    |theta_i| <= slip_i,

the first n symbols being w_j / rad_j. ReLU keeps the form of a neuron that is on, drops one that is off, and otherwise
relu(z) = su z + iu/2 + (iu/2) eps for a new eps, since relu(z) - su z lies in [0, iu] on [lo, hi].

Rounding. `size_i` bounds |b| + sum |W||x| of a row, where x is replaced by the sum of the absolute terms of its form
(and by its upper bound). A row of a layer is wrong by gamma size in all its coefficients together, inherits
sum |W| slip, and its range is a sum wrong by gamma size once more: four times gamma covers it, with the roundings of
these very sums. Interval arithmetic over the layer below errs by gamma size too, for x <= hi <= size.

A backward pass taken at its word (see adaptive/model.py) errs by at most sum_i |A_i| Q_i, Q = gamma (4 |z| + 3 size).
Numbers beyond HUGE prove nothing: the box stays open.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, Indices, Matrix, Vector, gamma
from layercert.attack.kernel import PackedProblem
from layercert.errors import OptionError
from layercert.network import Network
from layercert.problem import Problem

#: What is known of every neuron: +1 on, -1 off, 0 either.
Sides: TypeAlias = NDArray[np.int8]

#: Bytes a thread may use for affine forms.
MOST_MEMORY = 1 << 30
#: Sizes from here on might overflow.
HUGE = 1e150


class Model(NamedTuple):
    """Arrays for the kernels. W^0 is a matrix of its own, W^1..W^{L-1} lie in `Wh`, from woff[k] on; the neurons of
    layer k are noff[k]..noff[k+1], and clause i owns the rows first[i]..first[i+1] of R and c.
    """

    asked: PackedProblem
    W0: Matrix
    Wh: Vector
    b: Vector
    noff: Indices
    woff: Indices
    R: Matrix  # rows of all clauses over x^L
    c: Vector
    first: Indices
    R_error: Matrix  # what R is wrong by, for each unit of x^L
    c_error: Vector
    step: float  # gamma of one layer's forms
    noise: float  # gamma of a backward pass


def require_room(network: Network) -> None:
    """Forms have a coefficient for every neuron: refuse networks for which that does not fit into memory."""
    size = 16 * max(network.widths) * (network.inputs + network.neurons)
    if size > MOST_MEMORY:
        raise OptionError(
            f"input-split would need {size >> 20} MiB a thread for {network}, and is of no use on networks so large; "
            "use the method 'adaptive'"
        )


def build(problem: Problem) -> Model:
    network, asked = problem.network, PackedProblem.of(problem)
    packed, hidden = asked.net, network.weights[1:-1]
    neurons, widest = len(packed.b), max(network.widths)
    noise = gamma(2 * (neurons + widest + network.inputs) + 128)
    C = np.concatenate([np.abs(clause.C) for clause in problem.clauses])
    d = np.concatenate([np.abs(clause.d) for clause in problem.clauses])
    return Model(
        asked, np.array(network.weights[0]), np.concatenate([np.zeros(0), *(W.ravel() for W in hidden)]),
        packed.b, packed.noff, np.cumsum([0, 0, *(W.size for W in hidden)]).astype(np.intp),
        asked.R, asked.c, asked.first,
        4.0 * noise * (C @ np.abs(network.weights[-1])), 4.0 * noise * (C @ np.abs(network.biases[-1]) + d) + TINY,
        gamma(neurons + widest + network.inputs + 64), noise,
    )  # fmt: skip


class Scratch(NamedTuple):
    """Memory of one thread, overwritten by every box."""

    live: NDArray[np.intp]  # layers x width: the neurons that may be on
    number: Indices  # how many they are
    W: NDArray[np.float64]  # weights between live neurons of neighbouring layers
    lo: Vector
    hi: Vector
    su: Vector
    iu: Vector
    Q: Vector
    z0: Vector
    influence: Matrix  # neurons x inputs: how far each input can move a pre-activation
    form: Matrix  # forms of a layer's pre-activations, then
    post: Matrix  # of the live neurons' outputs
    value: Vector
    reach: Vector
    slip: Vector
    centre: Vector  # centre and error of a live neuron's output
    rest: Vector
    size: Vector
    A: Matrix
    B: Matrix
    coef: Matrix  # rows x neurons: coefficients of the last backward pass
    G: Matrix
    s: Vector
    rise: Vector
    mu: Vector
    best: Vector
    g: Vector
    bulk: Vector
    mid: Vector
    rad: Vector
    z: Vector


def scratch(model: Model) -> Scratch:
    L, N = len(model.noff) - 1, len(model.b)
    n, rows = model.W0.shape[1], len(model.c)
    width = int(np.diff(model.noff).max())
    parts = [
        np.zeros((L, width), np.intp), np.zeros(L, np.intp), np.zeros((L, width, width)),
        *(np.zeros(N) for _ in range(6)), np.zeros((N, n)), np.zeros((width, n + N)), np.zeros((width, n + N)),
        *(np.zeros(width) for _ in range(6)), np.zeros((rows, width)), np.zeros((rows, width)), np.zeros((rows, N)),
        np.zeros((rows, n)), *(np.zeros(rows) for _ in range(4)), *(np.zeros(n) for _ in range(4)), np.zeros(N),
    ]  # fmt: skip
    return Scratch._make(parts)
