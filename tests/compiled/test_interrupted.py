"""Ctrl-C while a kernel runs is heard when it is over, whatever the kernel returns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers import interrupted

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
