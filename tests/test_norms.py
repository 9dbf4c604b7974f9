"""Norms: what a user may write, duality, and distances to halfspaces against 30-digit and linear-program references."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from helpers.profiles import examples
from layercert.arrays import Matrix, Vector
from layercert.errors import LayerCertError, OptionError
from layercert.network import Network
from layercert.norms import Box, Norm
from layercert.problem import robustness
from layercert.rationals import float_below
from layercert.search.adaptive.model import build

P = [1.0, 1.5, 2.0, 3.0, 10.0, math.inf]


class TestWhatAUserWrites:
    @pytest.mark.parametrize(
        ("given", "p", "name"),
        [
            ("l1", 1.0, "l1"),
            (" L2 ", 2.0, "l2"),
            ("linf", math.inf, "linf"),
            ("inf", math.inf, "linf"),
            ("l1.5", 1.5, "l1.5"),
            ("3", 3.0, "l3"),
            (1, 1.0, "l1"),
            (np.float32(2.5), 2.5, "l2.5"),
            (math.inf, math.inf, "linf"),
        ],
    )
    def test_names_and_numbers(self, given: str | float, p: float, name: str) -> None:
        norm = Norm.of(given)
        assert (norm.p, norm.name) == (p, name)
        assert Norm.of(norm) is norm

    @given(p=st.floats(1.0, 1e6))
    def test_the_name_gives_the_same_norm_back(self, p: float) -> None:
        """The name is what a stored result says about its norm: no digit may be lost."""
        assert Norm.of(Norm(p).name) == Norm(p)

    @pytest.mark.parametrize("given", [0.5, "l0.5", 0, -1, "l-2", math.nan, "nan", -math.inf])
    def test_below_one_there_is_no_norm(self, given: str | float) -> None:
        with pytest.raises(OptionError, match=r"l_p is a norm only for p >= 1, got p = .*; use 'l1', 'l2', 'linf'"):
            Norm.of(given)

    @pytest.mark.parametrize("given", ["euclid", "l", "", "ll2", "l2 norm"])
    def test_a_text_that_is_no_norm(self, given: str) -> None:
        with pytest.raises(
            OptionError, match=f"unknown norm {given!r}; expected 'l1', 'l2', 'linf' or a number p >= 1"
        ):
            Norm.of(given)

    @pytest.mark.parametrize("given", [None, [1, 2], object()])
    def test_something_else(self, given: object) -> None:
        with pytest.raises(LayerCertError, match=r"a norm is 'l1', 'l2', 'linf' or a number p >= 1, got "):
            Norm.of(given)  # type: ignore[arg-type]


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    """1-6 entries, some zero, within a factor 30 of one another, at a scale from 1e-8 to 1e8."""
    entries = draw(
        st.lists(st.one_of(st.just(0.0), st.floats(0.1, 3.0), st.floats(-3.0, -0.1)), min_size=1, max_size=6)
    )
    return np.array(entries) * 10.0 ** draw(st.integers(-8, 8))


@pytest.mark.parametrize("p", P)
class TestDuality:
    @given(v=vectors())
    def test_the_value_is_numpys(self, p: float, v: Vector) -> None:
        assert Norm(p).value(v) == pytest.approx(np.linalg.norm(v, p), rel=1e-14)
        assert Norm(p)(np.stack([v, 2 * v])) == pytest.approx(np.linalg.norm([v, 2 * v], p, axis=1), rel=1e-14)

    @given(g=vectors())
    def test_steepest_direction_attains_the_dual_norm(self, p: float, g: Vector) -> None:
        norm = Norm(p)
        w = norm.steepest(g[None])[0]
        assert float(g @ w) == pytest.approx(float(norm.dual(g)), rel=1e-13)
        assert norm.value(w) == pytest.approx(1.0 if g.any() else 0.0, rel=1e-13)

    @given(g=vectors(), seed=st.integers(0, 2**32 - 1))
    def test_no_unit_vector_does_better(self, p: float, g: Vector, seed: int) -> None:
        """Hoelder: g.w <= ||g||_q ||w||_p."""
        W = np.random.default_rng(seed).normal(size=(50, len(g)))
        assert (W @ g <= Norm(p).dual(g) * Norm(p)(W) * (1 + 1e-13)).all()

    def test_dual_exponent(self, p: float) -> None:
        q = Norm(p).q
        assert 1.0 / p + 1.0 / q == pytest.approx(1.0)

    def test_no_overflow_and_no_underflow(self, p: float) -> None:
        """1e200 and 1e-200 have squares outside float64's range."""
        for scale in (1e200, 1e-200):
            assert Norm(p).value(np.array([3.0, 4.0]) * scale) / scale == pytest.approx(np.linalg.norm([3, 4], p))

    def test_an_infinite_entry(self, p: float) -> None:
        """The size of a box with an open side."""
        assert Norm(p).value(np.array([1.0, math.inf])) == math.inf
        assert Norm(p)(np.array([[0.0, math.inf], [0.0, 2.0]])).tolist() == [math.inf, 2.0]


@st.composite
def halfspaces(draw: st.DrawFn) -> tuple[Vector, float, Box]:
    """g, s and a box with open, closed and zero sides, each at its own scale; s from far too little to far too much."""
    g = draw(vectors())
    scale = 10.0 ** draw(st.integers(-8, 8))
    side = st.one_of(st.sampled_from([0.0, math.inf]), st.floats(0.01, 2.0))
    lo, hi = (np.array([draw(side) for _ in g]) * scale for _ in "lh")
    box = Box(-lo, hi)
    room = box.room(g)
    capacity = float(np.abs(g) @ np.where(np.isfinite(room), room, scale))
    return g, capacity * draw(st.sampled_from([0.0, 1e-6, 0.1, 0.5, 0.9, 0.999, 1.0, 1.1, 3.0])), box


def true_distance(p: float, g: Vector, s: float, box: Box | None, drift: float = 0.0) -> Decimal:
    """The distance from 0 to {w in the box : g.w - drift*||w|| <= -s}, to about 30 digits.

    Moving against g with |w_i| = u_i gains |g|.u. The most that ||u|| = t can gain has u = min(room, tau*|g|^(q-1)) for
    some tau (p > 1), or the largest |g_i| filled first (p = 1, where tau is taken as the sum already spent). The gain
    grows with tau, so bisection finds the least tau that makes up for s. Beyond the corner of the box only the drift
    can help, as long as the box has any room at all.
    """
    inf = Decimal("Infinity")
    size = [abs(Decimal(float(v))) for v in g]
    room = [inf] * len(size) if box is None else [Decimal(float(v)) for v in box.room(g)]
    farthest = inf if box is None else length([Decimal(float(v)) for v in np.maximum(-box.lo, box.hi)], p)
    need, slope = Decimal(s), Decimal(drift)
    if need <= 0:
        return Decimal(0)
    if p == 1.0:
        order = sorted(range(len(size)), key=lambda i: -size[i])
    else:
        power = Decimal(0) if math.isinf(p) else 1 / (Decimal(p) - 1)
        unit = [v**power if v else Decimal(0) for v in size]

    def moved(tau: Decimal) -> list[Decimal]:
        if p > 1.0:
            return [min(r, tau * v) if v else Decimal(0) for r, v in zip(room, unit, strict=True)]
        u, left = [Decimal(0)] * len(size), tau
        for i in order:
            u[i] = min(room[i], left) if size[i] else Decimal(0)
            left -= u[i]
        return u

    def gain(u: list[Decimal]) -> Decimal:
        spent = slope * length(u, p) if slope else Decimal(0)
        return sum((a * b for a, b in zip(size, u, strict=True)), spent)

    high = Decimal(1)
    while gain(moved(high)) < need:
        high *= 16
        if high > Decimal("1e60"):  # every coordinate is full
            corner = moved(high)
            short = need - gain(corner)
            t = length(corner, p) + short / slope if slope else inf
            return t if t <= farthest else inf
    low = Decimal(0)
    while high - low > high * Decimal("1e-30"):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(moved(middle)) >= need else (middle, high)
    return length(moved(high), p)


def length(u: list[Decimal], p: float) -> Decimal:
    if math.isinf(p):
        return max(u)
    # p is a multiple of 1/2 here: roots are cheaper than powers
    total = sum(((v ** int(2 * p)).sqrt() for v in u if v), Decimal(0))
    return total.sqrt() if p == 2.0 else total ** (1 / Decimal(p))


@pytest.fixture(autouse=True)
def many_digits() -> object:
    with localcontext() as context:
        context.prec = 36
        yield context


@pytest.mark.parametrize("p", P)
class TestHalfspace:
    @given(case=halfspaces())
    def test_distance_and_nearest_point_in_a_box(self, p: float, case: tuple[Vector, float, Box]) -> None:
        g, s, box = case
        norm = Norm(p)
        distance, w = norm.halfspace(g, s, box)
        true = float(true_distance(p, g, s, box))
        if math.isinf(true):
            # at the corner itself the answer may go either way
            assert math.isinf(distance) or s <= whole_box(g, box) * (1 + 1e-11)
            return
        assert distance == pytest.approx(true, rel=1e-11)
        assert (w >= box.lo).all() and (w <= box.hi).all()
        assert float(g @ w) <= -s * (1 - 1e-11)
        assert norm.value(w) == pytest.approx(distance, rel=1e-13)

    @given(g=vectors(), s=st.floats(1e-6, 1e6))
    def test_without_a_box(self, p: float, g: Vector, s: float) -> None:
        distance, w = Norm(p).halfspace(g, s)
        if not g.any():
            assert distance == math.inf
            return
        assert distance == pytest.approx(s / float(Norm(p).dual(g)), rel=1e-13)
        assert float(g @ w) == pytest.approx(-s, rel=1e-12)

    def test_x_inside_is_at_distance_zero(self, p: float) -> None:
        for box in (None, Box(np.array([-1.0]), np.array([1.0]))):
            distance, w = Norm(p).halfspace(np.array([2.0]), -0.5, box)
            assert (distance, w.tolist()) == (0.0, [0.0])

    @given(case=halfspaces(), drift=st.sampled_from([0.0, 1e-13, 1e-12]))
    @examples(60)
    def test_proved_bound_is_below_and_close(self, p: float, case: tuple[Vector, float, Box], drift: float) -> None:
        """`drift` as small as the rounding errors that it stands for: relative to ||g||."""
        g, s, box = case
        drift *= float(Norm(p).dual(g))
        bound = prove(p, g, s, box, drift)
        true = true_distance(p, g, s, box, drift)
        assert Decimal(bound) <= true
        if true.is_finite():
            assert bound >= float(true) * (1 - 1e-9)
        elif s > whole_box(g, box) * (1 + 1e-9):  # by more than a rounding: proved to be outside the box
            assert bound > Norm(p).value(np.maximum(-box.lo, box.hi)) or bound == math.inf

    @given(case=halfspaces(), drift=st.floats(0.01, 2.0))
    def test_a_large_drift_never_lifts_the_bound_above_the_truth(
        self, p: float, case: tuple[Vector, float, Box], drift: float
    ) -> None:
        g, s, box = case
        drift *= float(np.abs(g).max(initial=1e-9))
        assert Decimal(prove(p, g, s, box, drift)) <= true_distance(p, g, s, box, drift)

    @given(case=halfspaces(), drift=st.sampled_from([0.0, 1e-13, 1e-3, 0.5]), over=st.sampled_from([0.0, 1e-12, 0.1]))
    def test_the_kernel_of_the_adaptive_search(
        self, p: float, case: tuple[Vector, float, Box], drift: float, over: float
    ) -> None:
        """The same bound in compiled code; also where the box falls short of s by no more than the drift."""
        from layercert.search.adaptive.halfspace import distance

        g, s, box = case
        drift *= float(Norm(p).dual(g))
        s += over * drift * min(Norm(p).value(np.maximum(-box.lo, box.hi)), 1.0)
        n = len(g)
        net = Network.from_arrays([np.ones((1, n)), np.ones((2, 1))], [np.zeros(1), np.zeros(2)])
        model = build(robustness(net, np.zeros(n), p, domain=(box.lo, box.hi)), 1.0)[0]
        bound, true = float(distance(g, s, drift, model, np.empty(n))), true_distance(p, g, s, box, drift)
        assert Decimal(bound) <= true
        if drift <= 1e-13 * float(Norm(p).dual(g)) and s < whole_box(g, box) * (1 - 1e-9):  # not in the last corner
            assert bound >= float(true) * (1 - 1e-9)

    @pytest.mark.parametrize("domain", [None, (-1.0, 1.0)])
    def test_the_kernel_proves_nothing_by_what_is_no_number(self, p: float, domain: tuple[float, float] | None) -> None:
        """Multipliers of a solver may be anything."""
        from layercert.search.adaptive.halfspace import distance

        net = Network.from_arrays([np.ones((1, 2)), np.ones((2, 1))], [np.zeros(1), np.zeros(2)])
        model = build(robustness(net, np.zeros(2), p, domain=domain), 1.0)[0]
        assert 0.0 < distance(np.ones(2), 0.5, 0.0, model, np.empty(2)) < 1.0
        for g, s, drift in (
            (np.nan, 1.0, 0.0),
            (np.inf, 1.0, 0.0),
            (1.0, np.nan, 0.0),
            (1.0, np.inf, 0.0),
            (1.0, 1.0, np.nan),
        ):
            assert distance(np.array([1.0, g]), s, drift, model, np.empty(2)) == 0.0

    @given(g=vectors(), s=st.floats(1e-8, 1e8), drift=st.sampled_from([0.0, 1e-9, 0.5]))
    def test_proved_bound_without_a_box(self, p: float, g: Vector, s: float, drift: float) -> None:
        drift *= float(Norm(p).dual(g))
        bound = prove(p, g, s, None, drift)
        if not g.any():
            assert bound == math.inf
            return
        true = true_distance(p, g, s, None, drift)
        assert Decimal(bound) <= true
        assert bound >= float(true) * (1 - 1e-12)

    def test_rows_are_answered_one_by_one(self, p: float) -> None:
        """From 0 with room 1 in both coordinates: 2a + b >= 1 needs a step, 0 >= 1 is in vain, 2a + b >= -1 is so."""
        g = np.array([[-2.0, -1.0], [0.0, 0.0], [-2.0, -1.0]])
        box = Box(np.zeros(2), np.ones(2))
        bound = Norm(p).prove_halfspace(g, np.array([1.0, 1.0, -1.0]), box)
        assert bound[1:].tolist() == [math.inf, 0.0]
        assert bound[0] == pytest.approx(1.0 / float(Norm(p).dual(g[0])), rel=1e-12)


def whole_box(g: Vector, box: Box) -> float:
    """What |g|.u can be at most."""
    return float(np.where(g != 0, np.abs(g) * np.where(g != 0, box.room(g), 0.0), 0.0).sum())


def prove(p: float, g: Vector, s: float, box: Box | None, drift: float) -> float:
    return float(Norm(p).prove_halfspace(g[None], np.array([s]), box, drift)[0])


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 50.0, math.inf])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_the_corner_of_the_box(p: float, scale: float) -> None:
    """The least s that needs the whole box: the bound must not collapse there, though rounding eats the numerator.

    Sides 1/3, 0.1 and 0.7 (times the scale) and slopes 3, 1 and -7 round differently in almost every product.
    """
    g, sides = np.array([3.0, 1.0, -7.0]), np.array([1 / 3, 0.1, 0.7]) * scale
    box = Box(-sides, sides)
    s = float(np.abs(g) @ sides)
    distance = Norm(p).value(sides)
    for nearly in (s, np.nextafter(s, 0.0), s * (1 - 1e-15)):
        bound = prove(p, g, float(nearly), box, 0.0)
        true = true_distance(p, g, float(nearly), box)
        assert Decimal(bound) <= true
        assert bound >= distance * (1 - 1e-9)
    assert prove(p, g, s * (1 + 1e-9), box, 0.0) == math.inf


def lp_distance(p: float, g: Vector, s: float, box: Box) -> float:
    """p = 1 and inf as a linear program over (w, sizes)."""
    n = len(g)
    sizes = 1 if math.isinf(p) else n
    column = np.ones((n, 1)) if math.isinf(p) else np.eye(n)
    rows = np.vstack([np.hstack([np.eye(n), -column]), np.hstack([-np.eye(n), -column]), np.append(g, np.zeros(sizes))])
    bounds = [*zip(box.lo, box.hi, strict=True), *[(0, None)] * sizes]
    answer = linprog(np.append(np.zeros(n), np.ones(sizes)), rows, np.append(np.zeros(2 * n), -s), bounds=bounds)
    return float(answer.fun) if answer.success else math.inf


def slsqp_distance(p: float, g: Vector, s: float, box: Box) -> float:
    start = box.clip(-np.sign(g) * 0.5)
    answer = minimize(
        lambda w: float((np.abs(w) ** p).sum()),
        start,
        bounds=list(zip(box.lo, box.hi, strict=True)),
        constraints={"type": "ineq", "fun": lambda w: -s - float(g @ w), "jac": lambda w: -g},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return float(np.linalg.norm(answer.x, p))


@pytest.mark.parametrize("p", [*P[:-2], math.inf])
def test_against_solvers_that_share_no_idea_with_the_formula(p: float) -> None:
    """Three coordinates whose room runs out at different times; s from 20 % to 95 % of what the box allows."""
    rng = np.random.default_rng(7)
    for fraction in (0.2, 0.5, 0.8, 0.95):
        g = rng.normal(size=3)
        box = Box(-rng.uniform(0.05, 1.0, 3), rng.uniform(0.05, 1.0, 3))
        s = fraction * float(np.abs(g) @ box.room(g))
        reference = (lp_distance if p in (1.0, math.inf) else slsqp_distance)(p, g, s, box)
        assert Norm(p).halfspace(g, s, box)[0] == pytest.approx(reference, rel=1e-5)


def test_room_and_clip_of_a_box() -> None:
    box = Box(np.array([-1.0, -2.0]), np.array([3.0, 4.0]))
    g: Matrix = np.array([[1.0, -1.0], [-1.0, 0.0]])
    assert box.room(g).tolist() == [[1.0, 4.0], [3.0, 4.0]]  # against the sign of g
    assert box.clip(np.array([-5.0, 5.0])).tolist() == [-1.0, 4.0]


class TestDistanceUp:
    """The least float64 that is not below the true distance of two points."""

    @staticmethod
    def power_sum(x: np.ndarray, v: np.ndarray, p: int) -> Fraction:
        moved = (abs(Fraction(b) - Fraction(a)) for a, b in zip(x.tolist(), v.tolist(), strict=True))
        return sum((m**p for m in moved), Fraction(0))

    @pytest.mark.parametrize("p", [1, 2, 3, 7])
    @pytest.mark.parametrize("scale", [1e-320, 1e-160, 1.0, 1e150])
    def test_whole_p_is_the_least_float_above(self, p: int, scale: float) -> None:
        rng = np.random.default_rng(p)
        for _ in range(20):
            x = scale * rng.normal(size=4)
            v = x + scale * rng.normal(size=4) * 10.0 ** rng.uniform(-20, 2)
            d, true = Norm(float(p)).distance_up(x, v), self.power_sum(x, v, p)
            assert Fraction(d) ** p >= true
            assert d == 0 or Fraction(math.nextafter(d, 0.0)) ** p < true

    def test_differences_are_exact(self) -> None:
        """From 0.1 to -1e-20 is more than 0.1, and float64's difference is 0.1."""
        x, v = np.array([0.1]), np.array([-1e-20])
        for p in (1.0, 1.5, 2.0, 3.0, math.inf):
            assert Norm(p).distance_up(x, v) == math.nextafter(0.1, 1.0)
        assert Norm(2.0).distance_up(x, x) == 0.0

    def test_lengths_that_are_floats_stay_what_they_are(self) -> None:
        zero = np.zeros(3)
        assert Norm(2.0).distance_up(zero, np.array([3.0, 4.0, 0.0])) == 5.0
        assert Norm(3.0).distance_up(zero, np.array([3.0, -4.0, 5.0])) == 6.0
        assert Norm(1.0).distance_up(zero, np.array([0.5, 0.25, -0.25])) == 1.0
        assert Norm(1.5).distance_up(zero, np.array([0.0, 0.3, 0.0])) == 0.3

    @pytest.mark.parametrize("p", [1.0 + 1e-9, 1.5, 2.7, 65.0, 1e5, 1e300])
    def test_any_other_p(self, p: float) -> None:
        flint = pytest.importorskip("flint", reason="python-flint is not installed; pip install 'layercert[exact]'")
        rng = np.random.default_rng(3)
        with flint.ctx.workprec(300):
            for scale in (1e-320, 1e-100, 1.0, 1e200):
                x, v = scale * rng.normal(size=(2, 5))
                d = Norm(p).distance_up(x, v)
                moved = [abs(Fraction(b) - Fraction(a)) for a, b in zip(x.tolist(), v.tolist(), strict=True)]
                top = max(moved)
                shares = [flint.arb((m / top).numerator) / (m / top).denominator for m in moved if m]
                total = sum((s ** flint.arb(p) for s in shares), flint.arb(0))
                true = flint.arb(top.numerator) / top.denominator * total ** (1 / flint.arb(p))
                assert not flint.arb(d) < true
                assert not flint.arb(math.nextafter(d, 0.0)) >= true

    def test_beyond_all_floats(self) -> None:
        assert Norm(1.0).distance_up(np.full(2, -1e308), np.full(2, 1e308)) == math.inf
        assert Norm(2.0).distance_up(np.zeros(1), np.array([math.inf])) == math.inf


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("p", [1.0, 1.01, 1.5, 2.0, 7.3, math.inf])
def test_halfspaces_of_any_scale_warn_of_nothing_and_stay_true(p: float) -> None:
    """Rooms of 1e300 beside rows of 1e-300: what overflows makes a bad split, not a false one."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = int(rng.integers(1, 4))
        g = rng.normal(size=n) * 10.0 ** rng.uniform(-300, 70, n)
        lo, hi = -(10.0 ** rng.uniform(-300, 300, n)), 10.0 ** rng.uniform(-300, 300, n)
        w = np.clip(rng.normal(size=n) * 10.0 ** rng.uniform(-200, 200), lo, hi)
        reached = -sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(g, w, strict=True))
        if not 0 < reached < 10**300:
            continue
        s = float_below(reached)  # so w is in {g.w <= -s}, and no bound may be above its length
        bound = float(Norm(p).prove_halfspace(g[None], np.array([s]), Box(lo, hi))[0])
        assert bound <= Norm(p).distance_up(np.zeros(n), w) * (1 + 1e-12)
