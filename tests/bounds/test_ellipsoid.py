"""Quadratic forms over a network's bends, in rational arithmetic: every sentence of the theorem, at sizes far apart."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from layercert.arrays import Matrix, Vector, gamma
from layercert.bounds.ellipsoid import Bends, Form, Multipliers, Rows, bends_of
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


def matrix(form: Form, E: Vector) -> list:  # type: ignore[type-arg]
    """M + E as the exact numbers that c, t, J, N and E are."""
    bends = form.bends
    J, N, c, t, E = (exactly(a) for a in (bends.J, bends.N, form.c, form.t, E))  # type: ignore[assignment]
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


def form_of(case: Case, share: float = 0.4) -> Form:
    """The largest multiple of some random multipliers that floating point takes, or a part of it."""
    bends = case.bends
    count = len(bends.start)
    c = np.exp(0.5 * case.rng.normal(size=count)) * 0.01 ** np.repeat(
        np.arange(len(bends.first) - 1), np.diff(bends.first)
    )
    tau = c * np.maximum(bends.start, 0.01) * np.exp(0.5 * case.rng.normal(size=count))
    low, high, gram = 0.0, 1e3, bends.J @ bends.J.T
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if Form(bends, middle * c, middle * tau, gram).found else (low, middle)
    return Form(bends, share * low * c, share * low * tau, gram)


def lines_of(case: Case, form: Form, l: float, size: float) -> Multipliers:
    """Random multipliers of lines; alpha takes what is positive of the bends' coefficients, as good ones do."""
    rows, count = case.rows, len(form.c)
    row = np.full(3, l) / rows.value
    linear = row[:, None] * rows.bends + form.c * case.bends.start - form.tau
    above_line, below_chord = size * np.abs(linear) * case.rng.uniform(size=(2, 3, count))
    return Multipliers(row, np.maximum(linear, 0.0), above_line, below_chord)


def linear_part(form: Form, rows: Rows, by: Multipliers, r: int) -> tuple[Q, list]:  # type: ignore[type-arg]
    """C and rho of row r, from (3): the sum of what each line says, one after the other."""
    bends = form.bends
    n, count = bends.J.shape[1], len(form.c)
    l = Q(float(by.row[r]))
    C, rho = l * Q(float(rows.value[r])), [l * a for a in [*exactly(rows.slope[r]), *exactly(rows.bends[r])]]
    J, N, a, L, c = (exactly(A) for A in (bends.J, bends.N, bends.start, bends.other, form.c))
    tau, alpha, sigma, lam = (exactly(A) for A in (form.tau, by.above_zero[r], by.above_line[r], by.below_chord[r]))
    for i in range(count):
        rho[n + i] += c[i] * a[i] - tau[i]
        rho[n + i] -= alpha[i]
        u = [*J[i], *N[i]]  # and -a
        C -= sigma[i] * a[i]  # -sigma (v - u)
        rho[n + i] -= sigma[i]
        rho = [p + sigma[i] * q for p, q in zip(rho, u, strict=True)]
        top = lam[i] / (1 + L[i])  # -lam ((u + L) / (1 + L) - v)
        C -= top * (L[i] - a[i])
        rho[n + i] += lam[i]
        rho = [p - top * q for p, q in zip(rho, u, strict=True)]
    return C, rho


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
def test_every_point_of_the_ball_is_as_far_as_the_form_says(weights: float, inputs: float) -> None:
    """(4) at points whose F is known: l F, which need not be 0 or less there, goes to the other side."""
    for seed in range(6):
        case = Case(seed, weights, inputs)
        form = form_of(case)
        assert form.found
        M = matrix(form, np.zeros(len(form.c)))
        by = lines_of(case, form, 0.5, 0.3)
        error = exactly(case.bends.error)
        for _ in range(6):
            step = case.step()
            w, v, moved = case.bends_at(step)
            assert all(-Q(float(L)) <= u <= 1 for L, u in zip(case.bends.other, moved, strict=True))
            y = [*w, *v]
            h = layers(case.network, [Q(float(a)) + s for a, s in zip(case.x, step, strict=True)])[-2]
            for r in range(3):
                C, rho = linear_part(form, case.rows, by, r)
                F = dot(exactly(case.R)[r], [max(a, Q(0)) for a in h]) + Q(float(case.c[r]))
                l = Q(float(by.row[r]))
                size = [
                    Q(float(c)) + Q(float(s)) + Q(float(m))
                    for c, s, m in zip(form.c, by.above_line[r], by.below_chord[r], strict=True)
                ]
                slack = dot(size, error) + l * Q(float(case.rows.error[r]))
                found = C + dot(rho, y) + dot(y, [dot(row, y) for row in M])
                assert dot(w, w) + l * F >= found - slack
                assert slack < Q(1, 10**6)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_factorisation_proves_the_matrix_with_its_margin(share: float) -> None:
    edges = 0
    for seed in range(8):
        case = Case(seed)
        form = form_of(case, share)
        assert form.found and form.excess < 1e-6
        n = case.bends.J.shape[1]
        pivots, _ = solved(matrix(form, form.E), [Q(0)] * (n + len(form.c)))
        assert all(pivot > 0 for pivot in pivots)
        pivots, _ = solved(matrix(form, np.zeros(len(form.c))), [Q(0)] * (n + len(form.c)))
        edges += any(pivot <= 1e-13 for pivot in pivots)
    assert edges > 0 or share < 1.0  # there E is needed, or nearly


@pytest.mark.parametrize("share", [0.4, 0.999])
def test_squares_are_those_of_the_exact_solution(share: float) -> None:
    for seed in range(6):
        case = Case(seed)
        form = form_of(case, share)
        by = lines_of(case, form, 0.7, 0.3 if seed % 2 else 0.0)
        found = form.squares(case.rows, by)
        M = matrix(form, form.E)
        for r in range(3):
            C, rho = linear_part(form, case.rows, by, r)
            if case.rows.value[r] <= 0.0:
                assert found[r] == -np.inf  # l would be negative
                continue
            _, y = solved(M, rho)
            least = C - dot(rho, y) / 4
            assert Q(float(found[r])) <= least
            assert found[r] >= float(least) - 1e-6 * (1.0 + abs(float(C)) + float(dot(rho, y)))


@pytest.mark.parametrize(("weights", "inputs"), SIZES)
def test_rows_are_positive_up_to_their_distance(weights: float, inputs: float) -> None:
    """At points that were looked for, too: steps against the row's own slope."""
    proved = 0
    for seed in range(10):
        case = Case(seed, weights, inputs)
        form = form_of(case)
        tries = [lines_of(case, form, l, size) for l in (0.1, 0.3, 1.0, 2.0) for size in (0.0, 0.1)]
        far = np.max([form.distances(case.rows, by) for by in tries], axis=0)
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


def by_hand(c: float, tau: float, a: float = 0.0) -> Form:
    """One bend of reach 1 that begins at a, z = -a + w, down to -1 - 2 a."""
    bends = Bends(
        1.0,
        np.array([0]),
        np.array([0, 1]),
        np.array([a]),
        np.ones((1, 1)),
        np.zeros((1, 1)),
        np.ones(1),
        np.array([1.0 + 2.0 * a]),
        np.zeros(1),
    )
    return Form(bends, np.array([c]), np.array([tau]), np.ones((1, 1)))


def lines(row: float, alpha: float = 0.0, sigma: float = 0.0, lam: float = 0.0) -> Multipliers:
    return Multipliers(np.array([row]), *(np.array([[size]]) for size in (alpha, sigma, lam)))


def test_one_bend_by_hand() -> None:
    """w^2 + (c + tau) v^2 - c v w > 0 where c^2 < 4 (c + tau)."""
    assert by_hand(3.9, 0.0).found and not by_hand(4.1, 0.0).found
    assert by_hand(7.9, 7.9).found and not by_hand(8.1, 8.1).found
    # 1 - v is 0 where w is at least 1: w^2 + 2 v^2 - 2 v w - 2 (v - 1) = (w - v)^2 + (v - 1)^2 + 1
    one = Rows(np.array([1.0]), np.zeros((1, 1)), np.array([[-1.0]]), np.zeros(1))
    assert by_hand(2.0, 0.0).squares(one, lines(2.0))[0] == pytest.approx(1.0, rel=1e-9)
    assert by_hand(2.0, 0.0).distances(one, lines(2.0))[0] == pytest.approx(1.0, rel=1e-9)
    assert by_hand(1.0, 0.0).squares(one, lines(1.5))[0] == pytest.approx(0.75, rel=1e-9)
    # a bend that begins at 1: v = 1 where w = 2. w^2 + 2 v^2 - 2 v (w - 1) + 4 (1 - v) is least at w = v = 1, and with
    # v^2 - v besides at 3/4
    assert by_hand(2.0, 0.0, 1.0).squares(one, lines(4.0))[0] == pytest.approx(3.0, rel=1e-9)
    assert by_hand(2.0, 1.0, 1.0).squares(one, lines(4.0))[0] == pytest.approx(4.0 - 9 / 8, rel=1e-9)
    # lines: w^2 + 1 - v + (v - (w + 1) / 2) is least at w = 1/4, and w^2 + 1 + v - v at 0
    assert by_hand(0.0, 1e-9).squares(one, lines(1.0, lam=1.0))[0] == pytest.approx(0.5 - 1 / 16, rel=1e-6)
    up = Rows(np.array([1.0]), np.zeros((1, 1)), np.array([[1.0]]), np.zeros(1))
    assert by_hand(0.0, 1e-9).squares(up, lines(1.0, alpha=1.0))[0] == pytest.approx(1.0, rel=1e-6)
    # 1 + v - w is nowhere 0, and v >= w says so
    less = Rows(np.array([1.0]), -np.ones((1, 1)), np.array([[1.0]]), np.zeros(1))
    assert by_hand(0.0, 1e-9).squares(less, lines(1.0, sigma=1.0))[0] == pytest.approx(1.0, rel=1e-6)


def test_what_is_no_number_or_negative_proves_nothing() -> None:
    one = Rows(np.array([1.0]), np.zeros((1, 1)), np.array([[-1.0]]), np.zeros(1))
    form = by_hand(2.0, 0.0)
    with np.errstate(all="ignore"):
        for value, error in ((np.nan, 0.0), (1.0, np.nan), (1.0, 0.6), (-1.0, 0.0), (np.inf, 0.0)):
            row = one.__class__(np.array([value]), one.slope, one.bends, np.array([error]))
            assert form.distances(row, lines(2.0))[0] == 0.0
        for bad in (np.nan, np.inf, -1e-9):
            assert form.squares(one, lines(bad))[0] == -np.inf
            for name in ("alpha", "sigma", "lam"):
                assert form.squares(one, lines(2.0, **{name: bad}))[0] == -np.inf
        assert not by_hand(-1e-9, 1.0).found and not by_hand(1.0, -1e-9).found
        case = Case(1)
        bends, n = case.bends, len(case.bends.start)
        gram = bends.J @ bends.J.T
        for c in (np.full(n, np.nan), np.full(n, np.inf), np.full(n, 1e300)):
            assert not Form(bends, c, 0.5 * c, gram).found
        lo, hi = case.lo.copy(), case.hi.copy()
        lo[2], hi[2] = np.nan, np.nan
        of = case.R, case.c, np.zeros(3)
        unknown, _ = bends_of(case.network, case.x, case.radius, (lo, hi), of, gamma(200))
        assert 2 in unknown.neurons  # open, whatever it is
        size = np.full(len(unknown.start), 1e-3)
        assert not Form(unknown, size, size, unknown.J @ unknown.J.T).found
