"""The adaptive search: best first over nodes that fix the phases of some neurons of any layers (docs/adaptive.md).

A node is bounded by an optimised linear relaxation, split at the neuron whose children promise most, and closed when
its proved bound reaches U or, without open neurons, by one exact distance program. All clauses share one queue and U.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import Matrix, Vector
from layercert.attack.kernel import PackedProblem
from layercert.search.adaptive.frontier import Frontier, share_of
from layercert.search.adaptive.model import HI, LO, Model, build
from layercert.search.adaptive.node import Node, Packing
from layercert.search.adaptive.pool import Pool, side_by_side
from layercert.search.adaptive.record import Recorder
from layercert.search.adaptive.worker import Fate, Worker
from layercert.search.events import Bound, Event
from layercert.search.saved import Tree
from layercert.search.task import Task
from layercert.system import clock

#: Roots that are bounded side by side.
ROOTS = 32
#: After this many rounds of nodes with a low bound, smaller balls are tried (search.py).
PATIENCE = 8


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


class Ball:
    """The search inside one ball around x; the part of it that matters shrinks as witnesses are found.

    With `saved` the tree goes on where another search left it.
    """

    def __init__(
        self, task: Task, effort: Effort, recorder: Recorder | None, radius: float, saved: Tree | None = None
    ) -> None:
        self.task, self.effort = task, effort
        self.radius = radius
        self.built = self.U if saved is None else saved.built  # the ball that the root's bounds hold in
        self.asked = PackedProblem.of(task.problem)
        self.model: Model
        self.model, self.root = build(task.problem, self.built)
        self.rows = int(np.diff(self.model.first).max())  # of the longest clause
        self.meets = (self.root[LO] < 0) & (self.root[HI] > 0)  # neurons whose hyperplane may meet the ball
        self.workers = [Worker(self) for _ in range(task.threads or 1)]
        clauses = len(self.model.first) - 1
        self.frontier = Frontier(Packing.of(self.root), clauses, task.memory)
        self.started = saved is not None  # are all roots bounded?
        self.proved = 0.0  # of the distance, whatever proved it
        self.patience = PATIENCE
        if saved is not None:
            self.patience = saved.patience
            self.frontier.closed_bound, self.frontier.closed = saved.closed_bound, saved.closed
            self.frontier.made = saved.made
            self.frontier.share = 1.0 - share_of(saved.nodes, clauses)
            self.frontier.restore(saved.nodes)
        self.recorder = None if recorder is None else recorder.ball(self.U, self.model)

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

    def tree(self) -> Tree | None:
        """All that has to be kept for the search to go on from here; None before the roots are bounded."""
        if not self.started:
            return None
        frontier = self.frontier
        with frontier.lock:
            return Tree(
                self.radius, self.built, self.proved, self.patience, frontier.closed_bound, frontier.closed,
                frontier.made, frontier.blobs(),
            )  # fmt: skip

    def run(self) -> Iterator[Event]:
        if not self.started:
            yield from self._start()
        self.started = True
        lower = 0.0
        for event in self._serial() if len(self.workers) == 1 else self._parallel():
            if isinstance(event, Bound):  # raised or not: whoever listens also watches the clock
                # nodes are bounded inside the ball alone: what lies beyond it is not proved, however large their bounds
                lower = max(lower, min(event.lower, self.U))
                yield Bound(lower)
                yield self.frontier.count
            else:
                yield event
        if self.frontier.late:
            raise clock.OutOfTime
        yield Bound(min(self.U, self.frontier.closed_bound))
        yield self.frontier.count

    def _serial(self) -> Iterator[Event]:
        """Rounds of one worker: always the same for the same question."""
        worker, frontier = self.workers[0], self.frontier
        while len(frontier):
            nodes: list[Node] = []
            while len(nodes) < self.effort.together and (node := frontier.take()) is not None:
                if worker.is_ready(node):
                    if not nodes:
                        yield Bound(frontier.least)
                    nodes.append(node)
                else:
                    yield from worker.work([node])
            if nodes:
                yield from worker.split(nodes)

    def _parallel(self) -> Iterator[Event]:
        """All workers at once."""
        for event in Pool(self, self.workers).run():
            if event is None:
                clock.check()
                yield Bound(self.frontier.least)
            else:
                yield event

    def take(self, most: int) -> list[Node]:
        """Some nodes for a worker: as many to split, or fewer and one that takes longer."""
        nodes: list[Node] = []
        while len(nodes) < most and (node := self.frontier.take()) is not None:
            nodes.append(node)
            if not self.workers[0].is_ready(node):
                break
        return nodes

    def polish(self, step: Vector, clause: int) -> Iterator[Event]:
        """From a witness downhill over linear pieces."""
        return self.workers[0].polish(step, clause)

    def _start(self) -> Iterator[Event]:
        """The roots of all clauses side by side: a cheap bound first, so that a hopeless target costs nothing."""
        effort, first, frontier = self.effort, self.model.first, self.frontier
        for begin in range(0, len(first) - 1, ROOTS):
            nodes = self._roots(begin)
            points = np.zeros((len(nodes), self.model.net.inputs))
            for steps, rounds, passes in (
                (0, 0, 0), (effort.root_steps, 0, 0), (effort.steps, effort.root_rounds, 0),
                (effort.steps, effort.root_rounds, effort.root_passes),
            ):  # fmt: skip
                going = [n for n, node in enumerate(nodes) if node.bound < self.goal]
                if going:
                    self._bound(nodes, going, (steps, rounds, passes), points)
                    if begin + ROOTS >= len(first) - 1:
                        roots = min(node.bound for node in nodes)
                        yield Bound(max(0.0, min(frontier.least, roots, self.U)))
            yield from self._consider(nodes, points)

    def _bound(self, nodes: list[Node], going: list[int], effort: tuple[int, int, int], points: Matrix) -> None:
        """Bound some roots, each worker its share."""

        def bound(worker: Worker, share: list[int]) -> None:
            points[share] = worker.bound([nodes[n] for n in share], *effort)
            for n in share:
                worker.tell(nodes[n], rows=effort[2] > 0)

        side_by_side([partial(bound, worker, share) for worker, share in self._shares(going)])

    def _shares(self, numbers: list[int]) -> list[tuple[Worker, list[int]]]:
        count = len(self.workers)
        shares = [(worker, [n for n in numbers if n % count == i]) for i, worker in enumerate(self.workers)]
        return [(worker, share) for worker, share in shares if share]

    def _consider(self, nodes: list[Node], points: Matrix) -> Iterator[Event]:
        """Look at bounded roots, each worker at its share; what waits does so in the order of the clauses."""
        fates: dict[int, Fate] = {}

        def consider(worker: Worker, share: list[int]) -> Iterator[Event]:
            for n in share:
                fates[n] = yield from worker.consider(nodes[n], points[n])

        shares = self._shares(list(range(len(nodes))))
        if len(shares) == 1:
            yield from consider(*shares[0])
        else:
            for found in side_by_side([partial(lambda *mine: list(consider(*mine)), *share) for share in shares]):
                yield from found
        for n, node in enumerate(nodes):
            self.frontier.hold(node)
            kinds = {fate: [node] if fates[n] is fate else [] for fate in Fate}
            self.frontier.replace(node, kinds[Fate.OPEN], kinds[Fate.CLOSED], kinds[Fate.LATE])

    def quick(self) -> float:
        """What the roots prove with a few steps and rounds each, for bounds at once."""
        first, least = self.model.first, math.inf
        for begin in range(0, len(first) - 1, ROOTS):
            nodes = self._roots(begin)
            points = np.zeros((len(nodes), self.model.net.inputs))
            steps = self.effort.quick_steps
            for stage in ((0, 0, 0), (steps, 0, 0), (steps, self.effort.quick_rounds, 0)):
                going = [n for n, node in enumerate(nodes) if node.bound < self.goal]
                if going and (stage[1] == 0 or all(nodes[n].bound > 0 for n in going)):
                    self._bound(nodes, going, stage, points)
            least = min(least, *(node.bound for node in nodes))
        return least

    def _roots(self, begin: int) -> list[Node]:
        """The roots of some clauses, not bounded yet."""
        first, nodes = self.model.first, []
        for clause in range(begin, min(begin + ROOTS, len(first) - 1)):
            count = int(first[clause + 1] - first[clause])
            weights = np.full(count, 1.0 / count)
            nodes.append(Node(self.frontier.number(), clause, -math.inf, self.root.copy(), weights, self.U))
            if self.recorder is not None:
                self.recorder.root(nodes[-1].number, clause)
        return nodes
