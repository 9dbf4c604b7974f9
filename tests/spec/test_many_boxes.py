"""Index models: one input, thousands of small boxes, each with a range of the output. The truth is in rationals."""

from __future__ import annotations

import gc
import itertools
from fractions import Fraction

import numpy as np
import pytest

import layercert as lc
from layercert.errors import SpecError
from layercert.network import Network
from layercert.spec.read import parse_spec
from layercert.spec.sieve import closed_at_once

#: More boxes than were once allowed.
MANY = 10_500


def index_model(seed: int) -> Network:
    """1-6-6-1, increasing and decreasing in turns."""
    rng = np.random.default_rng(seed)
    sizes = [1, 6, 6, 1]
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    return Network.from_arrays([rng.normal(size=s) for s in shapes], [0.3 * rng.normal(size=s[0]) for s in shapes])


class Curve:
    """The model as a function of its input, in rationals: values and the corners between linear pieces."""

    def __init__(self, network: Network) -> None:
        self.layers = [
            ([[Fraction(float(v)) for v in row] for row in W], [Fraction(float(v)) for v in b])
            for W, b in zip(network.weights, network.biases, strict=True)
        ]

    def sums(self, x: Fraction) -> list[list[Fraction]]:
        """The pre-activations of every layer."""
        values, found = [x], []
        for W, b in self.layers:
            found.append(
                [sum((w * v for w, v in zip(row, values, strict=True)), c) for row, c in zip(W, b, strict=True)]
            )
            values = [max(v, Fraction(0)) for v in found[-1]]
        return found

    def __call__(self, x: Fraction) -> Fraction:
        return self.sums(x)[-1][0]

    def corners(self, low: Fraction, high: Fraction) -> list[Fraction]:
        """Where the slope changes between the ends, and the ends; layer by layer, linear between those found so far."""
        ends = [low, high]
        for k in range(len(self.layers) - 1):
            new = set(ends)
            for a, b in itertools.pairwise(ends):
                for u, v in zip(self.sums(a)[k], self.sums(b)[k], strict=True):
                    if (u < 0) != (v < 0) and u != v:
                        new.add(a + (b - a) * u / (u - v))
            ends = sorted(new)
        return ends


def ranges(curve: Curve, ends: list[Fraction]) -> list[tuple[Fraction, Fraction]]:
    """The least and the largest value between each two neighbouring ends."""
    corners, at = curve.corners(ends[0], ends[-1]), {x: curve(x) for x in ends}
    peaks = sorted((x, curve(x)) for x in corners)
    found, j = [], 0
    for a, b in itertools.pairwise(ends):
        inside = [at[a], at[b]]
        while j < len(peaks) and peaks[j][0] < b:
            inside += [peaks[j][1]] if peaks[j][0] > a else []
            j += 1
        found.append((min(inside), max(inside)))
    return found


def text(version: int, boxes: list[tuple[Fraction, Fraction]], bounds: list[tuple[Fraction, Fraction]]) -> str:
    """Each box with its own unsafe outputs; ends are decimals that say exactly what is meant."""
    x, y = ("X_0", "Y_0") if version == 1 else ("X[0,0]", "Y[0,0]")
    head = (
        "(declare-const X_0 Real)(declare-const Y_0 Real)"
        if version == 1
        else "(vnnlib-version <2.0>)"
        "(declare-network f (declare-input X float32 [1,1]) (declare-output Y float32 [1,1]))"
    )
    parts = [
        f"(and (>= {x} (/ {a.numerator} {a.denominator})) (<= {x} (/ {b.numerator} {b.denominator})) "
        f"(or (<= {y} (/ {c.numerator} {c.denominator})) (>= {y} (/ {d.numerator} {d.denominator}))))"
        for (a, b), (c, d) in zip(boxes, bounds, strict=True)
    ]
    return f"{head}(assert (or {' '.join(parts)}))"


def questions(
    network: Network, count: int, slack: list[Fraction]
) -> tuple[list[tuple[Fraction, Fraction]], list[tuple[Fraction, Fraction]]]:
    """Boxes side by side over [0, 1], and the output's true range in each with so much slack."""
    ends = [Fraction(i, count) for i in range(count + 1)]
    boxes = list(itertools.pairwise(ends))
    true = ranges(Curve(network), ends)
    return boxes, [(c - s, d + s) for (c, d), s in zip(true, slack, strict=True)]


@pytest.mark.parametrize("version", [1, 2])
def test_more_than_ten_thousand_boxes_are_unsat(version: int) -> None:
    network = index_model(version)
    boxes, bounds = questions(network, MANY, [Fraction(1, 1000)] * MANY)
    result = lc.verify_spec(network, parse_spec(text(version, boxes, bounds)), time_limit=60)
    assert (result.answer, result.closed, result.cases) == ("unsat", MANY, MANY)


def test_the_one_range_that_is_left_is_found_among_them() -> None:
    network, slack = index_model(3), [Fraction(1, 1000)] * MANY
    slack[7000] = Fraction(-1, 10**6)
    boxes, bounds = questions(network, MANY, slack)
    result = lc.verify_spec(network, parse_spec(text(1, boxes, bounds)), time_limit=60)
    assert result.answer == "sat"
    assert result.counterexample is not None
    assert boxes[7000][0] <= Fraction(result.counterexample.inputs[0]) <= boxes[7000][1]


@pytest.mark.parametrize("seed", range(4))
def test_no_box_is_closed_whose_range_is_left_by_the_least_amount(seed: int) -> None:
    """Slacks of a billionth and less, of both signs and 0, where the closed unsafe set is touched."""
    rng, network = np.random.default_rng(seed), index_model(seed)
    sizes = rng.choice([-1, 0, 1], size=400), rng.integers(9, 15, size=400)
    slack = [Fraction(int(sign), 10 ** int(size)) for sign, size in zip(*sizes, strict=True)]
    boxes, bounds = questions(network, 400, slack)
    spec = parse_spec(text(1, boxes, bounds))
    closed = closed_at_once(network, spec.cases)
    meant = {a: s for (a, _), s in zip(boxes, slack, strict=True)}
    assert closed.any()
    for case, is_closed in zip(spec.cases, closed, strict=True):
        low = case.box[0].low
        assert low is not None
        assert not is_closed or meant[low] > 0


def test_each_of_many_boxes_has_a_certificate() -> None:
    network = index_model(5)
    boxes, bounds = questions(network, 300, [Fraction(1, 100)] * 300)
    spec = parse_spec(text(1, boxes, bounds))
    result = lc.verify_spec(network, spec, time_limit=60, certificate=True)
    assert (result.answer, len(result.certificates)) == ("unsat", 300)
    assert lc.check_spec(network, spec, result.certificates).ok
    assert not lc.check_spec(network, spec, result.certificates[:-1]).ok


class TestReadingWithoutCollections:
    def test_the_collector_is_as_it_was_afterwards(self) -> None:
        assert gc.isenabled()
        parse_spec("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 1) (<= Y_0 0)))")
        assert gc.isenabled()
        with pytest.raises(SpecError, match="closes nothing"):
            parse_spec(")")
        assert gc.isenabled()

    def test_who_does_without_it_still_does(self) -> None:
        gc.disable()
        try:
            parse_spec(
                "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 1) (<= Y_0 0)))"
            )
            assert not gc.isenabled()
        finally:
            gc.enable()
