"""Piecewise linear operations other than ReLU, each rewritten exactly into ReLUs of affine functions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layercert.io.affine import Affine, concatenate
from layercert.io.ops.arithmetic import negate, reduction
from layercert.io.ops.node import Handler, Node, Value


def relu(node: Node) -> Value:
    x = node.value(0)
    return x.relu() if isinstance(x, Affine) else np.maximum(x, 0)


def leaky_relu(node: Node) -> Value:
    x, slope = node.value(0), np.array(node.attributes.get("alpha", 0.01))
    return x.leaky(slope) if isinstance(x, Affine) else np.where(x < 0, slope * x, x)


def prelu(node: Node) -> Value:
    x, slope = node.value(0), node.constant(1, "slope")
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise node.refuse(f"has slopes of shape {slope.shape}, which do not fit its input of shape {x.shape}")
    return x.leaky(slope) if isinstance(x, Affine) else np.where(x < 0, slope * x, x)


def absolute(node: Node) -> Value:
    x = node.value(0)
    return x.relu().add(x.negated().relu()) if isinstance(x, Affine) else np.abs(x)


def clip(node: Node) -> Value:
    """low + relu(v - low) - relu(v - high), or one of the two; bounds are attributes in old opsets, inputs in new."""
    x = node.value(0)
    ends: list[float] = []
    for i, (name, none) in enumerate((("min", -np.inf), ("max", np.inf))):
        end = node.constant(i + 1, name) if node.has(i + 1) else np.array(node.attributes.get(name, none))
        if end.size != 1:
            raise node.refuse(f"has a {name} of shape {end.shape}; supported: one number")
        # exporters write the largest float32 for "no bound"
        ends.append(float(end.item()) if abs(end.item()) < float(np.finfo(np.float32).max) else none)
    return clipped(node, x, *ends)


def clipped(node: Node, x: Value, low: float, high: float) -> Value:
    if not isinstance(x, Affine):
        return np.clip(x, low, high)
    if not low <= high:
        raise node.refuse(f"has its minimum {low:g} above its maximum {high:g}")
    if np.isinf(low):
        return x if np.isinf(high) else x.negated().plus(np.array(high)).relu().negated().plus(np.array(high))
    above = x.plus(np.array(-low)).relu()
    if np.isfinite(high):
        above = above.add(x.plus(np.array(-high)).relu().negated())
    if x.is_input:
        x.tape.clipped = (low, high)
    return above.plus(np.array(low))


def hard_sigmoid(node: Node) -> Value:
    """max(0, min(1, alpha v + beta))."""
    x = node.value(0)
    alpha, beta = (np.array(node.attributes.get(k, v)) for k, v in (("alpha", 0.2), ("beta", 0.5)))
    return clipped(node, x.times(alpha).plus(beta) if isinstance(x, Affine) else x * alpha + beta, 0.0, 1.0)


def maximum(node: Node, a: Value, b: Value) -> Value:
    """max(a, b) = b + relu(a - b), where a constant costs nothing as b."""
    if not isinstance(a, Affine):
        return b.maximum(b.constant(a)) if isinstance(b, Affine) else np.maximum(a, b)
    return a.maximum(b if isinstance(b, Affine) else a.constant(b))


def minimum(node: Node, a: Value, b: Value) -> Value:
    """min(a, b) = -max(-a, -b)."""
    return negate(maximum(node, negate(a), negate(b)))


def greatest(rows: Affine) -> Affine:
    """The maximum of each row of a matrix of values, as a tree of depth log2 of its columns."""
    while rows.shape[1] > 1:
        n = rows.shape[1]
        left, right = rows.ids[:, 0 : n - n % 2 : 2], rows.ids[:, 1:n:2]
        joined = rows.gather(left).maximum(rows.gather(right))
        if n % 2:  # the odd one out waits for the next round
            joined = concatenate([joined, rows.gather(rows.ids[:, -1:])], 1)
        rows = joined
    return replace(rows, shape=(rows.shape[0],))


def extreme(largest: bool) -> Handler:
    """ReduceMax and ReduceMin."""
    if largest:
        return reduction(np.max, greatest)
    return reduction(np.min, lambda rows: greatest(rows.negated()).negated())
