"""Certificates of networks with whole numbers, where neurons are exactly zero: balls and floats see other sides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import layercert as lc
from layercert.certificate.ball_maps import SparseBalls, ball_map, ball_matrix
from layercert.network import Network


def whole_numbers(seed: int) -> tuple[Network, np.ndarray]:
    """A network of weights, biases and an input rounded to whole numbers."""
    rng = np.random.default_rng(seed)
    inputs, depth = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    sizes = [inputs, *(int(rng.integers(2, 8)) for _ in range(depth)), int(rng.integers(2, 4))]
    W = [np.round(rng.normal(size=(m, n))) for n, m in itertools.pairwise(sizes)]
    b = [np.round(0.5 * rng.normal(size=m)) for m in sizes[1:]]
    rng.integers(0, 5)
    return Network.from_arrays(W, b), np.round(rng.normal(size=inputs))


@pytest.mark.parametrize(
    ("seed", "norm", "domain"),
    [(47, 3.0, None), (101, math.inf, 1.0)],  # two of 182 random certificates that balls did not follow
)
def test_balls_follow_what_floats_close_by_a_hair(seed: int, norm: float, domain: float | None) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    net, x = whole_numbers(seed)
    box = None if domain is None else (np.minimum(x, -domain), np.maximum(x, domain))
    r = lc.measure(net, x, norm, domain=box, certificate=True, method="adaptive")
    assert r.status == "exact" and r.certificate is not None and r.certificate.radius > 0
    assert lc.check(net, r.certificate).ok
    report = lc.check(net, r.certificate, exact=True)
    assert report.ok, report.reason


#: Two cases of the audit whose certificates balls did not follow: in one the bounds that the layer below leaves decide,
#: in the other ranges that are symmetric but for rounding.
FOUND = {
    "fixed input": (
        [
            [[0.9685854438646918, 0.420464857726582], [1.2222152986001695, 0.46484429232804036]],
            [
                [-0.03660199250960838, -0.8131908990468768],
                [-1.863226376183172, -1.5139571514214603],
                [0.9563774496854742, -0.7645712585572657],
            ],
            [
                [-0.017492890865309082, -0.878528263985496, 0.5313058831819243],
                [-0.8749808945084133, 2.1449938498449206, 1.2681231716457984],
            ],
        ],
        [
            [0.4443242856239696, -0.7603898606091933],
            [-0.30564482060627185, 0.22407467901819092, -0.11029186979814136],
            [-0.04027896352227643, -1.126419863181134],
        ],
        [0.17656201384892856, 0.8395401888775267],
        1.01,
        {
            "domain": ([0.17656201384892856, -math.inf], [0.17656201384892856, 0.84054019]),
            "weights": [5.03986659e-03, 5.95359821],
        },
    ),
    "far scales": (
        [
            [
                [7.467067878313288e-42, -2.41272664165446e-42],
                [2.401496520155788e-36, -3.446312505217228e-51],
                [2.3004721344178005e-37, 5.1174711287984547e-51],
            ],
            [
                [5695791160.857421, 9965051844.135717, 2991539481.738608],
                [-6050619850.6704235, -5100683154.695353, 2648490526.938958],
            ],
            [[-30163.38718567976, 130035.61881447722]],
            [[273579627.25386876], [4177178635.908721], [1019726772.619228], [448337145.734282]],
        ],
        [
            [-9.864589470459184e-46, 1.7978553111210465e-45, 4.572880855545352e-46],
            [-3.0569800848482236e-37, 3.113756559908639e-38],
            [-2.7119262772977697e-24],
            [2.455487151744503e-13, 1.8183652973197393e-13, -1.390208059351788e-13, -1.514308886150767e-13],
        ],
        [-2.963994312847439e-19, -7.011674169885353e-10],
        2.0,
        {},
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_balls_follow_where_the_start_decides(case: str) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    W, b, x, norm, options = FOUND[case]
    net = Network.from_arrays([np.array(v) for v in W], [np.array(v) for v in b])
    r = lc.verify(net, np.array(x), 1e6, norm, certificate=True, method="adaptive", **options)
    assert r.status == "robust" and r.certificate is not None and r.certificate.radius > 1e5
    for exact in (False, True):
        report = lc.check(net, r.certificate, exact=exact)
        assert report.ok, report.reason


def test_the_checker_accepts_a_proof_on_a_ball_a_million_times_as_large_as_what_decides() -> None:
    """The checker's bounds are better than the prover's by rounding, and a multiplier that cancelled the prover's
    halfspace leaves 1e-6 of the checker's, times the radius."""
    net = Network.from_arrays(
        [
            np.array([[0.32993606599853287, 0.0721723874614969, 0.1524375724845377]]),
            np.array([[0.5591563783974268], [-1.5482676163427902], [-0.47255484036727285], [0.8115310795362245]]),
            np.array([
                [-0.03352341263816013, -0.5462132406117639, 0.9325899741055589, 0.16931643238017938],
                [1.9058430094353467, 0.26378892154387534, 1.0730615319782348, -0.16603081546332893],
            ]),
        ],
        [
            np.array([0.2317494931986537]),
            np.array([-0.5015071742629413, -0.15919942229584524, -0.6529972672097999, -0.2205456590721108]),
            np.array([0.14027228033355535, 0.3243428286397867]),
        ],
    )  # fmt: skip
    x = np.array([-0.3418201650999917, -0.1082829913476473, 0.5502938299513913])
    domain = (np.array([-1e9, -math.inf, x[2]]), np.array([math.inf, x[1], x[2]]))
    r = lc.verify(net, x, 1656800.8483440196, 2, domain=domain, certificate=True, method="adaptive")
    assert r.status == "robust" and r.certificate is not None
    report = lc.check(net, r.certificate)
    assert report.ok, report.reason


def test_layers_with_many_zeros_multiply_as_matrices_do() -> None:
    flint = pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    rng = np.random.default_rng(0)
    W = rng.normal(size=(7, 5)) * (rng.random((7, 5)) < 0.25)
    W[3] = 0.0
    sparse, dense = ball_map(W, flint), ball_matrix(W, flint)
    assert isinstance(sparse, SparseBalls) and not isinstance(ball_map(np.ones((3, 3)), flint), SparseBalls)
    left, right = (ball_matrix(rng.normal(size=shape), flint) for shape in ((3, 7), (5, 2)))
    for ours, theirs in ((left * sparse, left * dense), (sparse * right, dense * right)):
        assert (ours.nrows(), ours.ncols()) == (theirs.nrows(), theirs.ncols())
        for i in range(ours.nrows()):
            for j in range(ours.ncols()):
                assert ours[i, j].overlaps(theirs[i, j]) and ours[i, j].rad() < 1e-13
