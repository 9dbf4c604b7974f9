"""Searches that survive: what is left to do, in a file that is there as a whole or not at all.

A file belongs to one question: the network, the input, the norm, the region asked about and the classes, by a hash. It
holds the open nodes of the tree, what the closed ones proved, the bounds and the witness; where a certificate is asked
for, also what was recorded for it. Whoever reads it believes the bounds, as a search believes its own memory; a
checksum tells where bytes were lost. The witness is looked at again.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.errors import OptionError
from layercert.norms import WeightedNorm
from layercert.problem import Problem
from layercert.system.files import whole_file
from layercert.system.npz import Damaged, read_numpy

FORMAT = 3
#: Seconds between two saves; more where saving takes more than this part of the time.
PAUSE, SHARE = 10.0, 0.03


@dataclass(frozen=True, eq=False)
class Tree:
    """An adaptive search inside one ball.

    Attributes:
        radius: Of the ball.
        built: The ball in which the root's bounds of neurons hold.
        proved: What the search has proved of the distance, in this ball or in others.
        patience: How many rounds it waits until it tries smaller balls.
        closed_bound: The least proved bound of a closed node.
        closed: How many nodes are closed.
        made: How many nodes there were.
        nodes: The open nodes, packed (search/adaptive/node.py).
        numbers: Those of the open nodes; none where nobody knows them.
        record: What was recorded for a certificate, as the recorder packs it; nothing where none was asked for.
    """

    radius: float
    built: float
    proved: float
    patience: int
    closed_bound: float
    closed: int
    made: int
    nodes: list[bytes]
    numbers: list[int] = field(default_factory=list)
    record: bytes = b""


#: What of a tree is a number.
_IN_HEAD = ("radius", "built", "proved", "patience", "closed_bound", "closed", "made")


@dataclass(frozen=True, eq=False)
class Saved:
    """A search as a file keeps it.

    Attributes:
        question: What it is about, by `question_of`.
        lower: Proved: nothing unsafe is nearer.
        witness: The nearest unsafe point found.
        nearest: How near a point was found, settled or not.
        unsettled: The offset of one that was unsafe up to rounding only.
        reach: How far the search looks (its coordinates depend on that where the norm has weights).
        seconds: How long it took so far, all its runs together.
        tree: What is left to do; None before there is a tree.
    """

    question: dict[str, str]
    lower: float = 0.0
    witness: Vector | None = None
    nearest: float = math.inf
    unsettled: Vector | None = None
    reach: float = math.inf
    seconds: float = 0.0
    tree: Tree | None = None

    def to_bytes(self) -> bytes:
        nodes = [] if self.tree is None else self.tree.nodes
        head = {
            "format": FORMAT,
            "question": self.question,
            "lower": float(self.lower).hex(),
            "nearest": float(self.nearest).hex(),
            "reach": float(self.reach).hex(),
            "seconds": self.seconds,
            "tree": None if self.tree is None else {key: getattr(self.tree, key) for key in _IN_HEAD},
        }
        body = b"".join(nodes)
        arrays = {"nodes": np.frombuffer(body, np.uint8), "sizes": np.array([len(node) for node in nodes], "<i8")}
        if self.tree is not None:
            arrays["numbers"] = np.array(self.tree.numbers, "<i8")
            arrays["record"] = np.frombuffer(self.tree.record, np.uint8)
        for name in ("witness", "unsettled"):
            vector = getattr(self, name)
            arrays[name] = np.zeros(0) if vector is None else vector.astype("<f8")
        head["sha256"] = _digest(head, arrays)
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @staticmethod
    def from_bytes(blob: bytes, name: str = "the saved search") -> Saved:
        try:
            arrays = read_numpy(io.BytesIO(blob))
            if not isinstance(arrays, dict):
                raise Damaged("it is a single array")
            head = json.loads(arrays["head"].astype(np.uint8).tobytes())
            if head["format"] != FORMAT:
                raise OptionError(
                    f"{name} has format {head['format']}, this version writes format {FORMAT}; go on with the version "
                    "that made it, or begin anew with another file"
                )
            if head.pop("sha256") != _digest(head, arrays):
                raise Damaged("its checksum is another one")
            body = arrays["nodes"].astype(np.uint8).tobytes()
            witness, unsettled = (
                arrays[name].astype(np.float64) if arrays[name].size else None for name in ("witness", "unsettled")
            )
            ends = np.cumsum(arrays["sizes"])
            starts = ends - arrays["sizes"]
            nodes = [body[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            tree = None
            if head["tree"] is not None:
                numbers, record = arrays["numbers"].tolist(), arrays["record"].astype(np.uint8).tobytes()
                tree = Tree(**head["tree"], nodes=nodes, numbers=numbers, record=record)
            return Saved(
                head["question"], float.fromhex(head["lower"]), witness,
                float.fromhex(head["nearest"]), unsettled, float.fromhex(head["reach"]), head["seconds"], tree,
            )  # fmt: skip
        except (Damaged, ValueError, KeyError, TypeError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError(
                f"{name} cannot be read as a saved search ({error}); delete it to begin anew, or name another file"
            ) from None


def _digest(head: dict[str, Any], arrays: dict[str, Any]) -> str:
    parts = [json.dumps(head, sort_keys=True).encode()]
    names = ("nodes", "sizes", "witness", "unsettled", "numbers", "record")
    parts += [arrays[name].tobytes() for name in names if name in arrays]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def question_of(problem: Problem, stop_at_witness: bool, gap: float) -> dict[str, str]:
    """What an answer depends on, each part by a few words or a hash."""
    norm = problem.norm
    weights = norm.weights if isinstance(norm, WeightedNorm) else None
    clauses = [part for clause in problem.clauses for part in (clause.C, clause.d)]
    return {
        "network": problem.network.sha256[:16],
        "input": _hash(problem.x),
        "norm": norm.name,
        "weights": "none" if weights is None else _hash(weights),
        "domain": "none" if problem.domain is None else _hash(*problem.domain),
        "classes": _hash(*clauses),
        "radius": repr(float(problem.radius)),
        "command": "verify" if stop_at_witness else "measure",
        "gap": repr(float(gap)),
    }


def _hash(*arrays: Any) -> str:
    whole = hashlib.sha256()
    for array in arrays:
        exact = np.ascontiguousarray(array, dtype="<f8")
        whole.update(repr(exact.shape).encode() + exact.tobytes())
    return whole.hexdigest()[:16]


@dataclass(eq=False)
class Keeper:
    """Keeps one search in a file, every so often."""

    path: Path
    question: dict[str, str]
    before: Saved | None = field(init=False)
    pause: float = field(default_factory=lambda: PAUSE)

    def __post_init__(self) -> None:
        self.before = self._read()
        self._tidy()
        self._next = time.monotonic() + self.pause

    def _read(self) -> Saved | None:
        name = f"the saved search in '{self.path}'"
        if not self.path.exists():
            if not self.path.parent.is_dir():
                raise OptionError(f"no folder '{self.path.parent}' for {name}; make it first, or name another file")
            return None
        try:
            saved = Saved.from_bytes(self.path.read_bytes(), name)
        except OSError as error:
            raise OptionError(f"cannot read {name}: {error.strerror or error}; name another file") from None
        other = [key for key, value in self.question.items() if saved.question.get(key) != value]
        if other:
            raise OptionError(
                f"{name} is about another question: its {', '.join(other)} differ{'s' if len(other) == 1 else ''}; "
                "give the same command as before to go on with it, or name another file"
            )
        return saved

    def _tidy(self) -> None:
        """Remove halves that processes left which were killed while they wrote."""
        for half in self.path.parent.glob(f"{glob.escape(self.path.name)}.*.part"):
            pid = half.name.split(".")[-2]
            with suppress(OSError):
                if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                    half.unlink()

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next

    def write(self, make: Callable[[], Saved]) -> None:
        """Save now: the new file takes the place of the old one in one step, on the disk too."""
        started = time.monotonic()
        try:
            with whole_file(self.path) as file:
                file.write(make().to_bytes())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OptionError(
                f"cannot save the search to '{self.path}': {error.strerror or error}; what was saved before is kept: "
                "free some space and give the same command again"
            ) from None
        now = time.monotonic()
        self._next = now + max(self.pause, (now - started) / SHARE)
