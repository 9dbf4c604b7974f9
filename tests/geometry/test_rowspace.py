"""Searches in the row space of the first layer: the rotation's margins, and the same answers as with all inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given

import layercert as lc
from helpers.agreement import check_against
from helpers.brute import brute_force
from helpers.tiny import degenerate, examples, generic, seeds
from layercert import shipped
from layercert.arrays import Matrix
from layercert.attack.attack import attack
from layercert.geometry import Cells
from layercert.geometry.rowspace import RowSpace, of_network, row_space
from layercert.methods import METHODS
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.programs.chain import SolverChain
from layercert.programs.program import Programs
from layercert.programs.solvers.gram import Gram
from layercert.programs.stacks import make_chain
from layercert.search.task import Task

INPUTS = 40
KINDS = pytest.mark.parametrize("kind", [generic, degenerate])
ROTATED = ["geocert", "geocert-lip", "layercert-basic", "layercert-both", "layercert-recursive-lp"]
Kind = Callable[[int], Problem]


def wide(kind: Kind, seed: int) -> Problem:
    """A tiny problem in 40 inputs, l_2 without a domain: in the first few of them, or in a random subspace."""
    tiny, rng = kind(seed), np.random.default_rng(seed)
    n = tiny.network.inputs
    P = np.eye(n, INPUTS) if rng.random() < 0.5 else np.linalg.qr(rng.normal(size=(INPUTS, n)))[0].T
    weights = [tiny.network.weights[0] @ P, *tiny.network.weights[1:]]
    return robustness(Network.from_arrays(weights, tiny.network.biases), tiny.x @ P, "l2", tiny.label)


def narrow(kind: Kind, seed: int) -> Problem:
    tiny = kind(seed)
    return robustness(tiny.network, tiny.x, "l2", tiny.label)


def space_of(problem: Problem) -> RowSpace:
    space = row_space(problem)
    assert space is not None
    return space


# The rotation itself.


def isometry(basis: Matrix) -> Matrix:
    """The exact isometry of the polar decomposition, in extended precision, by Newton's iteration."""
    Q = basis.T.astype(np.longdouble)
    for _ in range(4):
        Q = Q @ (3.0 * np.eye(Q.shape[1]) - Q.T @ Q) / 2.0
    assert float(np.abs(Q.T @ Q - np.eye(Q.shape[1])).max()) < 1e-18
    return Q


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here")
@pytest.mark.parametrize("kind", ["dense", "duplicates", "zero rows", "low rank", "badly scaled", "all zero"])
@pytest.mark.parametrize("seed", range(5))
def test_the_margins_cover_the_rotation(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(12, 300))
    if kind == "duplicates":
        W[3], W[5] = W[1], -2.0 * W[1] * (1.0 + 1e-15)
    elif kind == "zero rows":
        W[[0, 7]] = 0.0
    elif kind == "low rank":
        W = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 300))
    elif kind == "badly scaled":
        W *= 10.0 ** rng.integers(-12, 12, size=(12, 1))
    elif kind == "all zero":
        W[:] = 0.0
    space = of_network(Network.from_arrays([W, np.ones((2, 12))], [np.zeros(12), np.zeros(2)]))
    assert space is not None
    off = np.sqrt((np.square(W.T - isometry(space.basis) @ space.rows.T.astype(np.longdouble))).sum(axis=0))
    assert (off <= space.error).all()
    assert (space.error <= 1e-12 * np.linalg.norm(W, axis=1)).all()  # and not by much
    assert not space.rows[~W.any(axis=1)].any()  # a constant neuron stays constant


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here")
def test_a_basis_that_is_not_orthonormal_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q R is W^0 all the same, but the rows R are too short for any isometry."""
    W, qr = np.random.default_rng(0).normal(size=(5, 60)), np.linalg.qr

    def skewed(A: Matrix) -> tuple[Matrix, Matrix]:
        Q, R = qr(A)
        return Q * (1.0 + 1e-7), R / (1.0 + 1e-7)

    monkeypatch.setattr(np.linalg, "qr", skewed)
    space = of_network(Network.from_arrays([W, np.ones((2, 5))], [np.zeros(5), np.zeros(2)]))
    assert space is not None
    off = np.sqrt((np.square(W.T - isometry(space.basis) @ space.rows.T.astype(np.longdouble))).sum(axis=0))
    assert (off <= space.error).all() and (off > 1e-8 * np.linalg.norm(W, axis=1)).all()
    # and the margins of all layers' rows have it
    deep = Network.from_arrays([W, np.ones((4, 5)), np.ones((2, 4))], [np.zeros(5), np.zeros(4), np.zeros(2)])
    problem = robustness(deep, np.ones(60), "l2", 0)
    plain, rotated = Cells(problem), Cells(problem, of_network(deep))
    for w in np.random.default_rng(1).normal(size=(5, 60)):
        v = plain.full(w)
        here, there = rotated.of(v.pattern).below, v.below
        apart = np.abs(there.G @ w - here.G @ isometry(space.basis).T.astype(float) @ w)
        assert (apart <= (here.growth + there.growth) * np.linalg.norm(w)).all()


def test_only_where_it_is_the_same_and_smaller() -> None:
    rng = np.random.default_rng(0)

    def net(n: int, width: int) -> Network:
        return Network.from_arrays(
            [rng.normal(size=(width, n)), rng.normal(size=(2, width))], [np.zeros(width), [1, 0]]
        )

    many, x = net(100, 10), rng.random(100)
    assert space_of(robustness(many, x, "l2")).rows.shape == (10, 10)
    assert row_space(robustness(many, x, "linf")) is None
    assert row_space(robustness(many, x, "l2", domain=(0, 1))) is None
    assert row_space(robustness(net(100, 60), x, "l2")) is None  # hardly smaller
    assert row_space(robustness(net(8, 2), x[:8], "l2")) is None
    problem = robustness(many, x, "l2")
    for stack, inputs in (("default", 10), ("library", 10), ("paper", 100)):
        assert Task(problem, make_chain(stack, problem.norm)).cells.inputs == inputs


# The hierarchy in its coordinates.


@KINDS
@given(seed=seeds)
def test_rows_mean_the_same_in_both_coordinates(kind: Kind, seed: int) -> None:
    problem = wide(kind, seed)
    space, rng = space_of(problem), np.random.default_rng(seed)
    plain, rotated = Cells(problem), Cells(problem, space)
    for w in rng.normal(size=(5, INPUTS)):
        A = plain.full(w)
        B = rotated.of(A.pattern)
        (there, ids), (here, same) = A.region(math.inf), B.region(math.inf)
        assert set(same) >= set(ids)  # a neuron that is constant by cancellation may seem to move a little
        pick = [same.index(i) for i in ids]
        length = float(np.linalg.norm(w))
        apart = there.A @ w - here.A[pick] @ rotated.coordinates(w)
        assert (np.abs(apart) <= (there.growth + here.growth[pick]) * length).all()
        assert here.r[pick] == pytest.approx(there.r, rel=1e-12, abs=1e-12)
        assert (here.slack[pick] == there.slack).all()
        v = rotated.coordinates(w)
        assert np.linalg.norm(v) <= length * (1 + 1e-13)
        assert rotated.coordinates(rotated.offset(v)) == pytest.approx(v, rel=1e-12, abs=1e-13)
    assert plain.offset(w) is w and plain.coordinates(w) is w


@KINDS
@given(seed=seeds)
def test_faces_are_as_far_in_both_coordinates(kind: Kind, seed: int) -> None:
    """The kernel in the row space and with all inputs, and DAQP: each one's bound is below the others' points."""
    problem = wide(kind, seed)
    space, rng = space_of(problem), np.random.default_rng(seed)
    U = float(rng.choice([0.5, 3.0]))
    for w in rng.normal(size=(3, INPUTS)) * rng.choice([0.0, 0.3, 1.0], size=(3, 1)):
        A = Cells(problem).full(w)
        there, ids = A.region(U)
        here, same = Cells(problem, space).of(A.pattern).region(U)
        if same != ids:
            continue
        faces = np.arange(-1, len(ids))
        answers = [
            chain.solve(Programs(rows, faces, problem.norm, None, U))
            for chain, rows in (
                (make_chain("default", problem.norm), here),
                (make_chain("default", problem.norm), there),
                (SolverChain([Gram()]), there),
            )
        ]
        assert answers[0].decided.all() and answers[1].decided.all()
        for one, other in itertools.permutations(answers, 2):
            assert (one.lower <= other.value * (1 + 1e-9) + 1e-12).all()
        near = np.isfinite(answers[0].value)
        steps = space.lift(answers[0].steps[near])
        assert np.linalg.norm(steps, axis=1) == pytest.approx(answers[0].value[near], rel=1e-12)
        for face, step in zip(faces[near], steps, strict=True):
            residual = there.residual(step)
            if face >= 0:
                residual[face] = abs(residual[face])
            margin = there.slack + here.slack + (there.growth + here.growth) * float(np.linalg.norm(step))
            assert (residual <= margin).all()


# Searches.


@examples(dev=15, ci=100)
@KINDS
@given(seed=seeds)
def test_methods_in_the_row_space_against_brute_force(kind: Kind, seed: int) -> None:
    """Nothing is lost by 36 inputs that only make the space larger."""
    problem = wide(kind, seed)
    true, _ = brute_force(narrow(kind, seed))
    if true == 0 or problem.is_unsafe(problem.x) or 0 < abs(problem.margin(problem.x)) < 1e-12:
        return  # a tie at x may be broken by the rotation
    for method in ROTATED:
        check_against(true, problem, method)


@pytest.mark.parametrize("method", ROTATED[:-1])
@pytest.mark.parametrize("net", ["mnist17_l1_2x20", "mnist17_plain_2x10"])
def test_the_same_search_with_all_inputs(net: str, method: str) -> None:
    """Radius, bound and programs are those of the unrotated search; the witness is a point of R^n."""
    network = lc.load(shipped.path(net))
    with np.load(shipped.path("digits")) as digits:
        problem = robustness(network, digits["X"][2].astype(float), "l2")
    found = attack(problem)
    assert found is not None
    runs = []
    for rotates in (True, False):
        chain = SolverChain(make_chain("default", problem.norm).solvers, rotates=rotates)
        task = Task(problem, chain, limit=found[1])
        assert (task.cells.space is not None) == rotates
        for _ in METHODS[method].search(task):
            pass
        assert chain.undecided == 0 and not chain.fallbacks["kernel-l2"] and not chain.crashes
        runs.append((task.U, task.lower(math.inf), chain.programs))
    assert runs[0][:2] == pytest.approx(runs[1][:2], rel=1e-9)
    assert runs[0][2] == runs[1][2]


def test_a_point_that_cannot_be_settled_is_sought_on_its_piece() -> None:
    """`measure` goes back and forth between R^n and the row space there."""
    rng = np.random.default_rng(1)
    for seed in range(5):
        problem = wide(generic, int(rng.integers(2**32)) + seed)
        result = lc.measure(problem.network, problem.x, "l2", method="layercert-both")
        if result.witness is not None:
            assert result.witness.shape == (INPUTS,)
            assert problem.is_unsafe(result.witness)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e-120, 1e-60, 1e60, 1e80])
@pytest.mark.parametrize("method", ["geocert", "geocert-lip", "layercert-both"])
def test_weights_of_any_size(method: str, scale: float) -> None:
    """The same classifier with the first layer (and all biases) scaled: squares vanish or overflow in the rotation."""
    for seed in (17, 23, 33):  # with an unsafe point
        problem, true = wide(generic, seed), brute_force(narrow(generic, seed))[0]
        W, b = problem.network.weights, problem.network.biases
        network = Network.from_arrays([W[0] * scale, *W[1:]], [v * scale for v in b])
        assert of_network(network) is not None
        r = lc.measure(network, problem.x, "l2", problem.label, method=method, time_limit=5)
        assert r.lower <= true * (1 + 1e-6) and r.upper >= true * (1 - 1e-6)
        assert r.status == ("exact" if scale <= 1e60 else "undecided"), (seed, r)
