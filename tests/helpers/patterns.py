"""Exact patterns and badly scaled networks, for geometry and bounds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.random import Generator

from layercert.arrays import Signs
from layercert.network import Network
from layercert.problem import Problem, robustness


def dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((u * v for u, v in zip(a, b, strict=True)), Fraction(0))


def badly_scaled(rng: Generator, norm: float) -> Problem:
    """Weights over 16 orders of magnitude with rows that almost cancel: 2 inputs, layers of 3, 3 and 2 neurons."""
    sizes = [2, 3, 3, 2, 2]
    weights, biases = [], []
    for n, m in itertools.pairwise(sizes):
        W = rng.normal(size=(m, n)) * 10.0 ** rng.uniform(-8, 8, size=(m, n))
        W[1] = -W[0] * (1 + rng.normal() * 1e-15)
        weights.append(W)
        biases.append(rng.normal(size=m) * 10.0 ** rng.uniform(-8, 8, size=m))
    x = rng.normal(size=2) * 10.0 ** rng.uniform(-3, 3)
    return robustness(Network.from_arrays(weights, biases), x, norm)


def exact_pattern(network: Network, v: list[Fraction]) -> list[Signs]:
    pattern: list[Signs] = []
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        z = [dot([Fraction(float(a)) for a in row], v) + Fraction(float(c)) for row, c in zip(W, b, strict=True)]
        pattern.append(np.array([1 if t >= 0 else -1 for t in z], dtype=np.int8))
        v = [max(t, Fraction(0)) for t in z]
    return pattern
