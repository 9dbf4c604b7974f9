"""Answers with certificates, held against the checker and against brute force."""

from __future__ import annotations

from typing import Any

import pytest

import layercert as lc
from helpers.brute import brute_force
from layercert.certificate.checker import check
from layercert.problem import Problem


def certified(problem: Problem, **options: Any) -> lc.Result:
    return lc.measure(
        problem.network, problem.x, problem.norm.p, problem.label, problem.radius, problem.domain,
        certificate=True, **options,
    )  # fmt: skip


def answer_is_certified(problem: Problem, **options: Any) -> None:
    """The certificate holds, and proves no more than what is true and no less than what was answered."""
    r = certified(problem, **options)
    if r.certificate is None and problem.margin(problem.x) < 1e-14:
        # the class is known in rationals only: float64 has no proof of that, and the answer says so
        assert "no certificate: " in r.note and "rounding is as large as the margin" in r.note
        return
    assert r.certificate is not None, r
    report = check(problem.network, r.certificate)
    assert report.ok, report
    true, _ = brute_force(problem)
    assert report.lower <= true * (1 + 1e-9) + 1e-12
    if r.status == "exact":
        assert report.lower == pytest.approx(r.upper, rel=3e-6, abs=1e-12)
        assert report.upper == r.upper
