"""Neurons that a search fixed, as leaves of a proof (certify/fixing.py)."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.replays import replay_on, root_of
from layercert.certificate.step_floats import regions_of
from layercert.certify.branch import Branch
from layercert.certify.fixing import fix_told, lost_by
from layercert.certify.recording import Plan, Stage
from layercert.certify.replay import Replay
from layercert.network import Network
from layercert.search.adaptive.record import Fixed, Halfspace


def node_of(coefficients: list[float]) -> tuple[Replay, Branch, Halfspace]:
    """F = 0.8 less each relu(w_i) times its coefficient on the ball of radius 1, at a node at whose unsafe points no
    neuron is above 0.5; and a halfspace with the chords (1 + z) / 3."""
    n = len(coefficients)
    own = Halfspace(np.zeros(n), np.zeros(n), np.ones(1))
    net = Network.from_arrays([np.eye(n), [[0.0] * n, coefficients]], [np.zeros(n), np.array([0.8, 0.0])])
    replay = replay_on(net, np.zeros(n), 1.0)
    branch = root_of(replay, Plan(owns=[own]), own)
    branch.hi[:] = 0.5
    return replay, branch, own


@pytest.mark.parametrize("told", [[0, 1], [1, 0], [0, 1, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0]])
def test_all_sides_that_a_halfspace_excludes_are_excluded_in_any_order(told: list[int]) -> None:
    """The search excludes each side while the other neurons have their chords, (1 + z) / 3 at most 2/3 on the ball:
    without the line of neuron 1 the halfspace is at least 0.8 - 2/3 - 0.1 * 2/3 > 0. In the proof one leaf comes behind
    the other, and neuron 0, once it is on, is worth as much as 1: 0.8 - 1 < 0. The other way round neuron 0 has
    0.8 - 0.5 - 0.1 > 0 left. Neuron 2 has 0.8 - 1 on its own and cannot be fixed."""
    replay, branch, own = node_of([1.0, 0.5, 0.1])
    sides = np.ones(len(told))
    with np.errstate(all="ignore"):
        root, regions = branch.node, regions_of(branch.lo[None], branch.hi[None], branch.phase[None])
        fix_told(replay, branch, regions, 0, [(own, Fixed(np.array(told), sides, 0 * sides))])
    assert regions.phase[0].tolist() == [1, 1, 0]
    assert (root.neuron, root.children[0].neuron) == (1, 0) and not root.children[0].children[0].children
    assert [len(node.children[1].closers) for node in (root, root.children[0])] == [1, 1]


def test_a_neuron_that_is_lost_in_every_order_stays_open_where_its_other_part_does() -> None:
    """Each of the two is excluded where the other has its chord, and not where it is on: 0.8 - 2/3 > 0 > 0.8 - 1. On
    the ball there are unsafe points with 0 on and 1 off, and nothing else is known of them here."""
    replay, branch, own = node_of([1.0, 1.0])
    with np.errstate(all="ignore"):
        root, regions = branch.node, regions_of(branch.lo[None], branch.hi[None], branch.phase[None])
        fixed = Fixed(np.array([0, 1]), np.ones(2), np.array([0.0, 0.25]))
        fix_told(replay, branch, regions, 0, [(own, fixed)], aside=True)
    first = root.children[0]
    assert root.neuron == 0 and len(root.children[1].closers) == 1
    assert regions.phase[0].tolist() == [1, 0] and branch.node is first and not first.children
    assert branch.given_by[2] == -1


def lost_neuron() -> tuple[Replay, Branch, Halfspace]:
    """F = 0.8 - relu(w_0) - relu(w_0 + w_1 - 1/2) at a node with both at most 0.5. Where the second is on and the first
    off, F >= 0.8 - (w_0 + w_1 - 1/2) + t w_0, which is 0.3 at least, but only with t = 1."""
    net = Network.from_arrays([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]]], [[0.0, -0.5], [0.8, 0.0]])
    replay, own = replay_on(net, np.zeros(2), 1.0), Halfspace(np.zeros(2), np.zeros(2), np.ones(1))
    branch = root_of(replay, Plan(owns=[own]), own)
    branch.hi[:] = 0.5
    return replay, branch, own


@pytest.mark.parametrize("aside", [True, False])
def test_a_neuron_that_is_lost_in_every_order_is_split_where_its_other_part_is_closed(aside: bool) -> None:
    """The other part is closed by a halfspace of its own, with t = 1 in place of 0."""
    replay, branch, own = lost_neuron()
    with np.errstate(all="ignore"):
        root, regions = branch.node, regions_of(branch.lo[None], branch.hi[None], branch.phase[None])
        fixed = Fixed(np.array([1, 0]), np.ones(2), np.zeros(2))
        fix_told(replay, branch, regions, 0, [(own, fixed)], aside)
    first = root.children[0]
    assert root.neuron == 1 and len(root.children[1].closers) == 1
    if not aside:  # what a proof finds itself is no promise that anything rests on it
        assert regions.phase[0].tolist() == [0, 1] and branch.node is first and not first.children
        return
    assert regions.phase[0].tolist() == [1, 1] and regions.lo[0].tolist() == [0.0, 0.0]
    assert first.neuron == 0 and first.children[0] is branch.node and first.children[1].closers
    assert branch.given_by[0] == first.splits[0] and branch.hi.tolist() == [0.5, 0.5]


def test_a_node_that_the_search_closed_is_split_by_what_it_fixed_there() -> None:
    """Where the proof does not close it: first the neuron that loses most; where it has the side that the search left,
    the rest is fixed again, the other part begins with what excluded it."""
    replay, branch, own = lost_neuron()
    fixed = Fixed(np.array([1, 0]), np.ones(2), np.array([0.25, 0.5]))
    branch.plan.stages.append(Stage(own, fixed, 0.9))
    branch.phase[1] = 1
    branch.lo[1] = 0.0
    ((neuron, (side, excluding)),) = lost_by(branch).items()
    assert (neuron, side) == (0, 1.0) and (excluding.beta / excluding.weights).tolist() == [0.5, 0.0]
    with np.errstate(all="ignore"):
        on, off = replay._children(branch)
    assert branch.node.neuron == 0 and on.phase.tolist() == [1, 1] and off.phase.tolist() == [-1, 1]
    assert on.plan.stages == branch.plan.stages and on.goals[-1].closes
    assert off.ends and (off.own.beta / off.own.weights).tolist() == [0.5, 0.0]
