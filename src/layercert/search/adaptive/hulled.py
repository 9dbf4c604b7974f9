"""Kernels: bounds of neurons behind convolutions, by the hulls of the neurons below them (hulls.py).

A row bounds t z_i, t = 1 from below and t = -1 from above, by lines of the neurons that z_i reads, of those that these
read, and so on down to the input: its *cone*. Where a neuron's coefficient c is > 0, relu has its lower line alpha z.
Where it is < 0, it has a facet a.y + e over its inputs y, with a = parts * weights and e from the box of y (hulls.py),
or its chord. All of these may be chosen freely: whatever they are, the least value on the box of the input is proved.
The best choice is worth the row's least value over the hulls of all neurons. In the second layer of a convolutional
network that is the row's own least value, but for a hundredth; with chords it is a quarter to a third lower.

A good choice is found as two players find the value of a game by playing again and again (Brown, 1951). One answers the
mean of the points so far with the lines that are best there, the other answers the mean of these lines with the point
where the row is least. Means have weights 2 / (turn + 2), so that what was played first is soon forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import TINY, Indices, Matrix, Vector
from layercert.compiled.jit import inner_sums, njit_sums
from layercert.compiled.packed import row_add
from layercert.compiled.timer import Timer, late
from layercert.network import Network
from layercert.norms import Norm
from layercert.search.adaptive.layers import narrow
from layercert.search.adaptive.lines import is_on, is_open, upper
from layercert.search.adaptive.model import BETA, HI, LO, OWN, PHASE, Model

#: Turns of the game: 10 reach 0.82 of the gain in the median of sixteen rows, 20 reach 0.93, 40 reach 0.98.
#: Fewer than the last are not worth their time.
TURNS, FEWEST = 20, 8
#: What facets add to the rounding of a pass, in units of their terms (bent.py, model.py).
OF_FACETS = 8.0


class Cone(NamedTuple):
    """What a row reads. Places are the neurons, layer by layer from the top down, and then the inputs."""

    first: Indices  # per layer from the top down, then of the inputs, and one more: its first place
    at: Indices  # per place: the neuron, or the input
    begin: Indices  # per neuron's place, and one more: where its entries begin
    place: Indices  # per entry: the place that it reads
    weight: Vector
    low: Vector  # per place: the box of its output; of inputs, as offsets from x
    high: Vector


class Game(NamedTuple):
    """How far the game of a row is."""

    coef: Vector  # per place: its coefficient in the row
    mean: Vector  # per place: the mean of its outputs
    out: Vector  # per place: its output at the last point
    lines: Vector  # per place: alpha
    chords: Vector  # per place: which part of the upper line is the chord
    parts: Vector  # per entry: of the facet, times the rest of the upper line
    constants: Vector  # per place: e of the facet


def is_suited(network: Network, norm: Norm) -> bool:
    """Is the ball a box, and the first layer sparse and below another one?"""
    return bool(np.isinf(norm.p)) and network.L > 1 and not network.packed.whole[0]


@njit_sums
def hull_rows(
    model: Model, state: Matrix, U: float, k: int, rows: Indices, turns: int, timer: Timer, slopes: NDArray[np.float32]
) -> tuple[int, list[Lines]]:
    """Narrow the bounds of some neurons of layer k > 0 in the ball of radius U, with so many turns each.

    Those below have their bounds. `slopes` has no lines, or two per neuron, for the lower lines of its rows from below
    and from above. How many entries were visited; then the upper lines of these rows.
    """
    net, work, found = model.net, 0, []
    for n in range(len(rows)):
        if late(timer):
            break
        i = rows[n]
        coef, cone = cone_of_neuron(model, state, k, i, U)
        least, below = play(model, state, cone, coef, turns, U)
        most, above = play(model, state, cone, -coef, turns, U)
        # nothing is proved by what is no number: such a second argument of max is passed over
        low, high = max(-np.inf, least), max(-np.inf, most)
        work += 2 * turns * len(cone.place)
        if len(slopes):
            slopes_of(cone, below, slopes[2 * n])
            slopes_of(cone, above, slopes[2 * n + 1])
            found.append(facets_of(model, state, cone, below))
            found.append(facets_of(model, state, cone, above))
        b = net.b[i]
        margin = 2.0 * model.noise * abs(b)
        narrow(state, i, b + low - margin, b - high + margin)  # both hold: never the wrong way round
    return work, found


@njit_sums
def cone_of_neuron(model: Model, state: Matrix, k: int, i: int, U: float) -> tuple[Vector, Cone]:
    """The weights of a neuron of layer k > 0, and what it reads."""
    net = model.net
    coef, places = np.zeros(net.noff[k] - net.noff[k - 1]), np.full(net.inputs + net.noff[k], -1, np.intp)
    row_add(net, k, i, 1.0, coef, 0)
    return coef, cone_of(model, state, k, coef, U, places)


@njit_sums
def cone_of(model: Model, state: Matrix, k: int, coef: Vector, U: float, places: Indices) -> Cone:
    """What a row with coefficients over the outputs of layer k - 1 reads; `places` is -1 everywhere, before and after.

    Neurons that are off are left out.
    """
    net = model.net
    n = net.inputs
    first, at = np.zeros(k + 2, np.intp), np.empty(n + net.noff[k], np.intp)
    count, entries = 0, 0
    for j in range(len(coef)):
        i = net.noff[k - 1] + j
        if coef[j] != 0.0 and not is_silent(state, i):
            at[count] = i
            count += 1
    for depth in range(k):  # the layer k - 1 - depth reads what is listed next
        layer, first[depth + 1] = k - 1 - depth, count
        for q in range(first[depth], first[depth + 1]):
            i = at[q]
            for t in range(net.ptr[i], net.ptr[i + 1]):
                j = t - net.ptr[i] if net.whole[layer] else net.index[t]
                key = j if layer == 0 else n + net.noff[layer - 1] + j
                if layer > 0 and is_silent(state, net.noff[layer - 1] + j):
                    continue
                entries += 1
                if places[key] < 0:
                    places[key], at[count] = count, key if layer == 0 else key - n
                    count += 1
    first[k + 1] = count
    begin, place, weight = np.zeros(first[k] + 1, np.intp), np.empty(entries, np.intp), np.empty(entries)
    entries = 0
    for depth in range(k):
        layer = k - 1 - depth
        for q in range(first[depth], first[depth + 1]):
            i = at[q]
            for t in range(net.ptr[i], net.ptr[i + 1]):
                j = t - net.ptr[i] if net.whole[layer] else net.index[t]
                key = j if layer == 0 else n + net.noff[layer - 1] + j
                if places[key] >= 0:
                    place[entries], weight[entries] = places[key], net.data[t]
                    entries += 1
            begin[q + 1] = entries
    low, high = np.empty(count), np.empty(count)
    for q in range(count):
        i = at[q]
        if q < first[k]:
            low[q], high[q] = max(state[LO, i], 0.0), max(state[HI, i], 0.0)
        else:
            low[q], high[q] = max(model.box_lo[i], -U), min(model.box_hi[i], U)
    for q in range(first[1], count):
        places[at[q] if q >= first[k] else n + at[q]] = -1
    return Cone(first, at[:count].copy(), begin, place, weight, low, high)


@inner_sums
def is_silent(state: Matrix, i: int) -> bool:
    """Is the neuron's output 0, and its side of no use?"""
    phase, lo, hi = state[PHASE, i], state[LO, i], state[HI, i]
    return not (is_open(phase, lo, hi) or is_on(phase, lo) or state[BETA, i] > 0.0)


@njit_sums
def play(model: Model, state: Matrix, cone: Cone, coef: Vector, turns: int, U: float) -> tuple[float, Game]:
    """A proved lower bound of coef.x^(k-1) in the ball, and the lines that it has after some turns."""
    neurons, count, widest = len(cone.begin) - 1, len(cone.at), 0
    game = Game(
        np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(neurons), np.ones(neurons),
        np.zeros(len(cone.place)), np.zeros(neurons),
    )  # fmt: skip
    for q in range(neurons):
        widest = max(widest, cone.begin[q + 1] - cone.begin[q])
        game.lines[q] = 1.0 if state[HI, cone.at[q]] > -state[LO, cone.at[q]] else 0.0
    room = Room(np.empty(widest), np.empty(widest, np.intp), np.empty(widest))
    descend(model, state, cone, game, coef, 0.0, U, room)  # the first point is that of chords
    ascend(model, state, cone, game, 1.0)
    value = -np.inf
    for turn in range(turns):
        pace = 2.0 / (turn + 2.0)
        value = descend(model, state, cone, game, coef, pace, U, room)
        if turn + 1 < turns:
            ascend(model, state, cone, game, pace)
    return value, game


class Room(NamedTuple):
    """For one neuron's inputs, in the order of where they are in their box."""

    far: Vector
    order: Indices
    parts: Vector


@njit_sums
def descend(
    model: Model, state: Matrix, cone: Cone, game: Game, coef: Vector, pace: float, U: float, room: Room
) -> float:
    """From the top to the input: lines that are best at the mean point go into their means, which prove what is
    returned. Rounding as in model.py and bent.py."""
    net, k = model.net, len(cone.first) - 2
    inputs, total, size, error = cone.first[k], 0.0, 0.0, TINY
    for q in range(len(cone.at)):
        game.coef[q] = coef[cone.at[q] - net.noff[k - 1]] if q < cone.first[1] else 0.0
    for q in range(inputs):
        c, i = game.coef[q], cone.at[q]
        phase, lo, hi, beta = state[PHASE, i], state[LO, i], state[HI, i], state[BETA, i]
        if c == 0.0 and beta == 0.0:
            continue
        begin, end, is_first = cone.begin[q], cone.begin[q + 1], q >= cone.first[k - 1]
        b = model.z0[i] if is_first else net.b[i]
        error += (abs(c) + beta) * (model.Q[i] + (U * model.D[i] if is_first else 0.0))
        S, T = (c if is_on(phase, lo) else 0.0) - beta * phase, 0.0  # of z, of the facet
        if is_open(phase, lo, hi):
            if c >= 0.0:
                if pace > 0.0:
                    z = b
                    for t in range(begin, end):
                        z += cone.weight[t] * game.mean[cone.place[t]]
                    game.lines[q] += pace * ((1.0 if z > 0.0 else 0.0) - game.lines[q])
                S = c * game.lines[q]
            else:
                slant, offset = upper(lo, hi)
                if pace > 0.0:
                    choose(cone, game, q, (b, slant, offset), pace, room)
                S, T = c * game.chords[q] * slant, c * (1.0 - game.chords[q])
                total += c * game.chords[q] * offset
                size += abs(c * game.chords[q] * offset)
        total += S * b
        size += abs(S * b)
        for t in range(begin, end):
            game.coef[cone.place[t]] += S * cone.weight[t]
        if T < 0.0:
            e, terms = constant(cone, game, q, b)
            game.constants[q] = e
            total += T * e
            size -= T * terms
            error -= T * OF_FACETS * model.noise * terms
            scale = T / (1.0 - game.chords[q])
            for t in range(begin, end):
                game.coef[cone.place[t]] += scale * game.parts[t] * cone.weight[t]
    for q in range(inputs, len(cone.at)):
        drop = max(-game.coef[q] * cone.low[q], -game.coef[q] * cone.high[q])
        total -= drop
        size += drop
    return total - OWN * error - 4.0 * model.noise * size


@inner_sums
def choose(cone: Cone, game: Game, q: int, line: tuple[float, float, float], pace: float, room: Room) -> None:
    """The facet that is lowest at the mean point, or the chord (bias, slope, offset) if it is lower there."""
    begin, end = cone.begin[q], cone.begin[q + 1]
    b, slant, offset = line
    z = most = b
    for t in range(begin, end):
        p, w = cone.place[t], cone.weight[t]
        low, high, y = cone.low[p], cone.high[p], game.mean[cone.place[t]]
        z += w * y
        most += max(w * low, w * high)
        where = (y - low if w >= 0.0 else high - y) / (high - low) if high > low else 0.0
        n = t - begin  # inserted among those before it
        while n > 0 and room.far[n - 1] > where:
            room.far[n], room.order[n] = room.far[n - 1], room.order[n - 1]
            n -= 1
        room.far[n], room.order[n] = where, t
    # z at most, minus what the inputs so far can take from it: they are in the facet until that is below zero
    left, value, off, on = most, 0.0, 0.0, b
    for n in range(end - begin):
        t = room.order[n]
        p, w = cone.place[t], cone.weight[t]
        low, high = cone.low[p], cone.high[p]
        rise = abs(w) * (high - low)
        part = min(max(left / rise, 0.0), 1.0) if rise > 0.0 else 1.0
        left -= rise
        room.parts[n] = part
        a = part * w
        value += a * game.mean[p]
        off += max(-a * low, -a * high)
        on += max((w - a) * low, (w - a) * high)
    facet = 0.0 if slant * z + offset < value + max(off, on) else 1.0
    game.chords[q] += pace * (1.0 - facet - game.chords[q])
    for n in range(end - begin):
        t = room.order[n]
        game.parts[t] += pace * (facet * room.parts[n] - game.parts[t])


@inner_sums
def constant(cone: Cone, game: Game, q: int, b: float) -> tuple[float, float]:
    """e of the mean facet, and the size of its terms."""
    off, on, terms, rest = 0.0, b, abs(b), 1.0 - game.chords[q]
    for t in range(cone.begin[q], cone.begin[q + 1]):
        p, w = cone.place[t], cone.weight[t]
        low, high = cone.low[p], cone.high[p]
        a = game.parts[t] / rest * w
        off += max(-a * low, -a * high)
        on += max((w - a) * low, (w - a) * high)
        terms += abs(w) * max(abs(low), abs(high))
    return max(off, on), terms


@njit_sums
def ascend(model: Model, state: Matrix, cone: Cone, game: Game, pace: float) -> None:
    """The point where the row is least, and what its lines make of it, into the means. Nothing is proved here."""
    net, k = model.net, len(cone.first) - 2
    for q in range(cone.first[k], len(cone.at)):
        game.out[q] = cone.low[q] if game.coef[q] > 0.0 else cone.high[q]
        game.mean[q] += pace * (game.out[q] - game.mean[q])
    for q in range(cone.first[k] - 1, cone.first[1] - 1, -1):
        i = cone.at[q]
        b = model.z0[i] if q >= cone.first[k - 1] else net.b[i]
        z, facet = b, 0.0
        for t in range(cone.begin[q], cone.begin[q + 1]):
            y = cone.weight[t] * game.out[cone.place[t]]
            z += y
            facet += game.parts[t] * y
        if is_open(state[PHASE, i], state[LO, i], state[HI, i]):
            if game.coef[q] >= 0.0:
                z *= game.lines[q]
            else:
                slant, offset = upper(state[LO, i], state[HI, i])
                z = game.chords[q] * (slant * z + offset) + facet + (1.0 - game.chords[q]) * game.constants[q]
        elif not is_on(state[PHASE, i], state[LO, i]):
            z = 0.0
        game.out[q] = min(max(z, cone.low[q]), cone.high[q])
        game.mean[q] += pace * (game.out[q] - game.mean[q])


class Lines(NamedTuple):
    """The facets of a game's end, neurons in increasing order (facets.Facets)."""

    neurons: Indices
    shares: Vector
    parts: Vector


@njit_sums
def facets_of(model: Model, state: Matrix, cone: Cone, game: Game) -> Lines:
    """The upper lines of a row after its game. An input that is off has any part: it is 0."""
    net, k = model.net, len(cone.first) - 2
    found, entries = 0, 0
    for q in range(len(game.chords)):
        if has_facet(state, cone, game, q):
            found, entries = found + 1, entries + net.ptr[cone.at[q] + 1] - net.ptr[cone.at[q]]
    neurons, shares, parts = np.empty(found, np.intp), np.empty(found), np.empty(entries)
    columns = np.empty(entries, np.intp)
    found, entries = 0, 0
    for depth in range(k - 1, -1, -1):  # layers from the input up
        layer = k - 1 - depth
        mine = cone.at[cone.first[depth] : cone.first[depth + 1]]
        for o in np.argsort(mine):
            q = cone.first[depth] + o
            if not has_facet(state, cone, game, q):
                continue
            i, begin, t = cone.at[q], entries, cone.begin[q]
            neurons[found], shares[found] = i, 1.0 - game.chords[q]
            for s in range(net.ptr[i], net.ptr[i + 1]):
                j = s - net.ptr[i] if net.whole[layer] else net.index[s]
                part = 1.0
                if layer == 0 or not is_silent(state, net.noff[layer - 1] + j):
                    part = min(max(game.parts[t] / shares[found], 0.0), 1.0)
                    t += 1
                if net.data[s] == 0.0:
                    continue
                n = entries  # by increasing column
                while n > begin and columns[n - 1] > j:
                    columns[n], parts[n] = columns[n - 1], parts[n - 1]
                    n -= 1
                columns[n], parts[n] = j, part
                entries += 1
            found += 1
    return Lines(neurons, shares, parts[:entries].copy())


@inner_sums
def has_facet(state: Matrix, cone: Cone, game: Game, q: int) -> bool:
    """Has the neuron an upper line that is not its chord alone?"""
    i = cone.at[q]
    return is_open(state[PHASE, i], state[LO, i], state[HI, i]) and game.coef[q] < 0.0 and game.chords[q] < 1.0


@njit_sums
def slopes_of(cone: Cone, game: Game, slopes: Vector | NDArray[np.float32]) -> None:
    """The lower lines of a row after its game, where it has any."""
    for q in range(len(game.lines)):
        if game.coef[q] > 0.0:
            slopes[cone.at[q]] = game.lines[q]
