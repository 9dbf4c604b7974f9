"""The relaxation of a node as a linear program, for l_inf: multipliers where the ascent comes to rest too early.

    min F    over w in ball and box and outputs h_i of the open neurons,
             max(z_i, 0) <= h_i <= upper_i z_i + offset_i,    phase_i z_i >= 0 for the splits.

z and F are linear in w and in the h below them. A least value above 0 says that the node holds no unsafe point of the
ball. The solver is not trusted: its multipliers become alpha, beta and mu, and a backward pass proves what they are
worth. In l_inf many points of a halfspace are equally near, and a step along any one of them may lead nowhere; near the
goal that costs thousands of nodes which one program closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array, eye_array, hstack, vstack

from layercert.arrays import Indices, LinearMap, Matrix, Vector
from layercert.problem import Clause, Problem
from layercert.search.adaptive.lines import upper_offset, upper_slope
from layercert.search.adaptive.model import HI, LO, PHASE
from layercert.system import clock

#: The solver's outputs are above relu by more than its tolerance.
ABOVE = 1e-9


class Multipliers(NamedTuple):
    """What the program says of a node."""

    value: float  # about the least value of F
    alpha: Vector  # -1 where it says nothing
    beta: Vector
    mu: Vector
    step: Vector  # where F is least, as an offset from x
    cheating: Indices  # the neurons whose output there is above relu, by what F gains from that, the most first


def solve(problem: Problem, maps: Sequence[LinearMap], clause: Clause, state: Matrix, U: float) -> Multipliers | None:
    """None where the solver has no answer, or the time is up; `maps` are the network's layers, all of them sparse."""
    forms = _Forms(problem, maps, state)
    rows, limits = [], []
    for A, c, low, splits in forms.layers:
        # z - h <= 0, h - upper z <= offset, -phase z <= 0
        rows += [A[low.open] - low.own, low.own - low.slope @ A[low.open], -(splits.side @ A[splits.at])]
        limits += [-c[low.open], low.offset + low.slopes * c[low.open], splits.sides * c[splits.at]]
    F, f0 = clause.C @ forms.outputs.toarray(), clause.C @ forms.constants - clause.d
    # the largest row of the clause: e, with F w + f0 <= e
    rows.append(hstack([csr_array(F), csr_array(-np.ones((len(f0), 1)))]))
    limits.append(-f0)
    n, variables = problem.network.inputs, F.shape[1]
    matrix: LinearMap = vstack([_padded(row, variables + 1) for row in rows], format="csr")
    box = problem.box
    down = np.full(n, -U) if box is None else np.maximum(box.lo, -U)
    up = np.full(n, U) if box is None else np.minimum(box.hi, U)
    ends = np.array([np.concatenate([down, np.zeros(variables - n), [-np.inf]]),
                     np.concatenate([up, np.full(variables - n + 1, np.inf)])])  # fmt: skip
    cost = np.zeros(variables + 1)
    cost[-1] = 1.0
    left = clock.left()
    if left <= 0:
        return None
    options: Any = {} if np.isinf(left) else {"time_limit": max(left, 0.01)}
    answer: Any = linprog(
        cost, matrix, np.concatenate(limits), bounds=ends.T.tolist(), method="highs-ds", options=options
    )
    if answer.status != 0:
        return None
    return forms.multipliers(answer, len(f0))


def _padded(A: LinearMap, columns: int) -> LinearMap:
    """More columns, of zeros."""
    return csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], columns))


class _Low(NamedTuple):
    """The open neurons of a layer: which they are, their columns as unit rows, their upper lines."""

    open: Indices
    own: LinearMap
    slope: LinearMap
    slopes: Vector
    offset: Vector


class _Splits(NamedTuple):
    at: Indices
    side: LinearMap
    sides: Vector


class _Forms:
    """Pre-activations of every layer as linear functions of w and of the outputs of open neurons below."""

    def __init__(self, problem: Problem, maps: Sequence[LinearMap], state: Matrix) -> None:
        network = problem.network
        noff = network.packed.noff
        self.state, self.noff, n = state, noff, network.inputs
        self.layers: list[tuple[LinearMap, Vector, _Low, _Splits]] = []
        phases, los, his = state[PHASE], state[LO], state[HI]
        is_free = (phases == 0) & (los < 0) & (his > 0)
        is_on = ~is_free & ((phases > 0) | ((phases == 0) & (los >= 0)))
        total = n + int(is_free.sum())
        H, h = _padded(csr_array(eye_array(n, format="csr")), total), problem.x
        column = n
        for k in range(network.L):
            W, b = maps[k], network.biases[k]
            A, c = csr_array(W @ H), np.asarray(W @ h + b)
            part = slice(int(noff[k]), int(noff[k + 1]))
            phase, lo, hi, on = phases[part], los[part], his[part], is_on[part]
            free, split = np.flatnonzero(is_free[part]), np.flatnonzero(phase)
            slopes = np.array([upper_slope(lo[i], hi[i]) for i in free])
            offset = np.array([upper_offset(s, lo[i], hi[i]) for s, i in zip(slopes, free, strict=True)])
            places = np.arange(column, column + len(free))
            column += len(free)
            own = csr_array((np.ones(len(free)), (np.arange(len(free)), places)), shape=(len(free), total))
            low = _Low(free, own, diags_array(slopes), slopes, offset)
            self.layers.append((A, c, low, _Splits(split, diags_array(phase[split]), phase[split])))
            keep = csr_array((np.ones(len(free)), (free, np.arange(len(free)))), shape=(len(on), len(free)))
            H, h = csr_array(diags_array(on.astype(float)) @ A + keep @ own), np.where(on, c, 0.0)
        self.outputs = csr_array(maps[-1] @ H)
        self.constants = np.asarray(maps[-1] @ h + network.biases[-1])
        self.inputs = n

    def multipliers(self, answer: Any, rows: int) -> Multipliers:
        """The dual solution in the terms of a node."""
        duals = np.maximum(-answer.ineqlin.marginals, 0.0)
        floor = np.maximum(answer.lower.marginals, 0.0)
        alpha, beta = np.full(self.state.shape[1], -1.0), np.zeros(self.state.shape[1])
        at, column = 0, self.inputs
        for k, (_, _, low, splits) in enumerate(self.layers):
            first, count = int(self.noff[k]), len(low.open)
            line, zero = duals[at : at + count], floor[column : column + count]
            both = line + zero
            alpha[first + low.open] = np.where(both > 0, line / np.where(both > 0, both, 1.0), -1.0)
            at, column = at + 2 * count, column + count
            beta[first + splits.at] = duals[at : at + len(splits.at)]
            at += len(splits.at)
        mu, step = duals[at : at + rows], answer.x[: self.inputs]
        return Multipliers(float(answer.fun), alpha, beta, mu, step, self._cheating(answer.x, duals))

    def _cheating(self, point: Vector, duals: Vector) -> Indices:
        """No split of another neuron can change the program's answer: its least point stays in one of the children."""
        neurons, gains = [], []
        at, column = 0, self.inputs
        for k, (A, c, low, splits) in enumerate(self.layers):
            count = len(low.open)
            z = (A @ point[: A.shape[1]] + c)[low.open]
            above = point[column : column + count] - np.maximum(z, 0.0)
            upper = duals[at + count : at + 2 * count]  # of h <= slope z + offset
            neurons.append(int(self.noff[k]) + low.open)
            gains.append(np.where(above > ABOVE, above * upper, 0.0))
            at, column = at + 2 * count + len(splits.at), column + count
        gain = np.concatenate(gains)
        return np.concatenate(neurons)[np.argsort(-gain, kind="stable")[: int((gain > 0).sum())]]
