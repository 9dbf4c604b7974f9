"""Compiled: walks on balls that shrink and grow. They cross the linear pieces that a slide stops at.

`seek` (kernel.py) goes along the boundary from one linear piece to the next and comes to rest where none beside it is
nearer: on convolutional networks often half as far again as the nearest point. A walk takes steps of a given length
down the clause's value, whatever the pieces, and is put back into a ball around x, which shrinks while the point is
unsafe and grows while it is safe (the fast minimum-norm attack of Pintor et al., 2021). Steps become shorter, and what
is found is left to `seek`. Starts far outside of the best ball find other valleys than those around x do.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import Vector
from layercert.attack.kernel import FINE, PackedProblem, clause_value, room_for, row_gradient, seek
from layercert.compiled.dense import copy
from layercert.compiled.jit import njit_sums
from layercert.compiled.norms import lp_norm
from layercert.compiled.timer import Timer, late

#: Steps of a walk. Two and a half times as many came half a per cent nearer, once in five.
STEPS = 40
#: The first step is this part of the best distance, the last one this part of the first.
STRIDE, LAST_STRIDE = 0.3, 0.02
#: How fast the ball shrinks or grows at first, as a part of its radius; it slows down like the steps.
BREATH = 0.1
#: Random starts lie this many times as far away as the best point: around it or nearer they all end where it is.
FAR = 2.0
#: After the first round of walks, only clauses that came this near, relative to the best, are walked for again.
PROMISING = 1.3


@njit_sums
def walk(asked: PackedProblem, clause: int, start: Vector, best: float, timer: Timer) -> tuple[float, Vector]:
    """From x + start to unsafe points of one clause: the nearest one's distance, inf without any, and its offset."""
    x, lo, hi, p, n = asked.x, asked.lo, asked.hi, asked.p, len(start)
    w, found, room = start.copy(), start.copy(), room_for(asked)
    g, v = room.g, room.v
    nearest, radius = np.inf, best
    for step in range(STEPS):
        if late(timer):
            break
        for i in range(n):
            v[i] = x[i] + w[i]
        value, row = clause_value(asked, v, room.z, clause)
        pace = LAST_STRIDE + (1.0 - LAST_STRIDE) * 0.5 * (1.0 + math.cos(math.pi * step / STEPS))
        if value <= 0.0:
            length = lp_norm(w, p)
            if length < nearest:
                nearest = length
                copy(w, found)
            radius = min(radius, nearest) * (1.0 - BREATH * pace)
        else:
            radius = min(radius * (1.0 + BREATH * pace), nearest, best)
        row_gradient(asked, room.z, row, room.S, g)
        size = lp_norm(g, 2.0)
        if size == 0.0:
            break
        stride = STRIDE * best * pace
        for i in range(n):
            down = np.sign(g[i]) if np.isinf(p) else g[i] / size
            w[i] = min(max(w[i] - stride * down, lo[i]), hi[i])
        into_ball(w, radius, p)
    return nearest, found


@njit_sums
def into_ball(w: Vector, radius: float, p: float) -> None:
    """The point of the ball nearest to w, or straight towards x for norms other than l_2 and l_inf."""
    if np.isinf(p):
        for i in range(len(w)):
            w[i] = min(max(w[i], -radius), radius)
        return
    length = lp_norm(w, p)
    if length > radius:
        for i in range(len(w)):
            w[i] *= radius / length


@njit_sums
def walks(
    asked: PackedProblem, first: Vector, clause: int, best: float, rounds: int, part: int, timer: Timer
) -> tuple[float, Vector, int]:
    """Rounds of walks for all clauses from a witness, `first` of `clause` at distance `best`, and from far random ones.

    The nearest witness, its distance and its clause; what was given where none is nearer. Several threads do a part
    each: the first one walks from the witness, and all have random starts of their own.
    """
    np.random.seed(part)
    clauses, winner = len(asked.first) - 1, clause
    found, start = first.copy(), first.copy()
    reached = np.full(clauses, np.inf)
    for turn in range(min(part, 1), rounds + 1):
        for c in range(clauses):
            at = (clause + c) % clauses  # the witness's own clause first: there may be no time for all
            if late(timer):
                break
            if turn > 1 and reached[at] > PROMISING * best:
                continue
            if turn > 0:
                far_start(asked, FAR * best, start)
            d, w = walk(asked, at, start, best, timer)
            reached[at] = min(reached[at], d)
            if d < best:
                best, winner = d, at
                copy(w, found)
    d, w = seek(asked, winner, found, STEPS, best, FINE, timer)
    if d < best:
        best = d
        copy(w, found)
    return best, found, winner


@njit_sums
def far_start(asked: PackedProblem, length: float, start: Vector) -> None:
    """A random offset of this length, as far as the domain allows."""
    for i in range(len(start)):
        start[i] = np.random.normal()
    scale = length / lp_norm(start, asked.p)
    for i in range(len(start)):
        start[i] = min(max(scale * start[i], asked.lo[i]), asked.hi[i])
