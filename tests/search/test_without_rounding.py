"""Where rounding stops a search, small networks are asked once more with rows that are exact at x."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers import tiny
from helpers.brute import brute_force
from helpers.standalone import alone
from layercert.certificate.claim import Certificate
from layercert.certify import BY_BALLS
from layercert.programs.stacks import make_chain
from layercert.scaled import scaled
from layercert.search.incumbent import Incumbent
from layercert.search.last_resort import MOST_PROGRAMS, MOST_SMOOTH, small, without_rounding
from layercert.search.task import Task
from layercert.system import clock


def at_the_boundary() -> lc.Network:
    """x = 0.5 is safe by 3e-15, 15 floats from the boundary (case 1047 of the audit's `agreement`, seed 20261119)."""
    weights = [[[2.0], [2.000000000000002], [-2.0]], [[0.0, 1.0, 1.0], [-0.5, -1.0, -0.5], [1.0, -2.0, 0.5]]]
    biases = [[-0.5, -0.5, 0.0], [-1.0, -2.0, 0.0]]
    return lc.Network.from_arrays(list(map(np.array, weights)), list(map(np.array, biases)))


def cancelling(rng: np.random.Generator, n: int, margin: float) -> lc.Network:
    """Two outputs whose difference at x = (1, .., 1) is about the margin, and that are 1e6 themselves."""
    W = rng.normal(size=(4, n)) * 1e6
    W[0] = np.abs(W[0])  # one neuron at least is on
    V = rng.normal(size=(2, 4))
    hidden = np.maximum(W.sum(axis=1), 0.0)
    f = [sum((Fraction(float(a)) * Fraction(float(h)) for a, h in zip(row, hidden, strict=True))) for row in V]
    return lc.Network.from_arrays([W, V], [np.zeros(4), np.array([0.0, float(f[0] - f[1]) - margin])])


def distance_on_its_piece(net: lc.Network, x: np.ndarray, p: float, slopes: lc.Network | None = None) -> float:
    """Where the pattern of x holds all around it: the margin, in rationals, over the dual norm of its slope."""
    f = net.exact(x)
    F, _ = (slopes or net).linear_piece(net.pattern(x))
    g = F[0] - F[1]
    q = 1.0 if math.isinf(p) else math.inf if p == 1 else p / (p - 1)
    return float(abs(f[0] - f[1])) / float(np.linalg.norm(g, q))


@pytest.mark.parametrize("method", ["adaptive", "input-split", "geocert", "layercert-both"])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_a_boundary_as_near_as_rounding_is_measured(method: str, norm: str) -> None:
    """No margin for rounding is as small as that: the answer was 0 .. inf once, and then 0 .. 4.6e-15."""
    result = lc.measure(at_the_boundary(), np.array([0.5]), norm, 0, method=method)
    assert result.status == "exact" and not result.note
    assert result.lower == pytest.approx(15 * 2.0**-54, rel=1e-9)
    assert result.witness is not None and result.witness[0] == 0.5 - 15 * 2.0**-54


@pytest.mark.parametrize("floats", [13, 14, 16, 17])
def test_a_radius_beside_it_is_verified(floats: int) -> None:
    result = lc.verify(at_the_boundary(), np.array([0.5]), floats * 2.0**-54, "linf", 0)
    assert result.status == ("robust" if floats < 15 else "not_robust")


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_its_certificate_is_accepted_in_exact_arithmetic(norm: str, n: int, tmp_path: Path, capsys: Any) -> None:
    """By the package and by the stand-alone checker; in float64 by neither, and a larger radius by nobody."""
    net, x = at_the_boundary(), np.array([0.5])
    if n > 0:
        net, x = cancelling(np.random.default_rng(n), n, 1e-9), np.ones(n)
    result = lc.measure(net, x, norm, 0 if n == 0 else None, certificate=True)
    proof = result.certificate
    assert isinstance(proof, Certificate)
    if not proof.exact:  # float64 did it
        assert n > 0 and lc.check(net, proof).ok
        return
    assert BY_BALLS in result.note and proof.radius == pytest.approx(result.lower, rel=2e-6)
    net.save(tmp_path / "network.npz")
    files = [str(tmp_path / "proof.npz"), str(tmp_path / "network.npz")]
    proof.save(files[0])
    read = lc.load_certificate(files[0])
    assert isinstance(read, Certificate) and read.exact
    for report in (lc.check(net, read), lc.check(net, read, exact=True)):
        assert report.ok and "ball arithmetic" in report.sentence
        assert report.lower == proof.radius and report.upper == result.upper
    assert not lc.check(net, replace(read, exact=False)).ok
    assert alone.main(files) == 1 and alone.main([*files, "--exact"]) == 0
    far = replace(read, radius=result.upper * (1 + 1e-9))
    far.save(files[0])
    assert not lc.check(net, far).ok and alone.main([*files, "--exact"]) == 1
    assert "NOT PROVED" in capsys.readouterr().err


def test_without_ball_arithmetic_its_certificate_has_what_float64_can_prove_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    result = lc.measure(at_the_boundary(), np.array([0.5]), "linf", 0, certificate=True)
    assert result.status == "exact" and "proved in rational arithmetic" in result.note
    assert result.certificate is not None and result.certificate.radius < 1e-20
    assert f"the one here proves the distance {result.certificate.radius:.6g}" in result.note
    report = lc.check(at_the_boundary(), result.certificate)
    assert report.ok and report.upper == result.upper


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("n", [1, 3])
def test_where_large_numbers_cancel_the_distance_is_that_in_rationals(norm: float, n: int) -> None:
    """Outputs of 1e6 that differ by 1e-8: a forward pass is wrong by 1e-9 of that, and the boundary 1e-15 away."""
    for seed in range(6):
        net = cancelling(np.random.default_rng([n, seed]), n, 1e-8)
        x = np.ones(n)
        true = distance_on_its_piece(net, x, norm)
        result = lc.measure(net, x, norm)
        assert result.lower <= true * (1 + 1e-9) and result.lower == pytest.approx(true, rel=1e-6)
        # no witness is nearer than float64 points beside x are: one part in 2**53 of it and coordinate
        assert result.witness is not None and result.upper <= true + 40 * 2.0**-53 * n


def test_weights_of_the_norm_lose_nothing_to_rounding() -> None:
    """A weight of 0.3 has no inverse: the scaled problem is looser than the question by more than x is safe."""
    net, x = at_the_boundary(), np.array([0.5])
    result = lc.measure(net, x, "linf", 0, weights=[0.3])
    assert result.status == "exact" and result.lower == pytest.approx(0.3 * 15 * 2.0**-54, rel=1e-9)
    for seed in range(6):
        net, weights = cancelling(np.random.default_rng([3, seed]), 3, 1e-8), np.array([0.3, 7.0, 1.1])
        scaled_back = lc.Network.from_arrays([net.weights[0] / weights, net.weights[1]], list(net.biases))
        true = distance_on_its_piece(net, np.ones(3), 2.0, scaled_back)
        assert lc.measure(net, np.ones(3), 2.0, weights=weights).lower == pytest.approx(true, rel=1e-6)


def test_tiny_weights_are_no_reason_to_give_up() -> None:
    """1e-200 times the same network has the same distance; margins for underflow are larger than such rows."""
    answered = 0
    for seed in range(12):
        problem = tiny.generic(seed)
        true, _ = brute_force(problem)
        W, b = problem.network.weights, problem.network.biases
        net = lc.Network.from_arrays([W[0] * 1e-200, *W[1:]], [v * 1e-200 for v in b])
        result = lc.measure(net, problem.x, problem.norm.p, problem.label, domain=problem.domain)
        assert result.lower <= true * (1 + 1e-7) and result.upper >= true * (1 - 1e-7)
        answered += result.status != "undecided"
    assert answered == 12


def test_a_witness_in_scaled_coordinates_stays_in_the_domain() -> None:
    """The scaled domain is a rounding larger than the one asked for, and a point at its end was taken as it was."""
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(20):
        x, weights = rng.uniform(0.1, 1, 2), rng.uniform(0.1, 3, 2)
        top = x + rng.uniform(0.1, 0.3, 2)
        net = lc.Network.from_arrays(
            [np.eye(2) * 1e-200, np.array([[0.0, 0.0], [1.0, 1.0]])],
            [np.zeros(2), np.array([0.0, -float(top.sum()) * 1e-200 * (1 - 1e-15)])],
        )
        result = lc.measure(net, x, "l1", 0, domain=(x - 1, top), weights=weights)
        if result.witness is not None:
            found += 1
            assert (result.witness <= top).all()
    assert found


@pytest.mark.parametrize(("norm", "most"), [(math.inf, MOST_PROGRAMS), (3.0, MOST_SMOOTH)])
def test_it_gives_up_in_time_and_what_it_proved_stays(norm: float, most: int) -> None:
    """Sixteen inputs and thirty-two neurons have more regions than that on the way to the boundary."""
    rng, sizes = np.random.default_rng(5), [16, 16, 16, 10]
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    net = lc.Network.from_arrays(weights, [rng.normal(size=m) for m in sizes[1:]])
    problem = lc.robustness(net, rng.random(16), norm)
    true = lc.measure(net, problem.x, norm)
    chain, incumbent = make_chain("default", problem.norm), Incumbent(problem)
    bounds = list(without_rounding(Task(problem, chain, 1e3), scaled(problem, 1e3), incumbent))
    assert most < chain.programs < most + 100
    assert 0 < max(bounds) < true.upper and incumbent.distance >= true.lower


def test_time_is_up_here_too() -> None:
    problem = lc.robustness(at_the_boundary(), np.array([0.5]), "linf", 0)
    for looks in range(1, 60, 7):
        with clock.until(clock.now() + 60, looks=looks):
            result = lc.run.closest(problem)
        assert result.lower <= 8.33e-16 and result.upper >= 8.32e-16
        assert result.status == "exact" or result.note


def test_large_networks_and_answered_questions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("asked for nothing")

    monkeypatch.setattr("layercert.session.without_rounding", never)
    for seed in range(20):  # with unsafe points, and without any as far as searches look
        problem = tiny.generic(seed)
        assert lc.measure(problem.network, problem.x, 2.0).status in ("exact", "robust")
    result = lc.measure(at_the_boundary(), np.array([0.5]), "linf", 0, method="mip")  # a cross-check says what it found
    assert result.status == "undecided"
    wide = lc.Network.from_arrays([np.ones((50, 784)), np.ones((2, 50))], [np.zeros(50), np.zeros(2)])
    assert small(problem) and not small(lc.robustness(wide, np.zeros(784)))
