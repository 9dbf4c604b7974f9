"""The adaptive search: best first over nodes that fix the phases of some neurons of any layers (docs/adaptive.md).

A node is bounded by an optimised linear relaxation, split at the neuron whose children promise most, and closed when
its proved bound reaches U or, without free neurons, by one exact distance program. All clauses share one queue and U.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, ROWS, Model, build
from layercert.search.adaptive.record import Halfspace, Recorder, RowParameters
from layercert.search.events import Bound, Event
from layercert.search.queue import PriorityQueue
from layercert.search.task import Task

#: Wider layers keep their triangles: folds cost more there than they bring.
WIDE = 128


@dataclass(frozen=True)
class Effort:
    """How hard a node is worked on."""

    root_steps: int = 40
    root_rounds: int = 20
    steps: int = 20
    candidates: int = 12
    probe_steps: int = 3
    rounds: int = 30
    root_passes: int = 5
    passes: int = 1
    seek_steps: int = 20
    every: int = 2  # steps between folds of the upper planes (0: triangles only)
    again: int = 20  # steps for the planes of a node before it is split
    refresh: float = 0.98  # a node bounded in a ball this much larger than today's is bounded again


@dataclass(eq=False)
class Node:
    """An open node; `radius` is the ball its bounds were taken in."""

    number: int
    clause: int
    bound: float
    state: Matrix
    weights: Vector
    radius: float

    @property
    def halfspace(self) -> Halfspace:
        return Halfspace(self.state[ALPHA], self.state[BETA], self.weights)


class Ball:
    """The search inside one ball around x; the part of it that matters shrinks as witnesses are found."""

    def __init__(self, task: Task, effort: Effort, recorder: Recorder | None, radius: float) -> None:
        if max(task.problem.network.widths) > WIDE:
            effort = replace(effort, every=0)
        self.task, self.effort, self.recorder = task, effort, recorder
        self.radius = radius
        self.closed = math.inf  # least proved bound of a closed node
        self.nodes = 0
        self.queue: PriorityQueue[Node] = PriorityQueue()
        self.leaves = Leaves(task)
        self.model: Model
        self.first: Indices
        self.model, self.first, self.root = build(task.problem, self.U)
        self.meets = (self.root[LO] < 0) & (self.root[HI] > 0)  # neurons whose hyperplane may meet the ball
        if recorder is not None:
            recorder.ball(self.U)

    @property
    def U(self) -> float:
        """The radius of the ball, or the distance of a witness inside it."""
        return min(self.radius, self.task.cutoff)

    @property
    def goal(self) -> float:
        """A node with this bound is closed. A radius is proved in full, a witness's distance up to the gap."""
        return min(self.radius, self.task.goal)

    def run(self) -> Iterator[Event]:
        from layercert.search.adaptive.branch import expand

        for clause in range(len(self.task.problem.clauses)):
            yield from self._start(clause)
        model, effort = self.model, self.effort
        kids = np.empty((2, ROWS, self.root.shape[1]))
        points = np.empty((2, model.W0.shape[1]))
        bounds = np.empty(2)
        lower = 0.0
        while self.queue:
            key, node = self.queue.pop()
            if key >= self.goal:
                self._close(node)
                continue
            lower = max(lower, min(key, self.closed))
            yield Bound(lower)  # at every node, raised or not: whoever listens also watches the clock
            if effort.refresh * node.radius > self.U:
                yield from self._refresh(node)
                continue
            rows = int(self.first[node.clause])
            kid_weights = np.empty((2, len(node.weights)))
            neuron = expand(
                model, node.state, node.weights, rows, node.bound, self.U, self.goal, effort.candidates,
                effort.probe_steps, effort.steps, effort.rounds, effort.passes, effort.every,
                effort.again, kids, kid_weights, bounds, points,
            )  # fmt: skip
            children = [
                Node(self.nodes + i, node.clause, float(bounds[i]), kids[i].copy(), kid_weights[i], node.radius)
                for i in range(2)
            ]
            self.nodes += 2
            if self.recorder is not None:
                layer = int(np.searchsorted(model.noff, neuron, side="right")) - 1
                at, pair = int(neuron - model.noff[layer]), (children[0].number, children[1].number)
                self.recorder.split(node.number, layer, at, pair, node.halfspace)
            for i, child in enumerate(children):
                self._tell_rows(child.number, node.state)
                yield from self._consider(child, points[i])
        yield Bound(min(self.U, self.closed))

    def improve(self, step: Vector, distance: float, clause: int) -> Iterator[Event]:
        if distance < self.U:
            yield from self.task.suggest(step, self.task.problem.clauses[clause])

    def _seek(self, step: Vector, clause: int) -> Iterator[Event]:
        """A short attack from a node's nearest point."""
        from layercert.attack.kernel import seek

        m, x = self.model, self.task.problem.x
        distance, w = seek(
            m.W0, m.Wh, m.b, m.noff, m.woff, m.R, m.c, self.first, x, m.box_lo, m.box_hi, m.boxed, m.p,
            clause, step, self.effort.seek_steps, self.U,
        )  # fmt: skip
        yield from self.improve(w, float(distance), clause)

    def polish(self, step: Vector, clause: int) -> Iterator[Event]:
        """The exact distance on the linear piece of a witness, then on the pieces behind the faces that hold it up."""
        z = np.concatenate(self.task.problem.network.preactivations(self.task.problem.x + step))
        answer = self.leaves.solve(np.where(z > 0, 1.0, -1.0), self.meets, self.task.problem.clauses[clause], self.U)
        yield from self.improve(answer.step, answer.value, clause)

    def _start(self, clause: int) -> Iterator[Event]:
        """The root of a clause: a cheap bound first, so that a hopeless target costs nothing."""
        from layercert.search.adaptive.bound import deepen, optimise
        from layercert.search.adaptive.hull import relaxation

        rows = slice(int(self.first[clause]), int(self.first[clause + 1]))
        weights = np.full(rows.stop - rows.start, 1.0 / (rows.stop - rows.start))
        node = Node(self.nodes, clause, 0.0, self.root.copy(), weights, self.U)
        self.nodes += 1
        if self.recorder is not None:
            self.recorder.root(node.number, self.task.problem.clauses[clause])
        w = np.zeros(self.model.W0.shape[1])
        relaxed = relaxation(self.model, node.state)
        args = (self.model, node.state, weights, rows.start)
        effort, goal = self.effort, self.goal
        node.bound = optimise(*args, goal, 0, 0, relaxed, w)
        if node.bound < goal:
            node.bound = max(node.bound, optimise(*args, goal, effort.root_steps, effort.every, relaxed, w))
        for passes in (0, effort.root_passes):
            if node.bound < goal:
                rounds = effort.root_rounds
                node.bound = deepen(
                    *args, self.U, goal, node.bound, effort.steps, rounds, passes, effort.every, relaxed, w
                )
        self._tell_rows(node.number, self.root)
        yield from self._consider(node, w)

    def _consider(self, node: Node, step: Vector) -> Iterator[Event]:
        """Close a bounded node, or finish it exactly, or queue it; its nearest point may be a witness."""
        if node.bound >= self.goal:
            self._close(node)
            return
        if self.recorder is not None:
            self.recorder.wait(node.number, node.halfspace)
        problem = self.task.problem
        clause = problem.clauses[node.clause]
        yield from self._seek(step, node.clause)
        state = node.state
        if bool(((state[PHASE] == 0) & (state[LO] < 0) & (state[HI] > 0)).any()):
            self.queue.push(node.bound, node)
            return
        # stable neurons have rows too, unless the whole ball is on their side: theirs is proved for unsafe points only
        sides = np.where((state[PHASE] > 0) | ((state[PHASE] == 0) & (state[LO] >= 0)), 1.0, -1.0)
        answer = self.leaves.solve(sides, self.meets, clause, self.U)
        node.bound = max(node.bound, answer.lower)
        self._close(node)
        yield from self.improve(answer.step, answer.value, node.clause)

    def _refresh(self, node: Node) -> Iterator[Event]:
        """Bound a node again in today's smaller ball."""
        from layercert.search.adaptive.bound import deepen
        from layercert.search.adaptive.hull import relaxation

        w = np.zeros(self.model.W0.shape[1])
        node.radius = self.U
        rows = int(self.first[node.clause])
        node.bound = deepen(
            self.model, node.state, node.weights, rows, self.U, self.goal, node.bound,
            self.effort.steps, self.effort.rounds, self.effort.passes, self.effort.every,
            relaxation(self.model, node.state), w,
        )  # fmt: skip
        yield from self._consider(node, w)

    def _tell_rows(self, node: int, state: Matrix) -> None:
        """The rows' parameters as the last passes left them, for the neurons that are open in the state."""
        model = self.model
        if self.recorder is None or not len(model.slopes):
            return
        for k in range(1, len(model.noff) - 1):
            below, end = int(model.noff[k]), int(model.noff[k + 1])
            free = below + np.flatnonzero((state[LO, below:end] < 0) & (state[HI, below:end] > 0))
            at = np.concatenate([2 * free, 2 * free + 1])
            at = at[model.slopes[at, 0] >= 0]  # others had no pass yet
            rows = RowParameters(
                at // 2, at % 2 == 0, model.slopes[at, :below], model.betas[at, :below], model.pulls[at]
            )
            self.recorder.rows(node, rows)

    def _close(self, node: Node) -> None:
        self.closed = min(self.closed, node.bound)
        if self.recorder is not None:
            self.recorder.close(node.number, node.halfspace)
