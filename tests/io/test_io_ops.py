"""Every operation of a real model against onnxruntime: attributes at random, all opsets, and the neurons it costs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from helpers.onnx_models import NEWEST, build, numbers, run
from helpers.profiles import examples
from layercert.cli import main
from layercert.errors import ModelError
from layercert.io import load
from layercert.io.affine import Affine
from layercert.io.ops import OPS
from layercert.network import Network

Draw = st.DrawFn
i64 = np.array


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def read(folder: Path, model: onnx.ModelProto) -> Network:
    onnx.save(model, folder / "model.onnx")
    return load(folder / "model.onnx")


def agrees(net: Network, model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    """Both models within float32's error of the real-number network (or 1e-5, where that bound is loose)."""
    for seed in range(3):
        x = numbers(shape, seed + 100)
        flat = x.reshape(-1).astype(np.float64)
        y, mine = run(model, x), net(flat)
        assert y.shape == mine.shape
        room = np.minimum(net.float32_error(flat) + 1e-6, 1e-4 * (1.0 + np.abs(y)))
        np.testing.assert_array_less(np.abs(y - mine), room)


def check(folder: Path, body: str, shape: tuple[int, ...], opset: int = 17, **constants: Any) -> Network:
    """A model whose last value `h` is flattened into scores."""
    model = build(f"{body}; y = Flatten(h)", shape, opset, **constants)
    net = read(folder, model)
    agrees(net, model, shape)
    return net


# Convolutions and pooling.


@st.composite
def convolutions(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Shape of the image, shape of the weights, attributes."""
    d = draw(st.sampled_from([1, 2, 2, 3]))
    group = draw(st.sampled_from([1, 1, 2]))
    channels, out = group * draw(st.integers(1, 2)), group * draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 3)) for _ in range(d)]
    dilations = [draw(st.integers(1, 2)) for _ in range(d)]
    strides = [draw(st.integers(1, 3)) for _ in range(d)]
    space = [draw(st.integers((k - 1) * s + 1, (k - 1) * s + 4)) for k, s in zip(kernel, dilations, strict=True)]
    text = f"strides={strides}, dilations={dilations}, group={group}, kernel_shape={kernel}"
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if auto == "NOTSET":
        text += f", pads={[draw(st.integers(0, 2)) for _ in range(2 * d)]}"
    elif auto.startswith("SAME"):  # onnxruntime takes no dilations there
        text = text.replace(f"dilations={dilations}, ", "")
        text += f', auto_pad="{auto}"'
    else:
        text += f', auto_pad="{auto}"'
    return (1, channels, *space), (out, channels // group, *kernel), text


@examples(60)
@given(case=convolutions(), bias=st.booleans(), opset=st.sampled_from([9, 11, 17, 22]))
def test_convolutions(folder: Path, case: Any, bias: bool, opset: int) -> None:
    shape, weights, text = case
    constants: dict[str, Any] = {"W": weights, "b": weights[:1]} if bias else {"W": weights}
    net = check(folder, f"h = Conv<{text}>({', '.join(['x', *constants])})", shape, opset, **constants)
    assert net.L == 0 and set(np.unique(net.weights[0])) <= {0.0, *numbers(weights, 0).astype(float).ravel()}


@st.composite
def poolings(draw: Draw, most: int = 3) -> tuple[tuple[int, ...], str]:
    d = draw(st.sampled_from([1, 2, 2, 3]))
    kernel = [draw(st.integers(1, most)) for _ in range(d)]
    strides = [draw(st.integers(1, 3)) for _ in range(d)]
    space = [draw(st.integers(k, k + 4)) for k in kernel]
    text = f"kernel_shape={kernel}, strides={strides}"
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if auto == "NOTSET":
        text += f", pads={[draw(st.integers(0, k - 1)) for k in kernel * 2]}"
    else:  # onnxruntime takes no strides above the window there
        text = text.replace(
            f"strides={strides}", f"strides={[min(s, k) for s, k in zip(strides, kernel, strict=True)]}"
        )
        text += f', auto_pad="{auto}"'
    return (1, draw(st.integers(1, 2)), *space), text


@examples(40)
@given(case=poolings(), include=st.booleans(), opset=st.sampled_from([9, 11, 19, 22]))
def test_average_pooling(folder: Path, case: Any, include: bool, opset: int) -> None:
    shape, text = case
    assert check(folder, f"h = AveragePool<{text}, count_include_pad={include:d}>(x)", shape, opset).L == 0


@examples(40)
@given(case=poolings(), first=st.booleans(), opset=st.sampled_from([9, 10, 12, 22]))
def test_max_pooling(folder: Path, case: Any, first: bool, opset: int) -> None:
    shape, text = case
    body = f"r = Relu(x); h = MaxPool<{text}>(r)" if first else f"h = MaxPool<{text}>(x)"
    check(folder, body, shape, opset)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize(
    ("n", "k", "s", "pads"), [(5, 2, 2, [0, 0]), (6, 3, 2, [1, 1]), (4, 2, 3, [0, 1]), (7, 3, 3, [1, 0])]
)
def test_ceil_mode(folder: Path, op: str, include: int, n: int, k: int, s: int, pads: list[int]) -> None:
    """The last window may reach beyond the image, but must begin in it."""
    more = f", count_include_pad={include}" if op == "AveragePool" else ""
    check(folder, f"h = {op}<kernel_shape=[{k}], strides=[{s}], pads={pads}, ceil_mode=1{more}>(x)", (1, 2, n), 22)


def test_dilated_max_pooling(folder: Path) -> None:
    check(folder, "h = MaxPool<kernel_shape=[2,2], dilations=[2,1], strides=[1,2]>(x)", (1, 2, 5, 4))


def test_the_neurons_of_a_max_pooling(folder: Path) -> None:
    """2 x 2 after a ReLU: two comparisons and two values carried, then one comparison and one value, a window."""
    model = build("r = Relu(x); m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r); y = Flatten(m)", (1, 1, 4, 4))
    assert read(folder, model).widths == (16, 16, 8)


# One case each.

CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "BatchNormalization": ("h = BatchNormalization<epsilon=0.01>(x, s, b, m, v)", (1, 3, 2, 2),
                           {"s": (3,), "b": (3,), "m": (3,), "v": np.float32([0.5, 2.0, 1.5])}),
    "BatchNormalization of features": ("h = BatchNormalization(x, s, b, m, v)", (1, 3),
                                       {"s": (3,), "b": (3,), "m": (3,), "v": np.float32([0.5, 2.0, 1.5])}),
    "GlobalAveragePool": ("h = GlobalAveragePool(x)", (1, 2, 3, 5), {}),
    "GlobalMaxPool": ("h = GlobalMaxPool(x)", (1, 2, 3, 5), {}),
    "LeakyRelu": ("h = LeakyRelu<alpha=0.2>(x)", (1, 4), {}),
    "LeakyRelu by default": ("h = LeakyRelu(x)", (1, 4), {}),
    "PRelu": ("h = PRelu(x, s)", (1, 3, 2, 2), {"s": (3, 1, 1)}),
    "Abs": ("h = Abs(x)", (1, 4), {}),
    "HardSigmoid": ("h = HardSigmoid<alpha=0.3, beta=0.4>(x)", (1, 6), {}),
    "Max of branches": ("a = Mul(x, k); h = Max(a, x, c)", (1, 4), {"k": (4,), "c": (1,)}),
    "Max with a constant": ("h = Max(c, x)", (1, 4), {"c": (4,)}),
    "Min of branches": ("a = Mul(x, k); h = Min(x, a)", (1, 4), {"k": (4,)}),
    "Min with a constant": ("h = Min(x, c)", (1, 4), {"c": (1,)}),
    "Sum": ("a = Relu(x); h = Sum(a, x, c, x)", (1, 4), {"c": (4,)}),
    "Mean": ("a = Relu(x); h = Mean(a, x, c)", (1, 4), {"c": (4,)}),
    "Add of branches": ("a = Relu(x); h = Add(x, a)", (1, 4), {}),
    "Add that broadcasts a branch": ("a = Relu(x); b = Slice(a, z, o, o); h = Add(x, b)", (1, 4),
                                     {"z": i64([0]), "o": i64([1])}),
    "Sub of branches": ("a = Relu(x); h = Sub(a, x)", (1, 4), {}),
    "a value less itself": ("a = Sub(x, x); h = Add(a, c)", (1, 4), {"c": (4,)}),
    "Gemm with x as C": ("h = Gemm(x, W, x)", (1, 4), {"W": (4, 4)}),
    "Concat of branches": ("a = Relu(x); n = Neg(x); h = Concat<axis=1>(a, n, c)", (1, 4), {"c": (1, 2)}),
    "Concat of channels": ("a = Relu(x); h = Concat<axis=-3>(x, a)", (1, 2, 2, 3), {}),
    "Split": ("a, b = Split<axis=1>(x, s); r = Relu(b); h = Concat<axis=1>(r, a)", (1, 5), {"s": i64([2, 3])}),
    "Split evenly": ("a, b = Split<axis=1>(x); h = Max(a, b)", (1, 6), {}),
    "Pad": ("h = Pad(x, p, c)", (1, 2, 2, 3), {"p": i64([0, 0, 1, 2, 0, 1, 0, 1]), "c": np.float32(0.5)}),
    "Pad that cuts": ("h = Pad(x, p)", (1, 1, 4, 4), {"p": i64([0, 0, -1, 1, 0, 0, 0, -2])}),
    "Pad by reflection": ('h = Pad<mode="reflect">(x, p)', (1, 1, 3, 4), {"p": i64([0, 0, 1, 2, 0, 0, 1, 0])}),
    "Pad by the edge": ('h = Pad<mode="edge">(x, p)', (1, 1, 3, 4), {"p": i64([0, 0, 1, 2, 0, 0, 1, 0])}),
    "padding and ReLU": ("a = Pad(x, p, c); h = Relu(a)", (1, 3), {"p": i64([0, 1, 0, 1]), "c": np.float32(-0.5)}),
    "ReduceMean": ("a = ReduceMean<axes=[2,3]>(x); h = Flatten(a)", (1, 2, 3, 2), {}),
    "ReduceMean of all": ("h = ReduceMean<keepdims=1>(x)", (1, 2, 3), {}),
    "ReduceSum": ("q = ReduceSum<keepdims=0>(x, a); h = Unsqueeze(q, z)", (1, 3, 2),
                  {"a": i64([-1]), "z": i64([0])}),
    "ReduceMax": ("h = ReduceMax<axes=[1]>(x)", (1, 5, 2), {}),
    "ReduceMin": ("h = ReduceMin<axes=[-1]>(x)", (1, 2, 3), {}),
    "DepthToSpace": ("h = DepthToSpace<blocksize=2>(x)", (1, 8, 2, 1), {}),
    "DepthToSpace, columns first": ('h = DepthToSpace<blocksize=2, mode="CRD">(x)', (1, 8, 2, 1), {}),
    "SpaceToDepth": ("h = SpaceToDepth<blocksize=2>(x)", (1, 2, 4, 2), {}),
    "normalisation by hand": ("v = Pow(s, two); w = Sqrt(v); r = Reciprocal(w); a = Sub(x, m); h = Mul(a, r)", (1, 3),
                              {"s": np.float32([0.5, 2, 3]), "two": np.float32(2), "m": (3,)}),
    "Clip below": ("h = Clip(x, low)", (1, 4), {"low": np.float32(-0.3)}),
    "Clip above": ("h = Clip(x, none, high)", (1, 4), {"high": np.float32(0.4)}),
    "Clip on both sides": ("h = Clip(x, low, high)", (1, 6), {"low": np.float32(-0.3), "high": np.float32(0.4)}),
    "Clip to everything": ("h = Clip(x)", (1, 4), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_operation_agrees_with_onnxruntime(folder: Path, name: str) -> None:
    body, shape, constants = CASES[name]
    check(folder, body, shape, **constants)


@pytest.mark.parametrize("opset", range(9, NEWEST + 1))
def test_a_convolutional_network_in_every_opset(folder: Path, opset: int) -> None:
    """Operations whose attributes became inputs on the way: Clip, Pad, ReduceMean, Split, Dropout."""
    clip = "Clip<min=0.0, max=6.0>(n)" if opset < 11 else "Clip(n, low, high)"
    pad = "Pad<pads=[0,0,0,0,0,0,1,1]>(c)" if opset < 11 else "Pad(c, pads)"
    mean = "ReduceMean<axes=[3]>(j)" if opset < 18 else "ReduceMean(j, three)"
    split = "Split<axis=1, split=[1,2]>(p)" if opset < 13 else "Split<axis=1>(p, parts)"
    body = (
        "k = Conv<pads=[1,1,1,1], strides=[2,2]>(x, W, b); n = BatchNormalization(k, s, t, m, v);"
        f"c = {clip}; d = {pad}; p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d); u, w = {split}; q = LeakyRelu(w);"
        f"j = Concat<axis=1>(q, u); a = {mean}; f = Flatten(a); e = Dropout(f); h = Gemm<transB=1>(e, F, g)"
    )
    net = check(
        folder, body, (1, 2, 6, 6), opset,
        W=(3, 2, 3, 3), b=(3,), s=(3,), t=(3,), m=(3,), v=np.float32([1, 2, 0.5]), F=(4, 6), g=(4,),
        low=np.float32(0), high=np.float32(6), pads=i64([0, 0, 0, 0, 0, 0, 1, 1]), three=i64([3]), parts=i64([1, 2]),
    )  # fmt: skip
    assert net.inputs == 72 and net.classes == 4 and net.input_shape == (1, 2, 6, 6)


# What rewriting costs, and that it is exact.


def test_a_skip_connection_costs_the_narrower_of_both(folder: Path) -> None:
    """A residual block over 6 neurons carries them; a skip of 2 numbers from 6 neurons carries those, as pairs."""
    body = (
        "a = Gemm(x, W); r = Relu(a); b = Gemm(r, V); s = Relu(b); c = Gemm(s, X); d = {}; e = Add(c, d); h = Relu(e)"
    )
    wide = build(body.format("Identity(r)") + "; y = Flatten(h)", (1, 4), W=(4, 6), V=(6, 5), X=(5, 6))
    assert read(folder, wide).widths == (6, 5 + 6, 6)
    narrow = build(body.format("Gemm(r, Z)") + "; y = Flatten(h)", (1, 4), W=(4, 6), V=(6, 5), X=(5, 2), Z=(6, 2))
    assert read(folder, narrow).widths == (6, 5 + 4, 2)
    positive = np.abs(numbers((6, 2)))  # then one neuron carries each number
    narrow = build(body.format("Gemm(r, Z)") + "; y = Flatten(h)", (1, 4), W=(4, 6), V=(6, 5), X=(5, 2), Z=positive)
    assert read(folder, narrow).widths == (6, 5 + 2, 2)
    for model in (wide, narrow):
        agrees(read(folder, model), model, (1, 4))


def test_a_skip_from_the_input_is_a_pair_of_neurons(folder: Path) -> None:
    body = "a = Gemm(x, W); r = Relu(a); b = Gemm(r, V); s = Relu(b); h = Add(s, x)"
    net = check(folder, body, (1, 3), W=(3, 5), V=(5, 3))
    assert net.widths == (5 + 6, 3 + 6)


def test_a_long_way_past_many_layers(folder: Path) -> None:
    """DenseNet-like: everything before is joined to everything after."""
    body, joined = "f0 = Relu(x)", ["f0"]
    for i in range(1, 5):
        body += f"; j{i} = Concat<axis=1>({', '.join(joined)}); g{i} = Gemm(j{i}, W{i}); f{i} = Relu(g{i})"
        joined.append(f"f{i}")
    weights = {f"W{i}": (3 + 2 * (i - 1), 2) for i in range(1, 5)}
    net = check(folder, body + "; h = Concat<axis=1>(f4, f1, x)", (1, 3), **weights)
    assert net.L == 5


def test_neurons_that_nothing_uses_are_left_out(folder: Path) -> None:
    net = check(folder, "r = Relu(x); h = Slice(r, z, t, o)", (1, 6), z=i64([1]), t=i64([3]), o=i64([1]))
    assert net.widths == (2,)


def test_weights_of_rewritten_layers_keep_every_bit(folder: Path) -> None:
    """Skips, pooling and LeakyRelu only move weights: the convolution's own numbers and nothing else."""
    model = build(
        "k = Conv(x, W); r = Relu(k); p = MaxPool<kernel_shape=[2,2]>(r); c = Conv(p, V); y = Flatten(c)", (1, 1, 4, 4),
        W=(2, 1, 2, 2), V=(2, 2, 2, 2),
    )  # fmt: skip
    net = read(folder, model)
    W, V = (set(numbers((2, k, 2, 2), i).astype(float).ravel()) for i, k in enumerate((1, 2)))
    assert set(np.unique(net.weights[0])) == W | {0.0}
    assert set(np.unique(net.weights[-1])) == V


@st.composite
def graphs(draw: Draw) -> tuple[str, dict[str, Any]]:
    """A random graph of vectors whose numbers are small multiples of powers of two: no float rounds anything."""
    width = {"x": 4}
    lines: list[str] = []
    constants: dict[str, Any] = {"zero": i64([0]), "one": i64([1]), "low": np.float32(-1), "high": np.float32(1.5)}
    for i in range(draw(st.integers(2, 10))):
        name, a = f"v{i}", draw(st.sampled_from(list(width)))
        same = [v for v in width if width[v] == width[a]]
        b = draw(st.sampled_from(same))
        op = draw(st.sampled_from(["Gemm", "Gemm", "Relu", "Relu", "Add", "Sub", "Max", "Min", "Concat", "Abs", "Leaky",
                                   "Clip", "Slice"]))  # fmt: skip
        width[name] = width[a]
        if op == "Gemm":
            width[name] = draw(st.integers(1, 4))
            entries = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), min_size=16, max_size=16)
            constants[f"W{i}"] = np.float32(draw(entries))[: width[a] * width[name]].reshape(width[a], width[name])
            lines.append(f"{name} = Gemm({a}, W{i})")
        elif op == "Concat" and width[a] + width[b] <= 8:
            width[name] = width[a] + width[b]
            constants[f"W{i}"] = np.eye(width[name], 4, dtype=np.float32)
            lines.append(f"c{i} = Concat<axis=1>({a}, {b}); {name} = Gemm(c{i}, W{i})")
            width[name] = 4
        elif op == "Slice":
            lines.append(f"{name} = Slice({a}, zero, one, one)")
            width[name] = 1
        elif op == "Clip":
            lines.append(f"{name} = Clip({a}, low, high)")
        elif op in ("Relu", "Abs"):
            lines.append(f"{name} = {op}({a})")
        elif op == "Leaky":
            lines.append(f"{name} = LeakyRelu<alpha=0.5>({a})")
        else:
            lines.append(f"{name} = {'Add' if op == 'Concat' else op}({a}, {b})")
    last = draw(st.sampled_from(list(width)[1:]))
    lines.append(f"y = Concat<axis=1>({last}, {name})")
    return ";".join(lines), constants


@examples(100)
@given(graph=graphs(), seed=st.integers(0, 999))
def test_any_graph_is_rewritten_exactly(folder: Path, graph: Any, seed: int) -> None:
    """Bit for bit what onnxruntime computes, however values branch, skip and meet again."""
    body, constants = graph
    model = build(body, (1, 4), 13, **constants)
    net = read(folder, model)
    for x in np.random.default_rng(seed).integers(-16, 17, size=(4, 4)) / 8:
        np.testing.assert_array_equal(net(x), run(model, x[None].astype(np.float32)))


def test_the_range_of_a_clipped_input_is_on_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stays part of the layers; the record only tells the user."""
    ends = {"low": np.float32(0), "high": np.float32(1)}
    net = check(folder, "c = Clip(x, low, high); h = Gemm(c, W)", (1, 4), W=(4, 3), **ends)
    assert net.input_range == (0.0, 1.0) and net.widths == (8,)
    np.save(folder / "x.npy", np.full((1, 4), 0.5))
    main(["measure", str(folder / "model.onnx"), "--input", str(folder / "x.npy")])
    assert "the model clips its input to 0..1; add --domain 0 1 to stay within it" in capsys.readouterr().err
    np.testing.assert_array_equal(net(np.full(4, 7.0)), net(np.ones(4)))
    assert check(folder, "n = Neg(x); h = Clip(n, low, high)", (1, 4), **ends).input_range is None


# Refusals.


@pytest.mark.parametrize(
    ("body", "shape", "constants", "message"),
    [
        ("y = Conv(x, W)", (1, 2, 4, 4), {"W": (2, 3, 3, 3)}, r"Conv \(node 'y'\) has weights of shape \(2, 3, 3, 3\)"),
        ("y = Conv(x, W)", (1, 2, 4, 4), {"W": (2, 2, 5, 5)}, "cannot be computed: a window of 5 does not fit into 4"),
        ("y = Conv(x, W)", (1, 3, 512, 512), {"W": (64, 3, 7, 7)},
         r"Conv \(node 'y'\) would have about 2\.5e\+09 weights as a matrix, on an image of 512 x 512; sup"),
        ("y = Conv(x, x)", (1, 1, 4, 4), {}, r"Conv \(node 'y'\) takes its weights from the network's input"),
        ("k = Conv(c, W); y = Add(x, k)", (1, 2), {"c": (1, 1, 2), "W": (1, 1, 1)}, r"Conv \(node 'k'\) is taken of a"),
        ("y = MaxPool<kernel_shape=[2]>(x)", (1, 4), {}, r"expects one input with channels and space, .*, got shape"),
        ("y = BatchNormalization<training_mode=1>(x, s, s, s, s)", (1, 3), {"s": (3,)}, "is in training mode, where"),
        ("y = BatchNormalization(x, s, s, s, s)", (1, 1), {"s": np.float32([1, 2])}, "has 2 channels, its input has"),
        ("y = Clip(x, low)", (1, 4), {"low": (1, 4)}, r"Clip \(node 'y'\) has a min of shape \(1, 4\); supported: one"),
        ("y = Clip(x, b, a)", (1, 4), {"b": np.float32(1), "a": np.float32(0)}, "has its minimum 1 above its max"),
        ("y = PRelu(x, s)", (1, 1, 2), {"s": (2, 1, 2)}, r"PRelu \(node 'y'\) has slopes of shape \(2, 1, 2\), which"),
        ("v, i = MaxPool<kernel_shape=[2]>(x); y = Cast<to=1>(i)", (1, 1, 4), {}, r"Cast \(node 'y'\) needs 'i'"),
    ],
)  # fmt: skip
def test_refusals(folder: Path, body: str, shape: tuple[int, ...], constants: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(folder, build(body, shape, **constants))


@pytest.mark.parametrize("op", ["Tanh", "Elu", "Softplus", "Gelu", "Sin", "HardSwish", "Sign", "Ceil"])
def test_what_is_not_piecewise_linear_is_refused_by_name(folder: Path, op: str) -> None:
    with pytest.raises(
        ModelError, match=rf"not supported: {op} \(node 'y'\); supported operations: .*MaxPool.*continuous"
    ):
        read(folder, build(f"y = {op}(x)", (1, 4), 22))


# The page for users.


def test_the_documentation_lists_every_operation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    table = text[text.index("| ONNX operation |") : text.index("Everything else is refused")]
    missing = [op for op in OPS if not re.search(rf"\b{op}\b", table)]
    assert not missing


def test_a_scaled_branch_does_not_share_its_places_with_the_other() -> None:
    """scipy sorts the entries of a product in place, when `abs` or a sum asks for it."""
    A = csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    value = replace(Affine.input((3,)), shape=(2,), A=A, c=np.zeros(2))
    twice, half = value.times(np.full(2, 2.0)), value.over(np.full(2, 2.0))
    before = A.toarray()
    A.sum_duplicates()  # as abs(A) does
    np.testing.assert_array_equal(twice.A.toarray(), 2.0 * before)
    np.testing.assert_array_equal(half.A.toarray(), 0.5 * before)
