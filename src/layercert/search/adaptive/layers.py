"""Kernels of pre-activation bounds: backward passes for many neurons of a layer at once, at the node's unsafe points.

A row is the pass that bounds one neuron from one side. Rows are lanes: a matrix of coefficients has a line per neuron
and a column per row, so that a weight meets all rows at once, and lines that no row reads are skipped. Rounding margins
as in model.py.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import TINY, Indices, Mask, Matrix, Vector
from layercert.compiled.jit import njit, njit_sums
from layercert.compiled.packed import row_add, times_layer, times_transposed
from layercert.compiled.timer import Timer, late
from layercert.search.adaptive.cap import Cap, lowest, minimiser
from layercert.search.adaptive.lanes import Constants
from layercert.search.adaptive.lines import is_on, is_open, upper
from layercert.search.adaptive.model import COEF, HI, LO, OWN, PHASE, POINT, Kept, Model
from layercert.search.adaptive.rows import NeuronRows, Objective, Sums, keep, place, recall
from layercert.search.adaptive.trail import (
    ROW_PARTS,
    Trail,
    Won,
    in_parts,
    is_worth,
    no_winners,
    note,
    note_own,
    note_shared,
    win,
)

#: Rows per pass: so many lanes of a layer of a thousand neurons still fit into the cache.
LANES = 64
#: How far the multiplier of the most violated split of a layer moves, in units of the row's largest coefficient there.
BETA_PACE = 1.0
#: A row's pull grows by this share of what the cap asks for beyond it, or grows and falls by this share of itself.
PULL_PACE, PULL_SHARE = 0.3, 0.5
#: A pull that grows without a cap is at least this part of what makes F move the row as far as its own neuron does. One
#: that began at 0 stayed there, and one that fell for a hundred nodes took as long to be of use again.
PULL_START = 0.1
#: Pulls stay far from the ends of the range of doubles.
MOST_PULL = 1e30


@njit_sums
def tighten(model: Model, kept: Kept, state: Matrix, cap: Cap, above: Constants, passes: int, timer: Timer) -> bool:
    """Bounds of the open neurons of all layers at unsafe points; False: the node is empty.

    Unsafe points lie on the cap, and the objective F, bounded from below by COEF and `above` (`Pass`), is at most 0
    there. The lower line of a neuron is the one that touches relu at POINT, the node's nearest point, since the cap is
    around it.

    With `passes` > 0 each row has parameters of its own, taken up where the last pass of any node left them (all are
    sound): lower lines, multipliers of the node's splits, and a pull >= 0. The row's function is z + pull F <= z, and
    both parts go down the layers as one; the cap alone takes F as it was relaxed by itself, which gives away much of it
    where z and F want different lines. After each pass the lines move towards the row's own least point, and the
    multipliers rise or fall with what this point violates, as `optimise` does for the objective.
    """
    for k in range(len(model.net.noff) - 1):
        if not tighten_layer(model, kept, state, cap, above, k, passes, timer):
            return False
        if late(timer):
            break
    return True


@njit_sums
def tighten_layer(
    model: Model, kept: Kept, state: Matrix, cap: Cap, above: Constants, k: int, passes: int, timer: Timer
) -> bool:
    """The same for one layer."""
    net = model.net
    if k == 0:
        return tighten_first(model, kept, state, cap)
    neurons = np.empty(net.noff[k + 1] - net.noff[k], np.intp)
    count = 0
    for i in net.order[net.noff[k] : net.noff[k + 1]]:
        if is_open(state[PHASE, i], state[LO, i], state[HI, i]):
            neurons[count] = i
            count += 1
    own = passes > 0 and count > 0 and kept.at[place(neurons[0], 1)] > kept.at[place(neurons[0], 0)]
    for start in range(0, count, LANES // 2):
        if late(timer):
            break
        part = neurons[start : min(start + LANES // 2, count)]
        if not tighten_rows(model, kept, state, cap, above, k, part, passes if own else 0):
            return False
    return True


@njit_sums
def tighten_first(model: Model, kept: Kept, state: Matrix, cap: Cap) -> bool:
    """The first layer's functions are linear: their own least values on the cap."""
    net, warm, row = model.net, np.zeros(1), np.zeros(model.net.inputs)
    best, lams = np.empty(2), np.empty(2)
    for i in range(net.noff[1]):
        if not is_open(state[PHASE, i], state[LO, i], state[HI, i]):
            continue
        row[:] = 0.0
        row_add(net, 0, i, 1.0, row, 0)
        error = model.Q[i] + cap.U * model.D[i]
        for r in range(2):
            sign = 1.0 - 2.0 * r
            low, lams[r] = lowest(row, sign, cap, model, warm)
            best[r] = sign * model.z0[i] + low - error
            if len(kept.trail.node) > 0 and is_worth(state[LO, i], state[HI, i], sign, best, r):
                note(kept.trail, i, sign, 0.0, lams[r])
        if not narrow(state, i, best[0], -best[1]):
            return False
    return True


@njit_sums
def tighten_rows(
    model: Model, kept: Kept, state: Matrix, cap: Cap, above: Constants, k: int, neurons: Indices, passes: int
) -> bool:
    """Both bounds of some neurons of layer k > 0."""
    net = model.net
    base, under, m = net.noff[k], net.noff[k - 1], 2 * len(neurons)
    rows, pace = recall(kept, state, neurons, base, passes > 0)
    objective = Objective(under, state[COEF, under:base], above.value[k], above.error[k])
    if len(rows.slopes) > base:
        assert len(above.value) > k + 1
        objective = Objective(base, state[COEF, base : net.noff[k + 1]], above.value[k + 1], above.error[k + 1])
    best, lams, warm, noted = np.full(m, -np.inf), np.empty(m), np.zeros(1), len(kept.trail.node) > 0
    won = Won(np.zeros(m), np.zeros(m), rows.slopes.copy(), rows.betas.copy()) if noted else no_winners()
    for turn in range(max(passes, 1)):
        if noted:
            for i in range(len(rows.slopes)):
                in_parts(rows.slopes[i], ROW_PARTS)
        sums, G = rows_backward(model, state, rows, k, objective)
        for r in range(m):
            low, lams[r] = lowest(G[r], 1.0, cap, model, warm)
            value = sums.c[r] + low - sums.error[r] - cap.U * sums.drift[r]
            if noted and value > best[r]:
                win(won, r, rows.slopes, rows.betas, rows.pulls[r], lams[r])
            best[r] = max(best[r], value)
        if passes > 0:
            h = rows_touch(model, state, rows, k, G, lams, cap, pace / (turn + 1.0))
            repull(model, state, rows, k, objective, h, lams)
    if passes > 0:
        keep(kept, state, rows)
    if noted:
        note_rows(kept.trail, state, rows, won, best)
    for n in range(len(neurons)):  # noqa: SIM110 - compiled
        if not narrow(state, neurons[n], best[2 * n], -best[2 * n + 1]):
            return False
    return True


@njit
def note_rows(trail: Trail, state: Matrix, rows: NeuronRows, won: Won, best: Vector) -> None:
    """What rows of one layer proved, for a record."""
    for r in range(len(best)):
        i = rows.neurons[r]
        if is_worth(state[LO, i], state[HI, i], rows.sides[r], best, r):
            at = note(trail, i, rows.sides[r], won.pulls[r], won.lams[r])
            if rows.own:
                note_own(trail, at, won.slopes[:, r], won.betas[:, r], state[PHASE])
            else:
                note_shared(trail, at, state[POINT])


@njit_sums
def rows_backward(model: Model, state: Matrix, rows: NeuronRows, k: int, objective: Objective) -> tuple[Sums, Matrix]:
    """The sums and G of the rows, through the layers k-1..0."""
    net, m = model.net, len(rows.neurons)
    sums = Sums(np.empty(m), np.empty(m), np.zeros(m))
    if objective.first == net.noff[k]:
        A, live = begin_above(model, state, rows, k, objective, sums)
    else:
        A, live = begin_below(model, rows, k, objective, sums)
    for layer in range(k - 1, -1, -1):
        relax_lines(model, state, rows, layer, A, live, sums)
        A, live = times_transposed(net, layer, A, live)
    return sums, A.T.copy()


@njit_sums
def begin_below(model: Model, rows: NeuronRows, k: int, objective: Objective, sums: Sums) -> tuple[Matrix, Mask]:
    """The coefficients of the layer below, F being known as a function of that layer's outputs."""
    net, m, under = model.net, len(rows.neurons), objective.first
    A, live = np.zeros((len(objective.coef), m)), np.zeros(len(objective.coef), np.bool_)
    upper = objective.error
    for j in range(len(A)):  # entries of A are rounded, whatever cancels
        upper += 2.0 * abs(objective.coef[j]) * model.Q[under + j]
    for r in range(m):
        i, pull = rows.neurons[r], rows.pulls[r]
        own, pulled = model.net.b[i] * rows.sides[r], pull * objective.value
        sums.c[r] = own + pulled
        sums.error[r] = model.noise * (abs(own) + abs(pulled)) + OWN * pull * upper + TINY
        at = net.ptr[i]
        for t in range(at, net.ptr[i + 1]):
            j = t - at if net.whole[k] else net.index[t]
            A[j, r] = rows.sides[r] * net.data[t]
            live[j] = True
        if pull > 0.0:
            for j in range(len(A)):
                if objective.coef[j] != 0.0:
                    A[j, r] += pull * objective.coef[j]
                    live[j] = True
    return A, live


@njit_sums
def begin_above(
    model: Model, state: Matrix, rows: NeuronRows, k: int, objective: Objective, sums: Sums
) -> tuple[Matrix, Mask]:
    """The same, F being known as a function of the outputs of the rows' own layer, which has lines for each row.

    The row's neuron has the coefficient 1 beside what its line gives it; its Q, twice, is the margin of that.
    """
    net, m, base = model.net, len(rows.neurons), objective.first
    A, live = np.empty((len(objective.coef), m)), objective.coef != 0.0
    upper = objective.error
    for j in range(len(A)):
        upper += 2.0 * abs(objective.coef[j]) * model.Q[base + j]
        for r in range(m):
            A[j, r] = rows.pulls[r] * objective.coef[j]
    for r in range(m):
        pulled, own = rows.pulls[r] * objective.value, 2.0 * model.Q[rows.neurons[r]]
        sums.c[r] = pulled
        sums.error[r] = model.noise * abs(pulled) + OWN * (rows.pulls[r] * upper + own) + TINY
    relax_lines(model, state, rows, k, A, live, sums)
    for r in range(m):
        i = rows.neurons[r]
        if not live[i - base]:
            A[i - base, :] = 0.0
            live[i - base] = True
        A[i - base, r] += rows.sides[r]
        sums.c[r] += rows.sides[r] * net.b[i]
    return times_transposed(net, k, A, live)


@njit_sums
def relax_lines(model: Model, state: Matrix, rows: NeuronRows, layer: int, A: Matrix, live: Mask, sums: Sums) -> None:
    """Coefficients of x^layer become those of z: every neuron is replaced by the line that counts for the row."""
    c, error, drift = sums
    net, m = model.net, A.shape[1]
    first = net.noff[layer]
    for j in range(len(A)):
        i = first + j
        phase, lo, hi = state[PHASE, i], state[LO, i], state[HI, i]
        split = rows.own and phase != 0.0
        if not (live[j] or split):
            continue
        line, Q = A[j], model.Q[i]
        if rows.own:
            for r in range(m):
                rows.coef[i, r] = line[r] if live[j] else 0.0
        if not live[j]:
            for r in range(m):
                line[r] = 0.0
        for r in range(m):
            error[r] += abs(line[r]) * Q
        if is_open(phase, lo, hi):
            slant, offset = upper(lo, hi)
            if rows.own:
                slopes = rows.slopes[i]
                for r in range(m):
                    low = min(line[r], 0.0)
                    c[r] += low * offset
                    line[r] = low * slant + max(line[r], 0.0) * slopes[r]
            else:
                slope = 1.0 if state[POINT, i] > 0.0 else 0.0
                for r in range(m):
                    low = min(line[r], 0.0)
                    c[r] += low * offset
                    line[r] = low * slant + max(line[r], 0.0) * slope
        elif not is_on(phase, lo):
            if not split:
                live[j] = False
                continue
            for r in range(m):
                line[r] = 0.0
        if split:
            betas = rows.betas[i]
            for r in range(m):
                line[r] -= betas[r] * phase
                error[r] += betas[r] * Q
        live[j] = True
        b = net.b[i] if layer > 0 else model.z0[i]
        for r in range(m):
            c[r] += line[r] * b
        if layer == 0:
            D = model.D[i]
            for r in range(m):
                drift[r] += abs(line[r]) * D


@njit_sums
def rows_touch(
    model: Model, state: Matrix, rows: NeuronRows, k: int, G: Matrix, lams: Vector, cap: Cap, pace: Vector
) -> Matrix:
    """Move each row's lower lines towards those that touch relu at the row's least point on the cap, and its betas.

    Returns the relaxed activations of the last layer that has lines, k-1 or k, at that point, a column per row.
    """
    net, m = model.net, len(G)
    points = np.empty_like(G)
    for r in range(m):
        minimiser(G[r], lams[r], cap, model, points[r])
    h = points.T.copy()
    unit, size = np.empty(m), np.empty(m)
    for layer in range(k + (len(rows.slopes) > net.noff[k])):
        Z = times_layer(net, layer, h)
        first = net.noff[layer]
        unit[:], size[:] = 1.0 if layer == k else 0.0, 0.0  # the row's own neuron has the coefficient 1
        for j in range(len(Z)):
            i = first + j
            b, coef, z = net.b[i] if layer > 0 else model.z0[i], rows.coef[i], Z[j]
            for r in range(m):
                z[r] += b
                unit[r] = max(unit[r], abs(coef[r]))
            if state[PHASE, i] != 0.0:
                for r in range(m):
                    size[r] = max(size[r], abs(z[r]))
        for r in range(m):
            unit[r] *= BETA_PACE * pace[r] / size[r] if size[r] > 0.0 else 0.0
        for j in range(len(Z)):
            i = first + j
            phase, lo, hi, z = state[PHASE, i], state[LO, i], state[HI, i], Z[j]
            if phase != 0.0:
                betas = rows.betas[i]
                for r in range(m):
                    betas[r] = max(betas[r] - unit[r] * phase * z[r], 0.0)
            if is_open(phase, lo, hi):
                slant, offset = upper(lo, hi)
                slopes, coef = rows.slopes[i], rows.coef[i]
                is_low = layer == k and state[COEF, i] > 0.0  # in F, whatever the pull
                for r in range(m):
                    touch = 1.0 if z[r] > 0.0 else 0.0
                    z[r] = slopes[r] * z[r] if is_low or coef[r] > 0.0 else slant * z[r] + offset
                    slopes[r] += pace[r] * (touch - slopes[r])
            elif not is_on(phase, lo):
                for r in range(m):
                    z[r] = 0.0
        h = Z
    return h


@njit_sums
def repull(
    model: Model, state: Matrix, rows: NeuronRows, k: int, objective: Objective, h: Matrix, lams: Vector
) -> None:
    """A row pulls harder when the objective is positive at its least point, that is when the point is not unsafe.

    Where the cap says nothing (lam = 0, as in all nodes without a bound yet) the pull grows by a share of itself. So
    that one of 0 grows too, it begins in proportion to how far z and F can move with the layer below.
    """
    net, under = model.net, model.net.noff[k - 1]
    value, reach = np.full(len(lams), objective.value), 0.0
    for j in range(len(h)):
        a = objective.coef[j]
        if a != 0.0:
            reach += abs(a) * max(state[HI, objective.first + j], 0.0)
            for r in range(len(value)):
                value[r] += a * h[j, r]
    for r in range(len(value)):
        pull = rows.pulls[r]
        if value[r] < 0.0:
            pull *= 1.0 - PULL_SHARE
        elif lams[r] > 0.0:
            pull += PULL_PACE * lams[r]
        else:
            own, at = 0.0, net.ptr[rows.neurons[r]]
            for t in range(at, net.ptr[rows.neurons[r] + 1]):
                j = t - at if net.whole[k] else net.index[t]
                own += abs(net.data[t]) * max(state[HI, under + j], 0.0)
            pull = max((1.0 + PULL_SHARE) * pull, PULL_START * own / reach if reach > 0.0 else 0.0)
        rows.pulls[r] = min(pull, MOST_PULL) if pull > 1.0 / MOST_PULL else 0.0


@njit_sums
def narrow(state: Matrix, i: int, lo: float, hi: float) -> bool:
    """Take the better of old and new bounds (and of the phase); False when nothing is left."""
    lo, hi = max(lo, state[LO, i]), min(hi, state[HI, i])
    if state[PHASE, i] > 0:
        lo = max(lo, 0.0)
    elif state[PHASE, i] < 0:
        hi = min(hi, 0.0)
    state[LO, i], state[HI, i] = lo, hi
    return not lo > hi
