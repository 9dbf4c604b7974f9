"""Rows of a round that a search told, in a proof (certify/tightening.py, `follow`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.replays import replay_on, root_of
from layercert.arrays import Vector
from layercert.certificate.step_floats import regions_of
from layercert.certify.branch import Branch
from layercert.certify.following import follow_trail
from layercert.certify.recording import Plan
from layercert.certify.replay import Replay
from layercert.network import Network
from layercert.search.adaptive.record import Halfspace, Tightened


def told(own: Halfspace, neuron: int, lam: float, below: int) -> Tightened:
    """A row that bounds one neuron from below, with slopes of 0."""
    one, none = np.zeros(1, np.intp), np.zeros(0, np.float32)
    return Tightened(
        own, np.array([neuron]), np.ones(1), np.zeros(1), np.array([lam]), one, np.zeros(below, np.uint8), one, one,
        none.astype(np.int32), none,
    )  # fmt: skip


def followed(replay: Replay, own: Halfspace, row: Tightened, lo: Vector, hi: Vector) -> tuple[Branch, Any]:
    branch = root_of(replay, Plan(owns=[own], trail=[row]), own)
    branch = replace(branch, lo=lo, hi=hi)
    regions = regions_of(lo[None].copy(), hi[None].copy(), branch.phase[None])
    with np.errstate(all="ignore"):
        follow_trail(replay, branch, regions, 0)
    return branch, regions


def cap() -> tuple[Replay, Halfspace]:
    """F = 0.15 - relu(w_0) on the ball of radius 1. With w_0 in [-1, 0.1] that is at least 0.15 - (w_0 + 1) / 11, so
    that unsafe points would have w_0 >= 0.65; a row that has 11 times this halfspace says so."""
    net = Network.from_arrays([np.eye(1), [[0.0], [1.0]]], [np.zeros(1), np.array([0.15, 0.0])])
    return replay_on(net, np.zeros(1), 1.0), Halfspace(np.zeros(1), np.zeros(1), np.ones(1))


def test_a_neuron_without_any_value_closes_its_node() -> None:
    replay, own = cap()
    branch, regions = followed(replay, own, told(own, 0, 11.0, 0), -np.ones(1), np.array([0.1]))
    assert branch.done and regions.lo[0, 0] == pytest.approx(0.65, abs=1e-6)
    (step,) = branch.node.steps
    assert branch.node.closers == [step.rows[0].first]  # hi is that of the node from the start


def test_a_row_counts_for_less_by_what_can_move_its_halfspace() -> None:
    """The upper line of neuron 0 reads lo, which no event gave: the checker's may be another by a slip."""
    found = []
    for slip in (0.0, 1e-6):
        replay, own = cap()
        replay.doubt.slips[:] = slip
        _, regions = followed(replay, own, told(own, 0, 11.0, 0), -np.ones(1), np.array([0.1]))
        found.append(float(regions.lo[0, 0]))
    assert found[0] == pytest.approx(0.65, abs=1e-8) and found[1] < found[0] - 1e-6


def test_a_row_counts_for_less_by_what_can_move_the_lines_below_it() -> None:
    """z_1 = 0.5 - relu(z_0) >= 0.5 - (z_0 + 1) / 2 >= -0.5 with z_0 in [-1, 1], whose ends no event gave."""
    layers = [np.eye(1), [[-1.0]], [[0.0], [1.0]]]
    net = Network.from_arrays(layers, [np.zeros(1), np.array([0.5]), np.array([0.6, 0.0])])
    found = []
    for slip in (0.0, 1e-6):
        replay, own = replay_on(net, np.zeros(1), 1.0), Halfspace(np.zeros(2), np.zeros(2), np.ones(1))
        replay.doubt.slips[:] = slip
        _, regions = followed(replay, own, told(own, 1, 0.0, 1), np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
        found.append(float(regions.lo[0, 1]))
    assert found[0] == pytest.approx(-0.5, abs=1e-8) and found[1] < found[0] - 1e-6
