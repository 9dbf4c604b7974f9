"""Brute force for tiny networks: every activation pattern that exists, one distance program for each piece.

It shares no code with the library's searches and solvers (scipy alone), so that it may judge them:

    brute_force(problem) -> (distance, point)      inf and None when no unsafe point exists

The problem's radius is ignored, its box domain is not. Meant for at most 3 layers and about 8 neurons in few
dimensions. p = 1 and inf are linear programs, p = 2 is a nonnegative least squares problem (Lawson and Hanson's LDP),
any other p is solved by cutting planes, whose lower and upper bounds must meet.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog, minimize, nnls

from layercert.arrays import Matrix, Vector
from layercert.network import Network
from layercert.problem import Clause, Problem

#: Relative accuracy of a distance: what the tests may rely on.
ACCURACY = 1e-8


def brute_force(problem: Problem) -> tuple[float, Vector | None]:
    """The distance from x to the nearest unsafe point of the domain, and that point."""
    best, point = math.inf, None
    for clause in problem.clauses:
        distance, step = _Pieces(problem, clause, best).search()
        if step is not None and distance < best:
            best, point = distance, problem.x + step
    return best, point


def only_ties(problem: Problem, true: float) -> bool:
    """Is the margin nowhere negative near the nearest unsafe point? Then its unsafe set there has no inside."""
    _, point = brute_force(problem)
    assert point is not None
    rng = np.random.default_rng(0)
    scale = max(true, 1e-4 * float(np.abs(problem.x).max()))  # next to x itself points of x's own scale are near
    near = point + np.geomspace(1e-9, 1e-2, 3000)[:, None] * scale * rng.normal(size=(3000, len(point)))
    return all(problem.margin(problem.into_domain(v)) > -1e-12 for v in near)


class _Pieces:
    """Depth first over the neurons in their order; the rows fixed so far bound the distance from below."""

    def __init__(self, problem: Problem, clause: Clause, best: float) -> None:
        self.problem, self.clause = problem, clause
        self.best, self.step = best, None
        n = problem.network.inputs
        # how much shorter a vector may be in l_p than in l_2
        p = problem.norm.p
        self.ratio = 1.0 if p <= 2 else n ** ((0.0 if math.isinf(p) else 1.0 / p) - 0.5)

    def search(self) -> tuple[float, Vector | None]:
        problem = self.problem
        n = problem.network.inputs
        A, r = np.zeros((0, n)), np.zeros(0)
        if problem.domain is not None:
            low, high = problem.domain[0] - problem.x, problem.domain[1] - problem.x
            A, r = (
                np.vstack([np.eye(n)[np.isfinite(high)], -np.eye(n)[np.isfinite(low)]]),
                np.concatenate([high[np.isfinite(high)], -low[np.isfinite(low)]]),
            )
        self._layer(0, np.eye(n), np.zeros(n), A, r)
        return self.best, self.step

    def _layer(self, i: int, G: Matrix, g: Vector, A: Matrix, r: Vector) -> None:
        """G w + g is x^i (x itself for i = 0, as an offset)."""
        network = self.problem.network
        W, b = network.weights[i], network.biases[i]
        Z, z = W @ G, W @ (g + self.problem.x if i == 0 else g) + b
        if i == network.L:
            C, d = self.clause.C, self.clause.d
            self._leaf(np.vstack([A, C @ Z]), np.concatenate([r, d - C @ z]))
        else:
            self._neuron(i, 0, Z, z, np.zeros_like(Z), np.zeros_like(z), A, r)

    def _neuron(self, i: int, j: int, Z: Matrix, z: Vector, X: Matrix, x: Vector, A: Matrix, r: Vector) -> None:
        """Fix the phases of layer i from neuron j on; X w + x holds the outputs of the neurons fixed so far."""
        if j == len(z):
            self._layer(i + 1, X, x, A, r)
            return
        for on in (True, False):
            sign = -1.0 if on else 1.0
            A2, r2 = np.vstack([A, sign * Z[j]]), np.append(r, -sign * z[j])
            if nearest_l2(A2, r2)[0] * self.ratio > self.best * (1 + 1e-6):
                continue
            X2, x2 = X.copy(), x.copy()
            if on:
                X2[j], x2[j] = Z[j], z[j]
            self._neuron(i, j + 1, Z, z, X2, x2, A2, r2)

    def _leaf(self, A: Matrix, r: Vector) -> None:
        distance, step = nearest(A, r, self.problem.norm.p, self.best)
        if step is not None and distance < self.best:
            self.best, self.step = distance, step


def nearest(A: Matrix, r: Vector, p: float, cutoff: float = math.inf) -> tuple[float, Vector | None]:
    """The shortest w with A w <= r in l_p; (inf, None) when there is none or none below the cutoff."""
    distance, step = nearest_l2(A, r)
    if step is None or p == 2.0:
        return distance, step
    if p == 1.0 or math.isinf(p):
        return _linear(A, r, p)
    return _cutting_planes(A, r, p, step, cutoff)


def nearest_l2(A: Matrix, r: Vector) -> tuple[float, Vector | None]:
    """Least distance programming: min ||w||_2 with A w <= r (Lawson and Hanson 1974, chapter 23)."""
    size = np.linalg.norm(A, axis=1)
    live = size > 1e-13
    if (r[~live] < -1e-12).any():
        return math.inf, None
    G, h = -A[live] / size[live, None], -r[live] / size[live]
    if not (h > 0).any():
        return 0.0, np.zeros(A.shape[1])
    E = np.vstack([G.T, h])
    target = np.append(np.zeros(A.shape[1]), 1.0)
    u, left = nnls(E, target, maxiter=30 * E.shape[1])
    if left < 1e-9:
        return math.inf, None
    rho = E @ u - target
    w = -rho[:-1] / rho[-1]
    # far points lose digits in the homogeneous form: solve for the active rows themselves
    active = u > 0
    exact = np.linalg.lstsq(-G[active], -h[active], rcond=None)[0]
    if np.linalg.norm(exact - w) <= 1e-6 * np.linalg.norm(w) and (G @ exact >= h - 1e-12 * (1 + np.abs(h))).all():
        w = exact
    return float(np.linalg.norm(w)), w


def _linear(A: Matrix, r: Vector, p: float, cuts: Matrix | None = None) -> tuple[float, Vector | None]:
    """p = 1 or inf; with cuts: min t subject to cuts w <= t."""
    n = A.shape[1]
    eye = np.eye(n)
    if cuts is None and p == 1.0:  # variables w and |w|
        cost = np.append(np.zeros(n), np.ones(n))
        rows = np.vstack([np.hstack([A, np.zeros_like(A)]), np.hstack([eye, -eye]), np.hstack([-eye, -eye])])
        right = np.append(r, np.zeros(2 * n))
    else:
        faces = np.vstack([eye, -eye]) if cuts is None else cuts
        cost = np.append(np.zeros(n), 1.0)
        rows = np.vstack([np.c_[A, np.zeros(len(A))], np.c_[faces, -np.ones(len(faces))]])
        right = np.append(r, np.zeros(len(faces)))
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(cost, rows, right, bounds=(None, None), method="highs", options=tight)
    if not answer.success:
        return math.inf, None
    return float(answer.fun), np.asarray(answer.x[:n])


def _cutting_planes(A: Matrix, r: Vector, p: float, start: Vector, cutoff: float) -> tuple[float, Vector | None]:
    """1 < p < inf: SLSQP finds the point, tangent planes of the norm prove it (Kelley's method from there)."""
    n = A.shape[1]
    best, point = math.inf, None

    def try_point(w: Vector) -> None:
        nonlocal best, point
        size = float(np.linalg.norm(w, p))
        if size < best and (A @ w <= r + 1e-9 * (1 + np.abs(r))).all():
            best, point = size, w

    try_point(start)
    if best == 0.0:
        return best, point
    found = minimize(
        lambda w: float((np.abs(w) ** p).sum()),
        start,
        jac=lambda w: p * np.sign(w) * np.abs(w) ** (p - 1),
        constraints={"type": "ineq", "fun": lambda w: r - A @ w, "jac": lambda w: -A},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 300},
    )
    try_point(np.asarray(found.x))
    cuts = [np.r_[np.eye(n)], -np.eye(n), tangent(start, p)[None], tangent(np.asarray(found.x), p)[None]]
    for _ in range(200):
        lower, w = _linear(A, r, p, np.vstack(cuts))
        if w is None:
            return math.inf, None
        try_point(w)
        if lower >= best * (1 - ACCURACY) or lower > cutoff:
            return best, point
        cuts.append(tangent(w, p)[None])
        if point is not None:
            cuts.append(tangent(0.5 * (w + point), p)[None])
    raise AssertionError(f"cutting planes did not close the gap: {lower} .. {best}")


def tangent(w: Vector, p: float) -> Vector:
    """The dual unit vector g with g.w = ||w||_p; g.v <= ||v||_p everywhere."""
    size = np.abs(w)
    if not size.any():
        return np.zeros_like(w)
    g = np.sign(w) * (size / size.max()) ** (p - 1)
    return np.asarray(g / np.linalg.norm(g, p / (p - 1)))


def exact_values(network: Network, v: list[Fraction]) -> list[list[Fraction]]:
    """z^1, .., z^L and f as rational numbers."""
    values, h = [], v
    for W, b in zip(network.weights, network.biases, strict=True):
        rows = [[Fraction(float(w)) for w in row] for row in W]
        values.append(
            [
                sum((w * a for w, a in zip(row, h, strict=True)), Fraction(float(c)))
                for row, c in zip(rows, b, strict=True)
            ]
        )
        h = [max(z, Fraction(0)) for z in values[-1]]
    return values
