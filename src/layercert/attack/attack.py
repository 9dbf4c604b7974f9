"""Witnesses: a fast attack for upper bounds, and settling a point that is unsafe only up to rounding.

The attack linearises the network, steps onto the boundary of the current linear piece until the point is unsafe, then
slides along the boundary towards x until that stalls. Nothing here is trusted: the caller runs every point through the
network again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from layercert.arrays import Matrix, Vector, least_squares
from layercert.network import Network
from layercert.problem import Clause, Problem
from layercert.system import clock
from layercert.system.threads import side_by_side

#: The most a settled point may be moved, relative to its distance from x.
SETTLE = 1e-6
#: A point that differs from x by no more than this, relative in every coordinate, is x up to rounding noise.
NOISE = 1e-12
#: The part of the time left that an attack may take.
SHARE = 0.25
#: Steps of the attack from each start, to the boundary and along it.
STEPS = 60
#: Where any witness will do, the attack on a large network makes do with fewer steps and without random starts: about
#: this many multiplications in all, those of sparse layers being so many times as slow. It took 12 s of the 18 of a
#: question about 13,000 neurons that its root closes.
FEWEST_STEPS, MULTIPLICATIONS, SPARSE_COST = 3, 2e9, 6.0
#: Networks with more neurons than this get walks too, so many rounds of them (walk.py): on smaller ones the search is
#: done before they are. Four rounds instead of eight were 5 % farther on one digit in four.
WALKED, WALKS = 280, 8
#: Halvings of the segment between x and a landmark.
BISECTIONS = 40
#: How far inside the range of a model that clips its input a second attack starts, relative to the range.
INWARD = 1e-6

Found: TypeAlias = tuple[Vector, float, Clause]  # the offset from x, its length, the clause


@np.errstate(over="ignore", invalid="ignore")  # where outputs overflow there is nothing to be found, and no warning
def attack(
    problem: Problem, U: float = math.inf, effort: int = 4, seed: int = 0, threads: int = 1, *, nearest: bool = True
) -> Found | None:
    """An unsafe point nearer than U: its offset from x, its distance, its clause; None when none was found.

    `effort` is the number of random restarts; every clause is tried from x first. With several threads walks start
    elsewhere than with one, and may end at another point. Without `nearest` the first point found will do.
    """
    if not problem.clauses or not U > 0:
        return None
    at = problem.violated(problem.x)
    if at is not None:
        return np.zeros_like(problem.x), 0.0, at
    best: Found | None = None
    for start in _starts(problem):
        found = _attack(start, U, effort, seed, threads, nearest)
        if found is not None:
            step = start.x + found[0] - problem.x
            if (distance := problem.norm.value(step)) < U:
                best, U = (step, distance, found[2]), distance
                if not nearest:
                    break
    return best or _from_afar(problem, U)


def _starts(problem: Problem) -> list[Problem]:
    """The problem, and where the model clips its own input, the same from two points inside that range.

    Beyond the range the gradient is zero and nothing is nearer: a point may as well be clipped. On its ends (the
    black pixels of an image) the gradient is zero on one side, so the second point is a little inside.
    """
    if problem.network.input_range is None:
        return [problem]
    low, high = problem.network.input_range
    x = problem.x
    ends = (np.minimum(low, x), np.maximum(high, x))
    if problem.domain is not None:
        ends = (np.maximum(ends[0], problem.domain[0]), np.minimum(ends[1], problem.domain[1]))
    inward = INWARD * np.where(np.isfinite(np.subtract(high, low)), np.subtract(high, low), 1.0 + np.abs(low))
    inside = np.clip(np.clip(x, low + inward, high - inward), *ends)
    return [replace(problem, domain=ends), replace(problem, domain=ends, x=inside)]


def _attack(problem: Problem, U: float, effort: int, seed: int, threads: int, nearest: bool) -> Found | None:
    from layercert.attack.kernel import PackedProblem, run

    asked, steps = PackedProblem.of(problem), STEPS
    if not nearest:  # there and back, from every start
        cost = sum(W.size * (1.0 if isinstance(W, np.ndarray) else SPARSE_COST) for W in problem.network.maps)
        steps = int(MULTIPLICATIONS / (2.0 * cost * (len(problem.clauses) + effort)))
        steps, effort = (STEPS, effort) if steps >= STEPS else (max(steps, FEWEST_STEPS), 0)
    distance, w, clause = run(asked, float(U), steps, effort, seed, not nearest, _timer())
    if clause < 0:
        return None
    if nearest and problem.network.neurons > WALKED:
        from layercert.attack.walk import walks

        parts, timer = min(threads, WALKS), _timer()
        rounds = -(-WALKS // parts)
        distance, w, clause = min(
            side_by_side([partial(walks, asked, w, clause, distance, rounds, part, timer) for part in range(parts)]),
            key=itemgetter(0),
        )
    return w, float(distance), problem.clauses[clause]


def _timer() -> clock.Timer:
    """A part of the time that is left: bounds need some too."""
    timer, left = clock.timer(), clock.left()
    return timer._replace(end=timer.end - (1.0 - SHARE) * max(left, 0.0)) if math.isfinite(left) else timer


def _from_afar(problem: Problem, U: float) -> Found | None:
    """Where the gradient at x and around it leads nowhere (a saturated class): from landmarks back towards x.

    Zero, the ends and the middle of the domain; on the segment to x the last unsafe point is sought by bisection, and
    from there the attack slides along the boundary.
    """
    x, norm = problem.x, problem.norm
    marks = [np.zeros_like(x)]
    if problem.domain is not None and np.isfinite(problem.domain).all():
        low, high = problem.domain
        marks += [low, high, low + 0.5 * (high - low)]
    best: Found | None = None
    for mark in marks:
        if clock.passed():
            break
        y = problem.into_domain(mark)
        length = norm.value(y - x)
        share = min(1.0, 0.999 * U / length) if length > 0 else 0.0
        at = problem.violated(x + share * (y - x)) if share > 0 else None
        if at is None:
            continue
        safe, clause = 0.0, at
        for _ in range(BISECTIONS):
            if clock.passed():
                break  # what was found so far counts
            middle = 0.5 * (safe + share)
            at = problem.violated(x + middle * (y - x))
            safe, share, clause = (middle, share, clause) if at is None else (safe, middle, at)
        step = share * (y - x)
        best = _shorter(problem, (step, norm.value(step), clause))
        U = best[1]
    return best


def _shorter(problem: Problem, found: Found) -> Found:
    """Slide from a witness towards x along the boundary."""
    from layercert.attack.kernel import FINE, PackedProblem, seek

    step, U, clause = found
    at = next(i for i, each in enumerate(problem.clauses) if each is clause)
    distance, w = seek(PackedProblem.of(problem), at, step, STEPS, U, FINE, clock.timer())
    return (w, float(distance), clause) if distance < U else found


def is_noise(x: Vector, v: Vector) -> bool:
    """Is v x but for rounding? Each coordinate is held against its own size, one that is 0 against the least of the
    others that differ; where all that differ are 0, nothing is noise."""
    size, moved = np.abs(x), v != x
    sizes = size[moved & (size > 0)]
    own = np.where(size > 0, size, sizes.min() if sizes.size else 0.0)
    return bool((np.abs(v - x) <= NOISE * own).all())


@np.errstate(over="ignore", invalid="ignore")
def settle(problem: Problem, w: Vector, clause: Clause) -> Vector | None:
    """A point of the domain that is unsafe for certain, next to x + w, which is unsafe up to rounding.

    Newton steps in the current linear piece aim at a margin above the rounding error of the forward pass, for the worst
    row of the clause at a time; a corner of the unsafe set needs several pieces at once. Where the margin only touches
    zero, a tie is the best there is: the first that holds in exact arithmetic. None when nothing within 1e-6 works, nor
    anything that is x but for rounding: next to x itself a millionth of the distance is less than floats can be moved.
    """
    network, norm = problem.network, problem.norm
    origin = problem.into_domain(problem.x + w)
    length = norm.value(w)
    limit = SETTLE * length

    def near(v: Vector) -> bool:
        return norm.value(v - origin) <= limit or is_noise(problem.x, v)

    if _strict(network, clause, origin):
        return origin
    ties = [origin] if _margin(network, clause, origin) <= 0 else []
    for push in (0.0, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7):
        v = origin
        for _ in range(8):
            clock.check()
            v = _newton(problem, clause, v, push * length)
            if not near(v):
                break
            if _strict(network, clause, v):
                return v
        if _margin(network, clause, v) <= 0:
            ties.append(v)
    corner = _descend(problem, clause, origin, limit)
    if corner is not None:
        return corner
    for stretch in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 9e-7):  # straight on, away from x
        clock.check()
        v = problem.into_domain(problem.x + w * (1.0 + stretch))
        if _strict(network, clause, v):
            return v
        if _margin(network, clause, v) <= 0:
            ties.append(v)
    if not network.fits_dense:
        return None  # what follows needs dense layers and exact arithmetic on all of them
    for push in (0.0, 1e-12, 1e-10, 1e-8):  # along the kinks that pass through the point, for a plateau of ties
        clock.check()
        ties.append(_slide(problem, clause, origin, push * length))
    return next((v for v in ties if near(v) and problem.is_unsafe(v)), None)


def _margin(network: Network, clause: Clause, v: Vector) -> float:
    return float(clause.margins(network(v)).max())


def _needed(network: Network, clause: Clause, v: Vector) -> Vector:
    """By how much each row must be below zero to be so whatever the rounding."""
    return clause.rounding(network(v), network.forward_error(v))


def _strict(network: Network, clause: Clause, v: Vector) -> bool:
    return bool((clause.margins(network(v)) < -_needed(network, clause, v)).all())


def _descend(problem: Problem, clause: Clause, origin: Vector, limit: float) -> Vector | None:
    """A strictly unsafe point next to a corner of the unsafe set, where no single linear piece shows the way in.

    The gradients met so far form a bundle; minus the shortest vector of their convex hull lowers them all at once.
    """
    network = problem.network
    for length in (1e-5 * limit, 1e-3 * limit, 1e-1 * limit, 0.9 * limit):
        bundle: list[Vector] = []
        v = origin
        for _ in range(8):
            clock.check()
            f = clause.margins(network(v)) + 2.0 * _needed(network, clause, v)
            F, _ = network.linear_piece(network.pattern(v))
            bundle.append(clause.C[int(f.argmax())] @ F)
            down = _shortest(np.array(bundle))
            size = problem.norm.value(down)
            if size == 0.0:
                break
            v = problem.into_domain(origin - (length / size) * down)
            if _strict(network, clause, v):
                return v
    return None


def _slide(problem: Problem, clause: Clause, v: Vector, push: float) -> Vector:
    """Move v so that its worst row falls while every neuron that is zero there stays zero (least squares)."""
    network, norm = problem.network, problem.norm
    G, z = np.zeros((0, 0)), v
    kinks = []
    for i, (W, b) in enumerate(zip(network.weights[:-1], network.biases[:-1], strict=True)):
        clock.check()
        G, z = W if i == 0 else W @ G, W @ z + b
        kinks.append(G[np.abs(z) <= 1e-7 * norm.value(v - problem.x) * norm.dual(G)])
        on = z > 0
        G, z = G * on[:, None], z * on
    excess = clause.margins(network(v)) + 2.0 * _needed(network, clause, v)
    row = int(excess.argmax())
    g = clause.C[row] @ network.weights[-1] @ (G if network.L else np.eye(network.inputs))
    A = np.vstack([g[None], *kinks])
    target = np.zeros(len(A))
    target[0] = -(max(float(excess[row]), 0.0) + push * float(norm.dual(g)))
    inside = np.ones(len(v), np.bool_) if problem.domain is None else (v > problem.domain[0]) & (v < problem.domain[1])
    step = np.zeros_like(v)
    if inside.any():
        step[inside] = least_squares(A[:, inside], target, 1e-12)
    return problem.into_domain(v + step)


def _shortest(G: Matrix) -> Vector:
    """The shortest vector of the convex hull of the rows, each scaled to length one: min ||G^T mu||, sum mu = 1."""
    from scipy.optimize import nnls

    largest = np.abs(G).max(axis=1, keepdims=True)
    if not ((largest > 0) & (largest < np.inf)).all():
        return np.zeros(G.shape[1])
    unit = G / largest  # first: squares of the entries may leave the range of doubles
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    heavy = 1e3  # the weight of sum mu = 1 against the length; only the direction matters
    mu, _ = nnls(np.vstack([unit.T, np.full(len(G), heavy)]), np.append(np.zeros(G.shape[1]), heavy))
    return np.asarray(mu @ unit)


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
