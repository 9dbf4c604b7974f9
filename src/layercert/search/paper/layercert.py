"""LayerCert-Basic and the LayerCert framework (Algorithms 2 and 3), in one loop with three pluggable parts.

    contains_db(A, U, clauses)   False only if R_A inside the ball of radius U holds no unsafe point   (line 13)
    restriction(task)            convex sets M that hold every unsafe point, with a warm start          (line 2)
    seen                         when a pattern counts as seen: on being queued, or late (the ablation)

LayerCert-Basic is the framework with trivial parts. Line numbers in comments are those of Algorithm 3; [E2]..[E8] are
explained in docs/paper-notes.md; [E10] (what Theorem C.1 needs of U) is where U falls, line 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from layercert.arrays import Vector
from layercert.geometry import Cell
from layercert.problem import Clause
from layercert.search.events import Bound, Event, Prune, Queue, Visit
from layercert.search.paper.parts import Goal, Seen
from layercert.search.queue import PriorityQueue
from layercert.search.task import Task, usable

ContainsDB = Callable[[Cell, float, tuple[Clause, ...]], bool]
Restriction = Callable[[Task], list[Goal]]


def layercert(
    task: Task, contains_db: ContainsDB, restriction: Restriction, seen: Callable[[], Seen]
) -> Iterator[Event]:
    """Visit partial activation regions in ascending order of distance, from sibling to sibling and layer to layer.

    A goal is a group of clauses with the set M that holds their unsafe points; all goals share U and one queue [E7].
    """
    Q: PriorityQueue[tuple[Cell, Vector, Goal]] = PriorityQueue()  # 3
    S: dict[int, Seen] = {}
    for goal in restriction(task):  # 2
        first = task.cells.first(goal.step)
        S[goal.number] = seen()  # 5
        S[goal.number].queued(first)  # [E2]
        Q.push(goal.distance, (first, goal.step, goal))  # 4, M travels with the goal [E4]
    while Q:  # 6
        d, (A, v, goal) = Q.pop()  # 7
        if S[goal.number].visited(A):
            continue
        yield Bound(task.lower(d))
        if task.cutoff <= d:  # 8-9
            return
        yield Visit(A, d)
        if A.is_full:  # 10
            yield from task.decision(A, goal.clauses)  # 11 [E10]
        elif contains_db(A, task.cutoff, goal.clauses):  # 12-13
            child = A.next_layer(v)  # 14 [E8]
            S[goal.number].queued(child)  # [E2]
            Q.push(d, (child, v, goal))  # 15
            yield Queue(child, d, A)
        else:
            yield Prune(A, "no decision boundary here")
        yield from queue_siblings(task, A, goal, S[goal.number], Q)  # 16-20
    yield Bound(task.lower(math.inf))  # [E3]


def queue_siblings(
    task: Task, A: Cell, goal: Goal, S: Seen, Q: PriorityQueue[tuple[Cell, Vector, Goal]]
) -> Iterator[Event]:
    """Lines 16-20: the distance to Face(A, A') inside M for each neighbouring sibling A' not yet seen."""
    if A.parent is None:
        return  # a network without hidden layers has one region
    neurons = A.above.near(task.ball).tolist()
    siblings = [(i, A.flip(A.level, j)) for i, j in enumerate(neurons)]
    siblings = [(i, B) for i, B in siblings if B not in S]  # 16
    if not siblings:
        return
    rows, ids = A.region(task.ball, goal.M)
    own = len(ids) - len(neurons)  # where the rows of A's own layer begin: no layer's come after them
    answers = task.faces(rows, np.array([own + i for i, _ in siblings], dtype=np.intp))  # 17-18
    for (_, B), d, step in zip(siblings, answers.lower, answers.steps, strict=True):
        if d < task.cutoff:
            # Mark B when it is queued: by Prop. B.1 any nearer neighbour gives the same distance.
            S.queued(B)  # 20
            Q.push(float(d), (B, usable(step), goal))  # 19
            yield Queue(B, float(d), A)
