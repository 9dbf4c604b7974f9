"""Facets of format 2: read from a tree, and laid side by side for the kernels (docs/certificate-format.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Vector
from layercert.certificate.entries import Entries
from layercert.certificate.rejected import Rejected
from layercert.certificate.setting import Setting
from layercert.certificate.steps import (
    FACETS,
    ROW_FACETS,
    StepTree,
    check_slopes,
    counted,
    parts_of_one,
    reads_below,
)
from layercert.facets import Facets

_NOTHING = Facets(np.zeros(0, np.intp), np.zeros(0), np.zeros(0))


class FacetLanes(NamedTuple):
    """The facets of some objectives or rows, a lane each, and what their lines need."""

    first: Indices  # per layer: its first facet; one more for the end
    lane: Indices
    node: Indices  # whose bounds count: its line in the regions
    neuron: Indices  # counted over all layers
    share: Vector
    begin: Indices  # where its parts begin
    part: Vector
    entries: Entries
    down: Vector  # how far each coordinate of w may fall and rise, rounded up
    up: Vector
    noise: float  # relative error of the longest sum


def side_by_side(
    own: Sequence[Facets | None], setting: Setting, noise: float, nodes: Indices | None = None
) -> FacetLanes:
    """The facets of some objectives or rows, those of a layer together; `nodes` has the node of each, in place of one
    node each."""
    entries, starts = setting.entries, np.cumsum([0, *setting.network.widths])
    some = [facets or _NOTHING for facets in own]
    for facets in some:
        _check(facets, entries)
    neuron = np.concatenate([facets.neurons for facets in some]).astype(np.intp)
    sizes = entries.counts[neuron]
    layer = np.searchsorted(starts, neuron, side="right") - 1
    order = np.argsort(layer, kind="stable")
    lane = np.repeat(np.arange(len(some)), [len(facets.neurons) for facets in some])[order]
    return FacetLanes(
        np.searchsorted(layer[order], np.arange(len(starts))).astype(np.intp),
        lane,
        lane if nodes is None else nodes[lane],
        neuron[order],
        np.concatenate([facets.shares for facets in some])[order],
        (np.cumsum(sizes) - sizes)[order],
        np.concatenate([facets.parts for facets in some]),
        entries,
        *setting.room,
        noise,
    )


def some_lanes(facets: FacetLanes, part: slice) -> FacetLanes:
    """The facets of some of the lanes, which are counted from the first of them."""
    keep = np.flatnonzero((facets.lane >= part.start) & (facets.lane < part.stop))
    return facets._replace(
        first=np.searchsorted(keep, facets.first).astype(np.intp), lane=facets.lane[keep] - part.start,
        node=facets.node[keep], neuron=facets.neuron[keep], share=facets.share[keep], begin=facets.begin[keep],
    )  # fmt: skip


def no_facets(layers: int) -> FacetLanes:
    """Where no objective and no row has facets, which costs nothing."""
    none, at = np.zeros(0), np.zeros(0, np.intp)
    nothing = Entries(at, np.zeros(0, np.int32), none)
    return FacetLanes(np.zeros(layers + 1, np.intp), at, at, at, none, at, none, nothing, none, none, 0.0)


def _check(facets: Facets, entries: Entries) -> None:
    """Kernels read without looking: what a prover hands over must fit. What a file holds was checked before."""
    at, shares, parts = facets
    known = not len(at) or (at[0] >= 0 and at[-1] < len(entries.counts))
    if not known or len(at) != len(shares) or (np.diff(at) <= 0).any():
        raise ValueError("facets must be of neurons that exist, in increasing order, each with a share")
    needed = int(entries.counts[at].sum())
    if len(parts) != needed:
        raise ValueError(f"facets have {len(parts)} parts where the rows of their neurons have {needed} entries")
    if not all(((values >= 0) & (values <= 1)).all() for values in (shares, parts)):
        raise ValueError("the shares and parts of facets must be in [0, 1]")


class FacetTable:
    """The facets of all objectives of a tree, or of all its rows; Rejected says what is wrong with its arrays."""

    def __init__(self, tree: StepTree, entries: Entries, names: tuple[str, ...] = FACETS) -> None:
        count, at, self.share, self.part = (getattr(tree, name) for name in names)
        total = counted(names[0], count)
        owners = len(tree.mu) if names == FACETS else len(tree.target)
        for name, array, shape in (
            (names[0], count, (owners,)),
            (names[1], at, (total,)),
            (names[2], self.share, (total,)),
            (names[3], self.part, (self.part.size,)),
        ):
            if array.shape != shape:
                raise Rejected(f"the array {name} has shape {array.shape} where {shape} is needed")
        if at.dtype.kind not in "iu":
            raise Rejected(f"the array {names[1]} holds {at.dtype}, which it must not")
        check_slopes(names[2], self.share)
        check_slopes(names[3], self.part)
        if total and not (int(at.min()) >= 0 and int(at.max()) < len(entries.counts)):
            raise Rejected(f"{names[1]} names something that does not exist")
        self.at = at.astype(np.intp)
        self.owner = np.repeat(np.arange(len(count)), count.astype(np.intp))
        if ((np.diff(self.at) <= 0) & (np.diff(self.owner) == 0)).any():
            raise Rejected(f"the neurons of {names[1]} must increase in an objective and in a row")
        sizes = entries.counts[self.at]
        if len(self.part) != sizes.sum():
            raise Rejected(f"{names[3]} has {len(self.part)} numbers where the rows of {names[1]} have {sizes.sum()}")
        #: where each objective's (row's) facets begin, and where each facet's parts begin
        self.ends = np.concatenate([[0], np.cumsum(count.astype(np.intp))])
        self.part_ends = np.concatenate([[0], np.cumsum(sizes)])

    def of(self, owner: int) -> Facets | None:
        a, b = int(self.ends[owner]), int(self.ends[owner + 1])
        if a == b:
            return None
        parts = self.part[int(self.part_ends[a]) : int(self.part_ends[b])]
        return Facets(self.at[a:b], parts_of_one(self.share[a:b]), parts_of_one(parts))


class FacetTables:
    """The facets of a tree, of its objectives and of its rows; Rejected says what is wrong with its arrays."""

    def __init__(self, tree: StepTree, setting: Setting) -> None:
        self.objectives = _table(tree, setting, FACETS)
        self.rows = _table(tree, setting, ROW_FACETS)
        if self.rows is not None:
            below = reads_below(tree, setting.network.widths)
            if (self.rows.at >= below[self.rows.owner]).any():
                raise Rejected("a row has a facet for a neuron that is not below its own")

    def of_objectives(self, at: Indices) -> list[Facets | None] | None:
        """Per objective; None where none has any."""
        return _those(self.objectives, at)

    def of_rows(self, at: Indices) -> list[Facets | None] | None:
        """Per row; None where none has any."""
        return _those(self.rows, at)


def _those(table: FacetTable | None, at: Indices) -> list[Facets | None] | None:
    if table is None or (table.ends[at] == table.ends[at + 1]).all():
        return None
    return [table.of(i) for i in at.tolist()]


def _table(tree: StepTree, setting: Setting, names: tuple[str, ...]) -> FacetTable | None:
    """None where the tree has no such facets."""
    there = [name for name in names if getattr(tree, name) is not None]
    if not there:
        return None
    if len(there) < len(names):
        raise Rejected(f"facets need all of the arrays {', '.join(names)}; there is {', '.join(there)} alone")
    return FacetTable(tree, setting.entries, names)
