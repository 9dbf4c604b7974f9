"""Writes outcomes in the background: all that wait go into one transaction, so that a slow disk holds nobody up.

A commit takes as long as the disk needs to make it last (10-20 ms is common), a job may take 3. Nothing is held back:
what arrives while nothing is being written is written at once.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from types import TracebackType

from layercert.batch.store import Store
from layercert.batch.work import Outcome


class Writer:
    """`put` returns at once; leaving the `with` block waits until all is on the disk, and tells what went wrong."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: SimpleQueue[tuple[Outcome, str | None] | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="writer")

    def put(self, outcome: Outcome, certificate: str | None) -> None:
        self._raise()
        self._waiting.put((outcome, certificate))

    def _write(self) -> None:
        try:
            going = True
            while going:
                batch = [self._waiting.get()]
                while True:
                    try:
                        batch.append(self._waiting.get_nowait())
                    except Empty:
                        break
                going = None not in batch
                self._store.record([item for item in batch if item is not None])
        except BaseException as error:  # told to the main thread, which stops the batch
            self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._waiting.put(None)
        self._thread.join()
        self._raise()
