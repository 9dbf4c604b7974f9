"""Neurons that a search fixed, as leaves of a proof (certify/fixing.py)."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.replays import replay_on, root_of
from layercert.certificate.step_floats import regions_of
from layercert.certify.branch import Branch
from layercert.certify.fixing import fix_told
from layercert.certify.recording import Plan
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


@pytest.mark.parametrize("aside", [True, False])
def test_a_neuron_that_is_lost_in_every_order_is_split(aside: bool) -> None:
    """Each of the two is excluded where the other has its chord, and not where it is on: 0.8 - 2/3 > 0 > 0.8 - 1."""
    replay, branch, own = node_of([1.0, 1.0])
    with np.errstate(all="ignore"):
        root, regions = branch.node, regions_of(branch.lo[None], branch.hi[None], branch.phase[None])
        fixed = Fixed(np.array([0, 1]), np.ones(2), np.array([0.0, 0.25]))
        fix_told(replay, branch, regions, 0, [(own, fixed)], aside)
    first = root.children[0]
    assert root.neuron == 0 and len(root.children[1].closers) == 1
    if not aside:  # what a proof finds itself is no promise that anything rests on it
        assert regions.phase[0].tolist() == [1, 0] and branch.node is first and not replay.aside
        return
    (part,) = replay.aside
    assert regions.phase[0].tolist() == [1, 1] and part.phase.tolist() == [1, -1]
    assert (first.neuron, first.children) == (1, [branch.node, part.node])
    assert branch.given_by[2] == first.splits[0] and part.given_by[3] == first.splits[1]
    assert regions.lo[0].tolist() == [0.0, 0.0] and part.hi.tolist() == [0.5, 0.0] and branch.hi.tolist() == [0.5, 0.5]
    # it is to be closed by itself, beginning with the halfspace that excluded it alone
    assert part.ends and not part.done and (part.own.beta / part.own.weights).tolist() == [0.0, 0.25]
