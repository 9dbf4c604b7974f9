"""What a certificate says: a claim, the trees that prove it, and the file they are kept in (docs/certificates.md).

A tree belongs to one clause. Its nodes are stored in preorder: a node splits one neuron (first subtree: on, second:
off), goes on with better parameters (one subtree, for the same points) or is a leaf. Every node carries slopes alpha
for all neurons, multipliers beta for those whose side is known and weights mu for the clause's rows: any values in
range are sound, so they may be rounded at will. `rounds` says how often a node's own halfspace is used to tighten the
bounds that it (and its subtree) goes on with; the lower lines of these passes are z (bit 1) or 0 (bit 0 of `touch`).

That is format 1, which is still read. In format 2 every bound has its own multipliers: steps.py.

A box tree, for networks with few inputs, cuts the input box instead, and carries nothing but its cuts.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Matrix, Vector
from layercert.certificate.steps import NAMES, OPTIONAL, StepTree
from layercert.errors import InputError
from layercert.system.files import whole_file
from layercert.system.npz import read_numpy

if TYPE_CHECKING:
    from layercert.certificate.whole import WholeCertificate

#: Version 2 added explicit trees, weights and targets; a reader of version 1 would not see them: it must refuse such
#: files. Trees of both kinds are read in either version.
VERSION, PLAIN_VERSION = 2, 1
#: `layer` of a node that splits nothing and goes on with other parameters.
GO_ON = -1
#: Files that would unpack to more than this are refused unread.
LARGEST = 1 << 30


@dataclass(frozen=True, eq=False)
class Tree:
    """The proof that one clause holds nowhere within the radius; nodes in preorder."""

    layer: NDArray[np.int32]  # 1..L for a split, 0 for a leaf, GO_ON for one subtree
    neuron: NDArray[np.int32]
    rounds: NDArray[np.int32]
    alpha: NDArray[np.floating[Any]]  # nodes x neurons
    beta: NDArray[np.floating[Any]]  # nodes x neurons
    mu: NDArray[np.floating[Any]]  # nodes x rows of the clause
    touch: NDArray[np.uint8]  # nodes x neurons, eight bits per byte

    @property
    def leaves(self) -> int:
        return int((self.layer == 0).sum())


@dataclass(frozen=True, eq=False)
class BoxTree:
    """The same by cutting inputs; nodes in preorder, the part below the cut first."""

    axis: NDArray[np.int32]  # which input, -1 for a leaf
    cut: Vector

    @property
    def leaves(self) -> int:
        return int((self.axis < 0).sum())


AnyTree: TypeAlias = Tree | StepTree | BoxTree


@dataclass(frozen=True, eq=False)
class Certificate:
    """No point of the domain within `radius` of x is unsafe; the witness is one that is, at distance `upper`.

    Attributes:
        network: SHA-256 of the network's weights.
        x: The input.
        p: The norm's exponent.
        domain: (low, high), the box of points that count; None for all points.
        label: The class whose robustness is claimed; None for other unsafe sets.
        clauses: (C, d, target) for each polyhedron {f : C f <= d} of the unsafe set.
        radius: The claim: nothing unsafe within it.
        witness: An unsafe point, if one is known.
        upper: Its distance, inf without one.
        trees: The proof, one tree per clause.
        weights: Distances are ||weights * (v - x)||; None for a plain norm.
        asked: The classes that no point within the radius is given, where the claim is about these; None where it is
            about every class but the label.
        intervals: Whether trees of neurons start with interval arithmetic beside backward passes.
        exact: Whether float64 is known not to be enough: then it is checked in ball arithmetic in any case. A hint, by
            which nothing is claimed.
    """

    network: str
    x: Vector
    p: float
    domain: tuple[Vector, Vector] | None
    label: int | None
    clauses: tuple[tuple[Matrix, Vector, int | None], ...]
    radius: float
    witness: Vector | None
    upper: float
    trees: tuple[AnyTree, ...]
    weights: Vector | None = None
    asked: tuple[int, ...] | None = None
    intervals: bool = False
    exact: bool = False

    @property
    def leaves(self) -> int:
        """Leaves of all trees."""
        return sum(tree.leaves for tree in self.trees)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the file holds.

        Returns:
            Named arrays; the header is JSON as bytes.
        """
        arrays: dict[str, Any] = {"x": self.x}
        if self.domain is not None:
            arrays["low"], arrays["high"] = self.domain
        if self.witness is not None:
            arrays["witness"] = self.witness
        if self.weights is not None:
            arrays["weights"] = self.weights
        for i, (C, d, _) in enumerate(self.clauses):
            arrays[f"C{i}"], arrays[f"d{i}"] = C, d
        for i, tree in enumerate(self.trees):
            for name in _names(tree):
                arrays[f"{name}{i}"] = getattr(tree, name)
        explicit = any(isinstance(tree, StepTree) for tree in self.trees)
        plain = self.weights is None and self.asked is None and not explicit
        header = {
            "format": "layercert certificate",
            "version": PLAIN_VERSION if plain else VERSION,
            "network": self.network,
            "x_sha256": sha256(self.x),
            "p": "inf" if math.isinf(self.p) else self.p,
            "label": self.label,
            "targets": [target for _, _, target in self.clauses],
            "radius": self.radius,
            "upper": None if math.isinf(self.upper) else self.upper,
            "leaves": self.leaves,
            "asked": self.asked,
        }
        header |= {name: True for name in ("intervals", "exact") if getattr(self, name)}
        return arrays | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}

    def save(self, path: str | Path) -> None:
        """Write the certificate as one compressed .npz file, as a whole or not at all; no pickle inside.

        Args:
            path: The file.

        Raises:
            InputError: The file cannot be written.
        """
        target = Path(path)
        try:
            with whole_file(target) as file:
                np.savez_compressed(file, allow_pickle=False, **self.arrays())
        except OSError as error:
            raise InputError(f"cannot write the certificate to '{target}': {error.strerror or error}") from None


#: What a hostile certificate may raise; ValueError is what the reader of its arrays says, RecursionError what json may.
_HOSTILE = (ValueError, KeyError, TypeError, OverflowError, OSError, MemoryError, AttributeError, RecursionError)

_TREE = ("layer", "neuron", "rounds", "alpha", "beta", "mu", "touch")
_BOX_TREE = ("axis", "cut")


def _names(tree: AnyTree) -> tuple[str, ...]:
    if isinstance(tree, StepTree):
        return NAMES + tuple(name for name in OPTIONAL if getattr(tree, name) is not None)
    return _BOX_TREE if isinstance(tree, BoxTree) else _TREE


def sha256(x: Vector) -> str:
    return hashlib.sha256(np.ascontiguousarray(x, dtype="<f8").tobytes()).hexdigest()


def load_certificate(path: str | Path) -> Certificate | WholeCertificate:
    """Read a certificate file; whatever is wrong with it is an InputError, never a crash or a huge allocation.

    Args:
        path: The file.

    Returns:
        The claim and its proof. Nothing is checked yet: that is `check`.

    Raises:
        InputError: There is no such file, or it is not a readable certificate.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"no certificate at '{source}'")
    try:
        with source.open("rb") as file:
            arrays = _read(file)
        from layercert.certificate import whole

        header = json.loads(arrays["header"].tobytes().decode())
        if isinstance(header, dict) and header.get("format") == whole.FORMAT:
            return whole.unpacked(arrays, header, lambda part: _assemble(_read(io.BytesIO(part))))
        return _assemble(arrays)
    except _HOSTILE as error:
        if isinstance(error, InputError):
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"'{source}' is not a readable LayerCert certificate: {reason}") from None


def _read(file: BinaryIO) -> dict[str, NDArray[Any]]:
    arrays = read_numpy(file, largest=LARGEST)
    if not isinstance(arrays, dict):
        raise ValueError("it holds a single array")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{name} is an array of type {array.dtype}, which does not belong in a certificate")
    return arrays


def _assemble(arrays: dict[str, NDArray[Any]]) -> Certificate:
    header = json.loads(arrays["header"].tobytes().decode())
    if not isinstance(header, dict) or header.get("format") != "layercert certificate":
        raise ValueError("the header is not that of a certificate")
    if header["version"] not in (PLAIN_VERSION, VERSION):
        raise ValueError(f"it has version {header['version']}, this program reads versions up to {VERSION}")
    x = _vector(arrays["x"])
    if header["x_sha256"] != sha256(x):
        raise ValueError("x does not match its hash")
    targets = header["targets"]
    clauses = []
    trees: list[AnyTree] = []
    for i, target in enumerate(targets):
        C = np.asarray(arrays[f"C{i}"], dtype=np.float64)
        d = _vector(arrays[f"d{i}"])
        if C.ndim != 2 or len(C) != len(d):
            raise ValueError(f"clause {i} has {C.shape} coefficients for {d.shape} right-hand sides")
        clauses.append((C, d, None if target is None else int(target)))
        if f"axis{i}" in arrays:
            trees.append(BoxTree(*(arrays[f"{name}{i}"] for name in _BOX_TREE)))
        elif f"steps{i}" in arrays:
            others: dict[str, Any] = {name: arrays.get(f"{name}{i}") for name in OPTIONAL}
            trees.append(StepTree(*(arrays[f"{name}{i}"] for name in NAMES), **others))
        else:
            trees.append(Tree(*(arrays[f"{name}{i}"] for name in _TREE)))
    intervals = header.get("intervals", False)
    if intervals not in (True, False):
        raise ValueError(f"intervals must be true or false, not {intervals!r}")
    boxed = "low" in arrays or "high" in arrays  # one of them alone is no domain
    domain = (_vector(arrays["low"]), _vector(arrays["high"])) if boxed else None
    label = header["label"]
    return Certificate(
        network=str(header["network"]),
        x=x,
        p=float(header["p"]),
        domain=domain,
        label=None if label is None else int(label),
        clauses=tuple(clauses),
        radius=float(header["radius"]),
        witness=_vector(arrays["witness"]) if "witness" in arrays else None,
        upper=math.inf if header["upper"] is None else float(header["upper"]),
        trees=tuple(trees),
        weights=_vector(arrays["weights"]) if "weights" in arrays else None,
        asked=None if header.get("asked") is None else tuple(int(k) for k in header["asked"]),
        intervals=bool(intervals),
        exact=header.get("exact") is True,
    )


def _vector(array: NDArray[Any]) -> Vector:
    v = np.asarray(array, dtype=np.float64)
    if v.ndim != 1:
        raise ValueError(f"expected a vector, got shape {v.shape}")
    return v
