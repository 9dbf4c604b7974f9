"""One question on a cluster: slices of one tree, lent nodes, workers that die."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from helpers.dask_cluster import Cluster, cluster
from helpers.networks import random_question
from layercert.arrays import Vector
from layercert.certify import Recording, prove
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import spread
from layercert.search.adaptive.search import suited
from layercert.search.adaptive.spread import ClusterError, Spread
from layercert.search.adaptive.tree import Ball
from layercert.search.events import Bound, Improve
from layercert.search.task import Task

NET, X = random_question(8, 1)
EXACT = lc.measure(NET, X, "l2", method="adaptive")


def ball(limit: float, recording: Recording | None = None) -> Ball:
    """In the ball of a witness that is a little too far, after some rounds."""
    problem = robustness(NET, X, "l2")
    made = Ball(Task(problem, make_chain("default", problem.norm), limit), suited(NET), recording, limit)
    events = made.run()
    while len(made.frontier) < 30:
        next(events)
    events.close()
    made.frontier.take_back()
    return made


@pytest.fixture
def no_second_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates come from what was recorded, or not at all."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a second search")

    monkeypatch.setattr(sys.modules["layercert.certify.prove"], "adaptive", never)


@pytest.mark.parametrize("recorded", [False, True])
def test_slices_of_a_tree_are_the_tree(recorded: bool, no_second_search: None) -> None:
    """Without a cluster: every slice goes through the worker's function, some are lost on the way."""
    recording = Recording() if recorded else None
    made = ball(1.05 * EXACT.upper, recording)
    coordinator, frontier, lost = Spread(made, "nowhere"), made.frontier, 0
    question, lower = coordinator._question(), 0.0
    while len(frontier):
        least, waiting = frontier.least, len(frontier)
        nodes = frontier.lend(9)
        numbers = [number for number, _ in nodes]
        assert frontier.least == least and len(frontier) + frontier.busy == waiting
        if lost < 5:
            lost += 1
            frontier.give_back(numbers)
            assert frontier.least == least and len(frontier) == waiting
            continue
        done = spread.work(question, [blob for _, blob in nodes], made.task.incumbent.nearest, 0.05)
        for event in coordinator._take(numbers, done):
            assert isinstance(event, Improve)
        assert frontier.least >= lower * (1 - 1e-12)
        lower = frontier.least
    assert made.task.incumbent.distance == pytest.approx(EXACT.upper, rel=1e-6)
    assert min(made.U, frontier.closed_bound) == pytest.approx(EXACT.upper, rel=2e-6)
    assert coordinator.slices > 3 and frontier.count.share == pytest.approx(1.0, abs=1e-6)
    if recording is not None:
        lower = min(made.U, frontier.closed_bound)
        proof = prove(made.task.problem, lower, None, math.inf, by_boxes=False, recording=recording)
        assert proof.radius == pytest.approx(EXACT.upper, rel=1e-5) and lc.check(NET, proof).ok
        assert len(recording.forests[0].plans) > 60  # most of them told by slices


def test_what_slices_proved_so_far_is_certified(no_second_search: None) -> None:
    """Some nodes are open, with the numbers that the record knows them by."""
    recording = Recording()
    made = ball(1.05 * EXACT.upper, recording)
    coordinator, frontier = Spread(made, "nowhere"), made.frontier
    question, before = coordinator._question(), frontier.least
    for _ in range(6):
        nodes = frontier.lend(9)
        done = spread.work(question, [blob for _, blob in nodes], made.task.incumbent.nearest, 0.02)
        list(coordinator._take([number for number, _ in nodes], done))
    assert len(frontier) and before < frontier.least < EXACT.upper
    open_ones = [number for number, _ in frontier.numbered()]
    assert len(set(open_ones)) == len(open_ones) and max(open_ones) < frontier.made
    lower = min(made.U, frontier.least)
    proof = prove(made.task.problem, lower, None, math.inf, by_boxes=False, recording=recording)
    assert proof.radius == pytest.approx(lower, rel=1e-5) and lc.check(NET, proof).ok


@pytest.mark.parametrize("settles", [True, False])
def test_what_a_worker_proved_holds_in_the_ball_of_its_own_nearest_point(
    settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker looks no further than the nearest point it was offered, settled or not: nor is any more proved."""
    made = ball(1.05 * EXACT.upper)
    coordinator, frontier = Spread(made, "nowhere"), made.frontier
    question, least = coordinator._question(), math.inf
    if not settles:
        monkeypatch.setattr("layercert.search.incumbent.settle", lambda *_: None)
    while len(frontier):
        nodes = frontier.lend(9)
        done = spread.work(question, [blob for _, blob in nodes], made.task.incumbent.nearest, 100.0)
        for _ in coordinator._take([number for number, _ in nodes], done):
            assert made.task.incumbent.nearest <= done.nearest  # the search may be saved here, or stop for good
        least = min(least, done.nearest)
        assert made.task.incumbent.nearest == least  # not the least more: nodes are closed by it
    incumbent = made.task.incumbent
    assert (incumbent.witness is None) is not settles
    assert incumbent.unsettled is not None or settles
    # with a ball of its own, the coordinator said 1.05 times the distance
    assert min(made.U, frontier.closed_bound) <= EXACT.upper * (1 + 1e-12)


def test_a_slice_hands_back_what_is_open() -> None:
    made = ball(1.05 * EXACT.upper)
    blobs = [blob for _, blob in made.frontier.lend(5)]
    done = spread.work(Spread(made, "")._question(), blobs, math.inf, 1e-4)
    assert len(done.nodes) >= 5 or done.closed  # a round or less
    whole = spread.work(Spread(made, "")._question(), blobs, math.inf, 100.0)
    assert not whole.nodes and whole.closed > done.closed and whole.share > 0


def test_slices_of_one_question_go_on_with_the_same_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first program takes longest: it is solved once per clause, not once per slice."""
    from layercert.search.adaptive import worker
    from layercert.search.adaptive.program import Programs

    monkeypatch.setattr(worker, "NEAR", 1.0)  # every node has programs
    net, x = random_question(6, 2)
    problem = robustness(net, x, "linf")
    distance = lc.measure(net, x, "linf").upper
    made = Ball(Task(problem, make_chain("default", problem.norm), distance), suited(net), None, distance)
    made._push_roots()
    begun: list[int] = []
    new_model = Programs._new_model

    def watched(self: Programs, at: int, start: object) -> object:
        begun.append(at)
        return new_model(self, at, start)  # type: ignore[arg-type]

    monkeypatch.setattr(Programs, "_new_model", watched)
    coordinator, slices = Spread(made, ""), 0
    question = coordinator._question()
    while len(made.frontier) and slices < 50:
        nodes = made.frontier.lend(2)
        done = spread.work(question, [blob for _, blob in nodes], made.task.incumbent.nearest, 0.05)
        list(coordinator._take([number for number, _ in nodes], done))
        slices += 1
    assert slices > 1 and sorted(begun) == sorted(set(begun)) and begun


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    with cluster(tmp_path_factory.mktemp("dask"), workers=2) as made:
        yield made


def test_the_answer_of_a_cluster_though_a_worker_dies(workers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "ALONE", 0.05)
    bounds: list[float] = []
    done: list[Spread] = []
    take = Spread._take

    def watched(self: Spread, numbers: list[int], found: spread.Slice) -> object:
        done.append(self)
        if len(done) == 2:
            os.killpg(workers.processes[-1].pid, signal.SIGKILL)
        return take(self, numbers, found)

    monkeypatch.setattr(Spread, "_take", watched)
    result = lc.measure(
        NET, X, "l2", method="adaptive", scheduler=workers.address,
        watch=lambda progress, event: bounds.append(event.lower) if isinstance(event, Bound) else None,
    )  # fmt: skip
    assert result.status == "exact" and result.upper == pytest.approx(EXACT.upper, rel=1e-6)
    assert len(done) > 2 and max(bounds) <= result.upper
    robust = lc.verify(NET, X, 0.999 * EXACT.upper, "l2", method="adaptive", scheduler=workers.address)
    assert robust.status == "robust"


def test_a_search_goes_on_from_a_file_on_a_cluster(
    workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "ALONE", 0.05)
    file = tmp_path / "a.search"
    part = lc.measure(NET, X, "l2", method="adaptive", save=file, time_limit=0.3)
    assert part.status == "undecided"
    whole = lc.measure(NET, X, "l2", method="adaptive", save=file, scheduler=workers.address)
    assert whole.status == "exact" and whole.upper == pytest.approx(EXACT.upper, rel=2e-6)


def box_property(net: lc.Network, x: Vector, radius: float) -> str:
    """No class but that of x within an l_inf ball of this radius, for each half of the ball."""
    scores = net(x)
    label, lines = int(np.argmax(scores)), list[str]()
    lines += [f"(declare-const X_{i} Real)" for i in range(len(x))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(len(scores))]
    for i, value in enumerate(x.tolist()[1:], start=1):
        lines += [f"(assert (>= X_{i} {value - radius!r}))", f"(assert (<= X_{i} {value + radius!r}))"]
    first = float(x[0])
    ends = pairwise((first - radius, first, first + radius))
    halves = [f"(>= X_0 {low!r}) (<= X_0 {high!r})" for low, high in ends]
    others = [j for j in range(len(scores)) if j != label]
    cases = (f"(and {half} (>= Y_{j} Y_{label}))" for half in halves for j in others)
    return "\n".join([*lines, f"(assert (or {' '.join(cases)}))"])


def test_a_cluster_leaves_a_certificate(
    workers: Cluster, monkeypatch: pytest.MonkeyPatch, no_second_search: None
) -> None:
    monkeypatch.setattr(spread, "ALONE", 0.05)
    told: list[int] = []
    take = Spread._take

    def watched(self: Spread, numbers: list[int], found: spread.Slice) -> object:
        told.append(len(found.record))
        return take(self, numbers, found)

    monkeypatch.setattr(Spread, "_take", watched)
    result = lc.measure(NET, X, "l2", method="adaptive", certificate=True, scheduler=workers.address)
    assert result.status == "exact" and result.certificate is not None, result.note
    report = lc.check(NET, result.certificate)
    assert report.ok and report.lower == pytest.approx(EXACT.upper, rel=1e-5)
    assert len(told) > 1 and min(told) > 0


def test_cases_of_a_property_on_a_cluster(
    workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_second_search: None
) -> None:
    monkeypatch.setattr(spread, "ALONE", 0.0)
    monkeypatch.setattr("layercert.spec.verify.closed_at_once", lambda network, cases: np.zeros(len(cases), np.bool_))
    taken: list[int] = []
    take = Spread._take

    def watched(self: Spread, numbers: list[int], found: spread.Slice) -> object:
        taken.append(found.closed)
        return take(self, numbers, found)

    monkeypatch.setattr(Spread, "_take", watched)
    net, x = random_question(6, 2)
    distance = lc.measure(net, x, "linf", method="adaptive").upper
    for factor, answer in ((0.98, "unsat"), (1.02, "sat")):
        file = tmp_path / f"{answer}.vnnlib"
        file.write_text(box_property(net, x, factor * distance))
        spec = lc.load_spec(file)
        assert len(spec.cases) == 2  # one for each half
        result = lc.verify_spec(net, spec, None, "adaptive", certificate=True, scheduler=workers.address)
        assert len(result.certificates) == (2 if answer == "unsat" else 1), result.note
        assert lc.check_spec(net, spec, result.certificates).ok
        assert result.answer == answer == lc.verify_spec(net, spec, None, "adaptive").answer
        if answer == "unsat":
            assert sum(taken) > 5 and result.closed == len(spec.cases)


def test_what_a_cluster_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "ALONE", 0.0)
    with pytest.raises(lc.LayerCertError, match="a search by mip cannot run on a cluster, only one by adaptive"):
        lc.measure(NET, X, "linf", method="mip", scheduler="tcp://127.0.0.1:1")
    pytest.importorskip("distributed")
    with pytest.raises(lc.LayerCertError, match=r"cannot read the address 'nonsense://x'; expected tcp://host:8786"):
        lc.measure(NET, X, "l2", method="adaptive", scheduler="nonsense://x")


def test_faults_of_workers_are_told_and_deaths_counted() -> None:
    class Future:
        status = "error"

        def __init__(self, error: Exception) -> None:
            self._error = error

        def exception(self) -> Exception:
            return self._error

    class KilledWorker(Exception):  # noqa: N818 (Dask's name)
        pass

    made = ball(1.05 * EXACT.upper)
    coordinator = Spread(made, "tcp://there")
    waiting = len(made.frontier)
    for _ in range(spread.DEATHS):
        coordinator._lost([number for number, _ in made.frontier.lend(3)], Future(KilledWorker()))
    assert len(made.frontier) == waiting
    with pytest.raises(ClusterError, match="6 workers in a row died at tcp://there; give them more memory"):
        coordinator._lost([number for number, _ in made.frontier.lend(3)], Future(KilledWorker()))
    with pytest.raises(ClusterError, match="a worker of tcp://there failed: ValueError: bad"):
        coordinator._lost([number for number, _ in made.frontier.lend(3)], Future(ValueError("bad")))
