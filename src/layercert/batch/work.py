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
from layercert.attack.strict import examine
from layercert.batch.news import Proved, Teller
from layercert.batch.plan import Job, Options, Plan
from layercert.errors import LayerCertError
from layercert.network import Network
from layercert.problem import robustness
from layercert.result import Result, Status, Verdict
from layercert.run import measure, verify
from layercert.system import clock

#: The status of a job that ended without any bounds; the others are those of `Result`.
FAILED = "failed"
UNDECIDED = str(Status.UNDECIDED)


def unanswered(**known: Any) -> Result:
    """The result of a question that nobody has answered, but for what is given: 0 <= distance."""
    nothing = Result(
        status=Status.UNDECIDED, lower=0.0, upper=math.inf, witness=None, target=None, label=None, norm="",
        radius=math.inf, method="", programs=0, seconds=0.0,
    )  # fmt: skip
    return replace(nothing, **known)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished job: who did it, and its result. Where the job failed the note is the reason, and nothing is proved.

    Attributes:
        job: Its number in the plan.
        result: The answer, or what was proved until the job was ended.
        worker: Who did it.
        ended: Something went wrong on the way, which may go right another time; the bounds proved until then hold.
        saved: Searches that a time limit left open, by name.
        curve: The bounds over time, for experiments: rows of (seconds, lower, upper).
    """

    job: int
    result: Result
    worker: str = ""
    ended: bool = False
    saved: dict[str, bytes] | None = None
    curve: list[tuple[float, float, float | None]] | None = None

    @staticmethod
    def failed(job: int, reason: str, worker: str = "", seconds: float = 0.0) -> Outcome:
        return Outcome(job, unanswered(note=reason, seconds=seconds), worker, ended=True)

    @staticmethod
    def cut_short(proved: Proved, reason: str, worker: str = "", seconds: float = 0.0) -> Outcome:
        """With the bounds proved before it ended; failed when there were none."""
        result = unanswered(
            lower=min(proved.lower, proved.upper),
            upper=proved.upper,
            label=proved.label,
            target=proved.target,
            witness=proved.witness,
            programs=proved.programs,
            seconds=seconds,
            note=reason,
        )
        return Outcome(proved.job, result, worker, ended=True)

    @property
    def status(self) -> str:
        """That of the result, or `FAILED` where the job was ended before anything was proved."""
        nothing = self.result.lower <= 0.0 and self.result.upper == math.inf
        return FAILED if self.ended and nothing else str(self.result.status)

    @property
    def decided(self) -> bool:
        return self.status not in (UNDECIDED, FAILED)

    def joined(self, other: Outcome) -> Outcome:
        """This answer with the bounds that another try at the same job has proved, where they are better."""
        own, known = self.result, other.result
        if self.decided or (known.lower <= own.lower and known.upper >= own.upper):
            return self
        result = own.with_witness_of(known) if known.upper < own.upper else own
        lower = min(max(own.lower, known.lower), result.upper)
        label = known.label if own.label is None else own.label
        return replace(self, result=replace(result, status=Status.UNDECIDED, lower=lower, label=label))

    def examined(self, plan: Plan) -> Outcome:
        """With what is true of the witness, where the job was ended before anybody looked."""
        result, job, options = self.result, plan.jobs[self.job], plan.options
        if result.witness is None or result.holds is not None:
            return self
        problem = robustness(
            plan.models[job.model].network, plan.data.X[job.input], job.norm, result.label, options.radius,
            options.domain, **options.question,
        )  # fmt: skip
        return replace(self, result=replace(result, holds=examine(problem, result.witness)))


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

    worker, wanted = f"{socket.gethostname()}:{os.getpid()}", job.keep and can_be_kept(network, job, options)
    with (
        clock.of_processor(options.cpu_time),
        Teller(job.id) as teller,
        Searches(job.saved, wanted) as searches,
    ):
        started = clock.now()
        asked: dict[str, Any] = {
            "norm": job.norm, "label": label, "domain": options.domain, "method": job.method,
            "time_limit": options.time_limit, "certificate": options.certificates, "stack": options.stack,
            "gap": options.gap, "threads": options.threads, "watch": teller.watch, **options.question,
        }  # fmt: skip
        try:
            if options.eps:
                result = at_each(
                    options.eps,
                    lambda radius: verify(network, x, radius, save=searches.file(f"radius {radius!r}"), **asked),
                )
            else:
                result = measure(network, x, radius=options.radius, save=searches.file("distance"), **asked)
            outcome = Outcome(job.id, result, worker)
            return outcome if outcome.decided else replace(outcome, saved=searches.all())
        except MemoryError:
            reason = "out of memory: the memory limit of the worker was reached"
        except Exception as error:  # one bad job must not take the batch down; the reason is in its row
            reason = f"{type(error).__name__}: {error}"
        return Outcome.cut_short(teller.latest, reason, worker, clock.now() - started)


def at_each(eps: Sequence[float], ask: Callable[[float], Result]) -> Result:
    """Verify at each radius that the answers before leave open, the middle one first.

    Robust at one radius is robust at all smaller ones, and a witness within one is within all larger ones. The result
    holds the bounds: `robust` at every radius, `not_robust` when each is decided one way or the other.
    """
    proved, known, waiting = 0.0, unanswered(status=Verdict.UNDECIDED), list(eps)
    while waiting:
        radius = waiting.pop(len(waiting) // 2)
        result = ask(radius)
        if result.status == Verdict.ROBUST:
            proved = max(proved, radius)
        known = replace(_with_answer(known, result, proved), radius=max(eps))
        proved = max([proved, *(e for e in eps if e < known.lower)])  # more may be proved than was asked
        waiting = [e for e in waiting if _is_open(e, known, proved)]
    if proved >= max(eps):
        return replace(known, status=Verdict.ROBUST)
    if any(_is_open(e, known, proved) for e in eps):
        return known
    return replace(known, status=Verdict.NOT_ROBUST, note="")


def _is_open(radius: float, known: Result, proved: float) -> bool:
    return radius > proved and known.lower <= radius < known.upper


def _with_answer(known: Result, result: Result, proved: float) -> Result:
    """One more answer: the bounds join, times and programs add up, a proof of robustness is the one to keep."""
    keep = known.certificate is not None and result.status != Verdict.ROBUST
    return replace(
        result if result.upper < known.upper else result.with_witness_of(known),
        status=Verdict.UNDECIDED,
        lower=max(known.lower, result.lower, proved),
        programs=known.programs + result.programs,
        seconds=known.seconds + result.seconds,
        note="; ".join(dict.fromkeys(part for part in (known.note, result.note) if part)),
        certificate=known.certificate if keep else result.certificate,
    )
