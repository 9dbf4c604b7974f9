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
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array, vstack

from layercert.arrays import SMALLEST, Indices, LinearMap, Matrix, Vector
from layercert.facets import Facets
from layercert.norms import box_around
from layercert.problem import Problem
from layercert.search.adaptive.blame import blame
from layercert.search.adaptive.hulls import Hulls
from layercert.search.adaptive.model import HI, LO
from layercert.search.adaptive.relaxation import Relaxation, Solved, Start, ends_of
from layercert.system import clock

#: An output is above relu by more than the solver's tolerance.
ABOVE = 1e-9
#: Facets are looked for so often in one node, while they close this share of what is missing; in the tail, where each
#: node that is closed saves many, more often, for a smaller share, and facets that cut off less.
CUT_ROUNDS, CUT_ROUNDS_TAIL, CUT_SHARE, CUT_SHARE_TAIL = 2, 4, 0.03, 0.003


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
        self.ends = ends_of(root[:, self.free])
        self._forms(maps, root)
        self._lock = threading.Lock()
        self._idle: defaultdict[int, list[Relaxation]] = defaultdict(list)  # by clause; the last one was used last
        self._last: dict[int, Start] = {}
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
    def _model(self, at: int) -> Iterator[Relaxation]:
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

    def _start(self, at: int) -> Start | None:
        """Where a new model of a clause may begin: on dense layers also at the end of another clause's program."""
        if at in self._last or self.hulls is not None:
            return self._last.get(at)
        rows = len(self.problem.clauses[at].d)
        alike = (i for i in reversed(self._last) if len(self.problem.clauses[i].d) == rows)
        other = next(alike, None)
        return None if other is None else self._last[other]._replace(most=math.inf)

    def _new_model(self, at: int, start: Start | None) -> Relaxation:
        clause = self.problem.clauses[at]
        F, f0 = csr_array(clause.C @ self.outputs.toarray()), clause.C @ self.constants - clause.d
        model = Relaxation((self.A, self.c), (F, f0), self.free, self.ends)
        if self.hulls is not None:
            model.look_for_facets(self.hulls, self.inputs)
        if start is not None:
            model.go_on(start)
        return model

    def _keep(self, at: int, model: Relaxation) -> None:
        """For a model that begins while this one is in use."""
        start = model.start()
        with self._lock:
            self._last[at] = start
            self._beginning.discard(at)

    def _multipliers(self, at: int, model: Relaxation, found: Solved, neurons: int, tail: bool) -> Multipliers:
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

    def _blame(self, at: int, found: Solved, neurons: int) -> Vector:
        """What the free neurons' outputs account for in the difference between the network's F and the program's."""
        problem, outputs = self.problem, np.full(neurons, np.nan)
        outputs[self.free] = found.h
        weights = found.mu / max(float(found.mu.sum()), SMALLEST)
        form = weights @ problem.clauses[at].C
        return blame(problem.network, self.maps, problem.x + found.w, outputs, form)[self.free]


def _padded(A: LinearMap, columns: int) -> LinearMap:
    """More columns, of zeros."""
    return csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], columns))
