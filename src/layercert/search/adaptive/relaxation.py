"""The linear program of a node, as one model that goes from node to node. What it is for is in program.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array, eye_array, hstack, vstack

from layercert.arrays import Indices, LinearMap, Mask, Matrix, Vector
from layercert.programs.highs_time import give_time
from layercert.search.adaptive.cuts import Cuts, Layer
from layercert.search.adaptive.hulls import VIOLATED, VIOLATED_TAIL, Hulls
from layercert.search.adaptive.model import HI, LO, PHASE, open_mask

#: The first program of a model has no basis to go on from. A later one that takes so many times as long, and so many
#: seconds, is given up: now and then the solver goes round in circles, which no limit of iterations ends.
PATIENCE, LEAST_PATIENCE = 2.0, 0.5
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


def ends_of(root: Matrix) -> Ends:
    """Where z, h and -s of all points of the ball are, and well inside.

    With two ends for each column every basis is dual feasible for some ends, whatever the node: a column that has one
    end or none in the next node stops the dual simplex. No end holds a point, since none has a multiplier in a proof.
    """
    with np.errstate(over="ignore"):
        width = root[HI] - root[LO]
        return root[LO] - width, root[HI] + width


class Solved(NamedTuple):
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


class Start(NamedTuple):
    """How far the programs of a clause are."""

    basis: Any
    facets: dict[int, Layer]
    most: float


class Relaxation:
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

    def look_for_facets(self, hulls: Hulls, inputs: Sequence[tuple[LinearMap, Vector]]) -> None:
        """From now on; `inputs` of each layer, as functions of the columns."""
        self.cuts = Cuts(hulls, self.free, inputs, self.highs, 2 * self.m + self.rows)
        for name, value in _WARM.items():
            self.highs.setOptionValue(name, value)

    def start(self) -> Start:
        """What another model may go on from."""
        return Start(self.highs.getBasis(), {} if self.cuts is None else self.cuts.copies(), self.most)

    def go_on(self, start: Start) -> None:
        """From where another model was; this one is new."""
        if self.cuts is not None:
            self.cuts.restore(start.facets)
        self.most = start.most
        if start.basis.valid:
            self.highs.setBasis(start.basis)

    def run(self, node: Matrix, box: tuple[Vector, Vector], U: float, price: float = 0.0) -> Solved | None:
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
    ) -> Solved | None:
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

    def cut(self, found: Solved, node: Matrix, U: float, tail: bool) -> bool:
        """Add facets that the point of a program violates; are there any?"""
        if self.cuts is None:
            return False
        violated = VIOLATED_TAIL if tail else VIOLATED
        return self.cuts.look(self.free[found.is_open], node, np.concatenate([found.w, found.h]), U, violated)

    def _found(self, is_open: Mask, is_on: Mask, phase: Vector) -> Solved | None:
        n, m = self.n, self.m
        point, reduced, dual = self._solution()
        if not (np.isfinite(point).all() and np.isfinite(reduced).all() and np.isfinite(dual).all()):
            return None  # whatever the solver says of it
        h, above = point[n : n + m], point[n + m : n + 2 * m]
        # s is 0 where a neuron is on: what holds it from above there is an upper line
        zero, line = reduced[n : n + m], reduced[n + m : n + 2 * m]
        return Solved(
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
