"""The networks of an experiment: shipped ones, a folder of .npz files, or trained from MNIST."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layercert import shipped
from layercert.batch import Model
from layercert.errors import InputError
from layercert.experiments.setup import Settings
from layercert.experiments.train import train_network
from layercert.io import load
from layercert.io.datasets import Dataset
from layercert.network import Network

#: Below this share of right answers on the shipped digits a network has learnt nothing.
COLLAPSED = 0.9


@dataclass(frozen=True, eq=False)
class Found:
    """The networks to use, by size, and why others are left out."""

    models: tuple[Model, ...]
    remarks: tuple[str, ...]


def file_name(family: str, size: str) -> str:
    return f"mnist17_{family}_{size}"


def size_of(model: str) -> str:
    return model.rsplit("_", 1)[-1]


def find_networks(sizes: tuple[str, ...], family: str, settings: Settings, digits: Dataset) -> Found:
    """Every network of `sizes` that can be had; one that gives all digits the same class is left out, with a remark."""
    wanted = [size for size in sizes if settings.sizes is None or size in settings.sizes]
    models: list[Model] = []
    missing: list[str] = []
    remarks: list[str] = []
    for size in wanted:
        path = _path(family, size, settings)
        if path is None:
            missing.append(size)
            continue
        network = load(path)
        share = accuracy(network, digits)
        if share < COLLAPSED:
            remarks.append(f"{path.stem} is left out: it is right on {share:.0%} of the shipped digits only")
        else:
            models.append(Model(file_name(family, size), network))
    if missing:
        where = "are not shipped" if settings.nets is None else f"are not in {settings.nets}"
        remarks.insert(0, f"of the family {family}, {', '.join(missing)} {where}")
    return Found(tuple(models), tuple(remarks))


def accuracy(network: Network, digits: Dataset) -> float:
    if digits.y is None:
        raise InputError(f"the digits in {digits.source} have no labels")
    return float(np.mean(network(digits.X).argmax(axis=1) == digits.y))


def _path(family: str, size: str, settings: Settings) -> Path | None:
    name = file_name(family, size)
    if settings.mnist is not None:
        trained = settings.out / "nets" / f"{name}.npz"
        if not trained.exists():
            network = train_network(settings.mnist, size, family)
            trained.parent.mkdir(parents=True, exist_ok=True)
            network.save(trained)
        return trained
    if settings.nets is None:
        return shipped.path(name) if name in shipped.names() else None
    if not settings.nets.is_dir():
        raise InputError(f"no folder '{settings.nets}'; --nets names a folder with files such as {name}.npz")
    path = settings.nets / f"{name}.npz"
    return path if path.exists() else None
