"""Transposed convolutions, resized images, choices by constants and fixed batches, against onnxruntime."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.onnx_models import build, numbers, run
from helpers.profiles import examples
from layercert.errors import ModelError
from layercert.io import load

Draw = st.DrawFn


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def check(folder: Path, body: str, shape: tuple[int, ...], opset: int = 17, **constants: object) -> None:
    """The last value `h`, flattened into scores, agrees with onnxruntime within float32's error."""
    import onnx

    model = build(f"{body}; y = Flatten(h)", shape, opset, **constants)
    onnx.save(model, folder / "model.onnx")
    network = load(folder / "model.onnx")
    for seed in range(2):
        x = numbers(shape, seed + 100)
        flat = x.reshape(-1).astype(np.float64)
        theirs, mine = run(model, x), network(flat)
        assert theirs.shape == mine.shape
        np.testing.assert_array_less(np.abs(theirs - mine), 1e-4 * (1.0 + np.abs(theirs)))


@st.composite
def transposed(draw: Draw) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
    d = draw(st.integers(1, 2))
    groups, depth = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 2))
    stride, dilation, kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    space = tuple(draw(st.integers(2, 4)) for _ in range(d))
    text = f"strides={[stride] * d}, dilations={[dilation] * d}, group={groups}"
    kind = draw(st.sampled_from(["pads", "output_padding", "SAME_UPPER", "SAME_LOWER"]))
    if kind == "pads":
        text += f", pads={[draw(st.integers(0, (kernel - 1) // 2)) for _ in range(2 * d)]}"
    elif kind == "output_padding":
        text += f", output_padding={[draw(st.integers(0, stride - 1)) for _ in range(d)]}"
    elif (kernel - 1) * dilation + 1 >= stride:  # else the padding would be negative
        text += f', auto_pad="{kind}"'
    return text, (1, 2 * groups, *space), (2 * groups, depth, *(kernel for _ in range(d))), depth * groups


@examples(40)
@given(transposed(), st.booleans())
def test_transposed_convolutions(
    folder: Path, case: tuple[str, tuple[int, ...], tuple[int, ...], int], bias: bool
) -> None:
    text, shape, weights, out = case
    constants: dict[str, object] = {"W": weights, **({"b": (out,)} if bias else {})}
    check(folder, f"h = ConvTranspose<{text}>(x, {', '.join(constants)})", shape, **constants)


def test_a_transposed_convolution_of_a_given_size(folder: Path) -> None:
    check(folder, "h = ConvTranspose<strides=[2, 2], output_shape=[8, 7]>(x, W)", (1, 1, 4, 4), W=(1, 2, 3, 3))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("where", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("sizes", [(1, 2, 6, 8), (1, 2, 5, 7), (1, 2, 2, 3), (1, 2, 3, 1)])
def test_resized_images(folder: Path, mode: str, where: str, sizes: tuple[int, ...]) -> None:
    text = f'mode="{mode}", coordinate_transformation_mode="{where}"'
    check(folder, f"h = Resize<{text}>(x, none, none, s)", (1, 2, 3, 4), s=np.array(sizes))


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 1.5, 2.5), (1, 1, 0.5, 0.7)])
def test_nearest_by_scales(folder: Path, nearest: str, scales: tuple[float, ...]) -> None:
    text = f'mode="nearest", nearest_mode="{nearest}", coordinate_transformation_mode="asymmetric"'
    check(folder, f"h = Resize<{text}>(x, none, s)", (1, 2, 4, 4), s=np.array(scales, np.float32))


@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing_as_it_was(folder: Path, opset: int, mode: str) -> None:
    op = "Upsample" if opset == 9 else "Resize"
    check(folder, f'h = {op}<mode="{mode}">(x, s)', (1, 1, 3, 3), opset, s=np.array([1, 1, 2, 3], np.float32))


@pytest.mark.parametrize("n", [4, 5, 7])
@pytest.mark.parametrize("scale", [0.3, 0.6, 0.75, 1.5])
def test_nearest_before_opset_11_is_the_place_above_where_an_axis_shrinks(folder: Path, n: int, scale: float) -> None:
    """0.6 of 0 1 2 3 is 0 2 there, 0 1 from opset 11 on; an axis that grows takes the place below beside it."""
    scales = np.array([1, 1, scale, 2.5], np.float32)
    check(folder, 'h = Resize<mode="nearest">(x, s)', (1, 1, n, 3), 10, s=scales)


def test_choices_by_constants(folder: Path) -> None:
    check(
        folder,
        "e = Equal(a, b); h = Where(e, x, c)",
        (1, 4),
        a=np.array([1, 2, 3, 4]),
        b=np.array([1, 0, 3, 0]),
        c=(4,),
    )
    check(folder, "t = Mul(x, c); h = Where(e, x, t)", (1, 4), e=np.array([[[True], [False]]]), c=(1, 4))


@pytest.mark.parametrize(
    ("body", "constants", "message"),
    [
        ('y = Resize<mode="cubic">(x, none, none, s)', {"s": np.array([1, 1, 4, 4])}, "has mode 'cubic'; supported"),
        ('y = Resize<coordinate_transformation_mode="tf_crop_and_resize">(x, r, none, s)',
         {"s": np.array([1, 1, 4, 4]), "r": np.zeros(8, np.float32)}, "has coordinates 'tf_crop_and_resize'"),
        ("y = ConvTranspose(x, W)", {"W": (3, 1, 2, 2)}, "which do not fit shape"),
        ("y = ConvTranspose<output_shape=[99, 99]>(x, W)", {"W": (1, 1, 2, 2)}, "asks for an output of"),
        ('y = MaxPool<kernel_shape=[2, 2], dilations=[2, 1], auto_pad="SAME_UPPER">(x)', {}, "read in several ways"),
        ('y = AveragePool<kernel_shape=[1, 1], strides=[3, 1], auto_pad="SAME_LOWER">(x)', {}, "read in several ways"),
        ("h = Slice(x, a, b, c, d); y = Concat<axis=2>(x, h)",
         {"a": np.array([1]), "b": np.array([2]), "c": np.array([2]), "d": np.array([-1])}, "takes nothing, backwards"),
    ],
)  # fmt: skip
def test_what_is_refused(folder: Path, body: str, constants: dict[str, object], message: str) -> None:
    import onnx

    onnx.save(build(body, (1, 1, 3, 3), **constants), folder / "model.onnx")
    with pytest.raises(ModelError, match=message):
        load(folder / "model.onnx")


# Models exported for several inputs at a time.


BATCHED = "k = Conv(x, W); r = Relu(k); f = Reshape(r, s); y = MatMul(f, V)"


def batched(folder: Path, body: str = BATCHED) -> Path:
    import onnx

    constants = {"W": (2, 1, 3, 3), "s": np.array([4, -1]), "V": (8, 3)}
    onnx.save(build(body, (4, 1, 4, 4), **constants), folder / "batch.onnx")
    return folder / "batch.onnx"


def test_one_input_of_a_fixed_batch_is_read(folder: Path) -> None:
    import onnx

    path = batched(folder)
    network = load(path)
    assert network.inputs == 16 and network.classes == 3
    X = numbers((4, 1, 4, 4), 7)
    theirs = run(onnx.load(path), X).reshape(4, 3)
    for x, scores in zip(X, theirs, strict=True):
        np.testing.assert_allclose(network(x.reshape(-1).astype(np.float64)), scores, atol=1e-4)
    assert network.runtime is not None
    np.testing.assert_allclose(network.runtime(X[2].reshape(-1).astype(np.float64)), theirs[2], atol=1e-4)


def test_a_batch_whose_inputs_depend_on_each_other_is_refused(folder: Path) -> None:
    body = "m = ReduceMean<axes=[0], keepdims=1>(x); a = Add(x, m); k = Conv(a, W); f = Reshape(k, s); y = MatMul(f, V)"
    with pytest.raises(ModelError, match="a batch of 4 differs from"):
        load(batched(folder, body))


def test_a_fixed_batch_needs_the_runtime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"takes a batch of 4 inputs; .* pip install 'layercert\[onnxruntime\]'"):
        load(batched(folder))
