"""Affine operations: sums, products with constants, matrix products, folded normalisations, means.

Operations on constants alone are computed too, floats as real numbers rounded to float64: exporters leave them in
for shapes and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from layercert.io.affine import Affine, Constant, Shape
from layercert.io.ops.node import Handler, Node, Value


def add(node: Node, a: Value, b: Value) -> Value:
    if isinstance(a, Affine):
        return a.add(b) if isinstance(b, Affine) else a.plus(b)
    return b.plus(a) if isinstance(b, Affine) else np.asarray(a + b)


def multiply(node: Node, a: Value, b: Value) -> Value:
    if isinstance(a, Affine):
        return a.times(_other(node, b))
    return b.times(a) if isinstance(b, Affine) else np.asarray(a * b)


def negate(a: Value) -> Value:
    return a.negated() if isinstance(a, Affine) else -a


def matmul(node: Node, a: Value, b: Value) -> Value:
    if isinstance(a, Affine):
        return a.matmul(_other(node, b))
    return b.rmatmul(a) if isinstance(b, Affine) else np.asarray(a @ b)


def div(node: Node) -> Value:
    a, b = node.value(0), node.value(1)
    if isinstance(b, Affine):
        raise node.refuse("divides by a value computed from the network's input, which is not piecewise linear")
    if not b.all():
        raise node.refuse("divides by zero")
    if isinstance(a, Affine):
        return a.over(b)
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))  # ONNX rounds towards zero


def gemm(node: Node) -> Value:
    a, b = _matrix(node, 0, "transA"), _matrix(node, 1, "transB")
    alpha, beta = (np.array(node.attributes.get(k, 1.0)) for k in ("alpha", "beta"))
    product = multiply(node, matmul(node, a, b), alpha)
    if not node.has(2):
        return product
    result = add(node, product, multiply(node, node.value(2), beta))
    if result.shape != product.shape:
        raise node.refuse(f"adds C of shape {node.value(2).shape}, which does not fit A B of shape {product.shape}")
    return result


def _matrix(node: Node, i: int, transposed: str) -> Value:
    value = node.value(i)
    if len(value.shape) != 2:
        raise node.refuse(f"expects matrices, got shape {value.shape}; did the exporter drop a Flatten?")
    if not node.attributes.get(transposed, 0):
        return value
    return value.gather(value.ids.T) if isinstance(value, Affine) else value.T


def _other(node: Node, value: Value) -> Constant:
    if isinstance(value, Affine):
        raise node.refuse(
            "multiplies two values computed from the network's input (as attention and gates do), "
            "which is not piecewise linear"
        )
    return value


def batch_normalisation(node: Node) -> Value:
    """scale (x - mean) / sqrt(var + epsilon) + bias, folded into x * k + (bias - mean * k), rounded to float64."""
    if node.attributes.get("training_mode", 0):
        raise node.refuse("is in training mode, where it depends on the batch; export the model in evaluation mode")
    x = node.value(0)
    names = ("scale", "bias", "mean", "variance")
    scale, bias, mean, variance = (node.constant(i + 1, name) for i, name in enumerate(names))
    shape = (-1, *(1 for _ in x.shape[2:]))  # the channel is axis 1
    k = (scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))).reshape(shape)
    shifted = multiply(node, x, k)
    if shifted.shape != x.shape:
        raise node.refuse(f"has {scale.size} channels, its input has shape {x.shape}")
    return add(node, shifted, bias.reshape(shape) - mean.reshape(shape) * k)


def variadic(combine: Callable[[Node, Value, Value], Value]) -> Handler:
    return lambda node: reduce(lambda a, b: combine(node, a, b), node.values())


def mean(node: Node) -> Value:
    total = reduce(lambda a, b: add(node, a, b), node.values())
    count = np.array(float(len(node.inputs)))
    return total.over(count) if isinstance(total, Affine) else np.asarray(total / count)


def reduced_axes(node: Node, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction: all of them by default, an attribute in old opsets, an input in new ones."""
    axes = node.integers("axes", 1, default=[])
    if not axes:
        return () if node.attributes.get("noop_with_empty_axes", 0) else tuple(range(ndim))
    return tuple(sorted(axis + ndim if axis < 0 else axis for axis in axes))


def reduced(node: Node, x: Affine, axes: tuple[int, ...]) -> tuple[Affine, Shape]:
    """x with the reduced axes last, joined into one: (kept, members); and the shape of the result."""
    kept = [i for i in range(len(x.shape)) if i not in axes]
    if any(axis >= len(x.shape) for axis in axes):
        raise ValueError(f"axes {axes} are out of bounds for shape {x.shape}")
    members = math.prod(x.shape[i] for i in axes)
    keepdims = node.attributes.get("keepdims", 1)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)
    ids = np.transpose(x.ids, [*kept, *axes]).reshape(-1, members)
    return x.gather(ids), shape


def reduction(of_constants: Callable[..., Any], of_rows: Callable[[Affine], Affine]) -> Handler:
    """An operation over some axes: numpy's for constants, for values one entry for each row of (kept, members)."""

    def handler(node: Node) -> Value:
        x = node.value(0)
        axes = reduced_axes(node, len(x.shape))
        if not axes:
            return x
        if not isinstance(x, Affine):
            return np.asarray(of_constants(x, axis=axes, keepdims=bool(node.attributes.get("keepdims", 1))))
        rows, shape = reduced(node, x, axes)
        return replace(of_rows(rows), shape=shape)

    return handler


def total(average: bool) -> Handler:
    """ReduceSum and ReduceMean."""

    def of_rows(rows: Affine) -> Affine:
        m, k = rows.shape
        data = np.full(m * k, 1.0 / k if average else 1.0)
        return rows.mapped(csr_array((data, np.arange(m * k), np.arange(0, m * k + 1, k)), shape=(m, m * k)), (m,))

    return reduction(np.mean if average else np.sum, of_rows)


def of_constants(compute: Callable[..., Constant]) -> Handler:
    """An operation that is not piecewise linear, on weights and shapes only."""

    def handler(node: Node) -> Value:
        if any(isinstance(value, Affine) for value in node.inputs):
            raise node.refuse("is taken of a value computed from the network's input, which is not piecewise linear")
        return np.asarray(compute(*node.values()))

    return handler
