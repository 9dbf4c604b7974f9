"""A search written down, moment by moment, so that any moment of it can be drawn.

The searches themselves are used as they are: their events say what is visited, queued and pruned, and the restriction,
a part of the composition, is listened to on its way into the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.geometry import Polyhedron
from layercert.methods import method_for
from layercert.problem import Problem
from layercert.programs.stacks import make_chain
from layercert.search.events import Bound, Event, Improve, Prune, Queue, Visit
from layercert.search.task import Task
from layercert.system import clock

#: Points along each side of the squares in which a first witness is looked for.
COARSE = 41


@dataclass(frozen=True, eq=False)
class Cut:
    """A convex set M that holds every unsafe point still of interest, and its point nearest to x (the warm start)."""

    M: Polyhedron
    start: Vector


@dataclass(frozen=True, eq=False)
class Moment:
    """One event, with the bounds and the number of distance programs at that time."""

    kind: str  # visit, queue, prune, improve, bound, cut
    key: bytes = b""
    lower: float = 0.0
    upper: float = math.inf
    programs: int = 0
    witness: Vector | None = None
    cut: Cut | None = None


@dataclass
class State:
    """What is known at a moment: regions by key (in order of their visits), bounds, witness, cuts."""

    processed: dict[bytes, int] = field(default_factory=dict)
    pending: set[bytes] = field(default_factory=set)
    pruned: set[bytes] = field(default_factory=set)
    current: bytes | None = None
    lower: float = 0.0
    upper: float = math.inf
    programs: int = 0
    witness: Vector | None = None
    cuts: list[Cut] = field(default_factory=list)

    def take(self, m: Moment) -> None:
        self.lower, self.upper, self.programs = m.lower, m.upper, m.programs
        if m.kind == "visit":
            self.processed.setdefault(m.key, len(self.processed))
            self.pending.discard(m.key)
            self.current = m.key
        elif m.kind == "queue" and m.key not in self.processed:
            self.pending.add(m.key)
        elif m.kind == "prune":
            self.pruned.add(m.key)
        elif m.kind == "improve":
            self.witness = m.witness
        elif m.kind == "cut" and m.cut is not None:
            self.cuts.append(m.cut)


@dataclass(frozen=True, eq=False)
class Trace:
    """All moments of one search; `finished` is False when it was stopped by the time limit."""

    problem: Problem
    method: str
    moments: list[Moment]
    finished: bool

    @property
    def programs(self) -> int:
        return self.moments[-1].programs if self.moments else 0

    def state(self, until: int | None = None) -> State:
        """After the first `until` moments (all of them when left out)."""
        state = State()
        for moment in self.moments[:until]:
            state.take(moment)
        return state

    def steps(self) -> list[int]:
        """Moments worth a frame of an animation: after each visit or improvement and what followed from it."""
        starts = [i for i, m in enumerate(self.moments) if m.kind in ("visit", "improve")]
        return [*starts, len(self.moments)] if starts else [len(self.moments)]


def trace(problem: Problem, method: str, time_limit: float = 60.0) -> Trace:
    """Run a method and write down what it does, starting from a witness as `measure` does."""
    chain = make_chain("default", problem.norm)
    moments: list[Moment] = []
    task = Task(problem, chain)
    _find_witness(task)
    if task.incumbent.point is not None:
        moments.append(Moment("improve", upper=task.incumbent.distance, witness=task.incumbent.point))
    cuts: list[Cut] = []
    started, lower = clock.now(), 0.0
    for event in _listening(method_for(problem, task.U, method).search, cuts)(task):
        if isinstance(event, Bound):
            lower = max(lower, event.lower)
        now: dict[str, Any] = {"lower": lower, "upper": task.incumbent.distance, "programs": chain.programs}
        moments += [Moment("cut", cut=cut, **now) for cut in cuts]
        cuts.clear()
        moments.append(_moment(event, task.incumbent.point, now))
        if clock.now() - started > time_limit:
            return Trace(problem, method, moments, False)
    return Trace(problem, method, moments, True)


def _find_witness(task: Task) -> None:
    """From the attack; where that finds nothing (a flat piece around x), from points in growing squares: two dimensions
    allow it. Without a first witness there would be no restriction to look at."""
    problem = task.problem
    if any(isinstance(event, Improve) for event in task.attack()):
        return
    grid = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, COARSE)] * 2), axis=-1).reshape(-1, 2)
    for k in range(-6, 12):
        points = problem.x + 2.0**k * (1.0 + float(np.abs(problem.x).max())) * grid
        f = problem.network(points)
        unsafe = np.min([clause.margins(f).max(axis=-1) for clause in problem.clauses], axis=0) < 0
        near = sorted(points[unsafe], key=problem.distance)
        if near and problem.distance(near[0]) <= problem.radius and task.incumbent.take(near[0]):
            return


def _moment(event: Event, witness: Vector | None, now: dict[str, Any]) -> Moment:
    if isinstance(event, Visit):
        return Moment("visit", event.cell.key, **now)
    if isinstance(event, Queue):
        return Moment("queue", event.cell.key, **now)
    if isinstance(event, Prune):
        return Moment("prune", event.cell.key, **now)
    if isinstance(event, Improve):
        return Moment("improve", witness=witness, **now)
    return Moment("bound", **now)


def _listening(search: Callable[[Task], Iterator[Event]], cuts: list[Cut]) -> Callable[[Task], Iterator[Event]]:
    """The same search, with its restriction (if it is composed of one) overheard."""
    if not isinstance(search, partial):
        return search
    once, again = search.keywords.get("restriction"), search.keywords.get("restrict")
    if once is not None:  # Algorithm 3: one M per goal, at the start

        def restriction(task: Task) -> Any:
            goals = once(task)
            cuts.extend(Cut(goal.M, task.problem.x + goal.step) for goal in goals if len(goal.M))
            return goals

        return partial(search, restriction=restriction)
    if again is not None:  # Algorithm 4: a tighter M at every pattern

        def restrict(task: Task, A: Any, clause: Any, M: Polyhedron) -> Any:
            answer = again(task, A, clause, M)
            if answer is not None and len(answer[0]):
                cuts.append(Cut(answer[0], task.problem.x + answer[2]))
            return answer

        return partial(search, restrict=restrict)
    return search
