"""Makers of proofs about a ball, for tests of single steps (certify/replay.py)."""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import Vector
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import StepFloats
from layercert.certify.ascent import Ascent
from layercert.certify.branch import Branch, goals_of
from layercert.certify.doubt import Doubt
from layercert.certify.log import Node
from layercert.certify.recording import Forest, Plan
from layercert.certify.replay import Replay
from layercert.network import Network
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive.record import Halfspace
from layercert.search.task import Task


def replay_on(net: Network, x: Vector, radius: float, intervals: bool = False) -> Replay:
    """The maker of a proof of the first clause on a ball in l_inf, of a search that nobody recorded."""
    problem = robustness(net, x, math.inf)
    setting = Setting(net, problem.x, math.inf, radius, None, intervals)
    floats, task = StepFloats(setting, 2.0), Task(problem, make_chain("default", problem.norm), radius)
    with np.errstate(all="ignore"):
        ascent = Ascent(task, setting, None, lambda: floats.start)
        replay = Replay(floats, problem.clauses[0], ascent, Doubt(floats))
    replay.forest = Forest(radius)
    return replay


def root_of(replay: Replay, plan: Plan, own: Halfspace) -> Branch:
    """A node with the bounds of the whole ball, where the search did as planned; `own` where it did nothing."""
    start, n = replay.floats.start, replay.log.neurons
    return Branch(
        Node(), plan, start.lo[0].copy(), start.hi[0].copy(), start.phase[0].copy(), np.full(2 * n, -1, np.int64), None,
        goals_of(plan, replay.setting.r, own),
    )  # fmt: skip
