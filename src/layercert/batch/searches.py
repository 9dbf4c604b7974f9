"""Searches that a time limit left open: one file per job in RUN/searches, from which `--resume-undecided` goes on.

A job may hold several, one for each radius it was asked about. They travel with the job and with its outcome, so that
a worker needs no folder of the run; while the job runs they are files of its own.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from layercert.batch.plan import Job, Options
from layercert.batch.work import UNDECIDED, Outcome
from layercert.methods import ADAPTIVE, AUTO
from layercert.network import Network
from layercert.search.input_split import suits
from layercert.system.files import whole_file
from layercert.system.npz import Damaged, read_numpy

FOLDER = "searches"
#: A job whose open searches take more bytes than this begins anew: a run of thousands must not fill the disk.
MOST = 64_000_000


def can_be_kept(network: Network, job: Job, options: Options) -> bool:
    """Is the job's search one that can be saved? Those of few inputs may be left to input splitting."""
    if options.integer or options.one_of:
        return False
    return job.method == ADAPTIVE or (job.method == AUTO and not suits(network))


@dataclass
class Searches:
    """The searches of one job while it runs."""

    known: Mapping[str, bytes] | None
    wanted: bool
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)

    def file(self, name: str) -> Path | None:
        """Where a search is kept, with what is known of it; None where it is not kept."""
        if not self.wanted:
            return None
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="layercert-")
        path = Path(self._folder.name) / name
        blob = (self.known or {}).get(name)
        if blob is not None:
            path.write_bytes(blob)
        return path

    def all(self) -> dict[str, bytes] | None:
        """What is kept now; None where that is nothing, or too much."""
        if self._folder is None:
            return None
        found = {path.name: path.read_bytes() for path in sorted(Path(self._folder.name).iterdir())}
        return found if found and sum(map(len, found.values())) <= MOST else None

    def __enter__(self) -> Searches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def path_of(folder: Path, job: int) -> Path:
    return folder / FOLDER / f"{job:06d}.npz"


def keep_searches(folder: Path, outcome: Outcome) -> None:
    """Write what an undecided job left open, before its row; remove what nobody needs any more."""
    path = path_of(folder, outcome.job)
    if outcome.status == UNDECIDED and outcome.saved:
        path.parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        arrays = {name: np.frombuffer(blob, np.uint8) for name, blob in outcome.saved.items()}
        np.savez(buffer, allow_pickle=False, **arrays)
        with whole_file(path) as file:
            file.write(buffer.getvalue())
    elif outcome.decided:
        path.unlink(missing_ok=True)


def with_searches(job: Job) -> Job:
    """The job with the searches that it goes on from; one whose file is gone or damaged begins anew."""
    if job.search is None or not job.search.is_file():
        return job
    try:
        with job.search.open("rb") as stream:
            found = read_numpy(stream)
    except (Damaged, OSError):
        return job
    if not isinstance(found, dict):
        return job
    return replace(job, saved={name: part.astype(np.uint8).tobytes() for name, part in found.items()}, search=None)
