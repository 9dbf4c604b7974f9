"""A real Dask scheduler and workers, as processes on the loopback interface of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass
class Cluster:
    """The scheduler's address and the processes behind it; each is the leader of its own group."""

    folder: Path
    address: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *args],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
                    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2",
                },
            )
        self.processes.append(process)
        return process

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, "worker", self.address, "--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard", "--name", name,
            "--local-directory", str(self.folder), "--memory-limit", "0",
        )  # fmt: skip


def kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group at once: a worker and the nanny that would bring it back."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def address_in(file: Path) -> str:
    """The scheduler's address, once its file is there and written to the end."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return str(json.loads(file.read_text())["address"])
        except (FileNotFoundError, json.JSONDecodeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    made = Cluster(folder)
    file = folder / "scheduler.json"
    try:
        made.start(
            "scheduler",
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(file),
        )
        made.address = address_in(file)
        for i in range(workers):
            made.worker(f"worker-{i}")
        yield made
    finally:
        for process in made.processes:
            kill(process)
