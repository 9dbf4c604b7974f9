"""A quick look for counterexamples anywhere in a box, before the search: samples, then descent from the best of them.

The searches look for the unsafe point *nearest* to the middle of the box; a property is violated by any. Nothing found
here is trusted: the caller checks the point exactly.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.network import Network
from layercert.problem import Problem
from layercert.system import clock

#: Multiplications to spend on samples, and the least number of them to descend from.
BUDGET = 2e8
MOST_SAMPLES = 20_000
STARTS = 16
STEPS = 40
#: The first step, as a share of each input's range; it shrinks to a hundredth of that.
FIRST_STEP = 0.25
#: Of the time that is left, the part that the descent may take: the search needs some too.
SHARE = 0.25


def falsify(problem: Problem, share: float = 1.0, seed: int = 0) -> Vector | None:
    """The most unsafe point found in the problem's box, None when all were safe (in float64).

    `share` is this problem's part of the budget, where there are many.
    """
    assert problem.domain is not None
    low, high = problem.domain
    network, rng = problem.network, np.random.default_rng(seed)
    count = int(max(share * min(BUDGET / sum(W.size for W in network.maps), MOST_SAMPLES), STARTS))
    X = low + (high - low) * rng.random((count, network.inputs))
    corners = rng.random((count // 2, network.inputs)) < 0.5  # unsafe points are often there
    X[: count // 2] = np.where(corners, low, high)
    margins = _margins(problem, network(X))[0]
    X = X[np.argsort(margins)[: max(STARTS, count // 80)]]
    best, at = float(margins.min()), X[0]
    step, begun, most = FIRST_STEP, clock.now(), SHARE * clock.left()
    for _ in range(STEPS):
        if clock.passed() or clock.now() - begun > most:
            break  # what was found so far counts
        G, margins = _gradients(problem, X)
        if float(margins.min()) < best:
            best, at = float(margins.min()), X[int(margins.argmin())].copy()
        X = np.clip(X - step * (high - low) * np.sign(G), low, high)
        step *= 0.01 ** (1.0 / STEPS)
    return at if best <= 0 else None


def _margins(problem: Problem, F: Matrix) -> tuple[Vector, Matrix]:
    """For each output, the margin of its nearest clause, and the row that decides it."""
    best, rows = np.full(len(F), np.inf), np.zeros_like(F)
    for clause in problem.clauses:
        margins = clause.margins(F)
        worst = margins.argmax(axis=1)
        value = margins[np.arange(len(F)), worst]
        nearer = value < best
        best[nearer], rows[nearer] = value[nearer], clause.C[worst[nearer]]
    return best, rows


def _gradients(problem: Problem, X: Matrix) -> tuple[Matrix, Vector]:
    """The gradient of each point's margin, and the margins."""
    network: Network = problem.network
    on, h = [], X
    for W, b in zip(network.maps[:-1], network.biases[:-1], strict=True):
        z = h @ W.T + b
        on.append(z > 0)
        h = np.maximum(z, 0.0)
    margins, rows = _margins(problem, h @ network.maps[-1].T + network.biases[-1])
    G = rows @ network.maps[-1]
    for W, mask in zip(reversed(network.maps[:-1]), reversed(on), strict=True):
        G = (G * mask) @ W
    return G, margins
