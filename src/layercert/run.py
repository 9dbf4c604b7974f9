"""measure and verify: drive a search under a budget and build the result."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from numpy.typing import ArrayLike

from layercert.attack.strict import examine, harden
from layercert.certify import BY_BALLS, BY_RATIONALS, Recording, Unproved, prove
from layercert.certify.branches import prove_branches
from layercert.errors import OptionError
from layercert.how import How, Watch, deadline_of, deadline_of_proof
from layercert.methods import INPUT_SPLIT
from layercert.network import Network
from layercert.norms import WeightedNorm
from layercert.problem import Problem, robustness
from layercert.questions import Discrete, Fixed, OneOf, Target, Weights
from layercert.result import Result, Status, Verdict
from layercert.search.branching import Branching
from layercert.search.task import GAP, horizon
from layercert.session import BETWEEN_MARGINS, GRACE, MARGIN, NOISE, Progress, Session
from layercert.system import clock, notebook
from layercert.system.threads import one_thread

__all__ = ["GAP", "MARGIN", "NOISE", "How", "Progress", "Watch"]
__all__ += ["closest", "deadline_of", "decide", "measure", "verify"]

#: Seconds after which a notebook shows how far a search is.
PATIENCE = 1.0


# The long signatures here are contracts: what a user may say is said by name. Inside, the question is a Problem and
# the rest a How.
def measure(
    network: Network,
    x: ArrayLike,
    norm: str | float = "linf",
    label: int | None = None,
    radius: float | None = None,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    method: str | None = None,
    time_limit: float | None = None,
    certificate: bool = False,
    *,
    target: Target | None = None,
    weights: Weights | None = None,
    fixed: Fixed | None = None,
    integer: Fixed | None = None,
    one_of: OneOf | None = None,
    gap: float = GAP,
    threads: int | None = None,
    save: Path | str | None = None,
    memory: int | None = None,
    scheduler: str | None = None,
    stack: str = "default",
    watch: Watch | None = None,
) -> Result:
    """The exact distance from x to the nearest point of another class, with that point as a witness.

    With a radius the search stops there: status "robust" means that nothing lies within it. Stopped early, by the time
    limit or by Ctrl-C, the result holds the bounds reached so far: lower <= distance <= upper.

    Args:
        network: The classifier, from `load`, `from_torch` or `Network.from_arrays`.
        x: One input: an array of any shape with as many numbers as the network has inputs.
        norm: "l1", "l2", "linf" or any number p >= 1.
        label: The class whose robustness is asked for; by default the class that the network gives x.
        radius: How far the search looks; by default as far as it takes.
        domain: (low, high), two numbers or two arrays: only points inside this box count, and x must be one.
        method: Name of the search; `layercert.methods.METHODS` lists them, docs/which-method.md compares them. By
            default the one that measured best for such a problem.
        time_limit: Seconds after which the search stops with the bounds reached. Kernels that have to be compiled
            first, once per machine, cost no time of the limit.
        certificate: Make a certificate of the answer too, with the time limit once more, half a second at least.
        target: Ask for points of this class, or of one of these, instead of any other class.
        weights: One number > 0 per input, or a mapping from some inputs to theirs: distances are ||weights * (v - x)||.
        fixed: Inputs that stay as they are, by position or by name.
        integer: Inputs that are whole numbers, by position or by name; x must be whole there.
        one_of: Groups of inputs of which exactly one is 1 and the others are 0.
        gap: The search ends when (upper - lower) / upper is this small, and "exact" means exact up to it.
        threads: How many threads the search may use; by default the method's own choice.
        save: A file that keeps the search, written every so often and at the end: the same call goes on from there,
            after a time limit, Ctrl-C or the end of the process. For the adaptive method.
        memory: How many bytes the open nodes of the adaptive search may take; beyond it goes depth first.
        scheduler: Address of a Dask scheduler (tcp://host:8786) whose workers do the search, if it takes a second or
            more. For the adaptive method.
        stack: The solvers for distance programs: "default", "library" or "paper".
        watch: Called as watch(progress, event) with each event of the search.

    Returns:
        The bounds, the witness and how they were found. `status` is exact, robust or undecided.

    Raises:
        InputError: x, the label, the domain, a target or a fixed input does not fit the network.
        OptionError: An unknown norm, method or stack, or a radius, time limit, gap or number of threads out of range.
        MissingPackageError: The stack needs a package that is not installed.
    """
    how = How(method, time_limit, certificate, stack, watch, gap, threads, save, memory, scheduler)
    asked = robustness(
        network, x, norm, label, radius, domain,
        target=target, weights=weights, fixed=fixed, integer=integer, one_of=one_of,
    )  # fmt: skip
    return closest(asked, how)


def closest(problem: Problem, how: How | None = None) -> Result:
    """`measure` for any problem: the unsafe point nearest to x, within the radius and inside the domain.

    Args:
        problem: The question, from `robustness` or with clauses of your own.
        how: Method, time limit and the like; the defaults where it is left out.

    Returns:
        The bounds, the witness and how they were found. `status` is exact, robust or undecided.

    Raises:
        OptionError: An unknown method or stack, or a time limit out of range.
    """
    how = how or How()
    if problem.discrete is not None:
        return _branched(problem, problem.discrete, how, stop_at_witness=False)
    session = _search(problem, how, stop_at_witness=False)
    progress, note = session.progress, "" if session.late else session.note  # an answer needs no such excuse
    if session.proved and not session.found:
        status = Status.ROBUST
        note = note or _beyond(session)
    elif progress.met():
        status = Status.EXACT
    elif session.at_horizon:
        status = Status.ROBUST if math.isinf(progress.upper) else Status.UNDECIDED
        note = note or "a search without a radius looks no farther"
    else:
        status = Status.UNDECIDED
        note = session.note or _why_open(progress)
    return _result(session, status, note, how)


# as `measure`: a contract
def verify(
    network: Network,
    x: ArrayLike,
    radius: float,
    norm: str | float = "linf",
    label: int | None = None,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    method: str | None = None,
    time_limit: float | None = None,
    certificate: bool = False,
    *,
    target: Target | None = None,
    weights: Weights | None = None,
    fixed: Fixed | None = None,
    integer: Fixed | None = None,
    one_of: OneOf | None = None,
    gap: float = GAP,
    threads: int | None = None,
    save: Path | str | None = None,
    memory: int | None = None,
    scheduler: str | None = None,
    stack: str = "default",
    watch: Watch | None = None,
) -> Result:
    """Is every point within the radius of the same class? Stops as soon as either answer is proved.

    Args:
        network: The classifier, from `load`, `from_torch` or `Network.from_arrays`.
        x: One input: an array of any shape with as many numbers as the network has inputs.
        radius: The distance in question, >= 0.
        norm: "l1", "l2", "linf" or any number p >= 1.
        label: The class that all points should have; by default the class that the network gives x.
        domain: (low, high), two numbers or two arrays: only points inside this box count, and x must be one.
        method: Name of the search; `layercert.methods.METHODS` lists them, docs/which-method.md compares them. By
            default the one that measured best for such a problem.
        time_limit: Seconds after which the answer is undecided, None for no limit.
        certificate: Make a certificate of the answer too, with the time limit once more, half a second at least.
        target: Ask for points of this class, or of one of these, instead of any other class.
        weights: One number > 0 per input, or a mapping from some inputs to theirs: distances are ||weights * (v - x)||.
        fixed: Inputs that stay as they are, by position or by name.
        integer: Inputs that are whole numbers, by position or by name; x must be whole there.
        one_of: Groups of inputs of which exactly one is 1 and the others are 0.
        gap: How far below a witness the bounds may stay. Verifying ends at the first witness, so it hardly matters.
        threads: How many threads the search may use; by default the method's own choice.
        save: A file that keeps the search, written every so often and at the end: the same call goes on from there,
            after a time limit, Ctrl-C or the end of the process. For the adaptive method.
        memory: How many bytes the open nodes of the adaptive search may take; beyond it goes depth first.
        scheduler: Address of a Dask scheduler (tcp://host:8786) whose workers do the search, if it takes a second or
            more. For the adaptive method.
        stack: The solvers for distance programs: "default", "library" or "paper".
        watch: Called as watch(progress, event) with each event of the search.

    Returns:
        The verdict robust, not_robust (with a witness) or undecided, and the bounds reached.

    Raises:
        InputError: x, the label, the domain, a target or a fixed input does not fit the network.
        OptionError: No radius, an unknown norm, method or stack, or a radius, time limit, gap or number of threads
            out of range.
        MissingPackageError: The stack needs a package that is not installed.
    """
    if radius is None:
        raise OptionError("verify needs a radius >= 0; to find the largest robust radius use measure")
    how = How(method, time_limit, certificate, stack, watch, gap, threads, save, memory, scheduler)
    asked = robustness(
        network, x, norm, label, radius, domain,
        target=target, weights=weights, fixed=fixed, integer=integer, one_of=one_of,
    )  # fmt: skip
    return decide(asked, how)


def decide(problem: Problem, how: How | None = None) -> Result:
    """`verify` for any problem: is there an unsafe point within the radius and inside the domain?

    Args:
        problem: The question, with a finite radius or domain.
        how: Method, time limit and the like; the defaults where it is left out.

    Returns:
        The verdict robust, not_robust (with a witness) or undecided, and the bounds reached.

    Raises:
        OptionError: An unknown method or stack, or a time limit out of range.
    """
    how = how or How()
    if problem.discrete is not None:
        return _branched(problem, problem.discrete, how, stop_at_witness=True)
    session = _search(problem, how, stop_at_witness=True)
    progress, note = session.progress, "" if session.late else session.note  # an answer needs no such excuse
    verdict = _verdict(session.found, session.proved)
    if verdict is Verdict.UNDECIDED:
        note = session.note or _why_open(progress)
    elif verdict is Verdict.ROBUST:
        note = note or _beyond(session)
    return _result(session, verdict, note, how)


def _beyond(session: Session) -> str:
    """Why what is proved is robust, where the radius is larger than the domain."""
    return "" if session.progress.lower >= session.progress.problem.radius else "no unsafe point anywhere"


def _branched(problem: Problem, discrete: Discrete, how: How, stop_at_witness: bool) -> Result:
    """The same where inputs are whole numbers or alternatives: boxes of inputs, each with a search of its own."""
    if how.save is not None or how.scheduler is not None:
        raise OptionError(
            "a search over whole numbers or alternatives can neither be saved nor run on a cluster; leave save and "
            "scheduler out"
        )
    started, deadline = clock.now(), deadline_of(how.time_limit)
    search, finished = Branching(problem, discrete, how.gap, problem.radius if stop_at_witness else 0.0), False
    interrupted: list[Result] = []

    def ask(box: Problem) -> Result:
        result = closest(box, own())
        if stop_at_witness and not result.interrupted and result.lower < box.radius < result.upper:
            sure = decide(box, own())  # a witness next to the radius ends the search for the nearest one
            result = replace(result, lower=max(result.lower, sure.lower), interrupted=sure.interrupted, note=sure.note)
        interrupted.extend([result] if result.interrupted else [])
        return result

    def own() -> How:
        left = None if deadline is None else max(deadline - clock.now(), 1e-3)
        return replace(how, time_limit=left, certificate=False, watch=None)

    with suppress(clock.OutOfTime), clock.until(None if deadline is None else deadline + GRACE):
        finished = search.run(ask, lambda: bool(interrupted) or (deadline is not None and clock.now() > deadline))
    result = replace(_branched_result(search, finished, stop_at_witness), interrupted=bool(interrupted))
    result = replace(result, seconds=clock.now() - started)
    if not how.certificate:
        return result
    try:
        with one_thread():
            return replace(result, certificate=prove_branches(search, deadline_of_proof(how.time_limit)))
    except Unproved as error:
        return replace(result, note="; ".join(filter(None, (result.note, f"no certificate: {error}"))))


def _branched_result(search: Branching, finished: bool, stop_at_witness: bool) -> Result:
    """What the boxes prove together."""
    problem, last = search.problem, search.last
    assert last is not None
    lower, upper, radius = search.lower, search.upper, problem.radius
    found, proved = search.found, search.looked and lower >= radius
    status: Status | Verdict
    if stop_at_witness:
        status = _verdict(found, proved)
    elif proved and not found:
        status = Status.ROBUST
    elif upper - lower <= search.gap * upper < math.inf:
        status = Status.EXACT
    else:
        status = Status.ROBUST if math.isinf(lower) and math.isinf(upper) else Status.UNDECIDED
    open_note = (last.note or BETWEEN_MARGINS) if finished else "time limit reached"
    held = search.incumbent.witness
    return replace(
        last,
        status=status,
        lower=min(lower, upper) if math.isfinite(upper) else min(lower, max(radius, problem.reach)),
        upper=upper,
        witness=None if held is None else held.point,
        target=None if held is None else held.clause.target,
        radius=radius,
        programs=search.programs,
        note=open_note if status == Status.UNDECIDED else last.note if upper == 0.0 else "",
        certificate=None,
        holds=None if held is None else examine(problem, held.point),
        x=problem.x,
    )


def _verdict(found: bool, proved: bool) -> Verdict:
    """A witness within the radius, or a proof that there is none."""
    return Verdict.NOT_ROBUST if found else Verdict.ROBUST if proved else Verdict.UNDECIDED


def _search(problem: Problem, how: How, stop_at_witness: bool) -> Session:
    """Let a session go on until its search ends, the budget is spent, or the question is answered."""
    recording = Recording() if how.certificate else None
    line = notebook.Line(PATIENCE) if how.watch is None and notebook.in_notebook() else None
    if line is not None:
        how = replace(how, watch=lambda progress, _: line.show(_bounds(progress)))
    session = Session(problem, how, stop_at_witness, deadline_of(how.time_limit), recording)
    session.advance()
    session.resort_to_rationals()
    if line is not None:
        line.show("", last=True)  # the result takes its place
    return session


def _bounds(progress: Progress) -> str:
    upper = "?" if math.isinf(progress.upper) else f"{progress.upper:.5f}"
    return f"{progress.lower:.5f} <= distance <= {upper}, {progress.seconds:.0f} s"


def _why_open(progress: Progress) -> str:
    """What to say of a search that ended by itself and left a gap."""
    if progress.incumbent.unsettled is not None:
        return "the nearest point found is unsafe up to rounding only, and none next to it could be settled"
    return BETWEEN_MARGINS


def _result(session: Session, status: Status | Verdict, note: str, how: How) -> Result:
    progress = session.progress
    problem, chain = progress.problem, progress.chain
    lower, upper, seconds = min(progress.lower, progress.upper), progress.upper, progress.seconds
    witness, holds, clause = progress.witness, None, progress.clause
    if witness is not None:
        with suppress(clock.OutOfTime), clock.until(None if how.time_limit is None else clock.now() + GRACE):
            witness, holds = harden(problem, witness, lower / (1.0 - how.gap) if status == Status.EXACT else math.inf)
        upper = problem.distance(witness)
        if witness is not progress.witness:  # it was moved, perhaps to a class that is as near
            clause = problem.holding(witness) or clause
    result = Result(
        status=status,
        lower=lower,
        upper=upper,
        witness=witness,
        target=None if clause is None else clause.target,
        label=problem.label,
        norm=problem.norm.name,
        radius=problem.radius,
        method=progress.method,
        programs=chain.programs,
        seconds=seconds,
        note=note,
        interrupted=session.interrupted,
        solved_by={k: v for k, v in chain.solved_by.items() if v},
        fallbacks={k: v for k, v in chain.fallbacks.items() if v},
        holds=holds,
        x=problem.x,
        names=problem.names,
        shape=problem.shape,
        weights=problem.norm.weights if isinstance(problem.norm, WeightedNorm) else None,
    )
    return _certified(session, result, how.time_limit) if how.certificate else result


def _certified(session: Session, result: Result, time_limit: float | None) -> Result:
    """With the proof of the bound reached, from what was recorded of the search (with the time limit again)."""
    problem, recording = session.progress.problem, session.recorder
    assert isinstance(recording, Recording)
    # where nothing unsafe is anywhere, as far as a search without a radius looks
    far = min(result.lower, problem.radius, problem.reach)
    far = far if math.isfinite(far) else horizon(problem)
    by_boxes, notes = result.method == INPUT_SPLIT, [result.note]
    proof = None
    try:
        with one_thread():
            end = deadline_of_proof(time_limit)
            proof = prove(problem, far, result.witness, result.upper, end, by_boxes, recording, session.searched)
        if proof.exact:
            notes.append(BY_BALLS)
        elif proof.radius <= session.searched < far:
            notes.append(f"{BY_RATIONALS}: the one here proves the distance {proof.radius:.6g}, as far as float64 does")
    except Unproved as error:
        notes.append(f"no certificate: {error}" + (f"; {BY_RATIONALS}" if session.searched < far else ""))
    return replace(result, certificate=proof, note="; ".join(filter(None, notes)))
