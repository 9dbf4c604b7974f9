"""The operations that are read, each a small function of its node; `OPS` is the whole list, with ONNX's names.

A reader for another operation is one more function and one more row in the table; docs/models.md lists them for users.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from layercert.io.affine import Affine, Shape, sized
from layercert.io.ops.arithmetic import (
    add,
    batch_normalisation,
    div,
    gemm,
    matmul,
    mean,
    multiply,
    negate,
    of_constants,
    total,
    variadic,
)
from layercert.io.ops.moves import MOVES, concat, pad, split, where
from layercert.io.ops.node import Handler, Node, Value
from layercert.io.ops.piecewise import (
    absolute,
    clip,
    extreme,
    hard_sigmoid,
    leaky_relu,
    maximum,
    minimum,
    prelu,
    relu,
)
from layercert.io.ops.resize import conv_transpose, resize
from layercert.io.ops.windows import average_pool, conv, global_pool, max_pool

__all__ = ["FLOATS", "INTEGERS", "ML_OPS", "OPS", "Handler", "Node", "Value"]

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


def _softmax(node: Node) -> Value:
    x = node.value(0)
    if not isinstance(x, Affine):
        raise node.refuse("is taken of a constant; it is supported at the end of a network only")
    # Up to opset 12 it runs over all axes from `axis` on (default 1), then along `axis` alone (default -1).
    axis = node.attributes.get("axis", 1 if node.opset < 13 else -1)
    normalised: Shape = x.shape[axis:] if node.opset < 13 else (x.shape[axis],)
    if math.prod(normalised) != x.size:
        raise node.refuse(f"along axis {axis} of shape {x.shape} does not run over all classes of one input")
    return replace(x, dropped=_left_out(node))


def _sigmoid(node: Node) -> Value:
    x = node.value(0)
    if not isinstance(x, Affine):
        raise node.refuse("is taken of a constant; it is supported at the end of a network only")
    return replace(x, dropped=_left_out(node))


def _left_out(node: Node) -> str:
    """The operation as errors call it; the operation's own name comes first, whatever a module calls itself."""
    title = node.title or f"{node.op} (node {node.name!r})"
    return title if title.lower().replace("_", "").startswith(node.op.lower()) else f"{node.op}: {title}"


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
    return np.full(sized(node.integers("shape", 0)), fill.reshape(-1)[0])


def _shape(node: Node) -> Value:
    shape = node.value(0).shape
    return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], dtype=np.int64)


def _scaler(node: Node) -> Value:
    """(x - offset) * scale, as scikit-learn's scalers are exported."""
    x = node.value(0)
    if not isinstance(x, Affine):
        raise node.refuse("is taken of a constant; only values computed from the network's input are supported")
    offset, scale = (np.asarray(node.attributes[name], dtype=np.float64) for name in ("offset", "scale"))
    return x.plus(-offset).times(scale)


#: The operations of ai.onnx.ml -> their readers.
ML_OPS: dict[str, Handler] = {"Scaler": _scaler}

#: Operation -> its reader.
OPS: dict[str, Handler] = {
    "Abs": absolute,
    "Add": lambda node: add(node, node.value(0), node.value(1)),
    "AveragePool": average_pool,
    "BatchNormalization": batch_normalisation,
    "Cast": _cast,
    "Clip": clip,
    "Concat": concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Div": div,
    "Equal": of_constants(np.equal),
    "Gemm": gemm,
    "GlobalAveragePool": global_pool(largest=False),
    "GlobalMaxPool": global_pool(largest=True),
    "HardSigmoid": hard_sigmoid,
    "LeakyRelu": leaky_relu,
    "LogSoftmax": _softmax,
    "MatMul": lambda node: matmul(node, node.value(0), node.value(1)),
    "Max": variadic(maximum),
    "MaxPool": max_pool,
    "Mean": mean,
    "Min": variadic(minimum),
    "Mul": lambda node: multiply(node, node.value(0), node.value(1)),
    "Neg": lambda node: negate(node.value(0)),
    "PRelu": prelu,
    "Pad": pad,
    "Pow": of_constants(np.power),
    "Reciprocal": of_constants(np.reciprocal),
    "ReduceMax": extreme(largest=True),
    "ReduceMean": total(average=True),
    "ReduceMin": extreme(largest=False),
    "ReduceSum": total(average=False),
    "Relu": relu,
    "Resize": resize,
    "Shape": _shape,
    "Sigmoid": _sigmoid,
    "Softmax": _softmax,
    "Split": split,
    "Sqrt": of_constants(np.sqrt),
    "Sub": lambda node: add(node, node.value(0), negate(node.value(1))),
    "Sum": variadic(add),
    "Upsample": resize,
    "Where": where,
    **MOVES,
}
