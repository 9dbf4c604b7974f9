"""Searches stopped at any of their looks at the clock: what they leave behind is true."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from helpers import tiny
from helpers.brute import brute_force
from layercert.methods import METHODS
from layercert.norms import Norm
from layercert.run import How, closest
from layercert.system import clock

#: Where to stop: at every early look, then more and more rarely.
LOOKS = [1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 45, 70, 110, 200]


@pytest.mark.parametrize(
    ("method", "p"),
    [
        (method, p) for method in METHODS for p in (1.0, 2.0, math.inf) if method != "mip" or p != 2.0
    ],  # linear norms only
)
def test_bounds_hold_wherever_a_search_is_stopped(method: str, p: float) -> None:
    problem = replace(tiny.generic(11), norm=Norm(p), radius=math.inf)
    true, _ = brute_force(problem)
    slack = 1e-9 * (1.0 + true) if math.isfinite(true) else 0.0
    stopped = 0
    for looks in LOOKS:
        with clock.until(None, looks=looks):
            result = closest(problem, How(method))
        assert result.lower <= true + slack
        assert result.upper >= true - slack
        assert result.witness is None or problem.is_unsafe(result.witness)
        stopped += result.note == "time limit reached"
    assert stopped >= 1
