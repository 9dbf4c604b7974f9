"""ONNX models for tests, written as a few lines of nodes, and what onnxruntime computes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper, parser

from layercert.network import Network

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; run: pip install onnxruntime")

NEWEST = onnx.defs.onnx_opset_version()
#: The newest opset that this onnxruntime takes; beyond it onnx's own (slow) evaluator is the judge.
NEWEST_ORT = 26
OPSET = 17


def numbers(shape: Sequence[int], seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def build(
    body: str,
    shape: Sequence[int | str | None] | None = (1, 4),
    opset: int = OPSET,
    element: int = TensorProto.FLOAT,
    outputs: Sequence[str] = ("y",),
    output_element: int | None = None,
    **constants: Any,
) -> onnx.ModelProto:
    """A model with input x; a constant is an array, or a shape to fill with random numbers; `none` leaves one out."""
    nodes = [parser.parse_node(line.strip()) for line in body.split(";")]
    for node in nodes:
        node.input[:] = ["" if name == "none" else name for name in node.input]
    graph = oh.make_graph(
        nodes,
        "graph",
        [oh.make_tensor_value_info("x", element, shape)],
        [oh.make_tensor_value_info(name, output_element or element, None) for name in outputs],
        [
            numpy_helper.from_array(numbers(c, i) if isinstance(c, tuple) else np.asarray(c), name)
            for i, (name, c) in enumerate(constants.items())
        ],
    )
    opsets = [oh.make_opsetid("", opset)]
    ir_version = oh.find_min_ir_version_for(opsets, True)
    if ir_version < 4:  # weights are listed among the inputs, too
        graph.input.extend(oh.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer)
    return oh.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def run(model: onnx.ModelProto, x: NDArray[Any]) -> NDArray[np.float64]:
    """What the model computes, by someone else's code."""
    if model.opset_import[0].version > NEWEST_ORT:
        from onnx.reference import ReferenceEvaluator

        (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    else:
        (y,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return np.asarray(y, dtype=np.float64).reshape(-1)


def agrees(net: Network, model: onnx.ModelProto, shape: Sequence[int], dtype: Any = np.float32) -> None:
    for seed in range(3):
        x = numbers(shape, seed + 100).astype(dtype)
        y = run(model, x)
        np.testing.assert_allclose(net(x.reshape(-1)), y, rtol=1e-5, atol=1e-5)
