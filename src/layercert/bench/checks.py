"""Checking a bench: every certificate proved again, and what it proves compared with the row of the table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layercert.batch.checking import check_run
from layercert.bench.gather import read_rows, run_folders, taken_over
from layercert.bench.table import BOUNDS, Radius, RadiusBench, radiusbench
from layercert.certificate.checker import check
from layercert.certificate.claim import load_certificate
from layercert.certificate.whole import WholeCertificate
from layercert.errors import InputError, LayerCertError
from layercert.result import NEARLY


@dataclass(frozen=True)
class Verdict:
    """What a check found about one row."""

    name: str
    ok: bool
    text: str
    seconds: float


def check_bench(folder: Path | None, exact: bool = False, jobs: int | None = None) -> Iterator[Verdict]:
    """Prove every certificate of a bench again.

    Args:
        folder: A bench that was built here; None for the shipped one, whose sample of certificates is checked.
        exact: In ball arithmetic.
        jobs: Processes; by default one per core.

    Returns:
        A verdict for each certificate, as it comes; then one for each exact row without a certificate, but for rows
        that were taken over from the shipped table: their certificates were checked where they were made.

    Raises:
        InputError: There is nothing to check.
    """
    if folder is None or not run_folders(folder):
        yield from _check_sample(radiusbench(folder), exact)
        return
    stated = {row.name: row for row in radiusbench(folder)}
    known = {path: row for row, path in read_rows(folder, every=True) if path is not None}
    taken = {row.name: row for row in taken_over(folder)}
    proved: set[str] = set()
    for run in run_folders(folder):
        for checked in check_run(run, exact, jobs):
            row = known[run / checked.file]
            verdict = _verdict(row, checked.ok, checked.lower, checked.text, checked.seconds)
            if verdict.ok and row.name in stated and checked.lower >= stated[row.name].lower * (1.0 - NEARLY):
                proved.add(row.name)
            yield verdict
    for name, row in stated.items():
        if row.status != BOUNDS and name not in proved and taken.get(name) != row:
            yield Verdict(name, False, f"the table says {row.status} and no certificate proves it", 0.0)


def _verdict(row: Radius, ok: bool, lower: float, text: str, seconds: float) -> Verdict:
    if ok and row.status != BOUNDS and lower < row.lower * (1.0 - NEARLY):
        return Verdict(row.name, False, f"proves {lower:.9g}, the table says {row.lower:.9g}", seconds)
    return Verdict(row.name, ok, text, seconds)


def _check_sample(bench: RadiusBench, exact: bool) -> Iterator[Verdict]:
    rows = [row for row in bench if bench.certificate(row) is not None]
    if not rows and taken_over(bench.folder):
        raise InputError(
            f"'{bench.folder}' has no rows but those of the shipped table, whose certificates are not there; "
            "check that table itself: layercert radiusbench check"
        )
    if not rows:
        raise InputError(f"no certificates in '{bench.folder}'; build the bench anew: layercert radiusbench build")
    for row in rows:
        path, started = bench.certificate(row), time.perf_counter()
        assert path is not None
        ok, lower = False, 0.0
        try:
            proof = load_certificate(path)
            claim = proof.claim if isinstance(proof, WholeCertificate) else proof
            if not np.array_equal(claim.x, bench.x(row)):
                text = "it is about another input than the table's"
            else:
                report = check(bench.network(row.network), proof, exact)
                ok, lower, text = report.ok, report.lower, str(report)
        except LayerCertError as error:
            text = str(error)
        yield _verdict(row, ok, lower, text, time.perf_counter() - started)
