"""A format 2 tree under construction: every halfspace, row and split is an event that names the events it rests on.

When all leaves are closed, only what they rest on is written: rows, halfspaces, and splits. A split whose one part is
closed without it is no split.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Vector
from layercert.certificate.steps import StepTree
from layercert.certify.facets import facet_arrays
from layercert.facets import Facets

#: Slopes of objectives have 16 bits: a leaf may be closed by a hair.
ALPHA = np.uint16


class LoggedRows(NamedTuple):
    """Rows of one layer that a step used; their events are numbered from `first` on."""

    first: int
    target: Indices
    side: Vector
    pull: Vector
    lam: Vector
    limit: Vector
    own: Any  # digest.Digest: slopes and multipliers of sides
    facets: list[Facets | None] | None = None  # per row; None where no row has any


class Aim(NamedTuple):
    """An objective as it will be stored; what does not count is 0."""

    alpha: Vector
    beta: Vector
    mu: Vector
    facets: Facets | None = None


@dataclass
class Step:
    event: int  # of its halfspace
    aim: Aim
    rows: list[LoggedRows] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    steps: list[Step] = field(default_factory=list)
    closers: list[int] = field(default_factory=list)  # events that leave the node without points
    neuron: int = -1  # that is split, counted over all layers
    children: list[Node] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)  # events: the sides of the neuron in the children


class Log:
    """The events of one tree."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.starts = np.cumsum([0, *widths])
        self.neurons = int(self.starts[-1])
        self.events = 0
        self.root = Node()
        self._counts: list[Indices] = []
        self._deps: list[Indices] = []

    def add(self, counts: Indices, deps: Indices) -> int:
        """Events with what they rest on (earlier events, all in a row); the number of the first."""
        first = self.events
        self.events += len(counts)
        self._counts.append(counts)
        self._deps.append(deps)
        return first

    def pack(self, exact_slopes: bool, rows: int) -> StepTree:
        """The tree with what its leaves rest on; `rows` is the number of rows of the clause."""
        needed = self._needed()
        while self._without_splits(needed):
            needed = self._needed()
        nodes = preorder(self.root)
        steps: list[tuple[Step, list[tuple[LoggedRows, NDArray[np.bool_]]]]] = []
        counts = []
        for node in nodes:
            before = len(steps)
            for step in node.steps:
                used = [(part, needed[part.first : part.first + len(part.target)]) for part in step.rows]
                used = [(part, which) for part, which in used if which.any()]
                if needed[step.event] or used:
                    steps.append((step, used))
            counts.append(len(steps) - before)
        return self._tree(nodes, counts, steps, exact_slopes, rows)

    def _needed(self) -> NDArray[np.bool_]:
        from layercert.certify.digest import mark

        needed = np.zeros(self.events, np.bool_)
        for node in preorder(self.root):
            needed[node.closers] = True
        none = np.zeros(0, np.int64)
        begin = np.concatenate([[0], np.cumsum(np.concatenate([none, *self._counts]))])
        mark(needed, begin, np.concatenate([none, *self._deps]))
        return needed

    def _without_splits(self, needed: NDArray[np.bool_]) -> bool:
        """Nodes one of whose parts does not rest on being one are replaced by it; was there any?"""
        found = False
        for node in preorder(self.root):
            for child, split in zip(node.children, node.splits, strict=True):
                if not needed[split]:
                    node.steps, node.closers = node.steps + child.steps, child.closers
                    node.neuron, node.children, node.splits = child.neuron, child.children, child.splits
                    found = True
                    break
        return found

    def _tree(
        self,
        nodes: list[Node],
        counts: list[int],
        steps: list[tuple[Step, list[tuple[LoggedRows, NDArray[np.bool_]]]]],
        exact_slopes: bool,
        rows: int,
    ) -> StepTree:
        split = np.array([node.neuron for node in nodes], np.int64)
        layer = np.where(split < 0, 0, np.searchsorted(self.starts, split, side="right"))
        neuron = np.where(split < 0, 0, split - self.starts[np.maximum(layer, 1) - 1])
        parts = [use for _, used in steps for use in used]

        def column(name: str, of: Any) -> Any:
            values = (getattr(p if hasattr(p, name) else p.own, name)[which] for p, which in parts)
            return np.concatenate([np.zeros(0, of), *values]).astype(of)

        def entries(kind: str, name: str, of: Any) -> Any:
            taken = [np.repeat(which, getattr(p.own, f"{kind}_count")) for p, which in parts]
            values = (getattr(p.own, name)[t] for (p, _), t in zip(parts, taken, strict=True))
            return np.concatenate([np.zeros(0, of), *values]).astype(of)

        wide = np.uint16 if self.neurons <= 1 << 16 else np.uint32
        uses = [sum(int(which.sum()) for _, which in used) for _, used in steps]
        aims = {id(step.aim): step.aim for step, _ in steps}  # some serve several steps
        place = {key: i for i, key in enumerate(aims)}
        alpha = np.array([aim.alpha for aim in aims.values()]).reshape(len(aims), self.neurons)
        if not exact_slopes:
            alpha = np.rint(alpha * np.iinfo(ALPHA).max).astype(ALPHA)
        beta = np.array([aim.beta for aim in aims.values()]).reshape(len(aims), self.neurons)
        single = beta.astype(np.float32)
        return StepTree(
            layer=layer.astype(np.int32),
            neuron=neuron.astype(np.int32),
            steps=np.array(counts, np.int32),
            objective=np.array([place[id(step.aim)] for step, _ in steps], np.int32),
            uses=np.array(uses, np.int32),
            row=np.arange(sum(uses), dtype=np.int32),
            lam=column("lam", np.float32),
            mu=np.array([aim.mu for aim in aims.values()]).reshape(len(aims), rows),
            alpha=alpha,
            beta=single if (single == beta).all() else beta,
            target=column("target", np.int32),
            side=column("side", np.int8),
            pull=column("pull", np.float32),
            slope_count=column("slope_count", np.int32),
            slope_at=entries("slope", "slope_at", wide),
            slope=entries("slope", "slope", np.uint8),
            split_count=column("split_count", np.int32),
            split_at=entries("split", "split_at", wide),
            split=entries("split", "split", np.float32),
            limit=column("limit", np.float64),
            **facet_arrays([aim.facets for aim in aims.values()]),
            **facet_arrays(_row_facets(parts), rows=True),
        )


def _row_facets(parts: list[tuple[LoggedRows, NDArray[np.bool_]]]) -> list[Facets | None]:
    """Of the rows that are used."""
    found: list[Facets | None] = []
    for part, which in parts:
        own = [None] * len(which) if part.facets is None else part.facets
        found += [facets for facets, used in zip(own, which.tolist(), strict=True) if used]
    return found


def preorder(root: Node) -> list[Node]:
    nodes, stack = [], [root]
    while stack:
        nodes.append(stack.pop())
        stack.extend(reversed(nodes[-1].children))
    return nodes
