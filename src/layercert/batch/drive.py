"""Run a batch: take the folder, write the plan, hand out what is missing, record each outcome as it comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from layercert.batch.certificates import save_certificate
from layercert.batch.folder import hold
from layercert.batch.plan import Job, Plan
from layercert.batch.searches import keep_searches, path_of
from layercert.batch.store import Store
from layercert.batch.work import FAILED, Outcome
from layercert.batch.writer import Writer


class Executor(Protocol):
    """Where jobs run. `run` yields outcomes as they finish; closing the generator stops the work."""

    def describe(self) -> str: ...

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]: ...


@dataclass
class Tally:
    """How far a batch is."""

    total: int
    earlier: int = 0  # done before this session
    counts: Counter[str] = field(default_factory=Counter)
    ended: int = 0  # failed or ended before their time: another try may answer them

    @property
    def done(self) -> int:
        return self.counts.total()

    @property
    def open(self) -> int:
        """Jobs without a decided answer: not done, undecided or failed."""
        return self.total - self.done + self.counts["undecided"] + self.counts[FAILED]


Watch = Callable[[Tally, Job | None, Outcome | None], None]


def run_batch(
    plan: Plan,
    folder: Path,
    executor: Executor,
    watch: Watch | None = None,
    retry_failed: bool = False,
    resume_undecided: bool | Collection[int] = False,
    more_inputs: bool = False,
    another_limit: bool = False,
) -> Tally:
    """Finish the run in the folder; what is already there is kept.

    Args:
        plan: What is asked. A folder that holds another plan is refused.
        folder: Where the run lives; made if missing.
        executor: Where the work is done: `LocalProcesses` or a Dask cluster.
        watch: Called as watch(tally, job, outcome) when an outcome is there.
        retry_failed: Do jobs again that failed or were ended before their time; the bounds they had stay.
        resume_undecided: Go on with jobs that reached their time limit, from where each stopped: True for all of them,
            or the numbers of some; the plan's time limit may be another one than before.
        more_inputs: Let a run grow: the plan may have further inputs after those of the run in the folder.
        another_limit: Let the plan's time limit be another one than before, also where nothing is resumed.

    Returns:
        How many answers of which kind the whole run holds.

    Raises:
        InputError: An input does not fit a model; nothing was started.
        RunError: The folder is in use, belongs to another plan or cannot be written, or its file is damaged.
    """
    plan.check()
    with hold(folder, plan), closing(Store(folder)) as store:
        store.adopt(plan, another_limit=another_limit or bool(resume_undecided), more_inputs=more_inputs)
        done, again = store.done(), store.ended()
        late = store.undecided() - again if resume_undecided else set()
        if not isinstance(resume_undecided, bool):
            late &= set(resume_undecided)
        more = (again if retry_failed else set()) | late
        # their rows stay until there are better ones
        done, again = {job: status for job, status in done.items() if job not in more}, again - more
        tally = Tally(len(plan.jobs), len(done), Counter(done.values()), len(again))
        missing = [
            replace(job, keep=True, search=path_of(folder, job.id) if job.id in more else None)
            for job in plan.jobs
            if job.id not in done
        ]
        if watch is not None:
            watch(tally, None, None)
        if not missing:
            return tally
        store.begin_session(executor.describe())
        with Writer(store) as writer, closing(executor.run(plan, missing)) as outcomes:  # type: ignore[type-var]
            for answered in outcomes:
                if answered.job in done:
                    continue  # a job is never counted twice
                outcome = answered.examined(plan)
                done[outcome.job] = outcome.status
                keep_searches(folder, outcome)
                writer.put(replace(outcome, saved=None), save_certificate(folder, outcome))
                tally.counts[outcome.status] += 1
                tally.ended += outcome.ended
                if watch is not None:
                    watch(tally, plan.jobs[outcome.job], outcome)
    return tally
