"""The one owner of the witness, and what is read from it: U, the goal, when a search may stop."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import layercert as lc
from layercert.methods import METHODS, choose
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.run import How, closest
from layercert.scaled import scaled
from layercert.search.events import Improve
from layercert.search.incumbent import Incumbent
from layercert.search.task import Task

# logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3 in every norm
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])


def hard(seed: int = 3) -> Problem:
    """Small enough to be solved at once, large enough that every search branches."""
    rng = np.random.default_rng(seed)
    sizes = [6, 16, 16, 3]
    net = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)],
        [0.5 * rng.normal(size=m) for m in sizes[1:]],
    )
    return robustness(net, rng.uniform(-1, 1, 6), "linf", domain=(-4, 4))


class TestIncumbent:
    def test_point_distance_and_clause_belong_together(self) -> None:
        problem = robustness(LINE, [0.2])
        incumbent = Incumbent(problem)
        assert incumbent.witness is None and incumbent.distance == incumbent.nearest == math.inf
        assert incumbent.offer(np.array([0.7]), problem.clauses[0])
        assert incumbent.offer(np.array([0.3]), problem.clauses[0])
        held = incumbent.witness
        assert held is not None and held.clause is problem.clauses[0]
        assert held.distance == problem.distance(held.point) == incumbent.distance == pytest.approx(0.3, rel=1e-6)
        assert problem.is_unsafe(held.point)

    @pytest.mark.parametrize("weight", [2.0, 0.3])
    def test_what_another_search_saw_ends_the_ball_in_scaled_coordinates_too(self, weight: float) -> None:
        problem = robustness(LINE, [0.2], weights=[weight])
        incumbent = Incumbent(problem)
        seen = incumbent.seen_in(scaled(problem, 10.0))
        assert incumbent.offer(np.array([0.3]), problem.clauses[0])
        near = 0.9 * seen.nearest
        seen.recall(None, near, np.array([0.25]))
        assert near * (1 - 1e-9) < seen.nearest <= near
        assert seen.unsettled is not None and seen.unsettled == pytest.approx([0.25])
        again = seen.nearest
        seen.recall(None, again, None)
        assert seen.nearest == again and seen.unsettled is not None
        assert incumbent.witness is not None

    def test_a_point_unsafe_up_to_rounding_only_ends_the_ball_and_is_no_witness(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problem = robustness(LINE, [0.2])
        incumbent = Incumbent(problem)
        assert incumbent.offer(np.array([0.5]), problem.clauses[0])
        monkeypatch.setattr("layercert.search.incumbent.settle", lambda *_: None)
        assert not incumbent.offer(np.array([0.3]), problem.clauses[0])
        assert incumbent.distance == pytest.approx(0.5) and incumbent.nearest == 0.3
        assert incumbent.unsettled is not None and incumbent.unsettled.tolist() == [0.3]
        assert Task(problem, make_chain("default", problem.norm), incumbent=incumbent).U == 0.3

    def test_a_point_that_a_solver_proposes_counts_only_when_it_settles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = robustness(LINE, [0.2], weights=[2.0])
        incumbent = Incumbent(problem)
        seen = incumbent.seen_in(scaled(problem, 10.0))
        assert seen.propose(seen.problem.norm.value(np.ones(1)) * np.array([1.0]), seen.problem.clauses[0])
        before = incumbent.witness, incumbent.nearest
        assert before[0] is not None and incumbent.nearest <= before[0].distance
        assert not incumbent.propose(np.array([0.2]), problem.clauses[0])  # safe
        assert not incumbent.propose(np.array([5.0]), problem.clauses[0])  # unsafe, but farther
        monkeypatch.setattr("layercert.search.incumbent.settle", lambda *_: None)
        assert not seen.propose(np.array([0.6]), seen.problem.clauses[0])
        assert (incumbent.witness, incumbent.nearest) == before and incumbent.unsettled is None

    def test_a_safe_point_is_not_taken(self) -> None:
        incumbent = Incumbent(robustness(LINE, [0.2]))
        assert not incumbent.take(np.array([0.4]))
        assert incumbent.witness is None and math.isinf(incumbent.nearest)

    def test_many_threads_offer_and_the_nearest_stays(self) -> None:
        problem = robustness(LINE, [0.2])
        incumbent = Incumbent(problem)
        steps = np.random.default_rng(0).permutation(np.linspace(0.31, 0.9, 200))

        def offer(step: float) -> bool:
            taken = incumbent.offer(np.array([step]), problem.clauses[0])
            held = incumbent.witness
            assert held is not None and held.distance == problem.distance(held.point)
            return taken

        with ThreadPoolExecutor(4) as pool:
            taken = list(pool.map(offer, steps))
        assert any(taken) and not all(taken)
        assert incumbent.distance == pytest.approx(0.31) and incumbent.point == pytest.approx([0.51])

    def test_in_scaled_coordinates_it_is_the_same_one(self) -> None:
        problem = robustness(LINE, [0.2], "l2", weights=[3.0])
        incumbent = Incumbent(problem)
        view = scaled(problem, 10.0)
        seen = incumbent.seen_in(view)
        assert seen is not incumbent and incumbent.seen_in(scaled(robustness(LINE, [0.2]), 10.0)) is incumbent
        assert seen.offer(np.array([1.2]), view.problem.clauses[0])  # 0.4 in the input, 1.2 with its weight
        assert incumbent.point == pytest.approx([0.6]) and incumbent.distance == pytest.approx(1.2)
        assert incumbent.clause is problem.clauses[0] and seen.clause is view.problem.clauses[0]
        assert seen.distance >= incumbent.distance and seen.nearest == pytest.approx(1.2)
        assert seen.point == pytest.approx(view.problem.x + 1.2)


class TestTask:
    def test_u_is_read_from_the_incumbent(self) -> None:
        problem = robustness(LINE, [0.2], radius=2.0)
        task = Task(problem, make_chain("default", problem.norm))
        assert task.U == task.goal == 2.0 and task.known_size
        (event,) = task.suggest(np.array([0.4]), problem.clauses[0])
        assert isinstance(event, Improve) and event.distance == task.incumbent.distance
        assert task.U == task.incumbent.nearest == 0.4
        assert not list(task.suggest(np.array([0.5]), problem.clauses[0]))

    @pytest.mark.parametrize(("gap", "closing"), [(1e-6, 1e-7), (1e-8, 1e-9), (1e-2, 1e-2 - 9e-7)])
    def test_the_goal_leaves_room_for_settling(self, gap: float, closing: float) -> None:
        problem = robustness(LINE, [0.2])
        task = Task(problem, make_chain("default", problem.norm), gap=gap)
        assert list(task.suggest(np.array([0.4]), problem.clauses[0]))
        assert task.goal == pytest.approx(task.incumbent.nearest * (1.0 - closing), rel=1e-12)

    def test_nothing_says_how_large_the_ball_is(self) -> None:
        problem = robustness(LINE, [0.2])
        assert not Task(problem, make_chain("default", problem.norm)).known_size
        assert Task(problem, make_chain("default", problem.norm), limit=3.0).known_size


class TestGap:
    @pytest.mark.parametrize("method", [None, *(name for name, m in METHODS.items() if m.complete)])
    def test_a_larger_gap_is_kept_and_costs_no_more(self, method: str | None) -> None:
        problem = replace(hard(), norm=Norm(math.inf))
        exact = closest(problem, How("adaptive"))
        assert exact.status == "exact" and exact.gap <= 1e-6
        visits: list[int] = []
        for gap in (1e-6, 0.2):
            events = 0

            def count(*_: object) -> None:
                nonlocal events
                events += 1

            result = closest(problem, How(method, gap=gap, watch=count))
            assert result.status == "exact" and result.gap <= gap
            assert result.lower <= exact.upper * (1 + 1e-9) and result.upper >= exact.lower * (1 - 1e-9)
            assert result.gap == pytest.approx((result.upper - result.lower) / result.upper)
            visits.append(events)
        assert visits[1] <= visits[0]

    def test_the_adaptive_search_closes_nodes_early(self) -> None:
        nodes = []
        for gap in (1e-6, 0.1):
            seen: list[float] = []
            result = closest(hard(5), How("adaptive", gap=gap, watch=lambda progress, _, seen=seen: seen.append(1)))
            assert result.status == "exact" and result.gap <= gap
            nodes.append(len(seen))
        assert nodes[1] < nodes[0]

    def test_without_a_witness_there_is_no_gap(self) -> None:
        assert math.isinf(lc.measure(LINE, [0.2], radius=0.1).gap)
        assert lc.measure(LINE, [0.2], radius=0.1).as_dict()["gap"] is None
        assert lc.measure(LINE, [0.5]).gap == 0.0  # a tie at x itself

    @pytest.mark.parametrize("gap", [0.0, 1.0, -1e-6, math.nan, "small", True])
    def test_what_is_no_gap(self, gap: float) -> None:
        with pytest.raises(lc.LayerCertError, match="the gap is a number above 0 and below 1, relative"):
            lc.measure(LINE, [0.2], gap=gap)


class TestThreads:
    @pytest.mark.parametrize("threads", [0, -1, 1.5, True, "two"])
    def test_what_is_no_number_of_threads(self, threads: int) -> None:
        for ask in (
            lambda: lc.measure(LINE, [0.2], threads=threads),
            lambda: lc.verify(LINE, [0.2], 0.1, threads=threads),
            lambda: lc.measure_all(LINE, [[0.2]], threads=threads),
        ):
            with pytest.raises(lc.LayerCertError, match="threads is a whole number, 1 or more, got"):
                ask()

    def test_they_reach_the_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int | None] = []
        monkeypatch.setitem(
            METHODS,
            "adaptive",
            replace(METHODS["adaptive"], search=lambda task: iter([asked.append(task.threads)][:0])),
        )
        for threads in (None, 3):
            lc.measure(LINE, [0.2], method="adaptive", threads=threads)
        assert asked == [None, 3]


class TestMethod:
    def test_it_is_chosen_where_none_is_named(self) -> None:
        """With the distance of the witness, which says how many neurons are open."""
        problem = hard()
        result = closest(problem)
        assert result.method == choose(problem, result.upper)
        for name in (None, "auto"):
            assert lc.measure(LINE, [0.2], method=name).method in METHODS
            assert lc.verify(LINE, [0.2], 0.1, method=name).method in METHODS

    def test_the_attack_comes_from_the_session_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once for the methods that want it; the paper's start from the radius, where there is one."""
        calls: list[str] = []
        attack = Task.attack
        monkeypatch.setattr(Task, "attack", lambda self: calls.append("attack") or attack(self))
        for name, method in METHODS.items():
            for radius, expected in ((None, 1), (0.35, int(method.attacks))):
                calls.clear()
                assert lc.measure(LINE, [0.2], "linf", radius=radius, method=name).upper == pytest.approx(0.3, rel=1e-5)
                assert len(calls) == expected, (name, radius)
