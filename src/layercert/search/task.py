"""The state that all geometric searches share: the upper bound U, the hierarchy, the distance programs.

Soundness of the reported lower bound. Keys in the queue are proved lower bounds of the patterns' distances. On the
segment from a pattern's nearest known point (at distance e) to the nearest unsafe point (at distance d*), all patterns
are linked by faces that hold a point of the segment, hence no farther than max(e, d*); faces are tested with the
rounding margin of their rows, so none of them is lost. The first pattern on this path that was not yet visited waits in
the queue, so the least key K satisfies K <= max(e, d*): the bound K is valid up to e minus the parent's own key, which
is the gap of the program that found the parent. `slip` keeps the largest such gap and is subtracted. A program that no
solver could decide lowers `ceiling` to what is proved about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

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

#: Without a radius or a domain, distances beyond this many times the size of x are not looked at.
HORIZON = 1e6
#: The largest relative gap of a program that may be booked as slip.
SLIP = 1e-7


def horizon(problem: Problem) -> float:
    """How far a search looks: as far as it was asked to, and without a radius far beyond the size of x."""
    far = HORIZON * (1.0 + problem.norm.value(problem.x))
    return far if math.isinf(problem.radius) else max(far, 2.0 * problem.radius)


class Task:
    """One search for one problem."""

    def __init__(self, problem: Problem, chain: SolverChain, U: float | None = None) -> None:
        if type(problem.norm) is not Norm:
            raise TypeError("a search knows plain norms only: give it layercert.scaled.scaled(problem, reach).problem")
        self.problem = problem
        self.chain = chain
        self.U = min(problem.radius if U is None else U, problem.reach)
        self.floor = math.inf  # least proved distance to an unsafe point of a visited region
        self.ceiling = math.inf  # least bound of anything that no solver could decide
        self.slip = 0.0
        self.relaxed: tuple[Cell, float, Relaxation | None] | None = None  # the last one, with its cell and U
        self.note = ""  # what the result should say about how it was found
        self.any_witness = False  # the question is settled by any unsafe point within U, near or far
        self.horizon = horizon(problem)

    @cached_property
    def cells(self) -> Cells:
        """The hierarchy of patterns, in the row space of the first layer where that is smaller; needs dense layers."""
        return Cells(self.problem, row_space(self.problem) if self.chain.rotates else None)

    @property
    def cutoff(self) -> float:
        """Nothing at or beyond this distance matters."""
        return min(self.U, self.horizon)

    @property
    def ball(self) -> float:
        """Rows and faces whose hyperplane is farther than this are left out of programs (Appendix C)."""
        return self.cutoff

    def lower(self, key: float) -> float:
        """The proved bound when the least key in the queue is `key`."""
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

    def attack(self, limit: float) -> Improve | None:
        """A first witness nearer than the limit; lowers U."""
        found = attack(self.problem, limit)
        if found is None:
            return None
        step, self.U, clause = found
        return Improve(step, self.U, clause)

    def decision(self, A: Cell, clauses: tuple[Clause, ...], within: Polyhedron | None = None) -> Iterator[Event]:
        """decision_bound(A, x, y): the distance to each clause on R_A, problem (7); lowers U.

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
                self.U = float(answer.value[0])
                yield Improve(self.cells.offset(answer.steps[0]), self.U, clause)

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
            self.slip = max(self.slip, float((answers.value[usable] - answers.lower[usable]).max()))
        lost = near & ~usable
        if lost.any():
            self.ceiling = min(self.ceiling, float(answers.lower[lost].min()))
        return answers

    def nearest(self, rows: Polyhedron) -> tuple[float, Vector] | None:
        """The point of a polyhedron nearest to x: (proved distance, offset), or None when it is beyond U."""
        answers = self.accept(self.chain.solve(single(rows, self.problem.norm, self.problem.box, self.cutoff)))
        if answers.lower[0] >= self.cutoff:
            return None
        return float(answers.lower[0]), usable(answers.steps[0])


def usable(step: Vector) -> Vector:
    """A solver's point, or x itself when it has none (then `ceiling` already says that nothing more is proved)."""
    return step if bool(np.isfinite(step).all()) else np.zeros_like(step)
