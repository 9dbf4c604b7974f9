"""What a worker says while a job runs: the bounds proved so far, which are kept when it is ended, and its clock.

Jobs find out where to say it from the context they run in (`telling`), so that a function that does a job needs to know
nothing of pipes and clusters.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeAlias

from layercert.arrays import Vector
from layercert.run import Progress
from layercert.search.events import Event

#: Bounds are sent at most this often (seconds); what waits is sent by a thread, also while a kernel runs.
PAUSE = 0.1


@dataclass(frozen=True, eq=False)
class Proved:
    """What a job has proved so far: lower <= distance <= upper, with a witness at upper."""

    job: int
    lower: float = 0.0
    upper: float = math.inf
    label: int | None = None
    target: int | None = None
    witness: Vector | None = None
    programs: int = 0

    @property
    def nothing(self) -> bool:
        """No more than everybody knows beforehand."""
        return self.lower <= 0.0 and self.upper == math.inf

    def joined(self, other: Proved) -> Proved:
        """The best bounds of both: each of them holds."""
        nearer = other if other.upper < self.upper else self
        return replace(
            self,
            lower=max(self.lower, other.lower),
            upper=nearer.upper,
            label=other.label if self.label is None else self.label,
            target=nearer.target,
            witness=nearer.witness,
        )


@dataclass(frozen=True)
class Compiling:
    """The worker's clock stands still while it makes machine code, and so does the watchdog."""

    on: bool


class JobClock:
    """Seconds of one job, without those in which the worker compiles; `read` says which seconds."""

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read or time.monotonic
        self._since, self._before = self._read(), 0.0
        self.running = True

    @property
    def seconds(self) -> float:
        return self._before + (self._read() - self._since if self.running else 0.0)

    def stop(self) -> None:
        self._before, self.running = self.seconds, False

    def go_on(self) -> None:
        self._since, self.running = self._read(), True


Send: TypeAlias = Callable[[Proved], None]
#: Who is told by the jobs of this context, and how often at most.
_audience: ContextVar[tuple[Send | None, float]] = ContextVar("audience", default=(None, PAUSE))


@contextmanager
def telling(send: Send, pause: float = PAUSE) -> Iterator[None]:
    """Jobs that run inside say what they have proved to `send`, which several threads may call."""
    token = _audience.set((send, pause))
    try:
        yield
    finally:
        _audience.reset(token)


class Teller:
    """Listens to one search (`watch`) and tells its bounds; `latest` is what the search has proved last."""

    def __init__(self, job: int) -> None:
        self.latest = Proved(job)
        self._send, self._pause = _audience.get()
        self._lock = threading.Lock()
        self._told = self.latest
        self._next = time.monotonic() + self._pause  # most jobs are over before anybody needs to hear of them

    def watch(self, progress: Progress, event: Event | None = None) -> None:
        known = self.latest
        if progress.lower <= known.lower and progress.upper >= known.upper:
            return
        now = Proved(
            known.job,
            progress.lower,
            progress.upper,
            progress.problem.label,
            None if progress.clause is None else progress.clause.target,
            progress.witness,
            progress.chain.programs,
        )
        self.latest = now.joined(known)  # what an earlier search of the same job proved still holds
        self.tell()

    def tell(self) -> None:
        """Send what is new, if it is time."""
        with self._lock:
            if self._send is None or self._told is self.latest or time.monotonic() < self._next:
                return
            self._told, self._next = self.latest, time.monotonic() + self._pause
            with suppress(OSError):  # nobody is there any more: whoever runs the job finds out
                self._send(self._told)

    def __enter__(self) -> Teller:
        if self._send is not None:
            _Courier.serve(self)
        return self

    def __exit__(self, *_: object) -> None:
        _Courier.leave(self)
        with self._lock:
            self._send = None  # nothing is said about a job after its end


class _Courier:
    """One thread per process that sends what waits, since a search may be silent for long after its last bound."""

    _tellers: tuple[Teller, ...] = ()
    _lock = threading.Lock()
    _thread: threading.Thread | None = None

    @classmethod
    def serve(cls, teller: Teller) -> None:
        with cls._lock:
            cls._tellers = (*cls._tellers, teller)
            if cls._thread is None:
                cls._thread = threading.Thread(target=cls._run, name="courier", daemon=True)
                cls._thread.start()

    @classmethod
    def leave(cls, teller: Teller) -> None:
        with cls._lock:
            cls._tellers = tuple(t for t in cls._tellers if t is not teller)

    @classmethod
    def _run(cls) -> None:
        while True:
            time.sleep(PAUSE)
            for teller in cls._tellers:
                teller.tell()
