"""Proofs that follow a recorded search (certify/following.py): the rounds that it told, taken in its order."""

from __future__ import annotations

import importlib
import itertools
import math
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert.certificate.checker import check
from layercert.certify import prove
from layercert.certify.branch import Branch
from layercert.certify.recording import Recording
from layercert.certify.replay import Replay
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import adaptive
from layercert.search.adaptive.model import HI, LO
from layercert.search.adaptive.node import Node
from layercert.search.adaptive.trail import PARTS, ROW_PARTS, rounds_of, trail_of
from layercert.search.adaptive.worker import Worker
from layercert.search.task import Task

#: Multipliers are stored as float32, and the prover's margins are twice the checker's: so much of its range may be lost
#: of a bound; and so much where a row gains less than is worth one.
SAME, BEHIND = 1e-5, 2e-3


def question(norm: str) -> Problem:
    """A radius that is proved with some splits."""
    rng = np.random.default_rng(30)
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise([6, 24, 24, 3])]
    net = Network.from_arrays(weights, [rng.normal(size=len(W)) * 0.5 for W in weights])
    x = rng.uniform(-1, 1, 6)
    far = lc.measure(net, x, norm, domain=(x - 3, x + 3), method="adaptive").lower
    return robustness(net, x, norm, domain=(x - 3, x + 3), radius=0.98 * far)


def recorded(problem: Problem) -> Recording:
    recording = Recording()
    task = Task(problem, make_chain("default", problem.norm), problem.radius)
    task.recorder = recording
    list(adaptive(task))
    return recording


def proved(problem: Problem, recording: Recording) -> Any:
    proof = prove(problem, problem.radius, None, math.inf, by_boxes=False, recording=recording)
    assert proof.radius == problem.radius and check(problem.network, proof).ok
    return proof


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_proof_has_the_bounds_of_the_search(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every node, by one pass per row: slopes that a certificate would round, or rows that it would leave out, would
    put it behind by far more. Hardly a node needs a round of the proof's own."""
    states: dict[tuple[int, int], Any] = {}
    tell = Worker.tell

    def told(self: Worker, node: Node, *args: Any, **kwargs: Any) -> None:
        states[id(self.ball.recorder), node.number] = node.state[LO].copy(), node.state[HI].copy()
        tell(self, node, *args, **kwargs)

    monkeypatch.setattr(Worker, "tell", told)
    problem = question(norm)
    recording = recorded(problem)
    forest = recording.forest_for(problem.radius, len(problem.clauses))
    numbers, behind = {id(plan): number for number, plan in forest.plans.items()}, []
    replay = importlib.import_module("layercert.certify.replay")
    follow = replay.follow_trail

    def followed(self: Replay, branch: Branch, regions: Any, at: int) -> None:
        follow(self, branch, regions, at)
        if not branch.done:
            lo, hi = states[id(forest), numbers[id(branch.plan)]]
            mine = regions.lo[at], regions.hi[at]
            free = (lo < 0) & (hi > 0) & (branch.phase == 0)
            read = free & (np.arange(len(lo)) < 24)  # of the last layer only what F has below a chord is read
            behind.append(np.maximum(lo - mine[0], mine[1] - hi)[read] / (hi - lo)[read])

    own, tighten = [0], Replay.tighten

    def again(self: Replay, *args: Any) -> bool:
        own[0] += 1
        return tighten(self, *args)

    monkeypatch.setattr(replay, "follow_trail", followed)
    monkeypatch.setattr(Replay, "tighten", again)
    proof = proved(problem, recording)
    shares = np.concatenate(behind)
    assert len(behind) > 10 and len(shares) > 100 and own[0] <= 0.2 * len(behind), (len(behind), len(shares), own)
    assert np.mean(shares <= SAME) > 0.99 and shares.max() <= BEHIND, (np.mean(shares <= SAME), shares.max())
    assert check(problem.network, proof, exact=True).ok


@pytest.mark.parametrize(("module", "name"), [("search.adaptive.trail", "ROWS"), ("certify.recording", "NOTED")])
def test_a_proof_is_made_where_rounds_were_not_kept(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There was no room for their rows, or for them at all: rounds of the proof's own take their place."""
    problem = question("linf")
    whole = recorded(problem)
    monkeypatch.setattr(importlib.import_module(f"layercert.{module}"), name, 1)
    recording = recorded(problem)
    (all_of, few) = (sum(len(plan.trail) for plan in each.forests[0].plans.values()) for each in (whole, recording))
    assert few < all_of
    proved(problem, recording)


def test_a_trail_gives_back_what_was_noted() -> None:
    from layercert.search.adaptive.trail import begin_round, note, note_own, note_shared

    trail = trail_of(5, 2, True)
    alpha, beta, share = np.linspace(0, 1, 5), np.array([0, 2.5, 0, 0, 1]), np.zeros(5)
    begin_round(trail, 1, alpha, beta, share, np.array([1.0, 3.0]))
    note(trail, 0, 1.0, 0.0, 0.25)
    at = note(trail, 3, -1.0, 0.5, 0.0)
    slopes = np.array([0.2, 1.0, 0.0])
    note_own(trail, at, slopes, np.array([4.0, 5.0, 6.0]), np.array([-1.0, 0.0, 1.0, 1.0, 1.0]))
    begin_round(trail, 0, 1 - alpha, beta, share, np.array([2.0, 0.0]))
    note_shared(trail, note(trail, 4, 1.0, 0.0, 0.0), np.array([1.0, -1.0, 2.0, 0.0, 3.0]))
    (first, one), (second, other) = rounds_of(trail, [None, None], [1, 2])
    assert (first, second) == (1, 0) and not trail.used.any()
    assert np.abs(one.own.alpha - alpha).max() <= 0.5 / PARTS and one.own.beta.tolist() == beta.tolist()
    assert one.own.weights.tolist() == [1.0, 3.0] and other.own.weights.tolist() == [2.0]
    assert one.neurons.tolist() == [0, 3] and one.sides.tolist() == [1, -1] and one.lams.tolist() == [0.25, 0]
    begin = one.slope_begin[1]
    assert np.abs(one.slopes[begin : begin + 3] / ROW_PARTS - slopes).max() <= 0.5 / ROW_PARTS
    assert one.split_begin.tolist() == [0, 0] and one.split_end.tolist() == [0, 2]
    assert one.split_at[:2].tolist() == [0, 2] and one.splits[:2].tolist() == [-4.0, 6.0]
    assert other.slopes[other.slope_begin[0] :][:5].tolist() == [255, 0, 255, 0, 255]
    assert other.split_begin.tolist() == other.split_end.tolist() == [2]


def test_a_trail_without_room_is_told_in_no_part() -> None:
    from layercert.search.adaptive.trail import AT_ROUND, begin_round
    from layercert.search.adaptive.trail import LOST as HAS_LOST

    trail = trail_of(3, 1, True)
    trail.used[AT_ROUND] = len(trail.node)
    begin_round(trail, 0, np.zeros(3), np.zeros(3), np.zeros(3), np.ones(1))
    assert trail.used[HAS_LOST] == 1
    assert rounds_of(trail, [None], [1]) == [] and not trail.used.any()


def test_a_bound_is_worth_a_row_where_it_settles_a_sign_or_narrows_a_range() -> None:
    """Others are not taken by the search either: what it did next may rest on all of them."""
    from layercert.search.adaptive.trail import NARROWER, is_worth

    little, best = 0.5 * NARROWER, np.empty(1)
    for lo, hi, side, bound, worth in [
        (-1.0, 1.0, 1.0, -1.0 + 3 * little, False),
        (-1.0, 1.0, 1.0, -1.0 + 5 * little, True),
        (-1.0, 1.0, -1.0, -1.0 + 3 * little, False),  # hi falls to 1 - 3 little
        (-1.0, 1.0, -1.0, -1.0 + 5 * little, True),
        (-little, 1.0, 1.0, 0.0, True),  # it is on now
        (-little, 1.0, 1.0, -0.5 * little, False),
        (-1.0, little, -1.0, 0.0, True),
        (0.0, 1.0, 1.0, 0.0, False),  # nothing new
    ]:
        best[0] = bound
        assert is_worth(lo, hi, side, best, 0) == worth, (lo, hi, side, bound)
        assert best[0] == (bound if worth else -np.inf)


def test_a_round_has_the_shares_that_its_facets_had_then() -> None:
    """The node's own are those of its last round."""
    from layercert.search.adaptive.trail import begin_round

    facets = Facets(np.array([1, 3]), np.array([1.0, 1.0]), np.array([0.5, 0.25]))
    trail, zeros = trail_of(5, 1, True), np.zeros(5)
    begin_round(trail, 0, zeros, zeros, np.array([0.0, 0.25, 0.0, 2.0, 0.0]), np.ones(1))
    begin_round(trail, 0, zeros, zeros, np.array([0.0, 1.0, 0.0, 0.5, 0.0]), np.ones(1))
    found = [done.own.facets for _, done in rounds_of(trail, [facets], [1])]
    assert [each.neurons.tolist() for each in found if each is not None] == [[1, 3]] * 2
    shares = np.array([each.shares for each in found if each is not None])
    assert np.abs(shares - [[0.25, 1.0], [1.0, 0.5]]).max() <= 0.5 / PARTS
