"""One tree for all targets: answers against brute force, ranges at sampled points, what splits are credited with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from helpers.brute import brute_force
from helpers.replays import replay_on, root_of
from layercert.arrays import Matrix
from layercert.certificate.step_floats import regions_of
from layercert.certify import Recording
from layercert.certify.following import follow_trail
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import adaptive, shared
from layercert.search.adaptive.model import HI, LO, PHASE, ROWS
from layercert.search.adaptive.node import Node, splits_of
from layercert.search.adaptive.pseudocosts import Pseudocosts
from layercert.search.adaptive.record import Halfspace, Tightened
from layercert.search.adaptive.shared import Group, Shared
from layercert.search.adaptive.tree import Effort
from layercert.search.events import Bound
from layercert.search.saved import Tree
from layercert.search.task import Task

#: Four layers of three neurons, the least that have a common tree.
SIZES = [3, 3, 3, 3, 3, 5]


def problem_with(seed: int) -> Problem:
    """Five classes around a random point: four targets."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(SIZES)]
    network = Network.from_arrays(weights, [0.3 * rng.normal(size=m) for m in SIZES[1:]])
    x = rng.normal(size=SIZES[0])
    half = rng.uniform(0.5, 2.0, size=len(x))
    f = network(x)
    top = int(f.argmax())
    rows = [np.eye(SIZES[-1])[top] - np.eye(SIZES[-1])[j] for j in range(SIZES[-1]) if j != top]
    clauses = tuple(Clause(row[None], np.zeros(1)) for row in rows)
    return Problem(network, x, clauses, Norm(math.inf), domain=(x - half, x + rng.random() * half))


def task_of(problem: Problem, radius: float) -> Task:
    return Task(problem, make_chain("default", problem.norm), radius, enough=radius)


def answer(problem: Problem, radius: float, saved: Tree | None = None) -> tuple[float, float]:
    """What was proved of the distance, and that of the witness."""
    task, proved = task_of(problem, radius), 0.0
    task.saved = saved
    for event in adaptive(task, Effort()):
        if isinstance(event, Bound):
            proved = max(proved, event.lower)
        if task.incumbent.distance <= radius:
            break
    return proved, task.incumbent.distance


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[Group]:
    """The groups of all common trees that are made, after their ranges were narrowed."""
    seen: list[Group] = []
    bounded = Shared._bounded

    def listen(self: Shared, group: Group, rounds: int, passes: int) -> tuple[Group | None, list[Node]]:
        found = bounded(self, group, rounds, passes)
        seen.append(group)
        return found

    monkeypatch.setattr(Shared, "_bounded", listen)
    return seen


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every target that is open stays in the common tree, though small networks never have one that is far."""
    monkeypatch.setattr(Shared, "_near", property(lambda _: math.inf, lambda *_: None), raising=False)
    monkeypatch.setattr(shared, "FEW", 0)


@pytest.mark.parametrize("seed", range(6))
def test_any_unsafe_point_is_found_or_excluded(seed: int) -> None:
    decide(problem_with(seed))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(10))
def test_the_common_tree_alone_decides_too(seed: int) -> None:
    decide(problem_with(seed))


def decide(problem: Problem) -> None:
    true = brute_force(problem)[0]
    for radius in (0.6 * min(true, 2.0), 0.98 * min(true, 2.0), min(1.5 * true, 2.0)):
        proved, witness = answer(problem, radius)
        assert proved <= true * (1.0 + 1e-9)
        if true > radius:
            assert proved >= min(radius, problem.reach * (1.0 - 1e-9))
        else:
            assert witness <= radius * (1.0 + 1e-6)


def hard_problem(seed: int) -> tuple[Problem, Matrix]:
    """Four layers of ten neurons, and four targets that the ball of radius 1 misses by a tenth of what F moves there,
    going by many points of the ball, which come second."""
    rng = np.random.default_rng(seed)
    sizes = [4, 10, 10, 10, 10, 4]
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    network = Network.from_arrays(weights, [0.3 * rng.normal(size=m) for m in sizes[1:]])
    x = rng.normal(size=sizes[0])
    points = rng.uniform(x - 1.0, x + 1.0, size=(5_000, len(x)))
    outputs = np.maximum(preactivations(network, points)[:, -10:], 0.0) @ network.weights[-1].T + network.biases[-1]
    least, most = outputs.min(axis=0), outputs.max(axis=0)
    clauses = tuple(
        Clause(row[None], np.array([d])) for row, d in zip(np.eye(4), least - 0.1 * (most - least), strict=True)
    )
    return Problem(network, x, clauses, Norm(math.inf)), points


def test_ranges_hold_at_all_points_of_a_group(groups: list[Group]) -> None:
    """At all points of the ball with its splits, whatever target they might belong to."""
    split = 0
    for seed in range(3):
        problem, points = hard_problem(seed)
        groups.clear()
        list(itertools.islice(adaptive(task_of(problem, 1.0), Effort()), 12))
        z = preactivations(problem.network, points)
        for group in groups:
            state = group.state
            is_split = state[PHASE] != 0.0
            inside = (z * state[PHASE] >= 0.0)[:, is_split].all(axis=1)
            split += bool(is_split.any() and inside.any())
            assert (z[inside] >= state[LO] - 1e-9).all()
            assert (z[inside] <= state[HI] + 1e-9).all()
    assert split > 5


def preactivations(network: Network, points: Matrix) -> Matrix:
    """Of all hidden neurons, a row per point."""
    found, h = [], points
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        found.append(h @ W.T + b)
        h = np.maximum(found[-1], 0.0)
    return np.concatenate(found, axis=1)


class TestWhereItIsUsed:
    def test_shallow_networks_few_targets_and_measuring_do_without(self, groups: list[Group]) -> None:
        problem = problem_with(0)
        assert shared.is_suited(problem, Effort())
        assert not shared.is_suited(problem, Effort(together=1))
        few = Problem(problem.network, problem.x, problem.clauses[: shared.FEW], problem.norm, domain=problem.domain)
        assert not shared.is_suited(few, Effort())
        task = Task(problem, make_chain("default", problem.norm), 1.0)
        for _ in adaptive(task, Effort()):
            pass
        assert groups == []


class TestPseudocosts:
    def node(self, F: float) -> Node:
        """Three open neurons with triangles of heights 1/2, 1 and 1/2."""
        state = np.zeros((ROWS, 3))
        state[LO], state[HI] = [-1.0, -2.0, -1.0], [1.0, 2.0, 1.0]
        return Node(0, 0, F, state, np.ones(1), 1.0)

    def test_the_product_of_both_sides_decides(self) -> None:
        costs = Pseudocosts(3)
        assert costs.best(self.node(-1.0).state) == (-1, 0.0)
        costs.add(self.node(-1.0), 0, (-0.5, -0.5))
        costs.add(self.node(-1.0), 2, (0.0, -0.9))
        neuron, promise = costs.best(self.node(-1.0).state)
        assert neuron == 0
        assert promise == pytest.approx(0.5, abs=1e-5)

    def test_shares_of_the_gap_go_with_the_height(self) -> None:
        costs = Pseudocosts(3)
        costs.add(self.node(-8.0), 1, (-4.0, 3.0))  # half of the gap, and all of it
        state = self.node(-1.0).state
        assert costs.best(state)[1] == pytest.approx(math.sqrt(0.5), abs=1e-5)
        state[LO, 1], state[HI, 1] = -1.0, 1.0  # half as high
        assert costs.best(state)[1] == pytest.approx(0.5 * math.sqrt(0.5), abs=1e-5)

    def test_a_neuron_that_is_not_open_is_no_advice(self) -> None:
        costs = Pseudocosts(3)
        costs.add(self.node(-1.0), 0, (-0.5, -0.5))
        state = self.node(-1.0).state
        state[PHASE, 0] = 1.0
        assert costs.best(state) == (-1, 0.0)

    def test_later_splits_count_for_half(self) -> None:
        costs = Pseudocosts(3)
        costs.add(self.node(-1.0), 0, (-0.2, -0.2))
        costs.add(self.node(-1.0), 0, (-0.6, -0.6))
        assert costs.best(self.node(-1.0).state)[1] == pytest.approx(0.6, abs=1e-5)


def saved_on_the_way(problem: Problem, radius: float) -> list[Tree | None]:
    """What would be saved at each event of the common tree."""
    task, found = task_of(problem, radius), list[Tree | None]()
    for _ in adaptive(task, Effort()):
        if task.tree is not None:
            if not task.undivided:
                break
            found.append(task.tree())
        if task.incumbent.distance <= radius:
            break
    return found


@pytest.mark.parametrize(("seed", "radius"), [(0, 1.0), (1, 0.3)])
def test_what_is_saved_on_the_way_is_all_that_is_left(
    seed: int, radius: float, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that goes on from any moment of the common tree decides the question, and does without that tree."""
    monkeypatch.setattr(shared, "FEW", 0)
    monkeypatch.setattr(Shared, "_near", property(lambda _: 0.0, lambda *_: None), raising=False)
    problem, _ = hard_problem(seed)
    proved, witness = answer(problem, radius)
    assert proved >= radius or witness <= radius
    trees = [tree for tree in saved_on_the_way(problem, radius) if tree is not None]
    assert len(trees) > 10
    assert sum(any(splits_of(blob) > 1 for blob in tree.nodes) for tree in trees) > 5
    groups.clear()
    for tree in trees[::3]:
        again = answer(problem, radius, tree)
        assert (again[0] >= radius, again[1] <= radius) == (proved >= radius, witness <= radius)
    assert groups == []


@pytest.mark.usefixtures("always")
def test_with_little_memory_groups_go_to_trees_of_their_own(groups: list[Group]) -> None:
    problem, _ = hard_problem(0)
    for memory in (None, 1000):
        task = task_of(problem, 1.0)
        task.memory = memory
        groups.clear()
        list(itertools.islice(adaptive(task, Effort()), 12))
        assert any((group.state[PHASE] != 0.0).any() for group in groups) == (memory is None)


def test_a_record_has_the_splits_and_rounds_of_all_targets(groups: list[Group]) -> None:
    """Each open target has the common splits in a tree of its own, and the rounds of their ranges at each of its nodes.
    Whoever follows these in the checker's arithmetic has the ranges of the root."""
    problem, _ = hard_problem(0)
    recording = Recording()
    list(itertools.islice(adaptive(task_of(problem, 1.0), Effort(), recorder=recording), 12))
    (forest,) = recording.forests
    sides = {number: np.zeros(len(groups[0].state[0])) for number in forest.roots.values()}
    waiting = list(sides)
    while waiting:
        above = waiting.pop()
        plan = forest.plans[above]
        for side, child in zip((1.0, -1.0), plan.children or (), strict=False):
            sides[child] = sides[above].copy()
            sides[child][plan.neuron] = side
            waiting.append(child)
    assert len(groups) > 5
    for group in groups:
        for node in group.nodes:
            assert (sides[node.number] == group.state[PHASE]).all()
            assert forest.plans[node.number].trail
    root = groups[0]
    plan = forest.plans[root.nodes[0].number]
    assert plan.trail and not any(np.any(told.own.weights) for told in plan.trail if isinstance(told, Tightened))
    replay = replay_on(problem.network, problem.x, 1.0, intervals=True)
    branch = root_of(replay, plan, Halfspace(*np.zeros((2, len(root.state[0]))), np.ones(1)))
    regions = regions_of(branch.lo[None].copy(), branch.hi[None].copy(), branch.phase[None].copy())
    with np.errstate(all="ignore"):
        follow_trail(replay, branch, regions, 0)
    width = root.state[HI] - root.state[LO]
    assert (regions.lo[0] >= root.state[LO] - 1e-6 * width).all() and (
        regions.hi[0] <= root.state[HI] + 1e-6 * width
    ).all()
