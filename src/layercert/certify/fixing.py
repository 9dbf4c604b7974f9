"""Neurons that a search fixed (search/adaptive/fixing.py) as splits of a proof, one part of which is a leaf.

The format knows no fixing, and needs none: where a neuron has one side left, the node is split there, and the part with
the other side is closed by the very halfspace that fixed it. All these leaves share one objective, since a multiplier
of a side counts only where the side is known; those with a multiplier t > 0 of their own have a copy.

The search excludes all sides by one halfspace, in which the other neurons have their chords. Here each leaf comes
behind those before it, and a neuron that is on has A z in place of A (su z + iu). With A < 0 that is more for z <= hi,
as at all unsafe points, and less where the ball goes on beyond hi: there a leaf may be lost. So the order matters.
Of those that are lost in any order some are split, where the other part can be closed by itself: all that the search
told of the node later, and of those below it, has their sides. A node that the search closed may do without them; if it
does not, they are what it is split by (replay.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Vector
from layercert.certificate.step_floats import Halfspaces, regions_of
from layercert.certify.aims import rounded_to, stacked
from layercert.certify.branch import Branch, Goal
from layercert.certify.facets import needs_with_facets
from layercert.certify.log import Aim, Node, Step
from layercert.certify.recording import Plan, in_range, scaled
from layercert.search.adaptive.record import Fixed, Halfspace

if TYPE_CHECKING:
    from layercert.certify.replay import Replay

_NOTHING = np.zeros(0, np.int64)
#: At most so many neurons that the search fixed, and that are lost behind the others, are split: each may take some
#: programs. A node and all below it lost 2e-5 of the bound where five were too many (PERFORMANCE.md, 2026-11-19).
FEW = 16


@dataclass
class _Leaves:
    """The excluded parts of some fixed neurons, each behind those before it; a line each."""

    neurons: Indices
    sides: Vector  # that are left
    multipliers: Vector
    lo: Any
    hi: Any
    phase: Any

    def some(self, which: Mask | Indices) -> tuple[Indices, Vector, Vector]:
        return self.neurons[which], self.sides[which], self.multipliers[which]


class _Tried(NamedTuple):
    """The leaves of some neurons in some order, their objectives and halfspaces, and which of these exclude them."""

    leaves: _Leaves
    regions: Any
    owns: list[Halfspace]
    halves: Halfspaces
    closed: Mask


def fix_known(replay: Replay, branch: Branch, regions: Any, at: int) -> None:
    """Fix at a node, line `at` of the regions, what the search fixed there, and what parameters that were found here
    fix."""
    found = [(branch.goal.own, branch.goal.fixed)]
    if branch.better is not None:
        found.append((branch.better.own, branch.better.fixed))
        branch.better = branch.better._replace(fixed=None)
    fix_told(replay, branch, regions, at, [(own, fixed) for own, fixed in found if fixed is not None])


def fix_told(
    replay: Replay, branch: Branch, regions: Any, at: int, found: list[tuple[Halfspace, Fixed]], aside: bool = False
) -> None:
    """Fix at a node, line `at` of the regions, what some halfspaces fix; `aside`: some that are lost are split."""
    some = [(own, fixed) for own, fixed in found if len(fixed.neurons)]
    if not some:
        return
    branch.lo, branch.hi, branch.phase = (part[at].copy() for part in regions[:3])
    for known, fixed in some:
        _fix(replay, branch, fixed, rounded_to(scaled(known)), scale_of(known), aside)
    own = regions_of(branch.lo[None], branch.hi[None], branch.phase[None])
    for whole, mine in zip(regions, own, strict=True):
        whole[at] = mine[0]


def scale_of(own: Halfspace) -> float:
    """What `scaled` divides multipliers by."""
    top = max(float(part.max(initial=0.0)) for part in (own.beta, own.weights))
    return math.ldexp(1.0, math.frexp(top)[1]) if top > 0.0 else 1.0


def _fix(replay: Replay, branch: Branch, fixed: Fixed, own: Halfspace, scale: float, aside: bool) -> None:
    """Split off what a halfspace excludes, as far as the checker's bounds exclude it too."""
    neurons, sides, by = fixed.neurons, fixed.sides, _multipliers(fixed, scale)
    free = (branch.phase[neurons] == 0) & (branch.lo[neurons] < 0) & (branch.hi[neurons] > 0)
    first = np.zeros(len(neurons), np.bool_)
    first[np.unique(neurons, return_index=True)[1]] = True  # without any side left: one of them is enough
    left = neurons[free & first], sides[free & first], by[free & first]
    if not len(left[0]):
        return
    tried = _tried(replay, branch, left, own)
    if tried.closed.any() and not tried.closed.all():  # who is not excluded behind others may be before them
        again = _tried(replay, branch, tried.leaves.some(np.argsort(tried.closed, kind="stable")), own)
        tried = max(tried, again, key=lambda one: int(one.closed.sum()))
    while tried.closed.any() and not tried.closed.all():
        tried = _tried(replay, branch, tried.leaves.some(tried.closed), own)
    if tried.closed.any():
        _split_off(replay, branch, tried, own)
    lost = branch.phase[neurons] == 0
    lost &= free & first
    if aside and 0 < lost.sum() <= FEW:
        for i, side, t in zip(neurons[lost].tolist(), sides[lost], by[lost], strict=True):
            _set_aside(replay, branch, i, side, _own(own, i, float(t)))


def _set_aside(replay: Replay, branch: Branch, neuron: int, side: float, own: Halfspace) -> None:
    """Split a neuron that the search fixed on this side, if the part with the other one can be closed without splits:
    what was told of the node from here on holds in the branch again. If it cannot, the neuron stays open."""
    node, splits = branch.node, [replay.log.add(np.zeros(1, np.int64), _NOTHING) for _ in range(2)]
    stays, goes = (0, 1) if side > 0 else (1, 0)
    parts = [Node(), Node()]
    part = replace(
        branch, node=parts[goes], plan=Plan(owns=[own]), lo=branch.lo.copy(), hi=branch.hi.copy(),
        phase=branch.phase.copy(), given_by=branch.given_by.copy(), rows=branch.plan.rows or branch.rows,
        goals=[Goal(own, closes=True)], better=None, tries=0, gap=np.inf,
    )  # fmt: skip
    _give_side(part, neuron, -side, splits[goes])
    replay.work([part])
    if part.done:
        node.neuron, node.children, node.splits = neuron, parts, splits
        branch.node = parts[stays]
        _give_side(branch, neuron, side, splits[stays])


def _give_side(branch: Branch, neuron: int, side: float, split: int) -> None:
    """By a split, whose event is this."""
    branch.given_by[2 * neuron + (side < 0)] = split
    branch.phase[neuron] = side
    (branch.lo if side > 0 else branch.hi)[neuron] = 0.0


def lost_by(branch: Branch) -> dict[int, tuple[float, Halfspace]]:
    """The neurons that the search fixed at a node and that are open here: the side that is left, and the halfspace that
    excludes the other one."""
    found = dict[int, tuple[float, Halfspace]]()
    for stage in branch.plan.stages:
        own, scale = rounded_to(scaled(stage.own)), scale_of(stage.own)
        by = _multipliers(stage.fixed, scale)
        for i, side, t in zip(stage.fixed.neurons.tolist(), stage.fixed.sides.tolist(), by.tolist(), strict=True):
            if branch.phase[i] == 0 and branch.lo[i] < 0.0 < branch.hi[i]:
                found.setdefault(i, (side, _own(own, i, t)))
    return found


def _multipliers(fixed: Fixed, scale: float) -> Vector:
    """As they will be stored."""
    by = fixed.multipliers
    return in_range(np.where(np.isfinite(by), by / scale, 0.0)).astype(np.float32).astype(np.float64)


def _tried(replay: Replay, branch: Branch, left: tuple[Indices, Vector, Vector], own: Halfspace) -> _Tried:
    """Is the other side of each of these neurons excluded, behind those before it?"""
    leaves = _leaves(branch, *left)
    some = regions_of(leaves.lo, leaves.hi, leaves.phase)
    owns = [_own(own, int(i), float(t)) for i, _, t in zip(*left, strict=True)]
    halves = replay.halfspaces(some, stacked(owns))
    return _Tried(leaves, some, owns, halves, replay.floats.excluded(halves))


def _own(own: Halfspace, neuron: int, multiplier: float) -> Halfspace:
    """The objective of a leaf: with the multiplier of its neuron's side, where it has one."""
    beta = own.beta
    if multiplier > 0.0 or beta[neuron] > 0.0:
        beta = beta.copy()
        beta[neuron] = multiplier
    return own._replace(beta=beta)


def _leaves(branch: Branch, neurons: Indices, sides: Vector, multipliers: Vector) -> _Leaves:
    count = len(neurons)
    lo, hi, phase = (np.repeat(part[None], count, axis=0) for part in (branch.lo, branch.hi, branch.phase))
    for at, (i, side) in enumerate(zip(neurons, sides, strict=True)):
        for lines, own in ((slice(at, at + 1), -side), (slice(at + 1, count), side)):
            phase[lines, i] = own
            (lo if own > 0 else hi)[lines, i] = 0.0
    return _Leaves(neurons, sides, multipliers, lo, hi, phase)


def _split_off(replay: Replay, branch: Branch, tried: _Tried, own: Halfspace) -> None:
    """The leaves as parts of the proof; the branch goes on with the neurons on the sides that are left."""
    leaves, some, owns, halves, _ = tried
    parts = []
    shared = Aim(_alpha(own, branch), own.beta, own.weights, own.facets)  # before the branch changes
    for i, side in zip(leaves.neurons, leaves.sides, strict=True):
        node, splits = branch.node, [replay.log.add(np.zeros(1, np.int64), _NOTHING) for _ in range(2)]
        node.neuron, node.children, node.splits = int(i), [Node(), Node()], splits
        stays, goes = (0, 1) if side > 0 else (1, 0)
        leaf = Branch(
            node.children[goes],
            branch.plan,
            branch.lo,
            branch.hi,
            branch.phase,
            branch.given_by.copy(),
            None,
            branch.goals,
        )
        leaf.given_by[2 * i + goes] = splits[goes]
        parts.append(leaf)
        branch.node = node.children[stays]
        branch.given_by[2 * i + stays] = splits[stays]
        branch.phase[i] = side
        (branch.lo if side > 0 else branch.hi)[i] = 0.0
    replay.moves(parts, some, halves, own.facets is not None, np.ones(len(parts), np.bool_))
    events = _events(replay, parts, tried)
    for at, (leaf, mine) in enumerate(zip(parts, owns, strict=True)):
        aim = shared if mine.beta is own.beta else shared._replace(beta=mine.beta)
        leaf.node.steps.append(Step(events + at, aim))
        leaf.node.closers.append(events + at)


def _alpha(own: Halfspace, branch: Branch) -> Vector:
    """The slopes of all leaves. Where a neuron has its side already, the slope does what the side would."""
    on = (branch.phase > 0) | ((branch.phase == 0) & (branch.lo >= 0))
    off = ~on & ((branch.phase < 0) | (branch.hi <= 0))
    return np.where(on, 1.0, np.where(off, 0.0, own.alpha))


def _events(replay: Replay, parts: list[Branch], tried: _Tried) -> int:
    """What the leaves' halfspaces rest on; the number of the first one's event."""
    leaves, some, owns, halves, _ = tried
    coef, given_by = halves.uppers.coef, np.stack([leaf.given_by for leaf in parts])
    beta = np.where(some.side != 0, np.stack([mine.beta for mine in owns]), 0.0)
    facets = [mine.facets for mine in owns]
    if any(each is not None for each in facets):
        counts, deps = needs_with_facets(coef, some, beta, given_by, facets, replay.setting)
    else:
        from layercert.certify.digest import needs

        counts, deps = needs(coef, some, beta, given_by)
    # where A > 0 a neuron needs nothing if its slope is that of its side; that of a neuron fixed just before is not
    ends, own = np.cumsum(counts), []
    for at, (begin, end) in enumerate(zip(ends - counts, ends, strict=True)):
        before = leaves.neurons[: at + 1]
        rising = before[coef[before, at] > 0]
        more = given_by[at, 2 * rising + (some.side[at, rising] < 0)]
        own.append(np.unique(np.concatenate([deps[begin:end], more[more >= 0]])))
    return replay.log.add(np.array([len(each) for each in own], np.int64), np.concatenate([_NOTHING, *own]))
