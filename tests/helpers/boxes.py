"""Networks with few inputs and exact values on them, for box trees."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.random import Generator

from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem


def random_net(rng: Generator, *sizes: int) -> Network:
    return Network.from_arrays(
        [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in itertools.pairwise(sizes)],
        [rng.normal(size=m) * 0.3 for m in sizes[1:]],
    )


def band(low: float, high: float) -> Problem:
    """Unsafe where both outputs are <= 0: |t| >= low and |t| <= high, with |t| = relu(t) + relu(-t)."""
    net = Network.from_arrays([[[1.0], [-1.0]], [[-1.0, -1.0], [1.0, 1.0]]], [[0.0, 0.0], [low, -high]])
    clause = Clause(np.eye(2), np.zeros(2))
    return Problem(net, np.array([0.1]), (clause,), Norm(math.inf), 3.0, (np.array([-2.0]), np.array([2.0])))


def exact_layers(net: Network, v: list[Fraction]) -> tuple[list[Fraction], list[Fraction]]:
    """All pre-activations, one after the other, and the outputs."""
    h, seen = v, []
    for i, (W, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        z = [
            sum((Fraction(float(w)) * x for w, x in zip(row, h, strict=True)), Fraction(float(c)))
            for row, c in zip(W, b, strict=True)
        ]
        if i < net.L:
            seen += z
            h = [max(t, Fraction(0)) for t in z]
    return seen, z
