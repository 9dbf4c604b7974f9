"""The same batch on a Dask cluster: `--scheduler tcp://host:8786` (SLURM, Kubernetes, MPI: wherever Dask runs).

Only this process writes the run; workers get a network (as bytes, kept by the scheduler, so that it can be sent again
when a worker dies) and a point, and return an outcome. Dask repeats the jobs of a worker that vanished; a job that
takes its worker down again and again is given up, with the bounds it had proved: workers say them on the way, as events
of the scheduler. A job that does not stop at its time limit is given up too, and its worker started again.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4

from layercert.arrays import Vector
from layercert.batch.errors import RunError
from layercert.batch.news import Compiling, JobClock, Proved, telling
from layercert.batch.plan import GRACE, Job, Options, Plan
from layercert.batch.rows import network_bytes, network_from
from layercert.batch.searches import with_searches
from layercert.batch.work import Outcome, warm_up
from layercert.errors import MissingPackageError
from layercert.network import Network
from layercert.search.cluster import check_workers, connect
from layercert.system import clock

#: Jobs in the hands of the scheduler for each thread of the cluster: enough to keep all busy, few enough to stay light.
AHEAD = 4
#: How often (seconds) finished and overdue jobs are looked at, and how often a worker says its bounds at most: they go
#: through the scheduler, which may have hundreds of workers.
TICK, SELDOM = 0.02, 2.0


@dataclass(frozen=True)
class DaskCluster:
    """Run jobs on the workers of a Dask scheduler; `work` names the function that does a job."""

    scheduler: str
    work: str = "layercert.batch.work:solve"
    connect_timeout: float = 30.0
    worker_timeout: float = 300.0
    grace: float = GRACE

    def describe(self) -> str:
        return f"Dask cluster at {self.scheduler}"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        try:
            from distributed import as_completed
        except ImportError:
            raise MissingPackageError("distributed", "running on a Dask cluster", "dask") from None
        client = connect(self.scheduler, self.connect_timeout, RunError)
        try:
            check_workers(client, self.scheduler, self.worker_timeout, RunError)
            yield from self._drive(client, plan, jobs, as_completed(loop=client.loop))
        except (OSError, TimeoutError, CancelledError):
            raise self._lost() from None
        finally:
            with suppress(Exception):  # closing releases the futures: what still runs is cancelled
                client.close(timeout=5)

    def _drive(self, client: Any, plan: Plan, jobs: Sequence[Job], running: Any) -> Iterator[Outcome]:
        # pure tasks with bytes as their argument: whoever needs the network again can have it computed again
        networks = [client.submit(_network, network_bytes(m.network), m.network.sha256) for m in plan.models]
        waiting, owners, session = list(reversed(jobs)), dict[str, tuple[Job, Any]](), uuid4().hex
        suspects: list[Job] = []
        heard = _Heard(plan.options.job_limit, self.grace)
        client.subscribe_topic(session, heard.event)
        while waiting or owners or suspects:
            alone = not waiting and not owners
            room = AHEAD * max(_threads(client), 1) - len(owners) if waiting else 0
            for job in [suspects.pop()] if alone else [waiting.pop() for _ in range(min(room, len(waiting)))]:
                found = with_searches(job)
                asked = (networks[job.model], plan.data.X[job.input], plan.label(job.input), found, plan.options)
                key = f"layercert-{session}-{job.id}{'-alone' if alone else ''}"
                future = client.submit(_work, self.work, session, *asked, key=key, pure=False)
                owners[key] = job, future
                running.add(future)
            if not running.has_ready():
                time.sleep(TICK)
                yield from _give_up_late_ones(client, heard, owners)
                continue
            future = next(running)
            if future.key not in owners:
                continue  # given up before
            job, _ = owners.pop(future.key)
            if future.status in ("pending", "lost") and client.status == "running":
                owners[future.key] = job, future  # its result died with a worker: Dask computes it again
                running.add(future)
            # Dask blames every job that waited at a worker when it died: the blamed ones run again, one by one
            elif _killed_its_worker(future) and not future.key.endswith("-alone"):
                suspects.append(job)
            else:
                yield self._outcome(future, heard.proved(job))

    def _outcome(self, future: Any, proved: Proved) -> Outcome:
        if future.status == "finished":
            outcome = future.result()
            assert isinstance(outcome, Outcome)
            return outcome
        if future.status == "error":
            if _killed_its_worker(future):
                reason = "the worker crashed again and again (or exceeded its memory limit) on this job"
                return Outcome.cut_short(proved, reason)
            error = future.exception()
            return Outcome.cut_short(proved, f"{type(error).__name__}: {error}")
        raise self._lost()

    def _lost(self) -> RunError:
        return RunError(
            f"the scheduler at {self.scheduler} went away; what is finished is kept: give the same command again"
        )


class _Heard:
    """What workers have said about the jobs they run; the scheduler's events arrive in a thread of their own."""

    def __init__(self, time_limit: float | None, grace: float) -> None:
        self._limit = None if time_limit is None else 2 * time_limit + grace
        self._reason = f"did not stop at its time limit of {time_limit} s"
        self._proved: dict[int, Proved] = {}
        self._clocks: dict[int, tuple[JobClock, str]] = {}  # with the address of the worker
        self._lock = threading.Lock()

    def event(self, event: tuple[float, tuple[str, bytes]]) -> None:
        worker, message = event[1][0], pickle.loads(event[1][1])
        with self._lock:
            match message:
                case Proved():
                    known = self._proved.get(message.job)
                    self._proved[message.job] = message if known is None else message.joined(known)
                case ("began", int(job)):
                    self._clocks[job] = (JobClock(), worker)
                case ("ended", int(job)):
                    self._clocks.pop(job, None)
                case Compiling(on):
                    for clock in [clock for clock, where in self._clocks.values() if where == worker]:
                        clock.stop() if on else clock.go_on()

    def proved(self, job: Job) -> Proved:
        with self._lock:
            self._clocks.pop(job.id, None)
            return self._proved.pop(job.id, Proved(job.id))

    def overdue(self) -> list[tuple[Outcome, str]]:
        """Jobs that are far beyond their time limit, each with its worker."""
        if self._limit is None:
            return []
        with self._lock:
            late = [(job, *found) for job, found in self._clocks.items() if found[0].seconds > self._limit]
            for job, _, _ in late:
                del self._clocks[job]
        return [
            (
                Outcome.cut_short(
                    self._proved.pop(job, Proved(job)),
                    f"{self._reason}; given up after {clock.seconds:.0f} s",
                    worker,
                    clock.seconds,
                ),
                worker,
            )
            for job, clock, worker in late
        ]


def _give_up_late_ones(client: Any, heard: _Heard, owners: dict[str, tuple[Job, Any]]) -> Iterator[Outcome]:
    for outcome, worker in heard.overdue():
        for key in [key for key, (job, _) in owners.items() if job.id == outcome.job]:
            _, future = owners.pop(key)
            with suppress(Exception):  # without a nanny the worker stays busy; the batch goes on with the others
                client.cancel([future], force=True)
                client.restart_workers([worker], timeout=30, raise_for_error=False)
            yield outcome


def _killed_its_worker(future: Any) -> bool:
    return future.status == "error" and type(future.exception()).__name__ == "KilledWorker"


def _threads(client: Any) -> int:
    """Threads of all workers now; workers come and go."""
    return sum(client.nthreads().values())


def _network(blob: bytes, sha256: str) -> Network:
    network = network_from(blob)
    if network.sha256 != sha256:
        raise RunError("the network changed on its way to the worker")
    return network


def _work(name: str, topic: str, network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    from distributed import get_worker

    worker = get_worker()

    def say(message: object) -> None:
        worker.log_event(topic, (worker.address, pickle.dumps(message)))

    module, _, function = name.partition(":")
    warm_up(options)
    say(("began", job.id))
    try:
        with telling(say, SELDOM), clock.listening(lambda on: say(Compiling(on))):
            outcome = getattr(import_module(module), function)(network, x, label, job, options)
    finally:
        say(("ended", job.id))
    assert isinstance(outcome, Outcome)
    return outcome
