"""Kernels of pre-activation bounds: backward passes for all neurons of a layer at once, at the node's unsafe points.

A node's state is a matrix with the rows PHASE, LO, HI, ALPHA, BETA, COEF, POINT (model.py). Rounding margins as there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import TINY, Indices, Matrix, Vector
from layercert.compiled.jit import njit_sums
from layercert.search.adaptive.cap import lowest, minimiser
from layercert.search.adaptive.halfspace import dual_norm
from layercert.search.adaptive.hull import OFF, UNSTABLE, lines
from layercert.search.adaptive.model import COEF, HI, LO, PHASE, POINT
from layercert.search.adaptive.products import times, times_transposed

#: How far the kept lower lines of a row move towards its least point at first.
WARM_PACE = 0.3
#: How far the multiplier of the most violated split of a layer moves, in units of the row's largest coefficient there.
BETA_PACE = 1.0
#: A row's pull grows by this share of what the cap asks for beyond it, or grows and falls by this share of itself.
PULL_PACE, PULL_SHARE = 0.3, 0.5
#: Pulls stay far from the ends of the range of doubles.
MOST_PULL = 1e30


class Rows(NamedTuple):
    """Backward passes of one layer: row r bounds a neuron from below where r is even, from above where it is odd."""

    neurons: Indices
    slopes: Matrix  # of the lower lines of all neurons below
    betas: Matrix  # multipliers of splits below
    pulls: Vector  # multiplier of the objective
    coef: Matrix  # coefficients of the last pass


@njit_sums
def tighten(model, state, U, start, stop, g, s, above, passes):  # type: ignore[no-untyped-def]
    """Bounds of the free unstable neurons of the layers start..stop-1 at unsafe points; False: the node is empty.

    Unsafe points lie on the cap of the halfspace g, s (cap.py; s = -inf: the whole ball of radius U), and the objective
    F, whose upper part COEF and `above` are (bound.py), is at most 0 there. The lower line of a neuron is the one that
    touches relu at POINT, the node's nearest point, since the cap lies around it.

    With `passes` > 0 each row has parameters of its own, taken up where the last pass of any node left them (all are
    sound): lower lines, multipliers of the node's splits, and a pull >= 0. The row's function is z + pull F <= z, and
    both parts go down the layers as one; the cap alone takes F as it was relaxed by itself, which gives away much of it
    where z and F want different lines. After each pass the lines move towards the row's own least point, and the
    multipliers rise or fall with what this point violates, as `optimise` does for the objective.
    """
    warm = np.zeros(1)
    g_size = dual_norm(g, model.p) if s > -np.inf else 0.0
    s = max(s, -1e300)  # zero times it must be zero
    noff, woff = model.noff, model.woff
    N = noff[len(noff) - 1]
    kind, su, iu = np.empty(N, np.int8), np.empty(N), np.empty(N)
    for k in range(start, stop):
        base, width = noff[k], noff[k + 1] - noff[k]
        if k == 0:
            for i in range(width):
                if state[LO, i] >= 0.0 or state[HI, i] <= 0.0:
                    continue
                error = model.Q[i] + U * model.D[i]
                low, _ = lowest(model.W0[i], 1.0, U, model, g, s, g_size, warm)
                high, _ = lowest(model.W0[i], -1.0, U, model, g, s, g_size, warm)
                if not narrow(state, i, model.z0[i] + low - error, model.z0[i] - high + error):
                    return False
            continue
        lines(state, kind, su, iu)
        neurons = np.empty(2 * width, np.intp)
        m = 0
        for i in range(base, base + width):
            if kind[i] == UNSTABLE:
                neurons[m] = i
                neurons[m + 1] = i
                m += 2
        if m == 0:
            continue
        rows = Rows(neurons[:m], np.empty((m, base)), np.zeros((m, base)), np.zeros(m), np.empty((m, base)))
        kept = passes > 0 and len(model.slopes) > 0
        pace = recall(model, state, rows, kept)
        before, under = noff[k - 1], noff[k] - noff[k - 1]
        best, lams = np.full(m, -np.inf), np.empty(m)
        for turn in range(max(passes, 1)):
            A = np.empty((m, under))
            for r in range(m):
                at = woff[k] + (neurons[r] - base) * under
                flip = 1.0 - 2.0 * (r % 2)
                for j in range(under):
                    A[r, j] = flip * model.Wh[at + j] + rows.pulls[r] * state[COEF, before + j]
            c, error, drift, G = rows_backward(model, state, A, rows, k, kind, su, iu, above)
            for r in range(m):
                low, lams[r] = lowest(G[r], 1.0, U, model, g, s, g_size, warm)
                best[r] = max(best[r], c[r] + low - error[r] - U * drift[r])
            if kept or turn + 1 < passes:
                h = rows_touch(model, state, rows, k, kind, su, iu, G, lams, U, g, pace / (turn + 1.0))
                repull(state, rows, k, before, h, lams, above)
        if kept:
            keep(model, state, rows)
        for r in range(0, m, 2):
            if not narrow(state, neurons[r], best[r], -best[r + 1]):
                return False
    return True


@njit_sums
def recall(model, state, rows, kept):  # type: ignore[no-untyped-def]
    """Fill the rows' parameters with those of their last pass, or for a first one; returns how far lines may move."""
    m, base = rows.slopes.shape
    pace = np.ones(m)
    for r in range(m):
        at = 2 * rows.neurons[r] + r % 2
        if kept and model.slopes[at, 0] >= 0.0:
            for i in range(base):
                rows.slopes[r, i] = model.slopes[at, i]
                rows.betas[r, i] = max(model.betas[at, i] * state[PHASE, i], 0.0)
            rows.pulls[r] = model.pulls[at]
            pace[r] = WARM_PACE
        else:
            for i in range(base):
                rows.slopes[r, i] = 1.0 if state[POINT, i] > 0.0 else 0.0
    return pace


@njit_sums
def keep(model, state, rows):  # type: ignore[no-untyped-def]
    """For `recall` at the next pass, of this node or any other."""
    m, base = rows.slopes.shape
    for r in range(m):
        at = 2 * rows.neurons[r] + r % 2
        model.pulls[at] = rows.pulls[r]
        for i in range(base):
            model.slopes[at, i] = rows.slopes[r, i]
            if state[PHASE, i] != 0.0:
                model.betas[at, i] = rows.betas[r, i] * state[PHASE, i]


@njit_sums
def rows_backward(model, state, A, rows, k, kind, su, iu, above):  # type: ignore[no-untyped-def]
    """c, error, drift, G with G w + c - error - drift ||w|| <= the rows' values, through the layers k-1..0."""
    noff, woff = model.noff, model.woff
    m = len(A)
    c, error, drift = np.empty(m), np.empty(m), np.zeros(m)
    upper = above[1, k]
    for i in range(noff[k - 1], noff[k]):  # entries of A are rounded, whatever cancels
        upper += 2.0 * abs(state[COEF, i]) * model.Q[i]
    for r in range(m):
        own, pulled = model.b[rows.neurons[r]] * (1.0 - 2.0 * (r % 2)), rows.pulls[r] * above[0, k]
        c[r] = own + pulled
        error[r] = model.noise * (abs(own) + abs(pulled)) + 1.01 * rows.pulls[r] * upper + TINY
    G = A
    for layer in range(k - 1, -1, -1):
        below, n = noff[layer], noff[layer + 1] - noff[layer]
        for r in range(m):
            total, slip = c[r], 0.0
            for j in range(n):
                i = below + j
                a, beta = G[r, j], rows.betas[r, i]
                rows.coef[r, i] = a
                slip += (abs(a) + beta) * model.Q[i]
                if kind[i] == UNSTABLE:
                    if a < 0.0:
                        total += a * iu[i]
                        a *= su[i]
                    else:
                        a *= rows.slopes[r, i]
                else:
                    if kind[i] == OFF:
                        a = 0.0
                    a -= beta * state[PHASE, i]
                G[r, j] = a
                total += a * (model.b[i] if layer > 0 else model.z0[i])
                if layer == 0:
                    drift[r] += abs(a) * model.D[i]
            c[r] = total
            error[r] += slip
        if layer > 0:
            under = noff[layer] - noff[layer - 1]
            G = times(G, model.Wh[woff[layer] : woff[layer] + n * under].reshape((n, under)))
        else:
            G = times(G, model.W0)
    return c, error, drift, G


@njit_sums
def rows_touch(model, state, rows, k, kind, su, iu, G, lams, U, g, pace):  # type: ignore[no-untyped-def]
    """Move each row's lower lines towards those that touch relu at the row's least point on the cap, and its betas.

    Returns the relaxed activations of layer k-1 at that point.
    """
    noff, woff = model.noff, model.woff
    m = len(G)
    h = np.empty_like(G)
    for r in range(m):
        minimiser(G[r], lams[r], U, model, g, h[r])
    for layer in range(k):
        below, n = noff[layer], noff[layer + 1] - noff[layer]
        if layer == 0:
            Z = times_transposed(h, model.W0)
        else:
            under = noff[layer] - noff[layer - 1]
            Z = times_transposed(h, model.Wh[woff[layer] : woff[layer] + n * under].reshape((n, under)))
        for r in range(m):
            unit, size = 0.0, 0.0
            for j in range(n):
                unit = max(unit, abs(rows.coef[r, below + j]))
                if state[PHASE, below + j] != 0.0:
                    size = max(size, abs(Z[r, j] + (model.z0[below + j] if layer == 0 else model.b[below + j])))
            for j in range(n):
                i = below + j
                z = Z[r, j] + (model.z0[i] if layer == 0 else model.b[i])
                if state[PHASE, i] != 0.0 and size > 0.0:
                    move = BETA_PACE * pace[r] * unit * state[PHASE, i] * z / size
                    rows.betas[r, i] = max(rows.betas[r, i] - move, 0.0)
                if kind[i] == OFF:
                    z = 0.0
                elif kind[i] == UNSTABLE:
                    touch = 1.0 if z > 0.0 else 0.0
                    z = rows.slopes[r, i] * z if rows.coef[r, i] > 0.0 else su[i] * z + iu[i]
                    rows.slopes[r, i] += pace[r] * (touch - rows.slopes[r, i])
                Z[r, j] = z
        h = Z
    return h


@njit_sums
def repull(state, rows, k, before, h, lams, above):  # type: ignore[no-untyped-def]
    """A row pulls harder when the objective is positive at its least point, that is when the point is not unsafe."""
    for r in range(len(h)):
        value = above[0, k]
        for j in range(h.shape[1]):
            value += state[COEF, before + j] * h[r, j]
        pull = rows.pulls[r]
        if value < 0.0:
            pull *= 1.0 - PULL_SHARE
        elif lams[r] > 0.0:
            pull += PULL_PACE * lams[r]
        else:
            pull *= 1.0 + PULL_SHARE
        rows.pulls[r] = min(pull, MOST_PULL) if pull > 1.0 / MOST_PULL else 0.0


@njit_sums
def narrow(state, i, lo, hi):  # type: ignore[no-untyped-def]
    """Take the better of old and new bounds (and of the phase); False when nothing is left."""
    lo, hi = max(lo, state[LO, i]), min(hi, state[HI, i])
    if state[PHASE, i] > 0:
        lo = max(lo, 0.0)
    elif state[PHASE, i] < 0:
        hi = min(hi, 0.0)
    state[LO, i], state[HI, i] = lo, hi
    return not lo > hi
