"""One SQLite file a run: the plan with its models and inputs, and a row for each finished job, written as it finishes.

SQLite's rollback journal makes every commit all or nothing, also under kill -9. Only the process that holds the lock
file writes; readers (reports) may look at any time.
"""

from __future__ import annotations

import io
import json
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.batch.errors import RunError
from layercert.batch.machine import command, machine, versions
from layercert.batch.plan import Plan, differences, input_hash
from layercert.batch.work import FAILED, Outcome
from layercert.io.npz import network_of
from layercert.network import Network

FILE = "run.sqlite"
FORMAT = 1

_SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE models (id INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, npz BLOB NOT NULL);
CREATE TABLE inputs (
    id INTEGER PRIMARY KEY, position INTEGER NOT NULL, name TEXT NOT NULL, label INTEGER, sha256 TEXT NOT NULL,
    x BLOB NOT NULL
);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL REFERENCES models, input INTEGER NOT NULL REFERENCES inputs,
    norm TEXT NOT NULL, method TEXT NOT NULL
);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, command TEXT NOT NULL, machine TEXT NOT NULL, versions TEXT NOT NULL,
    workers TEXT NOT NULL
);
CREATE TABLE results (
    job INTEGER PRIMARY KEY REFERENCES jobs, status TEXT NOT NULL, lower REAL, upper REAL, label INTEGER,
    target INTEGER, programs INTEGER NOT NULL, seconds REAL NOT NULL, note TEXT NOT NULL, witness BLOB,
    certificate TEXT, worker TEXT NOT NULL, session INTEGER NOT NULL REFERENCES sessions, finished TEXT NOT NULL
);
"""


class Store:
    """The open database of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        # the writer's thread uses it while a batch runs, and nobody else then
        self._db = sqlite3.connect(self.path, isolation_level=None, timeout=60, check_same_thread=False)
        self._session = 0

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; a full disk or a vanished file becomes an error that says what to do."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.rollback()
            raise RunError(
                f"cannot write to '{self.path}': {error}; everything recorded before is kept: "
                "free some space (or repair the folder) and give the same command again"
            ) from None
        except BaseException:
            if self._db.in_transaction:
                self._db.rollback()
            raise

    # the plan

    def adopt(self, plan: Plan) -> None:
        """Write the plan into a new run, or check that an old run was made with the same one."""
        stored = self.identity()
        if stored is None:
            self._create(plan)
            return
        wanted = json.loads(json.dumps(plan.identity))
        changed = differences(stored, wanted)
        if changed:
            raise RunError(
                f"the run in '{self.folder}' was made with other options: {'; '.join(changed)}; "
                "give the same options to continue it, or another folder with --out"
            )

    def identity(self) -> dict[str, Any] | None:
        """The options the run was made with; None for a new file."""
        try:
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            raise RunError(f"'{self.path}' is not a run of layercert: {error}; choose another folder") from None
        if not tables:
            return None
        if "run" not in tables:
            raise RunError(f"'{self.path}' is a database of something else; choose another folder")
        facts = self.facts()
        if facts["format"] != FORMAT:
            raise RunError(f"'{self.path}' has format {facts['format']}, this version reads format {FORMAT}")
        identity: dict[str, Any] = facts["identity"]
        return identity

    def facts(self) -> dict[str, Any]:
        return {key: json.loads(value) for key, value in self._db.execute("SELECT key, value FROM run")}

    def _create(self, plan: Plan) -> None:
        data = plan.data
        facts = {
            "format": FORMAT,
            "identity": plan.identity,
            "created": _now(),
            "data": data.source,
            "image_shape": data.image_shape,
        }
        with self._transaction() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.executemany("INSERT INTO run VALUES (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])
            for i, model in enumerate(plan.models):
                blob = network_bytes(model.network)
                db.execute("INSERT INTO models VALUES (?, ?, ?, ?)", (i, model.name, model.network.sha256, blob))
            db.executemany(
                "INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (i, int(data.index[i]), data.names[i], plan.label(i), input_hash(x), pack(x))
                    for i, x in enumerate(data.X)
                ),
            )
            db.executemany(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?)",
                ((job.id, job.model, job.input, job.norm, job.method) for job in plan.jobs),
            )

    # results

    def begin_session(self, workers: str) -> None:
        """Who computes from now on; results refer to it."""
        with self._transaction() as db:
            row = (_now(), command(), json.dumps(machine()), json.dumps(versions()), workers)
            cursor = db.execute(
                "INSERT INTO sessions (started, command, machine, versions, workers) VALUES (?, ?, ?, ?, ?)", row
            )
            self._session = int(cursor.lastrowid or 0)

    def record(self, outcomes: Sequence[tuple[Outcome, str | None]]) -> None:
        """Write outcomes (each with the path of its certificate) in one transaction; the first one of a job stays."""
        if not outcomes:
            return
        rows = [self._row(outcome, certificate) for outcome, certificate in outcomes]
        with self._transaction() as db:
            db.executemany(f"INSERT OR IGNORE INTO results VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def _row(self, outcome: Outcome, certificate: str | None) -> tuple[Any, ...]:
        return (
            outcome.job,
            outcome.status,
            outcome.lower,
            outcome.upper,
            outcome.label,
            outcome.target,
            outcome.programs,
            outcome.seconds,
            outcome.note,
            None if outcome.witness is None else pack(outcome.witness),
            certificate,
            outcome.worker,
            self._session,
            _now(),
        )

    def done(self) -> dict[int, str]:
        """Status of every finished job."""
        return dict(self._db.execute("SELECT job, status FROM results"))

    def forget_failed(self) -> int:
        """Drop failed results so that their jobs run again."""
        with self._transaction() as db:
            return db.execute("DELETE FROM results WHERE status = ?", (FAILED,)).rowcount

    # reading

    def models(self) -> list[tuple[str, str]]:
        """(name, sha256) of each model."""
        return list(self._db.execute("SELECT name, sha256 FROM models ORDER BY id"))

    def planned(self) -> int:
        """How many jobs the whole run has."""
        return int(self._db.execute("SELECT count(*) FROM jobs").fetchone()[0])

    def network(self, model: int) -> Network:
        (blob,) = self._db.execute("SELECT npz FROM models WHERE id = ?", (model,)).fetchone()
        return network_from(blob)

    def x(self, i: int) -> Vector:
        (blob,) = self._db.execute("SELECT x FROM inputs WHERE id = ?", (i,)).fetchone()
        return unpack(blob)

    def witness(self, job: int) -> Vector | None:
        row = self._db.execute("SELECT witness FROM results WHERE job = ?", (job,)).fetchone()
        return None if row is None or row[0] is None else unpack(row[0])

    def sessions(self) -> list[dict[str, Any]]:
        rows = self._db.execute("SELECT started, command, machine, versions, workers FROM sessions ORDER BY id")
        return [
            {"started": a, "command": b, "machine": json.loads(c), "versions": json.loads(d), "workers": e}
            for a, b, c, d, e in rows
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every finished job with its question, as plain values, in the order of the plan."""
        cursor = self._db.execute(
            "SELECT j.id AS job, m.name AS model, m.sha256 AS model_sha256, i.id AS input, i.position, i.name AS name, "
            "i.sha256 AS input_sha256, i.label AS true_label, j.norm, j.method, r.status, r.lower, r.upper, r.label, "
            "r.target, r.programs, r.seconds, r.note, r.certificate, r.worker, r.session, r.finished "
            "FROM results r JOIN jobs j ON j.id = r.job JOIN models m ON m.id = j.model "
            "JOIN inputs i ON i.id = j.input ORDER BY j.id"
        )
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))


def open_store(folder: Path) -> Store:
    """The store of an existing run, for reading."""
    if not (folder / FILE).is_file():
        raise RunError(
            f"no run in '{folder}' (no file {FILE}); make one with: layercert batch MODEL --data DATA --out {folder}"
        )
    store = Store(folder)
    if store.identity() is None:
        store.close()
        raise RunError(f"the run in '{folder}' is empty: it was stopped before it began; start it again")
    return store


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
    with np.load(io.BytesIO(blob), allow_pickle=False) as file:
        return network_of({key: file[key] for key in file.files}, "run")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
