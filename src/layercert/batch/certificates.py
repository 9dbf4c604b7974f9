"""Certificates of a run: one file per job in RUN/certificates, written before the row that refers to it."""

from __future__ import annotations

import os
from pathlib import Path

from layercert.batch.work import Outcome

FOLDER = "certificates"


def save_certificate(folder: Path, outcome: Outcome) -> str | None:
    """Write the certificate if the job made one; its path relative to the run."""
    certificate = outcome.result.certificate
    if certificate is None:
        return None
    target = folder / FOLDER / f"{outcome.job:06d}.cert"
    target.parent.mkdir(exist_ok=True)
    half = target.with_name(target.name + ".part")
    certificate.save(half)
    os.replace(half, target)  # whole or not at all
    return f"{FOLDER}/{target.name}"
