"""VNN-LIB properties with rational truth: for one input it is known, for several sat and many points are checked."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from numpy.random import Generator

import layercert as lc
from helpers.properties import Written, float32_network, random_point, random_property
from layercert.spec.read import parse_spec
from soundness.kind import Outcome
from soundness.truth import Exact, rational

#: Points of a property with several inputs that are evaluated when the answer is unsat.
POINTS = 40
LOW, HIGH = Fraction(-3, 2), Fraction(2)  # every input's range in `random_property`


def properties(rng: Generator) -> Outcome:
    written = random_property(int(rng.integers(2**32)))
    network = _network(rng, written)
    exact = Exact(network)
    spec = parse_spec(written.text(int(rng.integers(1, 3))))
    result = lc.verify_spec(network, spec, time_limit=10, certificate=bool(rng.random() < 0.4))
    texts = []
    if result.answer == "sat":
        assert result.counterexample is not None
        x = [Fraction(text) for text in result.counterexample.inputs]
        if not written.holds(x, exact(x)):
            texts.append(f"sat by {x}, which violates nothing")
    if result.answer == "unsat":
        point = violation(written, exact) if written.inputs == 1 else _sampled(rng, written, exact)
        if point is not None:
            texts.append(f"unsat, but {[str(v) for v in point]} is a counterexample")
    if result.certificates and not lc.check_spec(network, spec, result.certificates).ok:
        texts.append("own certificates rejected")
    texts += _of_another(rng, written, network, result)
    if rng.random() < 0.1 and not any(case.strict for case in spec.cases):
        growth = lc.measure_spec(network, spec, time_limit=float(rng.choice([5.0, 5.0, 1e-6])))
        if result.answer == "sat" and growth.lower > 1:
            texts.append(f"sat, but the boxes may grow by {growth.lower}")
        if result.answer == "unsat" and growth.upper < 1:
            texts.append(f"unsat, but violated at {growth.upper} of the boxes")
    return Outcome(str(result.answer), [f"{text}: {written.text(1)} {_shown(network)}" for text in texts])


def _network(rng: Generator, written: Written) -> lc.Network:
    """Float32 weights, or small whole ones with many ties."""
    seed = int(rng.integers(2**32))
    network = float32_network(seed, written.inputs, written.outputs)
    if rng.random() < 0.4:
        grid = [rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], size=W.shape) for W in network.weights]
        network = lc.Network.from_arrays(grid, [rng.choice([-1.0, 0.0, 0.5], size=b.shape) for b in network.biases])
    return network


def _of_another(rng: Generator, written: Written, network: lc.Network, result: lc.SpecResult) -> list[str]:
    """Certificates held against another property: accepted only where its answer is that."""
    if not result.certificates or rng.random() < 0.7:
        return []
    other = random_property(int(rng.integers(2**32)))
    if (other.inputs, other.outputs) != (written.inputs, written.outputs):
        return []
    spec = parse_spec(other.text(1))
    report = lc.check_spec(network, spec, result.certificates)
    if not report.ok:
        return []
    exact = Exact(network)
    if str(report).startswith("Proved, sat"):
        witnesses = [rational(c.witness) for c in result.certificates if c.witness is not None]
        return [] if any(other.holds(w, exact(w)) for w in witnesses) else ["a counterexample to another property"]
    point = violation(other, exact) if other.inputs == 1 else _sampled(rng, other, exact)
    return [] if point is None else [f"a proof of another property, violated at {point}"]


def violation(written: Written, exact: Exact) -> list[Fraction] | None:
    """A counterexample to a property of one input, if there is any: all places where a comparison can change."""
    width = HIGH - LOW
    for a, b, u, v in exact.pieces([LOW], [Fraction(1)], width):
        ends = {a, b}
        for left, right in _comparisons(written.trees):
            # the difference of the sides is linear in t here: its zero, from two values
            at = [_difference(left, right, [LOW + t], [p + q * t for p, q in zip(u, v, strict=True)]) for t in (a, b)]
            if at[0] != at[1]:
                zero = a - at[0] * (b - a) / (at[1] - at[0]) if b > a else a
                if a < zero < b:
                    ends.add(zero)
        order = sorted(ends)
        for t in (*order, *((p + q) / 2 for p, q in itertools.pairwise(order))):
            x = [LOW + t]
            if written.holds(x, [p + q * t for p, q in zip(u, v, strict=True)]):
                return x
    return None


def _comparisons(trees: list[tuple]) -> list[tuple[tuple, tuple]]:
    found, waiting = [], list(trees)
    while waiting:
        head, *parts = waiting.pop()
        if head in ("and", "or"):
            waiting += parts
        else:
            found.append((parts[0], parts[1]))
    return found


def _difference(left: tuple, right: tuple, x: list[Fraction], y: list[Fraction]) -> Fraction:
    from helpers.properties import _value

    return _value(left, x, y) - _value(right, x, y)


def _sampled(rng: Generator, written: Written, exact: Exact) -> list[Fraction] | None:
    for _ in range(POINTS):
        x = random_point(rng, written.inputs) if rng.random() < 0.5 else rational(rng.uniform(-1.5, 2, written.inputs))
        if written.holds(x, exact(x)):
            return x
    return None


def _shown(network: lc.Network) -> str:
    return str([np.asarray(a).tolist() for a in (*network.weights, *network.biases)])
