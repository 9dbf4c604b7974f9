"""Pieces of the adaptive search: the nearest unsafe point of each, found in two ways; balls as wide as the gap asks."""

from __future__ import annotations

import math
from itertools import pairwise

import highspy
import numpy as np
import pytest
from scipy.sparse import csr_array

from helpers.brute import brute_force
from layercert.arrays import Matrix
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.programs.highs_time import Patience
from layercert.programs.stacks import make_chain
from layercert.run import How, closest
from layercert.search.adaptive import least, pieces
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.least import PiecePrograms
from layercert.search.adaptive.model import HI, LO, build
from layercert.search.task import Task


def test_both_ways_find_the_same_point_of_a_piece() -> None:
    rng = np.random.default_rng(5)
    problem = _convolution(2)
    U, found = 0.6, 0
    _, root = build(problem, U)
    meets = (root[LO] < 0) & (root[HI] > 0)
    programs = PiecePrograms(problem, [csr_array(W) for W in problem.network.weights], meets)
    leaves = Leaves(Task(problem, make_chain("default", problem.norm)))
    for _ in range(60):
        step = np.clip(problem.x + U * rng.uniform(-1, 1, len(problem.x)), 0, 1) - problem.x
        sides = np.where(np.concatenate(problem.network.preactivations(problem.x + step)) > 0, 1.0, -1.0)
        for clause in range(len(problem.clauses)):
            mine = pieces.by_margin(programs, sides, clause, U)
            true = pieces.by_distance(leaves, sides, meets, clause, U)
            if true.value > U * (1 - 1e-6):
                assert mine.value > U * (1 - 1e-5)
                continue
            found += 1
            assert mine.value == pytest.approx(true.value, rel=1e-6)
            assert mine.value == np.abs(mine.step).max()
            z = np.concatenate(problem.network.preactivations(problem.x + mine.step))
            assert (sides[meets] * z[meets] > -1e-6).all()
            assert np.abs(z[mine.faces]).max(initial=0.0) < 1e-6
            assert problem.clauses[clause].margins(problem.network(problem.x + mine.step)).max() < 1e-5
    assert found > 10


def test_rows_on_demand_are_all_that_hold_the_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a round or all at once: the same least value, and no neuron of the piece beyond its hyperplane."""
    rng, problem, U = np.random.default_rng(7), _convolution(2), 0.6
    _, root = build(problem, U)
    meets = (root[LO] < 0) & (root[HI] > 0)
    maps, met = [csr_array(W) for W in problem.network.weights], 0
    for _ in range(20):
        step = np.clip(problem.x + U * rng.uniform(-1, 1, len(problem.x)), 0, 1) - problem.x
        sides = np.where(np.concatenate(problem.network.preactivations(problem.x + step)) > 0, 1.0, -1.0)
        answers = []
        for added in (1, 1000):
            monkeypatch.setattr(least, "ADDED", added)
            answers.append(PiecePrograms(problem, maps, meets).least(0, sides, U))
        few, many = answers
        assert few is not None and many is not None
        assert few.value == pytest.approx(many.value, rel=1e-6, abs=1e-9)
        z = np.concatenate(problem.network.preactivations(problem.x + few.step))
        assert (sides[meets] * z[meets] > -1e-6).all()
        met += len(few.faces) > 0
    assert met > 5


def test_a_piece_outside_the_ball_has_no_least_value() -> None:
    problem, U = _convolution(2), 0.6
    _, root = build(problem, U)
    meets = (root[LO] < 0) & (root[HI] > 0)
    programs = PiecePrograms(problem, [csr_array(W) for W in problem.network.weights], meets)
    far = -np.where(np.concatenate(problem.network.preactivations(problem.x)) > 0, 1.0, -1.0)
    found = programs.least(0, far, 1e-6)
    assert found is not None and math.isinf(found.value)


def test_a_network_is_sparse_by_its_entries() -> None:
    assert pieces.is_sparse(_convolution(0).network)
    rng = np.random.default_rng(0)
    assert not pieces.is_sparse(
        Network.from_arrays([rng.normal(size=(9, 4)), rng.normal(size=(2, 9))], [np.zeros(9), np.zeros(2)])
    )


@pytest.mark.parametrize("seed", [2, 3, 5, 9])
def test_searches_that_move_over_pieces_by_margins_are_exact(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SPARSE", 2.0)  # dense ones too: small enough for brute force
    problem = _small(seed)
    true, _ = brute_force(problem)
    result = closest(problem)
    assert result.status == "exact"
    assert result.lower <= true * (1 + 1e-9) and result.upper == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize("seed", [75, 95, 161])
def test_points_of_pieces_that_are_not_unsafe_do_not_end_the_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaling all layers changes no distance; in small numbers the solver's tolerance is as large as the outputs."""
    monkeypatch.setattr(pieces, "SPARSE", 2.0)
    plain, small = _on_a_grid(seed, 1.0), _on_a_grid(seed, 1e-3)
    true, result = closest(plain), closest(small)
    assert true.status == result.status == "exact", result
    assert result.lower == pytest.approx(true.upper, rel=3e-6) and result.upper == pytest.approx(true.lower, rel=3e-6)


@pytest.mark.parametrize("gap", [0.3, 1e-2])
def test_a_wide_gap_is_proved_in_the_ball_that_it_asks_for(gap: float) -> None:
    for seed in (2, 3, 5, 9):
        problem = _small(seed)
        true, _ = brute_force(problem)
        result = closest(problem, How(gap=gap))
        assert result.status == "exact" and result.gap <= gap
        assert result.lower <= true * (1 + 1e-9) <= result.upper * (1 + 2e-9)


def test_a_program_that_goes_round_in_circles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time for any program but a model's first the answer is the same, by the kernels."""
    monkeypatch.setattr("layercert.search.adaptive.relaxation.PATIENCE", 0.0)
    monkeypatch.setattr("layercert.search.adaptive.relaxation.LEAST_PATIENCE", 0.0)
    monkeypatch.setattr(pieces, "SPARSE", 2.0)
    problem = _small(3)
    true, _ = brute_force(problem)
    result = closest(problem)
    assert result.status == "exact" and result.upper == pytest.approx(true, rel=1e-6)


def test_a_piece_whose_program_goes_round_in_circles_has_no_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here all of them do, but for the first: they are given a time, and the rest of the search is as ever."""
    problem, U = _convolution(2), 0.6
    _, root = build(problem, U)
    meets = (root[LO] < 0) & (root[HI] > 0)
    programs = PiecePrograms(problem, [csr_array(W) for W in problem.network.weights], meets)
    here = np.where(np.concatenate(problem.network.preactivations(problem.x)) > 0, 1.0, -1.0)
    given = list[float]()
    set_option = highspy.Highs.setOptionValue

    def watched(highs: highspy.Highs, name: str, value: object) -> None:
        if name == "time_limit":
            given.append(float(str(value)) - highs.getRunTime())
        set_option(highs, name, value)

    monkeypatch.setattr(highspy.Highs, "setOptionValue", watched)
    assert programs.least(0, here, U) is not None
    assert given[0] == pytest.approx(least.FIRST_SECONDS)
    status = highspy.HighsModelStatus.kTimeLimit
    with monkeypatch.context() as patch:
        patch.setattr(highspy.Highs, "getModelStatus", lambda _: status)
        assert programs.least(0, here, 0.9 * U) is None
    assert given[-1] < least.FIRST_SECONDS
    assert programs.least(0, here, 0.8 * U) is not None


def test_patience_is_what_programs_take_in_the_mean() -> None:
    patience = Patience(times=20.0, least=0.2, first=5.0)
    assert patience.most == 5.0
    patience.took(0.005)
    assert patience.most == 0.2
    patience.took(0.095)
    assert patience.most == pytest.approx(1.0)


def _small(seed: int) -> Problem:
    rng, sizes = np.random.default_rng(seed), [3, 6, 6, 3]
    net = Network.from_arrays(
        [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.3 * rng.normal(size=b) for b in sizes[1:]]
    )
    return robustness(net, rng.normal(size=3), math.inf)


def _on_a_grid(seed: int, scale: float) -> Problem:
    """Whole and half numbers, every layer times the scale."""
    rng, sizes = np.random.default_rng(seed), [3, 10, 8, 3]
    weights = [np.round(2 * rng.normal(size=(b, a))) / 2 for a, b in pairwise(sizes)]
    biases = [np.round(2 * rng.normal(size=b)) / 2 for b in sizes[1:]]
    net = Network.from_arrays([scale * W for W in weights], [scale ** (k + 1) * b for k, b in enumerate(biases)])
    return robustness(net, np.round(2 * rng.uniform(-1, 1, 3)) / 2, math.inf, domain=(-4.0, 4.0))


def _convolution(seed: int) -> Problem:
    """Two layers whose rows read three neighbours each, inside a box."""
    rng = np.random.default_rng(seed)
    weights = [_banded(rng, 16, 14), _banded(rng, 14, 16), rng.normal(size=(3, 14))]
    net = Network.from_arrays(weights, [0.3 * rng.normal(size=len(W)) for W in weights])
    return robustness(net, rng.uniform(0.2, 0.8, 14), math.inf, domain=(0.0, 1.0))


def _banded(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    W = np.zeros((rows, columns))
    for i in range(rows):
        W[i, (i + np.arange(3)) % columns] = rng.normal(size=3)
    return W
