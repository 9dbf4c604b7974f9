"""Data sets from files: .npz / .npy, a folder of images, idx files (MNIST, also gzipped), CSV. Each is a `Dataset`.

Bytes become numbers in [0, 1] as torchvision's ToTensor makes them (a float32 division by 255); other numbers are taken
as they are. Images are flattened row by row, colour images with the channels first, as PyTorch models expect them.
"""

from __future__ import annotations

import csv
import math
import re
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Matrix, Vector
from layercert.errors import InputError, MissingPackageError
from layercert.io.inputs import load_inputs, load_numpy, parse_index
from layercert.network import Network
from layercert.system.files import printable
from layercert.system.gz import is_gzip, read_gzip
from layercert.system.npz import MOST_AXES, Damaged

#: Files taken from a folder of images.
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
#: Names of a CSV column that holds the labels.
LABEL_COLUMNS = ("label", "labels", "y", "class", "target")
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_EXPECTED = ".npz or .npy, .csv, an idx file (also .gz), or a folder of images"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points (a row each) with labels if there are any, their positions and names in the file, and the image shape."""

    X: Matrix
    y: Indices | None
    index: Indices
    names: tuple[str, ...]
    shape: tuple[int, ...] | None = None  # of one point as stored
    source: str = "arrays"
    pictures: bool = False  # read from image files: channels first, by our own choice
    columns: tuple[str, ...] = ()  # the names of the inputs, from the first line of a table

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def image_shape(self) -> tuple[int, ...] | None:
        """(H, W) or (channels, H, W) to show a point as a picture; a guess for flat data; None when it is no image."""
        stored = tuple(n for n in self.shape or () if n > 1)
        if len(stored) in (2, 3) and math.prod(stored) == self.X.shape[1]:
            return stored
        for channels in (1, 3):
            side = math.isqrt(self.X.shape[1] // channels)
            if side >= 4 and channels * side * side == self.X.shape[1]:
                return (side, side) if channels == 1 else (3, side, side)
        return None

    def point(self, i: int, network: Network) -> Vector:
        """A point in its own shape, which the network will compare with the one that it expects.

        Image files have no shape of their own: a network that takes vectors gets them with the channels first.
        """
        flat = self.shape is None or (self.pictures and not network.image_shape)
        return np.reshape(self.X[i], (-1,) if flat or self.shape is None else self.shape)

    def arranged_for(self, network: Network) -> Dataset:
        """The data with the columns that the network knows by name, in its own order; as they are without names."""
        wanted = network.input_names
        if not wanted or not self.columns or wanted == self.columns:
            return self
        missing = [name for name in wanted if name not in self.columns]
        if missing and len(self.columns) == len(wanted):
            return self  # the same table under other names
        if missing:
            raise InputError(
                f"{self.source} has no column {missing[0]!r}, which the model expects; its columns are "
                f"{', '.join(self.columns[:20])}"
            )
        return replace(self, X=self.X[:, [self.columns.index(name) for name in wanted]], columns=wanted)

    def take(self, chosen: Indices) -> Dataset:
        return replace(
            self,
            X=self.X[chosen],
            y=None if self.y is None else self.y[chosen],
            index=self.index[chosen],
            names=tuple(self.names[int(i)] for i in chosen),
        )

    def of_classes(self, classes: Sequence[int]) -> Dataset:
        """The points of some classes, relabelled 0, 1, .. in the order given (a network of digits 1, 7 says 0, 1)."""
        if self.y is None:
            raise InputError(f"choosing classes needs labels and {self.source} has none; give them with --labels FILE")
        for k in classes:
            if k not in self.y:
                raise InputError(f"no input has class {k}; the labels are {', '.join(map(str, np.unique(self.y)))}")
        chosen = np.flatnonzero(np.isin(self.y, list(classes)))
        part = self.take(chosen)
        assert part.y is not None
        return replace(part, y=np.array([list(classes).index(int(k)) for k in part.y], dtype=np.intp))


def load_dataset(
    path: Path, index: str | None = None, labels: Path | None = None, classes: Sequence[int] | None = None
) -> Dataset:
    """Read a data set; keep some classes; then choose by position ('7', '0:100', '3,5,8')."""
    data = _read(path)
    if labels is not None:
        data = replace(data, y=_labels(labels, len(data)))
    if classes is not None:
        data = data.of_classes(classes)
    return data if index is None else data.take(parse_index(index, len(data)))


def _read(path: Path) -> Dataset:
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise InputError(f"no data at '{path}'; expected {_EXPECTED}")
    suffix = path.suffix.lower()
    if suffix in (".npz", ".npy"):
        inputs = load_inputs(path)
        return _dataset(inputs.X, inputs.y, inputs.shape if len(inputs.shape) > 1 else None, path)
    if suffix == ".csv":
        X, y, columns = _csv(path)
        return replace(_dataset(X, y, None, path), columns=columns)
    if suffix == ".gz" or "idx" in path.name:
        return _idx_images(path)
    if suffix in IMAGES:
        image = _image(path)
        return replace(_dataset(image.reshape(1, -1), None, image.shape, path, (printable(path.name),)), pictures=True)
    raise InputError(f"cannot tell what '{path}' is from its name; expected {_EXPECTED}")


def _dataset(
    X: Matrix, y: Indices | None, shape: tuple[int, ...] | None, path: Path, names: tuple[str, ...] | None = None
) -> Dataset:
    names = names or tuple(str(i) for i in range(len(X)))
    return Dataset(X, y, np.arange(len(X)), names, shape, printable(path.name))


# idx files: two zero bytes, the type, the number of dimensions, the dimensions, the numbers (all big-endian)


def _idx_images(path: Path) -> Dataset:
    images = read_idx(path)
    if images.ndim < 2:
        raise InputError(f"'{path}' holds one number an item, so labels; give the file of the images as the data")
    if not len(images):
        raise InputError(f"'{path}' holds no images")
    X = _scaled(images.reshape(len(images), -1))
    beside = path.with_name(path.name.replace("images", "labels").replace(f"idx{images.ndim}", "idx1"))
    y = _labels(beside, len(images)) if beside != path and beside.is_file() else None
    return _dataset(X, y, images.shape[1:], path)


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file, which may be gzipped."""
    try:
        raw = read_gzip(path) if is_gzip(path) else path.read_bytes()
    except (OSError, MemoryError, Damaged) as error:
        raise InputError(f"'{path}' cannot be read: {error}; is the file complete?") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise InputError(
            f"'{path}' is no idx file: it begins with {raw[:4].hex(' ')}, expected 00 00 08 03 or the like"
        )
    kind, dimensions = np.dtype(_IDX_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", raw[4:start]) if len(raw) >= start else (0,)
    wanted = math.prod(shape) * kind.itemsize
    if len(raw) - start != wanted:
        raise InputError(
            f"'{path}' should hold {wanted} bytes of numbers and holds {len(raw) - start}; download it again"
        )
    if dimensions > MOST_AXES or not wanted:
        raise InputError(f"'{path}' announces an array of shape {shape[:8]}; expected numbers; download it again")
    return np.frombuffer(raw, kind, offset=start).reshape(shape)


def _labels(path: Path, count: int) -> Indices:
    """One whole number per input: from an idx file, .npy, or a text file with one number per line."""
    if not path.is_file():
        raise InputError(f"no label file at '{path}'")
    if path.suffix.lower() == ".npy":
        y = load_numpy(path, (), "save it with numpy.save(path, labels)")
        if isinstance(y, dict):
            raise InputError(f"'{path}' holds several arrays; expected one, saved with numpy.save(path, labels)")
    elif path.suffix.lower() in (".txt", ".csv"):
        y = _label_lines(path)
    else:
        y = read_idx(path)
    if y.shape != (count,) or y.dtype.kind not in "iu":
        raise InputError(f"expected {count} whole numbers as labels in '{path}', got {y.dtype} of shape {y.shape}")
    return np.asarray(y, dtype=np.intp)


def _label_lines(path: Path) -> NDArray[Any]:
    """One whole number a line; empty lines and comments (#) do not count."""
    try:
        lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' must hold one whole number per line: {error}") from None
    for number, line in enumerate(lines, 1):
        if line and not re.fullmatch(r"[+-]?[0-9]{1,18}", line):
            raise InputError(f"'{path}' must hold one whole number per line: line {number} is {line[:40]!r}")
    return np.array([int(line) for line in lines if line], dtype=np.int64)


# CSV


def _csv(path: Path) -> tuple[Matrix, Indices | None, tuple[str, ...]]:
    """One point per line; a header may name one column label (or y, class, target), all others are the point."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as handle:
            lines = [row for row in csv.reader(handle) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path}' cannot be read as CSV: {error}") from None
    if not lines:
        raise InputError(f"'{path}' is empty; expected one input a line")
    header = [cell.strip() for cell in lines[0]] if not is_number(lines[0][0]) else []
    body = lines[1:] if header else lines
    first = 2 if header else 1
    if not body:
        raise InputError(f"'{path}' has a header and no inputs")
    width = len(lines[0])
    for number, row in enumerate(body, first):
        if len(row) != width:
            raise InputError(f"row {number} of '{path}' has {len(row)} columns, the first has {width}")
        bad = next((cell for cell in row if not is_number(cell)), None)
        if bad is not None:
            raise InputError(f"row {number} of '{path}' holds {bad!r}; expected numbers separated by commas")
    table = np.array([[float(cell) for cell in row] for row in body])
    where = [i for i, name in enumerate(header) if name.lower() in LABEL_COLUMNS]
    if len(where) > 1:
        raise InputError(f"'{path}' has {len(where)} label columns ({', '.join(header[i] for i in where)}); keep one")
    if not where:
        return table, None, tuple(header)
    y = table[:, where[0]]
    bad_labels = y[(y != np.floor(y)) | (np.abs(y) > 2**53)]
    if len(bad_labels):
        raise InputError(f"the labels of '{path}' must be whole numbers, got {bad_labels[0]:g}")
    names = tuple(name for i, name in enumerate(header) if i != where[0])
    return np.delete(table, where[0], axis=1), y.astype(np.intp), names


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# images


def _folder(path: Path) -> Dataset:
    """Images in the folder itself (no labels), or in one sub-folder a class: sorted names are classes 0, 1, .."""
    classes = sorted((p for p in path.iterdir() if p.is_dir() and _pictures(p)), key=_class_key)
    files = [(p, k) for k, folder in enumerate(classes) for p in _pictures(folder)]
    if all(folder.name.isdecimal() for folder in classes):  # folders 1 and 7 mean classes 1 and 7
        files = [(p, int(p.parent.name)) for p, _ in files]
    loose = _pictures(path)
    if loose and files:
        raise InputError(f"'{path}' holds images and folders of images; expected one of the two")
    files = files or [(p, -1) for p in loose]
    if not files:
        raise InputError(f"no images in '{path}' ({', '.join(IMAGES)}), nor in its sub-folders")
    pictures = [_image(p) for p, _ in files]
    for (p, _), picture in zip(files, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            raise InputError(f"'{p}' has shape {picture.shape}, '{files[0][0]}' {pictures[0].shape}; sizes must agree")
    y = None if loose else np.array([k for _, k in files], dtype=np.intp)
    names = tuple(printable(str(p.relative_to(path))) for p, _ in files)
    data = _dataset(np.stack([p.reshape(-1) for p in pictures]), y, pictures[0].shape, path, names)
    return replace(data, pictures=True)


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)


def _class_key(folder: Path) -> tuple[int, str]:
    return (int(folder.name) if folder.name.isdecimal() else 0, folder.name)


def _image(path: Path) -> Vector:
    """One picture in [0, 1]: (H, W) for grey ones, (channels, H, W) for colour."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("pillow", f"reading the image '{path.name}'", "plot") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what is odd in a file that can be read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                grey = picture.mode in ("1", "L", "LA")
                pixels = np.asarray(picture.convert("L" if grey else "RGB"))
    except Exception as error:  # a damaged image raises whatever its decoder stumbles over
        raise InputError(f"'{path}' is no image that pillow can read: {error or type(error).__name__}") from None
    X = _scaled(pixels)
    return X if X.ndim == 2 else np.ascontiguousarray(X.transpose(2, 0, 1))


def _scaled(array: NDArray[Any]) -> Vector:
    if array.dtype == np.uint8:
        return (array.astype(np.float32) / np.float32(255)).astype(np.float64)
    return array.astype(np.float64)
