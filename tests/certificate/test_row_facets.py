"""Facets in rows: sound in every checker, they bound neurons better than chords do; every rule bites."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from helpers.facets import agree_on_random_trees, code_of, network_of, put, random_facets, verdicts, without
from helpers.standalone import around
from layercert.certificate.balls import precision
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.entries import entries_of
from layercert.certificate.facets import side_by_side
from layercert.certificate.lanes import Uses
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.certificate.step_balls import StepBalls
from layercert.certificate.step_floats import Objectives, StepFloats, no_halfspaces, part_of, regions_of
from layercert.certificate.steps import ROW_FACETS, Objective, Passes, StepTree
from layercert.facets import Facets
from layercert.network import Network


def arrays_of(own: list[Facets | None]) -> dict[str, Any]:
    """The arrays of a tree whose rows have these facets."""
    some = [facets for facets in own if facets is not None]
    return {
        "row_facet_count": np.array([0 if facets is None else len(facets.neurons) for facets in own]),
        "row_facet_at": np.concatenate([np.zeros(0, np.int64), *(facets.neurons for facets in some)]),
        "row_facet_share": np.concatenate([np.zeros(0), *(facets.shares for facets in some)]),
        "row_facet_part": np.concatenate([np.zeros(0), *(facets.parts for facets in some)]),
    }


def below(facets: Facets, net: Network, layer: int) -> Facets | None:
    """The facets of the neurons in the layers (from 0) below one."""
    keep = facets.neurons < sum(net.widths[:layer])
    sizes = entries_of(net.maps).counts[facets.neurons]
    return Facets(facets.neurons[keep], facets.shares[keep], facets.parts[np.repeat(keep, sizes)]) if layer else None


def listed(own: list[Facets | None], net: Network) -> list[tuple[int, int, float, np.ndarray]]:
    """As the stand-alone checker has those of some rows."""
    found = []
    for row, facets in enumerate(own):
        if facets is not None:
            cuts = np.cumsum(entries_of(net.maps).counts[facets.neurons])[:-1]
            parts = np.split(facets.parts, cuts)
            each = zip(facets.neurons.tolist(), facets.shares, parts, strict=False)
            found += [(row, at, share, part) for at, share, part in each]
    return found


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_no_unsafe_point_is_cut_off_and_all_arithmetics_agree(p: float, boxed: bool) -> None:
    """Rows of two nodes side by side, with pulls and multipliers of sides: h.w + c <= t z + pull F."""
    tested = bent = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [4, 7, 6, 5, 2], 0.3 if seed == 5 else 0.8)
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
        mix = rng.random((2, 18)) * [[0.3], [1.0]]
        lo = start.lo[0] + mix * (z.min(axis=0) - 1e-9 - start.lo[0])
        hi = start.hi[0] + mix * (z.max(axis=0) + 1e-9 - start.hi[0])
        regions = regions_of(lo, hi, np.zeros((2, 18), np.int8))
        aims = Objectives(rng.random((2, 18)), rng.random((2, 18)) * 0.2, rng.random((2, 2)), None)
        halves = floats.halfspaces(C, d, regions, aims)
        F = (net(x + w) @ C.T - d) @ aims.mu.T
        for k in (1, 2):
            first, m = int(floats.starts[k]), 12
            own = [None if i == 3 else below(random_facets(rng, net), net, k) for i in range(m)]
            node = np.sort(rng.integers(0, 2, m))
            uses = Uses(
                node, node, rng.integers(first, int(floats.starts[k + 1]), m), rng.choice([1.0, -1.0], m),
                rng.random(m) * (rng.random(m) < 0.5), rng.random((first, m)), rng.normal(size=(first, m)) * 0.1,
            )  # fmt: skip
            with_facets = uses._replace(facets=side_by_side(own, setting, floats.noise, node))
            trace = np.zeros((first, m))
            G, c, _ = floats.functions(regions, halves, k, with_facets, trace)
            real = z[:, uses.neuron] * uses.side + uses.pull * F[:, node]
            assert (w @ G.T + c <= real + 1e-12).all()
            plain, plain_c, _ = floats.functions(regions, halves, k, uses)
            assert (plain[3] == G[3]).all() and plain_c[3] == c[3]
            bent += int((plain != G).any(axis=1).sum())
            # the coefficients are those before facets take theirs; those of the layer next to the rows do not change
            other = np.zeros((first, m))
            floats.functions(regions, halves, k, uses, other)
            top = slice(int(floats.starts[k - 1]), first)
            np.testing.assert_allclose(trace[top], other[top], rtol=1e-12)
            for part in (slice(0, 5), slice(5, m)):  # some of the lanes at a time
                few = floats.functions(regions, halves, k, part_of(with_facets, part))
                np.testing.assert_allclose(few[0], G[part], rtol=1e-12, atol=1e-15)
                np.testing.assert_allclose(few[1], c[part], rtol=1e-12, atol=1e-15)
            tested += len(w)
            if seed < 3:
                lams = rng.random(m) * (rng.random(m) < 0.5)
                values = floats.least(*floats.functions(regions, halves, k, with_facets), halves, node, lams)
                agree(setting, (C, d, aims, k), regions, with_facets, own, lams, values)
    assert tested > 500 and bent > 60


def agree(
    setting: Setting,
    about: Any,
    regions: Any,
    uses: Any,
    own: list[Facets | None],
    lams: np.ndarray,
    values: np.ndarray,
) -> None:
    """Balls, and the stand-alone checker in both arithmetics, prove the same bounds; floats never prove more."""
    C, d, aims, k = about
    net, x, starts = setting.network, setting.x, np.cumsum([0, *setting.network.widths])
    low, high = setting.domain or (np.full(4, -np.inf), np.full(4, np.inf))
    cuts = starts[1:-1]
    for i in range(len(values)):
        node = int(uses.node[i])
        aim = Objective(aims.alpha[node], aims.beta[node], aims.mu[node])
        known = np.array([regions.lo[node], regions.hi[node], regions.phase[node]], float)
        known[0, starts[k] :], known[1, starts[k] :] = -1e9, 1e9  # what is proved is what is seen
        slopes, splits = uses.slopes[:, i][None], uses.splits[:, i][None]
        row = Passes(
            uses.neuron[i : i + 1] - starts[k], uses.side[i : i + 1], uses.pull[i : i + 1], lams[i : i + 1], slopes,
            splits, facets=[own[i]],
        )  # fmt: skip
        end = 0 if uses.side[i] > 0 else 1
        region = Region(*(np.split(part.copy(), cuts) for part in (regions.lo[node], regions.hi[node], known[2])))
        with precision():
            balls = StepBalls(setting)
            half = balls.objective(C, d, region, aim)
            region.lo[k][:], region.hi[k][:] = -1e9, 1e9
            assert balls.narrow(region, half, k, row)
            value = float((region.lo, region.hi)[end][k][row.neurons[0]]) * uses.side[i]
        assert values[i] <= value and values[i] == pytest.approx(value, rel=1e-9, abs=1e-11)
        for exact in (False, True):
            with np.errstate(all="ignore"):
                proof = around(net.weights, net.biases, x, setting.p, setting.r, exact, (low, high), [(C, d)])
                proof.known = np.array([regions.lo[node], regions.hi[node], regions.phase[node]], float)
                halfspace = proof.halfspace(C, d, aim.mu, aim.alpha, aim.beta)
                proof.known = known.copy()
                proof.use(
                    k + 1, uses.neuron[i : i + 1], uses.side[i : i + 1].astype(int), uses.pull[i : i + 1],
                    lams[i : i + 1], np.inf, slopes, splits, halfspace, listed([own[i]], net),
                )  # fmt: skip
            other = float(proof.known[end, uses.neuron[i]]) * uses.side[i]
            assert other <= value + 1e-12 and other == pytest.approx(value, rel=1e-9, abs=1e-11)


def corners(W: np.ndarray, b: np.ndarray, r: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Where lines z_j = 0 and the sides of the box meet: a piecewise linear function has its ends there."""
    sides = [(Fraction(1), Fraction(0), -r), (Fraction(1), Fraction(0), r)]
    sides += [(b_, a, c) for a, b_, c in sides]
    lines = sides + [(Fraction(u), Fraction(v), Fraction(c)) for (u, v), c in zip(W, b, strict=True)]
    found = []
    for (a, b1, c), (d, e, f) in itertools.combinations(lines, 2):
        if det := a * e - b1 * d:
            point = (b1 * f - c * e) / det, (c * d - a * f) / det
            if max(map(abs, point)) <= r:
                found.append(point)
    return found


def test_a_row_proves_no_more_than_is_true_in_rationals() -> None:
    """Whatever shares and parts are: the constant of a line is the checker's own. Often a facet is better than the
    chord, and with the right one there is no gap at all."""
    better = closed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        W, b = rng.integers(-2, 3, (4, 2)).astype(float), rng.integers(-2, 3, 4) / 2.0
        V, c = rng.integers(-2, 3, (1, 4)).astype(float), np.zeros(1)
        net = Network.from_arrays([W, V, [[1.0], [0.0]]], [b, c, np.zeros(2)])
        r = Fraction(int(rng.integers(1, 5)), 2)
        least = []
        for point in corners(W, b, r):
            z = [Fraction(u) * point[0] + Fraction(v) * point[1] + Fraction(t) for (u, v), t in zip(W, b, strict=True)]
            least.append(sum(Fraction(weight) * max(value, 0) for weight, value in zip(V[0], z, strict=True)))
        true = {1: min(least), -1: -max(least)}
        setting = Setting(net, np.zeros(2), math.inf, float(r), None)
        proof = around(net.weights, net.biases, np.zeros(2), math.inf, float(r), True)
        floats = StepFloats(setting)
        for side in (1, -1):
            proved = []
            for turn in range(12):
                facets = below(random_facets(rng, net, 1.0), net, 1)
                assert facets is not None
                if turn > 3:
                    facets = facets._replace(shares=np.ones(4), parts=np.rint(facets.parts))
                slopes, at, zero = rng.integers(0, 2, (1, 4)).astype(float), np.array([4]), np.zeros(1)
                found = []
                for own in (facets, None):
                    proof.known = np.hstack([proof.start[:, :4], [[-1e9], [1e9], [0.0]]])
                    more = listed([own], net)
                    proof.use(2, at, np.array([side]), zero, zero, np.inf, slopes, 0 * slopes, None, more)
                    found.append(side * float(proof.known[0 if side > 0 else 1, 4]))
                assert max(found) <= true[side]
                better += found[0] > found[1] + 1e-9
                none = floats.halfspaces(np.array([[1.0, -1.0]]), np.zeros(1), floats.start, first_aim(5))
                one = np.zeros(1, np.intp)
                uses = Uses(one, one, at, np.array([float(side)]), zero, slopes.T.copy(), np.zeros((0, 0)))
                uses = uses._replace(facets=side_by_side([facets], setting, floats.noise, one))
                value = floats.least(*floats.functions(floats.start, none, 1, uses), none, one, zero)[0]
                assert value <= true[side] and value == pytest.approx(found[0], abs=1e-10)
                proved.append(found[0])
            closed += max(proved) > true[side] - 1e-12
    assert better > 15 and closed > 15, (better, closed)


def first_aim(neurons: int) -> Objectives:
    return Objectives(np.ones((1, neurons)), np.zeros((1, neurons)), np.ones((1, 1)), None)


def shallow() -> Network:
    """f_0 - f_1 = relu(u) - 0.1 with u = v_1 - relu(v_1 + v_2) + 1.5, which is at least 1.5 - r within r of 0."""
    return Network.from_arrays(
        [[[1.0, 1.0], [1.0, 0.0]], [[-1.0, 1.0]], [[1.0], [0.0]]], [[0.0, 5.0], [-3.5], [0.0, 0.1]]
    )


def deep() -> Network:
    """The same after a layer of neurons that are on, v_1 + 3 and v_2 + 3, and one that reads nothing."""
    first, second = [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    return Network.from_arrays(
        [first, second, [[-1.0, 1.0]], [[1.0], [0.0]]], [[3.0, -1.0, 3.0], [-6.0, 2.0], [-3.5], [0.0, 0.1]]
    )


#: relu(v_1 + v_2) <= v_1 + r on the box of radius r: what is left of u does not depend on v.
NETWORKS: dict[str, tuple[Callable[[], Network], Facets]] = {
    "shallow": (shallow, Facets(np.array([0]), np.array([1.0]), np.array([1.0, 0.0]))),
    "deep": (deep, Facets(np.array([3]), np.array([1.0]), np.array([1.0, 0.0]))),
}


def tree_of(net: Network, facets: Facets | None) -> StepTree:
    """One leaf. Its two rows bound u: from below, with the facets; from above by F <= 0, that is u <= 0.1."""
    n, none = net.neurons, np.zeros(0, np.int64)
    arrays = {} if facets is None else arrays_of([facets, None])
    return StepTree(
        layer=np.zeros(1, np.int64), neuron=np.zeros(1, np.int64), steps=np.ones(1, np.int64),
        objective=np.zeros(1, np.int64), uses=np.array([2]), row=np.arange(2), lam=np.zeros(2), mu=np.ones((1, 1)),
        alpha=np.ones((1, n)), beta=np.zeros((1, n)), target=np.full(2, n - 1), side=np.array([1, -1]),
        pull=np.array([0.0, 1.0]), slope_count=np.zeros(2, np.int64), slope_at=none, slope=np.zeros(0),
        split_count=np.zeros(2, np.int64), split_at=none, split=np.zeros(0), **arrays,
    )  # fmt: skip


def claim_of(net: Network, radius: float, facets: Facets | None, **options: Any) -> Certificate:
    clause = (np.array([[1.0, -1.0]]), np.zeros(1), 1)
    options = {"domain": None, "p": math.inf, **options}
    return Certificate(
        network=net.sha256, x=np.zeros(2), label=0, clauses=(clause,), radius=radius, witness=None, upper=math.inf,
        trees=(tree_of(net, facets),), **options,
    )  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_leaf_that_only_a_facet_of_a_row_closes(name: str, tmp_path: Path) -> None:
    make, facets = NETWORKS[name]
    net = make()
    assert verdicts(net, claim_of(net, 0.6999, None), tmp_path) == {True}  # the chord: u >= 1.5 - 2 r
    assert verdicts(net, claim_of(net, 0.7001, None), tmp_path) == {False}
    assert verdicts(net, claim_of(net, 1.3999, facets), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 1.4001, facets), tmp_path) == {False}  # which is false
    half = facets._replace(shares=np.array([0.5]))  # half a chord: u >= 1.5 - r - r / 2
    assert verdicts(net, claim_of(net, 0.9333, half), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 0.9334, half), tmp_path) == {False}


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_and_the_domain_make_the_box(name: str, tmp_path: Path) -> None:
    """v_2 within r / 0.5, or within the domain; -v_1 within r / 2."""
    make, facets = NETWORKS[name]
    net, weights = make(), np.array([2.0, 0.5])
    assert verdicts(net, claim_of(net, 0.6999, facets, weights=weights), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 0.7001, facets, weights=weights), tmp_path) == {False}
    domain = (np.array([-9.0, -9.0]), np.array([9.0, 0.25]))
    assert verdicts(net, claim_of(net, 2.7999, facets, weights=weights, domain=domain), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 2.8001, facets, weights=weights, domain=domain), tmp_path) == {False}


def test_a_facet_counts_only_where_its_neuron_is_open(tmp_path: Path) -> None:
    """The second neuron is on: a facet there is no claim about it, and the line that it would be is not used."""
    net = shallow()
    both = Facets(np.array([0, 1]), np.ones(2), np.array([1.0, 0.0, 0.0]))
    assert verdicts(net, claim_of(net, 1.3999, both), tmp_path) == {True}
    alone_there = Facets(np.array([1]), np.ones(1), np.zeros(1))
    assert verdicts(net, claim_of(net, 0.6999, alone_there), tmp_path) == {True}
    assert verdicts(net, claim_of(net, 0.7001, alone_there), tmp_path) == {False}


def test_the_other_row_has_no_use_of_them(tmp_path: Path) -> None:
    """Facets belong to their row: with those of the first one at the second nothing is gained."""
    net, facets = shallow(), NETWORKS["shallow"][1]
    good = claim_of(net, 1.3999, facets)
    tree = good.trees[0]
    assert isinstance(tree, StepTree)
    moved = replace(good, trees=(put("row_facet_count", [0, 1])(tree),))
    assert verdicts(net, moved, tmp_path) == {False}
    twice = replace(good, trees=(replace(tree, **arrays_of([facets, facets])),))  # neurons increase in each row
    assert verdicts(net, twice, tmp_path) == {True}


def test_a_file_keeps_them_and_whoever_ignores_them_proves_less(tmp_path: Path) -> None:
    net = shallow()
    for facets in (None, NETWORKS["shallow"][1]):
        claim = claim_of(net, 1.3, facets)
        claim.save(tmp_path / "c.npz")
        tree = load_certificate(tmp_path / "c.npz").trees[0]
        assert isinstance(tree, StepTree)
        assert [getattr(tree, name) is None for name in ROW_FACETS] == [facets is None] * 4
        with np.load(tmp_path / "c.npz") as arrays:
            assert any("facet" in name for name in arrays.files) == (facets is not None)
        bare = replace(tree, **dict.fromkeys(ROW_FACETS))
        assert verdicts(net, replace(claim, trees=(bare,)), tmp_path) == {False}


#: Of a tree whose first row has facets at the neurons 0 (two entries) and 1 (one entry), and closes its leaf as it is.
RULES: dict[str, tuple[Callable[[StepTree], StepTree], str]] = {
    **{f"no {name}": (without(name), "facets need all of the arrays") for name in ROW_FACETS},
    "counts of another number of rows": (put("row_facet_count", [2]), "row_facet_count has shape"),
    "counts of too many rows": (put("row_facet_count", [2, 0, 0]), "row_facet_count has shape"),
    "a negative count": (put("row_facet_count", [3, -1]), "row_facet_count must be a list of counts"),
    "counts that are not whole": (put("row_facet_count", [2.0, 0.0], float), "row_facet_count must be a list"),
    "a table of counts": (put("row_facet_count", [[2, 0]]), "row_facet_count must be a list of counts"),
    "more facets than there are": (put("row_facet_count", [2, 1]), "row_facet_at has shape"),
    "fewer facets than there are": (put("row_facet_count", [1, 0]), "row_facet_at has shape"),
    "a neuron that does not exist": (put("row_facet_at", [0, 3]), "row_facet_at names something"),
    "a negative neuron": (put("row_facet_at", [-1, 1]), "row_facet_at names something"),
    "neurons that are not whole": (put("row_facet_at", [0.0, 1.0], float), "row_facet_at holds float64"),
    "neurons that fall": (put("row_facet_at", [1, 0]), "must increase"),
    "a neuron twice": (
        lambda t: put("row_facet_part", [1.0, 0.0, 1.0, 0.0])(put("row_facet_at", [0, 0])(t)), "must increase"),
    "the target itself": (
        lambda t: put("row_facet_part", [1.0, 0.0, 1.0, 0.0])(put("row_facet_at", [0, 2])(t)), "not below its own"),
    "facets in a row of the first layer": (
        lambda t: replace(put("target", [0, 2])(t), pull=np.array([0.0, 1.0])), "not below its own"),
    "a share too many": (put("row_facet_share", [1.0] * 3), "row_facet_share has shape"),
    "a share above one": (put("row_facet_share", [1.5, 1.0]), "in row_facet_share is outside"),
    "a share below zero": (put("row_facet_share", [1.0, -0.5]), "in row_facet_share is outside"),
    "a share that is no number": (put("row_facet_share", [1.0, math.nan]), "in row_facet_share is outside"),
    "signed shares": (put("row_facet_share", [1, 1], np.int8), "row_facet_share holds int8"),
    "shares of 32 bits": (put("row_facet_share", [1, 1], np.uint32), "row_facet_share holds whole numbers of more"),
    "a part above one": (put("row_facet_part", [1.0, 0.0, 2.0]), "in row_facet_part is outside"),
    "a part below zero": (put("row_facet_part", [1.0, -0.1, 0.0]), "in row_facet_part is outside"),
    "a part that is no number": (put("row_facet_part", [1.0, 0.0, math.nan]), "in row_facet_part is outside"),
    "signed parts": (put("row_facet_part", [1, 0, 1], np.int8), "row_facet_part holds int8"),
    "parts of 32 bits": (put("row_facet_part", [1, 0, 1], np.uint32), "row_facet_part holds whole numbers of more"),
    "a table of parts": (put("row_facet_part", [[1.0, 0.0, 0.0]]), "row_facet_part has shape"),
    "a part too few": (put("row_facet_part", [1.0, 0.0]), "row_facet_part has 2 numbers where the rows .* have 3"),
    "a part for every input": (put("row_facet_part", [1.0, 0.0, 0.0, 0.0]), "row_facet_part has 4 numbers"),
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
        assert code_of(net, mutant, tmp_path, exact) != 0


def random_tree(rng: np.random.Generator, net: Network, share: float) -> StepTree:
    """One split; each part has two steps with rows for all neurons. Multipliers, slopes and facets are random."""
    n, first = net.neurons, net.widths[0]
    target, rows = np.repeat(np.arange(n), 2), 2 * n
    above = target >= first
    own = [below(random_facets(rng, net), net, 1 if i >= first else 0) for i in target]
    arrays = arrays_of(own)
    arrays["row_facet_share"] = share * arrays["row_facet_share"]
    return StepTree(
        layer=np.array([1, 0, 0]), neuron=np.array([int(rng.integers(first)), 0, 0]), steps=np.array([0, 2, 2]),
        objective=np.arange(4), uses=np.full(4, rows), row=np.tile(np.arange(rows), 4), lam=rng.random(4 * rows),
        mu=np.ones((4, 1)), alpha=rng.random((4, n)), beta=rng.random((4, n)) * 0.1,
        target=target, side=np.tile([1, -1], n), pull=rng.random(rows) * above * 0.5,
        slope_count=first * above, slope_at=np.tile(np.arange(first), above.sum()),
        slope=rng.random(first * above.sum()),
        split_count=first * above, split_at=np.tile(np.arange(first), above.sum()),
        split=rng.normal(size=first * above.sum()) * 0.1, **arrays,
    )  # fmt: skip


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_checkers_agree_on_random_trees_and_prove_nothing_false(norm: str, tmp_path: Path) -> None:
    """Brute force knows the true radius."""
    agree_on_random_trees(random_tree, norm, tmp_path)


def test_a_facet_makes_inputs_count_that_nothing_else_reads() -> None:
    """Chains of single neurons in sparse layers, y = -relu(relu(v) - 0.5): with a facet alone, only it reads relu(v).
    The bound is that of relu(z) <= relu(v) <= (v + 1) / 2; without the facet's line y >= 0 would be proved."""
    n = 8
    chain = [csr_array(np.eye(n)), csr_array(np.eye(n)), csr_array(-np.eye(n)), np.ones((2, n))]
    net = Network.from_arrays(chain, [np.zeros(n), np.full(n, -0.5), np.zeros(n), np.zeros(2)])
    assert not net.packed.whole.any()
    setting = Setting(net, np.zeros(n), math.inf, 1.0, None)
    floats, one, zero = StepFloats(setting), np.zeros(1, np.intp), np.zeros(1)
    for i in range(n):
        uses = Uses(one, one, np.array([2 * n + i]), np.ones(1), zero, np.zeros((2 * n, 1)), np.zeros((0, 0)))
        facets = side_by_side([Facets(np.array([n + i]), np.ones(1), np.ones(1))], setting, floats.noise, one)
        found = floats.functions(floats.start, no_halfspaces(1), 2, uses._replace(facets=facets))
        assert floats.least(*found, no_halfspaces(1), one, zero)[0] == pytest.approx(-1.0, abs=1e-9)
