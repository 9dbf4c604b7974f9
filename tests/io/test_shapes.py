"""Inputs in the model's own shape, wherever inputs are read: another order of the axes would be another image."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

import layercert as lc
from helpers.onnx_models import build
from layercert.batch import Model, Options, Plan
from layercert.cli import main
from layercert.errors import InputError
from layercert.io.datasets import load_dataset
from layercert.io.inputs import load_inputs
from layercert.network import Network

#: Channels, height, width; the three differ, so that no mistake goes unseen.
FIRST, LAST = (3, 4, 5), (4, 5, 3)
IMAGE = np.random.default_rng(0).uniform(size=FIRST)


def channels_first() -> onnx.ModelProto:
    return build(
        "z = Conv(x, W); r = Relu(z); f = Flatten(r); y = MatMul(f, V)", (1, *FIRST), W=(2, 3, 2, 2), V=(24, 3)
    )


def channels_last() -> onnx.ModelProto:
    """The same network as TensorFlow writes it: a Transpose in front."""
    model = channels_first()
    model.graph.node[0].input[0] = "t"
    model.graph.node.insert(0, onnx.helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]))
    for axis, n in zip(model.graph.input[0].type.tensor_type.shape.dim, (1, *LAST), strict=True):
        axis.dim_value = n
    return model


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    paths = {"first": tmp_path / "first.onnx", "last": tmp_path / "last.onnx"}
    onnx.save(channels_first(), paths["first"])
    onnx.save(channels_last(), paths["last"])
    return paths


def axes(name: str, image: Any = IMAGE) -> Any:
    return image if name == "first" else np.moveaxis(image, 0, -1)


@pytest.mark.parametrize("name", ["first", "last"])
def test_onnx_takes_its_own_layout_and_no_other(models: dict[str, Path], name: str) -> None:
    """(8, 8, 3) for (3, 8, 8) used to be flattened as it came, and measured as another image."""
    net = lc.load(models[name])
    mine, other = axes(name), axes("last" if name == "first" else "first")
    points = [net.point(x) for x in (mine, mine[None], mine.reshape(-1))]
    assert all((p == points[0]).all() for p in points)
    assert net.runtime is not None
    answer = net.runtime(points[0])
    assert answer is not None and np.allclose(net(points[0]), answer, atol=1e-5)
    shapes = [str(s).replace("(", r"\(").replace(")", r"\)") for s in (other.shape, mine.shape)]
    for ask in (lambda: lc.measure(net, other), lambda: lc.verify(net, other, 0.01)):
        with pytest.raises(InputError, match=f"has shape {shapes[0]}, the network expects {shapes[1]}; transpose it"):
            ask()


def test_both_layouts_are_the_same_network(models: dict[str, Path]) -> None:
    first, last = lc.load(models["first"]), lc.load(models["last"])
    assert np.allclose(first(first.point(axes("first"))), last(last.point(axes("last"))), atol=1e-12)


def test_the_shape_is_saved_with_the_network(models: dict[str, Path], tmp_path: Path) -> None:
    lc.load(models["last"]).save(tmp_path / "net.npz")
    again = lc.load(tmp_path / "net.npz")
    assert again.input_shape == (1, *LAST) and again.image_shape == LAST
    with pytest.raises(InputError, match=r"has shape \(3, 4, 5\), the network expects \(4, 5, 3\)"):
        again.point(IMAGE)


def test_torch_knows_the_shape_it_was_given(torch: ModuleType) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(24, 2))
    net = lc.from_torch(module, input_shape=FIRST)
    assert net.image_shape == FIRST
    for tensor in (torch.as_tensor(IMAGE)[None], torch.tensor(IMAGE, requires_grad=True)):
        assert (net.point(tensor) == IMAGE.reshape(-1)).all()
    halves = torch.as_tensor(np.round(IMAGE * 4) / 4, dtype=torch.bfloat16)
    assert (net.point(halves) == np.round(IMAGE * 4).reshape(-1) / 4).all()
    with pytest.raises(InputError, match="must be an array of real numbers, got Tensor"):
        net.point(torch.zeros(FIRST, dtype=torch.complex64))
    with pytest.raises(InputError, match=r"has shape \(4, 5, 3\), the network expects \(3, 4, 5\)"):
        lc.measure(net, axes("last"))


def test_a_wrong_size_names_the_image(models: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"has 12 numbers \(shape \(12,\)\), .* expects 60 in the shape \(3, 4, 5\)"):
        lc.load(models["first"]).point(np.zeros(12))


# Files.


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_points_of_a_file_keep_their_shape(tmp_path: Path, models: dict[str, Path], suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    wrong = axes("last")[None]
    if suffix == ".npz":
        np.savez(path, X=wrong)
    else:
        np.save(path, wrong)
    first, last = lc.load(models["first"]), lc.load(models["last"])
    for read in (load_inputs(path).point(0), load_dataset(path).point(0, first)):
        assert (last.point(read) == wrong.reshape(-1)).all()
        with pytest.raises(InputError, match=r"has shape \(4, 5, 3\), the network expects \(3, 4, 5\)"):
            first.point(read)


def test_the_command_line_refuses_another_layout(
    tmp_path: Path, models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "x.npz", X=axes("last")[None].repeat(3, 0))
    first, data = str(models["first"]), str(tmp_path / "x.npz")
    for command in (
        ["measure", first, "--input", data],
        ["verify", first, "--input", data, "--radius", "0.1"],
        ["batch", first, "--data", data, "--out", str(tmp_path / "run"), "--quiet"],
        ["explore", first, "--data", data, "--points", "0,1,2", "--out", str(tmp_path / "a.png")],
    ):
        assert main(command) == 2
        assert "has shape (4, 5, 3), the network expects (3, 4, 5); transpose it" in capsys.readouterr().err


def test_a_batch_looks_at_every_model(tmp_path: Path, models: dict[str, Path]) -> None:
    np.save(tmp_path / "x.npy", IMAGE[None])
    data = load_dataset(tmp_path / "x.npy")
    plan = Plan(tuple(Model(name, lc.load(path)) for name, path in models.items()), data, Options())
    with pytest.raises(InputError, match=r"input 0 on model last: .* shape \(3, 4, 5\), .* expects \(4, 5, 3\)"):
        plan.check()


def test_image_files_go_channels_first_into_vectors_and_never_into_another_shape(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    pixels = (np.moveaxis(IMAGE, 0, -1) * 255).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    data = load_dataset(tmp_path / "a.png")
    vectors = Network.from_arrays([np.ones((2, 60))], [np.zeros(2)])
    first, last = lc.load(models["first"]), lc.load(models["last"])
    wanted = (pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(255)).astype(np.float64).reshape(-1)
    for net in (vectors, first):
        assert (net.point(data.point(0, net)) == wanted).all()
    with pytest.raises(InputError, match=r"has shape \(3, 4, 5\), the network expects \(4, 5, 3\); transpose it"):
        last.point(data.point(0, last))
