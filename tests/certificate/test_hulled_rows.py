"""Proofs on convolutional networks in l_inf begin with rows that have facets (certify/hulled.py)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import layercert as lc
from helpers.facets import verdicts
from layercert.certificate.checker import check
from layercert.certificate.facets import side_by_side
from layercert.certificate.lanes import Uses
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import StepFloats, no_halfspaces, regions_of
from layercert.certificate.steps import StepTree
from layercert.certify.doubt import Doubt
from layercert.certify.hulled import HulledRows
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.search.adaptive.model import THOROUGH, Played, build


def convolution(rng: np.random.Generator, channels: tuple[int, int], size: int, kernel: int = 3) -> np.ndarray:
    """A convolution over a line of `size` places, as a matrix; places outside are zero."""
    rows = np.zeros((channels[1], size, channels[0], size))
    for out in range(channels[1]):
        for into in range(channels[0]):
            weights = rng.normal(size=kernel)
            for place in range(size):
                for t in range(kernel):
                    if 0 <= place + t - kernel // 2 < size:
                        rows[out, place, into, place + t - kernel // 2] = weights[t]
    return rows.reshape(channels[1] * size, channels[0] * size)


def problem_of(seed: int, layers: int = 2, size: int = 12) -> Problem:
    """Convolutions of two channels over a line of inputs, then three classes."""
    rng = np.random.default_rng(seed)
    weights = [convolution(rng, (1 if k == 0 else 2, 2), size) / (1 if k == 0 else 2) for k in range(layers)]
    weights = [np.asarray(W) for W in weights]
    last = rng.normal(size=(3, 2 * size)) * 0.5
    biases = [0.3 * rng.normal(size=2 * size) for _ in range(layers)]
    net = Network.from_arrays([*map(csr_array, weights), last], [*biases, np.zeros(3)])
    assert not net.packed.whole[:layers].any()
    x = rng.uniform(0, 1, size)
    return robustness(net, x, math.inf, domain=(np.full(size, -1.0), np.full(size, 2.0)))


def rows_of(problem: Problem, radius: float, layers: int, recorded: bool = True) -> HulledRows:
    """Rows for neurons of the layers 1 to `layers` (from 0), of a search or found here."""
    setting = Setting(problem.network, problem.x, math.inf, radius, problem.domain)
    floats, played = StepFloats(setting, 2.0), dict[int, Played]()
    model, _ = build(problem.within(radius), radius, hulled=THOROUGH._replace(layers=layers), played=played)
    with np.errstate(all="ignore"):
        rows = HulledRows(floats, Doubt(floats), lambda: model, played if recorded else None)
        _ = rows.parts  # regions and what gave their bounds come with them
        return rows


@pytest.mark.parametrize(("layers", "recorded"), [(1, True), (2, True), (3, True), (3, False)])
def test_bounds_of_the_root_hold_and_are_narrower_than_those_of_chords(layers: int, recorded: bool) -> None:
    shares = []
    for seed in range(4):
        problem, rng = problem_of(seed, 4), np.random.default_rng(seed)
        net, x, radius = problem.network, problem.x, 0.25
        assert problem.domain is not None
        rows = rows_of(problem, radius, layers, recorded)
        w = rng.uniform(-radius, radius, (4000, len(x)))
        w[::2] = radius * np.sign(w[::2])
        points = np.clip(x + w, *problem.domain)
        z = np.array([np.concatenate(net.preactivations(v)) for v in points])
        lo, hi, start = rows.regions.lo[0], rows.regions.hi[0], rows.floats.start
        assert (lo <= z.min(axis=0)).all() and (z.max(axis=0) <= hi).all()
        assert (lo >= start.lo[0]).all() and (hi <= start.hi[0]).all()
        part = slice(int(rows.floats.starts[layers]), int(rows.floats.starts[layers + 1]))
        shares.append(((hi - lo) / (start.hi[0] - start.lo[0]))[part].mean())
        bounded = np.concatenate([each.target for each in rows.parts])
        assert bounded.max() < rows.floats.starts[layers + 1] and (bounded >= net.widths[0]).all()
    assert np.mean(shares) < 0.95, shares


def test_a_row_rests_on_no_other_bounds() -> None:
    """With what a row needs, and the start elsewhere, it reaches its limit; facets need bounds of their inputs."""
    looser = deep = 0
    for seed in range(4):
        problem = problem_of(seed, 4)
        rows = rows_of(problem, 0.25, 3)
        floats, start, N = rows.floats, rows.floats.start, problem.network.neurons
        gave = {int(event): end for end, event in enumerate(rows.given_by) if event >= 0}
        for part in rows.parts:
            k = int(np.searchsorted(floats.starts, part.target[0], side="right")) - 1
            first, own = int(floats.starts[k]), part.own
            needs, at = np.split(own.needs, np.cumsum(own.needs_count)), np.cumsum(own.slope_count)
            assert part.facets is not None
            for r in range(len(part.target)):
                ends = np.array([gave[int(event)] for event in needs[r]], np.int64)
                bounds = np.stack([start.lo[0], start.hi[0]], axis=1).ravel()
                best = np.stack([rows.regions.lo[0], rows.regions.hi[0]], axis=1).ravel()
                looser += int((bounds != best).sum() - len(ends) > 0)
                deep += k == 3 and (ends < 2 * floats.starts[2]).any()
                bounds[ends] = best[ends]
                regions = regions_of(bounds[None, 0::2].copy(), bounds[None, 1::2].copy(), np.zeros((1, N), np.int8))
                slopes, begin = np.zeros((first, 1)), int(at[r] - own.slope_count[r])
                slopes[own.slope_at[begin : at[r]], 0] = own.slope[begin : at[r]] / 255
                one, zero = np.zeros(1, np.intp), np.zeros(1)
                uses = Uses(one, one, part.target[r : r + 1], part.side[r : r + 1], zero, slopes, np.zeros((0, 0)))
                facets = side_by_side([part.facets[r]], floats.setting, floats.noise, one)
                found = floats.functions(regions, no_halfspaces(1), k, uses._replace(facets=facets))
                assert floats.least(*found, no_halfspaces(1), one, zero)[0] >= part.limit[r]
    assert looser > 50 and deep > 10


def test_a_recorded_search_leaves_the_lines_behind_its_bounds() -> None:
    """They are worth about what a game on the bounds of the checker is worth, which are a little wider; threads do not
    matter."""
    for seed in range(3):
        problem = problem_of(seed, 4)
        widths = []
        for recorded in (True, False):
            rows = rows_of(problem, 0.25, 3, recorded)
            widths.append(rows.regions.hi[0] - rows.regions.lo[0])
        assert abs(widths[0].sum() / widths[1].sum() - 1.0) < 0.05
        lists = [dict[int, Played](), dict[int, Played]()]
        for threads, played in zip((1, 3), lists, strict=True):
            build(problem.within(0.25), 0.25, threads=threads, played=played)
        assert list(lists[0]) == list(lists[1]) == [1, 2, 3]
        for alone, shared in zip(lists[0].values(), lists[1].values(), strict=True):
            order = [list(shared.neurons).index(i) for i in alone.neurons]
            lines = np.ravel([(2 * i, 2 * i + 1) for i in order])
            assert (shared.slopes[lines] == alone.slopes).all() and alone.slopes.any()
            for mine, line in zip(alone.facets, lines, strict=True):
                assert all((own == other).all() for own, other in zip(mine, shared.facets[line], strict=True))


@pytest.mark.parametrize("hulled", [1, 3])
def test_certificates_have_them_and_all_checkers_follow(hulled: int, tmp_path: Path) -> None:
    """The second layer alone, or three layers."""
    with_facets = fewer = bare = 0
    for seed in range(3):
        problem = problem_of(seed, 2 if hulled == 1 else 4)
        net, x = problem.network, problem.x
        r = lc.measure(net, x, "linf", domain=(-1, 2), method="adaptive", certificate=True)
        assert r.status == "exact" and r.certificate is not None
        assert verdicts(net, r.certificate, tmp_path) == {True}
        assert not check(net, replace(r.certificate, radius=r.upper * (1 + 1e-6))).ok
        rows = rows_of(problem, r.certificate.radius, hulled)
        for tree in r.certificate.trees:
            assert isinstance(tree, StepTree)
            bare += tree.row_facet_count is None  # closed at once
            if tree.row_facet_count is not None:
                assert tree.row_facet_part is not None and tree.row_facet_part.dtype == np.uint8
                some = tree.row_facet_count > 0
                with_facets += 1
                fewer += int(some.sum()) < sum(len(part.target) for part in rows.parts)
    assert with_facets > 1 and fewer > 0 and bare > 0


def test_other_norms_and_dense_networks_begin_with_none() -> None:
    problem = problem_of(0)
    r = lc.measure(problem.network, problem.x, "l2", domain=(-1, 2), certificate=True)
    assert r.certificate is not None
    dense = Network.from_arrays([np.ones((2, 2)), np.eye(2), np.eye(2)], [np.zeros(2)] * 3)
    s = lc.measure(dense, np.array([0.3, 0.1]), "linf", method="adaptive", certificate=True)
    assert s.certificate is not None
    for tree in (*r.certificate.trees, *s.certificate.trees):
        assert getattr(tree, "row_facet_count", None) is None
