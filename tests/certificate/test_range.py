"""Certificates of claims with numbers at the ends of float64: what underflow takes must not be enlarged into a proof.

Each of these claims is false and its tree is one leaf. Without a look at the numbers themselves both float checkers
accepted them: a product with tiny weights vanishes, and with it an error, a coefficient or a fall that a factor beyond
1e75 makes large again.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from helpers.standalone import alone
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate
from layercert.certificate.steps import StepTree
from layercert.network import Network


def one_leaf(neurons: int, rows: int) -> StepTree:
    """A tree of one leaf with one step: equal weights of the rows, lower lines of slope 1."""
    none, no_numbers = np.zeros(0, np.int64), np.zeros(0)
    return StepTree(
        layer=np.zeros(1, np.int64), neuron=np.zeros(1, np.int64), steps=np.ones(1, np.int64),
        objective=np.zeros(1, np.int64), uses=np.zeros(1, np.int64), row=none, lam=no_numbers,
        mu=np.ones((1, rows)), alpha=np.ones((1, neurons)), beta=np.zeros((1, neurons)),
        target=none, side=none, pull=no_numbers, slope_count=none, slope_at=none, slope=no_numbers,
        split_count=none, split_at=none, split=no_numbers,
    )  # fmt: skip


def claim(net: Network, x: float, C: list[list[float]], radius: float) -> Certificate:
    clause = np.array(C), np.zeros(len(C)), None
    return Certificate(
        net.sha256, np.array([x]), math.inf, None, None, (clause,), radius, None, math.inf,
        (one_leaf(net.neurons, len(C)),),
    )  # fmt: skip


def forgery(kind: str) -> tuple[Network, Certificate, float]:
    """A network, a false claim, and an unsafe point within its radius."""
    if kind == "clause":
        # c1 w1 + c2 w2 is -5e33, in float64 4e33 (a sum of two products of 1e50); the size of its terms at x, 1e-340
        # times 1e250, vanishes where 1e-340 is computed first
        rng = np.random.default_rng(0)
        while True:
            c1, c2, w1 = 1e250 * rng.uniform(1, 2), -1e250 * rng.uniform(1, 2), 1e-200 * rng.uniform(1, 2)
            w2 = -c1 * w1 / c2
            exact = Fraction(c1) * Fraction(w1) + Fraction(c2) * Fraction(w2)
            if exact < 0 < (np.array([[c1, c2]]) @ np.array([[w1], [w2]]))[0, 0]:
                break
        net = Network.from_arrays([[[1.0]], [[w1], [w2]]], [[0.0], [0.0, 0.0]])
        return net, claim(net, 1e-140, [[c1, c2]], 1e-141), 1e-140
    # F = 2.5e-80 - 1e-130 relu(1e-200 v + 2e50) is 0 at v = 5e249, but the product of the weights is 0 in float64
    net = Network.from_arrays([[[1e-200]], [[-1e-130], [0.0]]], [[2e50], [2.5e-80, 0.0]])
    if kind == "radius":
        return net, claim(net, 0.0, [[1.0, 0.0]], 1e250), 1e250
    return net, claim(net, 1e250, [[1.0, 0.0]], 1e70), 1e250


@pytest.mark.parametrize("kind", ["clause", "radius", "input"])
def test_no_factor_beyond_the_range_makes_a_proof(kind: str, tmp_path: Path) -> None:
    net, certificate, unsafe = forgery(kind)
    C, d, _ = certificate.clauses[0]
    f = net.exact(np.array([unsafe]))
    assert sum(Fraction(a) * b for a, b in zip(C[0], f, strict=True)) <= Fraction(d[0])
    assert abs(Fraction(unsafe) - Fraction(certificate.x[0])) <= Fraction(certificate.radius)
    report = check(net, certificate)
    assert not report.ok and "numbers beyond 1e+75" in report.reason
    assert not check(net, certificate, exact=True).ok
    net.save(tmp_path / "network.npz")
    certificate.save(tmp_path / "proof.npz")
    for more in ([], ["--exact"]):
        assert alone.main([str(tmp_path / "proof.npz"), str(tmp_path / "network.npz"), *more]) == 1
