"""The compiler's options in one place, and what happens while it works for the first time: a user reads a line, and the
clock of time limits stands still.

This module and the kernels are the only ones that load numba.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.extending
from numba.core import event
from numba.core.options import DefaultOptions

from layercert import clock

F = TypeVar("F", bound=Callable[..., object])

log = logging.getLogger(__name__)

# no entry points for C: nobody calls the kernels from there, and each takes time to compile
_ALWAYS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_SUMS = {"reassoc", "contract", "nsz"}
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

_current: set[Path] = set()  # cache folders without stale code
_said = False

#: What a user reads when machine code has to be made.
COMPILING = (
    "LayerCert compiles its kernels for this machine, this once: up to a minute, which no time limit counts; "
    "after that they are cached"
)


def njit(function: F) -> F:
    """Compile once and keep the machine code on disk."""
    return cast(F, _cached(numba.njit(**_ALWAYS)(function)))


def njit_sums(function: F) -> F:
    """The same for sums and maxima: terms may be reordered, which is what lets them use vector instructions."""
    return cast(F, _cached(numba.njit(**_ALWAYS, fastmath=_SUMS)(function)))


def inner(function: F) -> F:
    """For what inner loops call and what makes no array of its own: without reference counts.

    A call that hands over a dozen arrays in named tuples counts each of them up and down again, atomically, which took
    a small program half its time. The option is numba's own for such functions, though not a documented one.
    """
    return cast(F, _cached(numba.njit(**_ALWAYS, **_UNCOUNTED)(function)))


def inner_sums(function: F) -> F:
    """Both: no reference counts, and sums in any order."""
    return cast(F, _cached(numba.njit(**_ALWAYS, **_UNCOUNTED, fastmath=_SUMS)(function)))


def known_to_kernels(function: F) -> F:
    """A plain Python function that compiled code may call too."""
    numba.extending.register_jitable(function)
    return function


def _cached(compiled: Any) -> Any:
    """numba looks at a function's own file only: forget machine code older than any file beside it or this one."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # somebody debugs: plain Python
        return compiled
    folder = Path(compiled.stats.cache_path)
    if folder not in _current:
        _current.add(folder)
        homes = {Path(__file__).parent, Path(compiled.py_func.__code__.co_filename).parent}
        newest = max(source.stat().st_mtime for home in homes for source in home.glob("*.py"))
        for index in folder.glob("*.nbi"):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                if index.stat().st_mtime < newest:
                    index.unlink()
    return compiled


def is_compiled(entry: Any) -> bool:
    """Is the machine code of this function on disk, made by this numba?"""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return True
    name = f"{Path(entry.py_func.__code__.co_filename).stem}.{entry.__name__}-*.nbi"
    version = numba.__version__.encode()
    return any(version in index.read_bytes()[:200] for index in Path(entry.stats.cache_path).glob(name))


def announce(message: str) -> None:
    """One line for a waiting user, once a process: to the log where somebody listens to it, else to stderr."""
    global _said
    if _said:
        return
    _said = True
    if log.isEnabledFor(logging.INFO):
        log.info(message)
    else:
        print(message, file=sys.stderr, flush=True)


class _Watch(event.Listener):  # type: ignore[misc]  # numba has no types
    """Told by numba of every compilation, which a cached function does not need; one may start others."""

    def __init__(self) -> None:
        self.depth = 0

    def on_start(self, event: Any) -> None:
        if _is_ours(event):
            if self.depth == 0:
                announce(COMPILING)
                clock.stop()
            self.depth += 1

    def on_end(self, event: Any) -> None:
        if _is_ours(event):
            self.depth -= 1
            if self.depth == 0:
                clock.go_on()


def _is_ours(event: Any) -> bool:
    """A user's own kernels are none of our business."""
    function = getattr(event.data.get("dispatcher"), "py_func", None)
    return getattr(function, "__module__", "").partition(".")[0] == __name__.partition(".")[0]


event.register("numba:compile", _Watch())
