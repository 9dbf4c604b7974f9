"""Time limits in compiled code: `late`, for kernels that run long. How to use it: layercert/system/clock.py."""

from __future__ import annotations

import time
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from layercert.compiled.jit import njit
from layercert.system.clock import Timer

__all__ = ["Timer", "late", "monotonic", "process_time"]

_WALL, _PROCESSOR = int(time.CLOCK_MONOTONIC), int(time.CLOCK_PROCESS_CPUTIME_ID)


def monotonic() -> float:
    """The machine's monotonic clock, the same in Python and in kernels."""
    return time.monotonic()


def process_time() -> float:
    """CPU seconds of this process, the same in Python and in kernels."""
    return time.process_time()


@overload(monotonic)
def _compiled_monotonic() -> Any:
    def look() -> float:
        return _gettime(_WALL)  # type: ignore[call-arg]

    return look


@overload(process_time)
def _compiled_process_time() -> Any:
    def look() -> float:
        return _gettime(_PROCESSOR)  # type: ignore[call-arg]

    return look


@intrinsic
def _gettime(typing: Any, which: Any) -> Any:
    """clock_gettime of the C library: found by its name when machine code is loaded, so that it can be cached."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, word = ir.IntType(32), ir.IntType(64)
        place = cgutils.alloca_once(builder, ir.ArrayType(word, 2))  # struct timespec: seconds, nanoseconds
        kind = ir.FunctionType(number, [number, place.type])
        gettime = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(gettime, [builder.trunc(arguments[0], number), place])
        parts = [builder.load(cgutils.gep_inbounds(builder, place, 0, i)) for i in range(2)]
        seconds, nanoseconds = (builder.sitofp(part, ir.DoubleType()) for part in parts)
        return builder.fadd(seconds, builder.fmul(nanoseconds, ir.DoubleType()(1e-9)))

    return types.float64(types.int64), generate


@njit
def late(timer: Timer) -> bool:
    """Is the scope over? Then the kernel returns at once."""
    timer.looks[0] += 1.0
    if timer.looks[0] >= timer.looks[1]:
        return True
    seconds = process_time() if timer.processor else monotonic()
    return seconds - timer.compiling[0] >= timer.end
