"""The exact finish: a node without free unstable neurons is one linear piece, and its distance one program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layercert.arrays import Mask, Vector, gamma
from layercert.geometry import Polyhedron, row_margins
from layercert.problem import Clause
from layercert.programs.program import single
from layercert.search.task import Task


@dataclass(frozen=True, eq=False)
class Answer:
    """A leaf's proved bound, its point (inf: none) and the proof: multipliers of its rows (neurons, then clause)."""

    lower: float
    value: float
    step: Vector
    multipliers: Vector


class Leaves:
    """Distance programs of linear pieces. Rows carry the same rounding margins as those of `Cells`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._slack, self._growth, _ = row_margins(task.problem)

    def solve(
        self, sides: Vector, rowed: Mask, clause: Clause, cutoff: float, within: Polyhedron | None = None
    ) -> Answer:
        """The distance to the clause on the piece where every neuron is on its side (+1 or -1).

        Neurons that are not `rowed` have their side all over the ball (or `within`) and need no row.
        """
        problem = self.task.problem
        network = problem.network
        G, z = network.weights[0], network.weights[0] @ problem.x + network.biases[0]
        parts: list[Polyhedron] = [] if within is None else [within]
        start = 0
        for k in range(network.L):
            width = network.widths[k]
            side = sides[start : start + width]
            rows = np.flatnonzero(rowed[start : start + width])
            s = side[rows]
            parts.append(Polyhedron(-s[:, None] * G[rows], s * z[rows], self._slack[k][rows], self._growth[k][rows]))
            on = side > 0
            W = np.ascontiguousarray(network.weights[k + 1][:, on])
            G, z = W @ G[on], W @ z[on] + network.biases[k + 1]
            start += width
        size = np.abs(clause.C)
        noise = gamma(4 * len(z))
        slack = size @ self._slack[-1] * (1 + noise) + noise * (size @ np.abs(z) + np.abs(clause.d))
        growth = size @ self._growth[-1] * (1 + noise) + noise * (size @ problem.norm.dual(G))
        parts.append(Polyhedron(clause.C @ G, clause.d - clause.C @ z, slack, growth))
        whole = Polyhedron.stack(parts)
        found = self.task.chain.solve(single(whole, problem.norm, problem.box, cutoff))
        return Answer(
            float(found.lower[0]),
            float(found.value[0]),
            found.steps[0],
            found.multipliers[0][0 if within is None else len(within) :],
        )
