"""What the search did at a node, done again in the checker's own arithmetic, step by step.

A recorded search tells the halfspace and the rows of every round of tightening, as a certificate can hold them
(search/adaptive/trail.py), and what it fixed in between. Taken in the same order each gives the bound that it gave
there, up to rounding, by one pass per row: nothing has to be found a second time. Where something was not told, or a
step proves less here, rounds of the proof's own follow (replay.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from layercert.arrays import Vector
from layercert.certify.aims import rounded_to, stacked
from layercert.certify.branch import Branch
from layercert.certify.fixing import fix_told, scale_of
from layercert.certify.log import LoggedRows
from layercert.certify.recording import Stage, in_range, scaled
from layercert.search.adaptive.record import Tightened
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.certify.replay import Replay


def follow_trail(replay: Replay, branch: Branch, regions: Any, at: int) -> None:
    """Do what the search did at a node, line `at` of the regions, until that is over or the node is closed."""
    for told in branch.plan.trail:
        if isinstance(told, Stage):
            below = branch.plan.children is not None  # what was told there has the sides of all of them
            fix_told(replay, branch, regions, at, [(told.own, told.fixed)], aside=below)
        else:
            clock.check()
            _round(replay, branch, regions, at, told)
            if branch.done:
                return


def _round(replay: Replay, branch: Branch, regions: Any, at: int, told: Tightened) -> None:
    """One round: is the node closed by its halfspace? If not, what do its rows prove?"""
    some = type(regions)(*(part[at : at + 1] for part in regions))
    own = stacked([rounded_to(scaled(told.own))])
    halves = replay.halfspaces(some, own)
    closed = replay.floats.excluded(halves)
    if not closed[0] and not len(told.neurons):
        return
    moves = replay.moves([branch], some, halves, own.facets is not None, closed)
    replay.book([branch], [0], some, own, halves)
    if closed[0]:
        branch.node.closers.append(branch.node.steps[-1].event)
        branch.done = True
    else:
        branch.done = _rows(replay, branch, (regions, at), halves, float(moves[0]), told)


def _rows(replay: Replay, branch: Branch, place: tuple[Any, int], halves: Any, moves: float, told: Tightened) -> bool:
    """Bound neurons by the rows of a round; True where one is left without any value."""
    from layercert.certify.tightening import Node, Slips, Told, follow

    regions, at = place
    step, own = branch.node.steps[-1], told[1:]
    node = Node(
        regions, at, halves, 0, replay.ascent.cap(halves.g[0], float(halves.s[0])), replay.nothing,
        np.zeros(0), False, branch.given_by, step.event, replay.log.events,
    )  # fmt: skip
    scale = scale_of(told.own)
    rows = Told(told.neurons, told.sides, _stored(told.pulls, scale), _stored(told.lams, scale), *own[4:])
    slips = Slips(replay.doubt.slips, replay.doubt.T, moves)
    found, empty = follow(replay.floats.ground, node, slips, rows, replay.floats.no_facets)
    for part in found:
        step.rows.append(LoggedRows(replay.log.add(part.own.needs_count, part.own.needs), *part))
    if not found:
        branch.node.steps.pop()
    if empty >= 0:
        replay.doubt.empty(regions.lo[at, empty], regions.hi[at, empty], branch.given_by, empty)
        branch.node.closers += [int(e) for e in branch.given_by[2 * empty : 2 * empty + 2] if e >= 0]
    return bool(empty >= 0)


def _stored(values: Vector, scale: float) -> Vector:
    """Multipliers of a halfspace that is scaled, as they will be read."""
    return in_range(values * scale).astype(np.float32).astype(np.float64)
