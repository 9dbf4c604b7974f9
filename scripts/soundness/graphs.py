"""Random ONNX graphs: what is read must compute what onnxruntime computes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
from numpy.random import Generator
from onnx import TensorProto, numpy_helper

import layercert as lc
from layercert.errors import LayerCertError
from soundness.kind import Outcome

#: Outputs may differ by this much of the largest number met: float32 rounds to 1e-7 of it, a wrong graph to about 1.
TOLERANCE = 1e-4


class Builder:
    """Nodes one after the other; values that may be used again, with their shapes."""

    def __init__(self, rng: Generator, shape: tuple[int, ...]) -> None:
        self.rng, self.nodes, self.tensors = rng, [], []
        self.count = 0
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.last = "x"

    def constant(self, array: Any) -> str:
        self.count += 1
        name = f"c{self.count}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(self, *shape: int) -> str:
        return self.constant((self.rng.normal(size=shape) / max(1.0, np.sqrt(np.prod(shape[1:])))).astype(np.float32))

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> None:
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(oh.make_node(op, inputs, [name], **attributes))
        self.shapes[name], self.last = shape, name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shapes[self.last]

    def step(self) -> None:
        steps = [*(IMAGES if len(self.shape) == 4 else ROWS), *BOTH]
        steps[int(self.rng.integers(len(steps)))](self)

    def gemm(self) -> None:
        n, m = self.shape[1], int(self.rng.integers(1, 7))
        if self.rng.random() < 0.5:
            W, b = self.normal(m, n), self.normal(m)
            self.add("Gemm", [self.last, W, b], (1, m), transB=1, alpha=float(self.rng.choice([1.0, 0.5])))
        else:
            self.add("MatMul", [self.last, self.normal(n, m)], (1, m))

    def conv(self) -> None:
        _, c, h, w = self.shape
        m, k = int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4))
        pad, stride = int(self.rng.integers(0, 2)), int(self.rng.integers(1, 3))
        size = [(n + 2 * pad - k) // stride + 1 for n in (h, w)]
        if min(h, w) + 2 * pad >= k:
            weights = [self.normal(m, c, k, k), self.normal(m)]
            self.add("Conv", [self.last, *weights], (1, m, *size), pads=[pad] * 4, strides=[stride] * 2)

    def pool(self) -> None:
        _, c, h, w = self.shape
        if min(h, w) >= 2:
            kind = ["MaxPool", "AveragePool"][int(self.rng.integers(2))]
            stride = int(self.rng.integers(1, 3))
            size = [(n - 2) // stride + 1 for n in (h, w)]
            self.add(kind, [self.last], (1, c, *size), kernel_shape=[2, 2], strides=[stride] * 2)

    def normalise(self) -> None:
        c = self.shape[1]
        parts = [self.normal(c) for _ in range(3)] + [self.constant(self.rng.uniform(0.5, 2, c).astype(np.float32))]
        self.add("BatchNormalization", [self.last, *parts], self.shape)

    def average(self) -> None:
        self.add("GlobalAveragePool", [self.last], (*self.shape[:2], 1, 1))

    def flatten(self) -> None:
        self.add("Flatten", [self.last], (1, int(np.prod(self.shape))))

    def transpose(self) -> None:
        order = [0, *(1 + self.rng.permutation(3)).tolist()]
        self.add("Transpose", [self.last], tuple(self.shape[i] for i in order), perm=order)

    def unary(self) -> None:
        op = str(self.rng.choice(["Relu", "Relu", "Relu", "LeakyRelu", "Abs", "Neg", "Identity", "PRelu", "Clip"]))
        if op == "LeakyRelu":
            self.add(op, [self.last], self.shape, alpha=0.1)
        elif op == "PRelu":
            self.add(op, [self.last, self.constant(np.full(1, 0.25, np.float32))], self.shape)
        elif op == "Clip":
            ends = [self.constant(np.float32(-0.5)), self.constant(np.float32(0.75))]
            self.add(op, [self.last, *ends], self.shape)
        else:
            self.add(op, [self.last], self.shape)

    def with_constant(self) -> None:
        op = str(self.rng.choice(["Add", "Sub", "Mul", "Div", "Max", "Min"]))
        shape = tuple(n if self.rng.random() < 0.7 else 1 for n in self.shape)
        array = self.rng.normal(size=shape).astype(np.float32)
        if op == "Div":
            array = np.sign(array) * (np.abs(array) + 1)
        pair = [self.last, self.constant(array)]
        if op in ("Add", "Sub", "Mul", "Max", "Min") and self.rng.random() < 0.4:
            pair.reverse()
        self.add(op, pair, self.shape)

    def skip(self) -> None:
        """With an earlier value of the same shape."""
        same = [name for name, shape in self.shapes.items() if shape == self.shape]
        other = same[int(self.rng.integers(len(same)))]
        self.add(str(self.rng.choice(["Add", "Sub", "Max"])), [self.last, other], self.shape)

    def concat(self) -> None:
        beside = [n for n, s in self.shapes.items() if len(s) == len(self.shape) and s[2:] == self.shape[2:]]
        other = beside[int(self.rng.integers(len(beside)))]
        width = self.shape[1] + self.shapes[other][1]
        if width <= 12:
            self.add("Concat", [self.last, other], (1, width, *self.shape[2:]), axis=1)

    def piece(self) -> None:
        n = self.shape[1]
        if n > 1:
            a = int(self.rng.integers(0, n - 1))
            b = int(self.rng.integers(a + 1, n + 1))
            ends = [self.constant(np.array([i], np.int64)) for i in (a, b, 1)]
            self.add("Slice", [self.last, *ends], (1, b - a, *self.shape[2:]))


#: Steps by the number of axes of the last value: rows of numbers (2), images (4), or either.
ROWS: list[Callable[[Builder], None]] = [Builder.gemm]
IMAGES = [Builder.conv, Builder.pool, Builder.normalise, Builder.average, Builder.transpose, Builder.flatten]
BOTH = [Builder.unary, Builder.unary, Builder.with_constant, Builder.skip, Builder.concat, Builder.piece]


def graphs(rng: Generator) -> Outcome:
    import onnxruntime as ort

    shape = (
        (1, int(rng.integers(1, 6)))
        if rng.random() < 0.5
        else (1, int(rng.integers(1, 3)), *rng.integers(2, 6, 2).tolist())
    )
    builder = Builder(rng, shape)
    for _ in range(int(rng.integers(2, 10))):
        builder.step()
    if len(builder.shape) == 4:
        builder.flatten()
    builder.gemm()
    last = builder.last
    graph = oh.make_graph(
        builder.nodes,
        "graph",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        builder.tensors,
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", int(rng.integers(13, 19)))], ir_version=8)
    names = " ".join(node.op_type for node in builder.nodes)
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), quiet)
    with tempfile.TemporaryDirectory(prefix="soundness") as folder:
        path = Path(folder) / "graph.onnx"
        onnx.save(model, path)
        try:
            network = lc.load(path)
        except LayerCertError as error:
            return Outcome("refused", [] if "not supported" in str(error) else [f"refused: {error}: {names}"])
    for _ in range(3):
        x = (rng.normal(size=shape) * 10.0 ** rng.uniform(-1, 1)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        ours = network(x.reshape(-1).astype(np.float64))
        scale = max(1.0, float(np.abs(x).max()), float(np.abs(y).max()))
        if ours.shape != y.reshape(-1).shape or not np.abs(ours - y.reshape(-1)).max() <= TOLERANCE * scale:
            return Outcome("read", [f"{ours} here, {y.reshape(-1)} in onnxruntime: {names}"])
    return Outcome("read", [])
