"""What the runs of a bench found: its rows, the best one for each question, and the table that is written of them.

OUT/runs/COLLECTION/NAME/run.sqlite      OUT/again/COLLECTION/NAME/run.sqlite      OUT/taken.csv.gz
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from layercert.batch import open_store
from layercert.batch.checking import Checked, checked_before
from layercert.batch.errors import EmptyRunError
from layercert.batch.plan import input_hash
from layercert.batch.store import FILE, Store
from layercert.bench.collections import copy_file, shipped_collection, shipped_names, store_parts
from layercert.bench.table import (
    BOUNDS,
    CSV,
    EXACT,
    PARQUET,
    ROBUST,
    SHIPPED,
    Radius,
    RadiusBench,
    check_rows,
    read_csv,
    write_csv,
    write_parquet,
)
from layercert.errors import InputError, MissingPackageError
from layercert.result import NEARLY
from layercert.system.files import whole_file

RUNS, AGAIN, ABOUT = "runs", "again", "about.json"
#: The rows with which a bench began, as a table of its own.
TAKEN = "taken.csv.gz"
NORMS = ("linf", "l2", "l1")
LICENCE = "MIT"
Say = Callable[[str], None]


def take_shipped(out: Path) -> None:
    """Let a bench begin with the rows of the shipped table; networks and inputs come along."""
    out.mkdir(parents=True, exist_ok=True)
    if not (out / TAKEN).exists():
        for name in shipped_names():
            store_parts(out, shipped_collection(name))
        copy_file(SHIPPED / CSV, out / TAKEN)


def taken_over(out: Path) -> list[Radius]:
    """The rows with which a bench began: none, or those of the table that was shipped then."""
    return list(read_csv(out / TAKEN)) if (out / TAKEN).exists() else []


def is_checked(folder: Path) -> bool:
    """Is a run finished, and were all its certificates looked at, as they are now?"""
    known = checked_before(folder)
    with closing(open_store(folder)) as store:
        return len(store.done()) == store.planned() and all(
            row["job"] in known for row in store.rows() if row["certificate"] is not None
        )


def identity(folder: Path) -> dict[str, Any]:
    """What a run was begun with; nothing where there is none, or where it was killed before it began."""
    try:
        if not (folder / FILE).is_file():
            return {}
        with closing(open_store(folder)) as store:
            return dict(store.facts()["identity"])
    except EmptyRunError:
        return {}


def run_folders(out: Path) -> list[Path]:
    """Every run of a bench, those that asked again last."""
    found = [path.parent for part in (RUNS, AGAIN) for path in sorted((out / part).glob(f"*/*/{FILE}"))]
    return [folder for folder in found if identity(folder)]


def read_rows(out: Path, every: bool = False) -> Iterator[tuple[Radius, Path | None]]:
    """The rows of all runs that are finished and checked (or of `every` run), each with its certificate's file."""
    for folder in run_folders(out):
        if not every and not is_checked(folder):
            continue
        with closing(open_store(folder)) as store:
            known = checked_before(folder)
            domain = store.facts()["identity"]["domain"]
            for row in store.rows():
                if row["status"] == "failed":
                    continue  # nothing is known of it: no row
                checked = known.get(row["job"])
                radius = radius_of(store, row, folder.parent.name, domain, checked)
                yield radius, None if row["certificate"] is None else folder / row["certificate"]


def best_rows(out: Path) -> list[Radius]:
    """One row for each question: where it was asked several times, the one that says more."""
    best = {row.name: row for row in taken_over(out)}
    for row, _ in read_rows(out):
        known = best.get(row.name)
        if known is None or _said(row) > _said(known):
            best[row.name] = row
    return list(best.values())


def _said(row: Radius) -> tuple[bool, float, float]:
    return row.status != BOUNDS, row.lower, -row.upper


def radius_of(
    store: Store, row: dict[str, Any], collection: str, domain: Sequence[float] | None, checked: Checked | None
) -> Radius:
    """A row of the table from a row of a run and what the check of its certificate found."""
    lower = 0.0 if row["lower"] is None else float(row["lower"])
    upper = math.inf if row["upper"] is None else float(row["upper"])
    witness = store.witness(row["job"])
    ok = checked is not None and checked.ok
    return Radius(
        collection=collection,
        network=row["model"],
        network_sha256=row["model_sha256"],
        input=row["position"],
        input_sha256=row["input_sha256"],
        label=row["label"] if row["label"] is not None else row["true_label"],
        norm=row["norm"],
        low=None if domain is None else float(domain[0]),
        high=None if domain is None else float(domain[1]),
        status=status_of(row["status"], lower, upper, checked.lower if checked is not None and ok else 0.0),
        lower=min(lower, upper),
        upper=upper,
        target=row["target"],
        witness_sha256="" if witness is None else input_hash(witness),
        method=row["used"] or row["method"],
        seconds=round(row["seconds"], 4),
        certificate_bytes=0 if checked is None else checked.bytes,
        certificate_sha256="" if checked is None else checked.sha256,
        checked=ok,
        check_seconds=0.0 if checked is None else round(checked.seconds, 4),
    )


def status_of(answer: str, lower: float, upper: float, proved: float) -> str:
    """What the table calls an answer: exact and robust only where the checker has proved as much.

    Args:
        answer: The status of the search.
        lower: Its lower bound.
        upper: The distance of its witness, inf without one.
        proved: The lower bound that the certificate proves, 0 without one.

    Returns:
        exact, robust or bounds.
    """
    if answer == EXACT and proved >= upper * (1.0 - NEARLY):
        return EXACT
    if answer == ROBUST and math.isinf(upper) and proved >= lower * (1.0 - NEARLY):
        return ROBUST
    return BOUNDS


def write_tables(out: Path, say: Say = print) -> RadiusBench:
    """The table of all runs in a folder, as CSV and, where pyarrow is, as Parquet; and about.json.

    Args:
        out: The folder.
        say: Called with what could not be written.

    Returns:
        The table.
    """
    order = {norm: i for i, norm in enumerate(NORMS)}
    rows = sorted(
        best_rows(out), key=lambda r: (r.collection, r.network, r.setting, order.get(r.norm, 9), r.norm, r.input)
    )
    if not rows:
        raise InputError(f"no finished answer in '{out}'; run layercert radiusbench build for a while, then ask again")
    check_rows(rows)
    write_csv(rows, out / CSV)
    try:
        write_parquet(rows, out / PARQUET)
    except MissingPackageError as error:
        say(f"no {PARQUET}: {error}")
    bench = RadiusBench(tuple(rows), out)
    with whole_file(out / ABOUT) as file:
        file.write(json.dumps(about(bench), indent=1).encode())
    return bench


def about(bench: RadiusBench) -> dict[str, Any]:
    """How the table was made: counts, versions, machines, limits."""
    # what was taken over was made so; a bench that began with nothing has no such file
    before = json.loads((SHIPPED / ABOUT).read_text()) if (bench.folder / TAKEN).exists() else {}
    versions: dict[str, Any] = before.get("versions", {})
    machines: list[Any] = before.get("machines", [])
    limits: set[float] = set(before.get("time_limits", ()))
    for folder in run_folders(bench.folder):
        with closing(open_store(folder)) as store:
            limits.add(store.facts()["identity"]["time_limit"])
            for session in store.sessions():
                versions |= session["versions"]
                if session["machine"] not in machines:
                    machines.append(session["machine"])
    rows = bench.rows
    return {
        "format": 1,
        "licence": LICENCE,
        "rows": len(rows),
        "networks": len(bench.networks),
        "inputs": len({(row.collection, row.input) for row in rows}),
        "exact": sum(row.status == EXACT for row in rows),
        "robust": sum(row.status == ROBUST for row in rows),
        "bounds": sum(row.status == BOUNDS for row in rows),
        "certificates_checked": sum(row.checked for row in rows),
        "certificate_bytes": sum(row.certificate_bytes for row in rows),
        "time_limits": sorted(limits),
        "versions": versions,
        "machines": machines,
        "sha256": hashlib.sha256((bench.folder / CSV).read_bytes()).hexdigest(),
    }
