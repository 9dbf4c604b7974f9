"""What a check has proved, in one sentence that a reviewer can quote."""

from __future__ import annotations

from layercert.arrays import Vector
from layercert.certificate.claim import Certificate, sha256
from layercert.problem import Problem


def sentence_of(problem: Problem, certificate: Certificate, upper: float, leaves: int, arithmetic: str) -> str:
    """What was proved, in one sentence a reviewer can quote; `upper` is the witness's distance, rounded up."""
    norm = problem.norm.name
    given = "that is not given" if certificate.asked is None else "that is given"
    classes = str(certificate.label) if certificate.asked is None else " or ".join(map(str, certificate.asked))
    domain = "" if certificate.domain is None else _box(*certificate.domain)
    weights = "" if certificate.weights is None else f" (weights {_span(certificate.weights)})"
    where = f"{weights} inside the domain {domain}" if domain else weights
    if certificate.radius == 0 and certificate.witness is not None:  # of x itself nothing is said
        what = "with an unsafe output" if certificate.label is None else f"{given} class {classes}"
        here = f" inside the domain {domain}" if domain else ""
        far = f"{norm} distance {_number(upper)} of x{weights}"
        return f"{_about(certificate)}: a point{here} {what} lies at {far} ({arithmetic})."
    if certificate.label is None and problem.reach <= certificate.radius:  # the reach is rounded up
        claim = f"no point of the domain {domain} has an unsafe output"
    elif certificate.label is None:
        claim = f"no point within {norm} distance {_number(certificate.radius)} of x{where} has an unsafe output"
    elif certificate.asked is not None:
        claim = f"no point within {norm} distance {_number(certificate.radius)} of x{where} is given class {classes}"
    else:
        claim = f"every point within {norm} distance {_number(certificate.radius)} of x{where} is given class {classes}"
    text = f"{_about(certificate)}: {claim}"
    if certificate.witness is not None:
        what = "a point that is" if certificate.asked is not None else "a point that is not"
        what = "an unsafe point" if certificate.label is None else what
        text += f", and {what} lies at distance {_number(upper)}"
    elif problem.reach > certificate.radius:
        text += "; there is no witness, so no upper bound of the distance is proved"
    return f"{text} ({leaves} {'leaf' if leaves == 1 else 'leaves'}, {arithmetic})."


def _number(value: float) -> str:
    """A float as it is: rounded to fewer digits, a radius may be larger than what was proved."""
    return repr(float(value)).removesuffix(".0")


def _span(values: Vector) -> str:
    """The least and the largest number."""
    least, most = (_number(end) for end in (values.min(), values.max()))
    return least if least == most else f"{least} to {most}"


def _box(low: Vector, high: Vector) -> str:
    """The domain, so that nobody takes a small one for a large one."""
    if (low == low[0]).all() and (high == high[0]).all():
        return f"[{_number(low[0])}, {_number(high[0])}]"
    return f"(low {_span(low)}, high {_span(high)}, width {_span(high - low)})"


def _about(certificate: Certificate) -> str:
    network, x = certificate.network[:16], sha256(certificate.x)[:16]
    return f"Proved for the network with SHA-256 {network}... and the input x with SHA-256 {x}..."
