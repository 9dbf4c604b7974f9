"""One job, wherever it runs: in a local worker process or on a cluster."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from layercert.arrays import Vector
from layercert.attack.strict import Holds
from layercert.batch.news import Proved, Teller
from layercert.batch.plan import Job, Options
from layercert.errors import LayerCertError
from layercert.network import Network
from layercert.result import Result, Status, Verdict
from layercert.run import measure, verify
from layercert.system import clock

#: The status of a job that ended without any bounds; the others are those of `Result`.
FAILED = "failed"
UNDECIDED = str(Status.UNDECIDED)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What is stored about a finished job. A failed one has a reason and no bounds beyond 0 <= distance.

    `ended`: something went wrong on the way, which may go right another time; the bounds proved until then hold.
    """

    job: int
    status: str
    lower: float = 0.0
    upper: float = math.inf
    label: int | None = None
    target: int | None = None
    witness: Vector | None = None
    programs: int = 0
    seconds: float = 0.0
    note: str = ""
    worker: str = ""
    certificate: Any = None
    ended: bool = False
    used: str = ""  # the method that answered, which may have been chosen for this job
    holds: Holds | None = None  # in which arithmetics the witness is one
    saved: dict[str, bytes] | None = None  # searches that a time limit left open, by name
    result: Result | None = None  # the whole answer, where one was given; what else it says is not stored

    @staticmethod
    def failed(job: int, reason: str, worker: str = "", seconds: float = 0.0) -> Outcome:
        return Outcome(job, FAILED, note=reason, worker=worker, seconds=seconds, ended=True)

    @staticmethod
    def cut_short(proved: Proved, reason: str, worker: str = "", seconds: float = 0.0) -> Outcome:
        """Undecided with the bounds proved before it ended; failed when there were none."""
        if proved.nothing:
            return Outcome.failed(proved.job, reason, worker, seconds)
        return Outcome(
            job=proved.job,
            status=UNDECIDED,
            lower=min(proved.lower, proved.upper),
            upper=proved.upper,
            label=proved.label,
            target=proved.target,
            witness=proved.witness,
            programs=proved.programs,
            seconds=seconds,
            note=reason,
            worker=worker,
            ended=True,
        )

    @staticmethod
    def of(job: Job, result: Result, worker: str) -> Outcome:
        return Outcome(
            job=job.id,
            status=str(result.status),
            lower=result.lower,
            upper=result.upper,
            label=result.label,
            target=result.target,
            witness=result.witness,
            programs=result.programs,
            seconds=result.seconds,
            note=result.note,
            worker=worker,
            certificate=result.certificate,
            used=result.method,
            holds=result.holds,
            result=result,
        )

    @property
    def decided(self) -> bool:
        return self.status not in (UNDECIDED, FAILED)

    def joined(self, other: Outcome) -> Outcome:
        """This answer with the bounds that another try at the same job has proved, where they are better."""
        if self.decided or (other.lower <= self.lower and other.upper >= self.upper):
            return self
        nearer = other if other.upper < self.upper else self
        return replace(
            self,
            status=UNDECIDED,
            lower=min(max(self.lower, other.lower), nearer.upper),
            upper=nearer.upper,
            label=other.label if self.label is None else self.label,
            target=nearer.target,
            witness=nearer.witness,
            holds=nearer.holds,
        )


Work: TypeAlias = Callable[[Network, Vector, int | None, Job, Options], Outcome]


@cache
def warm_up(options: Options) -> None:
    """Compile every kernel (or read it from the cache) before a clock runs: each norm and method on a tiny network."""
    rng = np.random.default_rng(0)
    sizes = (3, 6, 6, 3)  # few regions, but enough for every search to branch
    tiny = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    )
    domain = None if options.domain is None and not options.fixed else (0.0, 1.0)
    for norm in options.norms:
        for method in options.methods:
            for x in ([0.2, 0.3, 0.4], [0.9, 0.1, 0.7]):
                with suppress(LayerCertError):  # a method that cannot take this norm says so in its own jobs
                    if options.eps:
                        verify(
                            tiny, x, 0.1, norm, None, domain, method, None, options.certificates, stack=options.stack
                        )
                    measure(tiny, x, norm, None, None, domain, method, None, options.certificates, stack=options.stack)


def solve(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """Answer one job; what goes wrong inside Python ends it with the reason and the bounds proved until then."""
    from layercert.batch.searches import Searches, can_be_kept

    worker, started = f"{socket.gethostname()}:{os.getpid()}", clock.now()
    wanted = job.keep and can_be_kept(network, job, options)
    with Teller(job.id) as teller, Searches(job.saved, wanted) as searches:
        asked: dict[str, Any] = {
            "norm": job.norm, "label": label, "domain": options.domain, "method": job.method,
            "time_limit": options.time_limit, "certificate": options.certificates, "stack": options.stack,
            "gap": options.gap, "threads": options.threads, "watch": teller.watch, **options.question,
        }  # fmt: skip
        try:
            if options.eps:
                outcome = _at_each(
                    options.eps,
                    lambda radius: verify(network, x, radius, save=searches.file(f"radius {radius!r}"), **asked),
                    job,
                    worker,
                )
            else:
                save = searches.file("distance")
                outcome = Outcome.of(job, measure(network, x, radius=options.radius, save=save, **asked), worker)
            return outcome if outcome.decided else replace(outcome, saved=searches.all())
        except MemoryError:
            reason = "out of memory: the memory limit of the worker was reached"
        except Exception as error:  # one bad job must not take the batch down; the reason is in its row
            reason = f"{type(error).__name__}: {error}"
        return Outcome.cut_short(teller.latest, reason, worker, clock.now() - started)


def _at_each(eps: Sequence[float], ask: Callable[[float], Result], job: Job, worker: str) -> Outcome:
    """Verify at each radius that the answers before leave open, the middle one first.

    Robust at one radius is robust at all smaller ones, and a witness within one is within all larger ones. The outcome
    holds the bounds: `robust` at every radius, `not_robust` when each is decided one way or the other.
    """
    proved, outcome, waiting = 0.0, Outcome(job.id, UNDECIDED, worker=worker), list(eps)
    while waiting:
        radius = waiting.pop(len(waiting) // 2)
        result = ask(radius)
        if result.status == Verdict.ROBUST:
            proved = max(proved, radius)
        outcome = _with_answer(outcome, result, proved)
        waiting = [e for e in waiting if _is_open(e, outcome, proved)]
    if proved >= max(eps):
        return replace(outcome, status=str(Verdict.ROBUST))
    if any(_is_open(e, outcome, proved) for e in eps):
        return outcome
    return replace(outcome, status=str(Verdict.NOT_ROBUST), note="")


def _is_open(radius: float, outcome: Outcome, proved: float) -> bool:
    return radius > proved and outcome.lower <= radius < outcome.upper


def _with_answer(known: Outcome, result: Result, proved: float) -> Outcome:
    """One more answer: the bounds join, times and programs add up, a proof of robustness is the one to keep."""
    nearer = result.upper < known.upper
    keep = known.certificate is not None and result.status != Verdict.ROBUST
    return replace(
        known,
        lower=max(known.lower, result.lower, proved),
        upper=min(known.upper, result.upper),
        label=result.label,
        target=result.target if nearer else known.target,
        witness=result.witness if nearer else known.witness,
        holds=result.holds if nearer else known.holds,
        used=result.method,
        programs=known.programs + result.programs,
        seconds=known.seconds + result.seconds,
        note="; ".join(dict.fromkeys(part for part in (known.note, result.note) if part)),
        certificate=known.certificate if keep else result.certificate,
    )
