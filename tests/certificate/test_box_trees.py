"""Box trees: certificates that cut the input, accepted by both arithmetics when real, and never when they lie."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from numpy.random import Generator

import layercert as lc
from helpers.boxes import band, exact_layers, random_net
from helpers.proofs import answer_is_certified, certified
from helpers.tiny import degenerate, examples, generic, seeds
from layercert.certificate.box_tree import prove_box_tree
from layercert.certificate.boxes import MOST_OPEN, examine
from layercert.certificate.checker import check
from layercert.certificate.claim import BoxTree, Certificate, load_certificate
from layercert.certificate.forms import bound_neurons, bound_rows, pack, work
from layercert.certificate.rejected import Rejected
from layercert.certificate.setting import Setting
from layercert.certify import Unproved, prove
from layercert.certify.boxes import Unclosed, box_tree
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.system import clock


@pytest.fixture(scope="module")
def real() -> tuple[Network, Certificate]:
    """Three classes, a box, a witness, and a tree with tens of leaves for each class."""
    rng = np.random.default_rng(2)
    net = random_net(rng, 3, 12, 12, 3)
    x = rng.uniform(-1, 1, 3)
    r = lc.measure(net, x, "linf", domain=(x - 2, x + 2), method="input-split", certificate=True)
    assert r.status == "exact" and r.certificate is not None
    assert all(isinstance(tree, BoxTree) for tree in r.certificate.trees) and r.certificate.leaves > 10
    return net, r.certificate


def test_a_real_one_is_accepted_by_both_arithmetics(real: tuple[Network, Certificate]) -> None:
    net, certificate = real
    for exact in (False, True):
        report = check(net, certificate, exact=exact)
        assert report.ok, report.reason
        assert report.leaves == certificate.leaves and report.lower == certificate.radius
    assert "128 bits" in str(check(net, certificate, exact=True))


@examples(dev=15, ci=80)
@given(seed=seeds)
def test_answers_of_input_splitting_are_certified(seed: int) -> None:
    """Within a radius: where nothing is unsafe, boxes as far as a search looks without one grow to their limit."""
    for problem in (generic(seed), degenerate(seed)):
        near = replace(problem, norm=Norm(math.inf), radius=min(problem.radius, 10.0))
        answer_is_certified(near, method="input-split")


@pytest.mark.parametrize("seed", [967, 1843, 3960])
def test_an_answer_without_radius_is_certified_as_far_as_the_search_looks(seed: int) -> None:
    """Networks without unsafe points whose trees are small at any size of the ball."""
    problem = replace(degenerate(seed), norm=Norm(math.inf))
    assert problem.domain is None and math.isinf(problem.radius)
    r = certified(problem, method="input-split")
    assert r.status == "robust" and "looks no farther" in r.note
    assert r.certificate is not None and all(isinstance(tree, BoxTree) for tree in r.certificate.trees)
    assert check(problem.network, r.certificate).lower == r.lower > 1e3


def test_a_whole_domain_is_covered_to_its_ends() -> None:
    # |t| >= 0.7 and |t| <= 0.69 nowhere in [-2, 2]: two rows that exclude each other
    problem = band(0.7, 0.69)
    certificate = prove(problem, problem.reach, None, math.inf)
    assert isinstance(certificate.trees[0], BoxTree) and certificate.radius == problem.reach
    assert check(problem.network, certificate).ok and check(problem.network, certificate, exact=True).ok
    touching = band(0.7, 0.7)  # unsafe at |t| = 0.7 only
    with pytest.raises(Unclosed, match=r"no number of cuts|needs more than"):
        setting = Setting(touching.network, touching.x, math.inf, touching.reach, touching.domain)
        box_tree(setting, touching.clauses[0].C, touching.clauses[0].d, most=10_000)


def test_the_deadline_is_kept() -> None:
    problem = band(0.7, 0.7)
    setting = Setting(problem.network, problem.x, math.inf, 1.0, problem.domain)
    with clock.until(None, looks=1), pytest.raises(clock.OutOfTime):
        box_tree(setting, problem.clauses[0].C, problem.clauses[0].d)
    with pytest.raises(Unproved, match="the time limit was reached before the proof was complete"):
        prove(problem, 0.5, None, math.inf, deadline=clock.now() - 1.0)


def test_other_norms_may_use_a_tree_of_the_larger_ball() -> None:
    """The l_2 ball lies inside the l_inf ball of the same radius."""
    problem = band(0.7, 0.69)
    certificate = prove(problem, 1.0, None, math.inf)
    assert check(problem.network, replace(certificate, p=2.0)).ok


def test_a_file_holds_the_same_certificate(real: tuple[Network, Certificate], tmp_path: Path) -> None:
    net, certificate = real
    certificate.save(tmp_path / "c.npz")
    again = load_certificate(tmp_path / "c.npz")
    assert check(net, again) == check(net, certificate)
    header = json.loads(np.load(tmp_path / "c.npz")["header"].tobytes())
    assert header["version"] == 1 and header["leaves"] == certificate.leaves
    assert (tmp_path / "c.npz").stat().st_size < 40_000


# Forgeries


def with_tree(certificate: Certificate, i: int, tree: BoxTree) -> Certificate:
    return replace(certificate, trees=(*certificate.trees[:i], tree, *certificate.trees[i + 1 :]))


def largest(certificate: Certificate) -> tuple[int, BoxTree]:
    i = int(np.argmax([tree.leaves for tree in certificate.trees]))
    tree = certificate.trees[i]
    assert isinstance(tree, BoxTree)
    return i, tree


class TestForgeries:
    def rejected(self, net: Network, certificate: Certificate, text: str) -> None:
        for exact in (False, True):
            report = check(net, certificate, exact=exact)
            assert not report.ok and report.lower == 0.0
            assert text in report.reason, report.reason

    def test_a_raised_radius(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        for factor in (1 + 1e-5, 1.01, 2.0, 1e3):
            self.rejected(net, replace(certificate, radius=certificate.radius * factor), "not proved")

    def test_a_dropped_node(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        i, tree = largest(certificate)
        for node in range(len(tree.axis)):
            keep = np.arange(len(tree.axis)) != node
            assert not check(net, with_tree(certificate, i, BoxTree(tree.axis[keep], tree.cut[keep]))).ok

    def test_a_tree_that_ends_early_or_late(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        i, tree = largest(certificate)
        self.rejected(net, with_tree(certificate, i, BoxTree(tree.axis[:-1], tree.cut[:-1])), "missing")
        twice = BoxTree(np.tile(tree.axis, 2), np.tile(tree.cut, 2))
        self.rejected(net, with_tree(certificate, i, twice), "superfluous")

    @pytest.mark.parametrize("axis", [3, 99, 2**31 - 1])
    def test_an_input_that_does_not_exist(self, real: tuple[Network, Certificate], axis: int) -> None:
        net, certificate = real
        i, tree = largest(certificate)
        wild = tree.axis.copy()
        wild[0] = axis
        self.rejected(net, with_tree(certificate, i, BoxTree(wild, tree.cut)), "does not exist")

    @pytest.mark.parametrize("cut", [math.nan, math.inf, -math.inf])
    def test_a_cut_that_is_no_number(self, real: tuple[Network, Certificate], cut: float) -> None:
        net, certificate = real
        i, tree = largest(certificate)
        wild = tree.cut.copy()
        wild[0] = cut
        self.rejected(net, with_tree(certificate, i, BoxTree(tree.axis, wild)), "or nowhere")

    def test_a_lone_leaf(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        i, _ = largest(certificate)
        lone = BoxTree(np.array([-1], np.int32), np.zeros(1))
        self.rejected(net, with_tree(certificate, i, lone), "leaf 0 is not proved")

    def test_cuts_elsewhere_still_cover_the_box(self, real: tuple[Network, Certificate]) -> None:
        """Any cut covers its box, inside or outside: such a tree may prove less, never something false."""
        net, certificate = real
        rng = np.random.default_rng(0)
        for _ in range(200):
            mutant = random_mutant(rng, certificate)
            check(net, mutant)
            assert not check(net, replace(mutant, radius=certificate.radius * 1.001)).ok

    def test_arrays_that_do_not_fit(self, real: tuple[Network, Certificate]) -> None:
        net, certificate = real
        i, tree = largest(certificate)
        for axis, cut, text in (
            (tree.axis[:0], tree.cut[:0], "do not fit"),
            (tree.axis, tree.cut[:-1], "do not fit"),
            (tree.axis[None], tree.cut[None], "do not fit"),
            (tree.axis.astype(np.float64), tree.cut, "whole numbers"),
            (tree.axis, np.zeros(len(tree.cut), np.int64), "whole numbers"),
        ):
            self.rejected(net, with_tree(certificate, i, BoxTree(axis, cut)), text)

    def test_a_bottomless_tree(self, real: tuple[Network, Certificate]) -> None:
        """Cuts at the far end, one after the other: the stack must not grow without bound."""
        net, certificate = real
        i, _ = largest(certificate)
        m = MOST_OPEN + 10
        assert certificate.domain is not None
        deep = BoxTree(np.zeros(m, np.int32), np.full(m, float(certificate.domain[1][0]) + 1.0))
        report = check(net, with_tree(certificate, i, deep))
        assert not report.ok and "deeper" in report.reason


def random_mutant(rng: Generator, certificate: Certificate) -> Certificate:
    i, tree = largest(certificate)
    axis, cut = tree.axis.copy(), tree.cut.copy()
    at = int(rng.integers(len(axis)))
    if rng.random() < 0.5:
        cut[at] = rng.choice([0.0, cut[at] * 2, rng.normal(), rng.normal() * 1e300, np.nextafter(cut[at], 9)])
    else:
        axis[at] = rng.integers(-1, 3)
    return with_tree(certificate, i, BoxTree(axis, cut))


def test_a_domain_without_end_needs_a_finite_ball() -> None:
    net = random_net(np.random.default_rng(0), 2, 3, 2)
    setting = Setting(net, np.zeros(2), math.inf, 1e308 * 1.7, None)
    tree = BoxTree(np.array([-1], np.int32), np.zeros(1))
    with pytest.raises(Rejected, match="not finite"), np.errstate(over="ignore"):
        prove_box_tree(replace(setting, x=np.full(2, 1e308)), np.eye(2), np.zeros(2), tree, exact=False)


# The checker's kernel against rational arithmetic


@examples(dev=40, ci=200)
@given(seed=seeds)
def test_the_kernel_is_right_in_rational_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 4)), *rng.integers(1, 6, size=int(rng.integers(1, 4))).tolist(), 3]
    net = random_net(rng, *sizes)
    scale = 10.0 ** rng.uniform(-6, 6)
    net = Network.from_arrays([W * (scale if i == 0 else 1.0) for i, W in enumerate(net.weights)], net.biases)
    lo = rng.normal(size=sizes[0])
    hi = lo + 10.0 ** rng.uniform(-13, 0.5, size=len(lo)) * (rng.random(len(lo)) < 0.9)
    C, d = rng.normal(size=(2, 3)), rng.normal(size=2)
    packed = pack(net, C, d)
    w = work(packed)
    side = np.zeros((len(packed.widths), packed.W.shape[1]), np.int8)
    assert bound_neurons(packed, w, lo, hi, side)
    bound_rows(packed, w, side)
    left_lo, left_hi = lo.copy(), hi.copy()
    again = np.zeros_like(side)
    closed = examine(packed, work(packed), left_lo, left_hi, again, np.zeros(len(lo)))
    for _ in range(6):
        point = np.clip(lo + rng.random(len(lo)).round(1) * (hi - lo), lo, hi)
        z, f = exact_layers(net, [Fraction(float(v)) for v in point])
        at = 0
        for k, width in enumerate(net.widths, start=1):
            for i in range(width):
                if side[k, i] < 0:
                    assert z[at] <= 0
                else:
                    assert Fraction(float(w.lo[k, i])) <= z[at] <= Fraction(float(w.hi[k, i]))
                at += 1
        rows = [
            sum((Fraction(float(c)) * y for c, y in zip(row, f, strict=True)), -Fraction(float(e)))
            for row, e in zip(C, d, strict=True)
        ]
        for r in range(2):
            step = [Fraction(float(p)) - Fraction(float(m)) for p, m in zip(point, w.mid, strict=True)]
            line = sum((Fraction(float(g)) * x for g, x in zip(w.G[r], step, strict=True)), Fraction(float(w.s[r])))
            assert line <= rows[r]
        if max(rows) <= 0:
            assert not closed and (left_lo <= point).all() and (point <= left_hi).all()


def test_the_kernel_gives_up_on_huge_numbers() -> None:
    net = Network.from_arrays([[[1e200]], [[1.0], [0.0]]], [[0.0], [1.0, 0.0]])
    packed = pack(net, np.array([[1.0, -1.0]]), np.zeros(1))
    lo, hi = np.array([0.4]), np.array([0.6])
    assert not examine(packed, work(packed), lo, hi, np.zeros((2, packed.W.shape[1]), np.int8), np.zeros(1))


def test_a_problem_without_hidden_layers() -> None:
    # logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 nothing happens within 0.25
    net = Network.from_arrays([[[-1.0], [1.0]]], [[1.0, 0.0]])
    clause = Clause(np.array([[1.0, -1.0]]), np.zeros(1), target=1)
    problem = Problem(net, np.array([0.2]), (clause,), Norm(math.inf), 0.25, None, 0)
    certificate = prove(problem, 0.25, None, math.inf, by_boxes=True)
    assert isinstance(certificate.trees[0], BoxTree) and certificate.radius == 0.25
    for exact in (False, True):
        assert check(net, certificate, exact=exact).ok
        assert not check(net, replace(certificate, radius=0.3001), exact=exact).ok


def test_many_inputs_are_proved_by_neurons() -> None:
    rng = np.random.default_rng(4)
    net = random_net(rng, 12, 6, 2)
    r = lc.verify(net, rng.uniform(-1, 1, 12), 1e-3, certificate=True)
    assert r.certificate is not None and not any(isinstance(tree, BoxTree) for tree in r.certificate.trees)
