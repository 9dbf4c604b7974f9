"""The attack finds real witnesses; settling makes them strict with hardly a move."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layercert as lc
from helpers.brute import brute_force
from helpers.networks import NORMS, networks
from layercert import shipped
from layercert.attack.attack import _shortest, attack, settle
from layercert.io.inputs import load_inputs
from layercert.network import Network
from layercert.problem import robustness
from layercert.scaled import scaled


@given(networks(), st.sampled_from(NORMS), st.booleans(), st.integers(0, 1000))
def test_every_witness_is_unsafe_and_in_the_domain(net: Network, p: float, boxed: bool, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(0, 1, net.inputs)
    problem = robustness(net, x, p, domain=(0, 1) if boxed else None)
    found = attack(problem)
    if found is None:
        return
    w, distance, clause = found
    assert distance == pytest.approx(problem.norm.value(w), rel=1e-12)
    assert distance >= brute_force(problem)[0] * (1 - 1e-8) - 1e-9
    v = settle(problem, w, clause)
    if v is None:  # a tie that no small move resolves, as between constant outputs
        return
    assert float(clause.margins(net(v)).max()) <= 0
    assert problem.norm.value(v - (x + w)) <= 1.01e-6 * distance + 1e-15
    assert (v == problem.into_domain(v)).all()


def clipping(net: Network) -> Network:
    """The same network with clip(v, 0, 1) = relu(v) - relu(v - 1) in front, as a reader would make it."""
    eye, W = np.eye(net.inputs), net.weights[0]
    ends = np.repeat([0.0, -1.0], net.inputs)
    weights = [np.vstack([eye, eye]), np.hstack([W, -W]), *net.weights[1:]]
    return replace(Network.from_arrays(weights, [ends, *net.biases]), input_range=(0.0, 1.0))


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_a_model_that_clips_its_input_is_attacked_inside_the_range(norm: str) -> None:
    """Digits are black on their rim, where the clipped model's gradient is zero; so it is beyond the range."""
    net = lc.load(shipped.path("mnist17_l1_2x20"))
    for x in load_inputs(shipped.path("digits"), "0:2").X:
        plain = attack(robustness(net, x, norm, domain=(0, 1)))
        found = attack(robustness(clipping(net), x, norm))
        assert plain is not None and found is not None
        assert found[1] <= 1.01 * plain[1]
        assert (clipping(net)(x + found[0]) == clipping(net)(np.clip(x + found[0], 0, 1))).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_the_range_is_known_in_scaled_coordinates(norm: str) -> None:
    """Weights scale the inputs, and the range with them: a digit on the rim is attacked as well as without weights."""
    net = lc.load(shipped.path("mnist17_l1_2x20"))
    weights = np.random.default_rng(0).uniform(0.5, 3.0, net.inputs)
    x = load_inputs(shipped.path("digits"), "0").X[0]
    plain = attack(scaled(robustness(net, x, norm, domain=(0, 1), weights=weights), 1e3).problem)
    inner = scaled(robustness(clipping(net), x, norm, weights=weights), 1e3)
    found = attack(inner.problem)
    assert plain is not None and found is not None
    assert found[1] <= 1.01 * plain[1]
    low, high = inner.problem.network.input_range or (np.nan, np.nan)
    assert x + inner.offset(low - inner.problem.x) == pytest.approx(0.0, abs=1e-12)
    assert x + inner.offset(high - inner.problem.x) == pytest.approx(1.0, abs=1e-12)


def test_an_input_outside_the_range_that_the_model_clips_to() -> None:
    # logits are (0.5 - t, 0) of the clipped t: they tie at t = 0.5, so from t = -1 the distance is 1.5
    net = clipping(Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[0.0], [0.5, 0.0]]))
    found = attack(robustness(net, [-1.0]))
    assert found is not None and found[1] == pytest.approx(1.5, rel=1e-6)
    assert lc.measure(net, [-1.0]).upper == pytest.approx(1.5, rel=1e-6)
    assert attack(robustness(net, [0.1], domain=(0, 0.4))) is None


def test_nothing_is_found_beyond_the_limit() -> None:
    net = Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[0.0], [0.5, 0.0]])
    problem = robustness(net, [0.1])
    found = attack(problem)
    assert found is not None
    assert found[1] == pytest.approx(0.4, rel=1e-6)
    assert attack(problem, U=0.3) is None


def test_a_point_short_of_the_boundary_by_rounding_is_settled_strictly() -> None:
    rng = np.random.default_rng(0)
    sizes = [30, 20, 20, 3]
    net = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)],
        [rng.normal(size=m) for m in sizes[1:]],
    )
    for p in (1.0, 2.0, math.inf):
        problem = robustness(net, rng.uniform(size=30), p, domain=(-1, 2))
        found = attack(problem)
        assert found is not None
        w, distance, clause = found
        v = settle(problem, w * (1 - 1e-12), clause)
        assert v is not None
        margin = float(clause.margins(net(v)).max())
        assert margin < -float((np.abs(clause.C) @ net.forward_error(v)).max())
        assert problem.distance(v) <= distance * (1 + 1e-9)


def test_settle_gives_up_on_a_safe_point() -> None:
    net = Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[0.0], [0.5, 0.0]])
    problem = robustness(net, [0.1])
    assert settle(problem, np.array([0.2]), problem.clauses[0]) is None


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 3])
@pytest.mark.parametrize("domain", [(-10.0, 10.0), None])
def test_where_all_gradients_vanish_landmarks_show_the_way(norm: str | int, domain: tuple[float, float] | None) -> None:
    """f = (1, relu(s - x_1 - x_2)): nothing moves near x = (3, 3), and the other class begins at x_1 + x_2 = s - 1."""
    shift = -5.0 if domain else 2.0  # without a domain the only landmark is zero
    net = Network.from_arrays([[[-1.0, -1.0]], [[0.0], [1.0]]], [[shift], [1.0, 0.0]])
    problem = robustness(net, np.array([3.0, 3.0]), norm, domain=domain)
    found = attack(problem)
    assert found is not None
    step, distance, _ = found
    assert problem.is_unsafe(problem.x + step) and distance == pytest.approx(problem.norm.value(step))
    true = (12.0 if domain else 5.0) * {"l1": 1.0, "l2": 2**-0.5, "linf": 0.5, 3: 2 ** (1 / 3) / 2}[norm]
    assert true * (1 - 1e-9) <= distance <= true * 1.001
    assert attack(problem, 0.9 * true) is None  # not within this radius, and none is claimed


def test_the_way_back_from_landmarks_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each halving is a pass through the network, seconds in all on large ones; what was found by then counts."""
    from layercert.attack.attack import _from_afar
    from layercert.system import clock

    net = Network.from_arrays([[[-1.0, -1.0]], [[0.0], [1.0]]], [[-5.0], [1.0, 0.0]])
    problem = robustness(net, np.array([3.0, 3.0]), domain=(-10.0, 10.0))
    passes, evaluate = [0], Network.__call__

    def counted(self: Network, x: np.ndarray) -> np.ndarray:
        passes[0] += 1
        return evaluate(self, x)

    monkeypatch.setattr(Network, "__call__", counted)
    assert _from_afar(problem, math.inf) is not None
    whole, passes[0] = passes[0], 0
    with clock.until(None, looks=12):
        found = _from_afar(problem, math.inf)
    assert passes[0] < 0.3 * whole
    assert found is not None and problem.is_unsafe(problem.x + found[0])


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_the_shortest_vector_of_a_hull_has_rows_of_any_size(size: float) -> None:
    """Squares of such rows vanish, or overflow with a warning, which is an error. Between the axes it is (1, 1)/2."""
    G = size * np.array([[3.0, 0.0], [0.0, 2.0]])
    assert _shortest(G) == pytest.approx([0.5, 0.5], rel=1e-5)
    assert not _shortest(np.array([[0.0, 0.0], [0.0, 2.0]])).any()
