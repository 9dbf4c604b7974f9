"""Kernels: rows as the search left them, and what a pass needed, so that nothing else goes into the file.

A pass with coefficient A at a neuron needs of it, by the rules of docs/certificate-format.md:

    A > 0    nothing: S = A alpha is below A relu(z) for every alpha of [0, 1]; 1 where it is on, 0 where it is off.
             But where lo = hi = 0 each bound gives a side of its own: there the one that gives its side
    A < 0    its bounds lo and hi where it is open, the one that gives its side where it is not
    beta > 0 the bound that gives its side
    a facet  the bounds of its inputs at which its line is highest: lo only where it is above zero, since outputs are
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Mask, Matrix, Signs, Vector
from layercert.certificate.facets import FacetLanes
from layercert.certificate.lanes import Regions
from layercert.certify.doubt import DIGITS, SURE
from layercert.certify.recording import MOST, PARTS, Snapshot
from layercert.compiled.jit import njit, njit_sums
from layercert.search.adaptive.cap import Cap, lowest
from layercert.search.adaptive.model import Model
from layercert.search.adaptive.rows import NeuronRows

#: Where bounds can differ by more than this share of a neuron's range, the first order says nothing of its line.
SMALL = 0.01
#: More than anything that can be moved; finite, so that nothing times it is nothing.
ANYWHERE = 1e100


class Digest(NamedTuple):
    """What goes into the file of some rows, and the events that gave the bounds which they need."""

    needs_count: Indices
    needs: Indices
    slope_count: Indices
    slope_at: NDArray[np.int32]
    slope: NDArray[np.uint8]
    split_count: Indices
    split_at: NDArray[np.int32]
    split: Vector


@njit
def recall(
    known: Snapshot, rows: Indices, side: Signs, touch: Vector, multiplied: bool
) -> tuple[Matrix, Matrix, Vector]:
    """Slopes (neurons below x rows), signed multipliers of sides that count, and pulls of some rows of a snapshot.

    Rows that had no pass take the slopes `touch`. Numbers are those that will be stored.
    """
    below, m = len(side), len(rows)
    slopes, pulls = np.empty((below, m)), np.zeros(m)
    splits = np.zeros((below if multiplied else 0, m))
    for r in range(m):
        at = known.at[rows[r]]
        if not known.known[rows[r]]:
            for i in range(below):
                slopes[i, r] = touch[i]
            continue
        pulls[r] = known.pulls[rows[r]]
        for i in range(below):
            slopes[i, r] = known.slopes[at + i] / PARTS
        if multiplied:
            for i in range(below):
                b = known.betas[at + i]
                splits[i, r] = b if b * side[i] > 0.0 else 0.0
    return slopes, splits, pulls


@njit
def stored(known: Snapshot, rows: Indices, phase: Signs, moved: NeuronRows) -> None:
    """Put parameters of rows of one layer (matrices: neurons below x rows) into a snapshot that is not shared."""
    for r in range(len(rows)):
        at = known.at[rows[r]]
        pull = moved.pulls[r]
        known.pulls[rows[r]] = pull if pull > 0.0 and pull < MOST else 0.0
        known.known[rows[r]] = True
        for i in range(len(phase)):
            known.slopes[at + i] = np.uint8(moved.slopes[i, r] * PARTS + 0.5)
            beta = moved.betas[i, r]
            known.betas[at + i] = beta * phase[i] if beta < MOST else 0.0


@njit
def needs_bounds(A: float, beta: float, side: int, lo: float, hi: float) -> bool:
    """Does a pass with the coefficient A at a neuron, and the multiplier beta of its side, need its bounds?"""
    return A < 0.0 or (side != 0 and beta != 0.0) or (A > 0.0 and lo >= 0.0 and hi <= 0.0)


@njit
def needs(trace: Matrix, regions: Regions, beta: Matrix, given_by: Indices) -> tuple[Indices, Indices]:
    """Of the pass of each node's halfspace (a column of `trace`), the events that gave the bounds it needs: counts, and
    all in a row. A node has a line in each of the others.

    given_by[2i] is the event that gave lo of neuron i, given_by[2i + 1] that of hi; -1: the start.
    """
    below, m = trace.shape
    count, total = np.zeros(m, np.int64), 0
    out = np.empty(2 * below * m, np.int64)
    for r in range(m):
        before = total
        for i in range(below):
            s = regions.side[r, i]
            if needs_bounds(trace[i, r], beta[r, i], s, regions.lo[r, i], regions.hi[r, i]):
                for end in range(2):
                    if (s == 0 or (s > 0) == (end == 0)) and given_by[r, 2 * i + end] >= 0:
                        out[total] = given_by[r, 2 * i + end]
                        total += 1
        count[r] = total - before
    return count, out[:total].copy()


@njit
def line_moves(regions: Regions, given_by: Indices, slips: Vector, T: Vector) -> Matrix:
    """How far the upper lines of all neurons of some nodes can move anywhere on the ball (doubt.py), where bounds that
    no event gave can differ by their slips."""
    out = np.empty(regions.lo.shape)
    for r in range(len(out)):
        line_moves_of(regions, r, given_by[r], slips, T, out[r])
    return out


@njit
def line_moves_of(regions: Regions, node: int, given_by: Indices, slips: Vector, T: Vector, out: Vector) -> None:
    """The same for one node."""
    for i in range(len(out)):
        out[i] = 0.0
        if regions.side[node, i] == 0:
            lo, hi = regions.lo[node, i], regions.hi[node, i]
            e_lo = slips[2 * i] if given_by[2 * i] < 0 else 0.0
            e_hi = slips[2 * i + 1] if given_by[2 * i + 1] < 0 else 0.0
            move = T[i] + (hi - lo) + e_lo + e_hi  # whatever the line, since 0 <= su <= 1 and iu is at most the range
            if e_lo + e_hi <= SMALL * (hi - lo):
                a, b = -lo / (hi - lo), hi / (hi - lo)
                move = min(move, (e_hi * a + e_lo * b) * T[i] / (hi - lo) + e_hi * a * a + e_lo * b * b)
            out[i] = min(move, ANYWHERE)


@njit
def limits_of(line: Vector, trace: Matrix, values: Vector, half: Vector) -> Vector:
    """What rows count for at most (doubt.py), a column of `trace` each; half: how far the part that each has of its
    halfspace can move."""
    moves = half.copy()
    for i in range(len(trace)):
        if line[i] != 0.0:
            for r in range(len(moves)):
                moves[r] += abs(trace[i, r]) * line[i]
    return lowered(values - SURE * moves)


@njit
def lowered(values: Vector) -> Vector:
    """A little smaller, with fewer digits: the rest would not be worth its place in the file."""
    out = values.copy()
    for r in range(len(out)):
        if np.isfinite(out[r]):
            mantissa, exponent = math.frexp(out[r])
            out[r] = math.ldexp(np.floor(mantissa * DIGITS) / DIGITS, exponent)
    return out


@njit
def input_needs(facets: FacetLanes, starts: Indices, coef: Matrix, side: Signs, lo: Matrix, needed: Mask) -> None:
    """Mark the bounds of inputs that facets need, for each node (a line of `needed`: lo and hi of all neurons)."""
    entries = facets.entries
    for k in range(1, len(facets.first) - 1):  # what the first layer reads has no bounds of its own
        under = starts[k - 1]
        for f in range(facets.first[k], facets.first[k + 1]):
            r, i = facets.lane[f], facets.neuron[f]
            if side[r, i] != 0 or not coef[i, r] < 0.0 or facets.share[f] == 0.0:
                continue
            at = facets.begin[f] - entries.begin[i]
            for t in range(entries.begin[i], entries.begin[i + 1]):
                j, rising, part = under + entries.column[t], entries.weight[t] > 0.0, facets.part[at + t]
                if (part > 0.0 if rising else part < 1.0) and side[r, j] > 0 and lo[r, j] > 0.0:
                    needed[r, 2 * j] = True
                if part < 1.0 if rising else part > 0.0:
                    needed[r, 2 * j + 1] = True


@njit
def digest(
    trace: Matrix, place: tuple[Regions, int], slopes: Matrix, splits: Matrix, given_by: Indices, which: Indices,
    own: Indices,
) -> Digest:  # fmt: skip
    """The rows `which` of a node; place: the node as a line of the regions; own: for each row the event of its
    halfspace, -1 where it does not use that."""
    regions, node = place
    below, m = len(trace), len(which)
    many = len(splits) > 0
    count, slope_count, split_count = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    deps = np.empty((2 * below + 1) * m, np.int64)
    slope_at, slope = np.empty(below * m, np.int32), np.empty(below * m, np.uint8)
    split_at, split = np.empty(below * m if many else 0, np.int32), np.empty(below * m if many else 0)
    d, a, b = 0, 0, 0
    for t in range(m):
        r = which[t]
        first_d, first_a, first_b = d, a, b
        if own[t] >= 0:
            deps[d] = own[t]
            d += 1
        for i in range(below):
            A, s = trace[i, r], regions.side[node, i]
            beta = splits[i, r] if many else 0.0
            if needs_bounds(A, beta, s, regions.lo[node, i], regions.hi[node, i]):
                for end in range(2):
                    if (s == 0 or (s > 0) == (end == 0)) and given_by[2 * i + end] >= 0:
                        deps[d] = given_by[2 * i + end]
                        d += 1
            if A > 0.0 and s >= 0:
                value = np.uint8(PARTS) if s > 0 else np.uint8(slopes[i, r] * PARTS + 0.5)
                if value > 0:
                    slope_at[a], slope[a] = i, value
                    a += 1
            if beta != 0.0:
                split_at[b], split[b] = i, beta
                b += 1
        count[t], slope_count[t], split_count[t] = d - first_d, a - first_a, b - first_b
    return Digest(
        count, deps[:d].copy(), slope_count, slope_at[:a].copy(), slope[:a].copy(), split_count, split_at[:b].copy(),
        split[:b].copy(),
    )  # fmt: skip


@njit_sums
def cap_multipliers(G: Matrix, cap: Cap, model: Model) -> Vector:
    """For each row of G the multiplier of the cap that bounds it best, as it will be stored."""
    out, warm = np.empty(len(G)), np.zeros(1)
    for r in range(len(G)):
        _, lam = lowest(G[r], 1.0, cap, model, warm)
        out[r] = np.float32(lam) if lam > 0.0 and lam < MOST else 0.0
    return out


@njit
def fitted(alpha: Vector, beta: Vector, weights: Vector) -> tuple[Vector, Vector, Vector]:
    """Parameters of a halfspace in range (recording.scaled). They are divided by a power of two, which rounds nothing:
    multipliers that the search had as float32 stay what they are."""
    slopes, sides, rows, top = np.zeros(len(alpha)), np.zeros(len(beta)), np.zeros(len(weights)), 0.0
    for i in range(len(alpha)):
        if np.isfinite(alpha[i]):
            slopes[i] = min(max(alpha[i], 0.0), 1.0)
    for values, out in ((beta, sides), (weights, rows)):
        for i in range(len(values)):
            if np.isfinite(values[i]):
                out[i] = max(values[i], 0.0)
                top = max(top, out[i])
    if top > 0.0:
        unit = math.ldexp(1.0, math.frexp(top)[1])
        sides /= unit
        rows /= unit
    return slopes, sides, rows


@njit
def worth(values: Vector, neurons: Indices, side: Vector, lo: Vector, hi: Vector, share: float) -> Indices:
    """Which bounds side * z >= value of some neurons settle a sign, or narrow the range by more than this share."""
    out, count = np.empty(len(values), np.intp), 0
    for r in range(len(values)):
        low, high, value = lo[neurons[r]], hi[neurons[r]], values[r]
        gain = value - (low if side[r] > 0.0 else -high)
        if np.isfinite(value) and (gain > share * (high - low) or (gain > 0.0 and value >= 0.0)):
            out[count] = r
            count += 1
    return out[:count].copy()


@njit
def mark(needed: Mask, begin: Indices, deps: Indices) -> None:
    """All events that the needed ones rest on; what an event rests on comes before it."""
    for event in range(len(needed) - 1, -1, -1):
        if needed[event]:
            for t in range(begin[event], begin[event + 1]):
                needed[deps[t]] = True
