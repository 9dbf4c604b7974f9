"""Is there an unsafe point, of whatever target? One tree for all targets, for as long as they are far from closed.

Where the root of a deep network proves nothing, F is far below zero for all targets alike, and F <= 0 says next to
nothing about the ranges of neurons: those of the whole ball are within some per cent of those at the unsafe points of
one target (PERFORMANCE.md, 2026-11-19). So the splits are made once, and ranges of neurons are taken once per node for
all targets that are open in it. What is left of a node's targets goes to trees of their own when few are left.

All open nodes are in the ball's frontier from the start, those of groups in somebody's hands: what is saved meanwhile
is all that is left. Whoever takes it up goes on with a tree per target. A recorder is told of a tree per target, which
have these splits and rounds in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.problem import Problem
from layercert.search.adaptive.cap import whole_ball
from layercert.search.adaptive.lanes import Constants
from layercert.search.adaptive.layers import tighten
from layercert.search.adaptive.lines import fix
from layercert.search.adaptive.model import COEF, HI, LO
from layercert.search.adaptive.node import Node
from layercert.search.adaptive.pieces import is_sparse
from layercert.search.adaptive.pseudocosts import SLIGHT, Pseudocosts, try_out
from layercert.search.adaptive.trail import begin_round, rounds_of
from layercert.search.adaptive.tree import Ball, Effort
from layercert.search.events import Bound, Event
from layercert.system import clock

#: With at most so many targets open a node is left to trees of their own, whose ranges know F.
FEW = 2
#: Rounds of tightening at the root and below it, and the passes of each: rows go on where the last node left them.
ROOT_ROUNDS, ROOT_PASSES = 6, 5
ROUNDS, PASSES = 2, 2
#: Rounds go on while they close this share of the worst target's gap.
WORTHWHILE = 0.03
#: So are targets whose F is nearer to 0 than this part of the worst one's at the root.
NEAR = 0.15
#: And all targets after so many splits, each of which keeps a state per target in memory.
DEEPEST = 40
#: And all where the nodes of groups have more than this part of the memory that nodes may take.
CROWDED = 0.35
#: With fewer layers splits gain little beyond their own line, and trees that know F from the start are smaller.
LEAST_LAYERS = 4
#: Neurons are tried again so many splits later at the soonest.
APART = 4


def is_suited(problem: Problem, effort: Effort) -> bool:
    """Several targets, many dense layers, and none so narrow that each node has thorough rounds of its own."""
    network = problem.network
    deep = network.L >= LEAST_LAYERS and effort.together > 1
    return deep and len(problem.clauses) > FEW and not is_sparse(network)


@dataclass(frozen=True, eq=False)
class Group:
    """A node of the common tree: the ranges of neurons that hold at all its points, and its open targets' nodes."""

    state: Matrix
    nodes: list[Node]
    tried: int = -100  # the depth at which neurons were tried last

    @property
    def worst(self) -> Node:
        return min(self.nodes, key=lambda node: node.bound)


class Shared:
    """The common tree of a ball."""

    def __init__(self, ball: Ball) -> None:
        self.ball, self.worker = ball, ball.workers[0]
        self._costs = ball.costs = Pseudocosts(len(ball.model.Q))
        layers = ball.task.problem.network.L
        self._cap = whole_ball(ball.model.net.inputs, ball.U)
        self._near = 0.0  # F from here on is for trees of their own
        self._above = Constants(np.zeros(layers + 1), np.zeros(layers + 1))

    def run(self) -> Iterator[Event]:
        """Events; in the end the ball's frontier has what is left."""
        task = self.ball.task
        task.undivided = True
        try:
            yield Bound(0.0)
            stack = [group] if (group := self._root()) is not None else []
            while stack:
                group = stack.pop()
                yield Bound(0.0)
                yield self.ball.frontier.count
                worst = group.worst
                if worst.splits == DEEPEST or self._are_crowded([group, *stack]):
                    self._give_up(group)
                    continue
                yield from self.worker.witnesses.seek(self._nearest(worst), worst.clause)
                stack += sorted(self._split(group), key=lambda part: part.worst.bound)
        finally:
            task.undivided = False

    def _root(self) -> Group | None:
        """Cheap bounds of each target, then ranges for all of them; None where that leaves nothing open."""
        ball, effort = self.ball, self.ball.effort
        nodes = ball.roots(0, len(ball.model.first) - 1)
        own = [replace(node, state=node.state.copy()) for node in nodes]
        for steps, rounds in ((0, 0), (effort.root_steps, 0), (effort.steps, effort.root_rounds)):
            own = [node for node in own if not node.bound >= ball.U]
            if own:
                self.worker.bound(own, steps, rounds, 0)
            for node in own:
                self.worker.tell(node)
        still = {node.clause for node in own if not node.bound >= ball.U}
        group = Group(ball.root.copy(), [self._anew(node) for node in nodes if node.clause in still])
        found, left = self._bounded(group, ROOT_ROUNDS, ROOT_PASSES) if still else (None, [])
        if found is not None:
            self._near = NEAR * found.worst.bound
        self._replace([], [] if found is None else [found], left)
        ball.started = True
        return found

    def _anew(self, node: Node) -> Node:
        """A root in place of another one, whose rounds a proof can do without."""
        fresh = replace(node, number=self.ball.frontier.number())
        if self.ball.recorder is not None:
            self.ball.recorder.root(fresh.number, fresh.clause)
        return fresh

    def _bounded(self, group: Group, rounds: int, passes: int) -> tuple[Group | None, list[Node]]:
        """Its ranges made narrower, with the targets that are open then, None where none is; and those that go to trees
        of their own."""
        ball, state, nodes = self.ball, group.state, group.nodes
        state[COEF] = 0.0
        before = -np.inf
        for _ in range(rounds):
            self._begin_round()
            some = tighten(ball.model, self.worker.kept, state, self._cap, self._above, passes, clock.timer())
            self._tell_rounds(nodes)
            if not some:
                self._tell(nodes, np.inf)
                return None, []
            clock.check()
            for node in nodes:
                np.maximum(node.state[LO], state[LO], out=node.state[LO])
                np.minimum(node.state[HI], state[HI], out=node.state[HI])
            self.worker.bound(nodes, self.ball.effort.steps, 0, 0)
            self._tell(nodes)
            nodes = [node for node in nodes if not node.bound >= ball.U]
            if sum(node.bound < self._near for node in nodes) <= FEW:
                break
            least = min(node.bound for node in nodes)
            if least < 0.0 and least - before < -WORTHWHILE * before:
                break
            before = least
        near = [node for node in nodes if not node.bound < self._near]
        far = [node for node in nodes if node.bound < self._near]
        left = self._open(near if len(far) > FEW else nodes)
        return Group(state, far, group.tried) if len(far) > FEW else None, left

    def _split(self, group: Group) -> list[Group]:
        """The parts of a group that stay open."""
        ball, costs = self.ball, self._costs
        worst, tried = group.worst, group.tried
        neuron, promise = costs.best(group.state)
        if neuron < 0 or (promise <= SLIGHT and worst.splits >= tried + APART):
            try_out(self.worker, worst, costs)
            self.worker.kept.trail.used[:] = 0  # what was tried is no part of the tree
            tried = worst.splits
            neuron, _ = costs.best(group.state)
        if neuron < 0:
            self._give_up(group)
            return []
        parts, left = list[Group](), list[Node]()
        reached = np.full((2, len(group.nodes)), ball.U)
        pairs = [(self._child(node), self._child(node)) for node in group.nodes]
        if ball.recorder is not None:
            for node, (on, off) in zip(group.nodes, pairs, strict=True):
                ball.recorder.split(node.number, neuron, (on.number, off.number))
        for side in range(2):
            part = Group(group.state.copy(), [pair[side] for pair in pairs], tried)
            for state in (part.state, *(node.state for node in part.nodes)):
                fix(state, neuron, 1.0 - 2.0 * side)
            found, others = self._bounded(part, ROUNDS, PASSES)
            left += others
            if found is not None:
                bounds = {node.clause: node.bound for node in found.nodes}
                reached[side] = [bounds.get(node.clause, ball.U) for node in group.nodes]
                parts.append(found)
        for n, node in enumerate(group.nodes):
            costs.add(node, neuron, (reached[0, n], reached[1, n]))
        self._replace(group.nodes, parts, left)
        return parts

    def _child(self, node: Node) -> Node:
        """A copy one split deeper."""
        number, splits = self.ball.frontier.number(), node.splits + 1
        return replace(node, number=number, state=node.state.copy(), splits=splits, packed=None)

    def _are_crowded(self, groups: list[Group]) -> bool:
        """Do the nodes of some groups, and their ranges, take much of the memory?"""
        count = sum(len(group.nodes) + 1 for group in groups)
        return count * self.ball.root.nbytes > CROWDED * self.ball.frontier.memory

    def _nearest(self, node: Node) -> Vector:
        """Where the halfspace of a node comes nearest to x."""
        return self.worker.bound([replace(node, state=node.state.copy())], 0, 0, 0)[0]

    def _open(self, nodes: list[Node]) -> list[Node]:
        """Those that rounds that know F do not close."""
        effort = self.ball.effort
        if nodes:
            self.worker.bound(nodes, effort.steps, effort.rounds, effort.passes)
            for node in nodes:
                self.worker.tell(node, rows=True)
        return [node for node in nodes if not node.bound >= self.ball.U]

    def _give_up(self, group: Group) -> None:
        """All of a group goes to trees of their own."""
        self._replace(group.nodes, [], self._open(group.nodes))

    def _replace(self, nodes: list[Node], parts: list[Group], left: list[Node]) -> None:
        """What became of a group's nodes: groups, and nodes that wait."""
        frontier = self.ball.frontier
        with frontier.lock:  # Ctrl-C may come at any line: what takes their places comes first
            for part in parts:
                for node in part.nodes:
                    frontier.hold(node)
            for node in left:
                node.packed = None  # it may have changed since
                frontier.push(node)
            for node in nodes:
                frontier.replace(node, [])

    def _begin_round(self) -> None:
        """On the whole ball: its objective is 0 for every target."""
        trail, none = self.worker.kept.trail, np.zeros(len(self.ball.model.Q))
        if len(trail.node) > 0:
            begin_round(trail, 0, none, none, none, np.zeros(self.ball.rows))

    def _tell_rounds(self, nodes: list[Node]) -> None:
        """What was bounded for all of these nodes at once."""
        recorder, trail = self.ball.recorder, self.worker.kept.trail
        if recorder is None or len(trail.node) == 0:
            return
        for _, done in rounds_of(trail, [None], [self.ball.rows]):
            for node in nodes:
                own = done.own._replace(weights=np.zeros(len(node.weights)))
                recorder.tightened(node.number, done._replace(own=own))

    def _tell(self, nodes: list[Node], least: float = -np.inf) -> None:
        for node in nodes:
            node.bound = max(node.bound, least)
            self.worker.tell(node)
