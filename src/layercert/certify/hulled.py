"""The first step of a proof on a convolutional network in l_inf: rows with facets on the whole ball.

The search begins with such bounds (search/adaptive/hulled.py), and a recorded one leaves the lines of their rows. Here
these are proved in the checker's arithmetic, layer by layer, for all clauses together; where nobody left any, they are
found on the checker's own bounds. These rows use no objective, so that of their step is empty (mu = 0).
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
from layercert.certify.branch import Branch
from layercert.certify.doubt import Doubt
from layercert.certify.facets import as_stored_in_rows, counting
from layercert.certify.log import Aim, LoggedRows, Step
from layercert.certify.recording import PARTS, scaled
from layercert.facets import Facets
from layercert.search.adaptive.model import HI, LO, ROWS, THOROUGH, Model, Played, hull_layer
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.certify.replay import Replay

#: A row must narrow its neuron's range by this share, unless it settles the sign.
NARROWER = 0.01
#: A root whose gap without these rows is at most this is tried with so many steps of the ascent: of 14 such roots of
#: convolutional networks those at 0.01, 0.04 and 0.06 were closed by 4 steps, those from 0.09 on by none of 64.
CLOSABLE, CLOSING_STEPS = 0.1, 16
_NOTHING = np.zeros(0, np.int64)


class HulledRows:
    """The rows, and the bounds that they leave on the ball; made when they are first needed."""

    def __init__(
        self, floats: StepFloats, doubt: Doubt, model: Callable[[], Model], played: dict[int, Played] | None = None
    ) -> None:
        """Rows with the lines that the search played, by layer; `model` is the search's."""
        self.floats, self.doubt, self.played = floats, doubt, played
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
        left = THOROUGH.entries
        for k in range(1, len(floats.starts) - 1):
            if self.played is None:
                rows, work = self._play(k, left)
                left -= work
            else:
                rows = self.played.get(k)
            if rows is None:
                continue
            which = np.flatnonzero(self.regions.side[0, rows.neurons] == 0)
            for begin in range(0, len(which), LANES // 2):
                clock.check()
                found += self._bound(k, rows, which[begin : begin + LANES // 2])
        return found

    def _play(self, k: int, most: int) -> tuple[Played | None, int]:
        """The rows of layer k that the search would have, and its work."""
        played: dict[int, Played] = {}
        state = np.zeros((ROWS, self.regions.lo.shape[1]))
        state[LO], state[HI] = self.regions.lo[0], self.regions.hi[0]
        work = hull_layer(self.model, state, self.floats.setting.r, k, most, played=played)
        return played.get(k), work

    def bounds(self) -> Any:
        """The region of the ball: what the rows leave."""
        _ = self.parts
        return self.regions

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
        own = plan.owns[0]
        for steps in (0, CLOSING_STEPS):
            if steps > 0:
                own = replay.ascent.improved(replay.clause, regions, own._replace(facets=None), steps).own
            aim = stacked([rounded_to(scaled(own))])
            halves = replay.halfspaces(regions, aim)
            closed = self.floats.excluded(halves)
            if closed[0]:
                replay.moves([branch], regions, halves, aim.facets is not None, closed)
                replay.book([branch], [0], regions, aim, halves)
                branch.node.closers.append(branch.node.steps[-1].event)
                return True
            if replay.gaps(halves)[0] > CLOSABLE:
                return False
        return False

    def _bound(self, k: int, rows: Played, which: Indices) -> list[LoggedRows]:
        """Some of the rows of layer k, for both sides of their neurons, and what they prove."""
        from layercert.certificate.lanes import Uses, take
        from layercert.certify.digest import digest

        floats, regions, first, m = self.floats, self.regions, int(self.floats.starts[k]), 2 * len(which)
        neurons, lines = rows.neurons[which], np.concatenate([2 * which, 2 * which + 1])
        slopes, facets = rows.slopes[lines].T / PARTS, [_as_stored(rows.facets[line]) for line in lines.tolist()]
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
        good = np.flatnonzero(worth)
        if not len(good):
            return []
        own = np.full(len(good), -1, np.int64)
        found = digest(trace, (regions, 0), slopes, np.zeros((0, 0)), self.given_by, good, own)
        if k > 1:
            found = self._with_inputs(found, trace, uses, good)
        side, sizes = regions.side[0], floats.setting.entries.counts
        kept = [counting(facets[r], trace[:, r], side, sizes) for r in good.tolist()]
        logged = LoggedRows(self.events, both[good], sides[good], zeros[good], zeros[good], values[good], found, kept)
        self.given_by[2 * both[good] + (sides[good] < 0)] = self.events + np.arange(len(good))
        self.events += len(good)
        used = uses._replace(node=at[good], neuron=both[good], side=sides[good])
        take(regions, used, values[good])
        return [logged]

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


def _as_stored(facets: Facets) -> Facets | None:
    """The facets of a row as they will be read, if it has any."""
    return as_stored_in_rows(facets) if len(facets.neurons) else None
