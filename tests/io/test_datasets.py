"""Data sets: every format gives the same points, bit for bit; every damaged file a clear error."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from layercert import shipped
from layercert.errors import InputError
from layercert.io.datasets import load_dataset

#: Three 2 x 3 pictures and their classes.
PIXELS = np.array([[[0, 51, 102], [153, 204, 255]], [[1, 2, 3], [4, 5, 6]], [[9, 9, 9], [0, 0, 0]]], dtype=np.uint8)
LABELS = np.array([7, 1, 7])
#: What torchvision's ToTensor makes of them.
EXPECTED = (PIXELS.astype(np.float32) / np.float32(255)).reshape(3, 6).astype(np.float64)


def write_idx(path: Path, array: np.ndarray) -> None:
    raw = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_with_their_labels_beside_them(tmp_path: Path, suffix: str) -> None:
    write_idx(tmp_path / f"t10k-images-idx3-ubyte{suffix}", PIXELS)
    write_idx(tmp_path / f"t10k-labels-idx1-ubyte{suffix}", LABELS.astype(np.uint8))
    data = load_dataset(tmp_path / f"t10k-images-idx3-ubyte{suffix}")
    assert np.array_equal(data.X, EXPECTED)
    assert data.y is not None and data.y.tolist() == [7, 1, 7]
    assert data.image_shape == (2, 3)


def test_classes_are_relabelled_in_the_order_given(tmp_path: Path) -> None:
    write_idx(tmp_path / "images-idx3-ubyte", PIXELS)
    write_idx(tmp_path / "labels-idx1-ubyte", LABELS.astype(np.uint8))
    data = load_dataset(tmp_path / "images-idx3-ubyte", classes=[7])
    assert data.y is not None and data.y.tolist() == [0, 0] and data.index.tolist() == [0, 2]
    data = load_dataset(tmp_path / "images-idx3-ubyte", index="1:", classes=[1, 7])
    assert data.y is not None and data.y.tolist() == [0, 1] and data.names == ("1", "2")
    with pytest.raises(InputError, match="no input has class 3; the labels are 1, 7"):
        load_dataset(tmp_path / "images-idx3-ubyte", classes=[3])


def test_labels_from_a_file_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PIXELS.astype(np.float32))
    (tmp_path / "y.txt").write_text("7\n1\n7\n")
    data = load_dataset(tmp_path / "x.npy", labels=tmp_path / "y.txt")
    assert data.y is not None and data.y.tolist() == [7, 1, 7]
    assert data.image_shape == (2, 3)
    (tmp_path / "y.txt").write_text("7\n1\n")
    with pytest.raises(InputError, match="expected 3 whole numbers as labels"):
        load_dataset(tmp_path / "x.npy", labels=tmp_path / "y.txt")
    with pytest.raises(InputError, match="choosing classes needs labels"):
        load_dataset(tmp_path / "x.npy", classes=[1])


@pytest.mark.parametrize("mode", ["flat", "folders", "words"])
def test_folders_of_images(tmp_path: Path, mode: str) -> None:
    image = pytest.importorskip("PIL.Image")
    folders = {"flat": ["", "", ""], "folders": ["7", "1", "7"], "words": ["seven", "one", "seven"]}[mode]
    for i, folder in enumerate(folders):
        (tmp_path / folder).mkdir(exist_ok=True)
        image.fromarray(PIXELS[i]).save(tmp_path / folder / f"{i}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    data = load_dataset(tmp_path)
    assert data.image_shape == (2, 3)
    if mode == "flat":
        assert data.y is None and np.array_equal(data.X, EXPECTED) and data.names == ("0.png", "1.png", "2.png")
    else:
        assert data.y is not None and data.y.tolist() == ([1, 7, 7] if mode == "folders" else [0, 1, 1])
        assert np.array_equal(data.X, EXPECTED[[1, 0, 2]])


def test_colour_images_have_their_channels_first(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    image.fromarray(pixels).save(tmp_path / "a.png")
    data = load_dataset(tmp_path / "a.png")
    assert data.image_shape == (3, 2, 3)
    assert np.allclose(data.X.reshape(3, 2, 3), pixels.transpose(2, 0, 1) / 255)


def test_images_of_different_sizes_are_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    image.fromarray(PIXELS[0].T.copy()).save(tmp_path / "b.png")
    with pytest.raises(InputError, match="sizes must agree"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("text", ["a,b,label\n1,2.5,0\n-3,4e-1,1\n", "\ufeffa,b,Y\n1,2.5,0\n-3,4e-1,1\n\n"])
def test_csv_with_a_label_column(tmp_path: Path, text: str) -> None:
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    data = load_dataset(tmp_path / "d.csv")
    assert data.X.tolist() == [[1, 2.5], [-3, 0.4]] and data.y is not None and data.y.tolist() == [0, 1]
    assert data.image_shape is None


def test_csv_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("1,2\n3,4\n")
    data = load_dataset(tmp_path / "d.csv")
    assert data.X.tolist() == [[1, 2], [3, 4]] and data.y is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", b"", "is empty"),
        ("d.csv", b"a,b\n", "a header and no inputs"),
        ("d.csv", b"1,2\n3\n", "row 2 of .* has 1 columns, the first has 2"),
        ("d.csv", b"1,2\n3,x\n", "row 2 of .* holds 'x'; expected numbers"),
        ("d.csv", b"a,label\n1,0.5\n", "labels of .* must be whole numbers, got 0.5"),
        ("d.csv", b"y,label\n1,0\n", "has 2 label columns"),
        ("x-idx3-ubyte", b"\x89PNG", "is no idx file"),
        ("x-idx3-ubyte", b"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02\0", "should hold 4 bytes of numbers and holds 1"),
        ("x-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x01\0", "so labels"),
        ("x.gz", b"\x1f\x8b\0", "cannot be read"),
        ("x.png", b"no picture", "is no image"),
        ("x.pt", b"", "cannot tell what"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_dataset(tmp_path / name)


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no data at .* expected .npz or .npy, .csv, an idx file"):
        load_dataset(tmp_path / "nothing")
    with pytest.raises(InputError, match="no images in"):
        load_dataset(tmp_path)


def test_shipped_digits_are_guessed_to_be_square_images() -> None:
    data = load_dataset(shipped.path("digits"), index="0:5")
    assert data.image_shape == (28, 28) and len(data) == 5
