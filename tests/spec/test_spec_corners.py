"""Properties at the edge of what numbers can say: many boxes, fractions, single points, tiny and huge numbers."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

import layercert as lc
from helpers.brute import brute_force
from helpers.properties import float32_network, simple_text
from helpers.tiny import examples, seeds
from layercert.errors import SpecError
from layercert.network import Network
from layercert.spec.cases import Case, Spec
from layercert.spec.problems import problem_of
from layercert.spec.read import parse_spec
from layercert.spec.sieve import FEWEST, closed_at_once

# outputs are relu(x_0 + x_1) and relu(x_0 - x_1)
SUM = Network.from_arrays([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0], [0.0, 0.0]])


def spec_of(inputs: int, *asserted: str) -> Spec:
    names = [f"X_{i}" for i in range(inputs)] + ["Y_0", "Y_1"]
    return parse_spec("".join(f"(declare-const {n} Real)" for n in names) + "".join(f"(assert {a})" for a in asserted))


def ask(*asserted: str, **options: object) -> lc.SpecResult:
    return lc.verify_spec(SUM, spec_of(2, *asserted), **options)


UNIT = ("(>= X_0 0)", "(<= X_0 1)", "(>= X_1 0)", "(<= X_1 1)")


class TestManyBoxes:
    def test_boxes_without_counterexamples_are_closed_together(self) -> None:
        boxes = [f"(and (>= X_0 {i}e-3) (<= X_0 {i + 1}e-3) (<= Y_0 -1))" for i in range(300)]
        spec = spec_of(2, *UNIT, f"(or {' '.join(boxes)})")
        lc.verify_spec(SUM, spec, time_limit=1)  # compiles
        start = time.process_time()
        result = lc.verify_spec(SUM, spec, time_limit=60)
        assert (result.answer, result.closed, result.method) == ("unsat", 300, "linear bounds")
        assert time.process_time() - start < 2.0  # 25 ms each with a search of its own, 1 ms here

    def test_the_one_box_that_is_violated_is_found_among_many(self) -> None:
        boxes = [f"(and (>= X_0 {i}e-3) (<= X_0 {i + 1}e-3) (>= Y_0 {'1.1' if i == 211 else '3'}))" for i in range(300)]
        result = ask(*UNIT, f"(or {' '.join(boxes)})")
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert Fraction(211, 1000) <= Fraction(result.counterexample.inputs[0]) <= Fraction(212, 1000)

    @examples(15, 100)
    @given(seeds)
    def test_what_is_closed_holds_no_counterexample(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        network = float32_network(seed)
        rows = " ".join(f"(* {c:.3f} Y_{j})" for j, c in enumerate(rng.normal(size=network.classes)))
        cases: list[Case] = []
        for _ in range(FEWEST):
            centre, half = rng.uniform(-1, 1, network.inputs), rng.uniform(0, 0.3, network.inputs)
            box = [(repr(float(c - h)), repr(float(c + h))) for c, h in zip(centre, half, strict=True)]
            cases += parse_spec(simple_text(box, network.classes, f"(>= (+ {rows} 0) {rng.normal():.4f})")).cases
        closed = closed_at_once(network, tuple(cases))
        for case, none_there in zip(cases, closed, strict=True):
            if none_there:
                problem = problem_of(case, network)
                assert brute_force(problem)[0] > problem.radius


class TestFractions:
    def test_an_input_fixed_at_a_third(self) -> None:
        result = ask("(= (* 3 X_0) 1)", "(= (* 3 X_1) 1)", "(<= Y_1 0)", certificate=True)
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert result.counterexample.inputs == ("1/3", "1/3")
        assert "(X_0 (/ 1 3))" in result.counterexample.text()
        np.testing.assert_array_equal(result.counterexample.x, [1 / 3, 1 / 3])
        third = spec_of(2, "(= (* 3 X_0) 1)", "(= (* 3 X_1) 1)", "(<= Y_1 0)")
        assert lc.check_spec(SUM, third, result.certificates).ok

    def test_the_other_inputs_are_still_searched(self) -> None:
        bounds = ("(>= (* 3 X_0) 1)", "(<= (* 3 X_0) 1)", "(>= X_1 0)", "(<= X_1 1)")
        result = ask(*bounds, "(>= Y_0 1.2)")
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert Fraction(result.counterexample.inputs[0]) + Fraction(result.counterexample.inputs[1]) >= Fraction(6, 5)
        assert ask(*bounds, "(>= Y_0 1.4)").answer == "unsat"

    def test_a_range_between_two_float32_numbers_is_not_only_its_ends(self) -> None:
        # both inputs in [1e-100, 2e-100]: their sum reaches 3.5e-100 away from the lower ends only
        tiny = [f"({sign} X_{i} {end}e-100)" for i in range(2) for sign, end in ((">=", 1), ("<=", 2))]
        assert ask(*tiny, "(>= Y_0 3.5e-100)").answer == "sat"


class TestPoints:
    def test_a_single_point_is_decided_strictly(self) -> None:
        network = Network.from_arrays([[[1.0]], [[1.0], [0.0]]], [[0.0], [0.0, 0.0]])
        point = ("(= X_0 0.1)",)
        answers = [lc.verify_spec(network, spec_of(1, *point, f"({s} Y_0 0.1)")).answer for s in (">", ">=", "<", "=")]
        assert answers == ["unsat", "sat", "unsat", "sat"]

    def test_underflow_decides_nothing(self) -> None:
        network = Network.from_arrays([[[1e-170]], [[1e70]], [[1e1], [0.0]]], [[0.0], [0.0], [0.0, 1e-280]])
        # y_0 = 1e-99 x >= 1e-269 on this box, above y_1 = 1e-280
        result = lc.verify_spec(network, spec_of(1, "(>= X_0 1e-170)", "(<= X_0 2e-170)", "(<= Y_0 Y_1)"))
        assert result.answer != "sat"
        result = lc.verify_spec(network, spec_of(1, "(>= X_0 1e-170)", "(<= X_0 2e-170)", "(>= Y_0 Y_1)"))
        assert result.answer == "sat"

    def test_coefficients_times_outputs_that_vanish_are_still_covered(self) -> None:
        # the only output is 1e-200 * 1e-200 x: zero in float64, and not zero
        network = Network.from_arrays([[[1e-200]], [[1e-200], [0.0]]], [[0.0], [0.0, 1.0]])
        long = "0.12345678901234567890123"
        spec = spec_of(1, "(>= X_0 1)", "(<= X_0 2)", f"(<= (+ (* {long} Y_0) (* 1e-9 Y_1)) 1e-9)")
        (clause,) = problem_of(spec.cases[0], network).clauses
        for x in (Fraction(1), Fraction(2)):
            y = network.exact([x])
            if spec.cases[0].violated(y):
                assert sum(Fraction(float(c)) * v for c, v in zip(clause.C[0], y, strict=True)) <= Fraction(
                    float(clause.d[0])
                )

    def test_bounds_beyond_float64_are_refused(self) -> None:
        huge = "(* 1e300 1.7976931348623158e8)"  # above the largest float64, and rounded to it
        with pytest.raises(lc.LayerCertError, match="beyond the range of float64"):
            ask("(>= X_0 0)", f"(<= X_0 {huge})", "(>= X_1 0)", "(<= X_1 1)", "(<= Y_0 Y_1)")

    @pytest.mark.filterwarnings("error")
    def test_huge_boxes_warn_of_nothing(self) -> None:
        box = [f"({sign} X_{i} {end}1e300)" for i in range(2) for sign, end in ((">=", "-"), ("<=", ""))]
        assert ask(*box, "(<= Y_0 Y_1)").answer == "sat"
        assert lc.measure_spec(SUM, spec_of(2, *box, "(<= Y_0 -1)")).status != "exact"


class TestLongCoefficients:
    def test_growth_takes_any_number_of_digits(self) -> None:
        network = Network.from_arrays([[[1.0], [0.5]]], [[0.0, 0.0]])
        for c in ("1.2345678901234567", "1.23456789012345678901234567890123456789012345", "(/ 1 7)"):
            value = Fraction(1, 7) if "/" in c else Fraction(c)
            spec = spec_of(1, "(>= X_0 0)", "(<= X_0 1)", f"(<= (+ (* {c} Y_0) (* (/ 1 3) Y_1)) -1)")
            growth = lc.measure_spec(network, spec)
            true = (Fraction(1, 2) + 1 / (value + Fraction(1, 6))) / Fraction(1, 2)
            assert growth.status == "exact"
            assert growth.lower <= true <= growth.upper
            assert growth.upper - growth.lower <= 1e-6 * growth.upper


def test_a_file_name_is_no_property_and_no_network() -> None:
    """What was meant is said: load_spec and load around them."""
    network = Network.from_arrays([np.eye(2)], [np.zeros(2)])
    spec = parse_spec(simple_text([(0.0, 1.0)] * 2, 2, "(>= Y_0 5.0)"))
    for ask in (lc.verify_spec, lc.measure_spec):
        with pytest.raises(SpecError, match=r"a property is what lc.load_spec\(FILE\) returns, got str 'prop.vnnlib'"):
            ask(network, "prop.vnnlib")  # type: ignore[operator]
        with pytest.raises(lc.LayerCertError, match="load"):
            ask("net.onnx", spec)  # type: ignore[operator]
    with pytest.raises(SpecError, match="a property is what"):
        lc.check_spec(network, "prop.vnnlib", [])  # type: ignore[arg-type]
