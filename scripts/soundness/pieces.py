"""Kinds of cases about searches in pieces: kept in a file and taken up again, or lent out in slices."""

from __future__ import annotations

import itertools
import math
import tempfile
from dataclasses import replace
from pathlib import Path

from numpy.random import Generator

import layercert as lc
from layercert.network import Network
from layercert.programs.stacks import make_chain
from layercert.run import How, closest, decide
from layercert.search.adaptive import spread
from layercert.search.adaptive.search import suited
from layercert.search.adaptive.tree import Ball
from layercert.search.task import Task
from layercert.system import clock
from soundness.judge import Judge, faults
from soundness.kind import Outcome
from soundness.questions import NORMS, Question, cornered, pooled, tied

#: Seconds for a whole case, and bytes for nodes where memory is short.
LIMIT, SHORT = 20.0, 4096


def grown(rng: Generator) -> Question:
    """Large enough for a tree of some nodes."""
    shape = [int(rng.integers(3, 6)), *rng.integers(5, 11, size=2).tolist(), int(rng.integers(2, 4))]
    coarse = rng.random() < 0.3
    draw = (lambda *size: rng.integers(-4, 5, size=size) / 2.0) if coarse else (lambda *size: rng.normal(size=size))
    weights = [draw(m, n) for n, m in itertools.pairwise(shape)]
    network = Network.from_arrays(weights, [0.5 * draw(m) for m in shape[1:]])
    x = rng.uniform(-1, 1, shape[0])
    question = Question(network, x, NORMS[int(rng.integers(len(NORMS)))])
    if rng.random() < 0.5:
        question.options["domain"] = (x - 2.0, x + rng.choice([0.0, 1.0, 3.0], size=len(x)))
    if rng.random() < 0.2:
        question.options["weights"] = 10.0 ** rng.uniform(-2, 2, len(x))
    return question


def _question(rng: Generator) -> Question:
    return [grown, grown, grown, tied, cornered, pooled][int(rng.integers(6))](rng)


def resumed(rng: Generator) -> Outcome:
    """Stopped at any look at the clock and taken up again from its file, with other threads each time."""
    question = _question(rng)
    judge = Judge.of(question)
    radius = float(10.0 ** rng.uniform(-2, 1)) if rng.random() < 0.3 else math.inf
    problem = lc.robustness(question.network, question.x, question.norm, radius=radius, **question.options)
    answer = decide if math.isfinite(radius) and rng.random() < 0.5 else closest
    texts, runs, end = list[str](), 0, clock.now() + LIMIT
    with tempfile.TemporaryDirectory() as folder:
        while True:
            runs += 1
            how = How(
                "adaptive", threads=int(rng.integers(1, 4)), save=Path(folder) / "search.npz",
                memory=SHORT if rng.random() < 0.2 else None,
            )  # fmt: skip
            with clock.until(end, looks=10.0 ** rng.uniform(0.5, 2.5) * 1.5**runs):
                result = answer(problem, how)
            texts += faults(judge, result, rng)
            if texts or result.status != "undecided" or clock.now() > end or "time limit" not in result.note:
                break
    return Outcome(str(result.status), [f"{text} [{runs} runs, radius {radius!r}]: {question}" for text in texts])


def lent(rng: Generator) -> Outcome:
    """Slices of one tree, as workers of a cluster do them, some of them lost: what all of them prove together."""
    question = _question(rng)
    question.options.pop("weights", None)
    problem = lc.robustness(question.network, question.x, question.norm, **question.options)
    end = clock.now() + LIMIT
    whole = closest(problem, How("adaptive", time_limit=LIMIT))
    task = Task(problem, make_chain("default", problem.norm))
    if not problem.clauses or problem.network.L == 0 or task.U <= 0 or whole.upper <= 0 or whole.note:
        return Outcome("answered at sight", [])
    if rng.random() < 0.7:
        list(task.attack())
    radius = min(task.cutoff, 3.0 * (whole.upper if math.isfinite(whole.upper) else task.first_radius()))
    ball = Ball(task, suited(problem.network), None, float(radius))
    ball._push_roots()
    coordinator, slices = spread.Spread(ball, "nowhere"), 0
    shared = coordinator._question()
    while len(ball.frontier) and clock.now() < end:
        nodes = ball.frontier.lend(int(rng.integers(1, 8)))
        numbers, blobs = [number for number, _ in nodes], [blob for _, blob in nodes]
        slices += 1
        if rng.random() < 0.1:
            ball.frontier.give_back(numbers)
            continue
        done = spread.work(shared, blobs, task.incumbent.nearest, float(10.0 ** rng.uniform(-4, -1)))
        for _ in coordinator._take(numbers, done):
            pass
    held = task.incumbent.witness
    lower = min(ball.U, ball.frontier.least, task.incumbent.distance)
    result = replace(
        whole, status=lc.Status.UNDECIDED, lower=max(lower, 0.0), upper=task.incumbent.distance, note="slices",
        witness=None if held is None else held.point, target=None if held is None else held.clause.target,
    )  # fmt: skip
    texts = faults(Judge.of(question), result, rng)
    if whole.status == "exact" and lower > whole.upper * (1.0 + 1e-9):
        texts.append(f"slices prove {lower}, a point is at {whole.upper}")
    word = "out of time" if len(ball.frontier) else "done"
    return Outcome(word, [f"{text} [{slices} slices]: {question}" for text in texts])
