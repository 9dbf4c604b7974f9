"""The data sets that networks of RadiusBench are trained on: scikit-learn's own, generated ones, MNIST where it is.

All inputs lie in [0, 1] and are float32 numbers, so that a model reads the same numbers in any precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.errors import InputError, MissingPackageError, unknown
from layercert.io.datasets import load_dataset

Float32 = NDArray[np.float32]
Labels = NDArray[np.int64]
#: One of so many points is kept for testing.
TEST = 4
MNIST_FILES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")


@dataclass(frozen=True, eq=False)
class Part:
    """Points, a row each, with their classes 0, 1, .."""

    X: Float32
    y: Labels


@dataclass(frozen=True, eq=False)
class Samples:
    """A part to learn from and a part to ask about."""

    train: Part
    test: Part

    @property
    def classes(self) -> int:
        return int(self.train.y.max()) + 1


def samples(name: str, mnist: Path | None = None) -> Samples:
    """The data set of that name.

    Args:
        name: One of `NAMES`.
        mnist: The folder with the MNIST idx files, for the sets that need them.

    Returns:
        The same points in the same order, every time.

    Raises:
        OptionError: An unknown name.
        InputError: MNIST is needed and not there.
        MissingPackageError: scikit-learn is needed and not there.
    """
    if name in MNIST:
        return _mnist(name, mnist)
    if name not in _MAKERS:
        raise unknown("data set", name, NAMES)
    X, y = _MAKERS[name]()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = _unit(X)[order], np.asarray(y, dtype=np.int64)[order]
    test = np.arange(len(X)) % TEST == 0
    return Samples(Part(X[~test], y[~test]), Part(X[test], y[test]))


def _unit(X: NDArray[Any]) -> Float32:
    """Every column from 0 to 1; pictures come so already."""
    low, high = X.min(axis=0), X.max(axis=0)
    if low.min() >= 0.0 and high.max() <= 1.0:
        return X.astype(np.float32)
    return np.asarray(np.clip((X - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0), dtype=np.float32)


def _sklearn(loader: str) -> Callable[[], tuple[NDArray[Any], NDArray[Any]]]:
    def read() -> tuple[NDArray[Any], NDArray[Any]]:
        try:
            from sklearn import datasets
        except ImportError:
            raise MissingPackageError("scikit-learn", "training networks of RadiusBench", "bench") from None
        found = getattr(datasets, loader)()
        X = np.asarray(found.data, dtype=np.float64)
        return (X / 16.0 if loader == "load_digits" else X), np.asarray(found.target)

    return read


def _moons(count: int = 2000) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two half circles that reach into each other, with noise."""
    rng = np.random.default_rng(1)
    t, y = rng.uniform(0.0, math.pi, count), np.arange(count) % 2
    X = np.where(y[:, None] == 0, np.stack([np.cos(t), np.sin(t)], 1), np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1))
    return X + rng.normal(scale=0.12, size=X.shape), y


def _spirals(count: int = 3000) -> tuple[NDArray[Any], NDArray[Any]]:
    """Three spirals around one centre."""
    rng = np.random.default_rng(2)
    t, y = np.sqrt(rng.uniform(0.02, 1.0, count)), np.arange(count) % 3
    angle = 2 * math.pi * (t + y / 3) + rng.normal(scale=0.12, size=count)
    return np.stack([t * np.cos(angle), t * np.sin(angle)], 1), y


#: The advice to an aircraft, in the order of ACAS Xu's outputs.
ADVICE = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")


def _encounters(count: int = 20000) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two aircraft in a plane, in ACAS Xu's five inputs: distance, bearing, relative heading, own and other speed.

    The classes are those of ACAS Xu, by a rule of our own: turn away from the side on which the other one will pass,
    strongly where it passes soon and near. Its tables are not public; its kind of network is what is wanted here.
    """
    rng = np.random.default_rng(3)
    unit = rng.uniform(size=(count, 5))
    distance = 8.0 * unit[:, 0]  # thousands of feet x 7.6
    bearing, heading = 2 * math.pi * (unit[:, 1] - 0.5), 2 * math.pi * (unit[:, 2] - 0.5)
    own, other = 0.1 + 1.1 * unit[:, 3], 1.2 * unit[:, 4]  # distance units per ten seconds
    place = distance[:, None] * np.stack([np.cos(bearing), np.sin(bearing)], 1)
    velocity = np.stack([other * np.cos(heading) - own, other * np.sin(heading)], 1)
    speed = np.maximum((velocity**2).sum(axis=1), 1e-9)
    when = np.maximum(-(place * velocity).sum(axis=1) / speed, 0.0)  # of the closest approach
    nearest = place + when[:, None] * velocity
    miss = np.linalg.norm(nearest, axis=1)
    side = np.where(np.abs(nearest[:, 1]) > 1e-9, nearest[:, 1], place[:, 1]) > 0  # it passes on the left
    strong = (miss < 1.0) & (when < 5.0)
    weak = (miss < 2.0) & (when < 10.0)
    advice = np.where(strong, np.where(side, 4, 3), np.where(weak, np.where(side, 2, 1), 0))
    return unit, advice


_MAKERS: dict[str, Callable[[], tuple[NDArray[Any], NDArray[Any]]]] = {
    "digits": _sklearn("load_digits"),
    "wine": _sklearn("load_wine"),
    "cancer": _sklearn("load_breast_cancer"),
    "iris": _sklearn("load_iris"),
    "moons": _moons,
    "spirals": _spirals,
    "encounters": _encounters,
}
#: Data sets that are read from the MNIST files, and the digits in them.
MNIST = {"mnist10": tuple(range(10))}
NAMES = (*_MAKERS, *MNIST)


def _mnist(name: str, folder: Path | None) -> Samples:
    if folder is None:
        raise InputError(f"{name} needs the MNIST files; name their folder with --mnist DIR")
    parts: list[Part] = []
    for file in MNIST_FILES:
        path = next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None)
        if path is None:
            raise InputError(f"no {file} (or {file}.gz) in '{folder}'; --mnist names the folder of the MNIST idx files")
        data = load_dataset(path, None, None, MNIST[name])
        assert data.y is not None
        parts.append(Part(data.X.astype(np.float32), data.y.astype(np.int64)))
    return Samples(*parts)
