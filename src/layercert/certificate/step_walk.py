"""A tree of format 2 checked in float64, several nodes side by side: one pass over all rows of a layer at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Mask, Matrix, Vector
from layercert.certificate.facets import FacetTables, side_by_side
from layercert.certificate.rejected import Rejected
from layercert.certificate.step_floats import Halfspaces, Objectives, StepFloats, regions_of
from layercert.certificate.step_tree import check_shape, not_proved, split_again
from layercert.certificate.steps import StepTree, check_arrays, parts_of_one
from layercert.system import clock

#: Nodes that are worked on together.
TOGETHER = 32


class Waiting(NamedTuple):
    """A node whose parent is done, with the parent's bounds and its own phases."""

    node: int
    lo: Vector
    hi: Vector
    phase: NDArray[np.int8]


def walk_step_tree(floats: StepFloats, widths: tuple[int, ...], C: Matrix, d: Vector, tree: StepTree) -> int:
    """The number of leaves, all proved; Rejected otherwise."""
    return Walk(floats, widths, C, d, tree).leaves()


class Walk:
    """One tree."""

    def __init__(self, floats: StepFloats, widths: tuple[int, ...], C: Matrix, d: Vector, tree: StepTree) -> None:
        check_arrays(tree, widths, len(d))
        check_shape(tree, widths)
        self.facets = FacetTables(tree, floats.setting)
        self.floats, self.C, self.d, self.tree = floats, C, d, tree
        self.widths, self.starts = widths, floats.starts
        self.rows = tree.row.astype(np.intp)
        #: of every use its layer, from 0
        self.layers = np.searchsorted(self.starts, tree.target[self.rows], side="right") - 1
        owner = np.repeat(np.arange(len(tree.uses)), tree.uses.astype(np.intp))
        falls = np.flatnonzero((np.diff(self.layers) < 0) & (np.diff(owner) == 0))
        if len(falls):
            raise Rejected(f"step {owner[falls[0]]} does not go up the layers")
        self.ends = ends_of(tree.layer)

    def leaves(self) -> int:
        start = self.floats.start
        stack = [Waiting(0, start.lo[0].copy(), start.hi[0].copy(), start.phase[0].copy())]
        while stack:
            clock.check()
            nodes = [stack.pop() for _ in range(min(TOGETHER, len(stack)))]
            regions = regions_of(*(np.stack(part) for part in list(zip(*nodes, strict=True))[1:]))
            empty = self.emptied(np.array([waiting.node for waiting in nodes], np.intp), regions)
            for at in np.flatnonzero(~empty).tolist():
                stack += self.children(nodes[at].node, regions, at)
        return self.tree.leaves

    def emptied(self, nodes: Indices, regions: Any) -> Mask:
        """Which nodes do their steps exclude? Tightened bounds stay in the regions."""
        tree = self.tree
        first, last = tree.ends[0][nodes], tree.ends[0][nodes + 1]
        empty = np.zeros(len(nodes), np.bool_)
        for turn in range(int((last - first).max(initial=0))):
            going = np.flatnonzero(~empty & (first + turn < last))
            if not len(going):
                break
            steps = first[going] + turn
            at = tree.objective[steps].astype(np.intp)
            own = Objectives(
                parts_of_one(tree.alpha[at]),
                tree.beta[at].astype(np.float64),
                tree.mu[at].astype(np.float64),
                self.facets.of_objectives(at),
            )
            halves = self.floats.halfspaces(self.C, self.d, lines_of(regions, going), own)
            excluded = self.floats.excluded(halves)
            empty[going[excluded]] = True
            left = np.flatnonzero(~excluded)
            if len(left):
                self.bound(regions, going, halves, left, steps, empty)
        return empty

    def bound(
        self, regions: Any, nodes: Indices, halves: Halfspaces, left: Indices, steps: Indices, empty: Mask
    ) -> None:
        """All rows of the steps, layer by layer; `left` are the halfspaces whose nodes are still open."""
        tree = self.tree
        begins, ends = tree.ends[1][steps[left]], tree.ends[1][steps[left] + 1]
        uses = np.concatenate([np.arange(a, b) for a, b in zip(begins, ends, strict=True)])
        half = np.repeat(left, ends - begins)
        layers = self.layers[uses]
        for k in np.unique(layers):
            which = np.flatnonzero((layers == k) & ~empty[nodes[half]])
            if len(which):
                rows = self.uses_of(int(k), uses[which], nodes[half[which]], half[which])
                lams = tree.lam[uses[which]].astype(np.float64)
                gone = self.floats.narrow(regions, halves, int(k), rows, lams, tree.limits[uses[which]])
                empty[rows.node[gone]] = True

    def uses_of(self, k: int, uses: Indices, nodes: Indices, half: Indices) -> Any:
        from layercert.certificate.lanes import Uses, spread

        tree, rows, base = self.tree, self.rows[uses], int(self.starts[k])
        splits = np.zeros((0, 0))
        if tree.split_count[rows].any():
            splits = spread(tree.splits.indptr, tree.splits.indices, tree.splits.data, rows, base)
        found = Uses(
            nodes,
            half,
            tree.target[rows].astype(np.intp),
            tree.side[rows].astype(np.float64),
            tree.pull[rows].astype(np.float64),
            spread(tree.slopes.indptr, tree.slopes.indices, tree.slopes.data, rows, base),
            splits,
        )
        facets = self.facets.of_rows(rows)
        if facets is None:
            return found
        return found._replace(facets=side_by_side(facets, self.floats.setting, self.floats.noise, nodes))

    def children(self, node: int, regions: Any, at: int) -> list[Waiting]:
        """Both parts of a node that is split, those that cannot be empty at sight."""
        tree = self.tree
        layer, neuron = int(tree.layer[node]), int(tree.neuron[node])
        if layer == 0:
            raise not_proved(node)
        i = int(self.starts[layer - 1]) + neuron
        if regions.phase[at, i] != 0:
            raise split_again(node, neuron, layer)
        parts = []
        for child, phase in ((int(self.ends[node + 1]), -1), (node + 1, 1)):
            part = Waiting(child, regions.lo[at].copy(), regions.hi[at].copy(), regions.phase[at].copy())
            part.phase[i] = phase
            if phase > 0:
                part.lo[i] = max(part.lo[i], 0.0)
            else:
                part.hi[i] = min(part.hi[i], 0.0)
            if not part.lo[i] > part.hi[i]:
                parts.append(part)
        return parts


def lines_of(regions: Any, nodes: Indices) -> Any:
    """The regions of some nodes; all of them are not copied."""
    return regions if len(nodes) == len(regions.lo) else type(regions)(*(part[nodes] for part in regions))


def ends_of(layer: NDArray[Any]) -> Indices:
    """For every node in preorder, the node after its subtree."""
    ends = np.empty(len(layer), np.intp)
    stack: list[int] = []
    for node in range(len(layer) - 1, -1, -1):
        if layer[node] == 0:
            ends[node] = node + 1
        else:  # its children are the last two subtrees that began after it
            stack.pop()
            ends[node] = ends[stack.pop()]
        stack.append(node)
    return ends
