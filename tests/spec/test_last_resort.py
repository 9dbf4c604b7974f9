"""Rational arithmetic where float64 cannot tell: exact programs, and cases decided piece by piece."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

import layercert as lc
from helpers.properties import float32_network
from layercert.network import Network
from layercert.spec.last_resort import MOST_INPUTS, Verdict, decide
from layercert.spec.rational_program import Inequality, feasible
from layercert.spec.read import parse_spec

# outputs are relu(x_0 + x_1) and relu(x_0 - x_1)
SUM = Network.from_arrays([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0], [0.0, 0.0]])
UNIT = ("(>= X_0 0)", "(<= X_0 1)", "(>= X_1 0)", "(<= X_1 1)")


def ask(network: Network, *asserted: str, certificate: bool = False) -> lc.SpecResult:
    names = [f"X_{i}" for i in range(network.inputs)] + [f"Y_{i}" for i in range(network.classes)]
    text = "".join(f"(declare-const {n} Real)" for n in names) + "".join(f"(assert {a})" for a in asserted)
    return lc.verify_spec(network, parse_spec(text), certificate=certificate)


def box(low: str, high: str) -> tuple[str, ...]:
    return tuple(f"({sign} X_{i} {end})" for i in range(2) for sign, end in ((">=", low), ("<=", high)))


def random_rows(seed: int) -> tuple[list[Inequality], int]:
    """A box, and half-planes with small whole coefficients: many are parallel, touch or meet in one point."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    unit = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    rows = [Inequality(unit[i], Fraction(int(rng.integers(0, 4))), bool(rng.integers(2))) for i in range(n)]
    for _ in range(int(rng.integers(0, 6))):
        a = [Fraction(int(v)) for v in rng.integers(-2, 3, n)]
        rows.append(Inequality(a, Fraction(int(rng.integers(-3, 4))), bool(rng.random() < 0.3)))
    return rows, n


def centre_of_vertices(rows: list[Inequality], n: int) -> list[Fraction] | None:
    """The mean of all vertices of the closed polytope, found by trying all sets of n rows."""
    unit = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    closed = [(list(row.a), row.bound) for row in rows] + [([-v for v in u], Fraction(0)) for u in unit]
    vertices = []
    for chosen in combinations(closed, n):
        A = np.array([[float(v) for v in a] for a, _ in chosen])
        if abs(np.linalg.det(A)) < 0.5:  # of whole numbers: 0
            continue
        b = np.array([float(v) for _, v in chosen])
        v = [Fraction(float(t)).limit_denominator(1000) for t in np.linalg.solve(A, b)]
        if all(sum(p * q for p, q in zip(a, v, strict=True)) <= bound for a, bound in closed):
            vertices.append(v)
    return [sum(c, Fraction(0)) / len(vertices) for c in zip(*vertices, strict=True)] if vertices else None


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_exact_programs_agree_with_all_vertices(first: int) -> None:
    answers = set()
    for seed in range(first, first + 100):
        rows, n = random_rows(seed)
        centre = centre_of_vertices(rows, n)
        # a strict row holds somewhere exactly if it does at the mean of the vertices
        wanted = centre is not None and all(
            not row.strict or sum(p * q for p, q in zip(row.a, centre, strict=True)) < row.bound for row in rows
        )
        found = feasible(rows, n)
        assert (found is not None) == wanted, seed
        answers.add(wanted)
        if found is not None:
            assert min(found) >= 0
            for row in rows:
                value = sum(p * q for p, q in zip(row.a, found, strict=True))
                assert value < row.bound or (value == row.bound and not row.strict)
    assert answers == {True, False}


@pytest.mark.parametrize(
    "asserted",
    [
        pytest.param((*UNIT, "(< Y_0 Y_1)"), id="touched only, and strict"),
        pytest.param((*box("-1e300", "1e300"), "(<= Y_0 -1)"), id="too large"),
        pytest.param((*box("1e-300", "2e-300"), "(<= Y_0 Y_1)"), id="too small"),
        pytest.param((*UNIT, "(<= (+ (* 1e-300 Y_0) Y_1) -1e-300)"), id="a coefficient that vanishes"),
    ],
)
def test_unsat_where_float64_cannot_tell(asserted: tuple[str, ...]) -> None:
    result = ask(SUM, *asserted, certificate=True)
    assert (result.answer, result.method, result.closed) == ("unsat", "rationals", 1)
    assert not result.certificates
    assert "no certificate" in result.note
    assert "it was proved in rational arithmetic, for which there is no kind of certificate" in result.note


@pytest.mark.parametrize(
    ("asserted", "outputs"),
    [
        (("(= Y_0 1.3)", "(= Y_1 0.7)"), (Fraction(13, 10), Fraction(7, 10))),
        (("(= (* 3 Y_0) 1)",), (Fraction(1, 3), None)),
    ],
)
def test_equalities_of_outputs_are_met_exactly(
    asserted: tuple[str, ...], outputs: tuple[Fraction | None, Fraction | None]
) -> None:
    result = ask(SUM, *UNIT, *asserted, certificate=True)
    assert (result.answer, result.method) == ("sat", "rationals")
    assert result.counterexample is not None
    exact = SUM.exact([Fraction(t) for t in result.counterexample.inputs])
    assert all(want is None or f == want for f, want in zip(exact, outputs, strict=True))
    # a certificate holds float64 numbers, and none of them meets the equality
    assert not result.certificates
    assert "whose inputs are the proof" in result.note


def test_products_that_underflow_are_decided() -> None:
    network = Network.from_arrays([[[1e-170]], [[1e70]], [[1e1], [0.0]]], [[0.0], [0.0], [0.0, 1e-280]])
    # Y_0 is at least 1e-269 here, and Y_1 is 1e-280
    assert ask(network, "(>= X_0 1e-170)", "(<= X_0 2e-170)", "(<= Y_0 Y_1)").answer == "unsat"


@pytest.mark.parametrize("seed", range(8))
def test_pieces_agree_with_the_searches(seed: int) -> None:
    network = float32_network(seed)
    sides = "".join(f"(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(network.inputs))
    names = [f"X_{i}" for i in range(network.inputs)] + [f"Y_{i}" for i in range(network.classes)]
    rng = np.random.default_rng(seed)
    bound = float(network(rng.uniform(-1, 1, network.inputs))[0])
    text = "".join(f"(declare-const {n} Real)" for n in names) + sides + f"(assert (<= Y_0 {bound - 0.3 * seed:.4f}))"
    spec = parse_spec(text)
    answer = lc.verify_spec(network, spec).answer
    found = decide(spec.cases[0], network)
    assert answer == ("unsat" if found is Verdict.EMPTY else "sat")
    if isinstance(found, list):
        assert spec.satisfied(found, network.exact(found))


def test_large_networks_are_left_alone() -> None:
    wide = MOST_INPUTS + 1
    network = Network.from_arrays([np.ones((2, wide))], [np.zeros(2)])
    names = [f"X_{i}" for i in range(wide)]
    text = "".join(f"(declare-const {n} Real)" for n in [*names, "Y_0", "Y_1"])
    text += "".join(f"(assert (>= {n} 0))(assert (<= {n} 1))" for n in names)
    spec = parse_spec(text + "(assert (< Y_0 Y_1))")
    assert decide(spec.cases[0], network) is Verdict.OPEN
