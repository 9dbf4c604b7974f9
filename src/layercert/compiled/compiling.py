"""What happens while numba works for the first time: a user reads a line, and the clock of time limits stands still.

Importing this loads numba; only modules with kernels do.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from numba.core import event

from layercert.compiled import helper
from layercert.system import clock

__all__ = ["CHECKER", "KERNELS", "announce"]

log = logging.getLogger(__name__)

#: What a user reads when machine code has to be made.
KERNELS = (
    "LayerCert compiles its kernels for this machine, this once: about half a minute, which no time limit counts; "
    "after that they are cached"
)
CHECKER = "LayerCert compiles its certificate checker for this machine, this once: some seconds"

_said: set[str] = set()


def announce(message: str) -> None:
    """One line for a waiting user, once per process: to the log where somebody listens to it, else to stderr."""
    if message in _said:
        return
    _said.add(message)
    if log.isEnabledFor(logging.INFO):
        log.info(message)
    else:
        print(message, file=sys.stderr, flush=True)


class _Watch(event.Listener):
    """Told by numba of every compilation, which a cached function does not need; one may start others."""

    def __init__(self) -> None:
        self.depth = 0
        self.stopped = False  # by us: it may stand still already

    def on_start(self, event: Any) -> None:
        home = _module(event)
        if home[0] == "layercert":
            if self.depth == 0:
                announce(CHECKER if home[1:2] == ["certificate"] else KERNELS)
                if home[1:2] in (["attack"], ["search"]):
                    helper.call()
                self.stopped = not clock.stands_still()
                if self.stopped:
                    clock.stop()
            self.depth += 1

    def on_end(self, event: Any) -> None:
        if _module(event)[0] == "layercert":
            self.depth -= 1
            if self.depth == 0 and self.stopped:
                clock.go_on()


def _module(event: Any) -> list[str]:
    """Where the function lives; a user's own kernels are none of our business."""
    function = getattr(event.data.get("dispatcher"), "py_func", None)
    return str(getattr(function, "__module__", "")).split(".")


event.register("numba:compile", _Watch())
