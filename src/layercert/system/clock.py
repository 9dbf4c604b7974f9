"""The clock of time limits and of seconds in results: it stands still while kernels are compiled, once per machine.

How a time limit reaches everything. Whoever has a limit opens a scope, and whatever runs long inside it looks at the
clock, in Python by `check`, which raises OutOfTime:

    with clock.until(clock.now() + seconds):
        for part in work:
            clock.check()
            ...

Scopes nest: the earliest end counts. `Session` opens the scope of a search, catches OutOfTime and keeps what was proved
so far, so a search needs no other care than to look often: every tenth of a second or so on the largest networks.

How a kernel uses it. Compiled code does not raise. It takes a `Timer` (a named tuple: as an argument of its own, or as
a field of the structure it takes anyway), asks `late` of `layercert.compiled.timer` before each long step (a pass
through the network, some rows of a product), and when that says True returns at once whatever it has, provided that
this is sound. Its caller in Python then calls `check`:

    answer = kernel(model, clock.timer())
    clock.check()                              # raises where the kernel gave up

A look costs some 50 ns. Make the timer anew for each call: `clock.timer()` belongs to the scope that is open.

What counts. The seconds of the clock on the wall, or inside `of_processor` those in which this process computed: then a
time limit means the same on a busy machine as on an idle one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# seconds spent compiling so far; one place in memory, since kernels look there too
_compiling = np.zeros(1)
_since: float | None = None  # when the compilation that runs began
_processor = False  # do seconds of the processor count?
_listeners: list[Callable[[bool], None]] = []


class OutOfTime(BaseException):
    """The scope's end has passed. Like KeyboardInterrupt it is nobody's error: `except Exception` lets it through."""


class Timer(NamedTuple):
    """A scope as kernels see it, see `layercert.compiled.timer`."""

    end: float  # on our clock
    compiling: NDArray[np.float64]  # what our clock is behind the machine's
    looks: NDArray[np.float64]  # how often anybody looked, and how often is allowed (inf, but in tests)
    processor: bool  # do seconds of the processor count?


_ENDLESS = Timer(math.inf, _compiling, np.array([0.0, math.inf]), False)
_scope: ContextVar[Timer] = ContextVar("scope", default=_ENDLESS)


def now() -> float:
    """Monotonic seconds, without those that went into compiling."""
    since = _since
    return (_seconds() if since is None else since) - float(_compiling[0])


def _seconds() -> float:
    return time.process_time() if _processor else time.monotonic()


@contextmanager
def of_processor(on: bool = True) -> Iterator[None]:
    """While this is open, CPU seconds of this process count (of all its threads together), not those of the wall.

    Times from before are of another clock: open it where no scope is. With `on` False nothing changes.
    """
    global _processor
    before, _processor = _processor, on or _processor
    try:
        yield
    finally:
        _processor = before


@contextmanager
def listening(told: Callable[[bool], None]) -> Iterator[None]:
    """While this is open, tell when compiling begins (True) and when it is over (False)."""
    _listeners.append(told)
    try:
        yield
    finally:
        _listeners.remove(told)


def stop() -> None:
    """Compiling begins."""
    global _since
    _since = _seconds()
    for told in tuple(_listeners):
        told(True)


def go_on() -> None:
    """Compiling is over."""
    global _since
    if _since is not None:
        _compiling[0] += _seconds() - _since
        _since = None
        for told in tuple(_listeners):
            told(False)


def stands_still() -> bool:
    return _since is not None


@contextmanager
def standing_still() -> Iterator[None]:
    """While this lasts the clock does not move; inside of compiling it does not anyway."""
    if _since is not None:
        yield
        return
    stop()
    try:
        yield
    finally:
        go_on()


@contextmanager
def until(end: float | None, looks: float | None = None) -> Iterator[None]:
    """A scope that ends at this time of our clock (None: with the scope around it, if any).

    A number of looks ends it too: so a test can stop a run at each of its looks, whatever the speed of the machine.
    """
    around = _scope.get()
    counted = around.looks if looks is None else np.array([0.0, looks])
    token = _scope.set(Timer(around.end if end is None else min(end, around.end), _compiling, counted, _processor))
    try:
        yield
    finally:
        _scope.reset(token)


class Stop:
    """A scope that another thread can end: kernels inside return at their next look."""

    def __init__(self) -> None:
        self._looks: list[NDArray[np.float64]] = []
        self._ended = False

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What runs inside ends with the stop, or with the scope around it."""
        around = _scope.get()
        looks = around.looks.copy()  # threads that count together would lose some
        self._looks.append(looks)
        if self._ended:
            looks[1] = -math.inf
        token = _scope.set(around._replace(looks=looks))
        try:
            yield
        finally:
            _scope.reset(token)

    def set(self) -> None:
        """Now."""
        self._ended = True
        for looks in tuple(self._looks):
            looks[1] = -math.inf


@contextmanager
def extended(seconds: float) -> Iterator[None]:
    """The open scope, ending so much later, or so long from now if it is over: for a last look at what was found."""
    around = _scope.get()
    # what another thread has stopped may look once more too, where looks are not counted
    looks = around.looks if math.isfinite(around.looks[1]) else _ENDLESS.looks
    token = _scope.set(around._replace(end=max(around.end, now()) + seconds, looks=looks))
    try:
        yield
    finally:
        _scope.reset(token)


def timer() -> Timer:
    """The scope that is open, for a kernel."""
    return _scope.get()


def left() -> float:
    """Seconds until the scope ends: inf without one, 0 or less when it is over."""
    scope = _scope.get()
    if scope.looks[0] >= scope.looks[1]:
        return 0.0
    return scope.end if math.isinf(scope.end) else scope.end - now()


def passed() -> bool:
    """Is the scope over? Counts as a look."""
    scope = _scope.get()
    scope.looks[0] += 1.0
    return bool(scope.looks[0] >= scope.looks[1]) or (math.isfinite(scope.end) and now() >= scope.end)


def check() -> None:
    """Raise OutOfTime where the scope is over."""
    if passed():
        raise OutOfTime
