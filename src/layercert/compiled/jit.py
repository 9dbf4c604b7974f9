"""The compiler's options in one place, and the one way in which this package compiles anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numba.extending
from numba.core.options import DefaultOptions

from layercert.compiled import boxing, linking
from layercert.compiled.cache import StampedCache
from layercert.system import clock

F = TypeVar("F", bound=Callable[..., object])

# no entry points for C: nobody calls the kernels from there, and each takes time to compile
_ALWAYS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_SUMS = {"reassoc", "contract", "nsz"}
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
boxing.install()


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
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # somebody debugs: plain Python
        return function
    if not linking.is_possible():  # numba's own way: slower to compile, and all the same
        compiled = numba.njit(**_ALWAYS, **options)(function)
        compiled._cache = StampedCache(compiled)
        return cast(F, compiled)
    return cast(F, Kernel(function, options).compiled)


def _without_entry(flags: Any) -> Any:
    flags.no_cpython_wrapper = True
    return flags


class Kernel:
    """A kernel, and its entry from Python, which is compiled only where Python calls it.

    Most kernels are called by kernels alone, and to take a dozen arrays in named tuples out of Python's hands takes
    as long to compile as a kernel does.
    """

    def __init__(self, function: Callable[..., object], options: dict[str, Any]) -> None:
        self.compiled: Any = numba.njit(**_ALWAYS, **options)(function)
        self.compiled._compiler._customize_flags = _without_entry
        self.compiled._cache = StampedCache(self.compiled)  # where `cache=True` puts numba's own
        self.compiled.add_overload = self._add
        self.compiled._compile_for_args = self._enter  # what a call from Python with new types asks
        self.compiled.kernel = self
        linking.register(self.compiled)

    def _add(self, result: Any) -> None:
        """Kernels may call this one now; Python may not, which is why numba's dispatcher is not told."""
        linking.separate_if_large(result, self.compiled.py_func)
        self.compiled.overloads[tuple(result.signature.args)] = result

    def _enter(self, *args: Any) -> Any:
        with clock.standing_still():  # loading machine code is no part of a search either
            called = self.entry._compile_for_args(*args)
        self.compiled._insert([self.compiled.typeof_pyval(a)._code for a in args], called, False)
        return called

    @cached_property
    def entry(self) -> Any:
        """A function of the same arguments, for Python, that calls the kernel."""
        function = self.compiled.py_func
        names = ", ".join(inspect.signature(function).parameters)
        scope = {"__name__": function.__module__, "_kernel": self.compiled}
        text = f"def entry({names}):\n    return _kernel({names})"
        exec(compile(text, function.__code__.co_filename, "exec"), scope)
        plain: Any = scope["entry"]
        plain.__qualname__ = f"{function.__qualname__}.entry"
        plain.__defaults__ = function.__defaults__
        entry = numba.njit(**_ALWAYS)(plain)
        entry._cache = StampedCache(entry)
        return entry
