"""Ctrl-C while a kernel runs is heard when it is over, whatever the kernel returns."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.caching import FunctionCache

from helpers import interrupted
from layercert.compiled.cache import StampedCache
from layercert.compiled.jit import njit
from layercert.system.signals import ctrl_c_afterwards

#: The kernel is to be one of the package's own.
PROGRAM = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("layercert.interrupted", sys.argv[1])
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.main()
"""


def test_ctrl_c_during_a_kernel_is_heard_after_it() -> None:
    """numba made named tuples by Python code, which the handler of Ctrl-C broke off: a segmentation fault."""
    command = [sys.executable, "-c", PROGRAM, str(Path(interrupted.__file__))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True [0.0, 1.0, 2.0]", "interrupted True"]


def test_ctrl_c_while_machine_code_is_loaded_is_heard_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM asks for the code by a function in Python and forgets what is raised there: Ctrl-C was lost."""

    @njit
    def twice(v: np.ndarray) -> np.ndarray:
        return 2.0 * v

    loaded = list[bool]()

    def load(self: StampedCache, sig: Any, context: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        loaded.append(True)

    monkeypatch.setattr(FunctionCache, "load_overload", load)
    with pytest.raises(KeyboardInterrupt):
        twice(np.ones(2))
    assert loaded == [True]


class TestCtrlCAfterwards:
    def test_the_second_one_is_heard_at_once(self) -> None:
        reached = list[int]()
        with pytest.raises(KeyboardInterrupt), ctrl_c_afterwards():
            for n in range(3):
                signal.raise_signal(signal.SIGINT)
                reached.append(n)
        assert reached == [0]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_inside_of_another_one(self) -> None:
        reached = list[int]()
        with pytest.raises(KeyboardInterrupt), ctrl_c_afterwards():
            with ctrl_c_afterwards():
                signal.raise_signal(signal.SIGINT)
                reached.append(1)
            reached.append(2)
        assert reached == [1, 2]

    def test_other_threads_hear_nothing_of_it(self) -> None:
        def call() -> None:
            with ctrl_c_afterwards():
                assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
