"""Convolutions and pooling, in any number of spatial dimensions: which entries lie under each position of a window."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import block_diag, csr_array

from layercert.arrays import Indices, Mask, Sparse
from layercert.io.affine import Affine, Constant, Shape, sized
from layercert.io.ops.node import Node, Value
from layercert.io.ops.piecewise import greatest

#: A convolution with more weights as a sparse matrix is refused: 12 bytes each, and some copies on the way.
MOST_ENTRIES = 2**28


@dataclass(frozen=True, eq=False)
class Windows:
    """under[i, k] is the spatial position (flattened) under place k of window i, where inside[i, k]."""

    shape: Shape  # of the output's spatial axes
    under: Indices
    inside: Mask
    padded: Mask  # inside the image or its padding: with ceil_mode a window may reach beyond both


def windows(node: Node, space: Shape, kernel: Shape) -> Windows:
    """Where the windows of a node lie, by its attributes strides, dilations, pads, auto_pad and ceil_mode."""
    d = len(space)
    strides, dilations = (node.attributes.get(k) or [1] * d for k in ("strides", "dilations"))
    reach = [(k - 1) * s + 1 for k, s in zip(kernel, dilations, strict=True)]
    pads = _pads(node, space, strides, reach)
    if node.op in ("AveragePool", "MaxPool") and node.text("auto_pad", "").startswith("SAME"):
        _check_same(node, space, kernel, reach, strides)
    under = np.zeros((1,) * (2 * d), np.intp)
    inside, padded = np.ones((1,) * (2 * d), np.bool_), np.ones((1,) * (2 * d), np.bool_)
    shape = []
    for axis, (n, stride, dilation, (before, after)) in enumerate(zip(space, strides, dilations, pads, strict=True)):
        room = n + before + after - reach[axis]
        if room < 0:
            raise ValueError(f"a window of {reach[axis]} does not fit into {n} with padding {before} and {after}")
        count = room // stride + 1
        if node.attributes.get("ceil_mode", 0):
            count = -(-room // stride) + 1
            if (count - 1) * stride >= n + before:  # a window must not begin in the padding behind
                count -= 1
        shape.append(count)
        sized((*shape, *kernel[: axis + 1]))
        position = np.arange(count)[:, None] * stride - before + np.arange(kernel[axis]) * dilation
        at = [1] * (2 * d)
        at[axis], at[d + axis] = position.shape
        position = position.reshape(at)
        under = under * n + position
        inside = inside & (position >= 0) & (position < n)
        padded = padded & (position < n + after)
    whole = (math.prod(shape), math.prod(kernel))
    full = np.broadcast_shapes(under.shape, inside.shape, padded.shape)
    under, inside, padded = (np.broadcast_to(a, full).reshape(whole) for a in (under, inside, padded))
    return Windows(tuple(shape), under, inside, padded)


def _pads(node: Node, space: Shape, strides: Any, reach: list[int]) -> list[tuple[int, int]]:
    kind = node.text("auto_pad", "NOTSET")
    d = len(space)
    if kind in ("NOTSET", ""):
        pads = node.attributes.get("pads") or [0] * (2 * d)
        return list(zip(pads[:d], pads[d:], strict=True))
    if kind == "VALID":
        return [(0, 0)] * d
    if kind not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.refuse(f"has auto_pad {kind!r}; supported: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    result = []
    for n, stride, window in zip(space, strides, reach, strict=True):
        total = max((-(-n // stride) - 1) * stride + window - n, 0)
        less, more = total // 2, total - total // 2
        result.append((less, more) if kind == "SAME_UPPER" else (more, less))
    return result


def _check_same(node: Node, space: Shape, kernel: Shape, reach: list[int], strides: Any) -> None:
    """Where SAME would pad by less than nothing, or windows have gaps, runtimes place the windows of a pool elsewhere
    than the standard says, or not at all."""
    gaps = any(wide > k for wide, k in zip(reach, kernel, strict=True))
    if gaps or any((-(-n // s) - 1) * s + k < n for n, s, k in zip(space, strides, kernel, strict=True)):
        raise node.refuse(
            "has auto_pad SAME with dilations, or with strides that skip the end, which runtimes read in several ways; "
            "export it with its padding as numbers (pads)"
        )


def image(node: Node, x: Value) -> tuple[Affine, int, Shape]:
    if not isinstance(x, Affine):
        raise node.refuse("is taken of a constant; only values computed from the network's input are supported")
    if len(x.shape) < 3 or x.shape[0] != 1:
        raise node.refuse(f"expects one input with channels and space, (1, channels, ...), got shape {x.shape}")
    return x, x.shape[1], x.shape[2:]


def conv(node: Node) -> Value:
    x, channels, space = image(node, node.value(0))
    W = node.constant(1, "weights")
    groups = node.attributes.get("group", 1)
    if W.ndim != len(x.shape) or W.shape[1] * groups != channels or W.shape[0] % groups:
        raise node.refuse(f"has weights of shape {W.shape} in {groups} groups, which do not fit shape {x.shape}")
    strides = node.attributes.get("strides") or [1] * len(space)
    entries = W.size * math.prod(n / stride for n, stride in zip(space, strides, strict=True))
    if entries > MOST_ENTRIES:
        raise node.refuse(
            f"would have about {entries:.2g} weights as a matrix, on an image of {' x '.join(map(str, space))}; "
            f"supported are {MOST_ENTRIES:.2g}, which take {MOST_ENTRIES * 12 / 2**30:.0f} GiB; use a smaller image"
        )
    w = windows(node, space, W.shape[2:])
    y = x.mapped(convolution(W, w, groups, math.prod(space)), (1, W.shape[0], *w.shape))
    if not node.has(2):
        return y
    return y.plus(node.constant(2, "bias").reshape(-1, *(1 for _ in space)))


def convolution(W: Constant, w: Windows, groups: int, places: int) -> Sparse:
    """The convolution as a sparse matrix: row (m, i) holds W[m] at the entries under window i."""
    out, depth = W.shape[0] // groups, W.shape[1]
    windows_, kernel = w.inside.shape
    mask = np.broadcast_to(w.inside[:, None, :], (windows_, depth, kernel))
    data, indices = [], []
    for g in range(groups):
        channel = (g * depth + np.arange(depth)) * places
        columns = (w.under[:, None, :] + channel[None, :, None])[mask].astype(np.int32)
        for m in range(g * out, (g + 1) * out):
            data.append(np.broadcast_to(W[m].reshape(1, depth, kernel), mask.shape)[mask].astype(np.float64))
            indices.append(columns)
    count = np.tile(w.inside.sum(axis=1) * depth, W.shape[0])
    indptr = np.concatenate([[0], np.cumsum(count)])
    shape = (W.shape[0] * windows_, groups * depth * places)
    return csr_array((np.concatenate(data), np.concatenate(indices), indptr), shape=shape)


def average_pool(node: Node) -> Value:
    """The mean of each window: of the entries inside the image, or with count_include_pad of the padding too."""
    x, channels, space = image(node, node.value(0))
    w = windows(node, space, tuple(node.attributes["kernel_shape"]))
    counted = w.padded if node.attributes.get("count_include_pad", 0) else w.inside
    size = counted.sum(axis=1)
    if not size.all():
        raise node.refuse("has a window that lies in the padding alone")
    data = np.repeat(1.0 / size, w.inside.sum(axis=1))
    indptr = np.concatenate([[0], np.cumsum(w.inside.sum(axis=1))])
    places = math.prod(space)
    one = csr_array((data, w.under[w.inside], indptr), shape=(len(size), places))
    return x.mapped(_for_each(one, channels), (1, channels, *w.shape))


def _for_each(one: Sparse, channels: int) -> Sparse:
    """The same map for each channel: a block diagonal matrix."""
    return csr_array(block_diag([one] * channels, format="csr"))


def max_pool(node: Node) -> Value:
    x, channels, space = image(node, node.value(0))
    w = windows(node, space, tuple(node.attributes["kernel_shape"]))
    if not w.inside.any(axis=1).all():
        raise node.refuse("has a window that lies in the padding alone")
    # a place outside repeats one inside: it is compared with itself, which makes no neuron
    first = np.take_along_axis(w.under, w.inside.argmax(axis=1)[:, None], 1)
    members = np.where(w.inside, w.under, first)
    ids = (np.arange(channels)[:, None, None] * math.prod(space) + members[None]).reshape(-1, members.shape[1])
    return replace(greatest(x.gather(ids)), shape=(1, channels, *w.shape))


def global_pool(largest: bool) -> Any:
    def handler(node: Node) -> Value:
        x, channels, space = image(node, node.value(0))
        shape = (1, channels, *(1 for _ in space))
        if largest:
            return replace(greatest(x.gather(x.ids.reshape(channels, -1))), shape=shape)
        n = math.prod(space)
        one = csr_array((np.full(n, 1.0 / n), np.arange(n), [0, n]), shape=(1, n))
        return x.mapped(_for_each(one, channels), shape)

    return handler
