"""Searches stopped at any of their looks at the clock: what they leave behind is true."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import layercert as lc
from helpers import tiny
from helpers.brute import brute_force
from layercert.methods import METHODS
from layercert.norms import Norm
from layercert.run import How, closest, decide
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


#: y_0 = x, y_1 = 1 - x: a tie at 1/2, which rational arithmetic has to settle.
TIE = lc.Network.from_arrays([[[1.0]], [[1.0], [-1.0]]], [[0.0], [0.0, 1.0]])


@pytest.mark.parametrize("ask", [closest, decide])
@pytest.mark.parametrize("question", [{"radius": 0.0}, {"domain": (0.5, 0.5)}, {"fixed": [0]}, {"radius": 5e-324}])
def test_nothing_is_robust_before_x_was_looked_at(ask: Any, question: dict[str, Any]) -> None:
    """A radius of 0, or a domain of one point, is reached by the bound 0: it was called robust around an unsafe x."""
    problem = lc.robustness(TIE, [0.5], **question)
    for looks in (1, 2, 3, 5, 10):
        with clock.until(None, looks=looks):
            result = ask(problem, How(certificate=True))
        assert str(result.status) in ("undecided", "exact", "not_robust")
        assert result.upper == 0.0 or (result.note and result.certificate is None)
    safe = lc.robustness(
        TIE, [0.5 + 2.0**-53], label=0, **{**question, **({"domain": None} if "domain" in question else {})}
    )
    with clock.until(None, looks=1):
        assert str(ask(safe, How()).status) != "robust"


def test_x_is_looked_at_though_the_time_is_up() -> None:
    """What takes no longer than GRACE."""
    result = lc.measure(TIE, [0.5], radius=0.0, time_limit=1e-9)
    assert result.status == "exact" and result.upper == 0.0
