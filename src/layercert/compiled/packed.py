"""A network as kernels see it: the hidden layers in flat arrays, so that one compiled function serves every shape.

The neurons of all layers are numbered through; layer k (counted from 0) has noff[k]..noff[k+1]. A layer with few zeros
is stored whole, row after row. Any other is stored twice: by rows (ptr, index, data), for passes from the input to the
output, and by columns (column, tindex, tdata), for passes back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from layercert.arrays import Indices, LinearMap, Mask, Matrix, Vector
from layercert.compiled.jit import inner_sums, njit_sums

#: A layer of which a larger part is filled is stored whole: contiguous rows are three times as fast as gathered ones.
FILLED = 0.3
#: Products with fewer rows that count than this part of all take these rows out first.
SPARE = 0.7


class PackedNetwork(NamedTuple):
    """The hidden layers. `whole[k]`: its rows are contiguous in data from start[k] on, and `index` is not used."""

    inputs: int
    noff: Indices
    whole: NDArray[np.bool_]
    start: Indices
    ptr: Indices  # per neuron: where its row begins in data
    index: NDArray[np.int32]  # type: ignore[assignment]  # column, in the layer below, of every entry of data
    data: Vector
    coff: Indices  # per layer: its first column in `column`
    column: Indices  # per column of layers that are not whole: where it begins in tdata
    tindex: NDArray[np.int32]
    tdata: Vector
    b: Vector
    order: Indices  # the neurons of each layer, those that read the same part of the layer below side by side


def pack(maps: tuple[LinearMap, ...], biases: tuple[Vector, ...]) -> PackedNetwork:
    """The hidden layers of a network: all maps but the last."""
    inputs = int(maps[0].shape[1])
    whole, starts, coff = [], [], []
    ptr, index, data = [np.zeros(1, np.intp)], [np.zeros(0, np.int32)], [np.zeros(0)]
    column, tindex, tdata = [np.zeros(1, np.intp)], [np.zeros(0, np.int32)], [np.zeros(0)]
    orders = [np.zeros(0, np.intp)]
    entries = columns = flipped = neurons = 0
    for W in maps[:-1]:
        rows, width = int(W.shape[0]), int(W.shape[1])
        filled = int(np.count_nonzero(W) if isinstance(W, np.ndarray) else W.nnz)
        starts.append(entries)
        coff.append(columns)
        whole.append(filled > FILLED * rows * width)
        if whole[-1]:
            dense: Matrix = W if isinstance(W, np.ndarray) else W.toarray()
            data.append(dense.ravel())
            index.append(np.zeros(rows * width, np.int32))
            ptr.append(entries + width * np.arange(1, rows + 1, dtype=np.intp))
            orders.append(neurons + np.arange(rows, dtype=np.intp))
            entries += rows * width
        else:
            by_rows, by_columns = csr_array(W), csc_array(W)
            data.append(by_rows.data)
            index.append(by_rows.indices.astype(np.int32))
            ptr.append(entries + by_rows.indptr[1:].astype(np.intp))
            tdata.append(by_columns.data)
            tindex.append(by_columns.indices.astype(np.int32))
            column.append(flipped + by_columns.indptr[1:].astype(np.intp))
            heads = np.where(np.diff(by_rows.indptr) > 0, np.append(by_rows.indices, 0)[by_rows.indptr[:-1]], 0)
            orders.append(neurons + np.argsort(heads, kind="stable").astype(np.intp))
            entries, columns, flipped = entries + by_rows.nnz, columns + width, flipped + by_rows.nnz
        neurons += rows
    return PackedNetwork(
        inputs=inputs,
        noff=np.cumsum([0, *(W.shape[0] for W in maps[:-1])]).astype(np.intp),
        whole=np.array(whole, np.bool_),
        start=np.array(starts, np.intp),
        ptr=np.concatenate(ptr),
        index=np.concatenate(index),
        data=np.concatenate(data),
        coff=np.array(coff, np.intp),
        column=np.concatenate(column),
        tindex=np.concatenate(tindex),
        tdata=np.concatenate(tdata),
        b=np.concatenate([np.zeros(0), *biases[:-1]]),
        order=np.concatenate(orders),
    )


@inner_sums
def row_dot(net: PackedNetwork, k: int, i: int, values: Vector, first: int) -> float:
    """Row i (a neuron of layer k) times values[first..], the layer below."""
    total = 0.0
    if net.whole[k]:
        at = net.ptr[i]
        for j in range(net.ptr[i + 1] - at):
            total += net.data[at + j] * values[first + j]
    else:
        for t in range(net.ptr[i], net.ptr[i + 1]):
            total += net.data[t] * values[first + net.index[t]]
    return total


@inner_sums
def row_add(net: PackedNetwork, k: int, i: int, factor: float, values: Vector, first: int) -> None:
    """values[first..] += factor * row i."""
    if net.whole[k]:
        at = net.ptr[i]
        for j in range(net.ptr[i + 1] - at):
            values[first + j] += factor * net.data[at + j]
    else:
        for t in range(net.ptr[i], net.ptr[i + 1]):
            values[first + net.index[t]] += factor * net.data[t]


@njit_sums
def matrix(net: PackedNetwork, k: int) -> Matrix:
    """Layer k as a matrix; it must be whole."""
    rows = net.noff[k + 1] - net.noff[k]
    width = net.inputs if k == 0 else net.noff[k] - net.noff[k - 1]
    return net.data[net.start[k] : net.start[k] + rows * width].reshape((rows, width))


@njit_sums
def times_layer(net: PackedNetwork, k: int, H: Matrix) -> Matrix:
    """W^k H: one column of H per lane, lanes are contiguous."""
    if net.whole[k]:
        return np.dot(matrix(net, k), H)
    base, rows, lanes = net.noff[k], net.noff[k + 1] - net.noff[k], H.shape[1]
    out = np.empty((rows, lanes))
    for i in range(rows):
        gather(net.data, net.index, net.ptr[base + i], net.ptr[base + i + 1], H, out[i])
    return out


@njit_sums
def times_transposed(net: PackedNetwork, k: int, A: Matrix, live: Mask) -> tuple[Matrix, Mask]:
    """A^T W^k, transposed: what coefficients A of layer k (neurons x lanes) become in the layer below; which are live.

    Rows of A that are not `live` are zero, whatever is written there.
    """
    rows, lanes = A.shape
    below = np.ones(net.inputs if k == 0 else net.noff[k] - net.noff[k - 1], np.bool_)
    count = 0
    at = np.empty(rows, np.int32)
    for i in range(rows):
        if live[i]:
            at[count] = i
            count += 1
    if net.whole[k]:
        W = matrix(net, k)
        if count < SPARE * rows:
            width = W.shape[1]
            part, few = np.empty((count, width)), np.empty((count, lanes))
            for i in range(count):
                for j in range(width):
                    part[i, j] = W[at[i], j]
                for j in range(lanes):
                    few[i, j] = A[at[i], j]
            return np.dot(part.T, few), below
        for i in range(rows):
            if not live[i]:
                for j in range(lanes):
                    A[i, j] = 0.0
        return np.dot(W.T, A), below
    width = len(below)
    out = np.empty((width, lanes))
    kept_index, kept = np.empty(rows, np.int32), np.empty(rows)
    for c in range(width):
        count = 0
        for t in range(net.column[net.coff[k] + c], net.column[net.coff[k] + c + 1]):
            i = net.tindex[t]
            if live[i]:
                kept_index[count] = i
                kept[count] = net.tdata[t]
                count += 1
        below[c] = count > 0
        gather(kept, kept_index, 0, count, A, out[c])
    return out, below


@inner_sums
def gather(data: Vector, index: NDArray[np.int32], start: int, stop: int, H: Matrix, out: Vector) -> None:
    """out = the sum of data[t] H[index[t]] for t in start..stop-1, four rows of H at a time."""
    lanes = len(out)
    for r in range(lanes):
        out[r] = 0.0
    t = start
    while t + 4 <= stop:
        i, j, k, m = index[t], index[t + 1], index[t + 2], index[t + 3]
        a, b, c, d = data[t], data[t + 1], data[t + 2], data[t + 3]
        for r in range(lanes):
            out[r] += a * H[i, r] + b * H[j, r] + c * H[k, r] + d * H[m, r]
        t += 4
    while t < stop:
        i, a = index[t], data[t]
        for r in range(lanes):
            out[r] += a * H[i, r]
        t += 1
