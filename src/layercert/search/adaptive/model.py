"""A problem as the kernels see it: packed arrays, and the size of every rounding error.

Rounding, a posteriori. A backward pass computes vectors A_k, S_k and a number c in floating point. Taken as the exact
numbers they are, they satisfy

    F(v) >= g.(v - x) + c - error - drift ||v - x||,    error = e + sum_i (|A_i| + beta_i) Q_i,  drift = sum_i |S_i| D_i

where F is the clause's row, v any point of the ball (and node), e = row_error the error of composing the row with the
last layer. Layer by layer: S differs from its exact value by 3 roundings of |A| + beta, which meets |z| <= Z;
A_{k-1} = S W by gamma |S||W|, which meets x^{k-1} <= max(hi, 0), that is M = |W| max(hi, 0) + |b|; c is a sum of at
most 2 N terms, each at most |S|(Z + M). All this is at most gamma (|A| + beta)(4 Z + 3 M), the Q below.
Z and M come from the root's bounds, which hold for every node and every smaller ball; bounds of layer k need Q of the
layers below it only, so `root` goes up layer by layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, Indices, Matrix, Vector, gamma
from layercert.attack.kernel import Packed
from layercert.problem import Problem

#: Rows of a node's state matrix; its columns are the neurons of all layers. PHASE is +1, -1 or 0 (free), LO and HI
#: bound the pre-activation, ALPHA and BETA are the parameters of its halfspace, COEF the coefficients A of that
#: backward pass, POINT the relaxed pre-activations at the halfspace's nearest point.
PHASE, LO, HI, ALPHA, BETA, COEF, POINT = range(7)
ROWS = 7


#: Lower lines and multipliers for more neurons than this are not kept from node to node (32 MiB each).
MOST_SLOPES = 2048
Slopes = NDArray[np.float32]


class Model(NamedTuple):
    """Arrays for the kernels; layers and neurons are packed as in `Packed`."""

    W0: Matrix
    Wh: Vector
    b: Vector
    noff: Indices
    woff: Indices
    R: Matrix  # rows of all clauses over x^L
    c: Vector
    row_error: Vector  # error of a row of R, c
    z0: Vector  # first pre-activations at x
    Q: Vector
    D: Vector
    box_lo: Vector
    box_hi: Vector
    boxed: bool
    p: float
    noise: float  # gamma of the longest chain of roundings in any pass
    betas: Slopes  # signed multipliers of splits in the passes of all neurons' bounds (below, then above); a cache
    slopes: Slopes  # lower lines in the same passes, -1: none yet
    pulls: Vector  # multipliers of the objective in the same passes


def build(problem: Problem, U: float) -> tuple[Model, Indices, Matrix]:
    """The model on the ball of radius U, each clause's first row, and the root's state."""
    from layercert.search.adaptive.layers import tighten

    network = problem.network
    packed = Packed.of(problem)
    n = network.inputs
    noise = gamma(2 * (len(packed.b) + max(network.widths) + n) + 128)
    z0 = packed.W0 @ problem.x + packed.b[: len(packed.W0)]
    # of each row of W^0, rounded up: what gamma |S||W^0| is worth against a step of length one
    D = gamma(len(packed.W0) + 64) * problem.norm.dual(packed.W0) * (1 + gamma(2 * n + 64))
    kept = len(packed.b) if len(packed.b) <= MOST_SLOPES else 0
    model = Model(
        packed.W0, packed.Wh, packed.b, packed.noff, packed.woff, packed.R, packed.c, np.zeros(len(packed.c)),
        z0, np.zeros(len(packed.b)), D, packed.lo, packed.hi, packed.boxed, problem.norm.p, noise,
        np.zeros((2 * kept, kept), np.float32),
        np.full((2 * kept, kept), -1.0, np.float32),
        np.zeros(2 * kept),
    )  # fmt: skip
    state = np.zeros((ROWS, len(packed.b)))
    state[LO], state[HI] = -np.inf, np.inf
    below, above = np.abs(problem.x), np.zeros((2, network.L))
    for k in range(network.L):
        part = slice(model.noff[k], model.noff[k + 1])
        M = np.abs(network.weights[k]) @ below + np.abs(network.biases[k])
        model.Q[part] = 3.03 * noise * M + TINY  # the first layer's value at x is rounded too: part of M
        tighten(model, state, U, k, k + 1, problem.x, -np.inf, above, 0)
        Z = np.maximum(np.abs(state[LO, part]), np.abs(state[HI, part]))
        model.Q[part] += 4.04 * noise * Z
        below = np.maximum(state[HI, part], 0.0)
        state[POINT, part] = state[LO, part] + state[HI, part]  # no point yet: the lower lines of CROWN
    C = np.concatenate([np.abs(clause.C) for clause in problem.clauses])
    d = np.concatenate([np.abs(clause.d) for clause in problem.clauses])
    last = np.abs(network.weights[-1]) @ below + np.abs(network.biases[-1])
    model.row_error[:] = 4.0 * noise * (C @ last + d) + TINY
    state[ALPHA] = state[POINT] > 0
    return model, packed.first, state
