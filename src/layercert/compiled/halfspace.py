"""Kernels about one halfspace {w : g.w <= -s}: its point nearest to the origin, inside a box.

Nothing is proved here. Proved distances are `Norm.prove_halfspace` and, for the adaptive search, its halfspace.py.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Indices, Vector
from layercert.compiled.dense import clear
from layercert.compiled.jit import njit_sums
from layercert.compiled.norms import lp_norm


@njit_sums
def nearest_step(g: Vector, s: float, lo: Vector, hi: Vector, boxed: bool, p: float, w: Vector) -> tuple[float, float]:
    """The shortest w in the box lo <= w <= hi with g.w <= -s (s > 0): fills w, returns its length and the slope tau.

    p > 1: w_i = -sign(g_i) min(room_i, tau |g_i|^(q-1)); g.w is concave and piecewise linear in tau, so Newton's method
    from the left ends after finitely many steps. p = 1: the largest |g_i| first. inf when the box has no such point.
    """
    n = len(g)
    clear(w)
    top = 0.0
    for i in range(n):
        top = max(top, abs(g[i]))
    if top == 0.0:
        return np.inf, np.inf
    if p == 1.0:
        return _nearest_l1(g, s, lo, hi, boxed, w)
    power = 0.0 if np.isinf(p) else 1.0 / (p - 1.0)  # q - 1
    for i in range(n):  # w holds the direction for now
        size = abs(g[i]) / top
        if size > 0.0:
            w[i] = 1.0 if power == 0.0 else (size if power == 1.0 else size**power)
    tau = 0.0
    for _ in range(n + 2):
        gained, slope = 0.0, 0.0
        if boxed:
            for i in range(n):
                room = -lo[i] if g[i] > 0 else hi[i]
                full = room <= tau * w[i]
                size = abs(g[i])
                gained += size * room if full and size > 0.0 else size * tau * w[i]
                slope += 0.0 if full else size * w[i]
        else:
            for i in range(n):
                slope += abs(g[i]) * w[i]
            gained = tau * slope
        if gained >= s * (1.0 - 1e-15):
            break
        if slope <= 1e-14 * top:
            tau = np.inf
            break
        step = (s - gained) / slope
        if tau + step <= tau:
            break
        tau += step
    for i in range(n):
        size = w[i]
        if size > 0.0:
            size = tau * size
            if boxed:
                size = min(size, -lo[i] if g[i] > 0 else hi[i])
            w[i] = -size if g[i] > 0 else size
    return (np.inf if np.isinf(tau) else lp_norm(w, p)), tau


@njit_sums
def _nearest_l1(g: Vector, s: float, lo: Vector, hi: Vector, boxed: bool, w: Vector) -> tuple[float, float]:
    """The largest |g_i| first, each as far as the box lets it."""
    if not boxed:
        best = 0
        for i in range(len(g)):
            if abs(g[i]) > abs(g[best]):
                best = i
        w[best] = -s / g[best]
        return abs(w[best]), abs(g[best])
    heap = np.arange(len(g))  # largest |g_i| on top: few are needed, and numba compiles np.argsort for two seconds
    for at in range(len(g) // 2 - 1, -1, -1):
        _sift(heap, at, len(g), g)
    left, length = s, 0.0
    for last in range(len(g) - 1, -1, -1):
        i = heap[0]
        heap[0] = heap[last]
        _sift(heap, 0, last, g)
        size = abs(g[i])
        if size == 0.0:
            break
        move = min(left / size, -lo[i] if g[i] > 0 else hi[i])
        w[i] = -move if g[i] > 0 else move
        length += move
        left -= move * size
        if left <= 1e-15 * s:
            return length, size
    return np.inf, 0.0


@njit_sums
def _sift(heap: Indices, at: int, count: int, g: Vector) -> None:
    """Let heap[at] sink among the first `count` until no child has a larger |g|."""
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and abs(g[heap[child + 1]]) > abs(g[heap[child]]):
            child += 1
        if abs(g[heap[child]]) <= abs(g[heap[at]]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child
