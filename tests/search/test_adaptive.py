"""The adaptive search against brute force: radii, soundness of every bound, degenerate networks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice, pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.brute import brute_force, exact_values
from helpers.networks import NORMS, networks
from layercert.arrays import Matrix, Vector
from layercert.network import Network
from layercert.problem import Clause, Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import Effort, adaptive
from layercert.search.events import Bound, Event, Improve
from layercert.search.task import Task


@dataclass
class Run:
    """What a search reported in the end."""

    lower: float
    upper: float
    witness: Vector | None
    bounds: list[float]


def run(problem: Problem, limit: float | None = None, effort: Effort | None = None, attacked: bool = True) -> Run:
    task = Task(problem, make_chain("default", problem.norm), limit)
    bounds: list[float] = []
    upper, witness = math.inf, None
    for event in chain(task.attack() if attacked else (), adaptive(task, effort)):
        if isinstance(event, Bound):
            bounds.append(event.lower)
        elif isinstance(event, Improve):
            assert event.distance < upper
            upper, witness = event.distance, problem.x + event.step
            assert problem.norm.value(event.step) == pytest.approx(upper, rel=1e-6)  # settling moves it by no more
            assert float(event.clause.margins(problem.network(witness)).max()) <= 1e-8
    return Run(max(bounds, default=0.0), upper, witness, bounds)


def agree(problem: Problem, found: Run) -> None:
    """The radius is the brute force's to 1e-7, and no bound ever exceeded it."""
    distance, _ = brute_force(problem)
    slack = 1e-8 * distance + 1e-9 if math.isfinite(distance) else 0.0
    assert all(bound <= distance + slack for bound in found.bounds)
    if math.isinf(distance):
        assert math.isinf(found.upper)
        assert found.lower >= min(problem.radius, problem.reach, 1e5)
    else:
        assert found.upper == pytest.approx(distance, rel=1e-7, abs=1e-9)
        assert found.lower == pytest.approx(distance, rel=2e-7, abs=1e-9)


@given(networks(), st.sampled_from(NORMS), st.booleans(), st.integers(0, 1000))
def test_the_radius_is_that_of_brute_force(net: Network, p: float, boxed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.rint(rng.uniform(0, 4, net.inputs)) / 4  # often on the domain's ends and on hyperplanes
    problem = robustness(net, x, p, domain=(0, 1) if boxed else None)
    agree(problem, run(problem))


@given(networks(), st.sampled_from(NORMS), st.integers(0, 1000))
def test_general_properties(net: Network, p: float, seed: int) -> None:
    """A union of polyhedra with several rows each."""
    rng = np.random.default_rng(seed)
    clauses = tuple(
        Clause(rng.normal(size=(rows, net.classes)), rng.normal(size=rows) - 0.5)
        for rows in rng.integers(1, 4, size=rng.integers(1, 3))
    )
    problem = replace(robustness(net, rng.uniform(-1, 1, net.inputs), p, domain=(-2, 2)), clauses=clauses)
    agree(problem, run(problem))


@given(networks(), st.sampled_from([1.0, 2.0, math.inf]), st.floats(0.2, 2.0), st.integers(0, 1000))
def test_a_given_radius_is_proved_or_refuted(net: Network, p: float, factor: float, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(-1, 1, net.inputs)
    problem = robustness(net, x, p)
    distance, _ = brute_force(problem)
    radius = factor * (distance if 0 < distance < math.inf else 1.0)
    found = run(problem.within(radius))
    if distance > radius * (1 + 1e-6):
        assert found.witness is None
        assert found.lower == pytest.approx(radius, rel=2e-7)
    elif distance < radius * (1 - 1e-6):
        assert found.upper == pytest.approx(distance, rel=1e-7, abs=1e-9)
        assert found.lower <= distance * (1 + 1e-8)


def test_a_known_upper_bound_is_used_and_not_reported_again() -> None:
    # |x| - 0.5 >= 0: from 0.1 the nearest point is 0.5, at distance 0.4
    net = Network.from_arrays([[[1.0], [-1.0]], [[-1.0, -1.0], [0.0, 0.0]]], [[0.0, 0.0], [0.5, 0.0]])
    problem = robustness(net, [0.1])
    found = run(problem, limit=0.4)
    assert found.witness is None
    assert found.lower == pytest.approx(0.4, rel=1e-6)
    assert run(problem).upper == pytest.approx(0.4, rel=1e-9)


def test_an_unsafe_input_has_distance_zero() -> None:
    net = Network.from_arrays([[[1.0]], [[1.0], [0.0]]], [[0.0], [0.0, 0.5]])
    problem = robustness(net, [0.1], label=0)
    assert run(problem).upper == 0.0


def test_a_constant_network_is_robust_everywhere() -> None:
    net = Network.from_arrays([np.zeros((3, 2)), np.zeros((2, 3))], [np.ones(3), [1.0, 0.0]])
    found = run(robustness(net, [0.5, 0.5], domain=(0, 1)))
    assert math.isinf(found.upper)
    assert found.lower >= 0.5


@pytest.mark.parametrize("events_seen", [1, 2, 5])
def test_a_search_closed_early_has_said_only_what_is_true(events_seen: int) -> None:
    """After some events: bounds hold, witnesses are unsafe, nothing more comes, a new search is not disturbed."""
    rng = np.random.default_rng(4)
    sizes = [4, 12, 12, 2]
    net = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)],
        [rng.normal(size=m) for m in sizes[1:]],
    )
    problem = robustness(net, rng.uniform(size=4))
    whole = run(problem)
    assert whole.lower == pytest.approx(whole.upper, rel=1e-6)
    events = adaptive(Task(problem, make_chain("default", problem.norm)))
    seen = list(islice(events, events_seen))
    events.close()
    assert len(seen) == events_seen and next(events, None) is None
    for event in seen:
        if isinstance(event, Bound):
            assert event.lower <= whole.upper * (1 + 1e-9)
        elif isinstance(event, Improve):
            assert event.distance >= whole.lower * (1 - 1e-9)
            assert problem.is_unsafe(problem.x + event.step * (1 + 1e-7))
    again = run(problem)
    assert (again.lower, again.upper) == (whole.lower, whole.upper)


@pytest.mark.parametrize("attacked", [True, False])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_smaller_balls_in_between_change_no_answer(p: float, attacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced after every node, with a first witness and without; each of their bounds must hold."""
    from layercert.search.adaptive import search, tree

    monkeypatch.setattr(tree, "PATIENCE", 1)
    monkeypatch.setattr(search, "LOW", 2.0)
    monkeypatch.setattr(search, "PROGRESS", 1.0)  # more than there is to close
    balls: list[float] = []
    smaller = search._smaller_balls

    def watched(task: Task, effort: Effort, low: float, high: float, budget: int) -> object:
        balls.append(low)
        return smaller(task, effort, low, high, 20)

    monkeypatch.setattr(search, "_smaller_balls", watched)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = [3, 6, 5, 3]
        net = Network.from_arrays(
            [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.5 * rng.normal(size=b) for b in sizes[1:]]
        )
        problem = robustness(net, rng.normal(size=3), p)
        true, _ = brute_force(problem)
        if not math.isfinite(true):
            continue
        got = run(problem, attacked=attacked)
        assert got.upper == pytest.approx(true, rel=1e-6)
        assert all(bound <= true * (1 + 1e-9) for bound in got.bounds)
        assert got.lower == pytest.approx(true, rel=1e-6)
    assert balls


@pytest.mark.parametrize(("bounds", "at"), [([0.1] * 40, [8, 16, 32]), ([1.0 - 0.95**k for k in range(40)], [])])
def test_smaller_balls_wait_while_the_tree_itself_moves_on(
    bounds: list[float], at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that stands still gets them after 8 rounds, 16 and so on; one that closes a twentieth per round never."""
    from layercert.search.adaptive import search

    ball = SimpleNamespace(rounds=0, patience=8, proved=0.0, U=1.0, scheduler=None)
    asked: list[int] = []

    def rounds() -> Iterator[Event]:
        for bound in bounds:
            ball.rounds += 1
            yield Bound(bound)

    monkeypatch.setattr(search, "LOW", 2.0)
    monkeypatch.setattr(search, "_smaller_balls", lambda *_: asked.append(ball.rounds) or iter(()))
    task = SimpleNamespace(enough=0.0)
    assert len(list(search._anytime(task, Effort(), None, ball, rounds()))) == len(bounds)
    assert asked == at


@pytest.mark.parametrize("p", [2.0, math.inf])
def test_multipliers_that_are_worse_than_none_are_forgotten(p: float) -> None:
    from layercert.attack.attack import attack
    from layercert.search.adaptive.ascent import drop_betas, optimise
    from layercert.search.adaptive.lanes import lanes_of, store
    from layercert.search.adaptive.model import BETA, HI, LO, PHASE, build
    from layercert.system import clock

    outcomes: dict[float, set[bool]] = defaultdict(set)
    factors = (1.0, 3.0, 10.0, 100.0)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes = [4, 10, 10, 2]
        W = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
        net = Network.from_arrays(W, [0.3 * rng.normal(size=b) for b in sizes[1:]])
        problem = robustness(net, rng.normal(size=4), p)
        found = attack(problem, 1e3)
        if found is None:
            continue
        model, root = build(problem, 1.2 * found[1])
        state = root.copy()
        z = np.concatenate(net.preactivations(problem.x + found[0]))  # its node has an unsafe point
        for i in np.flatnonzero((root[LO] < 0) & (root[HI] > 0))[::2]:
            state[PHASE, i] = np.sign(z[i])

        def lanes(states: list[Matrix]) -> tuple:  # type: ignore[type-arg]
            return lanes_of(model, np.stack(states), np.ones((len(states), 1)), np.zeros(len(states), np.intp))  # noqa: B023

        def values(states: list[Matrix], steps: int = 0) -> Vector:
            side_by_side = lanes(states)
            best = optimise(model, side_by_side, 1e9, steps, np.zeros((len(states), 4)), clock.timer())  # noqa: B023
            for n, each in enumerate(states):
                store(side_by_side, n, each, np.ones(1))
            return best

        values([state], 40)
        before = [state.copy() for _ in factors]
        for factor, each in zip(factors, before, strict=True):
            each[BETA] *= factor
        without = state.copy()
        without[BETA] = 0.0
        together = lanes(before)
        drop_betas(model, together)
        after = [each.copy() for each in before]
        for n, each in enumerate(after):
            store(together, n, each, np.ones(1))
        kept, dropped, better = values([e.copy() for e in before]), values([without]), values([e.copy() for e in after])
        for n, factor in enumerate(factors):
            assert better[n] == pytest.approx(max(kept[n], dropped[0]), rel=1e-12, abs=1e-12)
            forgotten = not after[n][BETA].any()
            assert forgotten or np.array_equal(after[n][BETA], before[n][BETA])
            outcomes[factor].add(forgotten and bool(before[n][BETA].any()))
    assert outcomes[1.0] == {False} and outcomes[100.0] == {False, True}


def _fall(t: Vector, room: Vector, U: float, p: float) -> float:
    """max |t|.w over 0 <= w <= room, ||w||_p <= U, by filling the coordinates."""
    size = np.abs(t)
    if math.isinf(p):
        return float((size * np.minimum(room, U)).sum())
    if p == 1.0:
        total, left = 0.0, U
        for j in np.argsort(-size):
            used = min(left, room[j])
            total, left = total + size[j] * used, left - used
        return float(total)
    low, high = 0.0, 1e9
    for _ in range(200):
        tau = 0.5 * (low + high)
        w = np.minimum(room, tau * size ** (1.0 / (p - 1.0)))
        low, high = (tau, high) if (w**p).sum() < U**p else (low, tau)
    return float((size * w).sum())


def three_layers(rng: np.random.Generator) -> Problem:
    """In l_inf, without a bound at the root of the unit ball as often as not."""
    sizes = [6, 20, 20, 20, 2]
    W = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    net = Network.from_arrays(W, [0.3 * rng.normal(size=b) for b in sizes[1:]])
    return robustness(net, rng.normal(size=6), math.inf)


def test_rows_pull_where_a_node_has_no_bound_yet() -> None:
    """The cap is no guide there: pulls that grew by a share of themselves never left 0."""
    from layercert.search.adaptive.bound import Batch, deepen
    from layercert.search.adaptive.bound import Effort as Work
    from layercert.search.adaptive.model import build, keep_rows
    from layercert.system import clock

    pulling = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model, root = build(three_layers(rng), 1.0)
        kept, no_wish = keep_rows(model.net), np.full((1, 1), -1, np.intp)
        batch = Batch(
            root[None].copy(), np.ones((1, 1)), np.zeros(1, np.intp), np.full(1, -np.inf), np.zeros((1, 6)), no_wish
        )
        deepen(model, kept, batch, 1.0, 1.0, Work(0, 0, 5, 2, 2), clock.timer())
        if batch.bounds[0] < 0.0:
            assert np.all(kept.pulls >= 0.0)
            pulling += bool(np.any(kept.pulls > 0.0))
    assert pulling >= 2


def test_nodes_without_a_bound_that_gained_nothing_get_more_steps() -> None:
    """What they gain is proved by the parameters they keep; nodes that have a bound, or gained, stay as they are."""
    from layercert.search.adaptive.ascent import optimise
    from layercert.search.adaptive.bound import Batch, insist
    from layercert.search.adaptive.lanes import lanes_of
    from layercert.search.adaptive.model import PHASE, build
    from layercert.system import clock

    risen = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model, root = build(three_layers(rng), 1.0)
        states = np.stack([root] * 4)
        for n, state in enumerate(states):  # some splits: their multipliers are what the longer steps are for
            some = np.arange(n, root.shape[1], 7)
            state[PHASE, some] = rng.choice([-1.0, 1.0], len(some))
        batch = Batch(
            states, np.ones((4, 1)), np.zeros(4, np.intp), np.array([-50.0, -50.0, -50.0, 0.5]), np.zeros((4, 6)),
            np.full((4, 1), -1, np.intp),
        )  # fmt: skip
        old = states.copy()
        before = np.array([-50.0, -50.0, -60.0, 0.5])  # the third gained 10, the fourth has a bound
        insist(model, batch, before, 1.0, clock.timer())
        assert batch.bounds[2:].tolist() == [-50.0, 0.5]
        np.testing.assert_array_equal(batch.states[2:], old[2:])
        for n in (0, 1):
            assert batch.bounds[n] >= -50.0
            if batch.bounds[n] > -50.0:
                risen += 1
                lanes = lanes_of(model, batch.states[n : n + 1], batch.mus[n : n + 1], batch.clauses[n : n + 1])
                proved = optimise(model, lanes, 1.0, 0, np.zeros((1, 6)), clock.timer())
                assert proved[0] == pytest.approx(batch.bounds[n], rel=1e-9, abs=1e-9)
    assert risen >= 8


@pytest.mark.parametrize("p", NORMS)
def test_how_far_a_linear_function_falls(p: float) -> None:
    """Never less than the truth, and near it: the split between ball and box is a good one, in search and checker."""
    from layercert.bounds.ball import Ball
    from layercert.certificate.cap import lowest_on_cap
    from layercert.search.adaptive.cap import minimiser, whole_ball
    from layercert.search.adaptive.fall import fall

    rng = np.random.default_rng(11)
    q = 1.0 if math.isinf(p) else math.inf if p == 1.0 else p / (p - 1.0)
    network = Network.from_arrays([rng.normal(size=(3, 12)), rng.normal(size=(2, 3))], [np.zeros(3), np.zeros(2)])
    for _ in range(40):
        x = np.where(rng.random(12) < 0.3, 0.0, rng.random(12))
        problem = robustness(network, x, p, domain=(0.0, 1.0))
        U = float(rng.uniform(0.05, 1.5))
        t = rng.normal(size=12) * rng.choice([0.01, 1.0, 100.0])
        box = problem.box
        assert box is not None
        room = np.where(t > 0, -box.lo, box.hi)
        truth = _fall(t, room, U, p)
        searched = fall(t, 1.0, 0.0, np.zeros(12), U, _packed(problem, U), np.zeros(1))[0]
        down, up = np.minimum(-box.lo, U), np.minimum(box.hi, U)
        checked = -lowest_on_cap(t[None], np.zeros(0), 0.0, U, q, down, up)[0][0]
        bounded = Ball(problem, U).fall(t[None])[0]
        for name, value in (("search", searched), ("checker", checked), ("bounds", bounded)):
            assert value >= truth * (1 - 1e-12), name
        assert searched <= truth * 1.1 and checked <= truth * 1.1, (searched / truth, checked / truth)
        assert bounded <= truth * (1.1 if p > 1 else 3.0)
        w = np.empty(12)
        minimiser(t, 0.0, whole_ball(12, U), _packed(problem, U), w)
        assert (box.lo <= w).all() and (w <= box.hi).all() and problem.norm.value(w) <= U * 1.05
        assert -t @ w >= 0.95 * truth


def _packed(problem: Problem, U: float) -> object:
    from layercert.search.adaptive.model import build

    return build(problem, U)[0]


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_margins_of_a_piece_cover_its_rounding(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a deep piece against rationals; its own margins are far below those of all pieces."""
    from layercert.search.adaptive.leaf import Leaves, piece_margins

    rng = np.random.default_rng(4)
    sizes = [3, 12, 12, 12, 12, 12, 3]
    network = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) * scale for m in sizes[1:]]
    )
    problem = robustness(network, rng.normal(size=3), 2.0)
    clause = Clause(rng.normal(size=(2, 3)), rng.normal(size=2))
    asked = []
    task = Task(problem, make_chain("default", problem.norm))
    solve = task.chain.solve
    monkeypatch.setattr(task.chain, "solve", lambda programs: asked.append(programs) or solve(programs))
    sides = np.concatenate(network.pattern(problem.x + rng.normal(size=3))).astype(float)
    rowed = rng.random(60) < 0.7
    Leaves(task).solve(sides, rowed, clause, 1e9)
    rows = asked[0].rows
    slack, growth = piece_margins(problem, sides, rowed, clause)
    G, z = exact_rows(problem, sides, rowed, clause)
    off = np.array([abs(Fraction(float(a)) - b) for a, b in zip(rows.r, z, strict=True)], dtype=float)
    assert (off <= slack).all()
    apart = [
        [float(abs(Fraction(float(a)) - b)) for a, b in zip(*pair, strict=True)] for pair in zip(rows.A, G, strict=True)
    ]
    assert (np.linalg.norm(apart, axis=1) <= growth).all()
    assert (slack[-2:] < 0.1 * rows.slack[-2:]).all() and (growth[-2:] < 0.1 * rows.growth[-2:]).all()


def exact_rows(
    problem: Problem, sides: Vector, rowed: Vector, clause: Clause
) -> tuple[list[list[Fraction]], list[Fraction]]:
    """A and r of the rows of a piece, the clause's last, in rationals."""
    network = problem.network
    G = [[Fraction(int(i == j)) for j in range(network.inputs)] for i in range(network.inputs)]
    z = [Fraction(float(v)) for v in problem.x]
    A: list[list[Fraction]] = []
    r: list[Fraction] = []
    at = 0
    for k, (W, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        W, b = [[Fraction(float(v)) for v in row] for row in W], [Fraction(float(v)) for v in b]
        z = [sum((w * v for w, v in zip(row, z, strict=True)), c) for row, c in zip(W, b, strict=True)]
        G = [[sum(w * g[j] for w, g in zip(row, G, strict=True)) for j in range(network.inputs)] for row in W]
        if k == network.L:
            break
        for i in range(len(b)):
            side = Fraction(int(sides[at + i]))
            if rowed[at + i]:
                A.append([-side * g for g in G[i]])
                r.append(side * z[i])
            if side < 0:
                G[i], z[i] = [Fraction(0)] * network.inputs, Fraction(0)
        at += len(b)
    for row, d in zip(clause.C, clause.d, strict=True):
        C = [Fraction(float(v)) for v in row]
        A.append([sum(c * g[j] for c, g in zip(C, G, strict=True)) for j in range(network.inputs)])
        r.append(Fraction(float(d)) - sum(c * v for c, v in zip(C, z, strict=True)))
    return A, r


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("r", [1e-9, 0.7])
def test_kernels_hold_in_rational_arithmetic(r: float, p: float, boxed: bool, sparse: bool) -> None:
    """g.w + s - drift ||w|| <= F at points of the node, and bounds hold every neuron, whatever slopes and multipliers.

    In a ball of 1e-9 hardly anything is lost by relaxing: there the inequality is nearly an equality. A third of the
    neurons change sign at x, so that they are open even there. Several nodes are worked on side by side.
    """
    from layercert.search.adaptive.cap import Cap
    from layercert.search.adaptive.halfspace import dual_norm
    from layercert.search.adaptive.lanes import Constants, backward, lanes_of
    from layercert.search.adaptive.layers import tighten
    from layercert.search.adaptive.lines import fix
    from layercert.search.adaptive.model import ALPHA, BETA, COEF, HI, LO, PHASE, POINT, build, keep_rows
    from layercert.system import clock

    rng = np.random.default_rng(7)
    sizes = [4, 6, 6, 5, 3]
    weights, biases = [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    if sparse:
        for W in weights[:-1]:
            W[:] = np.where(rng.random(W.shape) < 0.25, W, 0.0)
            W[0, 0], W[-1, -1] = 1.0, -1.0
    x = rng.normal(size=4)
    h = x
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        b[::3] = -(W @ h)[::3]
        h = np.maximum(W @ h + b, 0.0)
    network = Network.from_arrays(weights, biases)
    assert network.packed.whole.all() != sparse
    problem = robustness(network, x, p, 0, domain=(x - 0.3 * r, x + 2.0 * r) if boxed else None)
    model, root = build(problem, r)
    noff, N = model.net.noff, root.shape[1]
    steps = rng.normal(size=(30, 4))
    rows = np.concatenate([network.weights[0], -network.weights[0]])  # to the ends of the first layer's bounds
    steps[: len(rows)] = np.where(rows.any(axis=1, keepdims=True), rows, steps[: len(rows)])
    steps = r * (1 - 1e-15) * problem.norm.steepest(steps)
    if boxed:
        steps = np.clip(steps, -0.3 * r * (1 - 1e-9), 2.0 * r)
    steps[20:] *= rng.random((10, 1))
    for w in steps:
        step = [Fraction(float(a)) for a in w]
        v = [Fraction(float(a)) + b for a, b in zip(x, step, strict=True)]
        z = [value for layer in exact_values(network, v)[:-1] for value in layer]
        assert all(lo <= a <= hi for lo, a, hi in zip(root[LO], z, root[HI], strict=True))
        states, clauses = np.stack([root, root, root]), rng.integers(2, size=3)
        for state in states:
            for i in np.flatnonzero(rng.random(N) < 0.3):  # splits that this point satisfies
                fix(state, i, 1.0 if z[i] >= 0 else -1.0)
            state[ALPHA], state[POINT] = rng.random(N), rng.normal(size=N)
            state[BETA] = np.where(state[PHASE] != 0, rng.random(N) * rng.choice([0.0, 1.0]), 0.0)
        lanes = lanes_of(model, states, np.ones((3, 1)), clauses.astype(np.intp))
        found = backward(model, lanes)
        f = network.exact(v)
        length = problem.norm.value(w) * (1 - 1e-12)
        x_ = [[max(a, Fraction(0)) for a in layer] for layer in exact_values(network, v)[:-1]]
        for n, state in enumerate(states):
            margin = f[0] - f[clauses[n] + 1]
            g, s, above = found.g[n], found.s[n], Constants(found.value[n].copy(), found.error[n].copy())
            line = sum((Fraction(float(a)) * b for a, b in zip(g, step, strict=True)), Fraction(s))
            assert line - Fraction(found.drift[n]) * Fraction(length) <= margin
            state[COEF] = lanes.state[COEF, :, n]
            for k in (1, 2, 3):  # the upper part alone, over the activations below
                coef = state[COEF, noff[k - 1] : noff[k]]
                part = sum((Fraction(float(a)) * b for a, b in zip(coef, x_[k - 1], strict=True)), Fraction(0))
                assert part + Fraction(above.value[k]) - Fraction(above.error[k]) <= margin
            s = float(s - line - Fraction(r) / 10**9)  # a parallel halfspace that just holds the point
            cap = Cap(r, g, s, dual_norm(g, p))
            # F - margin: unsafe here
            above.value[:] = [math.nextafter(float(Fraction(t) - margin), -math.inf) for t in above.value]
            for pull, upper in product((0.0, 0.1, 3.0, 1e6), (False, True)):
                kept = keep_rows(model.net, above=upper)
                kept.slopes[:], kept.pulls[:] = rng.random(len(kept.slopes)), pull * rng.random(len(kept.pulls))
                kept.betas[:] = rng.normal(size=len(kept.betas))
                for passes in (0, 2):
                    trial = state.copy()
                    assert tighten(model, kept, trial, cap, above, passes, clock.timer())
                    assert all(lo <= a <= hi for lo, a, hi in zip(trial[LO], z, trial[HI], strict=True))


def test_programs_of_relaxations_close_nodes_and_prove_no_more_than_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs for every node: they close many, the answers are those of brute force, and no bound is above it."""
    from layercert.search.adaptive import worker

    monkeypatch.setattr(worker, "NEAR", 1.0)
    closed: list[bool] = []
    by_program = worker.Worker._program

    def watched(self: worker.Worker, node: worker.Node) -> Iterator[Event]:
        before = node.bound
        yield from by_program(self, node)
        closed.append(before < self.ball.U <= node.bound)

    monkeypatch.setattr(worker.Worker, "_program", watched)
    for seed in (1, 2, 5, 6):
        rng = np.random.default_rng(seed)
        sizes = [3, 6, 6, 2]
        net = Network.from_arrays(
            [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.5 * rng.normal(size=b) for b in sizes[1:]]
        )
        x = rng.normal(size=3)
        problem = robustness(net, x, math.inf, domain=(x - 1.0, x + 3.0) if seed % 2 else None)
        agree(problem, run(problem))
    assert sum(closed) > 50


@pytest.mark.parametrize("threads", [2, 3])
def test_answers_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    import layercert as lc
    from layercert import shipped

    net, X = lc.load(shipped.path("mnist10_plain_2x20")), np.load(shipped.path("digits10"))["X"]
    for x in X[:3]:
        one, many = (lc.measure(net, x, domain=(0, 1), threads=n) for n in (1, threads))
        assert one.status == many.status == "exact"
        assert many.upper == pytest.approx(one.upper, rel=1e-6) and many.lower == pytest.approx(one.lower, rel=1e-6)


def test_no_bound_reaches_beyond_the_ball_that_it_was_proved_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of closed nodes may exceed the ball. Threads that hear of an empty queue told them as they were."""
    from layercert.search.adaptive import tree
    from layercert.search.adaptive.worker import Worker

    class InTurn:
        """The pool, with workers one after the other, and a look at the bounds after each of them."""

        def __init__(self, ball: tree.Ball, workers: list[Worker]) -> None:
            self.ball, self.workers = ball, workers

        def run(self, first: Iterator[Event]) -> Generator[Event, None, None]:
            yield from first
            while nodes := self.ball.take():
                yield from self.workers[len(nodes) % len(self.workers)].work(nodes)
                yield Bound(self.ball.frontier.least)

    monkeypatch.setattr(tree, "Pool", InTurn)
    beyond = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes = [3, 6, 6, 3]
        net = Network.from_arrays(
            [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.5 * rng.normal(size=b) for b in sizes[1:]]
        )
        problem = robustness(net, rng.normal(size=3), 2)
        radius = 0.7 * run(problem).upper
        task = Task(problem, make_chain("default", problem.norm), None, threads=2)
        ball = tree.Ball(task, Effort(), None, radius)
        assert all(event.lower <= radius for event in ball.run() if isinstance(event, Bound))
        beyond += ball.frontier.closed_bound > radius
    assert beyond > 0


def test_a_ball_with_an_open_piece_counts_for_what_it_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program has an answer and no witness is believed: balls grow, and bounds stay those of the nodes."""
    from layercert.search.adaptive import leaf, search

    def unanswered(self: leaf.Leaves, sides: Vector, rowed: object, clause: Clause, *_: object) -> leaf.Answer:
        rows = int(np.sum(rowed)) + len(clause.d)
        return leaf.Answer(0.0, math.inf, np.full(len(self.task.problem.x), math.nan), np.zeros(rows))

    monkeypatch.setattr(leaf.Leaves, "solve", unanswered)
    monkeypatch.setattr(Task, "suggest", lambda *_: iter(()))
    monkeypatch.setattr(search, "MANY", 0)  # first bounds start from what the ball before has proved
    rng = np.random.default_rng(3)
    sizes = [3, 6, 6, 2]
    net = Network.from_arrays(
        [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.5 * rng.normal(size=b) for b in sizes[1:]]
    )
    problem = robustness(net, rng.normal(size=3), 2)
    true, _ = brute_force(problem)
    assert math.isfinite(true)
    task = Task(problem, make_chain("default", problem.norm))
    told = [event.lower for event in islice(adaptive(task), 3000) if isinstance(event, Bound)]
    assert max(told) <= true * (1 + 1e-9)
