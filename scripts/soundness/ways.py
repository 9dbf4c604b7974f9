"""One question asked in many ways: what one of them proves, no witness of another may contradict."""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array

import layercert as lc
from layercert.network import Network
from layercert.run import GAP, How, closest
from layercert.system import clock
from soundness.answers import facets_everywhere
from soundness.checkers import verdicts
from soundness.judge import Judge, faults
from soundness.kind import Outcome
from soundness.questions import Question

#: Seconds for each way, and what part of the exact distance `verify` is asked about.
LIMIT, BESIDE = 4.0, [1 - 1e-5, 1 - 1e-9, 1 + 1e-9, 0.9]
#: Ball arithmetic is for small networks.
MOST_FOR_BALLS = 60
#: In l_inf there is most that differs: programs, facets, the big-M model.
NORMS = [math.inf, math.inf, math.inf, 2.0, 1.0, 1.5]


def convolution(rng: Generator) -> tuple[Network, np.ndarray]:
    """A picture of some channels, filters, two dense layers; hidden layers are stored sparse or dense."""
    side, channels, filters = int(rng.integers(4, 7)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    stride, size = int(rng.integers(1, 3)), int(rng.integers(2, 4))
    taps, across = rng.normal(size=(filters, channels, size, size)), (side - size) // stride + 1
    first = np.zeros((filters, across, across, channels, side, side))
    for i, j in itertools.product(range(across), repeat=2):
        first[:, i, j, :, i * stride : i * stride + size, j * stride : j * stride + size] = taps
    first = first.reshape(filters * across**2, channels * side**2) / (size * math.sqrt(channels))
    hidden, classes = int(rng.integers(4, 10)), int(rng.integers(2, 5))
    second = rng.normal(size=(hidden, len(first))) * math.sqrt(2 / len(first))
    if rng.random() < 0.4:
        second *= rng.random(second.shape) < 0.3
    weights = [first, second, rng.normal(size=(classes, hidden))]
    maps = [csr_array(W) if rng.random() < 0.6 else W for W in weights[:-1]]
    network = Network((*maps, weights[-1]), tuple(rng.normal(size=len(W)) * 0.2 for W in weights))
    return network, rng.uniform(0, 1, channels * side**2)


def dense(rng: Generator) -> tuple[Network, np.ndarray]:
    """One to three hidden layers, now and then with weights on a grid or numbers of another scale."""
    hidden = rng.integers(6, 16, size=int(rng.integers(1, 4))).tolist()
    shape = [int(rng.integers(3, 15)), *hidden, int(rng.integers(2, 5))]
    weights = [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in itertools.pairwise(shape)]
    if rng.random() < 0.2:
        weights = [np.rint(2 * W) / 2 for W in weights]
    scale = 10.0 ** rng.uniform(-6, 6) if rng.random() < 0.15 else 1.0
    biases = [scale * 0.3 * rng.normal(size=m) for m in shape[1:]]
    return Network.from_arrays(weights, biases), scale * rng.uniform(0, 1, shape[0])


def asked(rng: Generator) -> Question:
    """Domain, weights, fixed inputs and targets together, each in a third of the cases or more."""
    network, x = (convolution if rng.random() < 0.5 else dense)(rng)
    n, size, options = len(x), float(np.abs(x).max()), dict[str, Any]()
    kind = rng.random()
    if kind < 0.5:
        options["domain"] = (np.zeros(n), np.full(n, size))
    elif kind < 0.7:
        options["domain"] = tuple(x + s * size * rng.choice([0.0, 0.1, 0.5, math.inf], size=n) for s in (-1, 1))
    if rng.random() < 0.35:
        options["weights"] = 10.0 ** rng.uniform(-1.5, 1.5, n)
    if rng.random() < 0.35:
        options["fixed"] = sorted(set(rng.integers(n, size=int(rng.integers(1, max(2, n // 2)))).tolist()))
    if rng.random() < 0.3:
        options["target"] = sorted(set(rng.integers(network.classes, size=2).tolist()))
    return Question(network, x, NORMS[int(rng.integers(len(NORMS)))], options)


class Ways:
    """The bounds that came of one question so far."""

    def __init__(self, question: Question, rng: Generator) -> None:
        self.question, self.rng, self.judge = question, rng, Judge.of(question)
        self.texts: list[str] = []
        self.lower, self.upper = (0.0, ""), (math.inf, "")

    def measure(self, name: str, **how: Any) -> lc.Result:
        q = self.question
        return self.take(name, lc.measure(q.network, q.x, q.norm, time_limit=LIMIT, **how, **q.options), **how)

    def verify(self, name: str, radius: float, **how: Any) -> None:
        q = self.question
        self.take(name, lc.verify(q.network, q.x, radius, q.norm, time_limit=LIMIT, **how, **q.options))

    def take(self, name: str, result: lc.Result, gap: float = GAP, **_: Any) -> lc.Result:
        self.texts += [f"{text} [{name}]" for text in faults(self.judge, result, self.rng, 0.0, gap)]
        proved = max(result.lower, result.radius if result.status == "robust" else 0.0)
        self._bounds(name, proved if math.isfinite(proved) else result.lower, result.upper)
        if result.certificate is not None:
            self._certificate(name, result, gap)
        return result

    def _certificate(self, name: str, result: lc.Result, gap: float) -> None:
        assert result.certificate is not None
        network, proof = self.question.network, result.certificate
        with tempfile.TemporaryDirectory() as folder:
            network.save(Path(folder) / "network.npz")
            balls = network.neurons < MOST_FOR_BALLS and self.rng.random() < 0.15
            refusals = verdicts(network, proof, Path(folder), balls)
        self.texts += [f"{who} refuses its own certificate [{name}]: {why}" for who, why in refusals.items() if why]
        self._bounds(f"certificate of {name}", proof.radius, math.inf)
        if result.status == "exact" and proof.radius < result.upper * (1 - gap - 4e-6):
            self.texts.append(f"the certificate proves {proof.radius} of {result.upper} [{name}]")

    def _bounds(self, name: str, lower: float, upper: float) -> None:
        self.lower, self.upper = max(self.lower, (lower, name)), min(self.upper, (upper, name))
        if self.lower[0] > self.upper[0]:
            self.texts.append(f"{self.lower} is proved, {self.upper} has a witness")

    def resumed(self) -> None:
        """Stopped again and again, each time with other threads."""
        q, rng = self.question, self.rng
        problem, end, runs = lc.robustness(q.network, q.x, q.norm, **q.options), clock.now() + LIMIT, 0
        with tempfile.TemporaryDirectory() as folder:
            while clock.now() < end:
                runs += 1
                how = How("adaptive", threads=int(rng.integers(1, 4)), save=Path(folder) / "search")
                with clock.until(end, looks=10.0 ** rng.uniform(0.5, 2) * 1.5**runs):
                    result = closest(problem, how)
                if self.take(f"run {runs}", result).status != "undecided":
                    return


def ways(rng: Generator) -> Outcome:
    """In one thread and two, with a gap, with certificates, about radii beside the answer, saved, by other methods."""
    question = asked(rng)
    all_ways = Ways(question, rng)
    first = all_ways.measure("one thread", threads=1)
    with facets_everywhere() if rng.random() < 0.4 else contextlib.nullcontext():
        all_ways.measure("two threads", threads=2, certificate=True)
        gap = float(rng.choice([0.3, 0.05, 1e-3]))
        all_ways.measure("gap", threads=int(rng.integers(1, 3)), gap=gap, certificate=True, method="adaptive")
        if 0 < first.upper < math.inf:
            for part in BESIDE:
                own = {"threads": int(rng.integers(1, 3)), "certificate": bool(rng.random() < 0.5)}
                all_ways.verify(f"verify {part}", first.upper * part, **own)
        all_ways.resumed()
    for method in ("mip", "large") if question.norm in (1.0, math.inf) else ("large",):
        all_ways.measure(method, method=method, threads=1)
    if len(question.x) <= 8:
        all_ways.measure("input-split", method="input-split", certificate=True)
    return Outcome(str(first.status), [f"{text}: {question}" for text in all_ways.texts])
