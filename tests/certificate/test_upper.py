"""What a check proves about the distance from above: the witness's distance, rounded up, or nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import layercert as lc
from layercert.certificate.claim import Certificate, Tree
from layercert.certificate.witness import distance_up
from layercert.network import Network
from layercert.norms import Norm
from layercert.spec.read import parse_spec

ONES = Network.from_arrays([np.vstack([np.ones(50), np.zeros(50)])], [[1.0, 0.0]])  # f_0 - f_1 = 1 + sum of x


@pytest.fixture(scope="module")
def exact() -> lc.Result:
    return lc.measure(ONES, np.zeros(50), norm="l2", certificate=True)


@pytest.mark.parametrize("claimed", [0.0, math.nan, 0.07, math.inf])
def test_without_a_witness_there_is_no_upper_bound(exact: lc.Result, claimed: float) -> None:
    assert exact.certificate is not None
    report = lc.check(ONES, replace(exact.certificate, witness=None, upper=claimed))
    assert report.ok and report.upper == math.inf
    assert "there is no witness, so no upper bound of the distance is proved" in report.sentence


def test_the_upper_bound_is_the_witness_s_not_the_file_s(exact: lc.Result) -> None:
    certificate = exact.certificate
    assert certificate is not None and certificate.witness is not None
    squares = sum((Fraction(v) ** 2 for v in certificate.witness.tolist()), Fraction(0))
    for claimed in (certificate.upper, certificate.upper * (1 - 9e-13)):
        report = lc.check(ONES, replace(certificate, upper=claimed))
        assert report.ok and report.upper == exact.upper
        assert Fraction(report.upper) ** 2 >= squares
        assert report.lower <= report.upper


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 3.0, 100.5, math.inf])
@pytest.mark.parametrize("scale", [1e-321, 1.0, 1e300])
def test_the_checker_measures_as_the_search_does(p: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, v = scale * rng.normal(size=(2, 6))
        assert distance_up(x, v, p) == Norm(p).distance_up(x, v)
    assert distance_up(x, x, p) == 0.0
    assert distance_up(np.full(3, -1.7e308), np.full(3, 1.7e308), p) == math.inf


def test_a_counterexample_s_distance_is_measured_not_read() -> None:
    spec = parse_spec(
        "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
        "(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= Y_0 Y_1))"
    )
    net = Network.from_arrays([[[1.0], [0.0]]], [[0.0, 0.75]])
    found = lc.verify_spec(net, spec, certificate=True)
    (proof,) = found.certificates
    assert proof.witness is not None
    report = lc.check_spec(net, spec, [replace(proof, upper=0.0, x=np.array([77.0]))])
    assert report.ok and report.upper == abs(proof.witness[0] - 0.5)


@pytest.mark.parametrize(("p", "n"), [(2.25, 50), (3.125, 50), (1.0625, 400), (5.25, 400)])
def test_the_dual_exponent_is_not_a_float(p: float, n: int) -> None:
    """s / n^(1/q) with q = p/(p - 1), which float64 rounds up here: a radius above the truth, below the rounded one."""
    flint = pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    q = Fraction(p) / (Fraction(p) - 1)
    with flint.ctx.workprec(300):
        true = flint.arb(1) / flint.arb(n) ** (flint.arb(q.denominator) / q.numerator)
        radius = float(true.mid())
        while not flint.arb(radius) > true:
            radius = math.nextafter(radius, math.inf)
    net = Network.from_arrays([np.vstack([np.ones(n), np.zeros(n)])], [np.array([1.0, 0.0])])
    none = np.zeros(1, np.int32)
    tree = Tree(none, none, none, np.zeros((1, 0)), np.zeros((1, 0)), np.ones((1, 1)), np.zeros((1, 0), np.uint8))
    clause = (np.array([[1.0, -1.0]]), np.zeros(1), 1)
    claim = Certificate(net.sha256, np.zeros(n), p, None, 0, (clause,), radius, None, math.inf, (tree,))
    assert not lc.check(net, claim, exact=True).ok
    assert lc.check(net, replace(claim, radius=radius * (1 - 1e-15)), exact=True).ok


def test_checking_leaves_the_precision_of_flint_as_it_was() -> None:
    flint = pytest.importorskip("flint", reason="python-flint is not installed; run: pip install python-flint")
    network = lc.Network.from_arrays([[[1.0], [-1.0]], [[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0], [0.1, 0.0]])
    proof = lc.measure(network, [0.3], certificate=True).certificate
    assert proof is not None
    with flint.ctx.workprec(77):
        assert lc.check(network, proof, exact=True).ok
        assert not lc.check(network, replace(proof, radius=9.0), exact=True).ok
        assert flint.ctx.prec == 77
