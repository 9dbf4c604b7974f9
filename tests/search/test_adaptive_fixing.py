"""Neurons that a halfspace fixes, and facets in the passes of nodes: against mixed-integer programs, the pass of the
format's page and finite differences."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array

import layercert as lc
from layercert.arrays import Matrix, Vector
from layercert.certify import recording
from layercert.certify.ascent import Ascent
from layercert.compiled.timer import Timer
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.search.adaptive import pieces, worker
from layercert.search.adaptive.bent import bent_pass
from layercert.search.adaptive.fixing import fix
from layercert.search.adaptive.hulls import Hulls
from layercert.search.adaptive.lanes import Lanes, backward, forward, lanes_of
from layercert.search.adaptive.model import ALPHA, BETA, COEF, HI, LO, PHASE, SHARE, Model, build
from layercert.search.adaptive.programmed import _give_sides
from layercert.system import clock

CHECKER = Path(__file__).parents[2] / "standalone" / "check_certificate.py"


def _problem(seed: int, sizes: list[int]) -> Problem:
    """A network whose first layer reads three inputs at a time."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    for i, row in enumerate(weights[0]):
        row[[(i + j) % sizes[0] for j in range(3, sizes[0])]] = 0.0
    net = Network.from_arrays(weights, [0.3 * rng.normal(size=b) for b in sizes[1:]])
    x = rng.normal(size=sizes[0])
    return robustness(net, x, math.inf, domain=(x - 0.4, x + 0.6) if seed % 2 else None)


def _node(problem: Problem, U: float, seed: int) -> tuple[Hulls, Matrix, Facets]:
    """The root of a ball with random parameters, and facets of half of its open neurons."""
    rng = np.random.default_rng(seed)
    model, root = build(problem, U)
    hulls = Hulls([csr_array(W) for W in problem.network.weights], model, root)
    free = np.flatnonzero((root[LO] < 0) & (root[HI] > 0))
    state = root.copy()
    state[ALPHA] = np.where(rng.uniform(size=root.shape[1]) < 0.5, state[ALPHA], rng.uniform(size=root.shape[1]))
    bent = np.sort(rng.choice(free, len(free) // 2, replace=False))
    starts = np.cumsum([0, *problem.network.widths])
    layers = np.searchsorted(starts, bent, side="right") - 1
    sizes = [np.count_nonzero(problem.network.weights[k][i - starts[k]]) for k, i in zip(layers, bent, strict=True)]
    return hulls, state, Facets(bent, rng.uniform(size=len(bent)), rng.uniform(size=int(sum(sizes))))


def _least(problem: Problem, root: Matrix, U: float, neuron: int, side: float) -> float:
    """The least F on the ball where a neuron has this side, by a mixed-integer program of its own; inf: nowhere."""
    net, clause = problem.network, problem.clauses[0]
    box = problem.box
    low = np.maximum(-U, -np.inf if box is None else box.lo) + np.zeros(net.inputs)
    high = np.minimum(U, np.inf if box is None else box.hi) + np.zeros(net.inputs)
    N = sum(net.widths)
    n = net.inputs + 3 * N  # w, then z, h and the binary of every neuron
    rows, lower, upper = list[Vector](), list[float](), list[float]()

    def add(row: Vector, least: float, most: float) -> None:
        rows.append(row)
        lower.append(least)
        upper.append(most)

    below, at = None, 0
    for k, width in enumerate(net.widths):
        for j in range(width):
            i, row = at + j, np.zeros(n)
            z, h, on = net.inputs + i, net.inputs + N + i, net.inputs + 2 * N + i
            row[z] = 1.0
            columns = np.arange(net.inputs) if below is None else net.inputs + N + below
            row[columns] -= net.weights[k][j]
            base = float(net.biases[k][j] + (net.weights[k][j] @ problem.x if below is None else 0.0))
            add(row, base, base)
            lo, hi = min(float(root[LO, i]), 0.0), max(float(root[HI, i]), 0.0)
            for entries, least, most in (
                ({h: 1.0, z: -1.0}, 0.0, math.inf),
                ({h: 1.0, on: -hi}, -math.inf, 0.0),
                ({h: 1.0, z: -1.0, on: -lo}, -math.inf, -lo),
            ):
                row = np.zeros(n)
                row[list(entries)] = list(entries.values())
                add(row, least, most)
        below, at = np.arange(at, at + width), at + width
    bounds_low = np.concatenate([low, np.full(N, -np.inf), np.zeros(2 * N)])
    bounds_high = np.concatenate([high, np.full(2 * N, np.inf), np.ones(N)])
    (bounds_low if side > 0 else bounds_high)[net.inputs + neuron] = 0.0
    cost = np.zeros(n)
    assert below is not None
    cost[net.inputs + N + below] = clause.C[0] @ net.weights[-1]
    found = milp(
        cost, constraints=LinearConstraint(np.array(rows), lower, upper), bounds=(bounds_low, bounds_high),
        integrality=np.concatenate([np.zeros(n - N), np.ones(N)]),
    )  # fmt: skip
    return float(found.fun + clause.C[0] @ net.biases[-1] - clause.d[0]) if found.status == 0 else math.inf


def _timer() -> Timer:
    return clock.timer()


@pytest.mark.parametrize("both", [0.0, 0.01])
def test_no_unsafe_point_has_a_side_that_was_excluded(both: float) -> None:
    """And some sides are excluded in every layer, with a multiplier and without; also where neurons have some of both
    lines."""
    layers, multiplied = set[int](), 0
    # in the last two a side of the second layer is nearly excluded: a margin that is too small shows there
    cases = [(seed, [5, 7, 6, 5, 2]) for seed in range(24)] + [(seed, [4, 9, 7, 2]) for seed in (40, 43)]
    for seed, sizes in cases:
        problem = _problem(seed, sizes)
        for U in (0.12, 0.2, 0.3, 0.45):
            hulls, state, facets = _node(problem, U, seed)
            if not len(facets.neurons):
                continue
            bends = hulls.bends(state, facets, U)
            bends = bends._replace(both=np.full(state.shape[1], both))
            done, state[COEF] = bent_pass(hulls.model, state, np.ones(1), 0, bends)
            fixed = fix(hulls.model, state, bends, done, U, _timer())
            for i, side, t in zip(fixed.neurons, fixed.sides, fixed.multipliers, strict=True):
                assert state[PHASE, i] == 0.0 and state[LO, i] < 0.0 < state[HI, i]
                assert _least(problem, hulls.root, U, int(i), -side) > 0.0
                layers.add(int(np.searchsorted(hulls.noff, i, side="right")))
                multiplied += t > 0.0
    assert layers == {1, 2, 3} and multiplied > 5


def test_nothing_is_fixed_where_the_halfspace_leaves_nothing() -> None:
    problem = _problem(0, [5, 7, 6, 5, 2])
    hulls, state, facets = _node(problem, 1e-3, 0)
    bends = hulls.bends(state, facets, 1e-3)
    done, state[COEF] = bent_pass(hulls.model, state, np.ones(1), 0, bends)
    assert done.s[0] > 1e-3 * np.abs(done.g[0]).sum()
    assert not len(fix(hulls.model, state, bends, done, 1e-3, _timer()).neurons)


def test_a_neuron_without_any_side_left_has_no_value() -> None:
    state = np.zeros((9, 3))
    state[LO], state[HI] = -1.0, 2.0
    _give_sides(state, [0, 1, 1, 2], [1.0, 1.0, -1.0, -1.0])
    assert (state[LO, 0], state[HI, 2], state[PHASE].tolist()[::2]) == (0.0, 0.0, [1.0, -1.0])
    assert state[LO, 1] > state[HI, 1]


def _with_facets(seed: int) -> tuple[Hulls, Matrix, Facets, Model, Lanes]:
    problem, U = _problem(seed, [5, 8, 6, 4, 2]), 0.5
    hulls, state, facets = _node(problem, U, seed)
    state[SHARE, facets.neurons] = facets.shares
    model = hulls.model._replace(facets=hulls.table(facets, U))
    return hulls, state, facets, model, lanes_of(model, state[None], np.ones((1, 1)), np.zeros(1, np.intp))


@pytest.mark.parametrize("seed", range(5))
def test_the_pass_of_nodes_with_facets_is_that_of_one_node(seed: int) -> None:
    """bent.py is held against the format's page and rationals (test_adaptive_facets.py)."""
    hulls, state, facets, model, lanes = _with_facets(seed)
    found = backward(model, lanes)
    own, coef = bent_pass(hulls.model, state, np.ones(1), 0, hulls.bends(state, facets, 0.5))
    assert len(facets.neurons) > 1
    np.testing.assert_allclose(found.g, own.g, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.s, own.s, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lanes.state[COEF, :, 0], coef, rtol=1e-9, atol=1e-12)
    assert own.value.shape == own.error.shape == (1, 4)  # three layers, and what is above them
    np.testing.assert_allclose(found.value, own.value, rtol=1e-9, atol=1e-9)
    plain = backward(hulls.model, lanes_of(hulls.model, state[None], np.ones((1, 1)), np.zeros(1, np.intp)))
    assert abs(plain.s[0] - found.s[0]) > 1e-6  # the facets count


@pytest.mark.parametrize("seed", range(5))
def test_slopes_of_shares_are_those_of_differences(seed: int) -> None:
    """V at a point, by a share: A (facet - chord), as long as no coefficient changes its sign."""
    _, state, facets, model, lanes = _with_facets(seed)
    w = np.random.default_rng(seed).uniform(-0.3, 0.3, (1, 5))
    backward(model, lanes)
    forward(model, lanes, w, np.empty((state.shape[1], 1)))
    slopes = np.minimum(lanes.state[COEF, facets.neurons, 0], 0.0) * lanes.tilt[:, 0]
    checked = 0
    for f, i in enumerate(facets.neurons):
        values = []
        for step in (-1e-6, 1e-6):
            moved = state.copy()
            moved[SHARE, i] += step
            found = backward(model, lanes_of(model, moved[None], np.ones((1, 1)), np.zeros(1, np.intp)))
            values.append(float(found.g[0] @ w[0] + found.s[0]))
        assert (values[1] - values[0]) / 2e-6 == pytest.approx(slopes[f], rel=1e-4, abs=1e-6)
        checked += slopes[f] != 0.0
    assert checked > 0


def test_certificates_hold_what_was_fixed_as_splits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A search that fixes neurons has a certificate that all checkers accept."""
    monkeypatch.setattr(pieces, "SPARSE", 2.0)  # on small dense networks too, and at every node
    for near in ("NEAR_WITH_FACETS", "PLAYED_NEAR"):  # programs from the start, no games
        monkeypatch.setattr(worker, near, 1.0)
    told = list[int]()
    honest = recording.Forest.fixed

    def fixed(self: recording.Forest, node: int, own: object, found: object) -> None:
        told.append(len(found.neurons))  # type: ignore[attr-defined]
        honest(self, node, own, found)  # type: ignore[arg-type]

    monkeypatch.setattr(recording.Forest, "fixed", fixed)
    solved = list[object]()
    programmed = Ascent.programmed
    monkeypatch.setattr(Ascent, "programmed", lambda *given: solved.append(given) or programmed(*given))
    shared = 0
    for seed in (0, 6, 8):
        problem = _problem(seed, [10, 16, 12, 8, 3])
        r = lc.measure(problem.network, problem.x, method="adaptive", certificate=True)
        assert r.status == "exact" and r.certificate is not None
        report = lc.check(problem.network, r.certificate)
        assert report.ok and lc.check(problem.network, r.certificate, exact=True).ok
        problem.network.save(tmp_path / "net.npz")
        r.certificate.save(tmp_path / "proof.npz")
        done = subprocess.run([sys.executable, CHECKER, tmp_path / "proof.npz", tmp_path / "net.npz"], check=False)
        assert done.returncode == 0
        shared += any(len(tree.alpha) < len(tree.objective) for tree in r.certificate.trees)
    assert sum(told) > 50 and shared > 0  # leaves that share the objective which excludes them
    # the search's own halfspaces are followed, in its order: 61 programs were solved again before, 6 now
    assert len(solved) < 20


def test_multipliers_of_sides_may_be_shared_by_the_leaves_of_one_halfspace() -> None:
    """BETA of a neuron that is open counts for nothing, so one objective serves the node and its excluded parts."""
    hulls, state, facets, _, _ = _with_facets(1)
    again = state.copy()
    free = (state[PHASE] == 0) & (state[LO] < 0) & (state[HI] > 0)
    again[BETA, free] = 1.0
    bends = hulls.bends(state, facets, 0.5)
    one, _ = bent_pass(hulls.model, state, np.ones(1), 0, bends)
    other, _ = bent_pass(hulls.model, again, np.ones(1), 0, bends)
    np.testing.assert_array_equal(one.g, other.g)
