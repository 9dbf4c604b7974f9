"""Operations that move entries and change none, written once for arrays: applied to the positions of an Affine's
entries they say where each entry comes from. Concat, Split and Pad too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layercert.io.affine import Affine, concatenate, sized
from layercert.io.ops.node import Handler, Node, Value

Move: TypeAlias = Callable[[Node, NDArray[Any]], NDArray[Any]]


def _reshape(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    target = node.integers("shape", 1)
    if not node.attributes.get("allowzero", 0):
        target = [array.shape[i] if k == 0 else k for i, k in enumerate(target)]
    return array.reshape(target)


def _flatten(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    axis = node.attributes.get("axis", 1)
    if not -array.ndim <= axis <= array.ndim:
        raise ValueError(f"axis {axis} is out of bounds for an array of dimension {array.ndim}")
    axis = axis + array.ndim if axis < 0 else axis
    return array.reshape(math.prod(array.shape[:axis]), math.prod(array.shape[axis:]))


def _squeeze(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    ones = [i for i, n in enumerate(array.shape) if n == 1]
    return np.squeeze(array, tuple(node.integers("axes", 1, default=ones)))


def _unsqueeze(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    return np.expand_dims(array, tuple(node.integers("axes", 1)))


def _transpose(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    return np.transpose(array, node.attributes.get("perm"))


def _expand(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    return np.broadcast_to(array, sized(np.broadcast_shapes(array.shape, tuple(node.integers("shape", 1)))))


def _gather(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    return np.take(array, node.constant(1, "indices"), axis=node.attributes.get("axis", 0))


def _slice(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    starts, ends = node.integers("starts", 1), node.integers("ends", 2)
    axes = node.integers("axes", 3, default=list(range(len(starts))))
    steps = node.integers("steps", 4, default=[1] * len(starts))
    index = [slice(None)] * array.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    taken = array[tuple(index)]
    if array.size and not taken.size and min(steps) < 0:
        raise node.refuse("takes nothing, backwards; runtimes differ on what that means")
    return taken


def _dropout(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    if node.has(2) and node.constant(2, "training mode").any():
        raise node.refuse("is in training mode, where the output is random; export the model in evaluation mode")
    return array


def _depth_to_space(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    b = node.attributes["blocksize"]
    n, c, h, w = array.shape
    if node.text("mode", "DCR") == "CRD":
        return array.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)
    return array.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def _space_to_depth(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    b = node.attributes["blocksize"]
    n, c, h, w = array.shape
    return array.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


def _move(move: Move) -> Handler:
    def handler(node: Node) -> Value:
        x = node.value(0)
        return x.gather(move(node, x.ids)) if isinstance(x, Affine) else move(node, x)

    return handler


def concat(node: Node) -> Value:
    return joined(node, node.values(), node.attributes["axis"])


def joined(node: Node, parts: list[Value], axis: int) -> Value:
    """Branches and constants along an axis."""
    some = next((part for part in parts if isinstance(part, Affine)), None)
    if some is None:
        return np.concatenate([np.asarray(part) for part in parts], axis=axis)
    return concatenate([p if isinstance(p, Affine) else some.constant(p) for p in parts], axis)


def split(node: Node) -> list[Value]:
    x, axis = node.value(0), node.attributes.get("axis", 0)
    n = x.shape[axis]
    even = -(-n // node.attributes.get("num_outputs", node.outputs))
    sizes = node.integers("split", 1, default=[min(even, n - i) for i in range(0, n, even)])
    array = x.ids if isinstance(x, Affine) else x
    parts = np.split(array, np.cumsum(sizes)[:-1], axis=axis)
    return [x.gather(part) if isinstance(x, Affine) else part for part in parts]


def pad(node: Node) -> Value:
    """Constants around the value, or its own entries (reflect, edge, wrap); negative pads cut off."""
    x = node.value(0)
    pads = node.integers("pads", 1)
    axes = node.integers("axes", 3, default=list(range(len(x.shape))))
    fill = float(node.constant(2, "value").reshape(-1)[0]) if node.has(2) else node.attributes.get("value", 0.0)
    width = [(0, 0)] * len(x.shape)
    for i, axis in enumerate(axes):
        width[axis] = (pads[i], pads[i + len(axes)])
    array = x.ids if isinstance(x, Affine) else x
    array = array[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(width, x.shape, strict=True))]
    grown = [(max(a, 0), max(b, 0)) for a, b in width]
    sized([a + n + b for (a, b), n in zip(grown, array.shape, strict=True)])
    mode = node.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise node.refuse(f"has mode {mode!r}; supported: constant, reflect, edge, wrap")
    if mode != "constant":
        moved = np.pad(array, grown, mode=mode)  # type: ignore[call-overload]
        return x.gather(moved) if isinstance(x, Affine) else moved
    if not isinstance(x, Affine):
        return np.pad(array, grown, constant_values=fill)
    # entry x.size of the longer tensor is the constant
    longer = concatenate([x.gather(x.ids.reshape(-1)), x.constant(np.array([fill]))], 0)
    return longer.gather(np.pad(array, grown, constant_values=x.size))


def where(node: Node) -> Value:
    """One of two values in each place, by a condition that does not depend on the input."""
    condition = node.constant(0, "condition").astype(bool)
    a, b = node.value(1), node.value(2)
    some = next((v for v in (a, b) if isinstance(v, Affine)), None)
    if some is None:
        return np.where(condition, np.asarray(a), np.asarray(b))
    first, second = (v if isinstance(v, Affine) else some.constant(v) for v in (a, b))
    both = concatenate([first.gather(first.ids.reshape(-1)), second.gather(second.ids.reshape(-1))], 0)
    sized(np.broadcast_shapes(condition.shape, first.shape, second.shape))
    return both.gather(np.where(condition, first.ids, first.size + second.ids))


MOVES: dict[str, Handler] = {
    "DepthToSpace": _move(_depth_to_space),
    "Dropout": _move(_dropout),
    "Expand": _move(_expand),
    "Flatten": _move(_flatten),
    "Gather": _move(_gather),
    "Identity": _move(lambda node, array: array),
    "Reshape": _move(_reshape),
    "Slice": _move(_slice),
    "SpaceToDepth": _move(_space_to_depth),
    "Squeeze": _move(_squeeze),
    "Transpose": _move(_transpose),
    "Unsqueeze": _move(_unsqueeze),
}
