"""Looks for counterexamples anywhere in a box: samples and descent from the best of them before the search, and from
starts whose outputs are as different as can be during it.

The searches look for the unsafe point *nearest* to the middle of the box; a property is violated by any. Nothing found
here is trusted: the caller checks the point exactly.

Random points of a box in many dimensions all look alike to a network: descents from a hundred of them ended at the same
safe point, where those from points that follow a random combination of the outputs for some steps first ended at
counterexamples (output diversification, Tashiro et al. 2020).
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Mask, Matrix, Vector
from layercert.network import Network
from layercert.problem import Problem
from layercert.system import clock

#: Multiplications to spend on samples, and the least number of them to descend from.
BUDGET = 2e8
MOST_SAMPLES = 20_000
STARTS = 16
STEPS = 40
#: On large networks the descent makes do with fewer starts and steps, but not fewer than so many: it makes so many
#: multiplications, those of sparse layers being so many times as slow.
FEWEST_STARTS, FEWEST_STEPS, DESCENT, SPARSE_COST = 4, 10, 2e9, 8.0
#: Steps along a random combination of the outputs, as a share of each input's range; multiplications of a first look,
#: and the most starts of any.
DIVERSE_STEPS, DIVERSE_STEP, DIVERSE, MOST_STARTS = 20, 0.5, 4e9, 512
#: Once a point is unsafe, so many steps more: how far it is so may decide whether it is on numbers of the model's type.
AFTER = 3
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
    starts = int(np.clip(DESCENT / (STEPS * _cost(network)), FEWEST_STARTS, max(STARTS, count // 80)))
    steps = int(np.clip(DESCENT / (starts * _cost(network)), FEWEST_STEPS, STEPS))
    return _descend(problem, X[np.argsort(margins, kind="stable")[:starts]], steps, SHARE * clock.left())


def look_again(problem: Problem, turn: int) -> Vector | None:
    """The same from starts with diverse outputs, other ones in every turn and twice as many as in the one before."""
    assert problem.domain is not None
    low, high = problem.domain
    network, rng = problem.network, np.random.default_rng([turn, 1])
    starts = min(MOST_STARTS, int(DIVERSE * 2.0**turn / ((STEPS + DIVERSE_STEPS) * _cost(network))))
    if starts < FEWEST_STARTS:
        return None
    begun, most = clock.now(), SHARE * clock.left()
    X = low + (high - low) * rng.random((starts, network.inputs))
    weights = rng.uniform(-1.0, 1.0, (starts, network.classes))
    for _ in range(DIVERSE_STEPS):
        if clock.passed() or clock.now() - begun > most:
            return None
        on, _ = _forward(network, X)
        X = np.clip(X - DIVERSE_STEP * (high - low) * np.sign(_backward(network, on, weights)), low, high)
    return _descend(problem, X, STEPS, most - (clock.now() - begun))


def _cost(network: Network) -> float:
    """Multiplications for a step of one point, there and back."""
    return float(sum(2.0 * W.size * (1.0 if isinstance(W, np.ndarray) else SPARSE_COST) for W in network.maps))


def _descend(problem: Problem, X: Matrix, steps: int, most: float) -> Vector | None:
    """Each point's margin goes down; the most unsafe point met, None when all were safe. At most so many seconds."""
    assert problem.domain is not None
    low, high = problem.domain
    best, at, after = np.inf, X[0], AFTER
    step, begun = FIRST_STEP, clock.now()
    for _ in range(steps):
        if clock.passed() or clock.now() - begun > most:
            break  # what was found so far counts
        G, margins = _gradients(problem, X)
        if float(margins.min()) < best:
            best, at = float(margins.min()), X[int(margins.argmin())].copy()
        after -= best <= 0.0
        if after < 0:
            break
        X = np.clip(X - step * (high - low) * np.sign(G), low, high)
        step *= 0.01 ** (1.0 / steps)
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
    on, F = _forward(problem.network, X)
    margins, rows = _margins(problem, F)
    return _backward(problem.network, on, rows), margins


def _forward(network: Network, X: Matrix) -> tuple[list[Mask], Matrix]:
    """Which neurons are on at each point, and the outputs."""
    on, h = [], X
    for W, b in zip(network.maps[:-1], network.biases[:-1], strict=True):
        z = h @ W.T + b
        on.append(z > 0)
        h = np.maximum(z, 0.0)
    return on, h @ network.maps[-1].T + network.biases[-1]


def _backward(network: Network, on: list[Mask], rows: Matrix) -> Matrix:
    """The gradient of each point's own combination of the outputs."""
    G = rows @ network.maps[-1]
    for W, mask in zip(reversed(network.maps[:-1]), reversed(on), strict=True):
        G = (G * mask) @ W
    return np.asarray(G)
