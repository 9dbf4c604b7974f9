"""Random properties as text and as plain Python, so that the readers can be judged by direct evaluation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.random import Generator

from layercert.network import Network

#: Values of inputs, outputs and constants: few, so that equality and strictness matter often.
VALUES = ["-1.5", "-1", "-0.25", "0", "0.1", "0.5", "1e-1", "1.0", "2"]
SIGNS = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@dataclass
class Written:
    """A property: its text in both versions, and a function that decides a point directly."""

    inputs: int
    outputs: int
    trees: list[tuple]

    def holds(self, x: list[Fraction], y: list[Fraction]) -> bool:
        return all(_holds(tree, x, y) for tree in self.trees)

    def text(self, version: int) -> str:
        if version == 1:
            names = [f"X_{i}" for i in range(self.inputs)] + [f"Y_{j}" for j in range(self.outputs)]
            head = "".join(f"(declare-const {name} Real)\n" for name in names)
        else:
            head = "(vnnlib-version <2.0>)\n(declare-network N\n"
            head += f"  (declare-input X float32 [1,{self.inputs}])\n  (declare-output Y Real [{self.outputs}]))\n"
        return head + "".join(f"(assert {_text(tree, version)}) ; more\n" for tree in self.trees)


def random_property(seed: int, both_equalities: bool = True) -> Written:
    """Bounds of every input, then a few and/or trees of bounds and linear output constraints."""
    rng = np.random.default_rng(seed)
    inputs, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    trees: list[tuple] = []
    for i in range(inputs):
        trees += [("<=", ("x", i), ("n", "2")), (">=", ("x", i), ("n", "-1.5"))]
    signs = list(SIGNS) if both_equalities else ["<=", ">=", "<", ">"]
    trees += [_tree(rng, inputs, outputs, 3, signs) for _ in range(int(rng.integers(1, 4)))]
    return Written(inputs, outputs, trees)


def random_point(rng: Generator, count: int) -> list[Fraction]:
    return [Fraction(str(rng.choice(VALUES))) for _ in range(count)]


def _tree(rng: Generator, inputs: int, outputs: int, depth: int, signs: list[str]) -> tuple:
    if depth and rng.random() < 0.5:
        parts = [_tree(rng, inputs, outputs, depth - 1, signs) for _ in range(int(rng.integers(1, 4)))]
        return (str(rng.choice(["and", "or"])), *parts)
    sign = str(rng.choice(signs))
    if rng.random() < 0.4:
        left, right = ("x", int(rng.integers(inputs))), ("n", str(rng.choice(VALUES)))
        return (sign, left, right) if rng.random() < 0.5 else (sign, right, ("*", ("n", "-2"), left))
    return (sign, _linear(rng, outputs, 2), _linear(rng, outputs, 1))


def _linear(rng: Generator, outputs: int, depth: int) -> tuple:
    kind = int(rng.integers(5)) if depth else int(rng.integers(2))
    if kind == 0:
        return ("n", str(rng.choice(VALUES)))
    if kind == 1:
        return ("y", int(rng.integers(outputs)))
    if kind == 2:
        return ("*", ("n", str(rng.choice(VALUES))), _linear(rng, outputs, depth - 1))
    operands = [_linear(rng, outputs, depth - 1) for _ in range(int(rng.integers(1, 4)))]
    return ("+" if kind == 3 else "-", *operands)


def _text(tree: tuple, version: int) -> str:
    head = tree[0]
    if head == "n":
        return str(tree[1])
    if head == "x":
        return f"X_{tree[1]}" if version == 1 else f"X[0,{tree[1]}]"
    if head == "y":
        return f"Y_{tree[1]}" if version == 1 else f"Y [ {tree[1]} ]"
    if version == 1 and head == "!=":  # not in 1.0
        a, b = _text(tree[1], 1), _text(tree[2], 1)
        return f"(or (< {a} {b})\n (> {a} {b}))"
    name = "=" if version == 1 and head == "==" else head
    return f"({name} {' '.join(_text(part, version) for part in tree[1:])})"


def _holds(tree: tuple, x: list[Fraction], y: list[Fraction]) -> bool:
    if tree[0] == "and":
        return all(_holds(part, x, y) for part in tree[1:])
    if tree[0] == "or":
        return any(_holds(part, x, y) for part in tree[1:])
    return SIGNS[tree[0]](_value(tree[1], x, y), _value(tree[2], x, y))


def _value(tree: tuple, x: list[Fraction], y: list[Fraction]) -> Fraction:
    if tree[0] == "n":
        return Fraction(tree[1])
    if tree[0] in ("x", "y"):
        return (x if tree[0] == "x" else y)[tree[1]]
    parts = [_value(part, x, y) for part in tree[1:]]
    if tree[0] == "*":
        return parts[0] * parts[1]
    if tree[0] == "+":
        return sum(parts, Fraction(0))
    return -parts[0] if len(parts) == 1 else parts[0] - sum(parts[1:], Fraction(0))


def float32_network(seed: int, inputs: int | None = None, outputs: int | None = None) -> Network:
    """A tiny network whose weights are float32 numbers, as those of an ONNX file are."""
    rng = np.random.default_rng(seed)
    sizes = [
        inputs or int(rng.integers(1, 4)),
        *rng.integers(1, 4, size=2).tolist(),
        outputs or int(rng.integers(1, 4)),
    ]
    weights = [rng.normal(size=(m, n)).astype(np.float32) for n, m in itertools.pairwise(sizes)]
    return Network.from_arrays(weights, [(rng.normal(size=m) * 0.5).astype(np.float32) for m in sizes[1:]])


def write_onnx(network: Network, path: Path, shape: list[int] | None = None) -> None:
    """The network as an ONNX file of Flatten, Gemm and Relu nodes in float32."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Flatten", ["x"], ["h0"])]
    tensors = []
    for i, (W, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        last = i == network.L
        tensors += [numpy_helper.from_array(W.astype(np.float32), f"W{i}")]
        tensors += [numpy_helper.from_array(b.astype(np.float32), f"b{i}")]
        nodes.append(helper.make_node("Gemm", [f"h{i}", f"W{i}", f"b{i}"], ["y" if last else f"z{i}"], transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i + 1}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or [1, network.inputs])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, network.classes])
    graph = helper.make_graph(nodes, "tiny", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


def simple_text(box: list[tuple[str, str]], outputs: int, constraint: str) -> str:
    """A 1.0 property: a box, and one constraint on the outputs ("" for none)."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(box))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(outputs)]
    lines += [f"(assert (>= X_{i} {low}))\n(assert (<= X_{i} {high}))" for i, (low, high) in enumerate(box)]
    return "\n".join([*lines, f"(assert {constraint})" if constraint else ""])
