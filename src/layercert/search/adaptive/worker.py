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
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, LO, PHASE, Kept, keep_rows
from layercert.search.adaptive.node import Node
from layercert.search.adaptive.pieces import Piece, by_distance, by_margin, is_sparse
from layercert.search.events import Bound, Event
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.branch import Batch
    from layercert.search.adaptive.least import PiecePrograms
    from layercert.search.adaptive.program import Multipliers, Programs
    from layercert.search.adaptive.tree import Ball

#: The most pieces that the first witness is moved through, those of later ones, and the faces that are tried at each,
#: the steepest first.
POLISHED, REPOLISHED, FLIPS = 60, 3, 6
#: Nodes this near to U (relative) get linear programs, so many at most, while each closes this share of the gap.
NEAR, PROGRAMS, PROGRAM_SHARE = 5e-2, 6, 0.2
#: A program tells what to split if it is no further below U than this many times the bound that is known.
TELLING = 2.0
#: Pieces of programs' points: the first ones are all tried, later those of one program in so many. Counted, not timed:
#: one thread does the same every time.
FIRST_PIECES, PIECE_EVERY = 20, 3
#: A piece is nearer if its point is, by this much (relative).
WORTH_MOVING = 1e-7
#: The first nodes are all attacked from their nearest points, of later ones one in so many: an attack takes as long as
#: half a node.
SOUGHT, SOUGHT_LATER = 50, 16
#: A witness is polished where the time suffices for so many pieces.
PIECES_LEFT = 20
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
        self.leaves = Leaves(ball.task)
        self._pieces: set[tuple[int, bytes]] = set()  # that were looked at
        self._programs = 0  # nodes that had programs so far
        self._known = known  # where what rows keep is handed on, to a search of the same ball

    @cached_property
    def programs(self) -> Programs:
        """Linear programs, each of which goes on from the last one."""
        from layercert.search.adaptive.program import Programs

        return Programs(self.task.problem, self.ball.maps, self.ball.root)

    @cached_property
    def pieces(self) -> PiecePrograms:
        """Programs of linear pieces."""
        from layercert.search.adaptive.least import PiecePrograms

        return PiecePrograms(self.task.problem, self.ball.maps, self.ball.meets)

    @cached_property
    def kept(self) -> Kept:
        """What rows keep from visit to visit."""
        if not self._known:
            self._known.append(keep_rows(self.ball.model.net))
        return self._known[0]

    def work(self, nodes: list[Node]) -> Iterator[Event]:
        """Whatever some nodes need; afterwards their places in the frontier are taken by what became of them."""
        ball = self.ball
        if nodes[0].is_root:
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
            elif self._wants_programs(node):
                yield from self._program(node)
            elif not len(node.open):  # there was no time for its program when it was made
                yield from self._again(node, np.zeros(ball.model.net.inputs))
            else:
                ready.append(node)
        if ready:
            yield from self.split(ready)

    def start(self, nodes: list[Node]) -> Iterator[Event]:
        """Roots side by side: a cheap bound first, so that a hopeless target costs nothing."""
        effort, ball = self.effort, self.ball
        points = np.zeros((len(nodes), ball.model.net.inputs))
        for steps, rounds, passes in (
            (0, 0, 0), (effort.root_steps, 0, 0), (effort.steps, effort.root_rounds, 0),
            (effort.steps, effort.root_rounds, effort.root_passes),
        ):  # fmt: skip
            going = [n for n, node in enumerate(nodes) if node.bound < ball.U]
            if going:
                points[going] = self.bound([nodes[n] for n in going], steps, rounds, passes)
                for n in going:
                    self.tell(nodes[n], rows=passes > 0)
                if len(ball.workers) == 1:
                    yield Bound(ball.frontier.least)
        for node, w in zip(nodes, points, strict=True):
            yield from self._again(node, w)

    def is_ready(self, node: Node) -> bool:
        """Is splitting what it needs?"""
        ball = self.ball
        old = self.effort.refresh * node.radius > ball.U
        done = node.bound >= ball.U or not len(node.open)
        return not (node.stale or old or done or self._wants_programs(node))

    def _wants_programs(self, node: Node) -> bool:
        return not node.programmed and node.bound > (1.0 - NEAR) * self.ball.U and math.isinf(self.ball.model.p)

    def split(self, nodes: list[Node]) -> Iterator[Event]:
        """Split some nodes at once, and look at their children."""
        from layercert.search.adaptive.bound import Effort as Work
        from layercert.search.adaptive.branch import expand

        effort, ball = self.effort, self.ball
        work = Work(effort.candidates, effort.probe_steps, effort.steps, effort.rounds, effort.passes)
        batch, timer = self._batch(nodes), clock.timer()
        children, neurons = expand(ball.model, self.kept, batch, ball.U, ball.U, work, timer)
        for n, node in enumerate(nodes):
            if neurons[n] < 0:  # out of time before its turn
                ball.frontier.replace(node, [node])
            else:
                yield from self._children(node, n, children, int(neurons[n]))

    def _children(self, node: Node, n: int, children: Batch, neuron: int) -> Iterator[Event]:
        """Look at the two children of a node that was split."""
        ball, pair = self.ball, list[Node]()
        for i in (2 * n, 2 * n + 1):
            state, weights = children.states[i].copy(), children.mus[i, : len(node.weights)].copy()
            number, bound = ball.frontier.number(), float(children.bounds[i])
            pair.append(Node(number, node.clause, bound, state, weights, node.radius))
        if ball.recorder is not None:
            ball.recorder.split(node.number, neuron, (pair[0].number, pair[1].number))
        found: list[Fate] = []
        for i, child in enumerate(pair):
            self.tell(child, rows=True)
            found.append((yield from self.consider(child, children.points[2 * n + i])))
        self._put(node, pair, found)

    def _put(self, node: Node, parts: list[Node], fates: list[Fate]) -> None:
        """What became of a node takes its place."""
        kinds = {fate: [part for part, own in zip(parts, fates, strict=True) if own is fate] for fate in Fate}
        self.ball.frontier.replace(node, kinds[Fate.OPEN], kinds[Fate.CLOSED], kinds[Fate.LATE])

    def improve(self, step: Vector, distance: float, clause: int) -> Iterator[Event]:
        if distance < self.ball.cutoff:
            yield from self.task.suggest(step, self.task.problem.clauses[clause])

    def _seek(self, step: Vector, clause: int) -> Iterator[Event]:
        """A short attack from a node's nearest point."""
        from layercert.attack.kernel import FINE, seek

        U = self.ball.cutoff
        distance, w = seek(self.ball.asked, clause, step, self.effort.seek_steps, U, FINE, clock.timer())
        if distance < self.ball.cutoff:
            yield from self.improve(w, float(distance), clause)
            yield from self.polish(w, clause, REPOLISHED)

    def polish(self, step: Vector, clause: int, pieces: int = POLISHED) -> Iterator[Event]:
        """From a witness downhill over linear pieces: the nearest unsafe point on its piece, then on the pieces behind
        the faces that hold it up, for as long as one of them is nearer."""
        ball = self.ball
        if not self._has_pieces or clock.left() < PIECES_LEFT * self._piece_seconds:
            return
        sides = self._sides(step)
        piece = self._nearest(sides, clause)
        if not (yield from self._move(piece, clause)):
            return
        for _ in range(pieces):
            for flipped in (*piece.faces[:FLIPS, None], piece.faces):
                clock.check()
                other = sides.copy()
                other[flipped] *= -1.0
                beyond = self._nearest(other, clause)
                if beyond.value < ball.cutoff * (1.0 - WORTH_MOVING):
                    break
            else:
                return
            sides, piece = other, beyond
            if not (yield from self._move(piece, clause)):
                return

    def _move(self, piece: Piece, clause: int) -> Generator[Event, None, bool]:
        """The point of a piece as a witness. False where it is none: then nothing is to be had from its neighbours."""
        cutoff = self.ball.cutoff
        if piece.value < cutoff:
            tell = self.task.propose if self._by_margin else self.task.suggest
            yield from tell(piece.step, self.task.problem.clauses[clause])
            return self.ball.cutoff < cutoff
        return True

    def _sides(self, step: Vector) -> Vector:
        """On which side of its hyperplane x + step is, for every neuron."""
        problem = self.task.problem
        return np.where(np.concatenate(problem.network.preactivations(problem.x + step)) > 0, 1.0, -1.0)

    def _nearest(self, sides: Vector, clause: int) -> Piece:
        """The nearest unsafe point of a linear piece."""
        ball = self.ball
        if self._by_margin:
            return by_margin(self.pieces, sides, clause, ball.cutoff)
        return by_distance(self.leaves, sides, ball.meets, clause, ball.cutoff)

    @cached_property
    def _by_margin(self) -> bool:
        return math.isinf(self.ball.model.p) and is_sparse(self.task.problem.network)

    @property
    def _has_pieces(self) -> bool:
        """The rows of a piece are dense, unless its programs are those of nodes."""
        return self._by_margin or self.task.problem.network.fits_dense

    @property
    def _piece_seconds(self) -> float:
        """About how long a piece takes."""
        return 0.0 if self._by_margin else self.leaves.seconds

    def _refresh(self, node: Node) -> Iterator[Event]:
        """Bound a node again in today's smaller ball."""
        node.radius = self.ball.U
        w = self.bound([node], self.effort.steps, self.effort.rounds, self.effort.passes)
        yield from self._again(node, w[0])

    def _program(self, node: Node) -> Iterator[Event]:
        """Bound a node by the exact multipliers of its relaxation, and tighten with what these leave of the ball."""
        ball = self.ball
        node.programmed, found = True, None
        for _ in range(PROGRAMS):
            before = node.bound
            found = self.programs.solve(node.clause, node.state, ball.U)
            if found is None:
                break
            self._prove(node, found)
            if node.bound < ball.U:
                self.bound([node], self.effort.steps, 1, 1)
            if node.bound >= ball.U or ball.U - node.bound > (1.0 - PROGRAM_SHARE) * (ball.U - before):
                break
        if found is not None:
            yield from self._piece(found, node.clause)
        yield from self._again(node, np.zeros(ball.model.net.inputs) if found is None else found.step)

    def _prove(self, node: Node, found: Multipliers) -> None:
        """What the multipliers of a node's program are worth."""
        ball, before = self.ball, node.bound
        old = node.state.copy(), node.weights
        node.state[ALPHA] = np.where(found.alpha >= 0, found.alpha, node.state[ALPHA])
        node.state[BETA], node.weights = found.beta, found.mu
        value = float(self._value(node))
        # where the program is far below what is known, its point says nothing about what holds the bound down
        node.wanted = found.cheating if ball.U - value <= TELLING * (ball.U - before) else found.cheating[:0]
        if not value > node.bound:  # nor where it is no number
            node.state, node.weights = old
        node.bound = max(node.bound, value)
        self.tell(node)

    def _piece(self, found: Multipliers, clause: int) -> Iterator[Event]:
        """The nearest unsafe point on the linear piece of a program's point, for some of them."""
        ball, sides = self.ball, self._sides(found.step)
        key = clause, np.packbits(sides[ball.meets] > 0).tobytes()
        self._programs += 1
        most = FIRST_PIECES + self._programs // PIECE_EVERY
        if not self._has_pieces or key in self._pieces or len(self._pieces) >= most:
            return
        self._pieces.add(key)
        piece = self._nearest(sides, clause)
        if piece.value < ball.cutoff * (1.0 - WORTH_MOVING) and (yield from self._move(piece, clause)):
            yield from self.polish(piece.step, clause, REPOLISHED)

    def _again(self, node: Node, step: Vector) -> Iterator[Event]:
        """Look at a node that was bounded once more."""
        fate = yield from self.consider(node, step)
        self._put(node, [node], [fate])

    def _value(self, node: Node) -> float:
        """What a node's parameters prove as they are."""
        fresh = replace(node, bound=-math.inf)
        self.bound([fresh], 0, 0, 0)
        node.state, node.weights = fresh.state, fresh.weights
        return fresh.bound

    def bound(self, nodes: list[Node], steps: int, rounds: int, passes: int) -> Matrix:
        """Raise the bounds of nodes, with rounds of tightening or without; their halfspaces' nearest points."""
        from layercert.search.adaptive.ascent import optimise
        from layercert.search.adaptive.bound import Effort as Work
        from layercert.search.adaptive.bound import deepen
        from layercert.search.adaptive.lanes import lanes_of, store

        ball, batch = self.ball, self._batch(nodes)
        bounds = batch.bounds
        if rounds > 0:
            work = Work(0, 0, steps, rounds, passes)
            deepen(ball.model, self.kept, batch, ball.U, ball.U, work, clock.timer())
        else:
            lanes = lanes_of(ball.model, batch.states, batch.mus, batch.clauses)
            bounds = np.fmax(bounds, optimise(ball.model, lanes, ball.U, steps, batch.points, clock.timer()))
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
            yield from self._seek(step, node.clause)
        if len(node.open):
            return Fate.OPEN
        if not self.task.problem.network.fits_dense:
            return Fate.CLOSED  # a piece's rows are dense; what is proved stays proved
        if clock.left() < self.leaves.seconds:
            return Fate.LATE
        # stable neurons have rows too, unless the whole ball is on their side: theirs is proved for unsafe points only
        state = node.state
        sides = np.where((state[PHASE] > 0) | ((state[PHASE] == 0) & (state[LO] >= 0)), 1.0, -1.0)
        answer = self.leaves.solve(sides, ball.meets, self.task.problem.clauses[node.clause], ball.cutoff)
        node.bound = max(node.bound, answer.lower)
        self.tell(node)
        yield from self.improve(answer.step, answer.value, node.clause)
        return Fate.CLOSED

    def tell(self, node: Node, rows: bool = False) -> None:
        """A node has been bounded; `rows`: by rows with parameters of their own."""
        recorder = self.ball.recorder
        if recorder is not None:
            if rows:
                recorder.rows(node.number, self.kept)
            recorder.bounded(node.number, node.bound, node.halfspace)

    def close(self, node: Node) -> None:
        """A node that was taken needs no more."""
        self.ball.frontier.replace(node, [], [node])
