"""The compiler's options in one place, and the line a user reads while it works for the first time.

This module and the kernels are the only ones that load numba.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])

log = logging.getLogger(__name__)


def njit(function: F) -> F:
    """Compile once and keep the machine code on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def njit_sums(function: F) -> F:
    """The same for sums and maxima: terms may be reordered, which is what lets them use vector instructions."""
    fast = {"reassoc", "contract", "nsz"}
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fast)(function))


def is_compiled(entry: Any) -> bool:
    """Is the machine code of this function on disk, made by this numba and younger than the source?"""
    source = Path(entry.py_func.__code__.co_filename)
    for index in Path(entry.stats.cache_path).glob(f"{source.stem}.{entry.__name__}-*.nbi"):
        current = index.stat().st_mtime >= source.stat().st_mtime
        if current and numba.__version__.encode() in index.read_bytes()[:200]:
            return True
    return False


def announce(message: str) -> None:
    """One line for a waiting user: to the log where somebody listens to it, else to a terminal."""
    if log.isEnabledFor(logging.INFO):
        log.info(message)
    elif sys.stderr.isatty():
        print(message, file=sys.stderr, flush=True)
