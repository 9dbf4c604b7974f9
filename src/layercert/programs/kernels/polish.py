"""1 < p < inf (smooth.py), the end: Newton on the point itself, which the multipliers leave undetermined for p > 2."""

from __future__ import annotations

import numpy as np

from layercert.compiled.dense import backward, cholesky, dot, forward, largest
from layercert.compiled.jit import inner
from layercert.compiled.timer import late
from layercert.programs.kernels.dual import Dual, NewtonScratch, Smooth, choose_free, gram, length_of, power
from layercert.programs.kernels.units import is_time_to_look

#: Relative gap between the point's value and F at which a program is solved.
GAP = 1e-11


@inner
def polish(ask: Smooth, dual: Dual, e: int, F: float, work: NewtonScratch) -> None:
    """Newton on the point itself: least |w|^p/p on the rows with a multiplier and those it violates, inside the box."""
    A, r, p, lam, w, g = ask.A, ask.r, ask.p, dual.lam, dual.w, dual.g
    y, free, d, slope, H, L, rest = work.y, work.free, work.d, work.slope, work.H, work.L, work.rest
    m, n = A.shape
    length, press = length_of(F, p), 1e-9 * largest(g, n)
    for attempt in range(20):
        if is_time_to_look(attempt, A) and late(ask.timer):
            return
        for i in range(m):
            y[i] = dot(A[i], w, n) - r[i]
        k, worst = choose_free(ask, lam, y, free, e, length, m)
        if worst <= 1.0:
            value = 0.0
            for c in range(n):
                value += power(abs(w[c]), p) / p
            if value - F <= GAP * value:
                return
        top = largest(w, n)
        curvature = (p - 1.0) * power(top, p - 2.0)
        for c in range(n):
            size = abs(w[c])
            force = power(size, p - 1.0)
            rest[c] = (force if w[c] > 0.0 else -force) + g[c]
            # a bound holds what g presses against it; what merely lies there may leave, unless it keeps coming back
            least = press if attempt <= 8 else -np.inf
            held = (w[c] >= ask.up[c] and -rest[c] > least) or (-w[c] >= ask.down[c] and rest[c] > least)
            size = size / top if top > 0.0 else 1.0
            if p > 2.0:
                slope[c] = 1.0 / (power(size, p - 2.0) + 1e-12)
            else:
                slope[c] = power(max(size, 1e-14), 2.0 - p)
            slope[c] = 0.0 if held else slope[c] / curvature
        for a in range(k):
            d[a] = y[free[a]]
            row = A[free[a]]
            for c in range(n):
                d[a] -= row[c] * slope[c] * rest[c]
        for c in range(n):
            w[c] -= slope[c] * rest[c]
        diagonal = gram(A, free, k, slope, work.scaled, H)
        damping = 1e-15
        while not cholesky(H, L, k, damping * diagonal + 1e-200):
            damping *= 100.0
            if not damping < 1.0:
                return
        forward(L, k, d)
        backward(L, k, d)
        for a in range(k):
            row = work.scaled[a]
            for c in range(n):
                w[c] -= d[a] * slope[c] * row[c]  # both hold the root of the slope
        for c in range(n):
            w[c] = min(max(w[c], -ask.down[c]), ask.up[c])
