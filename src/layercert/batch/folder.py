"""The folder of a run: writable, with room for the results, and held by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layercert.batch.errors import RunError
from layercert.batch.plan import Plan

LOCK = "lock"
#: Room for a result besides its witness, and for SQLite's journal and pages.
ROW, SPARE = 2_000, 20_000_000


@contextmanager
def hold(folder: Path, plan: Plan | None = None) -> Iterator[None]:
    """Create the folder if need be and hold its lock, which the system drops when the process dies, however it dies."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"'{folder}' is a file; a run needs a folder: choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _not_writable(folder, error) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(
                f"the run in '{folder}' is in use by {_owner(handle)}; wait until it ends, or choose another --out"
            ) from None
        if plan is not None:
            _check_room(folder, plan)
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}\n".encode(), 0)
        except OSError as error:
            raise _not_writable(folder, error) from None
        yield
    finally:
        os.close(handle)


def _owner(handle: int) -> str:
    """Who holds the lock. It says so right after it has taken it, so a moment of patience finds its name."""
    for _ in range(20):
        if owner := os.pread(handle, 200, 0).decode(errors="replace").strip():
            return owner
        time.sleep(0.02)
    return "another process"


def _check_room(folder: Path, plan: Plan) -> None:
    """Before any work: is there room for every result, if none of it could be compressed?"""
    numbers = plan.data.X.shape[1] * 8
    weights = sum(a.nbytes for m in plan.models for a in m.network.arrays().values())
    needed = len(plan.data) * numbers + len(plan.jobs) * (numbers + ROW) + weights + SPARE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"the disk of '{folder}' is too full: this batch may need {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are "
            "free; make room or choose another --out"
        )


def _not_writable(folder: Path, error: OSError) -> RunError:
    if error.errno == errno.ENOSPC:
        return RunError(f"the disk of '{folder}' is full; make room or choose another --out")
    return RunError(
        f"cannot write to '{folder}': {error.strerror or error}; choose a folder you may write to with --out"
    )
