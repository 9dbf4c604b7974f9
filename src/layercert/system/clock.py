"""The clock of time limits and of seconds in results: it stands still while kernels are compiled, once a machine."""

from __future__ import annotations

import time

# (seconds spent compiling so far, since when a compilation runs or None): replaced as a whole, so that threads may look
_compiling: tuple[float, float | None] = (0.0, None)


def now() -> float:
    """Monotonic seconds, without those that went into compiling."""
    spent, since = _compiling
    return (time.monotonic() if since is None else since) - spent


def stop() -> None:
    """Compiling begins."""
    global _compiling
    _compiling = (_compiling[0], time.monotonic())


def go_on() -> None:
    """Compiling is over."""
    global _compiling
    spent, since = _compiling
    if since is not None:
        _compiling = (spent + time.monotonic() - since, None)
