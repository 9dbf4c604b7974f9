"""Kernels of pre-activation bounds: backward passes for all neurons of a layer at once, on the cap of the node.

A node's state is a matrix with the rows PHASE, LO, HI, ALPHA, BETA, COEF, POINT (model.py). Rounding margins as there.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import TINY
from layercert.programs.kernels.jit import njit_sums
from layercert.search.adaptive.cap import lowest, minimiser
from layercert.search.adaptive.halfspace import dual_norm
from layercert.search.adaptive.hull import OFF, UNSTABLE, lines
from layercert.search.adaptive.model import HI, LO, PHASE, POINT
from layercert.search.adaptive.products import times, times_transposed

#: How far the kept lower lines of a row move towards its least point at first.
WARM_PACE = 0.3
#: How far the multiplier of the most violated split of a layer moves, in units of the row's largest coefficient there.
BETA_PACE = 1.0


@njit_sums
def tighten(model, state, U, start, stop, g, s, passes):  # type: ignore[no-untyped-def]
    """Bounds of the free unstable neurons of the layers start..stop-1 on the cap (cap.py); False: node is empty.

    s = -inf: on the whole ball of radius U. The lower line of a neuron is the one that touches relu at POINT, the
    node's nearest point, since the cap lies around it. With `passes` > 0 each row has lines of its own, taken up where
    the last pass of any node left them (any slope in [0, 1] is sound): after each pass they move towards the row's own
    least point, and the multipliers of splits that this point violates rise, as `optimise` does for the objective.
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
        rows = np.empty(2 * width, np.intp)
        m = 0
        for i in range(base, base + width):
            if kind[i] == UNSTABLE:
                rows[m] = i
                rows[m + 1] = i
                m += 2
        if m == 0:
            continue
        slopes, coef, pace = np.empty((m, base)), np.empty((m, base)), np.empty(m)
        betas = np.zeros((m, base))
        kept = passes > 0 and len(model.slopes) > 0
        for r in range(m):
            at = 2 * rows[r] + r % 2
            if kept and model.slopes[at, 0] >= 0.0:
                for i in range(base):
                    slopes[r, i] = model.slopes[at, i]
                    betas[r, i] = max(model.betas[at, i] * state[PHASE, i], 0.0)
                pace[r] = WARM_PACE
            else:
                for i in range(base):
                    slopes[r, i] = 1.0 if state[POINT, i] > 0.0 else 0.0
                pace[r] = 1.0
        best = np.full(m, -np.inf)
        lams = np.empty(m)
        for turn in range(max(passes, 1)):
            A = np.empty((m, noff[k] - noff[k - 1]))
            for r in range(m):
                at = woff[k] + (rows[r] - base) * A.shape[1]
                flip = 1.0 - 2.0 * (r % 2)
                for j in range(A.shape[1]):
                    A[r, j] = flip * model.Wh[at + j]
            c, error, drift, G = rows_backward(model, state, A, rows, k, kind, su, iu, slopes, betas, coef)
            for r in range(m):
                low, lams[r] = lowest(G[r], 1.0, U, model, g, s, g_size, warm)
                best[r] = max(best[r], c[r] + low - error[r] - U * drift[r])
            if kept or turn + 1 < passes:
                rows_touch(model, state, k, kind, su, iu, slopes, betas, coef, G, lams, U, g, pace / (turn + 1.0))
        if kept:
            for r in range(m):
                at = 2 * rows[r] + r % 2
                for i in range(base):
                    model.slopes[at, i] = slopes[r, i]
                    if state[PHASE, i] != 0.0:
                        model.betas[at, i] = betas[r, i] * state[PHASE, i]
        for r in range(0, m, 2):
            if not narrow(state, rows[r], best[r], -best[r + 1]):
                return False
    return True


@njit_sums
def rows_backward(model, state, A, rows, k, kind, su, iu, slopes, betas, coef):  # type: ignore[no-untyped-def]
    """c, error, drift, G with G w + c - error - drift ||w|| <= the rows' values, through the layers k-1..0."""
    noff, woff = model.noff, model.woff
    m = len(A)
    c, error, drift = np.empty(m), np.empty(m), np.zeros(m)
    for r in range(m):
        c[r] = model.b[rows[r]] * (1.0 - 2.0 * (r % 2))
        error[r] = model.noise * abs(c[r]) + TINY
    G = A
    for layer in range(k - 1, -1, -1):
        below, n = noff[layer], noff[layer + 1] - noff[layer]
        for r in range(m):
            total, slip = c[r], 0.0
            for j in range(n):
                i = below + j
                a = G[r, j]
                coef[r, i] = a
                slip += (abs(a) + betas[r, i]) * model.Q[i]
                if kind[i] == UNSTABLE:
                    if a < 0.0:
                        total += a * iu[i]
                        a *= su[i]
                    else:
                        a *= slopes[r, i]
                else:
                    if kind[i] == OFF:
                        a = 0.0
                    a -= betas[r, i] * state[PHASE, i]
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
def rows_touch(model, state, k, kind, su, iu, slopes, betas, coef, G, lams, U, g, pace):  # type: ignore[no-untyped-def]
    """Move each row's lower lines towards those that touch relu at the row's least point on the cap, and its betas."""
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
                unit = max(unit, abs(coef[r, below + j]))
                if state[PHASE, below + j] != 0.0:
                    size = max(size, abs(Z[r, j] + (model.z0[below + j] if layer == 0 else model.b[below + j])))
            for j in range(n):
                i = below + j
                z = Z[r, j] + (model.z0[i] if layer == 0 else model.b[i])
                if state[PHASE, i] != 0.0 and size > 0.0:
                    betas[r, i] = max(betas[r, i] - BETA_PACE * pace[r] * unit * state[PHASE, i] * z / size, 0.0)
                if kind[i] == OFF:
                    z = 0.0
                elif kind[i] == UNSTABLE:
                    touch = 1.0 if z > 0.0 else 0.0
                    z = slopes[r, i] * z if coef[r, i] > 0.0 else su[i] * z + iu[i]
                    slopes[r, i] += pace[r] * (touch - slopes[r, i])
                Z[r, j] = z
        h = Z


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
