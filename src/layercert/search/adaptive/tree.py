"""The adaptive search: best first over nodes that fix the phases of some neurons of any layers (docs/adaptive.md).

A node is bounded by an optimised linear relaxation, split at the neuron whose children promise most, and closed when
its proved bound reaches U or, without open neurons, by one exact distance program. All clauses share one queue and U.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import Vector
from layercert.attack.kernel import PackedProblem
from layercert.search.adaptive.frontier import Frontier, share_of
from layercert.search.adaptive.model import HI, LO, THOROUGH, Hulling, Model, Played, build
from layercert.search.adaptive.node import Node, Packing
from layercert.search.adaptive.pieces import is_sparse
from layercert.search.adaptive.pool import Pool
from layercert.search.adaptive.record import BallRecorder, Recorder
from layercert.search.adaptive.worker import ROOTS, Worker
from layercert.search.events import Bound, Event
from layercert.search.saved import Tree
from layercert.search.task import Task
from layercert.system import clock
from layercert.system.threads import side_by_side

if TYPE_CHECKING:
    from layercert.facets import Facets
    from layercert.search.adaptive.blocks import Blocks
    from layercert.search.adaptive.hulls import Hulls
    from layercert.search.adaptive.model import FacetTable
    from layercert.search.adaptive.program import Programs
    from layercert.search.adaptive.pseudocosts import Pseudocosts

T = TypeVar("T")

#: After this many rounds of nodes with a low bound, smaller balls are tried (search.py).
PATIENCE = 8
#: A worker leaves so many shares like its own for each of the others: who comes next shall find something.
SPARE = 2
#: But up to so many are not divided further: kernels work on some lanes at a time, and fewer take as long.
UNDIVIDED = 4
#: The roots of all clauses are as much work as so many rounds of nodes, one for each of their stages (worker.py).
ROOT_ROUNDS = 4


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
    rounds: int = 4
    passes: int = 1
    seek_steps: int = 20
    together: int = 16  # nodes that are split at once
    refresh: float = 0.98  # a node bounded in a ball this much larger than today's is bounded again


class Ball:
    """The search inside one ball around x; the part of it that matters shrinks as witnesses are found.

    With `saved` the tree goes on where another search left it. `parts` keeps what is built for those that follow, with
    the same problem and ball: on the worker of a cluster, the model, what rows keep, and linear programs. `curved`:
    neurons of the first layer have parabolas beside their lines (curved.py), which are neither recorded nor saved.
    `hulled`: how much work may go into the root's bounds by hulls (hulled.py).
    """

    def __init__(
        self,
        task: Task,
        effort: Effort,
        recorder: Recorder | None,
        radius: float,
        saved: Tree | None = None,
        parts: dict[str, Any] | None = None,
        *,
        curved: bool = False,
        hulled: Hulling = THOROUGH,
    ) -> None:
        self.task, self.effort, self.curved = task, effort, curved
        self.radius = radius
        self.built = self.cutoff if saved is None else saved.built  # the ball that the root's bounds hold in
        self.asked = PackedProblem.of(task.problem)
        self.model: Model
        self.played: dict[int, Played] | None = None  # the lines behind the model's bounds, for a recorder
        parts = {} if parts is None else parts
        if "model" not in parts:
            self.played = None if recorder is None else {}
            parts["model"] = build(task.problem, self.built, curved, hulled, task.threads or 1, self.played)
        self.model, self.root = parts["model"]
        self.rows = int(np.diff(self.model.first).max())  # of the longest clause
        self.meets = (self.root[LO] < 0) & (self.root[HI] > 0)  # neurons whose hyperplane may meet the ball
        kind = "rows" if recorder is None else "recorded rows"
        self.workers = [Worker(self, parts.setdefault(f"{kind} {i}", [])) for i in range(task.threads or 1)]
        self._parts, self._building = parts, threading.RLock()
        self.scheduler: str | None = None  # of a cluster that does the work
        clauses = len(self.model.first) - 1
        self.frontier = Frontier(Packing.of(self.root), clauses, task.memory)
        self.started = saved is not None  # is there a tree?
        self.proved = 0.0  # of the distance, whatever proved it
        self.patience = PATIENCE
        self.rounds = 0.0  # of nodes; one of several threads does a part of a round
        if saved is not None:
            self.patience = saved.patience
            self.frontier.closed_bound, self.frontier.closed = saved.closed_bound, saved.closed
            self.frontier.made = saved.made
            self.frontier.share = 1.0 - share_of(saved.nodes, clauses)
            self.frontier.restore(saved.nodes, saved.numbers)
        #: by clause: of the last program that was worth something; nodes below it take them over. They hold in the ball
        #: of that moment, so they are not among the parts: whoever takes these up may know of no witness so near.
        self.facets: dict[int, tuple[FacetTable, Facets]] = {}
        self.costs: Pseudocosts | None = None  # of splits, where a common tree of all clauses came first (shared.py)
        self.book, self.recorder = recorder, self._recorder(recorder, saved)

    def _recorder(self, recorder: Recorder | None, saved: Tree | None) -> BallRecorder | None:
        """Who is told of this ball: nobody where the first half of the tree was not recorded."""
        if recorder is None or (saved is not None and not saved.record):
            return None
        if saved is None:
            return recorder.ball(self.cutoff, self.model, self.played)
        return recorder.resumed(saved.record, self.model, self.played)

    @property
    def maps(self) -> list[csr_array]:
        """The layers, sparse whatever they are."""
        return self._part("maps", lambda: [csr_array(W) for W in self.task.problem.network.maps])

    @property
    def hulls(self) -> Hulls | None:
        """Where rows are short, programs have facets of neurons' hulls; wide rows gain nothing by them."""
        from layercert.search.adaptive.hulls import Hulls

        sparse = is_sparse(self.task.problem.network)
        return self._part("hulls", lambda: Hulls(self.maps, self.model, self.root)) if sparse else None

    @property
    def programs(self) -> Programs:
        """Linear programs, each of which goes on from the last one, whoever solved it."""
        from layercert.search.adaptive.program import Programs

        return self._part("programs", lambda: Programs(self.task.problem, self.maps, self.root, self.hulls))

    @property
    def blocks(self) -> Blocks:
        """Blocks of inputs, for witnesses."""
        from layercert.search.adaptive.blocks import Blocks

        return self._part("blocks", lambda: Blocks(self.task.problem, self.maps))

    @property
    def swept(self) -> bool:
        """Has the witness been looked at by blocks?"""
        return "blocks" in self._parts and math.isfinite(self.blocks.seen)

    def _part(self, name: str, build: Callable[[], T]) -> T:
        """What is built when somebody needs it first."""
        with self._building:
            if name not in self._parts:
                self._parts[name] = build()
            part: T = self._parts[name]
        return part

    @property
    def cutoff(self) -> float:
        """The radius of the ball, or the distance of a witness inside it: farther points are of no use."""
        return min(self.radius, self.task.cutoff)

    @property
    def U(self) -> float:
        """What is to be proved, a radius in full, a witness's distance up to the gap: a node with this bound is closed.

        Nodes are bounded inside this ball, not that of the witness: where the gap is wide, what lies between the two is
        neither proved nor needed.
        """
        return min(self.radius, self.task.goal)

    def tree(self) -> Tree | None:
        """All that has to be kept for the search to go on from here; None before there is a tree."""
        if not self.started:
            return None
        frontier, record = self.frontier, b""
        with frontier.lock:
            nodes, made = frontier.numbered(), frontier.made
            closed_bound, closed = frontier.closed_bound, frontier.closed
        if self.book is not None and self.recorder is not None:
            record = self.book.packed(self.recorder, made)
        return Tree(
            self.radius, self.built, self.proved, self.patience, closed_bound, closed, made,
            [blob for _, blob in nodes], [number for number, _ in nodes], record,
        )  # fmt: skip

    def run(self, first: Iterator[Event] | None = None) -> Generator[Event, None, None]:
        """The events of the search; `first` is what one of the workers does before it takes nodes."""
        if not self.started:
            self._push_roots()
        lower = 0.0
        extra = iter(()) if first is None else first
        with closing(self.alone(extra) if self.scheduler is None else self._spread(extra, self.scheduler)) as events:
            for event in events:
                if isinstance(event, Bound):  # raised or not: whoever listens also watches the clock
                    if len(self.workers) == 1 or self.scheduler is not None:
                        self.rounds += 1
                    # nodes are bounded inside the ball alone: what lies beyond is not proved, whatever their bounds
                    lower = max(lower, min(event.lower, self.U))
                    yield Bound(lower)
                    yield self.frontier.count
                else:
                    yield event
        if self.frontier.late:
            raise clock.OutOfTime
        self.rounds += 1
        yield Bound(min(self.U, self.frontier.closed_bound))
        yield self.frontier.count

    def alone(self, first: Iterator[Event]) -> Generator[Event, None, None]:
        """By the workers of this process."""
        return self._serial(first) if len(self.workers) == 1 else self._heard(Pool(self, self.workers).run(first))

    def _spread(self, first: Iterator[Event], scheduler: str) -> Generator[Event, None, None]:
        """By a cluster."""
        from layercert.search.adaptive.spread import Spread

        return self._heard(Spread(self, scheduler).run(first))

    def _serial(self, first: Iterator[Event]) -> Generator[Event, None, None]:
        """Rounds of one worker: always the same for the same question."""
        yield from first
        worker, frontier = self.workers[0], self.frontier
        while len(frontier):
            nodes: list[Node] = []
            while len(nodes) < self.effort.together and (node := frontier.take()) is not None:
                if node.is_root:
                    yield from worker.start([node, *self._more_roots(ROOTS - 1)])
                elif worker.is_ready(node):
                    if not nodes:
                        yield Bound(frontier.least)
                    nodes.append(node)
                else:
                    yield from worker.work([node])
            if nodes:
                yield from worker.split(nodes)

    def _heard(self, told: Generator[Event | None, None, None]) -> Generator[Event, None, None]:
        """Events of workers. A bound is told after each one's round; in between, how far the tree is."""
        with closing(told) as events:
            for event in events:
                if event is None:
                    clock.check()
                    yield self.frontier.count
                else:
                    yield event

    def take(self) -> list[Node]:
        """A worker's fair share of the nodes that wait, all to be split; or one that needs something else; or roots.

        None where all that wait should go on from a program that somebody is at.
        """
        nodes: list[Node] = []
        aside: list[Node] = []
        with self.frontier.lock:
            waiting, count = len(self.frontier), len(self.workers)
            together = min(self.effort.together, waiting + self.frontier.busy)  # what one thread would take
            most = min(together, max(-(-waiting // (SPARE * count)), min(-(-waiting // count), UNDIVIDED)))
            while len(nodes) < most and (node := self.frontier.take()) is not None:
                ready = not node.is_root and self.workers[0].is_ready(node)
                if self._begins(node) or (nodes and not ready):
                    aside.append(node)
                    continue
                nodes.append(node)
                if node.is_root:
                    nodes += self._more_roots(min(-(-self.frontier.trees // count), ROOTS) - 1)
                    self.rounds += ROOT_ROUNDS * len(nodes) / self.frontier.trees
                if not ready:
                    break
            else:
                self.rounds += len(nodes) / max(together, 1)
            self.frontier.give_back(node.number for node in aside)
        return nodes

    def _begins(self, node: Node) -> bool:
        """Does a node want a program that somebody is at, the first of its clause?"""
        if "programs" not in self._parts or node.is_root or node.cheap or node.bound >= self.U:
            return False
        return self.programs.begins(node.clause) and self.workers[0].wants_programs(node)

    def _more_roots(self, most: int) -> list[Node]:
        """At most so many roots that wait; they are before all other nodes."""
        nodes: list[Node] = []
        while len(nodes) < most and self.frontier.next_is_root:
            node = self.frontier.take()
            assert node is not None
            nodes.append(node)
        return nodes

    def polish(self, step: Vector, clause: int) -> Iterator[Event]:
        """From a witness downhill over linear pieces."""
        return self.workers[-1].witnesses.polish(step, clause)

    def _push_roots(self) -> None:
        """The roots of all clauses wait."""
        for node in self.roots(0, len(self.model.first) - 1):
            self.frontier.push(node)
        self.started = True

    def quick(self, hopeful: bool = False) -> float:
        """What the roots prove with a few steps and rounds each, for bounds at once; `hopeful`: without any steps where
        F may be negative at x by their lines."""
        clauses, least = len(self.model.first) - 1, math.inf
        for begin in range(0, clauses, ROOTS):
            nodes = self.roots(begin, min(begin + ROOTS, clauses))
            steps = self.effort.quick_steps
            for stage in ((0, 0, 0), (steps, 0, 0), (steps, self.effort.quick_rounds, 0)):
                going = [n for n, node in enumerate(nodes) if node.bound < self.U]
                if going and (stage[1] == 0 or all(nodes[n].bound > 0 for n in going)):
                    self._bound(nodes, going, stage)
                if hopeful and any(node.bound < 0 for node in nodes):
                    break
            least = min(least, *(node.bound for node in nodes))
        return least

    def _bound(self, nodes: list[Node], going: list[int], effort: tuple[int, int, int]) -> None:
        """Bound some nodes, each worker its share."""
        count = len(self.workers)
        shares = [[nodes[n] for n in going if n % count == i] for i in range(count)]

        def bound(worker: Worker, share: list[Node]) -> None:
            worker.bound(share, *effort)
            for node in share:
                worker.tell(node, rows=effort[2] > 0)

        side_by_side([partial(bound, w, share) for w, share in zip(self.workers, shares, strict=True) if share])

    def roots(self, begin: int, end: int) -> list[Node]:
        """The roots of some clauses, not bounded yet."""
        first, nodes = self.model.first, []
        for clause in range(begin, end):
            count = int(first[clause + 1] - first[clause])
            weights = np.full(count, 1.0 / count)
            nodes.append(Node(self.frontier.number(), clause, -math.inf, self.root.copy(), weights, self.U))
            if self.recorder is not None:
                self.recorder.root(nodes[-1].number, clause)
        return nodes
