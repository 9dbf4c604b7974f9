"""Upper lines of a neuron over its inputs: what the triangle does not know of the box that these come from.

For every vector a, and z = w.x + b with x in a box,

    relu(z) <= a.x + c,    c = max(max -a.x, b + max (w - a).x)    with the maxima over the box,

since relu is the larger of 0 and z. The triangle's chord is a = slope w, with a c from bounds of z; other a cut off
points of it. Those that bound the convex hull of the neuron's graph over the box take a_j = w_j for some inputs, 0 for
others and something between for one of them (Anderson et al., Strong mixed-integer programming formulations for
trained neural networks, 2020), and sorting the inputs by where they are in the box finds the most violated one. A
neuron of a convolution has few inputs, and there the hull is much smaller than the triangle.

A facet is known by its parts t in [0, 1] of the weights, a = t w. It is a line in every node: c follows from the bounds
that the node has for the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import TINY, Indices, LinearMap, Mask, Matrix, Vector, gamma
from layercert.facets import Facets
from layercert.search.adaptive.bent import Bends
from layercert.search.adaptive.model import HI, LO, PHASE, FacetTable, Model, open_mask

#: A facet is worth a row of a program if the point is above it by this share of the neuron's largest value.
VIOLATED, VIOLATED_TAIL = 1e-2, 1e-3
#: Layers with more weights than this have no facets: wide rows gain nothing by them.
MOST_ENTRIES = 1 << 22


class Rows(NamedTuple):
    """The rows of a layer side by side, short ones filled up with zeros."""

    columns: Indices
    weights: Matrix
    there: Mask  # which entries are no filling
    bias: Vector


class Lines(NamedTuple):
    """Upper lines of some neurons of one layer: parts of the weights, as in Rows, and the constants in some node."""

    neurons: Indices
    parts: Matrix
    offsets: Vector


class Hulls:
    """The layers of a ball, as facets see them."""

    def __init__(self, maps: Sequence[LinearMap], model: Model, root: Matrix) -> None:
        self.maps, self.model, self.noff, self.root = maps, model, model.net.noff, root
        self.rows = cache(self._rows)

    def has(self, k: int) -> bool:
        """Is layer k narrow enough?"""
        W = self.maps[k]
        return int(W.shape[0]) * int(np.diff(W.indptr).max(initial=0)) <= MOST_ENTRIES

    def _rows(self, k: int) -> Rows:
        W = csr_array(self.maps[k], copy=True)
        W.eliminate_zeros()
        W.sort_indices()
        counts = np.diff(W.indptr)
        width = max(int(counts.max(initial=0)), 1)
        there = np.arange(width) < counts[:, None]
        at = np.where(there, W.indptr[:-1, None] + np.arange(width), 0)
        none = W.nnz == 0
        columns = np.zeros(at.shape, np.intp) if none else np.where(there, W.indices[at], 0).astype(np.intp)
        weights = np.zeros(at.shape) if none else np.where(there, W.data[at], 0.0)
        first, last = int(self.noff[k]), int(self.noff[k + 1])
        return Rows(columns, weights, there, (self.model.z0 if k == 0 else self.model.net.b)[first:last])

    def box(self, k: int, state: Matrix, U: float) -> tuple[Vector, Vector]:
        """Of the inputs of layer k at the unsafe points of a node; those of the first one are offsets from x."""
        if k == 0:
            return np.maximum(self.model.box_lo, -U), np.minimum(self.model.box_hi, U)
        part = slice(int(self.noff[k - 1]), int(self.noff[k]))
        on = state[PHASE, part] >= 0
        return np.maximum(state[LO, part], 0.0) * on, np.maximum(state[HI, part], 0.0) * on

    def lines(self, k: int, neurons: Indices, parts: Matrix, box: tuple[Vector, Vector]) -> Lines:
        """The lines with these parts, their constants rounded up."""
        rows, own = self.rows(k), neurons - int(self.noff[k])
        columns, weights, bias = rows.columns[own], rows.weights[own], rows.bias[own]
        low, high = box[0][columns], box[1][columns]
        a = parts * weights
        rest = weights - a
        off = np.maximum(-a * low, -a * high).sum(axis=1)
        on = np.maximum(rest * low, rest * high).sum(axis=1) + bias
        size = (np.abs(weights) * np.maximum(np.abs(low), np.abs(high))).sum(axis=1) + np.abs(bias)
        noise = 8.0 * gamma(2 * weights.shape[1] + 64) * size + self.model.Q[neurons] + TINY
        return Lines(neurons, parts, np.maximum(off, on) + noise)

    def violated(
        self, k: int, neurons: Indices, box: tuple[Vector, Vector], point: tuple[Vector, Vector], by: float = VIOLATED
    ) -> Lines:
        """Facets that cut off a point (inputs of the layer, outputs of the neurons), the most violated of each."""
        rows, own = self.rows(k), neurons - int(self.noff[k])
        columns, weights = rows.columns[own], rows.weights[own]
        low, high = box[0][columns], box[1][columns]
        inputs, outputs = point
        least = np.where(weights >= 0, low, high)  # where each term of z is least
        width = high - low
        rise = np.abs(weights) * width
        there = np.abs(inputs[columns] - least) / np.where(width > 0, width, 1.0)
        order = np.argsort(there, axis=1, kind="stable")
        rises = np.take_along_axis(rise, order, axis=1)
        # z at most, minus what the inputs so far can take from it: they are in the facet until that is below zero
        most = (weights * least).sum(axis=1) + rise.sum(axis=1) + rows.bias[own]
        left = most[:, None] - np.cumsum(rises, axis=1)
        share = np.clip((left + rises) / np.where(rises > 0, rises, 1.0), 0.0, 1.0)
        parts = np.empty_like(share)
        np.put_along_axis(parts, order, share, axis=1)
        found = self.lines(k, neurons, parts, box)
        value = (parts * weights * inputs[columns]).sum(axis=1) + found.offsets
        keep = np.flatnonzero(outputs > value + by * np.maximum(most, 0.0))
        return Lines(found.neurons[keep], parts[keep], found.offsets[keep])

    def bends(self, state: Matrix, facets: Facets, U: float) -> Bends:
        """Facets as the passes of a node read them."""
        neurons, N = facets.neurons, state.shape[1]
        counts = self._entries(neurons)
        begin, sizes = np.zeros(N + 1, np.intp), np.zeros(N, np.intp)
        sizes[neurons] = counts
        np.cumsum(sizes, out=begin[1:])
        share, constant, size = np.zeros(N), np.zeros(N), np.zeros(N)
        share[neurons] = np.where(open_mask(state)[neurons], facets.shares, 0.0)
        ends = np.append(0, np.cumsum(counts))
        columns, weights = [np.zeros(0, np.int32)], [np.zeros(0)]
        for k in range(len(self.noff) - 1):
            first, last = np.searchsorted(neurons, self.noff[k : k + 2])
            if first == last:
                continue
            rows, own = self.rows(k), neurons[first:last] - int(self.noff[k])
            there, parts = rows.there[own], np.zeros((last - first, rows.weights.shape[1]))
            parts[there] = facets.parts[ends[first] : ends[last]]
            box = self.box(k, state, U)
            lines, a = self.lines(k, neurons[first:last], parts, box), parts * rows.weights[own]
            far = np.maximum(np.abs(box[0]), np.abs(box[1]))[rows.columns[own]]
            constant[neurons[first:last]] = lines.offsets
            terms = (np.abs(a) * far).sum(axis=1) + np.abs(lines.offsets)
            size[neurons[first:last]] = 8.0 * self.model.noise * terms
            columns.append(rows.columns[own][there].astype(np.int32))
            weights.append(a[there])
        return Bends(share, begin, np.concatenate(columns), np.concatenate(weights), constant, size, np.zeros(N))

    def table(self, facets: Facets, U: float) -> FacetTable:
        """Facets for all nodes of a clause, in the ball of radius U and smaller ones."""
        neurons = facets.neurons
        ends = np.append(0, np.cumsum(self._entries(neurons)))
        first = np.searchsorted(neurons, self.noff).astype(np.intp)
        columns, weights, rests, noise = [np.zeros(0, np.int32)], [np.zeros(0)], [np.zeros(0)], np.zeros(len(neurons))
        for k in range(len(self.noff) - 1):
            own = slice(int(first[k]), int(first[k + 1]))
            if own.start == own.stop:
                continue
            rows, at = self.rows(k), neurons[own] - int(self.noff[k])
            there, w = rows.there[at], rows.weights[at]
            far = np.maximum(np.abs(self.root_box(k, U)[0]), np.abs(self.root_box(k, U)[1]))[rows.columns[at]]
            size = (np.abs(w) * far).sum(axis=1) + np.abs(rows.bias[at])
            noise[own] = 16.0 * self.model.noise * size + TINY
            a = facets.parts[ends[own.start] : ends[own.stop]] * w[there]
            columns.append(rows.columns[at][there].astype(np.int32))
            weights.append(a)
            rests.append(w[there] - a)
        return FacetTable(
            first, neurons.astype(np.intp), ends.astype(np.intp), np.concatenate(columns), np.concatenate(weights),
            np.concatenate(rests), noise, *self.root_box(0, U),
        )  # fmt: skip

    def root_box(self, k: int, U: float) -> tuple[Vector, Vector]:
        """Of the inputs of layer k in the whole ball."""
        return self.box(k, self.root, U)

    def _entries(self, neurons: Indices) -> Indices:
        """How many weights some neurons have."""
        counts = np.zeros(len(neurons), np.intp)
        layer = np.searchsorted(self.noff, neurons, side="right") - 1
        for k in np.unique(layer):
            mine = layer == k
            counts[mine] = self.rows(int(k)).there[neurons[mine] - int(self.noff[k])].sum(axis=1)
        return counts
