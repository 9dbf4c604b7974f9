"""The nearest unsafe point on a linear piece, for witnesses: nothing is proved here.

Where layers are wide and dense or the norm is not l_inf, one distance program of the piece (leaf.py). In l_inf on
sparse layers that program has hundreds of long rows, many of them alike (a blank background gives a convolution the
same row again and again), and takes a tenth of a second and more. There the least F on the piece inside a ball
(least.py) is found in some milliseconds. Most pieces hold nothing better than the witness, and one program says so.
Otherwise the radius at which the least F is zero is found between tangents and chords: that least value is convex in
the radius.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Vector
from layercert.network import Network
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.least import PiecePrograms

#: A network is sparse whose hidden layers have less than this part of their entries.
SPARSE = 0.25
#: The most radii that are tried on a piece, and how close (relative) the last one has to be. Four are usual; where the
#: piece ends before F has risen to zero they are halved.
RADII, CLOSE = 32, 1e-8


class Piece(NamedTuple):
    """The nearest unsafe point of a piece (value inf: none that is nearer than asked for), and what holds it up."""

    value: float
    step: Vector
    faces: Indices  # neurons at whose hyperplane the point is, those that hold it most first


def is_sparse(network: Network) -> bool:
    """Have the hidden layers few entries?"""
    entries = sum(int(W.shape[0]) * int(W.shape[1]) for W in network.maps[:-1])
    return len(network.packed.data) < SPARSE * entries


def by_distance(leaves: Leaves, sides: Vector, meets: Mask, clause: int, U: float) -> Piece:
    """By the distance program of the piece."""
    answer = leaves.solve(sides, meets, leaves.task.problem.clauses[clause], U)
    neurons = np.flatnonzero(meets)
    weight = answer.multipliers[: len(neurons)]
    return Piece(answer.value, answer.step, neurons[np.argsort(-weight)][: int((weight > 0).sum())])


def by_margin(programs: PiecePrograms, sides: Vector, clause: int, U: float) -> Piece:
    """By the least F inside balls."""
    best = Piece(math.inf, np.zeros(programs.problem.network.inputs), np.empty(0, np.intp))
    left, right, radius = (0.0, math.inf), (math.inf, 0.0), U  # radii without and with unsafe points, the least F there
    for _ in range(RADII):
        found = programs.least(clause, sides, radius)
        tangent = 0.0
        if found is None:
            break
        if found.value <= CLOSE * found.rate * radius:  # unsafe up to rounding
            right = radius, found.value
            best = Piece(float(np.abs(found.step).max()), found.step, found.faces)
            tangent = radius + found.value / found.rate if found.rate > 0 else 0.0
        else:
            left = radius, found.value
        if math.isinf(best.value) or right[0] - max(left[0], tangent) <= CLOSE * right[0]:
            break  # nothing unsafe of this piece is in the ball, or nothing nearer
        if tangent > left[0]:
            radius = tangent
        elif math.isfinite(left[1]):  # the chord: unsafe points reach at least that far
            radius = right[0] + right[1] * (right[0] - left[0]) / (left[1] - right[1])
        if not left[0] < radius < right[0]:
            radius = 0.5 * (left[0] + right[0])
    return best
