"""Linear programs of the adaptive search's relaxations (search/adaptive/program.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import highspy
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from helpers.brute import brute_force
from layercert.arrays import Matrix
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.run import closest
from layercert.search.adaptive.ascent import optimise
from layercert.search.adaptive.bound import Effort
from layercert.search.adaptive.branch import Batch, expand
from layercert.search.adaptive.lanes import lanes_of
from layercert.search.adaptive.lines import fix, scores
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, build, keep_rows
from layercert.search.adaptive.program import Programs
from layercert.system import clock


def test_programs_go_on_from_the_last_one_and_say_what_a_fresh_solver_says() -> None:
    """The nodes of a random walk through a tree, one after the other in the same model."""
    rng, problem = np.random.default_rng(3), _random_problem()
    net = problem.network
    U, compared, cheats = 0.7, 0, 0
    _, root = build(problem, U)
    programs = Programs(problem, [csr_array(W) for W in net.weights], root)
    for _ in range(30):
        state = root.copy()
        for i in rng.choice(programs.free, rng.integers(0, 4), replace=False):
            fix(state, i, rng.choice([-1.0, 1.0]))
        at = int(rng.integers(len(problem.clauses)))
        found, true = programs.solve(at, state, U), _least_relaxed(problem, at, state, U)
        assert (found is None) == (true is None)  # None: no point has the phases of the splits
        if found is not None and true is not None:
            compared += 1
            assert found.value == pytest.approx(true, abs=1e-7)
            # without a neuron that cheats the point is what it says
            here = float(problem.clauses[at].margins(net(problem.x + found.step))[0])
            assert len(found.cheating) or found.value == pytest.approx(here, abs=1e-6)
            assert (state[PHASE, found.cheating] == 0).all()
            cheats += len(found.cheating) > 0
    assert compared > 15 and cheats > 5


def test_every_column_has_two_ends_and_none_of_them_holds_the_point() -> None:
    """Whatever became free since the last node: with two ends any basis is dual feasible. Proofs know of no ends."""
    rng, problem, U = np.random.default_rng(4), _random_problem(), 0.7
    _, root = build(problem, U)
    programs, solved = Programs(problem, [csr_array(W) for W in problem.network.weights], root), 0
    for _ in range(30):
        state = root.copy()
        for i in rng.choice(programs.free, rng.integers(0, 4), replace=False):
            fix(state, i, rng.choice([-1.0, 1.0]))
        if programs.solve(0, state, U) is None:
            continue
        solved += 1
        (model,) = programs._idle[0]
        lp, point = model.highs.getLp(), np.array(model.highs.getSolution().col_value)[:-1]
        low, high = np.array(lp.col_lower_)[:-1], np.array(lp.col_upper_)[:-1]  # without F's
        assert np.isfinite(low).all() and np.isfinite(high).all()
        neurons = slice(model.n, None)
        inner = (low != 0) & (low < high), (high != 0) & (low < high)
        assert (point > low)[neurons][inner[0][neurons]].all() and (point < high)[neurons][inner[1][neurons]].all()
    assert solved > 15


def test_an_answer_with_a_reduced_cost_on_the_wrong_side_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS calls it unknown. What the multipliers are worth is proved afterwards, and the basis is kept."""
    problem, U = _random_problem(), 0.7
    _, root = build(problem, U)
    programs = Programs(problem, [csr_array(W) for W in problem.network.weights], root)
    honest = programs.solve(0, root, U)
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: highspy.HighsModelStatus.kUnknown)
    again = programs.solve(0, root, U)
    assert honest is not None and again is not None
    assert again.value == pytest.approx(honest.value, abs=1e-9)
    (model,) = programs._idle[0]
    assert model.highs.getBasis().valid


def test_a_node_without_points_has_multipliers_at_a_price() -> None:
    """There the program itself has no answer. At a price for the sides of the splits it has one, whose multipliers
    prove that the node is empty, unless the price is too low; and the next program is as it would be without."""
    rng, problem = np.random.default_rng(3), _random_problem()
    U, empty, closed = 0.7, 0, 0
    model, root = build(problem, U)
    programs = Programs(problem, [csr_array(W) for W in problem.network.weights], root)
    for _ in range(40):
        state = root.copy()
        for i in rng.choice(programs.free, len(programs.free) // 2, replace=False):
            fix(state, i, rng.choice([-1.0, 1.0]))
        if programs.solve(0, state, U) is not None:
            continue
        empty += 1
        found = programs.priced(0, state, U, 100.0)
        assert found is not None
        state[ALPHA], state[BETA] = np.where(found.alpha >= 0, found.alpha, 0.5), found.beta
        lanes = lanes_of(model, state[None], found.mu[None], np.zeros(1, np.intp))
        closed += optimise(model, lanes, U, 0, np.zeros((1, 4)), clock.timer())[0] >= U
    assert closed == empty > 5
    again, true = programs.solve(0, root, U), _least_relaxed(problem, 0, root, U)
    assert again is not None and true is not None and again.value == pytest.approx(true, abs=1e-7)


def test_a_node_is_split_where_its_program_cheats_if_that_is_still_open() -> None:
    problem = _random_problem()
    U = 0.7
    model, root = build(problem, U)
    free = np.flatnonzero((root[LO] < 0) & (root[HI] > 0))
    kept, effort = keep_rows(model.net), Effort(candidates=1, probe_steps=2, steps=3, rounds=1, passes=1)
    score = np.empty(root.shape[1])
    scores(root, score)
    usual = int(np.argmax(score))
    wanted = int(free[free != usual][0])

    def split(state: Matrix, neurons: list[int]) -> int:
        nodes = Batch(
            state[None].copy(), np.ones((1, 1)), np.zeros(1, np.intp), np.full(1, -math.inf), np.zeros((1, 4)),
            np.array([neurons], np.intp),
        )  # fmt: skip
        _, found = expand(model, kept, nodes, U, U, effort, clock.timer())
        return int(found[0])

    state = root.copy()
    assert split(state, [-1, -1]) == usual
    assert split(state, [wanted, usual]) == wanted
    fix(state, wanted, 1.0)
    assert split(state, [wanted, -1]) == usual


def test_a_solver_that_lies_costs_nodes_and_no_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multipliers of the right sign and any size, or no numbers at all."""
    from layercert.search.adaptive import relaxation, worker

    rng = np.random.default_rng(8)
    monkeypatch.setattr(worker, "NEAR", 1.0)
    honest, asked = relaxation.Relaxation._solution, [0]

    def lying(self: relaxation.Relaxation) -> tuple[Matrix, Matrix, Matrix]:
        asked[0] += 1
        point, reduced, dual = honest(self)
        kind = asked[0] % 4
        if kind == 0:
            dual[rng.integers(len(dual))] = math.nan
        elif kind == 1:
            reduced[rng.integers(len(reduced))] = math.inf
        else:
            dual, reduced = (v * rng.choice([0.0, -1.0, 1e12, 1e300], len(v)) for v in (dual, reduced))
        return point * rng.choice([1.0, -3.0]), reduced, dual

    monkeypatch.setattr(relaxation.Relaxation, "_solution", lying)
    for seed in (5, 6, 8, 9, 13, 17):
        problem = _random_problem(seed, [3, 6, 6, 2])
        true, _ = brute_force(problem)
        found = closest(problem)
        assert found.lower <= true * (1 + 1e-7) and found.upper >= true * (1 - 1e-7)
        assert found.status == "exact"
    assert asked[0] > 50


def _random_problem(seed: int = 3, sizes: Sequence[int] = (4, 7, 6, 3)) -> Problem:
    rng = np.random.default_rng(seed)
    net = Network.from_arrays(
        [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.3 * rng.normal(size=b) for b in sizes[1:]]
    )
    return robustness(net, rng.normal(size=sizes[0]), math.inf)


def _least_relaxed(problem: Problem, at: int, state: Matrix, U: float) -> float | None:
    """The least F over the triangles of a node, from scratch: every pre-activation and output is a variable."""
    net, clause = problem.network, problem.clauses[at]
    n, N = net.inputs, len(state[PHASE])
    variables = n + 2 * N
    equal, right, less, most = [], [], [], []
    bounds: list[tuple[float | None, float | None]] = [(-U, U)] * n + [(None, None)] * (2 * N)
    i = 0
    for k, (W, b) in enumerate(zip(net.weights[:-1], net.biases[:-1], strict=True)):
        for j, row in enumerate(W):
            sums = np.zeros(variables)
            below = slice(0, n) if k == 0 else slice(n + N + i - j - len(row), n + N + i - j)
            sums[below], sums[n + i] = row, -1.0
            equal.append(sums)
            right.append(-b[j] - (row @ problem.x if k == 0 else 0.0))
            z, h, lo, hi, phase = n + i, n + N + i, state[LO, i], state[HI, i], state[PHASE, i]
            bounds[z] = (0.0, None) if phase > 0 else (None, 0.0) if phase < 0 else (None, None)
            unit = np.zeros(variables)
            if phase < 0 or (phase == 0 and hi <= 0):
                bounds[h] = (0.0, 0.0)
            elif phase > 0 or lo >= 0:
                unit[z], unit[h] = 1.0, -1.0
                equal.append(unit)
                right.append(0.0)
            else:
                bounds[h] = (0.0, None)
                unit[z], unit[h] = 1.0, -1.0
                less.append(unit)
                most.append(0.0)
                chord = np.zeros(variables)
                chord[z], chord[h] = -hi / (hi - lo), 1.0
                less.append(chord)
                most.append(-hi * lo / (hi - lo))
            i += 1
    cost = np.zeros(variables)
    cost[variables - net.widths[-1] :] = clause.C[0] @ net.weights[-1]
    answer = linprog(cost, np.array(less) if less else None, most or None, np.array(equal), right, bounds)
    return float(answer.fun + (clause.C @ net.biases[-1] - clause.d)[0]) if answer.status == 0 else None
