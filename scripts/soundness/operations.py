"""Single operations of ONNX with unusual attributes, in all opsets: what is read must compute what onnxruntime does.

`graphs` has long graphs of plain operations; here it is one or two operations, and what their attributes may be.
"""

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

#: Outputs may differ by this much of the largest number met.
TOLERANCE = 2e-4
#: Larger tensors are left alone.
MOST = 3000


class Odd:
    """A graph that grows by one operation at a time; onnxruntime says what shape comes out."""

    def __init__(self, rng: Generator, shape: tuple[int, ...], opset: int) -> None:
        self.rng, self.opset, self.input = rng, opset, shape
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.last, self.shape = "x", shape

    def constant(self, array: Any) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.rng.normal(size=shape).astype(np.float32))

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def several(self, count: int, most: int, least: int = 0) -> list[int]:
        return self.rng.integers(least, most + 1, size=count).tolist()

    def add(self, op: str, *inputs: str, **attributes: Any) -> None:
        chosen = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(oh.make_node(op, inputs, [f"v{len(self.nodes)}"], **chosen))
        self.last = self.nodes[-1].output[0]

    def model(self) -> onnx.ModelProto:
        ends = [
            oh.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", self.input), (self.last, None))
        ]
        graph = oh.make_graph(self.nodes, "graph", ends[:1], ends[1:], self.tensors)
        return oh.make_model(graph, opset_imports=[oh.make_opsetid("", self.opset)], ir_version=8)

    def run(self, x: np.ndarray) -> np.ndarray | None:
        """What onnxruntime makes of it; None where it will not."""
        import onnxruntime as ort

        quiet = ort.SessionOptions()
        quiet.log_severity_level, quiet.intra_op_num_threads = 4, 1
        try:
            session = ort.InferenceSession(self.model().SerializeToString(), quiet)
            return np.asarray(session.run(None, {"x": x})[0])
        except Exception:  # its own many kinds
            return None

    def point(self) -> np.ndarray:
        return self.rng.normal(size=self.input).astype(np.float32)

    # What several operations have in common.

    def padding(self, d: int, kernel: list[int]) -> dict[str, Any]:
        if self.rng.random() < 0.5:
            return {"pads": [int(self.rng.integers(0, max(1, k))) for k in kernel * 2]}
        return {"auto_pad": self.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")}

    def steps(self, d: int) -> dict[str, Any]:
        return {
            "strides": self.pick(None, self.several(d, 3, 1)),
            "dilations": self.pick(None, self.several(d, 2, 1)),
        }


def conv(g: Odd) -> None:
    d, channels = len(g.shape) - 2, g.shape[1]
    group = g.pick(*[k for k in range(1, channels + 1) if channels % k == 0])
    kernel, out = g.several(d, 3, 1), group * int(g.rng.integers(1, 3))
    more = {**g.steps(d), **g.padding(d, kernel), "group": group}
    g.add("Conv", g.last, g.normal(out, channels // group, *kernel), g.normal(out), **more)


def transposed(g: Odd) -> None:
    d, channels = len(g.shape) - 2, g.shape[1]
    kernel, more = g.several(d, 3, 1), g.steps(d)
    more |= {"output_padding": g.pick(None, [int(s > 1) for s in more["strides"] or [1] * d])}
    more |= g.padding(d, kernel) if g.rng.random() < 0.5 else {}
    g.add("ConvTranspose", g.last, g.normal(channels, 2, *kernel), **more)


def pool(g: Odd) -> None:
    d = len(g.shape) - 2
    kernel, kind = g.several(d, 3, 1), g.pick("MaxPool", "AveragePool")
    more = {**g.steps(d), **g.padding(d, kernel), "ceil_mode": g.pick(None, 1)}
    if kind == "AveragePool":
        more["count_include_pad"] = g.pick(None, 1)
    g.add(kind, g.last, kernel_shape=kernel, **more)


def resize(g: Odd) -> None:
    d = len(g.shape) - 2
    scales = g.constant(np.array([1, 1, *g.rng.choice([0.34, 0.5, 0.7, 1, 1.5, 2, 2.3, 3], size=d)], np.float32))
    mode = g.pick("nearest", "linear")
    if g.opset < 11:
        g.add("Upsample" if g.opset == 9 else "Resize", g.last, scales, mode=mode)
        return
    where = g.pick("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    nearest = g.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") if mode == "nearest" else None
    more = {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": nearest}
    none = g.constant(np.zeros(0, np.float32))
    if g.rng.random() < 0.5:
        g.add("Resize", g.last, none, scales, **more)
    else:
        g.add("Resize", g.last, none, none, g.whole(*g.shape[:2], *g.several(d, 8, 1)), **more)


def cut(g: Odd) -> None:
    """Slices from anywhere to anywhere, forwards and backwards."""
    axis = int(g.rng.integers(len(g.shape)))
    n = g.shape[axis]
    start, end = (int(g.pick(int(g.rng.integers(-n - 2, n + 3)), 2**63 - 1, -(2**63) + 1)) for _ in range(2))
    step, at = g.pick(1, 1, 2, -1, -2), g.pick(axis, axis - len(g.shape))
    if g.opset < 10:
        g.add("Slice", g.last, starts=[start], ends=[end], axes=[at])
    else:
        g.add("Slice", g.last, *(g.whole(value) for value in (start, end, at, step)))


def pad(g: Odd) -> None:
    n, mode = len(g.shape), g.pick("constant", "reflect", "edge")
    pads = [0 if i % n == 0 else int(g.rng.integers(-1, min(3, g.shape[i % n]))) for i in range(2 * n)]
    if g.opset < 11:
        g.add("Pad", g.last, mode=mode, pads=pads, value=0.7)
    else:
        g.add("Pad", g.last, g.whole(*pads), g.constant(np.float32(0.7)), mode=mode)


def reduce(g: Odd) -> None:
    op, n = g.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), len(g.shape)
    axes = [int(a) - int(g.pick(0, n)) for a in g.rng.permutation(n)[: int(g.rng.integers(1, n + 1))]]
    if g.opset >= 18 or (op == "ReduceSum" and g.opset >= 13):
        g.add(op, g.last, g.whole(*axes), keepdims=g.pick(0, 1))
    else:
        g.add(op, g.last, axes=axes, keepdims=g.pick(0, 1))


def combine(g: Odd) -> None:
    """With constants of other shapes, on either side."""
    shape = [g.pick(1, n) for n in g.shape][int(g.rng.integers(len(g.shape))) :]
    pair = [g.last, g.normal(*shape)]
    g.rng.shuffle(pair)
    g.add(g.pick("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean"), *pair)


def product(g: Odd) -> None:
    n = g.shape
    if g.rng.random() < 0.5:
        g.add("MatMul", g.last, g.normal(*g.pick((n[-1], 3), (n[-1],), (2, n[-1], 3))))
    else:
        g.add("MatMul", g.normal(3, n[-2]), g.last)


def move(g: Odd) -> None:
    n, op = len(g.shape), g.pick("Flatten", "Transpose", "Gather", "Concat")
    at = int(g.rng.integers(-n, n)) if g.opset >= 11 else int(g.rng.integers(n))
    if op == "Transpose":
        g.add(op, g.last, perm=g.pick(None, g.rng.permutation(n).tolist()))
    elif op == "Gather":
        g.add(op, g.last, g.constant(g.rng.integers(g.shape[at], size=g.pick((), (2,), (2, 2)))), axis=at)
    elif op == "Concat":
        g.add(op, g.last, g.last, axis=at)
    else:
        g.add(op, g.last, axis=at)


#: For images, and for any tensor.
IMAGES: list[Callable[[Odd], None]] = [conv, transposed, pool, pool, resize]
ANY: list[Callable[[Odd], None]] = [cut, pad, reduce, combine, product, move]


def operations(rng: Generator) -> Outcome:
    d = int(rng.choice([0, 1, 2, 2, 3]))
    shape = (1, int(rng.integers(1, 5)), *rng.integers(1, 6, size=d).tolist())
    graph = Odd(rng, shape, int(rng.integers(7, 23)))
    for _ in range(int(rng.integers(1, 3))):
        steps = [*(IMAGES if len(graph.shape) > 2 else []), *ANY]
        steps[int(rng.integers(len(steps)))](graph)
        out = graph.run(graph.point())
        if out is None or not 0 < out.size <= MOST or out.ndim < 2:
            return Outcome("none made", [])
        graph.shape = out.shape
        if rng.random() < 0.3:
            graph.add("Relu", graph.last)
    graph.add("Reshape", graph.last, graph.whole(1, -1))
    names = f"{shape} opset {graph.opset}: " + "; ".join(
        f"{node.op_type} { ({a.name: oh.get_attribute_value(a) for a in node.attribute}) }" for node in graph.nodes
    )
    with tempfile.TemporaryDirectory(prefix="soundness") as folder:
        path = Path(folder) / "graph.onnx"
        onnx.save(graph.model(), path)
        try:
            network = lc.load(path)
        except LayerCertError as error:
            return Outcome("refused", [f"{error}: {names}"] if "differs from the model" in str(error) else [])
        for _ in range(3):
            x = graph.point()
            theirs, ours = graph.run(x), network(x.reshape(-1).astype(np.float64))
            assert theirs is not None
            scale = TOLERANCE * max(1.0, float(np.abs(x).max()), float(np.abs(theirs).max()))
            if ours.shape != theirs.reshape(-1).shape or not np.abs(ours - theirs.reshape(-1)).max() <= scale:
                return Outcome("read", [f"{ours} here, {theirs.reshape(-1)} in onnxruntime: {names}"])
    return Outcome("read", [])
