"""What a compiled function depends on: its own bytecode, that of every function it reaches, and the constants they use.

numba asks only whether the file of a function has changed. But it inlines what the function calls and freezes the
globals that it reads, and these come from other files. So machine code is kept under a stamp of all that numba saw,
by value: an edit that can change the code changes the stamp, a comment or another function does not.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

PACKAGE = __name__.partition(".")[0]
#: The compilers' versions; the processor is part of numba's own key.
COMPILERS = (sys.implementation.cache_tag, numba.__version__, np.__version__)


def stamp(function: FunctionType, options: dict[str, Any]) -> str:
    """A hash of everything that the machine code of a function, compiled with some options, is made from."""
    digest = hashlib.sha256(repr((COMPILERS, _boxing(), _settled(options))).encode())
    seen: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        reached = waiting.pop()
        if reached not in seen:
            seen.add(reached)
            facts, calls = _facts(reached)
            digest.update(facts)
            waiting += calls
    return digest.hexdigest()


@cache
def _boxing() -> str:
    """A hash of how results become Python's objects, which no function says."""
    return hashlib.sha256(Path(__file__).with_name("boxing.py").read_bytes()).hexdigest()


@cache
def _facts(function: FunctionType) -> tuple[bytes, list[FunctionType]]:
    """A hash of what a function itself gives to the compiler, and the functions that it may call."""
    facts: list[Any] = [function.__qualname__, *_code(function.__code__)]
    calls: list[FunctionType] = []
    values = [(name, function.__globals__[name]) for name in _names(function.__code__) if name in function.__globals__]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    values += zip(function.__code__.co_freevars, cells, strict=True)
    values += [("", function.__defaults__), ("", function.__kwdefaults__)]
    for name, value in values:
        if isinstance(value, Dispatcher):
            facts.append((name, _settled(value.targetoptions)))
            calls.append(value.py_func)
        elif isinstance(value, FunctionType) and value.__module__.partition(".")[0] == PACKAGE:
            calls.append(value)
        else:
            facts.append((name, _settled(value)))
    return hashlib.sha256(repr(facts).encode()).digest(), calls


def _code(code: CodeType) -> Iterator[Any]:
    """What a code object does, without where it stands."""
    yield code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_flags
    yield code.co_kwonlyargcount, code.co_exceptiontable
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield _settled(constant)


def _names(code: CodeType) -> list[str]:
    """Names that may be globals, of the function and of those inside it. Attributes are among them: no harm."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return sorted({*code.co_names, *(name for nested in inner for name in _names(nested))})


def _settled(value: Any) -> Any:
    """A value as plain facts that are printed alike in every process; whatever is not known to be plain brings in the
    whole package."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return type(value).__name__, repr(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return str(array.dtype), array.shape, array.tobytes() if not array.dtype.hasobject else every_source()
    if isinstance(value, tuple | list):
        return type(value).__name__, [_settled(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(repr(_settled(item)) for item in value)
    if isinstance(value, dict):
        return "dict", sorted((repr(_settled(key)), repr(_settled(item))) for key, item in value.items())
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return value.__qualname__, value._fields, _settled(getattr(value, "_field_defaults", {}))
    foreign = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None) or ""
    if foreign and foreign.partition(".")[0] != PACKAGE and _is_named(value):
        return foreign, value.__name__
    return "in doubt", every_source()


def _is_named(value: Any) -> bool:
    """A module, class or function of another package: its name says what it is, for one version of numba."""
    return isinstance(value, ModuleType | type | FunctionType | BuiltinFunctionType | np.ufunc)


@cache
def every_source() -> str:
    """The hash of all source files of the package."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for source in sorted(root.rglob("*.py")):
        digest.update(str(source.relative_to(root)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()
