"""ONNX files: every operation against onnxruntime, every refusal by its text."""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, parser

from helpers.onnx_models import NEWEST, OPSET, agrees, build, numbers, run
from layercert.errors import ModelError
from layercert.io import load
from layercert.network import Network


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(model: onnx.ModelProto) -> Network:
        onnx.save(model, tmp_path / "model.onnx")
        return load(tmp_path / "model.onnx")

    return read


# Operations, one by one. Each case: nodes, shape of the input, constants.

i64 = np.array
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "Gemm": ("y = Gemm(x, W, b)", (1, 4), {"W": (4, 3), "b": (3,)}),
    "Gemm transB": ("y = Gemm<transB=1>(x, W, b)", (1, 4), {"W": (3, 4), "b": (3,)}),
    "Gemm without C": ("y = Gemm(x, W)", (1, 4), {"W": (4, 3)}),
    "Gemm with C omitted": ("y = Gemm(x, W, none)", (1, 4), {"W": (4, 3)}),
    "Gemm on a column": ("y = Gemm<transA=1>(x, W)", (4, 1), {"W": (4, 3)}),
    "Gemm of constants, x as C": ("y = Gemm<alpha=0.5, beta=-2.0>(A, B, x)", (1, 3), {"A": (1, 4), "B": (4, 3)}),
    "MatMul": ("y = MatMul(x, W)", (1, 4), {"W": (4, 3)}),
    "MatMul constant left": ("y = MatMul(W, x)", (4, 1), {"W": (3, 4)}),
    "MatMul constant left, batch": ("y = MatMul(W, x)", (1, 4, 1), {"W": (3, 4)}),
    "MatMul of a stack, left": ("y = MatMul(W, x)", (1, 4, 1), {"W": (1, 1, 3, 4)}),
    "MatMul of a stack, right": ("y = MatMul(x, W)", (1, 4), {"W": (3, 4, 1)}),
    "MatMul row by row": ("h = MatMul(x, W); y = Flatten(h)", (1, 2, 4), {"W": (4, 3)}),
    "MatMul column by column": ("h = MatMul(W, x); y = Flatten(h)", (1, 4, 2), {"W": (3, 4)}),
    "MatMul vector matrix": ("y = MatMul(x, W)", (4,), {"W": (4, 3)}),
    "MatMul matrix vector": ("y = MatMul(W, x)", (4,), {"W": (3, 4)}),
    "MatMul stack vector": ("y = MatMul(W, x)", (4,), {"W": (1, 3, 4)}),
    "MatMul vector stack": ("y = MatMul(x, W)", (4,), {"W": (1, 4, 3)}),
    "MatMul by a vector": ("y = MatMul(x, w)", (1, 4), {"w": (4,)}),
    "MatMul by a vector, left": ("y = MatMul(w, x)", (4, 1), {"w": (4,)}),
    "MatMul inner product": ("y = MatMul(x, w)", (4,), {"w": (4,)}),
    "Add": ("y = Add(x, b)", (1, 4), {"b": (4,)}),
    "Add constant left": ("y = Add(b, x)", (1, 4), {"b": ()}),
    "Add that broadcasts x": ("h = Add(x, b); y = Flatten(h)", (1, 1, 4), {"b": (3, 1)}),
    "Sub": ("y = Sub(x, b)", (1, 4), {"b": (1, 4)}),
    "Sub constant left": ("y = Sub(b, x)", (1, 4), {"b": (4,)}),
    "Mul": ("y = Mul(x, b)", (1, 4), {"b": (4,)}),
    "Mul constant left": ("y = Mul(b, x)", (1, 4), {"b": (1,)}),
    "Mul by zeros": ("h = Mul(x, zero); y = Add(h, b)", (1, 4), {"zero": np.float32([0, 1, 0, 0]), "b": (4,)}),
    "Div": ("y = Div(x, b)", (1, 4), {"b": (4,)}),
    "Neg": ("y = Neg(x)", (1, 4), {}),
    "Flatten": ("y = Flatten(x)", (1, 2, 3), {}),
    "Flatten at 0": ("y = Flatten<axis=0>(x)", (1, 2, 3), {}),
    "Flatten from the end": ("y = Flatten<axis=-3>(x)", (1, 2, 3), {}),
    "Reshape": ("y = Reshape(x, s)", (1, 2, 3), {"s": i64([1, 6])}),
    "Reshape with -1": ("y = Reshape(x, s)", (1, 2, 3), {"s": i64([-1, 6])}),
    "Reshape with 0": ("y = Reshape(x, s)", (1, 2, 3), {"s": i64([0, -1])}),
    "Reshape with allowzero": ("y = Reshape<allowzero=1>(x, s)", (1, 2, 3), {"s": i64([1, 6])}),
    "Squeeze": ("h = Squeeze(x, a); y = MatMul(h, W)", (1, 1, 4), {"a": i64([1]), "W": (4, 3)}),
    "Squeeze all": ("h = Squeeze(x); y = MatMul(h, W)", (1, 4, 1), {"W": (4, 3)}),
    "Unsqueeze": ("y = Unsqueeze(x, a)", (1, 4), {"a": i64([0, -1])}),
    "Transpose": ("t = Transpose<perm=[0,2,1]>(x); f = Flatten(t); y = Gemm(f, W)", (1, 2, 3), {"W": (6, 3)}),
    "Transpose by default": ("t = Transpose(x); y = Reshape(t, s)", (1, 2, 3), {"s": i64([1, -1])}),
    "Identity": ("y = Identity(x)", (1, 4), {}),
    "Dropout": ("y = Dropout(x)", (1, 4), {}),
    "Dropout with ratio": ("y = Dropout(x, r, t)", (1, 4), {"r": np.float32(0.5), "t": np.array(False)}),
    "Gather": ("y = Gather<axis=1>(x, i)", (1, 4), {"i": i64([3, 0, -2, 0])}),
    "Slice": ("y = Slice(x, s, e, a, k)", (1, 6),
              {"s": i64([5]), "e": i64([-(2**63)]), "a": i64([1]), "k": i64([-2])}),
    "Slice without axes": ("y = Slice(x, s, e)", (1, 6), {"s": i64([0, 1]), "e": i64([1, 2**62])}),
    "Expand": ("h = Expand(x, s); y = Flatten(h)", (1, 1, 3), {"s": i64([2, 1])}),
    "Cast to the same type": ("y = Cast<to=1>(x)", (1, 4), {}),
    "Relu": ("y = Relu(x)", (1, 4), {}),
    "two Relus in a row": ("h = Gemm(x, W); r = Relu(h); s = Relu(r); y = Gemm(s, V)", (1, 4),
                           {"W": (4, 5), "V": (5, 2)}),
    "Relu before all else": ("r = Relu(x); y = Gemm(r, W)", (1, 4), {"W": (4, 3)}),
    "two affine layers": ("h = Gemm(x, W, b); y = Gemm(h, V, c)", (1, 4),
                          {"W": (4, 5), "b": (5,), "V": (5, 2), "c": (2,)}),
    "one input, one output": ("y = Mul(x, b)", (1, 1), {"b": (1,)}),
    "a scalar": ("h = Mul(x, b); y = Relu(h)", (), {"b": ()}),
    # constants computed in the graph
    "Constant tensor": ("c = Constant<value=float[4]{1.0,2.0,3.0,4.5}>(); y = Add(x, c)", (1, 4), {}),
    "Constant float": ("c = Constant<value_float=0.1>(); y = Mul(x, c)", (1, 4), {}),
    "Constant floats": ("c = Constant<value_floats=[0.1,0.2]>(); y = Add(x, c)", (1, 2), {}),
    "Constant ints": ("s = Constant<value_ints=[1,-1]>(); y = Reshape(x, s)", (1, 2, 2), {}),
    "Constant int": ("k = Constant<value_int=2>(); y = Gather<axis=1>(x, k)", (1, 4), {}),
    "transposed weights": ("T = Transpose<perm=[1,0]>(W); y = MatMul(x, T)", (1, 4), {"W": (3, 4)}),
    "arithmetic on weights": ("p = Mul(W, b); q = Sub(p, b); r = Div(q, c); n = Neg(r); t = Relu(n); y = MatMul(x, t)",
                              (1, 4), {"W": (4, 3), "b": (3,), "c": (3,)}),
    "product of weights": ("P = MatMul(V, W); G = Gemm<alpha=2.0>(P, W, b); y = MatMul(x, G)", (1, 3),
                           {"V": (3, 3), "W": (3, 3), "b": (3,)}),
    "shape of x": ("s = Shape(x); n = Gather(s, zero); u = Unsqueeze(n, ax); t = Concat<axis=0>(u, m);"
                   "y = Reshape(x, t)", (1, 2, 3), {"zero": i64(0), "ax": i64([0]), "m": i64([-1])}),
    "part of a shape": ("s = Shape<start=1, end=3>(x); t = Concat<axis=0>(o, s); z = Expand(b, t); y1 = Add(x, z);"
                        "y = Flatten(y1)", (1, 2, 3), {"o": i64([1]), "b": (1, 1, 1)}),
    # 5 / -2 is -2 in ONNX, which rounds towards zero: the first (-2)^2 entries
    "integer arithmetic": ("s = Shape(x); a = Gather(s, one); d = Div(a, m); p = Mul(d, d); c = Cast<to=6>(p);"
                           "e = Cast<to=7>(c); y = Slice(x, zero, e, one)",
                           (1, 5), {"zero": i64([0]), "one": i64([1]), "m": i64([-2])}),
    "ConstantOfShape": ("z = ConstantOfShape(s); o = ConstantOfShape<value=float[1]{0.5}>(s); c = Add(z, o);"
                        "y = Add(x, c)", (1, 4), {"s": i64([1, 4])}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_operation_agrees_with_onnxruntime(read: Any, name: str) -> None:
    body, shape, constants = CASES[name]
    model = build(body, shape, **constants)
    agrees(read(model), model, shape)


# Whole models.


def test_a_normalised_convolution_free_classifier(read: Any) -> None:
    """Input scaling, Flatten, hidden layers, Dropout: fused into one layer a ReLU."""
    model = build(
        "a = Sub(x, mean); b = Div(a, std); c = Flatten(b); d = Gemm<transB=1>(c, W0, b0); e = Relu(d);"
        "f = Dropout(e); g = MatMul(f, W1); h = Add(g, b1); i = Relu(h); y = Gemm<transB=1>(i, W2, b2)",
        ("N", 2, 2, 3),
        mean=(2, 1, 1), std=np.float32([[[0.5]], [[0.25]]]),
        W0=(7, 12), b0=(7,), W1=(7, 6), b1=(6,), W2=(3, 6), b2=(3,),
    )  # fmt: skip
    net = read(model)
    assert (net.inputs, net.widths, net.classes, net.source) == (12, (7, 6), 3, "model.onnx")
    agrees(net, model, (1, 2, 2, 3))


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_every_opset(read: Any, opset: int) -> None:
    squeeze = "Squeeze<axes=[0]>(u)" if opset < 13 else "Squeeze(u, zero)"
    unsqueeze = "Unsqueeze<axes=[0]>(r)" if opset < 13 else "Unsqueeze(r, zero)"
    cut = "Slice<axes=[1], starts=[1], ends=[5]>(n)" if opset < 10 else "Slice(n, one, five, one)"
    model = build(
        f"f = Flatten(x); d = Dropout(f); g = Gemm<transB=1>(d, W, b); r = Relu(g); u = {unsqueeze}; s = {squeeze};"
        f"m = MatMul(s, V); a = Add(m, c); t = Reshape(a, to); i = Identity(t); n = Neg(i); k = {cut};"
        "y = LogSoftmax(k)",
        ("batch", 2, 3),
        opset,
        W=(5, 6), b=(5,), V=(5, 6), c=(6,), to=i64([-1, 6]), zero=i64([0]), one=i64([1]), five=i64([5]),
    )  # fmt: skip
    net = read(model)
    assert (net.inputs, net.widths, net.classes) == (6, (5,), 4)
    x = numbers((1, 2, 3))
    logits = net(x.reshape(-1))
    np.testing.assert_allclose(logits - np.log(np.exp(logits).sum()), run(model, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_left_out_is_on_record(read: Any, op: str) -> None:
    """Outputs are then logits: a property of probabilities must not be checked on them."""
    net = read(build(f"h = Gemm(x, W); s = {op}<axis=1>(h); y = Identity(s)", ("N", 4), W=(4, 3)))
    assert net.dropped == f"{op} (node 's')" and net.input_shape == (1, 4)
    assert read(build("y = Gemm(x, W)", W=(4, 3))).dropped == ""


@given(data=st.data())
def test_gemm_with_any_attributes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """alpha A' B' + beta C, the input on any of its three places, C of any shape that broadcasts."""
    place = data.draw(st.sampled_from("ABC"))
    size = st.integers(1, 4)
    # one of the outer sizes is 1, so that the output is one vector
    rows, inner, columns = data.draw(st.tuples(size, size, size))
    rows, columns = (1, columns) if place in "AC" else (rows, 1)
    flip_a, flip_b = data.draw(st.booleans()), data.draw(st.booleans())
    factor = st.floats(-4, 4, width=32, allow_subnormal=False)
    shapes: dict[str, tuple[int, ...]] = {
        "A": (inner, rows) if flip_a else (rows, inner),
        "B": (columns, inner) if flip_b else (inner, columns),
    }
    c = [(), (1,), (columns,), (1, columns), (rows, 1), (rows, columns)]
    if place == "C":
        shapes["C"] = (rows, columns)
    elif (chosen := data.draw(st.sampled_from([None, *c]))) is not None:
        shapes["C"] = chosen
    names = ", ".join("x" if k == place else k for k in shapes)
    attributes = f"alpha={data.draw(factor):.9f}, beta={data.draw(factor):.9f}, transA={flip_a:d}, transB={flip_b:d}"
    x = shapes.pop(place)
    model = build(f"y = Gemm<{attributes}>({names})", x, 13, **shapes)
    path = tmp_path_factory.mktemp("gemm") / "model.onnx"
    onnx.save(model, path)
    agrees(load(path), model, x)


# Exactness: the network means the stored numbers.


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_single_operations_keep_every_bit(read: Any, dtype: str) -> None:
    import ml_dtypes

    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    W, V = numbers((5, 6)).astype(kind), numbers((5, 3)).astype(kind)
    b, c = numbers((5,)).astype(kind), numbers((3,)).astype(kind)
    element = oh.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = build(
        "f = Flatten(x); g = Gemm<transB=1>(f, W, b); r = Relu(g); m = MatMul(r, V); y = Add(m, c)",
        (1, 2, 3), element=element, W=W, V=V, b=b, c=c,
    )  # fmt: skip
    net = read(model)
    stored = [W, b, V.T, c]
    for mine, theirs in zip((net.weights[0], net.biases[0], net.weights[1], net.biases[1]), stored, strict=True):
        np.testing.assert_array_equal(mine, theirs.astype(np.float64))


def test_a_permuted_layer_keeps_every_bit(read: Any) -> None:
    W = numbers((6, 3))
    net = read(build("t = Transpose<perm=[0,2,1]>(x); f = Flatten(t); y = Gemm(f, W)", (1, 2, 3), W=W))
    order = np.arange(6).reshape(2, 3).T.reshape(-1)
    np.testing.assert_array_equal(net.weights[0][:, order], W.T.astype(np.float64))


def test_fused_layers_are_products_rounded_to_float64(read: Any) -> None:
    W, V = numbers((4, 5)).astype(np.float64), numbers((5, 3)).astype(np.float64) / 3
    net = read(build("h = Gemm(x, W); y = Gemm(h, V)", element=TensorProto.DOUBLE, W=W, V=V))
    assert net.L == 0
    for i, j in np.ndindex(4, 3):
        exact = sum(Fraction(W[i, k]) * Fraction(V[k, j]) for k in range(5))
        size = sum(abs(Fraction(W[i, k]) * Fraction(V[k, j])) for k in range(5))
        assert abs(Fraction(net.weights[0][j, i]) - exact) <= 5 * Fraction(2) ** -53 * size * Fraction(101, 100)


def test_weights_that_overflow_when_fused_are_named(read: Any) -> None:
    big = np.full((2, 2), 1e200)
    with pytest.raises(ModelError, match=r"model\.onnx: weights\[0\] holds inf at \(0, 0\)"):
        read(build("h = Gemm(x, W); y = Gemm(h, W)", (1, 2), element=TensorProto.DOUBLE, W=big))


def test_casts_to_a_wider_float_change_nothing(read: Any) -> None:
    W = numbers((4, 3)).astype(np.float64)
    model = build("h = Cast<to=11>(x); C = Cast<to=11>(b); m = MatMul(h, W); y = Add(m, C)",
                  output_element=TensorProto.DOUBLE, W=W, b=(3,))  # fmt: skip
    agrees(read(model), model, (1, 4))


def test_a_cast_rounds_a_constant_as_the_model_says(read: Any) -> None:
    third = np.full((4,), 1 / 3)
    net = read(build("c = Cast<to=1>(third); y = Add(x, c)", third=third))
    np.testing.assert_array_equal(net.biases[0], third.astype(np.float32).astype(np.float64))


# Shapes of networks.


def test_two_relus_in_a_row_are_one_layer(read: Any) -> None:
    net = read(build("h = Gemm(x, W); r = Relu(h); i = Dropout(r); s = Relu(i); y = Gemm(s, V)", W=(4, 5), V=(5, 2)))
    assert net.widths == (5,)


def test_a_network_that_ends_in_a_relu_gets_the_identity_as_output(read: Any) -> None:
    net = read(build("h = Gemm(x, W, b); y = Relu(h)", W=(4, 3), b=(3,)))
    assert net.widths == (3,)
    np.testing.assert_array_equal(net.weights[1], np.eye(3))
    np.testing.assert_array_equal(net.biases[1], np.zeros(3))


@pytest.mark.parametrize("batch", [1, "N", None, -1, 0])
def test_the_batch_axis_may_be_one_or_unknown(read: Any, batch: Any) -> None:
    assert read(build("y = Gemm(x, W)", (batch, 4), W=(4, 3))).inputs == 4


def test_a_graph_without_nodes_is_the_identity(read: Any) -> None:
    model = build("y = Identity(x)", (1, 2))
    del model.graph.node[:]
    model.graph.output[0].name = "x"
    np.testing.assert_array_equal(read(model).weights[0], np.eye(2))


def test_weights_listed_among_the_inputs_stay_weights(read: Any) -> None:
    model = build("y = MatMul(x, W)", (1, 4), 8, W=(4, 3))
    assert [v.name for v in model.graph.input] == ["x", "W"]
    assert read(model).classes == 3


def test_what_the_output_does_not_need_is_not_looked_at(read: Any) -> None:
    model = build("z = Sigmoid(x); q = Dropout(x, nan); y = Gemm(x, W)", W=(4, 3), nan=np.float32(np.nan))
    assert read(model).classes == 3


def test_local_functions_are_inlined(read: Any) -> None:
    model = build("y = Relu(x)", (1, 4), W=(4, 3))
    body = [parser.parse_node("h = MatMul(a, w)"), parser.parse_node("r = Relu(h)")]
    function = oh.make_function("local", "Dense", ["a", "w"], ["r"], body, [oh.make_opsetid("", OPSET)])
    model.functions.append(function)
    model.opset_import.append(oh.make_opsetid("local", 1))
    model.graph.node[0].CopyFrom(oh.make_node("Dense", ["x", "W"], ["y"], domain="local"))
    assert read(model).widths == (3,)


@pytest.mark.parametrize(
    ("tail", "shape"),
    [
        ("y = Softmax(g)", (1, 4)),
        ("y = LogSoftmax<axis=1>(g)", (1, 4)),
        ("p = Softmax<axis=-1>(g); y = Identity(p)", (1, 4)),
        ("p = LogSoftmax(g); q = Softmax(p); y = Cast<to=1>(q)", (1, 4)),
        ("p = Softmax<axis=0>(g); y = Reshape(p, s)", (4, 1)),
    ],
)
def test_a_softmax_at_the_end_is_left_out(read: Any, tail: str, shape: tuple[int, int]) -> None:
    model = build(f"g = Mul(x, k); {tail}", shape, k=np.float32(2.0), s=i64([-1]))
    net = read(model)
    np.testing.assert_array_equal(net.weights[0], 2.0 * np.eye(4))
    x = numbers(shape)
    np.testing.assert_array_equal(np.argsort(net(x.reshape(-1))), np.argsort(run(model, x)))


def test_an_old_softmax_runs_over_all_later_axes(read: Any) -> None:
    assert read(build("y = Softmax(x)", (1, 4, 1), 12)).classes == 4


# Refusals: each names the culprit and what would do.


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ("y = Tanh(x)", {}, r"model\.onnx: not supported: Tanh \(node 'y'\); supported operations: Abs, Add, .*"
                               r"Flatten, .*Gemm, .*Relu, .*Unsqueeze, .*Where; .* continuous and piecewise linear"),
        ("a = Tanh(x); y = Erf(a)", {}, r"not supported: Tanh \(node 'a'\), Erf \(node 'y'\);"),
        (";".join([f"a{i} = Tanh(a{i - 1})" for i in range(1, 7)]).replace("a0", "x") + "; y = Tanh(a6)", {},
         r"Tanh \(node 'a5'\) and 2 more;"),
        ("y = com.microsoft.FusedGemm(x, W)", {"W": (4, 3)}, r"not supported: com\.microsoft\.FusedGemm \(node 'y'\)"),
        ("y = Mul(x, x)", {}, r"Mul \(node 'y'\) multiplies two values computed from the network's input"),
        ("t = Transpose(x); y = MatMul(x, t)", {}, r"MatMul \(node 'y'\) multiplies two values .*attention"),
        ("t = Transpose(x); s = MatMul(x, t); a = Softmax(s); y = MatMul(a, x)", {}, r"MatMul \(node 's'\) multiplies"),
        ("y = Pow(x, two)", {"two": np.float32(2)}, r"Pow \(node 'y'\) is taken of a value computed from"),
        ("y = Div(c, x)", {"c": (4,)}, r"Div \(node 'y'\) divides by a value computed from the network's input"),
        ("y = Div(x, c)", {"c": np.zeros(1, np.float32)}, r"Div \(node 'y'\) divides by zero"),
        ("y = Concat<axis=1>(x, c)", {"c": (2, 4)}, r"Concat \(node 'y'\) cannot be computed: all the input array dim"),
        ("y = Reshape(c, x)", {"c": (1, 4)}, r"Reshape \(node 'y'\) takes its shape from the network's input"),
        ("y = Reshape(x, s)", {"s": i64([1, 5])}, r"Reshape \(node 'y'\) cannot be computed: cannot reshape array"),
        ("y = Reshape(x, s)", {"s": i64([1, 2**62, 2**62])}, r"Reshape \(node 'y'\) cannot be computed"),
        ("y = Reshape(x, s)", {"s": i64([1, 4, 0])}, r"Reshape \(node 'y'\) cannot be computed: .*out of range"),
        ("y = Flatten<axis=3>(x)", {}, r"Flatten \(node 'y'\) cannot be computed: axis 3 is out of bounds"),
        ("y = Squeeze(x, a)", {"a": i64([1])}, r"Squeeze \(node 'y'\) cannot be computed: cannot select an axis"),
        ("y = Gather<axis=1>(x, i)", {"i": i64([4])}, r"Gather .* cannot be computed: index 4 is out of bounds"),
        ("y = Slice(x, a, b)", {"a": i64([0, 0]), "b": i64([1])}, r"Slice \(node 'y'\) cannot be computed"),
        ("y = MatMul(x, W)", {"W": (5, 3)}, r"cannot be computed: shapes \(1, 4\) and \(5, 3\) do not fit"),
        ("y = MatMul(x, c)", {"c": ()}, r"MatMul \(node 'y'\) cannot be computed: shapes \(1, 4\) and \(\) do not fit"),
        ("y = MatMul(c, x)", {"c": ()}, r"cannot be computed: shapes \(\) and \(1, 4\) do not fit for a matrix"),
        ("y = Add(x, b)", {"b": (3,)}, r"Add \(node 'y'\) cannot be computed: shape mismatch"),
        ("f = Unsqueeze(x, a); y = Gemm(f, W)", {"a": i64([0]), "W": (4, 3)},
         r"Gemm \(node 'y'\) expects matrices, got shape \(1, 1, 4\); did the exporter drop a Flatten\?"),
        ("y = Gemm(x, W, c)", {"W": (4, 3), "c": (2, 3)},
         r"Gemm \(node 'y'\) adds C of shape \(2, 3\), which does not fit A B of shape \(1, 3\)"),
        ("y = Dropout(x, r, t)", {"r": np.float32(0.5), "t": np.array(True)},
         r"Dropout \(node 'y'\) is in training mode, where the output is random"),
        ("z, m = Dropout(x); y = Cast<to=1>(m)", {}, r"needs 'm', which nothing before it computes: a second"),
        ("y = Cast<to=10>(x)", {"output_element": TensorProto.FLOAT16},
         r"Cast \(node 'y'\) from float32 to float16 rounds a value .*export the model in one float type"),
        ("y = Cast<to=7>(x)", {"output_element": TensorProto.INT64}, "from float32 to int64 rounds"),
        ("y = Cast<to=8>(x)", {"output_element": TensorProto.STRING}, "from float32 to type 8 rounds"),
        ("k = Cast<to=16>(c); y = Add(x, k)", {"c": (4,)}, r"Cast .* to bfloat16 of a constant is not"),
        ("p = Softmax(x); y = Mul(p, c)", {"c": (4,)},
         r"Mul \(node 'y'\) follows Softmax \(node 'p'\), which is taken only at the end"),
        ("p = LogSoftmax(x); y = Relu(p)", {}, r"Relu \(node 'y'\) follows LogSoftmax \(node 'p'\)"),
        ("y = Softmax<axis=0>(x)", {}, r"Softmax \(node 'y'\) along axis 0 of shape \(1, 4\) does not run over all"),
        ("p = Softmax(c); y = Add(x, p)", {"c": (4,)}, r"Softmax \(node 'p'\) is taken of a constant"),
        ("s = Constant<value_string=\"a\">(); y = Add(x, s)", {}, r"Constant .* holds value_string; supported: a"),
        ("y = Identity(c)", {"c": (1, 4)}, "output 'y' does not depend on the input; is this the right model"),
        ("y = Add(x, b)", {"b": (3, 1)}, r"output 'y' has shape \(3, 4\); a classifier gives one vector of scores"),
        ("y = Add(x, b)", {"b": np.float32([0, 1, np.nan, 0])}, r"tensor 'b' holds nan at \(2,\); weights must be"),
        ("y = Mul(x, b)", {"b": np.float32(-np.inf)}, r"tensor 'b' holds -inf at \(\)"),
        ("y = Add(x, b)", {"b": np.array([1j])}, "tensor 'b' has element type complex128; supported: float32, float16"),
        ("y = Add(x)", {}, r"Add \(node 'y'\) is not valid ONNX: .*input size 1"),
        ("y = Add(x, none)", {}, r"Add \(node 'y'\) is not valid ONNX: .*empty string"),
        ("y = Relu<slope=2>(x)", {}, r"Relu \(node 'y'\) is not valid ONNX: .*slope"),
        ("y = Add(x, lost)", {}, r"Add \(node 'y'\) needs 'lost', which nothing before it computes"),
        ("y = Add(x, h); h = Neg(c)", {"c": (4,)}, "needs 'h', which nothing before it computes"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(read: Any, body: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read(build(body, **options))
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": None}, "input 'x' has no shape; export the model with the shape of one input"),
        ({"shape": ("N", "n")}, r"input 'x' has shape \(N, n\); only the batch axis, the first of several, may be"),
        ({"shape": ("n",)}, r"input 'x' has shape \(n\); only the batch axis"),
        ({"shape": (1, None)}, r"input 'x' has shape \(1, \?\); only the batch axis"),
        ({"element": TensorProto.INT64}, "input 'x' has element type int64; supported: float32, float16, float64,"),
        ({"opset": 6}, r"the model has opset 6, supported are 7 and newer; convert it with onnx\.version_converter"),
        ({"opset": NEWEST + 1}, rf"has opset {NEWEST + 1}, the installed onnx package knows them up to {NEWEST}; run"),
        ({"outputs": ("y", "x")}, "a classifier has one output, this model has 2: 'y', 'x'; export one output only,"),
    ],
)  # fmt: skip
def test_inputs_outputs_and_versions_are_checked(read: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(build("y = Relu(x)", **options))


def test_a_network_that_does_not_fit_into_memory(read: Any) -> None:
    with pytest.raises(ModelError, match=r"model\.onnx: a tensor of shape \(1, \d+\) has \d+ numbers, more than"):
        read(build("y = Relu(x)", (1, 2**50)))


def test_recursive_functions_are_refused(read: Any) -> None:
    model = build("y = Relu(x)")
    opsets = [oh.make_opsetid("", OPSET), oh.make_opsetid("local", 1)]
    body = [oh.make_node("F", ["a"], ["b"], domain="local")]
    model.functions.append(oh.make_function("local", "F", ["a"], ["b"], body, opsets))
    model.opset_import.append(opsets[1])
    model.graph.node[0].CopyFrom(oh.make_node("F", ["x"], ["y"], domain="local"))
    with pytest.raises(ModelError, match="its functions cannot be inlined"):
        read(model)


def test_several_inputs_are_refused_by_name(read: Any) -> None:
    model = build("y = Relu(x)")
    model.graph.input.append(oh.make_tensor_value_info("mask", TensorProto.FLOAT, (1, 4)))
    with pytest.raises(ModelError, match="one input, this model has 2: 'x', 'mask'; export one input only"):
        read(model)
    del model.graph.input[:]
    with pytest.raises(ModelError, match="one input, this model has 0: none"):
        read(model)


# Files that are damaged.


@pytest.mark.parametrize("content", [b"not a model at all", b"\x08", b"\x00" * 40])
def test_garbage_is_not_a_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"bad\.onnx: not an ONNX model, or a damaged one \(.*\); export it again"):
        load(tmp_path / "bad.onnx")


def test_an_empty_file_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").touch()
    with pytest.raises(ModelError, match="not an ONNX model, or an empty one: it has no graph with an output"):
        load(tmp_path / "bad.onnx")


def test_no_cut_or_flipped_byte_raises_anything_else(tmp_path: Path) -> None:
    content = build("h = Gemm(x, W, b); r = Relu(h); y = MatMul(r, V)", W=(4, 5), b=(5,), V=(5, 2)).SerializeToString()
    rng = np.random.default_rng(0)
    path = tmp_path / "bad.onnx"
    for i in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[i] ^= int(rng.integers(1, 256))
        for damaged in (content[:i], bytes(flipped)):
            path.write_bytes(damaged)
            try:
                load(path)  # a flipped byte of a weight or a name is still a model
            except ModelError as error:
                assert str(error).startswith("bad.onnx: ")


def test_a_tensor_cut_short_is_named(read: Any) -> None:
    model = build("y = Gemm(x, W)", W=(4, 3))
    model.graph.initializer[0].raw_data = b"123"
    with pytest.raises(ModelError, match="tensor 'W' is damaged"):
        read(model)


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights are in a second file, as large models and PyTorch's exporter have it."""
    path = tmp_path / "model.onnx"
    onnx.save(
        build("y = Gemm(x, W)", W=(4, 3)), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return path


def test_weights_in_a_second_file(external: Path) -> None:
    np.testing.assert_array_equal(load(external).weights[0], numbers((4, 3)).T.astype(np.float64))


def test_a_missing_second_file_is_named(external: Path) -> None:
    (external.parent / "weights.bin").unlink()
    with pytest.raises(
        ModelError, match=r"the weights are in a second file, 'weights\.bin', which is not there; put it"
    ):
        load(external)


def test_a_second_file_cut_short(external: Path) -> None:
    (external.parent / "weights.bin").write_bytes(b"12345")
    with pytest.raises(ModelError, match=r"tensor 'W' (cannot be read from|is damaged)"):
        load(external)


def test_a_second_file_outside_the_folder_is_not_opened(external: Path) -> None:
    model = onnx.load(external, load_external_data=False)
    (external.parent.parent / "secret.bin").write_bytes(bytes(48))
    model.graph.initializer[0].external_data[0].value = "../secret.bin"
    external.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"tensor 'W' cannot be read from the file '\.\./secret\.bin'"):
        load(external)


def test_reading_warns_of_nothing(read: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(build("h = Gemm(x, W); y = Relu(h)", W=(4, 3)))


def test_a_network_that_differs_from_its_model_is_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were an operation read wrongly, onnxruntime would say so; float32 may be too coarse to say anything."""
    from layercert.io import ops

    onnx.save(
        build("h = Gemm(x, W, b); r = Relu(h); y = Gemm(r, V, c)", W=(4, 6), b=(6,), V=(6, 3), c=(3,)),
        tmp_path / "a.onnx",
    )
    coarse = np.full(4, 1e8, np.float32)  # beside it float32 has nothing left of x
    onnx.save(build("h = Add(x, b); r = Relu(h); y = Sub(r, b)", b=coarse), tmp_path / "b.onnx")
    load(tmp_path / "a.onnx")
    monkeypatch.setitem(ops.OPS, "Relu", ops.OPS["Abs"])
    with pytest.raises(ModelError, match=r"the network read from a.onnx differs from the model itself: .* onnxruntime"):
        load(tmp_path / "a.onnx")
    network, v = load(tmp_path / "b.onnx"), np.full(4, 0.7)
    assert network.runtime is not None and np.abs(network.runtime(v) - network(v)).min() > 0.5


@pytest.mark.parametrize(
    "body",
    [
        "s = Softmax(x); y = Softmax(s)",
        "s = Softmax(x); y = Gather<axis=1>(s, i)",
        "s = LogSoftmax(x); y = Gather<axis=1>(s, i)",
        "y = Sigmoid(x)",
        "s = Sigmoid(x); y = Softmax(s)",
    ],
)
def test_what_is_left_out_at_the_end_is_no_difference(tmp_path: Path, body: str) -> None:
    constants = {"i": np.array([3, 1])} if "Gather" in body else {}
    onnx.save(build(body, **constants), tmp_path / "a.onnx")
    assert load(tmp_path / "a.onnx").dropped
