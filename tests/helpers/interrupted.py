"""Ctrl-C while a kernel runs whose result is a named tuple inside a tuple. To be imported as a module of the package,
whose kernels it is about, in a process of its own."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np

from layercert.compiled.jit import njit
from layercert.compiled.timer import Timer, late
from layercert.system import clock


@njit
def wait(timer: Timer, answer: np.ndarray) -> tuple[Timer, np.ndarray]:
    """Returns when the time is up."""
    while not late(timer):
        pass
    return timer, answer


def main() -> None:
    """Prints what the kernel returns, and then that Ctrl-C was heard when it was over."""
    timer, answer = clock.timer()._replace(end=clock.now()), np.arange(3.0)
    found, same = wait(timer, answer)
    print(type(found) is clock.Timer, found.end == timer.end, same.tolist())
    runs = threading.Event()

    def interrupt() -> None:
        runs.wait()
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)  # the main thread hears of it as soon as it runs Python

    threading.Thread(target=interrupt).start()
    end = clock.now() + 1.0
    try:
        runs.set()
        wait(timer._replace(end=end), answer)
        time.sleep(5.0)
    except KeyboardInterrupt:
        print("interrupted", clock.now() >= end)
