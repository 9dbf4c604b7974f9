"""Several threads at one tree: the same answers, stops at once, rests where nobody listens."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest

import layercert as lc
from helpers import tiny
from helpers.brute import brute_force
from helpers.networks import random_question
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.run import How, closest
from layercert.search.adaptive import pool
from layercert.search.adaptive.frontier import Frontier
from layercert.search.adaptive.model import ROWS
from layercert.search.adaptive.node import Node
from layercert.search.adaptive.search import adaptive, suited
from layercert.search.adaptive.tree import Ball
from layercert.search.events import Bound, Nodes
from layercert.search.task import Task
from layercert.session import Progress, Session
from layercert.system import clock
from layercert.system.threads import side_by_side


def at_work() -> int:
    return sum(thread.name.startswith("layercert-") for thread in threading.enumerate())


@pytest.mark.parametrize("threads", [2, 4])
def test_the_distance_of_brute_force(threads: int) -> None:
    for seed in range(8):
        problem = tiny.generic(seed)
        true, _ = brute_force(problem)
        result = closest(problem, How("adaptive", threads=threads))
        if math.isfinite(true) and true <= problem.radius:
            assert result.status == "exact" and result.upper == pytest.approx(true, rel=1e-6)
        else:
            assert result.status == "robust"
    assert at_work() == 0


@pytest.mark.parametrize(("inputs", "seed", "norm"), [(8, 3, "l1"), (6, 2, "linf"), (8, 1, "l2")])
def test_the_answer_of_one_thread_on_hundreds_of_nodes(inputs: int, seed: int, norm: str) -> None:
    net, x = random_question(inputs, seed)
    one, many = (lc.measure(net, x, norm, method="adaptive", threads=n) for n in (1, 3))
    assert one.status == many.status == "exact"
    assert many.upper == pytest.approx(one.upper, rel=1e-6) and many.lower <= one.upper


def test_certificates_of_several_threads_are_checked() -> None:
    net, x = random_question(6, 2)
    result = lc.measure(net, x, "linf", method="adaptive", threads=3, certificate=True)
    assert result.status == "exact" and result.certificate is not None
    assert lc.check(net, result.certificate).ok
    assert result.certificate.radius == pytest.approx(result.upper, rel=1e-4)


def test_bounds_rise_and_nodes_are_counted() -> None:
    net, x = random_question(8, 3)
    bounds: list[float] = []
    counts: list[Nodes] = []

    def watch(progress: object, event: object) -> None:
        if isinstance(event, Bound):
            bounds.append(event.lower)
        elif isinstance(event, Nodes):
            counts.append(event)

    result = lc.measure(net, x, "l1", method="adaptive", threads=2, watch=watch)
    assert result.status == "exact" and max(bounds) <= result.upper
    assert counts[-1].closed > 100 and counts[-1].share == pytest.approx(1.0, abs=1e-2)
    assert all(0 <= count.share <= 1 for count in counts)


def test_threads_count_rounds_by_nodes() -> None:
    """Whatever the number of threads, a round is what one thread would take at once: smaller balls wait for them."""
    net, x = random_question(8, 3)
    problem = robustness(net, x, "l1", radius=5.5)
    rounds, nodes = [], []
    for threads in (1, 2, 4):
        task = Task(problem, make_chain("default", problem.norm), 5.5, threads=threads)
        ball = Ball(task, suited(net), None, 5.5)
        for _ in ball.run():
            pass
        rounds.append(ball.rounds)
        nodes.append(ball.frontier.made)
    assert min(nodes) > 100
    per_node = np.array(rounds) / np.array(nodes)
    assert (per_node < 3.0 * per_node[0]).all() and (per_node > per_node[0] / 3.0).all()


def test_a_time_limit_ends_all_threads_at_once() -> None:
    net, x = random_question(8, 1)  # in l_1 a matter of minutes
    lc.measure(net, x, "l1", method="adaptive", threads=2, time_limit=0.2)
    started = time.monotonic()
    result = lc.measure(net, x, "l1", method="adaptive", threads=2, time_limit=0.5)
    assert result.status == "undecided" and result.note == "time limit reached" and 0 < result.lower < result.upper
    assert time.monotonic() - started < 5.0 and at_work() == 0


def test_ctrl_c_ends_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = random_question(8, 1)
    heard: list[object] = []

    def watch(progress: object, event: object) -> None:
        heard.append(event)
        if len(heard) == 60:
            raise KeyboardInterrupt

    result = lc.measure(net, x, "l1", method="adaptive", threads=2, watch=watch)
    assert result.interrupted and result.note == "interrupted" and at_work() == 0


def test_a_fault_in_a_thread_is_raised_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    from layercert.search.adaptive.worker import Worker

    monkeypatch.setattr(Worker, "split", lambda self, nodes: (_ for _ in ()).throw(ZeroDivisionError("a fault")))
    net, x = random_question(8, 3)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        lc.measure(net, x, "l1", method="adaptive", threads=2)
    assert at_work() == 0


def test_threads_rest_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ABSENT", 0.05)
    net, x = random_question(8, 1)
    session = Session(robustness(net, x, "l1", radius=6.0), How("adaptive", threads=2), stop_at_witness=True)
    assert not session.advance(clock.now() + 1.0)
    assert session.progress.nodes is not None and session._task is not None and session._task.tree is not None
    time.sleep(0.5)  # what they hold is finished
    before = session._task.tree()
    time.sleep(0.5)
    after = session._task.tree()
    assert before is not None and after is not None and before.made == after.made
    session.advance(clock.now() + 0.5)
    later = session._task.tree()
    assert later is not None and later.made > after.made
    session._close()
    assert at_work() == 0


def test_a_search_that_nobody_finishes_ends_its_threads() -> None:
    net, x = random_question(8, 1)
    problem = robustness(net, x, "l1")
    task = Task(problem, make_chain("default", problem.norm), 8.0, threads=2)
    events = adaptive(task)
    for _ in range(30):
        next(events)
    assert at_work() >= 2
    events.close()  # type: ignore[attr-defined]
    assert at_work() == 0


def test_calls_side_by_side_keep_their_order_and_faults() -> None:
    assert side_by_side([lambda: 1]) == [1]
    assert side_by_side([lambda i=i: (time.sleep(0.02 * (3 - i)), i)[1] for i in range(3)]) == [0, 1, 2]  # type: ignore[misc]

    def late() -> int:
        while True:
            clock.check()  # ended by the fault beside it
            time.sleep(0.01)

    with pytest.raises((ZeroDivisionError, clock.OutOfTime)):
        side_by_side([lambda: 1 // 0, late])


def test_from_several_python_threads_at_once() -> None:
    net, x = random_question(6, 2)
    one = lc.measure(net, x, "linf", method="adaptive")
    found: list[float] = []
    callers = [
        threading.Thread(target=lambda: found.append(lc.measure(net, x, "linf", method="adaptive", threads=2).upper))
        for _ in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert np.allclose(found, one.upper, rtol=1e-6) and len(found) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bound_of_memory_is_kept(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of 200 nodes in a tenth of what they would take: packed, then depth first, the same answer."""
    net, x = random_question(8, 1)
    most, first, sizes = 60_000, [False], [0]

    def watch(progress: Progress, event: object) -> None:
        if isinstance(event, Nodes):
            sizes.append(event.open)

    def push(frontier: Frontier, node: Node) -> None:
        own_push(frontier, node)
        first[0] |= frontier.depth_first  # between two events, and over again at the next one, as often as not

    own_push = Frontier.push
    monkeypatch.setattr(Frontier, "push", push)
    result = lc.measure(net, x, "l2", method="adaptive", threads=threads, memory=most, watch=watch)
    assert result.status == "exact" and first[0]
    free = lc.measure(net, x, "l2", method="adaptive")
    assert result.upper == pytest.approx(free.upper, rel=1e-6)
    full = ROWS * 8 * 48  # bytes of a node as it is
    assert max(sizes) * full > most  # more than would fit as they are
    with pytest.raises(lc.LayerCertError, match="memory is a whole number of bytes above 0, got 0"):
        lc.measure(net, x, memory=0)


def test_the_queue_stays_within_its_bound() -> None:
    net, x = random_question(8, 1)
    problem = robustness(net, x, "l2")
    task = Task(problem, make_chain("default", problem.norm), 4.4)
    task.memory = 60_000
    ball = Ball(task, suited(net), None, 4.4)
    most = 0
    for _ in ball.run():
        most = max(most, ball.frontier._bytes + ball.frontier._roomy)
    assert 40_000 < most < 75_000  # a path's nodes may be beyond it
    assert ball.frontier._bytes == ball.frontier._roomy == 0 and len(ball.frontier) == 0
