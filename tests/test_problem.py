"""Problems: every argument is checked at the door, margins and boxes mean what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layercert as lc
from helpers.tiny import degenerate, generic, seeds
from layercert.errors import InputError, LayerCertError, OptionError
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem, robustness

# logits are (1 - t, t) for t >= 0: they cross at t = 0.5
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
# three classes, two inputs; the class is the largest of (a, b, 0.25)
THREE = Network.from_arrays([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[0.0, 0.0, 0.25]])


class TestChecks:
    @pytest.mark.parametrize("label", [-1, 2, 10])
    def test_label_out_of_range(self, label: int) -> None:
        with pytest.raises(
            InputError, match=f"label {label} is out of range: the network has 2 outputs, so labels are 0..1"
        ):
            robustness(LINE, [0.2], label=label)

    @pytest.mark.parametrize("label", [0.5, "1", math.nan, math.inf, [0], object()])
    def test_label_is_a_class_number(self, label: object) -> None:
        with pytest.raises(InputError, match="the label must be a class number, got "):
            robustness(LINE, [0.2], label=label)  # type: ignore[arg-type]

    def test_label_of_any_integer_type(self) -> None:
        for label in (1, 1.0, np.int64(1), np.float32(1.0)):
            assert robustness(LINE, [0.2], label=label).label == 1  # type: ignore[arg-type]

    @pytest.mark.parametrize("radius", [-0.1, -math.inf, math.nan])
    def test_radius_below_zero(self, radius: float) -> None:
        with pytest.raises(OptionError, match=f"the radius must be >= 0, got {radius:g}; leave it out"):
            robustness(LINE, [0.2], radius=radius)

    @pytest.mark.parametrize("radius", ["wide", [1.0, 2.0], 10**400])
    def test_radius_is_a_number(self, radius: object) -> None:
        with pytest.raises(OptionError, match="the radius must be a number >= 0 or None, got"):
            robustness(LINE, [0.2], radius=radius)  # type: ignore[arg-type]

    def test_no_radius_is_below_zero(self) -> None:
        assert math.copysign(1.0, robustness(LINE, [0.2], radius=-0.0).radius) == 1.0

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("norm", "a norm is 'l1', 'l2', 'linf' or a number p >= 1, got 1000"),
            ("domain", r"a domain is \(low, high\), two numbers or two arrays of 1 numbers, got"),
            ("weights", "a weight is a number > 0, got 1000"),
        ],
    )
    def test_whole_numbers_that_float64_cannot_hold(self, option: str, message: str) -> None:
        value = {"norm": 10**400, "domain": (-(10**400), 10**400), "weights": {0: 10**400}}[option]
        with pytest.raises(LayerCertError, match=message):
            robustness(LINE, [0.2], **{option: value})  # type: ignore[arg-type]

    def test_no_radius_is_infinite(self) -> None:
        assert robustness(LINE, [0.2]).radius == math.inf

    def test_inverted_domain(self) -> None:
        with pytest.raises(
            InputError, match=r"domain is empty: at position 1 low = 2 is above high = 1; swap the ends\?"
        ):
            robustness(THREE, [0.5, 0.5], domain=([0, 2], [1, 1]))

    def test_nan_in_the_domain(self) -> None:
        with pytest.raises(InputError, match="the domain holds NaN; give finite or infinite ends"):
            robustness(LINE, [0.2], domain=(0.0, math.nan))

    def test_input_outside_the_domain(self) -> None:
        with pytest.raises(InputError, match=r"outside the domain: x\[1\] = 1.5, allowed 0..1; scale the input"):
            robustness(THREE, [0.5, 1.5], domain=(0, 1))

    @pytest.mark.parametrize("domain", [(0,), (0, 1, 2), 5, ("a", "b"), ([0, 0, 0], [1, 1, 1]), (np.zeros(3), 1)])
    def test_domain_of_the_wrong_shape(self, domain: object) -> None:
        with pytest.raises(
            InputError, match=r"a domain is \(low, high\), two numbers or two arrays of 2 numbers, got"
        ) as e:
            robustness(THREE, [0.5, 0.5], domain=domain)  # type: ignore[arg-type]
        assert "\n" not in str(e.value)

    def test_a_domain_in_another_shape_than_the_models(self) -> None:
        net = replace(Network.from_arrays([np.ones((2, 12))], [np.zeros(2)]), input_shape=(1, 3, 2, 2))
        low, high = np.zeros(12), np.arange(12.0).reshape(3, 2, 2)
        found = robustness(net, np.zeros(12), domain=(low, high)).domain
        assert found is not None and found[1].tolist() == list(range(12))
        with pytest.raises(InputError, match=r"high end of the domain has shape \(2, 2, 3\), .* expects \(3, 2, 2\)"):
            robustness(net, np.zeros(12), domain=(low, high.transpose(1, 2, 0)))

    @pytest.mark.parametrize(
        ("x", "remedy"),
        [
            ([], "pass one input, in that shape"),
            ([0.2, 0.3], "these may be 2 inputs: lc.measure_all takes many"),
            (np.zeros((2, 1)), "these may be 2 inputs: lc.measure_all takes many"),
        ],
    )
    def test_input_of_the_wrong_shape(self, x: object, remedy: str) -> None:
        with pytest.raises(InputError, match=f"the network expects 1; {remedy}"):
            robustness(LINE, x)  # type: ignore[arg-type]

    def test_nan_input(self) -> None:
        with pytest.raises(InputError, match="the input has nan at position 0"):
            robustness(LINE, [math.nan])

    def test_norm(self) -> None:
        with pytest.raises(LayerCertError, match=r"l_p is a norm only for p >= 1, got p = 0\.5"):
            robustness(LINE, [0.2], norm=0.5)
        assert robustness(LINE, [0.2], norm=Norm(3.0)).norm == Norm(3.0)


class TestMargin:
    def test_own_class_is_the_default_label(self) -> None:
        p = robustness(THREE, [0.5, 0.1])
        assert p.label == 0
        assert [c.target for c in p.clauses] == [1, 2]

    def test_margin_is_the_least_gap_to_another_class(self) -> None:
        # logits (0.5, 0.1, 0.25): class 2 is 0.25 below
        p = robustness(THREE, [0.5, 0.1])
        assert p.margin(p.x) == 0.25
        assert p.violated(p.x) is None

    def test_a_tie_is_unsafe(self) -> None:
        p = robustness(THREE, [0.5, 0.1])
        tie = np.array([0.25, 0.1])
        assert p.margin(tie) == 0.0
        clause = p.violated(tie)
        assert clause is not None and clause.target == 2

    def test_the_worst_violated_clause_is_named(self) -> None:
        # logits (0, 0.6, 0.25): both others win, class 1 by more
        p = robustness(THREE, [0.5, 0.1])
        clause = p.violated(np.array([0.0, 0.6]))
        assert clause is not None and clause.target == 1
        assert p.margin(np.array([0.0, 0.6])) == -0.6

    def test_a_clause_of_several_rows_needs_all_of_them(self) -> None:
        """{f_0 <= 0.3 and f_1 <= 0.3}: at (0.5, 0.1) the first row misses by 0.2."""
        both = Clause(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0.3, 0.3]))
        p = Problem(THREE, np.array([0.5, 0.1]), (both,), Norm(2.0))
        assert p.margin(p.x) == pytest.approx(0.2)
        assert p.violated(p.x) is None
        assert p.violated(np.array([0.2, 0.1])) is both

    @pytest.mark.parametrize("kind", [generic, degenerate])
    @given(seed=seeds)
    def test_margin_says_unsafe_exactly_when_a_clause_holds(self, kind: Callable[[int], Problem], seed: int) -> None:
        p = kind(seed)
        for v in p.x + np.random.default_rng(seed).normal(size=(20, p.network.inputs)):
            f = p.network(v)
            other = max(f[j] for j in range(len(f)) if j != p.label)
            assert (p.margin(v) <= 0) == (p.violated(v) is not None) == (f[p.label] <= other)
            assert p.is_unsafe(v) == (p.margin(v) <= 0) or abs(p.margin(v)) < 1e-13

    def test_a_tie_up_to_rounding_is_decided_exactly(self) -> None:
        """The doubles 0.1 and 0.2 add up to the double 0.3 plus 2.8e-17 as real numbers, plus 5.6e-17 in float64.

        So class 0 is ahead of 0.3, and behind float64's own sum, where float64 sees a tie.
        """
        ahead = Network.from_arrays([[[0.1, 0.2], [0.0, 0.0]]], [[0.0, 0.3]])
        behind = Network.from_arrays([[[0.1, 0.2], [0.0, 0.0]]], [[0.0, 0.1 + 0.2]])
        ones = np.ones(2)
        assert not robustness(ahead, ones, label=0).is_unsafe(ones)
        assert robustness(behind, ones, label=0).is_unsafe(ones)
        assert not robustness(behind, ones, label=1).is_unsafe(ones)
        assert behind(ones)[0] == behind(ones)[1]
        # a second row that holds by far does not decide for the first
        both = Clause(np.array([[1.0, -1.0], [1.0, 0.0]]), np.array([0.0, 10.0]))
        assert not Problem(ahead, ones, (both,), Norm(2.0)).is_unsafe(ones)
        assert Problem(behind, ones, (both,), Norm(2.0)).is_unsafe(ones)

    def test_a_lead_that_is_rounding_only_is_none(self) -> None:
        """Class 0 is ahead in float64 and behind as a real number."""
        rng, ones, met = np.random.default_rng(0), np.ones(8), 0
        for _ in range(500):
            W = rng.normal(size=(2, 8))
            W[1, 7] += float(W[0].sum() - W[1].sum())  # a tie up to rounding
            net = Network.from_arrays([W], [np.zeros(2)])
            exact = net.exact(ones)
            if net(ones)[0] > net(ones)[1] and exact[0] < exact[1]:
                met += 1
                assert robustness(net, ones, label=0).is_unsafe(ones)
                assert robustness(net, ones, label=0).is_unsafe(ones, strict=True)
        assert met > 5


class TestDependsOnInput:
    """What zeros in the weights say; a neuron that is dead by its bias is the search's business."""

    def test_plain(self) -> None:
        assert robustness(LINE, [0.2]).depends_on_input()

    def test_constant_output(self) -> None:
        net = Network.from_arrays([np.ones((3, 2)), np.zeros((2, 3))], [np.zeros(3), [1.0, 0.0]])
        assert not robustness(net, [0.3, 0.4]).depends_on_input()

    def test_constant_first_layer(self) -> None:
        net = Network.from_arrays([np.zeros((3, 2)), np.ones((2, 3))], [np.ones(3), [1.0, 0.0]])
        assert not robustness(net, [0.3, 0.4]).depends_on_input()

    def test_layers_whose_live_parts_do_not_meet(self) -> None:
        """Neuron 0 sees the input, but only neuron 1 is read."""
        net = Network.from_arrays([[[1.0], [0.0]], [[0.0, 1.0], [0.0, -1.0]]], [[0.0, 1.0], [1.0, 0.0]])
        assert not robustness(net, [0.3]).depends_on_input()

    def test_a_partly_dead_network_depends(self) -> None:
        net = Network.from_arrays([[[1.0], [0.0]], [[1.0, 1.0], [0.0, -1.0]]], [[0.0, 1.0], [1.0, 0.0]])
        assert robustness(net, [0.3]).depends_on_input()

    def test_an_output_that_no_clause_reads(self) -> None:
        """Only class 2 moves; a property of the classes 0 and 1 does not feel it."""
        net = Network.from_arrays([[[0.0], [0.0], [1.0]]], [[1.0, 0.0, 0.0]])
        clause = Clause(np.array([[1.0, -1.0, 0.0]]), np.zeros(1))
        assert not Problem(net, np.zeros(1), (clause,), Norm(2.0)).depends_on_input()
        assert robustness(net, [0.0]).depends_on_input()

    def test_dead_by_its_bias(self) -> None:
        """The neuron is off up to t = 100 and the answer is there: f_0 - f_1 = 1 - relu(t - 100) is zero at 101."""
        net = Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[-100.0], [1.0, 0.0]])
        assert robustness(net, [0.0]).depends_on_input()
        assert lc.measure(net, [0.0]).upper == pytest.approx(101.0)


class TestBox:
    def test_offsets_from_x(self) -> None:
        """Zero where x is on an end; elsewhere one rounding wider than the difference, so that nothing is cut off."""
        box = robustness(THREE, [0.0, 0.3], domain=(0, 1)).box
        assert box is not None
        assert box.lo[0] == 0.0
        assert box.hi[0] == np.nextafter(1.0, 2.0)
        assert -0.3 > box.lo[1] > -0.3 - 1e-15
        assert 0.7 < box.hi[1] < 0.7 + 1e-15

    @given(x=st.floats(-1e3, 1e3), below=st.floats(0, 1e3), above=st.floats(0, 1e3))
    def test_the_box_holds_both_ends(self, x: float, below: float, above: float) -> None:
        """In exact arithmetic: lo <= low - x and high - x <= hi (compared as fractions)."""
        low, high = x - below, x + above
        box = robustness(LINE, [x], domain=(low, high)).box
        assert box is not None
        assert Fraction(float(box.lo[0])) <= min(Fraction(low) - Fraction(x), 0)
        assert Fraction(float(box.hi[0])) >= max(Fraction(high) - Fraction(x), 0)

    def test_a_point_domain(self) -> None:
        p = robustness(LINE, [0.2], domain=(0.2, 0.2))
        assert p.box is not None and p.reach == 0.0
        assert lc.measure(LINE, [0.2], domain=(0.2, 0.2)).status == "robust"

    def test_no_domain(self) -> None:
        p = robustness(LINE, [0.2])
        assert p.box is None and p.reach == math.inf
        assert p.into_domain(np.array([9.0])).tolist() == [9.0]

    @pytest.mark.parametrize("norm", ["l1", "l2", "linf", 3])
    def test_reach_is_the_farthest_corner(self, norm: str | float) -> None:
        p = robustness(THREE, [0.25, 0.5], norm, domain=(0, 1))
        assert p.reach == pytest.approx(np.linalg.norm([0.75, 0.5], Norm.of(norm).p), rel=1e-8)
        assert p.reach >= np.linalg.norm([0.75, 0.5], Norm.of(norm).p)

    @pytest.mark.parametrize("norm", ["l1", "l2", "linf", 3])
    @pytest.mark.parametrize("domain", [(0.0, math.inf), (-math.inf, math.inf), (-math.inf, 0.6)])
    def test_open_ends(self, norm: str | float, domain: tuple[float, float]) -> None:
        p = robustness(LINE, [0.2], norm, domain=domain)
        assert p.reach == math.inf
        assert lc.measure(LINE, [0.2], norm, domain=domain).upper == pytest.approx(0.3)

    def test_a_domain_of_arrays_and_its_clip(self) -> None:
        p = robustness(THREE, [0.25, 0.5], domain=([0.0, 0.4], [0.5, 0.6]))
        assert p.into_domain(np.array([0.9, 0.1])).tolist() == [0.5, 0.4]

    def test_the_callers_arrays_are_copied(self) -> None:
        low, x = np.zeros(2), np.array([0.25, 0.5])
        p = robustness(THREE, x, domain=(low, 1.0))
        low[:], x[:] = -9.0, 7.0
        assert p.domain is not None and p.domain[0].tolist() == [0.0, 0.0]
        assert p.x.tolist() == [0.25, 0.5]


def test_within_changes_the_radius_alone() -> None:
    p = robustness(LINE, [0.2], "l2", radius=1.0, domain=(0, 1))
    q = p.within(0.5)
    assert (q.radius, p.radius) == (0.5, 1.0)
    assert q.network is p.network and q.norm == p.norm and q.label == p.label


def test_an_unsafe_input_is_not_robust_at_radius_zero() -> None:
    """At 0.9 the class is 1: as label 0 the distance is zero, which is within any radius, zero included."""
    assert lc.measure(LINE, [0.9], label=0, radius=0).status == "exact"
    assert lc.verify(LINE, [0.9], 0, label=0).status == "not_robust"
    assert lc.measure(LINE, [0.2], radius=0).status == "robust"
    assert lc.verify(LINE, [0.2], 0).status == "robust"
