"""Three checkers on the same file, changed or not: the package's in floats and in balls, and the stand-alone one in
floats and in whole numbers."""

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
from layercert.certificate.claim import BoxTree, Certificate, load_certificate
from layercert.errors import LayerCertError
from layercert.network import Network
from soundness.judge import claim_faults
from soundness.kind import Outcome
from soundness.proofs import CHANGES, QUESTIONS, made

#: Changed files per certificate.
MUTANTS = 8
#: What one checker may be unable to prove where the other can: their margins for rounding differ, nothing else.
BY_A_HAIR = ("not proved", "numbers beyond", "overflow")


def checkers(rng: Generator) -> Outcome:
    """A certificate of a random question, which all accept; and changed ones, of which all say the same."""
    question = QUESTIONS[int(rng.integers(len(QUESTIONS)))](rng)
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
            refusals = verdicts(network, changed, Path(folder))
            reasons = {who: reason for who, reason in refusals.items() if reason}
            if number == 0 and set(reasons) - ({"alone"} if proof.exact else set()):  # float64 is not enough for those
                faults.append(f"a real certificate is refused: {reasons}: {question}")
            by_a_hair = all(any(part in reason for part in BY_A_HAIR) for reason in reasons.values())
            if 0 < len(reasons) < len(refusals) and not by_a_hair:
                faults.append(f"not all refuse [{names}]: {reasons}: {question}")
            if len(reasons) < len(refusals):
                accepted += number > 0
                # the witness is another kind's business (proofs.py)
                bare = replace(changed, witness=None)
                report = Report(True, changed.radius, math.inf, 0, "")
                faults += [f"{text} [{names}]: {question}" for text in claim_faults(network, bare, report, rng)]
    return Outcome(f"{accepted} of {MUTANTS} accepted", faults)


def verdicts(network: Network, certificate: Certificate, folder: Path, balls: bool = True) -> dict[str, str]:
    """Why each checker refuses the file; empty where it does not. Balls are slow."""
    path = folder / "proof.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers out of range are cast when they are written
        try:
            certificate.save(path)
        except (LayerCertError, ValueError, OverflowError) as error:
            return dict.fromkeys(("floats", "balls", "alone"), f"cannot be written: {error}")
    said = {}
    for name, exact in (("floats", False), ("balls", True)) if balls else (("floats", False),):
        try:
            report = lc.check(network, load_certificate(path), exact=exact)
            said[name] = "" if report.ok else report.reason
        except LayerCertError as error:
            said[name] = f"cannot be read: {error}"
    said["alone"] = _alone(path, folder / "network.npz")
    if balls and not any(isinstance(tree, BoxTree) for tree in certificate.trees):  # whose leaves it would cut further
        said["alone, exact"] = _alone(path, folder / "network.npz", "--exact")
    return said


def _alone(*arguments: Path | str) -> str:
    """Why the stand-alone checker refuses a file; empty where it does not."""
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(io.StringIO()):
        code = alone.main([str(each) for each in arguments])
    return "" if code == 0 else heard.getvalue().strip() or f"code {code}"
