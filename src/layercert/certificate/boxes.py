"""The checker's kernel for box trees: close a box by weights of a clause's rows, or shave off what they exclude.

At an unsafe point all rows of the clause are <= 0, so g.(v - mid) + s <= 0 for the linear bound of each row and of
every combination mu >= 0 of them. A combination that is positive on the whole box closes it. Otherwise every unsafe v
has |v_j - e_j| <= -t/|g_j|, where e is the corner at which the combination takes its least value t on the box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Matrix, Signs, Vector
from layercert.certificate.forms import BoxScratch, Net, bound_neurons, bound_rows
from layercert.compiled.jit import njit, njit_sums

#: Steps in the search for weights.
STEPS = 100
#: Verdicts of `walk`.
PROVED, OPEN_LEAF, MISSING, SUPERFLUOUS, BAD_SPLIT, TOO_DEEP = range(6)
#: More open boxes than this on one way down are refused.
MOST_OPEN = 4096


@njit_sums
def examine(net: Net, w: BoxScratch, lo: Vector, hi: Vector, side: Signs, blame: Vector) -> bool:
    """True: no unsafe point in the box, proved. Else the box is shaved, and blame tells which input to cut.

    An unstable neuron costs its |A| iu, and input j makes up influence_j / (hi - lo) of its width; the proof does not
    depend on this advice.
    """
    if not bound_neurons(net, w, lo, hi, side):
        blame[:] = hi - lo
        return False
    bound_rows(net, w, side)
    rows = len(net.d)
    mu = weights(w.G, w.s, w.rad, net.unit)
    value, _ = least(w.G, w.s, mu, w.rad, net.unit)
    if value > 0.0:
        return True
    single = np.zeros(rows)
    for turn in range(rows + 1):
        if turn < rows:
            single[:] = 0.0
            single[turn] = 1.0
            empty = shave(w.G, w.s, single, w.mid, lo, hi, net.unit)
        else:
            empty = shave(w.G, w.s, mu, w.mid, lo, hi, net.unit)
        if empty:
            return True
    blame[:] = 0.0
    for k in range(1, len(net.widths)):
        for q in range(w.number[k]):
            i = w.live[k, q]
            if side[k, i] == 0:
                cost = 0.0
                for r in range(rows):
                    cost += mu[r] * w.coef[r, k, i]
                blame += cost * w.iu[k, i] / (w.hi[k, i] - w.lo[k, i]) * w.influence[k, i]
    for j in range(len(lo)):
        blame[j] *= 0.5 * (hi[j] - lo[j]) / w.rad[j] if w.rad[j] > 0.0 else 0.0
    if not blame.max() > 0.0:
        blame[:] = hi - lo
    return False


@njit_sums
def least(G: Matrix, s: Vector, mu: Vector, rad: Vector, unit: float) -> tuple[float, Vector]:
    """The least value of the combination on the box, rounded down, and its g."""
    g = np.zeros(len(rad))
    total, size = 0.0, 0.0
    for r in range(len(s)):
        total += mu[r] * s[r]
        size += mu[r] * abs(s[r])
        for j in range(len(rad)):
            g[j] += mu[r] * G[r, j]
            size += mu[r] * abs(G[r, j]) * rad[j]
    for j in range(len(rad)):
        total -= abs(g[j]) * rad[j]
    return total - unit * size, g


@njit_sums
def weights(G: Matrix, s: Vector, rad: Vector, unit: float) -> Vector:
    """mu >= 0 of sum 1 that make the least value on the box large: the best row, then steps towards zero from it."""
    rows = len(s)
    best, top = np.zeros(rows), -np.inf
    mu = np.zeros(rows)
    for r in range(rows):
        mu[:] = 0.0
        mu[r] = 1.0
        value, _ = least(G, s, mu, rad, unit)
        if value > top:
            top = value
            best[:] = mu
    if top > 0.0 or rows == 1:
        return best
    mu[:] = best
    rise = np.zeros(rows)
    scale = np.abs(s).max()
    for _ in range(STEPS):
        value, g = least(G, s, mu, rad, unit)
        if value > top:
            top = value
            best[:] = mu
        if top > 0.0:
            break
        length = 0.0
        for r in range(rows):
            rise[r] = s[r]
            for j in range(len(rad)):
                rise[r] -= G[r, j] * rad[j] * np.sign(g[j])
            if mu[r] > 0.0 or rise[r] > 0.0:
                length += rise[r] * rise[r]
        if not length > 0.0:
            break
        pace = (1e-3 * scale - 1.5 * value) / length
        for r in range(rows):
            mu[r] = max(mu[r] + pace * rise[r], 0.0)
        total = mu.sum()
        if not (total > 0.0 and total < np.inf):
            break
        mu /= total
    return best


@njit_sums
def shave(G: Matrix, s: Vector, mu: Vector, mid: Vector, lo: Vector, hi: Vector, unit: float) -> bool:
    """Cut the box down to where the combination can be <= 0; True when that is nowhere."""
    n = len(mid)
    g = np.zeros(n)
    total, size = 0.0, 0.0
    for r in range(len(s)):
        total += mu[r] * s[r]
        size += mu[r] * abs(s[r])
        for j in range(n):
            g[j] += mu[r] * G[r, j]
            size += 2.0 * mu[r] * abs(G[r, j]) * max(hi[j] - mid[j], mid[j] - lo[j], hi[j] - lo[j])
    for j in range(n):
        total += g[j] * ((lo[j] if g[j] > 0.0 else hi[j]) - mid[j])
    total -= unit * size
    if total > 0.0:
        return True
    for j in range(n):
        if g[j] == 0.0:
            continue
        room = -total / abs(g[j]) * (1.0 + 1e-14)
        if room < 0.999 * (hi[j] - lo[j]):
            margin = 1e-15 * (abs(lo[j]) + abs(hi[j]) + room)
            if g[j] > 0.0:
                hi[j] = min(hi[j], lo[j] + room + margin)
            else:
                lo[j] = max(lo[j], hi[j] - room - margin)
    return False


@njit
def walk(
    net: Net, w: BoxScratch, root_lo: Vector, root_hi: Vector, axis: NDArray[np.int32], cut: Vector
) -> tuple[int, int, int]:
    """Prove a tree, nodes in preorder: (verdict, node, leaves).

    axis[node] < 0 is a leaf, whose box must be closed. Any other node is cut at v_axis = cut into the part below (which
    comes first) and the part above; together they cover it wherever the cut lies.
    """
    n, nodes = len(root_lo), len(axis)
    lo, hi = np.empty((MOST_OPEN + 1, n)), np.empty((MOST_OPEN + 1, n))
    side = np.zeros((MOST_OPEN + 1, len(net.widths), net.W.shape[1]), np.int8)
    empty = np.zeros(MOST_OPEN + 1, np.bool_)  # known to hold nothing: its nodes need no proof
    blame = np.zeros(n)
    lo[0], hi[0] = root_lo, root_hi
    opened, leaves = 1, 0
    for node in range(nodes):
        if opened == 0:
            return SUPERFLUOUS, node, leaves
        top = opened - 1
        if not empty[top]:
            empty[top] = examine(net, w, lo[top], hi[top], side[top], blame)
        a = axis[node]
        if a < 0:
            if not empty[top]:
                return OPEN_LEAF, node, leaves
            leaves += 1
            opened -= 1
            continue
        if a >= n or not np.isfinite(cut[node]):
            return BAD_SPLIT, node, leaves
        if opened >= MOST_OPEN:
            return TOO_DEEP, node, leaves
        # the part above takes the node's place in the stack, the part below is next
        lo[opened], hi[opened], side[opened], empty[opened] = lo[top], hi[top], side[top], empty[top]
        lo[top, a] = max(lo[top, a], cut[node])
        hi[opened, a] = min(hi[opened, a], cut[node])
        empty[top] = empty[top] or not lo[top, a] <= hi[top, a]
        empty[opened] = empty[opened] or not lo[opened, a] <= hi[opened, a]
        opened += 1
    return (PROVED if opened == 0 else MISSING), nodes, leaves
