"""The attack for networks with sparse layers: the nearest point of the linear piece at hand, again and again.

From the current point the network is linearised; the next point is the one nearest to x where the linearisation is
unsafe by a little. Once a point is unsafe, the segment to x is cut back to the boundary and the network linearised
there. Nothing here is trusted: the caller runs every point through the network again.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import Vector
from layercert.problem import Clause, Problem

#: How far beyond the boundary of a linear piece a step goes, relative to its value at x; more after each failure.
OVERSHOOT, MORE = 1e-3, 1.5


def attack_large(problem: Problem, U: float, rounds: int = 30, most: int = 12) -> tuple[Vector, float, Clause] | None:
    """An unsafe point nearer than U: its offset from x, its distance, its clause; None when none was found."""
    f = problem.network(problem.x)
    ranked = sorted(problem.clauses, key=lambda clause: float(clause.margins(f).max()))[:most]
    best: tuple[Vector, float, Clause] | None = None
    for clause in ranked:
        limit = U if best is None else best[1]
        w = _seek(problem, clause, limit, rounds)
        if w is not None and (distance := problem.norm.value(w)) < limit:
            best = (w, distance, clause)
    return best


def _seek(problem: Problem, clause: Clause, limit: float, rounds: int) -> Vector | None:
    x, norm, box = problem.x, problem.norm, problem.box
    w = np.zeros_like(x)
    best: Vector | None = None
    stalled, beyond = 0, OVERSHOOT
    for _ in range(rounds):
        v = problem.into_domain(x + w)
        margins = clause.margins(problem.network(v))
        if margins.max() < 0:
            w = _cut_back(problem, clause, v - x)
            length = norm.value(w)
            if best is not None and length > 0.999 * norm.value(best):
                stalled += 1
            if best is None or length < norm.value(best):
                best = w
            beyond = OVERSHOOT
            if stalled > 2:
                break
            v = problem.into_domain(x + w)
            margins = clause.margins(problem.network(v))
        else:
            beyond *= MORE
        row = int(margins.argmax())
        g = gradient(problem, v, clause.C[row])
        at_x = float(margins[row]) - float(g @ (v - x))  # the linearisation's value at x
        distance, step = norm.halfspace(g, at_x + beyond * abs(at_x), box)
        if not math.isfinite(distance) or distance > 3.0 * limit or distance == 0.0:
            break
        w = step if best is None else 0.5 * (w + step)  # a full step may leave the piece for good
    return best if best is not None and norm.value(best) < limit else None


def _cut_back(problem: Problem, clause: Clause, w: Vector) -> Vector:
    """The shortest multiple of w found unsafe, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(20):
        t = 0.5 * (low + high)
        v = problem.into_domain(problem.x + t * w)
        if clause.margins(problem.network(v)).max() < 0:
            high = t
        else:
            low = t
    return problem.into_domain(problem.x + high * w) - problem.x


def gradient(problem: Problem, v: Vector, row: Vector) -> Vector:
    """The gradient of row.f at v, on its linear piece."""
    network = problem.network
    z = network.preactivations(v)
    g = np.asarray(row @ network.maps[-1])
    for k in range(network.L - 1, -1, -1):
        g = np.asarray((g * (z[k] > 0)) @ network.maps[k])
    return g
