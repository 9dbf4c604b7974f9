"""Witnesses: a fast attack for upper bounds, and settling a point that is unsafe only up to rounding.

The attack linearises the network, steps onto the boundary of the current linear piece until the point is unsafe, then
slides along the boundary towards x until that stalls. Nothing here is trusted: the caller runs every point through the
network again.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import Vector, gamma
from layercert.network import Network
from layercert.problem import Clause, Problem

#: The most a settled point may be moved, relative to its distance from x.
SETTLE = 1e-6


def attack(
    problem: Problem, U: float = math.inf, effort: int = 4, seed: int = 0
) -> tuple[Vector, float, Clause] | None:
    """An unsafe point nearer than U: its offset from x, its distance, its clause; None when none was found.

    `effort` is the number of random restarts; every clause is tried from x first.
    """
    from layercert.attack_kernel import Packed, run

    if not problem.clauses or not U > 0:
        return None
    at = problem.violated(problem.x)
    if at is not None:
        return np.zeros_like(problem.x), 0.0, at
    net = Packed.of(problem)
    distance, w, clause = run(
        net.W0, net.Wh, net.b, net.noff, net.woff, net.R, net.c, net.first,
        problem.x, net.lo, net.hi, net.boxed, problem.norm.p, float(U), 60, effort, seed,
    )  # fmt: skip
    if clause < 0:
        return None
    return w, float(distance), problem.clauses[clause]


def settle(problem: Problem, w: Vector, clause: Clause) -> Vector | None:
    """A point of the domain that the network classifies as unsafe, next to x + w, which is unsafe up to rounding.

    Newton steps in the current linear piece aim at a margin above the rounding error of the forward pass, for the worst
    row of the clause at a time; longer steps follow only where these fail. None when nothing within 1e-6 works.
    """
    network, norm = problem.network, problem.norm
    origin = problem.into_domain(problem.x + w)
    limit = SETTLE * norm.value(w)
    fallback: Vector | None = origin if _margin(network, clause, origin) <= 0 else None
    if _strict(network, clause, origin):
        return origin
    for push in (0.0, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7):
        v = origin
        for _ in range(8):
            v = _newton(problem, clause, v, push * norm.value(w))
            if norm.value(v - origin) > limit:
                break
            if _strict(network, clause, v):
                return v
            if fallback is None and _margin(network, clause, v) <= 0:
                fallback = v
    for stretch in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 9e-7):  # straight on, away from x
        v = problem.into_domain(problem.x + w * (1.0 + stretch))
        if _strict(network, clause, v):
            return v
        if fallback is None and _margin(network, clause, v) <= 0:
            fallback = v
    return fallback


def _margin(network: Network, clause: Clause, v: Vector) -> float:
    return float(clause.margins(network(v)).max())


def _needed(network: Network, clause: Clause, v: Vector) -> Vector:
    """By how much each row must be below zero to be so whatever the rounding."""
    f = network(v)
    size = np.abs(clause.C)
    return size @ network.forward_error(v) * 1.01 + gamma(len(f) + 4) * (size @ np.abs(f) + np.abs(clause.d))


def _strict(network: Network, clause: Clause, v: Vector) -> bool:
    return bool((clause.margins(network(v)) < -_needed(network, clause, v)).all())


def _newton(problem: Problem, clause: Clause, v: Vector, push: float) -> Vector:
    """Move v onto the plane where its worst row has twice the needed margin (on this piece), and `push` beyond."""
    from layercert.norms import Box

    network, norm = problem.network, problem.norm
    needed = 2.0 * _needed(network, clause, v)
    excess = clause.margins(network(v)) + needed
    row = int(excess.argmax())
    F, _ = network.linear_piece(network.pattern(v))
    g = clause.C[row] @ F
    s = max(float(excess[row]), 0.0) + push * float(norm.dual(g))
    if s <= 0:
        return v
    box = None if problem.domain is None else Box(problem.domain[0] - v, problem.domain[1] - v)
    length, step = norm.halfspace(g, s, box)
    if not math.isfinite(length):
        return v
    return problem.into_domain(v + step)
