"""A bench in the form in which it is given away: the table, its networks and inputs, and certificates of a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from layercert import shipped
from layercert.bench.collections import chosen_inputs, copy_file, save_inputs
from layercert.bench.gather import ABOUT, best_rows, read_rows
from layercert.bench.recipes import Recipe
from layercert.bench.samples import samples
from layercert.bench.table import BOUNDS, CERTIFICATES, CSV, INPUTS, NETWORKS, PARQUET, Radius
from layercert.bench.train import train, trainable
from layercert.io import load
from layercert.network import Network
from layercert.system.files import whole_file

#: How many inputs of a collection are kept.
INPUT_COUNT = 500


def train_all(out: Path, mnist: Path | None, only: Sequence[str] = ()) -> list[str]:
    """Train every network that can be trained, and choose the inputs of each collection.

    Args:
        out: Where `networks` and `inputs` go; a network that is there is not trained again.
        mnist: The folder of the MNIST files; without it the networks that need it are left out.
        only: Names of recipes; none for all.

    Returns:
        A line for each network: its name, layers and test accuracy.
    """
    for folder in (NETWORKS, INPUTS):
        (out / folder).mkdir(parents=True, exist_ok=True)
    recipes = [recipe for recipe in trainable(mnist) if not only or recipe.name in only]
    lines = [_trained(out, recipe, mnist) for recipe in recipes]
    for name in dict.fromkeys(recipe.data for recipe in recipes):
        paths = sorted((out / NETWORKS).glob(f"{name}_*.npz"))
        networks = [load(path) for path in paths]
        if name == "mnist10":
            networks.append(load(shipped.path("mnist10_plain_2x20")))
        with whole_file(out / INPUTS / f"{name}.npz") as file:
            save_inputs(file, chosen_inputs(samples(name, mnist), networks, INPUT_COUNT))
    return lines


def _trained(out: Path, recipe: Recipe, mnist: Path | None) -> str:
    path = out / NETWORKS / f"{recipe.name}.npz"
    if path.exists():
        return f"{recipe.name}: there already"
    network, accuracy = train(recipe, mnist)
    save_small(network, path)
    return f"{recipe.name}: {recipe.size}, test accuracy {accuracy:.4f}"


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save_small(network: Network, path: Path) -> None:
    """The network compressed, in float32 where that changes no number: the same hash, a third of the bytes."""
    arrays = {}
    for key, array in network.arrays().items():
        narrow = array.astype(np.float32) if array.dtype == np.float64 else array
        arrays[key] = narrow if np.array_equal(narrow, array) else array
    with whole_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def ship(out: Path, target: Path, megabytes: float = 4.0) -> tuple[int, int]:
    """Copy the table and a sample of certificates: of every network, norm and domain the smallest one of an exact row.

    Certificates of rows that the table still has stay where they are: a bench that began with the shipped table does
    not have them.

    Args:
        out: The folder of a bench.
        target: Where to; networks and inputs are expected to be there.
        megabytes: The certificates together take no more; the largest are left out.

    Returns:
        How many certificates, and their bytes.
    """
    (target / CERTIFICATES).mkdir(parents=True, exist_ok=True)
    for name in (CSV, PARQUET, ABOUT):
        if (out / name).exists():
            copy_file(out / name, target / name)
    told = {row.name: row for row in best_rows(out)}
    here = [(told.get(path.stem), path) for path in (target / CERTIFICATES).glob("*.cert")]
    # what is there stays where its row does; runs may hold other answers to the same question
    kept = [(row, path) for row, path in here if row is not None and _hash(path) == row.certificate_sha256]
    made = [
        (row, path)
        for row, path in read_rows(out)
        if path is not None and told[row.name].certificate_sha256 == row.certificate_sha256
    ]
    best: dict[tuple[str, str, str], tuple[Radius, Path]] = {}
    for row, path in [*kept, *made]:
        key = (row.network, row.norm, row.setting)
        if row.status != BOUNDS and (key not in best or row.certificate_bytes < best[key][0].certificate_bytes):
            best[key] = (row, path)
    count = total = 0
    chosen: dict[str, Path] = {}
    for row, path in sorted(best.values(), key=lambda each: (each[0].certificate_bytes, each[0].name)):
        if total + row.certificate_bytes > megabytes * 1e6:
            break
        chosen[f"{row.name}.cert"] = path
        count, total = count + 1, total + row.certificate_bytes
    for _, old in here:
        if old.name not in chosen:
            old.unlink()
    for name, path in chosen.items():
        if path.parent != target / CERTIFICATES:
            copy_file(path, target / CERTIFICATES / name)
    return count, total
