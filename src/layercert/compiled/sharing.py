"""Processes that compile at the same time share the work: one at a function, the others wait for its machine code.

A lock is a byte of one file per folder (POSIX record locks), so a process that ends, however it ends, holds none. A
function's lock is taken before those of the functions that it calls, and no function calls back: nobody waits in a
circle. Where a system has no such locks, everybody compiles for themselves.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from layercert.system import clock

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

FILE = "layercert-kernels.lock"

_files: dict[tuple[int, Path], int] = {}  # by process: a fork has locks of its own


class Turn:
    """The right to compile one function, for as long as it is held."""

    def __init__(self, folder: Path | None, mark: str) -> None:
        self._folder, self._byte = folder, int(mark[:12], 16)
        self._held = 0

    def take(self) -> bool:
        """Wait for the turn. True if somebody else had it meanwhile: there may be machine code now."""
        self._held += 1
        if self._held > 1 or fcntl is None or self._folder is None:
            return False
        with contextlib.suppress(OSError):  # a folder that cannot be locked is one that nobody shares
            file = _file(self._folder)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
                return False
            except OSError:
                with clock.standing_still():
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, self._byte)
                return True
        return False

    def give(self) -> None:
        """Let the next one have it."""
        self._held = max(0, self._held - 1)
        if self._held == 0 and fcntl is not None and self._folder is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(_file(self._folder), fcntl.LOCK_UN, 1, self._byte)


def _file(folder: Path) -> int:
    """One descriptor per process and folder, never closed: closing any would give back all locks."""
    key = (os.getpid(), folder)
    if key not in _files:
        _files[key] = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    return _files[key]
