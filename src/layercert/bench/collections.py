"""Networks that share inputs: the shipped ones, and those that a user adds to a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from layercert import shipped
from layercert.batch import Model
from layercert.bench.recipes import RECIPES
from layercert.bench.samples import Samples
from layercert.bench.table import INPUTS, NETWORKS, SHIPPED
from layercert.errors import InputError, OptionError, unknown
from layercert.io import load
from layercert.io.datasets import Dataset, load_dataset
from layercert.network import Network
from layercert.system.files import whole_file

#: Networks of digits 1 and 7, which come with the package for other purposes too, and their 100 digits.
PAPER = "mnist17"
PAPER_SIZES = ("2x10", "2x20", "2x50", "3x20", "3x50")  # in two families; the paper has more sizes
OWN = "collections.json"
Domain = tuple[float, float] | None
#: Every input is asked about inside the unit box and without any.
DOMAINS: tuple[Domain, ...] = ((0.0, 1.0), None)


@dataclass(frozen=True, eq=False)
class Collection:
    """Networks with the inputs that all of them are asked about."""

    name: str
    models: tuple[Model, ...]
    data: Dataset
    domains: tuple[Domain, ...] = DOMAINS


def shipped_names() -> list[str]:
    """The collections that come with the package, those of many networks first."""
    return [PAPER, *dict.fromkeys(recipe.data for recipe in RECIPES)]


def shipped_collection(name: str) -> Collection:
    """A collection that comes with the package."""
    if name not in shipped_names():
        raise unknown("collection of RadiusBench", name, shipped_names())
    if name == PAPER:
        names = [f"{PAPER}_{family}_{size}" for family in ("l1", "plain") for size in PAPER_SIZES]
        return Collection(name, _models(names), load_dataset(shipped.path("digits")))
    names = [recipe.name for recipe in RECIPES if recipe.data == name]
    if name == "mnist10":
        names.insert(0, "mnist10_plain_2x20")
    return Collection(name, _models(names), load_dataset(SHIPPED / INPUTS / f"{name}.npz"))


def _models(names: Sequence[str]) -> tuple[Model, ...]:
    models: list[Model] = []
    for name in names:
        path = SHIPPED / NETWORKS / f"{name}.npz"
        models.append(Model(name, load(path if path.exists() else shipped.path(name))))
    return tuple(models)


def collections_of(out: Path, only: Sequence[str] = ()) -> list[Collection]:
    """What a folder's bench is about: the shipped collections and the user's own, or some of them.

    Args:
        out: The folder.
        only: Names of collections; none for all.

    Returns:
        The collections, in order.

    Raises:
        OptionError: A name that is not one of them.
    """
    own = _own(out)
    names = [*shipped_names(), *own]
    for name in only:
        if name not in names:
            raise unknown("collection of RadiusBench", name, names)
    return [_read(out, name, own[name]) if name in own else shipped_collection(name) for name in only or names]


def add_collection(out: Path, collection: Collection) -> None:
    """Keep a user's networks and inputs in the folder, so that the same command goes on with them.

    Args:
        out: The folder of the bench.
        collection: Networks and inputs under a name that is not taken.

    Raises:
        OptionError: The name is taken by other networks or inputs.
    """
    if collection.name in shipped_names():
        raise OptionError(f"{collection.name} is a collection of RadiusBench itself; give yours another --name")
    own = _own(out)
    entry: dict[str, Any] = {
        "networks": [[model.name, model.network.sha256] for model in collection.models],
        "domains": [list(domain) if domain else None for domain in collection.domains],
    }
    if collection.name in own and own[collection.name] != entry:
        raise OptionError(f"the bench in '{out}' has another collection {collection.name}; give yours another --name")
    taken = {name for each in own if each != collection.name for name, _ in own[each]["networks"]}
    taken |= {recipe.name for recipe in RECIPES} | set(shipped.names())
    for model in collection.models:
        if model.name in taken:
            raise OptionError(f"the bench has a network {model.name} already; rename your file")
    store_parts(out, collection)
    own[collection.name] = entry
    with whole_file(out / OWN) as file:
        file.write(json.dumps(own, indent=1).encode())


def store_parts(out: Path, collection: Collection) -> None:
    """Networks and inputs beside the table, so that the folder says by itself what it is about."""
    for folder in (NETWORKS, INPUTS):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for model in collection.models:
        target = out / NETWORKS / f"{model.name}.npz"
        if not target.exists():
            model.network.save(target)
    target = out / INPUTS / f"{collection.name}.npz"
    with whole_file(target) as file:
        save_inputs(file, collection.data)


def save_inputs(file: IO[bytes], data: Dataset) -> None:
    """X and y; float32 where that changes no number."""
    X = data.X.astype(np.float32)
    arrays: dict[str, Any] = {"X": X if np.array_equal(X, data.X) else data.X}
    if data.y is not None:
        arrays["y"] = data.y
    np.savez_compressed(file, allow_pickle=False, **arrays)


def _own(out: Path) -> dict[str, dict[str, Any]]:
    try:
        found = dict(json.loads((out / OWN).read_text()))
        for entry in found.values():  # all that is made of it later
            _ = [(str(name), str(sha256)) for name, sha256 in entry["networks"]], _domains(entry)
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise InputError(
            f"'{out / OWN}' is damaged ({error}); write it again with layercert radiusbench extend"
        ) from None


def _read(out: Path, name: str, entry: dict[str, Any]) -> Collection:
    models = tuple(Model(each, load(out / NETWORKS / f"{each}.npz")) for each, _ in entry["networks"])
    return Collection(name, models, load_dataset(out / INPUTS / f"{name}.npz"), _domains(entry))


def _domains(entry: dict[str, Any]) -> tuple[tuple[float, float] | None, ...]:
    return tuple((float(d[0]), float(d[1])) if d else None for d in entry["domains"])


def chosen_inputs(data: Samples, networks: Sequence[Network], count: int) -> Dataset:
    """Test points that every network of a collection gets right, the classes taking turns.

    Args:
        data: The samples; only their test part is used.
        networks: All networks that will be asked about these inputs.
        count: How many, at most.

    Returns:
        The points with their classes.
    """
    X = data.test.X.astype(np.float64)
    right = np.logical_and.reduce([network(X).argmax(axis=1) == data.test.y for network in networks])
    queues = [list(np.flatnonzero(right & (data.test.y == k))) for k in range(data.classes)]
    order: list[int] = []
    while len(order) < count and any(queues):
        order += [int(queue.pop(0)) for queue in queues if queue]
    rows = np.array(order[:count], dtype=np.intp)
    names = tuple(str(i) for i in range(len(rows)))
    return Dataset(X[rows], data.test.y[rows].astype(np.intp), np.arange(len(rows)), names)


def copy_file(source: Path, target: Path) -> None:
    """A copy that is there as a whole or not at all."""
    half = target.with_name(target.name + ".part")
    shutil.copyfile(source, half)
    half.replace(target)
