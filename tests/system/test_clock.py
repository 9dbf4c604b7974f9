"""Time limits: scopes of the clock in Python and in kernels."""

from __future__ import annotations

import math
import time

import pytest

from layercert.compiled.jit import njit
from layercert.compiled.timer import late, monotonic, process_time
from layercert.system import clock


@njit
def looks_until_late(timer, most):  # type: ignore[no-untyped-def]
    """A kernel that does nothing but look."""
    for done in range(most):
        if late(timer):
            return done
    return most


def test_without_a_scope_nothing_ends() -> None:
    clock.check()
    assert clock.left() == math.inf and not clock.passed()
    assert looks_until_late(clock.timer(), 1000) == 1000


def test_the_earliest_end_counts() -> None:
    soon, later = clock.now() + 100.0, clock.now() + 1000.0
    with clock.until(soon):
        assert 0.0 < clock.left() <= 100.0
        with clock.until(later):
            assert clock.left() <= 100.0
        with clock.until(None):
            assert clock.left() <= 100.0
        with clock.until(clock.now() - 1.0), pytest.raises(clock.OutOfTime):
            clock.check()
        clock.check()
    assert clock.left() == math.inf


def test_kernels_and_python_see_the_same_clock() -> None:
    before, seen, after = time.monotonic(), njit(lambda: monotonic())(), time.monotonic()
    assert before <= seen <= after
    with clock.until(clock.now() + 1000.0):
        assert looks_until_late(clock.timer(), 10) == 10
    with clock.until(clock.now() - 1.0):
        assert looks_until_late(clock.timer(), 10) == 0
        assert clock.left() < 0
        with pytest.raises(clock.OutOfTime):
            clock.check()


def test_a_scope_may_end_after_so_many_looks_wherever_they_are_made() -> None:
    with clock.until(None, looks=5):
        clock.check()
        assert looks_until_late(clock.timer(), 100) == 3
        assert clock.left() == 0.0
        with pytest.raises(clock.OutOfTime):
            clock.check()
    clock.check()


def test_compiling_moves_the_end_for_kernels_too() -> None:
    """A timer may be older than a compilation: arguments of a kernel's first call are made before it is compiled."""
    with clock.until(clock.now() + 0.01):
        scope = clock.timer()
        time.sleep(0.02)
        assert looks_until_late(scope, 3) == 0
        scope.compiling[0] += 1000.0  # what `go_on` does after 1000 s of compiling
        try:
            assert looks_until_late(scope, 3) == 3
            assert 900.0 < clock.left() < 1000.01
        finally:
            scope.compiling[0] -= 1000.0


def test_cpu_seconds_count_in_python_and_in_kernels() -> None:
    """Sleeping is no computing: a scope of 0.2 s outlasts it, and computing ends it."""
    with clock.of_processor(False):
        assert not clock.timer().processor
    with clock.of_processor(), clock.until(clock.now() + 0.2):
        time.sleep(0.3)
        clock.check()
        assert looks_until_late(clock.timer(), 10) == 10
        assert 0.0 < clock.left() <= 0.2
        before, seen, after = time.process_time(), njit(lambda: process_time())(), time.process_time()
        assert before <= seen <= after
        while not clock.passed():  # at most 0.2 s
            pass
        assert looks_until_late(clock.timer(), 10) == 0
    before, now, after = time.monotonic(), clock.now() + clock.timer().compiling[0], time.monotonic()
    assert before <= now <= after


def test_out_of_time_is_no_exception_that_anybody_forgives() -> None:
    with clock.until(clock.now() - 1.0), pytest.raises(clock.OutOfTime):
        try:
            clock.check()
        except Exception:  # what a chain of solvers does
            pytest.fail("forgiven")


def test_what_was_found_in_time_gets_a_little_longer() -> None:
    with clock.until(clock.now() - 5000.0):
        with clock.extended(1000.0):
            clock.check()
            assert 900.0 < clock.left() <= 1000.0
        with pytest.raises(clock.OutOfTime):
            clock.check()
    with clock.extended(1.0):
        assert clock.left() == math.inf
