"""The relaxation of a node as a linear program, for l_inf: multipliers where the ascent comes to rest too early.

    min F    over w in ball and box and outputs h_i of the neurons that are open in the root,
             z = A (w, h) + c,    max(z_i, 0) <= h_i <= upper_i z_i + offset_i,    phase_i z_i >= 0 for the splits.

A and c hold for the whole tree: neurons that are stable in the root's ball are put in, all others have an output of
their own. A node changes bounds and slopes only, so one model serves all nodes of a clause, and the dual simplex goes
on from the last basis. A least value above 0 says that the node holds no unsafe point of the ball. The solver is not
trusted: its multipliers become alpha, beta and mu, and a backward pass proves what they are worth. In l_inf many points
of a halfspace are equally near, and a step along any one of them may lead nowhere; near the goal that costs thousands
of nodes which one program closes.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array, hstack, vstack

from layercert.arrays import SMALLEST, Indices, LinearMap, Mask, Matrix, Vector
from layercert.facets import Facets
from layercert.norms import box_around
from layercert.problem import Problem
from layercert.programs.highs_time import give_time
from layercert.search.adaptive.blame import blame
from layercert.search.adaptive.cuts import Cuts, Layer
from layercert.search.adaptive.hulls import VIOLATED, VIOLATED_TAIL, Hulls
from layercert.search.adaptive.model import HI, LO, PHASE, open_mask
from layercert.system import clock

#: An output is above relu by more than the solver's tolerance.
ABOVE = 1e-9
#: The first program of a model has no basis to go on from. A later one that takes so many times as long, and so many
#: seconds, is given up: now and then the solver goes round in circles, which no limit of iterations ends.
PATIENCE, LEAST_PATIENCE = 2.0, 0.5
#: Facets are looked for so often in one node, while they close this share of what is missing; in the tail, where each
#: node that is closed saves many, more often, for a smaller share, and facets that cut off less.
CUT_ROUNDS, CUT_ROUNDS_TAIL, CUT_SHARE, CUT_SHARE_TAIL = 2, 4, 0.03, 0.003
#: Seconds for a program with prices, which begins anew.
PRICED_TIME = 2.0
_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "solver": "simplex",
    "simplex_strategy": 1,  # dual
    "small_matrix_value": 1e-12,
}
#: Nodes of a sparse model are some ten iterations apart; scaling each anew, and taking back what perturbed the costs,
#: took as long as these.
_WARM: dict[str, Any] = {"simplex_scale_strategy": 0, "dual_simplex_cost_perturbation_multiplier": 0.0}


#: Of each free neuron, the least and the most that a program allows.
Ends: TypeAlias = tuple[Vector, Vector]


class Multipliers(NamedTuple):
    """What the program says of a node."""

    value: float  # about the least value of F
    alpha: Vector  # -1 where it says nothing
    beta: Vector
    mu: Vector
    step: Vector  # where F is least, as an offset from x
    cheating: Indices  # the neurons whose output there is above relu, those that matter most first (blame.py)
    facets: Facets | None  # upper lines beyond the chords
    both: Vector  # how much of an upper and a lower line each neuron has at once (bent.py)


class Programs:
    """The programs of one tree. Any number of workers may solve some at the same time.

    A model serves one of them at a time, then the next one: so what it knows (basis, facets) is known to all. Where
    all models of a clause are in use, another one begins where the last program ended.
    """

    def __init__(self, problem: Problem, maps: Sequence[LinearMap], root: Matrix, hulls: Hulls | None = None) -> None:
        """`maps` are the network's layers, all of them sparse; with `hulls` facets are looked for."""
        self.problem, self.n, self.hulls, self.maps = problem, problem.network.inputs, hulls, maps
        self.free = np.flatnonzero((root[LO] < 0) & (root[HI] > 0))
        self.ends = _ends(root[:, self.free])
        self._forms(maps, root)
        self._lock = threading.Lock()
        self._idle: defaultdict[int, list[_Model]] = defaultdict(list)  # by clause; the last one was used last
        self._last: dict[int, _Start] = {}
        self._beginning: set[int] = set()

    def _forms(self, maps: Sequence[LinearMap], root: Matrix) -> None:
        """A, c: pre-activations of the free neurons; the same for the outputs of the network."""
        network = self.problem.network
        noff, n = network.packed.noff, self.n
        is_free = (root[LO] < 0) & (root[HI] > 0)
        total, column = n + len(self.free), n
        H, h = _padded(csr_array(eye_array(n, format="csr")), total), self.problem.x
        rows, constants = [], []
        self.inputs: list[tuple[LinearMap, Vector]] = []  # of each layer; of the first one offsets from x
        for k in range(network.L):
            self.inputs.append((H, h if k > 0 else np.zeros(n)))
            A, c = csr_array(maps[k] @ H), np.asarray(maps[k] @ h + network.biases[k])
            part = slice(int(noff[k]), int(noff[k + 1]))
            free, on = np.flatnonzero(is_free[part]), ~is_free[part] & (root[LO, part] >= 0)
            rows.append(A[free])
            constants.append(c[free])
            own = csr_array((np.ones(len(free)), (free, np.arange(column, column + len(free)))), shape=(len(on), total))
            column += len(free)
            H, h = csr_array(diags_array(on.astype(float)) @ A + own), np.where(on, c, 0.0)
        self.A, self.c = csr_array(vstack(rows, format="csr")), np.concatenate(constants)
        self.outputs = csr_array(maps[-1] @ H)
        self.constants = np.asarray(maps[-1] @ h + network.biases[-1])

    def solve(self, at: int, state: Matrix, U: float, tail: bool = False) -> Multipliers | None:
        """The program of a node of clause number `at`, with more facets in the tail; None where the solver has no
        answer, or the time is up."""
        if clock.left() <= 0:
            return None
        with self._model(at) as model:
            box = box_around(U, len(self.problem.x), self.problem.box)
            found = model.run(state, box, U)
            self._keep(at, model)
            for _ in range(CUT_ROUNDS_TAIL if tail else CUT_ROUNDS):
                if found is None or found.value >= 0 or not model.cut(found, state, U, tail):
                    break
                again = model.run(state, box, U)
                if again is None:
                    break
                gain = again.value - found.value
                found = again
                if gain < (CUT_SHARE_TAIL if tail else CUT_SHARE) * (gain - found.value):
                    break
            return None if found is None else self._multipliers(at, model, found, state.shape[1], tail)

    def priced(self, at: int, state: Matrix, U: float, price: float) -> Multipliers | None:
        """The same where sides of split neurons may be violated at a price, so that their multipliers have a limit: a
        node without any point has no others."""
        if clock.left() <= 0:
            return None
        with self._model(at) as model:
            found = model.run(state, box_around(U, len(self.problem.x), self.problem.box), U, price)
            return None if found is None else self._multipliers(at, model, found, state.shape[1], tail=False)

    def has_begun(self, at: int) -> bool:
        """Has a clause had a program?"""
        return at in self._last

    def begins(self, at: int) -> bool:
        """Is somebody at the first program of a clause? It takes longest, and those that follow go on from it."""
        return at in self._beginning

    @contextmanager
    def _model(self, at: int) -> Iterator[_Model]:
        """A model of a clause that nobody else uses, for a while."""
        with self._lock:
            model, start = self._idle[at].pop() if self._idle[at] else None, self._start(at)
            if model is None and start is None:
                self._beginning.add(at)
        try:
            if model is None:
                model = self._new_model(at, start)
            yield model
            self._keep(at, model)
            with self._lock:
                self._idle[at].append(model)
        finally:
            with self._lock:
                self._beginning.discard(at)

    def _start(self, at: int) -> _Start | None:
        """Where a new model of a clause may begin: on dense layers also at the end of another clause's program."""
        if at in self._last or self.hulls is not None:
            return self._last.get(at)
        rows = len(self.problem.clauses[at].d)
        alike = (i for i in reversed(self._last) if len(self.problem.clauses[i].d) == rows)
        other = next(alike, None)
        return None if other is None else self._last[other]._replace(most=math.inf)

    def _new_model(self, at: int, start: _Start | None) -> _Model:
        clause = self.problem.clauses[at]
        F, f0 = csr_array(clause.C @ self.outputs.toarray()), clause.C @ self.constants - clause.d
        model = _Model((self.A, self.c), (F, f0), self.free, self.ends)
        if self.hulls is not None:
            model.cuts = Cuts(self.hulls, self.free, self.inputs, model.highs, 2 * model.m + model.rows)
            for name, value in _WARM.items():
                model.highs.setOptionValue(name, value)
        if start is not None:
            model.go_on(start)
        return model

    def _keep(self, at: int, model: _Model) -> None:
        """For a model that begins while this one is in use."""
        start = model.start()
        with self._lock:
            self._last[at] = start
            self._beginning.discard(at)

    def _multipliers(self, at: int, model: _Model, found: _Found, neurons: int, tail: bool) -> Multipliers:
        """The dual solution in the terms of a node."""
        alpha, beta = np.full(neurons, -1.0), np.zeros(neurons)
        both = found.line + found.zero
        told = found.is_open & (both > 0)
        alpha[self.free[told]] = found.line[told] / both[told]
        beta[self.free] = found.split
        above = np.where(found.is_open, found.h - np.maximum(found.z, 0.0), 0.0)
        held, facets = found.upper, None
        if model.cuts is not None:
            # rows that were added after this answer, where the next one failed, hold nothing
            multipliers = np.pad(found.facets, (0, len(model.cuts) - len(found.facets)))
            held = held + model.cuts.held(multipliers)
            facets = model.cuts.average(multipliers, found.upper)
            model.cuts.age(multipliers, tail)
        twice = np.zeros(neurons)
        twice[self.free] = np.minimum(np.where(found.is_open, both, found.line), held)
        gain = np.where(above > ABOVE, above * held + np.abs(self._blame(at, found, neurons)), 0.0)
        order = np.argsort(-gain, kind="stable")[: int((gain > 0).sum())]
        return Multipliers(found.value, alpha, beta, found.mu, found.w, self.free[order], facets, twice)

    def _blame(self, at: int, found: _Found, neurons: int) -> Vector:
        """What the free neurons' outputs account for in the difference between the network's F and the program's."""
        problem, outputs = self.problem, np.full(neurons, np.nan)
        outputs[self.free] = found.h
        weights = found.mu / max(float(found.mu.sum()), SMALLEST)
        form = weights @ problem.clauses[at].C
        return blame(problem.network, self.maps, problem.x + found.w, outputs, form)[self.free]


def _ends(root: Matrix) -> Ends:
    """Where z, h and -s of all points of the ball are, and well inside.

    With two ends for each column every basis is dual feasible for some ends, whatever the node: a column that has one
    end or none in the next node stops the dual simplex. No end holds a point, since none has a multiplier in a proof.
    """
    with np.errstate(over="ignore"):
        width = root[HI] - root[LO]
        return root[LO] - width, root[HI] + width


class _Found(NamedTuple):
    """A solved program: its point, and the multipliers of what holds it."""

    value: float
    is_open: Mask
    w: Vector
    h: Vector
    z: Vector
    line: Vector  # of h >= z: s >= 0
    zero: Vector  # of h >= 0
    upper: Vector  # of h <= slope z + offset
    split: Vector  # of phase z >= 0
    mu: Vector  # of the rows of the clause
    facets: Vector


class _Start(NamedTuple):
    """How far the programs of a clause are."""

    basis: Any
    facets: dict[int, Layer]
    most: float


class _Model:
    """Columns w, h, s, e with z = h - s: relu's two lower lines, h >= 0 and s >= 0, are bounds of columns.

    Rows h - s - A (w, h) = c, h - slope z <= offset, F (w, h) + f0 <= e, and facets.
    """

    def __init__(
        self, outputs: tuple[LinearMap, Vector], clause: tuple[LinearMap, Vector], free: Indices, ends: Ends
    ) -> None:
        import highspy

        (A, c), (F, f0) = outputs, clause
        n = int(A.shape[1]) - len(c)
        self.free, self.ends = free, ends
        self.cuts: Cuts | None = None
        self.n, self.m, self.rows = n, len(c), len(f0)
        m, unit = self.m, csr_array(eye_array(self.m, format="csr"))
        none, left = csr_array((m, 1)), csr_array((m, n))
        matrix = csr_array(
            vstack(
                [
                    hstack([hstack([left, unit]) - A, -unit, none]),
                    hstack([left, csr_array((m, m)), unit, none]),  # the slopes come with the node
                    hstack([F, csr_array((self.rows, m)), csr_array(-np.ones((self.rows, 1)))]),
                ],
                format="csr",
            )
        )
        matrix.sort_indices()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = matrix.shape[1], matrix.shape[0]
        lp.col_cost_ = np.append(np.zeros(matrix.shape[1] - 1), 1.0)
        lp.col_lower_, lp.col_upper_ = np.full(lp.num_col_, -np.inf), np.full(lp.num_col_, np.inf)
        lp.row_lower_ = np.concatenate([c, np.full(m + self.rows, -np.inf)])
        lp.row_upper_ = np.concatenate([c, np.full(m, np.inf), -f0])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = matrix.data
        # unknown: a reduced cost or two have the wrong sign. Multipliers are proved afterwards, whatever they are, and
        # the next program goes on from there
        status = highspy.HighsModelStatus
        self.highs, self.answers = highspy.Highs(), (status.kOptimal, status.kUnknown)
        for name, value in _OPTIONS.items():
            self.highs.setOptionValue(name, value)
        self.highs.passModel(lp)
        self.slopes = np.ones(m)
        self.most = math.inf  # seconds for a program

    def start(self) -> _Start:
        """What another model may go on from."""
        return _Start(self.highs.getBasis(), {} if self.cuts is None else self.cuts.copies(), self.most)

    def go_on(self, start: _Start) -> None:
        """From where another model was; this one is new."""
        if self.cuts is not None:
            self.cuts.restore(start.facets)
        self.most = start.most
        if start.basis.valid:
            self.highs.setBasis(start.basis)

    def run(self, node: Matrix, box: tuple[Vector, Vector], U: float, price: float = 0.0) -> _Found | None:
        """The program of the node with this state, in a box around x; `price`: what a unit costs by which the side of a
        split neuron is violated, 0 where it must not be."""
        n, m, state, (down, up) = self.n, self.m, node[:, self.free], box
        phase, lo, hi = state[PHASE], state[LO], state[HI]
        is_open = open_mask(state)
        is_on = ~is_open & ((phase > 0) | ((phase == 0) & (lo >= 0)))
        slope = np.where(is_open, np.minimum(hi / np.where(is_open, hi - lo, 1.0), 1.0), 1.0)
        offset = np.where(is_open, np.maximum(-slope * lo, (1.0 - slope) * hi), 0.0)
        # what is proved for unsafe points only must not hold the point: an output that is on is free, z of one off too
        live, free, (least, most) = is_open | is_on, phase == 0, self.ends
        low = np.concatenate([down, np.where(is_on & free, least, 0.0), np.where(live | ~free, 0.0, -most), [-np.inf]])
        high = np.concatenate([up, np.where(live, most, 0.0), np.where(is_on, 0.0, -least), [np.inf]])
        self.highs.changeColsBounds(len(low), np.arange(len(low), dtype=np.int32), low, high)
        rows = np.arange(m, 2 * m, dtype=np.int32)
        self.highs.changeRowsBounds(m, rows, np.full(m, -np.inf), np.where(is_open, offset, np.inf))
        if self.cuts is not None:
            self.cuts.adapt(node, U, live)
        for i in np.flatnonzero(slope != self.slopes):
            self.highs.changeCoeff(m + int(i), n + int(i), 1.0 - float(slope[i]))
            self.highs.changeCoeff(m + int(i), n + m + int(i), float(slope[i]))
        self.slopes = slope
        if price > 0.0:
            return self._priced(low, high, is_open, is_on, phase, price)
        began = self.highs.getRunTime()
        give_time(self.highs, self.most)
        # without a basis to go on from, an interior point and crossover: with thousands of sparse rows in a third of
        # the time, with hundreds in the same; on dense rows they take longer
        begins = self.cuts is not None and not self.highs.getBasis().valid
        self.highs.setOptionValue("solver", "ipm" if begins else "simplex")
        self.highs.run()
        if math.isinf(self.most):
            self.most = LEAST_PATIENCE + PATIENCE * (self.highs.getRunTime() - began)
        if self.highs.getModelStatus() not in self.answers:
            self.highs.clearSolver()
            return None
        return self._found(is_open, is_on, phase)

    def _priced(
        self, low: Vector, high: Vector, is_open: Mask, is_on: Mask, phase: Vector, price: float
    ) -> _Found | None:
        """The program with columns that cost: outputs of neurons that are off, and what others are below zero."""
        dear = (self.n + np.flatnonzero(np.concatenate([phase < 0, phase > 0]))).astype(np.int32)
        high[dear] = np.inf
        self.highs.changeColsBounds(len(low), np.arange(len(low), dtype=np.int32), low, high)
        self.highs.changeColsCost(len(dear), dear, np.full(len(dear), price))
        self.highs.clearSolver()
        self.highs.setOptionValue("solver", "ipm")
        give_time(self.highs, PRICED_TIME)
        self.highs.run()
        done = self.highs.getModelStatus() in self.answers
        found = self._found(is_open, is_on, phase) if done else None
        self.highs.changeColsCost(len(dear), dear, np.zeros(len(dear)))
        self.highs.clearSolver()
        return found

    def cut(self, found: _Found, node: Matrix, U: float, tail: bool) -> bool:
        """Add facets that the point of a program violates; are there any?"""
        if self.cuts is None:
            return False
        violated = VIOLATED_TAIL if tail else VIOLATED
        return self.cuts.look(self.free[found.is_open], node, np.concatenate([found.w, found.h]), U, violated)

    def _found(self, is_open: Mask, is_on: Mask, phase: Vector) -> _Found | None:
        n, m = self.n, self.m
        point, reduced, dual = self._solution()
        if not (np.isfinite(point).all() and np.isfinite(reduced).all() and np.isfinite(dual).all()):
            return None  # whatever the solver says of it
        h, above = point[n : n + m], point[n + m : n + 2 * m]
        # s is 0 where a neuron is on: what holds it from above there is an upper line
        zero, line = reduced[n : n + m], reduced[n + m : n + 2 * m]
        return _Found(
            value=float(point[-1]),
            is_open=is_open,
            w=point[:n],
            h=h,
            z=h - above,
            line=np.maximum(line, 0.0),
            zero=np.maximum(zero, 0.0),
            upper=np.maximum(-np.where(is_on, line, dual[m : 2 * m]), 0.0),
            split=np.where(phase == 0, 0.0, np.maximum(np.where(is_on, zero, line), 0.0)),
            mu=np.maximum(-dual[2 * m : 2 * m + self.rows], 0.0),
            facets=np.maximum(-dual[2 * m + self.rows :], 0.0),
        )

    def _solution(self) -> tuple[Vector, Vector, Vector]:
        """Columns, their reduced costs, multipliers of rows."""
        solution = self.highs.getSolution()
        return np.array(solution.col_value), np.array(solution.col_dual), np.array(solution.row_dual)


def _padded(A: LinearMap, columns: int) -> LinearMap:
    """More columns, of zeros."""
    return csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], columns))
