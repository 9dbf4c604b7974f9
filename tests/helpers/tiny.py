"""Tiny random problems that brute force can judge: generic networks, and families that are degenerate on purpose.

A problem is a function of its seed, so a failure is repeated by its seed; there is nothing to shrink.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from numpy.random import Generator

from helpers import profiles
from layercert.network import Network
from layercert.problem import Problem, robustness

#: A coarse grid makes zeros, duplicate neurons, parallel hyperplanes and ties frequent.
GRID = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]
NORMS = [1, 1.5, 2, 3, float("inf")]
TWISTS = ["none", "duplicate", "parallel", "dead layer", "zero row", "nearly parallel"]

seeds = st.integers(0, 2**32 - 1)


def examples(dev: int, ci: int) -> settings:
    """So many seeds in `make test`, and so many in CI; there is nothing to shrink in a seed."""
    return settings(profiles.examples(dev, ci), phases=[Phase.explicit, Phase.reuse, Phase.generate])


def generic(seed: int) -> Problem:
    """Gaussian weights: no ties, no coincidences."""
    rng = np.random.default_rng(seed)
    sizes = shape(rng)
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    biases = [rng.normal(size=m) * 0.5 for m in sizes[1:]]
    return problem(rng, Network.from_arrays(weights, biases), rng.uniform(-1, 1, sizes[0]))


def degenerate(seed: int) -> Problem:
    """Weights on a coarse grid, sometimes with duplicated neurons or a dead layer; x often on a hyperplane."""
    rng = np.random.default_rng(seed)
    sizes = shape(rng)
    weights = [rng.choice(GRID, size=(m, n)) for n, m in itertools.pairwise(sizes)]
    biases = [rng.choice(GRID, size=m) for m in sizes[1:]]
    i = int(rng.integers(len(weights) - 1))
    twist = rng.choice(TWISTS)
    pair = len(weights[i]) > 1
    if twist == "duplicate" and pair:
        weights[i][1], biases[i][1] = weights[i][0], biases[i][0]
    elif twist == "parallel" and pair:
        weights[i][1], biases[i][1] = -3.0 * weights[i][0], -3.0 * biases[i][0]
    elif twist == "nearly parallel" and pair:
        weights[i][1], biases[i][1] = weights[i][0] * (1 + 1e-15), biases[i][0]
    elif twist == "dead layer":
        biases[i][:] = -100.0
    elif twist == "zero row":
        weights[i][0], biases[i][0] = 0.0, 0.0
    return problem(rng, Network.from_arrays(weights, biases), rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=sizes[0]))


def shape(rng: Generator) -> list[int]:
    """1-4 inputs, 1-3 hidden layers, 2-4 classes; few enough neurons for brute force to be quick."""
    layers = int(rng.integers(1, 4))
    widest = {1: 5, 2: 3, 3: 2}[layers]
    return [int(rng.integers(1, 5)), *rng.integers(1, widest + 1, size=layers).tolist(), int(rng.integers(2, 5))]


def problem(rng: Generator, network: Network, x: np.ndarray) -> Problem:
    """In one of the norms, with or without a box (x sometimes on its edge), with a radius or none."""
    norm = NORMS[int(rng.integers(len(NORMS)))]
    domain = None
    if rng.random() < 0.5:
        domain = (x - rng.choice([0.0, 0.3, 1.0]), x + rng.choice([0.2, 1.0]))
    radius = [None, None, 0.3, 2.0][int(rng.integers(4))]
    return robustness(network, x, norm, radius=radius, domain=domain)
