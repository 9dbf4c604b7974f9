"""Numbers that vanish in float64: who is unsafe, which class a point has, whether a witness holds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import layercert as lc
from layercert.certificate.claim import BoxTree, Certificate
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem, robustness
from layercert.spec.cases import Row
from layercert.spec.counterexample import _row_holds, holds_exactly
from layercert.spec.read import parse_spec

# f_0 = 10 * 1e70 * relu(1e-170 v), f_1 = 1e-280: at v = 1e-170 the first product is 1e-340, which is 0 in float64,
# while f_0 is 1e-269 as a real number: class 0, though float64 sees class 1
VANISHES = Network.from_arrays([[[1e-170]], [[1e70]], [[1e1], [0.0]]], [[0.0], [0.0], [0.0, 1e-280]])
X = np.array([1e-170])


def test_what_vanishes_is_part_of_the_forward_error() -> None:
    true = [float(y) for y in VANISHES.exact(X)]
    assert VANISHES(X).tolist() == [0.0, 1e-280] and true[0] > 9e-270
    assert (np.abs(VANISHES(X) - true) <= VANISHES.forward_error(X)).all()


@pytest.mark.parametrize("seed", range(40))
def test_the_forward_error_covers_every_magnitude(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def any_size(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) * 10.0 ** rng.uniform(-200, 60, size=shape)

    net = Network.from_arrays([any_size(3, 2), any_size(3, 3), any_size(2, 3)], [any_size(3), any_size(3), any_size(2)])
    x = any_size(2)
    true = net.exact(x)
    error = net.forward_error(x)
    for y, t, e in zip(net(x).tolist(), true, error.tolist(), strict=True):
        assert abs(Fraction(y) - t) <= Fraction(e)
    assert net.classify(x) == true.index(max(true))


def test_unsafe_is_decided_in_rationals_where_products_vanish() -> None:
    assert VANISHES.classify(X) == 0 and robustness(VANISHES, X).label == 0
    assert not robustness(VANISHES, X, label=0).is_unsafe(X)
    behind = robustness(VANISHES, X, label=1)
    assert behind.is_unsafe(X, strict=True)
    clause = behind.holding(X)
    assert clause is not None and clause.target == 0


def test_a_clause_whose_own_products_vanish() -> None:
    """1e-200 f_0 <= 0 with f_0 = 1e-200: false, and 0 <= 0 in float64."""
    net = Network.from_arrays([[[1.0]]], [[0.0]])
    problem = Problem(net, np.array([1e-200]), (Clause(np.array([[1e-200]]), np.zeros(1)),), Norm(2.0))
    assert not problem.is_unsafe(problem.x)
    assert problem.is_unsafe(-problem.x, strict=True)


def test_answers_about_the_input_itself() -> None:
    assert lc.verify(VANISHES, X, radius=0.0, label=0).status == "robust"
    wrong = lc.verify(VANISHES, X, radius=0.0, label=1)
    assert (wrong.status, wrong.upper, wrong.target) == ("not_robust", 0.0, 0)
    assert wrong.note == "the input is already classified as 0, not as 1"
    measured = lc.measure(VANISHES, X, label=0)
    assert measured.upper > 0 or measured.witness is None


@pytest.mark.parametrize("exact", [False, True])
def test_the_checker_refuses_what_only_float64_believes(exact: bool) -> None:
    if exact:
        pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    clause = (np.array([[-1.0, 1.0]]), np.zeros(1), 0)
    tree = BoxTree(np.array([-1], np.int32), np.zeros(1))
    no_witness = Certificate(VANISHES.sha256, X, np.inf, None, 1, (clause,), 0.0, None, np.inf, (tree,))
    assert lc.check(VANISHES, no_witness, exact).reason == "x itself is unsafe"
    false = replace(
        no_witness, label=0, clauses=((np.array([[1.0, -1.0]]), np.zeros(1), 1),), witness=X.copy(), upper=0.0
    )
    assert lc.check(VANISHES, false, exact).reason == "the witness is not unsafe"


def test_a_property_is_not_violated_by_what_vanishes() -> None:
    """Every X_0 of the box gives Y_0 >= 1e-269 > 1e-280 = Y_1."""
    text = (
        "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
        "(assert (>= X_0 1e-170))(assert (<= X_0 2e-170))(assert (<= Y_0 Y_1))"
    )
    spec = parse_spec(text)
    assert not holds_exactly(spec.cases[0], VANISHES, [Fraction("1e-170")])
    assert lc.verify_spec(VANISHES, spec, time_limit=5).answer != "sat"


def test_coefficients_of_a_property_that_vanish() -> None:
    """1e-400 y <= 1e-340: float64 takes both numbers for 0, so rationals decide at any y."""
    row = Row(((0, Fraction("1e-400")),), Fraction("1e-340"), strict=False)
    assert _row_holds(row, np.array([1e70]), np.zeros(1)) is None
    assert row.holds([Fraction("1e70")]) is False and row.holds([Fraction("1e50")]) is True
