"""Certificates of searches that were stopped and taken up again: from what was recorded, without a second search."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.networks import random_question
from helpers.standalone import alone
from layercert import shipped
from layercert.certificate.claim import Certificate
from layercert.certify import Recording
from layercert.certify.branch import goals_of
from layercert.certify.kept import packed, resumed
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import robustness
from layercert.run import How, closest
from layercert.search.adaptive.record import Fixed, Halfspace
from layercert.search.events import Event
from layercert.search.saved import Saved
from layercert.session import Progress
from layercert.system import clock


@pytest.fixture
def one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever searches for a certificate fails."""

    def second(*_: Any, **__: Any) -> Any:
        raise AssertionError("a second search")

    monkeypatch.setattr(sys.modules["layercert.certify.prove"], "adaptive", second)


def assert_accepted(network: Network, proof: Certificate | None, folder: Path) -> None:
    """By all checkers; in balls where that does not take long."""
    assert isinstance(proof, Certificate)
    assert lc.check(network, proof).ok and (proof.leaves > 30 or lc.check(network, proof, exact=True).ok)
    network.save(folder / "network.npz")
    proof.save(folder / "proof.npz")
    assert alone.main([str(folder / "proof.npz"), str(folder / "network.npz")]) == 0


@pytest.mark.usefixtures("one_search")
@pytest.mark.parametrize(("norm", "threads", "weighted"), [("l1", 1, False), ("l2", 2, False), ("l1", 1, True)])
def test_slices_of_a_search_leave_one_certificate(norm: str, threads: int, weighted: bool, tmp_path: Path) -> None:
    net, x = random_question(6, 2)
    weights = np.linspace(0.5, 2.0, 6) if weighted else None
    asked: dict[str, Any] = {"norm": norm, "method": "adaptive", "weights": weights, "threads": threads}
    asked |= {"save": tmp_path / "a.search", "certificate": True}
    stopped = 0
    for looks in (100, 600, 2400, math.inf):
        with clock.until(None, looks=looks):
            part = lc.measure(net, x, **asked)
        stopped += part.status == "undecided"
    assert stopped > 0 and part.status == "exact"
    assert_accepted(net, part.certificate, tmp_path)
    whole = lc.measure(net, x, **asked)  # nothing is left to search
    assert whole.status == "exact" and whole.programs == 0
    assert_accepted(net, whole.certificate, tmp_path)
    assert whole.certificate.radius >= whole.lower * (1 - 2e-6)  # type: ignore[union-attr]


@pytest.mark.usefixtures("one_search")
def test_the_bound_that_was_reached_is_certified_after_every_stop(tmp_path: Path) -> None:
    net, x = random_question(8, 3)
    problem = robustness(net, x, "l1")
    file, bounds = tmp_path / "a.search", [0.0]
    for events in (25, 35):
        left = itertools.count(events, -1)

        def stop(_: Progress, __: Event | None, left: Iterator[int] = left) -> None:
            if next(left) < 0:
                raise KeyboardInterrupt

        part = closest(problem, How("adaptive", save=file, certificate=True, watch=stop))
        assert part.status == "undecided" and part.lower >= bounds[-1]
        assert_accepted(net, part.certificate, tmp_path)
        bounds.append(part.certificate.radius)  # type: ignore[union-attr]
        assert bounds[-1] >= part.lower * (1 - 2e-6)
        tree = Saved.from_bytes(file.read_bytes()).tree
        assert tree is not None and tree.record and len(set(tree.numbers)) == len(tree.nodes)


def test_without_a_record_of_the_first_half_it_is_searched_again(tmp_path: Path) -> None:
    net, x = random_question(6, 2)
    asked: dict[str, Any] = {"norm": "l2", "method": "adaptive", "save": tmp_path / "a.search"}
    with clock.until(None, looks=600):
        assert lc.measure(net, x, **asked).status == "undecided"
    tree = Saved.from_bytes((tmp_path / "a.search").read_bytes()).tree
    assert tree is not None and tree.nodes and not tree.record
    whole = lc.measure(net, x, **asked, certificate=True)
    assert whole.status == "exact"
    assert_accepted(net, whole.certificate, tmp_path)


@pytest.mark.usefixtures("one_search")
def test_a_digit_is_taken_up(tmp_path: Path) -> None:
    net = lc.load(shipped.path("mnist10_plain_2x20"))
    x = np.load(shipped.path("digits10"))["X"][0].astype(float)
    asked: dict[str, Any] = {"domain": (0, 1), "method": "adaptive", "save": tmp_path / "a", "certificate": True}
    with clock.until(None, looks=60):
        part = lc.measure(net, x, **asked)
    assert part.status == "undecided"
    result = lc.measure(net, x, **asked)
    assert result.status == "exact"
    assert lc.check(net, result.certificate).ok  # type: ignore[arg-type]


def test_what_is_packed_is_what_was_told() -> None:
    recording = Recording()
    ball = recording.ball(2.0, None)  # type: ignore[arg-type]
    facets = Facets(np.array([1, 2]), np.array([1.0, 0.0]), np.array([0.2, 1.0, 0.6]))
    for clause, node in enumerate((0, 1)):
        ball.root(node, clause)
        ball.bounded(node, 0.5 + node, Halfspace(np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.3, 0.0]), np.ones(1)))
    ball.split(1, 2, (2, 3))
    ball.bounded(2, 1.75, Halfspace(np.zeros(3), np.array([0.0, 0.0, 1e-17]), np.array([0.1]), facets))
    ball.bounded(3, 1.25, Halfspace(np.ones(3), np.zeros(3), np.array([0.1])))
    other = recording.ball(1.0, None)  # type: ignore[arg-type]
    for clause in (0, 1):
        other.root(clause, clause)
        other.bounded(clause, 0.9, Halfspace(np.ones(3), np.zeros(3), np.ones(1)))
    again = Recording()
    own = resumed(again, packed(recording, ball, 4), None)
    assert own is again.forests[0] and own.radius == 2.0 and own.reached(2) == 0.5
    assert again.forests[1].reached(2) == 0.9 and again.forests[1].radius == 1.0
    assert own.plans[1].children == (2, 3) and own.plans[1].neuron == 2 and own.plans[1].root
    kept = own.plans[2].owns[0]
    assert kept.beta.tolist() == [0.0, 0.0, 1e-17] and kept.weights.tolist() == [0.1]
    assert kept.facets is not None and kept.facets.neurons.tolist() == [1, 2]
    assert kept.facets.parts.tolist() == [51 / 255, 1.0, 153 / 255]
    # nodes that came after the others were written down: the parent waits again, with what it proved itself
    cut = resumed(Recording(), packed(recording, ball, 3), None)
    assert cut.plans[1].children is None and set(cut.plans) == {0, 1, 2} and cut.reached(2) == 0.5


def test_what_was_fixed_is_kept_on_the_way_and_joined() -> None:
    def own(alpha: float) -> Halfspace:
        return Halfspace(np.full(3, alpha), np.zeros(3), np.ones(1))

    recording, elsewhere = Recording(), Recording()
    here, there = (each.ball(2.0, None) for each in (recording, elsewhere))  # type: ignore[arg-type]
    here.root(0, 0)
    here.split(0, 1, (1, 2))
    here.bounded(1, 0.5, own(0.0))
    there.bounded(7, 0.6, own(0.2))
    there.bounded(7, 0.7, own(0.4))
    there.fixed(7, own(0.4), Fixed(np.array([2]), np.array([-1.0]), np.array([0.25])))
    there.bounded(7, 0.8, own(1.0))
    recording.join(here, elsewhere.packed(there, 8), {7: 1}.__getitem__)
    for ball in (here, resumed(Recording(), packed(recording, here, 3), None)):
        plan = ball.plans[1]
        assert plan.entry == 0.5 and plan.bound == 0.8
        assert [each.alpha[0] for each in plan.owns] == [1.0, 0.0]  # the last one and the first
        (stage,) = plan.stages
        assert stage.bound == 0.7 and stage.own.alpha[0] == 0.4
        assert [part.tolist() for part in stage.fixed] == [[2], [-1.0], [0.25]]
    # in the order of the search: up to the bound that it had first, what it fixed then, and how it ended
    goals = goals_of(plan, 1.0, own(0.5))
    assert [goal.own.alpha[0] for goal in goals] == [0.0, 0.4, 1.0]
    assert [goal.gap for goal in goals] == pytest.approx([0.5, 0.3, 0.0])
    assert [goal.fixed is not None for goal in goals] == [False, True, False]
