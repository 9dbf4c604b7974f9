"""Kernels of the float checker: backward passes side by side, as lanes, of many halfspaces or many rows at once.

Matrices of coefficients have a line per neuron and a column per pass, so that a weight meets all passes, and lines that
no pass reads are skipped. step_floats.py has the error analysis of what is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, Indices, Mask, Matrix, Vector
from layercert.certificate.facets import FacetLanes, no_facets
from layercert.certificate.reach import falls, tilted
from layercert.certificate.setting import Reach
from layercert.compiled.jit import njit, njit_sums
from layercert.compiled.packed import PackedNetwork, row_add, times_transposed

if TYPE_CHECKING:
    from layercert.certificate.step_floats import Halfspaces


class Ground(NamedTuple):
    """A network on its ball."""

    net: PackedNetwork
    z0: Vector  # first pre-activations at x
    Q: Vector  # per neuron: what |A| + beta is multiplied with to bound rounding errors
    row_sizes: Vector  # ||W^0_i||_q, rounded up
    outputs: Vector  # bounds of the neurons' outputs on the whole ball
    noise: float  # relative error of the longest chain of roundings
    reach: Reach


class Regions(NamedTuple):
    """What is known at some nodes, a line each: bounds at the node's unsafe points, and what follows from them."""

    lo: Matrix
    hi: Matrix
    phase: NDArray[np.int8]
    side: NDArray[np.int8]  # +1 on, -1 off, 0 open: side * z >= 0 at the node's unsafe points
    su: Matrix  # relu(z) <= su z + iu where open
    iu: Matrix


class Uses(NamedTuple):
    """Rows of one layer as nodes use them, a lane each."""

    node: Indices  # its line in the regions
    half: Indices  # its halfspace among those of the step
    neuron: Indices  # counted over all layers
    side: Vector
    pull: Vector
    slopes: Matrix  # neurons of all layers below x lanes
    splits: Matrix  # signed multipliers, the same; without lines where there are none
    facets: FacetLanes = no_facets(0)


class Uppers(NamedTuple):
    """What the layers from k on make of some objectives F: coef.x^(k-1) + constant - slip <= F at unsafe points."""

    coef: Matrix  # neurons x objectives: the coefficients of each neuron's output
    constant: Matrix  # layers x objectives
    slip: Matrix


@njit_sums
def relax(regions: Regions) -> None:
    """The lines of all neurons of all nodes."""
    nodes, neurons = regions.lo.shape
    for node in range(nodes):
        for i in range(neurons):
            relax_one(regions, node, i)


@njit_sums
def relax_one(regions: Regions, node: int, i: int) -> None:
    """The lines of a neuron. The upper one is lifted above relu at both ends, exactly."""
    lo, hi, phase = regions.lo[node, i], regions.hi[node, i], regions.phase[node, i]
    side, su, iu = 0, 0.0, 0.0
    if phase > 0 or (phase == 0 and lo >= 0.0):
        side, su = 1, 1.0
    elif phase < 0 or hi <= 0.0:
        side = -1
    else:
        su = min(hi / (hi - lo), 1.0)
        # the last term is for bounds so small that their products underflow
        iu = max(-su * lo, (1.0 - su) * hi) * (1.0 + 1e-15) + 1e-300
    regions.side[node, i], regions.su[node, i], regions.iu[node, i] = side, su, iu


@njit_sums
def take(regions: Regions, uses: Uses, values: Vector) -> Mask:
    """Bounds side * z >= value where they are better; for each use, whether its neuron has no value left.

    What is not a finite number says nothing: a NaN or an overflow must never pass for an empty node.
    """
    gone = np.zeros(len(values), np.bool_)
    for r in range(len(values)):
        node, i, value = uses.node[r], uses.neuron[r], values[r]
        if np.isfinite(value):
            if uses.side[r] > 0.0:
                regions.lo[node, i] = max(regions.lo[node, i], value)
            else:
                regions.hi[node, i] = min(regions.hi[node, i], -value)
            relax_one(regions, node, i)
        gone[r] = regions.lo[node, i] > regions.hi[node, i]
    return gone


@njit
def spread(begin: NDArray[np.int32], at: NDArray[np.int32], values: Vector, rows: Indices, below: int) -> Matrix:
    """Some rows of a table of compressed rows as columns of a matrix."""
    out = np.zeros((below, len(rows)))
    for r in range(len(rows)):
        for t in range(begin[rows[r]], begin[rows[r] + 1]):
            out[at[t], r] = values[t]
    return out


@njit_sums
def split_off(
    ground: Ground,
    regions: Regions,
    facets: FacetLanes,
    k: int,
    coef: Matrix,
    c: Vector,
    error: Vector,
    size: Vector,
) -> Vector:
    """What the facets of layer k take of their neurons' coefficients, which keep the rest for the chord.

    The lines of `coef` are the neurons of the layer. Constants and errors are added to c and error. step_floats.py says
    why the errors are enough.
    """
    net, entries = ground.net, facets.entries
    first, base, under = facets.first[k], net.noff[k], net.noff[k - 1] if k > 0 else 0
    taken = np.zeros(facets.first[k + 1] - first)
    for f in range(first, facets.first[k + 1]):
        r, i, node = facets.lane[f], facets.neuron[f], facets.node[f]
        A, at = coef[i - base, r], facets.begin[f] - entries.begin[i]
        if regions.side[node, i] != 0 or not A < 0.0:
            continue
        b = net.b[i] if k > 0 else ground.z0[i]
        # the largest -a.x and (w - a).x + b on the box of the inputs, in the first layer on that of w
        zero, above, terms = 0.0, b, abs(b)
        for t in range(entries.begin[i], entries.begin[i + 1]):
            j, w = entries.column[t], entries.weight[t]
            if k == 0:
                least, most = -facets.down[j], facets.up[j]
            elif regions.side[node, under + j] < 0:
                least, most = 0.0, 0.0
            else:
                least, most = max(regions.lo[node, under + j], 0.0), max(regions.hi[node, under + j], 0.0)
            a = facets.part[at + t] * w
            rest = w - a
            zero -= a * (least if a > 0.0 else most)
            above += rest * (most if rest > 0.0 else least)
            terms += abs(w) * max(-least, most)
        own = facets.share[f] * A
        c[r] += own * max(zero, above)
        error[r] += 1.01 * (abs(A) * ground.Q[i] + 4.04 * facets.noise * abs(own) * terms)
        if k == 0:
            size[r] += abs(own) * ground.row_sizes[i]
        coef[i - base, r] = (1.0 - facets.share[f]) * A
        taken[f - first] = A
    return taken


@njit_sums
def join(facets: FacetLanes, k: int, taken: Vector, below: Matrix, live: Mask) -> None:
    """The lines of the facets of layer k over its inputs, some of which they make live."""
    entries, first = facets.entries, facets.first[k]
    for f in range(first, facets.first[k + 1]):
        r, i, A = facets.lane[f], facets.neuron[f], taken[f - first]
        if A < 0.0:
            own, at = facets.share[f] * A, facets.begin[f] - entries.begin[i]
            for t in range(entries.begin[i], entries.begin[i + 1]):
                below[entries.column[t], r] += own * (facets.part[at + t] * entries.weight[t])
                live[entries.column[t]] = True


@njit_sums
def give_back(facets: FacetLanes, k: int, taken: Vector, coef: Matrix, base: int) -> None:
    """Coefficients as they were before the facets of layer k took their shares."""
    first = facets.first[k]
    for f in range(first, facets.first[k + 1]):
        if taken[f - first] < 0.0:
            coef[facets.neuron[f] - base, facets.lane[f]] = taken[f - first]


@njit_sums
def objective_passes(
    ground: Ground,
    regions: Regions,
    alpha: Matrix,
    beta: Matrix,
    facets: FacetLanes,
    coef: Matrix,
    c: Vector,
    error: Vector,
) -> tuple[Matrix, Vector, Matrix, Matrix]:
    """Halfspace i of node i, from the coefficients of the last layer in `coef`, which is filled.

    Returns g (a line each), the sum of |S| ||W^0||_q, and for every layer the constants and errors so far. c and error
    end with those of the whole pass.
    """
    net = ground.net
    L, m = len(net.noff) - 1, len(c)
    size, constant, slip = np.zeros(m), np.empty((L, m)), np.empty((L, m))
    below = np.empty((0, m))
    for k in range(L - 1, -1, -1):
        base, n = net.noff[k], net.noff[k + 1] - net.noff[k]
        S, live = np.empty((n, m)), np.empty(n, np.bool_)
        bent = facets.first[k + 1] > facets.first[k]
        taken = split_off(ground, regions, facets, k, coef[base:], c, error, size) if bent else size
        for j in range(n):
            i = base + j
            Q, b, some = ground.Q[i], net.b[i] if k > 0 else ground.z0[i], False
            for r in range(m):
                A, side = coef[i, r], regions.side[r, i]
                weight = abs(A)
                if side == 0:
                    if A > 0.0:
                        value = A * alpha[r, i]
                    else:
                        value = A * regions.su[r, i]
                        c[r] += A * regions.iu[r, i]
                else:
                    value = (A if side > 0 else 0.0) - beta[r, i] * side
                    weight += beta[r, i]
                error[r] += 1.01 * weight * Q
                c[r] += value * b
                S[j, r] = value
                some = some or value != 0.0
                if k == 0:
                    size[r] += abs(value) * ground.row_sizes[i]
            live[j] = some
        below, reached = times_transposed(net, k, S, live)
        if bent:
            join(facets, k, taken, below, reached)
            give_back(facets, k, taken, coef[base:], base)
        for r in range(m):
            constant[k, r], slip[k, r] = c[r], error[r]
        if k > 0:
            for j in range(len(below)):
                for r in range(m):
                    coef[net.noff[k - 1] + j, r] = below[j, r]
    return below.T.copy(), size, constant, slip


@njit_sums
def row_passes(
    ground: Ground, regions: Regions, k: int, uses: Uses, uppers: Uppers, c: Vector, error: Vector, trace: Matrix
) -> tuple[Matrix, Vector]:
    """Rows of layer k > 0 through the layers below: G (a line each), and the sum of |S| ||W^0||_q.

    c and error begin with those of the rows' own terms. `trace` takes the coefficients of all neurons below, where it
    has lines.
    """
    net, m = ground.net, len(c)
    base, under = net.noff[k], net.noff[k - 1]
    A, live, size = np.zeros((base - under, m)), np.zeros(base - under, np.bool_), np.zeros(m)
    for r in range(m):
        i, pull = uses.neuron[r], uses.pull[r]
        at = net.ptr[i]
        for t in range(at, net.ptr[i + 1]):
            j = t - at if net.whole[k] else net.index[t]
            A[j, r] = uses.side[r] * net.data[t]
            live[j] = True
        if pull > 0.0:
            for j in range(base - under):
                own = uppers.coef[under + j, uses.half[r]]
                if own != 0.0:
                    A[j, r] += pull * own
                    live[j] = True
    multiplied, facets = len(uses.splits) > 0, uses.facets
    for layer in range(k - 1, -1, -1):
        first = net.noff[layer]
        bent = len(facets.lane) > 0 and facets.first[layer + 1] > facets.first[layer]
        taken = size
        if bent:
            for j in range(len(A)):
                if not live[j]:
                    for r in range(m):
                        A[j, r] = 0.0
            taken = split_off(ground, regions, facets, layer, A, c, error, size)
        for j in range(len(A)):
            i = first + j
            if not live[j]:
                for r in range(m):
                    A[j, r] = 0.0
                if not multiplied:
                    continue
            line, Q, b, some = A[j], ground.Q[i], net.b[i] if layer > 0 else ground.z0[i], False
            if len(trace):
                for r in range(m):
                    trace[i, r] = line[r]
            for r in range(m):
                a, node = line[r], uses.node[r]
                side = regions.side[node, i]
                weight = abs(a)
                if side == 0:
                    if a > 0.0:
                        value = a * uses.slopes[i, r]
                    else:
                        value = a * regions.su[node, i]
                        c[r] += a * regions.iu[node, i]
                else:
                    value = a if side > 0 else 0.0
                    if multiplied and uses.splits[i, r] * side > 0.0:
                        value -= uses.splits[i, r]
                        weight += abs(uses.splits[i, r])
                error[r] += 1.01 * weight * Q
                c[r] += value * b
                line[r] = value
                some = some or value != 0.0
                if layer == 0:
                    size[r] += abs(value) * ground.row_sizes[i]
            live[j] = some
        A, live = times_transposed(net, layer, A, live)
        if bent:
            join(facets, layer, taken, A, live)
            if len(trace):
                give_back(facets, layer, taken, trace, 0)
    return A.T.copy(), size


@njit_sums
def functions(
    ground: Ground, regions: Regions, halves: Halfspaces, k: int, uses: Uses, trace: Matrix
) -> tuple[Matrix, Vector, Vector]:
    """G, c with G w + c <= side * z at unsafe points (where pull F <= 0), and r ||G||_q at most."""
    net, m, noise = ground.net, len(uses.neuron), ground.noise
    c, error = np.empty(m), np.empty(m)
    if k == 0:
        G, size = np.zeros((m, net.inputs)), np.empty(m)
        for r in range(m):
            i = uses.neuron[r]
            row_add(net, 0, i, uses.side[r], G[r], 0)
            c[r] = uses.side[r] * ground.z0[i] - 1.01 * ground.Q[i] - TINY
            size[r] = ground.reach.r * ground.row_sizes[i]
        return G, c, size
    uppers, more = halves.uppers, np.full(len(halves.s), -1.0)  # per objective, where a row pulls it
    under, base = net.noff[k - 1], net.noff[k]
    for r in range(m):
        i, half, pull = uses.neuron[r], uses.half[r], uses.pull[r]
        c[r], error[r] = uses.side[r] * net.b[i], ground.Q[i]
        if pull > 0.0:
            if more[half] < 0.0:
                size_of = abs(uppers.constant[k, half])
                for j in range(under, base):
                    size_of += ground.outputs[j] * abs(uppers.coef[j, half])
                more[half] = 4.04 * noise * size_of + 1.02 * uppers.slip[k, half]
            c[r] += pull * uppers.constant[k, half]
            error[r] += pull * more[half]
    G, size = row_passes(ground, regions, k, uses, uppers, c, error, trace)
    for r in range(m):
        size[r] *= ground.reach.r * (1.0 + noise)
        c[r] = c[r] - 1.02 * (error[r] + noise * size[r]) - TINY
    return G, c, size


@njit_sums
def least(reach: Reach, G: Matrix, c: Vector, size: Vector, halves: Halfspaces, half: Indices, lams: Vector) -> Vector:
    """Lower bounds of G w + c on the caps: c + lam s - fall(G + lam g), rounded down. G is G + lam g after it."""
    drop = falls(tilted(G, lams, halves.g, half), reach)
    for r in range(len(c)):
        lam, value, slip = lams[r], c[r] - drop[r], abs(c[r]) + drop[r]
        if lam != 0.0:  # what cancels in G + lam g was rounded before
            value += lam * halves.s[half[r]]
            slip += lam * abs(halves.s[half[r]]) + size[r] + lam * halves.size[half[r]]
        drop[r] = value - 1e-15 * slip - TINY
    return drop
