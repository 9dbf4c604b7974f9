"""Threads: our own for searches, one for BLAS.

Our matrices are small: BLAS's threads cost more than they bring, much more on a busy machine.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import count
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from layercert.system import clock

T = TypeVar("T")
_numbers = count(1)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """While this is open, BLAS calls of the whole process use one thread."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


def new_thread(target: Callable[..., None], *args: object) -> threading.Thread:
    """A thread under the time limit of whoever starts it."""
    run = contextvars.copy_context().run
    return threading.Thread(target=run, args=(target, *args), name=f"layercert-{next(_numbers)}", daemon=True)


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What the calls return, each made in a thread of its own; one alone is made here."""
    if len(calls) == 1:
        return [calls[0]()]
    answers: dict[int, T] = {}
    errors: list[BaseException] = []
    stop = clock.Stop()

    def make(i: int) -> None:
        try:
            with stop.scope():
                answers[i] = calls[i]()
        except BaseException as error:
            errors.append(error)
            stop.set()  # nobody wants the others' answers any more

    threads = [new_thread(make, i) for i in range(len(calls))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C
        stop.set()
        raise
    if errors:
        raise errors[0]
    return [answers[i] for i in range(len(calls))]
