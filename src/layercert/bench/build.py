"""Building the bench: a batch for each part of a collection, its certificates checked, and the table of all of it.

OUT/runs/digits/box-0000/run.sqlite        collection/setting-first input; ten inputs each

Every run survives kill -9 by itself, so the whole does: the same command goes on where it stopped. Parts come in
rounds over all collections, so that a bench stopped half way has the same inputs everywhere. A bench may begin with the
rows of the shipped table: then only what that lacks is asked.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layercert.batch import Job, LocalProcesses, Options, Outcome, Plan, Tally, open_store, run_batch
from layercert.batch.checking import Checked, check_run, checked_before
from layercert.batch.plan import input_hash
from layercert.batch.store import FILE, Store
from layercert.bench.collections import (
    Collection,
    Domain,
    collections_of,
    copy_file,
    shipped_collection,
    shipped_names,
    store_parts,
)
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
    row_name,
    write_csv,
    write_parquet,
)
from layercert.errors import InputError, MissingPackageError, OptionError
from layercert.result import NEARLY
from layercert.system.files import whole_file

RUNS, AGAIN, ABOUT = "runs", "again", "about.json"
#: The rows with which a bench began, as a table of its own.
TAKEN = "taken.csv.gz"
NORMS = ("linf", "l2", "l1")
#: Inputs of one run: small enough that all collections get their turn, large enough that starting a worker is cheap.
PART = 10
LICENCE = "MIT"
Say = Callable[[str], None]
Watch = Callable[[Tally, Job | None, Outcome | None], None]


@dataclass(frozen=True)
class Build:
    """What a bench is asked for.

    Attributes:
        out: The folder; what is there is continued.
        inputs: How many inputs of each collection; more of them later extend the bench.
        time_limit: Seconds per question, and once more for its certificate.
        jobs: Worker processes.
        only: Some collections; none for all.
        cpu_time: Whether time limits count CPU seconds of the worker instead of those of the clock; runs that are there
            go on as they were begun.
        shipped: Whether to begin with the shipped table: its rows are taken over as they are, without certificates.
    """

    out: Path
    inputs: int = 20
    time_limit: float = 5.0
    jobs: int = 1
    only: tuple[str, ...] = ()
    cpu_time: bool = False
    shipped: bool = False

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise OptionError(f"the number of inputs must be >= 1, got {self.inputs}")
        if not self.time_limit > 0:
            raise OptionError(f"the time limit must be above 0 seconds, got {self.time_limit:g}")


def build(settings: Build, say: Say = print, watch: Watch | None = None) -> RadiusBench:
    """Measure what is missing, check every certificate, and write the table.

    Args:
        settings: Where, and how much.
        say: Called with each line of progress.
        watch: Called for each answer.

    Returns:
        The table.

    Raises:
        RunError: The folder is in use, or holds runs with another time limit.
    """
    if settings.shipped:
        take_shipped(settings.out)
    collections = collections_of(settings.out, settings.only)
    for collection in collections:
        store_parts(settings.out, collection)
    known = {row.name for row in taken_over(settings.out)}
    for first in range(0, settings.inputs, PART):
        for collection in collections:
            for domain in collection.domains:
                if not known.issuperset(_names(collection, domain, first)):
                    _part(settings, collection, domain, first, say, watch)
        write_tables(settings.out, say)
    return write_tables(settings.out, say)


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


def _names(collection: Collection, domain: Domain, first: int) -> Iterator[str]:
    """What the rows of a part are called."""
    for number in range(first, min(first + PART, len(collection.data))):
        for model in collection.models:
            yield from (row_name(model.name, norm, _setting(domain), number) for norm in NORMS)


def _part(settings: Build, collection: Collection, domain: Domain, first: int, say: Say, watch: Watch | None) -> None:
    last = min(first + PART, settings.inputs, len(collection.data))
    if first >= last:
        return
    # a part is whole or left for later: its inputs are fixed, so that more inputs never change a run that is there
    last = min(first + PART, len(collection.data))
    folder = settings.out / RUNS / collection.name / f"{_setting(domain)}-{first:04d}"
    data = collection.data.take(np.arange(first, last))
    options = Options(
        NORMS, domain=domain, time_limit=settings.time_limit, certificates=True, cpu_time=_by_cpu(folder, settings)
    )
    plan = Plan(collection.models, data, options)
    tally = run_batch(plan, folder, LocalProcesses(settings.jobs), watch)
    proved = failed = 0
    if not _is_checked(folder):
        for checked in check_run(folder, jobs=settings.jobs):
            proved, failed = proved + checked.ok, failed + (not checked.ok)
        words = f"{proved} certificates proved" + (f", {failed} NOT PROVED" if failed else "")
        say(f"{collection.name} {_setting(domain)} {first}-{last - 1}: {dict(tally.counts)}, {words}")


def ask_again(settings: Build, seconds: float, say: Say = print, watch: Watch | None = None) -> RadiusBench:
    """Ask every question that is still open with another time limit; the better of the two answers counts.

    OUT/again/digits/box-60s-digits_cnn_adv-0003/run.sqlite        a run for each network and input with something open

    Args:
        settings: The bench.
        seconds: The limit for each question, and once more for its certificate.
        say: Called with each line of progress.
        watch: Called for each answer.

    Returns:
        The table.
    """
    if not seconds > 0:
        raise OptionError(f"the time limit must be above 0 seconds, got {seconds:g}")
    open_: dict[tuple[str, str, str, int], list[str]] = {}
    for row in best_rows(settings.out):
        if row.status == BOUNDS:
            open_.setdefault((row.collection, row.setting, row.network, row.input), []).append(row.norm)
    known = {collection.name: collection for collection in collections_of(settings.out, settings.only)}
    for (name, setting, network, number), norms in open_.items():
        if name not in known:
            continue
        collection = known[name]
        domain = next(domain for domain in collection.domains if _setting(domain) == setting)
        models = tuple(model for model in collection.models if model.name == network)
        limit = f"{seconds:g}{'cpu' if settings.cpu_time else ''}s"
        folder = settings.out / AGAIN / name / f"{setting}-{limit}-{network}-{number:04d}"
        # a run that is there keeps its norms: some of them may have been answered since it began
        asked = _identity(folder).get("norms", norms)
        options = Options(
            tuple(asked), domain=domain, time_limit=seconds, certificates=True, cpu_time=settings.cpu_time
        )
        tally = run_batch(Plan(models, collection.data.take(np.array([number])), options), folder,
                          LocalProcesses(settings.jobs), watch)  # fmt: skip
        if not _is_checked(folder):
            proved = sum(checked.ok for checked in check_run(folder, jobs=1))
            say(f"{network} {setting} {number}: {dict(tally.counts)}, {proved} certificates proved")
    return write_tables(settings.out, say)


def _identity(folder: Path) -> dict[str, Any]:
    """What a run was begun with; nothing where there is none."""
    if not (folder / FILE).is_file():
        return {}
    with closing(open_store(folder)) as store:
        return dict(store.facts()["identity"])


def _by_cpu(folder: Path, settings: Build) -> bool:
    begun = _identity(folder)
    return bool(begun.get("cpu_time")) if begun else settings.cpu_time


def _setting(domain: Domain) -> str:
    return "free" if domain is None else "box"


def _is_checked(folder: Path) -> bool:
    """Is a run finished, and were all its certificates looked at, as they are now?"""
    known = checked_before(folder)
    with closing(open_store(folder)) as store:
        return len(store.done()) == store.planned() and all(
            row["job"] in known for row in store.rows() if row["certificate"] is not None
        )


def run_folders(out: Path) -> list[Path]:
    """Every run of a bench, those that asked again last."""
    return [path.parent for part in (RUNS, AGAIN) for path in sorted((out / part).glob(f"*/*/{FILE}"))]


def read_rows(out: Path, every: bool = False) -> Iterator[tuple[Radius, Path | None]]:
    """The rows of all runs that are finished and checked (or of `every` run), each with its certificate's file."""
    for folder in run_folders(out):
        if not every and not _is_checked(folder):
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
