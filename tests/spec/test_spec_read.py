"""Reading VNN-LIB 1.0 and 2.0: exact meaning by direct evaluation, and an error at the line for everything else."""

from __future__ import annotations

import gzip
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import layercert as lc
from helpers.properties import random_point, random_property, simple_text
from helpers.tiny import examples, seeds
from layercert.errors import SpecError
from layercert.spec import normal_form
from layercert.spec.cases import Interval, Spec
from layercert.spec.read import parse_spec

# ACAS Xu property 3 in both versions, written afresh
ACAS_BOX = [
    ("-0.30353115613746867", "-0.29855281193475053"),
    ("-0.009549296585513092", "0.009549296585513092"),
    ("0.4933803235848431", "0.49999999998567607"),
    ("0.3", "0.5"),
    ("0.3", "0.5"),
]
ACAS_1 = simple_text(ACAS_BOX, 5, "(and (<= Y_0 Y_1) (<= Y_0 Y_2) (<= Y_0 Y_3) (<= Y_0 Y_4))")
ACAS_2 = """(vnnlib-version <2.0>)
(declare-network acas (declare-input X float32 [1,1,1,5] "input") (declare-output Y float32 [1, 5]))
""" + "\n".join(
    [f"(assert (and (>= X[0,0,0,{i}] {low}) (<= X[0,0,0,{i}] {high})))" for i, (low, high) in enumerate(ACAS_BOX)]
    + [f"(assert (<= Y[0,0] Y[0,{j}]))" for j in range(1, 5)]
)


class TestMeaning:
    @examples(60, 300)
    @given(seeds)
    def test_a_parsed_property_says_what_the_text_says(self, seed: int) -> None:
        written = random_property(seed)
        rng = np.random.default_rng(seed + 1)
        specs = [parse_spec(written.text(version)) for version in (1, 2)]
        assert [(s.version, s.inputs, s.outputs) for s in specs] == [
            ("1.0", written.inputs, written.outputs),
            ("2.0", written.inputs, written.outputs),
        ]
        for _ in range(40):
            x, y = random_point(rng, written.inputs), random_point(rng, written.outputs)
            truth = written.holds(x, y)
            for spec in specs:
                assert spec.satisfied(x, y) == truth, (spec.version, x, y)

    def test_both_versions_of_one_property_are_the_same(self) -> None:
        one, two = parse_spec(ACAS_1), parse_spec(ACAS_2)
        assert [case.box for case in one.cases] == [case.box for case in two.cases]

        def rows(spec: Spec) -> list[set]:
            regions = (region for case in spec.cases for region in case.regions)
            return [{(r.coefficients, r.bound, r.strict) for r in region} for region in regions]

        assert rows(one) == rows(two)
        assert two.input_shape == (1, 1, 1, 5)
        assert one.cases[0].box[3].low == Fraction(3, 10)  # the decimal, not the nearest float64

    def test_indices_count_row_by_row(self) -> None:
        text = """(vnnlib-version <2.0>)
        (declare-network f (declare-input A real [2,3]) (declare-output B real []))
        (assert (and (>= A[0,0] 0) (>= A[0,1] 1) (>= A[0,2] 2) (>= A[1,0] 3) (>= A[1,1] 4) (>= A[1,2] 5)))
        (assert (and (<= A[0,0] 9) (<= A[0,1] 9) (<= A[0,2] 9) (<= A[1,0] 9) (<= A[1,1] 9) (<= A[1,2] 9)))
        (assert (< B 1.5))"""
        spec = parse_spec(text)
        assert [side.low for side in spec.cases[0].box] == [0, 1, 2, 3, 4, 5]
        assert spec.outputs == 1
        row = spec.cases[0].regions[0][0]
        assert (row.coefficients, row.bound, row.strict) == (((0, Fraction(1)),), Fraction(3, 2), True)

    def test_boxes_that_agree_are_one_case(self) -> None:
        spec = parse_spec(simple_text([("0", "1")], 2, "(or (<= Y_0 0) (<= Y_1 0) (and (<= X_0 0.5) (<= Y_0 9)))"))
        assert [len(case.regions) for case in spec.cases] == [2, 1]

    def test_contradictory_inputs_leave_no_case(self) -> None:
        assert parse_spec(simple_text([("2", "1")], 1, "(<= Y_0 0)")).cases == ()
        assert parse_spec(simple_text([("1", "1")], 1, "(< X_0 1)")).cases == ()

    def test_a_constraint_on_one_scaled_input_is_a_bound(self) -> None:
        spec = parse_spec(simple_text([("-9", "9")], 1, "(<= (- 1 (* 2 X_0)) (/ 1 3))"))
        assert spec.cases[0].box[0].low == Fraction(1, 3)

    def test_smt_lib_without_meaning_is_passed_over(self) -> None:
        text = "(set-logic QF_LRA)\n" + simple_text([("0", "1")], 1, "(<= Y_0 0)") + "(check-sat)"
        assert len(parse_spec(text).cases) == 1
        assert parse_spec(text.replace("(declare-const X_0 Real)", "(declare-fun X_0 () Real)")).inputs == 1

    def test_files_also_compressed(self, tmp_path: Path) -> None:
        (tmp_path / "p.vnnlib").write_text(ACAS_1)
        (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress(ACAS_1.encode()))
        assert lc.load_spec(tmp_path / "p.vnnlib").cases == lc.load_spec(tmp_path / "p.vnnlib.gz").cases


HEAD1 = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(declare-const Y_1 Real)\n"
BOX1 = "(assert (<= X_0 1))\n(assert (>= X_0 0))\n"
HEAD2 = "(vnnlib-version <2.0>)\n(declare-network N\n(declare-input X real [1,2])\n(declare-output Y real [2])\n)\n"

ERRORS = [
    # 1.0: after five lines of declarations and bounds
    (HEAD1 + BOX1 + "(assert (<= X_0 Y_0))", "line 6, column 9.*mixes inputs and outputs"),
    (HEAD1 + "(declare-const X_1 Real)\n(assert (<= X_0 X_1))", "line 5.*several inputs at once"),
    (HEAD1 + BOX1 + "(assert (not (<= Y_0 1)))", "line 6.*'not' is not supported"),
    (HEAD1 + BOX1 + "(assert\n (=> (<= Y_0 1) (<= Y_1 1)))", "line 7.*'=>' is not supported"),
    (HEAD1 + BOX1 + "(assert (<= (* Y_0 Y_1) 1))", "line 6.*product of two variables"),
    (HEAD1 + BOX1 + "(assert (<= (/ 1 Y_0) 1))", "line 6.*division"),
    (HEAD1 + BOX1 + "(assert (<= (max Y_0 Y_1) 1))", "line 6.*'max'"),
    (HEAD1 + BOX1 + "(assert (<= Y_0 Y_1 1))", "line 6.*3 sides"),
    (HEAD1 + BOX1 + "(assert (<= Z_0 1))", "line 6.*unknown name Z_0"),
    (HEAD1 + BOX1 + "(assert (<= Y_7 1))", "line 6.*Y_7 is used before it is declared"),
    (HEAD1 + BOX1 + "(assert (<= Y_0 1e999999999))", "line 6.*beyond what is supported"),
    (HEAD1 + BOX1 + "(assert (<= Y_0 1.2.3))", "line 6.*unknown name 1.2.3"),
    (HEAD1 + BOX1 + "(assert)", "line 6.*one constraint"),
    (HEAD1 + BOX1 + "(assert (or))", "line 6.*without constraints"),
    (HEAD1 + BOX1 + "(define-fun f () Real 1)", "line 6.*'define-fun' is not supported"),
    (HEAD1 + BOX1 + "(push 1)", "line 6.*'push' is not supported"),
    (HEAD1 + BOX1 + "(assert (<= Y_0 1)", "line 6, column 1.*never closed"),
    (HEAD1 + BOX1 + "(assert (<= Y_0 1)))", "line 6.*closes nothing"),
    (HEAD1 + BOX1 + "(assert (<= Y_0 1]", "line 6.*closes nothing"),
    (HEAD1 + BOX1 + "Y_0", "line 6.*expected a command"),
    (HEAD1 + BOX1 + "(assert (<= Y_0, 1))", "line 6.*comma"),
    (HEAD1 + BOX1 + '(assert (<= Y_0 "1))', "line 6.*quotation mark"),
    (HEAD1 + "(declare-const X_0 Real)", "line 4.*second time, first in line 1"),
    (HEAD1 + "(declare-const X_2 Real)", "X_1 is not declared, but X_2 is"),
    (HEAD1 + "(declare-const input Real)", "line 4.*variable name input"),
    (HEAD1 + "(declare-const X_1 Int)", "line 4.*type Int"),
    (HEAD1 + "(assert (<= X_0 1))", "X_0 has no lower bound"),
    ("(declare-const X_0 Real)\n", "no output Y_0 is declared"),
    ("; only a comment\n", "no declarations"),
    (HEAD1 + "(" * 300, "line 4.*nested deeper"),
    # 2.0
    ("(vnnlib-version <3.0>)", "line 1.*version <3.0>"),
    (HEAD2 + "(vnnlib-version <2.0>)", "line 6.*must be the first"),
    (HEAD2 + HEAD2.split("\n", 1)[1], "line 6.*second declare-network"),
    (HEAD2.replace("[2])", '[2])\n(declare-hidden H real [3] "h")'), "line 5.*'declare-hidden'"),
    (HEAD2.replace("N\n", "N (equal-to M)\n"), "line 2.*'equal-to'"),
    (HEAD2.replace("N\n", "N (isomorphic-to M)\n"), "line 2.*'isomorphic-to'"),
    (HEAD2.replace("(declare-output", "(declare-input Z real [1])\n(declare-output"), "line 4.*second declare-input"),
    (HEAD2.replace("real [2]", "int8 [2]"), "line 4.*element type int8"),
    (HEAD2.replace("real [2]", "real [0]"), "line 4.*0 elements"),
    (HEAD2.replace("real [2]", "real"), "line 4.*expected .declare-output NAME TYPE"),
    (HEAD2 + "(assert (<= X[0] 1))", "line 6.*has 2 axes"),
    (HEAD2 + "(assert (<= X[0,2] 1))", r"line 6.*outside X with shape \[1, 2\]"),
    (HEAD2 + "(assert (<= X[0,-1] 1))", "line 6.*whole number"),
    (HEAD2 + "(assert (<= Z[0] 1))", "line 6.*Z is not declared"),
    (HEAD2 + "(assert (= Y[0] 1))", "line 6.*'=' is not supported"),
    (HEAD2 + "(assert (<= X[0,0] 1))", r"X\[0,0\] has no lower bound"),
    (HEAD2 + "(declare-const X_0 Real)", "line 6.*'declare-const' is not supported"),
    ("(vnnlib-version <2.0>)\n(assert (<= X[0] 1))", "line 2.*before declare-network"),
]


class TestErrors:
    @pytest.mark.parametrize(("text", "message"), ERRORS, ids=[m for _, m in ERRORS])
    def test_every_error_names_line_and_construct(self, text: str, message: str) -> None:
        with pytest.raises(SpecError, match=message) as caught:
            parse_spec(text, "p.vnnlib")
        assert str(caught.value).startswith("p.vnnlib")

    def test_a_tree_that_multiplies_out_too_far(self, monkeypatch: pytest.MonkeyPatch) -> None:
        choices = "".join("(assert (or (<= Y_0 1) (<= Y_1 1)))\n" for _ in range(20))
        with pytest.raises(SpecError, match="more than 10000000 bounds and rows together; split the property"):
            parse_spec(HEAD1 + BOX1 + choices.replace("(or", "(or (<= Y_0 3) "))
        monkeypatch.setattr(normal_form, "MOST_PARTS", 10)
        monkeypatch.setattr(normal_form, "TRIES", 5)
        with pytest.raises(SpecError, match="more than 10 bounds and rows"):
            parse_spec(HEAD1 + BOX1 + "(assert (or (<= Y_0 1) (<= Y_1 1)))\n" * 3)

    def test_products_that_are_nearly_all_empty_are_no_obstacle(self) -> None:
        # 2^40 products, but an input is either below or above each of 40 numbers: 41 ranges are left
        cuts = "".join(f"(assert (or (<= X_0 {i}e-2) (>= X_0 {i + 1}e-2)))\n" for i in range(40))
        assert len(parse_spec(HEAD1 + BOX1 + cuts).cases) == 41

    def test_many_alternatives_are_read(self) -> None:
        boxes = " ".join(f"(and (>= X_0 {i}e-5) (<= X_0 {i + 1}e-5) (<= Y_0 {i}))" for i in range(12_000))
        spec = parse_spec(HEAD1 + BOX1 + f"(assert (or {boxes}))")
        assert len(spec.cases) == 12_000
        assert spec.cases[7].box[0] == Interval(Fraction(7, 10**5), Fraction(8, 10**5))

    def test_numbers_are_written_in_plain_digits(self) -> None:
        with pytest.raises(SpecError, match="unknown name ٣"):
            parse_spec(HEAD1 + BOX1 + "(assert (<= Y_0 ٣))")
        with pytest.raises(SpecError, match="more than 1000 characters; round it"):
            parse_spec(HEAD1 + BOX1 + f"(assert (<= Y_0 0.{'1' * 1000}))")

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match=r"no property file .*nothing\.vnnlib"):
            lc.load_spec(tmp_path / "nothing.vnnlib")
        (tmp_path / "b.vnnlib").write_bytes(b"; one\n\xff\xfe")
        with pytest.raises(SpecError, match=re.escape("b.vnnlib, line 2: not a text file")):
            lc.load_spec(tmp_path / "b.vnnlib")
        (tmp_path / "c.vnnlib.gz").write_bytes(b"no gzip")
        with pytest.raises(SpecError, match="cannot be read"):
            lc.load_spec(tmp_path / "c.vnnlib.gz")


PIECES = [*"()[],;-* \n\x00é", '"', "assert", "and", "or", "<=", "==", "X_0", "Y_0", "X[0,0]", "1e5", "0.1", "<2.0>"]
PIECES += ["vnnlib-version", "declare-network", "declare-const", "Real"]


@examples(150, 1000)
@given(seeds)
def test_damaged_files_are_errors_never_crashes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = random_property(seed).text(int(rng.integers(1, 3)))
    for _ in range(int(rng.integers(1, 6))):
        at, length = int(rng.integers(len(text) + 1)), int(rng.integers(0, 8))
        text = text[:at] + str(rng.choice(PIECES)) * int(rng.integers(0, 3)) + text[at + length :]
    try:
        spec = parse_spec(text)
    except SpecError as error:
        assert str(error)
    else:
        assert all(side.low is not None and side.high is not None for case in spec.cases for side in case.box)
