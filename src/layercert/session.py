"""One search driven from outside: budgets, pauses, verified witnesses. `measure`, `verify` and properties use it."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from layercert.arrays import Vector
from layercert.attack.attack import NOISE
from layercert.bounds.magnitude import out_of_range
from layercert.how import How, Watch, check_adaptive, check_gap, check_memory, check_threads
from layercert.methods import AUTO, METHODS, method_for, method_named
from layercert.problem import Clause, Problem
from layercert.programs.chain import SolverChain
from layercert.programs.stacks import make_chain
from layercert.scaled import Scaled, scaled
from layercert.search.adaptive import Recorder
from layercert.search.events import Bound, Event, Nodes, translated
from layercert.search.incumbent import GRACE, Incumbent
from layercert.search.last_resort import settle_on_its_piece, small, without_rounding
from layercert.search.saved import Keeper, Saved, question_of
from layercert.search.task import GAP, Task, horizon
from layercert.system import clock
from layercert.system.threads import one_thread

#: The search looks this much (relative) beyond the radius, so that "nothing within the radius" is proved at the radius.
MARGIN = 1e-9
#: The note of a search that ended by itself and left a gap.
BETWEEN_MARGINS = "the search ended with its bounds apart: what is between them is within its margins for rounding"
#: The note of an answer that the time limit left open.
OUT_OF_TIME = "time limit reached"

__all__ = ["GRACE", "MARGIN", "NOISE", "OUT_OF_TIME"]
__all__ += ["How", "Progress", "Session", "Watch", "check_adaptive", "check_gap", "check_memory", "check_threads"]


@dataclass
class Progress:
    """The state of a run, as seen from outside while it runs. Upper bound and witness are the incumbent's."""

    problem: Problem
    method: str
    chain: SolverChain
    incumbent: Incumbent
    gap: float = GAP
    lower: float = 0.0
    started: float = field(default_factory=clock.now)
    nodes: Nodes | None = None  # of a search that has some

    @property
    def upper(self) -> float:
        return self.incumbent.distance

    @property
    def witness(self) -> Vector | None:
        return self.incumbent.point

    @property
    def clause(self) -> Clause | None:
        return self.incumbent.clause

    @property
    def seconds(self) -> float:
        return clock.now() - self.started

    def met(self) -> bool:
        """Upper and lower bound agree, up to the gap: the answer is exact."""
        return self.upper - self.lower <= self.gap * self.upper < math.inf

    def closed(self) -> bool:
        """There is nothing more to look for: the bounds meet, or differ by rounding in x."""
        return self.met() or self.upper - self.lower <= self.incumbent.noise


class Session:
    """A search that can be paused and taken up again.

    `deadline` (on our clock) is the end of the whole session: everything inside it looks at the clock, and whatever it
    is at when the time is up is left there (`late`); the bounds and the witness so far stay. With `stop_at_witness` any
    unsafe point within the radius ends it, without it only the nearest one does.
    """

    def __init__(
        self,
        problem: Problem,
        how: How,
        stop_at_witness: bool = False,
        deadline: float | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.recorder = recorder
        self.method = method_named(how.method)
        self.how, self.stop_at_witness, self.deadline = how, stop_at_witness, deadline
        chain, incumbent = make_chain(how.stack, problem.norm), Incumbent(problem)
        name = AUTO if self.method is None else self.method.name
        self.progress = Progress(problem, name, chain, incumbent, how.gap)
        self.keeper: Keeper | None = None
        if how.save is not None:
            self.keeper = Keeper(Path(how.save), question_of(problem, stop_at_witness, how.gap))
        self.note = ""
        self.interrupted = False
        self.searched = math.inf  # a lower bound beyond this one was proved in rational arithmetic
        self.late = False
        self.over = False
        self._view: Scaled | None = None
        self._reach = math.inf
        self._looked = False  # at x itself: before that nothing is proved, not even a radius of 0
        self._begun = False  # is there anything to keep?
        self._task: Task | None = None
        self._events: Iterator[Event] | None = None

    @property
    def found(self) -> bool:
        """Is there a witness within the radius?"""
        return self.progress.witness is not None and self.progress.upper <= self.progress.problem.radius

    @property
    def answered(self) -> bool:
        """Any witness or the nearest one, a radius in full or a distance up to the gap."""
        return self.proved or (self.found if self.stop_at_witness else self.progress.met())

    @property
    def proved(self) -> bool:
        """Is it proved that there is no unsafe point nearer than the radius?"""
        near = self.progress.lower >= self.progress.problem.radius
        return self._looked and (near or self.proved_everywhere)

    @property
    def proved_everywhere(self) -> bool:
        """Is it proved that there is none in the whole domain? Its reach is 1e-9 too large."""
        reach = self.progress.problem.reach
        return math.isinf(self.progress.upper) and self.progress.lower >= reach * (1.0 - 5e-10)

    @property
    def at_horizon(self) -> bool:
        """Is it proved as far as a search without a radius looks?"""
        problem = self.progress.problem
        return math.isinf(problem.radius) and self.progress.lower >= horizon(problem) * (1.0 - MARGIN)

    def advance(self, until: float | None = None) -> bool:
        """Go on until the session is over (True), or the clock passes `until` (False)."""
        with self._limits():
            self._advance(until)
        if self.over:
            with one_thread():
                self._close()
        return self.over

    def resort_to_rationals(self) -> None:
        """Where rounding alone left it open, ask about a small network once more, with rows that are exact at x."""
        progress, by = self.progress, METHODS.get(self.progress.method)
        if self.answered or self.at_horizon or self.late or self.interrupted:
            return
        if not small(progress.problem) or (by is not None and not by.last_resort):
            return
        view, task = self._task_within(min(self._far, progress.upper))
        self.searched = progress.lower
        with self._limits():
            for lower in without_rounding(task, view, progress.incumbent):
                progress.lower = max(progress.lower, lower)
                if self.answered:
                    self.note = ""
                    return

    @contextmanager
    def _limits(self) -> Iterator[None]:
        """Whatever it is at when the time is up, or by Ctrl-C, is left there."""
        with one_thread(), clock.until(self.deadline):
            try:
                yield
            except clock.OutOfTime:
                self.note, self.late, self.over = OUT_OF_TIME, True, True
            except KeyboardInterrupt:
                self.note, self.interrupted, self.over = "interrupted", True, True

    def widen(self, threads: int) -> None:
        """Go on with so many threads, where the search can be taken up in the middle."""
        task = self._task
        if self.over or task is None or self._view is None or task.tree is None or (task.threads or 1) >= threads:
            return
        if task.undivided:
            return
        tree = task.tree()
        if tree is not None and isinstance(self._events, Generator):
            self._events.close()
            task.saved, task.threads = tree, threads
            self._events = self._events_of(self._view, task)

    def _events_of(self, view: Scaled, task: Task) -> Iterator[Event]:
        events = method_for(task.problem, task.U, self.progress.method).search(task)
        try:
            yield from translated(view, events)
        finally:
            if isinstance(events, Generator):
                events.close()  # threads end with it

    def _close(self) -> None:
        """Stop the search, and keep what is left to do."""
        if isinstance(self._events, Generator):
            self._events.close()
        if self.keeper is not None and self._begun:
            self.keeper.write(self._saved)

    def _saved(self) -> Saved:
        """The search as it is now."""
        assert self.keeper is not None
        before, task, progress = self.keeper.before, self._task, self.progress
        tree = None if before is None else before.tree
        if task is not None and task.tree is not None:
            tree = task.tree()
        return Saved(
            self.keeper.question,
            progress.lower,
            progress.witness,
            progress.incumbent.nearest,
            progress.incumbent.unsettled,
            self._reach,
            progress.seconds + (0.0 if before is None else before.seconds),
            tree,
        )

    def _advance(self, until: float | None) -> None:
        if self._events is None and not self.over:
            self._events = self._search()
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

    def _search(self) -> Iterator[Event]:
        """From the first look at the problem to the last event of the search."""
        problem = self.progress.problem
        with clock.extended(GRACE):
            self.note = _answer_at_sight(self.progress)
        self._looked = True
        if self.note:
            self.over = True
            return
        far, self._begun = self._far, True
        before = None if self.keeper is None else self.keeper.before
        if before is not None:
            yield from self._take_up(before)
        attacks = self.method is None or self.method.attacks or self.stop_at_witness or math.isinf(problem.radius)
        if attacks and (before is None or (before.witness is None and before.tree is None)):
            view, task = self._task_within(0.0)  # nothing is proved here: clauses are not loosened for points far away
            yield from translated(view, task.attack())
        # the smaller the ball, the less is lost to rounding where the coordinates are scaled
        self._reach = min(far, self.progress.upper) if before is None or before.tree is None else before.reach
        view, task = self._view, self._task = self._task_within(self._reach)
        self.note = out_of_range(task.problem, task.cutoff)
        if self.note:
            self.over = True
            return
        method = method_for(task.problem, task.U, self.how.method)
        self.progress.method = method.name
        if self.keeper is not None:
            check_adaptive(method.name, "save", "be saved")
        if self.how.scheduler is not None:
            check_adaptive(method.name, "scheduler", "run on a cluster")
        if before is not None:
            task.saved = before.tree
        yield from self._events_of(view, task)

    @property
    def _far(self) -> float:
        """How far the search has to look, a little more than what is to be proved."""
        problem = self.progress.problem
        return min(problem.radius * (1.0 + 2.0 * MARGIN), horizon(problem) * (1.0 + MARGIN))

    def _take_up(self, before: Saved) -> Iterator[Event]:
        """What an earlier run of the same search had found."""
        self.progress.incumbent.recall(before.witness, before.nearest, before.unsettled)
        if self.recorder is not None and before.tree is not None and before.tree.record:
            self.recorder.resumed(before.tree.record, None)  # it may have been all that is needed
        yield Bound(before.lower)

    def _task_within(self, reach: float) -> tuple[Scaled, Task]:
        """A task for the points within reach, in coordinates in which the norm has no weights.

        It looks a little beyond the radius, so that what is proved there is proved at the radius.
        """
        progress, how = self.progress, self.how
        view = scaled(progress.problem, reach)
        radius = view.problem.radius
        enough = radius if self.stop_at_witness else 0.0
        incumbent = progress.incumbent.seen_in(view)
        task = Task(
            view.problem, progress.chain, radius * (1.0 + MARGIN), incumbent,
            enough=enough, gap=how.gap, threads=how.threads,
        )  # fmt: skip
        task.recorder, task.memory = self.recorder, how.memory
        task.scheduler, task.stack = how.scheduler, how.stack
        return view, task

    def _book(self, event: Event) -> None:
        progress = self.progress
        if isinstance(event, Bound):
            progress.lower = max(progress.lower, event.lower)
        elif isinstance(event, Nodes):
            progress.nodes = event
        if self.how.watch is not None:
            self.how.watch(progress, event)
        # any witness or the nearest one, a radius in full or a distance up to the gap
        self.over = self.proved or (self.found if self.stop_at_witness else progress.closed())
        if self.over and self._task is not None:
            self.note = self._task.note
        if self.keeper is not None and self.keeper.due and not self.over and self._task is not None:
            self.keeper.write(self._saved)

    def _finish(self) -> None:
        """The search has said all it can."""
        if self.over or self._view is None or self._task is None:  # answered at sight
            return
        self.over = True
        progress, chain = self.progress, self._task.chain
        if not progress.closed():
            settle_on_its_piece(progress.incumbent, chain, self._view)
        if chain.undecided and not progress.closed() and not self.proved:
            self.note = f"{chain.undecided} distance programs could not be decided by any solver"
        else:
            self.note = self._task.note


def _answer_at_sight(progress: Progress) -> str:
    """Cases that need no search: x itself is unsafe, or the output does not depend on the input."""
    problem = progress.problem
    if progress.incumbent.take(problem.x.copy()):
        clause = progress.clause
        if problem.label is None or clause is None:
            return "the input itself is unsafe"
        if not problem.is_unsafe(problem.x, strict=True):
            return f"the input lies on the decision boundary: a tie of {problem.label} and {clause.target}"
        instead = "" if clause.target == problem.label else f", not as {problem.label}"
        return f"the input is already classified as {clause.target}{instead}"
    if not problem.depends_on_input():
        progress.lower = math.inf
        return "the output does not depend on the input"
    return ""
