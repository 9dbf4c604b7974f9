"""Both checkers on the same file: the package's own and the stand-alone one must say the same of it, changed or not."""

from __future__ import annotations

import contextlib
import io
import math
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

from numpy.random import Generator

import layercert as lc
from helpers.standalone import alone
from layercert.certificate.checker import Report
from layercert.certificate.claim import Certificate, load_certificate
from layercert.errors import LayerCertError
from layercert.network import Network
from soundness.judge import claim_faults
from soundness.kind import Outcome
from soundness.proofs import CHANGES, made
from soundness.questions import cornered, plain, tied

#: Changed files per certificate.
MUTANTS = 8
#: What one checker may be unable to prove where the other can: their margins for rounding differ, nothing else.
BY_A_HAIR = ("not proved", "numbers beyond", "overflow")


def checkers(rng: Generator) -> Outcome:
    """A certificate of a random question, which both accept; and changed ones, of which both say the same."""
    question = [plain, tied, cornered][int(rng.integers(3))](rng)
    proof = made(rng, question)
    if proof is None:
        return Outcome("none made", [])
    network, faults, accepted = question.network, list[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        network.save(Path(folder) / "network.npz")
        for number in range(MUTANTS + 1):
            changed, names = proof, ""
            for _ in range(int(rng.integers(1, 3)) if number else 0):
                change = CHANGES[int(rng.integers(len(CHANGES)))]
                changed, names = change(rng, changed), f"{names} {change.__name__}"
            ours, theirs = verdicts(network, changed, Path(folder))
            if number == 0 and (ours or theirs):
                faults.append(f"a real certificate is refused: {ours or theirs}: {question}")
            reason = ours or theirs
            if (not ours) != (not theirs) and not any(part in reason for part in BY_A_HAIR):
                who = "the stand-alone checker" if theirs else "the package"
                faults.append(f"only {who} refuses [{names}]: {reason}: {question}")
            if not (ours and theirs):
                accepted += number > 0
                # the witness is another kind's business (proofs.py)
                bare = replace(changed, witness=None)
                report = Report(True, changed.radius, math.inf, 0, "")
                faults += [f"{text} [{names}]: {question}" for text in claim_faults(network, bare, report, rng)]
    return Outcome(f"{accepted} of {MUTANTS} accepted", faults)


def verdicts(network: Network, certificate: Certificate, folder: Path) -> tuple[str, str]:
    """Why the package and the stand-alone checker refuse the file; empty where they do not."""
    path = folder / "proof.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers out of range are cast when they are written
        try:
            certificate.save(path)
        except (LayerCertError, ValueError, OverflowError) as error:
            return f"cannot be written: {error}", f"cannot be written: {error}"
    try:
        report = lc.check(network, load_certificate(path))
        ours = "" if report.ok else report.reason
    except LayerCertError as error:
        ours = f"cannot be read: {error}"
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = alone.main([str(path), str(folder / "network.npz")])
    return ours, "" if code == 0 else said.getvalue().strip()
