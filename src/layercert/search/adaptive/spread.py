"""One tree on the workers of a Dask cluster: `--scheduler tcp://host:8786`.

This process keeps the open nodes and the incumbent. It hands out a few packed nodes with a slice of time; a worker
splits them and what comes of them, best first, until the time is up, and sends back what is still open, what the closed
ones proved and the witnesses it found. Until then the nodes stay in the frontier as lent: a worker that dies costs its
slice and nothing else, and the bound told meanwhile is proved. Slices are short at first, so that all workers soon have
some, and then as long as the traffic asks for; a fast worker comes back sooner for more work than a slow one.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from layercert.arrays import Vector
from layercert.errors import LayerCertError
from layercert.problem import Problem
from layercert.programs.stacks import make_chain
from layercert.search.cluster import check_workers, connect
from layercert.search.events import Bound, Event
from layercert.search.incumbent import Incumbent
from layercert.search.saved import Tree
from layercert.search.task import Task
from layercert.system import clock
from layercert.system.threads import one_thread

if TYPE_CHECKING:
    from layercert.search.adaptive.tree import Ball, Effort

#: A question that takes less than this (seconds) here needs no cluster.
ALONE = 1.0
#: Seconds of the first slices and of the longest ones, and how they grow from one to the other.
SHORT, LONG, GROWTH = 0.25, 5.0, 1.3
#: With more threads than this slices are longer in proportion: one coordinator hands out about 200 per second.
MANY = 64
#: A slice ends after a round of nodes, or so many seconds late, whatever it is at: a round that is cut short is lost.
PATIENT = 30.0
#: Most nodes of a slice, and slices in the hands of the scheduler for each thread of the cluster.
NODES, AHEAD = 64, 2
#: How often (seconds) finished slices are looked for, and how many slices in a row may take their worker down.
TICK, DEATHS = 0.02, 5
#: How often (seconds) the cluster is asked how large it is: workers come and go.
LOOK = 1.0
#: Nodes are numbered from here: the first ones of a tree are attacked more often, and these are none of them.
EARLIER = 1000
#: glibc's names for these, from malloc.h, and what it may keep: in all, and in one piece (it allows no more).
TRIM_THRESHOLD, MMAP_THRESHOLD, KEPT, KEPT_EACH = -1, -3, 2**29, 2**25
#: Seconds that workers may take to appear.
WAIT = 60.0
#: Seconds for the scheduler to answer.
CONNECT = 30.0


class ClusterError(LayerCertError):
    """A cluster that cannot be used, or that went away."""


@dataclass(frozen=True, eq=False)
class Question:
    """What all slices of a ball share; a worker keeps what it has built for it."""

    name: str
    problem: bytes  # pickled: sent once to each worker
    stack: str
    effort: Effort
    radius: float
    built: float
    limit: float
    enough: float
    gap: float
    recorder: bytes  # pickled; nothing where nobody wants a certificate


@dataclass(frozen=True, eq=False)
class Slice:
    """What a worker did. It numbers the nodes of a slice from EARLIER on, and after them those that it makes."""

    nodes: list[bytes]
    numbers: list[int]
    record: bytes
    closed_bound: float
    closed: int
    share: float  # of the tree, that it closed
    made: int
    witnesses: list[tuple[Vector, int]] = field(default_factory=list)  # offsets from x, with their clauses
    nearest: float = math.inf  # the worker looked no further than this
    unsettled: Vector | None = None
    seconds: float = 0.0  # of the processor


class Spread:
    """The coordinator of one ball."""

    def __init__(self, ball: Ball, scheduler: str) -> None:
        self.ball, self.frontier, self.scheduler = ball, ball.frontier, scheduler
        self.lent: dict[str, tuple[list[int], Any]] = {}  # numbers of nodes and the future, by key
        self.deaths = 0
        self.slices = 0
        self.sent = self.received = 0  # bytes of nodes
        self.worked = 0.0  # seconds of the workers' processors, for nodes alone

    def run(self, first: Iterator[Event]) -> Generator[Event | None, None, None]:
        """Events as they come, None now and then: at first those of a search of our own."""
        started = time.monotonic()
        with closing(self.ball.alone(first)) as events:
            for event in events:
                yield event
                if time.monotonic() - started > ALONE:
                    break
        self.frontier.take_back()
        if len(self.frontier):
            yield from self._on_cluster()

    def _on_cluster(self) -> Generator[Event | None, None, None]:
        client = connect(self.scheduler, CONNECT, ClusterError)
        try:
            check_workers(client, self.scheduler, WAIT, ClusterError)
            yield from self._drive(client)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"the scheduler at {self.scheduler} went away ({type(error).__name__}); with --save the same command "
                "goes on where the search stopped"
            ) from None
        finally:
            with suppress(Exception):  # closing releases the futures: what still runs is of no use to anybody
                client.close(timeout=5)

    def _drive(self, client: Any) -> Generator[Event | None, None, None]:
        from distributed import as_completed

        question, running, length = self._question(), as_completed(loop=client.loop), SHORT
        shared = client.submit(_received, question)  # pure: whoever needs it again can have it again
        threads, looked = 1, -math.inf
        while len(self.frontier) or self.lent:
            if time.monotonic() - looked > LOOK:
                threads, looked = max(sum(client.nthreads().values()), 1), time.monotonic()
            while len(self.frontier) and len(self.lent) < AHEAD * threads:
                if self.lent and len(self.frontier) < threads and len(self.lent) >= threads:
                    break  # what is there is shared, not hoarded
                self._hand_out(client, running, shared, threads, length)
            if not running.has_ready():
                time.sleep(TICK)
                yield None
                continue
            future = next(running)
            numbers, _ = self.lent.pop(future.key)
            if future.status == "finished":
                self.deaths, length = 0, min(length * GROWTH, LONG * max(1.0, threads / MANY))
                yield from self._take(numbers, future.result())
                yield Bound(self.frontier.least)
            else:
                self._lost(numbers, future)

    def _question(self) -> Question:
        ball, task = self.ball, self.ball.task
        recorded = ball.book is not None and ball.recorder is not None
        return Question(
            uuid4().hex, pickle.dumps(task.problem), task.stack, ball.effort, ball.radius, ball.built, task.limit,
            task.enough, task.gap, pickle.dumps(ball.book.elsewhere()) if recorded and ball.book is not None else b"",
        )  # fmt: skip

    def _hand_out(self, client: Any, running: Any, shared: Any, threads: int, length: float) -> None:
        most = min(NODES, -(-len(self.frontier) // (2 * threads)))
        nodes = self.frontier.lend(most)
        self.sent += sum(len(blob) for _, blob in nodes)
        key = f"layercert-slice-{uuid4().hex}"
        nearest = self.ball.task.incumbent.nearest
        blobs = [blob for _, blob in nodes]
        future = client.submit(work, shared, blobs, nearest, length, key=key, pure=False, retries=0)
        self.lent[key] = [number for number, _ in nodes], future
        running.add(future)

    def _take(self, numbers: list[int], done: Slice) -> Iterator[Event]:
        """Book what a worker did."""
        self.slices += 1
        self.received += sum(map(len, done.nodes)) + len(done.record)
        self.worked += done.seconds
        task = self.ball.task
        # what was closed is closed in the worker's ball: whatever lies beyond is not proved, witness or not. Before the
        # events: at any of them the search may be saved, or end
        task.incumbent.recall(None, done.nearest, done.unsettled)
        self._join(numbers, done)
        for step, clause in done.witnesses:
            yield from task.suggest(step, task.problem.clauses[clause])

    def _join(self, numbers: list[int], done: Slice) -> None:
        """Open nodes wait here again, with numbers of ours, by which a record knows them too."""
        ball, lent = self.ball, EARLIER + len(numbers)
        first = self.frontier.reserve(done.made - lent)

        def here(number: int) -> int:
            return numbers[number - EARLIER] if number < lent else first + number - lent

        if done.record and ball.book is not None and ball.recorder is not None:
            ball.book.join(ball.recorder, done.record, here)
        with self.frontier.lock:  # nobody may see a moment without what is open
            self.frontier.restore(done.nodes, [here(number) for number in done.numbers])
            self.frontier.returned(numbers, done.closed_bound, done.closed, done.share)

    def _lost(self, numbers: list[int], future: Any) -> None:
        """The slice is lost, its nodes are not."""
        self.frontier.give_back(numbers)
        error = future.exception() if future.status == "error" else None
        if error is not None and type(error).__name__ != "KilledWorker":
            raise ClusterError(
                f"a worker of {self.scheduler} failed: {type(error).__name__}: {error}; install the same version of "
                "layercert everywhere"
            )
        self.deaths += 1
        if self.deaths > DEATHS:
            raise ClusterError(
                f"{self.deaths} workers in a row died at {self.scheduler}; give them more memory, or less work at once "
                "with fewer threads"
            )


# on a worker

_built = threading.local()  # what the thread has built for the question it works on: slices of one come in a row


@cache
def _keep_memory() -> None:
    """Let the C library keep what kernels give back: Dask tells it to return all memory to the system at once, and a
    slice then takes three times as long (PERFORMANCE.md, 2026-11-17)."""
    with suppress(OSError, AttributeError, TypeError):  # another C library, another system
        library = ctypes.CDLL(None)
        library.mallopt(TRIM_THRESHOLD, KEPT)
        library.mallopt(MMAP_THRESHOLD, KEPT_EACH)


def _received(question: Question) -> Question:
    return question


def work(question: Question, blobs: list[bytes], nearest: float, seconds: float) -> Slice:
    """Work on some nodes for some time."""
    from layercert.search.adaptive.tree import Ball

    _keep_memory()
    begun = time.thread_time()
    known = getattr(_built, "of", None)
    if known is None or known[0] != question.name:
        known = _built.of = (question.name, pickle.loads(question.problem), {})
    problem: Problem = known[1]
    parts: dict[str, Any] = known[2]
    incumbent = Incumbent(problem)
    incumbent.recall(None, nearest, None)
    task = Task(
        problem, make_chain(question.stack, problem.norm), question.limit, incumbent,
        enough=question.enough, gap=question.gap, threads=1,
    )  # fmt: skip
    tree = Tree(question.radius, question.built, 0.0, 0, math.inf, 0, EARLIER, blobs)
    with one_thread():
        ball = Ball(task, question.effort, None, question.radius, tree, parts)
        if question.recorder:
            ball.book = pickle.loads(question.recorder)
            ball.recorder = ball.book.ball(ball.cutoff, ball.model)
        share, started = ball.frontier.share, clock.now()
        with suppress(clock.OutOfTime), clock.until(started + seconds + PATIENT), closing(ball.run()) as events:
            for event in events:
                clock.check()
                over = isinstance(event, Bound) and clock.now() > started + seconds
                if over or incumbent.distance <= task.enough:
                    break
    frontier = ball.frontier
    held = incumbent.witness
    found = [] if held is None else [(held.point - problem.x, problem.clauses.index(held.clause))]
    left = frontier.numbered()
    record = b""
    if ball.book is not None and ball.recorder is not None:
        record = ball.book.packed(ball.recorder, frontier.made, brief=True)
    return Slice(
        [blob for _, blob in left], [number for number, _ in left], record, frontier.closed_bound, frontier.closed,
        frontier.share - share, frontier.made, found, incumbent.nearest, incumbent.unsettled,
        time.thread_time() - begun,
    )  # fmt: skip
