"""Partial activation patterns as a tree of cells, with affine maps composed one layer at a time (eqs 3-6, 8).

A cell is an l-layer pattern A = (A_1..A_l). The pre-activations of layer l+1 are one affine function on its region;
that map hangs at the cell and is shared by all its children, so a sibling costs no linear algebra at all and a child
costs one product with the next weight matrix.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from layercert.arrays import TINY, Indices, Mask, Matrix, Signs, Vector, gamma
from layercert.geometry.polyhedron import Polyhedron
from layercert.geometry.rowspace import RowSpace
from layercert.problem import Clause, Problem
from layercert.system import clock

#: Rows between two looks at the clock.
SLICE = 128


@dataclass(frozen=True, eq=False)
class LayerMap:
    """z(x + w) = G w + z for one layer, with rounding margins."""

    problem: Problem
    G: Matrix
    z: Vector
    slack: Vector
    growth: Vector
    _near: list[Any] = field(default_factory=lambda: [None, None])

    @cached_property
    def reach(self) -> Vector:
        """Proved lower bounds of the distance from x to each {z_j = 0}; inf for a constant neuron."""
        # the hyperplane lies where the function falls to zero: towards -G from z > 0, towards +G from z < 0
        reach = np.empty(len(self.z))
        for start in range(0, len(reach), SLICE):
            clock.check()
            part = slice(start, start + SLICE)
            G, z, slack, growth = self.G[part], self.z[part], self.slack[part], self.growth[part]
            falling = np.where(z[:, None] >= 0, G, -G)
            bound = self.problem.norm.prove_halfspace(falling, np.abs(z) - slack, self.problem.box, growth)
            reach[part] = np.where(G.any(axis=1), bound, np.inf)
        return reach

    def near(self, U: float) -> Indices:
        """Neurons whose hyperplane meets the ball; a constant neuron never does."""
        if self._near[0] != U:  # U changes rarely, and siblings ask alike
            self._near[:] = U, np.flatnonzero(self.reach < U)
        found: Indices = self._near[1]
        return found

    def rows(self, signs: Signs, keep: Indices, A: Matrix) -> Vector:
        """The rows s_j z_j >= 0 of the kept neurons as A w <= r (eq. 6); A is written to, r returned."""
        s = signs[keep].astype(np.float64)
        np.multiply(self.G[keep], -s[:, None], out=A)
        return s * self.z[keep]


def row_margins(problem: Problem, space: RowSpace | None = None) -> tuple[list[Vector], list[Vector], float]:
    """Slack and growth of the rows of every layer, the output's last (see `Cells`), and the relative part of growth."""
    mag = np.abs(problem.x)
    grow = np.abs(problem.network.weights[0] if space is None else space.rows)
    moved = np.zeros(0) if space is None else space.error
    operations = 8
    slack, growth = [], []
    for i, (W, b) in enumerate(zip(problem.network.weights, problem.network.biases, strict=True)):
        clock.check()
        operations += W.shape[1] + 4
        size = np.abs(W)
        mag = size @ mag + np.abs(b)
        if i > 0:
            grow = size @ grow
            moved = moved if space is None else size @ moved
        # twice the bound: once for the composition, once for evaluating a row at a point
        slack.append(2.0 * gamma(operations) * mag + TINY)
        own = 2.0 * gamma(operations) * problem.norm.dual(grow)
        growth.append(own if space is None else own + (1.0 + gamma(operations)) * moved)
    return slack, growth, gamma(operations)


class Cells:
    """The hierarchy of one problem: makes cells, and knows the rounding error of every layer.

    |computed - true| <= gamma * (mag + grow.|w|) where mag and grow push |x| and |w| through the absolute weights: the
    same bound for every pattern, since a pattern only removes terms. With a row space all offsets are coordinates in
    it, and its own error is pushed through the absolute weights like the rest.
    """

    def __init__(self, problem: Problem, space: RowSpace | None = None) -> None:
        self.problem = problem
        self.network = problem.network
        self.space = space
        self.first_rows: Matrix = self.network.weights[0] if space is None else space.rows
        #: Dimensions of the offsets from x.
        self.inputs: int = self.first_rows.shape[1]
        # growth of the outputs is at least twice `share` of |W^L|..|W^0|
        self._slack, self._growth, self.share = row_margins(problem, space)
        self.root = Cell(self, None, np.zeros(0, np.int8))

    def offset(self, v: Vector) -> Vector:
        """The offset in R^n of a point of the hierarchy."""
        return v if self.space is None else self.space.lift(v)

    def coordinates(self, w: Vector) -> Vector:
        """The point of the hierarchy for an offset in R^n."""
        return w if self.space is None else self.space.coordinates(w)

    def below(self, A: Cell) -> LayerMap:
        """The map of layer l+1 on the region of A (the output, for a full pattern): eq. 4, one layer at a time."""
        W, b = self.network.weights[A.level], self.network.biases[A.level]
        if A.parent is None:
            G, z = self.first_rows, W @ self.problem.x + b
        else:
            above = A.parent.below
            on = A.signs > 0
            active = np.ascontiguousarray(W[:, on])
            G, z = active @ above.G[on], active @ above.z[on] + b
        return LayerMap(self.problem, G, z, self._slack[A.level], self._growth[A.level])

    def unsafe(self, A: Cell, clause: Clause) -> Polyhedron:
        """The rows C f(x + w) <= d of one clause on the full region of A, as in problem (7)."""
        f = A.below
        size = np.abs(clause.C)
        extra = 1.0 + gamma(4 * len(f.z))
        # the combination of outputs adds roundings of its own
        own = gamma(4 * len(f.z)) * (size @ np.abs(f.z) + np.abs(clause.d))
        growth = size @ f.growth
        grown = gamma(4 * len(f.z)) / self.share * growth  # no row of G is longer than its growth / share
        return Polyhedron(
            clause.C @ f.G, clause.d - clause.C @ f.z, size @ f.slack * extra + own + TINY, growth * extra + grown
        )

    def of(self, signs: Sequence[Signs]) -> Cell:
        """The cell of a pattern given layer by layer."""
        cell = self.root
        for s in signs:
            cell = Cell(self, cell, s)
        return cell

    def first(self, w: Vector) -> Cell:
        """The one-layer pattern of x + w (the root itself when the network has no hidden layer)."""
        return self.root if self.network.L == 0 else self.root.next_layer(w)

    def full(self, w: Vector) -> Cell:
        """The full pattern of x + w."""
        cell = self.root
        while not cell.is_full:
            cell = cell.next_layer(w)
        return cell


class Cell:
    """One l-layer activation pattern; R_A is its closed region. Hashable by `key`."""

    __slots__ = ("_below", "cells", "key", "level", "parent", "signs")

    def __init__(self, cells: Cells, parent: Cell | None, signs: Signs) -> None:
        self.cells = cells
        self.parent = parent
        self.signs = signs
        self.level: int = 0 if parent is None else parent.level + 1
        self.key: bytes = b"" if parent is None else parent.key + np.packbits(signs > 0).tobytes()
        self._below: LayerMap | None = None

    @property
    def is_full(self) -> bool:
        return self.level == self.cells.network.L

    @property
    def pattern(self) -> tuple[Signs, ...]:
        """(A_1, .., A_l)."""
        return () if self.parent is None else (*self.parent.pattern, self.signs)

    @property
    def below(self) -> LayerMap:
        """The map of layer l+1 on this region (the output, for a full pattern)."""
        if self._below is None:
            clock.check()
            self._below = self.cells.below(self)
        return self._below

    @property
    def above(self) -> LayerMap:
        """The map of the cell's own layer, whose signs it holds."""
        assert self.parent is not None
        return self.parent.below

    def lineage(self) -> list[Cell]:
        """The cells from layer 1 down to this one."""
        chain: list[Cell] = []
        cell: Cell | None = self
        while cell is not None and cell.parent is not None:
            chain.append(cell)
            cell = cell.parent
        return chain[::-1]

    def beyond(self, U: float) -> bool:
        """Proved farther than U at sight: x is on the wrong side of a hyperplane that does not meet the ball."""
        for cell in self.lineage():
            above = cell.above
            wrong = cell.signs * above.z < -above.slack
            if bool((wrong & (above.reach >= U)).any()):
                return True
        return False

    def region(self, U: float, *others: Polyhedron) -> tuple[Polyhedron, list[tuple[int, int]]]:
        """R_A inside the ball of radius U (eq. 6, layers 1..l [E5]), with others; the (layer, neuron) of its own rows.

        Rows whose hyperplane does not meet the ball are left out (Appendix C): inside the ball they hold anyway.
        """
        kept = [(cell, cell.above, cell.above.near(U)) for cell in self.lineage()]
        ids = [(cell.level, j) for cell, _, keep in kept for j in keep.tolist()]
        if not kept and not others:
            return Polyhedron.everything(self.cells.inputs), ids
        A = np.empty((len(ids) + sum(map(len, others)), self.cells.inputs))  # rows are long: they are written once
        r: list[Vector] = []
        start = 0
        for cell, above, keep in kept:
            r.append(above.rows(cell.signs, keep, A[start : start + len(keep)]))
            start += len(keep)
        for other in others:
            A[start : start + len(other)] = other.A
            start += len(other)
        return Polyhedron(
            A,
            np.concatenate([*r, *(other.r for other in others)]),
            np.concatenate([*(above.slack[keep] for _, above, keep in kept), *(other.slack for other in others)]),
            np.concatenate([*(above.growth[keep] for _, above, keep in kept), *(other.growth for other in others)]),
        ), ids

    def unsafe(self, clause: Clause) -> Polyhedron:
        """The rows of one clause on this full region."""
        return self.cells.unsafe(self, clause)

    def flip(self, layer: int, neuron: int) -> Cell:
        """The neighbouring pattern that differs in one neuron; a sibling when the layer is the cell's own."""
        if layer == self.level:
            signs = self.signs.copy()
            signs[neuron] = -signs[neuron]
            return Cell(self.cells, self.parent, signs)
        assert self.parent is not None
        return Cell(self.cells, self.parent.flip(layer, neuron), self.signs)

    def next_layer(self, w: Vector) -> Cell:
        """The child whose region holds x + w (w comes from a solver, so signs within rounding are a free choice [E8]).

        A neuron that is zero at x + w up to rounding may get either sign: both closed regions hold the point, and both
        are reached from here by faces that hold it, because faces are tested with the rounding margin of their rows.
        """
        below = self.below
        z = below.G @ w + below.z
        return Cell(self.cells, self, np.where(z >= 0, 1, -1).astype(np.int8))

    def may_flip(self, U: float) -> Mask:
        """Neurons of the cell's own layer whose hyperplane meets the ball; a constant neuron never flips."""
        return self.above.reach < U

    def __repr__(self) -> str:
        text = "|".join("".join("+" if s > 0 else "-" for s in layer) for layer in self.pattern)
        return f"Cell({text})"


class CellStore:
    """Remembers recent cells by key, so that neighbours found from several sides share their maps (GeoCert)."""

    def __init__(self, cells: Cells, capacity: int = 4096) -> None:
        self._cells = cells
        self._capacity = capacity
        self._known: OrderedDict[bytes, Cell] = OrderedDict()

    def of(self, signs: Sequence[Signs]) -> Cell:
        cell = self._cells.root
        for s in signs:
            fresh = Cell(self._cells, cell, s)
            cell = self._known.setdefault(fresh.key, fresh)
            self._known.move_to_end(cell.key)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return cell
