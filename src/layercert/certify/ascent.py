"""Better parameters for a node on the checker's own bounds: by the search's ascent, or exactly on a linear piece."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from layercert.arrays import Matrix
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.problem import Clause
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, POINT, ROWS, Model, build
from layercert.search.adaptive.record import Halfspace
from layercert.search.task import Task
from layercert.system import clock

#: Steps of each ascent.
STEPS = 20
#: An ascent stops at this much beyond the radius.
ENOUGH = 1.0 + 1e-5


class Suggestion(NamedTuple):
    """Parameters of a node's halfspace, and the neuron to split if they do not do (-1: none)."""

    own: Halfspace
    split: int


class Ascent:
    """Suggestions only: nothing of this is trusted."""

    def __init__(self, task: Task, setting: Setting) -> None:
        self.task, self.setting = task, setting
        self.leaves = Leaves(task)

    @cached_property
    def model(self) -> tuple[Model, Matrix]:
        return build(self.task.problem, self.setting.r)

    def improved(self, clause: Clause, region: Region, before: Suggestion) -> Suggestion:
        """Better parameters than those before, which may be of the parent."""
        own = before.own
        if not any(region.lines(k).open.any() for k in range(len(region.lo))):
            return Suggestion(self._piece(clause, region, own), -1)
        from layercert.search.adaptive.ascent import drop_betas, optimise
        from layercert.search.adaptive.lanes import lanes_of, store
        from layercert.search.adaptive.lines import scores

        state = np.zeros((ROWS, len(own.alpha)))
        state[PHASE], state[LO], state[HI] = (np.concatenate(a) for a in (region.phase, region.lo, region.hi))
        state[ALPHA], state[BETA], state[POINT] = own.alpha, own.beta, own.alpha - 0.5
        model, _ = self.model
        mu = np.zeros(int(np.diff(model.first).max()))
        mu[: len(own.weights)] = own.weights
        at = [c is clause for c in self.task.problem.clauses].index(True)
        lanes = lanes_of(model, state[None], mu[None], np.array([at], np.intp))
        drop_betas(model, lanes)
        optimise(model, lanes, self.setting.r * ENOUGH, STEPS, np.zeros((1, len(self.setting.x))), clock.timer())
        store(lanes, 0, state, mu)
        score = np.empty(len(own.alpha))
        scores(state, score)
        improved = Halfspace(state[ALPHA].copy(), state[BETA].copy(), mu[: len(own.weights)])
        return Suggestion(improved, int(score.argmax()))

    def _piece(self, clause: Clause, region: Region, own: Halfspace) -> Halfspace:
        """Every neuron has its side: the distance program of the linear piece, whose multipliers are beta and mu."""
        sides = np.concatenate([np.zeros(0), *(region.lines(k).side for k in range(len(region.lo)))])
        answer = self.leaves.solve(sides, np.ones(len(sides), np.bool_), clause, self.task.U)
        lam = np.where(np.isfinite(answer.multipliers), np.maximum(answer.multipliers, 0.0), 0.0)
        return Halfspace(own.alpha, lam[: len(sides)], lam[len(sides) :])
