"""The certificates of a run checked on all cores: each against the question that the run asked, with its network and
input."""

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

from layercert.batch.plan import QUESTION
from layercert.batch.store import Store, open_store
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.whole import WholeCertificate
from layercert.errors import LayerCertError
from layercert.norms import WeightedNorm
from layercert.problem import Problem, robustness
from layercert.system.files import whole_file

#: Where a run keeps what its last check found.
FILE = "checked.json"
#: A certificate proves this much (relative) less than its search.
NEARLY = 2e-6
#: The first check of a kind in a process reads compiled code from the disk: it is timed again if it took no longer.
AGAIN = 5.0


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
    about: str = ""  # the network, the norm, the input
    said: float = 0.0  # the bound that the run has of it

    @property
    def whole(self) -> bool:
        """Does it prove all that the run says? Not where a part was decided in rational arithmetic, or an earlier
        session's bound was better."""
        return self.ok and self.lower >= self.said * (1.0 - NEARLY)

    def __str__(self) -> str:
        words = "proved and checked" if self.ok else "NOT PROVED"
        if self.ok and not self.whole:
            words += f" up to {self.lower:.6g} (the run says {self.said:.6g})"
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
            (str(folder), numbers[row["model_sha256"]], row, exact)
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


def without(folder: Path) -> list[str]:
    """The answers of a run that prove something and have no certificate, and why not, as far as their notes tell.

    Args:
        folder: The run.

    Returns:
        A line each.

    Raises:
        RunError: There is no run in the folder, or it is damaged.
    """
    with closing(open_store(folder)) as store:
        rows = [row for row in store.rows() if row["certificate"] is None and (row["lower"] or 0.0) > 0.0]
    return [f"{_about(row)}: {row['status']}" + (f", {row['note']}" if row["note"] else "") for row in rows]


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


@cache
def _asked(folder: str) -> dict[str, Any]:
    """What the run asks of every input, by the names of `robustness`."""
    identity = _store(folder).identity() or {}
    return {name: identity.get(name) or None for name in ("domain", *QUESTION)}


#: Kinds of checks that this process has done before.
_known: set[tuple[str, bool]] = set()


def _check(folder: str, model: int, row: dict[str, Any], exact: bool) -> Checked:
    """One certificate, in any process. The proof must be about the run's own network, input and question."""
    path = Path(folder) / row["certificate"]
    size, seconds = path.stat().st_size if path.is_file() else 0, 0.0
    ok, lower = False, 0.0
    try:
        network, proof = _network(folder, model), load_certificate(path)
        x, label = _store(folder).x(row["input"]), row["label"]
        text = another_question(robustness(network, x, row["norm"], label, **_asked(folder)), proof)
        while not text:
            start = time.process_time()
            report = check(network, proof, exact)
            seconds, kind = time.process_time() - start, (row["norm"], exact)
            ok, lower, text = report.ok, report.lower, "" if kind not in _known and seconds < AGAIN else str(report)
            _known.add(kind)
    except LayerCertError as error:
        text = str(error)
    return Checked(
        row["job"], row["certificate"], ok, text, lower, size, seconds, _sha256(path), exact, _about(row),
        row["lower"] or 0.0,
    )  # fmt: skip


def _about(row: dict[str, Any]) -> str:
    return f"{row['model']}, {row['norm']}, input {row['name']}"


def another_question(problem: Problem, proof: Certificate | WholeCertificate) -> str:
    """In what a claim is not about this problem; nothing where it is. The network is the checker's business."""
    among = (proof.integer, proof.groups) if isinstance(proof, WholeCertificate) else ()
    claim, discrete = proof.claim if isinstance(proof, WholeCertificate) else proof, problem.discrete
    boxes = [(None, None) if domain is None else domain for domain in (claim.domain, problem.domain)]
    weights = problem.norm.weights if isinstance(problem.norm, WeightedNorm) else None
    numbers = () if discrete is None else (discrete.integer, discrete.groups)
    same = {
        "input": np.array_equal(claim.x, problem.x),
        "norm": claim.p == problem.norm.p,
        "domain": all(_alike(*ends) for ends in zip(*boxes, strict=True)),
        "class": claim.label == problem.label,
        "target": claim.asked == problem.targets,
        "choice of weights": _alike(claim.weights, weights),
        "choice of whole numbers": numbers == among,
    }
    other = [name for name, alike in same.items() if not alike]
    return f"it is about another {other[0]} than the run's" if other else ""


def _alike(a: Any, b: Any) -> bool:
    return (a is None) == (b is None) and (a is None or np.array_equal(a, b))
