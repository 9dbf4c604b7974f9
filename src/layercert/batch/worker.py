"""A worker process: `python -m layercert.batch.worker FD`. It takes jobs from a pipe and sends outcomes back.

It is a fresh interpreter, so that the environment can hold the numerical libraries to one thread before they load,
and so that a crash takes nothing else down. It ends when the pipe closes, and in the middle of a job when its parent
is gone.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from importlib import import_module
from multiprocessing.connection import Connection


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
    if memory is not None:
        _limit_memory(memory)
    pipe.send("ready")
    try:
        while True:
            job, x, label = pipe.recv()
            pipe.send(work(networks[job.model], x, label, job, options))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _limit_memory(limit: int) -> None:
    """Let allocations fail (MemoryError) beyond the limit; what the libraries have mapped so far does not count.

    The parent watches resident memory as well: a library in C may answer a failed allocation by aborting.
    """
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        mapped = next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData")), 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = mapped + limit
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
