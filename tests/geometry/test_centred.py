"""Cells with rows in rational arithmetic: nothing cancels, at any scale."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from helpers.brute import exact_values
from helpers.tiny import examples, seeds
from layercert.arrays import TINY
from layercert.geometry import Cells, CentredCells
from layercert.network import Network
from layercert.problem import Clause, Problem, robustness
from layercert.scaled import scaled

NORMS = [1.0, 2.0, 3.0, math.inf]


def cancelling(seed: int) -> Problem:
    """Weights of very different sizes, and biases that take back almost all of what stands at x."""
    rng = np.random.default_rng(seed)
    n, sizes = int(rng.integers(1, 4)), [int(v) for v in rng.integers(2, 5, size=3)]
    x = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 9)
    weights, biases, h = [], [], x
    for inputs, outputs in zip([n, *sizes], [*sizes, 3], strict=True):
        W = rng.normal(size=(outputs, inputs)) * 10.0 ** rng.uniform(-8, 8, size=(outputs, 1))
        b = -(W @ h) * (1.0 + rng.choice([0.0, 1e-15, -3e-14, 0.1], size=outputs))
        weights.append(W)
        biases.append(b)
        h = np.maximum(W @ h + b, 0.0)
    return robustness(Network.from_arrays(weights, biases), x, float(rng.choice(NORMS)), label=0)


@given(seed=seeds)
@examples(60, 400)
def test_a_point_is_in_the_rows_of_its_own_pattern_and_of_the_clauses_that_hold_there(seed: int) -> None:
    """The rows with their margins hold all points that satisfy the true ones."""
    problem, rng = cancelling(seed), np.random.default_rng(seed + 1)
    cells = CentredCells(scaled(problem, 1.0))
    for _ in range(6):
        w = rng.normal(size=len(problem.x)) * 10.0 ** rng.uniform(-18, 9)
        v = [Fraction(float(a)) + Fraction(float(b)) for a, b in zip(problem.x, w, strict=True)]
        *hidden, f = exact_values(problem.network, v)
        signs = [np.array([1 if z >= 0 else -1 for z in layer], dtype=np.int8) for layer in hidden]
        A, length = cells.of(signs), problem.norm.value(w)
        assert A.region(math.inf)[0].contains(w, length)
        C = rng.normal(size=(2, 3)) * 10.0 ** rng.uniform(-9, 9, size=(2, 1))
        d = np.array([float(sum(Fraction(float(c)) * y for c, y in zip(row, f, strict=True))) for row in C])
        clause = Clause(C, np.nextafter(d, math.inf))  # holds at v by no more than a rounding
        asked = CentredCells(scaled(replace(problem, clauses=(clause,)), 1.0))
        assert asked.of(signs).unsafe(clause).contains(w, length)


@given(seed=seeds)
@examples(30, 200)
def test_rows_are_wrong_by_one_rounding_at_x_whatever_cancels_there(seed: int) -> None:
    problem = cancelling(seed)
    cells = CentredCells(scaled(problem, 1.0))
    A = cells.full(np.zeros_like(problem.x))
    for rows in (A.region(math.inf)[0], *(A.unsafe(clause) for clause in problem.clauses)):
        assert (rows.slack <= 1e-14 * np.abs(rows.r) + TINY).all()
        assert (np.abs(rows.A).max(axis=1, initial=0.0) <= 1.0).all()


def test_the_constant_that_float64_loses() -> None:
    """f = relu(1e16 + v) - relu(1e16) at v = 0.25: float64 knows nothing of it, and says how little."""
    net = Network.from_arrays(
        [np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [-1.0, 1.0]])], [np.zeros(2), np.array([0.0, 0.0])]
    )
    problem = robustness(net, np.array([1e16, 0.25]), "linf", label=0)
    here, there = Cells(problem), CentredCells(scaled(problem, 1.0))
    rows = here.full(np.zeros(2)).unsafe(problem.clauses[0])
    assert rows.slack[0] > 1.0
    rows = there.full(np.zeros(2)).unsafe(problem.clauses[0])
    assert rows.A[0] == pytest.approx([0.0, 0.5]) and rows.r[0] == -0.125  # v/2 <= -1/8


def test_hyperplanes_beyond_all_floats_stay_beyond_every_ball() -> None:
    net = Network.from_arrays([np.array([[1e-200], [1.0]]), np.eye(2)], [np.array([1e150, -1.0]), np.zeros(2)])
    cells = CentredCells(scaled(robustness(net, np.array([2.0]), "l2", label=0), 1.0))
    beyond, near = cells.root.below.reach.tolist()
    assert 1e99 < beyond < math.inf and near == pytest.approx(1.0)
