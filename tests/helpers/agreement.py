"""A result beside the truth."""

from __future__ import annotations

import math

import pytest

import layercert as lc
from helpers.brute import only_ties
from layercert.methods import METHODS
from layercert.problem import Problem

#: The gap that is asked for: below the tolerance of brute force, so that the bounds themselves are held against it.
GAP = 1e-8


def check_against(true: float, problem: Problem, method: str) -> None:
    domain = problem.domain
    if true == 0 and not problem.is_unsafe(problem.x):
        return  # brute force cannot tell a tie from a margin of 1e-15
    r = lc.measure(
        problem.network,
        problem.x,
        problem.norm.p,
        problem.label,
        problem.radius,
        domain,
        method,
        time_limit=60,
        gap=GAP,
    )
    tolerance = 1e-7 * max(true, 1e-3) if math.isfinite(true) else 0.0
    # bounds are bounds, whatever the status
    assert r.lower <= true + tolerance, (method, true, r)
    assert r.upper >= true - tolerance, (method, true, r)
    if not METHODS[method].complete:
        assert r.status != "robust" or true >= problem.radius * (1 - 1e-7), (method, true, r)
        return
    if true > problem.radius * (1 + 1e-7) or math.isinf(true):
        assert r.status == "robust", (method, true, r)
    elif true < problem.radius * (1 - 1e-7):
        if r.status == "undecided" and only_ties(problem, true):
            assert r.lower == pytest.approx(true, rel=1e-7)  # the radius is right, but no float64 point attains the tie
            return
        assert r.status == "exact", (method, true, r)
        assert r.lower == pytest.approx(true, rel=1e-7, abs=1e-9), method
        assert r.upper == pytest.approx(true, rel=1e-7, abs=1e-9), method
        assert r.witness is not None
        assert problem.is_unsafe(r.witness)  # the network itself says another class (or a tie)
        assert problem.distance(r.witness) == r.upper
        if domain is not None:
            assert (r.witness >= domain[0]).all() and (r.witness <= domain[1]).all()
