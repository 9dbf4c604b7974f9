"""Facets of neurons' hulls as rows of a node's program (program.py), added where the program's point violates them.

A row serves the nodes that follow as well; only its right side changes with the bounds of the node. Rows that have held
nothing for a while are dropped. What the multipliers say in the end is one line per neuron, the average of its facets:
its own constant is as good as theirs or better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from layercert.arrays import Indices, LinearMap, Mask, Matrix, Vector
from layercert.facets import Facets
from layercert.search.adaptive.hulls import Hulls, Lines

#: Rows that hold nothing in a second program are dropped: one with all facets that were ever violated takes five times
#: as long. In the tail nodes are much alike: there those stay that held something in one of so many programs, while
#: there are no more than this many times the free neurons.
MANY, IDLE, IDLE_TAIL = 0.5, 1, 8


@dataclass
class Layer:
    """The facets of one layer."""

    neurons: Indices
    parts: Matrix
    own: Indices  # the neurons' places among the free ones
    base: Vector  # what their rows' right sides are more than the offset
    row: Indices  # their rows, counted from the first facet's
    idle: Indices  # programs since they held anything


class Cuts:
    """The facets of one clause's program; their rows are its last ones."""

    def __init__(
        self, hulls: Hulls, free: Indices, inputs: Sequence[tuple[LinearMap, Vector]], highs: Any, before: int
    ) -> None:
        """`inputs`: those of each layer, as functions of the program's columns; `before`: other rows."""
        self.hulls, self.free, self.inputs, self.highs, self.before = hulls, free, inputs, highs, before
        self.layers: dict[int, Layer] = {}

    def __len__(self) -> int:
        return sum(len(layer.row) for layer in self.layers.values())

    def adapt(self, state: Matrix, U: float, live: Mask) -> None:
        """The rows' right sides in a node; a neuron that is off needs none."""
        count = len(self)
        if not count:
            return
        sides = np.empty(count)
        for k, layer in self.layers.items():
            lines = self.hulls.lines(k, layer.neurons, layer.parts, self.hulls.box(k, state, U))
            sides[layer.row] = np.where(live[layer.own], lines.offsets + layer.base, np.inf)
        rows = np.arange(self.before, self.before + count, dtype=np.int32)
        self.highs.changeRowsBounds(count, rows, np.full(count, -np.inf), sides)

    def look(self, opened: Indices, state: Matrix, point: Vector, U: float, violated: float) -> bool:
        """Add the facets that a point (the program's columns of inputs and outputs) violates by more than a share of
        the neuron's largest value; are there any?"""
        noff, any_found, n = self.hulls.noff, False, len(point) - len(self.free)
        for k, (H, h) in enumerate(self.inputs):
            neurons = opened[(opened >= noff[k]) & (opened < noff[k + 1])]
            if not len(neurons) or not self.hulls.has(k):
                continue
            outputs = point[n + np.searchsorted(self.free, neurons)]
            box = self.hulls.box(k, state, U)
            lines = self.hulls.violated(k, neurons, box, (np.asarray(H @ point + h), outputs), violated)
            if len(lines.neurons):
                self._add(k, lines)
                any_found = True
        return any_found

    def _add(self, k: int, lines: Lines) -> None:
        own, count, first = np.searchsorted(self.free, lines.neurons), len(lines.neurons), len(self)
        matrix, base = self._matrix(k, lines.neurons, lines.parts, own)
        self._rows(matrix, lines.offsets + base)
        fresh = Layer(lines.neurons, lines.parts, own, base, first + np.arange(count), np.zeros(count, np.intp))
        old = self.layers.get(k)
        if old is not None:
            fresh = Layer(*(np.concatenate([getattr(old, f.name), getattr(fresh, f.name)]) for f in fields(Layer)))
        self.layers[k] = fresh

    def _matrix(self, k: int, neurons: Indices, parts: Matrix, own: Indices) -> tuple[csr_array, Vector]:
        """Rows of facets of layer k, and what their right sides are more than the offsets."""
        H, h = self.inputs[k]
        rows, at = self.hulls.rows(k), neurons - int(self.hulls.noff[k])
        a, count, n = parts * rows.weights[at], len(at), int(H.shape[1]) - len(self.free)
        lined = np.repeat(np.arange(count), a.shape[1])
        K = csr_array((a.ravel(), (lined, rows.columns[at].ravel())), shape=(count, H.shape[0]))
        unit = csr_array((np.ones(count), (np.arange(count), n + own)), shape=(count, H.shape[1]))
        return csr_array(unit - K @ H), np.asarray(K @ h)

    def _rows(self, matrix: csr_array, sides: Vector) -> None:
        """Rows at the end of the program."""
        matrix.sort_indices()
        self.highs.addRows(
            len(sides), np.full(len(sides), -np.inf), sides, matrix.nnz,
            matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32), matrix.data,
        )  # fmt: skip

    def copies(self) -> dict[int, Layer]:
        """The facets as they are now; arrays are never changed in place."""
        return {k: replace(layer) for k, layer in self.layers.items()}

    def restore(self, layers: dict[int, Layer]) -> None:
        """The same rows in a program that has none yet; their right sides come with the node."""
        self.layers = {k: replace(layer) for k, layer in layers.items()}
        if not len(self):
            return
        parts = [self._matrix(k, layer.neurons, layer.parts, layer.own)[0] for k, layer in self.layers.items()]
        order = np.argsort(np.concatenate([layer.row for layer in self.layers.values()]))
        self._rows(csr_array(vstack(parts, format="csr")[order]), np.full(len(order), np.inf))

    def age(self, multipliers: Vector, tail: bool) -> None:
        """A program was solved: drop what holds nothing, in the tail what has held nothing for long.

        A row that is not basic, though its multiplier is 0, stays for now: without it the basis would have a row too
        few, and the next program nothing to go on from.
        """
        for layer in self.layers.values():
            layer.idle = np.where(multipliers[layer.row] > 0, 0, layer.idle + 1)
        if tail and len(self) <= MANY * len(self.free):
            return
        gone = np.zeros(len(self), np.bool_)
        for layer in self.layers.values():
            gone[layer.row[layer.idle > (IDLE_TAIL if tail else IDLE)]] = True
        if gone.any():
            gone &= self._are_basic()
        if not gone.any():
            return
        rows = (self.before + np.flatnonzero(gone)).astype(np.int32)
        self.highs.deleteRows(len(rows), rows)
        places = np.cumsum(~gone) - 1
        for k, layer in self.layers.items():
            stays = ~gone[layer.row]
            kept = Layer(*(getattr(layer, f.name)[stays] for f in fields(Layer)))
            kept.row = places[kept.row]
            self.layers[k] = kept

    def _are_basic(self) -> Mask:
        """Which facets the solver's basis does without; all where there is no basis."""
        import highspy

        basis = self.highs.getBasis()
        if not basis.valid:
            return np.ones(len(self), np.bool_)
        return np.array([status == highspy.HighsBasisStatus.kBasic for status in basis.row_status[self.before :]])

    def held(self, multipliers: Vector) -> Vector:
        """How much the facets hold the output of each free neuron."""
        held = np.zeros(len(self.free))
        for layer in self.layers.values():
            np.add.at(held, layer.own, multipliers[layer.row])
        return held

    def average(self, multipliers: Vector, chord: Vector) -> Facets | None:
        """One line per neuron, by the multipliers of its facets and of its chord; None without any."""
        neurons, shares, parts = list[Indices](), list[Vector](), list[Vector]()
        for k in sorted(self.layers):
            layer = self.layers[k]
            live = np.flatnonzero(multipliers[layer.row] > 0)
            if not len(live):
                continue
            own, at = np.unique(layer.own[live], return_inverse=True)
            mine = multipliers[layer.row[live]]
            sums, weight = np.zeros((len(own), layer.parts.shape[1])), np.zeros(len(own))
            np.add.at(sums, at, mine[:, None] * layer.parts[live])
            np.add.at(weight, at, mine)
            there = self.hulls.rows(k).there[self.free[own] - int(self.hulls.noff[k])]
            neurons.append(self.free[own])
            shares.append(weight / (weight + chord[own]))
            parts.append(np.clip((sums / weight[:, None])[there], 0.0, 1.0))
        return Facets(np.concatenate(neurons), np.concatenate(shares), np.concatenate(parts)) if neurons else None
