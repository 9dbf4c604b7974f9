"""The progress bar: inputs done, the rising lower bound, the falling upper bound, the programs solved."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from layercert.run import Progress as Run
from layercert.search.events import Event


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
        self._started = -1
        self._shown = 0.0

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

    def watch(self, run: Run, event: Event | None) -> None:
        """Called on every event of a search; redraws at most ten times per second."""
        if not self._on or time.monotonic() - self._shown < 0.1:
            return
        self._shown = time.monotonic()
        upper = "inf" if math.isinf(run.upper) else f"{run.upper:.5f}"
        state = f"input {self._name}: {run.lower:.5f} <= distance <= {upper}, {run.chain.programs} programs"
        self._bar.update(self._task, state=state)
