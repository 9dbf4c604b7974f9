"""A second process that compiles with a first measurement, where there is a second core for it."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from contextlib import suppress

from layercert.system.threads import cores

#: Set for processes that compile ahead: they ask for no help themselves. A user may set it to have no helper.
INSIDE = "LAYERCERT_WARMUP"

_helpers: list[subprocess.Popen[bytes]] = []


def call() -> None:
    """Start the helper, once per process; it ends with this process, or when it has nothing left to do."""
    if _helpers or os.environ.get(INSIDE) or cores() < 2 or not sys.executable:
        return
    with suppress(OSError):
        _helpers.append(
            subprocess.Popen(
                [sys.executable, "-m", "layercert.warmup", "help"],
                env={**os.environ, INSIDE: "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; and its own helper ends with it
            )
        )
        atexit.register(end)


def end() -> None:
    """Send the helper home; what it has compiled stays."""
    for helper in _helpers:
        if helper.poll() is None:
            with suppress(OSError):
                os.killpg(helper.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                helper.wait(timeout=5)
