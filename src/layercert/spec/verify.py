"""verify_spec: is there a counterexample to a property? sat, unsat, timeout or unknown, as VNN-COMP names them.

The cases of a property share the time: each gets a slice, twice as long at every round, so that easy cases are out of
the way before hard ones use up the budget. One counterexample ends all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate
from layercert.certify import BY_RATIONALS, Recording, Unproved, prove
from layercert.how import deadline_of, deadline_of_proof
from layercert.methods import INPUT_SPLIT, method_named
from layercert.network import Network
from layercert.problem import Problem
from layercert.session import GRACE, How, Session
from layercert.spec.cases import Case, Spec
from layercert.spec.counterexample import Counterexample, Grid, holds_exactly, realise, run_at
from layercert.spec.falsify import falsify, look_again
from layercert.spec.last_resort import Verdict, decide
from layercert.spec.problems import check_fit, problem_of
from layercert.spec.proofs import check_spec
from layercert.spec.sieve import closed_at_once
from layercert.system import clock
from layercert.system.threads import one_thread, side_by_side

#: Seconds of the first slice of a case, when there are several.
SLICE = 0.2
#: A case that was searched for so many seconds is looked at for counterexamples again, and again after so many times as
#: many.
LOOK, LOOKS_APART = 1.0, 4.0
#: Where the unsafe set is only touched (or missed by less than rounding), points unsafe by this much are looked for.
SHRINK = 1e-6
#: The method's name where rational arithmetic gave the answer.
RATIONALS = "rationals"


class Answer(StrEnum):
    """What is known of the property's constraints.

    Attributes:
        SAT: There is a counterexample, checked in exact arithmetic.
        UNSAT: There is none, proved for the network as a function of real numbers.
        TIMEOUT: The time limit was reached.
        UNKNOWN: Neither could be proved.
    """

    SAT = "sat"
    UNSAT = "unsat"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"

    @property
    def meaning(self) -> str:
        """The answer as a sentence."""
        return {
            Answer.SAT: "there is a counterexample, checked in exact arithmetic",
            Answer.UNSAT: "there is none, proved for the network as a function of real numbers",
            Answer.TIMEOUT: "the time limit was reached",
            Answer.UNKNOWN: "neither could be proved",
        }[self]


@dataclass(frozen=True, eq=False)
class SpecResult:
    """The answer to a property.

    Attributes:
        answer: sat, unsat, timeout or unknown.
        counterexample: The counterexample, when sat.
        method: The searches used, or "samples" where random points found a counterexample.
        seconds: Wall seconds, without compiling.
        cases: Input boxes of the property.
        closed: Boxes proved to hold no counterexample.
        programs: Convex programs solved.
        note: What else there is to say, such as why the answer is unknown.
        certificates: The proofs, if asked for: one per case when unsat, one in all when sat.
    """

    answer: Answer
    counterexample: Counterexample | None
    method: str
    seconds: float
    cases: int
    closed: int
    programs: int
    note: str = ""
    certificates: tuple[Certificate, ...] = ()

    def __str__(self) -> str:
        text = f"{self.answer}: {self.closed} of {self.cases} cases closed, {self.method}, {self.seconds:.2f} s"
        return f"{text}; {self.note}" if self.note else text

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        Returns:
            A dictionary of numbers, strings and lists.
        """
        found = self.counterexample
        return {
            "answer": str(self.answer),
            "method": self.method,
            "seconds": self.seconds,
            "cases": self.cases,
            "closed": self.closed,
            "programs": self.programs,
            "note": self.note,
            "inputs": None if found is None else list(found.inputs),
            "outputs": None if found is None else list(found.outputs),
            "runtime": None if found is None else found.runtime,
            "runtime_agrees": None if found is None else found.runtime_agrees,
        }


# The signature is a contract, as that of `verify`; inside, options travel in a How.
def verify_spec(
    network: Network,
    spec: Spec,
    time_limit: float | None = None,
    method: str | None = None,
    certificate: bool = False,
    stack: str = "default",
    threads: int | None = None,
    *,
    memory: int | None = None,
    scheduler: str | None = None,
) -> SpecResult:
    """Decide a property: a counterexample, a proof that there is none, or the reason why neither was reached.

    Args:
        network: The network that the property speaks about.
        spec: The property, from `load_spec`.
        time_limit: Seconds, shared by the cases; None for no limit.
        method: Name of the search; by default the one that measured best for such a network.
        certificate: Make certificates of the answer too, from its own search, with the time limit once more,
            half a second at least.
        stack: The solvers for distance programs: "default", "library" or "paper".
        threads: How many threads there are, for several cases at once or for one; by default the method's own choice.
        memory: How many bytes the open nodes of each adaptive search may take.
        scheduler: Address of a Dask scheduler whose workers search the cases that take a second or more.

    Returns:
        The answer, with a counterexample that holds exactly when it is sat.

    Raises:
        SpecError: The property does not fit the network, or an input has no bounds.
        OptionError: An unknown method or stack, or a time limit out of range.
    """
    check_fit(spec, network)
    how = How(method, time_limit, certificate, stack, threads=threads, memory=memory, scheduler=scheduler)
    started, deadline = clock.now(), deadline_of(time_limit)
    searches, timeout = _sieved(network, spec, how, deadline)
    timeout = timeout or _go_round([case for case in searches if case.answer is None], deadline, threads)
    found = next((each.found for each in searches if each.found is not None), None)
    closed = sum(each.answer is Answer.UNSAT for each in searches)
    doubtful = next((each for each in searches if each.answer is Answer.UNKNOWN), None)
    if found is not None:
        answer, note = Answer.SAT, found.doubts
    elif closed == len(searches):
        answer, note = Answer.UNSAT, spec.why_none
    elif timeout:
        answer, note = Answer.TIMEOUT, "time limit reached"
    else:
        answer, note = Answer.UNKNOWN, "" if doubtful is None else doubtful.note
    programs = sum(each.programs for each in searches)
    used = ", ".join(sorted({each.method for each in searches if each.method}))
    name = used or ("none" if found is None else "samples")
    seconds = clock.now() - started
    result = SpecResult(answer, found, name, seconds, len(searches), closed, programs, note)
    return _certified(result, searches, spec, deadline_of_proof(time_limit)) if certificate else result


def _sieved(network: Network, spec: Spec, how: How, deadline: float | None) -> tuple[list[_CaseSearch], bool]:
    """A search for each case, answered already where one bound for many at once closes it; is the time up?"""
    closed, late = np.zeros(len(spec.cases), np.bool_), False
    try:
        with one_thread(), clock.until(deadline):
            closed = closed_at_once(network, spec.cases)
    except clock.OutOfTime:
        late = True
    share = 1.0 / max(int((~closed).sum()), 1)
    searches = [_CaseSearch(case, network, how, deadline, share) for case in spec.cases]
    for i in np.flatnonzero(closed):
        searches[i].answer, searches[i].method = Answer.UNSAT, "linear bounds"
    return searches, late


def _go_round(searches: list[_CaseSearch], deadline: float | None, threads: int | None) -> bool:
    """Give every open case its slice, until all are answered, one is violated or the time is up (True).

    With several threads as many cases have their slices at once; the last ones share the threads. None: the method's
    own choice for each case, one after the other.
    """
    length = SLICE
    waiting = list(searches)
    try:
        while waiting:
            line, each = iter(waiting), None if threads is None else max(1, threads // len(waiting))
            slices = partial(_slices, line, None if len(waiting) == 1 else length, each, deadline)
            with one_thread():
                side_by_side([slices] * min(threads or 1, len(waiting)))
            waiting = [case for case in waiting if case.answer is None]
            length *= 2.0
    except _Enough:
        return False
    except KeyboardInterrupt:
        for case in waiting[:1]:
            case.answer, case.note, case.interrupted = Answer.UNKNOWN, "interrupted", True
    except clock.OutOfTime:
        return True
    return False


class _Enough(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """One case decides for all."""


def _slices(line: Iterator[_CaseSearch], length: float | None, threads: int | None, deadline: float | None) -> None:
    """Give slices to cases of the line, which several threads may share, until it is at its end."""
    for case in line:
        with clock.until(deadline):
            clock.check()
        case.advance(None if length is None else clock.now() + length, threads)
        if case.answer is Answer.SAT or case.interrupted:
            raise _Enough


class _CaseSearch:
    """One case: a pausable search, and what it has come to."""

    def __init__(self, case: Case, network: Network, how: How, deadline: float | None, share: float) -> None:
        self.case, self.network, self.how, self.deadline = case, network, how, deadline
        self.share = share  # of the effort for the quick look
        self.method = how.method if method_named(how.method) is not None else None  # or the one that was chosen
        self.answer: Answer | None = None
        self.found: Counterexample | None = None
        self.note = ""
        self.programs = 0
        self.interrupted = False
        self.shrunk = False
        self.searched, self.looks = 0.0, 0  # seconds, and looks for counterexamples since the search began
        self.recording: Recording | None = None  # of the search that answered, for its certificate
        self._session: Session | None = None

    def advance(self, until: float | None, threads: int | None = None) -> None:
        while self.answer is None:
            if self._session is None:
                if not self.shrunk and self._at_a_point():
                    return
                problem = problem_of(self.case, self.network, SHRINK if self.shrunk else 0.0)
                if not self.shrunk and self._quickly(problem):
                    return
                self.recording = Recording() if self.how.certificate and not self.shrunk else None
                how = replace(self.how, threads=threads)
                self._session = Session(problem, how, True, self.deadline, self.recording)
            self._session.widen(threads or 1)
            if not self._go_on(self._session, until):
                if self.answer is None and (until is None or clock.now() < until):
                    continue
                return
            session, self._session = self._session, None  # a finished search holds much memory
            self.programs += session.progress.chain.programs
            self.method = session.progress.method
            self._judge(session)
            if self.answer is Answer.UNKNOWN and not self.interrupted:
                self._in_rationals(session)
            if session.late:
                return

    def _go_on(self, session: Session, until: float | None) -> bool:
        """Search until that is over (True), until the clock passes `until`, or it is time for another look."""
        begun, look = clock.now(), LOOK * LOOKS_APART**self.looks - self.searched
        over = session.advance(begun + look if until is None else min(until, begun + look))
        self.searched += clock.now() - begun
        if not over and self.searched >= LOOK * LOOKS_APART**self.looks:
            with clock.until(self.deadline):
                found = look_again(session.progress.problem, self.looks)
            self.looks += 1
            self._take(session.progress.problem, found)
        return over

    def prove(self, deadline: float | None) -> Certificate:
        """The proof that the case is unsat."""
        problem = problem_of(self.case, self.network)
        by_boxes = None if self.recording is None else self.method == INPUT_SPLIT
        try:  # "no distance is too large": the proof covers the whole domain
            return prove(problem, math.inf, None, math.inf, deadline, by_boxes, self.recording)
        except Unproved as error:
            raise Unproved(f"{error}; {BY_RATIONALS}" if self.method == RATIONALS else str(error)) from None

    def _at_a_point(self) -> bool:
        """A box that is a single point is decided by the outputs there, strict inequalities included."""
        ends = [(side.low, side.high) for side in self.case.box]
        if any(low != high for low, high in ends):
            return False
        w = [low for low, _ in ends if low is not None]
        with clock.until(self.deadline):
            holds = holds_exactly(self.case, self.network, w)
            self.found = run_at(self.case, self.network, w, Grid(self.case)) if holds else None
        self.answer = Answer.SAT if holds else Answer.UNSAT
        self.method = RATIONALS
        return True

    def _in_rationals(self, session: Session) -> None:
        """What float64 left open may be small enough for rationals."""
        near = session.progress.problem.x
        unsettled = session.progress.incumbent.unsettled
        with clock.until(self.deadline):
            found = decide(self.case, self.network, near if unsettled is None else near + unsettled)
            if found is Verdict.EMPTY:
                self.answer, self.note, self.method = Answer.UNSAT, "", RATIONALS
            elif isinstance(found, list) and holds_exactly(self.case, self.network, found):
                self.found = run_at(self.case, self.network, found, Grid(self.case))
                self.answer, self.note, self.method = Answer.SAT, "", RATIONALS

    def _quickly(self, problem: Problem) -> bool:
        """Is there a counterexample that needs no search?"""
        with clock.until(self.deadline):
            found = falsify(problem, self.share)
        return self._take(problem, found)

    def _take(self, problem: Problem, v: Vector | None) -> bool:
        """Is a point that was met a counterexample, for the model's own runtime too?"""
        self.found = None if v is None else self._realise(problem, v)
        if self.found is not None and self.found.runtime_agrees is not False:
            self.answer = Answer.SAT
        else:
            self.found = None
        return self.answer is not None

    def _realise(self, problem: Problem, v: Vector) -> Counterexample | None:
        """A counterexample next to an unsafe point; one found in time may be checked a little later."""
        with clock.until(None if self.deadline is None else self.deadline + GRACE):
            return realise(self.case, problem, v, Grid(self.case))

    def _judge(self, session: Session) -> None:
        """What the answer of a search means for the property."""
        witness = session.progress.witness
        if session.interrupted:
            self.answer, self.note, self.interrupted = Answer.UNKNOWN, "interrupted", True
        elif session.found and witness is not None:
            self.found = self._realise(session.progress.problem, witness)
            if self.found is not None:
                self.answer = Answer.SAT
            elif not self.shrunk:
                self.shrunk = True  # the edge of the unsafe set is no counterexample: look for its inside
            else:
                self.answer, self.note = Answer.UNKNOWN, "unsafe points were found, but none on representable numbers"
        elif session.proved:
            self.answer = Answer.UNKNOWN if self.shrunk else Answer.UNSAT
            if self.shrunk:
                self.note = "the unsafe set is touched within rounding only: no point is unsafe by 1e-6 or more"
        elif session.late:
            return
        elif session.progress.incumbent.unsettled is not None and not self.shrunk:
            self.shrunk = True  # unsafe up to rounding: points that are so beyond doubt decide
        else:
            self.answer, self.note = Answer.UNKNOWN, session.note or "the search ended without an answer"


def _certified(result: SpecResult, searches: list[_CaseSearch], spec: Spec, deadline: float | None) -> SpecResult:
    """The result with its proofs, from what was recorded of the searches; or with a note why there are none."""
    if not spec.cases:
        nothing = "so the property file is the whole proof, and there is no certificate to write"
        return replace(result, note=f"{result.note or 'the property has no case'}, {nothing}")
    try:
        if result.counterexample is not None:
            proofs = [_certify_point(result.counterexample, searches[0].network, spec)]
        elif result.answer is Answer.UNSAT:
            with one_thread():
                proofs = [search.prove(deadline) for search in searches]
        else:
            proofs = []
    except Unproved as error:
        return replace(result, note="; ".join(part for part in (result.note, f"no certificate: {error}") if part))
    return replace(result, certificates=tuple(proofs))


def _certify_point(found: Counterexample, network: Network, spec: Spec) -> Certificate:
    """A certificate of the counterexample: radius 0 and the witness."""
    for case in spec.cases:
        problem = problem_of(case, network)
        certificate = prove(problem, 0.0, found.x, problem.distance(found.x))
        if check(network, certificate).ok and check_spec(network, spec, [certificate]).ok:
            return certificate
    raise Unproved("float64 does not confirm the counterexample, whose inputs are the proof")
