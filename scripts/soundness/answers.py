"""Kinds of cases about answers: measure and verify in every method, norm, domain and scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.random import Generator

import layercert as lc
from helpers import tiny
from helpers.brute import brute_force, only_ties
from layercert.compiled import packed
from layercert.norms import Norm
from layercert.problem import Problem
from layercert.run import GAP, NOISE, How, Progress, closest, decide
from layercert.search.adaptive import pieces, search, worker
from layercert.search.events import Event
from layercert.system import clock
from soundness.judge import Judge, claim_faults, faults
from soundness.kind import Outcome
from soundness.questions import METHODS, Question, cornered, plain, pooled, scaled, tied
from soundness.truth import rational

#: Seconds a question may take; what is not answered by then is undecided.
LIMIT = 10.0
#: Gaps that are asked for now and then, beside the default.
GAPS = [1e-9, 1e-3, 0.1, 0.5]
#: So many floats may be between the nearest unsafe point and the nearest that is a float64 point.
FLOATS = 16


def scales(rng: Generator) -> Outcome:
    return _ask(rng, scaled(rng))


def ties(rng: Generator) -> Outcome:
    return _ask(rng, tied(rng))


def domains(rng: Generator) -> Outcome:
    return _ask(rng, cornered(rng))


def sparse(rng: Generator) -> Outcome:
    """Half of them in l_2, with parabolas in the first layer of every ball that may have them."""
    question = pooled(rng)
    if rng.random() < 0.5:
        return _ask(rng, question)
    with parabolas_everywhere():
        return _ask(rng, replace(question, norm=2.0), "adaptive", 0.0)


@contextmanager
def parabolas_everywhere() -> Iterator[None]:
    """For first layers with many entries too, and on the way to the distance whatever the network's size."""
    before = packed.FILLED, search.MANY, search.HOPEFUL
    packed.FILLED, search.MANY, search.HOPEFUL = 2.0, 0, 1.0
    try:
        yield
    finally:
        packed.FILLED, search.MANY, search.HOPEFUL = before


def facets(rng: Generator) -> Outcome:
    """In l_inf, with the hulls of neurons in the program of every node; the certificate too."""
    kinds = (scaled, tied, cornered, plain, pooled)
    question = replace(kinds[int(rng.integers(len(kinds)))](rng), norm=math.inf)
    with facets_everywhere():
        return _ask(rng, question, "adaptive", 0.7)


@contextmanager
def facets_everywhere() -> Iterator[None]:
    """Programs for all nodes of all networks, not only near the goal and where rows are short."""
    before = pieces.SPARSE, worker.NEAR
    pieces.SPARSE, worker.NEAR = 2.0, 1.0
    try:
        yield
    finally:
        pieces.SPARSE, worker.NEAR = before


def _ask(rng: Generator, question: Question, by: str | None = None, proofs: float = 0.3) -> Outcome:
    """One question, measured or verified at a random radius, this part of them certified."""
    judge = Judge.of(question)
    method = by or METHODS[int(rng.integers(len(METHODS)))]
    if method == "mip" and question.norm not in (1.0, math.inf):
        method = "adaptive"
    proof = bool(rng.random() < proofs)
    told = [0.0]

    def watch(progress: Progress, event: Event | None) -> None:
        told[0] = max(told[0], progress.lower)

    gap = float(rng.choice(GAPS)) if rng.random() < 0.2 else GAP
    threads = int(rng.integers(1, 4)) if rng.random() < 0.2 else None
    ask = {"method": method, "time_limit": LIMIT, "certificate": proof, "watch": watch, **question.options}
    ask |= {"gap": gap, "threads": threads}
    if rng.random() < 0.6:
        result = lc.measure(question.network, question.x, question.norm, **ask)
    else:
        radius = float(np.abs(question.x).max() or 1.0) * 10.0 ** rng.uniform(-4, 1)
        result = lc.verify(question.network, question.x, radius, question.norm, **ask)
    found = faults(judge, result, rng, told[0], gap)
    if result.certificate is not None:
        found += proof_faults(question.network, result, rng, bool(rng.random() < 0.3), gap)
    return Outcome(
        str(result.status), [f"{text} [{method}, gap {gap}, threads {threads}]: {question}" for text in found]
    )


def proof_faults(network: lc.Network, result: lc.Result, rng: Generator, exact: bool, gap: float = GAP) -> list[str]:
    """The tool's own certificate must be accepted, and what it says must be true."""
    assert result.certificate is not None
    found = []
    for arithmetic in (False, True) if exact else (False,):
        report = lc.check(network, result.certificate, exact=arithmetic)
        if not report.ok:
            found.append(f"own certificate rejected (exact={arithmetic}): {report.reason}")
            continue
        found += claim_faults(network, result.certificate, report, rng)
        least = result.upper * (1 - gap - 4e-6) - 1e-12 * (1 + result.upper)
        # what was proved in rational arithmetic may be beyond the proofs of float64, and the answer says so
        if result.status == "exact" and "rational arithmetic" not in result.note and not report.lower >= least:
            found.append(f"the certificate proves {report.lower} of {result.upper} only")
    return found


def radii(rng: Generator) -> Outcome:
    """One input: the distance is known exactly, and the radius is that distance, or the float next to it."""
    question = (plain if rng.random() < 0.5 else tied)(rng, inputs=1)
    if rng.random() < 0.15:
        question = vanishing(question, 2.0 ** -float(rng.integers(900, 1075)))
    judge = Judge.of(question)
    far = Fraction(10) ** 6 * (1 + abs(judge.start[0]))
    found = []
    for d in (Fraction(1), Fraction(-1)):
        end = judge.domain[1 if d > 0 else 0][0]
        top = far if math.isinf(end) else abs(Fraction(float(end)) - judge.start[0])
        t = judge.exact.first(judge.start, [d], judge.unsafe, top)
        found += [] if t is None else [t]
    weight = judge.length.weights[0] if judge.length.weights is not None else Fraction(1)
    true = min(found) * weight if found else None
    about = float(true) if true is not None else float(rng.uniform(0.1, 10))
    around = [
        about,
        math.nextafter(about, 0),
        math.nextafter(about, math.inf),
        about * (1 + 1e-12),
        about * (1 - 1e-12),
    ]
    radius = max(around[int(rng.integers(len(around)))], 0.0)
    method = METHODS[int(rng.integers(len(METHODS)))]
    if method == "mip" and question.norm not in (1.0, math.inf):
        method = "adaptive"
    result = lc.verify(
        question.network, question.x, radius, question.norm, method=method, time_limit=LIMIT, **question.options
    )
    texts = faults(judge, result, rng)
    if result.status == "robust" and true is not None and true <= Fraction(radius):
        texts.append(f"robust to {radius}, the distance is {float(true)!r}")
    if result.status == "not_robust" and (true is None or true > Fraction(radius)):
        texts.append(f"not robust to {radius}, the distance is {true and float(true)!r}")
    return Outcome(str(result.status), [f"{text} [{method}, radius {radius!r}]: {question}" for text in texts])


def vanishing(question: Question, scale: float) -> Question:
    """The same among the least float64 numbers, where none is a billionth larger than another."""
    network = question.network
    small = lc.Network.from_arrays(list(network.weights), [b * scale for b in network.biases])
    options = dict(question.options)
    if "domain" in options:
        options["domain"] = tuple(end * scale for end in options["domain"])
    return replace(question, network=small, x=question.x * scale, options=options)


def agreement(rng: Generator) -> Outcome:
    """A tiny network: brute force, a certificate in both arithmetics, and two other methods."""
    seed = int(rng.integers(2**32))
    base = (tiny.generic if rng.random() < 0.5 else tiny.degenerate)(seed)
    problem = replace(base, norm=Norm([1.0, 2.0, math.inf][int(rng.integers(3))]), radius=math.inf)
    ask = (problem.network, problem.x, problem.norm.p, problem.label, None, problem.domain)
    result = lc.measure(*ask, certificate=True, time_limit=60)
    true, _ = brute_force(problem)
    texts = []
    slack = 1e-7 * true + 1e-9 if math.isfinite(true) else 0.0
    if result.lower > true + slack or result.upper < true - slack:
        texts.append(f"{result.lower} .. {result.upper}, brute force finds {true}")
    if result.status == "undecided" and not honest(result, problem, true):
        texts.append(f"undecided: {result.lower} .. {result.upper} {result.note}")
    if result.certificate is None:
        texts.append(f"no certificate: {result.note}")
    else:
        texts += proof_faults(problem.network, result, rng, exact=bool(rng.random() < 0.3))
    others = list(rng.choice([m for m in set(METHODS) if m not in ("adaptive", "mip", "large")], size=2, replace=False))
    for method in others:
        other = lc.measure(*ask, method=str(method), time_limit=30)
        if other.lower > true + slack or other.upper < true - slack:
            texts.append(f"{method}: {other.lower} .. {other.upper}, brute force finds {true}")
    return Outcome(str(result.status), [f"{text}: tiny seed {seed}, {problem.norm.name}" for text in texts])


def honest(result: lc.Result, problem: Problem, true: float) -> bool:
    """May it be undecided? Where unsafe points are ties, nowhere more, and the bound reaches as far as they are.

    Or where the bounds are as near to each other as the float64 points around x, one of which has to be the witness.

    That far up to rounding in x: brute force works in floats, and x beside a tie may be one for it.
    """
    noise = NOISE * problem.norm.value(problem.x)
    floats = FLOATS * problem.norm.value(np.spacing(np.abs(problem.x)))
    if result.lower > 0 and result.upper - result.lower <= floats:
        return True
    return result.lower >= true * (1.0 - 1e-6) - noise and only_ties(problem, true)


def stopped(rng: Generator) -> Outcome:
    """A search stopped at any of its looks at the clock leaves true bounds behind; some are about x alone."""
    question = (scaled, plain, plain, tied)[int(rng.integers(4))](rng)
    radius = None
    if rng.random() < 0.2:
        question.options["fixed"] = list(range(len(question.x)))
    elif rng.random() < 0.2:
        radius = 0.0
    judge = Judge.of(question)
    problem = lc.robustness(question.network, question.x, question.norm, radius=radius, **question.options)
    method = METHODS[int(rng.integers(len(METHODS)))]
    if method == "mip" and question.norm not in (1.0, math.inf):
        method = "adaptive"
    looks, ask = int(10.0 ** rng.uniform(0, 2.5)), decide if rng.random() < 0.3 else closest
    with clock.until(clock.now() + LIMIT, looks=looks):
        result = ask(problem, How(method))
    texts = faults(judge, result, rng)
    return Outcome(str(result.status), [f"{text} [{method}, {looks} looks, {radius}]: {question}" for text in texts])


__all__ = ["agreement", "domains", "radii", "rational", "scales", "stopped", "ties"]
