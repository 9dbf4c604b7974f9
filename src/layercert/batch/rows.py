"""What is stored, in plain values: a row for each outcome with its checksum, vectors and networks as bytes."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.batch.work import Outcome
from layercert.errors import ModelError
from layercert.io.npz import network_of
from layercert.network import Network
from layercert.system.npz import read_numpy

#: The columns of the table `results`, in order.
RESULT = (
    "job", "status", "lower", "upper", "label", "target", "programs", "seconds", "note", "witness", "certificate",
    "worker", "session", "finished", "ended", "used", "holds", "checksum",
)  # fmt: skip


def row_of(outcome: Outcome, certificate: str | None, session: int, finished: str) -> list[Any]:
    """A row of `results`, in plain values as SQLite gives them back."""
    row: dict[str, Any] = {
        "job": int(outcome.job),
        "status": str(outcome.status),
        "lower": float(outcome.lower),
        "upper": float(outcome.upper),
        "label": None if outcome.label is None else int(outcome.label),
        "target": None if outcome.target is None else int(outcome.target),
        "programs": int(outcome.programs),
        "seconds": float(outcome.seconds),
        "note": str(outcome.note),
        "witness": None if outcome.witness is None else pack(outcome.witness),
        "certificate": certificate,
        "worker": outcome.worker,
        "session": session,
        "finished": finished,
        "ended": int(outcome.ended),
        "used": outcome.used,
        "holds": None if outcome.holds is None else json.dumps(asdict(outcome.holds)),
    }
    return [row[column] for column in RESULT[:-1]] + [checksum(row)]


def checksum(row: Mapping[str, Any]) -> str:
    """Of all that a row of `results` says, but for the witness: zlib has a checksum of its own for that."""
    said = [row[column] for column in RESULT if column not in ("witness", "checksum")]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def pack(x: Vector) -> bytes:
    return zlib.compress(np.ascontiguousarray(x, dtype="<f8").tobytes(), 6)


def unpack(blob: bytes) -> Vector:
    return np.frombuffer(zlib.decompress(blob), "<f8").astype(np.float64)


def network_bytes(network: Network) -> bytes:
    """The network as the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **network.arrays())
    return buffer.getvalue()


def network_from(blob: bytes) -> Network:
    arrays = read_numpy(io.BytesIO(blob))
    if not isinstance(arrays, dict):
        raise ModelError("the model of the run is a single array")
    return network_of(arrays, "run")
