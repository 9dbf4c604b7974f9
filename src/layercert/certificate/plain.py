"""A claim about a weighted norm as one about a plain norm, which is what the trees prove.

In the coordinates u = D(v - x), D the weights, the ball ||u|| <= r around 0 is the claim's ball, exactly. The network
in these coordinates has the first layer W = W^0 D^-1 and the bias b = W^0 x + b^0, both rounded; what this may change
in its outputs is added to the clauses' right-hand sides: points that are unsafe stay unsafe. The search has its own way
to do this (`layercert.scaled`), so that one mistake cannot hide in both.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import EPS, SMALLEST, LinearMap, Vector, gamma
from layercert.network import Network
from layercert.norms import Norm, WeightedNorm
from layercert.problem import Clause, Problem


def without_weights(problem: Problem) -> Problem:
    """A problem whose clauses hold nowhere within its radius only if those of the given one do not; the radius is
    finite."""
    norm = problem.norm
    if not isinstance(norm, WeightedNorm):
        return problem
    network, weights = problem.network, norm.weights
    W0, b0, n = network.maps[0], network.biases[0], network.inputs
    with np.errstate(over="ignore", invalid="ignore"):
        W, rounding = _divided(W0, weights)
        b = W0 @ problem.x + b0
        lost = gamma(n + 2) * (abs(W0) @ np.abs(problem.x) + np.abs(b0)) + 2.0 * (n + 2) * SMALLEST
        low, high = _offsets(problem, weights)
        room = np.minimum(np.maximum(-low, high), problem.radius)
        error = (rounding @ room + lost) * (1.0 + gamma(2 * n + 8))
        for V in network.maps[1:]:
            error = (abs(V) @ error) * (1.0 + gamma(V.shape[1] + 4)) + V.shape[1] * SMALLEST
        clauses = tuple(Clause(c.C, _above(c, error), c.target) for c in problem.clauses)
    return replace(
        problem,
        network=Network((W, *network.maps[1:]), (b, *network.biases[1:]), network.source),
        x=np.zeros(n),
        clauses=clauses,
        norm=Norm(norm.p),
        domain=None if problem.domain is None else (low, high),
    )


def _divided(W: LinearMap, weights: Vector) -> tuple[LinearMap, LinearMap]:
    """W D^-1, entry by entry, rounded; and by how much each entry may be off."""
    if isinstance(W, np.ndarray):
        quotient = W / weights
        return quotient, np.where(W != 0, EPS * np.abs(quotient) + SMALLEST, 0.0)
    entries = W.data / weights[W.indices]

    def in_place(data: Vector) -> LinearMap:  # with indices of its own: scipy sorts them in place
        return csr_array((data, W.indices.copy(), W.indptr.copy()), shape=W.shape)

    return in_place(entries), in_place(EPS * np.abs(entries) + SMALLEST)


def _offsets(problem: Problem, weights: Vector) -> tuple[Vector, Vector]:
    """The domain's ends as u, rounded outwards."""
    if problem.domain is None:
        return np.full(len(weights), -math.inf), np.full(len(weights), math.inf)
    down, up = ((end - problem.x) * weights * (1.0 + gamma(4)) for end in problem.domain)
    low, high = problem.domain  # where an end is not x there is some room, also if the product vanishes
    return (
        np.where(low < problem.x, np.nextafter(down, -np.inf), 0.0),
        np.where(high > problem.x, np.nextafter(up, np.inf), 0.0),
    )


def _above(clause: Clause, error: Vector) -> Vector:
    more = (np.abs(clause.C) @ error) * (1.0 + gamma(len(error) + 4)) + len(error) * SMALLEST
    return np.asarray(np.nextafter(clause.d + more, np.inf))
