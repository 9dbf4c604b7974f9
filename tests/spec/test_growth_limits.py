"""How far a box can grow: on networks whose layers are never dense, and with a time limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import layercert as lc
from layercert.network import Network
from layercert.problem import Problem
from layercert.result import Verdict
from layercert.session import How
from layercert.spec import growth
from layercert.spec.read import parse_spec
from layercert.system import clock

#: y = relu(x_0) + relu(x_1) on the box 0.5 +- 0.25, unsafe at 2 or more: x = (1, 1), twice the half widths away.
SPEC = parse_spec(
    "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)"
    "(assert (>= X_0 0.25))(assert (<= X_0 0.75))(assert (>= X_1 0.25))(assert (<= X_1 0.75))(assert (>= Y_0 2))"
)
WEIGHTS = [np.eye(2), np.ones((1, 2))]
BIASES = (np.zeros(2), np.zeros(1))


def test_layers_that_are_too_large_to_be_dense_are_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = Network(tuple(csr_array(W) for W in WEIGHTS), BIASES)
    monkeypatch.setattr("layercert.network.DENSE_BYTES", 8)
    assert not sparse.fits_dense
    found = lc.measure_spec(sparse, SPEC)
    assert found.status == "exact" and found.lower == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(("low", "high"), [("0.1", "0.2"), ("1000.1", "1000.1000000001"), ("-7.3", "-7.2999999")])
def test_a_centre_that_violates_is_no_distance_away(low: str, high: str) -> None:
    """No float64 is the centre, and the nearest one may be 1e-3 half widths away: that was told as an exact growth."""
    text = f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 {low}))(assert (<= X_0 {high}))"
    line = Network.from_arrays([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])  # |x|
    found = lc.measure_spec(line, parse_spec(text + "(assert (>= Y_0 0))"))
    assert found.status == "exact" and found.lower == found.upper == 0.0 and found.witness is not None
    beside = lc.measure_spec(line, parse_spec(text + "(assert (<= Y_0 0))"))  # at 0 alone
    assert beside.status == "exact" and beside.lower > 1.0


@pytest.mark.parametrize("value", ["0.1", "0.5"])
def test_a_box_of_one_point_that_nobody_looked_at_may_not_grow(value: str) -> None:
    """Nothing but a proof says that the point is safe; without one it was "whatever the size of its boxes"."""
    text = f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (= X_0 {value}))(assert (= Y_0 {value}))"
    line = Network.from_arrays([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    with clock.until(None, looks=1):
        found = lc.measure_spec(line, parse_spec(text))
    assert found.status == "undecided" and found.lower == 0.0 and found.upper > 0.0
    assert lc.measure_spec(line, parse_spec(text)).upper == 0.0


def test_searches_that_are_late_are_late_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search here takes 0.3 s longer than it may; they were begun again and again all the same."""
    asked, seconds, real = list[float](), [100.0], growth.decide

    def late(problem: Problem, how: How) -> lc.Result:
        assert how.time_limit is not None
        asked.append(how.time_limit)
        answer = real(problem, replace(how, time_limit=None))
        seconds[0] += how.time_limit + 0.3
        return replace(answer, status=Verdict.UNDECIDED, lower=0.0, upper=np.inf, witness=None)

    for name in ("closest", "decide"):
        monkeypatch.setattr(growth, name, late)
    monkeypatch.setattr(clock, "_seconds", lambda: seconds[0])
    lc.measure_spec(Network.from_arrays(WEIGHTS, BIASES), SPEC, time_limit=1.6)
    # half of the limit; after 1.1 s a third of what is left; then 0.03 s are left, less than the last one was late
    assert asked == [pytest.approx(0.8), pytest.approx(0.5 / 3)]
