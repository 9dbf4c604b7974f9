"""Where and with what a run was made: processor, memory, versions of everything that computes."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from layercert import __version__
from layercert.system.files import printable

#: Packages whose version can change a number or a time.
PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "highspy", "daqp", "onnx", "cvxpy", "distributed")


def versions() -> dict[str, str]:
    found = {"layercert": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def command() -> str:
    name = Path(sys.argv[0]).name
    return printable(shlex.join(["layercert" if name == "__main__.py" else name, *sys.argv[1:]]))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
