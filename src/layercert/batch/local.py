"""Jobs on this machine: one process a core, one thread each, a crash costs one job."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from layercert.batch.errors import RunError
from layercert.batch.plan import Job, Options, Plan
from layercert.batch.work import Outcome
from layercert.errors import OptionError
from layercert.network import Network

#: Numerical libraries read these when they load: one thread a worker, or they fight over the cores.
ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    )
}
#: How often (seconds) memory and overdue jobs are looked at.
TICK = 0.1
#: A job may overrun its time limit by that limit and this many seconds (compiling, a long step) before it is killed.
GRACE = 60.0


@dataclass(frozen=True)
class LocalProcesses:
    """Worker processes on this machine.

    Attributes:
        jobs: How many, one thread each.
        memory: Bytes of resident memory that a worker may take; None for no limit.
        work: The function that does a job, as "module:name".
        grace: Seconds beyond the time limit after which a worker is ended.
    """

    jobs: int = 1
    memory: int | None = None
    work: str = "layercert.batch.work:solve"
    grace: float = GRACE

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise OptionError(f"a batch needs at least one worker process, got {self.jobs}")

    def describe(self) -> str:
        """What a run's record says about its workers.

        Returns:
            A few words.
        """
        return f"{self.jobs} local process{'es' if self.jobs > 1 else ''}, one thread each"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Do the jobs. Closing the generator ends the workers.

        Args:
            plan: What the jobs belong to.
            jobs: Those that are missing.

        Returns:
            Outcomes as they finish.
        """
        waiting = list(reversed(jobs))
        crew: list[_Worker] = []
        try:
            crew.append(_Worker(self, plan))
            while any(worker.busy for worker in crew) or waiting:
                if crew[0].ready and len(crew) < min(self.jobs, len(jobs)):
                    # only now: what the first one had to compile, the others find in the cache
                    crew += [_Worker(self, plan) for _ in range(min(self.jobs, len(jobs)) - len(crew))]
                heard = set(wait([worker.pipe for worker in crew], timeout=TICK))
                for i, worker in enumerate(crew):
                    outcome = worker.listen() if worker.pipe in heard else worker.overstepped()
                    if worker.dead:
                        crew[i] = _Worker(self, plan)
                    elif worker.ready and not worker.busy and waiting:
                        worker.give(waiting.pop())  # before the outcome is written: nobody waits for the disk
                    if outcome is not None:
                        yield outcome
        finally:
            for worker in crew:
                worker.kill()


@dataclass(frozen=True)
class _Context:
    """What every job of a run shares, unpickled once a worker."""

    networks: tuple[Network, ...]
    options: Options

    def __call__(self) -> tuple[tuple[Network, ...], Options]:
        return self.networks, self.options


@dataclass(eq=False)
class _Worker:
    """One worker process as its parent sees it."""

    crew: LocalProcesses
    plan: Plan
    job: Job | None = None
    ready: bool = False
    dead: bool = False
    since: float = 0.0
    pipe: Connection = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.pipe, theirs = Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `kill`)
        environment = {**os.environ, **ONE_THREAD}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "layercert.batch.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=environment,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        context = _Context(tuple(model.network for model in self.plan.models), self.plan.options)
        self._send((sys.path, self.crew.work, context, self.crew.memory))

    @property
    def busy(self) -> bool:
        return self.job is not None

    def give(self, job: Job) -> None:
        self.job, self.since = job, time.monotonic()
        self._send((job, self.plan.data.X[job.input], self.plan.label(job.input)))

    def _send(self, message: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died; `listen` finds the pipe closed and says why
            self.pipe.send(message)

    def listen(self) -> Outcome | None:
        """What the worker has to say, or the epitaph of its job."""
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionResetError, pickle.UnpicklingError):
            return self._bury()
        if message == "ready":
            self.ready = True
            return None
        self.job = None
        assert isinstance(message, Outcome)
        return message

    def overstepped(self) -> Outcome | None:
        """Kill a worker that uses too much memory or does not stop at its time limit."""
        if self.job is None:
            return None
        used = _resident(self.process.pid)
        if self.crew.memory is not None and used > self.crew.memory:
            return self._end(
                f"memory limit exceeded: {used / 2**20:.0f} MB used, {self.crew.memory / 2**20:.0f} MB allowed"
            )
        limit = self.plan.options.time_limit
        spent = time.monotonic() - self.since
        if limit is not None and spent > 2 * limit + self.crew.grace:
            return self._end(f"did not stop at its time limit of {limit:g} s; ended after {spent:.0f} s")
        return None

    def _bury(self) -> Outcome | None:
        code = self.process.wait()
        if self.job is None:
            if not self.ready:
                raise RunError(f"a worker process cannot start: {self._last_words() or _cause(code)}")
            self.kill()
            return None  # it died between two jobs: nothing is lost
        words = self._last_words()
        return self._end(f"the worker crashed: {_cause(code)}" + (f"; {words}" if words else ""))

    def _end(self, reason: str) -> Outcome:
        assert self.job is not None
        outcome = Outcome.failed(self.job.id, reason, f"pid {self.process.pid}", time.monotonic() - self.since)
        self.kill()
        return outcome

    def kill(self) -> None:
        self.dead = True
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self._errors.close()

    def _last_words(self) -> str:
        """What a dying interpreter wrote: faulthandler's 'Fatal Python error', or the last line (an exception)."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith("Fatal")]
        return (fatal or lines[-1:] or [""])[0][:300]


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", perhaps by the system because memory ran out" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"


def _resident(pid: int) -> int:
    """Resident memory of a process in bytes; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
