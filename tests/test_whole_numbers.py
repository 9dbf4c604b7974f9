"""Whole numbers and alternatives among the inputs: against enumeration, with certificates, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from helpers.brute import brute_force
from helpers.leaves import one_leaf
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.whole import AXIS, GROUP, LEAF, WholeCertificate
from layercert.cli import main
from layercert.errors import InputError
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.run import How, closest, decide
from layercert.search.branching import Branching
from layercert.system import clock

LOW, HIGH = np.array([-3.5, -4.0, 0.0, 0.0, 0.0]), np.array([3.2, 4.0, 1.0, 1.0, 1.0])
ASKED = {"integer": [0], "one_of": [[2, 3, 4]]}


def random_network(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    return Network.from_arrays(
        [rng.normal(size=(5, 5)), rng.normal(size=(3, 5))], [rng.normal(size=5), rng.normal(size=3)]
    )


def random_input(seed: int) -> np.ndarray:
    rng = np.random.default_rng(50 + seed)
    return np.array([float(rng.integers(-2, 3)), rng.normal(), 0.0, 1.0, 0.0])


def enumerated(problem: Problem, weights: np.ndarray) -> float:
    """Every whole number and every alternative; what is left is a problem in one input, for brute force."""
    best = math.inf
    network, x = problem.network, problem.x
    for k, g in product(range(-3, 4), range(3)):
        held = np.array([k, 0.0, *np.eye(3)[g]])
        W, b = network.weights[0], network.biases[0]
        line = Network.from_arrays([W[:, 1:2], *network.weights[1:]], [W @ held + b, *network.biases[1:]])
        rest = replace(
            problem, network=line, x=x[1:2], domain=(LOW[1:2], HIGH[1:2]), norm=Norm(1.0), discrete=None
        )  # in one dimension the nearest point is the same in all norms
        _, v = brute_force(rest)
        if v is not None:
            moved = np.array([k, v[0], *np.eye(3)[g]]) - x
            best = min(best, Norm(problem.norm.p).value(weights * moved))
    return best


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 2.5])
@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_admissible_point_with_its_proof(seed: int, norm: str | float, tmp_path: Path) -> None:
    network, x = random_network(seed), random_input(seed)
    weights = np.array([1.0, 0.3, 2.0, 1.0, 0.7]) if seed % 2 else np.ones(5)
    given = weights if seed % 2 else None
    problem = robustness(network, x, norm, domain=(LOW, HIGH), weights=given, **ASKED)
    true = enumerated(problem, weights)
    r = lc.measure(network, x, norm, domain=(LOW, HIGH), weights=given, certificate=True, **ASKED)
    assert r.status == ("robust" if math.isinf(true) else "exact")
    if math.isfinite(true):
        assert r.upper == pytest.approx(true, rel=1e-6) and r.lower <= true * (1 + 1e-9)
        assert r.witness is not None and problem.discrete is not None
        assert problem.discrete.admits(r.witness) and problem.is_unsafe(r.witness)
        assert lc.verify(network, x, 0.99 * true, norm, domain=(LOW, HIGH), weights=given, **ASKED).status == "robust"
        found = lc.verify(network, x, 1.01 * true, norm, domain=(LOW, HIGH), weights=given, **ASKED)
        assert found.status == "not_robust" and found.upper <= 1.01 * true
    assert r.certificate is not None, r.note
    r.certificate.save(tmp_path / "proof.npz")
    for exact in (False, True):
        report = check(network, load_certificate(tmp_path / "proof.npz"), exact)
        assert report.ok, report
        assert report.lower >= 0.999 * min(r.lower, problem.reach) and report.lower <= true * (1 + 1e-9)
    assert "one of the inputs 2, 3, 4 1 and the others 0" in report.sentence


def test_whole_numbers_without_a_domain() -> None:
    """f_0 - f_1 = 2.5 - v: a tie at 2.5, so the nearest whole number of the other class is 3."""
    network = Network.from_arrays([[[-1.0], [0.0]]], [[2.5, 0.0]])
    assert lc.measure(network, [0.0]).upper == pytest.approx(2.5, rel=1e-6)
    r = lc.measure(network, [0.0], integer=[0])
    assert r.status == "exact" and r.upper == 3.0 and r.witness is not None and r.witness[0] == 3.0


def test_a_search_that_is_stopped_leaves_bounds_and_goes_on() -> None:
    """Stopped after each box: what is proved by then holds, and at the end the bounds meet."""
    problem = robustness(random_network(11), random_input(11), "l1", domain=(LOW, HIGH), **ASKED)
    assert problem.discrete is not None
    true, search, stops = enumerated(problem, np.ones(5)), Branching(problem, problem.discrete, 1e-6), 0
    while not search.run(lambda box: closest(box), lambda: True):
        assert search.lower <= true * (1 + 1e-9) and search.upper >= true * (1 - 1e-9)
        search.boxes, stops = 0, stops + 1  # it looks at the clock only when it has done something
    assert stops >= 1 and search.lower >= true * (1 - 2e-6) and search.upper <= true * (1 + 1e-6)


def test_an_unsafe_input_is_a_witness_though_there_was_no_time_to_look() -> None:
    """The answer was undecided then, and its certificate, of a radius of 0 and without a witness, was refused."""
    problem = robustness(random_network(11), random_input(11), "l1", domain=(LOW, HIGH), **ASKED)
    other = next(j for j in range(3) if j != problem.network.classify(problem.x))
    unsafe = robustness(random_network(11), random_input(11), "l1", domain=(LOW, HIGH), label=other, **ASKED)
    nothing = replace(closest(problem), status="undecided", lower=0.0, upper=math.inf, witness=None)
    for asked, upper in ((problem, math.inf), (unsafe, 0.0)):
        assert asked.discrete is not None
        search = Branching(asked, asked.discrete, 1e-6)
        search.run(lambda box: nothing, lambda: True)
        assert search.upper == upper


def test_an_input_of_another_class_is_at_distance_zero() -> None:
    network, x = random_network(0), random_input(0)
    r = lc.measure(network, x, label=(network.classify(x) + 1) % 3, **ASKED)
    assert r.status == "exact" and r.upper == 0.0 and "already classified" in r.note


@pytest.fixture(scope="module")
def proof() -> tuple[Network, WholeCertificate]:
    network = random_network(11)  # a group is cut, and the whole number in each of its parts
    r = lc.measure(network, random_input(11), "l1", domain=(LOW, HIGH), certificate=True, **ASKED)
    assert isinstance(r.certificate, WholeCertificate) and check(network, r.certificate).ok
    assert len(r.certificate.parts) > 1 and (r.certificate.kind == GROUP).any()
    return network, r.certificate


def test_a_certificate_that_was_changed_proves_nothing(proof: tuple[Network, WholeCertificate]) -> None:
    network, good = proof
    larger = replace(good.claim, radius=good.radius * 1.01)
    nearer = [i for i, part in enumerate(good.parts) if part is not None]
    without = tuple(None if i == nearer[0] else part for i, part in enumerate(good.parts))
    swapped = tuple(good.parts[nearer[-1]] if i == nearer[0] else part for i, part in enumerate(good.parts))
    for bad, why in (
        (replace(good, claim=larger), "does not reach far enough|nearer than the radius"),
        (replace(good, parts=without), "nearer than the radius"),
        (replace(good, parts=swapped), "another box"),
        (replace(good, kind=good.kind[:-1], index=good.index[:-1], cut=good.cut[:-1]), "missing"),
        (replace(good, groups=((2, 3),)), "whole where it has to be|boxes|box"),
        (replace(good, integer=(0, 1)), "x or the witness is not whole"),
        (replace(good, integer=(0, 9)), "not inputs of the network"),
    ):
        report = check(network, bad)
        assert not report.ok
        assert any(word in report.reason for word in why.split("|")), report.reason


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 2.5])
def test_a_ball_has_its_surface(norm: str | float, exact: bool) -> None:
    """An unsafe whole number at exactly the radius is within it: its box needs a proof, and there is none."""
    net = Network.from_arrays([[[1.0], [-1.0]], [[0.0, 0.0], [1.0, 0.0]]], [[0.0, 0.0], [0.75, 0.0]])  # 1 from 0.75 on
    options = {"domain": (-3, 3), "integer": [0]}
    honest = lc.measure(net, [0.0], norm, certificate=True, **options).certificate  # type: ignore[arg-type]
    assert isinstance(honest, WholeCertificate) and check(net, honest, exact=exact).ok and honest.upper == 1.0
    below = lc.verify(net, [0.0], 3.0, norm, domain=(-3, 0), certificate=True).certificate
    tree = {"kind": np.array([AXIS, LEAF, LEAF]), "index": np.zeros(3, int), "cut": np.zeros(3)}
    for radius, ok in ((0.75, True), (1.0, False), (1.5, False)):
        claim = replace(honest.claim, radius=radius, witness=None, upper=math.inf)
        forged = replace(honest, claim=claim, parts=(below, None), **tree)
        assert check(net, forged, exact=exact).ok is ok
    # nor does a certificate serve that says no more of the box than where an unsafe point is
    alone = lc.measure(net, [1.0], norm, label=0, domain=(1, 1), certificate=True).certificate
    assert isinstance(alone, Certificate) and alone.radius == 0 and check(net, alone, exact=exact).ok
    tree = {
        "kind": np.array([AXIS, LEAF, AXIS, LEAF, LEAF]),
        "index": np.zeros(5, int),
        "cut": np.array([0.0, 0, 1, 0, 0]),
    }
    claim = replace(honest.claim, radius=1.5, witness=None, upper=math.inf)
    report = check(net, replace(honest, claim=claim, parts=(below, alone, None), **tree), exact=exact)
    assert not report.ok and "its witness alone" in report.reason


def test_the_farther_end_of_a_box_is_found_without_rounding() -> None:
    """From 1 it is 1e16 + 1 to -1e16, which is unsafe, and 1e16 - 1 to 1e16; as float64 numbers both are 1e16."""
    net = Network.from_arrays([[[-1.0]], [[0.0], [1.0]]], [[2.0 - 1e16], [1.0, -0.5]])
    assert net.classify([-1e16]) == 1
    clause = np.array([[1.0, -1.0]]), np.zeros(1), 1
    part = Certificate(
        net.sha256, np.ones(1), math.inf, (np.full(1, -1e16), np.full(1, 1e16)), 0, (clause,), 1e16, None, math.inf,
        (one_leaf(1, 1),),
    )  # fmt: skip
    assert check(net, part, exact=True).ok
    tree = np.zeros(1, np.int32)
    report = check(net, WholeCertificate(replace(part, radius=2e16), (0,), (), tree, tree, np.zeros(1), (part,)), True)
    assert not report.ok and "does not reach far enough" in report.reason


def test_a_certificate_of_a_box_with_other_inputs_is_refused(proof: tuple[Network, WholeCertificate]) -> None:
    network, good = proof
    at = next(i for i, part in enumerate(good.parts) if part is not None)
    part = good.parts[at]
    assert part is not None and part.domain is not None
    longer = replace(part, x=np.append(part.x, 0.0))
    for bad in (longer, replace(part, domain=(np.zeros(2), np.ones(2))), replace(longer, domain=(longer.x, longer.x))):
        report = check(network, replace(good, parts=(*good.parts[:at], bad, *good.parts[at + 1 :])))
        assert not report.ok and "another box" in report.reason


def test_without_a_witness_nothing_is_exact() -> None:
    """Stopped before it had one: the bounds were 0 and inf, and the answer was exact."""
    for seconds in (1e-4, 1e-2):
        r = lc.measure(random_network(11), random_input(11), "l1", time_limit=seconds, domain=(LOW, HIGH), **ASKED)
        assert r.status == ("exact" if math.isfinite(r.upper) and r.lower >= r.upper * (1 - 1e-6) else "undecided")
        assert r.status == "exact" or r.note == "time limit reached"


@pytest.mark.parametrize("radius", [0.0, math.inf])
def test_a_radius_of_nothing_and_one_without_end(radius: float) -> None:
    network, x = random_network(11), random_input(11)
    label = network.classify(x)
    r = lc.verify(network, x, radius, domain=(LOW, HIGH), certificate=True, **ASKED)
    if radius == 0.0:
        assert r.status == "robust" and r.lower == 0.0
        assert lc.measure(network, x, radius=0.0, **ASKED).status == "robust"
    else:
        assert r.status == "not_robust" and r.witness is not None and network.classify(r.witness) != label
    wrong = lc.verify(network, x, radius, label=(label + 1) % 3, domain=(LOW, HIGH), **ASKED)
    assert wrong.status == "not_robust" and wrong.upper == 0.0


def test_nothing_unsafe_at_any_distance() -> None:
    """A network whose class depends on nothing near: no witness is no point at distance inf."""
    net = Network.from_arrays([[[1.0], [-1.0]], [[0.0, 0.0], [-1.0, -1.0]]], [[0.0, 0.0], [1.0, 0.0]])
    r = lc.verify(net, [0.0], math.inf, domain=(-3, 3), integer=[0])
    assert r.status == "robust" and r.witness is None and r.upper == math.inf


def test_a_witness_just_beyond_the_radius_leaves_it_robust() -> None:
    """1 from 1 + 2e-10 on: within the gap of the radius, where the nearest point is known and the verdict was not."""
    net = Network.from_arrays([[[0.0, 1e10]], [[0.0], [1.0]]], [[-1e10 - 1.0], [1.0, 0.0]])
    options = {"label": 0, "domain": (np.zeros(2), np.array([1.0, 1.0 + 3e-10])), "integer": [0]}
    r = lc.verify(net, [0.0, 0.0], 1.0, **options)  # type: ignore[arg-type]
    assert r.status == "robust" and r.lower >= 1.0


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 2.5])
def test_safe_points_at_the_radius_are_proved(norm: str | float) -> None:
    """1 is safe and 2 is not: robust within 1, and the box that begins there has its proof."""
    net = Network.from_arrays([[[1.0], [-1.0]], [[0.0, 0.0], [1.0, 0.0]]], [[0.0, 0.0], [1.5, 0.0]])  # 1 from 1.5 on
    r = lc.verify(net, [0.0], 1.0, norm, domain=(-3, 3), integer=[0], certificate=True)
    assert r.status == "robust" and isinstance(r.certificate, WholeCertificate), r.note
    report = check(net, r.certificate)
    assert report.ok and report.lower == 1.0
    at_two = lc.verify(net, [0.0], 2.0, norm, domain=(-3, 3), integer=[0])
    assert at_two.status == "not_robust"


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_network(3).save(tmp_path / "net.npz")
    np.save(tmp_path / "x.npy", random_input(3))
    command = ["measure", str(tmp_path / "net.npz"), "--input", str(tmp_path / "x.npy"), "--norm", "l1", "--json"]
    assert main([*command, "--integer", "0", "--one-of", "2:5", "--certificate", str(tmp_path / "proof.npz")]) == 0
    told = json.loads(capsys.readouterr().out)
    wanted = lc.measure(random_network(3), random_input(3), "l1", **ASKED)
    assert told["upper"] == wanted.upper
    assert main(["check", str(tmp_path / "proof.npz"), str(tmp_path / "net.npz")]) == 0
    assert "Admissible: input 0 a whole number" in capsys.readouterr().out


def test_many_inputs() -> None:
    X = np.array([random_input(3), random_input(4)])
    results = lc.measure_all(random_network(3), X, norm="l1", domain=(LOW, HIGH), jobs=2, **ASKED)
    for r, x in zip(results, X, strict=True):
        assert r.upper == lc.measure(random_network(3), x, "l1", domain=(LOW, HIGH), **ASKED).upper


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"integer": [1]}, "input 1 must be a whole number, x has"),
        ({"integer": [7]}, "input 7 is out of range"),
        ({"one_of": [[1, 2]]}, "exactly one must be 1 and the others 0"),
        ({"one_of": [[2, 3, 4], [4, 0]]}, "input 4 is in two groups of alternatives"),
        ({"one_of": [[3]]}, "needs two inputs or more"),
    ],
)
def test_messages(asked: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lc.measure(random_network(0), random_input(0), **asked)  # type: ignore[arg-type]


def test_a_box_at_the_radius_has_the_proof_that_the_checker_wants() -> None:
    """In norms whose powers are compared in floats, "no nearer than the radius" is not yet "far enough"."""
    net = lc.Network.from_arrays([np.array([[1.0, -0.5]]), np.array([[2.0], [0.5]])], [np.array([1e-25]), np.zeros(2)])
    ends = (np.full(2, -2.0), np.full(2, 2.0))
    result = lc.measure(net, np.array([2.0, 0.0]), 7.3, domain=ends, integer=[0, 1], certificate=True)
    assert result.certificate is not None
    report = lc.check(net, result.certificate)
    assert report.ok, report.reason


@pytest.mark.parametrize("p", [7.3, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("radius", [5e-324, 1e-310, 1e-200])
def test_certificates_at_the_least_radii_are_accepted_or_not_made(p: float, radius: float) -> None:
    """Among denormal floats nothing is a billionth larger: certificates were made that the checker refuses."""
    network = lc.Network.from_arrays([[[1.0, 2.0], [-1.0, 1.0]], [[1.0, 0.5], [0.5, 1.0]]], [[0.1, 0.2], [0.3, 0.0]])
    asked = {"one_of": [[0, 1]], "weights": [2.0**28, 0.5], "domain": (-2.0, 2.0)}
    result = lc.measure(network, [1.0, 0.0], p, radius=radius, certificate=True, **asked)
    assert result.status == "robust"
    if result.certificate is None:
        assert "no room for the margins" in result.note
    else:
        assert lc.check(network, result.certificate).ok


#: y_0 = x, y_1 = 1 - x with x doubled: a tie at x = 1, which rational arithmetic has to settle.
TIE = lc.Network.from_arrays([[[1.0]], [[1.0], [-1.0]]], [[0.0], [0.0, 2.0]])


@pytest.mark.parametrize("looks", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("question", [{"radius": 0.0}, {"fixed": [0]}, {}])
def test_nothing_is_proved_before_x_was_looked_at(looks: int, question: dict[str, object]) -> None:
    """The bound 0 reaches a radius of 0, whoever looked at x; and a look at x ends when the time is up."""
    for ask in (closest, decide):
        problem = lc.robustness(TIE, [1.0], integer=[0], domain=(0.0, 2.0), **question)  # type: ignore[arg-type]
        with clock.until(None, looks=looks):
            result = ask(problem, How(certificate=True))
        assert str(result.status) != "robust" and result.lower == 0.0
        assert result.upper == 0.0 or (result.note and result.certificate is None)
