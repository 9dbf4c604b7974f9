"""Do certificates prove the answer to a property? Every case needs its own; a counterexample needs one.

A certificate says what it proves in its own terms: a box, polyhedra of outputs, a radius. Here these are compared with
what the property file says, so that nothing between the file and the proof has to be trusted but its reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from layercert.arrays import Vector
from layercert.certificate.checker import Report, check
from layercert.certificate.claim import Certificate
from layercert.certificate.whole import WholeCertificate
from layercert.network import Network
from layercert.problem import Problem
from layercert.spec.cases import Case, Spec
from layercert.spec.counterexample import holds_exactly
from layercert.spec.problems import check_fit, problem_of


def check_spec(
    network: Network, spec: Spec, proofs: Sequence[Certificate | WholeCertificate], exact: bool = False
) -> Report:
    """Check certificates against a property: sat by its counterexample, unsat by one proof for every case.

    Args:
        network: The network that the property speaks about.
        spec: The property, from `load_spec`.
        proofs: The certificates. A property whose constraints contradict each other has no case and needs none.
        exact: Check in ball arithmetic instead of outward-rounded floats.

    Returns:
        The outcome; a certificate that proves nothing is a report with ok = False, never an error.

    Raises:
        SpecError: The property does not fit the network.
        MissingPackageError: exact=True needs python-flint, which is not installed.
    """
    check_fit(spec, network)
    name = f"{spec.source} for the network with SHA-256 {network.sha256[:16]}..."
    # one with weights or whole numbers says less than it seems to
    plain = [proof for proof in proofs if isinstance(proof, Certificate) and proof.weights is None]
    for proof in plain:
        if proof.witness is None or proof.network != network.sha256:
            continue
        case = next((c for c in spec.cases if holds_exactly(c, network, _point(c, proof.witness))), None)
        if case is not None:
            upper = problem_of(case, network).distance(proof.witness)  # of its box's centre, whatever the file says
            return Report(True, 0.0, upper, 0, f"Proved, sat: the witness is a counterexample to {name}.")
    leaves = 0
    for number, case in enumerate(spec.cases, start=1):
        problem = problem_of(case, network)
        about = next((p for p in plain if _about(p, problem)), None)
        if about is None:
            return _failed(f"none of the {len(proofs)} certificates is about case {number} of {len(spec.cases)}")
        report = check(network, about, exact)
        if not report.ok:
            return _failed(f"case {number} of {len(spec.cases)}: {report.reason}")
        leaves += report.leaves
    how = f"boxes: {len(spec.cases)}, leaves: {leaves}" if spec.cases else spec.why_none
    text = f"Proved, unsat: no counterexample to {name} ({how})."
    return Report(True, math.inf, math.inf, leaves, text)


def _failed(reason: str) -> Report:
    return Report(False, 0.0, math.inf, 0, "", reason)


def _point(case: Case, witness: Vector) -> list[Fraction]:
    """The witness as rationals; a float64 next to a decimal end of its range stands for that end."""
    if len(witness) != len(case.box):
        return []
    point = []
    for v, side in zip(witness.tolist(), case.box, strict=True):
        ends = (end for end in (side.low, side.high) if end is not None and float(end) == v)
        point.append(Fraction(v) if Fraction(v) in side else next(ends, Fraction(v)))
    return point


def _about(proof: Certificate, problem: Problem) -> bool:
    """Does the certificate claim that nothing in the problem's box is in any of its regions?"""
    if proof.witness is not None or proof.domain is None or problem.domain is None or not math.isinf(proof.p):
        return False
    same_box = all(np.array_equal(a, b) for a, b in zip(proof.domain, problem.domain, strict=True))
    covers = same_box and np.array_equal(proof.x, problem.x) and proof.radius >= problem.reach
    claimed = {(C.tobytes(), d.tobytes()) for C, d, _ in proof.clauses}
    return covers and all((c.C.tobytes(), c.d.tobytes()) in claimed for c in problem.clauses)
