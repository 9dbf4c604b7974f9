"""One worker process as its parent sees it: what it is given, what it says, and when it has to be ended."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from layercert.batch.errors import RunError
from layercert.batch.news import Compiling, JobClock, Proved
from layercert.batch.plan import Job, Options, Plan
from layercert.batch.searches import with_searches
from layercert.batch.work import Outcome
from layercert.network import Network

#: Numerical libraries read these when they load: one thread per worker, or they fight over the cores.
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
#: What a worker says when it can take jobs.
READY = "ready"


@dataclass(frozen=True)
class _Context:
    """What every job of a run shares, unpickled once per worker."""

    networks: tuple[Network, ...]
    options: Options

    def __call__(self) -> tuple[tuple[Network, ...], Options]:
        return self.networks, self.options


class WorkerProcess:
    """A fresh interpreter that does one job after the other, under a limit of memory and of time."""

    def __init__(self, plan: Plan, work: str, memory: int | None, grace: float) -> None:
        self.plan, self.memory, self.grace = plan, memory, grace
        self.job: Job | None = None
        self.ready = self.dead = False
        self.crashed = False  # it died by itself, in the middle of a job
        self.was_killed = False  # by a signal, from outside or by a fault of its own
        self.epitaph = ""
        self._proved = Proved(-1)
        self._watch = JobClock()
        self._resident_before = self._for_code = 0  # memory that went into compiling is not the job's
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `kill`)
        self.pipe, theirs = Pipe()
        self.process = self._start(theirs)
        context = _Context(tuple(model.network for model in plan.models), plan.options)
        self._send((sys.path, work, context, memory))

    def _start(self, theirs: Connection) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "layercert.batch.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**os.environ, **ONE_THREAD},
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            self.pipe.close()
            self._errors.close()
            raise RunError(
                f"a worker process cannot start: {error.strerror or error}; what is finished is kept: give the same "
                "command again, with fewer --jobs"
            ) from None
        finally:
            theirs.close()

    @property
    def busy(self) -> bool:
        return self.job is not None

    def give(self, job: Job) -> None:
        self.job, self._proved = job, Proved(job.id)
        self._watch = JobClock(self._computed if self.plan.options.cpu_time else None)
        self._send((with_searches(job), self.plan.data.X[job.input], self.plan.label(job.input)))

    def _send(self, message: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died; `listen` finds the pipe closed and says why
            self.pipe.send(message)

    def listen(self) -> Outcome | None:
        """What the worker has to say; an outcome when its job is over, one way or the other."""
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionResetError, pickle.UnpicklingError):
            return self._bury()
        if message == READY:
            self.ready = True
        elif isinstance(message, Compiling):
            self._compiles(message.on)
        elif isinstance(message, Proved):
            if self.job is not None and message.job == self.job.id:
                self._proved = message
        else:
            assert isinstance(message, Outcome)
            self.job = None
            return message
        return None

    def _compiles(self, on: bool) -> None:
        used = _resident(self.process.pid)
        if on:
            self._watch.stop()
            self._resident_before = used
        else:
            self._watch.go_on()
            self._for_code += max(used - self._resident_before, 0)

    def overstepped(self) -> Outcome | None:
        """End a worker that uses too much memory or does not stop at its time limit; compiling counts for neither."""
        if self.job is None or not self._watch.running:
            return None
        used = _resident(self.process.pid) - self._for_code
        if self.memory is not None and used > self.memory:
            return self._end(f"memory limit exceeded: {used / 2**20:.0f} MB used, {self.memory / 2**20:.0f} MB allowed")
        limit, spent = self.plan.options.job_limit, self._watch.seconds
        if limit is not None and spent > 2 * limit + self.grace:
            return self._end(f"did not stop at its time limit of {limit:g} s; ended after {spent:.0f} s")
        return None

    def _computed(self) -> float:
        return _cpu_seconds(self.process.pid)

    def _bury(self) -> Outcome | None:
        code = self.process.wait()
        words = self._last_words()
        self.was_killed = code < 0
        self.epitaph = (words if code > 0 else "") or f"{_cause(code)}" + (f"; {words}" if words else "")
        if self.job is None:
            self.kill()
            return None  # while it started, or between two jobs: no job is lost
        self.crashed = True
        return self._end(f"the worker crashed: {_cause(code)}" + (f"; {words}" if words else ""))

    def _end(self, reason: str) -> Outcome:
        """What the job had proved until now stays."""
        assert self.job is not None
        outcome = Outcome.cut_short(self._proved, reason, f"pid {self.process.pid}", self._watch.seconds)
        self.kill()
        return outcome

    def kill(self) -> None:
        self.dead = True
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self._errors.close()

    def _last_words(self) -> str:
        """What a dying interpreter wrote: faulthandler's 'Fatal Python error', or the last line (an exception).

        What we say while we compile is no reason to die.
        """
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("LayerCert ")]
        fatal = [line for line in lines if line.startswith("Fatal")]
        return (fatal or lines[-1:] or [""])[0][:300]


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", perhaps by the system because memory ran out" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, all its threads together; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()  # the name before may hold spaces
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def _resident(pid: int) -> int:
    """Resident memory of a process in bytes; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
