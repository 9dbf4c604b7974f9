"""Bounds by the hulls of neurons, found by a game: held against exact minima, points of the ball and other passes."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

import layercert as lc
from layercert.arrays import Matrix, Vector
from layercert.compiled.packed import row_add
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.search.adaptive import played
from layercert.search.adaptive.bent import bent_pass
from layercert.search.adaptive.hulled import FEWEST, cone_of, constant, facets_of, play, slopes_of
from layercert.search.adaptive.hulls import Hulls
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, NO_HULLS, PHASE, SHARE, THOROUGH, build, hull_layer

#: Enough for every layer of these small networks.
PLENTY = 10**9


def convolution(rng: np.random.Generator, inputs: int, width: int, channels: int) -> Matrix:
    """Filters of some inputs side by side, one input further each time."""
    filters = rng.normal(size=(channels, width))
    W = np.zeros((channels * (inputs - width + 1), inputs))
    for at in range(inputs - width + 1):
        for c in range(channels):
            W[at * channels + c, at : at + width] = filters[c]
    return W


def network_of(seed: int, deep: bool) -> Network:
    rng = np.random.default_rng(seed)
    first = convolution(rng, 16, 3, 2)  # 28 neurons
    second = np.kron(convolution(rng, 14, 3, 1), rng.normal(size=(1, 2)))  # 12 neurons, each reads six
    third = rng.normal(size=(4, 12))  # less than a quarter of all entries: the search has hulls
    weights = [csr_array(first), csr_array(second), *([third] if deep else [])]
    weights.append(rng.normal(size=(3, weights[-1].shape[0])))
    return Network.from_arrays(weights, [0.3 * rng.normal(size=W.shape[0]) for W in weights])


def problem_of(seed: int, deep: bool = False) -> Problem:
    x = np.random.default_rng(seed + 100).uniform(size=16)
    return robustness(network_of(seed, deep), x, "linf", domain=(0, 1))


def exact_least(W: Matrix, b: Vector, coef: Vector, low: Vector, high: Vector) -> float:
    """The least coef.relu(W w + b) on a box, by a linear program for every pattern of the neurons that count."""
    read = np.flatnonzero(coef)
    best = np.inf
    for pattern in itertools.product((1.0, -1.0), repeat=len(read)):
        signs = np.array(pattern)
        on = read[signs > 0]
        found = linprog(
            coef[on] @ W[on], A_ub=-signs[:, None] * W[read], b_ub=signs * b[read], bounds=np.stack([low, high], 1)
        )
        if found.status == 0:
            best = min(best, found.fun + coef[on] @ b[on])
    return float(best)


def test_bounds_of_the_second_layer_are_nearer_to_the_exact_ones() -> None:
    lost = by_lines = 0.0
    for seed in range(3):
        problem, U = problem_of(seed), 0.3
        model, plain = build(problem, U, hulled=NO_HULLS)
        _, root = build(problem, U, hulled=THOROUGH)
        network, n = problem.network, int(model.net.noff[1])
        W, second = (csr_array(M).toarray() for M in network.maps[:2])
        low, high = np.maximum(model.box_lo, -U), np.minimum(model.box_hi, U)
        for i in range(second.shape[0]):
            for side in (1.0, -1.0):
                true = side * network.biases[1][i] + exact_least(W, model.z0, side * second[i], low, high)
                ours, lines = (side * s[LO if side > 0 else HI, n + i] for s in (root, plain))
                assert lines <= true + 1e-9 and ours <= true + 1e-9 and ours >= lines
                lost, by_lines = lost + true - ours, by_lines + true - lines
    assert lost < 0.7 * by_lines and by_lines > 1.0


@pytest.mark.parametrize("deep", [False, True])
def test_all_neurons_stay_in_their_bounds_in_rational_arithmetic(deep: bool) -> None:
    rng = np.random.default_rng(7)
    for seed in range(4):
        problem, U = problem_of(seed, deep), 0.25
        model, root = build(problem, U, hulled=THOROUGH)
        low, high = np.maximum(model.box_lo, -U), np.minimum(model.box_hi, U)
        corners = np.where(rng.random((30, len(low))) < 0.5, low, high)
        for w in (*corners, *(low + (high - low) * rng.random((10, len(low))))):
            x = [Fraction(float(a)) + Fraction(float(d)) for a, d in zip(problem.x, w, strict=True)]
            first = 0
            for M, b in zip(problem.network.maps[:-1], problem.network.biases[:-1], strict=True):
                rows = csr_array(M).toarray()
                z = [
                    sum((Fraction(float(a)) * y for a, y in zip(row, x, strict=True) if a), Fraction(float(c)))
                    for row, c in zip(rows, b, strict=True)
                ]
                for j, value in enumerate(z):
                    assert Fraction(float(root[LO, first + j])) <= value <= Fraction(float(root[HI, first + j]))
                x, first = [max(value, Fraction(0)) for value in z], first + len(z)


def test_a_row_with_splits_holds_at_the_points_of_the_node() -> None:
    rng, tried = np.random.default_rng(3), 0
    for seed in range(6):
        problem, U = problem_of(seed, True), 0.3
        model, root = build(problem, U, hulled=THOROUGH)
        net, network = model.net, problem.network
        w = rng.uniform(np.maximum(model.box_lo, -U), np.minimum(model.box_hi, U), (400, network.inputs))
        Z = np.array([np.concatenate(network.preactivations(problem.x + step)) for step in w])
        free = np.flatnonzero((root[LO] < 0) & (root[HI] > 0))
        for i in rng.choice(free, 3, replace=False):
            root[PHASE, i] = 1.0 if Z[0, i] > 0 else -1.0  # the first point is in the node
            root[LO if root[PHASE, i] > 0 else HI, i] = 0.0
            root[BETA, i] = rng.uniform(0, 1)
        inside = ((root[PHASE] * Z) >= 0).all(axis=1)
        k = network.L
        coef = model.R[0].copy()
        places = np.full(net.inputs + len(net.b), -1, np.intp)
        cone = cone_of(model, root, k, coef, U, places)
        assert (places == -1).all()
        value, game = play(model, root, cone, coef, 20, U)
        outputs = np.maximum(Z[:, net.noff[k - 1] :], 0.0) @ coef
        assert inside.any() and value <= outputs[inside].min()
        # the facets, in the pass that the search proves them with, are worth the same
        facets = Facets(*facets_of(model, root, cone, game))
        hulls = Hulls([csr_array(M) for M in network.maps], model, root)
        slopes_of(cone, game, root[ALPHA])
        root[SHARE, facets.neurons] = facets.shares
        done, _ = bent_pass(model, root, np.ones(1), 0, hulls.bends(root, facets, U))
        fall = np.maximum(-done.g[0] * np.maximum(model.box_lo, -U), -done.g[0] * np.minimum(model.box_hi, U)).sum()
        read = np.isin(np.flatnonzero(root[BETA]), cone.at[: cone.first[k]]).all()  # the pass has all multipliers
        if read:
            tried += 1
            assert done.s[0] - fall == pytest.approx(value + model.c[0], abs=1e-9)
    assert tried > 3


def test_the_constant_of_any_facet_is_the_largest_difference_at_a_corner() -> None:
    """Of all parts, good or not: relu is 0 at some corners and z at others, and either may decide."""
    problem, U, rng = problem_of(0), 0.5, np.random.default_rng(5)
    model, root = build(problem, U, hulled=NO_HULLS)
    coef = np.where(rng.random(int(model.net.noff[1])) < 0.5, 1.0, -1.0)
    cone = cone_of(model, root, 1, coef, U, np.full(model.net.inputs + len(coef), -1, np.intp))
    game = play(model, root, cone, coef, FEWEST, U)[1]
    game.parts[:], game.chords[:] = rng.uniform(size=len(game.parts)), 0.0
    by_zero = by_value = 0
    for q in range(len(cone.begin) - 1):
        own = slice(cone.begin[q], cone.begin[q + 1])
        low, high = cone.low[cone.place[own]], cone.high[cone.place[own]]
        corners = np.array(list(itertools.product(*np.stack([low, high], 1))))
        z, a = corners @ cone.weight[own] + model.z0[cone.at[q]], corners @ (game.parts[own] * cone.weight[own])
        e, _ = constant(cone, game, q, float(model.z0[cone.at[q]]))
        assert e == pytest.approx((np.maximum(z, 0.0) - a).max(), abs=1e-12)
        by_zero, by_value = by_zero + ((-a).max() > (z - a).max()), by_value + ((-a).max() < (z - a).max())
    assert by_zero > 2 and by_value > 2


def test_more_turns_prove_more_and_too_little_work_is_none() -> None:
    problem, U = problem_of(0), 0.5
    model, root = build(problem, U, hulled=NO_HULLS)
    net, before = model.net, root.copy()
    few = many = 0.0
    for i in range(int(net.noff[1]), int(net.noff[2])):
        coef = np.zeros(int(net.noff[1]))
        row_add(net, 1, i, 1.0, coef, 0)
        cone = cone_of(model, root, 1, coef, U, np.full(net.inputs + int(net.noff[1]), -1, np.intp))
        few, many = (total + play(model, root, cone, coef, n, U)[0] for total, n in ((few, FEWEST), (many, 200)))
    assert many > few
    assert hull_layer(model, root, U, 1, 100) == 0 and (root == before).all()
    assert hull_layer(model, root, U, 1, PLENTY) > 0 and (root[LO] > before[LO]).any()


@pytest.mark.parametrize("threads", [2, 3, 100])
def test_threads_share_the_rows_of_a_layer_and_bounds_stay_the_same(threads: int) -> None:
    problem, U = problem_of(0), 0.5
    model, root = build(problem, U, hulled=NO_HULLS)
    alone, shared = root.copy(), root.copy()
    work = hull_layer(model, alone, U, 1, PLENTY)
    assert hull_layer(model, shared, U, 1, PLENTY, threads) == work > 0
    assert (shared == alone).all() and (shared != root).any()
    _, one = build(problem, U, hulled=THOROUGH)
    _, several = build(problem, U, hulled=THOROUGH, threads=threads)
    assert (one == several).all()


def test_the_search_plays_and_answers_as_a_mixed_integer_program(monkeypatch: pytest.MonkeyPatch) -> None:
    raised, original = 0, played.bound_by_play

    def counted(worker: object, node: object) -> Vector:
        nonlocal raised
        before = node.bound  # type: ignore[attr-defined]
        point = original(worker, node)  # type: ignore[arg-type]
        raised += node.bound > before  # type: ignore[attr-defined]
        return point

    monkeypatch.setattr(played, "bound_by_play", counted)
    exact = 0
    for seed in range(8):
        problem = problem_of(seed, True)
        net, x = problem.network, problem.x
        ours = lc.measure(net, x, "linf", domain=(-1, 2), method="adaptive")
        true = lc.measure(net, x, "linf", domain=(-1, 2), method="mip")
        assert ours.status == true.status
        if ours.status == "exact":
            exact += 1
            assert ours.upper == pytest.approx(true.upper, rel=1e-5)
    assert raised > 0 and exact > 3
