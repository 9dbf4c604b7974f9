"""What a search is given, and what the geometric ones share: the incumbent, the hierarchy, the distance programs.

Soundness of the reported lower bound. Keys in the queue are proved lower bounds of the patterns' distances. On the
segment from a pattern's nearest known point (at distance e) to the nearest unsafe point (at distance d*), all patterns
are linked by faces that hold a point of the segment, hence no farther than max(e, d*); faces are tested with the
rounding margin of their rows, so none of them is lost. The first pattern on this path that was not yet visited waits in
the queue, so the least key K satisfies K <= max(e, d*): the bound K is valid up to e minus the parent's own key, which
is the gap of the program that found the parent. `slip` keeps the largest such gap and is subtracted. All this holds
while e is inside the ball that the search looks at: beyond it faces are left out, and so are rows of neurons that have
one sign in the ball, another perhaps at that point. So a point that is not inside, like a program that no solver could
decide, lowers `ceiling` to what is proved about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Indices, Vector
from layercert.attack.attack import attack
from layercert.bounds.linear import Relaxation
from layercert.geometry import Cell, Cells, Polyhedron
from layercert.geometry.rowspace import row_space
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.programs.chain import SolverChain
from layercert.programs.program import Programs, Solutions, gap_closed, single
from layercert.search.events import Event, Improve
from layercert.search.incumbent import Incumbent

if TYPE_CHECKING:
    from layercert.search.adaptive.record import Recorder
    from layercert.search.saved import Tree

#: Without a radius or a domain, distances beyond this many times the size of x are not looked at.
HORIZON = 1e6
#: The largest relative gap of a program that may be booked as slip.
SLIP = 1e-7
#: Upper and lower bound this close (relative) are the exact answer, unless another gap is asked for.
GAP = 1e-6
#: Parts of a search are closed this much of the gap below the nearest point; the rest is left to settling that point
#: (attack/attack.py, SETTLE), which needs no more of a larger gap.
CLOSING = 0.1


def horizon(problem: Problem) -> float:
    """How far a search looks: as far as it was asked to, and without a radius far beyond the size of x."""
    far = HORIZON * (1.0 + problem.norm.value(problem.x))
    return far if math.isinf(problem.radius) else max(far, 2.0 * problem.radius)


class Task:
    """One search for one problem.

    Attributes:
        limit: How far the search looks; the problem's radius if it is left out.
        incumbent: The best witness, to which the search suggests what it finds.
        enough: A witness at this distance or nearer ends the search: the radius of "is there any?", 0 for the nearest.
        gap: Upper and lower bound this close (relative) end the search.
        threads: How many threads the search may use; None leaves it to the search.
    """

    def __init__(
        self,
        problem: Problem,
        chain: SolverChain,
        limit: float | None = None,
        incumbent: Incumbent | None = None,
        *,
        enough: float = 0.0,
        gap: float = GAP,
        threads: int | None = None,
    ) -> None:
        if type(problem.norm) is not Norm:
            raise TypeError("a search knows plain norms only: give it layercert.scaled.scaled(problem, reach).problem")
        self.problem = problem
        self.chain = chain
        self.limit = problem.radius if limit is None else limit
        self.incumbent = Incumbent(problem) if incumbent is None else incumbent
        self.enough, self.gap, self.threads = enough, gap, threads
        self.floor = math.inf  # least proved distance to an unsafe point of a visited region
        self.ceiling = math.inf  # least bound of what no solver could decide, or whose point is outside the ball
        self.slip = 0.0
        self._points: list[tuple[float, float]] = []  # a heap: -value and bound of points inside the ball
        self.relaxed: tuple[Cell, float, Relaxation | None] | None = None  # the last one, with its cell and U
        self.note = ""  # what the result should say about how it was found
        self.horizon = horizon(problem)
        self.recorder: Recorder | None = None  # told of every step of the proof, by a search that has steps to tell
        self.scheduler: str | None = None  # of a cluster that does the work
        self.stack = "default"  # the name of the chain, for those who work elsewhere
        self.memory: int | None = None  # how many bytes the open nodes may take
        self.saved: Tree | None = None  # where a search goes on
        self.tree: Callable[[], Tree | None] | None = None  # what is left to do, by a search that can go on from there
        self.undivided = False  # is it at what one thread does, and who goes on from there does without?

    @cached_property
    def cells(self) -> Cells:
        """The hierarchy of patterns, in the row space of the first layer where that is smaller; needs dense layers."""
        return Cells(self.problem, row_space(self.problem) if self.chain.rotates else None)

    @property
    def U(self) -> float:
        """The paper's U: the distance of the nearest point found, or how far the search looks at all."""
        return min(self.limit, self.problem.reach, self.incumbent.nearest)

    @property
    def cutoff(self) -> float:
        """Nothing at or beyond this distance matters."""
        return min(self.U, self.horizon)

    @property
    def goal(self) -> float:
        """What is proved to be this far away is closed: a radius in full, a witness's distance up to the gap."""
        closing = max(CLOSING * self.gap, self.gap - (1.0 - CLOSING) * GAP)
        return min(self.cutoff, self.incumbent.nearest * (1.0 - closing))

    @property
    def known_size(self) -> bool:
        """Does a witness, or a radius that was asked for, say how large the ball is? Else it has to grow."""
        asked = min(self.problem.radius, self.limit)
        return math.isfinite(self.incumbent.nearest) or asked <= self.cutoff

    @property
    def ball(self) -> float:
        """Rows and faces whose hyperplane is farther than this are left out of programs (Appendix C)."""
        return self.cutoff

    def lower(self, key: float) -> float:
        """The proved bound when the least key in the queue is `key`."""
        while self._points and -self._points[0][0] >= self.cutoff:  # the ball may have become smaller
            self.ceiling = min(self.ceiling, heappop(self._points)[1])
        return max(0.0, min(key - self.slip, self.cutoff, self.floor, self.ceiling))

    def first_radius(self) -> float:
        """Where to start without a witness: the distance at which the linear piece of x would become unsafe."""
        problem = self.problem
        F, f0 = problem.network.linear_piece(problem.network.pattern(problem.x))
        radius = math.inf
        for clause in problem.clauses:
            margins = clause.margins(F @ problem.x + f0)
            size = problem.norm.dual(clause.C @ F)
            with np.errstate(divide="ignore", invalid="ignore"):
                radius = min(radius, float(np.nanmax(np.where(size > 0, margins / size, math.inf), initial=0.0)))
        if not 0 < radius < math.inf:
            radius = 0.1 * (1.0 + problem.norm.value(problem.x))
        return radius

    def attack(self) -> Iterator[Event]:
        """A first witness within the radius. The session asks for it, once, before the search."""
        reach, nearest = min(self.problem.radius, self.U), self.enough == 0.0
        found = attack(self.problem, reach, threads=self.threads or 1, nearest=nearest)
        if found is not None:
            yield from self.suggest(found[0], found[2])

    def suggest(self, step: Vector, clause: Clause) -> Iterator[Event]:
        """Offer the point x + step, unsafe up to rounding, to the incumbent; tells if it was taken."""
        if self.incumbent.offer(step, clause):
            yield Improve(step.copy(), self.incumbent.distance, clause)

    def propose(self, step: Vector, clause: Clause) -> Iterator[Event]:
        """The same for a point that a solver takes for unsafe: one that cannot be settled changes nothing."""
        if self.incumbent.propose(step, clause):
            yield Improve(step.copy(), self.incumbent.distance, clause)

    def decision(self, A: Cell, clauses: tuple[Clause, ...], within: Polyhedron | None = None) -> Iterator[Event]:
        """decision_bound(A, x, y): the distance to each clause on R_A, problem (7), whose point lowers U.

        The clause is an inequality here, C f <= d: the same value as the paper's f_y = f_j whenever the region is not
        unsafe as a whole, and it is defined for every clause.
        """
        from layercert.programs.kernels.proof import bound_in_box

        norm, box = self.problem.norm, self.problem.box
        for clause in clauses:
            rows = A.unsafe(clause)
            alone = bound_in_box(norm, box, rows.A, -rows.r - rows.slack, rows.growth)
            if max(alone.tolist(), default=0.0) >= self.cutoff:
                continue  # a row alone is beyond U (Appendix C): no program to solve
            whole, _ = A.region(self.ball, rows) if within is None else A.region(self.ball, rows, within)
            answer = self.chain.solve(single(whole, norm, box, self.cutoff))
            if answer.lower[0] >= self.cutoff:
                continue
            # a point beyond U whose bound is below: what is between may be rounding, and an unsafe point all the same
            self.floor = min(self.floor, float(answer.lower[0]))
            if answer.value[0] < self.U:
                yield from self.suggest(self.cells.offset(answer.steps[0]), clause)

    def faces(self, rows: Polyhedron, which: Indices) -> Solutions:
        """Problem (9) for several faces (8) of one region: the rows `which`, one at a time, as equalities [E5]."""
        programs = Programs(rows, which, self.problem.norm, self.problem.box, self.cutoff)
        return self.accept(self.chain.solve(programs))

    def accept(self, answers: Solutions) -> Solutions:
        """Book what the answers are worth: open gaps, and programs that nobody could decide."""
        near = answers.lower < self.cutoff
        # a point with a small gap costs that gap everywhere, a large gap or no point caps the bound right here
        usable = near
        if not answers.decided.all():
            usable = near & (answers.decided | gap_closed(answers.lower, answers.value, SLIP))
        if usable.any():
            self.book(answers.lower[usable], answers.value[usable])
        lost = near & ~usable
        if lost.any():
            self.ceiling = min(self.ceiling, float(answers.lower[lost].min()))
        return answers

    def book(self, lower: Vector, value: Vector) -> None:
        """Points from which the search goes on, with what is proved of their distances."""
        self.slip = max(self.slip, float((value - lower).max()))
        for least, at in zip(lower.tolist(), value.tolist(), strict=True):
            heappush(self._points, (-at, least))

    def nearest(self, rows: Polyhedron) -> tuple[float, Vector] | None:
        """The point of a polyhedron nearest to x: (proved distance, offset), or None when it is beyond U."""
        answers = self.accept(self.chain.solve(single(rows, self.problem.norm, self.problem.box, self.cutoff)))
        if answers.lower[0] >= self.cutoff:
            return None
        return float(answers.lower[0]), usable(answers.steps[0])


def usable(step: Vector) -> Vector:
    """A solver's point, or x itself when it has none (then `ceiling` already says that nothing more is proved)."""
    return step if bool(np.isfinite(step).all()) else np.zeros_like(step)
