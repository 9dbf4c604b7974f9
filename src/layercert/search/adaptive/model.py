"""A problem as the kernels see it: packed arrays, and the size of every rounding error.

Rounding, a posteriori. A backward pass computes vectors A_k, S_k and a number c in floating point. Taken as the exact
numbers they are, they satisfy

    F(v) >= g.(v - x) + c - error - drift ||v - x||,    error = e + sum_i (|A_i| + beta_i) Q_i,  drift = sum_i |S_i| D_i

where F is the clause's row, v any point of the ball (and node), e = row_error the error of composing the row with the
last layer. Layer by layer: S differs from its exact value by 3 roundings of |A| + beta, which meets |z| <= Z;
A_{k-1} = S W by gamma |S||W|, which meets x^{k-1} <= max(hi, 0), that is M = |W| max(hi, 0) + |b|; c is a sum of at
most 2 N terms, each at most |S|(Z + M). All this is at most gamma (|A| + beta)(4 Z + 3 M), the Q below.
Z and M come from the root's bounds, which hold for every node and every smaller ball; bounds of layer k need Q of the
layers below it only, so `build` goes up layer by layer.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, Indices, LinearMap, Mask, Matrix, Vector, gamma
from layercert.compiled.packed import PackedNetwork
from layercert.facets import Facets
from layercert.linear_maps import dense
from layercert.problem import Problem
from layercert.search.adaptive.trail import Trail, trail_of
from layercert.system import clock
from layercert.system.threads import side_by_side

#: Rows of a node's state matrix; its columns are the neurons of all layers. PHASE is +1, -1 or 0 (free), LO and HI
#: bound the pre-activation, ALPHA, BETA and SHARE (of a facet) are the parameters of its halfspace, COEF the
#: coefficients A of that backward pass, POINT the relaxed pre-activations at the halfspace's nearest point, and SINK
#: how much lower than the chord the neuron's upper line is there.
PHASE, LO, HI, ALPHA, BETA, SHARE, COEF, POINT, SINK = range(9)
ROWS = 9

#: Sums of error bounds are rounded themselves: one per cent covers that. With it, the 3 M and 4 Z of Q above.
OWN, OF_TERMS, OF_VALUES = 1.01, 3.03, 4.04

#: Parameters of rows are kept for as many layers as fit into this many numbers (64 MiB each for slopes and betas).
MOST_KEPT = 2**24


def open_mask(state: Matrix) -> Mask:
    """Neurons that may have either sign, in (columns of) a node's state; kernels ask `lines.is_open`."""
    return np.asarray((state[PHASE] == 0) & (state[LO] < 0) & (state[HI] > 0))


class FacetTable(NamedTuple):
    """Upper lines a.x + c of some neurons over their inputs (hulls.py), for all nodes of a clause; c is the node's."""

    first: Indices  # per layer, and one more: its first facet
    neurons: Indices  # increasing
    begin: Indices  # per facet, and one more: where its entries begin
    column: NDArray[np.int32]  # in the layer below
    weight: Vector  # a
    rest: Vector  # the neuron's own weights without it
    noise: Vector  # per facet: what its constant may err by, and a unit of it in a pass
    low: Vector  # box of the input, as offsets from x
    high: Vector


def no_facets(net: PackedNetwork) -> FacetTable:
    """Chords alone."""
    none, at = np.zeros(0), np.zeros(0, np.intp)
    return FacetTable(
        np.zeros(len(net.noff), np.intp), at, np.zeros(1, np.intp), np.zeros(0, np.int32), none, none, none, none, none
    )


class Model(NamedTuple):
    """Arrays for the kernels, which only read them; clause i owns the rows first[i]..first[i+1] of R and c."""

    net: PackedNetwork
    R: Matrix  # rows of all clauses over x^L
    c: Vector
    row_error: Vector  # error of a row of R, c
    first: Indices
    z0: Vector  # first pre-activations at x
    Q: Vector
    D: Vector
    box_lo: Vector  # the domain as offsets from x, infinite without one
    box_hi: Vector
    boxed: bool
    p: float
    noise: float  # gamma of the longest chain of roundings in any pass
    facets: FacetTable  # of the clause whose nodes are worked on


class Kept(NamedTuple):
    """What the passes of neuron bounds keep from visit to visit, of any node: the parameters of every row.

    Row 2i bounds neuron i from below, 2i + 1 from above. All values are sound in every node; better ones only give
    tighter bounds. So a node's bound depends on the order of visits, and each worker has a store of its own.
    """

    #: per row: where its parameters begin, one per neuron of the layers below, or of its own too (rows.py); equal to
    #: the next: not kept
    at: Indices
    slopes: NDArray[np.float32]  # lower lines, -1: none yet
    betas: NDArray[np.float32]  # multipliers of splits, with the sign of the phase
    pulls: Vector  # multipliers of the objective
    trail: Trail  # what was done with them, for a record


def keep_rows(net: PackedNetwork, most: int = MOST_KEPT, above: bool = False, noted: int = 0) -> Kept:
    """An empty store for as many layers as fit into `most` numbers; `above`: rows of dense
    layers have lines and multipliers in their own layer too (rows.py); `noted`: rounds are written down, for clauses
    of so many rows."""
    sizes: list[int] = []
    total = 0
    for k in range(len(net.noff) - 1):
        width = int(net.noff[k + 1] - net.noff[k])
        below = int(net.noff[k + 1] if above and k > 0 and net.whole[k] else net.noff[k])
        if total + 2 * width * below > most:
            below = 0
        total += 2 * width * below
        sizes += [below] * (2 * width)
    return Kept(
        np.cumsum([0, *sizes]).astype(np.intp), np.full(total, -1.0, np.float32), np.zeros(total, np.float32),
        np.zeros(len(sizes)), trail_of(len(net.b), noted, noted > 0),
    )  # fmt: skip


class Hulling(NamedTuple):
    """How much work may go into bounds by the hulls of neurons (hulled.py): entries that are visited, at about 16 ns
    each, and layers behind the first one."""

    entries: int
    layers: int


#: Of a tree's root, and of one that is bounded once.
THOROUGH, QUICK, NO_HULLS = Hulling(250_000_000, 1 << 30), Hulling(10_000_000, 1 << 30), Hulling(0, 0)


class Played(NamedTuple):
    """The lines of the rows that bounded a layer's neurons by hulls, two rows per neuron: from below, from above."""

    neurons: Indices
    slopes: NDArray[np.uint8]  # a line per row: lower lines of the neurons below, as parts of 255
    facets: list[Facets]  # per row: upper lines


def build(
    problem: Problem,
    U: float,
    curved: bool = False,
    hulled: Hulling = THOROUGH,
    threads: int = 1,
    played: dict[int, Played] | None = None,
) -> tuple[Model, Matrix]:
    """The model on the ball of radius U, and the root's state; `curved`: its bounds by parabolas too (curved.py),
    `hulled`: in l_inf on convolutions, how much work goes into bounds by hulls (hulled.py), whose lines are listed in
    `played`, by layer, for whoever proves the same."""
    from layercert.search.adaptive import forward
    from layercert.search.adaptive.cap import whole_ball
    from layercert.search.adaptive.curved import curve_layer
    from layercert.search.adaptive.hulled import is_suited
    from layercert.search.adaptive.lanes import Constants
    from layercert.search.adaptive.layers import tighten_layer

    network = problem.network
    net = network.packed
    n, N, left = network.inputs, len(net.b), hulled.entries
    noise = gamma(2 * (N + max(network.widths) + n) + 128)
    W0 = network.maps[0]
    # of each row of W^0, rounded up: what gamma |S||W^0| is worth against a step of length one. A sum has a term of
    # each row, and one more of its facet (bent.py, hulled.py)
    D = gamma(2 * W0.shape[0] + 64) * row_norms(problem, W0) * (1 + gamma(2 * n + 64))
    C = np.concatenate([clause.C for clause in problem.clauses])
    d = np.concatenate([clause.d for clause in problem.clauses])
    box = problem.box
    model = Model(
        net=net,
        R=np.ascontiguousarray(np.asarray(C @ network.maps[-1])),
        c=C @ network.biases[-1] - d,
        row_error=np.zeros(len(d)),
        first=np.cumsum([0, *(len(clause.d) for clause in problem.clauses)]).astype(np.intp),
        z0=np.asarray(W0 @ problem.x + network.biases[0]),
        Q=np.zeros(N),
        D=D,
        box_lo=np.full(n, -np.inf) if box is None else box.lo,
        box_hi=np.full(n, np.inf) if box is None else box.hi,
        boxed=box is not None,
        p=problem.norm.p,
        noise=noise,
        facets=no_facets(net),
    )
    state = np.zeros((ROWS, N))
    state[LO], state[HI] = -np.inf, np.inf
    below = np.abs(problem.x)
    cap, kept, above = whole_ball(n, U), keep_rows(net, 0), Constants(np.zeros(network.L + 1), np.zeros(network.L + 1))
    room = forward.room_of(model.box_lo, model.box_hi, U)
    forms: forward.Forms | None = None
    for k in range(network.L):
        part = slice(net.noff[k], net.noff[k + 1])
        M = np.asarray(abs(network.maps[k]) @ below + np.abs(network.biases[k]))
        model.Q[part] = OF_TERMS * noise * M + TINY  # the first layer's value at x is rounded too: part of M
        if k > 0:  # whatever the time: a pass over single rows follows where there is some
            lo, hi = interval(network.maps[k], network.biases[k], state[:, net.noff[k - 1] : net.noff[k]], M, noise)
            state[LO, part], state[HI, part] = lo, hi
        if played is None and forward.is_suited(network):  # certificates know nothing of forms
            forms = forward.into(forms, model, network, state, k, room)
        tighten_layer(model, kept, state, cap, above, k, 0, clock.timer())
        clock.check()
        if 0 < k <= hulled.layers and is_suited(network, problem.norm):
            left -= hull_layer(model, state, U, k, left, threads, played)
            clock.check()
        if curved and k > 0:
            curve_layer(model, state, U, k, clock.timer())
            clock.check()
        Z = np.maximum(np.abs(state[LO, part]), np.abs(state[HI, part]))
        model.Q[part] += OF_VALUES * noise * Z
        below = np.maximum(state[HI, part], 0.0)
        state[POINT, part] = state[LO, part] + state[HI, part]  # no point yet: the lower lines of CROWN
    last = np.asarray(abs(network.maps[-1]) @ below + np.abs(network.biases[-1]))
    model.row_error[:] = 4.0 * noise * (np.abs(C) @ last + np.abs(d)) + TINY
    state[ALPHA] = state[POINT] > 0
    return model, state


def hull_layer(
    model: Model,
    state: Matrix,
    U: float,
    k: int,
    most: int,
    threads: int = 1,
    played: dict[int, Played] | None = None,
) -> int:
    """Narrow the bounds of the open neurons of layer k > 0 in the ball of radius U. Those below have theirs.

    At most so many entries are visited, and none where that is not enough for some turns of every row. How many were.
    Threads share the rows; what a row's bounds are does not depend on their number. Their lines go into `played`.
    """
    from layercert.search.adaptive.hulled import FEWEST, TURNS, cone_of_neuron, hull_rows

    net = model.net
    order = net.order[net.noff[k] : net.noff[k + 1]]
    rows = order[open_mask(state[:, order])]
    if not len(rows) or 2 * FEWEST * net.ptr[net.noff[k]] > most:  # even the cone of one row may take too long
        return 0
    first = cone_of_neuron(model, state, k, int(rows[0]), U)[1]  # tells what one takes
    turns = min(TURNS, most // max(2 * len(rows) * len(first.place), 1))
    if turns < FEWEST:
        return 0

    def hull(share: Indices) -> tuple[int, Played]:
        lower = np.zeros((2 * len(share) if played is not None else 0, int(net.noff[k])), np.float32)
        work, lines = hull_rows(model, state, U, k, share, turns, clock.timer(), lower)
        facets = [Facets(upper.neurons, upper.shares, upper.parts.astype(np.float32)) for upper in lines]
        parts = np.rint(np.clip(lower[: len(lines)], 0.0, 1.0) * np.float32(255)).astype(np.uint8)
        return work, Played(share[: len(lines) // 2], parts, facets)

    shares = [rows[i::threads].copy() for i in range(min(threads, len(rows)))]
    found = side_by_side([partial(hull, share) for share in shares])
    if played is not None:
        each = [own for _, own in found]
        played[k] = Played(
            np.concatenate([own.neurons for own in each]),
            np.concatenate([own.slopes for own in each]),
            [facets for own in each for facets in own.facets],
        )
    return sum(work for work, _ in found)


def row_norms(problem: Problem, W: LinearMap) -> Vector:
    """||.||_q of every row, some rows at a time where the layer is sparse."""
    step = max(1, 2**20 // int(W.shape[1]))
    parts = [problem.norm.dual(dense(W[at : at + step])) for at in range(0, W.shape[0], step)]
    return np.concatenate(parts)


def interval(W: LinearMap, b: Vector, below: Matrix, M: Vector, noise: float) -> tuple[Vector, Vector]:
    """Bounds of W x^k + b from those of the layer below alone, M bounding the size of all terms."""
    low, high = np.maximum(below[LO], 0.0), np.maximum(below[HI], 0.0)
    size = abs(W)
    centre = np.asarray(W @ (0.5 * (low + high)) + b)
    spread = np.asarray(size @ (0.5 * (high - low)))
    error = 2.0 * noise * M + TINY
    return centre - spread - error, centre + spread + error
