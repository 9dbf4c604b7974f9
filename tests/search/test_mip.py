"""The big-M model in HiGHS: against brute force on tiny networks, against LayerCert on the shipped ones."""

from __future__ import annotations

import _thread
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given

import layercert as lc
from helpers.brute import brute_force
from helpers.tiny import degenerate, examples, generic, seeds
from layercert import shipped
from layercert.errors import OptionError
from layercert.geometry import Cells
from layercert.io.inputs import load_inputs
from layercert.methods import METHODS
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.search import mip as mip_module
from layercert.system import clock

# logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3 in every norm
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])


def test_tolerances_are_relative_to_the_ball() -> None:
    """From 0 the outputs 2w and 5e-8 - 8w cross at 5e-9; an absolute tolerance of 1e-9 saw nothing there."""
    network = Network.from_arrays(
        [[[-0.5], [-0.5], [2.0]], [[0.5, 2.0, 1.0]], [[2.0]], [[0.5], [-2.0], [0.5]]],
        [[0.0, 0.0, 5e-08], [-5e-08], [0.0], [0.0, 5e-08, -5e-08]],
    )
    assert lc.verify(network, [0.0], 5.000001e-9, domain=(-0.3, 1.0), method="mip").status == "not_robust"
    for scale in (1e-60, 1e-20, 1e20):
        line = Network.from_arrays([[[scale]], [[-1.0 / scale], [1.0 / scale]]], [[0.0], [scale, 0.0]])
        r = lc.measure(line, [0.2 * scale], domain=(0.0, scale), method="mip")
        assert r.lower <= 0.3 * scale * (1 + 1e-12) and r.upper >= 0.3 * scale * (1 - 1e-12)
        assert r.status == "exact"


@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("kind", [generic, degenerate])
@examples(dev=40, ci=150)
@given(seed=seeds)
def test_against_brute_force(kind: Callable[[int], Problem], norm: float, seed: int) -> None:
    """2-4 classes, with and without a box, with and without a radius; HiGHS's tolerances are worth 1e-6."""
    tiny = kind(seed)
    problem = Problem(tiny.network, tiny.x, tiny.clauses, Norm(norm), tiny.radius, tiny.domain, tiny.label)
    true, nearest = brute_force(problem)
    assume(true > 0 or problem.is_unsafe(problem.x))
    r = lc.measure(problem.network, problem.x, norm, problem.label, problem.radius, problem.domain, "mip")
    tolerance = 1e-6 * max(true, 1e-3) if math.isfinite(true) else 0.0
    assert r.lower <= true + tolerance
    assert r.upper >= true - tolerance
    if "big-M needs a bounded ball" in r.note:  # nor did the attack find a witness
        assert r.status == "undecided" and math.isinf(r.upper)
        assert problem.domain is None and math.isinf(problem.radius)
    elif r.status == "undecided":  # HiGHS is right, but at a kink no point next to its own may be strictly unsafe
        assert r.lower == pytest.approx(true, rel=2e-6)
    elif true > problem.radius * (1 + 1e-6) or math.isinf(true):
        assert r.status == "robust"
    elif r.status == "robust":  # a tie that brute force sees and rational arithmetic does not
        assert nearest is not None and only_ties(problem, nearest)
    elif true < problem.radius * (1 - 1e-6):
        assert r.status == "exact"
        assert (r.lower, r.upper) == pytest.approx((true, true), rel=2e-6, abs=1e-9)
        assert r.witness is not None and problem.is_unsafe(r.witness)


def only_ties(problem: Problem, point: np.ndarray) -> bool:
    """No class wins over the label near the point: the unsafe set is a plateau on which the logits are equal."""
    steps = np.random.default_rng(0).normal(size=(2000, len(point))) * 1e-3
    return all(problem.margin(problem.into_domain(v)) > -1e-12 for v in point + steps)


@pytest.mark.parametrize("radius", [5e-324, 1e-323, 1e-300])
def test_margins_less_than_a_float_prove_nothing(radius: float) -> None:
    """Unsafe points are at the radius itself; no float is a millionth larger, and HiGHS takes the ball for empty."""
    line = Network.from_arrays([[[0.0], [1024.0]]], [[0.0, -1024.0 * radius]])
    result = lc.verify(line, [0.0], radius, "linf", label=0, method="mip")
    assert result.status != "robust" and (result.status == "not_robust" or "less than a float" in result.note)


def test_a_witness_refutes_a_bound_beyond_it() -> None:
    """Weights from 1e-3 to 1e-66 (case 2888 of the audit's `scales`, seed 20261120): HiGHS takes a ball for empty that
    holds a witness, and its radius was told as exact, 8e-8 beyond the nearest unsafe points."""
    W = [
        [
            [-8.70172862304209e-12, 3.685529089487855e-13, -4.3245321779292664e-20],
            [-6.131139687046749e-21, -2.1614785819298017e-11, 2.3444257399737322e-15],
            [-0.0012463628733474688, -1.559398666187994e-17, 4.9691676123872536e-12],
            [-5.3051426279648454e-24, -8.434255071350133e-09, -1.856163177080997e-26],
            [1.5064642133692268e-05, 2.479890504766197e-21, 2.2517151371061917e-24],
        ],
        [
            [-6.311802543908512e-60, 1.2898714563371953e-46, -5.835883853324637e-54, 4.62408781111885e-56,
             2.08880385968319e-45],
            [2.6838356332903065e-48, -1.9531498366230045e-55, 1.3440854712734772e-39, -2.043864604608049e-46,
             3.86725396512633e-57],
            [1.7652157364327874e-38, -2.585147758656403e-66, 7.741137685459785e-62, -1.2542891643995045e-63,
             4.1975121020692545e-62],
        ],
    ]  # fmt: skip
    b = [[0.0] * 5, [2.0095414589365807e-37, 4.870576245721368e-37, 3.541471956521192e-39]]
    net = Network.from_arrays(list(map(np.array, W)), list(map(np.array, b)))
    x = np.array([670.5660715079831, 4.187633296692659e-06, -9.569312767015913e-17])
    result = lc.measure(net, x, "linf", method="mip")
    assert result.lower <= 9091652506071.4
    assert result.status == "undecided" and "takes the region of the witness for empty" in result.note


def test_the_model_says_nothing_beyond_its_ball() -> None:
    """With s the sum of four inputs, f_0 - f_1 = 2 - s - 10 relu(s - 0.7) is zero at s = 9/11 = 0.82.

    In the l_1 ball of radius 0.65 the neuron is off, and without it the zero is at s = 2, which four coordinates
    of 0.65 each can reach: a claim about points outside of the ball, and wrong.
    """
    # four neurons carry the inputs, each raised by 10 so that it stays on; the fifth is relu(s - 0.7)
    net = Network.from_arrays(
        [np.vstack([np.eye(4), np.ones(4)]), [[-1.0] * 4 + [-10.0], [0.0] * 5]],
        [[10.0, 10.0, 10.0, 10.0, -0.7], [42.0, 0.0]],
    )
    r = lc.measure(net, np.zeros(4), "l1", radius=0.65, method="mip")
    assert r.status == "robust"
    assert 0.65 <= r.lower <= 9 / 11
    assert lc.measure(net, np.zeros(4), "l1", radius=1.0, method="mip").upper == pytest.approx(9 / 11)


# digits with a small radius, which HiGHS does in about a second together
SHIPPED = [("mnist17_l1_2x10", (1, 2, 18)), ("mnist17_plain_2x10", (4, 19, 92))]


@pytest.mark.parametrize("method", [m for m in METHODS if m != "mip" and METHODS[m].complete])
@pytest.mark.parametrize(("name", "digit"), [("mnist17_l1_2x10", 18), ("mnist17_plain_2x10", 92)])
def test_every_method_agrees_with_the_model(name: str, digit: int, method: str) -> None:
    """Each method of the table on a shipped net of each family, against HiGHS's radius."""
    network, x = lc.load(shipped.path(name)), load_inputs(shipped.path("digits")).X[digit]
    mip = lc.measure(network, x, "linf", domain=(0, 1), method="mip")
    r = lc.measure(network, x, "linf", domain=(0, 1), method=method)
    assert (mip.status, r.status) == ("exact", "exact")
    assert r.upper == pytest.approx(mip.upper, rel=1e-6)
    assert r.target == mip.target


@pytest.mark.parametrize("norm", ["l1", "linf"])
@pytest.mark.parametrize(("name", "digits"), SHIPPED)
def test_the_same_radii_as_layercert(name: str, digits: tuple[int, ...], norm: str) -> None:
    network, inputs = lc.load(shipped.path(name)), load_inputs(shipped.path("digits"))
    for i in digits:
        mip = lc.measure(network, inputs.X[i], norm, domain=(0, 1), method="mip")
        layer = lc.measure(network, inputs.X[i], norm, domain=(0, 1), method="layercert-both")
        assert mip.status == layer.status == "exact"
        assert mip.upper == pytest.approx(layer.upper, rel=1e-6)
        assert mip.lower == pytest.approx(layer.lower, rel=1e-6)


def test_verify_stops_at_either_answer() -> None:
    """The radius of digit 19 on mnist17_plain_2x10 is 0.0037386."""
    network, inputs = lc.load(shipped.path("mnist17_plain_2x10")), load_inputs(shipped.path("digits"), "19")
    yes = lc.verify(network, inputs.X[0], 0.0037, domain=(0, 1), method="mip")
    no = lc.verify(network, inputs.X[0], 0.0038, domain=(0, 1), method="mip")
    assert (yes.status, no.status) == ("robust", "not_robust")
    assert yes.lower >= 0.0037 and no.upper <= 0.0038


@pytest.mark.parametrize("norm", ["l2", 3, 1.5])
def test_other_norms_are_refused(norm: str | float) -> None:
    name = Norm.of(norm).name
    with pytest.raises(OptionError, match=f"method 'mip' knows linear norms only, l1 and linf, got {name}; use "):
        lc.measure(LINE, [0.2], norm, method="mip")


def test_the_result_says_whose_word_the_bound_is() -> None:
    assert "the word of HiGHS" in lc.measure(LINE, [0.2], method="mip").note


def test_no_ball_no_answer() -> None:
    """f_0 - f_1 = relu(x) + 1 is never zero: no witness, no domain, no radius."""
    net = Network.from_arrays([[[1.0]], [[1.0], [0.0]]], [[0.0], [1.0, 0.0]])
    r = lc.measure(net, [0.3], method="mip")
    assert (r.status, r.lower, r.upper) == ("undecided", 0.0, math.inf)
    assert "give a radius or a domain" in r.note
    assert lc.measure(net, [0.3], domain=(-1, 1), method="mip").status == "robust"


def hard() -> tuple[Network, np.ndarray]:
    """40 + 40 random neurons over 20 inputs, nearly all of which change sign: minutes for HiGHS."""
    rng = np.random.default_rng(5)
    net = Network.from_arrays(
        [rng.normal(size=(40, 20)), rng.normal(size=(40, 40)), rng.normal(size=(2, 40))],
        [rng.normal(size=40), rng.normal(size=40), rng.normal(size=2)],
    )
    return net, rng.normal(size=20)


def test_time_limit_returns_honest_bounds() -> None:
    network, x = hard()
    start = time.monotonic()
    r = lc.measure(network, x, radius=2.0, method="mip", time_limit=0.7)
    assert time.monotonic() - start < 10.0  # HiGHS looks at its clock now and then
    assert (r.status, r.note) == ("undecided", "time limit reached")
    # the truth is at most what the attack finds
    found = lc.verify(network, x, 2.0, method="layercert-both", time_limit=5)
    assert found.status == "not_robust"
    assert 0.0 <= r.lower <= found.upper


def test_a_clause_that_was_not_reached_leaves_no_bound() -> None:
    """Three clauses and no time: whatever is known of the first says nothing about the others."""
    network, x = hard()
    more = Network.from_arrays(
        [*network.weights[:-1], np.vstack([network.weights[-1]] * 2)],
        [*network.biases[:-1], np.concatenate([network.biases[-1], network.biases[-1] - 50.0])],
    )
    r = lc.measure(more, x, radius=2.0, method="mip", time_limit=0.5)
    assert len(robustness(more, x).clauses) == 3
    assert (r.status, r.lower) == ("undecided", 0.0)


def test_ctrl_c_stops_highs_and_keeps_its_bound() -> None:
    network, x = hard()
    timer = threading.Timer(1.0, _thread.interrupt_main)
    start = time.monotonic()
    timer.start()
    r = lc.measure(network, x, radius=2.0, method="mip")
    assert time.monotonic() - start < 20.0
    assert r.interrupted and r.status == "undecided" and r.note == "interrupted"
    assert 0.0 <= r.lower <= 2.0


class Stubborn:
    """A solver that looks at no clock, as HiGHS where it simplifies a large model."""

    HandleUserInterrupt, cancelled = False, False

    def __init__(self) -> None:
        self.stop = threading.Event()

    def run(self) -> None:
        self.stop.wait(60)

    def cancelSolve(self) -> None:
        self.cancelled = True


def test_a_solver_that_does_not_stop_is_left_alone() -> None:
    stubborn = Stubborn()
    began = clock.now()
    with clock.until(began + 0.1):
        assert mip_module._run(stubborn) == (False, False)
    assert stubborn.cancelled and clock.now() - began < 5.0
    # the next question does not wait for it
    assert lc.measure(LINE, [0.2], method="mip").upper == pytest.approx(0.3)
    stubborn.stop.set()


def test_models_may_be_solved_in_several_threads_of_a_program() -> None:
    network, x = hard()
    with ThreadPoolExecutor(2) as threads:
        ask = partial(lc.measure, network, x, radius=2.0, method="mip", time_limit=1.0)
        for r in [each.result() for each in [threads.submit(ask) for _ in range(2)]]:
            assert r.status == "undecided" and r.note == "time limit reached"


def test_building_a_model_looks_at_the_clock() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_arrays(
        [rng.normal(size=(50, 4)), rng.normal(size=(50, 50)), rng.normal(size=(2, 50))],
        [np.zeros(n) for n in (50, 50, 2)],
    )
    problem = robustness(network, rng.normal(size=4), radius=1.0)
    cells = Cells(problem)
    with clock.until(clock.now() + 60.0, looks=60), pytest.raises(clock.OutOfTime):
        mip_module.big_m_model(cells, problem.clauses[0], 1.0)


def test_rows_are_scaled_by_powers_of_two() -> None:
    powers = mip_module._powers_of_two(np.array([0.0, 0.75, 1.0, 3.0, 1e-310, math.inf]))
    assert powers.tolist() == [1.0, 1.0, 2.0, 4.0, 2.0**-1029, 1.0]
