"""The progress bar: inputs done, both bounds, and how far the tree is, with what is left where that can be said."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from layercert.run import Progress as Run
from layercert.search.events import Event, Nodes

#: Seconds over which the pace is taken.
WINDOW = 20.0


class Live:
    """Shown on a terminal only; on a pipe or with quiet=True it does nothing."""

    def __init__(self, total: int, quiet: bool) -> None:
        console = Console(stderr=True)
        self._on = console.is_terminal and not quiet
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not self._on,
        )
        self._task = self._bar.add_task("", total=total, state="")
        self._quiet = quiet
        self._started = -1
        self._shown = 0.0
        self._pace = Pace()
        self._warned = False

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Out of the way of a row on stdout, which may be the same terminal."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def start(self, name: str) -> None:
        self._started += 1
        self._bar.update(self._task, completed=self._started, state=f"input {name}")
        self._name = name
        self._pace = Pace()

    def watch(self, run: Run, event: Event | None) -> None:
        """Called on every event of a search; redraws at most ten times per second."""
        if isinstance(event, Nodes) and event.depth_first and not self._warned and not self._quiet:
            self._warned = True
            print(
                "layercert: the open nodes take all of --memory: the search goes depth first until there is room, "
                "which is slower; the answer is the same",
                file=sys.stderr,
            )
        if not self._on or time.monotonic() - self._shown < 0.1:
            return
        self._shown = time.monotonic()
        upper = "inf" if math.isinf(run.upper) else f"{run.upper:.5f}"
        state = f"input {self._name}: {run.lower:.5f} <= distance <= {upper}, "
        state += f"{run.chain.programs} programs" if run.nodes is None else self._pace.said(run.nodes, self._shown)
        self._bar.update(self._task, state=state)


class Pace:
    """How fast a tree is worked on, and how long it may take."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Nodes]] = deque()

    def said(self, nodes: Nodes, now: float) -> str:
        """Open and closed nodes, nodes per second, the share that is closed; what is left only where it shrinks."""
        while len(self._seen) > 1 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        if not self._seen or now - self._seen[-1][0] >= WINDOW / 40:
            self._seen.append((now, nodes))
        then, before = self._seen[0]
        rate = (nodes.closed - before.closed) / (now - then) if now > then else 0.0
        text = f"{nodes.open} open, {nodes.closed} closed ({rate:.1f}/s), {_share(nodes.share)} of the tree"
        left = self.left(nodes, now)
        return text if left is None else f"{text}, about {left:.0f} s left"

    def left(self, nodes: Nodes, now: float) -> float | None:
        """Seconds until no node is open, were they to become fewer as fast as lately. None where they do not."""
        then, before = self._seen[0]
        at, middle = self._seen[len(self._seen) // 2]
        if now - then < WINDOW / 2 or not before.open > middle.open > nodes.open:
            return None
        return nodes.open * (now - at) / (middle.open - nodes.open)


def _share(part: float) -> str:
    """In per cent, never rounded up to all of it."""
    return f"{math.floor(part * 1000) / 10:.1f} %"
