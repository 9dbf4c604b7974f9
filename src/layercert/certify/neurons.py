"""Trees of neuron splits made: the adaptive search leaves its tree, and every node of it is done again in the checker's
own arithmetic, which bounds a little differently. At each node the parameters are optimised on the checker's bounds
and its halfspace tightens these, again and again as long as that helps; where the checker still cannot close what the
search closed, the node is split further.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from layercert.arrays import Mask, Matrix, Vector
from layercert.certificate.checker import by_layer, child_of, rounds_to_empty
from layercert.certificate.claim import GO_ON, Tree
from layercert.certificate.floats import Bounds, FloatArithmetic, Parameters
from layercert.certificate.setting import Setting
from layercert.problem import Clause
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, POINT, ROWS, build
from layercert.search.adaptive.record import Halfspace, RowParameters
from layercert.search.task import Task
from layercert.system import clock

#: Rounds of optimising and tightening at the root and at the other nodes, and the ascent steps of each.
ROOT_ROUNDS, ROUNDS = 20, 10
STEPS = 12
#: A round that does not close this share of the gap is the last one.
WORTHWHILE = 0.05


class Unproved(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """No certificate could be made, and why."""


@dataclass
class Plan:
    """A node: its parameters, and the search's split of it if any."""

    alpha: Vector
    beta: Vector
    mu: Vector
    layer: int = 0
    neuron: int = 0
    children: tuple[int, int] | None = None


@dataclass
class TreeRecorder:
    """Collects the split tree of an adaptive search (the Recorder of search/adaptive)."""

    nodes: dict[int, Plan] = field(default_factory=dict)
    roots: dict[int, int] = field(default_factory=dict)  # id of the clause -> node

    def ball(self, radius: float) -> None:
        self.nodes.clear()
        self.roots.clear()

    def rows(self, node: int, rows: RowParameters) -> None:
        pass  # the checker of this format finds its own

    def wait(self, node: int, own: Halfspace) -> None:
        pass  # the search that is recorded here runs to its end

    def root(self, node: int, clause: Clause) -> None:
        self.roots[id(clause)] = node

    def split(self, node: int, layer: int, neuron: int, children: tuple[int, int], own: Halfspace) -> None:
        self.nodes[node] = Plan(own.alpha.copy(), own.beta.copy(), own.weights.copy(), layer + 1, neuron, children)

    def close(self, node: int, own: Halfspace) -> None:
        self.nodes[node] = Plan(own.alpha.copy(), own.beta.copy(), own.weights.copy())


class TreeBuilder:
    """One clause's tree in the checker's own terms."""

    def __init__(self, task: Task, setting: Setting, recorder: TreeRecorder, clause: Clause) -> None:
        self.task, self.setting, self.recorder, self.clause = task, setting, recorder, clause
        self.arithmetic = FloatArithmetic(setting)
        self.ends = np.cumsum([0, *setting.network.widths])
        self.leaves = Leaves(task)
        self.rows: list[tuple[int, int, int, Parts]] = []

    def trivial(self) -> Tree:
        """The tree for radius 0, where nothing is to be proved."""
        n, m = self.setting.network.neurons, len(self.clause.d)
        self._emit(Parts(np.zeros(n), np.zeros(n), np.ones(m), np.zeros(n, np.bool_)), 0)
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
            root = Plan(np.full(n, 0.5), np.zeros(n), np.full(m, 1.0 / m))
        stack: list[tuple[Plan, Bounds | None]] = [(root, start)]
        while stack:
            clock.check()
            plan, bounds = stack.pop()
            stack.extend(reversed(self._place(plan, bounds)))
        return self._pack()

    def _place(self, plan: Plan, bounds: Bounds | None) -> list[tuple[Plan, Bounds | None]]:
        """Emit a node, as a leaf if the checker can close it; returns the children of its split, on first."""
        if bounds is None:
            self._emit(Parts.of(plan.alpha, plan.beta, plan.mu, plan.alpha > 0.5), 0)
            return []
        is_root = not any(phase.any() for phase in bounds.phase)
        gap = np.inf
        for left in reversed(range(ROOT_ROUNDS if is_root else ROUNDS)):
            parts, bound, split = self._optimised(plan, bounds)
            needed = self._rounds(parts, bounds)
            if needed is not None:
                self._emit(parts, needed)
                return []
            shrunk = self.task.U - bound < (1.0 - WORTHWHILE) * gap
            gap = self.task.U - bound
            if left == 0 or not shrunk or split < 0:
                break
            self._emit(parts, 1, GO_ON)
            plan = Plan(parts.alpha, parts.beta, parts.mu, plan.layer, plan.neuron, plan.children)
        layer, neuron = plan.layer, plan.neuron
        if plan.children is None:
            if split < 0:
                raise Unproved(
                    "a linear piece is not closed by its own multipliers: rounding is as large as the margin"
                )
            layer = int(np.searchsorted(self.ends, split, side="right"))
            neuron = split - int(self.ends[layer - 1])
        self._emit(parts, 1, layer, neuron)
        kids = [self.recorder.nodes[child] for child in plan.children or ()]
        if not kids:
            kids = [Plan(parts.alpha, parts.beta, parts.mu), Plan(parts.alpha, parts.beta, parts.mu)]
        return [(kid, child_of(bounds, layer - 1, neuron, side)) for kid, side in zip(kids, (1.0, -1.0), strict=True)]

    def _rounds(self, parts: Parts, bounds: Bounds) -> int | None:
        """How many rounds (0 or 1) the checker needs to close the node, None if more; tightens `bounds`."""
        parameters = Parameters(*(by_layer(values, self.ends) for values in (parts.alpha, parts.beta, parts.touch)))
        with np.errstate(all="ignore"):
            return rounds_to_empty(self.arithmetic, bounds, self.clause.C, self.clause.d, parts.mu, parameters, 1)

    def _optimised(self, plan: Plan, bounds: Bounds) -> tuple[Parts, float, int]:
        """Good parameters on the checker's own bounds, what they are worth, and the neuron to split (-1: none).

        By the search's ascent, or exactly on a linear piece.
        """
        free = [(p == 0) & (lo < 0) & (hi > 0) for p, lo, hi in zip(bounds.phase, bounds.lo, bounds.hi, strict=True)]
        if not any(f.any() for f in free):
            return self._piece(plan, bounds), 0.0, -1
        from layercert.search.adaptive.bound import ease, optimise
        from layercert.search.adaptive.branch import scores
        from layercert.search.adaptive.hull import relaxation

        state = _state(plan, bounds)
        mu = plan.mu.copy()
        model, first, _ = self.model
        at = int(first[[c is self.clause for c in self.task.problem.clauses].index(True)])
        relaxed = relaxation(model, state)  # triangles: the checker knows no cuts
        w, g, S = np.zeros(len(self.setting.x)), np.empty(len(self.setting.x)), np.empty(len(plan.alpha))
        ease(model, state, mu, at, relaxed, S, g, w)
        bound = optimise(model, state, mu, at, self.task.U, STEPS, 0, relaxed, w)
        score = np.empty(len(plan.alpha))
        scores(state, score)
        return Parts.of(state[ALPHA], state[BETA], mu, state[POINT] > 0), float(bound), int(score.argmax())

    def _piece(self, plan: Plan, bounds: Bounds) -> Parts:
        """Every neuron has its side: the distance program of the linear piece, whose multipliers are beta and mu."""
        sides = [np.where(bounds.on(k), 1.0, -1.0) for k in range(len(bounds.phase))]
        neurons = len(plan.alpha)
        answer = self.leaves.solve(
            np.concatenate([np.zeros(0), *sides]), np.ones(neurons, np.bool_), self.clause, self.task.U
        )
        lam = np.where(np.isfinite(answer.multipliers), np.maximum(answer.multipliers, 0.0), 0.0)
        return Parts.of(plan.alpha, lam[:neurons], lam[neurons:], np.concatenate([np.zeros(0), *sides]) > 0)

    @cached_property
    def model(self) -> tuple[Any, Any, Any]:
        return build(self.task.problem, self.task.U)

    def _emit(self, parts: Parts, rounds: int, layer: int = 0, neuron: int = 0) -> None:
        self.rows.append((layer, neuron, rounds, parts))

    def _pack(self) -> Tree:
        layer, neuron, rounds, parts = zip(*self.rows, strict=True)
        return Tree(
            np.array(layer, np.int32),
            np.array(neuron, np.int32),
            np.array(rounds, np.int32),
            np.array([p.alpha for p in parts]),
            np.array([p.beta for p in parts]),
            np.array([p.mu for p in parts]),
            np.packbits([p.touch for p in parts], axis=1),
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """What a node of the tree carries."""

    alpha: Vector
    beta: Vector
    mu: Vector
    touch: Mask

    @staticmethod
    def of(alpha: Vector, beta: Vector, mu: Vector, touch: Mask) -> Parts:
        """In range; beta and mu may be scaled together, so that the largest is one."""
        scale = max(float(mu.max(initial=0.0)), float(beta.max(initial=0.0)), 1e-300)
        return Parts(np.clip(alpha, 0.0, 1.0), np.maximum(beta, 0.0) / scale, np.maximum(mu, 0.0) / scale, touch)


def _state(plan: Plan, bounds: Bounds) -> Matrix:
    """A node as the search's kernels want it."""
    state = np.zeros((ROWS, len(plan.alpha)))
    state[PHASE], state[LO], state[HI] = (np.concatenate(a) for a in (bounds.phase, bounds.lo, bounds.hi))
    state[ALPHA], state[BETA], state[POINT] = plan.alpha, plan.beta, plan.alpha - 0.5
    return state
