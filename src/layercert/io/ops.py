"""The ONNX operations that are read, each a small function of its node; `OPS` is the whole list.

A value is a constant (a numpy array: floats as float64, integers as int64) or an `Affine` function of the
network's input. Operations on constants alone are computed too, floats as real numbers rounded to float64:
exporters leave them in for shapes and weights. Operations that only move entries (MOVES) are written once,
for arrays: applied to the positions of an Affine's entries they say where each entry comes from.

A reader for another operation is one more function and one more row in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layercert.errors import ModelError
from layercert.io.affine import Affine, Constant, Shape

Value: TypeAlias = Constant | Affine

#: onnx.TensorProto.DataType of the types that are read; floats are all held in float64, without change.
FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
INTEGERS = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 12: "uint32"}
#: Casts that change no number: (from, to).
_WIDER = {
    ("float16", "float32"),
    ("float16", "float64"),
    ("bfloat16", "float32"),
    ("bfloat16", "float64"),
    ("float32", "float64"),
}


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph with its inputs computed; an input left out is None."""

    op: str
    name: str
    opset: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]

    def refuse(self, reason: str) -> ModelError:
        return ModelError(f"{self.op} (node {self.name!r}) {reason}")

    def value(self, i: int) -> Value:
        """Input i, an array or an Affine on which the node may compute."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise self.refuse(f"lacks its input {i}, which is not optional")
        if isinstance(value, Affine) and value.dropped and self.op not in _AFTER_SOFTMAX:
            raise self.refuse(
                f"follows {value.dropped}; a Softmax is taken only at the end, where it does not change the class"
            )
        return value

    def constant(self, i: int, what: str) -> Constant:
        """Input i, which must not depend on the network's input."""
        value = self.value(i)
        if isinstance(value, Affine):
            raise self.refuse(f"takes its {what} from the network's input; only constants are supported there")
        return value

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def integers(self, name: str, i: int, default: list[int] | None = None) -> list[int]:
        """A list of integers: an attribute in old opsets, input i in newer ones."""
        if name in self.attributes:
            return [int(k) for k in self.attributes[name]]
        if default is not None and not self.has(i):
            return default
        return [int(k) for k in self.constant(i, name).reshape(-1)]


Handler: TypeAlias = Callable[[Node], Value]
Move: TypeAlias = Callable[[Node, NDArray[Any]], NDArray[Any]]


# Arithmetic: affine as long as one of two inputs is a constant.


def add(node: Node, a: Value, b: Value) -> Value:
    if isinstance(a, Affine):
        return a.plus(_other(node, b))
    return b.plus(a) if isinstance(b, Affine) else np.asarray(a + b)


def multiply(node: Node, a: Value, b: Value) -> Value:
    if isinstance(a, Affine):
        return a.times(_other(node, b))
    return b.times(a) if isinstance(b, Affine) else np.asarray(a * b)


def negate(a: Value) -> Value:
    return a.times(np.array(-1.0)) if isinstance(a, Affine) else -a


def matmul(node: Node, a: Value, b: Value) -> Value:
    if isinstance(a, Affine):
        return a.matmul(_other(node, b))
    return b.rmatmul(a) if isinstance(b, Affine) else np.asarray(a @ b)


def _div(node: Node) -> Value:
    a, b = node.value(0), node.value(1)
    if isinstance(b, Affine):
        raise node.refuse("divides by a value computed from the network's input, which is not affine")
    if not b.all():
        raise node.refuse("divides by zero")
    if isinstance(a, Affine):
        return a.over(b)
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))  # ONNX rounds towards zero


def _gemm(node: Node) -> Value:
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
            "combines two values computed from the network's input (a branch or a product); "
            "only chains of layers are supported"
        )
    return value


# Operations that move entries and change none.


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
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, tuple(node.integers("shape", 1))))


def _gather(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    return np.take(array, node.constant(1, "indices"), axis=node.attributes.get("axis", 0))


def _slice(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    starts, ends = node.integers("starts", 1), node.integers("ends", 2)
    axes = node.integers("axes", 3, default=list(range(len(starts))))
    steps = node.integers("steps", 4, default=[1] * len(starts))
    index = [slice(None)] * array.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return array[tuple(index)]


def _dropout(node: Node, array: NDArray[Any]) -> NDArray[Any]:
    if node.has(2) and node.constant(2, "training mode").any():
        raise node.refuse("is in training mode, where the output is random; export the model in evaluation mode")
    return array


def _move(move: Move) -> Handler:
    def handler(node: Node) -> Value:
        x = node.value(0)
        return x.gather(move(node, x.ids)) if isinstance(x, Affine) else move(node, x)

    return handler


# The rest.


def _relu(node: Node) -> Value:
    x = node.value(0)
    return x.relu() if isinstance(x, Affine) else np.maximum(x, 0)


def _softmax(node: Node) -> Value:
    x = node.value(0)
    if not isinstance(x, Affine):
        raise node.refuse("is taken of a constant; it is supported at the end of a network only")
    # Up to opset 12 it runs over all axes from `axis` on (default 1), then along `axis` alone (default -1).
    axis = node.attributes.get("axis", 1 if node.opset < 13 else -1)
    normalised: Shape = x.shape[axis:] if node.opset < 13 else (x.shape[axis],)
    if math.prod(normalised) != x.size:
        raise node.refuse(f"along axis {axis} of shape {x.shape} does not run over all classes of one input")
    return replace(x, dropped=f"{node.op} (node {node.name!r})")


def _cast(node: Node) -> Value:
    x, to = node.value(0), node.attributes["to"]
    target = FLOATS.get(to) or INTEGERS.get(to, f"type {to}")
    if isinstance(x, Affine):
        if x.dtype != target and (x.dtype, target) not in _WIDER:
            raise node.refuse(
                f"from {x.dtype} to {target} rounds a value computed from the network's input; "
                "export the model in one float type"
            )
        return replace(x, dtype=target)
    if to in INTEGERS:
        return x.astype(bool if target == "bool" else np.int64)
    if target not in ("float16", "float32", "float64"):
        raise node.refuse(f"to {target} of a constant is not supported")
    return x.astype(target).astype(np.float64)


def _constant(node: Node) -> Value:
    for key in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if key in node.attributes:
            return np.asarray(node.attributes[key])
    raise node.refuse(f"holds {', '.join(node.attributes)}; supported: a tensor, floats or integers")


def _constant_of_shape(node: Node) -> Value:
    fill = node.attributes.get("value", np.zeros(1))
    return np.full(node.integers("shape", 0), fill.reshape(-1)[0])


def _shape(node: Node) -> Value:
    shape = node.value(0).shape
    return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], dtype=np.int64)


def _concat(node: Node) -> Value:
    parts = [node.constant(i, "parts") for i in range(len(node.inputs))]
    return np.concatenate(parts, axis=node.attributes["axis"])


MOVES: dict[str, Move] = {
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda node, array: array,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

#: Operation -> its reader.
OPS: dict[str, Handler] = {
    "Add": lambda node: add(node, node.value(0), node.value(1)),
    "Cast": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _div,
    "Gemm": _gemm,
    "LogSoftmax": _softmax,
    "MatMul": lambda node: matmul(node, node.value(0), node.value(1)),
    "Mul": lambda node: multiply(node, node.value(0), node.value(1)),
    "Neg": lambda node: negate(node.value(0)),
    "Relu": _relu,
    "Shape": _shape,
    "Softmax": _softmax,
    "Sub": lambda node: add(node, node.value(0), negate(node.value(1))),
    **{op: _move(move) for op, move in MOVES.items()},
}

#: A Softmax may be left out in front of these: they keep the order of the classes.
_AFTER_SOFTMAX = {"Cast", "LogSoftmax", "Shape", "Softmax", *MOVES}
