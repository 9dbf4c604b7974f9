"""Format 2: a tree whose every bound carries its own multipliers (docs/certificate-format.md).

A node has a list of steps. A step is an objective (slopes alpha, multipliers beta, weights mu), whose halfspace may
exclude the node, and rows: passes that bound one neuron from one side each, on the cap that the halfspace leaves. Rows
and objectives stand in tables and may serve several nodes, since nothing in them depends on a node: values in range are
sound anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from layercert.arrays import Indices, Matrix, Vector
from layercert.certificate.rejected import Rejected
from layercert.facets import Facets

#: Multipliers above this are refused: products with larger ones might overflow, and only ratios matter.
LARGEST = 1e30


@dataclass(frozen=True, eq=False)
class StepTree:
    """The proof that one clause holds nowhere within the radius; the fields are arrays of the file."""

    layer: NDArray[Any]  # nodes, in preorder: 1..L for a split, 0 for a leaf
    neuron: NDArray[Any]  # nodes: which neuron of the layer is split; the first subtree has it on, the second off
    steps: NDArray[Any]  # nodes: how many steps it has
    objective: NDArray[Any]  # steps, in the order of the nodes: which objective
    uses: NDArray[Any]  # steps: how many rows are used
    row: NDArray[Any]  # uses, in the order of the steps: which row
    lam: NDArray[Any]  # uses: multiplier of the cap
    mu: NDArray[Any]  # objectives x rows of the clause
    alpha: NDArray[Any]  # objectives x neurons; whole numbers of 8 or 16 bits stand for parts of the largest one
    beta: NDArray[Any]  # objectives x neurons
    target: NDArray[Any]  # rows: the neuron that is bounded, counted over all layers
    side: NDArray[Any]  # rows: +1 from below, -1 from above
    pull: NDArray[Any]  # rows: multiplier of the objective
    slope_count: NDArray[Any]  # rows: how many slopes it has
    slope_at: NDArray[Any]  # slopes: of which neuron, counted over all layers, increasing in a row
    slope: NDArray[Any]  # slopes, as alpha; 0 for neurons that are not named
    split_count: NDArray[Any]  # rows: how many signed multipliers of sides it has
    split_at: NDArray[Any]
    split: NDArray[Any]  # b > 0: b z >= 0 where the neuron is on; b < 0 where it is off
    limit: NDArray[Any] | None = None  # uses: what the row's bound counts for at most; None: all of it
    # upper lines of single neurons beside the chord, all four or none of them (facets.py)
    facet_count: NDArray[Any] | None = None  # objectives: how many facets it has
    facet_at: NDArray[Any] | None = None  # facets: of which neuron, counted over all layers, increasing
    facet_share: NDArray[Any] | None = None  # facets, as alpha: how much of the neuron's coefficient it takes
    facet_part: NDArray[Any] | None = None  # as alpha, for each facet one per nonzero entry of the neuron's row
    # the same for rows, whose facets are in layers below their targets'
    row_facet_count: NDArray[Any] | None = None
    row_facet_at: NDArray[Any] | None = None
    row_facet_share: NDArray[Any] | None = None
    row_facet_part: NDArray[Any] | None = None

    @property
    def leaves(self) -> int:
        return int((self.layer == 0).sum())

    @cached_property
    def neurons(self) -> int:
        return int(self.alpha.shape[1])

    @cached_property
    def slopes(self) -> csr_array[np.float64]:
        return _table(parts_of_one(self.slope), self.slope_at, self.slope_count, self.neurons)

    @cached_property
    def splits(self) -> csr_array[np.float64]:
        return _table(self.split.astype(np.float64), self.split_at, self.split_count, self.neurons)

    @cached_property
    def limits(self) -> Vector:
        return np.full(len(self.row), np.inf) if self.limit is None else self.limit.astype(np.float64)

    @cached_property
    def ends(self) -> tuple[Indices, Indices]:
        """Where each node's steps begin, where each step's uses begin."""
        return _starts(self.steps), _starts(self.uses)


#: Of the arrays that every tree has, of those that it may have, and of those that it has if it has facets: first of
#: objectives, then of rows.
NAMES = tuple(field.name for field in fields(StepTree) if field.default is MISSING)
OPTIONAL = tuple(field.name for field in fields(StepTree) if field.default is None)
FACETS = tuple(name for name in OPTIONAL if name.startswith("facet"))
ROW_FACETS = tuple(name for name in OPTIONAL if name.startswith("row_facet"))


class Objective(NamedTuple):
    """What makes the halfspace of a step, over all neurons."""

    alpha: Vector
    beta: Vector
    mu: Vector
    facets: Facets | None = None


class Passes(NamedTuple):
    """Rows of one layer, as a step uses them; columns are the neurons of all layers below."""

    neurons: Indices  # within the layer
    sides: Vector
    pulls: Vector
    lams: Vector
    slopes: Matrix
    betas: Matrix | None  # signed; None: all are zero
    limits: Vector | float = np.inf
    facets: Sequence[Facets | None] | None = None  # per row; None where no row has any

    def some(self, at: slice) -> Passes:
        """Some of the rows."""
        parts: Any = (part[at] if isinstance(part, np.ndarray | list) else part for part in self)
        return Passes(*parts)


def parts_of_one(values: NDArray[Any]) -> Vector:
    """Slopes as numbers: whole numbers stand for parts of the largest number of their type."""
    if values.dtype.kind == "u":
        return np.asarray(values / float(np.iinfo(values.dtype).max))
    return values.astype(np.float64)


def objective_of(tree: StepTree, at: int) -> Objective:
    """Objective number `at`, without its facets."""
    return Objective(parts_of_one(tree.alpha[at]), tree.beta[at].astype(np.float64), tree.mu[at].astype(np.float64))


def passes_of(tree: StepTree, which: slice, start: int) -> Passes:
    """The uses `which`, all of one layer, whose neurons begin at `start`; without their facets."""
    rows = tree.row[which].astype(np.intp)
    betas = tree.splits[rows]
    return Passes(
        tree.target[rows].astype(np.intp) - start,
        tree.side[rows].astype(np.float64),
        tree.pull[rows].astype(np.float64),
        tree.lam[which].astype(np.float64),
        tree.slopes[rows].toarray()[:, :start],
        betas.toarray()[:, :start] if betas.nnz else None,
        tree.limits[which],
    )


def layers_of(tree: StepTree, widths: tuple[int, ...], step: int) -> list[tuple[int, slice]]:
    """The layers (from 0) whose neurons a step bounds, in order, each with its uses."""
    begin, end = (int(tree.ends[1][step + i]) for i in range(2))
    starts = np.cumsum([0, *widths])
    layers = np.searchsorted(starts, tree.target[tree.row[begin:end]], side="right") - 1
    if (np.diff(layers) < 0).any():
        raise Rejected(f"step {step} does not go up the layers")
    cuts = np.flatnonzero(np.diff(layers)) + 1
    edges = [0, *cuts.tolist(), end - begin] if end > begin else []
    return [(int(layers[a]), slice(begin + a, begin + b)) for a, b in pairwise(edges)]


def check_arrays(tree: StepTree, widths: tuple[int, ...], rows: int) -> None:
    """Everything that can be wrong with the arrays before any proof; Rejected says what."""
    n = sum(widths)
    shapes = _shapes(tree, n, rows)
    for name, shape in shapes.items():
        array = getattr(tree, name)
        if array is None:
            continue
        if array.shape != shape:
            raise Rejected(f"the array {name} has shape {array.shape} where {shape} is needed")
        kinds = _KINDS[name]
        if array.dtype.kind not in kinds:
            raise Rejected(f"the array {name} holds {array.dtype}, which it must not")
    if not len(tree.layer):
        raise Rejected("a tree without nodes proves nothing")
    for name, values, top in (
        ("objective", tree.objective, len(tree.mu)),
        ("row", tree.row, len(tree.target)),
        ("target", tree.target, n),
        ("slope_at", tree.slope_at, n),
        ("split_at", tree.split_at, n),
    ):
        if len(values) and not (int(values.min()) >= 0 and int(values.max()) < top):
            raise Rejected(f"{name} names something that does not exist")
    _check_values(tree)
    _check_columns(tree, widths)


_WHOLE, _SLOPES, _REAL = "iu", "uf", "f"
_KINDS = {
    "layer": _WHOLE, "neuron": _WHOLE, "steps": _WHOLE, "objective": _WHOLE, "uses": _WHOLE, "row": _WHOLE,
    "lam": _REAL, "mu": _REAL, "alpha": _SLOPES, "beta": _REAL, "target": _WHOLE, "side": "i", "pull": _REAL,
    "slope_count": _WHOLE, "slope_at": _WHOLE, "slope": _SLOPES, "split_count": _WHOLE, "split_at": _WHOLE,
    "split": _REAL, "limit": _REAL,
}  # fmt: skip


def _shapes(tree: StepTree, n: int, rows: int) -> dict[str, tuple[int, ...]]:
    counts = {}
    for name in ("steps", "uses", "slope_count", "split_count"):
        counts[name] = counted(name, getattr(tree, name))
    if any(getattr(tree, name).ndim != 1 for name in ("layer", "target")) or tree.mu.ndim != 2:
        raise Rejected("the arrays layer and target must be lists, mu a table")
    nodes, table, objectives = len(tree.layer), len(tree.target), len(tree.mu)
    return {
        "layer": (nodes,), "neuron": (nodes,), "steps": (nodes,),
        "objective": (counts["steps"],), "uses": (counts["steps"],),
        "row": (counts["uses"],), "lam": (counts["uses"],), "limit": (counts["uses"],),
        "mu": (objectives, rows), "alpha": (objectives, n), "beta": (objectives, n),
        "target": (table,), "side": (table,), "pull": (table,),
        "slope_count": (table,), "slope_at": (counts["slope_count"],), "slope": (counts["slope_count"],),
        "split_count": (table,), "split_at": (counts["split_count"],), "split": (counts["split_count"],),
    }  # fmt: skip


def counted(name: str, values: NDArray[Any]) -> int:
    """The sum of a list of counts, which cannot overflow."""
    if values.ndim != 1 or values.dtype.kind not in _WHOLE or (len(values) and int(values.min()) < 0):
        raise Rejected(f"the array {name} must be a list of counts")
    return sum(int(v) for v in values.tolist())


def check_slopes(name: str, values: NDArray[Any]) -> None:
    """Numbers in [0, 1], or parts of the largest number of 8 or 16 bits."""
    if values.dtype.kind not in _SLOPES:
        raise Rejected(f"the array {name} holds {values.dtype}, which it must not")
    if values.dtype.kind == "f" and not ((values >= 0) & (values <= 1)).all():
        raise Rejected(f"a number in {name} is outside [0, 1]")
    if values.dtype.kind == "u" and values.dtype.itemsize > 2:
        raise Rejected(f"{name} holds whole numbers of more than 16 bits")


def _check_values(tree: StepTree) -> None:
    check_slopes("alpha", tree.alpha)
    check_slopes("slope", tree.slope)
    for name in ("lam", "mu", "beta", "pull"):
        values = getattr(tree, name)
        if not ((values >= 0) & (values <= LARGEST)).all():
            raise Rejected(f"a multiplier in {name} is negative, not finite or above {LARGEST:g}")
    if not (np.abs(tree.split) <= LARGEST).all():
        raise Rejected(f"a multiplier in split is not finite or above {LARGEST:g}")
    if np.isnan(tree.limits).any():
        raise Rejected("a limit is no number")
    if not (np.abs(tree.side.astype(np.int64)) == 1).all():
        raise Rejected("the side of a row is neither +1 nor -1")


def _check_columns(tree: StepTree, widths: tuple[int, ...]) -> None:
    """A row reads neurons of the layers below its own, each at most once; in the first layer there are none."""
    below = reads_below(tree, widths)
    for name in ("slope", "split"):
        count = getattr(tree, f"{name}_count").astype(np.int64)
        at = getattr(tree, f"{name}_at").astype(np.int64)
        owner = np.repeat(np.arange(len(count)), count)
        if (at >= below[owner]).any():
            raise Rejected(f"a row has a {name} for a neuron that is not below its own")
        if ((np.diff(at) <= 0) & (np.diff(owner) == 0)).any():
            raise Rejected(f"the neurons of a row's {name}s must increase")
    if tree.pull[below == 0].any():
        raise Rejected("a row of the first layer has a pull: its multiplier of the cap says the same")


def reads_below(tree: StepTree, widths: tuple[int, ...]) -> Indices:
    """For every row the first neuron that it cannot read: where the layer of its target begins."""
    starts = np.cumsum([0, *widths])
    return np.asarray(starts[np.searchsorted(starts, tree.target.astype(np.int64), side="right") - 1])


def _starts(counts: NDArray[Any]) -> Indices:
    return np.concatenate([np.zeros(1, np.intp), np.cumsum(counts.astype(np.intp))])


def _table(values: Vector, at: NDArray[Any], count: NDArray[Any], width: int) -> csr_array[np.float64]:
    return csr_array((values, at.astype(np.int64), _starts(count).astype(np.int64)), shape=(len(count), width))
