"""The compiler's options in one place, and the one way in which this package compiles anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numba.extending
from numba.core.options import DefaultOptions

from layercert.compiled.cache import StampedCache

F = TypeVar("F", bound=Callable[..., object])

# no entry points for C: nobody calls the kernels from there, and each takes time to compile
_ALWAYS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_SUMS = {"reassoc", "contract", "nsz"}
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def njit(function: F) -> F:
    """Compile once and keep the machine code on disk."""
    return _compiled(function)


def njit_sums(function: F) -> F:
    """The same for sums and maxima: terms may be reordered, which is what lets them use vector instructions.

    The error bounds of all such sums, the checker's too, hold for any order.
    """
    return _compiled(function, fastmath=_SUMS)


def inner(function: F) -> F:
    """For what inner loops call and what makes no array of its own: without reference counts.

    A call that hands over a dozen arrays in named tuples counts each of them up and down again, atomically, which took
    a small program half its time. The option is numba's own for such functions, though not a documented one.
    """
    return _compiled(function, **_UNCOUNTED)


def inner_sums(function: F) -> F:
    """Both: no reference counts, and sums in any order."""
    return _compiled(function, **_UNCOUNTED, fastmath=_SUMS)


_known: set[Callable[..., object]] = set()


def known_to_kernels(function: F) -> F:
    """A plain Python function that compiled code may call too; to be said wherever it is so used."""
    if function not in _known:
        numba.extending.register_jitable(function)
        _known.add(function)
    return function


#: Told of every call of a kernel when it ends: the kernel, its arguments, whether another kernel called it.
Told: TypeAlias = Callable[[Callable[..., object], tuple[Any, ...], bool], None]
_recorder: list[Told] = []
_depth = [0]


def record_instead(told: Told) -> None:
    """From now on kernels are not compiled: they run as plain Python, and each call is told to the recorder.

    To be called before any module with kernels is imported.
    """
    _recorder.append(told)


def _recorded(function: F, told: Told) -> F:
    @wraps(function)
    def call(*args: Any) -> object:
        _depth[0] += 1
        try:
            return function(*args)
        finally:
            _depth[0] -= 1
            told(function, args, _depth[0] > 0)

    return cast(F, call)


def _compiled(function: F, **options: Any) -> F:
    if _recorder:
        return _recorded(function, _recorder[0])
    compiled = numba.njit(**_ALWAYS, **options)(function)
    if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # else somebody debugs: plain Python
        compiled._cache = StampedCache(compiled)  # where `cache=True` puts numba's own
    return cast(F, compiled)
