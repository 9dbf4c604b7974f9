"""Certificates: real ones are accepted by both arithmetics, forgeries are not, hostile files do no harm."""

from __future__ import annotations

import io
import itertools
import json
import math
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.random import Generator

import layercert as lc
from helpers.brute import exact_values
from helpers.proofs import answer_is_certified, certified
from helpers.tiny import degenerate, examples, generic, seeds
from layercert import shipped
from layercert.certificate.checker import check, child_of
from layercert.certificate.claim import GO_ON, Certificate, Tree, load_certificate, sha256
from layercert.certificate.floats import Bounds, FloatArithmetic, Parameters, upper_line
from layercert.certificate.setting import Setting
from layercert.network import Network

#: Files that were written before format 2, and their networks.
FORMAT1 = Path(__file__).parent / "format1"


@examples(dev=40, ci=200)
@given(seed=seeds)
def test_every_answer_is_certified_and_the_certificate_holds(seed: int) -> None:
    for problem in (generic(seed), degenerate(seed)):
        answer_is_certified(problem)


@examples(dev=8, ci=40)
@given(seed=seeds)
def test_ball_arithmetic_agrees(seed: int) -> None:
    problem = generic(seed)
    r = certified(problem)
    assert r.certificate is not None
    assert check(problem.network, r.certificate, exact=True).ok


@pytest.mark.parametrize("method", ["geocert", "layercert-both", "mip"])
def test_answers_of_other_methods_are_certified_too(method: str) -> None:
    problem = replace(generic(3), norm=lc.norms.Norm(math.inf), radius=math.inf)
    r = certified(problem, method=method)
    assert r.certificate is not None and check(problem.network, r.certificate).ok


def test_an_interrupted_run_is_certified_for_the_bound_it_reached() -> None:
    net = lc.load(shipped.path("mnist17_plain_3x50"))
    x = np.load(shipped.path("digits"))["X"][0]
    bounds: list[float] = []

    def stop_after_ten(run: Any, event: object) -> None:
        bounds.append(run.lower)
        if len(bounds) == 10:
            raise KeyboardInterrupt

    r = lc.measure(net, x, method="layercert-both", radius=0.05, domain=(0, 1), certificate=True, watch=stop_after_ten)
    assert r.interrupted and r.status == "undecided"
    assert r.certificate is not None
    report = check(net, r.certificate)
    assert report.ok
    assert report.lower == pytest.approx(r.lower, rel=2e-6)


def test_verify_is_certified() -> None:
    net = lc.load(shipped.path("mnist17_l1_2x20"))
    x = np.load(shipped.path("digits"))["X"][0]
    r = lc.verify(net, x, 0.02, domain=(0, 1), certificate=True)
    assert r.status == "robust"
    assert r.certificate is not None and check(net, r.certificate).lower == pytest.approx(0.02, rel=2e-6)


@pytest.fixture(scope="module")
def real() -> tuple[Network, Certificate]:
    """A certificate of format 1 with a dozen leaves and more, three classes, a box and a witness."""
    net, certificate = lc.load(FORMAT1 / "real_network.npz"), load_certificate(FORMAT1 / "real.npz")
    assert certificate.leaves > 12 and any(GO_ON in tree.layer for tree in certificate.trees)
    return net, certificate


def test_the_sentence_says_what_was_proved(real: tuple[Network, Certificate]) -> None:
    net, certificate = real
    text = str(check(net, certificate))
    assert text.startswith(f"Proved for the network with SHA-256 {net.sha256[:16]}")
    assert certificate.domain is not None
    low, high = (f"{end.min()} to {end.max()}" for end in certificate.domain)
    where = f"of x inside the domain (low {low}, high {high}, width "
    assert f"linf distance {certificate.radius} {where}" in text
    assert f") is given class {certificate.label}, and a point" in text
    assert f"lies at distance {certificate.upper}" in text


def test_a_file_holds_the_same_certificate(real: tuple[Network, Certificate], tmp_path: Path) -> None:
    net, certificate = real
    certificate.save(tmp_path / "c.npz")
    again = load_certificate(tmp_path / "c.npz")
    assert check(net, again) == check(net, certificate)


# Mutations. A mutant may be accepted only if its claim is still true; the ones below all claim something false, or
# break the proof of something true so that it proves nothing.


def mutate_tree(certificate: Certificate, i: int, **arrays: Any) -> Certificate:
    trees = list(certificate.trees)
    trees[i] = replace(trees[i], **arrays)
    return replace(certificate, trees=tuple(trees))


def without(tree: Tree, node: int) -> Tree:
    keep = np.arange(len(tree.layer)) != node
    return Tree(*(getattr(tree, f)[keep] for f in ("layer", "neuron", "rounds", "alpha", "beta", "mu", "touch")))


class TestForgeries:
    def rejected(self, net: Network, certificate: Certificate, text: str = "") -> None:
        report = check(net, certificate)
        assert not report.ok and report.lower == 0.0
        assert text in report.reason, report.reason
        assert not check(net, certificate, exact=True).ok

    def test_another_network(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        weights = [w.copy() for w in net.weights]
        weights[1][0, 0] = np.nextafter(weights[1][0, 0], 9)
        self.rejected(Network.from_arrays(weights, net.biases), certificate, "another network")

    def test_a_raised_radius(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        assert certificate.witness is not None
        for factor in (1 + 1e-5, 1.01, 2.0, 1e3):
            self.rejected(net, replace(certificate, radius=certificate.radius * factor), "not proved")

    @pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf])
    def test_a_senseless_radius(self, real: tuple[Network, Certificate], radius: float) -> None:
        self.rejected(real[0], replace(real[1], radius=radius), "radius")

    def test_another_input(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        assert certificate.witness is not None
        # from a point next to the witness the claimed radius is far too large
        nearer = certificate.x + 0.9 * (certificate.witness - certificate.x)
        self.rejected(net, replace(certificate, x=nearer))

    def test_a_dropped_leaf_and_a_dropped_branch(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        for i, tree in enumerate(certificate.trees):
            for node in np.flatnonzero(tree.layer != GO_ON):  # without one of those a proof may still be whole
                trees = list(certificate.trees)
                trees[i] = without(tree, node)
                report = check(net, replace(certificate, trees=tuple(trees)))
                assert not report.ok

    def test_a_duplicated_branch(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        i = int(np.argmax([t.leaves for t in certificate.trees]))
        tree = certificate.trees[i]
        twice = {
            f: np.concatenate([getattr(tree, f)] * 2)
            for f in ("layer", "neuron", "rounds", "alpha", "beta", "mu", "touch")
        }
        self.rejected(net, mutate_tree(certificate, i, **twice), "superfluous")

    def test_a_neuron_split_twice_or_missing(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        i = int(np.argmax([t.leaves for t in certificate.trees]))
        tree = certificate.trees[i]
        splits = np.flatnonzero(tree.layer > 0)
        same = tree.layer.copy(), tree.neuron.copy()
        for a in same:
            a[splits] = a[splits[0]]
        self.rejected(net, mutate_tree(certificate, i, layer=same[0], neuron=same[1]), "second time")
        wild = tree.neuron.copy()
        wild[splits[0]] = 99
        self.rejected(net, mutate_tree(certificate, i, neuron=wild), "does not exist")

    @pytest.mark.parametrize("name", ["alpha", "beta", "mu"])
    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
    def test_multipliers_out_of_range(self, real: tuple[Network, Certificate], name: str, value: float) -> None:
        net, certificate = real
        for i, tree in enumerate(certificate.trees):
            array = getattr(tree, name).copy()
            array[-1, 0] = value
            self.rejected(net, mutate_tree(certificate, i, **{name: array}))

    @pytest.mark.parametrize("name", ["mu", "beta"])
    @pytest.mark.parametrize("value", [1e99, 1e200, 1e308, 1.7e308])
    def test_overflow_proves_nothing(self, real: tuple[Network, Certificate], name: str, value: float) -> None:
        net, certificate = real
        for factor in (1.01, 4.0):
            forged = replace(certificate, radius=certificate.radius * factor, witness=None, upper=math.inf)
            for i, tree in enumerate(forged.trees):
                assert isinstance(tree, Tree)
                forged = mutate_tree(forged, i, **{name: np.full_like(getattr(tree, name), value)})
            assert not check(net, forged).ok

    @pytest.mark.parametrize("upper", [math.nan, math.inf])
    def test_a_witness_at_no_distance(self, real: tuple[Network, Certificate], upper: float) -> None:
        net, certificate = real
        self.rejected(net, replace(certificate, upper=upper), "the witness is")
        self.rejected(net, replace(certificate, upper=2 * certificate.upper), "nearer than the claimed")

    def test_a_missing_class(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        less = replace(certificate, clauses=certificate.clauses[:1], trees=certificate.trees[:1])
        self.rejected(net, less, "nothing is said about class")

    def test_a_changed_clause(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        C, d, target = certificate.clauses[0]
        easy = ((C, d - 1e3, target), *certificate.clauses[1:])
        self.rejected(net, replace(certificate, clauses=easy), "is not f_")

    def test_another_label(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        assert certificate.label is not None
        self.rejected(net, replace(certificate, label=(certificate.label + 1) % 3))

    def test_a_false_witness(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        assert certificate.domain is not None and certificate.witness is not None
        self.rejected(net, replace(certificate, witness=certificate.x), "not unsafe")
        self.rejected(net, replace(certificate, upper=0.5 * certificate.upper), "farther than")
        outside = (certificate.domain[0], certificate.x.copy())
        self.rejected(net, replace(certificate, domain=outside))

    def test_a_wider_domain_or_a_longer_norm(self, real: tuple[Network, Certificate]) -> None:
        """l_2 balls are inside l_inf balls of the same radius, so p = 2 is a true claim; it may be accepted."""
        net, certificate = real
        report = check(net, replace(certificate, p=2.0))
        assert report.ok or report.lower == 0.0

    def test_hundreds_of_random_mutants(self, real: tuple[Network, Certificate]) -> None:
        """Random damage to the proof. A mutant with the old radius still claims something true and must only not
        crash; with a raised radius none may be accepted."""
        net, certificate = real
        rng = np.random.default_rng(0)
        for i in range(300):
            mutant = random_mutant(rng, certificate)
            if i % 5 == 0:  # a claim that is true is examined to the last leaf, which takes longest
                check(net, mutant)
            assert not check(net, replace(mutant, radius=certificate.radius * 1.001)).ok


def random_mutant(rng: Generator, certificate: Certificate) -> Certificate:
    i = int(rng.integers(len(certificate.trees)))
    tree = certificate.trees[i]
    name = str(rng.choice(["layer", "neuron", "rounds", "alpha", "beta", "mu", "touch"]))
    array = getattr(tree, name).copy()
    at = tuple(int(rng.integers(n)) for n in array.shape)
    if array.dtype.kind == "f":
        array[at] = rng.choice([0.0, 1.0, 0.5, 1e-3, array[at] * 2, abs(rng.normal()) * 10])
    else:
        array[at] = rng.integers(-1, 8)
    return mutate_tree(certificate, i, **{name: array})


class TestHostileFiles:
    def save(self, path: Path, certificate: Certificate) -> bytes:
        certificate.save(path)
        return path.read_bytes()

    def test_truncated_and_garbage_files(self, real: tuple[Network, Certificate], tmp_path: Path) -> None:
        data = self.save(tmp_path / "c.npz", real[1])
        rng = np.random.default_rng(1)
        bad = tmp_path / "bad.npz"
        for cut in rng.integers(0, len(data), 40):
            bad.write_bytes(data[:cut])
            with pytest.raises(lc.LayerCertError, match="not a readable LayerCert certificate"):
                load_certificate(bad)
        for _ in range(150):
            damaged = bytearray(data)
            for at in rng.integers(0, len(data), 5):
                damaged[at] = int(rng.integers(256))
            bad.write_bytes(bytes(damaged))
            try:
                certificate = load_certificate(bad)
            except lc.LayerCertError:
                continue
            if check(real[0], certificate).ok:
                assert certificate.radius <= real[1].radius

    @pytest.mark.parametrize("text", [b"", b"hello", b"PK\x03\x04 and nothing else"])
    def test_not_a_certificate(self, tmp_path: Path, text: bytes) -> None:
        path = tmp_path / "x.npz"
        path.write_bytes(text)
        with pytest.raises(lc.LayerCertError, match="not a readable LayerCert certificate"):
            load_certificate(path)

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("layercert.certificate.claim.LARGEST", 1 << 20)
        path = tmp_path / "bomb.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(3):
                archive.writestr(f"m{i}.npy", bytes(1 << 20))
        with pytest.raises(lc.LayerCertError, match="would unpack to more than"):
            load_certificate(path)

    def test_an_array_that_announces_more_than_it_holds(
        self, real: tuple[Network, Certificate], tmp_path: Path
    ) -> None:
        path = tmp_path / "c.npz"
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.npy", header.getvalue())
        with pytest.raises(lc.LayerCertError, match="size differs from its header"):
            load_certificate(path)

    def test_no_pickle(self, tmp_path: Path) -> None:
        path = tmp_path / "c.npz"
        with path.open("wb") as file:
            np.savez(file, header=np.array([{"a": 1}], dtype=object))
        with pytest.raises(lc.LayerCertError, match="header: it is an array of Python objects, which is never loaded"):
            load_certificate(path)

    def test_another_version(self, real: tuple[Network, Certificate], tmp_path: Path) -> None:
        header = json.dumps({"format": "layercert certificate", "version": 99}).encode()
        path = tmp_path / "c.npz"
        with path.open("wb") as file:
            np.savez(file, header=np.frombuffer(header, np.uint8), x=real[1].x)
        with pytest.raises(lc.LayerCertError, match="version 99, this program reads versions up to 2"):
            load_certificate(path)

    def test_x_and_its_hash_belong_together(self) -> None:
        assert sha256(np.zeros(2)) != sha256(np.array([0.0, 1e-300]))


class TestSoundness:
    """Networks whose radius is known by construction, at scales where floating point is tempted to lie."""

    @pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e3, 1e8])
    @pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
    def test_scaled_weights(self, scale: float, norm: str) -> None:
        # margin = scale*(1 - relu(a) - relu(b)) at (a, b): from (0.1, 0.1) the boundary a + b = 1 is 0.8 away in l1,
        # 0.8/sqrt 2 in l2, 0.4 in linf
        net = Network.from_arrays([np.eye(2) * scale, [[-1.0, -1.0], [0.0, 0.0]]], [np.zeros(2), [scale, 0.0]])
        true = {"l1": 0.8, "l2": 0.8 / math.sqrt(2), "linf": 0.4}[norm]
        r = lc.measure(net, [0.1, 0.1], norm, certificate=True)
        assert r.status == "exact"
        assert r.lower <= true * (1 + 1e-15) and r.upper >= true * (1 - 1e-15)
        assert r.upper == pytest.approx(true, rel=1e-6)
        assert r.certificate is not None and check(net, r.certificate).ok

    @pytest.mark.parametrize("width", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12])
    @pytest.mark.parametrize("gain", [1.0, 1e6])
    def test_narrow_boxes_with_huge_weights(self, width: float, gain: float) -> None:
        """The unsafe point lies in the middle of a box of the given width: 'robust' would be wrong at any width."""
        x = 0.5
        # margin = gain*(x + width/2 - t): zero in the middle of the box [x, x + width]
        net = Network.from_arrays([[[1.0]], [[-gain], [0.0]]], [[0.0], [gain * (x + width / 2), 0.0]])
        r = lc.measure(net, [x], domain=(x, x + width))
        assert r.status != "robust"
        v = lc.verify(net, [x], 0.75 * width, domain=(x, x + width))
        assert v.status != "robust"

    def test_nearly_parallel_hyperplanes(self) -> None:
        # margin = 1 - relu(1e6(t - 0.3)) + relu(1e6(1 + 1e-12)(t - 0.3)) - t: the steep parts cancel to 1e-6(t - 0.3)
        net = Network.from_arrays(
            [[[1e6], [1e6 * (1 + 1e-12)], [1.0]], [[-1.0, 1.0, -1.0], [0.0, 0.0, 0.0]]],
            [[-3e5, -3e5 * (1 + 1e-12), 0.0], [1.0, 0.0]],
        )
        r = lc.measure(net, [0.0], certificate=True)
        assert r.lower <= r.upper
        assert r.status == "exact" and r.upper == pytest.approx(1.0, rel=1e-5)
        assert r.certificate is not None and check(net, r.certificate).ok

    def test_an_upper_line_lies_above_the_relu_at_every_scale(self) -> None:
        """Also where products underflow: the smallest positive numbers made a line that was not above zero."""
        rng = np.random.default_rng(0)
        lo = -np.array([5e-324, 1e-320, 1e-300, *10.0 ** rng.uniform(-320, 300, 500)])
        hi = np.array([5e-324, 1e-10, 1e300, *10.0 ** rng.uniform(-320, 300, 500)])
        su, iu = upper_line(lo, hi, np.ones(len(lo), dtype=np.bool_))
        for a, b, slope, lift in zip(lo, hi, su, iu, strict=True):
            assert Fraction(slope) * Fraction(a) + Fraction(lift) >= 0
            assert Fraction(slope) * Fraction(b) + Fraction(lift) >= Fraction(b)

    def test_what_underflows_is_not_nothing_in_ball_arithmetic(self) -> None:
        """Values of 1e-330 at the first layer, which the others make 1e70: float64 sees none of it."""
        # margin = 1 - k^2 |w/k|, k = 2^664 (about 1e200): from 0 the boundary is at 1/k
        k = 2.0**664
        W = [[[1 / k], [-1 / k]], [[k, k]], [[k]], [[-1.0], [0.0]]]
        net = Network.from_arrays(W, [np.zeros(2), np.zeros(1), np.zeros(1), [1.0, 0.0]])
        r = 1e-130
        claim = Certificate(
            net.sha256, np.zeros(1), 2.0, None, 0, ((np.array([[1.0, -1.0]]), np.zeros(1), 1),), r, None, math.inf,
            (Tree(*np.zeros((3, 1), np.int32), *np.zeros((2, 1, 4)), np.ones((1, 1)), np.zeros((1, 1), np.uint8)),),
        )  # fmt: skip
        for alpha in (0.0, 1.0):
            tree = replace(claim.trees[0], alpha=np.full((1, 4), alpha))
            assert not check(net, replace(claim, trees=(tree,)), exact=True).ok
        assert not check(net, claim).ok

    @pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
    def test_the_fall_of_a_wide_ball(self, p: float) -> None:
        """[0.01, 1.99]^q holds zero as a ball: its upper end counts all the same."""
        flint = pytest.importorskip("flint")
        from layercert.certificate.balls import BallArithmetic

        net = Network.from_arrays([np.ones((2, 2))], [np.zeros(2)])
        arithmetic = BallArithmetic(Setting(net, np.zeros(2), p, 0.5, None))
        wide = flint.arb_mat([[flint.arb(1.0, 0.99), flint.arb(0.0)]])
        assert float(arithmetic._fall(wide, 0).upper()) >= 0.5 * 1.99


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("r", [1e-9, 0.7])
def test_linear_bounds_hold_in_rational_arithmetic(r: float, p: float, boxed: bool) -> None:
    """g.w + s <= mu.(C f - d) at points of the node, and bounds hold every neuron, whatever the file says.

    In a ball of 1e-9 nothing is relaxed: there the inequality is an equality but for rounding.
    """
    rng = np.random.default_rng(7)
    sizes = [4, 5, 5, 4, 3]
    network = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    )
    x = rng.normal(size=4)
    setting = Setting(network, x, p, r, (x - 0.3 * r, x + 2.0 * r) if boxed else None)
    arithmetic = FloatArithmetic(setting)
    start = Bounds(
        [np.zeros(n) for n in network.widths], [-T for T in setting.T[:3]], [T.copy() for T in setting.T[:3]]
    )
    arithmetic.tighten(start, None, 0.0)
    down, up = setting.room
    steps = rng.normal(size=(40, 4))
    steps[:10] = np.concatenate([network.weights[0], -network.weights[0]])  # to the ends of the first layer's bounds
    if math.isinf(p):
        steps = np.sign(steps)
    elif p == 1.0:
        steps = np.where(np.abs(steps) == np.abs(steps).max(axis=1, keepdims=True), np.sign(steps), 0.0)
    steps = np.clip(r * (1 - 1e-15) * steps / np.linalg.norm(steps, ord=p, axis=1, keepdims=True), -down, up)
    steps[30:] *= rng.random((10, 1))
    for w in steps:
        step = [Fraction(float(a)) for a in w]
        values = exact_values(network, [Fraction(float(a)) + b for a, b in zip(x, step, strict=True)])
        node = start.copy()
        for k in range(3):
            assert all(lo <= z <= hi for lo, z, hi in zip(start.lo[k], values[k], start.hi[k], strict=True))
            for neuron in np.flatnonzero(rng.random(len(values[k])) < 0.3):  # splits that this point satisfies
                child = child_of(node, k, int(neuron), 1.0 if values[k][neuron] >= 0 else -1.0)
                assert child is not None
                node = child
        C, d, mu = rng.normal(size=(2, 3)), rng.normal(size=2), rng.random(2)
        alpha = [rng.random(n) for n in network.widths]
        # multipliers in range, or large ones for neurons whose sign is open, where they must count for nothing
        beta = [rng.random(n) * rng.choice([0.0, 1.0]) for n in network.widths]
        if rng.random() < 0.3:
            beta = [np.where(node.side(k) == 0, 100.0, 0.0) for k in range(3)]
        g, s, uppers = arithmetic.objective(C, d, mu, node, Parameters(alpha, beta, alpha))
        value = Fraction(0)
        for weight, row, right in zip(mu, C, d, strict=True):
            inner = sum((Fraction(float(c)) * f for c, f in zip(row, values[3], strict=True)), -Fraction(float(right)))
            value += Fraction(float(weight)) * inner
        line = sum((Fraction(float(a)) * b for a, b in zip(g, step, strict=True)), Fraction(s))
        assert line <= value
        cap = -line - Fraction(1, 10**9)  # a parallel halfspace that just holds the point
        for k, upper in enumerate(uppers):
            x_k = [max(z, Fraction(0)) for z in values[k]]
            part = sum((Fraction(float(a)) * b for a, b in zip(upper.row, x_k, strict=True)), Fraction(upper.constant))
            assert part - Fraction(upper.error) <= value
        # F - value(here) is an objective for which this point is unsafe
        unsafe = [u._replace(constant=math.nextafter(float(Fraction(u.constant) - value), -math.inf)) for u in uppers]
        assert arithmetic.tighten(node, np.asarray(g), s + float(cap), alpha, unsafe)
        for k in range(3):
            assert all(lo <= z <= hi for lo, z, hi in zip(node.lo[k], values[k], node.hi[k], strict=True))


def test_a_negative_weight_would_prove_the_opposite() -> None:
    """A constant margin of -1: every point is unsafe, and minus one times the margin is above zero everywhere."""
    net = Network.from_arrays([np.ones((1, 1)), np.zeros((2, 1))], [[0.0], [0.0, 1.0]])
    for mu in (-1.0, 1.0):
        leaf = Tree(*np.zeros((3, 1), np.int32), *np.zeros((2, 1, 1)), np.array([[mu]]), np.zeros((1, 1), np.uint8))
        claim = (np.array([[1.0, -1.0]]), np.zeros(1), 1)
        false = Certificate(net.sha256, np.zeros(1), 2.0, None, 0, (claim,), 0.5, None, math.inf, (leaf,))
        for exact in (False, True):
            report = check(net, false, exact=exact)
            assert not report.ok
            assert ("a multiplier is negative" if mu < 0 else "unsafe points are not excluded") in report.reason


def test_the_rooms_of_a_domain_are_rounded_up() -> None:
    rng = np.random.default_rng(1)
    x, width = rng.normal(size=200), 10.0 ** rng.uniform(-18, 1, size=(2, 200))
    low, high = x - width[0], x + width[1]
    net = Network.from_arrays([np.ones((2, 200))], [np.zeros(2)])
    down, up = Setting(net, x, 2.0, 1e9, (low, high)).room
    for a, b, c, d, e in zip(low, x, high, down, up, strict=True):
        assert Fraction(d) >= Fraction(b) - Fraction(a) and Fraction(e) >= Fraction(c) - Fraction(b)
        assert d <= (b - a) * (1 + 1e-15) and e <= (c - b) * (1 + 1e-15)


def test_two_children_cover_their_parent() -> None:
    """Every value of the split neuron is in one of them, zero in both; the others keep their bounds."""
    bounds = Bounds([np.zeros(2)], [np.array([-1.0, -3.0])], [np.array([2.0, 4.0])])
    on, off = child_of(bounds, 0, 0, 1.0), child_of(bounds, 0, 0, -1.0)
    assert on is not None and off is not None
    assert (on.lo[0].tolist(), on.hi[0].tolist(), on.phase[0].tolist()) == ([0.0, -3.0], [2.0, 4.0], [1.0, 0.0])
    assert (off.lo[0].tolist(), off.hi[0].tolist(), off.phase[0].tolist()) == ([-1.0, -3.0], [0.0, 4.0], [-1.0, 0.0])
    for lo, hi in ((0.0, 2.0), (-1.0, 0.0), (0.0, 0.0)):  # one side holds nothing but zero, and zero counts
        edge = Bounds([np.zeros(1)], [np.array([lo])], [np.array([hi])])
        assert child_of(edge, 0, 0, 1.0) is not None and child_of(edge, 0, 0, -1.0) is not None
    above = Bounds([np.zeros(1)], [np.array([0.5])], [np.array([1.0])])
    assert child_of(above, 0, 0, -1.0) is None and child_of(above, 0, 0, 1.0) is not None


def test_nothing_is_said_of_an_input_that_is_unsafe_itself() -> None:
    # logits (1 - t, t): at 0.9 class 1, whatever the label
    net = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
    r = lc.measure(net, [0.9], label=0, certificate=True)
    assert r.certificate is not None and r.certificate.radius == 0.0
    for proof in (r.certificate, replace(r.certificate, witness=np.array([1.0]), upper=1.0 - 0.9)):
        text = str(check(net, proof))
        assert "a point that is not given class 0 lies at linf distance" in text
        assert "every point" not in text
    assert not check(net, replace(r.certificate, witness=None, upper=math.inf)).ok


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_each_row_is_tightened_with_slopes_of_its_own(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass only narrows, narrows something, and cuts off no point of the cap."""

    rng = np.random.default_rng(5)
    sizes = [6, 8, 8, 8, 2]
    network = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    )
    setting = Setting(network, rng.normal(size=6), p, 0.3, None)
    arithmetic = FloatArithmetic(setting)
    g, s = rng.normal(size=6), 0.05
    touch = [np.zeros(n) for n in network.widths]

    def tightened() -> Bounds:
        T = setting.T[: network.L]
        bounds = Bounds([np.zeros(n) for n in network.widths], [-t for t in T], [t.copy() for t in T])
        assert arithmetic.tighten(bounds, g, s, touch)
        return bounds

    both = tightened()
    monkeypatch.setattr(arithmetic, "slopes_at_least_points", lambda G, depth: touch[:depth])
    once = tightened()
    assert all((a >= b).all() for a, b in zip(both.lo, once.lo, strict=True))
    assert all((a <= b).all() for a, b in zip(both.hi, once.hi, strict=True))
    assert any((a > b).any() for a, b in zip(both.lo, once.lo, strict=True))
    w = rng.normal(size=(20_000, 6))
    w *= 0.3 * rng.random((20_000, 1)) / np.linalg.norm(w, ord=p, axis=1, keepdims=True)
    w = w[w @ g + s <= 0]
    assert len(w) > 100
    for point in w:
        for z, lo, hi in zip(network.preactivations(setting.x + point), both.lo, both.hi, strict=True):
            assert ((lo <= z) & (z <= hi)).all()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_both_arithmetics_take_the_objective_into_the_rows(p: float) -> None:
    """Bounds of both hold at unsafe points of the ball and are tighter than without the objective.

    They need not be equal: where a row's gradient is zero but for rounding, its least point is anywhere.
    """
    pytest.importorskip("flint")
    from layercert.certificate.balls import BallArithmetic

    rng = np.random.default_rng(2)
    sizes = [4, 6, 6, 6, 3]
    network = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    )
    setting = Setting(network, rng.normal(size=4), p, 0.4, None)
    C, d, mu = np.array([[1.0, -1.0, 0.0]]), np.zeros(1), np.ones(1)
    half = [np.full(n, 0.5) for n in network.widths]
    parameters = Parameters(half, [np.zeros(n) for n in network.widths], half)
    d += network(setting.x)[:2] @ [1.0, -1.0] - 0.3  # unsafe is what comes near this
    w = rng.normal(size=(100_000, 4))
    w *= setting.r * rng.random((len(w), 1)) / np.linalg.norm(w, ord=p, axis=1, keepdims=True)
    h, values = setting.x + w, []
    for W, b in zip(network.weights, network.biases, strict=True):
        values.append(h @ W.T + b)
        h = np.maximum(values[-1], 0.0)
    unsafe = (values[-1] @ C.T <= d)[:, 0]
    assert 100 < unsafe.sum() < 99_000
    least = np.concatenate(
        [*(z[unsafe].min(axis=0) for z in values[:-1]), *(-z[unsafe].max(axis=0) for z in values[:-1])]
    )
    for arithmetic in (FloatArithmetic(setting), BallArithmetic(setting)):
        found = []
        for pulled in (True, False):
            T = setting.T[: network.L]
            bounds = Bounds([np.zeros(n) for n in network.widths], [-t for t in T], [t.copy() for t in T])
            assert arithmetic.tighten(bounds, None, 0.0)
            g, s, uppers = arithmetic.objective(C, d, mu, bounds, parameters)
            assert arithmetic.tighten(bounds, g, s, half, uppers if pulled else ())
            found.append(np.concatenate([*bounds.lo, *(-h for h in bounds.hi)]))
        assert (found[0] <= least).all()
        assert (found[0] > found[1] + 1e-3).any()
