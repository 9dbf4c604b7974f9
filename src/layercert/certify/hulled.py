"""The first step of a proof on a convolutional network in l_inf: rows with facets on the whole ball.

The search begins with such bounds (search/adaptive/hulled.py). Here they are found once more, on the checker's own
bounds, layer by layer, for all clauses together: these rows use no objective, so that of their step is empty (mu = 0).
They are the first events of every log, and those that no leaf rests on are left out as all others. A clause whose root
is closed without them has none: they take more bytes than anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from layercert.arrays import Indices, Matrix
from layercert.certificate.facets import side_by_side
from layercert.certificate.step_floats import LANES, StepFloats, no_halfspaces, regions_of
from layercert.certify.aims import rounded_to, stacked
from layercert.certify.ascent import MANY_STEPS
from layercert.certify.branch import Branch
from layercert.certify.doubt import Doubt
from layercert.certify.facets import as_stored_in_rows, counting
from layercert.certify.log import Aim, LoggedRows, Step
from layercert.certify.recording import PARTS, scaled
from layercert.facets import Facets
from layercert.search.adaptive.model import HI, LO, ROWS, Model
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.certify.replay import Replay

#: A row must narrow its neuron's range by this share, unless it settles the sign.
NARROWER = 0.01
_NOTHING = np.zeros(0, np.int64)


class HulledRows:
    """The rows, and the bounds that they leave on the ball; made when they are first needed."""

    def __init__(self, floats: StepFloats, doubt: Doubt, model: Callable[[], Model], layers: int) -> None:
        """Rows for neurons of the layers 1 to `layers` (from 0); `model` is the search's."""
        self.floats, self.doubt, self.layers = floats, doubt, layers
        self._model = model

    @cached_property
    def model(self) -> Model:
        return self._model()

    @cached_property
    def parts(self) -> list[LoggedRows]:
        """All rows, in their order; `regions` and `given_by` are what they leave."""
        floats, start = self.floats, self.floats.start
        found: list[LoggedRows] = []
        self.regions = regions_of(start.lo.copy(), start.hi.copy(), start.phase.copy())
        self.given_by = np.full(2 * start.lo.shape[1], -1, np.int64)
        self.events = 1  # the first one is that of the step
        for k in range(1, min(self.layers + 1, len(floats.starts) - 1)):
            neurons = floats.net.order[int(floats.starts[k]) : int(floats.starts[k + 1])]
            neurons = neurons[self.regions.side[0, neurons] == 0]
            for begin in range(0, len(neurons), LANES // 2):
                clock.check()
                found += self._bound(k, neurons[begin : begin + LANES // 2])
        return found

    def begin(self, replay: Replay, branch: Branch) -> bool:
        """The first step of a proof, whose root is the branch; True where the root is closed without these rows."""
        if self._closed(replay, branch):
            return True
        log = replay.log
        if not self.parts:
            return False
        assert log.events == 0
        empty = Aim(np.zeros(log.neurons), np.zeros(log.neurons), np.zeros(len(replay.clause.d)))
        step = Step(log.add(np.zeros(1, np.int64), _NOTHING), empty, list(self.parts))
        for part in self.parts:
            log.add(part.own.needs_count, part.own.needs)
        branch.node.steps.append(step)
        branch.lo, branch.hi = self.regions.lo[0].copy(), self.regions.hi[0].copy()
        branch.given_by = self.given_by.copy()
        return False

    def _closed(self, replay: Replay, branch: Branch) -> bool:
        """Does a halfspace close a root that the search did not split, on the bounds of the start?"""
        start, plan = self.floats.start, branch.plan
        if plan.children is not None or not plan.owns or start.side.all():
            return False
        regions = regions_of(start.lo.copy(), start.hi.copy(), start.phase.copy())
        last = plan.owns[0]
        for own in (last, replay.ascent.improved(replay.clause, regions, last._replace(facets=None), MANY_STEPS).own):
            aim = stacked([rounded_to(scaled(own))])
            halves = replay.halfspaces(regions, aim)
            closed = self.floats.excluded(halves)
            if closed[0]:
                replay.moves([branch], regions, halves, aim.facets is not None, closed)
                replay.book([branch], [0], regions, aim, halves)
                branch.node.closers.append(branch.node.steps[-1].event)
                return True
        return False

    def _bound(self, k: int, neurons: Indices) -> list[LoggedRows]:
        """Rows for both sides of some neurons of layer k, and what they prove."""
        from layercert.certificate.lanes import Uses, take
        from layercert.certify.digest import digest

        floats, regions, first, m = self.floats, self.regions, int(self.floats.starts[k]), 2 * len(neurons)
        slopes, facets = self._parameters(k, neurons)
        at, zeros, none = np.zeros(m, np.intp), np.zeros(m), no_halfspaces(m)
        both, sides = np.tile(neurons, 2), np.repeat([1.0, -1.0], len(neurons))
        uses = Uses(
            at, at, both, sides, zeros, slopes, np.zeros((0, 0)),
            side_by_side(facets, floats.setting, floats.noise, at),
        )  # fmt: skip
        trace = np.zeros((first, m))
        G, c, size = floats.functions(regions, none, k, uses, trace)
        lines = self.doubt.lines(regions, self.given_by[None])[0] + self.doubt.facets
        values = self.doubt.limits(lines, trace, floats.least(G, c, size, none, at, zeros), zeros)
        lo, hi = regions.lo[0, both], regions.hi[0, both]
        gain = values - np.where(sides > 0, lo, -hi)
        worth = np.isfinite(values) & ((gain > NARROWER * (hi - lo)) | ((gain > 0) & (values >= 0)))
        which = np.flatnonzero(worth)
        if not len(which):
            return []
        own = np.full(len(which), -1, np.int64)
        found = digest(trace, regions.side[0, :first], slopes, np.zeros((0, 0)), self.given_by, which, own)
        if k > 1:
            found = self._with_inputs(found, trace, uses, which)
        side, sizes = regions.side[0], floats.setting.entries.counts
        kept = [counting(facets[r], trace[:, r], side, sizes) for r in which.tolist()]
        rows = LoggedRows(
            self.events, both[which], sides[which], zeros[which], zeros[which], values[which], found, kept
        )
        self.given_by[2 * both[which] + (sides[which] < 0)] = self.events + np.arange(len(which))
        self.events += len(which)
        used = uses._replace(node=at[which], neuron=both[which], side=sides[which])
        take(regions, used, values[which])
        return [rows]

    def _parameters(self, k: int, neurons: Indices) -> tuple[Matrix, list[Facets | None]]:
        """Slopes (a column per row) and facets as they will be stored: from below, then from above."""
        from layercert.certify.games import game_of

        regions, m, first = self.regions, len(neurons), int(self.floats.starts[k])
        state = np.zeros((ROWS, regions.lo.shape[1]))
        state[LO], state[HI] = regions.lo[0], regions.hi[0]
        slopes, facets = np.zeros((first, 2 * m)), []
        for at, side in ((0, 1.0), (m, -1.0)):
            own = np.zeros((first, m))
            for found in game_of(self.model, state, k, neurons, side, self.floats.setting.r, own):
                facets.append(as_stored_in_rows(Facets(*found)) if len(found.neurons) else None)
            slopes[:, at : at + m] = np.rint(np.clip(own, 0.0, 1.0) * PARTS) / PARTS
        return slopes, facets

    def _with_inputs(self, found: Any, trace: Matrix, uses: Any, which: Indices) -> Any:
        """The same digest, with the events that gave the bounds of the facets' inputs."""
        from layercert.certify.digest import input_needs

        lanes, n = len(uses.neuron), self.regions.lo.shape[1]
        side, lo = (np.repeat(part, lanes, axis=0) for part in (self.regions.side, self.regions.lo))
        needed = np.zeros((lanes, 2 * n), np.bool_)
        input_needs(uses.facets, self.floats.starts, trace, side, lo, needed)
        ends, deps = np.cumsum(found.needs_count), []
        for row, begin, end in zip(which, ends - found.needs_count, ends, strict=True):
            more = self.given_by[needed[row]]
            deps.append(np.unique(np.concatenate([found.needs[begin:end], more[more >= 0]])))
        counts = np.array([len(each) for each in deps], np.int64)
        return found._replace(needs_count=counts, needs=np.concatenate([_NOTHING, *deps]))
