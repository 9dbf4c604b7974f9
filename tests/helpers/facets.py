"""Random facets, and what all checkers say of a certificate."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from helpers.standalone import alone
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate
from layercert.certificate.entries import entries_of
from layercert.certificate.steps import StepTree
from layercert.facets import Facets
from layercert.network import Network


def network_of(rng: np.random.Generator, sizes: list[int], filled: float = 1.0) -> Network:
    weights = [
        np.where(rng.random((m, n)) < filled, rng.normal(size=(m, n)), 0.0) for n, m in itertools.pairwise(sizes)
    ]
    return Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in sizes[1:]])


def random_facets(rng: np.random.Generator, net: Network, how_many: float = 0.7) -> Facets:
    sizes = entries_of(net.maps).counts
    at = np.flatnonzero(rng.random(len(sizes)) < how_many)
    parts = rng.random(int(sizes[at].sum()))
    parts[rng.random(len(parts)) < 0.2] = rng.integers(2)
    return Facets(at, np.where(rng.random(len(at)) < 0.3, 1.0, rng.random(len(at))), parts)


def code_of(net: Network, certificate: Certificate, folder: Path, exact: bool = False) -> int:
    net.save(folder / "network.npz")
    certificate.save(folder / "proof.npz")
    return int(alone.main([str(folder / "proof.npz"), str(folder / "network.npz"), *["--exact"] * exact]))


def verdicts(net: Network, certificate: Certificate, folder: Path) -> set[bool]:
    """Of all checkers in all arithmetics."""
    package = {check(net, certificate, exact).ok for exact in (False, True)}
    return package | {code_of(net, certificate, folder, exact) == 0 for exact in (False, True)}


def without(name: str) -> Callable[[StepTree], StepTree]:
    return lambda tree: replace(tree, **{name: None})


def put(name: str, values: Any, of: Any = None) -> Callable[[StepTree], StepTree]:
    return lambda tree: replace(tree, **{name: np.array(values, of or getattr(tree, name).dtype)})
