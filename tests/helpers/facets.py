"""Random facets, and what all checkers say of a certificate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from helpers.brute import brute_force
from helpers.standalone import alone
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate
from layercert.certificate.entries import entries_of
from layercert.certificate.steps import StepTree
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import robustness


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


def agree_on_random_trees(
    random_tree: Callable[[np.random.Generator, Network, float], StepTree], norm: str, tmp_path: Path
) -> None:
    """All checkers say the same of claims with random trees, and accept no radius beyond that of brute force."""
    accepted = refused = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [2, 4, 3, 2], 0.9)
        x = rng.uniform(-1, 1, 2)
        problem = robustness(net, x, norm, domain=(x - 2.0, x + 1.0) if seed % 2 else None)
        true, _ = brute_force(problem)
        true = min(true, 5.0) if seed % 2 == 0 else min(true, 2.0)  # any radius is true where nothing is unsafe
        clauses = tuple((clause.C, clause.d, clause.target) for clause in problem.clauses)
        tree = random_tree(rng, net, float(rng.choice([0.01, 0.3, 1.0])))
        for part in (0.01, 0.1, 0.3, 0.6, 1.001):
            claim = Certificate(
                network=net.sha256, x=x, p=problem.norm.p, domain=problem.domain, label=problem.label, clauses=clauses,
                radius=part * true, witness=None, upper=math.inf, trees=(tree,),
            )  # fmt: skip
            ok = check(net, claim).ok
            assert (code_of(net, claim, tmp_path) == 0) == ok == check(net, claim, exact=True).ok
            assert part != 0.1 or (code_of(net, claim, tmp_path, exact=True) == 0) == ok
            assert not ok or part < 1 or true in (2.0, 5.0)
            accepted, refused = accepted + ok, refused + (not ok)
    assert accepted > 5 and refused > 5
