"""Nearer witnesses by blocks of inputs: the small programs are held against the network itself and against samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from layercert.arrays import Vector
from layercert.network import Network
from layercert.norms import box_around
from layercert.problem import Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import blocks as module
from layercert.search.adaptive import witnesses as witnesses_module
from layercert.search.adaptive.blocks import Blocks
from layercert.search.adaptive.tree import Ball, Effort
from layercert.search.events import Improve
from layercert.search.task import Task

#: Far above all distances of these networks.
U = 0.4
#: Per block: the best of them is above the least value.
SAMPLES = 100


def problem_of(seed: int, deep: bool = False) -> Problem:
    """Two channels of three inputs each, one input further each time; then neurons that read six of these."""
    rng = np.random.default_rng(seed)
    first, second = np.zeros((28, 16)), np.zeros((12, 28))
    filters, summing = rng.normal(size=(2, 3)), rng.normal(size=6)
    for at in range(14):
        first[2 * at : 2 * at + 2, at : at + 3] = filters
    for at in range(12):
        second[at, 2 * at : 2 * at + 6] = summing
    weights = [csr_array(first), csr_array(second), *([rng.normal(size=(4, 12))] if deep else [])]
    weights.append(rng.normal(size=(3, weights[-1].shape[0])))
    network = Network.from_arrays(weights, [0.3 * rng.normal(size=W.shape[0]) for W in weights])
    return robustness(network, rng.uniform(size=16), "linf", domain=(0, 1))


def blocks_of(problem: Problem) -> Blocks:
    return Blocks(problem, [csr_array(W) for W in problem.network.maps])


def value(problem: Problem, at: int, w: Vector) -> float:
    """F at x + w, by itself."""
    clause = problem.clauses[at]
    return float(np.max(clause.C @ problem.network(problem.x + w) - clause.d))


def test_a_block_is_a_window_and_the_next_one_that_shares_half_of_it() -> None:
    blocks = blocks_of(problem_of(0))  # two channels of three inputs each, one input further each time
    assert [inputs.tolist() for inputs in blocks.inputs[:2]] == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert blocks.inputs[-1].tolist() == [13, 14, 15]
    assert blocks.of_neuron.tolist() == [i // 2 for i in range(28)]
    assert blocks.neighbours(5).tolist() == list(range(3, 9))  # windows that read an input of 5 to 8


@pytest.mark.parametrize("deep", [False, True])
def test_points_differ_in_one_block_and_are_better_than_all_samples(
    deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._OPTIONS, "mip_max_nodes", 10_000)
    found = 0
    for seed in range(2):
        problem = problem_of(seed, deep)
        blocks, rng = blocks_of(problem), np.random.default_rng(seed)
        down, up = box_around(U, 16, problem.box)
        for at in range(len(problem.clauses)):
            start = rng.uniform(down, up)
            own = value(problem, at, start)
            for block in range(0, len(blocks.inputs), 4):
                inputs = blocks.inputs[block]
                points = np.tile(start, (SAMPLES, 1))
                points[:, inputs] = rng.uniform(down[inputs], up[inputs], size=(SAMPLES, len(inputs)))
                sampled = min(value(problem, at, w) for w in points)
                point = blocks.least(at, start, U, block, -sampled)  # F below the best sample
                if sampled >= own - 1e-6:
                    continue
                found += 1
                assert point is not None
                assert value(problem, at, point) <= sampled + 1e-9
                assert (point >= down).all() and (point <= up).all()
                assert np.delete(point - start, inputs).tolist() == [0.0] * (16 - len(inputs))
    assert found > 10


def test_nothing_is_found_where_nothing_is_better() -> None:
    problem = problem_of(1)
    blocks = blocks_of(problem)
    assert blocks.least(0, np.zeros(16), U, 3, 1e6) is None


def test_blocks_with_many_open_neurons_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(1)
    blocks = blocks_of(problem)
    w = np.zeros(16)
    need = -value(problem, 0, w) - 1.0  # nearly anything will do
    assert any(blocks.least(0, w, U, block, need) is not None for block in range(len(blocks.inputs)))
    monkeypatch.setattr(module, "MOST_BINARIES", -1)
    assert all(blocks.least(0, w, U, block, need) is None for block in range(len(blocks.inputs)))


def test_a_far_witness_is_moved_nearer_block_by_block() -> None:
    moved = 0
    for seed in range(6):
        problem = problem_of(seed, deep=True)
        task = Task(problem, make_chain("default", problem.norm))
        rng = np.random.default_rng(seed)
        for _ in range(200):  # any unsafe point, far away
            if task.incumbent.offer(rng.uniform(-problem.x, 1.0 - problem.x), problem.clauses[0]):
                break
        if task.incumbent.witness is None:
            continue
        before = task.incumbent.distance
        ball = Ball(task, Effort(), None, before)
        witnesses, neurons = ball.workers[0].witnesses, np.arange(problem.network.neurons)
        events = list(witnesses.by_blocks(neurons))
        assert ball.swept
        held = task.incumbent.witness
        assert held is not None
        assert problem.holding(held.point) is not None  # unsafe in exact arithmetic
        assert bool(events) == (held.distance < before)
        moved += held.distance < 0.9 * before
        assert all(isinstance(event, Improve) for event in events)
        assert not list(witnesses.by_blocks(neurons))  # all blocks have been tried for this witness
    assert moved >= 3


def test_after_some_in_vain_the_witness_is_left_alone_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(0, deep=True)
    task, rng, tried = Task(problem, make_chain("default", problem.norm)), np.random.default_rng(0), list[int]()
    while task.incumbent.witness is None:
        task.incumbent.offer(rng.uniform(-problem.x, 1.0 - problem.x), problem.clauses[0])
    witnesses = Ball(task, Effort(), None, task.incumbent.distance).workers[0].witnesses
    neurons = np.arange(problem.network.neurons)
    monkeypatch.setattr(witnesses_module, "BLOCKS", 3)
    monkeypatch.setattr(Blocks, "least", lambda self, at, step, U, block, need: tried.append(block))  # finds nothing
    for _ in range(3):
        assert not list(witnesses.by_blocks(neurons))
    assert tried == [0, 1, 2]
    witnesses.ball.blocks.seen *= 2.0  # as if another witness had been looked at
    assert not list(witnesses.by_blocks(neurons)) and tried == [0, 1, 2] * 2


def test_dead_layers_and_neurons_that_read_nothing_have_nothing_to_move() -> None:
    out = np.ones((2, 4)) * [[1.0], [-1.0]]
    dead = Network.from_arrays(
        [csr_array(np.eye(4)), csr_array(np.eye(4)), out], [np.full(4, -100.0), -np.ones(4), np.array([1.0, 0.0])]
    )
    blind = csr_array(np.array([[1.0, 0.0, 0.0, 0.0], [0.0] * 4, [0.0, 1.0, 1.0, 0.0], [0.0] * 4]))
    partly = Network.from_arrays([blind, csr_array(np.eye(4)), out], [np.full(4, 0.1), np.zeros(4), np.zeros(2)])
    for network in (dead, partly):
        problem = robustness(network, np.zeros(4), "linf", domain=(-1, 1))
        blocks = blocks_of(problem)
        assert all(blocks.least(0, np.zeros(4), 0.05, block, 1.0) is None for block in range(len(blocks.inputs)))
    assert [inputs.tolist() for inputs in blocks.inputs] == [[0], [], [1, 2]]
    assert blocks.of_neuron.tolist() == [0, 1, 2, 1]
