"""The adaptive search from the outside: first witnesses, growing balls where there is none, trivial networks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from layercert.arrays import Matrix
from layercert.network import Network
from layercert.problem import Problem
from layercert.search.adaptive import curved, cutting, hulled, shared
from layercert.search.adaptive.ellipsoids import Ellipsoids
from layercert.search.adaptive.ellipsoids import is_suited as has_ellipsoids
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import NO_HULLS, QUICK, THOROUGH, Hulling, Model
from layercert.search.adaptive.record import Recorder
from layercert.search.adaptive.tree import Ball, Effort
from layercert.search.events import Bound, Event, Improve
from layercert.search.task import Task

#: The first ball with a quadratic form, as a part of the witness's, and at most so many. What its multipliers would
#: prove without an end of the ball shrinks as the ball grows: the next one goes this part of the way, in logarithms.
ELLIPSOID_SHARE, ELLIPSOIDS, TOWARDS = 0.5, 8, 0.7
#: With more neurons than this the first one takes seconds: lines are first, and it is so much larger than what they
#: prove.
SLOW, LARGER = 2000, 1.6
#: Lines are tried too where the forms prove less than this part of the witness's ball, as on deep dense networks. With
#: a half they cost 256x4 more than they gain (PERFORMANCE.md, 2026-11-19).
WEAK = 0.25
#: Who asks about one ball needs no more: single precision may be wrong by so little.
A_LITTLE = 1.02
#: A ball is as large as what it proves, or would: between these parts of it.
TOO_LARGE, TOO_SMALL = 0.95, 1.03
#: How a ball without unsafe points grows, when no witness is known.
GROWTH = 3.0
#: Networks with so many layers, none wider than this, are worked on thoroughly, node by node: the hardest digit of 5x50
#: without a domain takes 9 s instead of more than 30.
DEEP, NARROW = 4, 128
#: Networks with more neurons than this get bounds from roots of smaller balls first: that of a large one takes long.
#: On 784-100-100-100-10, trained adversarially, the root alone proved nothing in l_2 for seconds.
MANY = 280
#: So many smaller balls, until proved and failed radius are this close.
ATTEMPTS, CLOSE = 7, 1.1
#: Below this share of U the tree of the witness's ball is hopeless for a while: trees of balls that grow by CLIMB come
#: first, with so many rounds of nodes each. After one that is not proved steps are half as long, down to LEAST_CLIMB;
#: on dense layers, where rounds close much of a gap, the first one that is not proved is the last (LEAST_DENSE_CLIMB).
HOPEFUL, CLIMB, LEAST_CLIMB, LEAST_DENSE_CLIMB, CLIMB_ROUNDS = 0.85, 1.2, 1.04, 1.15, 8
#: The first rounds of a ball are cheap: passes over its roots, before anything is tightened.
CHEAP_ROUNDS = 2
#: Where the bound stays below LOW times U, smaller balls are tried, at most STAGES of them, with as many rounds in all
#: as the ball's patience; then that doubles.
LOW, STAGES = 0.95, 6
#: But not while the tree itself closes this part of its gap to U in so many rounds: a smaller ball costs a root.
PROGRESS, ROUNDS = 0.2, 8
#: The first of them goes this part of the way to U, each further one twice as much, up to a half.
FIRST_SHARE, HALF = 0.125, 0.5


def suited(network: Network) -> Effort:
    """Many cheap nodes, or few thorough ones: bounds of deep networks with narrow layers gain most by rounds."""
    if network.L >= DEEP and max(network.widths) <= NARROW:
        return Effort(candidates=12, rounds=30, passes=2, together=1)
    return Effort()


def adaptive(task: Task, effort: Effort | None = None, recorder: Recorder | None = None) -> Iterator[Event]:
    """The nearest unsafe point, exactly; every Bound is proved, rounding included."""
    problem = task.problem
    effort = effort or suited(problem.network)
    again = recorder is not None  # a search for its record: the answer is known, and bounds on the way are of no use
    saved = None if again else task.saved
    recorder = recorder or task.recorder
    if not problem.clauses:
        yield Bound(task.U)
        return
    if task.U <= 0:
        return
    if problem.network.L == 0:
        yield from affine(task)
        return
    # without a witness nothing says how large the ball must be, unless a radius was asked for: let it grow
    radius = task.cutoff if task.known_size else min(task.cutoff, task.first_radius())
    first, proved = task.incumbent.witness, 0.0
    if saved is not None:
        radius, proved, first = saved.radius, saved.proved, None
    begins = saved is None and task.scheduler is None
    alone = begins and recorder is None  # nobody is told of the tree
    few = task.enough > 0.0 and alone and radius >= task.cutoff and cutting.is_suited(problem)
    if few and (yield from cutting.by_inputs(task, radius)):
        return
    if task.enough and saved is None and recorder is None and (curves(problem) or hulls(problem)):
        ball = _smaller(task, effort, None, radius, NO_HULLS)
        reached = ball.quick()
        if reached < ball.U and has_ellipsoids(problem):
            reached = max(reached, Ellipsoids(problem).prove(ball.model, ball.root, ball.cutoff, enough=A_LITTLE))
        yield Bound(max(0.0, min(reached, ball.U)))
    while True:
        if not again and saved is None and problem.network.neurons > MANY and not task.enough:
            for event in _quick_bounds(task, effort, recorder, proved, radius):
                proved = max(proved, event.lower)
                yield event
            for found in _climb(task, effort, recorder, proved, radius):
                if isinstance(found, Bound):
                    proved = max(proved, found.lower)
                yield found
        ball = Ball(task, effort, recorder, radius, saved)
        ball.proved, saved = proved, None
        if not again:
            task.tree, ball.scheduler = ball.tree, task.scheduler
        if task.enough > 0.0 and begins and radius >= task.cutoff and shared.is_suited(problem, effort):
            yield from shared.Shared(ball).run()
        polish = None
        if first is not None:
            polish = ball.polish(first.point - problem.x, problem.clauses.index(first.clause))
            first = None
        with closing(ball.run(polish)) as events:
            yield from events if again else _anytime(task, effort, recorder, ball, events)
        if radius >= task.cutoff:
            return
        # not all of the ball, where a piece's program stayed without an answer
        proved, radius = ball.proved, min(GROWTH * radius, task.cutoff)


def curves(problem: Problem) -> bool:
    """Are there parabolas?"""
    return curved.is_suited(problem.network, problem.norm)


def hulls(problem: Problem) -> bool:
    """Are there bounds by hulls?"""
    return hulled.is_suited(problem.network, problem.norm)


def _smaller(task: Task, effort: Effort, recorder: Recorder | None, radius: float, hulling: Hulling = THOROUGH) -> Ball:
    """A ball for a bound on the way: with parabolas where there are any, and nobody wants a record."""
    bent = recorder is None and curves(task.problem)
    return Ball(task, effort, recorder, radius, curved=bent, hulled=hulling)


def _quick_bounds(task: Task, effort: Effort, recorder: Recorder | None, low: float, high: float) -> Iterator[Bound]:
    """What is proved before there is any tree: in l_2 by quadratic forms, elsewhere by lines."""
    if recorder is None and has_ellipsoids(task.problem):
        for bound in _by_ellipsoids(task, effort, low, high):
            low = max(low, bound.lower)
            yield bound
        if low >= WEAK * high or (low > 0.0 and task.problem.network.neurons > SLOW):
            return
    yield from _first_bounds(task, effort, recorder, low, high)


def _by_ellipsoids(task: Task, effort: Effort, low: float, high: float) -> Iterator[Bound]:
    """Quadratic forms, in balls that fit what they prove."""
    ellipsoids, radius = Ellipsoids(task.problem), low + ELLIPSOID_SHARE * (high - low)
    if task.problem.network.neurons > SLOW:
        for bound in _first_bounds(task, effort, None, low, high):
            low = max(low, bound.lower)
            yield bound
        radius = min(radius, LARGER * low) if low > 0.0 else radius
    for _ in range(ELLIPSOIDS):
        reached = ellipsoids.prove(*_parts(task, effort, radius))
        low = max(low, reached)
        yield Bound(low)
        beyond = ellipsoids.beyond if reached > 0.0 else low
        if reached >= high or beyond == 0.0 or TOO_LARGE * radius < beyond < TOO_SMALL * radius:
            return
        radius = min(radius * (beyond / radius) ** TOWARDS, high)


def _parts(task: Task, effort: Effort, radius: float) -> tuple[Model, Matrix, float]:
    """The model in a ball, the bounds of its neurons, and its radius."""
    ball = _smaller(task, effort, None, radius, NO_HULLS)
    return ball.model, ball.root, ball.cutoff


def _first_bounds(task: Task, effort: Effort, recorder: Recorder | None, low: float, high: float) -> Iterator[Bound]:
    """Bisect for a radius that the roots of all clauses prove with a few steps each."""
    problem = task.problem
    for _ in range(ATTEMPTS):
        ball = _smaller(task, effort, recorder, 0.5 * (low + high), QUICK)
        reached = min(ball.quick(hopeful=problem.norm.p == 2.0), ball.U)
        high = high if reached >= ball.U else ball.U
        low = max(low, reached)
        yield Bound(low)
        if high <= CLOSE * low:
            return


def _climb(task: Task, effort: Effort, recorder: Recorder | None, low: float, high: float) -> Iterator[Event]:
    """Prove balls a little larger than the last one, while they are far smaller than the witness's.

    In l_2 the root of a convolutional network proves nothing in the ball of its witness for seconds, while the tree of
    a ball a fifth larger than one that is proved already is small.
    """
    growth = CLIMB
    least = LEAST_CLIMB if curves(task.problem) or hulls(task.problem) else LEAST_DENSE_CLIMB
    while 0.0 < low < HOPEFUL * min(high, task.goal) and growth > least:
        if growth * low > LOW * min(high, task.goal):  # as hard as the witness's own
            growth = 1.0 + 0.5 * (growth - 1.0)
            continue
        ball = _smaller(task, effort, recorder, growth * low)
        with closing(ball.run()) as events:
            for event in events:
                yield event
                if isinstance(event, Bound):
                    low = max(low, event.lower)
                    if ball.rounds > CLIMB_ROUNDS or (ball.rounds == CHEAP_ROUNDS and is_hopeless(ball)):
                        break
        if low < ball.U:
            growth = 1.0 + 0.5 * (growth - 1.0)


def is_hopeless(ball: Ball) -> bool:
    """Is F negative at x itself by the lines of a root, with facets in the bounds of its neurons?"""
    return hulls(ball.task.problem) and ball.frontier.least < 0.0


def _anytime(
    task: Task, effort: Effort, recorder: Recorder | None, ball: Ball, events: Iterator[Event]
) -> Iterator[Event]:
    """The events of a ball; where its bound stays low, smaller balls are proved in between.

    On the ball of a far witness a hard network may have no bound at all for long, while half that ball is easy. Whoever
    asks about one radius gets no answer from smaller ones. A cluster is not kept waiting for them.
    """
    tree = before = 0.0  # the bound of the ball's own tree, and what it was when it was looked at last
    for event in events:
        yield event
        if isinstance(event, Bound):
            tree, ball.proved = event.lower, max(ball.proved, event.lower)
        if ball.rounds >= ball.patience and ball.proved < LOW * ball.U and not task.enough and ball.scheduler is None:
            moves = tree - before > PROGRESS * (ball.U - before)
            before = tree
            if moves:
                ball.patience = int(ball.rounds) + ROUNDS
                continue
            for found in _smaller_balls(task, effort, recorder, (ball.proved, ball.U), ball.patience):
                if isinstance(found, Bound):
                    ball.proved = max(ball.proved, found.lower)
                yield found
            ball.patience *= 2


def _smaller_balls(
    task: Task, effort: Effort, recorder: Recorder | None, between: tuple[float, float], budget: float
) -> Iterator[Event]:
    """Look for radii that are proved, within `budget` rounds of nodes for all together: short steps first, since a
    ball not much larger than the last is cheap, and where its nodes cannot be closed their programs find a witness."""
    low, high = between
    share = FIRST_SHARE
    for _ in range(STAGES):
        radius = low + share * (high - low)
        ball = _smaller(task, effort, recorder, radius)
        proved = True
        with closing(ball.run()) as events:
            for event in events:
                yield event
                if ball.rounds > budget or isinstance(event, Improve):
                    proved = False
                    break
        budget -= ball.rounds
        high = min(task.U, high if proved else radius)
        low = radius if proved else low
        share = min(2.0 * share, HALF)
        if budget < 0:
            return


def affine(task: Task) -> Iterator[Event]:
    """No hidden layer: one program a clause."""
    leaves = Leaves(task)
    lower = math.inf
    for clause in task.problem.clauses:
        answer = leaves.solve(np.zeros(0), np.zeros(0, np.bool_), clause, task.cutoff)
        lower = min(lower, answer.lower)
        if answer.value < task.U:
            yield from task.suggest(answer.step, clause)
    yield Bound(min(lower, task.cutoff))
