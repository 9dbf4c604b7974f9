"""scripts/train_nets.py on files small enough to check by hand."""

from __future__ import annotations

import gzip
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_nets.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_nets", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


nets = load_script()


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Images of 1 x 2 pixels: a one is bright on the left, a seven on the right, a three nowhere."""
    picture = {1: (255, 0), 7: (0, 255), 3: (0, 0)}
    labels = np.array([3, 1, 7, 1, 7, 7, 1, 3], dtype=np.uint8)
    images = np.array([[picture[int(label)]] for label in labels], dtype=np.uint8)
    for image_name, label_name in nets.MNIST_FILES.values():
        (tmp_path / f"{image_name}.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (tmp_path / label_name).write_bytes(idx_bytes(labels))
    return tmp_path


def save_identity(folder: Path, flip: bool = False) -> None:
    """logits = relu(pixels): right on every one and seven above; flipped, wrong on all of them."""
    eye, zero = np.eye(2, dtype=np.float32), np.zeros(2, dtype=np.float32)
    name = "mnist17_plain_1x2_flipped.npz" if flip else "mnist17_plain_1x2.npz"
    nets.save_net(folder / name, [(eye, zero), (eye[::-1] if flip else eye, zero)], {"seed": 0, "accuracy": 1.0})


@pytest.mark.parametrize("zipped", [False, True])
def test_read_idx(tmp_path: Path, zipped: bool) -> None:
    array = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)
    path = tmp_path / ("a.gz" if zipped else "a")
    path.write_bytes(gzip.compress(idx_bytes(array)) if zipped else idx_bytes(array))
    np.testing.assert_array_equal(nets.read_idx(path), array)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", b"", "expected an idx file of unsigned bytes .* got an empty file"),
        ("a", b"\x89PNG....", "expected an idx file of unsigned bytes .* got 89 50 4e 47"),
        ("a", b"\x00\x00\x08\x03\x00", "expected 16 header bytes, got 5"),
        ("a", idx_bytes(np.zeros((2, 3), dtype=np.uint8))[:-1], r"expected shape \(2, 3\), got 5 bytes"),
        ("a.gz", b"no gzip", "expected a complete gzip file"),
        ("a.gz", gzip.compress(b"cut off", mtime=0)[:-6], "expected a complete gzip file"),
    ],
)
def test_read_idx_says_what_is_wrong(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(nets.DataError, match=message):
        nets.read_idx(path)


def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_identity(tmp_path)
    assert nets.main(["digits", "--mnist", str(tmp_path), "--nets", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    for pair in nets.MNIST_FILES.values():
        for name in pair:
            assert name in error


def test_samples_keep_the_task_only(mnist: Path) -> None:
    samples = nets.load_samples(mnist, "test", nets.TASKS["17"])
    assert samples.mnist_index.tolist() == [1, 2, 3, 4, 5, 6]  # the threes at 0 and 7 are left out
    assert samples.y.tolist() == [0, 1, 0, 1, 1, 0]  # class 0 is the digit 1
    assert samples.X.dtype == np.float32
    assert samples.X[:2].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_images_and_labels_must_match(mnist: Path) -> None:
    _, labels = nets.MNIST_FILES["test"]
    (mnist / labels).write_bytes(idx_bytes(np.zeros(3, dtype=np.uint8)))
    with pytest.raises(nets.DataError, match=r"got shapes \(8, 1, 2\) and \(3,\)"):
        nets.load_samples(mnist, "test", nets.TASKS["17"])


def test_sizes() -> None:
    assert nets.hidden_layers("3x20") == [20, 20, 20]
    for bad in ("20", "0x5", "2x", "2X10"):
        with pytest.raises(nets.DataError, match="expected a size such as 2x10"):
            nets.hidden_layers(bad)


def test_a_tie_is_not_correct() -> None:
    # two outputs that are always equal, as in a collapsed network
    layers = [(np.zeros((2, 2), dtype=np.float32), np.zeros(2, dtype=np.float32))]
    samples = nets.Samples(np.ones((1, 2), dtype=np.float32), np.array([0]), np.array([0]))
    assert not nets.is_correct(layers, samples).any()


def test_digits_are_right_in_every_network(mnist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["digits", "--mnist", str(mnist), "--nets", str(mnist), "--per-class", "2"]
    assert nets.main(command) == 2
    assert "run the `train` step first" in capsys.readouterr().err

    save_identity(mnist)
    assert nets.main(command) == 0
    with np.load(mnist / "digits.npz", allow_pickle=False) as digits:
        assert digits["y"].tolist() == [0, 1, 0, 1]  # the classes take turns
        assert len(set(digits["mnist_index"].tolist())) == 4
        np.testing.assert_array_equal(digits["X"].argmax(axis=1), digits["y"])

    save_identity(mnist, flip=True)
    assert nets.main(command) == 2
    assert "class 0: expected 2 or more test digits which every network gets right, got 0" in capsys.readouterr().err


def test_onnx_computes_the_same(tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference", reason="the ONNX step needs onnx")
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(m, n)).astype(np.float32), np.ones(m, np.float32)) for m, n in ((4, 3), (2, 4))]
    nets.save_net(tmp_path / "small.npz", layers, {})
    assert nets.main(["onnx", "--nets", str(tmp_path), "--net", "small"]) == 0
    X = rng.normal(size=(5, 3)).astype(np.float32)
    (logits,) = reference.ReferenceEvaluator(str(tmp_path / "small.onnx")).run(None, {"x": X})
    np.testing.assert_allclose(logits, nets.forward(layers, X), rtol=1e-5, atol=1e-5)


def test_train_is_reproducible(mnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="training needs PyTorch; pip install layercert[torch]")

    def trained(out: Path) -> tuple[Any, dict[str, Any]]:
        options = ["--sizes", "1x4", "--family", "l1", "--epochs", "1", "--seed", "3"]
        assert nets.main(["train", "--mnist", str(mnist), "--out", str(out), *options]) == 0
        layers, meta = nets.load_net(out / "mnist17_l1_1x4.npz")
        return layers, meta

    layers, meta = trained(tmp_path / "first")
    assert [W.shape for W, _ in layers] == [(4, 2), (2, 4)]
    assert all(W.dtype == b.dtype == np.float32 for W, b in layers)
    assert (meta["family"], meta["seed"], meta["epochs"], meta["hidden"]) == ("l1", 3, 1, [4])
    again, _ = trained(tmp_path / "second")
    for (W, b), (V, c) in zip(layers, again, strict=True):
        np.testing.assert_array_equal(W, V)
        np.testing.assert_array_equal(b, c)
    assert "test accuracy" in capsys.readouterr().out
