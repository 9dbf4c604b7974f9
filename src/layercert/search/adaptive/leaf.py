"""The exact finish: a node without free unstable neurons is one linear piece, and its distance one program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layercert.arrays import TINY, Mask, Vector, gamma
from layercert.geometry import Polyhedron, row_margins
from layercert.problem import Clause, Problem
from layercert.programs.program import prove, single
from layercert.search.adaptive.record import Halfspace
from layercert.search.task import Task

#: Multiplications per second of a dense product on one core, about.
RATE = 1e9
#: A bound this close to its point (relative) is as good as any.
CLOSE = 1e-8


@dataclass(frozen=True, eq=False)
class Answer:
    """A leaf's proved bound, its point (inf: none) and the proof: multipliers of its rows (neurons, then clause)."""

    lower: float
    value: float
    step: Vector
    multipliers: Vector

    def halfspace(self, rowed: Mask, alpha: Vector) -> Halfspace:
        """The proof as parameters of a node's halfspace; `rowed` are the neurons that had a row."""
        found = np.where(np.isfinite(self.multipliers), np.maximum(self.multipliers, 0.0), 0.0)
        beta, rows = np.zeros(len(rowed)), int(np.count_nonzero(rowed))
        beta[rowed] = found[:rows]
        return Halfspace(alpha, beta, found[rows:])


class Leaves:
    """Distance programs of linear pieces. Rows carry the same rounding margins as those of `Cells`."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def seconds(self) -> float:
        """About how long a piece takes: the products of its rows, at RATE operations per second."""
        network = self.task.problem.network
        filled = [W.size if isinstance(W, np.ndarray) else W.nnz for W in network.maps[1:]]
        return network.inputs * sum(filled) / RATE

    @cached_property
    def _margins(self) -> tuple[list[Vector], list[Vector]]:
        """Slack and growth of the rows of every layer; networks too large to be dense have no pieces and need none."""
        slack, growth, _ = row_margins(self.task.problem)
        return slack, growth

    def solve(
        self, sides: Vector, rowed: Mask, clause: Clause, cutoff: float, within: Polyhedron | None = None
    ) -> Answer:
        """The distance to the clause on the piece where every neuron is on its side (+1 or -1).

        Neurons that are not `rowed` have their side all over the ball (or `within`) and need no row.
        """
        problem = self.task.problem
        network = problem.network
        slacks, growths = self._margins
        G, z = network.weights[0], network.weights[0] @ problem.x + network.biases[0]
        parts: list[Polyhedron] = [] if within is None else [within]
        start = 0
        for k in range(network.L):
            width = network.widths[k]
            side = sides[start : start + width]
            rows = np.flatnonzero(rowed[start : start + width])
            s = side[rows]
            parts.append(Polyhedron(-s[:, None] * G[rows], s * z[rows], slacks[k][rows], growths[k][rows]))
            on = side > 0
            W = network.maps[k + 1]
            W = np.ascontiguousarray(W[:, on]) if isinstance(W, np.ndarray) else W[:, on]
            G, z = np.asarray(W @ G[on]), np.asarray(W @ z[on]) + network.biases[k + 1]
            start += width
        size = np.abs(clause.C)
        noise = gamma(4 * len(z))
        slack = size @ slacks[-1] * (1 + noise) + noise * (size @ np.abs(z) + np.abs(clause.d)) + TINY
        growth = size @ growths[-1] * (1 + noise) + noise * (size @ problem.norm.dual(G))
        parts.append(Polyhedron(clause.C @ G, clause.d - clause.C @ z, slack, growth))
        whole = Polyhedron.stack(parts)
        found = self.task.chain.solve(single(whole, problem.norm, problem.box, cutoff))
        lower, value = float(found.lower[0]), float(found.value[0])
        walls = 0 if within is None else len(within)
        if lower < cutoff and lower < value * (1.0 - CLOSE):  # by the margins of all pieces; those of this one are less
            slack, growth = piece_margins(problem, sides, rowed, clause)
            own = Polyhedron(
                whole.A,
                whole.r,
                np.concatenate([whole.slack[:walls], slack]),
                np.concatenate([whole.growth[:walls], growth]),
            )
            lower = max(lower, float(prove(single(own, problem.norm, problem.box), found.multipliers)[0]))
        return Answer(lower, value, found.steps[0], found.multipliers[0][walls:])


def piece_margins(problem: Problem, sides: Vector, rowed: Mask, clause: Clause) -> tuple[Vector, Vector]:
    """Slack and growth of a piece's rows by running error analysis: what its own numbers were rounded by.

    The margins of `Cells` hold for every pattern, since they push |x| through all weights; in deep networks that is
    thousands of times more. Here e and E bound the errors of z and G, layer by layer, over the neurons that are on:
    e' = |W|(e + gamma |z|) + gamma |b| and E' = |W|(E + gamma |G|). A little more covers any other order of the sums,
    whose numbers z and G are within 2e and 2E of these.
    """
    network, norm = problem.network, problem.norm
    z, e = problem.x, np.zeros(network.inputs)
    G = network.weights[0]
    E = np.zeros_like(G)
    slack: list[Vector] = []
    growth: list[Vector] = []
    start = 0
    for k, (W, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        size, noise = np.abs(W), gamma(W.shape[1] + 8)
        e = (size @ (e + noise * np.abs(z)) + noise * np.abs(b)) * (1.0 + 4.0 * noise) + TINY
        z = W @ z + b
        if k > 0:
            G, E = W @ G, size @ (E + noise * np.abs(G)) * (1.0 + 4.0 * noise)
        if k < network.L:
            part = slice(start, start + len(b))
            slack.append(e[rowed[part]])
            growth.append(norm.dual(E[rowed[part]]))
            on = (sides[part] > 0).astype(np.float64)
            z, e, G, E = z * on, e * on, G * on[:, None], E * on[:, None]
            start += len(b)
    size, noise = np.abs(clause.C), gamma(4 * len(z) + 8)
    slack.append((size @ (e + noise * np.abs(z)) + noise * np.abs(clause.d)) * (1.0 + 4.0 * noise) + TINY)
    growth.append(size @ (norm.dual(E) + noise * norm.dual(G)) * (1.0 + 4.0 * noise))
    up = 1.0 + gamma(2 * network.inputs + 64)
    return np.concatenate(slack) * up, np.concatenate(growth) * up
