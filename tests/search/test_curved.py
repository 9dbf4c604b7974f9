"""Bounds with parabolas in the first layer: judged by sampled points, by brute force, and by what is recorded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert.arrays import Matrix, Vector
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import search
from layercert.search.adaptive.curved import curve_objective, is_suited
from layercert.search.adaptive.lanes import lanes_of
from layercert.search.adaptive.model import ALPHA, HI, LO, build
from layercert.search.adaptive.tree import Ball, Effort
from layercert.search.task import Task


def sparse(seed: int, domain: tuple[float, float] | None = (0.0, 1.0), inputs: int = 8) -> Problem:
    """Two layers of neurons that read few numbers each, and a dense one; some rows are zero, some neurons fixed."""
    rng, reads = np.random.default_rng(seed), inputs // 4
    first, second = np.zeros((2 * inputs, inputs)), np.zeros((inputs, 2 * inputs))
    for i in range(2 * inputs):
        first[i, (i // 2 + np.arange(reads)) % inputs] = rng.normal(size=reads)
    for i in range(inputs):
        second[i, (2 * i + np.arange(5)) % (2 * inputs)] = rng.normal(size=5)
    weights = [first, second, rng.normal(size=(4, inputs)), rng.normal(size=(3, 4))]
    biases = [0.3 * rng.normal(size=len(W)) for W in weights]
    if seed % 2:
        weights[0][0], weights[1][1] = 0.0, 0.0  # lo = hi
        biases[0][3], biases[0][4] = 20.0, -20.0  # one that is on, one that is off
        biases[0][0] = 0.0  # exactly on its hyperplane
    return robustness(Network.from_arrays(weights, biases), rng.uniform(0.0, 1.0, size=inputs), "l2", domain=domain)


def steps_in(problem: Problem, U: float, rng: np.random.Generator, count: int = 3000) -> Matrix:
    raw = rng.normal(size=(count, len(problem.x)))
    raw[: count // 2] *= rng.random(size=(count // 2, raw.shape[1])) < 0.3
    raw *= U * (1 - 1e-12) / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-12)
    raw[::3] *= rng.random(size=(len(raw[::3]), 1))
    return raw if problem.box is None else problem.box.clip(raw)


def kinds_of_balls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every ball that is searched from now on: has it parabolas?"""
    kinds: list[bool] = []
    init = Ball.__init__

    def told(ball: Ball, *args: Any, **options: Any) -> None:
        kinds.append(bool(options.get("curved")))
        init(ball, *args, **options)

    monkeypatch.setattr(Ball, "__init__", told)
    return kinds


def test_only_sparse_first_layers_in_l2_have_parabolas() -> None:
    network = sparse(0).network
    assert is_suited(network, Norm(2.0))
    assert not is_suited(network, Norm(math.inf)) and not is_suited(network, Norm(1.0))
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(4, 3)), rng.normal(size=(4, 4)), np.eye(2, 4)]
    dense = Network.from_arrays(weights, [np.zeros(len(W)) for W in weights])
    assert not is_suited(dense, Norm(2.0))


@pytest.mark.parametrize("domain", [None, (0.0, 1.0)])
def test_bounds_hold_at_sampled_points_and_are_no_wider(domain: tuple[float, float] | None) -> None:
    narrower = 0
    for seed in range(8):
        problem, rng = sparse(seed, domain), np.random.default_rng(seed)
        network = problem.network
        for U in (0.05, 0.4, 1.5):
            _, plain = build(problem, U)
            model, root = build(problem, U, True)
            second = slice(model.net.noff[1], model.net.noff[2])  # farther up lower lines follow from the bounds below
            assert (root[LO, second] >= plain[LO, second]).all() and (root[HI, second] <= plain[HI, second]).all()
            narrower += int(((root[HI] - root[LO]) < 0.99 * (plain[HI] - plain[LO])).sum())
            values = problem.x + steps_in(problem, U, rng)
            outputs = network(values)
            pre = []
            for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
                values = values @ W.T + b
                pre.append(values)
                values = np.maximum(values, 0.0)
            z = np.concatenate(pre, axis=1)
            assert (z >= root[LO] - 1e-12).all() and (z <= root[HI] + 1e-12).all()
            for clause in range(len(problem.clauses)):
                alphas = root.copy()
                alphas[ALPHA] = rng.random(len(alphas[ALPHA]))  # any lower lines are sound
                for state in (root, alphas):
                    lanes = lanes_of(model, state[None], np.ones((1, 1)), np.array([clause]))
                    least = curve_objective(model, lanes, U)[0]
                    rows = problem.clauses[clause]
                    assert least <= (outputs @ rows.C.T - rows.d).min() + 1e-9
    assert narrower > 20


def test_parabolas_prove_what_lines_do_not() -> None:
    """Many neurons that cannot all move at once: sum_i |w_i| <= sqrt(n) ||w||, where lines say n ||w||."""
    n = 30
    first = np.concatenate([np.eye(n), -np.eye(n)])
    network = Network.from_arrays(
        [first, np.ones((1, 2 * n)), np.array([[1.0], [-1.0]])], [np.zeros(2 * n), np.zeros(1), np.array([0.0, 12.0])]
    )
    problem = robustness(network, np.zeros(n), "l2")  # another class where 2 sum |w_i| >= 12
    true = 6.0 / math.sqrt(n)
    task = Task(problem, make_chain("default", problem.norm))
    for share, plain, curved in ((0.3, False, True), (0.8, False, True), (1.05, False, False)):
        for how, proved in ((False, plain), (True, curved)):
            ball = Ball(task, Effort(), None, share * true, curved=how)
            assert (ball.quick() >= ball.U) is proved, (share, how)


@pytest.mark.parametrize("weigh", [False, True])
def test_no_bound_of_a_search_is_above_the_true_distance(weigh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced on small networks, up to the witness itself."""
    monkeypatch.setattr(search, "MANY", 0)
    monkeypatch.setattr(search, "HOPEFUL", 1.0)
    used = kinds_of_balls(monkeypatch)
    weights = np.array([1.0, 2.0, 0.5, 1.0]) if weigh else None
    found: list[float] = []
    for seed in range(4):
        problem = sparse(seed, inputs=4)
        network, x = problem.network, problem.x
        exact = lc.measure(network, x, "l2", domain=(0, 1), weights=weights, method="layercert-both")
        if exact.status != "exact":  # the whole domain is safe
            continue
        used.clear()
        found.clear()
        answer = lc.measure(
            network, x, "l2", domain=(0, 1), weights=weights, method="adaptive",
            watch=lambda progress, event: found.append(progress.lower),
        )  # fmt: skip
        assert any(used)
        assert answer.lower == pytest.approx(exact.lower, rel=1e-5)
        assert all(bound <= exact.upper * (1 + 1e-9) for bound in found)


def scaled_by(problem: Problem, weights: float, inputs: float) -> tuple[Network, Vector]:
    """The same question with other numbers: all distances are `inputs` times as large."""
    first, *rest = problem.network.weights
    biases = [b * (weights * inputs) for b in problem.network.biases]
    return Network.from_arrays([first * weights, *rest], biases), problem.x * inputs


@pytest.mark.parametrize(("weights", "inputs"), [(1e30, 1e-170), (1e60, 1e-175), (1e-170, 1e60)])
def test_no_ball_is_proved_beyond_the_distance_at_any_scale(weights: float, inputs: float) -> None:
    """The squares of these radii or weights are zero in float64, and a fall with U^2 in it was half of the true one."""
    for seed in (0, 4, 5):
        problem = sparse(seed, None)
        distance = lc.measure(problem.network, problem.x, "l2", label=problem.label, radius=0.6).upper
        network, x = scaled_by(problem, weights, inputs)
        for share, proved in ((0.2, True), (1.02, False), (1.5, False)):
            same = robustness(network, x, "l2", label=problem.label, radius=share * inputs * distance)
            ball = Ball(Task(same, make_chain("default", same.norm)), Effort(), None, same.radius, curved=True)
            assert (ball.quick() >= ball.U) is proved, (seed, share)
        answer = lc.verify(network, x, 1.02 * inputs * distance, "l2", label=problem.label, time_limit=1.0)
        assert answer.status != "robust"


def test_verify_is_answered_by_parabolas_but_its_certificate_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MANY", 0)
    curved = kinds_of_balls(monkeypatch)
    problem = sparse(2, inputs=4)
    network, x = problem.network, problem.x
    distance = lc.measure(network, x, "l2", domain=(0, 1)).lower
    curved.clear()
    assert lc.verify(network, x, 0.3 * distance, "l2", domain=(0, 1), method="adaptive").status == "robust"
    assert curved == [True]
    curved.clear()
    proved = lc.verify(network, x, 0.3 * distance, "l2", domain=(0, 1), method="adaptive", certificate=True)
    assert proved.status == "robust" and proved.certificate is not None
    assert lc.check(network, proved.certificate)
    assert curved and not any(curved)
