"""Certificates changed by hand: whatever is still accepted must be true."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
from numpy.random import Generator

import layercert as lc
from layercert.certificate.claim import Certificate
from soundness.judge import claim_faults
from soundness.kind import Outcome
from soundness.questions import Question, cornered, plain, pooled, tied

#: Of which certificates are made.
QUESTIONS = [plain, tied, cornered, pooled]
Change = Callable[[Generator, Certificate], Certificate]


def certificates(rng: Generator) -> Outcome:
    """A certificate of a random question, changed once to three times."""
    question = QUESTIONS[int(rng.integers(len(QUESTIONS)))](rng)
    proof = made(rng, question)
    if proof is None:
        return Outcome("none made", [])
    changed = proof
    names = []
    for _ in range(int(rng.integers(1, 4))):
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        names.append(change.__name__)
        changed = change(rng, changed)
    network = question.network
    if rng.random() < 0.1:  # another network of the same shape, whose name the file now bears
        names.append("network")
        network = lc.Network.from_arrays([-w for w in network.weights], network.biases)
        changed = replace(changed, network=network.sha256)
    exact = bool(rng.random() < 0.3)
    report = lc.check(network, changed, exact=exact)
    texts = claim_faults(network, changed, report, rng) if report.ok else []
    return Outcome(
        "accepted" if report.ok else "rejected",
        [f"{text} [{', '.join(names)}, exact={exact}]: {question}" for text in texts],
    )


def made(rng: Generator, question: Question) -> Certificate | None:
    method = "input-split" if len(question.x) <= 3 and rng.random() < 0.3 else "adaptive"
    result = lc.measure(
        question.network, question.x, question.norm, method=method, time_limit=5, certificate=True, **question.options
    )
    return result.certificate


def _radius(rng: Generator, c: Certificate) -> Certificate:
    factors = [1 + 1e-15, 1 + 1e-9, 1 + 2e-6, 1.01, 2.0, 0.5, math.inf, 0.0]
    usable = 0 < c.radius < math.inf
    return replace(c, radius=float(c.radius * factors[int(rng.integers(len(factors)))]) if usable else 1e-3)


def _x(rng: Generator, c: Certificate) -> Certificate:
    return replace(c, x=c.x + rng.normal(size=c.x.shape) * 10.0 ** rng.uniform(-16, 0))


def _domain(rng: Generator, c: Certificate) -> Certificate:
    if c.domain is None or rng.random() < 0.3:
        return replace(c, domain=None)
    wider = 10.0 ** rng.uniform(-16, 0)
    return replace(c, domain=(c.domain[0] - wider, c.domain[1] + wider))


def _norm(rng: Generator, c: Certificate) -> Certificate:
    return replace(c, p=float(rng.choice([1.0, 2.0, math.inf, 1.5, 0.5, math.nan])))


def _label(rng: Generator, c: Certificate) -> Certificate:
    return replace(c, label=None if rng.random() < 0.5 else int(rng.integers(4)))


def _clauses(rng: Generator, c: Certificate) -> Certificate:
    kept = [(C.copy(), d.copy(), t) for C, d, t in c.clauses]
    if rng.random() < 0.4 and len(kept) > 1:
        return replace(c, clauses=tuple(kept[1:]), trees=c.trees[1:])
    C, d, _ = kept[int(rng.integers(len(kept)))]
    (C if rng.random() < 0.5 else d)[...] += 10.0 ** rng.uniform(-16, 0)
    return replace(c, clauses=tuple(kept))


def _witness(rng: Generator, c: Certificate) -> Certificate:
    if c.witness is None or rng.random() < 0.3:
        return replace(c, witness=None if rng.random() < 0.5 else c.x.copy())
    return replace(c, witness=c.witness + rng.normal(size=c.x.shape) * 10.0 ** rng.uniform(-16, -3))


def _upper(rng: Generator, c: Certificate) -> Certificate:
    upper = c.upper if math.isfinite(c.upper) else 1.0
    return replace(c, upper=float(upper * rng.choice([0.0, 0.5, 1 - 1e-12, 1 + 1e-12, math.nan, 2.0])))


def _weights(rng: Generator, c: Certificate) -> Certificate:
    if c.weights is not None and rng.random() < 0.5:
        return replace(c, weights=None)
    weights = np.ones_like(c.x) if c.weights is None else c.weights
    return replace(c, weights=weights * 10.0 ** rng.uniform(-1, 1, len(c.x)))


def _asked(rng: Generator, c: Certificate) -> Certificate:
    return replace(c, asked=None if c.asked is not None else tuple(sorted(set(rng.integers(4, size=2).tolist()))))


def _tree(rng: Generator, c: Certificate) -> Certificate:
    """An array of a tree: other values, values out of range, or fewer nodes."""
    if not c.trees:
        return c
    k = int(rng.integers(len(c.trees)))
    tree = c.trees[k]
    names = [field.name for field in fields(tree) if getattr(tree, field.name) is not None]  # facets are optional
    name = str(rng.choice(names))
    array = np.array(getattr(tree, name))
    if array.size:
        at = tuple(int(rng.integers(n)) for n in array.shape)
        odd = [0, 1, -1, 2, 3, 255] if array.dtype.kind in "iu" else [0.0, 1.0, -1.0, 1e-300, 1e300, math.nan, math.inf]
        with np.errstate(all="ignore"):
            array[at] = np.array(odd[int(rng.integers(len(odd)))]).astype(array.dtype)
    changed = replace(tree, **{name: array})
    if rng.random() < 0.2:  # cut off the end, in all arrays alike
        n = int(rng.integers(1, len(getattr(tree, names[0])) + 1))
        changed = replace(tree, **{each: getattr(tree, each)[:n] for each in names})
    return replace(c, trees=(*c.trees[:k], changed, *c.trees[k + 1 :]))


def _swap(rng: Generator, c: Certificate) -> Certificate:
    return replace(c, trees=tuple(reversed(c.trees))) if rng.random() < 0.5 else replace(c, trees=c.trees[:1])


def _header(rng: Generator, c: Certificate) -> Certificate:
    """With what a proof starts, and which arithmetic it is meant for."""
    return replace(c, intervals=not c.intervals) if rng.random() < 0.7 else replace(c, exact=not c.exact)


CHANGES: list[Change] = [_radius, _radius, _x, _domain, _norm, _label, _clauses, _witness, _upper, _weights, _asked]
CHANGES += [_tree, _tree, _tree, _swap, _header]
