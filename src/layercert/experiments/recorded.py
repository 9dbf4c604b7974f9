"""Answers of an earlier reproduction, from its results.csv: a new folder begins with them instead of asking again.

The file holds no witnesses and no version. So a few of its answers are asked anew, on every network: a method whose
searches have changed solves other programs, and then nothing of the file is taken.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from layercert.batch import Job, Outcome, Plan
from layercert.batch.drive import Executor
from layercert.batch.work import unanswered
from layercert.errors import InputError
from layercert.experiments.networks import size_of
from layercert.experiments.setup import LATE, PAPER_METHODS
from layercert.experiments.work import limit_note
from layercert.result import Result, Status
from layercert.search.task import GAP

#: What tells one answer from another: norm, family, stack, network, name of the input, method.
Key: TypeAlias = tuple[str, str, str, str, str, str]
COLUMNS = ("norm", "family", "stack", "limit", "network", "input", "method", "status", "lower", "upper", "programs",
           "cpu_seconds")  # fmt: skip
#: Methods that are recognised by the number of their programs. Our own search hardly solves any.
TAKEN = (*PAPER_METHODS, LATE, "layercert-recursive")
#: An answer that took more seconds, or more than this part of the limit, is not asked anew to test the file.
QUICK, PART = 1.0, 0.25
LIMIT = re.compile(r"(\S+) CPU s")


@dataclass(frozen=True)
class Answer:
    """One line of the file."""

    status: Status
    lower: float
    upper: float
    programs: int
    seconds: float
    limit: float

    def within(self, time_limit: float) -> bool:
        """Is it the answer of a search with that many CPU seconds?"""
        return self.limit == time_limit if self.status == Status.UNDECIDED else self.seconds <= time_limit

    def agrees(self, result: Result) -> bool:
        """Could it be an answer of the same search?"""
        apart = max(self.lower - result.upper, result.lower - self.upper)
        size = max(self.lower, result.lower)
        same = self.status == result.status and self.programs == result.programs
        return same and (apart <= GAP * size)


Answers: TypeAlias = "dict[Key, Answer]"


def read_answers(path: Path) -> Answers:
    """Every answer of a results.csv whose limit counts CPU seconds; failed questions are left out.

    Raises:
        InputError: It is not such a file, or a line of it cannot be read.
    """
    found: Answers = {}
    try:
        with open(path, newline="", encoding="utf-8") as handle:
            lines = csv.DictReader(handle)
            if tuple(lines.fieldnames or ()) != COLUMNS:
                raise InputError(f"'{path.name}' is no results.csv of a reproduction: its first line must be "
                                 f"{','.join(COLUMNS)}")  # fmt: skip
            for number, line in enumerate(lines, 2):
                try:
                    _add(found, line)
                except (TypeError, ValueError) as error:
                    raise InputError(f"line {number} of '{path.name}' is no answer: {error}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the answers in '{path.name}': {error}") from None
    return found


def _add(found: Answers, line: dict[str, str]) -> None:
    limit = LIMIT.fullmatch(line["limit"])
    if limit is None or line["status"] == "failed":
        return
    lower, upper, seconds = (float(line[name]) for name in ("lower", "upper", "cpu_seconds"))
    if not 0 <= lower < math.inf or not lower <= upper or not 0 <= seconds < math.inf:
        raise ValueError(f"lower {lower}, upper {upper}, {seconds} s")
    key = (line["norm"], line["family"], line["stack"], line["network"], line["input"], line["method"])
    found[key] = Answer(Status(line["status"]), lower, upper, int(line["programs"]), seconds, float(limit[1]))


@dataclass(frozen=True)
class Recorded:
    """Workers that are asked only what the file does not answer, and first a few questions that it does."""

    crew: Executor
    answers: Answers
    family: str
    source: str

    def describe(self) -> str:
        return f"{self.crew.describe()}; answers that {self.source} has are taken from there"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        known = {job.id: (job, a) for job in jobs if (a := self._answer(plan, job)) is not None}
        tested = _sample(known, plan.options.time_limit or math.inf)
        known = known if tested else {}
        rest = [job for job in jobs if job.id in tested or job.id not in known]
        waiting = set(tested)
        first = sorted(rest, key=lambda job: job.id not in tested)
        with closing(self.crew.run(plan, first)) as outcomes:  # type: ignore[type-var]
            for outcome in outcomes:
                if outcome.job in waiting:
                    self._compare(plan, *known.pop(outcome.job), outcome)
                    waiting.remove(outcome.job)
                yield outcome
                if not waiting and known:
                    yield from (self._outcome(job, answer) for job, answer in known.values())
                    known = {}

    def _answer(self, plan: Plan, job: Job) -> Answer | None:
        if job.method not in TAKEN or plan.options.time_limit is None:
            return None
        net, name = size_of(plan.models[job.model].name), plan.data.names[job.input]
        answer = self.answers.get((job.norm, self.family, plan.options.stack, net, name, job.method))
        return answer if answer is not None and answer.within(plan.options.time_limit) else None

    def _compare(self, plan: Plan, job: Job, answer: Answer, outcome: Outcome) -> None:
        result = outcome.result
        if not answer.agrees(result):
            raise InputError(
                f"{self.source} is not of this version: {job.method} on {plan.models[job.model].name}, input "
                f"{plan.data.names[job.input]}, is there {answer.status} after {answer.programs} programs, and now "
                f"{result.status} after {result.programs}; leave --from out, and all questions are asked"
            )

    def _outcome(self, job: Job, answer: Answer) -> Outcome:
        found: dict[str, Any] = {name: getattr(answer, name) for name in ("status", "lower", "upper", "programs")}
        note = f"from {self.source}"
        if answer.status == Status.UNDECIDED:
            note = limit_note(note, answer.limit)
        return Outcome(job.id, unanswered(**found, seconds=answer.seconds, method=job.method, note=note), self.source)


def _sample(known: dict[int, tuple[Job, Answer]], time_limit: float) -> set[int]:
    """For each network the first decided answer that is quick to get again; without any, the quickest of all.

    An open answer tests nothing: how far a search comes within a limit is chance.
    """
    decided = {number: pair for number, pair in known.items() if pair[1].status != Status.UNDECIDED}
    quick: dict[int, int] = {}
    for number, (job, answer) in decided.items():
        if answer.seconds <= min(QUICK, PART * time_limit):
            quick.setdefault(job.model, number)
    if decided and not quick:
        return {min(decided, key=lambda number: decided[number][1].seconds)}
    return set(quick.values())
