"""Random networks of many shapes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from layercert.arrays import Vector
from layercert.network import Network

NORMS = [1.0, 1.5, 2.0, 3.0, math.inf]


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Small networks with small integer or normal weights; dead, duplicate and constant neurons included."""
    inputs = draw(st.integers(1, 3))
    widths = draw(st.sampled_from([(), (2,), (5,), (3, 3), (2, 2, 2)]))
    sizes = [inputs, *widths, draw(st.integers(2, 4))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["normal", "integer", "sparse", "duplicate", "dead"]))
    weights, biases = [], []
    for n, m in pairwise(sizes):
        W, b = rng.normal(size=(m, n)), rng.normal(size=m) * 0.5
        if kind == "integer":
            W, b = np.rint(W), np.rint(b)
        elif kind == "sparse":
            W *= rng.random(W.shape) < 0.5
        elif kind == "duplicate":
            W[-1], b[-1] = W[0], b[0]
        weights.append(W)
        biases.append(b)
    if kind == "dead" and widths:
        biases[len(widths) // 2][:] = -100.0
    return Network.from_arrays(weights, biases)


def random_question(inputs: int, seed: int) -> tuple[Network, Vector]:
    """A network of two layers of three times the inputs, and a point: of seconds or less, with hundreds of nodes.

    Nodes of the adaptive search: (8, 3) in l_1 870, (8, 1) in l_2 1,100, (6, 2) in l_inf 140, (6, 4) in l_1 350.
    """
    rng = np.random.default_rng(seed)
    sizes = [8, 24, 24, 4] if inputs == 8 else [6, 20, 20, 3]
    weights = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(sizes)]
    biases = [0.3 * rng.normal(size=m) for m in sizes[1:]]
    return Network.from_arrays(weights, biases), rng.normal(size=sizes[0])
