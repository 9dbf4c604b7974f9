"""Facets: upper lines over a neuron's inputs are sound in every checker, prove more than chords; every rule bites."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import layercert as lc
from helpers.facets import agree_on_random_trees, code_of, network_of, put, random_facets, verdicts, without
from helpers.standalone import around
from layercert.certificate.balls import precision
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.entries import entries_of
from layercert.certificate.facets import FacetTable, no_facets, side_by_side
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.certificate.step_balls import StepBalls
from layercert.certificate.step_floats import Objectives, StepFloats, regions_of
from layercert.certificate.steps import FACETS, Objective, StepTree
from layercert.certify.facets import as_stored, counting, needs_with_facets
from layercert.certify.log import Aim, Log, Step
from layercert.facets import Facets
from layercert.network import Network


def listed(facets: Facets | None, net: Network) -> list[tuple[int, int, float, np.ndarray]]:
    """As the stand-alone checker has them, of the first row of a pass."""
    if facets is None:
        return []
    ends = np.cumsum(entries_of(net.maps).counts[facets.neurons])
    parts = np.split(facets.parts, ends)[:-1]
    return [(0, *facet) for facet in zip(facets.neurons.tolist(), facets.shares, parts, strict=True)]


def test_the_line_is_above_relu_on_the_box_and_touches_it() -> None:
    """Theorem 4 in rationals, as the stand-alone checker computes the line: at all corners, where both sides peak."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(1, 5))
        w, b = rng.normal(size=n) * (rng.random(n) < 0.8), float(rng.normal())
        low, high = -rng.random(n), rng.random(n) * (rng.random(n) < 0.8)
        W, biases = [w[None], np.ones((2, 1))], [np.array([b]), np.zeros(2)]
        proof = around(W, biases, np.zeros(n), math.inf, 1.0, True, (low, high))
        parts = rng.random(np.count_nonzero(w))
        _, a, c, _ = proof.bend(1, np.array([[-proof.unit]], dtype=object), [(0, 0, 1.0, parts)])
        a, c = ([Fraction(v, proof.unit**2) for v in units] for units in (a[0], c))
        gaps = []
        for corner in itertools.product(*zip(low, high, strict=True)):
            point = [Fraction(v) for v in corner]
            z = sum((Fraction(t) * v for t, v in zip(w, point, strict=True)), Fraction(b))
            gaps.append(sum((-t * v for t, v in zip(a, point, strict=True)), -c[0]) - max(z, 0))
        assert 0 <= min(gaps) <= Fraction(1, proof.unit)  # the constant is rounded up to a unit


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_no_unsafe_point_is_cut_off_and_all_arithmetics_agree(p: float, boxed: bool) -> None:
    """Nodes side by side, the second without facets: at unsafe points g.w + s and all A_k.x^k + c_k are at most F."""
    tested = bent = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [4, 7, 6, 5, 2], 0.2 if seed == 5 else 0.8)
        x = rng.uniform(-1, 1, 4)
        domain = (x - rng.random(4) * (rng.random(4) < 0.8), x + rng.random(4)) if boxed else None
        setting = Setting(net, x, p, float(rng.uniform(0.3, 1.5)), domain)
        w = rng.uniform(-1, 1, (4000, 4))
        size = np.abs(w).max(axis=1) if math.isinf(p) else (np.abs(w) ** p).sum(axis=1) ** (1 / p)
        w = np.clip(w * (setting.r * rng.random(4000) ** 0.2 / size)[:, None], -setting.room[0], setting.room[1])
        C, d = np.array([[1.0, -1.0], [0.3, 0.4]]), rng.normal(size=2) + 1.0
        w = w[(net(x + w) @ C.T <= d).all(axis=1)][:300]
        if not len(w):
            continue
        z = np.array([np.concatenate(net.preactivations(x + v)) for v in w])
        floats = StepFloats(setting)
        start = floats.start
        # a node's bounds: between what its unsafe points reach and what holds on the ball; one node has them all
        mix = rng.random((3, 18)) * [[0.0], [0.5], [1.0]]
        lo = start.lo[0] + mix * (z.min(axis=0) - 1e-9 - start.lo[0])
        hi = start.hi[0] + mix * (z.max(axis=0) + 1e-9 - start.hi[0])
        regions = regions_of(lo, hi, np.zeros((3, 18), np.int8))
        facets = [random_facets(rng, net), None, random_facets(rng, net)]
        own = Objectives(
            rng.random((3, 18)), rng.random((3, 18)) * (rng.random((3, 18)) < 0.5), rng.random((3, 2)), facets
        )
        halves = floats.halfspaces(C, d, regions, own)
        F = (net(x + w) @ C.T - d) @ own.mu.T
        assert (w @ halves.g.T + halves.s <= F + 1e-12).all()
        for k in range(1, 3):
            part = slice(int(floats.starts[k - 1]), int(floats.starts[k]))
            above = np.maximum(z[:, part], 0) @ halves.uppers.coef[part] + halves.uppers.constant[k]
            assert (above - halves.uppers.slip[k] <= F + 1e-12).all()
        plain = floats.halfspaces(C, d, regions, own._replace(facets=None))
        assert plain.s[1] == halves.s[1] and (plain.g[1] == halves.g[1]).all()
        bent += int((plain.g[0] != halves.g[0]).any())
        tested += len(w)
        if seed < 3:
            agree(setting, C, d, regions, own, halves)
    assert tested > 500 and bent > 3


def agree(setting: Setting, C: np.ndarray, d: np.ndarray, regions: Any, own: Objectives, halves: Any) -> None:
    """Balls, and the stand-alone checker in both arithmetics, have the same halfspaces; floats never prove more."""
    net, x = setting.network, setting.x
    low, high = setting.domain or (np.full(4, -np.inf), np.full(4, np.inf))
    assert own.facets is not None
    for i, facets in enumerate(own.facets):
        cuts = np.cumsum(net.widths)[:-1]
        region = Region(*(np.split(part[i].astype(float), cuts) for part in (regions.lo, regions.hi, regions.phase)))
        with precision():
            ball = StepBalls(setting).objective(C, d, region, Objective(own.alpha[i], own.beta[i], own.mu[i], facets))
            g, s = [float(ball.g[0, j].mid()) for j in range(4)], float(ball.s.lower())
        np.testing.assert_allclose(halves.g[i], g, rtol=1e-9, atol=1e-11)
        assert halves.s[i] <= s and halves.s[i] == pytest.approx(s, rel=1e-9, abs=1e-11)
        for exact in (False, True):
            with np.errstate(all="ignore"):
                proof = around(net.weights, net.biases, x, setting.p, setting.r, exact, (low, high), [(C, d)])
                proof.known = np.array([regions.lo[i], regions.hi[i], regions.phase[i]])
                other = proof.halfspace(C, d, own.mu[i], own.alpha[i], own.beta[i], listed(facets, net))
            theirs, constant = other[0][0] / proof.unit ** other[2], other[1][0] / proof.unit ** (other[2] + 1)
            np.testing.assert_allclose(theirs.astype(float), g, rtol=1e-9, atol=1e-11)
            # outer boxes are rounded in other places, so exact constants may differ in their last digits
            assert constant <= s + 1e-13 and constant == pytest.approx(s, rel=1e-9, abs=1e-11)


def tree_of(net: Network, facets: Facets | None) -> StepTree:
    """One leaf, closed by one halfspace."""
    log, n = Log(net.widths), net.neurons
    event = log.add(np.zeros(1, np.int64), np.zeros(0, np.int64))
    log.root.steps.append(Step(event, Aim(np.ones(n), np.zeros(n), np.ones(1), facets)))
    log.root.closers.append(event)
    return log.pack(False, 1)


def claim_of(net: Network, radius: float, facets: Facets | None, **options: Any) -> Certificate:
    clause = (np.array([[1.0, -1.0]]), np.zeros(1), 1)
    options = {"domain": None, "p": math.inf, **options}
    return Certificate(
        network=net.sha256, x=np.zeros(2), label=0, clauses=(clause,), radius=radius, witness=None, upper=math.inf,
        trees=(tree_of(net, facets),), **options,
    )  # fmt: skip


def shallow() -> Network:
    """f_0 - f_1 = v_1 - relu(v_1 + v_2) + 1.5: within r of 0 at least 1.5 - r. The second neuron is on."""
    return Network.from_arrays([[[1.0, 1.0], [1.0, 0.0]], [[-1.0, 1.0], [0.0, 0.0]]], [[0.0, 5.0], [-3.5, 0.0]])


def deep() -> Network:
    """The same after a layer of neurons that are on, v_1 + 3 and v_2 + 3, and one that reads nothing."""
    first, second = [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    return Network.from_arrays([first, second, [[-1.0, 1.0], [0.0, 0.0]]], [[3.0, -1.0, 3.0], [-6.0, 2.0], [-3.5, 0.0]])


#: relu(v_1 + v_2) <= v_1 + r on the box of radius r: what is left of the objective does not depend on v.
NETWORKS = {
    "shallow": (shallow, Facets(np.array([0]), np.array([1.0]), np.array([1.0, 0.0]))),
    "deep": (deep, Facets(np.array([3]), np.array([1.0]), np.array([1.0, 0.0]))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_facet_proves_what_a_chord_cannot(name: str, tmp_path: Path) -> None:
    make, facets = NETWORKS[name]
    net = make()
    assert verdicts(net, claim_of(net, 1.0, None), tmp_path) == {False}
    assert verdicts(net, claim_of(net, 1.4999, facets), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 1.5001, facets), tmp_path) == {False}  # which is false
    half = facets._replace(shares=np.array([0.5]))  # half a chord: 1.5 - r - r / 2
    assert verdicts(net, claim_of(net, 0.9999, half), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 1.0001, half), tmp_path) == {False}


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_and_the_domain_make_the_box(name: str, tmp_path: Path) -> None:
    """v_2 within r / 0.5, or within the domain; -v_1 within r / 2."""
    make, facets = NETWORKS[name]
    net, weights = make(), np.array([2.0, 0.5])
    assert verdicts(net, claim_of(net, 0.7499, facets, weights=weights), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 0.7501, facets, weights=weights), tmp_path) == {False}
    domain = (np.array([-9.0, -9.0]), np.array([9.0, 0.25]))
    assert verdicts(net, claim_of(net, 2.9999, facets, weights=weights, domain=domain), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 3.0001, facets, weights=weights, domain=domain), tmp_path) == {False}


def test_a_facet_counts_only_where_its_neuron_is_open(tmp_path: Path) -> None:
    """The second neuron is on: a facet there is no claim about it, and the line that it would be is not used."""
    net = shallow()
    both = Facets(np.array([0, 1]), np.ones(2), np.array([1.0, 0.0, 0.0]))
    assert verdicts(net, claim_of(net, 1.4999, both), tmp_path) == {True}
    alone_there = Facets(np.array([1]), np.ones(1), np.zeros(1))
    assert verdicts(net, claim_of(net, 0.7499, alone_there), tmp_path) == {True}  # the chord: 1.5 - 2 r
    assert verdicts(net, claim_of(net, 0.7501, alone_there), tmp_path) == {False}


def test_a_file_keeps_facets_and_old_files_have_none(tmp_path: Path) -> None:
    net = shallow()
    for facets in (None, NETWORKS["shallow"][1]):
        claim_of(net, 0.5, facets).save(tmp_path / "c.npz")
        tree = load_certificate(tmp_path / "c.npz").trees[0]
        assert isinstance(tree, StepTree)
        assert [getattr(tree, name) is None for name in FACETS] == [facets is None] * 4
        with np.load(tmp_path / "c.npz") as arrays:
            assert any("facet" in name for name in arrays.files) == (facets is not None)


#: Of a tree with facets at the neurons 0 (two entries) and 1 (one entry), which closes its leaf as it is.
RULES: dict[str, tuple[Callable[[StepTree], StepTree], str]] = {
    **{f"no {name}": (without(name), "facets need all of the arrays") for name in FACETS},
    "counts of another number of objectives": (put("facet_count", [2, 0]), "facet_count has shape"),
    "a negative count": (put("facet_count", [-2]), "facet_count must be a list of counts"),
    "counts that are not whole": (put("facet_count", [2.0], float), "facet_count must be a list of counts"),
    "a table of counts": (put("facet_count", [[2]]), "facet_count must be a list of counts"),
    "more facets than there are": (put("facet_count", [3]), "facet_at has shape"),
    "fewer facets than there are": (put("facet_count", [1]), "facet_at has shape"),
    "a neuron that does not exist": (put("facet_at", [0, 2]), "facet_at names something"),
    "a negative neuron": (put("facet_at", [-1, 1], np.int8), "facet_at names something"),
    "neurons that are not whole": (put("facet_at", [0.0, 1.0], float), "facet_at holds float64"),
    "neurons that fall": (put("facet_at", [1, 0]), "must increase"),
    "a neuron twice": (
        lambda t: put("facet_part", [255, 0, 255, 0])(put("facet_at", [0, 0])(t)), "must increase"),
    "a share too many": (put("facet_share", [65535] * 3), "facet_share has shape"),
    "a share above one": (put("facet_share", [1.0, 1.5], float), "in facet_share is outside"),
    "a share below zero": (put("facet_share", [1.0, -0.5], float), "in facet_share is outside"),
    "a share that is no number": (put("facet_share", [1.0, math.nan], float), "in facet_share is outside"),
    "signed shares": (put("facet_share", [1, 1], np.int8), "facet_share holds int8"),
    "shares of 32 bits": (put("facet_share", [1, 1], np.uint32), "facet_share holds whole numbers of more"),
    "a part above one": (put("facet_part", [1.0, 0.0, 2.0], float), "in facet_part is outside"),
    "a part below zero": (put("facet_part", [1.0, -0.1, 1.0], float), "in facet_part is outside"),
    "a part that is no number": (put("facet_part", [1.0, 0.0, math.nan], float), "in facet_part is outside"),
    "signed parts": (put("facet_part", [1, 0, 1], np.int8), "facet_part holds int8"),
    "parts of 32 bits": (put("facet_part", [1, 0, 1], np.uint32), "facet_part holds whole numbers of more"),
    "a table of parts": (put("facet_part", [[255, 0, 0]]), "facet_part has shape"),
    "a part too few": (put("facet_part", [255, 0]), "facet_part has 2 numbers where the rows of facet_at have 3"),
    "a part for every input": (put("facet_part", [255, 0, 0, 0]), "facet_part has 4 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_mutant(rule: str, tmp_path: Path) -> None:
    net = shallow()
    good = claim_of(net, 0.5, Facets(np.array([0, 1]), np.ones(2), np.array([1.0, 0.0, 0.0])))
    assert check(net, good).ok and code_of(net, good, tmp_path) == 0
    mutate, reason = RULES[rule]
    tree = good.trees[0]
    assert isinstance(tree, StepTree)
    mutant = replace(good, trees=(mutate(tree),))
    for exact in (False, True):
        report = check(net, mutant, exact)
        assert not report.ok and re.search(reason, report.reason), report.reason
    assert code_of(net, mutant, tmp_path) != 0


def random_tree(rng: np.random.Generator, net: Network, share: float) -> StepTree:
    """One split; each part has two steps with rows for all neurons, multipliers and facets at random."""
    n, first = net.neurons, net.widths[0]
    target, rows = np.repeat(np.arange(n), 2), 2 * n
    above = target >= first
    own = [random_facets(rng, net) for _ in range(4)]
    return StepTree(
        layer=np.array([1, 0, 0]), neuron=np.array([int(rng.integers(first)), 0, 0]), steps=np.array([0, 2, 2]),
        objective=np.arange(4), uses=np.full(4, rows), row=np.tile(np.arange(rows), 4), lam=rng.random(4 * rows),
        mu=np.ones((4, 1)), alpha=rng.random((4, n)), beta=rng.random((4, n)) * 0.1,
        target=target, side=np.tile([1, -1], n), pull=rng.random(rows) * above * 0.5,
        slope_count=first * above, slope_at=np.tile(np.arange(first), above.sum()),
        slope=rng.random(first * above.sum()),
        split_count=0 * target, split_at=target[:0], split=np.zeros(0),
        facet_count=np.array([len(facets.neurons) for facets in own]),
        facet_at=np.concatenate([facets.neurons for facets in own]),
        facet_share=share * np.concatenate([facets.shares for facets in own]),
        facet_part=np.concatenate([facets.parts for facets in own]),
    )  # fmt: skip


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_checkers_agree_on_random_trees_and_prove_nothing_false(norm: str, tmp_path: Path) -> None:
    """Splits, rows with shares of the objective, and facets together; brute force knows the true radius."""
    agree_on_random_trees(random_tree, norm, tmp_path)


def test_random_facets_in_real_certificates(tmp_path: Path) -> None:
    """Whatever they are: all checkers say the same, and a radius beyond the witness is proved by none."""
    rng = np.random.default_rng(28)
    sizes = [4, 8, 8, 3]
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    net = Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in sizes[1:]])
    r = lc.measure(net, rng.uniform(-1, 1, 4), "l2", certificate=True)
    real = r.certificate
    assert isinstance(real, Certificate) and real.leaves > 2
    accepted = refused = 0
    for turn, share in enumerate([1e-12, 1e-10, 1e-7, 1e-3, 0.1, 0.5, 1.0, 1e-11, 0.9, 1e-9, 0.7]):
        trees = []
        for tree in real.trees:
            assert isinstance(tree, StepTree)
            own = [random_facets(rng, net, 0.4) for _ in tree.mu]
            trees.append(
                replace(
                    tree,
                    facet_count=np.array([len(facets.neurons) for facets in own]),
                    facet_at=np.concatenate([facets.neurons for facets in own]),
                    facet_share=share * np.concatenate([facets.shares for facets in own]),
                    facet_part=np.concatenate([facets.parts for facets in own]),
                )
            )
        bent = replace(real, trees=tuple(trees), radius=real.radius * (0.3 if turn % 2 else 1.0))
        ok = check(net, bent).ok
        assert (code_of(net, bent, tmp_path) == 0) == ok
        assert turn > 2 or check(net, bent, exact=True).ok == ok
        accepted, refused = accepted + ok, refused + (not ok)
        false = replace(bent, radius=real.upper * (1 + 1e-9))
        assert not check(net, false).ok and code_of(net, false, tmp_path) == 1
    assert accepted > 1 and refused > 1


def test_what_is_stored_is_what_was_rounded() -> None:
    rng = np.random.default_rng(1)
    net = network_of(rng, [5, 6, 4, 2], 0.7)
    facets = as_stored(random_facets(rng, net))
    assert as_stored(facets).parts.tolist() == facets.parts.tolist()
    tree = tree_of(net, facets)
    assert tree.facet_part is not None and tree.facet_part.dtype == np.uint16
    assert tree.facet_share is not None and tree.facet_share.dtype == np.uint16
    read = FacetTable(tree, entries_of(net.maps)).of(0)
    assert read is not None
    for before, after in zip(facets, read, strict=True):
        assert before.tolist() == after.tolist()


def test_facets_that_do_not_fit_are_refused_before_a_kernel_reads_them() -> None:
    net = shallow()
    floats = StepFloats(Setting(net, np.zeros(2), math.inf, 1.0, None))
    for facets, reason in (
        (Facets(np.array([0]), np.ones(1), np.ones(1)), "1 parts where the rows of their neurons have 2"),
        (Facets(np.array([2]), np.ones(1), np.ones(1)), "neurons that exist"),
        (Facets(np.array([1, 0]), np.ones(2), np.ones(3)), "increasing order"),
        (Facets(np.array([1]), np.ones(1), np.array([1.5])), r"in \[0, 1\]"),
    ):
        own = Objectives(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 1)), [facets])
        with pytest.raises(ValueError, match=reason):
            floats.halfspaces(np.array([[1.0, -1.0]]), np.zeros(1), floats.start, own)


def test_kernels_are_compiled_once_for_objectives_with_and_without_facets() -> None:
    setting = Setting(shallow(), np.zeros(2), math.inf, 1.0, None)
    lanes = side_by_side([NETWORKS["shallow"][1], None], setting, setting.noise)
    assert numba.typeof(lanes) == numba.typeof(no_facets(1))


def test_a_halfspace_rests_on_no_other_bounds() -> None:
    """Bounds that it does not need may be anything looser; each that it needs counts in some case."""
    needed_ends = moved = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [4, 7, 6, 5, 2], 0.8)
        floats = StepFloats(Setting(net, rng.uniform(-1, 1, 4), math.inf, 0.8, None))
        sizes = floats.setting.entries.counts
        middle, width = rng.normal(size=(2, 18)) * 0.5, rng.random((2, 18)) + 0.1
        regions = regions_of(middle - width, middle + width, np.zeros((2, 18), np.int8))
        facets = [random_facets(rng, net), random_facets(rng, net)]
        own = Objectives(rng.random((2, 18)), np.zeros((2, 18)), np.ones((2, 1)), facets)
        C, d = np.array([[1.0, -1.0]]), np.zeros(1)
        halves = floats.halfspaces(C, d, regions, own)
        coef = halves.uppers.coef
        # as certificates hold them: slopes of neurons that are settled, and only facets that count
        alpha = np.where(coef.T > 0, np.where(regions.side == 0, own.alpha, regions.side > 0), 0.0)
        own = Objectives(
            alpha, own.beta, own.mu, [counting(facets[i], coef[:, i], regions.side[i], sizes) for i in (0, 1)]
        )
        again = floats.halfspaces(C, d, regions, own)
        np.testing.assert_allclose(again.s, halves.s, rtol=1e-12)
        counts, deps = needs_with_facets(
            coef, regions, own.beta, np.arange(72).reshape(2, 36), own.facets or (), floats.setting
        )
        assert counts.sum() == len(deps) and (deps[: counts[0]] < 36).all() and (deps[counts[0] :] >= 36).all()
        needed = np.isin(np.arange(72), deps).reshape(2, 18, 2)
        looser = np.where(needed, 0.0, rng.random((2, 18, 2)))
        loose = regions_of(regions.lo - looser[..., 0], regions.hi + looser[..., 1], regions.phase)
        after = floats.halfspaces(C, d, loose, own)
        np.testing.assert_allclose(after.g, halves.g, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(after.s, halves.s, rtol=1e-9, atol=1e-9)
        needed_ends += len(deps)
        all_looser = regions_of(regions.lo - 0.3, regions.hi + 0.3, regions.phase)
        moved += int((floats.halfspaces(C, d, all_looser, own).s < halves.s - 1e-6).all())
    assert 72 < needed_ends < 12 * 72 * 0.9 and moved > 8
