"""False claims at the ends of float64: each has an unsafe point within its radius, by a little, and a tree of one leaf.

Numbers are of any size (weights from 1e-300 to 1e100, radii and inputs up to 1e305, norms' weights from 1e-60 to 1e60),
so that products vanish or overflow somewhere. Half of the leaves have facets. No checker, in whatever arithmetic, may
accept one of them.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

import layercert as lc
from helpers.leaves import one_leaf
from helpers.standalone import alone
from layercert.arrays import Vector
from layercert.certificate.claim import BoxTree, Certificate
from layercert.network import Network
from soundness.kind import Outcome
from soundness.truth import Exact, Length, rational

Box: TypeAlias = tuple[Vector, Vector]
NORMS = [1.0, 1.5, 2.0, 3.0, math.inf, math.inf, math.inf]
#: Sides of the domain, in radii.
SIDES = [0.0, 1e-300, 1e-10, 0.5, 1.0, 1e10, math.inf]
#: Inputs of points beyond all of float64 are this large.
LARGEST = 1e300
#: Points of the ball that are looked at; the least F among them is made unsafe.
POINTS = 24


def forgeries(rng: Generator) -> Outcome:
    with np.errstate(all="ignore"):
        made = _false_claim(rng)
    if made is None:
        return Outcome("out of range", [])
    network, claim = made
    accepted = []
    for exact in (False, True):
        if lc.check(network, claim, exact=exact).ok:
            accepted.append("balls" if exact else "floats")
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("proof.npz", "network.npz")]
        claim.save(paths[0])
        network.save(paths[1])
        for more in ([], ["--exact"]):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                if alone.main([*paths, *more]) == 0:
                    accepted.append(f"alone {''.join(more)}")
    numbers = [*map(np.ndarray.tolist, (*network.weights, *network.biases))]
    faults = [f"{accepted} accept a false claim: {claim}, weights and biases {numbers}"] if accepted else []
    return Outcome("accepted" if accepted else "refused", faults)


def _false_claim(rng: Generator) -> tuple[Network, Certificate] | None:
    """A network whose first output is 0 or less at some point of a ball, the claim that it is not, and one leaf."""
    sizes = [int(rng.integers(1, 3)), *(int(n) for n in rng.integers(1, 3, size=int(rng.integers(0, 3)))), 2]
    n, wild, p = sizes[0], rng.random() < 0.7, NORMS[int(rng.integers(len(NORMS)))]
    r = _power(rng, -300, 305) if wild else _power(rng, -150, 74)
    x = rng.normal(size=n) * (_power(rng, -300, 300) if rng.random() < 0.5 else r) * rng.choice([0.0, 1.0])
    weights = None
    if rng.random() < 0.4:
        weights = 10.0 ** rng.uniform(-60, 60, size=n) if rng.random() < 0.5 else np.full(n, _power(rng, -60, 60))
    scale = np.ones(n) if weights is None else weights
    value, W, b = min(float(np.abs(x).max() + (r / scale).max()), LARGEST), [], []
    for a, m in itertools.pairwise(sizes):
        step = rng.choice([-1.0, 1.0], size=(m, a)) * rng.uniform(0.5, 1.0, size=(m, a))
        step *= _power(rng, -300, 100) if wild else _power(rng, -100, 50)
        W.append(step * 10.0 ** rng.uniform(-30, 0, size=step.shape) if rng.random() < 0.2 else step)
        value *= float(np.abs(W[-1]).max())
        b.append(rng.normal(size=m) * value * rng.choice([0.0, 1.0, 1.0, 10.0]))
    W[-1][1], b[-1][:] = 0.0, 0.0
    if not all(np.isfinite(a).all() for a in (x, *W, *b)):
        return None
    domain = _domain(rng, x, r) if rng.random() < 0.6 else None
    network = Network.from_arrays(W, b)
    bias = _lowest(rng, network, x, list(_points(rng, (x, scale), (p, r), domain)))
    if bias is None:
        return None
    b[-1][0] = bias
    network = Network.from_arrays(W, b)
    slopes = rng.choice([0.0, 0.5, 1.0], size=(1, network.neurons))
    boxes = math.isinf(p) and rng.random() < 0.3
    leaf = one_leaf(network.neurons, 1, slopes)
    leaf = replace(leaf, **_facets(rng, network)) if rng.random() < 0.5 else leaf
    tree = BoxTree(np.array([-1], np.int32), np.zeros(1)) if boxes else leaf
    C = np.array([[1.0 if rng.random() < 0.6 else _power(rng, -300, 300), 0.0]])
    clauses = ((C, np.zeros(1), None),)
    return network, Certificate(
        network.sha256, x, p, domain, None, clauses, r, None, math.inf, (tree,), weights=weights
    )


def _facets(rng: Generator, network: Network) -> dict[str, Vector]:
    """Upper lines of some neurons; any are sound."""
    counts = np.concatenate([np.zeros(0, np.int64), *(np.count_nonzero(W, axis=1) for W in network.weights[:-1])])
    at = np.flatnonzero(rng.random(len(counts)) < 0.8)
    return {
        "facet_count": np.array([len(at)]), "facet_at": at, "facet_share": rng.choice([0.3, 1.0], size=len(at)),
        "facet_part": rng.choice([0.0, 0.5, 1.0], size=int(counts[at].sum())),
    }  # fmt: skip


def _power(rng: Generator, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def _domain(rng: Generator, x: Vector, r: float) -> Box:
    low, high = x - r * rng.choice(SIDES, size=len(x)), x + r * rng.choice(SIDES, size=len(x))
    return np.fmin(low, x), np.fmax(high, x)


def _points(
    rng: Generator, at: tuple[Vector, Vector], ball: tuple[float, float], domain: Box | None
) -> Iterator[Vector]:
    """Points of ball and domain, for certain."""
    (x, scale), (p, r) = at, ball
    length = Length(p, rational(scale))
    for _ in range(POINTS):
        step = rng.choice([-1.0, 0.0, 1.0], size=len(x)) if rng.random() < 0.8 else rng.normal(size=len(x))
        size = float(np.abs(step).max() if math.isinf(p) else (np.abs(step) ** p).sum() ** (1.0 / p))
        v = x + (1.0 - 1e-11) * r * (step / size if size > 0 else step) / scale
        v = np.nan_to_num(v, posinf=LARGEST, neginf=-LARGEST)
        v = v if domain is None else np.clip(v, *domain)
        if np.isfinite(v).all() and length.below([a - b for a, b in zip(rational(v), rational(x), strict=True)], r):
            yield v


def _lowest(rng: Generator, network: Network, x: Vector, points: list[Vector]) -> float | None:
    """A bias of the first output, which has none, with which it is 0 or a little less at one of the points."""
    exact = Exact(network)
    values = [exact(rational(v))[0] for v in points]
    if not values:
        return None
    least = min(values)
    beyond = max(exact(rational(x))[0] - least, Fraction(0)) * Fraction(10) ** int(rng.integers(-12, 0))
    try:
        bias = float(-least - beyond)
    except OverflowError:
        return None
    bias = bias if Fraction(bias) <= -least else math.nextafter(bias, -math.inf)
    return bias if math.isfinite(bias) else None
