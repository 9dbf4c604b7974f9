"""The certificates of a run checked on all cores: each against the network and the input that the run holds."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from layercert.batch.store import Store, open_store
from layercert.certificate.checker import check
from layercert.certificate.claim import load_certificate
from layercert.certificate.whole import WholeCertificate
from layercert.errors import LayerCertError
from layercert.system.files import whole_file

#: Where a run keeps what its last check found.
FILE = "checked.json"


@dataclass(frozen=True)
class Checked:
    """One certificate of a run; `sha256` is that of the file, so that a later one is not taken for it."""

    job: int
    file: str
    ok: bool
    text: str  # the sentence, or why not
    lower: float
    bytes: int
    seconds: float
    sha256: str
    exact: bool

    def __str__(self) -> str:
        words = "proved and checked" if self.ok else "NOT PROVED"
        return f"{words}, {self.bytes / 1000:.1f} KB, {self.seconds:.2g} s"


def check_run(folder: Path, exact: bool = False, jobs: int | None = None) -> Iterator[Checked]:
    """Check every certificate of a run; what is found is kept in the run, for its report.

    Args:
        folder: The run.
        exact: In ball arithmetic.
        jobs: Processes; by default one per core.

    Returns:
        The outcomes, in the order of the run, as they come.

    Raises:
        RunError: There is no run in the folder, or it is damaged.
    """
    with closing(open_store(folder)) as store:
        numbers = {sha256: number for number, (_, sha256) in enumerate(store.models())}
        tasks = [
            (str(folder), row["job"], row["certificate"], numbers[row["model_sha256"]], row["input"], exact)
            for row in store.rows()
            if row["certificate"] is not None
        ]
    found: list[Checked] = []
    cores = max(1, min(jobs or os.cpu_count() or 1, len(tasks)))
    if cores == 1:
        for task in tasks:
            found.append(_check(*task))
            yield found[-1]
    else:
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            for checked in pool.map(_check, *zip(*tasks, strict=True)):
                found.append(checked)
                yield checked
    with whole_file(folder / FILE) as file:
        file.write(json.dumps([asdict(each) for each in found]).encode())


def checked_before(folder: Path) -> dict[int, Checked]:
    """What the last check of a run found, by job; only for files that are still the same."""
    try:
        stored = json.loads((folder / FILE).read_text())
        entries = [Checked(**entry) for entry in stored]
        return {each.job: each for each in entries if _sha256(folder / each.file) == each.sha256}
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@cache
def _store(folder: str) -> Store:
    return open_store(Path(folder))


@cache
def _network(folder: str, model: int) -> Any:
    return _store(folder).network(model)


def _check(folder: str, job: int, name: str, model: int, number: int, exact: bool) -> Checked:
    """One certificate, in any process. The proof must be about the run's own network and input."""
    path = Path(folder) / name
    size, start = path.stat().st_size if path.is_file() else 0, time.perf_counter()
    ok, lower = False, 0.0
    try:
        network, proof = _network(folder, model), load_certificate(path)
        claim = proof.claim if isinstance(proof, WholeCertificate) else proof
        if not np.array_equal(claim.x, _store(folder).x(number)):
            text = "it is about another input than the run's"
        else:
            report = check(network, proof, exact)
            ok, lower, text = report.ok, report.lower, str(report)
    except LayerCertError as error:
        text = str(error)
    return Checked(job, name, ok, text, lower, size, time.perf_counter() - start, _sha256(path), exact)
