"""Cells and polyhedra: regions hold exactly the points of their pattern, and margins cover every rounding error.

Exact answers are computed with rational numbers: the weights are floats, hence rationals, and nothing else enters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from numpy.random import Generator

from helpers.patterns import badly_scaled, dot, exact_pattern
from helpers.tiny import degenerate, generic, seeds
from layercert.arrays import Vector
from layercert.geometry import Cell, Cells, Polyhedron
from layercert.geometry.cells import CellStore
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem, robustness

KINDS = pytest.mark.parametrize("kind", [generic, degenerate])
Kind = Callable[[int], Problem]


def steps_around(problem: Problem, seed: int, count: int = 40) -> np.ndarray:
    """Offsets from tiny to large; x itself first."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(count, problem.network.inputs)) * 10.0 ** rng.uniform(-3, 0.7, size=(count, 1))
    steps[0] = 0.0
    return steps


def inside(polyhedron: Polyhedron, w: Vector) -> bool:
    return bool((polyhedron.residual(w) <= 0).all())


@KINDS
@given(seed=seeds)
def test_a_region_holds_exactly_the_points_of_its_pattern(kind: Kind, seed: int) -> None:
    """Eq. (6), closed: a point is in R_A if and only if no pre-activation has the wrong sign; judged by the network."""
    problem = kind(seed)
    cells = Cells(problem)
    steps = steps_around(problem, seed)
    patterns = {cells.full(w).key: cells.full(w) for w in steps[:10]}
    for A in patterns.values():
        region, ids = A.region(math.inf)
        assert len(region) == len(ids) <= problem.network.neurons
        for w in steps:
            z = problem.network.preactivations(problem.x + w)
            signed = np.concatenate([s * layer for s, layer in zip(A.pattern, z, strict=True)])
            if np.abs(signed).min() < 1e-9:
                continue  # too near a hyperplane for float64 to say
            assert inside(region, w) == bool((signed > 0).all())


@KINDS
@given(seed=seeds)
def test_partial_regions_use_the_layers_up_to_their_own(kind: Kind, seed: int) -> None:
    """[E5]: an l-layer pattern constrains layers 1..l; its region holds the regions of all its children."""
    problem = kind(seed)
    cells = Cells(problem)
    for w in steps_around(problem, seed, 10):
        A = cells.full(w)
        for cell in A.lineage():
            region, ids = cell.region(math.inf)
            assert {layer for layer, _ in ids} <= set(range(1, cell.level + 1))
            z = problem.network.preactivations(problem.x + w)[: cell.level]
            assert all((s * layer >= -1e-9).all() for s, layer in zip(cell.pattern, z, strict=True))
            assert region.contains(w, problem.norm.value(w))
            for (layer, j), row, r in zip(ids, region.A, region.r, strict=True):
                sign = cell.pattern[layer - 1][j]
                assert r - row @ w == pytest.approx(sign * z[layer - 1][j], abs=1e-9)


@KINDS
@given(seed=seeds)
def test_composed_maps_are_the_networks_preactivations(kind: Kind, seed: int) -> None:
    """Eq. (4) at every level, and f itself below a full pattern (eq. 5)."""
    problem = kind(seed)
    cells = Cells(problem)
    for w in steps_around(problem, seed, 10):
        z = [*problem.network.preactivations(problem.x + w), problem.network(problem.x + w)]
        cell = cells.root
        for level, expected in enumerate(z):
            assert cell.level == level
            assert cell.below.G @ w + cell.below.z == pytest.approx(expected, rel=1e-9, abs=1e-9)
            cell = cell if cell.is_full else cell.next_layer(w)
        F, f0 = problem.network.linear_piece(cell.pattern)
        assert np.abs(cell.below.G - F).max() <= 1e-12
        assert cell.below.z == pytest.approx(F @ problem.x + f0, abs=1e-10)


class TestWalkingTheHierarchy:
    """Two inputs; layer 1 has three neurons, layer 2 has two; x = (0.3, -0.2)."""

    network = Network.from_arrays(
        [[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, -1.0, 0.5], [0.5, 1.0, -1.0]], [[1.0, -1.0], [-1.0, 1.0]]],
        [[0.0, 0.0, -0.5], [-0.1, 0.2], [0.3, 0.0]],
    )
    cells = Cells(robustness(network, [0.3, -0.2], "l2"))

    def test_first_and_full(self) -> None:
        # z^1 = (0.3, -0.2, -0.4): + - -;  z^2 = (0.3 - 0.1, 0.15 + 0.2): + +
        zero = np.zeros(2)
        assert repr(self.cells.first(zero)) == "Cell(+--)"
        assert repr(self.cells.full(zero)) == "Cell(+--|++)"
        assert self.cells.full(zero).is_full and not self.cells.first(zero).is_full
        assert self.cells.full(zero).key == self.cells.of(self.network.pattern(np.array([0.3, -0.2]))).key

    def test_next_layer_takes_the_pattern_of_the_point(self) -> None:
        # at (0.05, -0.2): z^2 = (0.05 - 0.1, 0.025 + 0.2)
        child = self.cells.first(np.zeros(2)).next_layer(np.array([-0.25, 0.0]))
        assert repr(child) == "Cell(+--|-+)"

    def test_zero_counts_as_on(self) -> None:
        """As in the network: at (0, -0.2) the first neuron is on a hyperplane."""
        assert repr(self.cells.first(np.array([-0.3, 0.0]))) == "Cell(+--)"

    def test_flip_in_the_own_layer_is_a_sibling(self) -> None:
        A = self.cells.full(np.zeros(2))
        B = A.flip(2, 1)
        assert repr(B) == "Cell(+--|+-)"
        assert B.parent is A.parent
        assert repr(A) == "Cell(+--|++)"
        assert B.flip(2, 1).key == A.key

    def test_flip_above_keeps_the_signs_below(self) -> None:
        A = self.cells.full(np.zeros(2))
        B = A.flip(1, 2)
        assert repr(B) == "Cell(+-+|++)"
        # the map of layer 2 belongs to the new first layer: 0.5 * (a + b - 0.5) more in its first neuron
        assert B.parent is not None and A.parent is not None
        assert (B.parent.below.G - A.parent.below.G).tolist() == [[0.5, 0.5], [-1.0, -1.0]]

    def test_keys_tell_patterns_apart(self) -> None:
        signs = [np.array(s, dtype=np.int8) for s in itertools.product([-1, 1], repeat=3)]
        below = [np.array(s, dtype=np.int8) for s in itertools.product([-1, 1], repeat=2)]
        keys = {self.cells.of([a]).key for a in signs} | {self.cells.of([a, b]).key for a in signs for b in below}
        assert len(keys) == 8 + 32
        assert self.cells.root.key == b""

    def test_store_shares_cells_and_forgets_the_oldest(self) -> None:
        store = CellStore(self.cells, capacity=3)
        pattern = self.cells.full(np.zeros(2)).pattern
        first = store.of(pattern)
        assert store.of(pattern) is first
        other = [-pattern[0], -pattern[1]]
        store.of(other)  # two more cells: four in all, one too many
        assert store.of(other) is store.of(other)
        assert store.of(pattern).key == first.key

    def test_no_hidden_layer(self) -> None:
        cells = Cells(robustness(Network.from_arrays([[[1.0], [-1.0]]], [[0.0, 0.0]]), [1.0]))
        assert cells.first(np.zeros(1)) is cells.full(np.zeros(1)) is cells.root
        assert cells.root.is_full
        region, ids = cells.root.region(1.0)
        assert len(region) == len(ids) == 0
        assert region.contains(np.array([5.0]), 5.0)


@KINDS
@given(seed=seeds)
def test_reach_is_a_true_lower_bound(kind: Kind, seed: int) -> None:
    """No point of the box nearer than `reach` has the pre-activation zero or of the other sign."""
    problem = kind(seed)
    cells = Cells(problem)
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(300, problem.network.inputs)) * 10.0 ** rng.uniform(-2, 1, size=(300, 1))
    steps = np.vstack([steps, [sign * norm_step(problem.norm, g) * t for g, t, sign in aimed(cells, rng)]])
    if problem.box is not None:
        steps = problem.box.clip(steps)
    length = problem.norm(steps)
    for cell in (cells.root, cells.first(np.zeros(problem.network.inputs))):
        below = cell.below
        values = steps @ below.G.T + below.z
        crossed = values * np.where(below.z >= 0, 1.0, -1.0) <= -1e-12
        nearest = np.where(crossed, length[:, None], math.inf).min(axis=0)
        assert (below.reach <= nearest * (1 + 1e-12)).all()


def norm_step(norm: Norm, g: Vector) -> Vector:
    return norm.steepest(g[None])[0]


def aimed(cells: Cells, rng: Generator) -> list[tuple[Vector, float, float]]:
    """The shortest way to each hyperplane, a little less and a little more of it, both directions."""
    G, z = cells.root.below.G, cells.root.below.z
    size = cells.problem.norm.dual(G)
    ways = [(g, abs(float(v)) / float(s)) for g, v, s in zip(G, z, size, strict=True) if s > 0]
    return [(g, t * stretch, sign) for g, t in ways for stretch in (1 - 1e-9, 1 + 1e-9) for sign in (-1.0, 1.0)] or [
        (rng.normal(size=cells.network.inputs), 1.0, 1.0)
    ]


def test_reach_by_hand() -> None:
    """From (0.3, -0.2) in l_inf: a = 0 is 0.3 away, b = 0 is 0.2 away, a + b = 0.5 is 0.4/2 away."""
    net = TestWalkingTheHierarchy.network
    free = Cells(robustness(net, [0.3, -0.2], "linf")).root.below
    assert free.reach == pytest.approx([0.3, 0.2, 0.2], rel=1e-12)
    boxed = Cells(robustness(net, [0.3, -0.2], "linf", domain=([0, -1], [1, -0.1]))).root.below
    # b stops at -0.1: b = 0 is out of reach (but for rounding), and for a + b = 0.5 a must go 0.3
    assert boxed.reach[[0, 2]] == pytest.approx([0.3, 0.3], rel=1e-12)
    assert boxed.reach[1] > 1e9


def test_a_constant_neuron_is_never_reached() -> None:
    net = Network.from_arrays([[[0.0], [1.0]], [[1.0, 1.0], [0.0, 0.0]]], [[0.0, 1.0], [1.0, 0.0]])
    below = Cells(robustness(net, [0.5])).root.below
    assert below.reach[0] == math.inf
    assert below.reach[1] == pytest.approx(1.5)


@KINDS
@given(seed=seeds)
def test_pruned_rows_hold_inside_the_ball(kind: Kind, seed: int) -> None:
    """Appendix C: a row that `region(U)` leaves out is satisfied by every point of the ball (and box) of radius U."""
    problem = kind(seed)
    cells = Cells(problem)
    U = float(np.random.default_rng(seed).uniform(0.05, 1.5))
    steps = steps_around(problem, seed)
    if problem.box is not None:
        steps = problem.box.clip(steps)
    steps = steps[problem.norm(steps) < U]
    for w in steps[:10]:
        A = cells.full(w)
        assert not A.beyond(U)
        whole, everything = A.region(math.inf)
        kept, ids = A.region(U)
        assert set(ids) <= set(everything)
        assert [j for layer, j in ids if layer == A.level] == np.flatnonzero(A.may_flip(U)).tolist()
        left_out = [i for i, name in enumerate(everything) if name not in ids]
        for v in steps:
            if inside(kept, v):
                assert (whole.residual(v)[left_out] <= 1e-9).all()


def test_beyond_sees_a_cell_on_the_wrong_side() -> None:
    """x = (0.3, -0.2); the pattern that asks for b >= 0 is at least 0.2 away, the others are not excluded."""
    cells = TestWalkingTheHierarchy.cells
    A = cells.first(np.zeros(2))
    B = A.flip(1, 1)
    assert not A.beyond(0.1)
    assert B.beyond(0.1)
    assert not B.beyond(0.21)
    assert A.may_flip(0.25).tolist() == [False, True, False]  # a + b = 0.5 is 0.4/sqrt 2 = 0.28 away


# -- rounding ---------------------------------------------------------------------------------------------------------


def exact_map(cell: Cell) -> tuple[list[list[Fraction]], list[Fraction]]:
    """The map of layer l+1 on the cell, z(x + w) = G w + z, in rational arithmetic."""
    network, x = cell.cells.network, [Fraction(float(v)) for v in cell.cells.problem.x]
    G = [[Fraction(int(i == j)) for j in range(len(x))] for i in range(len(x))]
    z = x
    for level in range(cell.level + 1):
        W = [[Fraction(float(v)) for v in row] for row in network.weights[level]]
        if level > 0:  # what the neurons that are off had to say is dropped
            on = cell.pattern[level - 1] > 0
            G = [row if keep else [Fraction(0)] * len(x) for row, keep in zip(G, on, strict=True)]
            z = [v if keep else Fraction(0) for v, keep in zip(z, on, strict=True)]
        z = [dot(row, z) + Fraction(float(b)) for row, b in zip(W, network.biases[level], strict=True)]
        columns = list(zip(*G, strict=True))
        G = [[dot(row, column) for column in columns] for row in W]
    return G, z


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@given(seed=seeds)
def test_margins_cover_the_rounding_of_composed_rows(norm: float, seed: int) -> None:
    """|computed - exact| <= slack + growth*||w|| for every layer of every pattern met, at points of any size."""
    rng = np.random.default_rng(seed)
    problem = badly_scaled(rng, norm)
    cells = Cells(problem)
    for _ in range(4):
        w = rng.normal(size=2) * 10.0 ** rng.uniform(-6, 6)
        length = Fraction(problem.norm.value(w)) * (1 + Fraction(1, 10**12))
        offsets = [Fraction(float(v)) for v in w]
        for cell in (cells.root, *cells.full(w).lineage()):
            below = cell.below
            G, z = exact_map(cell)
            for j, (row, value) in enumerate(zip(G, z, strict=True)):
                computed = dot([Fraction(float(v)) for v in below.G[j]], offsets) + Fraction(float(below.z[j]))
                true = dot(row, offsets) + value
                margin = Fraction(float(below.slack[j])) + Fraction(float(below.growth[j])) * length
                assert abs(computed - true) <= margin


@given(seed=seeds)
def test_a_point_of_the_true_region_passes_the_test_with_margins(seed: int) -> None:
    """`contains`, evaluated in float64, says yes for the pattern of rational arithmetic and for that of float64 [E8].

    Half of the points are put on a hyperplane, as a solver does with a face: there the two patterns often differ.
    """
    rng = np.random.default_rng(seed)
    problem = badly_scaled(rng, 2)
    cells = Cells(problem)
    for _ in range(5):
        w = rng.normal(size=2) * 10.0 ** rng.uniform(-6, 6)
        below = cells.full(w).lineage()[int(rng.integers(3))].below
        g, z = below.G[0], float(below.z[0])
        onto = w - (float(g @ w) + z) * g / float(g @ g) if g.any() else w
        for point in (w, onto):
            v = [Fraction(float(a)) + Fraction(float(b)) for a, b in zip(problem.x, point, strict=True)]
            for A in (cells.of(exact_pattern(problem.network, v)), cells.full(point)):
                region, _ = A.region(math.inf)
                assert region.contains(point, problem.norm.value(point))


@KINDS
@given(seed=seeds)
def test_unsafe_rows_are_the_clauses_margins(kind: Kind, seed: int) -> None:
    """On the region of x + w: A w - r = C f(x + w) - d."""
    problem = kind(seed)
    rng = np.random.default_rng(seed)
    cells = Cells(problem)
    k = problem.network.classes
    several = Clause(rng.normal(size=(3, k)), rng.normal(size=3))
    for clause in (*problem.clauses, several):
        for w in steps_around(problem, seed, 6):
            rows = cells.full(w).unsafe(clause)
            expected = clause.margins(problem.network(problem.x + w))
            assert rows.residual(w) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(seed=seeds)
def test_margins_cover_the_rounding_of_unsafe_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = badly_scaled(rng, math.inf)
    cells = Cells(problem)
    clause = Clause(rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-5, 5, size=(2, 2)), rng.normal(size=2))
    for _ in range(4):
        w = rng.normal(size=2) * 10.0 ** rng.uniform(-6, 6)
        offsets = [Fraction(float(v)) for v in w]
        length = Fraction(problem.norm.value(w))
        A = cells.full(w)
        rows = A.unsafe(clause)
        G, z = exact_map(A)
        f = [dot(row, offsets) + value for row, value in zip(G, z, strict=True)]
        for i in range(2):
            true = dot([Fraction(float(v)) for v in clause.C[i]], f) - Fraction(float(clause.d[i]))
            computed = dot([Fraction(float(v)) for v in rows.A[i]], offsets) - Fraction(float(rows.r[i]))
            margin = Fraction(float(rows.slack[i])) + Fraction(float(rows.growth[i])) * length
            assert abs(computed - true) <= margin


class TestPolyhedron:
    """w_1 <= 1 and w_1 + w_2 <= 2, with margins 0.1 and 0.01 a unit of length."""

    rows = Polyhedron(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, 2.0]), np.full(2, 0.1), np.full(2, 0.01))

    def test_contains_up_to_the_margin(self) -> None:
        assert self.rows.contains(np.array([1.1, 0.0]), 1.0)
        assert not self.rows.contains(np.array([1.12, 0.0]), 1.0)
        assert self.rows.contains(np.array([1.12, 0.0]), 2.0 + 1e-9)

    def test_residual_take_and_stack(self) -> None:
        assert self.rows.residual(np.array([2.0, 1.0])).tolist() == [1.0, 1.0]
        one = self.rows.take(np.array([1]))
        assert len(one) == 1 and one.r.tolist() == [2.0]
        both = one & self.rows
        assert len(both) == 3 and both.r.tolist() == [2.0, 1.0, 2.0]
        nothing = Polyhedron.everything(2)
        assert (self.rows & nothing) is self.rows
        assert len(nothing & self.rows) == 2
        assert Polyhedron.stack([self.rows]) is self.rows
