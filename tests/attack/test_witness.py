"""Witnesses are honest: strict in exact arithmetic, tried in the model's own runtime, and a tie is called a tie."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from layercert import shipped
from layercert.attack.strict import examine, harden
from layercert.network import Network
from layercert.problem import robustness
from layercert.system import clock

DIGITS = np.load(shipped.path("digits"))["X"].astype(np.float64)
ONNX = Path(shipped.path("mnist17_l1_2x20")).with_suffix(".onnx")


def test_exact_forward_is_the_network_in_rational_numbers() -> None:
    # (1/10)*3 as floats is not 0.3: the exact value keeps every bit
    net = Network.from_arrays([[[0.1]], [[1.0], [3.0]]], [[0.0], [0.0, 0.0]])
    assert net.exact(np.array([3.0])) == [Fraction(0.1) * 3, Fraction(0.1) * 9]
    assert net.exact(np.array([-3.0])) == [0, 0]


def test_a_tie_is_settled_in_exact_arithmetic() -> None:
    """0.1 + 0.2 against 0.3 in floats is not a tie, and its sign is that of the rational numbers behind them."""
    net = Network.from_arrays([[[0.1, 0.2], [0.3, 0.0]]], [[0.0, 0.0]])
    x = np.array([1.0, 1.0])
    left, right = net.exact(x)
    problem = robustness(net, x, label=0)
    assert problem.is_unsafe(x) == (left <= right)
    assert problem.is_unsafe(x, strict=True) == (left < right)


def test_a_true_tie_is_unsafe_but_not_strictly() -> None:
    net = Network.from_arrays([[[1.0], [-1.0]]], [[0.0, 1.0]])  # t against 1 - t: a tie at 0.5
    problem = robustness(net, [0.2])
    half = np.array([0.5])
    assert problem.is_unsafe(half) and not problem.is_unsafe(half, strict=True)
    assert examine(problem, half).exact == "tie"
    assert str(examine(problem, half)) == "tie in exact arithmetic"


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_witnesses_of_onnx_models_hold_in_onnxruntime(norm: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; run: pip install 'layercert[onnxruntime]'")
    net = lc.load(ONNX)
    for x in DIGITS[:4]:
        r = lc.measure(net, x, norm, domain=(0, 1))
        assert r.status == "exact"
        assert r.holds is not None and r.witness is not None
        assert r.holds.exact == "misclassified"
        assert r.holds.runtime == "onnxruntime" and r.holds.runtime_agrees
        assert r.upper <= r.lower * (1 + 1.1e-6)
        assert ((r.witness >= 0) & (r.witness <= 1)).all()
        assert net.runtime is not None
        outputs = net.runtime(r.witness)
        assert outputs is not None and int(outputs.argmax()) != r.label


def test_a_runtime_that_disagrees_is_reported() -> None:
    """A runtime that always answers class 0 can never be convinced: the witness stays, and the result says so."""
    plain = lc.load(shipped.path("mnist17_l1_2x20"))

    def stubborn(v: np.ndarray) -> np.ndarray:
        return np.array([1.0, 0.0])

    net = Network(plain.weights, plain.biases, "stubborn", stubborn)
    r = lc.measure(net, DIGITS[0], domain=(0, 1))
    assert r.status == "exact" and r.label == 0
    assert r.holds is not None and r.holds.runtime_agrees is False
    assert "not under" in str(r.holds)


def test_beyond_float32_a_runtime_agrees_to_nothing() -> None:
    """x and the witness overflow in float32: nothing warns, and outputs that are no numbers say nothing."""

    def runtime(v: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            single = v.astype(np.float32)
            return np.array([single[0], -single[0]]) * np.float32(0.0)

    plain = Network.from_arrays([[[1e-40], [-1e-40]], [[1.0, -1.0], [-1.0, 1.0]]], [[0.0, 0.0], [0.0, 0.0]])
    problem = robustness(replace(plain, runtime=runtime), [-2e39], label=1)
    point, holds = harden(problem, np.array([2e39]))
    assert point == 2e39 and holds.exact == "misclassified" and holds.runtime_agrees is False


def test_a_runtime_is_asked_no_further_when_the_time_is_up() -> None:
    plain, asked = lc.load(shipped.path("mnist17_l1_2x20")), []

    def stubborn(v: np.ndarray) -> np.ndarray:
        asked.append(v)
        return np.array([1.0, 0.0])

    witness = lc.measure(plain, DIGITS[0], domain=(0, 1)).witness
    assert witness is not None
    net = Network(plain.weights, plain.biases, "stubborn", stubborn)
    problem = robustness(net, DIGITS[0], domain=(0, 1))
    harden(problem, witness)
    patient = len(asked)
    with clock.until(None, looks=3):
        v, holds = harden(problem, witness)
    assert 1 <= len(asked) - patient <= 3 < patient
    assert (v == witness).all() and holds.runtime_agrees is False


def test_witnesses_of_torch_modules_hold_in_torch(torch: object) -> None:
    import torch as t

    t.manual_seed(0)
    module = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Linear(8, 3))
    net = lc.from_torch(module)
    r = lc.measure(net, [0.1, -0.2, 0.3, 0.4], "l2")
    assert r.holds is not None and r.holds.runtime == "PyTorch" and r.holds.runtime_agrees
    assert module.training  # left as it was


def test_hardening_never_moves_far() -> None:
    problem = robustness(lc.load(ONNX), DIGITS[1], "linf", domain=(0, 1))
    r = lc.measure(lc.load(shipped.path("mnist17_l1_2x20")), DIGITS[1], "linf", domain=(0, 1))
    assert r.witness is not None
    v, _ = harden(problem, r.witness)
    assert problem.distance(v) <= problem.distance(r.witness) * (1 + 1e-6)


def test_float32_error_covers_float32_inference() -> None:
    net = lc.load(shipped.path("mnist17_plain_2x20"))
    rng = np.random.default_rng(0)
    ball = net.float32_error(DIGITS[0], reach=0.1)
    for _ in range(50):
        v = DIGITS[0] + rng.uniform(-0.1, 0.1, 784)
        h = v.astype(np.float32)
        for i, (W, b) in enumerate(zip(net.weights, net.biases, strict=True)):
            h = W.astype(np.float32) @ h + b.astype(np.float32)
            h = h if i == net.L else np.maximum(h, np.float32(0))
        wrong = np.abs(h.astype(np.float64) - net(v))
        assert (wrong <= net.float32_error(v)).all()
        assert (net.float32_error(v) <= ball).all()
    assert math.isfinite(float(ball.max()))
