"""Splits of neurons that have a side already: where z = 0 is all that is left, each bound gives a side of its own.

Searches have no interval arithmetic at their start and split neurons of which a proof knows the side (lo = 0). What a
leaf makes of the other side is no news about z, but another line in its pass, and the split has to stay.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.replays import replay_on
from helpers.standalone import alone
from layercert.certificate.checker import check
from layercert.certificate.facets import no_facets
from layercert.certificate.lanes import Uses
from layercert.certificate.step_floats import no_halfspaces, regions_of
from layercert.certify.prove import claim_of
from layercert.certify.recording import Plan
from layercert.certify.replay import Replay
from layercert.certify.tightening import Node, Passed, take_rows
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import robustness
from layercert.search.adaptive.record import Halfspace

#: Neurons of the network below, counted over its layers.
A, E, J = 0, 1, 4


def ties(sign: int) -> Network:
    """f_0 = 0.4 - relu(a) + relu(e) times 1 or 2 + relu(j), f_1 = 0, on |v| <= 1, where a = e = v and j = relu(e), or
    -relu(e). The first two get through the second layer on neurons that are on. With both duplicates open f_0 is not
    seen to be positive: a has to be split. j has a side at once, by interval arithmetic: on, or off."""
    first = np.ones((2, 1))
    second = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, float(sign)]])
    last = np.array([[-1.0, 1.0 if sign > 0 else 2.0, 1.0], [0.0, 0.0, 0.0]])
    return Network.from_arrays(
        [first, second, last], [np.zeros(2), np.array([1.0, 1.0, 0.0]), np.array([1.4 - last[0, 1], 0.0])]
    )


def own(e: float, facets: Facets | None, **beta: float) -> Halfspace:
    """A halfspace with a slope of e and multipliers of sides."""
    multipliers = np.zeros(5)
    multipliers[[A, J]] = beta.get("a", 0.0), beta.get("j", 0.0)
    return Halfspace(np.array([0.0, e, 0.0, 0.0, 0.0]), multipliers, np.ones(1), facets)


def replayed(net: Network, facets: Facets | None) -> Replay:
    """What a search might have told that split a, and then j on the side where a is on. There e has the slope 1, and a
    takes back what e gives."""
    sign = int(net.weights[1][2, 1])
    replay = replay_on(net, np.zeros(1), 1.0, intervals=True)
    start = replay.floats.start
    assert start.side[0].tolist() == [0, 0, 1, 1, sign]
    assert (start.lo if sign > 0 else start.hi)[0, J] == 0.0
    waits = {"bound": 0.0, "entry": -1.0}
    # the coefficient of e: 1 + 1 where j is on and 1 where it is off, or 2 - 1 and 2; a's is -1
    on, off = (own(1.0, facets, j=1.0), own(1.0, facets)) if sign > 0 else (own(1.0, facets), own(1.0, facets, j=1.0))
    replay.forest.plans = {
        0: Plan(owns=[own(0.0, None)], neuron=A, children=(1, 2), **waits),
        1: Plan(owns=[own(1.0, facets)], neuron=J, children=(3, 4), **waits),
        2: Plan(owns=[own(0.0, facets)], bound=2.0),
        3: Plan(owns=[on], bound=2.0),
        4: Plan(owns=[off], bound=2.0),
    }
    replay.forest.roots = {0: 0}
    return replay


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_leaf_rests_on_the_split_of_a_neuron_that_had_a_side(sign: int, bent: bool, tmp_path: Path) -> None:
    """Where j is on its other side, the halfspace is 0.4 + v - v > 0. Without the split of j a checker has j on the
    side of the start, and finds 0.4 + v, which is below zero at v = -1.

    The facets are those of a neuron with a side, which count nowhere: only the way to what a leaf rests on differs."""
    net, x = ties(sign), np.zeros(1)
    facets = Facets(np.array([A]), np.array([0.5]), np.ones(1)) if bent else None
    with np.errstate(all="ignore"):
        replay = replayed(net, facets)
        tree = replay.tree(replay.forest, 0)
    proof = replace(claim_of(robustness(net, x, math.inf), 1.0, None, math.inf, (tree,)), intervals=True)
    net.save(tmp_path / "n.npz")
    proof.save(tmp_path / "c.npz")
    for exact in (False, True):
        report = check(net, proof, exact=exact)
        assert report.ok, report.reason
        assert alone.main([str(tmp_path / "c.npz"), str(tmp_path / "n.npz"), *["--exact"] * exact]) == 0
    assert tree.leaves == 3 and tree.layer.tolist() == [1, 2, 0, 0, 0] and tree.neuron.tolist() == [0, 2, 0, 0, 0]
    # checkers are as strict as they were: what rests on the split does not hold without it
    steps = np.array([1 if sign > 0 else 0, 2])
    bare = replace(tree, **{name: getattr(tree, name)[[0, 2, 4]] for name in ("layer", "neuron", "steps")})
    bare = replace(bare, **{name: getattr(tree, name)[steps] for name in ("objective", "uses")})
    for exact in (False, True):
        assert "leaf 1 is not proved" in check(net, replace(proof, trees=(bare,)), exact=exact).reason


@pytest.mark.parametrize("phase", [1, -1])
def test_a_row_rests_on_the_split_of_a_neuron_that_had_a_side(phase: int) -> None:
    """Neuron 0 is left at zero by an end of the start and a split, 1 has a side by a split, 2 by the start. A row with
    positive coefficients at all three rests on the first split alone: without its own, neuron 1 would be open, with the
    slope that does what the side does."""
    lo, hi = np.array([0.0, -1.0, 0.5, -1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    given_by = np.full(8, -1, np.int64)
    for i, event in ((0, 7), (1, 8)):
        given_by[2 * i + (phase < 0)] = event
    (lo if phase > 0 else hi)[1] = 0.0
    regions = regions_of(lo[None], hi[None], np.array([[phase, phase, 0, 0]], np.int8))
    one, zero = np.zeros(1, np.intp), np.zeros(1)
    uses = Uses(one, one, one + 3, zero + 1.0, zero, np.zeros((3, 1)), np.zeros((0, 0)), no_facets(2))
    replay = replay_on(ties(1), np.zeros(1), 1.0)
    node = Node(
        regions, 0, no_halfspaces(1), 0, replay.ascent.cap(zero, 0.0), replay.nothing, zero, False, given_by, 9, 10,
    )  # fmt: skip
    rows, empty = take_rows(node, Passed(uses, np.ones((3, 1)), zero, zero + 0.25), np.zeros(4), 0.0, 10, 0.01)
    assert rows.target.tolist() == [3] and empty == -1
    assert rows.own.needs.tolist() == [7] and rows.own.needs_count.tolist() == [1]
