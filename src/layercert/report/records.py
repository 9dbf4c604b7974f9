"""The results of one or several runs as records, and what all methods together prove about an input."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layercert.arrays import Vector
from layercert.batch.checking import Checked, checked_before
from layercert.batch.errors import RunError
from layercert.batch.rows import outcome_of
from layercert.batch.store import Store, open_store
from layercert.result import NEARLY, Result

#: Two methods contradict each other when one's lower bound exceeds the other's upper bound by more than this.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Record:
    """One finished job. `series` names the model (and the run, when there are several); `run` is its number."""

    run: int
    job: int
    series: str
    norm: str
    method: str
    input: int
    position: int
    name: str
    input_hash: str
    status: str  # that of the outcome, which may be "failed"
    result: Result  # but for its witness (see `Points`) and its certificate
    certificate: str | None  # its file
    checked: str = ""  # what the last check of its certificate found
    asked: tuple[float, ...] = ()  # the radii at which the run verifies

    @property
    def solved(self) -> bool:
        return self.status in ("exact", "robust", "not_robust")

    @property
    def closed(self) -> bool:
        """Nothing unsafe lies at the lower bound itself: it is a radius at which "robust" was proved."""
        return self.status == "robust" or self.result.lower in self.asked

    @property
    def proved(self) -> float:
        """The distance up to which the input is robust: the distance itself when it is exact, but for rounding."""
        lower, upper = self.result.lower, self.result.upper
        return upper if self.status == "exact" and lower >= upper * (1.0 - NEARLY) else lower


@dataclass(frozen=True, eq=False)
class Bounds:
    """What all methods prove about one input in one norm; `best` is the record with the nearest witness."""

    lower: float
    upper: float
    label: int | None
    best: Record
    sure: float = 0.0  # as `lower`, but for exact distances the proved bound, which is up to 1e-6 below
    closed: bool = False  # nothing unsafe lies at `sure` itself

    @property
    def exact(self) -> bool:
        return self.best.status == "exact"

    def certified(self, radius: float) -> bool:
        """Proved: nothing unsafe within the radius."""
        return self.sure > radius or (self.closed and self.sure == radius)


@dataclass(frozen=True, eq=False)
class Run:
    """A run as the report needs it."""

    folder: Path
    facts: dict[str, Any]
    sessions: list[dict[str, Any]]
    models: list[tuple[str, str]]
    planned: int
    checked: dict[int, Checked] = field(default_factory=dict)  # by job, where `layercert check RUN` was there


@dataclass(frozen=True, eq=False)
class Results:
    """Everything a report is made of; `eps` are the radii of its table of certified accuracy."""

    runs: list[Run]
    records: list[Record]
    eps: tuple[float, ...] = ()

    @property
    def asked(self) -> tuple[float, ...]:
        """The radii at which some run verified."""
        return tuple(sorted({e for r in self.records for e in r.asked}))

    @property
    def norms(self) -> list[str]:
        return _in_order(r.norm for r in self.records)

    @property
    def methods(self) -> list[str]:
        return _in_order(r.method for r in self.records)

    @property
    def series(self) -> list[str]:
        return _in_order(r.series for r in self.records)

    def select(self, series: str | None = None, norm: str | None = None, method: str | None = None) -> list[Record]:
        return [
            r
            for r in self.records
            if (series is None or r.series == series)
            and (norm is None or r.norm == norm)
            and (method is None or r.method == method)
        ]

    def bounds(self, series: str, norm: str) -> dict[str, Bounds]:
        """For each input (by hash) the best any method proved; every method's bounds are valid, so they combine."""
        together: dict[str, Bounds] = {}
        for r in self.select(series, norm):
            known = together.get(r.input_hash)
            if known is None:
                together[r.input_hash] = Bounds(r.proved, r.result.upper, r.result.label, r, r.result.lower, r.closed)
                continue
            farther = max((known.sure, known.closed), (r.result.lower, r.closed))
            better = (not r.solved, r.result.upper) < (not known.best.solved, known.best.result.upper)
            together[r.input_hash] = Bounds(
                max(known.lower, r.proved),
                min(known.upper, r.result.upper),
                known.label if r.result.label is None else r.result.label,
                r if better else known.best,
                *farther,
            )
        return together

    def contradictions(self) -> list[str]:
        """Inputs on which two methods cannot both be right: never expected, so never left unsaid."""
        return [
            f"{series}, {norm}, input {b.best.name}: one method proves distance >= {b.lower:.9g}, "
            f"another has a witness at {b.upper:.9g}"
            for series in self.series
            for norm in self.norms
            for b in self.bounds(series, norm).values()
            if math.isfinite(b.upper) and b.lower > b.upper * (1 + TOLERANCE) + 1e-12
        ]


def read_runs(folders: Sequence[Path], out: Path) -> Results:
    """The records of some runs; links to certificates are relative to the folder of the report."""
    names = _run_names(folders)
    runs: list[Run] = []
    records: list[Record] = []
    for number, folder in enumerate(folders):
        with closing(open_store(folder)) as store:
            facts, sessions = store.facts(), store.sessions()
            run = Run(folder, facts, sessions, store.models(), store.planned(), checked_before(folder))
            runs.append(run)
            records += [_record(row, number, names[number], run, out) for row in store.rows()]
    if not records:
        raise RunError(f"nothing is finished yet in '{folders[0]}'; run the batch for a while, then ask again")
    return Results(runs, records)


def _run_names(folders: Sequence[Path]) -> list[str]:
    if len(folders) == 1:
        return [""]
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _record(row: dict[str, Any], number: int, run_name: str, run: Run, out: Path) -> Record:
    checked = run.checked.get(row["job"])
    series = f"{run_name}: {row['model']}" if run_name and len(run.models) > 1 else run_name or row["model"]
    certificate, result = row["certificate"], outcome_of(row).result
    return Record(
        run=number,
        job=row["job"],
        series=series,
        norm=row["norm"],
        method=row["method"],
        input=row["input"],
        position=row["position"],
        name=row["name"],
        input_hash=row["input_sha256"],
        status=row["status"],
        result=replace(result, label=row["true_label"] if result.label is None else result.label),
        certificate=None if certificate is None else os.path.relpath(run.folder / certificate, out),
        checked="" if certificate is None or checked is None else str(checked),
        asked=tuple(run.facts["identity"].get("eps", ())),
    )


class Points:
    """The inputs and witnesses of runs, read when a picture needs them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._stores: list[Store] = [open_store(run.folder) for run in runs]

    def pair(self, record: Record) -> tuple[Vector, Vector | None]:
        store = self._stores[record.run]
        return store.x(record.input), store.witness(record.job)

    def close(self) -> None:
        for store in self._stores:
            store.close()


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
