"""Networks: what is checked at the door, the forward pass, linear pieces, identity, points."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

import layercert as lc
from helpers.tiny import degenerate, generic, seeds
from layercert import network, rationals
from layercert.errors import InputError, ModelError
from layercert.network import Network
from layercert.problem import Problem

#: 2 inputs, 3 neurons, 2 classes
W0, b0 = [[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]], [0.0, -1.0, 2.0]
W1, b1 = [[1.0, 0.0, -1.0], [2.0, 1.0, 0.5]], [0.5, -0.5]
SMALL = Network.from_arrays([W0, W1], [b0, b1])


class TestFromArrays:
    def test_shapes_and_names(self) -> None:
        net = Network.from_arrays([W0, np.ones((4, 3)), np.ones((2, 4))], [b0, np.zeros(4), np.zeros(2)], "a.npz")
        assert (net.L, net.inputs, net.widths, net.neurons, net.classes) == (2, 2, (3, 4), 7, 2)
        assert repr(net) == "Network(2-3-4-2, from a.npz)"

    def test_float32_is_widened_without_change(self) -> None:
        tenth = np.float32(0.1)
        net = Network.from_arrays([np.array([[tenth]], dtype=np.float32)], [np.zeros(1, dtype=np.float32)])
        assert net.weights[0].dtype == np.float64
        assert net.weights[0][0, 0] == float(tenth) != 0.1

    @pytest.mark.parametrize(("weights", "biases"), [([], []), ([W0], []), ([W0, W1], [b0])])
    def test_as_many_matrices_as_biases(self, weights: list[object], biases: list[object]) -> None:
        with pytest.raises(ModelError, match=f"and at least one; got {len(weights)} and {len(biases)}"):
            Network.from_arrays(weights, biases)  # type: ignore[arg-type]

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_numbers_must_be_finite(self, bad: float) -> None:
        weights = np.array(W0)
        weights[2, 1] = bad
        with pytest.raises(ModelError, match=rf"weights\[0\] holds {bad} at \(2, 1\); weights must be finite"):
            Network.from_arrays([weights, W1], [b0, b1])
        with pytest.raises(ModelError, match=rf"biases\[1\] holds {bad} at \(1,\)"):
            Network.from_arrays([W0, W1], [b0, [0.0, bad]])

    @pytest.mark.parametrize("shape", [(3,), (), (1, 3, 2), (0, 2), (3, 0)])
    def test_a_weight_is_a_non_empty_matrix(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ModelError, match=r"weights\[0\] must be a non-empty matrix \(out, in\), got shape \("):
            Network.from_arrays([np.ones(shape)], [np.zeros(3)])

    def test_a_transposed_matrix_is_named(self) -> None:
        with pytest.raises(ModelError, match=r"biases\[0\] must have shape \(2,\) .* got \(3,\); is a matrix tra"):
            Network.from_arrays([np.transpose(W0), W1], [b0, b1])

    def test_layers_must_fit(self) -> None:
        with pytest.raises(ModelError, match=r"layer 1 expects 5 inputs, layer 0 produces 3; .*drop a Flatten\?"):
            Network.from_arrays([W0, np.ones((2, 5))], [b0, b1])

    @pytest.mark.parametrize("bad", ["text", [[1.0], [1.0, 2.0]], [[1j]], np.array([[1j]]), object(), [[10**400]]])
    def test_only_real_numbers(self, bad: object) -> None:
        with pytest.raises(ModelError, match=r"weights\[0\] must be an array of real numbers, got"):
            Network.from_arrays([bad], [[0.0]])  # type: ignore[list-item]


class TestImmutable:
    def test_the_callers_arrays_are_copied(self) -> None:
        mine = np.array(W0)
        net = Network.from_arrays([mine, W1], [b0, b1])
        before = net([1.0, 1.0])
        mine[:] = 0.0
        assert net([1.0, 1.0]).tolist() == before.tolist()

    def test_weights_cannot_be_written(self) -> None:
        for array in (*SMALL.weights, *SMALL.biases):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0
        with pytest.raises(AttributeError):
            SMALL.weights = ()  # type: ignore[misc]


class TestIdentity:
    def test_every_number_counts(self) -> None:
        arrays = [np.array(a) for a in (W0, W1, b0, b1)]
        seen = {SMALL.sha256}
        for array in arrays:
            for at in np.ndindex(array.shape):
                old = array[at]
                array[at] = np.nextafter(old, 10.0)
                seen.add(Network.from_arrays(arrays[:2], arrays[2:]).sha256)
                array[at] = old
        assert len(seen) == 1 + sum(a.size for a in arrays)
        assert Network.from_arrays(arrays[:2], arrays[2:], "elsewhere").sha256 == SMALL.sha256

    def test_shapes_count(self) -> None:
        """Six zeros as 2x3 and as 3x2."""
        assert (
            Network.from_arrays([np.zeros((2, 3))], [np.zeros(2)]).sha256
            != Network.from_arrays([np.zeros((3, 2))], [np.zeros(3)]).sha256
        )


class TestForward:
    def test_by_hand(self) -> None:
        # at (1, 1): z = (3, -1.5, 5), relu (3, 0, 5); f = (3 - 5 + 0.5, 6 + 2.5 - 0.5)
        assert SMALL([1.0, 1.0]).tolist() == [-1.5, 8.0]
        assert [z.tolist() for z in SMALL.preactivations(np.array([1.0, 1.0]))] == [[3.0, -1.5, 5.0]]
        assert SMALL.pattern(np.array([1.0, 1.0]))[0].tolist() == [1, -1, 1]

    @given(seed=seeds)
    def test_against_plain_numpy(self, seed: int) -> None:
        net, x = generic(seed).network, generic(seed).x
        h = x
        for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
            h = np.where((z := W @ h + b) > 0, z, 0.0)
        f = net.weights[-1] @ h + net.biases[-1]
        assert net(x) == pytest.approx(f, rel=1e-12, abs=1e-12)
        batch = np.stack([x, -x, x])
        assert net(batch) == pytest.approx(np.stack([net(v) for v in batch]), rel=1e-12, abs=1e-12)

    @given(seed=seeds)
    def test_rounding_error_against_rational_arithmetic(self, seed: int) -> None:
        """Weights over 16 orders of magnitude; `exact` is checked by hand below."""
        rng = np.random.default_rng(seed)
        weights = [rng.normal(size=(3, 3)) * 10.0 ** rng.uniform(-8, 8, size=(3, 3)) for _ in range(3)]
        net = Network.from_arrays(weights, [rng.normal(size=3) for _ in range(3)])
        v = rng.normal(size=3)
        error = net.forward_error(v)
        for computed, true, bound in zip(net(v), net.exact(v), error, strict=True):
            assert abs(Fraction(float(computed)) - true) <= Fraction(float(bound))
        size = np.abs(v)
        for W, b in zip(net.weights, net.biases, strict=True):
            size = np.abs(W) @ size + np.abs(b)
        assert (error <= 1e-14 * size).all()  # no wild guess: 1e-14 of the sum of all terms

    def test_a_tie_is_settled_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For the class of x, for its being a witness and for its being a tie: on 3072-1024-1024-10 half a second."""
        settled: list[int] = []
        monkeypatch.setattr(network, "forward", lambda *args: settled.append(1) or rationals.forward(*args))
        net = Network.from_arrays([[[1.0, 2.0], [1.0, 2.0]]], [[0.1, 0.1]])
        assert lc.measure(net, [0.3, 0.7]).upper == 0.0 and len(settled) == 1
        first, other = np.array([0.3, 0.7]), np.array([0.3, 0.8])
        assert net.exact(other) != net.exact(first) == net.exact(first.copy()) and len(settled) == 3
        assert net.exact(first).pop() and len(net.exact(first)) == 2
        assert vars(pickle.loads(pickle.dumps(net))).keys().isdisjoint({network.SETTLED})

    def test_exact_by_hand(self) -> None:
        # as above at (1, 1), and at the doubles nearest to 0.1: z = (0.3, -1.05, 2.3) times what they are
        tenth = Fraction(0.1)
        assert SMALL.exact(np.array([1.0, 1.0])) == [Fraction(-3, 2), Fraction(8)]
        f = SMALL.exact(np.array([0.1, 0.1]))
        assert f[0] == 3 * tenth - (3 * tenth + 2) + Fraction(1, 2)
        assert f[1] == 6 * tenth + (3 * tenth + 2) / 2 - Fraction(1, 2)

    def test_zero_counts_as_on(self) -> None:
        """Definition 3.5; z = (0, -1, 2) at the origin."""
        assert SMALL.pattern(np.zeros(2))[0].tolist() == [1, -1, 1]


@pytest.mark.parametrize("kind", [generic, degenerate])
@given(seed=seeds)
def test_linear_piece_is_the_network_on_its_region(kind: Callable[[int], Problem], seed: int) -> None:
    """Eq. (5)."""
    net, x = kind(seed).network, kind(seed).x
    for v in x + np.random.default_rng(seed).normal(size=(20, net.inputs)):
        F, f0 = net.linear_piece(net.pattern(v))
        assert F @ v + f0 == pytest.approx(net(v), rel=1e-9, abs=1e-9)


def test_linear_piece_by_hand() -> None:
    """With only neuron 2 on, f = (-(3b + 2) + 0.5, 0.5 (3b + 2) - 0.5) at (a, b)."""
    F, f0 = SMALL.linear_piece([np.array([-1, -1, 1], dtype=np.int8)])
    assert F.tolist() == [[0.0, -3.0], [0.0, 1.5]]
    assert f0.tolist() == [-1.5, 0.5]
    with pytest.raises(ValueError, match="zip"):
        SMALL.linear_piece([])


class TestPoint:
    def test_images_are_flattened(self) -> None:
        net = Network.from_arrays([np.ones((2, 6))], [np.zeros(2)])
        assert net.point(np.arange(6).reshape(1, 2, 3)).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]

    @pytest.mark.parametrize("shape", [(192,), (1, 192), (3, 8, 8), (1, 3, 8, 8), (3, 8, 8, 1)])
    def test_the_models_own_shape_is_taken(self, shape: tuple[int, ...]) -> None:
        net = replace(Network.from_arrays([np.ones((2, 192))], [np.zeros(2)]), input_shape=(1, 3, 8, 8))
        assert net.point(np.arange(192.0).reshape(shape)).tolist() == list(range(192))

    @pytest.mark.parametrize(("shape", "remedy"), [((8, 8, 3), "transpose"), ((3, 64), "reshape")])
    def test_another_shape_would_be_another_image(self, shape: tuple[int, ...], remedy: str) -> None:
        net = replace(Network.from_arrays([np.ones((2, 192))], [np.zeros(2)]), input_shape=(1, 3, 8, 8))
        text = rf"the input has shape \({', '.join(map(str, shape))}\), the network expects \(3, 8, 8\); {remedy} it"
        with pytest.raises(InputError, match=text):
            net.point(np.zeros(shape))

    def test_a_network_of_vectors_takes_grey_images_and_no_colours(self) -> None:
        for known in ((), (1, 48)):
            net = replace(Network.from_arrays([np.ones((2, 48))], [np.zeros(2)]), input_shape=known)
            assert net.point(np.arange(48.0).reshape(1, 6, 8)).tolist() == list(range(48))
            with pytest.raises(InputError, match=r"has shape \(4, 4, 3\), the network expects \(48,\); reshape it"):
                net.point(np.zeros((4, 4, 3)))

    def test_the_point_is_a_copy(self) -> None:
        mine = np.zeros(2)
        point = SMALL.point(mine)
        mine[0] = 7.0
        assert point.tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("x", [[1.0], [1.0, 2.0, 3.0], 5.0, []])
    def test_wrong_size(self, x: object) -> None:
        with pytest.raises(InputError, match=r"has \d numbers \(shape .*\), the network expects 2; pass one input"):
            SMALL.point(x)  # type: ignore[arg-type]

    def test_several_inputs_point_to_the_function_for_many(self) -> None:
        with pytest.raises(
            InputError, match=r"the network expects 2; these may be 2 inputs: lc\.measure_all takes many"
        ):
            SMALL.point(np.zeros((2, 2)))

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite(self, bad: float) -> None:
        with pytest.raises(InputError, match=f"the witness has {bad} at position 1; every entry must be a finite"):
            SMALL.point([0.0, bad], "witness")

    @pytest.mark.parametrize("bad", ["text", object(), [[1.0], [1.0, 2.0]], np.array([1j, 2.0])])
    def test_not_numbers(self, bad: object) -> None:
        with pytest.raises(InputError, match=f"must be an array of real numbers, got {type(bad).__name__}"):
            SMALL.point(bad)  # type: ignore[arg-type]
