"""What is stored, in plain values: a row for each outcome with its checksum, vectors and networks as bytes."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.attack.strict import Holds
from layercert.batch.work import FAILED, Outcome, unanswered
from layercert.errors import ModelError
from layercert.io.npz import network_of
from layercert.network import Network
from layercert.result import Status, Verdict
from layercert.system.npz import read_numpy

#: The columns of the table `results`, in order.
RESULT = (
    "job", "status", "lower", "upper", "label", "target", "programs", "seconds", "note", "witness", "certificate",
    "worker", "session", "finished", "ended", "used", "holds", "checksum",
)  # fmt: skip


def row_of(outcome: Outcome, certificate: str | None, session: int, finished: str) -> list[Any]:
    """A row of `results`, in plain values as SQLite gives them back."""
    result = outcome.result
    row: dict[str, Any] = {
        "job": int(outcome.job),
        "status": outcome.status,
        "lower": float(result.lower),
        "upper": float(result.upper),
        "label": None if result.label is None else int(result.label),
        "target": None if result.target is None else int(result.target),
        "programs": int(result.programs),
        "seconds": float(result.seconds),
        "note": str(result.note),
        "witness": None if result.witness is None else pack(result.witness),
        "certificate": certificate,
        "worker": outcome.worker,
        "session": session,
        "finished": finished,
        "ended": int(outcome.ended),
        "used": result.method,
        "holds": None if result.holds is None else json.dumps(asdict(result.holds)),
    }
    return [row[column] for column in RESULT[:-1]] + [checksum(row)]


def outcome_of(row: Mapping[str, Any], witness: Vector | None = None) -> Outcome:
    """What a row of `results` says; its witness and its certificate are stored apart."""
    status, upper = Status.UNDECIDED if row["status"] == FAILED else row["status"], row["upper"]
    result = unanswered(
        status=Verdict(status) if status == Verdict.NOT_ROBUST else Status(status),
        lower=0.0 if row["lower"] is None else row["lower"],
        upper=math.inf if upper is None else upper,
        label=row["label"],
        target=row["target"],
        witness=witness,
        method=row["used"],
        programs=row["programs"],
        seconds=row["seconds"],
        note=row["note"],
        holds=None if row["holds"] is None else Holds(**json.loads(row["holds"])),
    )
    return Outcome(row["job"], result, row["worker"], bool(row["ended"]))


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
