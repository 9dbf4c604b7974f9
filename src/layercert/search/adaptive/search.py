"""The adaptive search from the outside: first witnesses, growing balls where there is none, trivial networks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.record import Recorder
from layercert.search.adaptive.tree import Ball, Effort
from layercert.search.events import Bound, Event, Improve
from layercert.search.large import large
from layercert.search.task import Task

#: How a ball without unsafe points grows, when no witness is known.
GROWTH = 3.0
#: Networks with more neurons than this get bounds without branching first.
MANY = 1000
#: After this many nodes with a bound below LOW times U, smaller balls are tried: so many, each with its share of nodes.
PATIENCE, LOW, STAGES = 40, 0.5, 4


def adaptive(task: Task, effort: Effort | None = None, recorder: Recorder | None = None) -> Iterator[Event]:
    """The nearest unsafe point, exactly; every Bound is proved, rounding included."""
    problem = task.problem
    effort = effort or Effort()
    again = recorder is not None  # a search for its record: the answer is known, and bounds on the way are of no use
    recorder = recorder or task.recorder
    if not problem.clauses:
        yield Bound(task.U)
        return
    if (problem.network.is_sparse or problem.network.neurons > MANY) and not again:
        yield from large(task)  # bounds at once: the root alone may take long, or too much memory
        if not problem.network.fits_dense:
            task.note = "too large for the exact search: " + (task.note or "bounds by linear relaxation")
            return
        task.note = ""
    if task.U <= 0:
        return
    if problem.network.L == 0:
        yield from affine(task)
        return
    # without a witness nothing says how large the ball must be, unless a radius was asked for: let it grow
    radius = task.cutoff if task.known_size else min(task.cutoff, task.first_radius())
    first, proved = task.incumbent.witness, 0.0
    while True:
        ball = Ball(task, effort, recorder, radius)
        if first is not None:
            yield from ball.polish(first.point - problem.x, problem.clauses.index(first.clause))
            first = None
        events = ball.run()
        yield from events if again else _anytime(task, effort, ball, events, proved)
        if radius >= task.cutoff:
            return
        proved, radius = radius, min(GROWTH * radius, task.cutoff)


def _anytime(task: Task, effort: Effort, ball: Ball, events: Iterator[Event], lower: float) -> Iterator[Event]:
    """The events of a ball; where its bound stays low, smaller balls are proved in between; `lower` is known.

    On the ball of a far witness a hard network may have no bound at all for long, while half that ball is easy.
    """
    nodes, patience = 0, PATIENCE
    for event in events:
        yield event
        if isinstance(event, Bound):
            lower, nodes = max(lower, event.lower), nodes + 1
        if nodes >= patience and lower < LOW * ball.U:
            for found in _smaller_balls(task, effort, lower, ball.U, patience // STAGES):
                if isinstance(found, Bound):
                    lower = max(lower, found.lower)
                yield found
            patience *= 8


def _smaller_balls(task: Task, effort: Effort, low: float, high: float, budget: int) -> Iterator[Event]:
    """Bisect for a radius that is proved within `budget` nodes."""
    for _ in range(STAGES):
        radius = 0.5 * (low + high)
        ball = Ball(task, effort, None, radius)
        proved = True
        for node, event in enumerate(ball.run()):
            yield event
            if node >= budget or isinstance(event, Improve):
                proved = False
                break
        high = min(task.U, high if proved else radius)
        low = radius if proved else low


def affine(task: Task) -> Iterator[Event]:
    """No hidden layer: one program a clause."""
    leaves = Leaves(task)
    lower = math.inf
    for clause in task.problem.clauses:
        answer = leaves.solve(np.zeros(0), np.zeros(0, np.bool_), clause, task.cutoff)
        lower = min(lower, answer.lower)
        if answer.value < task.U:
            yield from task.suggest(answer.step, clause)
    yield Bound(min(lower, task.cutoff))
