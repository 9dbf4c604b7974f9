"""The least value of a clause's F on a linear piece inside an l_inf ball, with rows on demand.

With the phases of all neurons fixed everything is linear in the input alone, and the piece is held by a row for each
neuron. Few of them hold a point: a program starts with those that held the last one, and rows that its point violates
are added until there are none. So it has hundreds of rows where the network has thousands of neurons, and the rows of
convolutions are short. The next ball around the same piece changes bounds only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from layercert.arrays import Indices, LinearMap, Mask, Vector
from layercert.norms import box_around
from layercert.problem import Problem
from layercert.programs.highs_time import Patience, give_time
from layercert.system import clock

#: A row is violated beyond this share of the largest value of its layer; so many are added at once, the worst first.
VIOLATED, ADDED = 1e-9, 100
#: How long a program may take (highs_time.Patience).
TIMES, LEAST_SECONDS, FIRST_SECONDS = 20.0, 0.2, 5.0
#: Rounds of rows; where they do not suffice there is no answer.
ROUNDS = 60
_OPTIONS: dict[str, Any] = {"output_flag": False, "threads": 1, "solver": "simplex", "small_matrix_value": 1e-12}


class Least(NamedTuple):
    """The least F on a linear piece inside a ball."""

    value: float
    step: Vector
    rate: float  # how fast it falls with the radius
    faces: Indices  # neurons whose hyperplane holds the point, the most first


class PiecePrograms:
    """The programs of pieces inside one ball, or smaller ones."""

    def __init__(self, problem: Problem, maps: Sequence[LinearMap], meets: Mask) -> None:
        """`maps` are the network's layers, all of them sparse; `meets`: neurons whose hyperplane may meet the ball."""
        self.problem, self.maps, self.meets = problem, maps, meets
        self.noff = problem.network.packed.noff
        self._held = np.empty(0, np.intp)  # the neurons that held the last point
        self._last: tuple[int, bytes] | None = None
        self._model: _Piece | None = None
        self.patience = Patience(TIMES, LEAST_SECONDS, FIRST_SECONDS)

    def least(self, at: int, sides: Vector, U: float) -> Least | None:
        """The least F of clause number `at` on a piece, where every neuron is on its side, inside the ball of radius U.

        It is infinite where the ball does not meet the piece; None where the solver has no answer.
        """
        if clock.left() <= 0:
            return None
        key = at, np.packbits(sides > 0).tobytes()
        if key != self._last or self._model is None:
            self._last, self._model = key, _Piece(self, at, sides, self._held)
        found = self._model.run(*box_around(U, len(self.problem.x), self.problem.box), U)
        if found is not None and len(found.faces):
            self._held = found.faces
        return found


class _Piece:
    """Columns w and e; rows F w - e <= -f0, and side z >= 0 for the neurons that were asked for."""

    def __init__(self, programs: PiecePrograms, at: int, sides: Vector, held: Indices) -> None:
        import highspy

        self.programs, self.sides = programs, sides
        clause, n = programs.problem.clauses[at], programs.problem.network.inputs
        self.z0 = self.preactivations(np.zeros(n))
        L = len(programs.noff) - 1
        last = np.where(sides > 0, self.z0, 0.0)[programs.noff[L - 1] :]
        biases = programs.problem.network.biases
        F = self._down(csr_array(csr_array(clause.C) @ programs.maps[-1]), L)
        f0 = clause.C @ (programs.maps[-1] @ last + biases[-1]) - clause.d
        matrix = csr_array(hstack([F, csr_array(-np.ones((len(f0), 1)))], format="csr"))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = n + 1, len(f0)
        lp.col_cost_ = np.append(np.zeros(n), 1.0)
        lp.col_lower_, lp.col_upper_ = np.full(n + 1, -np.inf), np.full(n + 1, np.inf)
        lp.row_lower_, lp.row_upper_ = np.full(len(f0), -np.inf), -f0
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = matrix.data
        self.highs, self.status = highspy.Highs(), highspy.HighsModelStatus
        for name, value in _OPTIONS.items():
            self.highs.setOptionValue(name, value)
        self.highs.passModel(lp)
        self.rows, self.n = len(f0), n
        self.asked = np.empty(0, np.intp)  # neurons that have a row, in the order of the rows
        self.has_row = ~programs.meets
        self._add(held)

    def preactivations(self, w: Vector) -> Vector:
        """Those of all neurons at x + w, on this piece or beyond it."""
        programs = self.programs
        h, parts = programs.problem.x + w, []
        for k in range(len(programs.noff) - 1):
            z = programs.maps[k] @ h + programs.problem.network.biases[k]
            h = np.where(self.sides[programs.noff[k] : programs.noff[k + 1]] > 0, z, 0.0)
            parts.append(z)
        return np.concatenate(parts)

    def _down(self, rows: csr_array, k: int) -> csr_array:
        """Rows over the outputs of layer k (from 1 on) as rows over the input."""
        programs = self.programs
        for j in range(k - 1, -1, -1):
            on = self.sides[programs.noff[j] : programs.noff[j + 1]] > 0
            rows.data = rows.data * on[rows.indices]
            rows.eliminate_zeros()
            rows = csr_array(rows @ programs.maps[j])
        return rows

    def _add(self, neurons: Indices) -> None:
        """Rows of some neurons that have none yet."""
        programs = self.programs
        neurons = np.sort(neurons[~self.has_row[neurons]])
        if not len(neurons):
            return
        self.has_row[neurons] = True
        layer = np.searchsorted(programs.noff, neurons, side="right") - 1
        parts = [
            self._down(csr_array(programs.maps[k])[neurons[layer == k] - programs.noff[k]], int(k))
            for k in np.unique(layer)
        ]
        matrix = csr_array(vstack(parts, format="csr"))
        matrix.sort_indices()
        side, count = self.sides[neurons], len(neurons)
        matrix.data = matrix.data * np.repeat(side, np.diff(matrix.indptr))
        self.highs.addRows(
            count, -side * self.z0[neurons], np.full(count, np.inf), matrix.nnz,
            matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32), matrix.data,
        )  # fmt: skip
        self.asked = np.concatenate([self.asked, neurons])

    def run(self, down: Vector, up: Vector, U: float) -> Least | None:
        """The least F in the box from `down` to `up`."""
        n = self.n
        if (down > up).any():
            return Least(math.inf, np.zeros(n), 0.0, np.empty(0, np.intp))
        self.highs.changeColsBounds(n, np.arange(n, dtype=np.int32), down, up)
        for _ in range(ROUNDS):
            began, patience = self.highs.getRunTime(), self.programs.patience
            give_time(self.highs, patience.most)
            self.highs.run()
            status = self.highs.getModelStatus()
            if status == self.status.kInfeasible:
                return Least(math.inf, np.zeros(n), 0.0, np.empty(0, np.intp))
            if status != self.status.kOptimal:
                self.highs.clearSolver()
                return None
            patience.took(self.highs.getRunTime() - began)
            solution = self.highs.getSolution()
            w = np.array(solution.col_value)[:n]
            if not np.isfinite(w).all():
                return None
            wrong = self._violated(w)
            if not len(wrong):
                return self._least(solution, w, down, up, U)
            self._add(wrong)
        return None

    def _violated(self, w: Vector) -> Indices:
        z = self.preactivations(w)
        beyond = np.where(self.has_row, 0.0, -self.sides * z)
        noff = self.programs.noff
        for k in range(len(noff) - 1):
            part = slice(int(noff[k]), int(noff[k + 1]))
            beyond[part] /= np.abs(z[part]).max(initial=0.0) or 1.0
        wrong = np.flatnonzero(beyond > VIOLATED)
        return wrong[np.argsort(-beyond[wrong], kind="stable")][:ADDED]

    def _least(self, solution: Any, w: Vector, down: Vector, up: Vector, U: float) -> Least:
        dual, pull = np.array(solution.row_dual)[self.rows :], np.array(solution.col_dual)[: self.n]
        rate = np.maximum(pull, 0.0) @ (down == -U) + np.maximum(-pull, 0.0) @ (up == U)
        order = np.argsort(-dual, kind="stable")[: int((dual > 0).sum())]
        return Least(float(solution.col_value[self.n]), w, float(rate), self.asked[order])
