"""The Recorder of certificates: keeps the tree of a search and its parameters, rounded to what will be stored."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from layercert.arrays import Vector
from layercert.problem import Clause
from layercert.search.adaptive.record import Halfspace, RowParameters

#: Slopes are stored as parts of this.
STEPS_OF_SLOPE = 255


class KeptRows(NamedTuple):
    """Rows of one layer as a node left them."""

    at: NDArray[np.int64]  # 2 neuron + side, side 0 from below and 1 from above; neurons counted over all layers
    slopes: NDArray[np.uint8]
    betas: Any  # signed, compressed rows of float32
    pulls: NDArray[np.float32]


@dataclass
class Plan:
    """A node: the parameters of its halfspace, its rows, and the search's split of it if any."""

    own: Halfspace
    rows: list[KeptRows] = field(default_factory=list)
    layer: int = 0
    neuron: int = 0
    children: tuple[int, int] | None = None


@dataclass
class Forest:
    """What was recorded of one ball: a tree per clause, by the number of its root."""

    radius: float
    nodes: dict[int, Plan] = field(default_factory=dict)
    roots: list[int] = field(default_factory=list)  # of the clauses, in their order

    def root(self, clause: int) -> Plan | None:
        return self.nodes.get(self.roots[clause]) if clause < len(self.roots) else None


class Recording:
    """Keeps the forest of the last ball, and the last one that was proved as a whole."""

    def __init__(self) -> None:
        self.forest = Forest(0.0)
        self.proved = Forest(0.0)
        self._rows: dict[int, list[KeptRows]] = {}

    @property
    def told(self) -> bool:
        """Was there a search that told anything?"""
        return bool(self.forest.nodes or self.proved.nodes)

    def forest_for(self, radius: float) -> Forest:
        """What is worth replaying for a proof in the ball of this radius."""
        return self.forest if self.forest.radius >= radius or not self.proved.nodes else self.proved

    def ball(self, radius: float) -> None:
        if self.forest.radius < radius:  # balls grow where the one before is proved
            self.proved = self.forest
        self.forest = Forest(radius)
        self._rows.clear()

    def root(self, node: int, clause: Clause) -> None:
        self.forest.roots.append(node)

    def rows(self, node: int, rows: RowParameters) -> None:
        if len(rows.neurons):
            self._rows.setdefault(node, []).append(kept(rows))

    def wait(self, node: int, own: Halfspace) -> None:
        self._plan(node, own)

    def close(self, node: int, own: Halfspace) -> None:
        self._plan(node, own)

    def split(self, node: int, layer: int, neuron: int, children: tuple[int, int], own: Halfspace) -> None:
        plan = self._plan(node, own)
        plan.layer, plan.neuron, plan.children = layer + 1, neuron, children

    def _plan(self, node: int, own: Halfspace) -> Plan:
        copied = Halfspace(*(np.array(part, dtype=np.float64) for part in own))
        known = self.forest.nodes.get(node)
        rows = self._rows.pop(node, [] if known is None else known.rows)
        plan = Plan(copied, rows) if known is None else replace(known, own=copied, rows=rows)
        self.forest.nodes[node] = plan
        return plan


def kept(rows: RowParameters) -> KeptRows:
    slopes = rows.slopes if isinstance(rows.slopes, np.ndarray) else rows.slopes.toarray()
    whole = np.rint(np.clip(slopes, 0.0, 1.0) * STEPS_OF_SLOPE).astype(np.uint8)
    betas = csr_array(rows.betas, dtype=np.float32)
    betas.data[~np.isfinite(betas.data)] = 0.0
    betas.eliminate_zeros()
    betas.sort_indices()
    at = 2 * np.asarray(rows.neurons, dtype=np.int64) + (~np.asarray(rows.lower, dtype=np.bool_))
    return KeptRows(at, whole, betas, in_range(np.asarray(rows.pulls)).astype(np.float32))


def in_range(values: Vector) -> Vector:
    """Multipliers that a certificate may hold: finite, >= 0, and not too large."""
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), 0.0, 1e29)


def scaled(own: Halfspace) -> Halfspace:
    """The same halfspace in range: beta and the weights scaled together, so that the largest is one."""
    alpha = np.clip(np.nan_to_num(own.alpha, nan=0.0), 0.0, 1.0)
    beta, weights = (np.maximum(np.where(np.isfinite(part), part, 0.0), 0.0) for part in (own.beta, own.weights))
    top = max(float(beta.max(initial=0.0)), float(weights.max(initial=0.0)))
    scale = top if 0.0 < top < math.inf else 1.0
    return Halfspace(alpha, beta / scale, weights / scale)
