"""Small batches for the tests: a network with known distances, and work functions that fail on purpose."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.batch import Job, Model, Options, Outcome, Plan
from layercert.batch import work as batch_work
from layercert.batch.news import Teller
from layercert.batch.work import Work, solve, unanswered
from layercert.io.datasets import Dataset
from layercert.network import Network
from layercert.result import Status
from layercert.run import Progress
from layercert.system import clock

#: The command line as a process of its own.
LAYERCERT = [sys.executable, "-c", "import sys; from layercert.cli import main; sys.exit(main())"]
#: The same with work that waits: job n is done once the number in the file `LAYERCERT_TEST_ALLOWED` is above n.
PATIENT = [
    sys.executable,
    "-c",
    "import functools, sys, layercert.cli.batch as b; from layercert.cli import main; "
    "b.LocalProcesses = functools.partial(b.LocalProcesses, work='helpers.batches:when_allowed'); sys.exit(main())",
]
#: Columns that two runs of one plan must share, bit for bit; times, processes and dates may differ.
SAME = (
    "job",
    "model_sha256",
    "input_sha256",
    "norm",
    "method",
    "status",
    "lower",
    "upper",
    "label",
    "target",
    "programs",
)


def line_network() -> Network:
    """Logits (1 - t, t) with t = relu(x_1): they cross at x_1 = 0.5; x_2 is ignored."""
    return Network.from_arrays([[[1.0, 0.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])


def points(count: int) -> Dataset:
    """x_1 = 0.5 + k/100 for k = 1, 2, ..: class 1, at distance k/100 in every norm."""
    X = np.array([[0.5 + k / 100, 0.0] for k in range(1, count + 1)])
    return Dataset(X, np.ones(count, dtype=np.intp), np.arange(count), tuple(map(str, range(count))), None, "points")


def plan(count: int = 6, **options: Any) -> Plan:
    return Plan((Model("line", line_network()),), points(count), Options(**options))


def comparable(store: Any) -> list[tuple[Any, ...]]:
    return [tuple(row[k] for k in SAME) for row in store.rows()]


# Work that goes wrong on input 2 and is right everywhere else.


def exact(job: int, distance: float, **known: Any) -> Outcome:
    """The outcome of a job whose distance was found."""
    return Outcome(job, unanswered(status=Status.EXACT, lower=distance, upper=distance, **known))


def exits(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    if job.input == 2:
        os._exit(7)
    return solve(network, x, label, job, options)


def compiles_and_is_killed(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    if job.input == 2:
        print("LayerCert compiles its kernels for this machine", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return solve(network, x, label, job, options)


def segfaults(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    if job.input == 2:
        ctypes.string_at(0)
    return solve(network, x, label, job, options)


def raises(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    options = replace(options, radius=-1.0) if job.input == 2 else options
    return solve(network, x, label, job, options)


def swallows_memory(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """A little more every moment, so that the watchdog sees it before the hard limit."""
    hoard = []
    while job.input == 2:
        hoard.append(np.ones(2_000_000))
        time.sleep(0.02)
    return solve(network, x, label, job, options)


def asks_for_too_much(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """All at once: the hard limit refuses before the machine suffers."""
    try:
        if job.input == 2:
            np.ones(2_000_000_000)
    except MemoryError:
        return Outcome.failed(job.id, "out of memory: refused")
    return solve(network, x, label, job, options)


def hangs(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    if job.input == 2:
        time.sleep(600)
    return solve(network, x, label, job, options)


def sleeps(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """Long by the clock, nothing of the processor; exact without any search."""
    time.sleep(1.5)
    return exact(job.id, 0.1)


def tells_threads(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """The number of threads of the process after a large product, as the note."""
    a = np.ones((600, 600))
    (a @ a).sum()
    with open("/proc/self/status") as status:
        threads = next(line.split()[1] for line in status if line.startswith("Threads"))
    return exact(job.id, 0.1, note=f"{threads} {os.environ['OMP_NUM_THREADS']}")


def slow_and_counted(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """Leaves a mark for each time a job is begun, in the folder named by the environment, and one for its process group
    while it sleeps."""
    marks = Path(os.environ["LAYERCERT_TEST_MARKS"])
    with open(marks / str(job.id), "a") as mark:
        mark.write("x")
    asleep = marks / f"asleep {os.getpgid(0)}"
    asleep.touch()
    time.sleep(0.15)
    asleep.unlink()
    return solve(network, x, label, job, options)


def when_allowed(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    while int(Path(os.environ["LAYERCERT_TEST_ALLOWED"]).read_text() or 0) <= job.id:
        time.sleep(0.002)
    return solve(network, x, label, job, options)


# Work that has proved something when it goes wrong.


def _after_first_bounds(then: Callable[[], object]) -> Work:
    """A real search that on input 2 is stopped by `then` as soon as it has proved a bound and told it."""

    def work(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
        measure = batch_work.measure

        def stopped(*args: Any, watch: Any, **kwargs: Any) -> Any:
            teller: Teller = watch.__self__

            def watching(progress: Progress, event: Any) -> None:
                watch(progress, event)
                if progress.lower > 0.0 and progress.witness is not None:
                    while teller._send is not None and teller._told is not teller.latest:
                        time.sleep(0.01)  # the courier takes it
                    then()

            return measure(*args, watch=watching, **kwargs)

        if job.input == 2:
            batch_work.measure = stopped
        try:
            return solve(network, x, label, job, options)
        finally:
            batch_work.measure = measure

    return work


def _out_of_memory() -> None:
    raise MemoryError


killed_on_the_way = _after_first_bounds(lambda: os.kill(os.getpid(), signal.SIGKILL))
killed_a_little_later = _after_first_bounds(lambda: (time.sleep(2), os.kill(os.getpid(), signal.SIGKILL)))
hangs_on_the_way = _after_first_bounds(lambda: time.sleep(600))
out_of_memory_on_the_way = _after_first_bounds(_out_of_memory)


def _begun_before(name: str) -> int:
    """How often this was asked before, by any process: marks in a folder named by the environment."""
    with open(Path(os.environ["LAYERCERT_TEST_MARKS"]) / name, "a+") as mark:
        mark.seek(0)
        before = len(mark.read())
        mark.write("x")
    return before


def killed_once(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """Every job loses its first worker."""
    if _begun_before(str(job.id)) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return solve(network, x, label, job, options)


def compiles(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """Input 2 needs machine code, which takes far longer than its time limit and grace; nothing else takes time."""
    if job.input == 2:
        clock.stop()
        hoard = [np.ones(2_000_000) for _ in range(20)]  # and memory: 320 MB
        time.sleep(2.5)
        del hoard
        clock.go_on()
    return exact(job.id, 0.1)
