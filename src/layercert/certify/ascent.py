"""Better parameters on the checker's own bounds, by the search's own steps: for a halfspace, for rows, for multipliers
of the cap; exactly on a linear piece."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import SMALLEST, Indices, Mask, Matrix, Vector
from layercert.certificate.setting import Setting
from layercert.facets import Facets
from layercert.problem import Clause
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, COEF, HI, LO, NO_HULLS, PHASE, POINT, ROWS, SHARE, Model, build
from layercert.search.adaptive.node import settle
from layercert.search.adaptive.pieces import is_sparse
from layercert.search.adaptive.record import Fixed, Halfspace
from layercert.search.task import Task
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.program import Multipliers, Programs

#: Steps of each ascent, and of those at a node that is nearly closed and where few steps help no more.
STEPS, MANY_STEPS = 4, 64
#: What a violated side costs in such a program, in units of the largest coefficient of the halfspace that is known. On
#: cnn_4_8_ibp nodes that are empty are closed by 1 to 1.3 (PERFORMANCE.md, 2026-11-19), not by 0.2 nor by 30.
PRICE = 1.0
#: An ascent stops at this much beyond the radius, and programs are solved in this ball: less than the default gap
#: beyond it is a witness, and no parameters are good for a ball that holds one.
ENOUGH = 1.0 + 2e-7


class Better(NamedTuple):
    """Parameters of a node's halfspace, and where its neurons are at its nearest point."""

    own: Halfspace
    point: Vector
    state: Matrix | None  # the node as the search sees it; None: a linear piece
    wanted: Indices | None = None  # what a program says should be split, the most first
    fixed: Fixed | None = None  # neurons of which the halfspace excludes one side

    @property
    def split(self) -> int:
        """The neuron to split if that does not do; -1: none can be."""
        from layercert.search.adaptive.lines import scores

        if self.state is None:
            return -1
        if self.wanted is not None and len(self.wanted):
            return int(self.wanted[0])
        score = np.empty(self.state.shape[1])
        scores(self.state, score)
        return int(score.argmax())


def _unit(state: Matrix, weights: Vector) -> float:
    """The largest coefficient of an objective whose weights add up to 1."""
    unit = float(np.abs(state[COEF]).max(initial=0.0) / max(float(weights.sum()), SMALLEST))
    return unit if 0.0 < unit < math.inf else 1.0


def told_by(found: Multipliers, known: Halfspace) -> Halfspace:
    """The halfspace of a program's multipliers; slopes of which it says nothing are those that are known."""
    return Halfspace(np.where(found.alpha >= 0, found.alpha, known.alpha), found.beta, found.mu, found.facets)


class Ascent:
    """Suggestions only: nothing of this is trusted."""

    def __init__(self, task: Task, setting: Setting, model: Model | None, bounds: Callable[[], Any]) -> None:
        """model: that of the search; without one it is made here. bounds: the region of the ball."""
        self.task, self.setting, self._model, self.bounds = task, setting, model, bounds
        self.leaves = Leaves(task)

    @cached_property
    def model(self) -> Model:
        return self._model or build(self.task.problem, self.setting.r, hulled=NO_HULLS)[0]

    def cap(self, g: Vector, s: float) -> Any:
        """The part of the ball where g.w + s <= 0."""
        from layercert.search.adaptive.cap import Cap
        from layercert.search.adaptive.halfspace import dual_norm

        return Cap(self.setting.r, g, s, dual_norm(g, self.model.p))

    def improved(self, clause: Clause, region: Any, own: Halfspace, steps: int) -> Better:
        """Better parameters than those given, on the region of one node."""
        if region.side.all():
            return self._piece(clause, region, own)
        from layercert.search.adaptive.ascent import drop_betas, optimise
        from layercert.search.adaptive.lanes import lanes_of, store

        state = np.zeros((ROWS, len(own.alpha)))
        state[PHASE], state[LO], state[HI] = region.phase[0], region.lo[0], region.hi[0]
        state[ALPHA], state[BETA], state[POINT] = own.alpha, own.beta, own.alpha - 0.5
        model = self.model
        if own.facets is not None:
            hulls = self.programs[0].hulls
            assert hulls is not None
            model = model._replace(facets=hulls.table(own.facets, self.setting.r * ENOUGH))
            state[SHARE, own.facets.neurons] = own.facets.shares
        mu = np.zeros(int(np.diff(model.first).max()))
        mu[: len(own.weights)] = own.weights
        at = self._number(clause)
        lanes = lanes_of(model, state[None], mu[None], np.array([at], np.intp))
        drop_betas(model, lanes)
        optimise(model, lanes, self.setting.r * ENOUGH, steps, np.zeros((1, len(self.setting.x))), clock.timer())
        store(lanes, 0, state, mu)
        facets = own.facets
        if facets is not None:
            facets = facets._replace(shares=state[SHARE, facets.neurons].copy())
        found = Halfspace(state[ALPHA].copy(), state[BETA].copy(), mu[: len(own.weights)], facets)
        return Better(found, state[POINT], state)

    @cached_property
    def has_programs(self) -> bool:
        """Are nodes of this kind bounded by linear programs in the search as well?"""
        return math.isinf(self.setting.p) and is_sparse(self.task.problem.network)

    @cached_property
    def programs(self) -> tuple[Programs, Mask]:
        """Those of the nodes' relaxations with facets, and which neurons may have either sign in the ball."""
        from layercert.search.adaptive.hulls import Hulls
        from layercert.search.adaptive.program import Programs

        problem, region = self.task.problem, self.bounds()
        root = np.zeros((ROWS, region.lo.shape[1]))
        root[LO], root[HI] = region.lo[0], region.hi[0]
        maps = [csr_array(W) for W in problem.network.maps]
        return Programs(problem, maps, root, Hulls(maps, self.model, root)), (root[LO] < 0) & (root[HI] > 0)

    def programmed(self, clause: Clause, region: Any, own: Halfspace) -> Better:
        """The multipliers of the node's linear program; where it has no answer, those of an ascent."""
        better = self.improved(clause, region, own, STEPS)
        if better.state is None:
            return better
        programs, meets = self.programs
        state, at = better.state, self._number(clause)
        settle(state, meets)
        U = self.setting.r * ENOUGH
        found, own = programs.solve(at, state, U), better.own
        if found is not None:
            own = told_by(found, better.own)
        # Perhaps no point is left; or what holds the program's is nothing that a certificate knows, such as facets of
        # neurons that are on, and takes large multipliers with it.
        if (found is None or found.value > 0.0) and (reached := self._reached(at, state, own)) < U:
            other = programs.priced(at, state, U, PRICE * _unit(state, better.own.weights))
            if other is not None and self._reached(at, state, told_by(other, better.own)) > reached:
                found, own = other, told_by(other, better.own)
        if found is None:
            return better
        return Better(own, better.point, state, found.cheating, self._fixed(at, state, own))

    def _reached(self, at: int, state: Matrix, own: Halfspace) -> float:
        """The distance that a halfspace proves, as the search sees it."""
        from layercert.search.adaptive.bent import bent_pass
        from layercert.search.adaptive.halfspace import distance

        hulls, state = self.programs[0].hulls, state.copy()
        assert hulls is not None
        state[ALPHA], state[BETA] = own.alpha, own.beta
        none = Facets(np.zeros(0, np.intp), np.zeros(0), np.zeros(0))
        bends = hulls.bends(state, own.facets or none, self.setting.r * ENOUGH)
        done, _ = bent_pass(hulls.model, state, own.weights, at, bends)
        return float(distance(done.g[0], done.s[0], done.drift[0], hulls.model, np.empty(len(done.g[0]))))

    def fixing(self, clause: Clause, better: Better) -> Better:
        """The same parameters, and which neurons they fix; only those with facets do."""
        if better.state is None:
            return better
        return better._replace(fixed=self._fixed(self._number(clause), better.state, better.own))

    def _fixed(self, at: int, state: Matrix, own: Halfspace) -> Fixed | None:
        """The neurons of which a halfspace excludes one side."""
        from layercert.search.adaptive.bent import bent_pass
        from layercert.search.adaptive.fixing import fix

        if own.facets is None:
            return None
        hulls, U, state = self.programs[0].hulls, self.setting.r * ENOUGH, state.copy()
        assert hulls is not None
        state[ALPHA], state[BETA] = own.alpha, own.beta
        bends = hulls.bends(state, own.facets, U)
        done, state[COEF] = bent_pass(hulls.model, state, own.weights, at, bends)
        return fix(hulls.model, state, bends, done, U, clock.timer())

    def _exact(self, clause: Clause, region: Any) -> Multipliers | None:
        """The node's program where every neuron has its side: exact in l_inf."""
        programs, meets = self.programs
        state = np.zeros((ROWS, region.lo.shape[1]))
        state[PHASE], state[LO], state[HI] = region.phase[0], region.lo[0], region.hi[0]
        settle(state, meets)
        return programs.solve(self._number(clause), state, self.setting.r * ENOUGH)

    def _number(self, clause: Clause) -> int:
        return [c is clause for c in self.task.problem.clauses].index(True)

    def _piece(self, clause: Clause, region: Any, own: Halfspace) -> Better:
        """Every neuron has its side: the distance program of the linear piece, whose multipliers are beta and mu."""
        sides = region.side[0].astype(np.float64)
        if not self.task.problem.network.fits_dense:  # the rows of that program are dense, those of the node's are not
            found = self._exact(clause, region) if math.isinf(self.setting.p) else None
            mine = own if found is None else Halfspace(own.alpha, found.beta, found.mu)
            return Better(mine, sides, None)
        rowed = np.ones(len(sides), np.bool_)
        answer = self.leaves.solve(sides, rowed, clause, self.task.U)
        return Better(answer.halfspace(rowed, own.alpha), sides, None)
