"""Properties decided: against brute force, on edges where strictness and rounding decide, with proofs."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given

import layercert as lc
from helpers.brute import brute_force
from helpers.properties import float32_network, random_point, random_property, simple_text, write_onnx
from helpers.tiny import examples, seeds
from layercert.arrays import Matrix, Vector
from layercert.errors import OptionError, SpecError
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem
from layercert.result import Status
from layercert.run import How, closest
from layercert.spec import falsify as falsify_module
from layercert.spec import growth as growth_module
from layercert.spec import verify as verify_module
from layercert.spec.cases import Case, Row, Spec
from layercert.spec.counterexample import Grid, holds_exactly
from layercert.spec.falsify import falsify
from layercert.spec.problems import problem_of
from layercert.spec.read import parse_spec
from layercert.spec.rounding import decimal_text, float32_above, float32_below, float_above, float_below
from layercert.system import clock

# outputs are (1 - t, t) for t >= 0: y_1 passes y_0 at t = 0.5
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])


def ask(network: Network, box: list[tuple[str, str]], constraint: str, **options: object) -> lc.SpecResult:
    return lc.verify_spec(network, parse_spec(simple_text(box, network.classes, constraint)), **options)


def exact_counterexample(network: Network, spec: Spec, found: lc.SpecResult) -> bool:
    """The printed decimals themselves, in rationals."""
    assert found.counterexample is not None
    x = [Fraction(text) for text in found.counterexample.inputs]
    return spec.satisfied(x, network.exact(x))


class TestBruteForce:
    @examples(30, 150)
    @given(seeds)
    def test_sat_and_unsat_are_right(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        network = float32_network(seed)
        centre, half = rng.uniform(-1, 1, network.inputs), rng.uniform(0, 1.5, network.inputs)
        box = [(repr(float(c - h)), repr(float(c + h))) for c, h in zip(centre, half, strict=True)]
        rows = [" ".join(f"(* {c:.3f} Y_{j})" for j, c in enumerate(r)) for r in rng.normal(size=(2, network.classes))]
        bounds = rng.normal(size=2)
        either, other = (f"(>= (+ {row}) {b:.4f})" for row, b in zip(rows, bounds, strict=True))
        constraint = f"({rng.choice(['and', 'or'])} {either} {other})"
        spec = parse_spec(simple_text(box, network.classes, constraint))
        truth = math.isfinite(min(brute_force(problem_of(case, network))[0] for case in spec.cases))
        result = lc.verify_spec(network, spec, certificate=True)
        assert result.answer == ("sat" if truth else "unsat")
        if truth:
            assert exact_counterexample(network, spec, result)
        report = lc.check_spec(network, spec, result.certificates)
        assert report.ok, (report.reason, result.note)

    @examples(25, 120)
    @given(seeds)
    def test_random_trees_agree_with_samples(self, seed: int) -> None:
        """With equality, strictness and disjunctions over inputs: no sampled counterexample may contradict unsat."""
        written = random_property(seed)
        rng = np.random.default_rng(seed)
        network = Network.from_arrays(
            [
                rng.choice([-1.0, 0.0, 0.5, 1.0], size=(3, written.inputs)),
                rng.choice([-1.0, 0.5, 1.0], (written.outputs, 3)),
            ],
            [rng.choice([-0.5, 0.0, 0.5], 3), rng.choice([-0.5, 0.0, 1.0], written.outputs)],
        )
        spec = parse_spec(written.text(2))
        result = lc.verify_spec(network, spec, time_limit=20)
        assert result.answer != "timeout"
        if result.answer == "sat":
            assert result.counterexample is not None
            x = [Fraction(text) for text in result.counterexample.inputs]
            assert written.holds(x, network.exact(x))
        for _ in range(60):
            x = random_point(rng, written.inputs)
            if written.holds(x, network.exact(x)):
                assert result.answer in ("sat", "unknown")

    @examples(15, 80)
    @given(seeds)
    def test_growth_is_the_scaled_distance(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        network = float32_network(seed)
        centre, half = rng.uniform(-1, 1, network.inputs), rng.uniform(0.05, 1.0, network.inputs)
        box = [(repr(float(c - h)), repr(float(c + h))) for c, h in zip(centre, half, strict=True)]
        spec = parse_spec(simple_text(box, network.classes, f"(>= Y_0 {rng.normal():.4f})"))
        scaled = Network.from_arrays([network.weights[0] * half, *network.weights[1:]], network.biases)
        clauses = problem_of(spec.cases[0], network).clauses
        truth, _ = brute_force(Problem(scaled, centre / half, clauses, Norm(math.inf)))
        growth = lc.measure_spec(network, spec)
        assume(truth < 1e4)
        assert growth.status == Status.EXACT
        assert growth.upper == pytest.approx(truth, rel=2e-6, abs=1e-9)
        assert growth.lower <= growth.upper
        assert (growth.upper > 1) == (lc.verify_spec(network, spec).answer == "unsat") or abs(truth - 1) < 1e-5


@pytest.fixture(params=["samples first", "search only"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers whether or not the quick look for counterexamples comes first."""
    if request.param == "search only":
        monkeypatch.setattr(verify_module, "falsify", lambda problem, share: None)


class TestFalsify:
    @examples(20, 80)
    @given(seeds)
    def test_what_is_found_is_unsafe_and_in_the_box(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        network = float32_network(seed, inputs=3, outputs=2)
        rows = f"(and (>= Y_0 {rng.normal():.3f}) (<= Y_1 {rng.normal():.3f}))"
        (case,) = parse_spec(simple_text([("-1", "1"), ("0", "0"), ("-2", "0.5")], 2, rows)).cases
        problem = problem_of(case, network)
        point = falsify(problem)
        if point is None:
            return
        assert problem.domain is not None
        assert ((problem.domain[0] <= point) & (point <= problem.domain[1])).all()
        assert problem.margin(point) <= 0

    def test_descent_ends_with_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each step is two passes of all starts through the network: a tenth of a second on 45,000 neurons."""
        network = float32_network(1, inputs=3, outputs=2)
        (case,) = parse_spec(simple_text([("-1", "1"), ("0", "1"), ("-2", "0.5")], 2, "(>= Y_0 1000)")).cases
        steps, gradients = [0], falsify_module._gradients

        def counted(problem: Problem, X: Matrix) -> tuple[Matrix, Vector]:
            steps[0] += 1
            return gradients(problem, X)

        monkeypatch.setattr(falsify_module, "_gradients", counted)
        with clock.until(None, looks=4):
            assert falsify(problem_of(case, network)) is None
        assert 1 <= steps[0] <= 4 < falsify_module.STEPS

    def test_descent_reaches_what_samples_miss(self) -> None:
        # y = sum of |x_i| over 12 inputs is below 0.5 in a billionth of the box [-1, 1]^12
        n = 12
        eye = np.eye(n)
        network = Network.from_arrays([np.vstack([eye, -eye]), np.ones((1, 2 * n))], [np.zeros(2 * n), [0.0]])
        (case,) = parse_spec(simple_text([("-1", "1")] * n, 1, "(<= Y_0 0.5)")).cases
        problem = problem_of(case, network)
        samples = np.random.default_rng(1).uniform(-1, 1, (20_000, n))
        assert (network(samples) > 0.5).all()
        point = falsify(problem)
        assert point is not None and problem.margin(point) <= 0


@pytest.mark.usefixtures("either_way")
class TestStrictness:
    def test_the_edge_counts_when_the_inequality_is_not_strict(self) -> None:
        assert ask(LINE, [("0", "0.5")], "(>= Y_1 Y_0)").answer == "sat"
        result = ask(LINE, [("0", "0.5")], "(> Y_1 Y_0)")
        # nothing is strictly unsafe, and the closed set is not empty: rationals can tell
        assert (result.answer, result.method) == ("unsat", "rationals")

    def test_the_edge_of_a_strict_property_is_left_open_where_rationals_would_take_too_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("layercert.spec.last_resort.MOST_PROGRAMS", 0)
        result = ask(LINE, [("0", "0.5")], "(> Y_1 Y_0)")
        assert result.answer == "unknown"
        assert "touched within rounding only" in result.note

    def test_a_strict_counterexample_behind_a_tie_is_found(self) -> None:
        # relu(t - 1) > 0 needs t > 1, but t = 0 is already on the edge
        network = Network.from_arrays([[[1.0]], [[1.0]]], [[-1.0], [0.0]])
        result = ask(network, [("0", "2")], "(> Y_0 0)")
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert Fraction(result.counterexample.inputs[0]) > 1

    def test_strict_input_bounds(self) -> None:
        assert ask(LINE, [("0", "1")], "(and (< X_0 0.5) (>= Y_1 Y_0))").answer == "unsat"
        result = ask(LINE, [("0", "1")], "(and (> X_0 0.5) (>= Y_1 Y_0))")
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert Fraction(result.counterexample.inputs[0]) > Fraction(1, 2)

    def test_equality_and_inequality(self) -> None:
        assert ask(LINE, [("0", "1")], "(= Y_0 2)").answer == "unsat"
        text = simple_text([("0", "1")], 2, "").replace("(declare-const X_0 Real)", "")
        assert "X_0" in text
        two = "(vnnlib-version <2.0>)(declare-network N (declare-input X real [1]) (declare-output Y real [2]))"
        two += "(assert (and (>= X[0] 0) (<= X[0] 1)))"
        assert lc.verify_spec(LINE, parse_spec(two + "(assert (!= Y[0] 1))")).answer == "sat"
        assert lc.verify_spec(LINE, parse_spec(two + "(assert (== Y[0] 1))")).answer == "sat"  # at t = 0, the corner

    def test_a_property_without_outputs_is_met_by_any_input(self) -> None:
        result = ask(LINE, [("0.25", "0.75")], "")
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert Fraction(1, 4) <= Fraction(result.counterexample.inputs[0]) <= Fraction(3, 4)

    def test_inputs_that_contradict_each_other(self) -> None:
        result = ask(LINE, [("1", "0")], "(>= Y_1 Y_0)")
        assert (result.answer, result.cases) == ("unsat", 0)
        assert result.note == "no input satisfies the constraints on the inputs"

    @pytest.mark.parametrize("never", ["(< Y_0 Y_0)", "false", "(or (<= X_0 -1) (> Y_0 (+ Y_0 1)))"])
    def test_outputs_that_contradict_each_other(self, never: str) -> None:
        result = ask(LINE, [("0", "1")], never)
        assert (result.answer, result.cases) == ("unsat", 0)
        assert result.note == "no output satisfies the constraints: they contradict each other"

    def test_a_contradiction_is_its_own_proof_and_says_so(self) -> None:
        spec = parse_spec(simple_text([("1", "0")], 2, "(>= Y_1 Y_0)"))
        result = lc.verify_spec(LINE, spec, certificate=True)
        assert result.certificates == () and "there is no certificate to write" in result.note
        report = lc.check_spec(LINE, spec, result.certificates)
        assert report.ok and "no input satisfies the constraints on the inputs" in str(report)

    def test_a_contradiction_holds_at_every_size(self) -> None:
        growth = lc.measure_spec(LINE, parse_spec(simple_text([("0", "1")], 2, "(< Y_0 Y_0)")))
        assert str(growth).startswith("robust: every t, ")
        assert "the property holds whatever the size of its boxes; no output satisfies the constraints" in str(growth)


class TestRounding:
    def test_the_box_contains_the_decimals(self) -> None:
        spec = parse_spec(simple_text([("0.1", "0.3"), ("0.1", "0.1")], 1, "(<= Y_0 0)"))
        problem = problem_of(spec.cases[0], Network.from_arrays([[[1.0, 1.0]]], [[0.0]]))
        assert problem.domain is not None
        low, high = problem.domain
        for i, (a, b) in enumerate([("0.1", "0.3"), ("0.1", "0.1")]):
            assert Fraction(float(low[i])) <= Fraction(a) <= Fraction(b) <= Fraction(float(high[i]))
            assert high[i] - low[i] <= float(b) - float(a) + 1e-16

    def test_a_decimal_that_is_no_float_is_decided_exactly(self) -> None:
        # the only input is 0.1, so y_0 = 0.1 exactly: reached, but not exceeded
        network = Network.from_arrays([[[1.0]], [[1.0]]], [[0.0], [0.0]])
        result = ask(network, [("0.1", "0.1")], "(>= Y_0 0.1)")
        assert result.answer == "sat"
        assert result.counterexample is not None
        assert (result.counterexample.inputs, result.counterexample.off_grid) == (("0.1",), 1)
        assert "without any float32 number" in result.note
        assert ask(network, [("0.1", "0.1")], "(> Y_0 0.1)").answer == "unsat"
        assert ask(network, [("0.1", "0.1")], "(>= Y_0 0.1000001)").answer == "unsat"

    def test_coefficients_are_scaled_until_exact(self) -> None:
        spec = parse_spec(simple_text([("0", "1")], 2, "(<= (+ (* 0.1 Y_0) (* -0.3 Y_1)) 0.7)"))
        (clause,) = problem_of(spec.cases[0], LINE).clauses
        assert clause.C[0, 1] == -3.0 * clause.C[0, 0]
        assert Fraction(float(clause.d[0])) >= 7 * Fraction(float(clause.C[0, 0]))

    def test_coefficients_beyond_float64_enlarge_the_region(self) -> None:
        long = "0.1234567890123456789012345678901"
        spec = parse_spec(simple_text([("0", "1")], 2, f"(<= (+ (* {long} Y_0) Y_1) 0.5)"))
        (clause,) = problem_of(spec.cases[0], LINE).clauses
        scale = Fraction(float(clause.C[0, 1]))  # the coefficient of Y_1 is 1, up to rounding
        assert Fraction(float(clause.C[0, 0])) != scale * Fraction(long)
        for t in np.linspace(0.0, 1.0, 11):
            y = LINE.exact(np.array([t]))
            if spec.cases[0].violated(y):
                inside = sum(Fraction(float(c)) * v for c, v in zip(clause.C[0], y, strict=True))
                assert inside <= Fraction(float(clause.d[0]))

    @examples(50, 200)
    @given(seeds)
    def test_directions(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        q = Fraction(int(rng.integers(-(10**12), 10**12)), int(rng.integers(1, 10**12))) * Fraction(10) ** int(
            rng.integers(-30, 30)
        )
        assert Fraction(float_below(q)) <= q <= Fraction(float_above(q))
        assert math.nextafter(float_below(q), math.inf) > q
        assert Fraction(float32_below(q)) <= q <= Fraction(float32_above(q))
        f = float(np.float32(q))
        assert float32_below(Fraction(f)) == f == float32_above(Fraction(f))
        assert float32_below(Fraction(f), strict=True) < f < float32_above(Fraction(f), strict=True)
        decimal = Fraction(round(q, 3))
        assert Fraction(decimal_text(decimal) or "x") == decimal
        assert Fraction(decimal_text(Fraction(f)) or "x") == Fraction(f)
        assert decimal_text(Fraction(1, 3)) is None

    def test_numbers_beyond_float64(self) -> None:
        huge = "(* 1e300 (* 1e300 Y_0))"
        assert ask(LINE, [("0", "0.5")], f"(<= {huge} (* 1e300 1e299))").answer == "unsat"  # y_0 <= 0.1
        assert ask(LINE, [("0", "1")], f"(<= {huge} (* 1e300 1e299))").answer == "sat"
        with pytest.raises(SpecError, match="line 6: the numbers of the constraint are beyond the range of float64"):
            ask(LINE, [("0", "1")], "(<= Y_0 (* 1e300 1e300))")
        with pytest.raises(SpecError, match="an input bound is beyond the range of float64"):
            ask(LINE, [("0", "(* 1e300 1e300)")], "(<= Y_0 1)")

    def test_a_point_is_judged_exactly(self) -> None:
        case = parse_spec(simple_text([("0", "1")], 2, "(> Y_1 Y_0)")).cases[0]
        tiny = Fraction(1, 10**40)
        assert not holds_exactly(case, LINE, [Fraction(1, 2)])
        assert holds_exactly(case, LINE, [Fraction(1, 2) + tiny])
        assert not holds_exactly(case, LINE, [1 + tiny])  # outside the box

    def test_points_are_snapped_into_the_box(self) -> None:
        case = parse_spec(simple_text([("0.1", "0.3"), ("0.7", "0.7")], 1, "(<= Y_0 0)")).cases[0]
        grid = Grid(case)
        for v in ([0.1, 0.7], [0.3, 0.7], [0.0, 0.0], [9.0, 9.0]):
            point = grid.snap(np.array(v))
            assert case.allows(point)
            assert float(np.float32(float(point[0]))) == point[0]


class TestAnswers:
    def test_cases_share_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hard first case does not keep an easy second one from being decided."""
        rng = np.random.default_rng(1)
        sizes = [6, 40, 40, 2]
        weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
        network = Network.from_arrays(weights, [rng.normal(size=m) for m in sizes[1:]])
        top = float(np.abs(network(rng.uniform(-1, 1, (4000, 6)))[:, 0]).max())
        hard = "(and " + " ".join(f"(>= X_{i} -1) (<= X_{i} 1)" for i in range(6)) + f" (>= Y_0 {1.2 * top:.4f}))"
        easy = "(and " + " ".join(f"(>= X_{i} 2) (<= X_{i} 2.001)" for i in range(6)) + " (<= Y_0 1e6))"
        text = "\n".join([*(f"(declare-const X_{i} Real)" for i in range(6)), "(declare-const Y_0 Real)"])
        text += f"(declare-const Y_1 Real)(assert (or {hard} {easy}))"
        result = lc.verify_spec(network, parse_spec(text), time_limit=30)
        assert result.answer == "sat"
        assert result.seconds < 15
        assert result.cases == 2

    def test_a_timeout_is_a_timeout(self) -> None:
        rng = np.random.default_rng(2)
        sizes = [8, 60, 60, 60, 1]
        weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
        network = Network.from_arrays(weights, [rng.normal(size=m) for m in sizes[1:]])
        top = float(network(rng.uniform(-1, 1, (20000, 8))).max())
        result = ask(network, [("-1", "1")] * 8, f"(>= Y_0 {2.0 * top:.3f})", time_limit=1.0, certificate=True)
        assert (result.answer, result.certificates) == ("timeout", ())
        assert str(result).startswith("timeout: 0 of 1 cases closed")

    def test_interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("layercert.search.task.attack", stop)
        result = ask(LINE, [("0", "0.25")], "(>= Y_1 Y_0)")
        assert (result.answer, result.note) == ("unknown", "interrupted")

    def test_the_property_must_fit_the_network(self) -> None:
        with pytest.raises(SpecError, match="about a network with 2 inputs, arrays has 1"):
            ask(LINE, [("0", "1")] * 2, "(>= Y_1 Y_0)")
        with pytest.raises(SpecError, match="3 outputs, arrays has 2"):
            lc.verify_spec(LINE, parse_spec(simple_text([("0", "1")], 3, "(<= Y_0 0)")))
        with pytest.raises(OptionError, match="unknown method"):
            ask(LINE, [("0", "1")], "(>= Y_1 Y_0)", method="magic")

    def test_a_model_whose_softmax_was_left_out_is_refused(self) -> None:
        network = replace(LINE)
        object.__setattr__(network, "dropped", "Softmax")
        with pytest.raises(SpecError, match="the Softmax at the end of arrays is not part of the network"):
            ask(network, [("0", "1")], "(>= Y_1 Y_0)")

    @pytest.mark.parametrize("method", ["adaptive", "layercert-both", "geocert"])
    def test_any_method_may_be_asked(self, method: str) -> None:
        for high, answer in (("0.4", "unsat"), ("0.6", "sat")):
            result = ask(LINE, [("0", high)], "(>= Y_1 Y_0)", method=method)
            assert (result.answer, result.method) == (answer, method)


class TestProofs:
    spec = parse_spec(simple_text([("0", "1")], 2, "(or (and (<= X_0 0.4) (>= Y_1 Y_0)) (>= Y_1 1.5))"))

    def test_one_certificate_for_every_case(self) -> None:
        result = lc.verify_spec(LINE, self.spec, certificate=True)
        assert result.answer == "unsat"
        assert len(result.certificates) == len(self.spec.cases) == 2
        sentence = str(lc.check(LINE, result.certificates[0]))
        assert re.search(r"no point of the domain [\[(].*[\])] has an unsafe output", sentence)
        report = lc.check_spec(LINE, self.spec, result.certificates)
        assert report.ok and "Proved, unsat" in str(report)
        assert lc.check_spec(LINE, self.spec, result.certificates, exact=True).ok
        report = lc.check_spec(LINE, self.spec, result.certificates[1:])
        assert not report.ok and "about case 1 of 2" in report.reason

    @pytest.mark.parametrize("method", ["adaptive", "input-split"])
    def test_a_certificate_comes_from_the_search_that_answered(
        self, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not from a second one."""
        network = lc.Network.from_arrays(
            [np.random.default_rng(0).normal(size=(m, n)) for n, m in ((3, 8), (8, 8), (8, 2))],
            [np.zeros(8), np.zeros(8), np.array([30.0, 0.0])],
        )
        monkeypatch.setattr(verify_module, "closed_at_once", lambda _, cases: np.zeros(len(cases), np.bool_))
        recordings: list[object] = []
        prove = verify_module.prove

        def watched(*given: object) -> object:
            recordings.append(given[-1])
            return prove(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(verify_module, "prove", watched)
        spec = parse_spec(simple_text([("-1", "1")] * 3, 2, "(>= Y_1 Y_0)"))
        result = lc.verify_spec(network, spec, method=method, certificate=True)
        assert result.answer == "unsat" and lc.check_spec(network, spec, result.certificates).ok
        assert len(recordings) == 1 and recordings[0] is not None

    def test_a_proof_of_something_else_is_refused(self) -> None:
        result = lc.verify_spec(LINE, self.spec, certificate=True)
        wider = parse_spec(simple_text([("0", "1")], 2, "(or (and (<= X_0 0.41) (>= Y_1 Y_0)) (>= Y_1 1.5))"))
        other = parse_spec(simple_text([("0", "1")], 2, "(or (and (<= X_0 0.4) (>= Y_1 Y_0)) (>= Y_1 1.4))"))
        assert not lc.check_spec(LINE, wider, result.certificates).ok
        assert not lc.check_spec(LINE, other, result.certificates).ok
        shorter = [replace(c, radius=0.9 * c.radius) for c in result.certificates]
        assert not lc.check_spec(LINE, self.spec, shorter).ok
        cut = [replace(c, trees=c.trees[:0]) for c in result.certificates]
        report = lc.check_spec(LINE, self.spec, cut)
        assert not report.ok and "every clause needs a tree" in report.reason

    def test_a_counterexample_is_its_own_proof(self) -> None:
        spec = parse_spec(simple_text([("0", "1")], 2, "(> Y_1 Y_0)"))
        result = lc.verify_spec(LINE, spec, certificate=True)
        (proof,) = result.certificates
        assert "with an unsafe output" in str(lc.check(LINE, proof))
        assert "Proved, sat" in str(lc.check_spec(LINE, spec, [proof]))
        tie = replace(proof, witness=np.array([0.5]), upper=abs(0.5 - float(proof.x[0])))
        assert lc.check(LINE, tie).ok  # unsafe in the closed form that certificates speak about
        assert not lc.check_spec(LINE, spec, [tie]).ok  # but no counterexample to the strict property

    def test_a_single_point_is_proved_too(self) -> None:
        spec = parse_spec(simple_text([("0.25", "0.25")], 2, "(>= Y_1 Y_0)"))
        result = lc.verify_spec(LINE, spec, certificate=True)
        assert result.answer == "unsat"
        assert lc.check_spec(LINE, spec, result.certificates).ok
        unsafe = replace(result.certificates[0], clauses=((np.array([[1.0, 0.0]]), np.array([1.0]), None),))
        report = lc.check(LINE, unsafe)  # f_0 = 0.75 <= 1 there
        assert not report.ok and "x itself is unsafe" in report.reason


class TestGrowth:
    def test_the_room_of_a_property(self) -> None:
        # centre 0.2, half width 0.1, the classes cross at 0.5: t = 3
        spec = parse_spec(simple_text([("0.1", "0.3")], 2, "(>= Y_1 Y_0)"))
        growth = lc.measure_spec(LINE, spec)
        assert (growth.status, growth.case) == (Status.EXACT, 0)
        assert growth.lower == pytest.approx(3.0, rel=1e-6)
        assert growth.upper == pytest.approx(3.0, rel=1e-6)
        assert growth.witness == pytest.approx([0.5], rel=1e-6)
        assert "t > 1: the property holds with this much room" in str(growth)

    def test_a_violated_property(self) -> None:
        growth = lc.measure_spec(LINE, parse_spec(simple_text([("0.1", "0.9")], 2, "(>= Y_1 (+ Y_0 0.2))")))
        assert growth.upper == pytest.approx(0.25, rel=1e-6)  # y_1 - y_0 = 2 t - 1 reaches 0.2 at t = 0.6
        assert "t <= 1: violated" in str(growth)
        at_once = lc.measure_spec(LINE, parse_spec(simple_text([("0.5", "0.9")], 2, "(>= Y_1 Y_0)")))
        assert (at_once.status, at_once.lower) == (Status.EXACT, 0.0)
        assert at_once.upper < 1e-9

    def test_fixed_inputs_stay_fixed(self) -> None:
        # y = x_0 + 100 x_1, x_1 = 0.1: only x_0 grows, from 0.5 +- 0.5 to 2, so t = 3
        network = Network.from_arrays([[[1.0, 100.0]], [[1.0]]], [[0.0], [0.0]])
        spec = parse_spec(simple_text([("0", "1"), ("0.1", "0.1")], 1, "(>= Y_0 12)"))
        assert lc.measure_spec(network, spec).upper == pytest.approx(3.0, rel=1e-6)
        single = parse_spec(simple_text([("0.5", "0.5"), ("0.1", "0.1")], 1, "(>= Y_0 12)"))
        assert math.isinf(lc.measure_spec(network, single).lower)

    def test_several_boxes_give_the_least(self) -> None:
        text = simple_text(
            [("-10", "10")],
            2,
            "(and (or (and (>= X_0 0.1) (<= X_0 0.3)) (and (>= X_0 0.3) (<= X_0 0.4))) (>= Y_1 Y_0))",
        )
        growth = lc.measure_spec(LINE, parse_spec(text))
        assert (growth.case, growth.upper) == (0, pytest.approx(3.0, rel=1e-6))  # the second: (0.5 - 0.35) / 0.05 = 3
        assert growth.lower == pytest.approx(3.0, rel=1e-5)

    @pytest.mark.parametrize("known", [math.inf, 40.0])
    def test_a_search_that_ends_early_is_followed_by_single_factors(
        self, known: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def early(problem: Problem, *_: object, **__: object) -> lc.Result:
            # undecided after its half of the time: nothing proved, perhaps a witness far away
            witness = None if math.isinf(known) else problem.x + known
            return lc.Result(Status.UNDECIDED, 0.0, known, witness, None, None, "linf", math.inf, "adaptive", 0, 1.0)

        monkeypatch.setattr(growth_module, "closest", early)
        spec = parse_spec(simple_text([("0.1", "0.3")], 2, "(>= Y_1 Y_0)"))
        growth = lc.measure_spec(LINE, spec, time_limit=30)
        assert growth.seconds < 25  # it stops once the bounds are close
        assert 2.8 < growth.lower <= 3.0 + 1e-6
        assert 3.0 - 1e-6 <= growth.upper < 3.2
        assert growth.lower > 1 and "the property holds with this much room" in str(growth)

    def test_the_choice_of_the_method_is_left_to_the_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Few open neurons in the ball of the witness: splitting neurons measured best, also with few inputs."""
        asked: list[tuple[str | None, str]] = []

        def listening(problem: Problem, how: How) -> lc.Result:
            result = closest(problem, how)
            asked.append((how.method, result.method))
            return result

        monkeypatch.setattr(growth_module, "closest", listening)
        spec = parse_spec(simple_text([("0.1", "0.3")], 2, "(>= Y_1 Y_0)"))
        for method in (None, "adaptive"):
            assert lc.measure_spec(LINE, spec, method=method).upper == pytest.approx(3.0, rel=1e-6)
        assert asked == [(None, "adaptive"), ("adaptive", "adaptive")]
        with pytest.raises(OptionError, match="unknown method 'magic'"):
            lc.measure_spec(LINE, spec, method="magic")

    def test_nothing_unsafe_anywhere(self) -> None:
        growth = lc.measure_spec(LINE, parse_spec(simple_text([("0", "1")], 2, "(<= Y_1 -1)")))
        assert growth.status == Status.ROBUST
        assert growth.lower > 1e3

    def test_weights_with_all_bits_are_refused(self) -> None:
        network = Network.from_arrays([[[0.1, 0.3]], [[1.0]]], [[0.0], [0.0]])
        with pytest.raises(SpecError, match="weights with 53 significant bits, too many"):
            lc.measure_spec(network, parse_spec(simple_text([("0", "1")] * 2, 1, "(>= Y_0 12)")))


class TestRuntime:
    """Counterexamples of ONNX models hold in onnxruntime's float32."""

    @examples(8, 30)
    @given(seed=seeds)
    def test_replayed(self, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
        onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'onnxruntime'")
        folder = tmp_path_factory.mktemp("onnx")
        network = float32_network(seed, inputs=4, outputs=3)
        write_onnx(network, folder / "net.onnx", shape=[1, 2, 2])
        rng = np.random.default_rng(seed)
        box = [(f"{c - 0.3:.3f}", f"{c + 0.3:.3f}") for c in rng.uniform(-1, 1, 4)]
        spec = parse_spec(simple_text(box, 3, "(or (> Y_0 Y_1) (> Y_1 Y_2))"))
        result = lc.verify_spec(lc.load(folder / "net.onnx"), spec)
        found = result.counterexample
        if found is None:
            assert result.answer == "unsat"
            return
        assert found.runtime == "onnxruntime"
        assert found.runtime_agrees, result.note
        session = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
        x = np.array([float(t) for t in found.inputs], np.float32)
        y = session.run(None, {"x": x.reshape(1, 2, 2)})[0].reshape(-1)
        assert np.allclose(y, found.outputs, rtol=0, atol=0)
        assert spec.satisfied([Fraction(float(v)) for v in x], [Fraction(float(v)) for v in y])

    def test_a_runtime_that_disagrees_is_named(self) -> None:
        network = replace(LINE, runtime=lambda v: np.array([1.0, 0.0]))
        result = ask(network, [("0", "1")], "(>= Y_1 Y_0)")
        assert result.answer == "sat"  # the real network has a counterexample all the same
        assert result.counterexample is not None and result.counterexample.runtime_agrees is False
        assert "not with the float32 outputs of its runtime" in result.note


def test_the_default_method_is_chosen_in_one_place() -> None:
    from layercert.methods import METHODS, choose

    wide = Network.from_arrays([np.ones((2, 50)), np.ones((2, 2))], [np.zeros(2), np.zeros(2)])
    for network, inputs in ((LINE, 1), (wide, 50)):
        spec = parse_spec(simple_text([("0", "0.1")] * inputs, 2, "(>= Y_1 1000)"))
        chosen = choose(problem_of(spec.cases[0], network))
        assert chosen in METHODS
        assert lc.verify_spec(network, spec).method == chosen
    assert chosen == "adaptive"  # with 50 inputs


def test_rows_and_cases_by_hand() -> None:
    row = Row(((0, Fraction(1)), (1, Fraction(-1))), Fraction(0), strict=True)
    assert row.holds([Fraction(1), Fraction(2)]) and not row.holds([Fraction(1), Fraction(1)])
    case = Case((), ((row,),))
    assert case.strict and case.violated([Fraction(0), Fraction(1)])


def test_files_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(simple_text([("0", "0.4")], 2, "(>= Y_1 Y_0)"))
    assert lc.verify_spec(LINE, lc.load_spec(path)).answer is lc.Answer.UNSAT
