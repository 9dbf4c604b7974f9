"""The adaptive search: best first over nodes that fix the phases of some neurons of any layers (docs/adaptive.md).

A node is bounded by an optimised linear relaxation, split at the neuron whose children promise most, and closed when
its proved bound reaches U or, without open neurons, by one exact distance program. All clauses share one queue and U.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import Indices, Matrix, Vector
from layercert.attack.kernel import PackedProblem
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, Kept, Model, build, keep_rows
from layercert.search.adaptive.record import Halfspace, Recorder, RowParameters
from layercert.search.events import Bound, Event
from layercert.search.queue import PriorityQueue
from layercert.search.task import Task
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.branch import Batch

#: The most pieces that the first witness is moved through, those of later ones, and the faces that are tried at each,
#: the steepest first.
POLISHED, REPOLISHED, FLIPS = 60, 3, 6
#: Nodes this near to U (relative) get linear programs, so many at most, while each closes this share of the gap.
NEAR, PROGRAMS, PROGRAM_SHARE = 3e-3, 6, 0.2
#: A piece is nearer if its point is, by this much (relative).
WORTH_MOVING = 1e-7
#: The first nodes are all attacked from their nearest points, of later ones one in so many: an attack takes as long as
#: half a node.
SOUGHT, SOUGHT_LATER = 50, 16
#: A witness is polished where the time suffices for so many pieces.
PIECES_LEFT = 20
#: Roots that are bounded side by side.
ROOTS = 32


@dataclass(frozen=True)
class Effort:
    """How hard a node is worked on."""

    root_steps: int = 40
    root_rounds: int = 20
    root_passes: int = 5
    quick_steps: int = 10
    quick_rounds: int = 4
    steps: int = 20
    candidates: int = 8
    probe_steps: int = 3
    rounds: int = 1
    passes: int = 1
    seek_steps: int = 20
    together: int = 16  # nodes that are split at once
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
    programmed: bool = False  # has had its linear programs

    @property
    def halfspace(self) -> Halfspace:
        return Halfspace(self.state[ALPHA], self.state[BETA], self.weights)

    @property
    def open(self) -> Indices:
        """Neurons that may have either sign."""
        state = self.state
        return np.flatnonzero((state[PHASE] == 0) & (state[LO] < 0) & (state[HI] > 0))


class Ball:
    """The search inside one ball around x; the part of it that matters shrinks as witnesses are found."""

    def __init__(self, task: Task, effort: Effort, recorder: Recorder | None, radius: float) -> None:
        self.task, self.effort, self.recorder = task, effort, recorder
        self.radius = radius
        self.closed = math.inf  # least proved bound of a closed node
        self.nodes = 0
        self.queue: PriorityQueue[Node] = PriorityQueue()
        self.leaves = Leaves(task)
        self.asked = PackedProblem.of(task.problem)
        self.model: Model
        self.model, self.root = build(task.problem, self.U)
        self.rows = int(np.diff(self.model.first).max())  # of the longest clause
        self.meets = (self.root[LO] < 0) & (self.root[HI] > 0)  # neurons whose hyperplane may meet the ball
        # rows are told as the last pass left them: of this node, if nodes are split one by one
        self.together = effort.together if recorder is None else 1
        self.threads = (task.threads or 1) if recorder is None else 1
        self.stores: list[Kept] = []  # what rows keep, for each thread its own
        if recorder is not None:
            recorder.ball(self.U)

    @property
    def kept(self) -> Kept:
        """What rows keep from visit to visit, in the first thread."""
        if not self.stores:
            self.stores.append(keep_rows(self.model.net))
        return self.stores[0]

    @cached_property
    def maps(self) -> list[csr_array]:
        """The layers, sparse whatever they are."""
        return [csr_array(W) for W in self.task.problem.network.maps]

    @property
    def U(self) -> float:
        """The radius of the ball, or the distance of a witness inside it."""
        return min(self.radius, self.task.cutoff)

    @property
    def goal(self) -> float:
        """A node with this bound is closed. A radius is proved in full, a witness's distance up to the gap."""
        return min(self.radius, self.task.goal)

    def run(self) -> Iterator[Event]:
        yield from self._start()
        lower = 0.0
        while self.queue:
            nodes: list[Node] = []
            while self.queue and len(nodes) < self.together * self.threads:
                key, node = self.queue.pop()
                if key >= self.goal:
                    self._close(node)
                elif self.effort.refresh * node.radius > self.U:
                    yield from self._refresh(node)
                elif not node.programmed and key > (1.0 - NEAR) * self.U and math.isinf(self.model.p):
                    yield from self._program(node)
                else:
                    if not nodes:
                        lower = max(lower, min(key, self.closed))
                        yield Bound(lower)  # raised or not: whoever listens also watches the clock
                    nodes.append(node)
            if nodes:
                yield from self._split(nodes)
        yield Bound(min(self.U, self.closed))

    def _split(self, nodes: list[Node]) -> Iterator[Event]:
        """Split some nodes at once, and look at their children."""
        shares = [nodes[part :: self.threads] for part in range(min(self.threads, len(nodes)))]
        while len(self.stores) < len(shares):
            self.stores.append(keep_rows(self.model.net))
        timer, U, goal = clock.timer(), self.U, self.goal  # the scope belongs to this thread
        expand = partial(self._expand, U=U, goal=goal, timer=timer)
        if len(shares) == 1:
            split = [expand(shares[0], self.kept)]
        else:
            with ThreadPoolExecutor(len(shares)) as pool:
                split = list(pool.map(expand, shares, self.stores))
        for share, (children, neurons) in zip(shares, split, strict=True):
            yield from self._children(share, children, neurons)

    def _expand(
        self, nodes: list[Node], kept: Kept, U: float, goal: float, timer: clock.Timer
    ) -> tuple[Batch, Indices]:
        """The children of some nodes, two of each, and the neurons that were split; runs in any thread."""
        from layercert.search.adaptive.bound import Effort as Work
        from layercert.search.adaptive.branch import expand

        effort = self.effort
        work = Work(effort.candidates, effort.probe_steps, effort.steps, effort.rounds, effort.passes)
        children, neurons = expand(self.model, kept, self._batch(nodes), U, goal, work, timer)
        return children, neurons

    def _children(self, nodes: list[Node], children: Batch, neurons: Indices) -> Iterator[Event]:
        """Look at the children of nodes that were split."""
        for n, node in enumerate(nodes):
            if neurons[n] < 0:  # out of time before its turn
                self.queue.push(node.bound, node)
                continue
            pair = []
            for i in (2 * n, 2 * n + 1):
                state, weights = children.states[i].copy(), children.mus[i, : len(node.weights)].copy()
                pair.append(Node(self.nodes, node.clause, float(children.bounds[i]), state, weights, node.radius))
                self.nodes += 1
            if self.recorder is not None:
                noff = self.model.net.noff
                layer = int(np.searchsorted(noff, neurons[n], side="right")) - 1
                at = int(neurons[n] - noff[layer])
                self.recorder.split(node.number, layer, at, (pair[0].number, pair[1].number), node.halfspace)
            for i, child in enumerate(pair):
                self._tell_rows(child.number, node.state)
                yield from self._consider(child, children.points[2 * n + i])

    def improve(self, step: Vector, distance: float, clause: int) -> Iterator[Event]:
        if distance < self.U:
            yield from self.task.suggest(step, self.task.problem.clauses[clause])

    def _seek(self, step: Vector, clause: int) -> Iterator[Event]:
        """A short attack from a node's nearest point."""
        from layercert.attack.kernel import seek

        distance, w = seek(self.asked, clause, step, self.effort.seek_steps, self.U, clock.timer())
        if distance < self.U:
            yield from self.improve(w, float(distance), clause)
            yield from self.polish(w, clause, REPOLISHED)

    def polish(self, step: Vector, clause: int, pieces: int = POLISHED) -> Iterator[Event]:
        """From a witness downhill over linear pieces: the exact distance on its piece, then on the pieces behind the
        faces that hold the nearest point up, for as long as one of them is nearer."""
        if not self.task.problem.network.fits_dense or clock.left() < PIECES_LEFT * self.leaves.seconds:
            return  # a piece's rows are dense
        z = np.concatenate(self.task.problem.network.preactivations(self.task.problem.x + step))
        sides, unsafe = np.where(z > 0, 1.0, -1.0), self.task.problem.clauses[clause]
        neurons = np.flatnonzero(self.meets)
        answer = self.leaves.solve(sides, self.meets, unsafe, self.U)
        yield from self.improve(answer.step, answer.value, clause)
        for _ in range(pieces):
            weight = answer.multipliers[: len(neurons)]
            holding = neurons[np.argsort(-weight)][: int((weight > 0).sum())]
            for flipped in (*holding[:FLIPS, None], holding):
                clock.check()
                other = sides.copy()
                other[flipped] *= -1.0
                answer = self.leaves.solve(other, self.meets, unsafe, self.U)
                if answer.value < self.U * (1.0 - WORTH_MOVING):
                    break
            else:
                return
            sides = other
            yield from self.improve(answer.step, answer.value, clause)

    def _start(self) -> Iterator[Event]:
        """The roots of all clauses side by side: a cheap bound first, so that a hopeless target costs nothing."""
        effort, first = self.effort, self.model.first
        for begin in range(0, len(first) - 1, ROOTS):
            nodes = self._roots(begin)
            if self.recorder is not None:
                for node in nodes:
                    self.recorder.root(node.number, self.task.problem.clauses[node.clause])
            points = np.zeros((len(nodes), self.model.net.inputs))
            for steps, rounds, passes in (
                (0, 0, 0), (effort.root_steps, 0, 0), (effort.steps, effort.root_rounds, 0),
                (effort.steps, effort.root_rounds, effort.root_passes),
            ):  # fmt: skip
                going = [n for n, node in enumerate(nodes) if node.bound < self.goal]
                if going:
                    points[going] = self._bound([nodes[n] for n in going], steps, rounds, passes)
                    if begin + ROOTS >= len(first) - 1:
                        roots = min(node.bound for node in nodes)
                        yield Bound(max(0.0, min(self.closed, self.queue.least, roots, self.U)))
            for node, w in zip(nodes, points, strict=True):
                self._tell_rows(node.number, self.root)
                yield from self._consider(node, w)

    def quick(self) -> float:
        """What the roots prove with a few steps and rounds each, for bounds at once."""
        first, least = self.model.first, math.inf
        for begin in range(0, len(first) - 1, ROOTS):
            nodes = self._roots(begin)
            steps = self.effort.quick_steps
            for stage in ((0, 0, 0), (steps, 0, 0), (steps, self.effort.quick_rounds, 0)):
                going = [node for node in nodes if node.bound < self.goal]
                if going and (stage[1] == 0 or all(node.bound > 0 for node in going)):
                    self._bound(going, *stage)
            least = min(least, *(node.bound for node in nodes))
        return least

    def _roots(self, begin: int) -> list[Node]:
        """The roots of some clauses, not bounded yet."""
        first, nodes = self.model.first, []
        for clause in range(begin, min(begin + ROOTS, len(first) - 1)):
            count = int(first[clause + 1] - first[clause])
            nodes.append(Node(self.nodes, clause, -math.inf, self.root.copy(), np.full(count, 1.0 / count), self.U))
            self.nodes += 1
        return nodes

    def _refresh(self, node: Node) -> Iterator[Event]:
        """Bound a node again in today's smaller ball."""
        node.radius = self.U
        w = self._bound([node], self.effort.steps, self.effort.rounds, self.effort.passes)
        yield from self._consider(node, w[0])

    def _program(self, node: Node) -> Iterator[Event]:
        """Bound a node by the exact multipliers of its relaxation, and tighten with what these leave of the ball."""
        from layercert.search.adaptive.program import solve

        node.programmed, step = True, np.zeros(self.model.net.inputs)
        for _ in range(PROGRAMS):
            before = node.bound
            found = solve(self.task.problem, self.maps, self.task.problem.clauses[node.clause], node.state, self.U)
            if found is None:
                break
            step = found.step
            old = node.state.copy(), node.weights
            node.state[ALPHA] = np.where(found.alpha >= 0, found.alpha, node.state[ALPHA])
            node.state[BETA], node.weights = found.beta, found.mu
            value = float(self._value(node))
            if value <= node.bound:
                node.state, node.weights = old
            node.bound = max(node.bound, value)
            if node.bound < self.goal:
                self._bound([node], self.effort.steps, 1, 1)
            if node.bound >= self.goal or self.U - node.bound > (1.0 - PROGRAM_SHARE) * (self.U - before):
                break
        yield from self._consider(node, step)

    def _value(self, node: Node) -> float:
        """What a node's parameters prove as they are."""
        fresh = replace(node, bound=-math.inf)
        self._bound([fresh], 0, 0, 0)
        node.state, node.weights = fresh.state, fresh.weights
        return fresh.bound

    def _bound(self, nodes: list[Node], steps: int, rounds: int, passes: int) -> Matrix:
        """Raise the bounds of nodes, with rounds of tightening or without; their halfspaces' nearest points."""
        from layercert.search.adaptive.ascent import optimise
        from layercert.search.adaptive.bound import Effort as Work
        from layercert.search.adaptive.bound import deepen
        from layercert.search.adaptive.lanes import lanes_of, store

        batch = self._batch(nodes)
        bounds = batch.bounds
        if rounds > 0:
            work = Work(0, 0, steps, rounds, passes)
            deepen(self.model, self.kept, batch, self.U, self.goal, work, clock.timer())
        else:
            lanes = lanes_of(self.model, batch.states, batch.mus, batch.clauses)
            bounds = np.maximum(bounds, optimise(self.model, lanes, self.goal, steps, batch.points, clock.timer()))
            for n in range(len(nodes)):
                store(lanes, n, batch.states[n], batch.mus[n])
        for n, node in enumerate(nodes):
            node.state, node.weights = batch.states[n], batch.mus[n, : len(node.weights)]
            node.bound = float(bounds[n])
        clock.check()
        return batch.points

    def _batch(self, nodes: list[Node]) -> Batch:
        """Nodes side by side, for the kernels; weights get zeros for the rows that only longer clauses have."""
        from layercert.search.adaptive.branch import Batch

        return Batch(
            np.stack([node.state for node in nodes]),
            np.stack([np.pad(node.weights, (0, self.rows - len(node.weights))) for node in nodes]),
            np.array([node.clause for node in nodes], np.intp),
            np.array([node.bound for node in nodes]),
            np.zeros((len(nodes), self.model.net.inputs)),
        )

    def _consider(self, node: Node, step: Vector) -> Iterator[Event]:
        """Close a bounded node, or finish it exactly, or queue it; its nearest point may be a witness."""
        if node.bound >= self.goal:
            self._close(node)
            return
        if self.recorder is not None:
            self.recorder.wait(node.number, node.halfspace)
        if node.number < SOUGHT or node.number % SOUGHT_LATER == 0:
            yield from self._seek(step, node.clause)
        if len(node.open):
            self.queue.push(node.bound, node)
            return
        if not self.task.problem.network.fits_dense or clock.left() < self.leaves.seconds:
            self._close(node)  # a piece's rows are dense; what is proved stays proved
            return
        # stable neurons have rows too, unless the whole ball is on their side: theirs is proved for unsafe points only
        state = node.state
        sides = np.where((state[PHASE] > 0) | ((state[PHASE] == 0) & (state[LO] >= 0)), 1.0, -1.0)
        answer = self.leaves.solve(sides, self.meets, self.task.problem.clauses[node.clause], self.U)
        node.bound = max(node.bound, answer.lower)
        self._close(node)
        yield from self.improve(answer.step, answer.value, node.clause)

    def _tell_rows(self, node: int, state: Matrix) -> None:
        """The rows' parameters as the last passes left them, for the neurons that are open in the state."""
        kept, noff = self.kept, self.model.net.noff
        if self.recorder is None or not len(kept.slopes):
            return
        for k in range(1, len(noff) - 1):
            below, end = int(noff[k]), int(noff[k + 1])
            free = below + np.flatnonzero((state[LO, below:end] < 0) & (state[HI, below:end] > 0))
            rows = np.concatenate([2 * free, 2 * free + 1])
            at = kept.at[rows]
            had = (kept.at[rows + 1] > at) & (kept.slopes[np.minimum(at, len(kept.slopes) - 1)] >= 0)
            rows, places = rows[had], at[had][:, None] + np.arange(below)  # others had no pass yet
            told = RowParameters(rows // 2, rows % 2 == 0, kept.slopes[places], kept.betas[places], kept.pulls[rows])
            self.recorder.rows(node, told)

    def _close(self, node: Node) -> None:
        self.closed = min(self.closed, node.bound)
        if self.recorder is not None:
            self.recorder.close(node.number, node.halfspace)
