"""LayerCert with recursive convex restrictions (Algorithm 4): M is tightened at every pattern on the way down.

Line numbers in comments are those of Algorithm 4, which alone queues M with a pattern [E4]. `restrict` is a part:
CROWN's halfspace on the region, or the LP relaxation of single ReLUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from layercert.arrays import Vector
from layercert.bounds.linear import Relaxation, relax
from layercert.bounds.lp import lp_cut
from layercert.geometry import Cell, Polyhedron
from layercert.problem import Clause
from layercert.search.events import Bound, Event, Prune, Queue, Visit
from layercert.search.paper.layercert import ContainsDB, queue_siblings
from layercert.search.paper.parts import Goal, SeenEarly, warm_start
from layercert.search.queue import PriorityQueue
from layercert.search.task import Task
from layercert.system import clock

#: (task, A, clause, M) -> the tightened M on R_A and the point of R_A and M nearest to x; None when it is beyond U.
Restrict = Callable[[Task, Cell, Clause, Polyhedron], tuple[Polyhedron, float, Vector] | None]


def layercert_recursive(task: Task, contains_db: ContainsDB, restrict: Restrict) -> Iterator[Event]:
    """As the LayerCert framework, one goal per clause, with M recomputed for every pattern that is entered."""
    Q: PriorityQueue[tuple[Cell, Vector, Goal]] = PriorityQueue()  # 3
    seen: dict[int, SeenEarly] = {}  # 5
    everywhere = Polyhedron.everything(task.cells.inputs)
    for number, clause in enumerate(task.problem.clauses):
        found = restrict(task, task.cells.root, clause, everywhere)  # 2
        if found is not None:
            goal = Goal(number, (clause,), *found)
            first = task.cells.first(goal.step)
            seen[number] = SeenEarly()
            seen[number].queued(first)  # [E2]
            Q.push(goal.distance, (first, goal.step, goal))  # 4
    while Q:  # 6
        d, (A, _, goal) = Q.pop()  # 7
        yield Bound(task.lower(d))
        if task.cutoff <= d:  # 8-9
            return
        yield Visit(A, d)
        S = seen[goal.number]
        if A.is_full:  # 10
            yield from task.decision(A, goal.clauses)  # 11
        else:
            found = None
            if contains_db(A, task.cutoff, goal.clauses):  # 12-13
                found = restrict(task, A, goal.clauses[0], goal.M)  # 14
            if found is None:
                yield Prune(A, "no decision boundary here")
            else:
                M, nearer, step = found
                child = A.next_layer(step)  # [E8]
                S.queued(child)  # [E2]
                key = max(d, nearer)
                Q.push(key, (child, step, replace(goal, M=M)))  # 15
                yield Queue(child, key, A)
        yield from queue_siblings(task, A, goal, S, Q)  # 16-20
    yield Bound(task.lower(math.inf))  # [E3]


def crown_restrict(task: Task, A: Cell, clause: Clause, M: Polyhedron) -> tuple[Polyhedron, float, Vector] | None:
    """M with CROWN's halfspace on R_A added."""
    relaxation = _relaxation(task, A)
    if relaxation is not None:
        halfspace = relaxation.lower(clause)
        if halfspace is None:
            return None
        M = M & halfspace
    return _entry(task, A, M)


def lp_restrict(task: Task, A: Cell, clause: Clause, M: Polyhedron) -> tuple[Polyhedron, float, Vector] | None:
    """M with the halfspaces of the LP relaxation on R_A that the nearest point violates, until it violates none."""
    relaxation = _relaxation(task, A)
    if relaxation is None:
        return _entry(task, A, M)
    halfspace = relaxation.lower(clause)
    if halfspace is None:
        return None
    M = M & halfspace
    for _ in range(20):
        clock.check()
        found = _entry(task, A, M)
        if found is None:
            return None
        cut = lp_cut(relaxation, clause, found[2])
        if cut is None:
            return found
        M = M & cut
    return _entry(task, A, M)


def _relaxation(task: Task, A: Cell) -> Relaxation | None:
    """CROWN on R_A inside the ball; at the root all clauses ask for the same one, so the last one is kept."""
    if task.relaxed is None or task.relaxed[:2] != (A, task.U):
        task.relaxed = (A, task.U, relax(A, task.U))
    return task.relaxed[2]


def _entry(task: Task, A: Cell, M: Polyhedron) -> tuple[Polyhedron, float, Vector] | None:
    """The point of R_A and M nearest to x."""
    if A.parent is None:
        found = warm_start(task, M)
    else:
        region, _ = A.region(task.ball)
        found = task.nearest(region & M)
    return None if found is None else (M, *found)
