"""Jobs on this machine: one process per core, one thread each, a crash costs one job a second try."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait

from layercert.batch.errors import RunError
from layercert.batch.plan import GRACE, Job, Plan
from layercert.batch.process import WorkerProcess
from layercert.batch.work import Outcome
from layercert.errors import OptionError
from layercert.how import is_count

#: How often (seconds) memory and overdue jobs are looked at.
TICK = 0.1
#: So many workers in a row may be killed while they start: the system may be short of memory for a moment.
STARTS = 4


@dataclass(frozen=True)
class LocalProcesses:
    """Worker processes on this machine.

    Attributes:
        jobs: How many, one thread each.
        memory: Bytes of resident memory that a worker may take; None for no limit.
        work: The function that does a job, as "module:name".
        grace: Seconds beyond twice the time limit after which a worker is ended; compiling does not count.
        pause: Seconds before a worker that was killed while it started is started again.
    """

    jobs: int = 1
    memory: int | None = None
    work: str = "layercert.batch.work:solve"
    grace: float = GRACE
    pause: float = 1.0

    def __post_init__(self) -> None:
        if not is_count(self.jobs):
            raise OptionError(f"a batch needs at least one worker process, got {self.jobs!r:.60}")

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
        crew = _Crew(self, plan, deque(jobs), min(self.jobs, len(jobs)), asked={job.id: job for job in jobs})
        try:
            yield from crew.outcomes()
        finally:
            for worker in crew.workers:
                worker.kill()


@dataclass(eq=False)
class _Crew:
    """The workers of one session, and the jobs that wait for them."""

    terms: LocalProcesses
    plan: Plan
    waiting: deque[Job]
    size: int
    workers: list[WorkerProcess] = field(default_factory=list)
    first_tries: dict[int, Outcome] = field(default_factory=dict)  # what a job proved before it took its worker down
    asked: dict[int, Job] = field(default_factory=dict)  # what was handed out, by its id
    lost_starts: int = 0  # workers in a row that were killed while they started

    def outcomes(self) -> Iterator[Outcome]:
        self.workers.append(self._hire())
        while self.waiting or any(worker.busy for worker in self.workers):
            if self.workers[0].ready and len(self.workers) < self.size:
                # only now: what the first one had to compile, the others find in the cache
                self.workers += [self._hire() for _ in range(self.size - len(self.workers))]
            heard = set(wait([worker.pipe for worker in self.workers], timeout=TICK))
            for worker in tuple(self.workers):
                outcome = worker.listen() if worker.pipe in heard else worker.overstepped()
                if outcome is not None:
                    outcome = self._settled(worker, outcome)
                if worker.dead:
                    self._replace(worker)
                elif worker.ready and not worker.busy and self.waiting:
                    worker.give(self.waiting.popleft())  # before the outcome is written: nobody waits for the disk
                if outcome is not None:
                    yield outcome

    def _settled(self, worker: WorkerProcess, outcome: Outcome) -> Outcome | None:
        """The outcome with what an earlier try has proved; None when the job is to be tried once more."""
        earlier = self.first_tries.pop(outcome.job, None)
        if earlier is not None:
            if outcome.ended:
                twice = f"{outcome.result.note} (tried twice)"
                outcome = replace(outcome, result=replace(outcome.result, note=twice))
            return outcome.joined(earlier)
        if not worker.crashed:
            return outcome
        # killed by the system or by its own fault: at the end, when there may be more memory, it may go right
        self.first_tries[outcome.job] = outcome
        self.waiting.append(self.asked[outcome.job])
        return None

    def _replace(self, gone: WorkerProcess) -> None:
        """Another worker in the place of one that died; the others do without it when none can be started."""
        self.workers.remove(gone)
        self.lost_starts = 0 if gone.ready else self.lost_starts + 1
        if self.lost_starts and (not gone.was_killed or self.lost_starts >= STARTS):
            self.size = len(self.workers)
            if any(worker.ready for worker in self.workers):
                return
            many = f" ({self.lost_starts} in a row)" if self.lost_starts > 1 else ""
            raise RunError(
                f"a worker process cannot start{many}: {gone.epitaph}; what is finished is kept: give the same command "
                "again once that is mended, with fewer --jobs if memory is short"
            )
        if self.lost_starts:
            time.sleep(self.terms.pause)
        self.workers.append(self._hire())

    def _hire(self) -> WorkerProcess:
        return WorkerProcess(self.plan, self.terms.work, self.terms.memory, self.terms.grace)
