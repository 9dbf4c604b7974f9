"""Nodes of a proof that is being made (certify/replay.py)."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.replays import replay_on, root_of
from layercert.certify.ascent import Better
from layercert.certify.branch import Branch
from layercert.certify.recording import Plan
from layercert.certify.replay import Replay
from layercert.network import Network
from layercert.search.adaptive.model import HI, LO, ROWS
from layercert.search.adaptive.record import Halfspace

#: The neuron that is fixed in these tests, and one that is open.
FIXED, OPEN = 2, 4


def replay_of(plans: dict[int, Plan]) -> Replay:
    """The maker of a proof about a network of 5 and 4 neurons, on a ball in which most of them are open."""
    rng = np.random.default_rng(0)
    net = Network.from_arrays(
        [rng.normal(size=shape) for shape in ((5, 3), (4, 5), (2, 4))], [np.zeros(n) for n in (5, 4, 2)]
    )
    replay = replay_on(net, rng.normal(size=3), 2.0)
    replay.forest.plans = plans
    assert (replay.floats.start.side[0, [FIXED, OPEN]] == 0).all()
    return replay


def branch_of(replay: Replay, plan: Plan, phase: int) -> Branch:
    """A node in which one neuron was fixed on a side."""
    n = replay.log.neurons
    branch = root_of(replay, plan, Halfspace(np.full(n, 0.5), np.zeros(n), np.ones(1)))
    branch.phase[FIXED] = phase
    (branch.lo if phase > 0 else branch.hi)[FIXED] = 0.0
    return branch


@pytest.mark.parametrize(("phase", "child"), [(1, 7), (-1, 8)])
def test_what_the_search_split_is_not_split_again_where_it_was_fixed_before(phase: int, child: int) -> None:
    """Otherwise the checker refuses the tree: `splits neuron .. a second time`."""
    plans = {7: Plan(bound=1.0), 8: Plan(bound=1.5)}
    replay = replay_of(plans)
    branch = branch_of(replay, Plan(neuron=FIXED, children=(7, 8)), phase)
    parts = replay._children(branch)
    assert [part.plan for part in parts] == [plans[child]]
    assert parts[0].node is branch.node and not branch.node.children
    assert parts[0].phase[FIXED] == phase


@pytest.mark.parametrize("phase", [1, -1])
def test_a_neuron_that_a_program_wants_split_and_fixed_besides_is_not_split(phase: int) -> None:
    replay = replay_of({})
    branch = branch_of(replay, Plan(), phase)
    state = np.zeros((ROWS, replay.log.neurons))
    state[LO], state[HI] = branch.lo, branch.hi
    wanted = Better(branch.own, np.zeros(replay.log.neurons), state, np.array([FIXED, OPEN]))
    branch.better = wanted
    with np.errstate(all="ignore"):
        parts = replay._children(branch)
    assert len(parts) == 2 and branch.node.neuron != FIXED
    assert replay.floats.start.side[0, branch.node.neuron] == 0
    assert [int(part.phase[branch.node.neuron]) for part in parts] == [1, -1]
    assert all(part.phase[FIXED] == phase for part in parts)
    branch = branch_of(replay, Plan(), phase)
    branch.better = wanted._replace(wanted=np.array([OPEN, FIXED]))  # what is open is split as it is wanted
    replay._children(branch)
    assert branch.node.neuron == OPEN
