"""Nearer witnesses in l_inf by blocks of inputs, each a small mixed-integer program; nothing is proved here.

The nearest unsafe points of a convolutional network differ in many small patches that have little to do with each
other: in each, some pixels move together and a handful of neurons change sides. Steps from one linear piece to the next
(witnesses.py) change one neuron at a time and come to rest. Here the inputs of a small block move, and all others stay:
the least F inside the ball over the block is found whatever sides change. A solver of mixed-integer programs has some
twenty neurons to decide, since all others have one side left. From a point with F < 0 the linear piece leads to a
nearer witness. Elsewhere this is known as large neighbourhood search.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import Indices, LinearMap, Vector
from layercert.norms import box_around
from layercert.problem import Problem
from layercert.programs.highs_time import Patience, give_time

#: Programs have a few milliseconds' work: whatever prepares for long ones takes longer than it saves. A point that has
#: most of the gain will do, since its linear piece is followed to the end. Names that a version of the solver does not
#: know it ignores.
_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "small_matrix_value": 1e-12,
    "mip_rel_gap": 0.3,
    "mip_max_nodes": 20,
    "mip_detect_symmetry": False,
    "mip_allow_restart": False,
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}
#: How long one may take (highs_time.Patience).
TIMES, LEAST_SECONDS, FIRST_SECONDS = 20.0, 1.0, 5.0
#: A block with more neurons to decide is left alone: its program would take longer than many nodes.
MOST_BINARIES = 64


class Blocks:
    """The blocks of a network. A window is what a neuron of the first layer reads; a block is a window and the next one
    that shares half of it, if there is one: what moves together is often cut in two by the edge of a window."""

    def __init__(self, problem: Problem, maps: Sequence[LinearMap]) -> None:
        """`maps` are the network's layers, all of them sparse."""
        self.problem, self.maps = problem, [csr_array(W) for W in maps]
        self._columns = [csr_array(W.T) for W in self.maps]  # who reads an output
        self.seen = math.inf  # the distance of the witness that was looked at last
        self.tried = set[int]()  # blocks that have nothing nearer, as long as nothing moves around them
        self.in_vain = False  # so many had nothing nearer than the witness that was looked at last
        self.patience = Patience(TIMES, LEAST_SECONDS, FIRST_SECONDS)
        self.lock = threading.Lock()  # of several threads one looks at blocks, and the others go on
        windows, self.of_neuron = _windows(self.maps[0])
        shared = csr_array(windows @ windows.T)
        self.inputs: list[Indices] = []
        for i in range(windows.shape[0]):
            row = slice(shared.indptr[i], shared.indptr[i + 1])
            own = windows.indices[windows.indptr[i] : windows.indptr[i + 1]]
            after = np.sort(shared.indices[row][(shared.indices[row] > i) & (2 * shared.data[row] >= len(own))])[:1]
            self.inputs.append(np.unique(np.concatenate([own, windows[after].indices])).astype(np.intp))

    def neighbours(self, block: int) -> Indices:
        """Blocks that share an input with this one, itself among them."""
        readers = np.unique(self._columns[0][self.inputs[block]].indices)
        return np.unique(self.of_neuron[readers])

    def least(self, at: int, step: Vector, U: float, block: int, need: float) -> Vector | None:
        """An offset from x with F of clause number `at` below -need that differs from `step` in one block; None where
        the solver finds none."""
        problem, inputs = self.problem, self.inputs[block]
        down, up = box_around(U, len(problem.x), problem.box)
        w = np.clip(step, down, up)
        program = _Program(problem.x[inputs] + down[inputs], problem.x[inputs] + up[inputs])
        layer = _Layer(problem.x + w, inputs, np.arange(len(inputs)), program.low[0], program.high[0])
        for k in range(problem.network.L):
            touched = np.unique(self._columns[k][layer.moving].indices).astype(np.intp)
            layer = program.relu(self.maps[k], problem.network.biases[k], layer, touched)
        if program.binaries > MOST_BINARIES:
            return None
        clause = problem.clauses[at]
        program.objective(csr_array(csr_array(clause.C) @ self.maps[-1]), layer, self._constants(at))
        point = program.solve(need, len(inputs), self.patience)
        if point is None:
            return None
        before = self.value(at, w)
        w[inputs] = np.clip(point - problem.x[inputs], down[inputs], up[inputs])
        return w if self.value(at, w) < 0.5 * (before - need) else None  # the network says so, not the solver alone

    def value(self, at: int, step: Vector) -> float:
        """F of a clause at an offset from x."""
        return float(self.problem.clauses[at].margins(self.problem.network(self.problem.x + step)).max())

    def _constants(self, at: int) -> Vector:
        clause = self.problem.clauses[at]
        return np.asarray(clause.C @ self.problem.network.biases[-1] - clause.d)


def _windows(first: csr_array) -> tuple[csr_array, Indices]:
    """The sets of inputs that neurons read, each once, as rows of ones; and which of them is a neuron's."""
    numbers, of_neuron = dict[bytes, int](), np.empty(first.shape[0], np.intp)
    sets: list[Indices] = []
    for i in range(first.shape[0]):
        read = np.unique(first.indices[first.indptr[i] : first.indptr[i + 1]]).astype(np.intp)
        of_neuron[i] = numbers.setdefault(read.tobytes(), len(numbers))
        if of_neuron[i] == len(sets):
            sets.append(read)
    ends = np.cumsum([0, *(len(read) for read in sets)])
    inputs = np.concatenate([*sets, np.empty(0, np.intp)])
    return csr_array((np.ones(len(inputs)), inputs, ends), shape=(len(sets), first.shape[1])), of_neuron


class _Layer(NamedTuple):
    """Outputs of a layer: values of those that stay, and for those that move their columns and ranges."""

    values: Vector
    moving: Indices
    columns: Indices
    low: Vector
    high: Vector


class _Program:
    """Columns and rows, collected layer by layer."""

    def __init__(self, low: Vector, high: Vector) -> None:
        self.low, self.high, self.whole = [low], [high], [np.zeros(len(low), np.bool_)]
        self.entries: list[tuple[Indices, Indices, Vector]] = []
        self.least: list[Vector] = []
        self.most: list[Vector] = []
        self.width, self.height, self.binaries, self.cost = len(low), 0, 0, -1

    def relu(self, W: csr_array, b: Vector, below: _Layer, touched: Indices) -> _Layer:
        """The layer above: of its neurons only `touched` ones move, and those with both signs get a binary."""
        z = np.asarray(W @ below.values + b)
        part = csr_array(W[touched][:, below.moving])
        constant = z[touched] - part @ below.values[below.moving]
        up, down = part.maximum(0), part.minimum(0)
        low = constant + up @ below.low + down @ below.high
        high = constant + up @ below.high + down @ below.low
        values = np.maximum(z, 0.0)
        values[touched[high <= 0]] = 0.0
        live = np.flatnonzero(high > 0)
        part, constant, low, high = csr_array(part[live]), constant[live], low[live], high[live]
        h = self._columns(np.maximum(low, 0.0), high)
        is_open = low < 0
        # h - W y >= b, with = where the neuron is on
        self._rows(part, below.columns, h, constant, np.where(is_open, np.inf, constant))
        some = np.flatnonzero(is_open)
        if len(some):
            d = self._columns(np.zeros(len(some)), np.ones(len(some)), whole=True)
            self.binaries += len(some)
            none = np.full(len(some), -np.inf)
            # h <= z - low (1 - d), h <= high d
            self._rows(csr_array(part[some]), below.columns, h[some], none, (constant - low)[some], d, -low[some])
            self._rows(csr_array((len(some), 0)), below.columns[:0], h[some], none, np.zeros(len(some)), d, -high[some])
        return _Layer(values, touched[live], h, np.maximum(low, 0.0), high)

    def objective(self, F: csr_array, last: _Layer, constants: Vector) -> None:
        """The largest row of the clause, to be made small."""
        rest = last.values.copy()
        rest[last.moving] = 0.0
        sides = constants + F @ rest
        e = self._columns(np.full(1, -np.inf), np.full(1, np.inf))
        self.cost = int(e[0])
        part, count = csr_array(F[:, last.moving]), len(sides)
        self._rows(part, last.columns, np.repeat(e, count), sides, np.full(count, np.inf))  # e - F h >= sides

    def solve(self, need: float, inputs: int, patience: Patience) -> Vector | None:
        """The first columns of a point with an objective below -need."""
        import highspy

        rows, columns, data = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = csr_array((data, (rows, columns)), shape=(self.height, self.width))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.width, self.height
        cost = np.zeros(self.width)
        cost[self.cost] = 1.0
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.concatenate(self.low), np.concatenate(self.high)
        lp.row_lower_, lp.row_upper_ = np.concatenate(self.least), np.concatenate(self.most)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = matrix.data
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [kinds[whole] for whole in np.concatenate(self.whole).astype(int).tolist()]
        highs = highspy.Highs()
        for name, value in _OPTIONS.items():
            highs.setOptionValue(name, value)
        highs.setOptionValue("objective_bound", -need)  # points that are no better are not looked for
        highs.passModel(lp)
        give_time(highs, patience.most)
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kTimeLimit:
            patience.took(highs.getRunTime())
        point = np.array(highs.getSolution().col_value)
        if len(point) != self.width or not np.isfinite(point).all() or point[self.cost] > -need:
            return None
        return point[:inputs]

    def _columns(self, low: Vector, high: Vector, whole: bool = False) -> Indices:
        self.low.append(low)
        self.high.append(high)
        self.whole.append(np.full(len(low), whole))
        self.width += len(low)
        return np.arange(self.width - len(low), self.width)

    def _rows(
        self, part: csr_array, columns: Indices, own: Indices, least: Vector, most: Vector,
        other: Indices | None = None, factor: Vector | None = None,
    ) -> None:  # fmt: skip
        """Rows least <= own - part y + factor other <= most."""
        count, entries = len(own), part.tocoo()
        at = self.height + np.arange(count)
        self.entries.append(
            (self.height + entries.row.astype(np.intp), columns[entries.col], -entries.data.astype(float))
        )
        self.entries.append((at, own, np.ones(count)))
        if other is not None and factor is not None:
            self.entries.append((at, other, factor))
        self.least.append(least)
        self.most.append(most)
        self.height += count
