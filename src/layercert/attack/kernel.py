"""Compiled parts of the attack: a problem in flat arrays, its gradient on a linear piece, and the way to the boundary.

The rows of all clauses are composed with the last layer: row i says R[i].x^L + c[i] <= 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.dense import clear, copy
from layercert.compiled.halfspace import nearest_step as nearest_step
from layercert.compiled.jit import njit_sums
from layercert.compiled.norms import lp_norm as lp_norm
from layercert.compiled.packed import PackedNetwork, row_add, row_dot
from layercert.compiled.timer import Timer, late
from layercert.problem import Problem

#: Looks at the segment between an unsafe point and a safe one, and how short it is in the end.
CROSSINGS, SHORT = 30, 1e-4
#: Beside the value at the other end, this is nothing.
SLIGHT = 1e-3
#: A run from x comes to rest at this gain, the best of all at that one.
COARSE, FINE = 3e-3, 1e-6
#: A step goes a little beyond the plane where its piece is zero, relative to the value on this side, so that rounding
#: does not leave it there: on the way to the point nearest to x, straight through, and along the boundary.
ONTO, THROUGH, BEYOND = 1e-9, 1.02, 1e-12
#: The part of its way that a step goes after the first one: the plane is that of another piece there.
PACE = 0.7
#: The first of so many parts of all steps go to the plane's point nearest to x; after that, any unsafe point will do.
AT_FIRST = 3
#: Random starts lie about this part of the best distance away; a run that rests this many times as far is given up.
SPREAD, HOPELESS = 0.6, 2.0


class PackedProblem(NamedTuple):
    """A problem's network and clauses as flat arrays; clause i owns the rows first[i]..first[i+1]."""

    net: PackedNetwork
    R: Matrix
    c: Vector
    first: Indices
    x: Vector
    lo: Vector  # the domain as offsets from x, infinite without one
    hi: Vector
    boxed: bool
    p: float

    @staticmethod
    def of(problem: Problem) -> PackedProblem:
        network, box, n = problem.network, problem.box, problem.network.inputs
        C = np.concatenate([clause.C for clause in problem.clauses])
        d = np.concatenate([clause.d for clause in problem.clauses])
        return PackedProblem(
            net=network.packed,
            R=np.ascontiguousarray(np.asarray(C @ network.maps[-1])),
            c=C @ network.biases[-1] - d,
            first=np.cumsum([0, *(len(clause.d) for clause in problem.clauses)]).astype(np.intp),
            x=problem.x,
            lo=np.full(n, -np.inf) if box is None else box.lo,
            hi=np.full(n, np.inf) if box is None else box.hi,
            boxed=box is not None,
            p=problem.norm.p,
        )


@njit_sums
def preactivations(net: PackedNetwork, v: Vector, z: Vector) -> None:
    """z of every hidden layer at v."""
    h = np.empty(len(z))
    for k in range(len(net.noff) - 1):
        for i in range(net.noff[k], net.noff[k + 1]):
            z[i] = net.b[i] + (row_dot(net, k, i, v, 0) if k == 0 else row_dot(net, k, i, h, net.noff[k - 1]))
            h[i] = max(z[i], 0.0)


@njit_sums
def row_value(asked: PackedProblem, v: Vector, z: Vector, row: int) -> float:
    """R[row].x^L + c[row]; for a network without hidden layers x^L is v."""
    noff = asked.net.noff
    L = len(noff) - 1
    total = 0.0
    if L == 0:
        for j in range(len(v)):
            total += asked.R[row, j] * v[j]
    else:
        for j in range(noff[L] - noff[L - 1]):
            total += asked.R[row, j] * max(z[noff[L - 1] + j], 0.0)
    return total + asked.c[row]


@njit_sums
def clause_value(asked: PackedProblem, v: Vector, z: Vector, clause: int) -> tuple[float, int]:
    """The largest row of a clause (unsafe when <= 0) at v and which row it is; fills z."""
    preactivations(asked.net, v, z)
    worst, at = -np.inf, asked.first[clause]
    for row in range(asked.first[clause], asked.first[clause + 1]):
        value = row_value(asked, v, z, row)
        if value > worst:
            worst, at = value, row
    return worst, at


@njit_sums
def row_gradient(asked: PackedProblem, z: Vector, row: int, S: Vector, g: Vector) -> None:
    """g = the gradient of a row on the linear piece of z; S is scratch, as long as z."""
    net = asked.net
    L = len(net.noff) - 1
    clear(g)
    if L == 0:
        for j in range(len(g)):
            g[j] = asked.R[row, j]
        return
    clear(S)
    for j in range(net.noff[L] - net.noff[L - 1]):
        S[net.noff[L - 1] + j] = asked.R[row, j]
    for k in range(L - 1, -1, -1):
        for i in range(net.noff[k], net.noff[k + 1]):
            if z[i] > 0.0 and S[i] != 0.0:
                if k > 0:
                    row_add(net, k, i, S[i], S, net.noff[k - 1])
                else:
                    row_add(net, 0, i, S[i], g, 0)


class Room(NamedTuple):
    """Scratch of one run."""

    v: Vector
    z: Vector
    S: Vector
    g: Vector
    move: Vector
    near_lo: Vector
    near_hi: Vector


@njit_sums
def room_for(asked: PackedProblem) -> Room:
    n, N = len(asked.x), len(asked.net.b)
    return Room(np.empty(n), np.empty(N), np.empty(N), np.empty(n), np.empty(n), np.empty(n), np.empty(n))


@njit_sums
def seek(
    asked: PackedProblem, clause: int, start: Vector, steps: int, best: float, rest: float, timer: Timer
) -> tuple[float, Vector]:
    """From x + start to an unsafe point of one clause, then towards x along the boundary until that stalls.

    Returns the distance and offset of the nearest point found, the distance being inf when there is none. A run comes
    to rest when a slide brings it nearer by less than the share `rest`, and is given up where it rests HOPELESS
    times as far away as the best.
    """
    p, w, room = asked.p, start.copy(), room_for(asked)
    value = approach(asked, clause, w, steps, room, timer)
    if value > 0:
        return np.inf, w
    x, g, v, trial = asked.x, room.g, room.v, np.zeros(len(w))
    distance = np.inf
    for _ in range(steps):  # back to the boundary, on the way to x at first, then to the nearest point of its plane
        if late(timer):
            break
        value = last_unsafe(asked, clause, w, trial, value, room)
        length = lp_norm(w, p)
        if length > distance * (1.0 - rest) or (length > HOPELESS * best and distance < np.inf):
            distance = min(distance, length)
            break
        distance = length
        for i in range(len(w)):
            v[i] = x[i] + w[i]
        value, row = clause_value(asked, v, room.z, clause)
        row_gradient(asked, room.z, row, room.S, g)
        at = value
        for i in range(len(w)):
            at -= g[i] * w[i]
        if at <= 0:  # the piece's plane has x on its unsafe side
            clear(trial)
            continue
        shorter, _ = nearest_step(g, at * (1.0 + BEYOND), asked.lo, asked.hi, asked.boxed, p, trial)
        if not shorter < distance:
            break
    return distance, w


@njit_sums
def approach(asked: PackedProblem, clause: int, w: Vector, steps: int, room: Room, timer: Timer) -> float:
    """Steepest steps onto the plane of the current piece, until w is unsafe: then the value is not positive."""
    x, lo, hi, p = asked.x, asked.lo, asked.hi, asked.p
    g, move, v, n = room.g, room.move, room.v, len(w)
    value = np.inf
    for step in range(steps):
        if late(timer):
            return np.inf
        for i in range(n):
            v[i] = x[i] + w[i]
        value, row = clause_value(asked, v, room.z, clause)
        if value <= 0:
            break
        row_gradient(asked, room.z, row, room.S, g)
        # alternate between the plane's point nearest to x (short in the end) and nearest to v (sure to get there)
        from_x = step < steps // AT_FIRST
        at = value
        if from_x:
            for i in range(n):
                at -= g[i] * w[i]
            from_x = at > 0
        if from_x:
            length, _ = nearest_step(g, at * (1.0 + ONTO), lo, hi, asked.boxed, p, move)
            for i in range(n):
                move[i] -= w[i]
            pace = 1.0 if step == 0 else PACE
        else:
            for i in range(n):
                room.near_lo[i], room.near_hi[i] = lo[i] - w[i], hi[i] - w[i]
            length, _ = nearest_step(g, value * THROUGH, room.near_lo, room.near_hi, asked.boxed, p, move)
            pace = 1.0
        if not np.isfinite(length) and lp_norm(move, p) == 0.0:
            break
        for i in range(n):
            w[i] = min(max(w[i] + pace * move[i], lo[i]), hi[i])
    return value


@njit_sums
def last_unsafe(asked: PackedProblem, clause: int, w: Vector, trial: Vector, value: float, room: Room) -> float:
    """Move w, which is unsafe with this value, towards `trial` as far as it stays so; the value there.

    Where the straight line between the ends of the bracket crosses zero, or halfway: within one piece the line is
    right, and a network of a thousand neurons has few pieces on a short way.
    """
    x, v = asked.x, room.v
    low, high, at_low, at_high = 0.0, 1.0, value, np.inf
    for look in range(CROSSINGS):
        if look == 0:
            middle = 1.0
        elif look % 3 == 2 or at_low > -SLIGHT * at_high:
            middle = 0.5 * (low + high)
        else:
            middle = low + (high - low) * at_low / (at_low - at_high) * (1.0 - 1e-7)
        for i in range(len(w)):
            v[i] = x[i] + (w[i] + middle * (trial[i] - w[i]))
        found, _ = clause_value(asked, v, room.z, clause)
        if found <= 0:
            low, at_low = middle, found
            if middle == 1.0:
                break
        else:
            high, at_high = middle, found
        if high - low < SHORT or (low > 0.0 and at_low > -SLIGHT * SLIGHT * at_high):
            break
    for i in range(len(w)):
        w[i] += low * (trial[i] - w[i])
    return at_low


@njit_sums
def two_least(values: Vector) -> tuple[int, int]:
    """Where the least value is, and the next one; a single value is both."""
    at, then = 0, -1
    for i in range(1, len(values)):
        if values[i] < values[at]:
            at, then = i, at
        elif then < 0 or values[i] < values[then]:
            then = i
    return at, at if then < 0 else then


@njit_sums
def run(
    asked: PackedProblem, U: float, steps: int, restarts: int, seed: int, first: bool, timer: Timer
) -> tuple[float, Vector, int]:
    """Every clause from x, then random starts for the best of them; the nearest unsafe offset and its clause or -1.

    `first`: the first unsafe offset nearer than U will do.
    """
    np.random.seed(seed)
    x, lo, hi, p = asked.x, asked.lo, asked.hi, asked.p
    clauses, n = len(asked.first) - 1, len(x)
    reached = np.full(clauses, np.inf)
    best, found, winner = U, np.zeros(n), -1
    for clause in range(clauses):
        d, w = seek(asked, clause, np.zeros(n), steps, best, COARSE, timer)
        reached[clause] = d
        if d < best:
            best, winner = d, clause
            copy(w, found)
            if first:
                return best, found, winner
    near, other = two_least(reached)
    start = np.empty(n)
    for r in range(restarts):
        clause = near if r % 2 == 0 else other
        size = best if np.isfinite(best) else 1.0 + lp_norm(x, p)
        for i in range(n):
            start[i] = np.random.normal()
        length = lp_norm(start, p)
        if late(timer):
            break
        for i in range(n):
            # half of the starts lie around x, half around the best point
            about = found[i] if r % 2 == 1 else 0.0
            start[i] = min(max(about + start[i] * SPREAD * size / length, lo[i]), hi[i])
        d, w = seek(asked, clause, start, steps, best, COARSE, timer)
        if d < best:
            best, winner = d, clause
            copy(w, found)
            if first:
                return best, found, winner
    if winner >= 0:
        d, w = seek(asked, winner, found, steps, best, FINE, timer)
        if d < best:
            best = d
            copy(w, found)
    return best, found, winner
