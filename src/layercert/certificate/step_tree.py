"""Format 2 checked: one pass per stored row, one halfspace per step, no search. Generic in the arithmetic.

A node stands for the unsafe points of one clause, within the radius and inside the domain, whose split neurons have the
node's phases. A split's two children cover it. At each step of a node F <= 0 gives a halfspace; if it misses ball and
box, the node is empty. If not, the step's rows bound neurons on the cap that it leaves. A leaf must end empty.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.facets import FacetTables
from layercert.certificate.region import Region
from layercert.certificate.rejected import Rejected
from layercert.certificate.setting import Setting
from layercert.certificate.steps import (
    Objective,
    Passes,
    StepTree,
    check_arrays,
    layers_of,
    objective_of,
    passes_of,
)


class StepArithmetic(Protocol):
    """What the proof needs of an arithmetic; halfspaces are its own business."""

    setting: Setting

    @property
    def start(self) -> Region: ...

    def objective(self, C: Matrix, d: Vector, region: Region, own: Objective) -> Any: ...

    def excludes(self, half: Any) -> bool: ...

    def narrow(self, region: Region, half: Any, k: int, rows: Passes) -> bool: ...


def prove_step_tree(arithmetic: StepArithmetic, widths: tuple[int, ...], C: Matrix, d: Vector, tree: StepTree) -> int:
    """The number of leaves, all proved; Rejected otherwise."""
    check_arrays(tree, widths, len(d))
    check_shape(tree, widths)
    tables = FacetTables(tree, arithmetic.setting)
    # None: a part that is known to be empty, whose nodes need no proof
    stack: list[Region | None] = [arithmetic.start.copy()]
    for node in range(len(tree.layer)):
        region = stack.pop()
        if region is not None and is_empty(arithmetic, C, d, tree, tables, node, region):
            region = None
        layer, neuron = int(tree.layer[node]), int(tree.neuron[node])
        if layer == 0:
            if region is not None:
                raise not_proved(node)
            continue
        if region is None:
            stack += [None, None]
            continue
        if region.phase[layer - 1][neuron] != 0:
            raise split_again(node, neuron, layer)
        stack += [region.child(layer - 1, neuron, -1.0), region.child(layer - 1, neuron, 1.0)]
    return tree.leaves


def check_shape(tree: StepTree, widths: tuple[int, ...]) -> None:
    """The nodes in preorder must be one whole tree, and split neurons that exist; Rejected otherwise."""
    layer, neuron = tree.layer.astype(np.int64), tree.neuron.astype(np.int64)
    waiting = 1 + np.cumsum(np.where(layer == 0, -1, 1))  # subtrees that must still come, after each node
    done = np.flatnonzero(waiting == 0)
    if len(done) and done[0] < len(layer) - 1:
        raise Rejected(f"the tree is complete before node {done[0] + 1}: superfluous nodes")
    if not len(done):
        raise Rejected(f"the tree ends with {waiting[-1]} subtrees missing")
    width = np.array([0, *widths])
    known = (layer >= 0) & (layer <= len(widths))
    fits = known & (neuron >= 0) & (neuron < width[np.where(known, layer, 0)])
    wrong = np.flatnonzero((layer != 0) & ~fits)
    if len(wrong):
        at = wrong[0]
        raise Rejected(f"node {at} splits neuron {neuron[at]} of layer {layer[at]}, which does not exist")


def not_proved(node: int) -> Rejected:
    return Rejected(f"leaf {node} is not proved: unsafe points are not excluded there")


def split_again(node: int, neuron: int, layer: int) -> Rejected:
    return Rejected(f"node {node} splits neuron {neuron} of layer {layer} a second time")


def is_empty(
    arithmetic: StepArithmetic,
    C: Matrix,
    d: Vector,
    tree: StepTree,
    tables: FacetTables,
    node: int,
    region: Region,
) -> bool:
    """Do the node's steps exclude it? Tightened bounds stay in the region."""
    widths = arithmetic.setting.network.widths
    starts = [sum(widths[:k]) for k in range(len(widths))]
    for step in range(int(tree.ends[0][node]), int(tree.ends[0][node + 1])):
        at = int(tree.objective[step])
        facets = tables.of_objectives(np.array([at]))
        own = objective_of(tree, at)._replace(facets=None if facets is None else facets[0])
        half = arithmetic.objective(C, d, region, own)
        if arithmetic.excludes(half):
            return True
        for k, which in layers_of(tree, widths, step):
            rows = passes_of(tree, which, starts[k])._replace(facets=tables.of_rows(tree.row[which].astype(np.intp)))
            if not arithmetic.narrow(region, half, k, rows):
                return True
    return False
