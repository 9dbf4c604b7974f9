"""Bounds on a ball, a box and a partial region: judged by thousands of sampled points, and by hand where exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import linprog
from scipy.sparse import csr_array

from helpers.patterns import badly_scaled, dot, exact_pattern
from helpers.tiny import NORMS, degenerate, generic, seeds
from layercert.arrays import Matrix, Vector
from layercert.bounds.ball import Ball
from layercert.bounds.interval import affine_interval, first_interval, interval_contains_db, output_interval
from layercert.bounds.linear import Relaxation, relax
from layercert.bounds.lipschitz import fast_lip
from layercert.bounds.lp import lp_cut
from layercert.bounds.relu import Relaxed, crown, fast_lin, upper_line
from layercert.geometry import Cell, Cells
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem, robustness

KINDS = pytest.mark.parametrize("kind", [generic, degenerate])
SLOPES = pytest.mark.parametrize("slopes", [crown, fast_lin])
Kind = Callable[[int], Problem]

#: What rounding may be worth in these small networks.
TINY = 1e-9


def ball_points(problem: Problem, U: float, rng: np.random.Generator, count: int = 1500) -> Matrix:
    """Offsets inside the ball and the box: in its inside, on its sphere, at its spikes and corners."""
    n, norm = problem.network.inputs, problem.norm
    raw = rng.normal(size=(count, n))
    raw[: count // 4] = np.sign(raw[: count // 4])  # corners of the l_inf ball
    raw[count // 4 : count // 2] *= rng.random(size=(count // 4, n)) < 1.5 / n  # spikes of the l_1 ball
    length = np.maximum(norm(raw), 1e-12)
    steps = raw / length[:, None] * U * (1 - 1e-12) * rng.choice([1.0, rng.random()], size=(count, 1))
    return steps if problem.box is None else problem.box.clip(steps)


def cells_with_points(problem: Problem, steps: Matrix) -> list[tuple[Cell, Matrix]]:
    """The root and some partial and full cells that occur, each with the offsets inside its region."""
    cells = Cells(problem)
    pairs = [(cells.root, steps)]
    for w in steps[:: max(1, len(steps) // 3)]:
        for cell in cells.full(w).lineage():
            pre = pre_activations(problem.network, problem.x + steps)
            keep = np.ones(len(steps), dtype=np.bool_)
            for z, s in zip(pre, cell.pattern, strict=False):
                keep &= (z * s >= 0).all(axis=1)
            pairs.append((cell, steps[keep]))
    return pairs


def pre_activations(network: Network, points: Matrix) -> list[Matrix]:
    """z^1..z^L and f at many points."""
    z, h = [], points
    for W, b in zip(network.weights, network.biases, strict=True):
        z.append(h @ W.T + b)
        h = np.maximum(z[-1], 0.0)
    return z


def case(kind: Kind, seed: int) -> tuple[Problem, float, list[tuple[Cell, Matrix]], np.random.Generator]:
    problem = kind(seed)
    rng = np.random.default_rng(seed)
    U = float(rng.choice([0.05, 0.5, 2.0]))
    return problem, U, cells_with_points(problem, ball_points(problem, U, rng)), rng


class TestBall:
    @pytest.mark.parametrize("p", NORMS)
    @pytest.mark.parametrize("boxed", [False, True])
    def test_fall_is_an_upper_bound(self, p: float, boxed: bool) -> None:
        rng = np.random.default_rng(3)
        net = Network.from_arrays([rng.normal(size=(2, 3))], [np.zeros(2)])
        problem = robustness(net, [0.2, 0.5, 0.9], p, domain=(0, 1) if boxed else None)
        G = rng.normal(size=(20, 3))
        for U in (0.1, 0.6, 3.0):
            steps = ball_points(problem, U, rng)
            assert (Ball(problem, U).fall(G) >= (-steps @ G.T).max(axis=0)).all()

    @pytest.mark.parametrize("p", NORMS)
    def test_exact_without_a_box(self, p: float) -> None:
        net = Network.from_arrays([np.ones((2, 2))], [np.zeros(2)])
        g = np.array([[3.0, -4.0]])
        fall = Ball(robustness(net, [0.0, 0.0], p), 0.5).fall(g)
        assert fall == pytest.approx(0.5 * Norm(p).dual(g), rel=1e-13)

    def test_exact_in_l_inf_with_a_box(self) -> None:
        # U = 0.5 from (0.2, 0.9) in [0, 1]: against g = (1, -1) the first may fall 0.2, the second may rise 0.1
        net = Network.from_arrays([np.ones((2, 2))], [np.zeros(2)])
        problem = robustness(net, [0.2, 0.9], "linf", domain=(0, 1))
        assert Ball(problem, 0.5).fall(np.array([[1.0, -1.0]])) == pytest.approx([0.3], rel=1e-12)

    def test_unbounded(self) -> None:
        net = Network.from_arrays([np.ones((2, 2))], [np.zeros(2)])
        G = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
        assert Ball(robustness(net, [0.0, 0.0]), math.inf).fall(G).tolist() == [math.inf, 0.0, math.inf]
        half = robustness(net, [0.5, 0.5], domain=([0.0, -math.inf], [math.inf, math.inf]))
        assert Ball(half, math.inf).fall(G) == pytest.approx([0.5, 0.0, math.inf])

    def test_the_domain_bounds_the_ball(self) -> None:
        net = Network.from_arrays([np.ones((2, 2))], [np.zeros(2)])
        assert Ball(robustness(net, [0.25, 0.5], domain=(0, 1)), 9.0).radius == pytest.approx(0.75)


class TestIntervals:
    @given(seed=seeds)
    def test_affine_interval_holds(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        W, b = rng.normal(size=(3, 4)), rng.normal(size=3)
        lo = rng.normal(size=4)
        hi = lo + rng.exponential(size=4)
        low, high = affine_interval(W, b, lo, hi)
        corners = np.where(W > 0, lo, hi), np.where(W > 0, hi, lo)
        assert low == pytest.approx((W * corners[0]).sum(axis=1) + b, abs=1e-12)  # attained, so not one bit to spare
        assert high == pytest.approx((W * corners[1]).sum(axis=1) + b, abs=1e-12)
        values = rng.uniform(lo, hi, size=(200, 4)) @ W.T + b
        assert (values >= low).all() and (values <= high).all()

    def test_an_unbounded_input_is_felt_by_its_weights_alone(self) -> None:
        """Also by a weight so small that 1e300 times it would look harmless."""
        W = np.array([[1.0, 0.0], [0.0, 2.0], [-1e-305, 0.0]])
        low, high = affine_interval(W, np.zeros(3), np.array([0.0, -1.0]), np.array([math.inf, 1.0]))
        assert high[0] == math.inf and low[2] == -math.inf
        assert (low[1], high[1]) == pytest.approx((-2.0, 2.0))

    @KINDS
    @given(seed=seeds)
    def test_intervals_hold_at_every_point(self, kind: Kind, seed: int) -> None:
        """The next layer behind a cell, and x^L (the outputs for a full pattern)."""
        problem, U, pairs, _ = case(kind, seed)
        network = problem.network
        for cell, steps in pairs:
            z = pre_activations(network, problem.x + steps)
            lo, hi = first_interval(cell, Ball(problem, U))
            assert (z[cell.level] >= lo - TINY).all() and (z[cell.level] <= hi + TINY).all()
            lo, hi = output_interval(cell, Ball(problem, U))
            last = z[-1] if cell.is_full else z[-2]
            assert (last >= lo - TINY).all() and (last <= hi + TINY).all()

    @KINDS
    @given(seed=seeds)
    def test_contains_db_never_misses_an_unsafe_point(self, kind: Kind, seed: int) -> None:
        problem, U, pairs, rng = case(kind, seed)
        for clauses in (problem.clauses, (random_clause(problem, rng),)):
            for cell, steps in pairs:
                f = problem.network(problem.x + steps)
                unsafe = np.stack([(c.margins(f) <= 0).all(axis=1) for c in clauses])
                if unsafe.any():
                    assert interval_contains_db(cell, U, clauses)
                    assert interval_contains_db(cell, math.inf, clauses)

    def test_contains_db_prunes_where_intervals_can_tell(self) -> None:
        # f_0 - f_1 = 2 - relu(a) - relu(-a); on |a - 0.5| < 0.5 it is above 1, on |a - 0.5| < 3 it reaches -1.5
        net = Network.from_arrays([[[1.0], [-1.0]], [[-1.0, -1.0], [0.0, 0.0]]], [[0.0, 0.0], [2.0, 0.0]])
        problem = robustness(net, [0.5])
        root = Cells(problem).root
        assert not interval_contains_db(root, 0.5, problem.clauses)
        assert interval_contains_db(root, 3.0, problem.clauses)
        # with the pattern (+, -) known, the second term is gone: a up to 1.9 is still safe
        right = Cells(problem).first(np.zeros(1))
        assert not interval_contains_db(right, 1.4, problem.clauses)
        assert interval_contains_db(right, 1.6, problem.clauses)

    def test_a_clause_of_several_rows_is_excluded_by_one_of_them(self) -> None:
        """{f_0 <= 5 and f_1 <= -1}: the outputs are (a, 1) and f_1 is never below 1."""
        net = Network.from_arrays([[[1.0], [0.0]]], [[0.0, 1.0]])
        problem = robustness(net, [0.5])
        clause = Clause(np.eye(2), np.array([5.0, -1.0]))
        assert not interval_contains_db(Cells(problem).root, 1.0, (clause,))
        assert interval_contains_db(Cells(problem).root, 1.0, (replace(clause, d=np.array([5.0, 1.0])),))


def random_clause(problem: Problem, rng: np.random.Generator) -> Clause:
    """Two rows that hold at about one point in four, wherever the outputs are."""
    f = problem.network(problem.x + rng.normal(size=problem.network.inputs) * 0.3)
    C = rng.normal(size=(2, len(f)))
    return Clause(C, C @ f)


class TestRelaxation:
    @SLOPES
    def test_a_relaxed_layer_holds_the_relu(self, slopes: Callable[[Vector, Vector, Vector], Vector]) -> None:
        """Off, on, and three unstable neurons; touching at the ends."""
        lo, hi = np.array([-2.0, 1.0, -1.0, -3.0, -1e-9, 0.0]), np.array([-1.0, 2.0, 2.0, 1.0, 5.0, 0.0])
        layer = Relaxed.of(lo, hi, slopes)
        z = lo + np.linspace(0, 1, 101)[:, None] * (hi - lo)
        relu = np.maximum(z, 0.0)
        assert (layer.alpha * z <= relu + 1e-15).all()
        assert (relu <= layer.su * z + layer.iu + 1e-15).all()
        assert (layer.alpha[:2].tolist(), layer.su[:2].tolist()) == ([0.0, 1.0], [0.0, 1.0])

    def test_the_upper_line_is_above_both_ends_whatever_the_rounding(self) -> None:
        """In rationals, over all magnitudes; for numbers, as kernels ask, as for vectors."""
        rng = np.random.default_rng(0)
        lo = -(10.0 ** rng.uniform(-300, 70, size=500))
        hi = np.concatenate([10.0 ** rng.uniform(-300, 70, size=250), -lo[250:] * rng.uniform(0.5, 2.0, size=250)])
        su, iu = upper_line(lo, hi)
        for i in range(len(lo)):
            assert upper_line(float(lo[i]), float(hi[i])) == (su[i], iu[i])
            s, c = Fraction(su[i]), Fraction(iu[i])
            assert s * Fraction(lo[i]) + c >= 0 and s * Fraction(hi[i]) + c >= Fraction(hi[i])

    def test_a_step_through_a_layer_is_the_same_for_sparse_coefficients(self) -> None:
        rng = np.random.default_rng(1)
        lo, hi = -rng.uniform(0, 2, size=9), rng.uniform(-0.5, 2, size=9)
        layer = Relaxed.of(lo, np.maximum(lo, hi), fast_lin)
        A = rng.normal(size=(4, 9)) * (rng.uniform(size=(4, 9)) < 0.5)
        for alpha in (None, np.full(9, 0.5)):
            S, c = layer.through(A, alpha)
            sparse, constant = layer.through(csr_array(A), alpha)
            assert (sparse.toarray() == S).all() and constant == pytest.approx(c, rel=1e-15)

    def test_slopes(self) -> None:
        """CROWN takes the larger half, Fast-Lin the chord: (-1, 2) and (-3, 1)."""
        lo, hi = np.array([-1.0, -3.0]), np.array([2.0, 1.0])
        assert Relaxed.of(lo, hi, crown).alpha.tolist() == [1.0, 0.0]
        assert Relaxed.of(lo, hi, fast_lin).alpha == pytest.approx([2 / 3, 1 / 4])

    @SLOPES
    @KINDS
    @given(seed=seeds)
    def test_bounds_hold_at_every_point_of_ball_and_region(
        self, kind: Kind, slopes: Callable[[Vector, Vector, Vector], Vector], seed: int
    ) -> None:
        """Pre-activations of every layer behind the cell, and the halfspace M of every clause."""
        problem, U, pairs, rng = case(kind, seed)
        for cell, steps in pairs:
            relaxation = relax(cell, U, slopes)
            if cell.is_full:
                assert relaxation is None
                continue
            assert relaxation is not None
            z = pre_activations(problem.network, problem.x + steps)
            assert len(relaxation.layers) == problem.network.L - cell.level
            for layer, values in zip(relaxation.layers, z[cell.level :], strict=False):
                assert (values >= layer.lo - TINY).all() and (values <= layer.hi + TINY).all()
            for clause in (*problem.clauses, random_clause(problem, rng)):
                margins = clause.margins(z[-1])
                M = relaxation.lower(clause)
                if M is None:
                    assert not (margins <= 0).all(axis=1).any()
                else:
                    assert (steps @ M.A.T - M.r <= margins + M.slack + TINY).all()

    def test_nothing_to_relax_or_no_bounded_ball(self) -> None:
        net = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
        free, boxed = Cells(robustness(net, [0.2])), Cells(robustness(net, [0.2], domain=(0, 1)))
        assert relax(free.root, math.inf) is None
        assert relax(boxed.root, math.inf) is not None  # the domain bounds the ball
        assert relax(free.full(np.zeros(1)), 1.0) is None

    def test_exact_where_no_neuron_changes_sign(self) -> None:
        """In a ball inside one region both lines are the ReLU itself: M is the decision boundary of that region."""
        rng = np.random.default_rng(2)
        net = Network.from_arrays(
            [rng.normal(size=(4, 3)), rng.normal(size=(4, 4)), rng.normal(size=(2, 4))],
            [rng.normal(size=4), rng.normal(size=4), rng.normal(size=2)],
        )
        x = rng.normal(size=3)
        clause = Clause(np.array([[1.0, -1.0]]), np.array([float(net(x)[0] - net(x)[1])]))  # holds at x itself
        problem = Problem(net, x, (clause,), Norm(2.0))
        relaxation = relax(Cells(problem).root, 1e-4)
        assert relaxation is not None
        M = relaxation.lower(clause)
        assert M is not None
        F, _ = net.linear_piece(net.pattern(x))
        assert np.abs(M.A - clause.C @ F).max() <= 1e-12
        assert M.r == pytest.approx([0.0], abs=1e-12)

    def test_crown_and_fast_lin_by_hand(self) -> None:
        """f_0 - f_1 = relu(a) + 1 - 2 relu(b) on |a| <= 1, |b| <= 1 from x = 0.

        Both neurons have bounds (-1, 1), so su = iu = 1/2. Below relu(a): 0 with CROWN (a tie), a/2 with Fast-Lin.
        Above relu(b): b/2 + 1/2. So CROWN gives 0*a - b + 0 and Fast-Lin a/2 - b + 0.
        """
        net = Network.from_arrays([[[1.0, 0.0], [0.0, 1.0]], [[1.0, -2.0], [0.0, 0.0]]], [[0.0, 0.0], [1.0, 0.0]])
        problem = robustness(net, [0.0, 0.0], "linf")
        for slopes, g in ((crown, [0.0, -1.0]), (fast_lin, [0.5, -1.0])):
            relaxation = relax(Cells(problem).root, 1.0, slopes)
            assert relaxation is not None
            M = relaxation.lower(problem.clauses[0])
            assert M is not None
            assert M.A[0] == pytest.approx(g, abs=1e-12)
            assert M.r[0] == pytest.approx(0.0, abs=1e-12)

    def test_none_says_that_there_is_no_unsafe_point(self) -> None:
        # f_0 - f_1 = 2 - relu(a): safe on |a| <= 1
        net = Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[0.0], [2.0, 0.0]])
        problem = robustness(net, [0.0])
        near, far = relax(Cells(problem).root, 1.0), relax(Cells(problem).root, 3.0)
        assert near is not None and near.lower(problem.clauses[0]) is None
        assert far is not None and far.lower(problem.clauses[0]) is not None


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@given(seed=seeds)
def test_bounds_hold_in_rational_arithmetic(norm: float, seed: int) -> None:
    """Weights over 16 orders of magnitude with rows that almost cancel: nothing is lost to rounding."""
    rng = np.random.default_rng(seed)
    problem = badly_scaled(rng, norm)
    cells, network = Cells(problem), problem.network
    clause, U = problem.clauses[0], 10.0 ** rng.uniform(-6, 3)
    w = rng.normal(size=2)
    w *= U * rng.choice([1 - 1e-9, rng.random()]) / problem.norm.value(w)
    h = [Fraction(float(a)) + Fraction(float(b)) for a, b in zip(problem.x, w, strict=True)]
    pattern = exact_pattern(network, h)
    z: list[list[Fraction]] = []
    for W, b in zip(network.weights, network.biases, strict=True):
        z.append([dot(exact(row), h) + Fraction(float(c)) for row, c in zip(W, b, strict=True)])
        h = [max(v, Fraction(0)) for v in z[-1]]
    margin = dot(exact(clause.C[0]), z[-1]) - Fraction(float(clause.d[0]))
    for level in range(network.L + 1):
        cell = cells.of(pattern[:level])
        assert between(z[level], *first_interval(cell, Ball(problem, U)))
        assert between(z[-1] if cell.is_full else z[-2], *output_interval(cell, Ball(problem, U)))
        assert margin > 0 or interval_contains_db(cell, U, (clause,))
        for slopes in (crown, fast_lin):
            relaxation = relax(cell, U, slopes)
            if relaxation is None:
                continue
            assert all(between(v, layer.lo, layer.hi) for v, layer in zip(z[level:], relaxation.layers, strict=False))
            M = relaxation.lower(clause)
            if M is None:
                assert margin > 0
            else:
                row = dot(exact(M.A[0]), exact(w)) - Fraction(float(M.r[0]))
                assert row - Fraction(float(M.slack[0])) <= margin


def exact(v: Vector) -> list[Fraction]:
    return [Fraction(float(a)) for a in v]


def between(values: list[Fraction], lo: Vector, hi: Vector) -> bool:
    return all(a <= v <= b for v, a, b in zip(values, exact(lo), exact(hi), strict=True))


class TestLpCut:
    @KINDS
    @given(seed=seeds)
    def test_a_cut_removes_its_point_and_no_unsafe_point(self, kind: Kind, seed: int) -> None:
        problem, U, pairs, rng = case(kind, seed)
        for cell, steps in pairs:
            relaxation = relax(cell, U)
            if relaxation is None or not len(steps):
                continue
            f = problem.network(problem.x + steps)
            for clause in (problem.clauses[0], random_clause(problem, rng)):
                unsafe = steps[(clause.margins(f) <= 0).all(axis=1)]
                for w in steps[rng.integers(len(steps), size=2)]:
                    cut = lp_cut(relaxation, clause, w)
                    if cut is not None:
                        assert cut.residual(w)[0] > 0
                        assert (unsafe @ cut.A.T - cut.r <= cut.slack + TINY).all()

    @KINDS
    @given(seed=seeds)
    def test_there_is_a_cut_exactly_where_the_relaxation_excludes_the_point(self, kind: Kind, seed: int) -> None:
        """One row, judged by the LP over all relaxed layers with the input fixed."""
        problem, U, pairs, rng = case(kind, seed)
        clause = problem.clauses[0]
        for cell, steps in pairs[:3]:
            relaxation = relax(cell, U)
            if relaxation is None or not len(steps):
                continue
            for w in steps[rng.integers(len(steps), size=3)]:
                least = relaxed_margin(relaxation, clause, w)
                size = 1e-6 * (1.0 + float(np.abs(problem.network.weights[-1]).sum()))
                if least > size:
                    assert lp_cut(relaxation, clause, w) is not None
                elif least < -size:
                    assert lp_cut(relaxation, clause, w) is None

    def test_an_excluded_ball_gives_a_row_that_nothing_satisfies(self) -> None:
        net = Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[0.0], [2.0, 0.0]])
        problem = robustness(net, [0.0])
        relaxation = relax(Cells(problem).root, 1.0)
        assert relaxation is not None
        cut = lp_cut(relaxation, problem.clauses[0], np.zeros(1))
        assert cut is not None
        assert not cut.contains(np.zeros(1), 0.0) and not cut.contains(np.ones(1), 1.0)


def relaxed_margin(relaxation: Relaxation, clause: Clause, w: Vector) -> float:
    """The least C f - d (one row) that the triangle relaxation allows at x + w: one LP over x^{l+1}..x^L."""
    network, level = relaxation.cell.cells.network, relaxation.cell.level
    z = relaxation.cell.below.G @ w + relaxation.cell.below.z
    sizes = [len(layer.lo) for layer in relaxation.layers]
    start = np.concatenate([[0], np.cumsum(sizes)])
    rows, right = [], []
    bounds: list[tuple[float, float | None]] = []
    for i, layer in enumerate(relaxation.layers):
        for j in range(sizes[i]):
            # z_j as a row over the columns below, plus a constant
            row, constant = np.zeros(start[-1]), float(z[j] if i == 0 else network.biases[level + i][j])
            if i > 0:
                row[start[i - 1] : start[i]] = network.weights[level + i][j]
            own = np.zeros(start[-1])
            own[start[i] + j] = 1.0
            if layer.hi[j] <= 0:
                bounds.append((0.0, 0.0))
                continue
            bounds.append((0.0 if layer.lo[j] < 0 else -math.inf, None))
            rows += [row - own, own - layer.su[j] * row]
            right += [-constant, layer.su[j] * constant + layer.iu[j]]
    cost = np.zeros(start[-1])
    cost[start[-2] :] = clause.C[0] @ network.weights[-1]
    A, b = (np.array(rows), np.array(right)) if rows else (None, None)
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(cost, A, b, bounds=bounds, options=tight)
    assert answer.success, answer.message
    return float(answer.fun + clause.C[0] @ network.biases[-1] - clause.d[0])


def lipschitz(cells: Cells, clause: Clause, U: float) -> Vector:
    return fast_lip(cells, clause, relax(cells.root, U))


class TestFastLip:
    @KINDS
    @given(seed=seeds)
    def test_no_pair_of_points_changes_faster(self, kind: Kind, seed: int) -> None:
        problem = kind(seed)
        rng = np.random.default_rng(seed)
        cells = Cells(problem)
        clause = random_clause(problem, rng)
        for U in (0.1, 1.0, math.inf):
            L = lipschitz(cells, clause, U)
            steps = ball_points(problem, min(U, 5.0), rng, 400)
            near = steps + rng.normal(size=steps.shape) * 1e-4
            for other in (steps[::-1], near):
                inside = problem.norm(other) <= U
                if problem.box is not None:
                    inside &= ((other >= problem.box.lo) & (other <= problem.box.hi)).all(axis=1)
                a, b = steps[inside], other[inside]
                change = np.abs(
                    clause.margins(problem.network(problem.x + a)) - clause.margins(problem.network(problem.x + b))
                )
                assert (change <= L * problem.norm(a - b)[:, None] + 1e-12).all()

    @pytest.mark.parametrize("p", NORMS)
    def test_exact_for_a_linear_network_and_inside_a_region(self, p: float) -> None:
        rng = np.random.default_rng(4)
        W, b = rng.normal(size=(2, 3)), rng.normal(size=2)
        clause = Clause(np.array([[1.0, -1.0]]), np.zeros(1))
        linear = robustness(Network.from_arrays([W], [b]), np.zeros(3), p)
        expected = float(Norm(p).dual(W[0] - W[1]))
        for U in (1.0, math.inf):
            assert lipschitz(Cells(linear), clause, U) == pytest.approx([expected], rel=1e-12)
        # the same map behind two ReLUs that are on in the ball: z = v + 10
        on = Network.from_arrays([np.eye(3), W], [np.full(3, 10.0), b])
        assert lipschitz(Cells(robustness(on, np.zeros(3), p)), clause, 1.0) == pytest.approx([expected], rel=1e-12)

    def test_smaller_balls_give_smaller_constants(self) -> None:
        """f_0 = relu(a - 1) - relu(a): slope 0 up to a = 0, -1 up to a = 1, 0 beyond."""
        net = Network.from_arrays([[[1.0], [1.0]], [[1.0, -1.0], [0.0, 0.0]]], [[-1.0, 0.0], [3.0, 0.0]])
        problem = robustness(net, [-1.0])
        clause = problem.clauses[0]
        assert lipschitz(Cells(problem), clause, 0.5) == pytest.approx([0.0], abs=1e-12)  # both off
        assert lipschitz(Cells(problem), clause, 1.5) == pytest.approx([1.0])  # the second may be on
        assert lipschitz(Cells(problem), clause, math.inf) == pytest.approx([1.0])  # derivative within [-1, 1]
