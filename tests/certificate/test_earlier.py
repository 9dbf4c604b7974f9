"""Certificates of version 1, made before versions had weights, branches or gaps: a proof stays a proof."""

from __future__ import annotations

from pathlib import Path

import pytest

import layercert as lc
from layercert import shipped

EARLIER = Path(__file__).parent / "earlier"


@pytest.mark.parametrize(
    ("name", "model", "radius", "upper"),
    [
        ("neurons-linf", "mnist17_l1_2x20", 0.124795376, 0.124795501),  # a domain; found by the adaptive search
        ("neurons-l2", "mnist17_plain_2x20", 0.237893801, 0.237894039),  # no domain
        ("boxes", None, 0.291687739, 0.291688031),  # a box tree; network.npz has sizes 3-12-12-3
        ("radius", None, 0.04999995, float("inf")),  # nothing within a radius that was asked for
    ],
)
def test_they_still_check(name: str, model: str | None, radius: float, upper: float) -> None:
    network = lc.load(EARLIER / "network.npz" if model is None else shipped.path(model))
    report = lc.check(network, lc.load_certificate(EARLIER / f"{name}.npz"))
    assert report.ok, report.reason
    assert (report.lower, report.upper) == (pytest.approx(radius, rel=1e-8), pytest.approx(upper, rel=1e-8))
