"""`layercert batch`: many inputs, into a run that survives anything."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from layercert import shipped
from layercert.batch import LocalProcesses, Model, Options, Plan, open_store, run_batch
from layercert.batch.drive import Executor, Tally
from layercert.batch.export import WRITERS, export, unknown_format
from layercert.batch.plan import Job, memory_bytes
from layercert.batch.salvage import salvage
from layercert.batch.work import FAILED, Outcome
from layercert.cli.commands import read_data
from layercert.cli.questions import question
from layercert.cli.radii import radii
from layercert.errors import OptionError
from layercert.io import load
from layercert.methods import AUTO
from layercert.questions import in_positions
from layercert.run import GAP
from layercert.system.files import printable


def run(args: argparse.Namespace) -> int:
    from layercert.cli import OK, OPEN

    exports = [Path(name) for name in args.export]
    for path in exports:
        if path.suffix.lower() not in WRITERS:
            raise unknown_format(path)
    plan, folder = _plan(args), Path(args.out)
    _stop_on_terminate()
    if args.salvage:
        kept, damaged = salvage(plan, folder)
        print(f"layercert: salvaged {kept} results; the damaged file is kept as {damaged}", file=sys.stderr)
    try:
        with Bar(quiet=args.quiet, log=args.log, plan=plan) as bar:
            tally = run_batch(plan, folder, _executor(args), bar.watch, args.retry_failed, args.resume_undecided)
    except KeyboardInterrupt:
        print(f"layercert: interrupted; the same command goes on where it stopped ({folder})", file=sys.stderr)
        return OPEN
    with closing(open_store(folder)) as store:
        for path in exports:
            export(store, path)
    print(_summary(tally, folder))
    return OK if tally.open == 0 else OPEN


def _plan(args: argparse.Namespace) -> Plan:
    models = tuple(Model(printable(Path(name).stem), load(shipped.path(name), args.threshold)) for name in args.model)
    data = read_data(args, args.data)
    for model in models:
        data = data.arranged_for(model.network)
    if data.columns:
        models = tuple(replace(model, network=replace(model.network, input_names=data.columns)) for model in models)
    options = Options(
        norms=tuple(args.norm or ["linf"]),
        methods=tuple(args.method or [AUTO]),
        radius=args.radius,
        domain=None if args.domain is None else (args.domain[0], args.domain[1]),
        time_limit=args.time_limit,
        stack=args.stack,
        certificates=args.certificates,
        eps=radii(args.eps),
        gap=GAP if args.gap is None else args.gap,
        threads=args.threads,
        cpu_time=args.cpu_time,
        **in_positions(models[0].network, question(args)),
    )
    return Plan(models, data, options)


def _executor(args: argparse.Namespace) -> Executor:
    memory = None if args.memory is None else memory_bytes(args.memory)
    if args.scheduler is None:
        return LocalProcesses(args.jobs, memory)
    from layercert.batch.cluster import DaskCluster

    if args.cpu_time:
        raise OptionError("--cpu-time is for local workers: a Dask worker may run several jobs in one process")
    if memory is not None:
        raise OptionError("--memory is for local workers; Dask workers have --memory-limit of their own")
    return DaskCluster(args.scheduler)


def _stop_on_terminate() -> None:
    """A polite kill ends like Ctrl-C: workers are stopped, what is finished is recorded."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def _summary(tally: Tally, folder: Path) -> str:
    parts = [f"{count} {status.replace('_', ' ')}" for status, count in sorted(tally.counts.items())]
    kept = f" ({tally.earlier} from before)" if tally.earlier else ""
    again = ""
    if tally.ended:
        again = (
            f" {tally.ended} failed or ended early (the report's notes say why): the same command with --retry-failed "
            "tries again and keeps their bounds."
        )
    return f"{tally.done} of {tally.total} done{kept}: {', '.join(parts)}.{again} Next: layercert report {folder}"


#: Statuses and their colours in the progress bar.
COLOURS = {"exact": "green", "robust": "cyan", "not_robust": "magenta", "undecided": "yellow", FAILED: "red"}


class Bar:
    """Progress on a terminal; nothing on a pipe, or one line per job with --log."""

    def __init__(self, quiet: bool, log: bool, plan: Plan | None = None) -> None:
        self._plan = plan
        console = Console(stderr=True)
        self._log = log
        self._started: float | None = None
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or log or not console.is_terminal,
        )
        self._task = self._bar.add_task(
            "", total=None, state="starting (the first time compiles kernels: about half a minute)"
        )

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def watch(self, tally: Tally, job: Job | None, outcome: Outcome | None) -> None:
        now = time.monotonic()
        if outcome is None or job is None:
            self._bar.update(self._task, total=tally.total, completed=tally.done)
            if self._log:
                _log(f"{tally.done} of {tally.total} done before")
            return
        # the first outcome pays for start-up; the pace is that of the others
        self._started = self._started or now
        fresh = tally.done - tally.earlier - 1
        pace = fresh / (now - self._started) if fresh > 0 and now > self._started else 0.0
        left = f"{pace:.1f}/s, {_duration((tally.total - tally.done) / pace)} left" if pace else ""
        kinds = " ".join(
            f"[{colour}]{tally.counts[status]} {status}[/]"
            for status, colour in COLOURS.items()
            if tally.counts[status] or status in ("exact", "undecided")
        )
        self._bar.update(self._task, completed=tally.done, state=f"{kinds} {left}")
        if self._log:
            result = outcome.result
            bounds = (
                result.note if outcome.status == FAILED else f"{result.lower:.6g} <= distance <= {result.upper:.6g}"
            )
            _log(
                f"{tally.done}/{tally.total} {self._named(job)} {job.norm} {job.method}: "
                f"{outcome.status}, {bounds}, {result.seconds:.2f} s"
            )

    def _named(self, job: Job) -> str:
        """The input by its name or position in the data, the model by its name."""
        if self._plan is None:
            return f"input {job.input} model {job.model}"
        return f"input {self._plan.data.names[job.input]} model {self._plan.models[job.model].name}"


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
