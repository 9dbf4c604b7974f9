"""One search driven from outside: budgets, pauses, verified witnesses. `measure`, `verify` and properties use it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from layercert.arrays import Vector
from layercert.attack.attack import attack, settle
from layercert.bounds.magnitude import out_of_range
from layercert.methods import method_named
from layercert.problem import Clause, Problem
from layercert.programs.chain import SolverChain
from layercert.programs.stacks import make_chain
from layercert.scaled import Scaled, scaled
from layercert.search.events import Bound, Event, Improve
from layercert.search.task import Task, horizon
from layercert.system import clock
from layercert.system.threads import one_thread

#: Upper and lower bound this close (relative) count as the exact answer.
EXACT = 1e-6
#: Distances below this many times the size of x are rounding noise in x itself.
NOISE = 1e-12
#: The search looks this much (relative) beyond the radius, so that "nothing within the radius" is proved at the radius.
MARGIN = 1e-9
#: Seconds beyond the limit that settling a point, and the last look at a witness in other arithmetics, may take.
GRACE = 0.3
#: The note of an answer that the time limit left open.
OUT_OF_TIME = "time limit reached"

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
    started: float = field(default_factory=clock.now)

    @property
    def seconds(self) -> float:
        return clock.now() - self.started

    def closed(self) -> bool:
        """Upper and lower bound agree."""
        if math.isinf(self.upper):
            return False
        noise = NOISE * max(1.0, self.problem.norm.value(self.problem.x))
        return self.upper - self.lower <= max(EXACT * self.upper, noise)

    def offer(self, step: Vector, clause: Clause) -> None:
        """Take a point as the new witness if the network itself says that it is unsafe."""
        with clock.extended(GRACE):  # what was found in time is not lost
            v = settle(self.problem, step, clause)
            if v is None:
                self.unsettled = step
                return
            distance = self.problem.distance(v)
            holds = self.problem.holding(v) if distance < self.upper else None
        if holds is not None:
            self.witness, self.clause, self.upper = v, holds, distance


class Session:
    """A search that can be paused and taken up again.

    `deadline` (on our clock) is the end of the whole session: everything inside it looks at the clock, and whatever it
    is at when the time is up is left there (`late`); the bounds and the witness so far stay. With `stop_at_witness` any
    unsafe point within the radius ends it, without it only the nearest one does.
    """

    def __init__(
        self,
        problem: Problem,
        method: str = "adaptive",
        stack: str = "default",
        watch: Watch | None = None,
        stop_at_witness: bool = False,
        deadline: float | None = None,
    ) -> None:
        self.method = method_named(method)
        self.progress = Progress(problem, self.method.name, make_chain(stack, problem.norm))
        self.watch, self.stop_at_witness, self.deadline = watch, stop_at_witness, deadline
        self.note = ""
        self.interrupted = False
        self.late = False
        self.over = False
        self._view: Scaled | None = None
        self._task: Task | None = None
        self._events: Iterator[Event] | None = None

    def advance(self, until: float | None = None) -> bool:
        """Go on until the session is over (True), or the clock passes `until` (False)."""
        with one_thread(), clock.until(self.deadline):
            try:
                self._advance(until)
            except clock.OutOfTime:
                self.note, self.late, self.over = OUT_OF_TIME, True, True
            except KeyboardInterrupt:
                self.note, self.interrupted, self.over = "interrupted", True, True
        return self.over

    def _advance(self, until: float | None) -> None:
        if self._events is None and not self.over:
            self._start()
        while not self.over:
            event = next(self._events, None) if self._events is not None else None
            if event is None:
                self._finish()
            else:
                self._book(event)
                if self.over:
                    return
                clock.check()
                if until is not None and clock.now() > until:
                    return

    def _start(self) -> None:
        progress, problem = self.progress, self.progress.problem
        self.note = _answer_at_sight(progress)
        if self.note:
            self.over = True
            return
        # searches work in coordinates in which the norm has no weights
        far = min(problem.radius * (1.0 + 2.0 * MARGIN), horizon(problem) * (1.0 + MARGIN))
        view = scaled(problem, far)
        if math.isinf(problem.radius) or self.stop_at_witness:
            found = attack(view.problem, view.problem.radius)
            if found is not None:
                progress.offer(view.offset(found[0]), view.clause(found[2]))
                if self.watch is not None:  # the search may be silent for long; what is found is known at once
                    self.watch(progress, None)
        if self.stop_at_witness and progress.upper <= problem.radius:
            self.over = True
            return
        view = scaled(problem, min(far, progress.upper))
        # Looking a little beyond the radius, and never beyond a witness we hold
        self._task = Task(view.problem, progress.chain, min(view.problem.radius * (1.0 + MARGIN), progress.upper))
        self.note = out_of_range(view.problem, self._task.cutoff)
        if self.note:
            self.over = True
            return
        self._task.any_witness = self.stop_at_witness
        self._view, self._events = view, _translated(view, self.method.search(self._task))

    def _book(self, event: Event) -> None:
        progress, radius = self.progress, self.progress.problem.radius
        if isinstance(event, Bound):
            progress.lower = max(progress.lower, event.lower)
        elif isinstance(event, Improve):
            progress.offer(event.step, event.clause)
        if self.watch is not None:
            self.watch(progress, event)
        self.over = (self.stop_at_witness and progress.upper <= radius) or progress.lower >= radius

    def _finish(self) -> None:
        """The search has said all it can."""
        assert self._task is not None and self._view is not None
        self.over = True
        progress, chain = self.progress, self._task.chain
        _settle_on_its_piece(progress, self._view)
        if chain.undecided and not progress.closed() and progress.lower < progress.problem.radius:
            self.note = f"{chain.undecided} distance programs could not be decided by any solver"
        else:
            self.note = self._task.note


def _translated(view: Scaled, events: Iterator[Event]) -> Iterator[Event]:
    """The events of a search in scaled coordinates as those of the problem that was asked."""
    if view.problem is view.original:
        yield from events
        return
    for event in events:
        if isinstance(event, Bound):
            yield Bound(view.lower(event.lower))
        elif isinstance(event, Improve):
            clause, step = view.clause(event.clause), view.offset(event.step)
            yield Improve(step, view.original.norm.value(step), clause)
        else:
            yield event


def _settle_on_its_piece(progress: Progress, view: Scaled) -> None:
    """Where the nearest point could not be settled, try the nearest one of its own linear piece."""
    if progress.unsettled is None or progress.closed() or not progress.problem.network.fits_dense:
        return
    step = view.inwards(progress.unsettled)
    task = Task(view.problem, progress.chain, view.problem.norm.value(step) * (1.0 + EXACT))
    piece = task.cells.full(task.cells.coordinates(step))
    for event in _translated(view, task.decision(piece, view.problem.clauses)):
        if isinstance(event, Improve):
            progress.offer(event.step, event.clause)


def _answer_at_sight(progress: Progress) -> str:
    """Cases that need no search: x itself is unsafe, or the output does not depend on the input."""
    problem = progress.problem
    clause = problem.holding(problem.x)
    if clause is not None:
        progress.lower = progress.upper = 0.0
        progress.witness, progress.clause = problem.x.copy(), clause
        if problem.label is None:
            return "the input itself is unsafe"
        if not problem.is_unsafe(problem.x, strict=True):
            return f"the input lies on the decision boundary: a tie of {problem.label} and {clause.target}"
        own = problem.network.classify(problem.x)
        progress.clause = next(c for c in problem.clauses if c.target == own)
        instead = "" if own == problem.label else f", not as {problem.label}"
        return f"the input is already classified as {own}{instead}"
    if not problem.depends_on_input():
        progress.lower = math.inf
        return "the output does not depend on the input"
    return ""
