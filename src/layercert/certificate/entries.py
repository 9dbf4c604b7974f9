"""The rows of a network's hidden neurons, entry by entry, in the order in which certificates speak of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from layercert.arrays import Indices, LinearMap, Vector


class Entries(NamedTuple):
    """The nonzero entries in the rows of all hidden neurons, by increasing column."""

    begin: Indices  # per neuron: where its row begins; one more for the end
    column: NDArray[np.int32]  # in the layer below
    weight: Vector

    @property
    def counts(self) -> Indices:
        """Per neuron: how many its row has."""
        return np.diff(self.begin)


def entries_of(maps: Sequence[LinearMap]) -> Entries:
    """Of the hidden layers of a network, which are all maps but the last."""
    counts, columns, weights = [np.zeros(1, np.intp)], [np.zeros(0, np.int32)], [np.zeros(0)]
    for W in maps[:-1]:
        rows = csr_array(W, copy=True)
        rows.eliminate_zeros()
        rows.sort_indices()
        counts.append(np.diff(rows.indptr).astype(np.intp))
        columns.append(rows.indices.astype(np.int32))
        weights.append(rows.data)
    return Entries(np.cumsum(np.concatenate(counts)), np.concatenate(columns), np.concatenate(weights))
