"""The textbook big-M mixed-integer model in HiGHS (l1 and l_inf), an independent cross-check and baseline.

One model a clause, all sharing U: neurons that CROWN proves stable are affine, every other one gets a binary. Its bound
is HiGHS's word, within HiGHS's tolerances: unlike every other method it is not re-proved here, so `lower` is taken a
little below what the solver claims and the result says whose word it is. HiGHS's tolerances are absolute, so every
column is counted in a unit of its own, a power of two near its bound: then they are relative to the ball and to what
each neuron can be, whatever the scale of the network.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layercert.arrays import Matrix, Vector
from layercert.bounds.linear import Relaxation, relax
from layercert.errors import OptionError
from layercert.geometry import Cells
from layercert.norms import box_around
from layercert.problem import Clause, Problem
from layercert.programs.highs_time import give_time
from layercert.search.events import Bound, Event
from layercert.search.task import Task
from layercert.system import clock

#: What HiGHS's feasibility and optimality tolerances may be worth, relative to the distance.
TRUST = 2e-7
#: The ball is a little larger than U: a witness at U itself must stay feasible, and what is proved must reach U.
MARGIN = 1e-6
#: In smaller balls the margins, which are relative, come near the least float64 number or are lost to rounding.
LEAST = 1e-290
#: The part of the gap asked for that HiGHS may leave open.
OWN_GAP = 1e-2
#: Seconds that HiGHS may take to stop. Simplifying a model of millions of entries it looks at no clock.
PATIENCE = 0.3


def mip(task: Task) -> Iterator[Event]:
    """Solve one model a clause; bounds and points come when a model ends."""
    problem = task.problem
    if problem.norm.p not in (1.0, math.inf):
        raise OptionError(
            f"method 'mip' knows linear norms only, l1 and linf, got {problem.norm.name}; "
            "use 'adaptive' or any layercert method for this norm"
        )
    if math.isinf(task.U):
        task.note = "big-M needs a bounded ball, and no attack found a witness; give a radius or a domain"
        yield Bound(0.0)
        return
    if task.U < LEAST:
        task.note = f"the ball is smaller than {LEAST:.0e}: there margins for HiGHS's tolerances are less than a float"
        yield Bound(0.0)
        return
    task.note = "the lower bound is the word of HiGHS, within its tolerances; it is not re-proved"
    bounds: list[float] = []
    for clause in problem.clauses:
        clock.check()
        bound, step, interrupted = _solve(task, clause)
        if step is not None and problem.norm.value(step) < task.U:
            yield from task.propose(step, clause)
        bounds.append(bound)
        if len(bounds) == len(problem.clauses):
            if _is_refuted(task, bounds):
                task.note = "HiGHS takes the region of the witness for empty: its word is worth nothing here"
                bounds = [0.0]
            yield Bound(max(0.0, min(bounds) * (1.0 - TRUST)))
        if interrupted:
            raise KeyboardInterrupt


def _is_refuted(task: Task, bounds: list[float]) -> bool:
    """Is a witness, which is unsafe in exact arithmetic, nearer than HiGHS's bound for its clause?

    Tolerances can hide what decides where the numbers of a row are of very different sizes.
    """
    held = task.incumbent.witness
    return held is not None and any(
        clause is held.clause and bound > held.distance * (1.0 + TRUST)
        for clause, bound in zip(task.problem.clauses, bounds, strict=True)
    )


def _solve(task: Task, clause: Clause) -> tuple[float, Vector | None, bool]:
    """HiGHS's lower bound for one clause (the ball's radius when it finds nothing inside), its point, and Ctrl-C."""
    import highspy

    network = task.problem.network
    U = task.U * (1.0 + MARGIN)
    model = big_m_model(task.cells, clause, U)
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    h.setOptionValue("small_matrix_value", 1e-12)
    h.setOptionValue("mip_feasibility_tolerance", 1e-9)
    h.setOptionValue("primal_feasibility_tolerance", 1e-9)
    h.setOptionValue("dual_feasibility_tolerance", 1e-9)
    h.setOptionValue("mip_rel_gap", OWN_GAP * task.gap)
    h.setOptionValue("mip_abs_gap", 1e-10)
    model.hand_over(h)
    clock.check()
    give_time(h)
    ended, interrupted = _run(h)
    if not ended:
        return 0.0, None, interrupted
    status, stopped = h.getModelStatus(), (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt)
    if status == highspy.HighsModelStatus.kInfeasible:
        return U, None, interrupted
    info = h.getInfo()
    step: Vector | None = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        step = np.asarray(h.getSolution().col_value[: network.inputs], dtype=np.float64) * model.ball
    bound = 0.0  # an unknown status proves nothing
    if model.has_binaries and (status == highspy.HighsModelStatus.kOptimal or status in stopped):
        bound = float(info.mip_dual_bound) * model.ball
    elif status == highspy.HighsModelStatus.kOptimal:
        bound = float(info.objective_function_value) * model.ball
    return min(max(0.0, bound), U), step, interrupted  # the model says nothing beyond its ball


def big_m_model(cells: Cells, clause: Clause, U: float) -> Encoding:
    """The textbook model of one clause inside the ball of radius U, with CROWN's bounds as big-M."""
    network = cells.network
    relaxation = relax(cells.root, U)
    model = Encoding(cells.problem, U)
    post = model.inputs()
    for i in range(network.L):
        assert relaxation is not None
        post = model.relu_layer(post, network.weights[i], network.biases[i], relaxation, i)
    model.unsafe(post, clause)
    return model


def _run(h: Any) -> tuple[bool, bool]:
    """Run HiGHS in a thread, so that Ctrl-C is heard at once: did it end, and did Ctrl-C come?

    Where it does not stop in time it is told to, and left alone: its thread holds what it needs, and ends by itself.
    The process waits for it at its own end, since HiGHS must not be torn down at work. A thread of ours: highspy's own
    `startSolve` knows one running solver per process.
    """
    h.HandleUserInterrupt = True  # then HiGHS looks whether `cancelSolve` was called
    ended, interrupted = threading.Event(), False

    def solve() -> None:
        try:
            h.run()
        finally:
            ended.set()

    threading.Thread(target=solve).start()
    while True:
        try:
            while not ended.wait(0.002):  # not Thread.join: interrupted, it takes a running thread for a finished one
                if clock.left() < -PATIENCE:
                    h.cancelSolve()
                    return False, interrupted
            return True, interrupted
        except KeyboardInterrupt:
            interrupted = True
            h.cancelSolve()


def _power_of_two(size: float) -> float:
    """The power of two just above a size; 1 for nothing at all."""
    return float(_powers_of_two(np.array([size]))[0])


def _powers_of_two(sizes: Vector) -> Vector:
    usable = (sizes > 0.0) & (sizes < math.inf)
    return np.where(usable, np.ldexp(1.0, np.frexp(np.where(usable, sizes, 0.5))[1]), 1.0)


class Rows(NamedTuple):
    """low <= value.columns <= high, row by row: entries ends[i] to ends[i + 1] are those of row i."""

    ends: NDArray[np.int32]
    columns: NDArray[np.int32]
    value: Vector
    low: Vector
    high: Vector


@dataclass
class Encoding:
    """Columns and rows of one model; columns 0..n-1 are the offset w. All numbers come in as they are meant."""

    problem: Problem
    U: float
    cost: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)
    unit: list[float] = field(default_factory=list)  # a column's value is so many times what HiGHS sees
    rows: list[tuple[NDArray[np.int32], Vector, float, float]] = field(default_factory=list)

    @property
    def has_binaries(self) -> bool:
        return any(self.binary)

    @property
    def ball(self) -> float:
        """The unit of w and of its norm."""
        return _power_of_two(self.U)

    def column(self, low: float, high: float, cost: float = 0.0, binary: bool = False, unit: float = 0.0) -> int:
        unit = unit or _power_of_two(max(abs(low), abs(high)))
        self.unit.append(unit)
        self.low.append(low / unit)
        self.high.append(high / unit)
        self.cost.append(cost)
        self.binary.append(binary)
        return len(self.low) - 1

    def row(self, index: ArrayLike, value: ArrayLike, low: float, high: float) -> None:
        """low <= value.columns <= high."""
        self.rows.append((np.asarray(index, dtype=np.int32), np.asarray(value, dtype=np.float64), low, high))

    def inputs(self) -> list[int]:
        """w within the ball and the box, and its norm as the objective."""
        U = self.U
        lo, hi = box_around(U, len(self.problem.x), self.problem.box)
        w = [self.column(float(a), float(b), unit=self.ball) for a, b in zip(lo, hi, strict=True)]
        inf = math.inf
        if math.isinf(self.problem.norm.p):
            t = self.column(0.0, U, cost=1.0, unit=self.ball)
            for i in w:
                self.row([i, t], [1.0, -1.0], -inf, 0.0)
                self.row([i, t], [1.0, 1.0], 0.0, inf)
        else:
            sizes = [self.column(0.0, U, cost=1.0, unit=self.ball) for _ in w]
            for i, t in zip(w, sizes, strict=True):
                self.row([i, t], [1.0, -1.0], -inf, 0.0)
                self.row([i, t], [1.0, 1.0], 0.0, inf)
        return w

    def relu_layer(self, below: list[int], W: Matrix, b: Vector, relaxation: Relaxation, layer: int) -> list[int]:
        """a = relu(W v + b): a >= z, a <= z - lo*(1 - on), a <= hi*on with on binary where the sign is open."""
        bounds = relaxation.layers[layer]
        shift = W @ self.problem.x if layer == 0 else np.zeros(len(b))
        inf, columns = math.inf, np.array(below, dtype=np.int32)
        out: list[int] = []
        for j in range(len(b)):
            clock.check()
            lo, hi, z0 = float(bounds.lo[j]), float(bounds.hi[j]), float(b[j] + shift[j])
            live = np.flatnonzero(W[j])
            index, value = columns[live], -W[j, live]
            if hi <= 0:
                out.append(self.column(0.0, 0.0))
                continue
            a = self.column(0.0, hi)
            out.append(a)
            if lo >= 0:
                self.row(np.append(index, a), np.append(value, 1.0), z0, z0)
                continue
            on = self.column(0.0, 1.0, binary=True, unit=1.0)
            self.row(np.append(index, a), np.append(value, 1.0), z0, inf)
            self.row(np.append(index, [a, on]), np.append(value, [1.0, -lo]), -inf, z0 - lo)
            self.row([a, on], [1.0, -hi], -inf, 0.0)
        return out

    def unsafe(self, last: list[int], clause: Clause) -> None:
        network = self.problem.network
        CW, rhs = clause.C @ network.weights[-1], clause.d - clause.C @ network.biases[-1]
        if network.L == 0:
            rhs = rhs - CW @ self.problem.x
        for row, d in zip(CW, rhs, strict=True):
            self.row(last, row, -math.inf, float(d))

    def scaled(self) -> Rows:
        """The rows over columns in their units, each divided by a power of two near its largest number."""
        ends = np.cumsum([0, *(len(r[0]) for r in self.rows)]).astype(np.int32)
        index = np.concatenate([r[0] for r in self.rows])
        value = np.concatenate([r[1] for r in self.rows]) * np.array(self.unit)[index]
        low, high = np.array([r[2] for r in self.rows]), np.array([r[3] for r in self.rows])
        sizes = [np.maximum.reduceat(np.abs(value), ends[:-1])]  # no row is empty
        sizes += [np.where(np.isfinite(end), np.abs(end), 0.0) for end in (low, high)]
        top = _powers_of_two(np.max(sizes, axis=0))
        return Rows(ends, index, value / np.repeat(top, np.diff(ends)), low / top, high / top)

    def hand_over(self, h: Any) -> None:
        """The model for HiGHS, as arrays: objects of highspy copy them number by number."""
        import highspy

        rows = self.scaled()
        clock.check()
        h.passModel(
            len(self.low), len(rows.low), len(rows.value), int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize), 0.0, np.array(self.cost), np.array(self.low), np.array(self.high),
            rows.low, rows.high, rows.ends, rows.columns, rows.value, np.array(self.binary, dtype=np.int32),
        )  # fmt: skip
