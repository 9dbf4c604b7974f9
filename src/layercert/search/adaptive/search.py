"""The adaptive search from the outside: first witnesses, growing balls where there is none, trivial networks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from layercert.attack import attack
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


def adaptive(task: Task, effort: Effort | None = None, recorder: Recorder | None = None) -> Iterator[Event]:
    """The nearest unsafe point, exactly; every Bound is proved, rounding included."""
    problem = task.problem
    effort = effort or Effort()
    if not problem.clauses:
        yield Bound(task.U)
        return
    if (problem.network.is_sparse or problem.network.neurons > MANY) and recorder is None:
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
    limit = min(task.U, task.horizon)
    witness = min(problem.radius, problem.reach) > task.U  # the caller's
    first = None if witness else attack(problem, limit)
    if first is not None:
        step, limit, clause = first
        task.U, witness = limit, True
        yield Improve(step, limit, clause)
        if limit <= 0:
            return
    # without a witness nothing says how large the ball must be, unless a radius was asked for: let it grow
    radius = limit if witness or limit >= problem.radius else min(limit, task.first_radius())
    while True:
        ball = Ball(task, effort, recorder, radius, witness)
        if first is not None:
            yield from _book(task, ball.polish(first[0], problem.clauses.index(first[2])))
            first = None
        yield from _book(task, ball.run())
        if ball.witness or radius >= limit:
            return
        radius = min(GROWTH * radius, limit)


def _book(task: Task, events: Iterator[Event]) -> Iterator[Event]:
    """Keep the task's upper bound in step with the ball's."""
    for event in events:
        if isinstance(event, Improve):
            task.U = min(task.U, event.distance)
        yield event


def affine(task: Task) -> Iterator[Event]:
    """No hidden layer: one program a clause."""
    leaves = Leaves(task)
    lower = math.inf
    for clause in task.problem.clauses:
        answer = leaves.solve(np.zeros(0), np.zeros(0, np.bool_), clause, min(task.U, task.horizon))
        lower = min(lower, answer.lower)
        if answer.value < task.U:
            task.U = answer.value
            yield Improve(answer.step, answer.value, clause)
    yield Bound(min(lower, task.U, task.horizon))
