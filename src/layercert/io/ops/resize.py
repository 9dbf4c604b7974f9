"""Transposed convolutions and resized images: affine maps from few places to many."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np
from scipy.sparse import csr_array, kron

from layercert.arrays import Sparse, Vector
from layercert.io.affine import Shape, sized
from layercert.io.ops.node import Node, Value
from layercert.io.ops.windows import MOST_ENTRIES, convolution, image, windows


def conv_transpose(node: Node) -> Value:
    """The transpose of the convolution with the same weights, from the larger image to the smaller one."""
    x, channels, space = image(node, node.value(0))
    W, groups = node.constant(1, "weights"), node.attributes.get("group", 1)
    if W.ndim != len(x.shape) or W.shape[0] != channels or channels % groups:
        raise node.refuse(f"has weights of shape {W.shape} in {groups} groups, which do not fit shape {x.shape}")
    out, pads = _transposed_shape(node, space, W.shape[2:])
    if W.size * math.prod(space) > MOST_ENTRIES:
        raise node.refuse(f"would have about {W.size * math.prod(space):.2g} weights as a matrix; use a smaller image")
    sized((W.shape[1] * groups, *out))
    settled = {**node.attributes, "pads": pads, "auto_pad": "NOTSET"}
    w = windows(replace(node, attributes=settled), out, W.shape[2:])
    if w.shape != space:
        raise node.refuse(f"has an output of {out}, to which {space} does not belong; is an output_padding too large?")
    M = csr_array(convolution(W, w, groups, math.prod(out)).T)
    y = x.mapped(M, (1, W.shape[1] * groups, *out))
    return y.plus(node.constant(2, "bias").reshape(-1, *(1 for _ in out))) if node.has(2) else y


def _transposed_shape(node: Node, space: Shape, kernel: Shape) -> tuple[Shape, list[int]]:
    """The larger image's shape, and the padding that is cut off it: at all beginnings, then at all ends."""
    d = len(space)
    strides, dilations = (node.attributes.get(k) or [1] * d for k in ("strides", "dilations"))
    more = node.attributes.get("output_padding") or [0] * d
    whole = [
        s * (n - 1) + extra + (k - 1) * dilation + 1
        for n, k, s, dilation, extra in zip(space, kernel, strides, dilations, more, strict=True)
    ]
    kind, wanted = node.text("auto_pad", "NOTSET"), node.attributes.get("output_shape")
    if kind in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [n * s for n, s in zip(space, strides, strict=True)]
    if not wanted:
        pads = list(node.attributes.get("pads") or [0] * (2 * d)) if kind in ("NOTSET", "") else [0] * (2 * d)
        return tuple(n - a - b for n, a, b in zip(whole, pads[:d], pads[d:], strict=True)), pads
    total = [n - w for n, w in zip(whole, wanted[-d:], strict=True)]
    if min(total) < 0:
        raise node.refuse(f"asks for an output of {wanted}, larger than the {whole} that its windows cover")
    less, rest = [t // 2 for t in total], [t - t // 2 for t in total]
    return tuple(wanted[-d:]), [*less, *rest] if kind == "SAME_UPPER" else [*rest, *less]


def resize(node: Node) -> Value:
    """Nearest or linear in every axis; what is computed from the image's own values (cubic, antialias) is refused."""
    x, old = node.value(0), node.op == "Upsample" or node.opset < 11
    shape = x.shape
    scales, sizes = _scales(node, shape, old)
    mode = node.text("mode", "nearest")
    if mode not in ("nearest", "linear") or node.attributes.get("antialias", 0):
        raise node.refuse(f"has mode {mode!r}{' with antialias' if node.attributes.get('antialias') else ''}; "
                          "supported: nearest, linear")  # fmt: skip
    where = node.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if where not in _PLACES:
        raise node.refuse(f"has coordinates {where!r}; supported: {', '.join(_PLACES)}")
    nearest = node.text("nearest_mode", "floor" if old else "round_prefer_floor")
    if mode == "nearest" and nearest not in _NEAREST:
        raise node.refuse(f"has nearest_mode {nearest!r}; supported: {', '.join(_NEAREST)}")
    maps = []
    for n, m, scale in zip(shape, sized(sizes), scales, strict=True):
        at = np.arange(n, dtype=np.float64) if n == m and scale == 1.0 else _PLACES[where](np.arange(m), n, m, scale)
        # before opset 11 an axis that shrinks takes the place above
        picked = "ceil" if old and scale < 1.0 else nearest
        maps.append(_picked(_NEAREST[picked](at), n) if mode == "nearest" else _between(at, n))
    M = csr_array(reduce(lambda a, b: kron(a, b, format="csr"), maps))
    if isinstance(x, np.ndarray):
        return np.asarray(M @ x.reshape(-1)).reshape(sizes)
    return x.mapped(M, tuple(sizes))


def _scales(node: Node, shape: Shape, old: bool) -> tuple[list[float], list[int]]:
    """How much each axis grows, and to what size."""
    at = 1 if old else 2
    if "scales" in node.attributes or (node.has(at) and node.constant(at, "scales").size):
        given = node.attributes.get("scales")
        factors = [float(s) for s in (node.constant(at, "scales").reshape(-1) if given is None else given)]
        factors = _for_all_axes(node, factors, [1.0] * len(shape))
        return factors, [math.floor(n * s) for n, s in zip(shape, factors, strict=True)]
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.refuse("keeps the aspect ratio; supported: keep_aspect_ratio_policy stretch")
    wanted = [float(n) for n in node.integers("sizes", 3)]
    sizes = [int(n) for n in _for_all_axes(node, wanted, [float(n) for n in shape])]
    return [m / n for m, n in zip(sizes, shape, strict=True)], sizes


def _for_all_axes(node: Node, given: list[float], default: list[float]) -> list[float]:
    axes = node.attributes.get("axes")
    if axes is None:
        return given
    for axis, value in zip(axes, given, strict=True):
        default[axis] = value
    return default


_PLACES: dict[str, Callable[..., Vector]] = {
    "asymmetric": lambda i, n, m, s: i / s,
    "half_pixel": lambda i, n, m, s: (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, n, m, s: (i + 0.5) / s - 0.5 if m > 1 else np.zeros(m),
    "align_corners": lambda i, n, m, s: i * ((n - 1) / (m - 1)) if m > 1 else np.zeros(m),
}
_NEAREST: dict[str, Callable[[Vector], Vector]] = {
    "round_prefer_floor": lambda t: np.ceil(t - 0.5),
    "round_prefer_ceil": lambda t: np.floor(t + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _picked(at: Vector, n: int) -> Sparse:
    """Row i holds a one at place at[i], clipped to the axis."""
    columns = np.clip(at, 0, n - 1).astype(np.intp)
    return csr_array((np.ones(len(at)), columns, np.arange(len(at) + 1)), shape=(len(at), n))


def _between(at: Vector, n: int) -> Sparse:
    """Row i holds the weights of the two places around at[i], clipped to the axis."""
    t = np.clip(at, 0.0, n - 1.0)
    left = np.minimum(np.floor(t), n - 1.0)
    share = t - left
    rows = np.arange(len(t))
    right = np.minimum(left + 1, n - 1)
    places = (np.concatenate([rows, rows]), np.concatenate([left, right]).astype(np.intp))
    M = csr_array((np.concatenate([1.0 - share, share]), places), shape=(len(t), n))
    M.eliminate_zeros()
    return M
