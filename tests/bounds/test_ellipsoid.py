"""The ellipsoid around a network's bends, in rational arithmetic: every sentence of its theorem, at sizes far apart."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from layercert.arrays import Matrix, Vector, gamma
from layercert.bounds.ellipsoid import Bends, Ellipsoid, Rows, bends_of
from layercert.network import Network

Q = Fraction
#: Sizes of weights and of inputs: the product is the size of what neurons say.
SIZES = [(1.0, 1.0), (1e-40, 1e30), (1e25, 1e-60), (1e-3, 1e-90)]


def exactly(A: Matrix | Vector) -> list:  # type: ignore[type-arg]
    return [exactly(row) if row.ndim else Q(float(row)) for row in A]


def dot(a: list, b: list) -> Q:  # type: ignore[type-arg]
    return sum((p * q for p, q in zip(a, b, strict=True)), Q(0))


def layers(network: Network, point: list) -> list:  # type: ignore[type-arg]
    """The inputs of all ReLUs, and the output last, in rationals."""
    found = []
    for W, b in zip(network.weights, network.biases, strict=True):
        z = [dot(row, point) + c for row, c in zip(exactly(W), exactly(b), strict=True)]
        found.append(z)
        point = [max(a, Q(0)) for a in z]
    return found


class Case:
    """A network of small layers, bounds that hold on its ball, and what the code makes of them."""

    def __init__(self, seed: int, weights: float = 1.0, inputs: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        widths = [3, 5, 4, 3, 2]
        W = [rng.normal(size=(m, n)) for n, m in pairwise(widths)]
        b = [0.3 * rng.normal(size=m) for m in widths[1:]]
        W[0], b = W[0] * weights, [a * (weights * inputs) for a in b]
        if seed % 3 == 0:
            b[0][0], b[0][1] = 30.0 * weights * inputs, -30.0 * weights * inputs  # one on, one off
        self.network = Network.from_arrays(W, b)
        self.x = rng.normal(size=3) * inputs
        self.radius = float(rng.uniform(0.3, 2.0)) * inputs
        self.lo, self.hi = self.bounds()
        R = rng.normal(size=(3, 2)) @ W[-1]
        self.R, self.c = R, rng.normal(size=3) * weights * inputs + 4.0 * weights * inputs
        noise = gamma(200)
        self.bends, self.rows = bends_of(
            self.network, self.x, self.radius, (self.lo, self.hi), (R, self.c, np.zeros(3)), noise
        )
        self.rng = rng

    def bounds(self) -> tuple[Vector, Vector]:
        """By interval arithmetic, a little wider than what is rounded."""
        low, high = self.x - self.radius, self.x + self.radius
        los, his = [], []
        for W, b in zip(self.network.weights[:-1], self.network.biases[:-1], strict=True):
            centre, spread = W @ (0.5 * (low + high)) + b, np.abs(W) @ (0.5 * (high - low))
            spread = spread * (1 + 1e-9) + 1e-9 * np.abs(centre)
            los.append(centre - spread)
            his.append(centre + spread)
            low, high = np.maximum(los[-1], 0.0), np.maximum(his[-1], 0.0)
        return np.concatenate(los), np.concatenate(his)

    def step(self) -> list:  # type: ignore[type-arg]
        raw = self.rng.normal(size=3)
        raw *= self.radius * self.rng.choice([1.0, 0.5]) * (1 - 1e-12) / np.linalg.norm(raw)
        return exactly(raw)

    def bends_at(self, step: list) -> tuple[list, list, list]:  # type: ignore[type-arg]
        """w and v in units, and what s z / H is."""
        z = layers(self.network, [Q(float(a)) + s for a, s in zip(self.x, step, strict=True)])
        flat = [a for layer in z[:-1] for a in layer]
        at_x = [a for layer in layers(self.network, exactly(self.x))[:-1] for a in layer]
        signs = [-1 if at_x[i] > 0 else 1 for i in self.bends.neurons]
        moved = [s * flat[i] / Q(float(H)) for s, i, H in zip(signs, self.bends.neurons, self.bends.reach, strict=True)]
        return [s / Q(self.radius) for s in step], [max(m, Q(0)) for m in moved], moved


def matrix(ellipsoid: Ellipsoid) -> list:  # type: ignore[type-arg]
    """M + E as the exact numbers that c, t, J, N and E are."""
    bends = ellipsoid.bends
    J, N, c, t, E = (exactly(a) for a in (bends.J, bends.N, ellipsoid.c, ellipsoid.t, ellipsoid.E))
    n, count = bends.J.shape[1], len(c)
    M = [[Q(0)] * (n + count) for _ in range(n + count)]
    for j in range(n):
        M[j][j] = Q(1)
    for i in range(count):
        M[n + i][n + i] = t[i] + E[i]
        for j in range(n):
            M[n + i][j] = M[j][n + i] = -c[i] * J[i][j] / 2
        for k in range(i):
            M[n + i][n + k] = M[n + k][n + i] = -c[i] * N[i][k] / 2
    return M


def solved(M: list, b: list) -> tuple[list, list]:  # type: ignore[type-arg]
    """The pivots of Gauss's elimination without exchanges, and M^-1 b."""
    M = [[*row, value] for row, value in zip(M, b, strict=True)]
    pivots = []
    for k, row in enumerate(M):
        pivots.append(row[k])
        if row[k] == 0:
            break
        for below in M[k + 1 :]:
            factor = below[k] / row[k]
            for j in range(k, len(row)):
                below[j] -= factor * row[j]
    y = [Q(0)] * len(M)
    for k in reversed(range(len(M))):
        if M[k][k] != 0:
            y[k] = (M[k][-1] - dot(M[k][k + 1 : -1], y[k + 1 :])) / M[k][k]
    return pivots, y


def ellipsoid_of(case: Case, share: float = 0.4) -> Ellipsoid:
    """The largest multiple of some random multipliers that floating point takes, or a part of it."""
    bends = case.bends
    shape = np.exp(0.5 * case.rng.normal(size=len(bends.start))) * 0.01 ** np.repeat(
        np.arange(len(bends.first) - 1), np.diff(bends.first)
    )
    low, high, gram = 0.0, 1e3, bends.J @ bends.J.T
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if Ellipsoid(bends, middle * shape, gram).found else (low, middle)
    return Ellipsoid(bends, share * low * shape, gram)


@pytest.mark.parametrize(("weights", "inputs"), SIZES)
def test_a_network_is_linear_in_the_step_and_its_bends(weights: float, inputs: float) -> None:
    seen = 0
    for seed in range(8):
        case = Case(seed, weights, inputs)
        J, N, start, error = (exactly(a) for a in (case.bends.J, case.bends.N, case.bends.start, case.bends.error))
        seen += len(start)
        for _ in range(4):
            step = case.step()
            w, v, moved = case.bends_at(step)
            for i in range(len(start)):
                assert abs(moved[i] + start[i] - dot(J[i], w) - dot(N[i], v)) <= error[i] <= 1e-6
                assert v[i] <= 1
            h = [
                max(a, Q(0))
                for a in layers(case.network, [Q(float(a)) + s for a, s in zip(case.x, step, strict=True)])[-2]
            ]
            for r in range(3):
                F = dot(exactly(case.R)[r], h) + Q(float(case.c[r]))
                rows = [exactly(a) for a in (case.rows.slope, case.rows.bends)]
                linear = Q(float(case.rows.value[r])) + dot(rows[0][r], w) + dot(rows[1][r], v)
                assert abs(F - linear) <= Q(float(case.rows.error[r])) <= 1e-9 * weights * inputs
    assert seen > 40


@pytest.mark.parametrize(("weights", "inputs"), SIZES)
def test_bends_of_all_points_are_in_the_ellipsoid(weights: float, inputs: float) -> None:
    for seed in range(6):
        case = Case(seed, weights, inputs)
        ellipsoid = ellipsoid_of(case)
        assert ellipsoid.found
        M = matrix(ellipsoid)
        for _ in range(6):
            w, v, _ = case.bends_at(case.step())
            y = [*w, *v]
            assert dot(y, [dot(row, y) for row in M]) <= dot(w, w) + Q(ellipsoid.excess)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_factorisation_proves_what_it_says(share: float) -> None:
    """At the edge, too, where the last pivot is nothing but rounding."""
    edges = 0
    for seed in range(8):
        case = Case(seed)
        ellipsoid = ellipsoid_of(case, share)
        assert ellipsoid.found and ellipsoid.excess < 1e-6
        n = case.bends.J.shape[1]
        pivots, _ = solved(matrix(ellipsoid), [Q(0)] * (n + len(ellipsoid.c)))
        assert all(pivot > 0 for pivot in pivots)
        ellipsoid.E = np.zeros(len(ellipsoid.c))
        pivots, _ = solved(matrix(ellipsoid), [Q(0)] * (n + len(ellipsoid.c)))
        edges += any(pivot <= 1e-13 for pivot in pivots)
    assert edges > 0 or share < 1.0  # there E is needed, or nearly


@pytest.mark.parametrize("share", [0.4, 0.999])
def test_lengths_are_those_of_the_exact_solution(share: float) -> None:
    for seed in range(6):
        case = Case(seed)
        ellipsoid = ellipsoid_of(case, share)
        L, e = ellipsoid.lengths(case.rows.slope, case.rows.bends)
        M = matrix(ellipsoid)
        for r in range(3):
            b = [*exactly(case.rows.slope[r]), *exactly(np.minimum(case.rows.bends[r], 0.0))]
            _, y = solved(M, b)
            least = dot(b, y)  # b.y >= -sqrt(least) on the unit ball of M, and no more
            assert Q(float(L[r]) + float(e[r])) ** 2 >= least
            assert L[r] + e[r] <= float(least) ** 0.5 * (1 + 1e-6)


@pytest.mark.parametrize(("weights", "inputs"), SIZES)
def test_rows_are_positive_up_to_their_distance(weights: float, inputs: float) -> None:
    """At points that were looked for, too: steps against the row's own slope."""
    proved = 0
    for seed in range(10):
        case = Case(seed, weights, inputs)
        far = ellipsoid_of(case).distances(case.rows)
        assert (far <= case.radius).all()
        for r in range(3):
            proved += 0.0 < far[r] < case.radius
            against = -case.rows.slope[r] / max(np.linalg.norm(case.rows.slope[r]), 1e-300)
            for turn in range(6):
                direction = against + (1e-6 if turn == 0 else 0.5) * case.rng.normal(size=3)
                step = exactly(direction * (far[r] * (1 - 1e-12) / np.linalg.norm(direction)))
                point = [Q(float(a)) + s for a, s in zip(case.x, step, strict=True)]
                h = [max(a, Q(0)) for a in layers(case.network, point)[-2]]
                assert far[r] == 0.0 or dot(exactly(case.R)[r], h) + Q(float(case.c[r])) > 0
    assert proved > 5


def by_hand(c: float, a: float) -> Ellipsoid:
    """One bend of reach 1 that begins at a, z = -a + w."""
    bends = Bends(
        1.0, np.array([0]), np.array([0, 1]), np.array([a]), np.ones((1, 1)), np.zeros((1, 1)), np.ones(1), np.zeros(1)
    )
    return Ellipsoid(bends, np.array([c]), np.ones((1, 1)))


def test_one_bend_by_hand() -> None:
    """w^2 + t v^2 - c v w > 0 where c^2 < 4 t, and t = c (1 + a)."""
    assert by_hand(3.9, 0.0).found and not by_hand(4.1, 0.0).found
    assert by_hand(7.9, 1.0).found and not by_hand(8.1, 1.0).found
    # 1 - v is 0 where w is at least 1: M^-1 = [t, c/2; c/2, 1] / (t - c^2/4), and the least of -v is -1 / sqrt(1)
    one = Rows(np.array([1.0]), np.zeros((1, 1)), np.array([[-1.0]]), np.zeros(1))
    assert by_hand(2.0, 0.0).distances(one)[0] == pytest.approx(1.0, rel=1e-6)
    assert by_hand(1.0, 0.0).distances(one)[0] == pytest.approx(0.75**0.5, rel=1e-6)
    for value, error in ((np.nan, 0.0), (1.0, np.nan), (1.0, 0.6), (-1.0, 0.0), (np.inf, 0.0)):
        with np.errstate(all="ignore"):
            row = one.__class__(np.array([value]), one.slope, one.bends, np.array([error]))
            assert by_hand(2.0, 0.0).distances(row)[0] in (0.0, 1.0)
            assert value == np.inf or by_hand(2.0, 0.0).distances(row)[0] == 0.0


def test_what_is_no_number_proves_nothing() -> None:
    case = Case(1)
    bends, n = case.bends, len(case.bends.start)
    gram = bends.J @ bends.J.T
    with np.errstate(all="ignore"):
        for c in (np.full(n, np.nan), np.full(n, np.inf), np.full(n, 1e300)):
            assert not Ellipsoid(bends, c, gram).found
        lo, hi = case.lo.copy(), case.hi.copy()
        lo[2], hi[2] = np.nan, np.nan
        of = case.R, case.c, np.zeros(3)
        unknown, _ = bends_of(case.network, case.x, case.radius, (lo, hi), of, gamma(200))
        assert 2 in unknown.neurons  # open, whatever it is
        assert not Ellipsoid(unknown, np.full(len(unknown.start), 1e-3), unknown.J @ unknown.J.T).found
