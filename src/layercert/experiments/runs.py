"""The batches behind the tables: one run a method, so that experiments share what they have in common.

OUT/runs/linf-l1/geocert/run.sqlite       pool-family(-stack)/method
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from layercert import shipped
from layercert.batch import Job, LocalProcesses, Options, Outcome, Plan, Store, Tally, open_store, run_batch
from layercert.batch.drive import Executor
from layercert.batch.errors import EmptyRunError
from layercert.batch.store import FILE
from layercert.batch.work import UNDECIDED
from layercert.errors import InputError
from layercert.experiments import work
from layercert.experiments.networks import find_networks, size_of
from layercert.experiments.recorded import Recorded, read_answers
from layercert.experiments.setup import (
    ADDITIONS,
    EXPERIMENTS,
    HARD,
    LATE,
    PAPER_METHODS,
    SIZES,
    Experiment,
    NoNetworksError,
    Settings,
)
from layercert.io.datasets import load_dataset

RUNS = "runs"
REMARKS = "remarks.json"
Say = Callable[[str], None]
BatchWatch = Callable[[Tally, Job | None, Outcome | None], None]
#: A question that ran into its limit of CPU seconds has used at least this part of it.
STOPPED = 0.9
#: Inputs that had the whole time are counted in tens: where they end must not depend on which input was hard.
STEP = 10
LABELS = {"linf": "l_inf", "l2": "l_2", "large": "larger networks"}
#: The order of methods in every table.
ORDER = (*PAPER_METHODS[:3], LATE, *PAPER_METHODS[3:], *ADDITIONS)


@dataclass(frozen=True)
class Row:
    """One answered question."""

    net: str
    method: str
    input: str  # hash of the point
    name: str
    solved: bool
    status: str
    lower: float
    upper: float
    programs: int
    seconds: float
    note: str
    trace: Path
    limit: float = math.inf  # seconds it had, if they did not suffice and are known

    def at(self, limit: float) -> Row:
        """The same question as if it had been given that many seconds; its programs are still those of the whole."""
        return replace(self, solved=self.solved and self.seconds <= limit)


@dataclass(frozen=True, eq=False)
class Pool:
    """All runs of one pool, family and stack; what the sections of the page are made of."""

    pool: str
    family: str
    stack: str
    rows: tuple[Row, ...]
    options: dict[str, Any]  # of the first run, with the longest limit; norm, radius and stack are the same in all
    sessions: tuple[dict[str, Any], ...]
    finished: str  # when the last job ended
    planned: int
    remarks: tuple[str, ...]
    hurried: bool = False  # a view of all inputs with the limit of a first pass

    @property
    def limit(self) -> float:
        return float(self.options["time_limit"])

    @property
    def limit_words(self) -> str:
        """'10 CPU s', or '10 s by the clock'."""
        return self.in_words(self.limit)

    def in_words(self, limit: float) -> str:
        return f"{limit:g} CPU s" if self.options.get("cpu_time") else f"{limit:g} s by the clock"

    @property
    def label(self) -> str:
        """In words: the norm or the larger networks, and whose solvers."""
        words = {"default": "", "paper": " with the paper's solvers"}
        return LABELS[self.pool] + words.get(self.stack, f" with the solvers of the stack '{self.stack}'")

    @cached_property
    def nets(self) -> list[str]:
        found = {row.net for row in self.rows}
        known = [size for size in SIZES if size in found]
        return known + [net for net in dict.fromkeys(row.net for row in self.rows) if net not in known]

    @cached_property
    def methods(self) -> list[str]:
        found = {row.method for row in self.rows}
        return [method for method in ORDER if method in found]

    @property
    def inputs(self) -> int:
        return len({row.input for row in self.rows})

    @cached_property
    def _by_question(self) -> dict[tuple[str, str], dict[str, Row]]:
        found: dict[tuple[str, str], dict[str, Row]] = {}
        for row in self.rows:
            found.setdefault((row.net, row.method), {})[row.input] = row
        return found

    def select(self, net: str, method: str) -> dict[str, Row]:
        """By input."""
        return dict(self._by_question.get((net, method), {}))

    def complete(self, methods: Iterable[str]) -> Pool:
        """Only these methods, and only the inputs that each of them was asked on every network: nothing else compares.

        A run stopped half way has some inputs that only the first methods were asked.
        """
        methods = tuple(methods)
        asked: dict[str, int] = {}
        rows = [row for row in self.rows if row.method in methods]
        for row in rows:
            asked[row.input] = asked.get(row.input, 0) + 1
        whole = len({row.net for row in rows}) * len(methods)
        return replace(self, rows=tuple(row for row in rows if asked[row.input] == whole))

    def views(self, methods: Iterable[str]) -> list[Pool]:
        """What can be compared, each with one limit for all: after a first pass with less time there are two.

        The first is that of the inputs, from the beginning on and in tens, on which nothing is open for want of time
        that others had. The second has all inputs and the limit of the first pass.
        """
        whole = self.complete(methods)
        inputs = list(dict.fromkeys(row.input for row in whole.rows))
        hurried = [row for row in whole.rows if not row.solved and row.limit < STOPPED * self.limit]
        if not hurried:
            return [whole] if inputs else []
        first = min(inputs.index(row.input) for row in hurried)
        patient = set(inputs[: first - first % STEP])
        limit = min(row.limit for row in hurried)
        rows = tuple(row.at(limit) for row in whole.rows)
        short = replace(whole, rows=rows, options={**self.options, "time_limit": limit}, hurried=True)
        full = replace(whole, rows=tuple(row for row in whole.rows if row.input in patient))
        return [full, short] if patient else [short]

    def has(self, experiment: Experiment) -> bool:
        return self.pool == experiment.pool and set(experiment.methods) <= set(self.methods)


def folder_name(pool: str, family: str, stack: str) -> str:
    return f"{pool}-{family}" + ("" if stack == "default" else f"-{stack}")


def run_experiment(experiment: Experiment, settings: Settings, say: Say, watch: BatchWatch | None = None) -> int:
    """Run what is missing; the number of undecided or failed questions.

    In a first pass (`settings.first`) that is what was never asked. Otherwise it is also what was left open, among the
    inputs of the settings, with less time than the limit.
    """
    if experiment.name == "large" and settings.first is not None:
        return 0  # what is finished at once is not shown there
    # most l1 versions of the larger networks die in training: plain ones are what can be had (the page says so)
    family = "plain" if experiment.name == "large" else settings.family
    everything = load_dataset(shipped.path("digits"))
    found = find_networks(experiment.sizes, family, settings, everything)
    if not found.models:
        raise NoNetworksError(
            f"no network for {experiment.name}: {'; '.join(found.remarks)}; give a folder of networks with --nets, or "
            "train them with --mnist"
        )
    pool = settings.out / RUNS / folder_name(experiment.pool, family, settings.stack)
    pool.mkdir(parents=True, exist_ok=True)
    (pool / REMARKS).write_text(json.dumps(found.remarks), encoding="utf-8")
    wanted = min(settings.inputs, HARD) if experiment.name == "large" else settings.inputs
    still_open = 0
    for method in experiment.methods:
        options = Options(
            (experiment.norm,), (method,), experiment.radius, None, settings.time_limit, settings.stack,
            cpu_time=settings.cpu_time,
        )  # fmt: skip
        before = _before(pool / method, settings)
        plan = Plan(found.models, everything, options).first(max(wanted, before.inputs))
        executor: Executor = LocalProcesses(settings.jobs, work=f"{work.__name__}:timed")
        if experiment.name == "large":
            executor = work.Tracing(pool / method, settings.jobs)
        elif settings.recorded is not None:  # curves are not recorded
            executor = Recorded(executor, read_answers(settings.recorded), family, settings.recorded.name)
        again: set[int] = set()
        words = f"{experiment.name}: {method}, {len(found.models)} networks x {len(plan.data)} inputs"
        if settings.first is not None:
            executor = work.Hurried(executor, settings.first)
            words += f", first pass ({settings.first:g} s each)"
        else:
            again = {job for job, i in before.hurried if i < wanted}
        say(words)
        tally = run_batch(
            plan, pool / method, executor, watch, resume_undecided=again, more_inputs=True, another_limit=before.longer
        )
        still_open += tally.open
    return still_open


@dataclass(frozen=True)
class _Before:
    """What a run holds when it is continued.

    Attributes:
        inputs: How many.
        hurried: Questions that were left open with less time than is given now, each as (job, input).
        longer: Whether the limit is longer than before.
    """

    inputs: int = 0
    hurried: tuple[tuple[int, int], ...] = ()
    longer: bool = False


def _before(run: Path, settings: Settings) -> _Before:
    opened = _open(run)
    if opened is None:
        return _Before()
    with closing(opened) as store:
        identity = store.facts()["identity"]
        hurried = tuple(
            (row["job"], row["input"])
            for row in store.rows()
            if row["status"] == UNDECIDED and _limit(row, identity) < STOPPED * settings.time_limit
        )
        return _Before(int(identity["inputs"]), hurried, identity["time_limit"] < settings.time_limit)


def _open(run: Path) -> Store | None:
    """The store of a run; None where there is none, or where it was killed before it began."""
    try:
        return open_store(run) if (run / FILE).is_file() else None
    except EmptyRunError:
        return None


def _limit(record: dict[str, Any], identity: dict[str, Any]) -> float:
    """The seconds that an unfinished question had.

    Its note says so. Notes of older runs do not; with a limit of CPU seconds it is the time that it took.
    """
    found = work.limit_of(record["note"])
    if found is None:
        found = record["seconds"] if identity.get("cpu_time") else identity["time_limit"]
    return float(found)


def read_pools(out: Path) -> list[Pool]:
    """Every pool in the folder, in the order of the experiments, our stack first."""
    folders = sorted(path for path in (out / RUNS).glob("*-*") if path.is_dir())
    pools = [pool for folder in folders if (pool := _read(folder)) is not None]
    order = list(dict.fromkeys(e.pool for e in EXPERIMENTS.values()))
    return sorted(pools, key=lambda p: (order.index(p.pool), p.stack != "default", p.family))


def _read(folder: Path) -> Pool | None:
    pool, family, *rest = folder.name.split("-")
    rows: list[Row] = []
    sessions: list[dict[str, Any]] = []
    options: dict[str, Any] = {}
    planned, finished = 0, ""
    for run in sorted(path.parent for path in folder.glob(f"*/{FILE}")):
        opened = _open(run)
        if opened is None:
            continue
        with closing(opened) as store:
            identity = store.facts()["identity"]
            longest = max(identity["time_limit"], options.get("time_limit", 0.0))
            options = {**(options or identity), "time_limit": longest}
            planned += store.planned()
            sessions += store.sessions()
            for record in store.rows():
                rows.append(_row(record, run, identity))
                finished = max(finished, record["finished"])
    if not rows:
        return None
    remarks = _remarks(folder / REMARKS)
    sessions.sort(key=lambda s: str(s["started"]))
    stack = rest[0] if rest else "default"
    return Pool(pool, family, stack, tuple(rows), options, tuple(sessions), finished, planned, remarks)


def _remarks(path: Path) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"'{path}' is damaged ({error}); it holds remarks for the page alone: delete it") from None


def _row(record: dict[str, Any], run: Path, identity: dict[str, Any]) -> Row:
    return Row(
        net=size_of(record["model"]),
        method=record["method"],
        input=record["input_sha256"],
        name=record["name"],
        solved=record["status"] in ("exact", "robust"),
        status=record["status"],
        lower=0.0 if record["lower"] is None else record["lower"],
        upper=math.inf if record["upper"] is None else record["upper"],
        programs=record["programs"],
        seconds=record["seconds"],
        note=record["note"],
        trace=work.trace_file(run, record["job"]),
        limit=_limit(record, identity) if record["status"] == UNDECIDED else math.inf,
    )
