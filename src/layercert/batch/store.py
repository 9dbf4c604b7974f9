"""One SQLite file per run: the plan with its models and inputs, and a row per finished job, written as it finishes.

SQLite's rollback journal makes every commit all or nothing, also under kill -9. Only the process that holds the lock
file writes; readers (reports) may look at any time. A disk that loses or changes bytes is another matter: every row has
a checksum, and all questions together have one; `plan.json` repeats what the run is about, and `batch.salvage` takes
what is left.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layercert.arrays import Vector
from layercert.batch.errors import EmptyRunError, RunError
from layercert.batch.machine import command, machine, versions
from layercert.batch.plan import Plan, differences, input_hash
from layercert.batch.rows import RESULT, checksum, network_bytes, network_from, outcome_of, pack, row_of, unpack
from layercert.batch.work import UNDECIDED, Outcome
from layercert.network import Network
from layercert.system.files import whole_file

FILE = "run.sqlite"
#: The plan's identity once more, in a file of its own: a damaged run can still be told from another one.
PLAN = "plan.json"
FORMAT = 3
#: What SQLite raises; the second when a message repeats damaged text.
FAULTS = (sqlite3.Error, UnicodeDecodeError)

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
    certificate TEXT, worker TEXT NOT NULL, session INTEGER NOT NULL REFERENCES sessions, finished TEXT NOT NULL,
    ended INTEGER NOT NULL, used TEXT NOT NULL, holds TEXT, checksum TEXT NOT NULL
);
"""


#: All that says what an answer is about.
_QUESTIONS = (
    "SELECT value FROM run WHERE key = 'identity'",
    "SELECT id, name, sha256 FROM models ORDER BY id",
    "SELECT id, position, name, label, sha256 FROM inputs ORDER BY id",
    "SELECT id, model, input, norm, method FROM jobs ORDER BY id",
)


class Store:
    """The open database of one run."""

    def __init__(self, folder: Path, file: str = FILE) -> None:
        self.folder = folder
        self.path = folder / file
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
        except FAULTS as error:
            if self._db.in_transaction:
                self._db.rollback()
            if _is_damage(error):
                raise self._damaged(error) from None
            raise RunError(
                f"cannot write to '{self.path}': {error}; everything recorded before is kept: "
                "free some space (or repair the folder) and give the same command again"
            ) from None
        except BaseException:
            if self._db.in_transaction:
                self._db.rollback()
            raise

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query; a damaged file becomes an error that says what to do."""
        try:
            return self._db.execute(query, values).fetchall()
        except FAULTS as error:
            if _is_damage(error):
                raise self._damaged(error) from None
            raise RunError(f"cannot read '{self.path}': {error}; wait for who writes to it, then try again") from None

    def _damaged(self, error: object) -> RunError:
        return RunError(
            f"the run file '{self.path}' is damaged ({error}); give its batch command again with --salvage: that keeps "
            "every readable result, computes the others anew, and leaves the damaged file beside it"
        )

    # the plan

    def adopt(self, plan: Plan, another_limit: bool = False, more_inputs: bool = False) -> None:
        """Write the plan into a new run, or check that an old run was made with the same one.

        With `another_limit` the time limit may be another one, and is that of the run from now on. With `more_inputs`
        the plan may go on after the inputs of the run, which become those of the plan.
        """
        stored = self.identity()
        if stored is None:
            self.create(plan)
            return
        known = int(stored["inputs"]) if more_inputs else len(plan.data)
        limit = {"time_limit": plan.identity["time_limit"]} if another_limit else {}
        self.expect(plan.first(known), {**stored, **limit})
        if stored == json.loads(json.dumps(plan.identity)):
            return
        with self._transaction() as db:
            self._insert_questions(db, plan, known)
            db.execute("UPDATE run SET value = ? WHERE key = 'identity'", (json.dumps(plan.identity),))
            self._sum_questions(db)
        self._write_plan(plan)

    def _write_plan(self, plan: Plan) -> None:
        with whole_file(self.folder / PLAN) as file:
            file.write(json.dumps(plan.identity, indent=1).encode())

    def expect(self, plan: Plan, stored: dict[str, Any]) -> None:
        """Nothing is mixed: the plan has the identity that was stored."""
        changed = differences(stored, json.loads(json.dumps(plan.identity)))
        if changed:
            raise RunError(
                f"the run in '{self.folder}' was made with other options: {'; '.join(changed)}; "
                "give the same options to continue it, or another folder with --out"
            )

    def identity(self) -> dict[str, Any] | None:
        """The options the run was made with; None for a new file."""
        try:
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except FAULTS as error:
            if (self.folder / PLAN).exists():
                raise self._damaged(error) from None
            raise RunError(f"'{self.path}' is not a run of layercert: {error}; choose another folder") from None
        if not tables:
            return None
        if "run" not in tables:
            raise RunError(f"'{self.path}' is a database of something else; choose another folder")
        facts = self.facts()
        if facts["format"] != FORMAT:
            raise RunError(
                f"'{self.path}' has format {facts['format']}, this version reads format {FORMAT}; "
                "make the run anew in another folder, or read it with the version that made it"
            )
        identity: dict[str, Any] = facts["identity"]
        return identity

    def facts(self) -> dict[str, Any]:
        try:
            found = {key: json.loads(value) for key, value in self._read("SELECT key, value FROM run")}
        except (TypeError, ValueError) as error:
            raise self._damaged(error) from None
        missing = {"format", "identity", "created", "data", "image_shape"} - set(found)
        if missing:
            raise self._damaged(f"no {', '.join(sorted(missing))}")
        return found

    def create(self, plan: Plan) -> None:
        """Write the plan into this new file."""
        self._write_plan(plan)
        data = plan.data
        facts = {
            "format": FORMAT,
            "identity": plan.identity,
            "created": _now(),
            "data": data.source,
            "image_shape": data.image_shape,
            "columns": plan.columns,
        }
        with self._transaction() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.executemany("INSERT INTO run VALUES (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])
            for i, model in enumerate(plan.models):
                blob = network_bytes(model.network)
                db.execute("INSERT INTO models VALUES (?, ?, ?, ?)", (i, model.name, model.network.sha256, blob))
            self._insert_questions(db, plan, 0)
            self._sum_questions(db)

    def _sum_questions(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO run VALUES ('questions', ?)", (json.dumps(self._questions()),))

    def _questions(self) -> str:
        """A checksum of what is asked: the plan's identity, and which model, input and norm each job is about."""
        whole = hashlib.sha256()
        for query in _QUESTIONS:
            whole.update(repr(self._read(query)).encode())
        return whole.hexdigest()[:16]

    def _insert_questions(self, db: sqlite3.Connection, plan: Plan, known: int) -> None:
        """The inputs after those that are known, and their jobs: a plan goes input by input, so their ids come last."""
        data = plan.data
        db.executemany(
            "INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?)",
            (
                (i, int(data.index[i]), data.names[i], plan.label(i), input_hash(x), pack(x))
                for i, x in enumerate(data.X)
                if i >= known
            ),
        )
        db.executemany(
            "INSERT INTO jobs VALUES (?, ?, ?, ?, ?)",
            ((job.id, job.model, job.input, job.norm, job.method) for job in plan.jobs if job.input >= known),
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
        """Write outcomes (each with the path of its certificate) in one transaction.

        The first outcome of a job stays, unless it was ended before its time or is undecided: then the next one takes
        its place, with the bounds that the first one had proved where they are better.
        """
        if not outcomes:
            return
        with self._transaction() as db:
            for outcome, certificate in outcomes:
                known = self._recorded(outcome.job)
                if known is None or known.ended or not known.decided:
                    joined = outcome if known is None else outcome.joined(known)
                    self._write(db, row_of(joined, certificate, self._session, _now()))

    def _write(self, db: sqlite3.Connection, row: Sequence[Any]) -> None:
        db.execute(f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * len(RESULT))})", row)

    def _recorded(self, job: int) -> Outcome | None:
        found = self._read(f"SELECT {', '.join(RESULT)} FROM results WHERE job = ?", job)
        if not found:
            return None
        row = self._sound(dict(zip(RESULT, found[0], strict=True)))
        return outcome_of(row, None if row["witness"] is None else self._vector(row["witness"]))

    def _sound(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row as it was written, without its checksum."""
        if row.pop("checksum") != checksum(row):
            raise self._damaged(f"the row of job {row['job']} has changed")
        return row

    def restore(self, sessions: Sequence[tuple[Any, ...]], results: Sequence[Sequence[Any]]) -> None:
        """Put back what was saved from a damaged file, as it was."""
        with self._transaction() as db:
            db.executemany("INSERT OR IGNORE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", sessions)
            for row in results:
                self._write(db, row)

    def done(self) -> dict[int, str]:
        """Status of every finished job."""
        return {row["job"]: row["status"] for row in self._results()}

    def ended(self) -> set[int]:
        """Finished jobs that another try may answer: failed, or ended before their time."""
        return {row["job"] for row in self._results() if row["ended"]}

    def _results(self) -> Iterator[dict[str, Any]]:
        """What every row says, but for its witness."""
        columns = [column for column in RESULT if column != "witness"]
        for values in self._read(f"SELECT {', '.join(columns)} FROM results"):
            yield self._sound(dict(zip(columns, values, strict=True)))

    def undecided(self) -> set[int]:
        """Finished jobs that more time may answer."""
        return {job for job, status in self.done().items() if status == UNDECIDED}

    # reading

    def models(self) -> list[tuple[str, str]]:
        """(name, sha256) of each model."""
        return [(name, sha256) for name, sha256 in self._read("SELECT name, sha256 FROM models ORDER BY id")]

    def planned(self) -> int:
        """How many jobs the whole run has."""
        return int(self._read("SELECT count(*) FROM jobs")[0][0])

    def network(self, model: int) -> Network:
        try:
            return network_from(self._blob("SELECT npz FROM models WHERE id = ?", model))
        except (ValueError, KeyError) as error:  # an array or a part of one is damaged, or is not there
            raise self._damaged(error) from None

    def x(self, i: int) -> Vector:
        return self._vector(self._blob("SELECT x FROM inputs WHERE id = ?", i))

    def witness(self, job: int) -> Vector | None:
        found = self._read("SELECT witness FROM results WHERE job = ?", job)
        return None if not found or found[0][0] is None else self._vector(found[0][0])

    def _blob(self, query: str, i: int) -> bytes:
        found = self._read(query, i)
        if not found:
            raise self._damaged("a row is missing")
        return bytes(found[0][0])

    def _vector(self, blob: bytes) -> Vector:
        try:
            return unpack(blob)
        except (zlib.error, ValueError, TypeError) as error:
            raise self._damaged(error) from None

    def sessions(self) -> list[dict[str, Any]]:
        rows = self._read("SELECT started, command, machine, versions, workers FROM sessions ORDER BY id")
        try:
            return [
                {"started": a, "command": b, "machine": json.loads(c), "versions": json.loads(d), "workers": e}
                for a, b, c, d, e in rows
            ]
        except (TypeError, ValueError) as error:
            raise self._damaged(error) from None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every finished job with its question, as plain values, in the order of the plan."""
        summed = self.facts().get("questions")  # runs of earlier versions have none
        if summed is not None and summed != self._questions():
            raise self._damaged("what was asked has changed")
        facts = [column for column in RESULT if column not in ("job", "witness")]
        question = {
            "job": "j.id", "model": "m.name", "model_sha256": "m.sha256", "input": "i.id", "position": "i.position",
            "name": "i.name", "input_sha256": "i.sha256", "true_label": "i.label", "norm": "j.norm",
            "method": "j.method",
        }  # fmt: skip
        wanted = [*question.values(), *(f"r.{column}" for column in facts)]
        for values in self._read(
            f"SELECT {', '.join(wanted)} FROM results r JOIN jobs j ON j.id = r.job JOIN models m ON m.id = j.model "
            "JOIN inputs i ON i.id = j.input ORDER BY j.id"
        ):
            yield self._sound(dict(zip([*question, *facts], values, strict=True)))


def open_store(folder: Path) -> Store:
    """The store of an existing run, for reading."""
    if not (folder / FILE).is_file():
        raise RunError(
            f"no run in '{folder}' (no file {FILE}); make one with: layercert batch MODEL --data DATA --out {folder}"
        )
    store = Store(folder)
    if store.identity() is None:
        store.close()
        raise EmptyRunError(f"the run in '{folder}' is empty: it was stopped before it began; start it again")
    return store


#: What SQLite says when the file is sound but cannot be used at the moment.
_SOUND = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
}  # fmt: skip


def _is_damage(error: Exception) -> bool:
    """Not merely a full disk, a lock or a folder that went away. Texts that are no texts have no code at all."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in _SOUND


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
