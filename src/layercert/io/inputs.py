"""Input points from files: .npz with X (and labels y), .npy with a point or one per row, and which of them to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Matrix, Vector
from layercert.errors import InputError
from layercert.system.npz import Damaged, names_in, read_numpy


@dataclass(frozen=True, eq=False)
class Inputs:
    """Some points of a data file, with their labels if the file has any, and their positions in the file."""

    X: Matrix
    y: Indices | None
    index: Indices
    shape: tuple[int, ...]  # of one point as stored

    def point(self, i: int) -> Vector:
        """A point in the shape in which it is stored: a network knows whether that is its own."""
        return np.reshape(self.X[i], self.shape)


def load_inputs(path: Path, index: str | None = None) -> Inputs:
    """Read points (a row each, images flattened) and choose some: '7', '0:10', '0:100:5', '3,5,8'."""
    X, y, shape = _read(path)
    chosen = parse_index(index, len(X))
    return Inputs(X[chosen], None if y is None else y[chosen], chosen, shape)


def _read(path: Path) -> tuple[Matrix, Indices | None, tuple[int, ...]]:
    if not path.is_file():
        raise InputError(f"no input file at '{path}'; expected .npz with an array X (and labels y), or .npy")
    X, y = _arrays(path)
    if X.dtype.kind not in "fiub":
        raise InputError(f"the inputs in '{path}' have type {X.dtype}; expected numbers")
    if X.size == 0:
        raise InputError(f"'{path}' holds no inputs, its array has shape {X.shape}; expected one input per row")
    X = np.asarray(X, dtype=np.float64)
    shape = tuple(int(n) for n in (X.shape if X.ndim < 2 else X.shape[1:]))
    X = X.reshape(1, -1) if X.ndim < 2 else X.reshape(len(X), -1)
    if y is not None:
        y = np.atleast_1d(y)
        if y.shape != (len(X),) or y.dtype.kind not in "iub":
            raise InputError(
                f"the labels y in '{path}' must be {len(X)} whole numbers, one per input; "
                f"got {y.dtype} of shape {y.shape}"
            )
        y = y.astype(np.intp)
    return X, y, shape


def _arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The points and labels as stored; pickled objects are never loaded."""
    loaded = load_numpy(path, ("X", "x", "y"), "save it with numpy.savez(path, X=..., y=...)")
    if not isinstance(loaded, dict):
        return loaded, None
    for name in ("X", "x"):
        if name in loaded:
            return loaded[name], loaded.get("y")
    with open(path, "rb") as file:
        raise InputError(f"'{path}' has no array X; it holds {', '.join(names_in(file)) or 'nothing'}")


def load_numpy(path: Path, wanted: Sequence[str], remedy: str) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """What a .npy file holds, or the wanted arrays of an .npz file."""
    try:
        with open(path, "rb") as file:
            return read_numpy(file, lambda name: name in wanted)
    except Damaged as error:
        raise InputError(
            f"'{path}' is not a .npz or .npy file of numbers, or a damaged one; {remedy} ({error})"
        ) from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or error}") from None


def parse_index(text: str | None, count: int) -> Indices:
    """Positions chosen by '7', '0:10', '0:100:5' or '3,5,8' out of `count`; everything when text is None."""
    if text is None:
        return np.arange(count)
    chosen: list[int] = []
    for part in text.split(","):
        try:
            if ":" in part:
                bounds = [int(p) if p else None for p in part.split(":")]
                if len(bounds) > 3:
                    raise ValueError
                chosen.extend(range(count)[slice(*bounds)])
            else:
                chosen.append(range(count)[int(part)])
        except IndexError:
            raise InputError(f"index {part} is out of range: there are {count} inputs, 0..{count - 1}") from None
        except ValueError:
            raise InputError(f"cannot read the index {text!r}; expected e.g. 7, 0:10, 0:100:5 or 3,5,8") from None
    if not chosen:
        raise InputError(f"the index {text!r} chooses none of the {count} inputs")
    return np.array(chosen, dtype=np.intp)
