"""Kernels of one node: the distance bound optimised over alpha and beta, and rounds of tightening around it."""

from __future__ import annotations

import numpy as np

from layercert.compiled.dense import clear, copy, copy_rows
from layercert.compiled.jit import njit_sums
from layercert.search.adaptive.halfspace import distance
from layercert.search.adaptive.hull import OFF, ON, UNSTABLE, fold, lines, triangles
from layercert.search.adaptive.layers import tighten
from layercert.search.adaptive.model import ALPHA, BETA, COEF, PHASE, POINT

#: The layer from which on all are tightened. Typed: for the constant 0 numba would compile `tighten` a second time.
ALL = np.int64(0)
#: Multipliers of splits move by this share of their layer's largest coefficient, more while planes make the bound rise.
LEAST_REACH, MOST_REACH = 0.05, 0.3
#: A plane moves to the last cut by 1 / folds of the way, and by this much at least.
LEAST_FOLD = 0.05


@njit_sums
def backward(model, state, mu, first, relaxed, S, g, above):  # type: ignore[no-untyped-def]
    """g.w + s - drift ||w|| <= F(x + w) on the node, for the rows first.. weighted by mu.

    Fills COEF, S and g; returns s (its error taken off) and the drift. For each layer k, `above` takes t_k and e_k with
    COEF.x^(k-1) + t_k - e_k <= F(x + w): the same function, as far as the layers k.. are concerned.
    """
    noff, woff = model.noff, model.woff
    L = len(noff) - 1
    total, error, drift = 0.0, 0.0, 0.0
    base, n = noff[L - 1], noff[L] - noff[L - 1]
    for j in range(n):
        state[COEF, base + j] = 0.0
    for r in range(len(mu)):
        if mu[r] != 0.0:
            total += mu[r] * model.c[first + r]
            error += mu[r] * model.row_error[first + r]
            for j in range(n):
                state[COEF, base + j] += mu[r] * model.R[first + r, j]
    for k in range(L - 1, -1, -1):
        base, n = noff[k], noff[k + 1] - noff[k]
        for i in range(base, base + n):
            a, beta = state[COEF, i], state[BETA, i]
            error += (abs(a) + beta) * model.Q[i]
            if relaxed.kind[i] == UNSTABLE:
                if a >= 0.0:
                    a *= state[ALPHA, i]
                elif k == 0:
                    total += a * relaxed.iu[i]
                    a *= relaxed.su[i]
                else:  # its plane speaks of the layer below
                    S[i] = 0.0
                    total += a * relaxed.q[i]
                    continue
            else:
                if relaxed.kind[i] == OFF:
                    a = 0.0
                a -= beta * state[PHASE, i]
            S[i] = a
            total += a * (model.b[i] if k > 0 else model.z0[i])
        above[0, k], above[1, k] = total, 1.01 * error
        if k > 0:
            below, m = noff[k - 1], noff[k] - noff[k - 1]
            for j in range(m):
                state[COEF, below + j] = 0.0
            for i in range(base, base + n):
                at = woff[k] + (i - base) * m
                if relaxed.kind[i] == UNSTABLE and state[COEF, i] < 0.0:
                    for j in range(m):
                        state[COEF, below + j] += state[COEF, i] * relaxed.P[at + j]
                elif S[i] != 0.0:
                    for j in range(m):
                        state[COEF, below + j] += S[i] * model.Wh[at + j]
    clear(g)
    for i in range(noff[1]):
        if S[i] != 0.0:
            drift += abs(S[i]) * model.D[i]
            for j in range(len(g)):
                g[j] += S[i] * model.W0[i, j]
    return total - 1.01 * error, 1.01 * drift


@njit_sums
def forward(model, state, relaxed, w, z):  # type: ignore[no-untyped-def]
    """The relaxed network at x + w, every neuron on the line or plane that the backward pass used for it."""
    noff, woff = model.noff, model.woff
    L = len(noff) - 1
    n0 = len(w)
    h = np.empty(noff[L])
    for k in range(L):
        base, n = noff[k], noff[k + 1] - noff[k]
        below, m = (0, n0) if k == 0 else (noff[k - 1], noff[k] - noff[k - 1])
        for i in range(base, base + n):
            total = 0.0
            if k == 0:
                for j in range(n0):
                    total += model.W0[i, j] * w[j]
                total += model.z0[i]
            else:
                at = woff[k] + (i - base) * m
                for j in range(m):
                    total += model.Wh[at + j] * h[below + j]
                total += model.b[i]
            z[i] = total
            if relaxed.kind[i] == OFF:
                h[i] = 0.0
            elif relaxed.kind[i] == ON:
                h[i] = total
            elif state[COEF, i] >= 0.0:
                h[i] = state[ALPHA, i] * total
            elif k == 0:
                h[i] = relaxed.su[i] * total + relaxed.iu[i]
            else:
                total = relaxed.q[i]
                at = woff[k] + (i - base) * m
                for j in range(m):
                    total += relaxed.P[at + j] * h[below + j]
                h[i] = total
    return h


@njit_sums
def optimise(
    model, state, mu, first, U, steps, every, relaxed, best_w
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Maximise the proved distance bound over alpha, beta (and mu): Adam on its supergradient; stops at U.

    After every `every` steps the upper planes are folded at the nearest point (0: never).
    Leaves the best alpha, beta and coefficients in the state, mu in mu, planes in `relaxed`, the nearest point of the
    last halfspace in best_w and its relaxed pre-activations in POINT. steps = 0: one evaluation as the state is.
    Where nothing is proved the (negative) bound of the value at x is returned: how far the node is from a first bound.
    """
    noff = model.noff
    L = len(noff) - 1
    N, n0, rows = noff[L], len(best_w), len(mu)
    kind = relaxed.kind
    lines(state, kind, relaxed.su, relaxed.iu)
    S, z, g, w = np.empty(N), np.empty(N), np.empty(n0), np.empty(n0)
    m1, m2 = np.zeros(N), np.zeros(N)
    unit, above = np.zeros(L), np.empty((2, L))
    keep = state[ALPHA : COEF + 1].copy()
    keep_mu = mu.copy()
    P, q = relaxed.P, relaxed.q
    if every > 0:
        P, q = P.copy(), q.copy()
    best = -np.inf
    decay1, decay2, pace, reach, folds = 1.0, 1.0, 1.0, LEAST_REACH, 0.0
    for step in range(steps + 1):
        s, drift = backward(model, state, mu, first, relaxed, S, g, above)
        d = distance(g, s, drift, model, w)
        value = d if s > 0.0 else s  # below zero the value at x is what must rise
        better = value > best
        if better:
            best = value
            copy_rows(state[ALPHA : COEF + 1], keep)
            copy(mu, keep_mu)
            copy(w, best_w)
            if every > 0:
                copy(relaxed.P, P)
                copy(relaxed.q, q)
        if step > 0 and every > 0:
            reach = min(1.5 * reach, MOST_REACH) if better else max(0.5 * reach, LEAST_REACH)
        if d >= U:
            break
        h = forward(model, state, relaxed, w, z)
        if better:
            copy(z, state[POINT])
        if step == steps:
            break
        if every > 0 and step % every == 0:
            folds += 1.0
            fold(model, state, relaxed, h, z, max(1.0 / folds, LEAST_FOLD))
        if step == 0:
            for k in range(L):
                for i in range(noff[k], noff[k + 1]):
                    unit[k] = max(unit[k], abs(state[COEF, i]))
        decay1 *= 0.9
        decay2 *= 0.999
        pace *= 0.96
        for k in range(L):
            for i in range(noff[k], noff[k + 1]):
                if kind[i] == UNSTABLE:
                    slope = max(state[COEF, i], 0.0) * z[i]
                elif state[PHASE, i] != 0.0:
                    slope = -state[PHASE, i] * z[i]
                else:
                    continue
                m1[i] = 0.9 * m1[i] + 0.1 * slope
                m2[i] = 0.999 * m2[i] + 0.001 * slope * slope
                move = pace * (m1[i] / (1.0 - decay1)) / (np.sqrt(m2[i] / (1.0 - decay2)) + 1e-12)
                if kind[i] == UNSTABLE:
                    state[ALPHA, i] = min(max(state[ALPHA, i] + 0.25 * move, 0.0), 1.0)
                else:
                    state[BETA, i] = max(state[BETA, i] + reach * unit[k] * move, 0.0)
        if rows > 1:
            reweigh(model, mu, first, h, pace)
    copy_rows(keep, state[ALPHA : COEF + 1])
    copy(keep_mu, mu)
    if every > 0:
        copy(P, relaxed.P)
        copy(q, relaxed.q)
    return best


@njit_sums
def ease(model, state, mu, first, relaxed, S, g, w):  # type: ignore[no-untyped-def]
    """Forget the multipliers of splits where that is better: what was right for an ancestor may be far too large.

    The ascent's steps are too short to find back from there. COEF, S, g and w are overwritten.
    """
    betas = state[BETA]
    if np.max(betas) == 0.0:
        return
    kept, values, above = betas.copy(), np.empty(2), np.empty((2, len(model.noff) - 1))
    for turn in range(2):
        s, drift = backward(model, state, mu, first, relaxed, S, g, above)
        values[turn] = distance(g, s, drift, model, w) if s > 0.0 else s
        clear(betas)
    if values[0] >= values[1]:
        copy(kept, betas)


@njit_sums
def deepen(
    model, state, mu, first, U, goal, bound, steps, rounds, passes, every, relaxed, w
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Tighten on the cap and optimise again, as long as that closes the gap to U or gains speed.

    Returns the node's bound, inf when it is empty. The cap is that of its own halfspace, as its parameters stand.
    """
    L = len(model.noff) - 1
    N = model.noff[L]
    S, g, above = np.empty(N), np.empty(model.W0.shape[1]), np.empty((2, L))
    last = np.inf
    for _ in range(rounds):
        before = bound
        lines(state, relaxed.kind, relaxed.su, relaxed.iu)
        s, drift = backward(model, state, mu, first, relaxed, S, g, above)
        s -= drift * U  # g.w <= -s + drift ||w|| and ||w|| <= U
        if not tighten(model, state, U, ALL, L, g, s, above, passes):
            return np.inf
        lines(state, relaxed.kind, relaxed.su, relaxed.iu)
        if every == 0:
            triangles(model, relaxed)
        ease(model, state, mu, first, relaxed, S, g, w)
        bound = max(bound, optimise(model, state, mu, first, goal, steps, every, relaxed, w))
        if bound >= goal:
            break
        gain = bound - before
        if gain <= 1.2 * last or gain <= 1e-4 * U:  # else it goes faster and faster
            if bound < 0.0:
                if bound < 0.9 * before:
                    break
            elif before >= 0.0 and U - bound > 0.97 * (U - before):
                break
        last = gain
    return bound


@njit_sums
def reweigh(model, mu, first, h, pace):  # type: ignore[no-untyped-def]
    """Move the weights of the clause's rows towards those that are largest at the relaxed point."""
    L = len(model.noff) - 1
    base, n = model.noff[L - 1], model.noff[L] - model.noff[L - 1]
    value = np.empty(len(mu))
    scale = 1e-300
    for r in range(len(mu)):
        total = model.c[first + r]
        for j in range(n):
            total += model.R[first + r, j] * h[base + j]
        value[r] = total
        scale = max(scale, abs(total))
    weight = 0.0
    for r in range(len(mu)):
        mu[r] = max(mu[r], 1e-6) * np.exp(pace * value[r] / scale)
        weight += mu[r]
    for r in range(len(mu)):
        mu[r] /= weight
