"""Kernels that call kernels: each is compiled once, and a large one is called where it is instead of being copied.

numba links the code of all that a function calls into the function's own, optimises the whole and makes machine code
of it, again at every level of callers; so most of the compiler's time went into code that it had seen before. Here a
caller sees no more of a large kernel than its name. The linker finds the name when the caller is loaded, so what it
needs is written down beside its machine code and loaded first. Small kernels are still copied, and inlined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

from llvmlite import binding as llvm  # type: ignore[import-untyped]
from numba.core import dispatcher

#: From so many instructions on a kernel is large. LLVM inlines none of more than some fifty into another.
LARGE = 300


class Callee(NamedTuple):
    """A large kernel, compiled for some types."""

    module: str
    name: str
    types: tuple[Any, ...]
    symbol: str  # of its machine code


def is_possible() -> bool:
    """Has this version of numba the parts that all this rests on? They are its own affair, and may go away."""
    parts = {"Dispatcher": ("_compile_for_args", "_insert", "add_overload"), "_FunctionCompiler": ("_customize_flags",)}
    return all(hasattr(getattr(dispatcher, each, None), name) for each, names in parts.items() for name in names)


_kernels: dict[tuple[str, str], Any] = {}  # by module and name
_callees: dict[str, Callee] = {}  # by symbol: those that were compiled or loaded in this process


def register(kernel: Any) -> None:
    """From now on this kernel can be found by its name, which is how callers that were kept on disk ask for it."""
    _kernels[_place(kernel.py_func)] = kernel


def separate_if_large(compiled: Any, function: Any) -> None:
    """To be told of every kernel that was compiled just now: callers will not copy it if it is large."""
    library = compiled.library
    if _place(function) in _kernels and hasattr(library, "_shared_module") and _is_large(library):
        separate(compiled, function)


def separate(compiled: Any, function: Any) -> None:
    """From now on callers see no more of this kernel than its symbol."""
    symbol = compiled.fndesc.llvm_func_name
    _callees[symbol] = Callee(*_place(function), tuple(compiled.signature.args), symbol)
    compiled.library._shared_module = llvm.parse_assembly("")  # what numba links into callers


def is_separate(compiled: Any) -> bool:
    return compiled.fndesc.llvm_func_name in _callees


def needed(compiled: Any) -> tuple[Callee, ...]:
    """The large kernels that the machine code of a function calls."""
    functions = compiled.library._final_module.functions
    return tuple(_callees[f.name] for f in functions if f.is_declaration and f.name in _callees)


def present(callees: tuple[Callee, ...]) -> bool:
    """Load these kernels, or compile them. False if one has another symbol now: then its callers are out of date."""
    return all(_symbol(callee) == callee.symbol for callee in callees)


@contextmanager
def outlined(compiled: Any) -> Iterator[None]:
    """While a large kernel is written to disk: beside its machine code numba keeps code for callers to copy, from which
    it also learns, when it loads the kernel, which symbols there are. The symbols are enough."""
    library, names = compiled.library, (compiled.fndesc.llvm_func_name, compiled.fndesc.llvm_cpython_wrapper_name)
    defined = [name for name in names if library.codegen._engine.is_symbol_defined(name)]
    for_callers = library._shared_module
    library._shared_module = llvm.parse_assembly("".join(f'define void @"{n}"() {{ unreachable }}\n' for n in defined))
    try:
        yield
    finally:
        library._shared_module = for_callers


def _symbol(callee: Callee) -> str:
    import_module(callee.module)
    kernel = _kernels[callee.module, callee.name]
    kernel.compile(callee.types)
    return str(kernel.overloads[callee.types].fndesc.llvm_func_name)


def _place(function: Any) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def _is_large(library: Any) -> bool:
    return next(islice(_instructions(library._final_module), LARGE, None), None) is not None


def _instructions(module: Any) -> Iterator[Any]:
    for function in module.functions:
        for block in function.blocks:
            yield from block.instructions
