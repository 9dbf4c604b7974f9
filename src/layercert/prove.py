"""Certificates made: the adaptive search at a fixed radius leaves its tree, and every leaf is tried on the checker.

Any method's answer is certified this way: once the radius r is known, "nothing unsafe within r" is proved from scratch
by the adaptive search, whose tree is small and whose leaves are plain multipliers. A geometric search would have to
list every region it visited and every face it closed. What the checker cannot follow (it bounds a little differently
from the search) is split further here, until it can.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.checker import by_layer, child_of, rounds_to_empty
from layercert.certificate.claim import Certificate, Tree
from layercert.certificate.floats import Bounds, FloatArithmetic, Parameters
from layercert.certificate.setting import Setting
from layercert.problem import Clause, Problem
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import adaptive
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, ROWS, build
from layercert.search.task import Task

#: The certified radius is this much (relative) below the bound that the search proved.
MARGIN = 1e-6
#: The most rounds of tightening at a leaf.
ROUNDS = 4


class Unproved(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """No certificate could be made, and why."""


@dataclass
class _Node:
    """What the search said of a node: its parameters, and its split if any."""

    alpha: Vector
    beta: Vector
    mu: Vector
    layer: int = 0
    neuron: int = 0
    children: tuple[int, int] | None = None


@dataclass
class TreeRecorder:
    """Collects the split tree of an adaptive search (the Recorder of search/adaptive)."""

    nodes: dict[int, _Node] = field(default_factory=dict)
    roots: dict[int, int] = field(default_factory=dict)  # id of the clause -> node

    def root(self, node: int, clause: Clause, radius: float) -> None:
        self.roots[id(clause)] = node

    def split(
        self,
        node: int,
        layer: int,
        neuron: int,
        children: tuple[int, int],
        alpha: Vector,
        beta: Vector,
        weights: Vector,
    ) -> None:
        self.nodes[node] = _Node(alpha.copy(), beta.copy(), weights.copy(), layer + 1, neuron, children)

    def close(
        self,
        node: int,
        reason: str,
        bound: float,
        alpha: Vector | None,
        beta: Vector | None,
        weights: Vector | None,
        multipliers: Vector | None,
    ) -> None:
        assert alpha is not None and beta is not None and weights is not None
        self.nodes[node] = _Node(alpha.copy(), beta.copy(), weights.copy())


def prove(
    problem: Problem, lower: float, witness: Vector | None, upper: float, deadline: float | None = None
) -> Certificate:
    """A certificate that no unsafe point is within lower*(1 - 1e-6) of x; Unproved if that fails."""
    if not problem.network.fits_dense:
        raise Unproved("the network's sparse layers are too large to be made dense, which certificates need")
    radius = min(lower * (1.0 - MARGIN), problem.reach)
    task = Task(problem, make_chain("default", problem.norm), radius * (1.0 + 0.5 * MARGIN))
    recorder = TreeRecorder()
    if radius > 0:
        for _ in adaptive(task, recorder=recorder):
            if deadline is not None and time.monotonic() > deadline:
                raise Unproved("the time limit was reached before the proof was complete")
    setting = Setting(problem.network, problem.x, problem.norm.p, radius, problem.domain)
    trees = []
    for clause in problem.clauses:
        builder = _Builder(task, setting, recorder, clause, deadline)
        trees.append(builder.tree() if radius > 0 else builder.trivial())
    return Certificate(
        network=problem.network.sha256,
        x=problem.x,
        p=problem.norm.p,
        domain=problem.domain,
        label=problem.label,
        clauses=tuple((c.C, c.d, c.target) for c in problem.clauses),
        radius=radius,
        witness=witness,
        upper=upper,
        trees=tuple(trees),
    )


class _Builder:
    """One clause's tree in the checker's own terms."""

    def __init__(
        self, task: Task, setting: Setting, recorder: TreeRecorder, clause: Clause, deadline: float | None
    ) -> None:
        self.task, self.setting, self.recorder, self.clause = task, setting, recorder, clause
        self.deadline = deadline
        self.arithmetic = FloatArithmetic(setting)
        self.ends = np.cumsum([0, *setting.network.widths])
        self.leaves = Leaves(task)
        self.rows: list[tuple[int, int, int, Vector, Vector, Vector]] = []
        self.repaired = 0

    def trivial(self) -> Tree:
        n, m = self.setting.network.neurons, len(self.clause.d)
        self._emit(_Node(np.zeros(n), np.zeros(n), np.ones(m)), 0)
        return self._pack()

    def tree(self) -> Tree:
        network, T = self.setting.network, self.setting.T
        start = Bounds(
            [np.zeros(n) for n in network.widths], [-t for t in T[: network.L]], [t.copy() for t in T[: network.L]]
        )
        self.arithmetic.tighten(start, None, 0.0)
        n, m = network.neurons, len(self.clause.d)
        root = self.recorder.nodes.get(self.recorder.roots.get(id(self.clause), -1))
        if root is None:
            root = _Node(np.full(n, 0.5), np.zeros(n), np.full(m, 1.0 / m))
        stack: list[tuple[_Node, Bounds | None]] = [(root, start)]
        while stack:
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise Unproved("the time limit was reached before the proof was complete")
            node, bounds = stack.pop()
            stack.extend(reversed(self._place(node, bounds)))
        return self._pack()

    def _place(self, node: _Node, bounds: Bounds | None) -> list[tuple[_Node, Bounds | None]]:
        """Emit one node as a leaf if the checker accepts it, else as a split; returns the children, on first."""
        node = _scaled(node)
        if bounds is None:
            self._emit(node, 0)
            return []
        if node.children is None:
            for attempt in range(3):
                needed = self._rounds(node, bounds.copy(), ROUNDS)
                if needed is not None:
                    self._emit(node, needed)
                    return []
                node = _scaled(self._optimised(node, bounds, attempt))
            node = self._split_further(node, bounds)
        # the node's own halfspace tightens the bounds that its children inherit
        depth = int(sum(np.count_nonzero(p) for p in bounds.phase))
        rounds = 3 if depth == 0 else 1
        needed = self._rounds(node, bounds, rounds)
        if needed is not None:
            self._emit(node, needed)
            return []
        self._emit(node, rounds, node.layer, node.neuron)
        k = node.layer - 1
        kids = [self.recorder.nodes[c] for c in node.children or ()]
        if len(kids) != 2:
            kids = [_Node(node.alpha, node.beta, node.mu), _Node(node.alpha, node.beta, node.mu)]
        return [(kid, child_of(bounds, k, node.neuron, s)) for kid, s in zip(kids, (1.0, -1.0), strict=True)]

    def _piece(self, node: _Node, bounds: Bounds) -> _Node:
        """Every neuron has its side: the distance program of the linear piece, whose multipliers are beta and mu."""
        sides = [np.where(bounds.on(k), 1.0, -1.0) for k in range(len(bounds.phase))]
        neurons = len(node.alpha)
        answer = self.leaves.solve(
            np.concatenate([np.zeros(0), *sides]), np.ones(neurons, np.bool_), self.clause, self.task.U
        )
        lam = np.where(np.isfinite(answer.multipliers), np.maximum(answer.multipliers, 0.0), 0.0)
        return _Node(node.alpha, lam[:neurons], lam[neurons:])

    def _rounds(self, node: _Node, bounds: Bounds, most: int) -> int | None:
        """How many rounds the checker needs to close the node, None if more than `most`; tightens `bounds`."""
        parameters = Parameters(by_layer(node.alpha, self.ends), by_layer(node.beta, self.ends))
        with np.errstate(all="ignore"):
            return rounds_to_empty(self.arithmetic, bounds, self.clause.C, self.clause.d, node.mu, parameters, most)

    def _optimised(self, node: _Node, bounds: Bounds, attempt: int) -> _Node:
        """Better parameters on the checker's own bounds: by the search's ascent, or exactly on a linear piece."""
        free = sum(
            int(((p == 0) & (lo < 0) & (hi > 0)).sum())
            for p, lo, hi in zip(bounds.phase, bounds.lo, bounds.hi, strict=True)
        )
        if free == 0:
            return self._piece(node, bounds)
        state = _state(node, bounds)
        from layercert.search.adaptive.bound import optimise

        tight = bounds.copy()
        self._rounds(node, tight, 2)
        state[LO], state[HI] = np.concatenate(tight.lo), np.concatenate(tight.hi)
        mu = node.mu.copy()
        model, first, _ = self.model
        at = int(first[[c is self.clause for c in self.task.problem.clauses].index(True)])
        optimise(model, state, mu, at, self.task.U * 2.0, 60 * (attempt + 1), np.zeros(self.setting.network.inputs))
        return _Node(state[ALPHA], state[BETA], mu)

    @cached_property
    def model(self) -> tuple[Any, Any, Any]:
        return build(self.task.problem, self.task.U)

    def _split_further(self, node: _Node, bounds: Bounds) -> _Node:
        """Split the free neuron with the widest bounds on both sides of zero."""
        self.repaired += 1
        best, layer, neuron = 0.0, 0, 0
        for k in range(self.setting.network.L):
            free = (bounds.phase[k] == 0) & (bounds.lo[k] < 0) & (bounds.hi[k] > 0)
            gain = np.where(free, np.minimum(-bounds.lo[k], bounds.hi[k]), 0.0)
            if gain.max(initial=0.0) > best:
                best, layer, neuron = float(gain.max()), k + 1, int(gain.argmax())
        if not layer:
            raise Unproved("a linear piece is not closed by its own multipliers: rounding is as large as the margin")
        return _Node(node.alpha, node.beta, node.mu, layer, neuron)

    def _emit(self, node: _Node, rounds: int, layer: int = 0, neuron: int = 0) -> None:
        self.rows.append((layer, neuron, rounds, node.alpha, node.beta, node.mu))

    def _pack(self) -> Tree:
        layer, neuron, rounds, alpha, beta, mu = zip(*self.rows, strict=True)
        return Tree(
            np.array(layer, np.int32),
            np.array(neuron, np.int32),
            np.array(rounds, np.int32),
            np.array(alpha),
            np.array(beta),
            np.array(mu),
        )


def _scaled(node: _Node) -> _Node:
    """Parameters in range; beta and mu may be scaled together, so that the largest is one."""
    scale = max(float(node.mu.max(initial=0.0)), float(node.beta.max(initial=0.0)), 1e-300)
    return replace(
        node,
        alpha=np.clip(node.alpha, 0.0, 1.0),
        beta=np.maximum(node.beta, 0.0) / scale,
        mu=np.maximum(node.mu, 0.0) / scale,
    )


def _state(node: _Node, bounds: Bounds) -> Matrix:
    """A node as the search's kernels want it."""
    state = np.zeros((ROWS, len(node.alpha)))
    if bounds.phase:
        state[PHASE], state[LO], state[HI] = (np.concatenate(a) for a in (bounds.phase, bounds.lo, bounds.hi))
    state[ALPHA], state[BETA] = node.alpha, node.beta
    return state


def certified_radius(lower: float) -> float:
    """What a certificate for this lower bound proves."""
    return lower * (1.0 - MARGIN) if math.isfinite(lower) else lower
