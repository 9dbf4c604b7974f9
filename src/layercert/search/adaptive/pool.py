"""Several threads at one tree: each takes the best nodes that wait, whenever it has none.

Kernels release Python's lock, so threads really run at the same time. Whoever drives the search hears events in its own
thread and sleeps meanwhile. Where nobody listens for a moment (a property's other alternative has its turn, a smaller
ball is tried), threads finish what they hold and rest, so there are never more of them at work than were asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from layercert.search.events import Bound, Event
from layercert.system import clock
from layercert.system.threads import new_thread

if TYPE_CHECKING:
    from layercert.search.adaptive.node import Node
    from layercert.search.adaptive.tree import Ball
    from layercert.search.adaptive.worker import Worker

#: Threads rest when nobody has listened for so long (seconds), and whoever listens hears of the bound so often.
ABSENT, TICK = 0.1, 0.05


class Pool:
    """The threads of one ball."""

    def __init__(self, ball: Ball, workers: Sequence[Worker]) -> None:
        self.ball, self.workers = ball, workers
        self._change = threading.Condition(ball.frontier.lock)
        self._events: deque[Event] = deque()
        self._errors: list[BaseException] = []
        self._stop = clock.Stop()
        self._stopped = False
        self._heard = time.monotonic()
        self._listening = False
        self._idle = 0
        self._running = 0

    def run(self, first: Iterator[Event]) -> Generator[Event | None, None, None]:
        """Events as they come, None now and then when there are none; the last worker begins with `first`."""
        threads = [new_thread(self._thread, worker, iter(())) for worker in self.workers[:-1]]
        threads.append(new_thread(self._thread, self.workers[-1], first))
        self._running = len(threads)
        try:
            for thread in threads:
                thread.start()
            while True:
                event, over = self._next()
                if over:
                    break
                yield event
        finally:
            self._stop.set()
            with self._change:
                self._stopped = True
                self._change.notify_all()
            for thread in threads:
                if thread.ident is not None and thread is not threading.current_thread():
                    thread.join()
        if self._errors:
            raise self._errors[0]

    def _next(self) -> tuple[Event | None, bool]:
        """The next event, or None when it is time to look at the clock; True when all is over."""
        with self._change:
            self._listening = True
            if time.monotonic() - self._heard > ABSENT:
                self._change.notify_all()
            if not self._events and not self._errors and self._running:
                self._change.wait(TICK)
            self._listening, self._heard = False, time.monotonic()
            if self._errors:
                return None, True
            if self._events:
                return self._events.popleft(), False
            return None, not self._running

    def _thread(self, worker: Worker, first: Iterator[Event]) -> None:
        try:
            with self._stop.scope():
                for event in first:
                    self._tell(event)
                while True:
                    nodes = self._take()
                    if not nodes:
                        break
                    for event in worker.work(nodes):
                        self._tell(event)
                    self._tell(Bound(self.ball.frontier.least))
                    clock.check()
        except BaseException as error:
            with self._change:
                if not self._stopped:
                    self._errors.append(error)
        finally:
            with self._change:
                self._running -= 1
                self._change.notify_all()

    def _tell(self, event: Event) -> None:
        with self._change:
            self._events.append(event)
            self._change.notify_all()

    def _take(self) -> list[Node]:
        """Some nodes, a fair share of those that wait; waits where others may still make some. None: all is done."""
        frontier = self.ball.frontier
        with self._change:
            self._idle += 1
            self._change.notify_all()  # what this thread made may be for others
            try:
                while not self._stopped and not self._errors:
                    absent = not self._listening and time.monotonic() - self._heard > ABSENT
                    if len(frontier) and not absent and (nodes := self.ball.take()):
                        return nodes
                    if not len(frontier) and self._idle >= self._running:
                        return []
                    self._change.wait(TICK if len(frontier) else None)  # who is at a first program tells nobody
                return []
            finally:
                self._idle -= 1
