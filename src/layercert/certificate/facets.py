"""Facets of format 2: read from a tree, and laid side by side for the kernels (docs/certificate-format.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Vector
from layercert.certificate.entries import Entries
from layercert.certificate.rejected import Rejected
from layercert.certificate.setting import Setting
from layercert.certificate.steps import FACETS, StepTree, check_slopes, counted, parts_of_one
from layercert.facets import Facets

_NOTHING = Facets(np.zeros(0, np.intp), np.zeros(0), np.zeros(0))


class FacetLanes(NamedTuple):
    """The facets of some objectives, a lane each, and what their lines need."""

    first: Indices  # per layer: its first facet; one more for the end
    lane: Indices
    neuron: Indices  # counted over all layers
    share: Vector
    begin: Indices  # where its parts begin
    part: Vector
    entries: Entries
    down: Vector  # how far each coordinate of w may fall and rise, rounded up
    up: Vector
    noise: float  # relative error of the longest sum


def side_by_side(own: Sequence[Facets | None], setting: Setting, noise: float) -> FacetLanes:
    """The facets of some objectives, those of a layer together."""
    entries, starts = setting.entries, np.cumsum([0, *setting.network.widths])
    some = [facets or _NOTHING for facets in own]
    for facets in some:
        _check(facets, entries)
    neuron = np.concatenate([facets.neurons for facets in some]).astype(np.intp)
    sizes = entries.counts[neuron]
    layer = np.searchsorted(starts, neuron, side="right") - 1
    order = np.argsort(layer, kind="stable")
    return FacetLanes(
        np.searchsorted(layer[order], np.arange(len(starts))).astype(np.intp),
        np.repeat(np.arange(len(some)), [len(facets.neurons) for facets in some])[order],
        neuron[order],
        np.concatenate([facets.shares for facets in some])[order],
        (np.cumsum(sizes) - sizes)[order],
        np.concatenate([facets.parts for facets in some]),
        entries,
        *setting.room,
        noise,
    )


def no_facets(layers: int) -> FacetLanes:
    """Where no objective has facets, which costs nothing."""
    none, at = np.zeros(0), np.zeros(0, np.intp)
    nothing = Entries(at, np.zeros(0, np.int32), none)
    return FacetLanes(np.zeros(layers + 1, np.intp), at, at, none, at, none, nothing, none, none, 0.0)


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
    """The facets of all objectives of a tree; Rejected says what is wrong with its arrays."""

    def __init__(self, tree: StepTree, entries: Entries) -> None:
        count, at, self.share, self.part = (getattr(tree, name) for name in FACETS)
        total = counted("facet_count", count)
        for name, array, shape in (
            ("facet_count", count, (len(tree.mu),)),
            ("facet_at", at, (total,)),
            ("facet_share", self.share, (total,)),
            ("facet_part", self.part, (self.part.size,)),
        ):
            if array.shape != shape:
                raise Rejected(f"the array {name} has shape {array.shape} where {shape} is needed")
        if at.dtype.kind not in "iu":
            raise Rejected(f"the array facet_at holds {at.dtype}, which it must not")
        check_slopes("facet_share", self.share)
        check_slopes("facet_part", self.part)
        if total and not (int(at.min()) >= 0 and int(at.max()) < len(entries.counts)):
            raise Rejected("facet_at names something that does not exist")
        self.at = at.astype(np.intp)
        owner = np.repeat(np.arange(len(count)), count.astype(np.intp))
        if ((np.diff(self.at) <= 0) & (np.diff(owner) == 0)).any():
            raise Rejected("the neurons of an objective's facets must increase")
        sizes = entries.counts[self.at]
        if len(self.part) != sizes.sum():
            raise Rejected(f"facet_part has {len(self.part)} numbers where the rows of facet_at have {sizes.sum()}")
        #: where each objective's facets begin, and where each facet's parts begin
        self.ends = np.concatenate([[0], np.cumsum(count.astype(np.intp))])
        self.part_ends = np.concatenate([[0], np.cumsum(sizes)])

    def of(self, objective: int) -> Facets | None:
        a, b = int(self.ends[objective]), int(self.ends[objective + 1])
        if a == b:
            return None
        parts = self.part[int(self.part_ends[a]) : int(self.part_ends[b])]
        return Facets(self.at[a:b], parts_of_one(self.share[a:b]), parts_of_one(parts))


def facets_of(tree: StepTree, setting: Setting) -> FacetTable | None:
    """The facets of a tree, None where it has none."""
    there = [name for name in FACETS if getattr(tree, name) is not None]
    if not there:
        return None
    if len(there) < len(FACETS):
        raise Rejected(f"facets need all of the arrays {', '.join(FACETS)}; there is {', '.join(there)} alone")
    return FacetTable(tree, setting.entries)
