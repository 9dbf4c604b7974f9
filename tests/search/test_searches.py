"""Every method against brute force, on generic and on degenerate networks; and the cases with a known answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

import layercert as lc
from helpers.agreement import check_against
from helpers.brute import brute_force
from helpers.tiny import degenerate, examples, generic, seeds
from layercert.methods import METHODS, Method
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.programs.chain import SolverChain
from layercert.programs.program import Programs, Solutions
from layercert.programs.stacks import make_chain
from layercert.search.events import Bound, Event
from layercert.search.incumbent import Incumbent
from layercert.search.task import Task

GEOMETRIC = [name for name, method in METHODS.items() if name != "mip" and method.complete]
ALL = [name for name, method in METHODS.items() if method.complete]


@examples(dev=30, ci=150)
@given(seed=seeds)
def test_all_methods_on_generic_networks(seed: int) -> None:
    problem = generic(seed)
    true, _ = brute_force(problem)
    for method in (*GEOMETRIC, "large"):
        check_against(true, problem, method)


@examples(dev=50, ci=300)
@given(seed=seeds)
def test_all_methods_on_degenerate_networks(seed: int) -> None:
    problem = degenerate(seed)
    true, _ = brute_force(problem)
    for method in (*GEOMETRIC, "large"):
        check_against(true, problem, method)


@examples(dev=20, ci=60)
@given(seed=seeds)
def test_every_reported_bound_is_true(seed: int) -> None:
    """Stopped at any event, the lower bound reported so far holds."""
    problem = generic(seed)
    true, _ = brute_force(problem)
    for method in ("geocert-lip", "layercert-basic", "layercert-both", "layercert-recursive-lp"):
        seen: list[float] = []
        lc.measure(
            problem.network,
            problem.x,
            problem.norm.p,
            problem.label,
            problem.radius,
            problem.domain,
            method,
            watch=lambda run, _, seen=seen: seen.append(run.lower),
        )
        assert all(b <= true * (1 + 1e-9) + 1e-12 for b in seen), (method, true, seen)


@pytest.mark.parametrize("method", GEOMETRIC)
def test_robust_is_not_claimed_by_rounding(method: str) -> None:
    """Slopes of 1e-6 under values of 1e3: a distance of 1 is uncertain by 1e-7, and the truth is known by fractions."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        w, a, x = rng.uniform(0.5, 1) * 1e-6, rng.uniform(0.5, 1), rng.uniform(1, 2)
        b = rng.uniform(1e3, 2e3)
        c = rng.uniform(0.1e-6, 1e-6) - a * (w * x + b)
        network = Network.from_arrays([[[w]], [[a], [0.0]]], [[b], [c, 0.0]])  # the one neuron is on all over the ball
        W, A, B, C, X = (Fraction(v) for v in (w, a, b, c, x))
        true = float((A * (W * X + B) + C) / (A * W))
        for beyond in (1e-9, 1e-8, 1e-7):
            r = lc.measure(network, [x], 2.0, label=0, radius=true * (1 + beyond), method=method)
            assert r.status != "robust" and r.lower <= true * (1 + 1e-12), (method, beyond, true, r)


@pytest.mark.parametrize("method", GEOMETRIC)
def test_a_radius_beyond_the_horizon_is_searched_to_its_end(method: str) -> None:
    """Without a radius a search looks 1e6 times the size of x far; one that was asked for means what it says."""
    # logits are (1, 1e-9 t): they cross at t = 1e9
    network = Network.from_arrays([[[1.0]], [[0.0], [1e-9]]], [[0.0], [1.0, 0.0]])
    r = lc.measure(network, [0.5], radius=2e9, method=method)
    assert r.status == "exact" and r.upper == pytest.approx(1e9, rel=1e-6)
    assert lc.measure(network, [0.5], radius=0.9e9, method=method).status == "robust"
    assert lc.verify(network, [0.5], 1.1e9, method=method).status == "not_robust"
    short = lc.measure(network, [0.5], method=method)
    assert 1.5e6 <= short.lower <= 1e9 and "looks no farther" in short.note


# logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3 in every norm
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])


def answers(*rows: tuple[float, float, bool]) -> Solutions:
    """Programs with these bounds, values and decisions."""
    lower, value, decided = (np.array(column) for column in zip(*rows, strict=True))
    return Solutions(np.zeros((len(rows), 1)), np.zeros((len(rows), 1)), lower, value, decided)


class TestBooking:
    """What the answers of programs leave of the least key in the queue."""

    def task(self) -> Task:
        return Task(robustness(LINE, [0.2]), make_chain("default", Norm(2.0)), limit=1.0)

    def test_gaps_are_taken_off(self) -> None:
        task = self.task()
        task.accept(answers((0.2, 0.2 + 1e-8, True), (0.3, 0.3 + 2e-8, False), (2.0, 2.5, True)))
        assert task.lower(0.5) == pytest.approx(0.5 - 2e-8, abs=1e-12)
        assert task.lower(math.inf) == 1.0  # the gap is that of keys, and there is none

    def test_what_nobody_decided_is_a_ceiling(self) -> None:
        task = self.task()
        task.accept(answers((0.25, math.inf, False), (0.4, 0.5, False), (3.0, math.inf, False)))
        assert task.lower(0.5) == 0.25 and task.slip == 0.0

    def test_a_point_that_is_safe_after_all_is_no_witness(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = robustness(LINE, [0.2])
        incumbent = Incumbent(problem)
        monkeypatch.setattr("layercert.search.incumbent.settle", lambda problem, step, clause: problem.x + step)
        assert not incumbent.offer(np.array([0.2]), problem.clauses[0])  # at 0.4 the class is still 0
        assert incumbent.point is None and math.isinf(incumbent.distance)
        assert incumbent.offer(np.array([0.4]), problem.clauses[0])
        assert incumbent.distance == pytest.approx(0.4)
        assert not incumbent.offer(np.array([0.5]), problem.clauses[0])  # farther
        assert incumbent.distance == pytest.approx(0.4)


@pytest.mark.parametrize("method", GEOMETRIC)
def test_nothing_is_proved_where_no_solver_answers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither witnesses nor distance programs: what a search leaves open must not count as closed."""
    monkeypatch.setattr("layercert.search.adaptive.witnesses.Witnesses.seek", lambda *_: iter(()))
    for seed in (17, 21, 23, 33, 37):  # problems with an unsafe point
        problem = generic(seed)
        true, _ = brute_force(problem)
        task = Task(replace(problem, radius=1.5 * true), SolverChain(()))
        bounds = [event.lower for event in METHODS[method].search(task) if isinstance(event, Bound)]
        assert max(bounds, default=0.0) <= true * (1 + 1e-9), (seed, true)


class TestWhatABoundIsWorth:
    """A search that proves so much and ends: the answer is what that proves, and no more."""

    @pytest.fixture
    def proving(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], str]:
        def method(bound: float) -> str:
            def search(task: Task) -> Iterator[Event]:
                yield Bound(bound)

            alone = Method("so far", search, "proves a bound and ends", last_resort=False)
            monkeypatch.setitem(METHODS, "so far", alone)
            return "so far"

        return method

    @pytest.mark.parametrize(("short", "status"), [(0.0, "robust"), (1e-9, "undecided"), (1e-7, "undecided")])
    def test_up_to_a_radius(self, proving: Callable[[float], str], short: float, status: str) -> None:
        method = proving(0.25 * (1.0 - short))
        assert lc.measure(LINE, [0.2], radius=0.25, method=method).status == status
        assert lc.verify(LINE, [0.2], 0.25, method=method).status == status

    @pytest.mark.parametrize(("short", "status"), [(0.0, "robust"), (1e-8, "undecided"), (0.05, "undecided")])
    def test_up_to_the_end_of_the_domain(self, proving: Callable[[float], str], short: float, status: str) -> None:
        problem = robustness(LINE, [0.2], domain=(0.1, 0.4))  # 0.2 to the farther end
        method = proving(problem.reach * (1.0 - short))
        assert lc.measure(LINE, [0.2], domain=(0.1, 0.4), method=method).status == status
        assert lc.measure(LINE, [0.2], domain=(0.1, 0.4), radius=5.0, method=method).status == status


@pytest.mark.parametrize("method", ALL)
class TestKnownAnswers:
    @pytest.mark.parametrize("norm", ["l1", "linf", "l2", 3])
    def test_crossing_on_a_line(self, method: str, norm: str) -> None:
        if method == "mip" and norm not in ("l1", "linf"):
            with pytest.raises(lc.LayerCertError, match="linear norms only, l1 and linf, got l"):
                lc.measure(LINE, [0.2], norm, method=method)
            return
        r = lc.measure(LINE, [0.2], norm, method=method)
        assert r.status == "exact"
        assert r.upper == pytest.approx(0.3, rel=1e-6)
        assert (r.label, r.target) == (0, 1)

    def test_radius_below_the_answer_is_robust(self, method: str) -> None:
        r = lc.measure(LINE, [0.2], radius=0.25, method=method)
        assert r.status == "robust"
        assert r.lower >= 0.25 or method == "mip"

    def test_boundary_outside_the_domain_is_robust(self, method: str) -> None:
        r = lc.measure(LINE, [0.2], domain=(0.0, 0.4), method=method)
        assert r.status == "robust"
        assert r.upper == math.inf

    def test_on_the_decision_boundary_the_distance_is_zero(self, method: str) -> None:
        r = lc.measure(LINE, [0.5], label=0, method=method)
        assert (r.status, r.lower, r.upper) == ("exact", 0.0, 0.0)
        assert "tie of 0 and 1" in r.note

    def test_misclassified_input_has_distance_zero(self, method: str) -> None:
        r = lc.measure(LINE, [0.9], label=0, method=method)
        assert (r.status, r.upper) == ("exact", 0.0)
        assert "already classified as 1, not as 0" in r.note

    def test_constant_network_is_robust_at_any_radius(self, method: str) -> None:
        net = Network.from_arrays([np.ones((3, 2)), np.zeros((2, 3))], [np.zeros(3), [1.0, 0.0]])
        r = lc.measure(net, [0.3, 0.4], method=method)
        assert (r.status, r.lower, r.upper) == ("robust", math.inf, math.inf)

    def test_boundary_that_does_not_exist(self, method: str) -> None:
        """f_0 - f_1 = relu(x) + 1 is never zero, though it depends on the input."""
        net = Network.from_arrays([[[1.0]], [[1.0], [0.0]]], [[0.0], [1.0, 0.0]])
        assert lc.measure(net, [0.3], method=method, radius=5.0).status == "robust"
        if method != "mip":  # which needs a bounded ball
            assert lc.measure(net, [0.3], method=method).status == "robust"

    def test_verify_stops_at_either_answer(self, method: str) -> None:
        yes = lc.verify(LINE, [0.2], 0.29, method=method)
        no = lc.verify(LINE, [0.2], 0.31, method=method)
        assert yes.status == "robust"
        assert no.status == "not_robust"
        assert no.witness is not None and LINE(no.witness)[1] >= LINE(no.witness)[0]
        assert no.upper <= 0.31

    def test_network_without_hidden_layers(self, method: str) -> None:
        # f_0 - f_1 = 1 - a - b at (a, b): in l_inf the nearest zero from the origin is (0.5, 0.5)
        net = Network.from_arrays([[[-1.0, -1.0], [0.0, 0.0]]], [[1.0, 0.0]])
        assert lc.measure(net, [0.0, 0.0], method=method).upper == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("method", GEOMETRIC)
def test_no_box_is_shrunk_to_the_l_inf_size_of_an_l2_witness(method: str) -> None:
    """GeoCert's published code shrinks its box to the l_inf norm of the best l_2 point and loses nearer boundaries.

    With a, b the input, f_0 - f_1 = 2 - a - b - 8 relu(a - 1.1). In the first region the nearest zero from the origin
    is (1, 1): l_2 distance sqrt 2 = 1.41, l_inf size 1. Behind the hyperplane a = 1.1, outside the l_inf box of size 1,
    lies the line 9a + b = 10.8 at distance 10.8/sqrt 82 = 1.19.
    """
    net = Network.from_arrays(
        [[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[-8.0, -1.0, -1.0], [0.0, 0.0, 0.0]]],
        [[-1.1, 10.0, 10.0], [22.0, 0.0]],
    )
    r = lc.measure(net, [0.0, 0.0], "l2", radius=5.0, method=method)
    assert r.status == "exact"
    assert r.upper == pytest.approx(10.8 / math.sqrt(82.0), rel=1e-6)


@pytest.mark.parametrize("method", GEOMETRIC)
def test_time_limit_returns_honest_bounds(method: str) -> None:
    rng = np.random.default_rng(5)
    net = Network.from_arrays(
        [rng.normal(size=(40, 20)), rng.normal(size=(40, 40)), rng.normal(size=(3, 40))],
        [rng.normal(size=40), rng.normal(size=40), rng.normal(size=3)],
    )
    x = rng.normal(size=20)
    r = lc.measure(net, x, "linf", method=method, time_limit=0.2)
    assert 0.0 <= r.lower <= r.upper
    if r.status == "undecided":
        assert r.note == "time limit reached"


def test_an_answer_does_not_excuse_itself_with_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that closes the gap and goes on until the limit: the answer is there all the same."""

    def endless(task: Task) -> Iterator[Event]:
        while True:
            yield Bound(task.U)

    monkeypatch.setitem(METHODS, "endless", Method("endless", endless, "never stops"))
    # logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3
    net = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
    r = lc.measure(net, [0.2], method="endless", time_limit=0.05)
    assert (r.status, r.note) == ("exact", "")
    assert r.upper == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        (generic, 1021),  # the nearest unsafe point is a corner: no single linear piece shows the way in
        (degenerate, 1098),  # a corner again, in l1
        (degenerate, 1035),  # the margin falls to zero and stays there: the unsafe set is a tie throughout
    ],
)
@pytest.mark.parametrize("method", ["adaptive", "layercert-basic"])
def test_witnesses_at_corners_and_in_flat_ties(make: Callable[[int], Problem], seed: int, method: str) -> None:
    problem = make(seed)
    true, _ = brute_force(problem)
    check_against(true, problem, method)


class FarPoints(SolverChain):
    """Points on the face w_1 = 1 that are verified, and not the nearest ones: 5e-8 beyond their bound."""

    def solve(self, programs: Programs) -> Solutions:
        found = super().solve(programs)
        for i, e in enumerate(programs.equalities):
            if e >= 0 and abs(found.value[i] - 1.0) < 1e-6:
                found.steps[i] = [1.0, math.sqrt(1e-7)]
                found.value[i], found.decided[i] = programs.norm.value(found.steps[i]), False
        return found


@pytest.mark.parametrize("method", ["layercert-basic", "layercert-basic-late", "layercert-ia", "layercert-recursive"])
def test_points_beyond_the_ball_prove_nothing_about_it(method: str) -> None:
    """Unsafe where w_1 >= 1 + 1e-8, and the ball reaches a little farther. A point of the face is outside of it, where
    a neuron is on that is off in the whole ball: with it everything would be safe."""
    away = np.array([1.0, math.sqrt(1e-7)])
    away /= np.linalg.norm(away)
    first = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]  # w_1 - 1, w_1 + 10, w_2 + 10
    second = [[1.0, 0.0, 0.0], [0.0, *away]]  # the same, and how far w is along `away`, beyond 1 + 4e-8
    beyond = 1.0 + 4e-8 + 10.0 * away.sum()
    network = Network.from_arrays(
        [first, second, [[-1e8, -1e9], [0.0, 0.0]]], [[-1.0, 10.0, 10.0], [0.0, -beyond], [1.0, 0.0]]
    )
    problem = robustness(network, [0.0, 0.0], "l2", radius=1.0 + 3e-8)
    assert problem.is_unsafe(np.array([1.0 + 1.1e-8, 0.0]))
    plain = make_chain("default", problem.norm)
    task = Task(problem, FarPoints(plain.solvers, rotates=False))
    bounds = [event.lower for event in METHODS[method].search(task) if isinstance(event, Bound)]
    assert max(bounds) <= 1.0 + 1.1e-8
