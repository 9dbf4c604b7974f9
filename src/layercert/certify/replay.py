"""Trees of format 2 made: a recorded search is replayed in the checker's own arithmetic, a little more cautiously.

At each node the search's halfspace is optimised on the checker's own bounds. If it does not close the node, rows bound
neurons on its cap, with the parameters that the search left and moved as the search moves them; so round after round,
as long as that helps. Every bound that is clearly better than the one before becomes a use in the file.
Where a node that the search closed stays open, it is split further.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from layercert.arrays import Indices, Matrix, Vector
from layercert.certificate.cap import lowest_on_cap
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import Halfspace as Half
from layercert.certificate.step_floats import StepFloats
from layercert.certificate.steps import Objective, Passes, StepTree
from layercert.certify.ascent import Ascent, Suggestion
from layercert.certify.recording import Forest, Plan, scaled
from layercert.certify.rows import move
from layercert.certify.tables import Node, Step, Tables, whole
from layercert.problem import Clause
from layercert.search.adaptive.record import Halfspace
from layercert.system import clock

#: The prover's margins are this much larger than the checker's: another order of sums must not open a leaf.
CAUTION = 2.0
#: Most rounds of tightening with the search's own parameters, at the root, at a leaf, and at a node that is split.
ROOT_ROUNDS, LEAF_ROUNDS, SPLIT_ROUNDS = 24, 12, 4
#: Passes of each round at the root, with parameters moved in between; elsewhere one does.
ROOT_PASSES = 5
#: How far known parameters of a row move in a pass; new ones move all the way.
WARM_PACE = 0.3
#: A round that does not close this share of the gap is the last one.
WORTHWHILE = 0.03
#: A bound that narrows its neuron's range by less than this share is not worth a row, unless it settles the sign.
NARROWER = 0.01


class Unproved(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """No certificate could be made, and why."""


class Branch(NamedTuple):
    """A node that waits; None as its region: it is known to be empty."""

    plan: Plan
    region: Region | None
    rows: NDArray[np.int64]  # their numbers in the tables, by 2 neuron + side; -1: none yet


class Replay:
    """One clause's tree."""

    def __init__(self, setting: Setting, arithmetic: StepFloats, clause: Clause, ascent: Ascent) -> None:
        self.setting, self.arithmetic, self.clause, self.ascent = setting, arithmetic, clause, ascent
        self.starts = np.cumsum([0, *setting.network.widths])
        self.tables = Tables(setting.network.widths)
        self.nodes: list[Node] = []

    def trivial(self) -> StepTree:
        """The tree for radius 0, where nothing is to be proved."""
        return self.tables.pack([Node()])

    def tree(self, forest: Forest, clause: int) -> StepTree:
        """The proof; `clause` is the number of ours in the search that was recorded."""
        n, m = self.tables.neurons, len(self.clause.d)
        root = forest.root(clause) or Plan(Halfspace(np.full(n, 0.5), np.zeros(n), np.full(m, 1.0 / m)))
        stack = [Branch(root, self.arithmetic.start.copy(), np.full(2 * n, -1, np.int64))]
        while stack:
            clock.check()
            branch = stack.pop()
            node = Node()
            self.nodes.append(node)
            stack.extend(reversed(self._grow(node, branch, forest)))
        return self.tables.pack(self.nodes)

    def _grow(self, node: Node, branch: Branch, forest: Forest) -> list[Branch]:
        """Fill a node with steps until it is closed; otherwise split it. Returns its children, on first."""
        plan, region = branch.plan, branch.region
        if region is None:
            return []
        rows = self._learn(plan, branch.rows)
        most = ROOT_ROUNDS if len(self.nodes) == 1 else SPLIT_ROUNDS if plan.children is not None else LEAF_ROUNDS
        closed, last = self._work(node, region, Suggestion(plan.own, -1), rows, most)
        if closed:
            return []
        layer, neuron = plan.layer, plan.neuron
        if plan.children is None:
            if last.split < 0:
                raise Unproved(
                    "a linear piece is not closed by its own multipliers: rounding is as large as the margin"
                )
            layer = int(np.searchsorted(self.starts, last.split, side="right"))
            neuron = last.split - int(self.starts[layer - 1])
        node.layer, node.neuron = layer, neuron
        kids = [forest.nodes.get(child) for child in plan.children or (-1, -1)]
        return [
            Branch(kid or Plan(last.own), region.child(layer - 1, neuron, side), rows)
            for kid, side in zip(kids, (1.0, -1.0), strict=True)
        ]

    def _learn(self, plan: Plan, known: NDArray[np.int64]) -> NDArray[np.int64]:
        """The node's rows: the search's own where it left some, else those of its parent."""
        rows = known.copy()
        for kept in plan.rows:
            rows[kept.at] = self.tables.add_rows(kept.at, kept.slopes, kept.betas, kept.pulls)
        return rows

    def _work(
        self, node: Node, region: Region, own: Suggestion, rows: NDArray[np.int64], most: int
    ) -> tuple[bool, Suggestion]:
        """Rounds of optimising the halfspace and tightening on its cap: is the node closed? And the last halfspace."""
        gap = np.inf
        passes = ROOT_PASSES if len(self.nodes) == 1 else 1
        for turn in range(most + 1):
            clock.check()
            own = self.ascent.improved(self.clause, region, own)
            number, objective = self.tables.add_objective(scaled(own.own), precise=own.split < 0)
            half = self.arithmetic.objective(self.clause.C, self.clause.d, region, objective)
            step = Step(number)
            if self.arithmetic.excludes(half) or (own.split < 0 and self._excludes_exactly_so(region, objective)):
                node.steps.append(step)
                return True, own
            left = self._gap(half)
            if turn == most or own.split < 0 or not left < (1.0 - WORTHWHILE) * gap:
                break
            gap = left
            empty = self._round(step, region, half, rows, objective, passes)
            if step.rows:
                node.steps.append(step)
            if empty:
                return True, own
        return False, own

    def _excludes_exactly_so(self, region: Region, objective: Objective) -> bool:
        """A linear piece that cannot be split has a last chance: the checker's own margins."""
        plain = StepFloats(self.setting)
        return plain.excludes(plain.objective(self.clause.C, self.clause.d, region, objective))

    def _gap(self, half: Half) -> float:
        """How far the halfspace is from excluding the ball, in units of what it would take."""
        reach = self.arithmetic.fall(half.g)
        return float((reach - half.s) / reach) if reach > 0 else np.inf

    def _round(
        self, step: Step, region: Region, half: Half, rows: NDArray[np.int64], objective: Objective, passes: int
    ) -> bool:
        """Bound all open neurons on the cap, layer by layer; True when the node turns out empty."""
        for k in range(len(region.lo)):
            start = int(self.starts[k])
            free = np.flatnonzero(region.lines(k).open)
            if not len(free):
                continue
            at = np.concatenate([2 * (start + free), 2 * (start + free) + 1])
            pace = self._default_rows(at, rows, k, objective)
            neurons = np.concatenate([free, free])
            best, which, lams = np.full(len(at), -np.inf), rows[at], np.zeros(len(at), np.float32)
            for turn in range(passes if k > 0 else 1):
                use = self._passes(rows[at], neurons, k)
                trace: list[Matrix] = []
                G, c, size = self.arithmetic.functions(region, half, k, use, trace)
                lam = self._cap(G, half)
                use = use._replace(lams=lam.astype(np.float64))
                values = self.arithmetic.least(G, c, size, half, use.lams)
                improved = values > best
                best, which = np.where(improved, values, best), np.where(improved, rows[at], which)
                lams = np.where(improved, lam, lams)
                if k > 0:
                    moved = move(self.arithmetic, region, half, k, use, G, trace, pace / (turn + 1.0))
                    rows[at] = self.tables.add_rows(
                        at,
                        whole(moved.slopes),
                        csr_array(moved.betas.astype(np.float32)),
                        moved.pulls.astype(np.float32),
                    )
            better = self._better(region, k, use, best)
            if better.any():
                step.rows.append(which[better])
                step.lams.append(lams[better])
                if not region.narrow(k, neurons[better], use.sides[better], best[better]):
                    return True
        return False

    def _better(self, region: Region, k: int, passes: Passes, values: Vector) -> NDArray[np.bool_]:
        """Which bounds are worth a row."""
        lo, hi = region.lo[k][passes.neurons], region.hi[k][passes.neurons]
        old = np.where(passes.sides > 0, lo, -hi)
        gain = values - old
        return np.asarray(np.isfinite(values) & ((gain > NARROWER * (hi - lo)) | ((gain > 0) & (values >= 0))))

    def _passes(self, which: Indices, neurons: Indices, k: int) -> Passes:
        tables, below = self.tables, int(self.starts[k])
        slopes = np.array([tables.slopes[i] for i in which], dtype=np.float64).reshape(len(which), below) / 255.0
        betas = None
        if any(len(tables.splits[i][0]) for i in which):
            betas = np.zeros((len(which), below))
            for r, i in enumerate(which):
                betas[r, tables.splits[i][0]] = tables.splits[i][1]
        return Passes(
            neurons,
            np.array([tables.side[i] for i in which], dtype=np.float64),
            np.array([tables.pull[i] for i in which]),
            np.zeros(len(which)),
            slopes,
            betas,
        )

    def _default_rows(self, at: Indices, rows: NDArray[np.int64], k: int, objective: Objective) -> Vector:
        """Rows for neurons that have none yet: lower lines that touch where the objective's do. Returns the paces."""
        pace = np.where(rows[at] < 0, 1.0, WARM_PACE)
        missing = at[rows[at] < 0]
        if len(missing):
            below = int(self.starts[k])
            touch = np.where(objective.alpha[:below] > 0.5, 255, 0).astype(np.uint8)
            zeros = np.zeros(len(missing), np.float32)
            rows[missing] = self.tables.add_rows(missing, np.tile(touch, (len(missing), 1)), None, zeros)
        return pace

    def _cap(self, G: Matrix, half: Half) -> NDArray[np.float32]:
        """Multipliers of the cap that bound the rows best, as they will be stored."""
        setting = self.setting
        down, up = setting.room
        _, lam = lowest_on_cap(np.ascontiguousarray(G), half.g, half.s, setting.r, setting.q, down, up)
        return np.asarray(np.clip(np.nan_to_num(lam, nan=0.0), 0.0, 1e29), dtype=np.float32)
