"""The cheapest bounds of huge networks: the best radius that linear bounds prove, without branching.

Every attempt bounds the whole network on a ball of radius r (bounds/sparse.py). That proves a distance h(r) <= r: no
unsafe point of the ball is nearer. Small balls have few unstable neurons, so h(r) = r for small r and h falls later;
the best r lies between the largest that was proved and the least that was not, and is closed in on by bisection of the
logarithm. Where lower and upper bound do not meet, the answer stays open: this search does not branch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from layercert.bounds.sparse import SparseRelaxation
from layercert.search.events import Bound, Event
from layercert.search.task import Task

#: The most attempts, and the ratio of unproved to proved radius at which they end.
ATTEMPTS = 14
CLOSE = 1.03
#: The first ball, as a part of the distance at which the linear piece of x would become unsafe; and how radii grow or
#: shrink while only one side is known.
START, GROWTH, SHRINK = 32.0, 3.0, 8.0


def large(task: Task) -> Iterator[Event]:
    """Proved lower bounds and a witness; exact only where the two happen to meet."""
    problem = task.problem
    if not problem.clauses:
        yield Bound(task.U)
        return
    limit = task.cutoff
    if limit <= 0:
        return
    asked = problem.radius <= limit
    proved, failed = 0.0, math.inf
    # a small ball is bounded quickly, a large one may cost minutes and prove nothing
    r = limit if asked else min(limit, task.first_radius() / START)
    for _ in range(ATTEMPTS):
        relaxation = SparseRelaxation(problem, r)
        for _layer in relaxation.build():
            yield Bound(proved)
        reached = min(relaxation.distance(clause) for clause in problem.clauses)
        proved = max(proved, reached)
        yield Bound(proved)
        if reached < r:
            failed = min(failed, r)
        if proved >= task.goal or failed <= CLOSE * proved:
            break
        if math.isinf(failed):
            r = min(GROWTH * r, limit)
        else:
            r = math.sqrt(proved * failed) if proved > 0 else failed / SHRINK
    if proved < limit * (1.0 - task.gap):
        task.note = "bounds by linear relaxation without branching"
