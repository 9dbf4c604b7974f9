"""A slice of the audit (`make soundness`), and that the audit finds what is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import layercert as lc
from helpers.brute import brute_force
from layercert.network import Network
from soundness.answers import honest
from soundness.audit import KINDS, block
from soundness.judge import Judge, claim_faults, faults
from soundness.properties import violation
from soundness.questions import Question
from soundness.truth import Exact, Length, Unsafe
from soundness.ways import Ways

#: This part of a full run, of each kind.
PART = 0.006


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_slice_of_each_kind_is_without_fault(kind: str) -> None:
    if kind == "graphs":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; run: pip install onnxruntime")
    count = round(KINDS[kind][1] * PART)
    tally = block(kind, 0, count, seed=20261117)
    assert tally.faults == []
    assert tally.cases == count == sum(tally.words.values())


class TestTruth:
    # outputs are (1 - t, t) for t >= 0: y_1 passes y_0 at t = 0.5
    LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])

    def test_the_first_unsafe_point_of_a_ray_is_exact(self) -> None:
        unsafe = Unsafe.other_classes(0, 2)
        third = Fraction(1, 3)
        assert Exact(self.LINE).first([third], [Fraction(1)], unsafe, Fraction(9)) == Fraction(1, 2) - third
        assert Exact(self.LINE).first([third], [Fraction(-1)], unsafe, Fraction(9)) is None

    def test_lengths_are_compared_exactly(self) -> None:
        w = [Fraction(3), Fraction(4)]
        for p, length in ((1.0, 7.0), (2.0, 5.0), (math.inf, 4.0)):
            assert not Length(p).below(w, length) and not Length(p).above(w, length)
            assert Length(p).below(w, math.nextafter(length, 9.0)) and Length(p).above(w, math.nextafter(length, 0.0))
        assert Length(1.0, [Fraction(2), Fraction(1)]).above(w, 9.9)

    def test_an_answer_that_is_false_is_found(self) -> None:
        question = Question(self.LINE, np.array([0.2]), math.inf)
        judge, rng = Judge.of(question), np.random.default_rng(0)
        good = lc.measure(self.LINE, [0.2])
        assert good.witness is not None and faults(judge, good, rng) == []
        for bad, text in (
            ({"lower": 0.31, "upper": 0.31}, "nearer than the bound 0.31"),
            ({"upper": 0.29, "lower": 0.29}, "farther away than 0.29"),
            ({"witness": np.array([0.4]), "upper": 0.2, "lower": 0.2}, "the witness is safe"),
            ({"witness": None}, "without a witness"),
            ({"lower": 0.1}, "exact with a gap"),
        ):
            assert any(text in fault for fault in faults(judge, replace(good, **bad), rng)), text

    def test_undecided_is_honest_at_ties_alone(self) -> None:
        # from x = 0.5, the end of the domain, the outputs go apart; there they differ by 3e-15, rounding for floats
        network = Network.from_arrays(
            [[[-2.0], [2.0]], [[0.0, -0.5], [0.0, -0.5000000000000006]], [[0.0, 2.0], [1.0, -0.5]]],
            [[1.0, 1.0], [2.0, 2.0], [0.5, 2.0]],
        )
        problem = lc.robustness(network, [0.5], label=1, domain=(0.5, 0.7))
        true, _ = brute_force(problem)
        open_ = replace(lc.measure(self.LINE, [0.2]), status=lc.Status.UNDECIDED, lower=0.0, upper=math.inf)
        assert true < 1e-14 and honest(open_, problem, true)
        assert not honest(open_, problem, 0.1)  # the bound is far from what brute force finds
        crossing = lc.robustness(self.LINE, [0.4999999999999999])
        assert not honest(open_, crossing, 1e-16)  # beyond the tie points are unsafe by far

    def test_ways_that_contradict_each_other_are_found(self) -> None:
        question = Question(self.LINE, np.array([0.2]), math.inf)
        ways = Ways(question, np.random.default_rng(0))
        good = ways.measure("one")
        assert good.status == "exact" and ways.texts == []
        ways._bounds("two", good.upper * 1.001, math.inf)
        assert ways.texts == [f"({good.upper * 1.001!r}, 'two') is proved, ({good.upper!r}, 'one') has a witness"]

    def test_a_report_that_is_false_is_found(self) -> None:
        proof = lc.measure(self.LINE, [0.2], certificate=True).certificate
        assert proof is not None
        report, rng = lc.check(self.LINE, proof), np.random.default_rng(0)
        assert claim_faults(self.LINE, proof, report, rng) == []
        assert claim_faults(self.LINE, proof, replace(report, lower=0.4), rng)
        assert claim_faults(self.LINE, proof, replace(report, upper=0.1), rng)

    def test_a_property_of_one_input_is_decided_everywhere(self) -> None:
        from helpers.properties import Written

        exact = Exact(self.LINE)
        touch = Written(1, 2, [("==", ("y", 0), ("y", 1))])  # at t = 1/2 and nowhere else
        assert violation(touch, exact) == [Fraction(1, 2)]
        never = Written(1, 2, [("<", ("+", ("y", 0), ("y", 1)), ("n", "1"))])
        assert violation(never, exact) is None
