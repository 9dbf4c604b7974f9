"""Certificates of claims with numbers at the ends of float64: what underflow takes must not be enlarged into a proof.

Each of these claims is false and its tree is one leaf. Without a look at the numbers themselves both float checkers
accepted them: a product with tiny weights vanishes, and with it an error, a coefficient or a fall that a factor beyond
1e75 makes large again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.leaves import one_leaf
from helpers.standalone import alone
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate
from layercert.network import Network


def claim(
    net: Network, x: list[float], C: list[list[float]], radius: float, p: float = math.inf, **more: Any
) -> Certificate:
    clause = np.array(C), np.zeros(len(C)), None
    return Certificate(
        net.sha256, np.array(x), p, more.get("domain"), None, (clause,), radius, None, math.inf,
        (one_leaf(net.neurons, len(C)),), weights=more.get("weights"),
    )  # fmt: skip


def forgery(kind: str) -> tuple[Network, Certificate, list[float]]:
    """A network, a false claim, and an unsafe point within its radius."""
    if kind == "clause":
        # c.w is some -1e33, in float64 above 0, whether products and sums are rounded one by one or fused (a sum of two
        # products is right but for its last digit where they are not); the size of its terms at x, 1e-340 times
        # 1e250, vanishes where 1e-340 is computed first
        rng = np.random.default_rng(0)
        for _ in range(10_000):
            c, w = np.array([1e250, 1e250, -1e250]) * rng.uniform(1, 2, 3), 1e-200 * rng.uniform(1, 2, 3)
            w[2] = -(c[0] * w[0] + c[1] * w[1]) / c[2]
            exact = sum(Fraction(a) * Fraction(b) for a, b in zip(c, w, strict=True))
            if exact < 0 < (c[None] @ w[:, None])[0, 0]:
                break
        else:
            raise AssertionError("no sum is rounded beyond 0 here")
        net = Network.from_arrays([[[1.0]], w[:, None].tolist()], [[0.0], [0.0, 0.0, 0.0]])
        return net, claim(net, [1e-140], [c.tolist()], 1e-141), [1e-140]
    # F = 2.5e-80 - 1e-130 relu(1e-200 v + 2e50) is 0 at v = 5e249, but the product of the weights is 0 in float64
    net = Network.from_arrays([[[1e-200]], [[-1e-130], [0.0]]], [[2e50], [2.5e-80, 0.0]])
    if kind == "radius":
        return net, claim(net, [0.0], [[1.0, 0.0]], 1e250), [1e250]
    return net, claim(net, [1e250], [[1.0, 0.0]], 1e70), [1e250]


def exact_forgery(kind: str) -> tuple[Network, Certificate, list[float]]:
    """The same for exact arithmetic, which has no range: where its first bounds are floats."""
    if kind == "no end":  # F = 5e4 - 1e-300 v, on a ball larger than 1e300 without a domain
        net = Network.from_arrays([[[1e-300]], [[-1.0], [0.0]]], [[2e5], [2.5e5, 0.0]])
        return net, claim(net, [0.0], [[1.0, 0.0]], 1e305), [1e305]
    if kind == "box":  # F = 1e70 v + 1e-260 for -1e-320 <= v <= 0: in units of the weight that box has no width
        net = Network.from_arrays([[[1e70], [0.0]]], [[1e-260, 0.0]])
        box = np.array([-1e-320]), np.zeros(1)
        return net, claim(net, [0.0], [[1.0, 0.0]], 1.0, domain=box, weights=np.array([1e-50])), [-1e-320]
    if kind == "sign":  # F = 5e-101 + 1e-400 v for -1e300 <= v <= 0: which way it falls, the sign of 1e-400 says
        net = Network.from_arrays([[[1e-200]], [[1e-200], [0.0]]], [[2e100], [-1.5e-100, 0.0]])
        box = np.array([-1e300]), np.zeros(1)
        return net, claim(net, [0.0], [[1.0, 0.0]], 1e300, domain=box), [-1e300]
    if kind == "quotient":  # F = 2e-95 - |z|, z = 1e-290 v + 1e-95 up to 1e-90; the weight over that of the norm is 0
        net = Network.from_arrays([[[1e-290], [-1e-290]], [[-1.0, -1.0], [0.0, 0.0]]], [[1e-95, -1e-95], [2e-95, 0.0]])
        return net, claim(net, [0.0], [[1.0, 0.0]], 1e250, weights=np.array([1e50])), [9e199]
    if kind == "endless":  # F = 1 - relu(1e-300 v); 1e350 is no float64, and as a whole number 1024
        net = Network.from_arrays([[[1e-300]], [[-1.0], [0.0]]], [[0.0], [1.0, 0.0]])
        false = claim(net, [0.0], [[1.0, 0.0]], 1e300, weights=np.array([1e-50]))
        one, at = np.ones(1), np.zeros(1, np.int64)  # and the facet relu(z) <= the largest z of that box
        facet = {"facet_count": at + 1, "facet_at": at, "facet_share": one, "facet_part": 0.0 * one}
        return net, replace(false, trees=(replace(one_leaf(1, 1), **facet),)), [1e300]
    # "length": F = 5.5e-24 - |z|, z = s (v_0 + v_1) with the least float64 s: in l_2 up to sqrt(2) s r = 7e-24, but the
    # length of the row (s, s) is s in float64
    least = math.ulp(0.0)
    net = Network.from_arrays(
        [[[least, least], [-least, -least]], [[-1.0, -1.0], [0.0, 0.0]]], [[0.0, 0.0], [5.5e-24, 0.0]]
    )
    return net, claim(net, [0.0, 0.0], [[1.0, 0.0]], 1e300, 2.0), [7e299, 7e299]


def assert_false(net: Network, certificate: Certificate, unsafe: list[float]) -> None:
    """The point is unsafe and within the radius."""
    C, d, _ = certificate.clauses[0]
    f = net.exact(np.array(unsafe))
    assert sum(Fraction(a) * b for a, b in zip(C[0], f, strict=True)) <= Fraction(d[0])
    weights = np.ones(len(unsafe)) if certificate.weights is None else certificate.weights
    moved = [
        abs(Fraction(v) - Fraction(u)) * Fraction(w) for v, u, w in zip(unsafe, certificate.x, weights, strict=True)
    ]
    length = max(moved) ** 2 if math.isinf(certificate.p) else sum(m * m for m in moved)
    assert length <= Fraction(certificate.radius) ** 2
    if certificate.domain is not None:
        assert (certificate.domain[0] <= unsafe).all() and (unsafe <= certificate.domain[1]).all()


def refused(net: Network, certificate: Certificate, folder: Path) -> list[bool]:
    """By the package's checker in floats and balls, by the stand-alone one in floats and fractions."""
    net.save(folder / "network.npz")
    certificate.save(folder / "proof.npz")
    paths = [str(folder / "proof.npz"), str(folder / "network.npz")]
    own = [not check(net, certificate, exact).ok for exact in (False, True)]
    return own + [alone.main([*paths, *more]) == 1 for more in ([], ["--exact"])]


@pytest.mark.parametrize("kind", ["clause", "radius", "input"])
def test_no_factor_beyond_the_range_makes_a_proof(kind: str, tmp_path: Path) -> None:
    net, certificate, unsafe = forgery(kind)
    assert_false(net, certificate, unsafe)
    assert refused(net, certificate, tmp_path) == [True] * 4
    assert "numbers beyond 1e+75" in check(net, certificate).reason


@pytest.mark.parametrize("kind", ["no end", "endless", "box", "sign", "quotient", "length"])
def test_exact_arithmetic_starts_from_bounds_that_hold(kind: str, tmp_path: Path) -> None:
    net, certificate, unsafe = exact_forgery(kind)
    assert_false(net, certificate, unsafe)
    assert refused(net, certificate, tmp_path) == [True] * 4
