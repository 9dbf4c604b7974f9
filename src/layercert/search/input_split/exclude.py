"""Kernels that close a box: linear bounds of a clause's rows, weights that exclude it, or a smaller box.

All rows of a clause are <= 0 at an unsafe point. Row r has the linear bound G_r.w + s_r on the box, rounding taken off,
so for any weights mu >= 0 unsafe points satisfy sum mu_r (G_r.w + s_r) <= 0. If the left side is positive on the whole
box there are none; else each of these halfspaces cuts a slab off the box.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Vector
from layercert.compiled.jit import njit_sums
from layercert.search.input_split.forms import combine
from layercert.search.input_split.model import Model, Scratch, Sides

#: Steps in the search for weights.
STEPS = 100
#: Errors are sums of thousands of terms: their own rounding is far below this.
UP = 1.01
#: A step aims at a value this much above zero (of the largest row), and goes this much farther than the linear model
#: says: a step that is too short never gets there.
ABOVE, LONGER = 1e-3, 1.5
#: A slab thinner than a thousandth of the box is not worth its rounding. ROUNDED and SUM are some units in the last
#: place: of a quotient, and of a sum of three terms.
WORTHWHILE, ROUNDED, SUM = 0.999, 1e-14, 1e-15


@njit_sums
def linear_rows(model: Model, s: Scratch, side: Sides, first: int, last: int) -> None:
    """G and s of the rows first..last-1 by CROWN's lines: a lower line is 0 or z, by |lo| < hi."""
    noff, L = model.noff, len(model.noff) - 1
    n, top = model.W0.shape[1], noff[L - 1]
    for r in range(last - first):
        X, Y = s.A[r], s.B[r]
        total, error = model.c[first + r], model.c_error[first + r]
        for q in range(s.number[L - 1]):
            j = s.live[L - 1, q]
            X[q] = model.R[first + r, j]
            error += model.R_error[first + r, j] * s.hi[top + j]
        for k in range(L - 1, -1, -1):
            base = noff[k]
            for q in range(s.number[k]):
                i = base + s.live[k, q]
                a = X[q]
                s.coef[r, i] = abs(a)
                error += abs(a) * s.Q[i]
                if side[i] == 0:
                    if a < 0.0:
                        total += a * s.iu[i]
                        a *= s.su[i]
                    elif s.hi[i] <= -s.lo[i]:
                        a = 0.0
                X[q] = a
                total += a * (model.b[i] if k > 0 else s.z0[i])
            if k > 0:
                combine(X, s.number[k], s.W[k], s.number[k - 1], Y)
                X, Y = Y, X
        for j in range(n):
            s.G[r, j] = 0.0
        for q in range(s.number[0]):
            for j in range(n):
                s.G[r, j] += X[q] * model.W0[s.live[0, q], j]
        s.s[r] = total - UP * error


@njit_sums
def proved(s: Scratch, rows: int, mu: Vector, rad: Vector, noise: float) -> float:
    """The least value of the weighted rows on the box, rounded down; fills g and bulk."""
    total, size = mix(s, rows, mu)
    for j in range(len(rad)):
        total -= abs(s.g[j]) * rad[j]
        size += s.bulk[j] * rad[j]
    return total - noise * size


@njit_sums
def mix(s: Scratch, rows: int, mu: Vector) -> tuple[float, float]:
    """g = mu.G, bulk = mu.|G|; returns mu.s and mu.|s|."""
    total, size = 0.0, 0.0
    s.g[:] = 0.0
    s.bulk[:] = 0.0
    for r in range(rows):
        if mu[r] > 0.0:
            total += mu[r] * s.s[r]
            size += mu[r] * abs(s.s[r])
            for j in range(len(s.g)):
                s.g[j] += mu[r] * s.G[r, j]
                s.bulk[j] += mu[r] * abs(s.G[r, j])
    return total, size


@njit_sums
def weigh(s: Scratch, rows: int, rad: Vector, noise: float) -> float:
    """Weights mu whose combination is as large as can be on the box; its proved least value.

    The best single row first. Then the least value is concave in mu with supergradient rise (the rows at the point
    where it is attained): steps as long as the linear model needs to reach zero find positive weights, if there are
    any, as the perceptron does.
    """
    n = len(rad)
    top, at = -np.inf, 0
    for r in range(rows):
        s.mu[:] = 0.0
        s.mu[r] = 1.0
        value = proved(s, rows, s.mu, rad, noise)
        if value > top:
            top, at = value, r
    s.best[:] = 0.0
    s.best[at] = 1.0
    if top > 0.0 or rows == 1:
        return top
    s.mu[:] = s.best
    scale = 0.0
    for r in range(rows):
        scale = max(scale, abs(s.s[r]))
    for _ in range(STEPS):
        value = proved(s, rows, s.mu, rad, noise)
        if value > top:
            top = value
            s.best[:] = s.mu
        if top > 0.0:
            break
        length = 0.0
        for r in range(rows):
            rise = s.s[r]
            for j in range(n):
                rise -= s.G[r, j] * (rad[j] if s.g[j] > 0.0 else (-rad[j] if s.g[j] < 0.0 else 0.0))
            s.rise[r] = rise
            if s.mu[r] > 0.0 or rise > 0.0:
                length += rise * rise
        if not length > 0.0:
            break
        pace = (ABOVE * scale - LONGER * value) / length
        total = 0.0
        for r in range(rows):
            s.mu[r] = max(s.mu[r] + pace * s.rise[r], 0.0)
            total += s.mu[r]
        if not 0.0 < total < np.inf:
            break
        for r in range(rows):
            s.mu[r] /= total
    return top


@njit_sums
def shave(s: Scratch, rows: int, mid: Vector, lo: Vector, hi: Vector, noise: float) -> bool:
    """Cut off what each row, and the best combination of them, excludes; False when nothing of the box is left."""
    n = len(mid)
    for turn in range(rows + 1 if rows > 1 else 1):
        if turn < rows:
            s.mu[:] = 0.0
            s.mu[turn] = 1.0
            total, size = mix(s, rows, s.mu)
        else:
            total, size = mix(s, rows, s.best)
        for j in range(n):
            end = lo[j] if s.g[j] > 0.0 else hi[j]
            total += s.g[j] * (end - mid[j])
            size += s.bulk[j] * (hi[j] - lo[j] + abs(end - mid[j]))
        total -= noise * size  # the least value of g.w + s on the box, at one of its corners
        if total > 0.0:
            return False
        for j in range(n):
            if s.g[j] == 0.0:
                continue
            # g.w + s <= 0 holds only this near to the corner; cutting the far side leaves the corner where it is
            room = -total / abs(s.g[j]) * (1.0 + ROUNDED)
            if room < WORTHWHILE * (hi[j] - lo[j]):
                margin = SUM * (abs(lo[j]) + abs(hi[j]) + room)
                if s.g[j] > 0.0:
                    hi[j] = min(hi[j], lo[j] + room + margin)
                else:
                    lo[j] = max(lo[j], hi[j] - room - margin)
    return True
