"""What a tool is asked in an audit: a network and some inputs, in one norm, inside a domain or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.batch.store import FILE, Store, open_store
from layercert.bench.gather import radius_of
from layercert.bench.table import BOUNDS, CSV, EXACT, Radius, radiusbench
from layercert.errors import InputError, MissingPackageError, unknown
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness

if TYPE_CHECKING:
    import torch

Domain = tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Case:
    """Inputs of one network that a tool works on together.

    Attributes:
        network: The network, as exact numbers.
        X: The inputs, a row each.
        y: Their classes.
        norm: l1, l2 or linf.
        domain: (low, high) of every coordinate, or None for all points.
    """

    network: Network
    X: Matrix
    y: Indices
    norm: str
    domain: Domain

    @cached_property
    def module(self) -> torch.nn.Sequential:
        """The network as a PyTorch module in float32, as attacks expect it."""
        return as_module(self.network)

    def problem(self, i: int) -> Problem:
        """The question about one of the inputs.

        Args:
            i: Its row in X.

        Returns:
            The problem, as `lc.robustness` makes it.
        """
        return robustness(self.network, self.X[i], self.norm, int(self.y[i]), domain=self.domain)

    @property
    def unit(self) -> float:
        """How far apart two corners of the unit box are: distances are of this order."""
        p = Norm.of(self.norm).p
        return 1.0 if math.isinf(p) else float(self.X.shape[1] ** (1.0 / p))


def as_module(network: Network) -> torch.nn.Sequential:
    """The network's layers and ReLUs, its weights rounded to float32."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError("torch", "an audit of attacks", "torch") from None
    modules: list[torch.nn.Module] = []
    for W, b in zip(network.weights, network.biases, strict=True):
        linear = torch.nn.Linear(W.shape[1], W.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.array(W)))
            linear.bias.copy_(torch.from_numpy(np.array(b)))
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1]).eval().requires_grad_(False)


class Truth(Protocol):
    """Where exact radii come from."""

    @property
    def rows(self) -> tuple[Radius, ...]: ...

    def network(self, name: str) -> Network: ...

    def x(self, row: Radius) -> Vector: ...


@dataclass(frozen=True, eq=False)
class RunTruth:
    """The radii of a run of `layercert batch`; its answers count whether or not they have certificates."""

    rows: tuple[Radius, ...]
    networks: dict[str, Network]
    inputs: dict[int, Vector]

    def network(self, name: str) -> Network:
        return self.networks[name]

    def x(self, row: Radius) -> Vector:
        return self.inputs[row.input]


def truth(folder: Path | None) -> Truth:
    """The shipped RadiusBench, one that was built, or a run.

    Args:
        folder: The folder of a bench or of a run; None for what is shipped.

    Returns:
        Rows with their networks and inputs.

    Raises:
        InputError: The folder is neither.
    """
    if folder is None or (folder / CSV).exists():
        return radiusbench(folder)
    if not (folder / FILE).exists():
        raise InputError(f"'{folder}' is neither a RadiusBench (no {CSV}) nor a run (no {FILE})")
    with closing(open_store(folder)) as store:
        return _of_run(store)


def _of_run(store: Store) -> RunTruth:
    domain = store.facts()["identity"]["domain"]
    records = [row for row in store.rows() if row["status"] in ("exact", "undecided")]
    # the run's own word counts: a certificate is not asked for
    rows = tuple(
        replace(radius_of(store, row, "run", domain, None), status=EXACT if row["status"] == EXACT else BOUNDS)
        for row in records
    )
    networks = {name: store.network(i) for i, (name, _) in enumerate(store.models())}
    inputs = {row["position"]: store.x(row["input"]) for row in records}
    return RunTruth(rows, networks, inputs)


@dataclass(frozen=True)
class Wanted:
    """Which questions of a truth are asked; empty for all of them.

    Attributes:
        networks: Names of networks.
        norms: l1, l2, linf.
        settings: "box" and "free".
        inputs: At most so many of each network, norm and setting; None for all.
    """

    networks: tuple[str, ...] = ()
    norms: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    inputs: int | None = None

    def __call__(self, row: Radius) -> bool:
        return (
            row.status == EXACT
            and row.upper > 0.0
            and (not self.networks or row.network in self.networks)
            and (not self.norms or row.norm in self.norms)
            and (not self.settings or row.setting in self.settings)
        )


def check_names(source: Truth, wanted: Wanted) -> None:
    """Does the truth have what is asked for by name?

    Args:
        source: Where exact radii come from.
        wanted: Which questions.

    Raises:
        OptionError: A network, norm or setting that no row of the truth has.
    """
    for kind, names, known in (
        ("network", wanted.networks, {row.network for row in source.rows}),
        ("norm", wanted.norms, {row.norm for row in source.rows}),
        ("setting", wanted.settings, {row.setting for row in source.rows}),
    ):
        for name in names:
            if name not in known:
                raise unknown(f"{kind} of the truth", name, known)


def cases(source: Truth, wanted: Wanted) -> Iterator[tuple[Case, list[Radius]]]:
    """Each network, norm and domain with its exact rows: what all tools are asked."""
    check_names(source, wanted)
    groups: dict[tuple[str, str, Domain], list[Radius]] = {}
    for row in source.rows:
        if wanted(row):
            groups.setdefault((row.network, row.norm, row.domain), []).append(row)
    for (name, norm, domain), rows in groups.items():
        rows = rows[: wanted.inputs]
        X = np.stack([source.x(row) for row in rows])
        y = np.array([row.label for row in rows], dtype=np.intp)
        yield Case(source.network(name), X, y, norm, domain), rows


@dataclass(frozen=True)
class Tool:
    """An attack or a verifier.

    Attributes:
        name: What the page calls it.
        kind: "attack" (gives points of another class) or "verifier" (gives certified radii).
        run: Takes a `Case`; an attack returns one point per input, a verifier one radius per input.
        norms: The norms it knows.
        settings: "box" and "free": whether it works inside a domain, and without one.
        slow: Asked only where it is named.
        loads: Whether its first call loads packages or compiles code. It is then called once before on a small network,
            so that this does not count as its seconds.
    """

    name: str
    kind: str
    run: Callable[[Case], Any]
    norms: tuple[str, ...] = ("linf", "l2", "l1")
    settings: tuple[str, ...] = ("box", "free")
    slow: bool = False
    loads: bool = False

    def takes(self, row: Radius) -> bool:
        """Can it be asked about such a row?

        Args:
            row: A row of the truth.

        Returns:
            Whether it knows the norm and the kind of domain.
        """
        return row.norm in self.norms and row.setting in self.settings
