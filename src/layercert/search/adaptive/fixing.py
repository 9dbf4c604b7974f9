"""Neurons that cannot have one of their sides at a node's unsafe points, found all at once from one halfspace.

A node's halfspace V = g.w + s <= F has a line for each open neuron, a bound of A relu(z). Where the neuron is off, its
output is 0: without the line V is another halfspace, which holds on this part of the node and is larger there, often
much. With t >= 0 besides, since z <= 0,

    V - line + t z <= F    where the neuron is off,        V - line + A z - t z <= F    where it is on.

If such a function is positive on the whole ball, that part of the node has no unsafe point, and the neuron is fixed on
its other side. It is what a split would find in its first child, without the split; mixed-integer solvers know it as
fixing by reduced costs. Near the radius nearly every neuron whose line loses something is fixed by it. All is l_inf.

For neurons of the first layer z is linear in w, only the coordinates that they read change, and the best t is found by
tangents. For others a pass down the layers follows, many neurons side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import TINY, Indices, Mask, Matrix, Vector
from layercert.compiled.jit import inner_sums, njit_sums
from layercert.compiled.packed import row_add
from layercert.compiled.timer import Timer, late
from layercert.search.adaptive.bent import Bends, descend, own_lines, room_for
from layercert.search.adaptive.lanes import Pass
from layercert.search.adaptive.lines import is_open
from layercert.search.adaptive.model import ALPHA, COEF, HI, LO, OWN, PHASE, Model
from layercert.search.adaptive.record import Fixed

#: Passes side by side.
LANES = 64
#: Multipliers t that are tried in layers behind the first, in units of |A|.
TRIED = (0.0, 0.5)
#: The first t of the tangents in units of |A|, how it grows while the function rises, and how many are tried.
FIRST, GROWTH, TANGENTS = 1.0, 4.0, 8
#: Tangents that differ by less, relative to their slope, meet nowhere that could be told.
PARALLEL = 1e-12
#: What is taken for the rounding of a sum, in units of `Model.noise` and of the size of its terms; of errors that are
#: part of the halfspace already, and are made once more.
NOISE, AGAIN = 8.0, 4.0


class Excluding(NamedTuple):
    """A halfspace g.w + s <= F on the box low <= w <= high, where g.w falls by at most `total`."""

    g: Vector
    s: float
    total: float
    low: Vector
    high: Vector
    U: float


class Room(NamedTuple):
    """Vectors over the inputs to work in: a neuron's row, its line, and the coordinates that it reads, each once."""

    row: Vector
    line: Vector
    read: Indices
    seen: Mask


@inner_sums
def fall(t: float, low: float, high: float) -> float:
    """How far t w falls for w in [low, high]."""
    return max(-t * low, -t * high)


@inner_sums
def could_gain(state: Matrix, i: int, side: float) -> float:
    """What taking a neuron's line away, where it has this side, brings at most (with t = 0)."""
    a, lo, hi, alpha = state[COEF, i], state[LO, i], state[HI, i], state[ALPHA, i]
    if a < 0.0:
        return -a * hi if side < 0.0 else a * lo
    return -a * alpha * lo if side < 0.0 else a * (1.0 - alpha) * hi


@njit_sums
def fix(model: Model, state: Matrix, bends: Bends, done: Pass, U: float, timer: Timer) -> Fixed:
    """Fix what can be fixed in the node of this state, whose halfspace with these facets is `done` (COEF is its own).

    A neuron without any side left appears twice. Nothing is fixed where the halfspace leaves no unsafe point at all.
    """
    net = model.net
    low, high = np.maximum(model.box_lo, -U), np.minimum(model.box_hi, U)
    g, total = done.g[0], 0.0
    for j in range(len(g)):
        total += fall(g[j], low[j], high[j])
    half = Excluding(g, done.s[0] - done.drift[0] * U, total, low, high, U)
    most = 2 * net.noff[-1] if half.s <= total else 0
    found, count = Fixed(np.empty(most, np.intp), np.empty(most), np.zeros(most)), 0
    if most == 0:
        return found
    work = Room(
        np.zeros(net.inputs), np.zeros(net.inputs), np.empty(net.inputs, np.intp), np.zeros(net.inputs, np.bool_)
    )
    for i in range(net.noff[1]):
        if is_open(state[PHASE, i], state[LO, i], state[HI, i]) and state[COEF, i] != 0.0:
            for side in (-1.0, 1.0):
                t = exclude(model, state, bends, i, side, half, work)
                if t >= 0.0:
                    found.neurons[count], found.sides[count], found.multipliers[count] = i, -side, t
                    count += 1
    for k in range(1, len(net.noff) - 1):
        wanted = candidates(net.noff[k], net.noff[k + 1], state, half.total - half.s)
        for begin in range(0, len(wanted.neurons), LANES):
            if late(timer):
                break
            end = min(begin + LANES, len(wanted.neurons))
            some = Fixed(wanted.neurons[begin:end], wanted.sides[begin:end], wanted.multipliers[begin:end])
            gone = excluded(model, state, bends, done, k, some, half)
            for r in range(len(gone)):
                i, side = some.neurons[r], -some.sides[r]
                again = count > 0 and found.neurons[count - 1] == i and found.sides[count - 1] == side
                if gone[r] and not again:
                    found.neurons[count], found.sides[count], found.multipliers[count] = i, side, some.multipliers[r]
                    count += 1
    return Fixed(found.neurons[:count].copy(), found.sides[:count].copy(), found.multipliers[:count].copy())


@njit_sums
def candidates(first: int, last: int, state: Matrix, missing: float) -> Fixed:
    """Sides of the neurons first..last-1 that might be excluded, with the multipliers to try."""
    most = 2 * len(TRIED) * (last - first)
    found, count = Fixed(np.empty(most, np.intp), np.empty(most), np.empty(most)), 0
    for i in range(first, last):
        if not is_open(state[PHASE, i], state[LO, i], state[HI, i]):
            continue
        for side in (-1.0, 1.0):
            if could_gain(state, i, side) > missing:
                for t in TRIED:
                    found.neurons[count], found.sides[count] = i, side
                    found.multipliers[count] = t * abs(state[COEF, i])
                    count += 1
    return Fixed(found.neurons[:count], found.sides[:count], found.multipliers[:count])


@njit_sums
def exclude(model: Model, state: Matrix, bends: Bends, i: int, side: float, half: Excluding, work: Room) -> float:
    """The multiplier with which neuron i of the first layer has no unsafe points on this side; -1 where none is
    found."""
    net, a, z0 = model.net, state[COEF, i], model.z0[i]
    S, constant, T, _ = own_lines(state, bends, i, a)
    row, line, read, seen = work
    row_add(net, 0, i, 1.0, row, 0)
    for t in range(bends.begin[i], bends.begin[i + 1]):
        line[bends.column[t]] += T * bends.weight[t]
    count, at, rest = 0, net.ptr[i], half.total
    for t in range(at, net.ptr[i + 1]):
        j = t - at if net.whole[0] else net.index[t]
        if not seen[j]:
            seen[j] = True
            read[count] = j
            count += 1
            rest -= fall(half.g[j], half.low[j], half.high[j])
            line[j] += S * row[j]
    add = a if side > 0.0 else 0.0
    base = half.s - rest - constant - T * bends.constant[i] + (add - S) * z0
    size = abs(half.s) + half.total + abs(constant) + abs(T * bends.constant[i]) + (abs(add) + abs(S)) * abs(z0)
    again = AGAIN * (model.Q[i] + half.U * model.D[i])
    slip = (abs(a) + 2.0 * bends.both[i]) * again + AGAIN * abs(T) * bends.size[i]
    multiplier, found = 0.0, -1.0
    left, left_value, left_slope = 0.0, 0.0, 0.0
    right, right_value, right_slope = -1.0, 0.0, 0.0
    for _ in range(TANGENTS):
        factor = add - side * multiplier
        value, slope, terms = base - side * multiplier * z0, -side * z0, multiplier * abs(z0)
        for e in range(count):
            j = read[e]
            c = half.g[j] - line[j] + factor * row[j]
            value -= fall(c, half.low[j], half.high[j])
            terms += (abs(half.g[j]) + abs(line[j]) + abs(factor * row[j])) * max(-half.low[j], half.high[j])
            slope -= side * row[j] * (half.low[j] if c > 0.0 else half.high[j])
        noise = NOISE * model.noise * (size + terms) + slip + multiplier * again + TINY
        if value - noise > 0.0:
            found = multiplier
            break
        if slope > 0.0:
            left, left_value, left_slope = multiplier, value, slope
            if right < 0.0:
                multiplier = FIRST * abs(a) if multiplier == 0.0 else GROWTH * multiplier
                continue
        elif multiplier == 0.0:
            break
        else:
            right, right_value, right_slope = multiplier, value, slope
        bend = left_slope - right_slope
        if bend <= PARALLEL * abs(left_slope):
            break
        meet = (right_value - left_value + left_slope * left - right_slope * right) / bend
        if not left < meet < right or left_value + left_slope * (meet - left) <= noise:
            break
        multiplier = meet
    for e in range(count):
        row[read[e]], line[read[e]], seen[read[e]] = 0.0, 0.0, False
    return found


@njit_sums
def excluded(model: Model, state: Matrix, bends: Bends, done: Pass, k: int, some: Fixed, half: Excluding) -> Mask:
    """Have some neurons of layer k > 0 no unsafe points on these sides, by these multipliers?"""
    net, m = model.net, len(some.neurons)
    base, under = net.noff[k], net.noff[k - 1]
    A, sums = np.empty((base - under, m)), room_for(k, 0, m)
    for j in range(base - under):
        for r in range(m):
            A[j, r] = state[COEF, under + j]
    for r in range(m):
        i, side, t = some.neurons[r], some.sides[r], some.multipliers[r]
        a, b = state[COEF, i], net.b[i]
        S, constant, T, _ = own_lines(state, bends, i, a)
        factor = (a if side > 0.0 else 0.0) - side * t - S
        at = net.ptr[i]
        for e in range(at, net.ptr[i + 1]):
            A[e - at if net.whole[k] else net.index[e], r] += factor * net.data[e]
        for e in range(bends.begin[i], bends.begin[i + 1]):
            A[bends.column[e], r] -= T * bends.weight[e]
        own, bent = factor * b - constant, T * bends.constant[i]
        sums.c[r] = done.value[0, k] + own - bent
        sums.error[r] += done.error[0, k] + NOISE * model.noise * (abs(done.value[0, k]) + abs(own) + abs(bent))
        sums.error[r] += AGAIN * ((abs(a) + 2.0 * bends.both[i] + t) * model.Q[i] + abs(T) * bends.size[i])
        for j in range(base - under):  # entries of A are rounded, whatever cancels
            sums.error[r] += abs(state[COEF, under + j]) * model.Q[under + j]
    G, gone = descend(model, state, bends, A, k - 1, sums), np.empty(m, np.bool_)
    for r in range(m):
        value, terms = sums.c[r], 0.0
        for j in range(len(half.g)):
            value -= fall(G[r, j], half.low[j], half.high[j])
            terms += abs(G[r, j]) * max(-half.low[j], half.high[j])
        noise = OWN * (sums.error[r] + half.U * sums.drift[r]) + NOISE * model.noise * (terms + abs(sums.c[r]))
        gone[r] = value - noise > 0.0
    return gone
