"""A damaged run file: keep every readable result in a new file, and the damaged one beside it."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layercert.batch import pages
from layercert.batch.errors import RunError
from layercert.batch.folder import hold
from layercert.batch.plan import Plan
from layercert.batch.rows import RESULT, checksum, unpack
from layercert.batch.store import FAULTS, FILE, PLAN, Store
from layercert.batch.work import FAILED, UNDECIDED

DAMAGED = "run.sqlite.damaged"
SALVAGED = "run.sqlite.salvaged"
REAL = ("lower", "upper", "seconds")


@dataclass
class Saved:
    """What is left of a run: all of it is checked by its own checksum, or by what it says."""

    identity: dict[str, Any] | None = None
    sessions: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)


def salvage(plan: Plan, folder: Path) -> tuple[int, Path]:
    """Make the run's file anew from the plan and all readable results: how many, and where the damaged file is now.

    The plan must be the one that the run was made with. That is told by the damaged file itself, or by plan.json.
    """
    path = folder / FILE
    if not path.is_file():
        raise RunError(f"nothing to salvage: no file {FILE} in '{folder}'")
    with hold(folder, plan):
        with suppress(*FAULTS), closing(sqlite3.connect(path, timeout=5)) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # rolls back what was half written, if it can
        saved = read(path.read_bytes(), plan)
        told = [identity for identity in (saved.identity, _told_beside(folder)) if identity is not None]
        if not told:
            raise RunError(
                f"cannot tell what the run in '{folder}' was made with: neither {FILE} nor {PLAN} can be read, so its "
                "results cannot be trusted to belong to this command; start anew in another folder with --out"
            )
        new = folder / SALVAGED
        new.unlink(missing_ok=True)
        with closing(Store(folder, SALVAGED)) as store:
            if json.loads(json.dumps(plan.identity)) not in told:  # one of the two may be damaged itself
                store.expect(plan, told[0])
            store.create(plan)
            rows = [[saved.results[job][column] for column in RESULT] for job in sorted(saved.results)]
            store.restore(list(saved.sessions.values()), rows)
        old = _set_aside(path)
        os.replace(new, path)
    return len(saved.results), old


def _set_aside(path: Path) -> Path:
    """The damaged file under another name. Where the disk can do it, it keeps its own name too until the new file takes
    it: whoever is killed in between must not find a folder without a run, and begin anew."""
    old, journal = _unused(path.parent), path.with_name(f"{FILE}-journal")
    try:
        os.link(path, old)
    except OSError:
        os.replace(path, old)
    if journal.exists():  # it belongs to the damaged file, and must never be applied to the new one
        os.replace(journal, path.with_name(f"{old.name}-journal"))
    return old


def read(data: bytes, plan: Plan) -> Saved:
    """Everything in the bytes of a run file that proves to be whole."""
    saved = Saved()
    for rowid, values in pages.rows(data):
        if len(values) == len(RESULT):
            _take_result(saved, rowid, values, plan)
        elif len(values) == 6 and values[0] is None and all(isinstance(v, str) for v in values[1:]):
            if _is_json(values[3]) and _is_json(values[4]):
                saved.sessions[rowid] = (rowid, *values[1:])
        elif len(values) == 2 and values[0] == "identity" and _is_json(values[1]):
            saved.identity = json.loads(str(values[1]))
    return saved


def _take_result(saved: Saved, rowid: int, values: tuple[object, ...], plan: Plan) -> None:
    row: dict[str, Any] = dict(zip(RESULT, values, strict=True))
    row["job"] = rowid  # a key of whole numbers is not stored a second time
    for column in REAL:  # whole numbers are stored as such
        row[column] = float(row[column]) if isinstance(row[column], int) else row[column]
    sound = row["checksum"] == checksum(row) and _is_vector(row["witness"], plan.data.X.shape[1])
    if not sound or not 0 <= rowid < len(plan.jobs):
        return
    known = saved.results.get(rowid)
    if known is None or _worth(row) > _worth(known):
        saved.results[rowid] = row


def _worth(row: dict[str, Any]) -> tuple[bool, bool, float]:
    """A page that is no longer used may hold an older row of the same job: what is decided, and what proves more, is
    the newer one."""
    return row["status"] not in (UNDECIDED, FAILED), not row["ended"], float(row["lower"] or 0.0)


def _is_vector(blob: object, length: int) -> bool:
    try:
        return blob is None or (isinstance(blob, bytes) and len(unpack(blob)) == length)
    except (zlib.error, ValueError):
        return False


def _is_json(text: object) -> bool:
    try:
        return isinstance(json.loads(str(text)), dict)
    except ValueError:
        return False


def _told_beside(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _unused(folder: Path) -> Path:
    """A name for the damaged file that nothing has yet."""
    number = 1
    while (target := folder / (DAMAGED if number == 1 else f"{DAMAGED}-{number}")).exists():
        number += 1
    return target
