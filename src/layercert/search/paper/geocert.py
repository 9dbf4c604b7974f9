"""GeoCert (Algorithm 1 of the paper; Jordan et al. 2019), with the l_p or the Lipschitz priority.

Line numbers in comments are the paper's. [E1], [E3], [E9], [E10] are explained in docs/paper-notes.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from layercert.arrays import Indices, Vector, gamma
from layercert.bounds.linear import relax
from layercert.bounds.lipschitz import fast_lip
from layercert.geometry import Cell, Polyhedron
from layercert.geometry.cells import CellStore
from layercert.programs.program import Programs
from layercert.search.events import Bound, Event, Queue, Visit
from layercert.search.queue import PriorityQueue
from layercert.search.task import Task


class Priority(Protocol):
    """Lower bounds, one per face, of the distance to any unsafe point behind that face; inf where the face is empty."""

    def __call__(self, A: Cell, rows: Polyhedron, faces: Indices) -> Vector: ...


class PriorityOf(Protocol):
    def __call__(self, task: Task) -> Priority: ...


def geocert(task: Task, priority_of: PriorityOf) -> Iterator[Event]:
    """Visit full activation regions in the order of the priority, from neighbour to neighbour."""
    priority = priority_of(task)
    store = CellStore(task.cells)
    clauses = task.problem.clauses
    Ax = task.cells.full(np.zeros(task.cells.inputs))  # 2
    Q: PriorityQueue[Cell] = PriorityQueue()  # 3
    Q.push(0.0, Ax)  # 4
    S: set[bytes] = set()  # 5
    while Q:  # 6
        d, A = Q.pop()  # 7
        if A.key in S:  # 8-9
            continue
        S.add(A.key)  # 10 [E1]
        yield Bound(task.lower(d))
        if task.cutoff <= d:  # 11-12
            return
        yield Visit(A, d)
        yield from task.decision(A, clauses)  # 13, before the faces: U may prune them [E10]
        rows, ids = A.region(task.ball)
        neighbours = [(i, A.flip(*neuron)) for i, neuron in enumerate(ids)]
        open_faces = [(i, B) for i, B in neighbours if B.key not in S]  # 14
        if not open_faces:
            continue
        keys = priority(A, rows, np.array([i for i, _ in open_faces], dtype=np.intp))  # 15-16
        for key, (_, B) in zip(keys, open_faces, strict=True):
            if key < task.cutoff:
                Q.push(float(key), store.of(B.pattern))  # 17
                yield Queue(B, float(key), A)
    yield Bound(task.lower(math.inf))  # [E3]


def distance_priority(task: Task) -> Priority:
    """q(x, v) = ||x - v||_p; an undecided face keeps its proved bound as key, which costs time but no truth."""

    def priority(A: Cell, rows: Polyhedron, faces: Indices) -> Vector:
        return task.chain.solve(Programs(rows, faces, task.problem.norm, task.problem.box, task.cutoff)).lower

    return priority


def lipschitz_priority(task: Task) -> Priority:
    """q(x, v) = ||x - v||_p + min_j (f_y(v) - f_j(v)) / L_j, one convex program per target [E9].

    From a point v of the face on the segment to an unsafe point u, ||x - u|| = ||x - v|| + ||v - u|| and the second
    part is at least the margin at v over its Lipschitz constant: the priority never exceeds the distance to u.
    """
    norm, box = task.problem.norm, task.problem.box
    relaxation = relax(task.cells.root, task.U)
    constants = [fast_lip(task.cells, clause, relaxation) for clause in task.problem.clauses]

    def priority(A: Cell, rows: Polyhedron, faces: Indices) -> Vector:
        # which faces are there at all: for those that are, part of the same question and not counted on its own
        plain = task.chain.recheck(Programs(rows, faces, norm, box, task.cutoff))
        keys = plain.lower.copy()
        there = np.flatnonzero(plain.lower < task.cutoff)
        task.chain.count(len(faces) - len(there), len(rows))  # a face ruled out is a program solved, as elsewhere
        if not len(there):
            return keys
        least = np.full(len(there), math.inf)
        for clause, L in zip(task.problem.clauses, constants, strict=True):
            unsafe = A.unsafe(clause)
            margin = -unsafe.r - unsafe.slack  # C f(x) - d, rounded down
            best = int(np.argmax(np.where(L > 0, margin / np.where(L > 0, L, 1.0), -math.inf)))
            if not L[best] > 0:
                continue  # constant rows: decided by `decision` alone, and no distance leads to them
            # a hair less than the full Lipschitz term keeps ||w|| + tilt.w positive; still a lower bound
            tilt = unsafe.A[best] / L[best] * (1.0 - 1e-9)
            noise = (unsafe.growth[best] + gamma(8) * float(norm.dual(unsafe.A[best]))) / L[best] * task.cutoff
            base = float(margin[best] / L[best]) * (1.0 - 1e-9) - float(noise)
            programs = Programs(rows, faces[there], norm, box, task.cutoff - min(base, 0.0), tilt)
            answers = task.chain.solve(programs)
            # an undecided program keeps its plain distance as the key: also a valid lower bound
            least = np.minimum(least, np.maximum(answers.lower + base, 0.0))
        keys[there] = np.maximum(keys[there], np.where(np.isfinite(least), least, keys[there]))
        return keys

    return priority
