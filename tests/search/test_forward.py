"""Bounds from the inputs up: their lines in rational arithmetic, at points of the box and at its corners."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array

from helpers.boxes import exact_layers, random_net
from helpers.tiny import examples, seeds
from layercert.arrays import Vector
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.search.adaptive import forward
from layercert.search.adaptive.model import HI, LO, build


def line(coefficients: Vector, w: list[Fraction]) -> Fraction:
    return sum((Fraction(float(a)) * v for a, v in zip(coefficients, [*w, Fraction(1)], strict=True)), Fraction(0))


def asked(network: Network, rng: np.random.Generator, half: float, p: float = math.inf) -> Problem:
    x = rng.normal(size=network.inputs)
    sides = half * rng.random(network.inputs)
    clause = Clause(rng.normal(size=(2, network.classes)), rng.normal(size=2))
    return Problem(network, x, (clause,), Norm(p), domain=(x - sides, x + 0.7 * sides))


def points_of(problem: Problem, U: float, rng: np.random.Generator) -> list[Vector]:
    """Offsets inside box and ball: corners, and points in between."""
    assert problem.box is not None
    low, high = np.maximum(problem.box.lo, -U), np.minimum(problem.box.hi, U)
    raw = [np.where(rng.random(len(low)) < 0.5, low, high) for _ in range(6)]
    raw += [low + (high - low) * rng.random(len(low)) for _ in range(6)]
    sizes = [max(problem.norm.value(w), 1e-300) for w in raw]
    return [w * min(1.0, U * (1.0 - 1e-12) / size) for w, size in zip(raw, sizes, strict=True)]


@examples(20, 100)
@given(seeds)
def test_lines_hold_in_rationals(seed: int) -> None:
    """Both lines of every neuron, with their slips, at points whose pre-activations are known exactly."""
    rng = np.random.default_rng(seed)
    network = random_net(rng, 3, 6, 5, 4, 3)
    problem, U = (
        asked(network, rng, 10.0 ** rng.uniform(-3, 1), rng.choice([2.0, math.inf])),
        10.0 ** rng.uniform(-2, 1),
    )
    model, state = build(problem, U)
    room, forms = forward.room_of(model.box_lo, model.box_hi, U), None
    for k in range(network.L):
        part = slice(model.net.noff[k], model.net.noff[k + 1])
        forms = forward.into(forms, model, network, state, k, room)
        for w in points_of(problem, U, rng):
            offset = [Fraction(float(v)) for v in w]
            z = exact_layers(network, [Fraction(float(v)) + o for v, o in zip(problem.x, offset, strict=True)])[0]
            own = z[model.net.noff[k] : model.net.noff[k + 1]]
            for i, value in enumerate(own):
                slip = Fraction(float(forms.slip[i]))
                assert line(forms.lower[i], offset) - slip <= value <= line(forms.upper[i], offset) + slip
                assert state[LO, part][i] <= value <= state[HI, part][i]


def test_huge_numbers_narrow_nothing() -> None:
    """A form that overflows says nothing; the bounds that were known stay."""
    forms = forward.Forms(np.array([[1e308, 1e308]]), np.array([[1e308, 1e308]]), np.zeros(1))
    room = forward.room_of(np.array([-10.0]), np.array([10.0]), math.inf)
    lo, hi = forward.bounds_of(forms, room, np.array([-3.0]), np.array([4.0]))
    assert (lo[0], hi[0]) == (-3.0, 4.0)


def test_wide_networks_with_few_inputs_have_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """With forms the second layer's bounds are at least as good, and all together are better."""
    rng = np.random.default_rng(5)
    W = [rng.normal(size=(40, 2)), rng.normal(size=(30, 40)), rng.normal(size=(20, 30)), rng.normal(size=(2, 20))]
    W[1] *= rng.random(W[1].shape) < 0.2
    maps = [W[0], csr_array(W[1]), W[2], W[3]]
    network = Network.from_arrays(maps, [0.1 * rng.normal(size=len(w)) for w in W])
    problem = asked(network, rng, 0.5)
    assert not forward.is_suited(network)
    before = build(problem, 0.4)[1]
    monkeypatch.setattr(forward, "MANY_NEURONS", 50)
    assert forward.is_suited(network)
    after = build(problem, 0.4)[1]
    second, tiny = slice(40, 70), 1e-9  # the lines of later layers are others then
    assert (after[LO, second] >= before[LO, second] - tiny).all()
    assert (after[HI, second] <= before[HI, second] + tiny).all()
    assert (after[HI] - after[LO]).sum() < 0.95 * (before[HI] - before[LO]).sum()
    assert np.array_equal(build(problem, 0.4, played={})[1], before)  # certificates know nothing of forms
