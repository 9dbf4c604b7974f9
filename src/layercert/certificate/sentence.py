"""What a check has proved, in one sentence that a reviewer can quote."""

from __future__ import annotations

from layercert.certificate.claim import Certificate, sha256
from layercert.problem import Problem


def sentence_of(problem: Problem, certificate: Certificate, upper: float, leaves: int, arithmetic: str) -> str:
    """What was proved, in one sentence a reviewer can quote; `upper` is the witness's distance, rounded up."""
    norm = problem.norm.name
    given = "that is not given" if certificate.asked is None else "that is given"
    classes = str(certificate.label) if certificate.asked is None else " or ".join(map(str, certificate.asked))
    where = "" if certificate.domain is None else " inside the domain"
    if certificate.radius == 0 and certificate.witness is not None:  # of x itself nothing is said
        what = "with an unsafe output" if certificate.label is None else f"{given} class {classes}"
        return f"{_about(certificate)}: a point{where} {what} lies at {norm} distance {upper:.9g} of x ({arithmetic})."
    if certificate.label is None and problem.reach <= certificate.radius:  # the reach is rounded up
        claim = "no point of the domain has an unsafe output"
    elif certificate.label is None:
        claim = f"no point within {norm} distance {certificate.radius:.9g} of x{where} has an unsafe output"
    elif certificate.asked is not None:
        claim = f"no point within {norm} distance {certificate.radius:.9g} of x{where} is given class {classes}"
    else:
        claim = f"every point within {norm} distance {certificate.radius:.9g} of x{where} is given class {classes}"
    text = f"{_about(certificate)}: {claim}"
    if certificate.witness is not None:
        what = "a point that is" if certificate.asked is not None else "a point that is not"
        what = "an unsafe point" if certificate.label is None else what
        text += f", and {what} lies at distance {upper:.9g}"
    elif problem.reach > certificate.radius:
        text += "; there is no witness, so no upper bound of the distance is proved"
    return f"{text} ({leaves} {'leaf' if leaves == 1 else 'leaves'}, {arithmetic})."


def _about(certificate: Certificate) -> str:
    network, x = certificate.network[:16], sha256(certificate.x)[:16]
    return f"Proved for the network with SHA-256 {network}... and the input x with SHA-256 {x}..."
