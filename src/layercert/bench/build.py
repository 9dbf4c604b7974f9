"""Building the bench: a batch for each part of a collection, its certificates checked, and the table of all of it.

OUT/runs/digits/box-0000/run.sqlite                      collection/setting-first input; ten inputs, later fifty
OUT/runs/digits/box-0010-digits_plain_2x20/run.sqlite    where not all networks of the collection are asked

Every run survives kill -9 by itself, so the whole does: the same command goes on where it stopped. Parts come in
rounds over all collections, so that a bench stopped half way has the same inputs everywhere. A bench may begin with the
rows of the shipped table: then only what that lacks is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layercert.batch import Job, LocalProcesses, Model, Options, Outcome, Plan, Tally, run_batch
from layercert.batch.checking import check_run
from layercert.bench.collections import Collection, Domain, collections_of, store_parts
from layercert.bench.gather import AGAIN, NORMS, RUNS, Say, best_rows, identity, is_checked, take_shipped, write_tables
from layercert.bench.table import BOUNDS, RadiusBench, row_name
from layercert.errors import OptionError, unknown

#: Inputs of one run: small enough that all collections get their turn; beyond MANY more of them, because starting a
#: worker costs as much as a hundred short questions.
PART, MANY, LARGER = 10, 50, 50
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
        networks: Some networks of these collections; none for all.
    """

    out: Path
    inputs: int = 20
    time_limit: float = 5.0
    jobs: int = 1
    only: tuple[str, ...] = ()
    cpu_time: bool = False
    shipped: bool = False
    networks: tuple[str, ...] = ()

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
    names = [model.name for collection in collections for model in collection.models]
    for name in settings.networks:
        if name not in names:
            raise unknown("network of RadiusBench", name, names)
    known = {row.name for row in best_rows(settings.out)}
    for first in (*range(0, min(settings.inputs, MANY), PART), *range(MANY, settings.inputs, LARGER)):
        for collection in collections:
            for domain in collection.domains:
                part = _Part(collection, domain, first, PART if first < MANY else LARGER)
                _part(settings, part, known, say, watch)
        write_tables(settings.out, say)
    return write_tables(settings.out, say)


@dataclass(frozen=True, eq=False)
class _Part:
    """Inputs of a collection that are asked together, inside a domain or without one.

    It is whole or left for later: its inputs are fixed, so that more inputs never change a run that is there.
    """

    collection: Collection
    domain: Domain
    first: int
    length: int

    @property
    def last(self) -> int:
        """Behind the last input."""
        return min(self.first + self.length, len(self.collection.data))

    def missing(self, wanted: Sequence[str], known: AbstractSet[str]) -> list[Model]:
        """The networks, all or those wanted, of which some row is not known."""
        return [
            model
            for model in self.collection.models
            if (not wanted or model.name in wanted) and not known >= self._rows(model.name)
        ]

    def _rows(self, network: str) -> set[str]:
        numbers, setting = range(self.first, self.last), _setting(self.domain)
        return {row_name(network, norm, setting, number) for number in numbers for norm in NORMS}


def _part(settings: Build, part: _Part, known: AbstractSet[str], say: Say, watch: Watch | None) -> None:
    """Ask what is missing: all networks together where none is known yet, otherwise each by itself."""
    missing = part.missing(settings.networks, known)
    folder = settings.out / RUNS / part.collection.name / f"{_setting(part.domain)}-{part.first:04d}"
    begun = identity(folder).get("inputs", 0)
    if begun and part.first + begun < part.last:  # begun when all parts were of ten inputs
        for first in range(part.first, part.last, begun):
            _part(settings, replace(part, first=first, length=begun), known, say, watch)
    elif len(missing) == len(part.collection.models) or (begun and missing and not settings.networks):
        _run(settings, part, folder, part.collection.models, say, watch)
    else:
        for model in missing:
            _run(settings, part, folder.with_name(f"{folder.name}-{model.name}"), (model,), say, watch)


def _run(settings: Build, part: _Part, folder: Path, models: Sequence[Model], say: Say, watch: Watch | None) -> None:
    data = part.collection.data.take(np.arange(part.first, part.last))
    cpu_time = identity(folder).get("cpu_time", settings.cpu_time)
    options = Options(
        NORMS, domain=part.domain, time_limit=settings.time_limit, certificates=True, cpu_time=bool(cpu_time)
    )
    tally = run_batch(Plan(tuple(models), data, options), folder, LocalProcesses(settings.jobs), watch)
    proved = failed = 0
    if not is_checked(folder):
        for checked in check_run(folder, jobs=settings.jobs):
            proved, failed = proved + checked.ok, failed + (not checked.ok)
        words = f"{proved} certificates proved" + (f", {failed} NOT PROVED" if failed else "")
        say(f"{part.collection.name} {folder.name} to {part.last - 1}: {dict(tally.counts)}, {words}")


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
        if name not in known or (settings.networks and network not in settings.networks):
            continue
        collection = known[name]
        domain = next(domain for domain in collection.domains if _setting(domain) == setting)
        models = tuple(model for model in collection.models if model.name == network)
        limit = f"{seconds:g}{'cpu' if settings.cpu_time else ''}s"
        folder = settings.out / AGAIN / name / f"{setting}-{limit}-{network}-{number:04d}"
        # a run that is there keeps its norms: some of them may have been answered since it began
        asked = identity(folder).get("norms", norms)
        options = Options(
            tuple(asked), domain=domain, time_limit=seconds, certificates=True, cpu_time=settings.cpu_time
        )
        tally = run_batch(Plan(models, collection.data.take(np.array([number])), options), folder,
                          LocalProcesses(settings.jobs), watch)  # fmt: skip
        if not is_checked(folder):
            proved = sum(checked.ok for checked in check_run(folder, jobs=1))
            say(f"{network} {setting} {number}: {dict(tally.counts)}, {proved} certificates proved")
    return write_tables(settings.out, say)


def _setting(domain: Domain) -> str:
    return "free" if domain is None else "box"
