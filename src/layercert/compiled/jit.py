"""The compiler's options in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.extending
from numba.core.options import DefaultOptions

import layercert.compiled.compiling  # noqa: F401 - tells a user who has to wait

F = TypeVar("F", bound=Callable[..., object])

# no entry points for C: nobody calls the kernels from there, and each takes time to compile
_ALWAYS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_SUMS = {"reassoc", "contract", "nsz"}
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

_current: set[Path] = set()  # cache folders without stale code


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
