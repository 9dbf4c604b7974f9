"""measure and verify: drive a search under a budget, verify every witness, and build the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController

from layercert.arrays import Vector
from layercert.attack import attack, settle
from layercert.certificate.claim import Certificate
from layercert.errors import OptionError
from layercert.methods import Method, method_named
from layercert.network import Network
from layercert.problem import Clause, Problem, robustness
from layercert.programs.chain import SolverChain
from layercert.programs.stacks import make_chain
from layercert.prove import Unproved, prove
from layercert.result import Result, Status, Verdict
from layercert.search.events import Bound, Event, Improve
from layercert.search.task import HORIZON, Task
from layercert.witness import harden

#: Upper and lower bound this close (relative) count as the exact answer.
EXACT = 1e-6
#: Distances below this many times the size of x are rounding noise in x itself.
NOISE = 1e-12
#: The search looks this much (relative) beyond the radius, so that "nothing within the radius" is proved at the radius.
MARGIN = 1e-9

Watch = Callable[["Progress", Event | None], None]


@dataclass
class Progress:
    """The state of a run, as seen from outside while it runs."""

    problem: Problem
    method: str
    chain: SolverChain
    lower: float = 0.0
    upper: float = math.inf
    witness: Vector | None = None
    clause: Clause | None = None
    unsettled: Vector | None = None  # the last point that was unsafe up to rounding only
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def closed(self) -> bool:
        """Upper and lower bound agree."""
        if math.isinf(self.upper):
            return False
        noise = NOISE * max(1.0, self.problem.norm.value(self.problem.x))
        return self.upper - self.lower <= max(EXACT * self.upper, noise)

    def offer(self, step: Vector, clause: Clause) -> None:
        """Take a point as the new witness if the network itself says that it is unsafe."""
        v = settle(self.problem, step, clause)
        if v is None:
            self.unsettled = step
            return
        distance = self.problem.distance(v)
        if distance < self.upper and self.problem.is_unsafe(v):
            self.witness, self.clause, self.upper = v, self.problem.nearest_clause(v), distance


def measure(
    network: Network,
    x: ArrayLike,
    norm: str | float = "linf",
    label: int | None = None,
    radius: float | None = None,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    method: str = "adaptive",
    time_limit: float | None = None,
    certificate: bool = False,
    *,
    stack: str = "default",
    watch: Watch | None = None,
) -> Result:
    """The exact distance from x to the nearest point of another class, with that point as a witness.

    With a radius the search stops there: status "robust" means that nothing lies within it. Stopped early, by the time
    limit or by Ctrl-C, the result holds the bounds reached so far: lower <= distance <= upper.
    """
    problem = robustness(network, x, norm, label, radius, domain)
    progress, note, interrupted = _run(problem, method, time_limit, stack, watch, stop_at_witness=False)
    within = progress.witness is not None and progress.upper <= problem.radius
    if progress.lower >= problem.radius and not within:
        status = Status.ROBUST
    elif progress.closed():
        status = Status.EXACT
    elif math.isinf(progress.upper) and progress.lower >= _horizon(problem):
        status = Status.ROBUST
        note = note or "no unsafe point anywhere"
    else:
        status = Status.UNDECIDED
    return _result(progress, status, note, interrupted, certificate, time_limit)


def verify(
    network: Network,
    x: ArrayLike,
    radius: float,
    norm: str | float = "linf",
    label: int | None = None,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    method: str = "adaptive",
    time_limit: float | None = None,
    certificate: bool = False,
    *,
    stack: str = "default",
    watch: Watch | None = None,
) -> Result:
    """Is every point within the radius of the same class? Stops as soon as either answer is proved."""
    if radius is None:
        raise OptionError("verify needs a radius >= 0; to find the largest robust radius use measure")
    problem = robustness(network, x, norm, label, radius, domain)
    progress, note, interrupted = _run(problem, method, time_limit, stack, watch, stop_at_witness=True)
    if progress.upper <= problem.radius:
        verdict = Verdict.NOT_ROBUST
    elif progress.lower >= problem.radius:
        verdict = Verdict.ROBUST
    else:
        verdict = Verdict.UNDECIDED
    return _result(progress, verdict, note, interrupted, certificate, time_limit)


def _run(
    problem: Problem, method_name: str, time_limit: float | None, stack: str, watch: Watch | None, stop_at_witness: bool
) -> tuple[Progress, str, bool]:
    """Consume a search until it ends, the budget is spent, or the question is answered."""
    with _one_thread().limit(limits=1, user_api="blas"):
        return _run_alone(problem, method_name, time_limit, stack, watch, stop_at_witness)


@cache
def _one_thread() -> ThreadpoolController:
    """Our matrices are small: BLAS threads would cost more than they bring, and much more on a busy machine."""
    return ThreadpoolController()


def _run_alone(
    problem: Problem, method_name: str, time_limit: float | None, stack: str, watch: Watch | None, stop_at_witness: bool
) -> tuple[Progress, str, bool]:
    method = method_named(method_name)
    deadline = _deadline(time_limit)
    chain = make_chain(stack, problem.norm)
    progress = Progress(problem, method.name, chain)
    note = _answer_at_sight(progress)
    if note:
        return progress, note, False
    try:
        if math.isinf(problem.radius) or stop_at_witness:
            found = attack(problem, problem.radius)
            if found is not None:
                progress.offer(found[0], found[2])
        if not (stop_at_witness and progress.upper <= problem.radius):
            note = _search(progress, method, deadline, watch, stop_at_witness)
    except KeyboardInterrupt:
        return progress, "interrupted", True
    return progress, note, False


def _search(
    progress: Progress, method: Method, deadline: float | None, watch: Watch | None, stop_at_witness: bool
) -> str:
    problem = progress.problem
    # Looking a little beyond the radius, and never beyond a witness we hold
    task = Task(problem, progress.chain, min(problem.radius * (1.0 + MARGIN), progress.upper))
    task.deadline = deadline
    for event in method.search(task):
        if isinstance(event, Bound):
            progress.lower = max(progress.lower, event.lower)
        elif isinstance(event, Improve):
            progress.offer(event.step, event.clause)
        if watch is not None:
            watch(progress, event)
        if stop_at_witness and progress.upper <= problem.radius:
            return ""
        if progress.lower >= problem.radius:
            return ""
        if deadline is not None and time.monotonic() > deadline:
            return "time limit reached"
    _settle_on_its_piece(progress)
    if task.chain.undecided and not progress.closed() and progress.lower < problem.radius:
        return f"{task.chain.undecided} distance programs could not be decided by any solver"
    return task.note


def _settle_on_its_piece(progress: Progress) -> None:
    """Where the nearest point could not be settled, try the nearest one of its own linear piece."""
    if progress.unsettled is None or progress.closed() or not progress.problem.network.fits_dense:
        return
    length = progress.problem.norm.value(progress.unsettled)
    task = Task(progress.problem, progress.chain, length * (1.0 + EXACT))
    for event in task.decision(task.cells.full(progress.unsettled), progress.problem.clauses):
        if isinstance(event, Improve):
            progress.offer(event.step, event.clause)


def _answer_at_sight(progress: Progress) -> str:
    """Cases that need no search: x itself is unsafe, or the output does not depend on the input."""
    problem = progress.problem
    if problem.is_unsafe(problem.x):
        progress.lower = progress.upper = 0.0
        progress.witness, progress.clause = problem.x.copy(), problem.nearest_clause(problem.x)
        if problem.label is None:
            return "the input itself is unsafe"
        f = problem.network(problem.x)
        best = int(f.argmax())
        if f[best] > f[problem.label]:
            return f"the input is already classified as {best}, not as {problem.label}"
        return f"the input lies on the decision boundary: a tie of {problem.label} and {progress.clause.target}"
    if not problem.depends_on_input():
        progress.lower = math.inf
        return "the output does not depend on the input"
    return ""


def _horizon(problem: Problem) -> float:
    """Without a radius, 'nothing as far as the search looks' or 'nothing in the whole domain'."""
    return min(HORIZON * (1.0 + problem.norm.value(problem.x)), problem.reach) * (1.0 - 1e-6)


def _deadline(time_limit: float | None) -> float | None:
    if time_limit is None:
        return None
    try:
        seconds = float(time_limit)
    except (TypeError, ValueError):
        raise OptionError(f"the time limit is a number of seconds or None, got {time_limit!r}") from None
    if not seconds > 0:
        raise OptionError(f"the time limit must be above 0 seconds, got {seconds:g}; leave it out for no limit")
    return time.monotonic() + seconds


def _result(
    progress: Progress,
    status: Status | Verdict,
    note: str,
    interrupted: bool,
    certificate: bool,
    time_limit: float | None,
) -> Result:
    problem, chain = progress.problem, progress.chain
    lower, seconds = min(progress.lower, progress.upper), progress.seconds
    holds = None
    if progress.witness is not None:
        progress.witness, holds = harden(problem, progress.witness)
        progress.upper = problem.distance(progress.witness)
    evidence = None
    if certificate:
        evidence, why = _certify(progress, lower, time_limit)
        note = "; ".join(part for part in (note, why) if part)
    return Result(
        status=status,
        lower=lower,
        upper=progress.upper,
        witness=progress.witness,
        target=None if progress.clause is None else progress.clause.target,
        label=problem.label,
        norm=problem.norm.name,
        radius=problem.radius,
        method=progress.method,
        programs=chain.programs,
        seconds=seconds,
        note=note,
        interrupted=interrupted,
        solved_by={k: v for k, v in chain.solved_by.items() if v},
        fallbacks={k: v for k, v in chain.fallbacks.items() if v},
        certificate=evidence,
        holds=holds,
    )


def _certify(progress: Progress, lower: float, time_limit: float | None) -> tuple[Certificate | None, str]:
    """The proof of the bound reached, made by a run of its own (with the same time limit again)."""
    problem = progress.problem
    far = min(problem.radius, problem.reach, HORIZON * (1.0 + problem.norm.value(problem.x)))
    try:
        return prove(problem, min(lower, far), progress.witness, progress.upper, _deadline(time_limit)), ""
    except Unproved as error:
        return None, f"no certificate: {error}"
