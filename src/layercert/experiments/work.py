"""The jobs of an experiment: measured after a warm-up, and on the larger networks with the bounds written down.

Seconds are those of the processor, not of the clock: on an idle machine they are the same, on a busy one they are the
fair ones, since methods run one after the other. The time limit is by the clock, or of CPU seconds if asked for. What
is asked again is asked from the beginning: seconds and programs are those of one search.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from layercert.arrays import Vector
from layercert.batch import Job, LocalProcesses, Options, Outcome, Plan
from layercert.batch.drive import Executor
from layercert.batch.work import solve
from layercert.network import Network
from layercert.result import Result, Status
from layercert.run import Progress, measure
from layercert.search.events import Event
from layercert.system import clock

#: A step of the lower bound below this part of the radius is not worth a point of the curve.
STEP = 1e-3
TRACES = "traces"
LIMIT = re.compile(r"the time limit of this search: (\S+) s")


def timed(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """As any batch job, but compiling and loading code does not count as the time of the first one."""
    warm_up(job.method, job.norm, options.stack)
    started = time.process_time()
    outcome = solve(network, x, label, replace(job, keep=False, search=None, saved=None), options)
    result = replace(outcome.result, seconds=time.process_time() - started)
    return replace(outcome, result=result if outcome.ended else _with_limit(result, options))


def _with_limit(result: Result, options: Options) -> Result:
    """An open answer says in its note how many seconds it had: a run may hold answers with several limits."""
    if result.status != Status.UNDECIDED or options.time_limit is None:
        return result
    return replace(result, note=limit_note(result.note, options.time_limit))


def limit_note(note: str, seconds: float) -> str:
    """The note of an open answer, with the seconds that it had."""
    return f"{note}; the time limit of this search: {seconds!r} s".lstrip("; ")


def limit_of(note: str) -> float | None:
    """The seconds that an open answer had, if its note says so."""
    found = LIMIT.search(note)
    return None if found is None else float(found[1])


@cache
def warm_up(method: str, norm: str, stack: str) -> None:
    """Solve a small random problem to the end, once per process: kernels are compiled or loaded, packages imported."""
    rng = np.random.default_rng(0)
    sizes = (6, 5, 5, 2)
    weights = [rng.normal(size=(m, n)) for n, m in pairwise(sizes)]
    network = Network.from_arrays(weights, [rng.normal(size=m) for m in sizes[1:]])
    for radius in (None, 0.1):  # with and without an attack before the search
        measure(network, np.zeros(sizes[0]), norm, radius=radius, method=method, stack=stack)


def traced(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """The same, with the bounds over time as a curve."""
    warm_up(job.method, job.norm, options.stack)
    step, started = STEP * (options.radius or 1.0), time.process_time()
    points: list[tuple[float, float, float | None]] = []

    def watch(progress: Progress, event: Event | None) -> None:
        upper = progress.upper if math.isfinite(progress.upper) else None
        if not points or progress.lower >= points[-1][1] + step or upper != points[-1][2]:
            points.append((time.process_time() - started, progress.lower, upper))

    try:
        with clock.of_processor(options.cpu_time):
            r = measure(
                network, x, job.norm, label, options.radius, options.domain, job.method, options.time_limit,
                stack=options.stack, watch=watch,
            )  # fmt: skip
    except Exception as error:  # one bad job must not take the batch down; the reason is in its row
        return Outcome.failed(job.id, f"{type(error).__name__}: {error}")
    seconds = time.process_time() - started
    points.append((seconds, r.lower, r.upper if math.isfinite(r.upper) else None))
    return Outcome(job.id, _with_limit(replace(r, seconds=seconds), options), str(os.getpid()), curve=points)


@dataclass(frozen=True)
class Tracing:
    """Local processes whose jobs bring curves along, which are kept in files beside the store."""

    folder: Path
    jobs: int

    def _crew(self) -> LocalProcesses:
        return LocalProcesses(self.jobs, work=f"{__name__}:traced")

    def describe(self) -> str:
        return self._crew().describe()

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        with closing(self._crew().run(plan, jobs)) as outcomes:  # type: ignore[type-var]
            for outcome in outcomes:
                if outcome.curve is not None:
                    target = trace_file(self.folder, outcome.job)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(json.dumps(outcome.curve), encoding="utf-8")
                yield replace(outcome, curve=None)


@dataclass(frozen=True)
class Hurried:
    """Workers that give each question less time than the plan: a first pass."""

    crew: Executor
    time_limit: float

    def describe(self) -> str:
        return f"{self.crew.describe()}; first pass, {self.time_limit:g} s per question"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        shorter = replace(plan, options=replace(plan.options, time_limit=self.time_limit))
        yield from self.crew.run(shorter, jobs)


def trace_file(folder: Path, job: int) -> Path:
    return folder / TRACES / f"{job}.json"
