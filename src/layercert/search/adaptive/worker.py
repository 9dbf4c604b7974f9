"""What is done with nodes: bounded, split, attacked, finished exactly. Each thread has a worker of its own.

Workers of one ball share its model, its frontier and the incumbent. What rows keep from visit to visit belongs to one
worker, so what it does depends on nobody else's order of visits.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.search.adaptive.model import ALPHA, Kept, keep_rows
from layercert.search.adaptive.node import Node, settle
from layercert.search.adaptive.pseudocosts import SLIGHT
from layercert.search.adaptive.record import Halfspace
from layercert.search.adaptive.trail import rounds_of
from layercert.search.adaptive.witnesses import Witnesses
from layercert.search.events import Bound, Event
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.branch import Batch
    from layercert.search.adaptive.model import Model
    from layercert.search.adaptive.tree import Ball

#: Nodes this near to U (relative) get linear programs, those with facets earlier: these close what nothing else does.
NEAR, NEAR_WITH_FACETS = 0.05, 0.2
#: Nodes with facets that are farther away are played (played.py). Where that closes a part of the gap, the nodes below
#: are played too, and get programs no sooner than this near, but for the first of their clause.
PLAYED_NEAR = 0.01
#: In the tail, nodes this near to U (relative) of trees with facets, programs prove what is proved: what the ascent and
#: rounds of tightening add takes as long as another node, and probes see no difference between neurons.
TAIL = 1e-3
#: The first nodes are all attacked from their nearest points, of later ones one in so many: an attack takes as long as
#: half a node.
SOUGHT, SOUGHT_LATER = 50, 16
#: Roots that are bounded side by side.
ROOTS = 32


class Fate(Enum):
    """What becomes of a node: it waits, it is closed, or there is no time left for its program."""

    OPEN = "open"
    CLOSED = "closed"
    LATE = "late"


class Worker:
    """One thread's part of the search in a ball."""

    def __init__(self, ball: Ball, known: list[Kept]) -> None:
        self.ball, self.task, self.effort = ball, ball.task, ball.effort
        self.witnesses = Witnesses(ball)
        self._known = known  # where what rows keep is handed on, to a search of the same ball

    @cached_property
    def kept(self) -> Kept:
        """What rows keep from visit to visit; certificates know no lines in a row's own layer."""
        if not self._known:
            above, noted = self.ball.book is None and self.ball.hulls is None, self.ball.book is not None
            rows = keep_rows(self.ball.model.net, above=above, noted=self.ball.rows if noted else 0)
            self._known.append(rows)
        return self._known[0]

    def work(self, nodes: list[Node]) -> Iterator[Event]:
        """Whatever some nodes need; afterwards their places in the frontier are taken by what became of them."""
        ball = self.ball
        if nodes[0].is_root or nodes[0].cheap:
            yield from self.start(nodes)
            return
        stale = [node for node in nodes if node.stale and node.bound < ball.U]
        if stale:
            self.bound(stale, 0, 0, 0)
            for node in stale:
                node.stale = False
        ready: list[Node] = []
        for node in nodes:
            if node.bound >= ball.U:
                self.close(node)
            elif self.effort.refresh * node.radius > ball.U:
                yield from self._refresh(node)
            elif self.wants_play(node):
                yield from self._play(node)
            elif self.wants_programs(node):
                yield from self._program(node)
            elif not len(node.open):  # there was no time for its program when it was made
                yield from self._again(node, np.zeros(ball.model.net.inputs))
            else:
                ready.append(node)
        if ready:
            yield from self.split(ready)

    def start(self, nodes: list[Node]) -> Iterator[Event]:
        """Roots side by side: a cheap bound first, so that a hopeless target costs nothing.

        Several workers put those that need more back into the queue, and each takes one at a time.
        """
        effort, ball = self.effort, self.ball
        points = np.zeros((len(nodes), ball.model.net.inputs))
        cheap = [(0, 0, 0), (effort.root_steps, 0, 0)]
        thorough = [(effort.steps, effort.root_rounds, 0), (effort.steps, effort.root_rounds, effort.root_passes)]
        stages = [*cheap, *thorough]
        if len(ball.workers) > 1:
            stages = thorough if nodes[0].cheap else cheap
        for steps, rounds, passes in stages:
            going = [n for n, node in enumerate(nodes) if node.bound < ball.U]
            if going:
                points[going] = self.bound([nodes[n] for n in going], steps, rounds, passes)
                for n in going:
                    self.tell(nodes[n], rows=passes > 0)
                if len(ball.workers) == 1:
                    yield Bound(ball.frontier.least)
        for node, w in zip(nodes, points, strict=True):
            node.cheap = stages == cheap and node.bound < ball.U
            if node.cheap:
                self._put(node, [node], [Fate.OPEN])
            else:
                yield from self._again(node, w)

    def is_ready(self, node: Node) -> bool:
        """Is splitting what it needs?"""
        ball = self.ball
        old = self.effort.refresh * node.radius > ball.U
        done = node.bound >= ball.U or not len(node.open)
        return not (node.stale or node.cheap or old or done or self.wants_play(node) or self.wants_programs(node))

    def wants_play(self, node: Node) -> bool:
        """Are facets to be looked for, without a program?"""
        from layercert.search.adaptive.played import is_affordable

        ball = self.ball
        if node.played or node.programmed or ball.hulls is None or not math.isinf(ball.model.p):
            return False
        near = PLAYED_NEAR if node.gained else NEAR_WITH_FACETS
        return node.bound < (1.0 - near) * ball.U and bool(len(node.open)) and is_affordable(ball.model)

    def wants_programs(self, node: Node) -> bool:
        """Is it near enough to U for linear programs?"""
        ball = self.ball
        if node.programmed or not math.isinf(ball.model.p):
            return False
        if ball.hulls is None or node.bound <= (1.0 - NEAR_WITH_FACETS) * ball.U:
            return ball.hulls is None and node.bound > (1.0 - NEAR) * ball.U
        waits = node.gained and ball.programs.has_begun(node.clause)
        return node.bound > (1.0 - PLAYED_NEAR) * ball.U or not waits

    def in_tail(self, node: Node) -> bool:
        return self.ball.hulls is not None and node.bound > (1.0 - TAIL) * self.ball.U

    def split(self, nodes: list[Node]) -> Iterator[Event]:
        """Split some nodes at once, and look at their children."""
        from layercert.search.adaptive.bound import Effort as Work
        from layercert.search.adaptive.branch import expand

        effort, ball = self.effort, self.ball
        work = Work(effort.candidates, effort.probe_steps, effort.steps, effort.rounds, effort.passes)
        if ball.facets and any(node.clause != nodes[0].clause for node in nodes):
            for clause in dict.fromkeys(node.clause for node in nodes):
                yield from self.split([node for node in nodes if node.clause == clause])
            return
        if all(self.in_tail(node) for node in nodes):
            work = Work(candidates=1, probe_steps=0, steps=2, rounds=1, passes=1)
        self._advise(nodes)
        batch, timer = self._batch(nodes), clock.timer()
        children, neurons = expand(self.model_of(nodes), self.kept, batch, ball.U, ball.U, work, timer)
        pairs = [self._pair(node, n, children) if neurons[n] >= 0 else [] for n, node in enumerate(nodes)]
        self.tell_rounds([child for n, node in enumerate(nodes) for child in pairs[n] or [node, node]])
        for n, node in enumerate(nodes):
            if not pairs[n]:  # out of time before its turn
                ball.frontier.replace(node, [node])
            else:
                if ball.costs is not None and node.bound < 0.0:
                    ball.costs.add(node, int(neurons[n]), (pairs[n][0].bound, pairs[n][1].bound))
                yield from self._children(node, pairs[n], children.points[2 * n : 2 * n + 2], int(neurons[n]))

    def _advise(self, nodes: list[Node]) -> None:
        """Nodes without a bound are split where that brought much before, if that is known."""
        costs = self.ball.costs
        for node in nodes:
            if costs is not None and node.bound < 0.0:
                best, promise = costs.best(node.state)
                node.wanted = np.array([best] if promise > SLIGHT else [], np.intp)

    def _pair(self, node: Node, n: int, children: Batch) -> list[Node]:
        """The two children of a node that was split."""
        ball, pair = self.ball, list[Node]()
        for i in (2 * n, 2 * n + 1):
            state, weights = children.states[i].copy(), children.mus[i, : len(node.weights)].copy()
            number, bound = ball.frontier.number(), float(children.bounds[i])
            self.settle_sides(state)
            child = Node(number, node.clause, bound, state, weights, node.radius, splits=node.splits + 1)
            child.facets, child.gained = node.facets, node.gained
            pair.append(child)
        return pair

    def _children(self, node: Node, pair: list[Node], points: Matrix, neuron: int) -> Iterator[Event]:
        """Look at the two children of a node that was split."""
        ball = self.ball
        if ball.recorder is not None:
            ball.recorder.split(node.number, neuron, (pair[0].number, pair[1].number))
        found: list[Fate] = []
        for child, point in zip(pair, points, strict=True):
            self.tell(child, rows=True)
            found.append((yield from self.consider(child, point)))
        self._put(node, pair, found)

    def _put(self, node: Node, parts: list[Node], fates: list[Fate]) -> None:
        """What became of a node takes its place."""
        kinds = {fate: [part for part, own in zip(parts, fates, strict=True) if own is fate] for fate in Fate}
        self.ball.frontier.replace(node, kinds[Fate.OPEN], kinds[Fate.CLOSED], kinds[Fate.LATE])

    def _refresh(self, node: Node) -> Iterator[Event]:
        """Bound a node again in today's smaller ball."""
        node.radius = self.ball.U
        w = self.bound([node], self.effort.steps, self.effort.rounds, self.effort.passes)
        yield from self._again(node, w[0])

    def _program(self, node: Node) -> Iterator[Event]:
        """Bound a node by linear programs."""
        from layercert.search.adaptive.programmed import bound_by_programs

        point = bound_by_programs(self, node)
        if point is not None:
            yield from self.witnesses.of_program(point, node.clause)
            if self.in_tail(node) and self.task.gap < TAIL:  # a wide gap needs no better witness
                yield from self.witnesses.by_blocks(node.wanted)
        yield from self._again(node, np.zeros(self.ball.model.net.inputs) if point is None else point)

    def _play(self, node: Node) -> Iterator[Event]:
        """Bound a node by facets."""
        from layercert.search.adaptive.played import bound_by_play

        point = bound_by_play(self, node)
        if node.bound < self.ball.U:
            yield from self.witnesses.of_program(point, node.clause)
        yield from self._again(node, point)

    def _again(self, node: Node, step: Vector) -> Iterator[Event]:
        """Look at a node that was bounded once more."""
        fate = yield from self.consider(node, step)
        self._put(node, [node], [fate])

    def value_of(self, node: Node) -> float:
        """What a node's parameters prove as they are."""
        fresh = replace(node, bound=-math.inf)
        self.bound([fresh], 0, 0, 0)
        node.state, node.weights, node.facets = fresh.state, fresh.weights, fresh.facets
        return fresh.bound

    def bound(self, nodes: list[Node], steps: int, rounds: int, passes: int) -> Matrix:
        """Raise the bounds of nodes, with rounds of tightening or without; their halfspaces' nearest points."""
        from layercert.search.adaptive.ascent import optimise
        from layercert.search.adaptive.bound import Effort as Work
        from layercert.search.adaptive.bound import deepen
        from layercert.search.adaptive.lanes import lanes_of, store

        ball, batch, model = self.ball, self._batch(nodes), self.model_of(nodes)
        bounds = batch.bounds
        if rounds > 0:
            work = Work(0, 0, steps, rounds, passes)
            deepen(model, self.kept, batch, ball.U, ball.U, work, clock.timer())
            self.tell_rounds(nodes)
        else:
            lanes = lanes_of(model, batch.states, batch.mus, batch.clauses)
            bounds = np.fmax(bounds, optimise(model, lanes, ball.U, steps, batch.points, clock.timer()))
            for n in range(len(nodes)):
                store(lanes, n, batch.states[n], batch.mus[n])
        if ball.curved:
            bounds = self._curve(batch, bounds)
        for n, node in enumerate(nodes):
            node.state, node.weights = batch.states[n], batch.mus[n, : len(node.weights)]
            node.bound = float(bounds[n])
            if rounds > 0:
                self.settle_sides(node.state)
        clock.check()
        return batch.points

    def model_of(self, nodes: list[Node]) -> Model:
        """The model with the facets of the nodes' clause, if they are of one clause, and it has any."""
        ball, clause = self.ball, nodes[0].clause
        known = ball.facets.get(clause) if all(node.clause == clause for node in nodes) else None
        for node in nodes:
            node.facets = None if known is None else known[1]
        return ball.model if known is None else ball.model._replace(facets=known[0])

    def _curve(self, batch: Batch, bounds: Vector) -> Vector:
        """Raise bounds to the whole ball where F is positive on a node's part of it by parabolas."""
        from layercert.search.adaptive.curved import curve_objective
        from layercert.search.adaptive.lanes import lanes_of

        lanes = lanes_of(self.ball.model, batch.states, batch.mus, batch.clauses)
        least = curve_objective(self.ball.model, lanes, self.ball.U)
        return np.where(least > 0.0, np.fmax(bounds, self.ball.U), bounds)

    def settle_sides(self, state: Matrix) -> None:
        """On dense layers programs that hold settled neurons take ten times as long, and nothing is gained."""
        if self.ball.hulls is not None:
            settle(state, self.ball.meets)

    def _batch(self, nodes: list[Node]) -> Batch:
        """Nodes side by side, for the kernels; weights get zeros for the rows that only longer clauses have."""
        from layercert.search.adaptive.branch import Batch

        rows = self.ball.rows
        wanted = np.full((len(nodes), max(1, self.effort.candidates)), -1, np.intp)
        for places, node in zip(wanted, nodes, strict=True):
            first = node.wanted[: len(places)]
            places[: len(first)] = first
        return Batch(
            np.stack([node.state for node in nodes]),
            np.stack([np.pad(node.weights, (0, rows - len(node.weights))) for node in nodes]),
            np.array([node.clause for node in nodes], np.intp),
            np.array([node.bound for node in nodes]),
            np.zeros((len(nodes), self.ball.model.net.inputs)),
            wanted,
        )

    def consider(self, node: Node, step: Vector) -> Generator[Event, None, Fate]:
        """Is a bounded node to wait? Else it is closed, by its bound or exactly; its nearest point may be a witness."""
        ball = self.ball
        self.tell(node)
        if node.bound >= ball.U:
            return Fate.CLOSED
        if node.number < SOUGHT or node.number % SOUGHT_LATER == 0:
            yield from self.witnesses.seek(step, node.clause)
        if len(node.open):
            return Fate.OPEN
        if not self.task.problem.network.fits_dense:
            return (yield from self._finish(node))
        leaves = self.witnesses.leaves
        if clock.left() < leaves.seconds:
            return Fate.LATE
        # stable neurons have rows too, unless the whole ball is on their side: theirs is proved for unsafe points only
        answer = leaves.solve(node.sides, ball.meets, self.task.problem.clauses[node.clause], ball.cutoff)
        node.bound = max(node.bound, answer.lower)
        self.tell(node, own=answer.halfspace(ball.meets, node.state[ALPHA]))
        yield from self.witnesses.improve(answer.step, answer.value, node.clause)
        return Fate.CLOSED

    def _finish(self, node: Node) -> Generator[Event, None, Fate]:
        """Close a linear piece whose distance program would have too many dense rows.

        In l_inf the node's own program is exact there: either its multipliers prove the ball, or the piece has a nearer
        witness, and the ball shrinks. In other norms what is proved stays proved.
        """
        from layercert.search.adaptive.programmed import PROGRAMS, prove

        ball = self.ball
        settle(node.state, ball.meets)
        for _ in range(PROGRAMS if math.isinf(ball.model.p) else 0):
            U, found = ball.U, ball.programs.solve(node.clause, node.state, ball.U)
            if found is None:
                return Fate.CLOSED if clock.left() > 0 else Fate.LATE
            prove(self, node, found)
            if node.bound >= U:
                break
            yield from self.witnesses.of_piece(node.sides, node.clause)
            if ball.U >= U:
                break
        return Fate.CLOSED

    def tell(self, node: Node, rows: bool = False, own: Halfspace | None = None) -> None:
        """A node has been bounded; `rows`: by rows with parameters of their own; `own`: by another halfspace than the
        one whose parameters it has."""
        recorder = self.ball.recorder
        if recorder is not None:
            if rows:
                recorder.rows(node.number, self.kept)
            recorder.bounded(node.number, node.bound, node.halfspace if own is None else own)

    def tell_rounds(self, nodes: list[Node]) -> None:
        """What rounds of tightening did with the nodes that were worked on together."""
        recorder, trail = self.ball.recorder, self.kept.trail
        if len(trail.node) == 0:
            return
        rounds = rounds_of(trail, [node.facets for node in nodes], [len(node.weights) for node in nodes])
        if recorder is not None:
            for at, done in rounds:
                recorder.tightened(nodes[at].number, done)

    def close(self, node: Node) -> None:
        """A node that was taken needs no more."""
        self.ball.frontier.replace(node, [], [node])
