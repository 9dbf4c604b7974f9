"""A node of a proof that is being made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Vector
from layercert.certify.ascent import STEPS, Better
from layercert.certify.log import Node
from layercert.certify.recording import Plan, Snapshot
from layercert.search.adaptive.record import Fixed, Halfspace


class Goal(NamedTuple):
    """A halfspace of the search at some node, how far it was from closing it there (0: it closed it), and what it
    fixed. `closes`: it is to close the node, which is not split unless that fails."""

    own: Halfspace
    gap: float = 0.0
    fixed: Fixed | None = None
    closes: bool = False


def goals_of(plan: Plan, radius: float, own: Halfspace) -> list[Goal]:
    """What the search did at a node, in its order; `own` for a node that it did not bound."""
    owns, goals = plan.owns or [own], list[Goal]()
    if plan.stages or plan.children is not None:
        first = owns[0] if plan.root or not plan.stages else owns[-1]
        goals.append(Goal(first, 1.0 - plan.entry / radius))
    goals += [Goal(stage.own, 1.0 - stage.bound / radius, stage.fixed) for stage in plan.stages]
    # the ball of the search was larger than that of the proof: what it split later may have been closed for us before
    closed = plan.children is None or plan.bound >= radius
    return [*goals, Goal(owns[0], closes=True)] if closed else goals


@dataclass
class Branch:
    """A node that waits or is worked on."""

    node: Node
    plan: Plan
    lo: Vector
    hi: Vector
    phase: NDArray[np.int8]
    given_by: Indices  # which events gave the bounds (digest.py)
    rows: Snapshot | None
    goals: list[Goal]  # what the search did here and is still to be done, in its order
    moves: float = 0.0  # how far its halfspace can move (doubt.py)
    gap: float = np.inf
    tries: int = 0  # at this goal
    better: Better | None = None  # the last parameters that were found here
    moving: bool = False  # rows are moved from pass to pass, in a store of its own
    steps: int = STEPS  # of an ascent of its halfspace
    by_programs: bool = False  # its halfspaces are those of linear programs
    piece: bool = False  # a linear piece with its own multipliers: nothing is left to try
    recalled: bool = False  # a linear piece was tried with what the search ended with
    done: bool = False

    def __post_init__(self) -> None:
        self.own = self.goal.own  # parameters of its halfspace

    @property
    def goal(self) -> Goal:
        return self.goals[0]

    @property
    def ends(self) -> bool:
        """Is it to be closed here, by what comes next?"""
        return self.goal.closes

    def go_on(self) -> bool:
        """To the next goal; False where that was the last one."""
        if len(self.goals) == 1:
            return False
        self.goals = self.goals[1:]
        self.own, self.gap, self.tries = self.goal.own, np.inf, 0
        return True
