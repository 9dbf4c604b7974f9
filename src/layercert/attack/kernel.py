"""Compiled parts of the attack: a packed network, its gradient on a linear piece, and the way to the boundary.

Layers are packed so that one compiled function serves every depth: W^0 is a matrix of its own, W^1..W^{L-1} lie one
after the other in `Wh` from `woff[k]` on, and the neurons of layer k (counted from 0) are noff[k]..noff[k+1].
The rows of all clauses are composed with the last layer: row i says R[i].x^L + c[i] <= 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import clear, copy
from layercert.compiled.halfspace import nearest_step as nearest_step
from layercert.compiled.jit import njit_sums
from layercert.compiled.norms import lp_norm as lp_norm
from layercert.problem import Problem


@dataclass(frozen=True, eq=False)
class Packed:
    """A problem's network and clauses as flat arrays; clause i owns the rows first[i]..first[i+1]."""

    W0: Matrix
    Wh: Vector
    b: Vector
    noff: Indices
    woff: Indices
    R: Matrix
    c: Vector
    first: Indices
    lo: Vector  # the domain as offsets from x, infinite without one
    hi: Vector
    boxed: bool

    @staticmethod
    def of(problem: Problem) -> Packed:
        network = problem.network
        n = network.inputs
        last, bias = network.weights[-1], network.biases[-1]
        C = np.concatenate([clause.C for clause in problem.clauses])
        d = np.concatenate([clause.d for clause in problem.clauses])
        hidden = network.weights[1:-1]
        box = problem.box
        return Packed(
            W0=np.array(network.weights[0] if network.L else np.zeros((0, n))),
            Wh=np.concatenate([np.zeros(0), *(W.ravel() for W in hidden)]),
            b=np.concatenate([np.zeros(0), *network.biases[:-1]]),
            noff=np.cumsum([0, *network.widths]).astype(np.intp),
            woff=np.cumsum([0, 0, *(W.size for W in hidden)]).astype(np.intp),
            R=np.ascontiguousarray(C @ last),
            c=C @ bias - d,
            first=np.cumsum([0, *(len(clause.d) for clause in problem.clauses)]).astype(np.intp),
            lo=np.full(n, -np.inf) if box is None else box.lo,
            hi=np.full(n, np.inf) if box is None else box.hi,
            boxed=box is not None,
        )


@njit_sums
def preactivations(W0, Wh, b, noff, woff, v, z):  # type: ignore[no-untyped-def]
    """z of every hidden layer at v."""
    L = len(noff) - 1
    if L > 0:
        for i in range(noff[1]):
            total = 0.0
            for j in range(len(v)):
                total += W0[i, j] * v[j]
            z[i] = total + b[i]
    for k in range(1, L):
        below, m = noff[k - 1], noff[k] - noff[k - 1]
        for i in range(noff[k], noff[k + 1]):
            row = woff[k] + (i - noff[k]) * m
            total = 0.0
            for j in range(m):
                total += Wh[row + j] * max(z[below + j], 0.0)
            z[i] = total + b[i]


@njit_sums
def row_value(R, c, noff, v, z, row):  # type: ignore[no-untyped-def]
    """R[row].x^L + c[row]; for a network without hidden layers x^L is v."""
    L = len(noff) - 1
    total = 0.0
    if L == 0:
        for j in range(len(v)):
            total += R[row, j] * v[j]
    else:
        for j in range(noff[L] - noff[L - 1]):
            total += R[row, j] * max(z[noff[L - 1] + j], 0.0)
    return total + c[row]


@njit_sums
def clause_value(R, c, first, noff, v, z, clause):  # type: ignore[no-untyped-def]
    """The largest row of a clause (unsafe when <= 0) and which row it is."""
    worst, at = -np.inf, first[clause]
    for row in range(first[clause], first[clause + 1]):
        value = row_value(R, c, noff, v, z, row)
        if value > worst:
            worst, at = value, row
    return worst, at


@njit_sums
def row_gradient(W0, Wh, R, noff, woff, z, row, S, g):  # type: ignore[no-untyped-def]
    """g = the gradient of a row on the linear piece of z; S is scratch, as long as z."""
    L = len(noff) - 1
    clear(g)
    if L == 0:
        for j in range(len(g)):
            g[j] = R[row, j]
        return
    for j in range(noff[L] - noff[L - 1]):
        i = noff[L - 1] + j
        S[i] = R[row, j] if z[i] > 0 else 0.0
    for k in range(L - 1, 0, -1):
        below, m = noff[k - 1], noff[k] - noff[k - 1]
        for j in range(m):
            S[below + j] = 0.0
        for i in range(noff[k], noff[k + 1]):
            if S[i] != 0.0:
                start = woff[k] + (i - noff[k]) * m
                for j in range(m):
                    S[below + j] += S[i] * Wh[start + j]
        for j in range(m):
            if z[below + j] <= 0:
                S[below + j] = 0.0
    for i in range(noff[1]):
        if S[i] != 0.0:
            for j in range(len(g)):
                g[j] += S[i] * W0[i, j]


@njit_sums
def seek(W0, Wh, b, noff, woff, R, c, first, x, lo, hi, boxed, p, clause, start, steps, best):  # type: ignore[no-untyped-def]
    """From x + start to an unsafe point of one clause, then towards x along the boundary until that stalls.

    Returns the distance and offset of the nearest point found, the distance being inf when there is none.
    Gives up on a run that comes to rest beyond 2*best.
    """
    n = len(x)
    w, g, move, trial = start.copy(), np.empty(n), np.empty(n), np.empty(n)
    v, z, S = np.empty(n), np.empty(noff[-1]), np.empty(noff[-1])
    near_lo, near_hi = np.empty(n), np.empty(n)
    value = np.inf
    for step in range(steps):  # steepest steps onto the plane of the current piece
        for i in range(n):
            v[i] = x[i] + w[i]
        preactivations(W0, Wh, b, noff, woff, v, z)
        value, row = clause_value(R, c, first, noff, v, z, clause)
        if value <= 0:
            break
        row_gradient(W0, Wh, R, noff, woff, z, row, S, g)
        # alternate between the plane's point nearest to x (short in the end) and nearest to v (sure to get there)
        from_x = step < steps // 3
        at = value
        if from_x:
            for i in range(n):
                at -= g[i] * w[i]
            from_x = at > 0
        if from_x:
            length, _ = nearest_step(g, at * (1.0 + 1e-9), lo, hi, boxed, p, move)
            for i in range(n):
                move[i] -= w[i]
            pace = 1.0 if step == 0 else 0.7
        else:
            for i in range(n):
                near_lo[i], near_hi[i] = lo[i] - w[i], hi[i] - w[i]
            length, _ = nearest_step(g, value * 1.02, near_lo, near_hi, boxed, p, move)
            pace = 1.0
        if not np.isfinite(length) and lp_norm(move, p) == 0.0:
            break
        for i in range(n):
            w[i] = min(max(w[i] + pace * move[i], lo[i]), hi[i])
    if value > 0:
        return np.inf, w
    # w is unsafe: back to the boundary on the way to x, then slide along it
    distance = np.inf
    clear(trial)
    for _ in range(steps):
        # the last unsafe point between w (unsafe) and trial (maybe safe)
        low, high, at_low = 0.0, 1.0, value
        for halving in range(40):
            middle = 1.0 if halving == 0 else 0.5 * (low + high)
            for i in range(n):
                v[i] = x[i] + (w[i] + middle * (trial[i] - w[i]))
            preactivations(W0, Wh, b, noff, woff, v, z)
            value, row = clause_value(R, c, first, noff, v, z, clause)
            if value <= 0:
                low, at_low = middle, value
                if middle == 1.0:
                    break
            else:
                high = middle
            if high - low < 1e-3 and halving > 3 and high < 1.0:
                # within one piece the crossing is where the straight line says
                if at_low < 0 < value:
                    cross = low + (high - low) * at_low / (at_low - value) * (1.0 - 1e-7)
                    for i in range(n):
                        v[i] = x[i] + (w[i] + cross * (trial[i] - w[i]))
                    preactivations(W0, Wh, b, noff, woff, v, z)
                    value, row = clause_value(R, c, first, noff, v, z, clause)
                    if value <= 0:
                        low = cross
                break
        for i in range(n):
            w[i] += low * (trial[i] - w[i])
        length = lp_norm(w, p)
        if length > distance * (1.0 - 1e-6) or (length > 2.0 * best and distance < np.inf):
            distance = min(distance, length)
            break
        distance = length
        for i in range(n):
            v[i] = x[i] + w[i]
        preactivations(W0, Wh, b, noff, woff, v, z)
        value, row = clause_value(R, c, first, noff, v, z, clause)
        row_gradient(W0, Wh, R, noff, woff, z, row, S, g)
        at = value
        for i in range(n):
            at -= g[i] * w[i]
        if at <= 0:  # the piece's plane has x on its unsafe side
            clear(trial)
            continue
        shorter, _ = nearest_step(g, at * (1.0 + 1e-12), lo, hi, boxed, p, trial)
        if not shorter < distance:
            break
    return distance, w


@njit_sums
def two_least(values):  # type: ignore[no-untyped-def]
    """Where the least value is, and the next one; a single value is both."""
    at, then = 0, -1
    for i in range(1, len(values)):
        if values[i] < values[at]:
            at, then = i, at
        elif then < 0 or values[i] < values[then]:
            then = i
    return at, at if then < 0 else then


@njit_sums
def run(W0, Wh, b, noff, woff, R, c, first, x, lo, hi, boxed, p, U, steps, restarts, seed):  # type: ignore[no-untyped-def]
    """Every clause from x, then random starts for the best of them; the nearest unsafe offset and its clause or -1."""
    np.random.seed(seed)
    clauses, n = len(first) - 1, len(x)
    reached = np.full(clauses, np.inf)
    best, found, winner = U, np.zeros(n), -1
    for clause in range(clauses):
        d, w = seek(W0, Wh, b, noff, woff, R, c, first, x, lo, hi, boxed, p, clause, np.zeros(n), steps, best)
        reached[clause] = d
        if d < best:
            best, winner = d, clause
            copy(w, found)
    near, other = two_least(reached)
    start = np.empty(n)
    for r in range(restarts):
        clause = near if r % 2 == 0 else other
        size = best if np.isfinite(best) else 1.0 + lp_norm(x, p)
        for i in range(n):
            start[i] = np.random.normal()
        length = lp_norm(start, p)
        for i in range(n):
            # half of the starts lie around x, half around the best point
            about = found[i] if r % 2 == 1 else 0.0
            start[i] = min(max(about + start[i] * 0.6 * size / length, lo[i]), hi[i])
        d, w = seek(W0, Wh, b, noff, woff, R, c, first, x, lo, hi, boxed, p, clause, start, steps, best)
        if d < best:
            best, winner = d, clause
            copy(w, found)
    return best, found, winner
