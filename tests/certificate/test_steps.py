"""Format 2: bounds hold with any parameters, real certificates pass in both arithmetics, every rule has a mutant."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.onnx_models import build
from helpers.standalone import around
from layercert.certificate.checker import check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.lanes import Uses
from layercert.certificate.reach import fall
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.certificate.step_balls import StepBalls
from layercert.certificate.step_floats import Halfspaces, Objectives, StepFloats, regions_of
from layercert.certificate.steps import LARGEST, NAMES, Objective, Passes, StepTree
from layercert.network import Network

FORMAT1 = Path(__file__).parent / "format1"


def network_of(rng: np.random.Generator, sizes: list[int], sparse: bool = False) -> Network:
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    if sparse:
        weights = [np.where(rng.random(W.shape) < 0.05, W, 0.0) for W in weights]
    return Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in sizes[1:]])


def points(rng: np.random.Generator, setting: Setting, n: int) -> np.ndarray:
    """Offsets of the ball inside the box, many of them at its end."""
    w = rng.normal(size=(n, len(setting.x)))
    length = np.abs(w).max(axis=1) if math.isinf(setting.p) else (np.abs(w) ** setting.p).sum(axis=1) ** (1 / setting.p)
    w *= (setting.r * rng.random(n) ** 0.2 / length)[:, None]
    down, up = setting.room
    return np.clip(w, -down, up)


class OneNode:
    """The float arithmetic at one node at a time, called as the balls are."""

    def __init__(self, setting: Setting) -> None:
        self.floats = StepFloats(setting)
        self.starts = self.floats.starts

    @property
    def start(self) -> Region:
        lo, hi, phase = (np.split(a[0].astype(float), self.starts[1:-1]) for a in self.floats.start[:3])
        return Region(lo, hi, phase)

    def _regions(self, region: Region) -> Any:
        lo, hi, phase = (np.concatenate(a)[None] for a in (region.lo, region.hi, region.phase))
        return regions_of(lo, hi, phase.astype(np.int8))

    def objective(self, C: np.ndarray, d: np.ndarray, region: Region, own: Objective) -> Halfspaces:
        many = Objectives(own.alpha[None], own.beta[None], own.mu[None])
        return self.floats.halfspaces(C, d, self._regions(region), many)

    def narrow(self, region: Region, half: Halfspaces, k: int, rows: Passes) -> bool:
        at, base = np.zeros(len(rows.sides), np.intp), int(self.starts[k])
        splits = np.zeros((0, 0)) if rows.betas is None else np.ascontiguousarray(rows.betas.T)
        uses = Uses(at, at, base + rows.neurons, rows.sides, rows.pulls, np.ascontiguousarray(rows.slopes.T), splits)
        regions = self._regions(region)
        gone = self.floats.narrow(regions, half, k, uses, rows.lams)
        part = slice(base, int(self.starts[k + 1]))
        region.lo[k], region.hi[k], region._lines[k] = regions.lo[0, part], regions.hi[0, part], None
        return not gone.any()


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_whatever_the_parameters_no_unsafe_point_is_cut_off(p: float, boxed: bool) -> None:
    """At each unsafe point of a node the halfspace is <= 0 and every neuron is within its bounds, step after step."""
    tested = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [4, 7, 6, 5, 2])
        x = rng.uniform(-1, 1, 4)
        domain = (x - rng.random(4) * (rng.random(4) < 0.8), x + rng.random(4)) if boxed else None
        setting = Setting(net, x, p, float(rng.uniform(0.3, 2.0)), domain)
        w = points(rng, setting, 3000)
        C, d = np.array([[1.0, -1.0], [0.3, 0.4]]), rng.normal(size=2) + 1.0
        w = w[(net(x + w) @ C.T <= d).all(axis=1)]
        if not len(w):
            continue
        chosen = x + w[int(rng.integers(len(w)))]
        z_of = [np.array([net.preactivations(x + v)[k] for v in w[:300]]) for k in range(net.L)]
        arithmetic = OneNode(setting)
        region = arithmetic.start.copy()
        keep = np.ones(len(z_of[0]), bool)
        for _ in range(3):  # split three neurons on the side of one unsafe point
            k = int(rng.integers(net.L))
            neuron = int(rng.integers(net.widths[k]))
            if region.phase[k][neuron] == 0:
                phase = 1.0 if net.preactivations(chosen)[k][neuron] >= 0 else -1.0
                child = region.child(k, neuron, phase)
                assert child is not None
                region = child
                keep &= phase * z_of[k][:, neuron] >= 0
        for _ in range(3):
            own = Objective(rng.random(18), rng.random(18) * (rng.random(18) < 0.5), rng.random(2))
            half = arithmetic.objective(C, d, region, own)
            assert (w[:300][keep] @ half.g[0] + half.s[0] <= 1e-12).all()
            for k in range(net.L):
                m = 2 * net.widths[k]
                below = sum(net.widths[:k])
                rows = Passes(
                    np.tile(np.arange(net.widths[k]), 2), np.repeat([1.0, -1.0], net.widths[k]),
                    rng.random(m) * (rng.random(m) < 0.5) * (k > 0), rng.random(m) * (rng.random(m) < 0.7),
                    rng.random((m, below)), rng.normal(size=(m, below)) * (rng.random((m, below)) < 0.2),
                )  # fmt: skip
                assert arithmetic.narrow(region, half, k, rows) or not keep.any()
                z = z_of[k][keep]
                assert (region.lo[k] - 1e-12 <= z).all() and (z <= region.hi[k] + 1e-12).all()
            tested += int(keep.sum())
    assert tested > 1000


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
def test_floats_never_prove_more_than_balls(p: float) -> None:
    """The same passes in both arithmetics: bounds of the floats are looser, by very little."""
    rng = np.random.default_rng(7)
    net = network_of(rng, [3, 5, 4, 2])
    x = rng.uniform(-1, 1, 3)
    setting = Setting(net, x, p, 0.4, (x - 0.3, x + 0.7))
    floats, balls = OneNode(setting), StepBalls(setting)
    for a, b in zip(floats.start.lo + floats.start.hi, balls.start.lo + balls.start.hi, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    C, d = np.array([[1.0, -1.0]]), np.array([0.1])
    own = Objective(rng.random(9), np.zeros(9), np.ones(1))
    at: list[Region] = []
    arithmetic: Any
    for arithmetic in (floats, balls):
        region = arithmetic.start.copy()
        half = arithmetic.objective(C, d, region, own)
        order = np.random.default_rng(1)
        for k, width in enumerate(net.widths):
            m, below = 2 * width, sum(net.widths[:k])
            rows = Passes(
                np.tile(np.arange(width), 2), np.repeat([1.0, -1.0], width), order.random(m) * (k > 0), order.random(m),
                order.random((m, below)), None,
            )  # fmt: skip
            arithmetic.narrow(region, half, k, rows)
        at.append(region)
    for k in range(2):
        assert (at[0].lo[k] <= at[1].lo[k] + 1e-15).all() and (at[0].hi[k] >= at[1].hi[k] - 1e-15).all()
        np.testing.assert_allclose(at[0].lo[k], at[1].lo[k], rtol=1e-8, atol=1e-10)


def deepest(setting: Setting, t: np.ndarray) -> float:
    """-t.w at the point of ball and box where t.w is least: u_j = min(room_j, tau |t_j|^(q-1)) with ||u||_p = r."""
    size, room = np.abs(t), np.where(t > 0, *setting.room)
    if setting.p == 1.0:
        order = np.argsort(-size)
        before = np.cumsum(room[order]) - room[order]
        return float(size[order] @ np.minimum(room[order], np.maximum(setting.r - before, 0.0)))
    if math.isinf(setting.p):
        return float(size @ room)
    with np.errstate(divide="ignore"):
        grown, most = (setting.q - 1.0) * np.log(size), np.log(room / setting.r)  # in logarithms no power vanishes

    def log_u(log_tau: float) -> np.ndarray:
        return np.minimum(log_tau + grown, most)

    low, high = -1e5, 1e5
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.exp(setting.p * log_u(middle)).sum() <= 1.0 else (low, middle)
    return float(size @ np.exp(log_u(low))) * setting.r


@pytest.mark.parametrize("p", [1.0, 1.01, 1.2, 2.0, 5.0, math.inf])
def test_the_fall_is_exact_where_rooms_and_sizes_differ_by_many_orders(p: float) -> None:
    """Fixed coordinates, rooms from 1e-17 to infinity: for p near 1 powers vanish, and the largest counts as full."""
    rng = np.random.default_rng(11)
    for _ in range(150):
        n = int(rng.integers(1, 6))
        x, t = rng.normal(size=n), rng.normal(size=n) * 10.0 ** rng.uniform(-5, 5, n)
        low = x - rng.choice([0.0, 1e-17, 1e-9, 0.5, 1.0, 1e9, math.inf], size=n)
        high = x + rng.choice([0.0, 1e-17, 1e-3, 0.5, 1.0, 1e9, math.inf], size=n)
        setting = Setting(network_of(rng, [n, 2, 2]), x, p, 10.0 ** rng.uniform(-4, 4), (low, high))
        balls = StepBalls(setting).balls
        exact = deepest(setting, t)
        with np.errstate(all="ignore"):  # as in its main
            proof = around([np.zeros((1, n))], [np.zeros(1)], x, p, setting.r, False, (low, high))
            checked = proof.sigma(t[None], 1)[0]
        for value in (fall(setting, t[None])[0], float(balls._fall(balls._matrix(t[None]), 0).upper()), checked):
            assert value == pytest.approx(exact, rel=1e-9, abs=1e-140)


def test_the_start_is_the_same_in_every_arithmetic_when_rounding_could_choose_the_lines() -> None:
    """x is nothing beside the ball, so the first ranges are symmetric but for rounding; and intervals beat the pass."""
    rng = np.random.default_rng(5)
    net = network_of(rng, [2, 3, 3, 2])
    net = Network.from_arrays(net.weights, [b * 1e-16 for b in net.biases])
    for x in rng.normal(size=(20, 2)) * 1e-16:
        setting = Setting(net, x, 2.0, 1.0, None)
        floats, balls = OneNode(setting).start, StepBalls(setting).start
        other = around(net.weights, net.biases, x, 2.0, 1.0, False).start.reshape(3, 2, 3)
        for k in range(2):
            for start in (balls, Region(*map(list, other))):
                np.testing.assert_allclose(floats.lo[k], start.lo[k], rtol=1e-9)
                np.testing.assert_allclose(floats.hi[k], start.hi[k], rtol=1e-9)


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0, 5.0, math.inf])
def test_the_fall_on_ball_and_box_is_a_bound_and_nearly_exact(p: float) -> None:
    rng = np.random.default_rng(3)
    net = network_of(rng, [6, 2, 2])
    x = rng.uniform(-1, 1, 6)
    for domain in (None, (x - rng.random(6) * [0, 1, 1, 1, 1, 1], x + rng.random(6) * 0.5)):
        setting = Setting(net, x, p, 0.8, domain)
        T = rng.normal(size=(40, 6))
        T[0] = 0.0
        reached = (-T @ points(rng, setting, 200_000).T).max(axis=1)
        bound = fall(setting, T)
        assert (bound >= reached - 1e-12).all()
        np.testing.assert_allclose(bound, [deepest(setting, t) for t in T], rtol=1e-9, atol=1e-12)


def test_sparse_layers_are_worked_on_sparse_with_the_same_bounds() -> None:
    rng = np.random.default_rng(2)
    net = network_of(rng, [200, 180, 150, 3], sparse=True)
    x = rng.uniform(size=200)
    sparse = StepFloats(Setting(net, x, math.inf, 0.05, None))
    # a little of everything: the same function, but for what float64 does not see
    filled = Network.from_arrays([np.where(W == 0.0, 1e-30, W) for W in net.weights], list(net.biases))
    dense = StepFloats(Setting(filled, x, math.inf, 0.05, None))
    assert not sparse.net.whole.any() and dense.net.whole.all()
    np.testing.assert_allclose(sparse.start.lo, dense.start.lo, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sparse.start.hi, dense.start.hi, rtol=1e-12, atol=1e-12)


def test_bounds_of_a_pooled_network_hold_at_its_points(tmp_path: Path) -> None:
    """Max pooling makes layers of a few entries per row, whose products do not come in order."""
    import onnx

    rng = np.random.default_rng(5)
    model = build(
        "k = Conv<pads=[1,1,1,1]>(x, W, b); r = Relu(k); p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r);"
        "f = Flatten(p); h = Gemm<transB=1>(f, H, c); t = Relu(h); y = Gemm<transB=1>(t, F, g)",
        (1, 1, 8, 8), W=(4, 1, 3, 3), b=(4,), H=(12, 64), c=(12,), F=(3, 12), g=(3,),
    )  # fmt: skip
    onnx.save(model, tmp_path / "pooled.onnx")
    net = lc.load(tmp_path / "pooled.onnx")
    setting = Setting(net, rng.uniform(size=64), 2.0, 0.4, None)
    bounds = StepFloats(setting).start
    reached = np.array([np.concatenate(net.preactivations(setting.x + w)) for w in points(rng, setting, 2_000)])
    assert (reached.min(axis=0) >= bounds.lo[0] - 1e-12).all()
    assert (reached.max(axis=0) <= bounds.hi[0] + 1e-12).all()


@pytest.fixture(scope="module")
def real() -> tuple[Network, Certificate]:
    """A network of three classes whose proof branches, with rows in all layers."""
    rng = np.random.default_rng(28)
    net = network_of(rng, [6, 16, 16, 3])
    x = rng.uniform(-1, 1, 6)
    r = lc.measure(net, x, "linf", domain=(x - 3, x + 3), method="adaptive", certificate=True)
    assert r.status == "exact" and r.certificate is not None
    tree = r.certificate.trees[0]
    assert isinstance(tree, StepTree) and tree.leaves > 2 and len(tree.row) > 50 and len(tree.split) and tree.pull.any()
    return net, r.certificate


def test_a_file_of_format_2_holds_the_same_certificate(real: tuple[Network, Certificate], tmp_path: Path) -> None:
    net, certificate = real
    certificate.save(tmp_path / "c.npz")
    again = load_certificate(tmp_path / "c.npz")
    assert check(net, again) == check(net, certificate) and check(net, again).ok


def test_balls_agree(real: tuple[Network, Certificate]) -> None:
    assert check(*real, exact=True).ok


@pytest.mark.parametrize("name", ["linf", "l1", "l2", "p3"])
def test_format_1_is_still_read(name: str) -> None:
    net, old = lc.load(FORMAT1 / "network.npz"), load_certificate(FORMAT1 / f"{name}.npz")
    assert not any(isinstance(tree, StepTree) for tree in old.trees)
    report = check(net, old)
    assert report.ok and report.lower == old.radius


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[StepTree], StepTree]:
    return lambda tree: replace(tree, **{name: change(getattr(tree, name).copy())})


def put(index: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[index] = value
        return array

    return change


def leaf_as_split(tree: StepTree) -> StepTree:
    layer = tree.layer.copy()
    layer[int(np.flatnonzero(layer == 0)[0])] = 1
    return replace(tree, layer=layer)


def split_again(tree: StepTree) -> StepTree:
    """A leaf becomes a split of the neuron that its parent splits."""
    at = int(np.flatnonzero(tree.layer)[0])
    extra = {"layer": [0, 0], "neuron": [0, 0], "steps": [0, 0]}
    arrays = {name: np.insert(getattr(tree, name), [at + 1] * 2, values) for name, values in extra.items()}
    arrays["layer"][at + 1] = tree.layer[at]
    arrays["neuron"][at + 1] = tree.neuron[at]
    arrays["steps"][at + 1] = 0
    arrays["layer"] = np.insert(arrays["layer"], at + 2, [0])[: len(arrays["steps"])]
    return replace(tree, **{k: v.astype(getattr(tree, k).dtype) for k, v in arrays.items()})


def upside_down(tree: StepTree) -> StepTree:
    """The uses of the first step that bounds two layers, the other way round."""
    ends = tree.ends[1]
    for a, b in itertools.pairwise(ends.tolist()):
        targets = tree.target[tree.row[a:b]]
        if b - a > 1 and targets.min() < 16 <= targets.max():
            row, lam = tree.row.copy(), tree.lam.copy()
            row[a:b], lam[a:b] = row[a:b][::-1], lam[a:b][::-1]
            return replace(tree, row=row, lam=lam, limit=None)
    raise AssertionError("no step bounds two layers")


RULES: dict[str, tuple[Callable[[StepTree], StepTree], str]] = {
    "a slope above one": (
        lambda t: replace(t, alpha=put((0, 0), 1.5)(t.alpha.astype(np.float64) / 65535)), "in alpha is outside"),
    "a slope below zero": (lambda t: replace(t, slope=-np.ones(len(t.slope), np.float32)), "in slope is outside"),
    "a slope that is no number": (
        lambda t: replace(t, slope=np.full(len(t.slope), np.nan)), "in slope is outside"),
    "slopes of 32 bits": (changed("alpha", lambda a: a.astype(np.uint32)), "more than 16 bits"),
    "a negative beta": (changed("beta", put((0, 0), -1.0)), "in beta is negative"),
    "an infinite beta": (changed("beta", put((0, 0), math.inf)), "in beta is negative, not finite"),
    "a negative weight": (changed("mu", put((0, 0), -1.0)), "in mu is negative"),
    "a weight that is no number": (changed("mu", put((0, 0), math.nan)), "in mu is negative"),
    "a negative multiplier of the cap": (changed("lam", put(0, -1.0)), "in lam is negative"),
    "a huge multiplier of the cap": (
        lambda t: replace(t, lam=put(0, 10 * LARGEST)(t.lam.astype(np.float64))), "in lam is negative, not fin"),
    "a limit that is no number": (changed("limit", put(0, math.nan)), "a limit is no number"),
    "a limit too few": (changed("limit", lambda a: a[:-1]), "the array limit has shape"),
    "limits as whole numbers": (changed("limit", lambda a: a.astype(np.int64)), "the array limit holds int64"),
    "limits that leave nothing": (changed("limit", lambda a: np.full_like(a, -math.inf)), "is not proved"),
    "a negative pull": (changed("pull", put(-1, -1.0)), "in pull is negative"),
    "a pull in the first layer": (changed("pull", lambda a: np.ones_like(a)), "row of the first layer has a pull"),
    "a multiplier of a side that is no number": (changed("split", put(0, math.nan)), "in split is not finite"),
    "a row for neither side": (changed("side", put(0, 0)), r"neither \+1 nor -1"),
    "a row for no neuron": (changed("target", put(0, 32)), "target names something that does not exist"),
    "a negative neuron": (changed("target", put(0, -1)), "target names something that does not exist"),
    "a slope of a neuron above": (
        lambda t: replace(t, slope_at=put(0, 31)(t.slope_at.copy())), "not below its own"),
    "a slope twice": (
        lambda t: replace(t, slope_at=np.where(np.diff(t.slope_at, prepend=99) == 1, t.slope_at - 1, t.slope_at)),
        "slopes must increase"),
    "a row that does not exist": (changed("row", put(0, 10**6)), "row names something that does not exist"),
    "an objective that does not exist": (changed("objective", put(0, 10**6)), "objective names something"),
    "rows that go down the layers": (upside_down, "does not go up the layers"),
    "more steps than there are": (changed("steps", put(0, 10**6)), "has shape"),
    "a negative count": (changed("uses", put(0, -1)), "list of counts"),
    "a split of no layer": (changed("layer", put(0, 3)), "which does not exist"),
    "a split of no neuron": (changed("neuron", put(0, 16)), "which does not exist"),
    "a leaf as a split": (leaf_as_split, "subtrees missing|a second time|not proved"),
    "a split of the same neuron": (split_again, "a second time|superfluous|missing"),
    "a leaf without steps": (
        lambda t: replace(t, steps=t.steps * 0, objective=t.objective[:0], uses=t.uses[:0], row=t.row[:0],
                          lam=t.lam[:0], limit=None), "is not proved"),
    "a weight of zero": (changed("mu", lambda a: 0.0 * a), "is not proved"),
    "no nodes": (
        lambda t: replace(t, layer=t.layer[:0], neuron=t.neuron[:0], steps=t.steps[:0], objective=t.objective[:0],
                          uses=t.uses[:0], row=t.row[:0], lam=t.lam[:0], limit=None), "without nodes"),
    "whole numbers for multipliers": (changed("mu", lambda a: a.astype(np.int32)), "the array mu holds int32"),
    "numbers for counts": (changed("steps", lambda a: a.astype(np.float64)), "list of counts"),
    "the root alone": (
        lambda t: replace(t, layer=put(0, 0)(t.layer.copy())), "superfluous|not proved"),
    "the last node missing": (
        lambda t: replace(t, layer=t.layer[:-1], neuron=t.neuron[:-1], steps=t.steps[:-1],
                          objective=t.objective[: len(t.objective) - t.steps[-1]],
                          uses=t.uses[: len(t.uses) - t.steps[-1]],
                          row=t.row[: len(t.row) - int(t.uses[len(t.uses) - t.steps[-1] :].sum())],
                          lam=t.lam[: len(t.row) - int(t.uses[len(t.uses) - t.steps[-1] :].sum())], limit=None),
        "missing"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_mutant(real: tuple[Network, Certificate], rule: str) -> None:
    net, certificate = real
    mutate, reason = RULES[rule]
    tree = certificate.trees[0]
    assert isinstance(tree, StepTree)
    trees = (mutate(tree), *certificate.trees[1:])
    report = check(net, replace(certificate, trees=trees))
    assert not report.ok
    assert re.search(reason, report.reason), report.reason


def test_a_larger_radius_is_never_proved(real: tuple[Network, Certificate]) -> None:
    """Beyond the witness every claim is false, whatever happens to the numbers of the proof."""
    net, certificate = real
    rng = np.random.default_rng(0)
    false = replace(certificate, radius=certificate.upper * (1 + 1e-9))
    assert not check(net, false).ok
    for _ in range(150):
        i = int(rng.integers(len(certificate.trees)))
        tree = certificate.trees[i]
        name = str(rng.choice([*NAMES, "limit"]))
        array = np.array(getattr(tree, name))
        if not array.size:
            continue
        for _ in range(int(rng.integers(1, 5))):
            value = rng.choice([0, 1, 2, -1, 255]) if array.dtype.kind in "iu" else rng.choice([0, 1, 1e20, 0.5, 1e-9])
            array.reshape(-1)[int(rng.integers(array.size))] = np.asarray(value).astype(array.dtype)
        trees = list(certificate.trees)
        trees[i] = replace(tree, **{name: array})
        assert not check(net, replace(false, trees=tuple(trees))).ok


def test_the_search_is_recorded_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a second search")

    monkeypatch.setattr(sys.modules["layercert.certify.prove"], "adaptive", never)
    rng = np.random.default_rng(28)
    net = network_of(rng, [6, 16, 16, 3])
    r = lc.measure(net, rng.uniform(-1, 1, 6), "l2", certificate=True)
    assert r.certificate is not None and check(net, r.certificate).ok
