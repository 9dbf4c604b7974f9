"""Is what was said about a question true? Every claim is held against rational numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator

import layercert as lc
from layercert.certificate.claim import Certificate
from layercert.network import Network
from soundness.questions import Question
from soundness.truth import ZERO, Exact, Length, Unsafe, rational

#: Directions in which unsafe points are looked for, beside that of the witness and of the gradients.
RAYS = 3
#: How far along a direction without bounds: so many times the size of x and of what was claimed.
FAR = 1000


class Judge:
    """The truth about one point of one network: who is unsafe, how far a point is, what lies on a ray."""

    def __init__(self, network: Network, x: np.ndarray, unsafe: Unsafe, length: Length, domain: Any = None) -> None:
        self.network, self.exact, self.unsafe, self.length = network, Exact(network), unsafe, length
        self.x, self.start, self.domain = x, rational(x), domain

    @staticmethod
    def of(question: Question) -> Judge:
        """The question as it was put: label, targets, weights and fixed inputs are read from its options alone."""
        net, options = question.network, question.options
        x = np.asarray(question.x, dtype=np.float64)
        label = options.get("label")
        if label is None:
            f = Exact(net)(rational(x))
            label = f.index(max(f))
        unsafe = Unsafe.other_classes(label, net.classes)
        if "target" in options:
            unsafe = Unsafe.targets(options["target"], net.classes)
        weights = rational(options["weights"]) if "weights" in options else None
        low, high = options.get("domain", (np.full(len(x), -math.inf), np.full(len(x), math.inf)))
        low, high = np.broadcast_to(low, x.shape).copy(), np.broadcast_to(high, x.shape).copy()
        for i in options.get("fixed", ()):
            low[i] = high[i] = x[i]
        return Judge(net, x, unsafe, Length(question.norm, weights), (low, high))

    def inside(self, v: np.ndarray) -> bool:
        return self.domain is None or bool((v >= self.domain[0]).all() and (v <= self.domain[1]).all())

    def is_unsafe(self, v: np.ndarray) -> bool:
        return self.unsafe.holds(self.exact(rational(v)))

    def offset(self, v: np.ndarray) -> list[Fraction]:
        return [b - a for a, b in zip(self.start, rational(v), strict=True)]

    def met(self, rng: Generator, witness: np.ndarray | None, scale: float) -> Iterator[list[Fraction]]:
        """Offsets of unsafe points: the first on each of several rays from x."""
        for d in self._directions(rng, witness):
            top = self.top(d, scale)
            t = self.exact.first(self.start, d, self.unsafe, top) if any(d) else None
            if t is not None:
                yield [t * value for value in d]

    def _directions(self, rng: Generator, witness: np.ndarray | None) -> Iterator[list[Fraction]]:
        if witness is not None:
            yield self.offset(witness)
        n = len(self.x)
        gradients = _gradients(self.network, self.x)
        picks = [g for g in gradients if np.isfinite(g).all() and g.any()][:4]
        for g in picks:
            yield rational(np.sign(g) if rng.random() < 0.5 else g / np.abs(g).max())
        for _ in range(RAYS):
            yield rational(
                rng.normal(size=n) if rng.random() < 0.5 else np.eye(n)[rng.integers(n)] * rng.choice([-1, 1])
            )

    def top(self, d: list[Fraction], scale: float) -> Fraction:
        """How far along d: to the end of the domain, or far beyond what was claimed."""
        size = max(abs(value) for value in d) or Fraction(1)
        top = FAR * Fraction(scale) / size
        if self.domain is not None:
            for a, value, low, high in zip(self.start, d, *self.domain, strict=True):
                end = high if value > 0 else low
                if value and math.isfinite(end):
                    top = min(top, (Fraction(float(end)) - a) / value)
        return max(top, ZERO)

    def scale(self, *claims: float) -> float:
        finite = [c for c in claims if math.isfinite(c)]
        return max([float(np.abs(self.x).max(initial=0.0)), 1e-3, *finite])


def _gradients(network: Network, x: np.ndarray) -> list[np.ndarray]:
    """Differences of outputs on the linear piece of x, in float64: directions worth a look, no more."""
    with np.errstate(all="ignore"):
        F, _ = network.linear_piece(network.pattern(x))
    return [s * (F[i] - F[j]) for i in range(len(F)) for j in range(i) for s in (1.0, -1.0)]


def faults(judge: Judge, result: lc.Result, rng: Generator, proved: float = 0.0, gap: float = 1e-6) -> list[str]:
    """What is false in the answer to a question; `proved` is the highest bound that was told on the way, `gap` what was
    asked for."""
    found: list[str] = []
    status, lower, upper, radius = str(result.status), result.lower, result.upper, result.radius
    if not lower <= upper or lower < 0:
        found.append(f"bounds {lower} .. {upper}")
    at_once = upper == 0 and status in ("exact", "not_robust")
    stopped = status == "undecided" and "time limit" in result.note and lower == 0
    if judge.is_unsafe(judge.x) and not (at_once or stopped):
        found.append(f"x itself is unsafe, the answer is {status} {lower} .. {upper}")
    if result.witness is None:
        if math.isfinite(upper):
            found.append(f"upper {upper} without a witness")
    else:
        found += witness_faults(judge, result.witness, upper)
        if status == "not_robust" and judge.length.above(judge.offset(result.witness), radius):
            found.append("not_robust by a witness beyond the radius")
    if status == "exact" and not upper - lower <= gap * upper * (1 + 1e-9) < math.inf:
        found.append(f"exact with a gap: {lower} .. {upper}")
    if status == "robust" and not (lower >= radius or math.isinf(upper)):
        found.append(f"robust to {radius} with the bound {lower}")
    if status == "undecided" and not result.note:
        found.append("undecided without a reason")
    for w in judge.met(rng, result.witness, judge.scale(lower, upper, radius)):
        if judge.length.below(w, max(lower, proved)):
            found.append(f"an unsafe point is nearer than the bound {lower} ({proved}): {[float(v) for v in w]}")
        elif status == "robust" and math.isfinite(radius) and not judge.length.above(w, radius) and not _doubt(judge):
            found.append(f"robust, but an unsafe point is within the radius: {[float(v) for v in w]}")
    return found


def _doubt(judge: Judge) -> bool:
    """Are lengths computed in floats, so that "at the radius" cannot be told from "beyond"?"""
    return judge.length.p not in (1.0, 2.0, math.inf)


def witness_faults(judge: Judge, witness: np.ndarray, upper: float) -> list[str]:
    found = []
    if not np.isfinite(witness).all():
        return [f"a witness that is not finite: {witness}"]
    if not judge.inside(witness):
        found.append("the witness is outside of the domain")
    if not judge.is_unsafe(witness):
        found.append("the witness is safe")
    if judge.length.above(judge.offset(witness), upper):
        found.append(f"the witness is farther away than {upper}")
    if upper > 1e-300 and judge.length.below(judge.offset(witness), upper * (1 - 1e-9)):
        found.append(f"the witness is much nearer than {upper}")
    return found


def claim_faults(network: Network, proof: Certificate, report: lc.Report, rng: Generator) -> list[str]:
    """What is false in the sentence of an accepted certificate, whatever it was made from."""
    if proof.label is not None:
        unsafe = Unsafe.other_classes(proof.label, network.classes)
        if proof.asked is not None:
            unsafe = Unsafe.targets(proof.asked, network.classes)
    else:
        unsafe = Unsafe.of([(C, d) for C, d, _ in proof.clauses])
    weights = None if proof.weights is None else rational(proof.weights)
    judge = Judge(network, proof.x, unsafe, Length(float(proof.p), weights), proof.domain)
    found = []
    if proof.network != network.sha256:
        found.append("accepted for another network")
    if proof.witness is not None:
        found += witness_faults(judge, proof.witness, report.upper)
    elif math.isfinite(report.upper):
        found.append(f"upper {report.upper} without a witness")
    for w in judge.met(rng, proof.witness, judge.scale(report.lower)):
        if judge.length.below(w, report.lower):
            found.append(f"proved {report.lower}, but an unsafe point is nearer: {[float(v) for v in w]}")
    return found
