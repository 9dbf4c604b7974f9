"""Random questions of every kind: networks of all scales, ties, degenerate domains, targets, weights, fixed inputs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array

from layercert.network import Network

NORMS = [1.0, 2.0, math.inf, 1.5, 3.0, 1.01, 7.3]
METHODS = ["adaptive"] * 6 + ["geocert", "geocert-lip", "layercert-basic", "layercert-both", "layercert-recursive"]
METHODS += ["input-split", "large", "mip", "layercert-recursive-lp"]
GRID = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]


@dataclass
class Question:
    """What `measure` and `verify` are asked; `options` are their other arguments."""

    network: Network
    x: np.ndarray
    norm: float
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arrays = [w.tolist() for w in self.network.weights], [b.tolist() for b in self.network.biases]
        return f"{arrays[0]}, {arrays[1]}, x = {self.x.tolist()}, norm {self.norm}, {self.options}"


def sizes(rng: Generator, inputs: int | None = None) -> list[int]:
    """1-4 inputs, 0-3 hidden layers, 2-4 classes."""
    layers = int(rng.integers(0, 4))
    widest = {0: 1, 1: 5, 2: 4, 3: 3}[layers]
    hidden = rng.integers(1, widest + 1, size=layers).tolist()
    return [inputs or int(rng.integers(1, 5)), *hidden, int(rng.integers(2, 5))]


def plain(rng: Generator, inputs: int | None = None) -> Question:
    """Gaussian weights of about one."""
    shape = sizes(rng, inputs)
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(shape)]
    biases = [rng.normal(size=m) * 0.5 for m in shape[1:]]
    return _asked(rng, Network.from_arrays(weights, biases), rng.uniform(-1, 1, shape[0]))


def scaled(rng: Generator) -> Question:
    """Every layer, every bias and the input at a scale of its own, from 1e-300 to 1e70."""
    shape = sizes(rng)
    wild = rng.random() < 0.5
    weights, biases, reach = [], [], _power(rng, -12, 6)
    x = rng.normal(size=shape[0]) * reach
    if rng.random() < 0.2:
        x = x * 10.0 ** rng.uniform(-20, 0, shape[0])
    with np.errstate(all="ignore"):
        for n, m in itertools.pairwise(shape):
            step = _power(rng, -300, 70) if wild else _power(rng, -40, 20)
            W = rng.normal(size=(m, n)) * step
            if rng.random() < 0.3:
                W = W * 10.0 ** rng.uniform(-30, 0, (m, n))
            reach = min(max(reach * step, 1e-320), 1e300)
            b = rng.normal(size=m) * reach * 10.0 ** rng.uniform(-20, 2)
            weights.append(np.nan_to_num(W, posinf=1e300, neginf=-1e300))
            biases.append(np.nan_to_num(b, posinf=1e300, neginf=-1e300) * rng.choice([0.0, 1.0, 1.0]))
    return _asked(rng, Network.from_arrays(weights, biases), x)


def tied(rng: Generator, inputs: int | None = None) -> Question:
    """Weights on a coarse grid: ties, kinks at x, duplicate and dead neurons; all scaled by one power of ten."""
    shape = sizes(rng, inputs)
    weights = [rng.choice(GRID, size=(m, n)) for n, m in itertools.pairwise(shape)]
    biases = [rng.choice(GRID, size=m) for m in shape[1:]]
    x = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=shape[0])
    if rng.random() < 0.3:
        power = 10.0 ** float(rng.integers(-30, 20))
        x, biases = x * power, [b * power for b in biases]
    if len(weights[0]) > 1 and rng.random() < 0.3:
        weights[0][1], biases[0][1] = weights[0][0] * (1 + float(rng.choice([0.0, 1e-15]))), biases[0][0]
    return _asked(rng, Network.from_arrays(weights, biases), x)


def pooled(rng: Generator, inputs: int | None = None) -> Question:
    """A convolution, the maxima of neighbours, a dense layer: few entries per row, layers often stored sparse.

    A maximum is max(a, b) = relu(a - b) + relu(b) - relu(-b), as importers write it. Some neurons read nothing. A part
    of them has inputs and values of any size.
    """
    n, kernel, classes = inputs or int(rng.integers(3, 7)), int(rng.integers(1, 4)), int(rng.integers(2, 4))
    draw = (lambda size: rng.choice(GRID, size=size)) if rng.random() < 0.3 else (lambda size: rng.normal(size=size))
    taps, convolution = draw(kernel), np.zeros((n, n))
    for i in range(n):
        for t in range(kernel):
            if i + t < n:
                convolution[i, i + t] = taps[t]
    pairs = max(n // 2, 1)
    first, second = np.zeros((3 * pairs, n)), np.zeros((pairs, 3 * pairs))
    for q in range(pairs):
        a, b = 2 * q, min(2 * q + 1, n - 1)
        first[3 * q, a] += 1.0
        first[3 * q, b] -= 1.0
        first[3 * q + 1, b], first[3 * q + 2, b] = 1.0, -1.0
        second[q, 3 * q : 3 * q + 3] = 1.0, 1.0, -1.0
    if rng.random() < 0.5:  # maxima of outputs of ReLU
        weights = [convolution, first, second, draw((classes, pairs))]
    else:
        weights = [first @ convolution, second, draw((classes, pairs))]
    if rng.random() < 0.3:
        weights[0][int(rng.integers(len(weights[0])))] = 0.0
    biases = [draw(len(W)) * (0.5 if i in (0, len(weights) - 1) else 0.0) for i, W in enumerate(weights)]
    x = rng.uniform(-1, 1, n)
    if rng.random() < 0.3:  # values stay within 1e-140 and 1e70, squares of inputs or weights may not
        values, size = _power(rng, -140, 70), _power(rng, *[(-200, -150), (-150, 70)][int(rng.integers(2))])
        weights[0], biases, x = weights[0] * (values / size), [b * values for b in biases], x * size
    if rng.random() < 0.5:
        maps = tuple(csr_array(W) for W in weights)
        network = Network((*maps[:-1], weights[-1]), tuple(biases))
    else:
        network = Network.from_arrays(weights, biases)
    return _asked(rng, network, x)


def cornered(rng: Generator) -> Question:
    """Domains with fixed coordinates, one-sided and infinite ends, single points, x in a corner."""
    question = (plain if rng.random() < 0.5 else tied)(rng)
    x = question.x
    low = x - rng.choice([0.0, 1e-300, 1e-17, 1e-9, 0.5, 1e9, math.inf], size=len(x))
    high = x + rng.choice([0.0, 0.0, 1e-17, 1e-3, 1.0, 1e9, math.inf], size=len(x))
    question.options["domain"] = (low, high)
    question.options.pop("fixed", None)
    return question


def _power(rng: Generator, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def _asked(rng: Generator, network: Network, x: np.ndarray) -> Question:
    """In one of the norms, perhaps in a box, perhaps for a label, targets, weights or fixed inputs of its own."""
    options: dict[str, Any] = {}
    size = float(np.abs(x).max()) or 1.0
    if rng.random() < 0.4:
        options["domain"] = (x - size * rng.choice([0.0, 0.3, 1.0]), x + size * rng.choice([0.2, 1.0]))
    if rng.random() < 0.15:
        options["label"] = int(rng.integers(network.classes))
    if rng.random() < 0.1:
        options["target"] = sorted(set(rng.integers(network.classes, size=2).tolist()))
    if rng.random() < 0.1:
        options["weights"] = 10.0 ** rng.uniform(-3, 3, len(x))
    if len(x) > 1 and rng.random() < 0.1:
        options["fixed"] = [int(rng.integers(len(x)))]
    return Question(network, x, NORMS[int(rng.integers(len(NORMS)))], options)
