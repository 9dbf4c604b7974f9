"""A worker process: `python -m layercert.batch.worker FD`. It takes jobs from a pipe and sends outcomes back.

It is a fresh interpreter, so that the environment can hold the numerical libraries to one thread before they load,
and so that a crash takes nothing else down. It ends when the pipe closes, and in the middle of a job when its parent
is gone. While it works it says what it has proved so far, and when it stops to compile.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any


def main(fd: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    pipe: Connection = Connection(fd)
    path, work_name, context, memory = pipe.recv()
    sys.path[:] = path
    module, _, name = work_name.partition(":")
    work = getattr(import_module(module), name)
    networks, options = context()
    import_module("layercert.batch.work").warm_up(options)
    parent = _Parent(pipe)
    limit = None if memory is None else _MemoryLimit(memory)
    news, clock = import_module("layercert.batch.news"), import_module("layercert.system.clock")

    def compiling(on: bool) -> None:
        if limit is not None:
            limit.lift() if on else limit.set()
        parent.send(news.Compiling(on))

    with (
        clock.listening(compiling),
        news.telling(parent.send),
        suppress(EOFError, BrokenPipeError, ConnectionResetError),
    ):
        parent.send("ready")
        while True:
            job, x, label = pipe.recv()
            parent.send(work(networks[job.model], x, label, job, options))


class _Parent:
    """The pipe, for several threads: one message at a time."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, message: Any) -> None:
        with self._lock:
            self._pipe.send(message)


class _MemoryLimit:
    """Let allocations fail (MemoryError) beyond the limit; what libraries and machine code have mapped does not count.

    The parent watches resident memory as well: a library in C may answer a failed allocation by aborting.
    """

    def __init__(self, limit: int) -> None:
        _, self._hard = resource.getrlimit(resource.RLIMIT_DATA)
        self._wanted = _mapped() + limit
        self._before = 0
        self._apply(self._wanted)

    def lift(self) -> None:
        """The compiler may take what it needs."""
        self._before = _mapped()
        self._apply(resource.RLIM_INFINITY)

    def set(self) -> None:
        self._wanted += max(_mapped() - self._before, 0)
        self._apply(self._wanted)

    def _apply(self, soft: int) -> None:
        unlimited = resource.RLIM_INFINITY
        if self._hard != unlimited:
            soft = self._hard if soft == unlimited else min(soft, self._hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, self._hard))


def _mapped() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData")), 0)


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
