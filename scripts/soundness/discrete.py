"""Whole numbers and alternatives among the inputs: every combination of them is tried, in rationals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.random import Generator

import layercert as lc
from layercert.certificate.whole import WholeCertificate
from soundness.judge import Judge, witness_faults
from soundness.kind import Outcome
from soundness.questions import NORMS, Question, plain, tied

#: Inputs that are whole range over -MOST .. MOST.
MOST = 2


def whole(rng: Generator) -> Outcome:
    """A few whole inputs or a group of alternatives, perhaps beside ordinary ones, certified and changed; now and then
    out of time at once, and verified at a radius."""
    question, group = _question(rng)
    proof, seconds = bool(rng.random() < 0.5), float(rng.choice([10.0, 10.0, 10.0, 1e-3]))
    result = lc.measure(
        question.network, question.x, question.norm, time_limit=seconds, certificate=proof, **question.options
    )
    judge = Judge.of(question)
    texts = _claim(judge, group, question, result.lower, result.witness, result.upper, rng)
    gap = 1e-6 * result.upper + 1e-12 * 10 if math.isfinite(result.upper) else -1.0
    if str(result.status) == "exact" and not result.upper - result.lower <= gap:
        texts.append(f"exact with a gap: {result.lower} .. {result.upper}")
    if str(result.status) == "undecided" and not result.note:
        texts.append("undecided without a word why")
    if rng.random() < 0.3:
        texts += _verified(rng, judge, group, question, result.upper)
    if result.certificate is not None:
        texts += _proofs(rng, judge, group, question, result.certificate)
    return Outcome(str(result.status), [f"{text}: {question}" for text in texts])


def _question(rng: Generator) -> tuple[Question, list[int]]:
    question = (plain if rng.random() < 0.5 else tied)(rng, inputs=int(rng.integers(1, 4)))
    n = len(question.x)
    question.norm = NORMS[int(rng.integers(len(NORMS)))]
    options = {key: value for key, value in question.options.items() if key in ("label", "target", "weights")}
    low, high = np.full(n, -float(MOST)), np.full(n, float(MOST))
    x, group = rng.integers(-MOST, MOST + 1, size=n).astype(float), []
    if n > 1 and rng.random() < 0.4:
        group = [0, 1]
        x[group] = [1.0, 0.0]
        options["one_of"] = [group]
    integer = [i for i in range(n) if i not in group and rng.random() < 0.7]
    if integer:
        options["integer"] = integer
    question.x, question.options = x, {**options, "domain": (low, high)}
    return question, group


def _combinations(question: Question, group: list[int]) -> Iterator[np.ndarray]:
    """x with every choice of the inputs that are not ordinary."""
    integer = question.options.get("integer", [])
    places = itertools.product(range(-MOST, MOST + 1), repeat=len(integer))
    for values in places:
        for chosen in group or [None]:
            v = question.x.copy()
            v[integer] = values
            if chosen is not None:
                v[group] = 0.0
                v[chosen] = 1.0
            yield v


def _claim(
    judge: Judge,
    group: list[int],
    question: Question,
    lower: float,
    witness: np.ndarray | None,
    upper: float,
    rng: Generator,
) -> list[str]:
    """Is the witness admissible and unsafe, and nothing admissible and unsafe nearer than the bound?"""
    texts = []
    integer = question.options.get("integer", [])
    ordinary = [i for i in range(len(question.x)) if i not in integer and i not in group]
    if witness is not None:
        texts += witness_faults(judge, witness, upper)
        if (witness[integer] != np.floor(witness[integer])).any():
            texts.append(f"the witness {witness} is not whole")
        if group and sorted(witness[group].tolist()) != [0.0] * (len(group) - 1) + [1.0]:
            texts.append(f"the witness {witness} is no alternative")
    elif math.isfinite(upper):
        texts.append(f"upper {upper} without a witness")
    for v in _combinations(question, group):
        here = Judge(judge.network, v, judge.unsafe, judge.length, judge.domain)
        steps = [[Fraction(0)] * len(v)] if here.is_unsafe(v) else []
        for i in ordinary:
            for sign in (1, -1):
                d = [Fraction(sign * (i == j)) for j in range(len(v))]
                t = here.exact.first(here.start, d, here.unsafe, here.top(d, 10.0))
                steps += [] if t is None else [[t * value for value in d]]
        for step in steps:
            offset = [a + b for a, b in zip(judge.offset(v), step, strict=True)]
            if judge.length.below(offset, lower):
                texts.append(f"an admissible unsafe point is nearer than {lower}: {[float(w) for w in offset]}")
    return texts


def _verified(rng: Generator, judge: Judge, group: list[int], question: Question, upper: float) -> list[str]:
    """A verdict at no radius, at any, at the witness's and beside it."""
    near = upper if math.isfinite(upper) else 1.0
    radii = [0.0, 0.5, near, float(np.nextafter(near, 0.0)), near * (1.0 - 1e-9), near * (1.0 + 1e-9), math.inf]
    radius = radii[int(rng.integers(len(radii)))]
    result = lc.verify(question.network, question.x, radius, question.norm, time_limit=10, **question.options)
    proved = result.lower if str(result.status) != "robust" else min(max(result.lower, radius), 1e3)
    texts = _claim(judge, group, question, proved, result.witness, result.upper, rng)
    if str(result.status) == "not_robust" and (result.witness is None or not result.upper <= radius):
        texts.append(f"not robust within {radius}, with a witness at {result.upper}")
    if str(result.status) == "undecided" and not result.note:
        texts.append("undecided without a word why")
    return [f"verified at {radius}: {text}" for text in texts]


def _proofs(
    rng: Generator, judge: Judge, group: list[int], question: Question, proof: lc.Certificate | WholeCertificate
) -> list[str]:
    report = lc.check(question.network, proof)
    texts = [] if report.ok else [f"own certificate rejected: {report.reason}"]
    if not isinstance(proof, WholeCertificate):
        return texts
    changed = _changed(rng, proof)
    report = lc.check(question.network, changed, exact=bool(rng.random() < 0.2))
    same = changed.integer == proof.integer and changed.groups == proof.groups
    if report.ok and same and np.array_equal(changed.claim.x, question.x):
        fault = _claim(judge, group, question, report.lower, changed.witness, report.upper, rng)
        texts += [f"changed certificate accepted: {text}" for text in fault]
    return texts


def _changed(rng: Generator, proof: WholeCertificate) -> WholeCertificate:
    kind = int(rng.integers(6))
    if kind == 0:
        return replace(
            proof, claim=replace(proof.claim, radius=proof.claim.radius * float(rng.choice([1.001, 1.5, 3])))
        )
    if kind == 1:
        cut = proof.cut.copy()
        cut[rng.integers(len(cut))] += rng.choice([1.0, -1.0, 0.5, math.nan])
        return replace(proof, cut=cut)
    if kind == 2:
        parts = list(proof.parts)
        parts[int(rng.integers(len(parts)))] = None
        return replace(proof, parts=tuple(parts))
    if kind == 3:
        return replace(proof, kind=proof.kind[:-1], index=proof.index[:-1], cut=proof.cut[:-1])
    if kind == 4:
        return replace(proof, cut=proof.cut[:-1])
    parts = list(proof.parts)
    rng.shuffle(parts)
    return replace(proof, parts=tuple(parts))
