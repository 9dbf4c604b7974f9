"""Networks in .npz files, and what `load` says about paths."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layercert.errors import ModelError, OptionError
from layercert.io import load
from layercert.network import Network

# logits are (1 - t, t) with t = relu(x)
ARRAYS: dict[str, Any] = {"W0": [[1.0]], "b0": [0.0], "W1": [[-1.0], [1.0]], "b1": [1.0, 0.0]}


def stored(tmp_path: Path, **changes: Any) -> Path:
    """The network above in a file, with some arrays replaced, or left out where None."""
    path = tmp_path / "net.npz"
    np.savez(path, **{k: np.asarray(v) for k, v in {**ARRAYS, **changes}.items() if v is not None})
    return path


def test_reads_the_layers_and_names_the_file(tmp_path: Path) -> None:
    net = load(stored(tmp_path))
    assert (net.widths, net.inputs, net.classes, net.source) == ((1,), 1, 2, "net.npz")
    np.testing.assert_array_equal(net([0.25]), [0.75, 0.25])


def test_other_keys_are_ignored(tmp_path: Path) -> None:
    net = load(stored(tmp_path, accuracy=0.99, W=[1], b=[2], W00=[3], W1_mask=["yes"], w2=[0.0]))
    assert net.sha256 == load(stored(tmp_path)).sha256


def test_more_than_ten_layers_come_in_numeric_order(tmp_path: Path) -> None:
    layers = {f"W{i}": np.eye(1) * (i + 1) for i in range(12)} | {f"b{i}": np.zeros(1) for i in range(12)}
    np.savez(tmp_path / "deep.npz", **layers)
    assert [W[0, 0] for W in load(tmp_path / "deep.npz").weights] == list(range(1, 13))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint16", ">f4"])
def test_every_real_type_is_taken_without_rounding(tmp_path: Path, dtype: str) -> None:
    W = np.array([[3], [7]]).astype(dtype) / np.array(1 if "i" in dtype else 10, dtype=dtype)
    W = W.astype(dtype)
    net = load(stored(tmp_path, W1=W))
    np.testing.assert_array_equal(net.weights[1], W.astype(np.float64))


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=5).flatmap(
        lambda sizes: st.tuples(
            *(
                st.tuples(
                    arrays(np.float64, (n, m), elements=st.floats(allow_nan=False, allow_infinity=False)),
                    arrays(np.float64, n, elements=st.floats(-1e300, 1e300)),
                )
                for m, n in pairwise(sizes)
            )
        )
    )
)
def test_saving_and_loading_gives_back_every_bit(tmp_path_factory: pytest.TempPathFactory, layers: Any) -> None:
    net = Network.from_arrays([W for W, _ in layers], [b for _, b in layers])
    path = tmp_path_factory.mktemp("round") / "net.npz"
    net.save(path)
    assert load(path).sha256 == net.sha256


def test_what_is_known_of_a_model_is_saved_with_it(tmp_path: Path) -> None:
    net = replace(load(stored(tmp_path)), input_shape=(1, 1), input_range=(0.0, 1.0), dropped="Softmax")
    net.save(tmp_path / "again.npz")
    again = load(tmp_path / "again.npz")
    assert (again.input_shape, again.input_range, again.dropped) == ((1, 1), (0.0, 1.0), "Softmax")
    assert again.sha256 == net.sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_range": [1.0, 0.0]}, r"input_range must be two numbers low <= high, got \(1\.0, 0\.0\)"),
        ({"input_range": 1.0}, r"input_range must be two numbers, got float64 of shape \(\); leave it out"),
        ({"input_shape": [3, 8, 8]}, r"input_shape is \(3, 8, 8\), which does not fit 1 inputs; leave it out"),
        ({"input_shape": [0.5]}, "input_shape must be whole numbers, got float64"),
        ({"dropped": 1}, "dropped must be a name, got int64"),
    ],
)
def test_facts_of_another_form_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(stored(tmp_path, **changes))


def test_saving_wants_the_suffix(tmp_path: Path) -> None:
    net = load(stored(tmp_path))
    with pytest.raises(OptionError, match=r"saved as an \.npz file, got .*net\.txt.*end the file name in \.npz"):
        net.save(tmp_path / "net.txt")
    assert not (tmp_path / "net.txt").exists()


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    net = load(stored(tmp_path))
    (tmp_path / "folder.npz").mkdir()
    for target in (tmp_path / "nowhere" / "net.npz", tmp_path / "folder.npz", tmp_path / "net.npz" / "under.npz"):
        with pytest.raises(OptionError, match=r"cannot be saved as '.*': .*; is '.*' a folder that you may write to"):
            net.save(target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.npz", "net.npz"]  # no halves left behind


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = load(stored(tmp_path))
    before = (tmp_path / "net.npz").read_bytes()

    def full(file: Any, **_: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OptionError, match="No space left on device"):
        net.save(tmp_path / "net.npz")
    assert (tmp_path / "net.npz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["net.npz"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"W0": None}, r"net\.npz: no array W0 in the file, it has W1, b0, b1; a network is stored as W0, b0"),
        ({k: None for k in ARRAYS}, "no array W0 in the file, it has no arrays"),
        ({k: None for k in ARRAYS} | {f"k{i}": 0 for i in range(9)}, "k0, k1, k2, k3, k4, k5, k6, k7, ...;"),
        ({"b0": None}, "b0 is missing, the file has W0, W1, b1; .* every weight matrix has its bias"),
        ({"W1": None}, "W1 is missing, the file has W0, b0, b1; layers are numbered W0, b0, .* without a gap"),
        ({"W3": [[1.0]], "b3": [0.0]}, "W2 is missing, the file has W0, W1, W3, b0, b1, b3"),
        ({"b2": [0.0]}, "W2 is missing"),
        ({"W0": np.array([[None]])}, "W0 is an array of Python objects, which is never loaded"),
        ({"W0": [[1j]]}, "W0 must hold real numbers, got dtype complex128; store it as float32 or float64"),
        ({"b0": [True]}, "b0 must hold real numbers, got dtype bool"),
        ({"b0": ["0"]}, "b0 must hold real numbers, got dtype <U1"),
        ({"W0": [[2**53 + 1]]}, "W0 has dtype int64 and numbers that float64 cannot hold exactly"),
        ({"W0": [1.0]}, r"weights\[0\] must be a non-empty matrix \(out, in\), got shape \(1,\)"),
        ({"W0": np.zeros((0, 1)), "b0": []}, r"weights\[0\] must be a non-empty matrix"),
        ({"b1": [1.0]}, r"biases\[1\] must have shape \(2,\)"),
        ({"W1": [[1.0, 2.0]], "b1": [0.0]}, "layer 1 expects 2 inputs, layer 0 produces 1"),
        ({"W0": [[np.nan]]}, r"net\.npz: weights\[0\] holds nan at \(0, 0\)"),
        ({"b1": [0.0, np.inf]}, r"biases\[1\] holds inf at \(1,\)"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_network_says_why(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(stored(tmp_path, **changes))


@pytest.mark.skipif(np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps, reason="no extended floats here")
def test_extended_floats_are_refused_only_where_they_would_be_rounded(tmp_path: Path) -> None:
    assert load(stored(tmp_path, W0=np.array([[0.5]], dtype=np.longdouble))).weights[0] == 0.5
    third = np.array([[1]], dtype=np.longdouble) / 3
    with pytest.raises(ModelError, match=r"W0 has dtype .* numbers that float64 cannot hold exactly; store float64"):
        load(stored(tmp_path, W0=third))


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 cut short", b"\x80\x04K\x01."])
def test_garbage_is_not_a_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.npz"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"net\.npz: not an \.npz file, or a damaged one; write it with Network\.save"):
        load(path)


def test_a_single_array_is_not_a_model(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.eye(2))
    path = (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(ModelError, match=r"not an \.npz file"):
        load(path)


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("W0.npy", b"\x93NUMPY\x01\x00 not a header")
    with pytest.raises(ModelError, match="W0 cannot be read, the file is damaged; write it again"):
        load(path)


def test_a_path_that_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"no file 'nets/a\.onnx'; check the path \(the current folder is"):
        load("nets/a.onnx")


@pytest.mark.parametrize("suffix", [".onnx", ".npz"])
def test_a_file_that_cannot_be_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    path.symlink_to("/proc/self/mem")  # opens, and fails to read
    with pytest.raises(ModelError, match=rf"net\{suffix}: the file cannot be read: Input/output error"):
        load(path)


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(ModelError, match=r"is a folder; give the path of a model file \(\.onnx, \.npz, \.onnx\.gz\)"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", ["net.pt", "net", "net.npz.gz"])
def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"supported: \.onnx, \.npz, \.onnx\.gz; for a PyTorch checkpoint .*torch"):
        load(tmp_path / name)


def test_suffixes_in_capitals_are_fine(tmp_path: Path) -> None:
    assert load(stored(tmp_path).rename(tmp_path / "NET.NPZ")).source == "NET.NPZ"


@pytest.mark.parametrize("thing", [None, 3, {"W0": [[1.0]]}])
def test_load_wants_a_path(thing: Any) -> None:
    with pytest.raises(
        ModelError, match=rf"load takes the path of a file .* got {type(thing).__name__}; .* from_torch"
    ):
        load(thing)


def test_importing_the_readers_imports_no_heavy_package() -> None:
    code = "import sys, layercert.io; print(*{'onnx', 'torch', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
