"""Exact means that the bounds meet: a large coordinate of x is no excuse for the others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert.attack.attack import is_noise


def question(seed: int) -> tuple[lc.Network, np.ndarray]:
    """Six inputs, the first of which is a time in milliseconds: 1.7e12, with weights of 1e-12."""
    rng, sizes = np.random.default_rng(seed), [6, 12, 12, 3]
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    biases = [rng.normal(size=m) * 0.3 for m in sizes[1:]]
    weights[0][:, 0] *= 1e-12
    x = rng.uniform(-1, 1, 6)
    x[0] = 1.7e12
    return lc.Network.from_arrays(weights, biases), x


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("options", [{}, {"fixed": [0]}])
def test_one_large_input_does_not_make_every_distance_exact(norm: str, options: dict[str, Any]) -> None:
    """1e-12 of it is more than any distance here: the first witness was taken for the nearest, and nothing proved."""
    for seed in range(4):
        net, x = question(seed)
        result = lc.measure(net, x, norm, **options)
        assert result.status == "exact" or (not options and result.status == "undecided")
        assert result.lower >= result.upper * (1 - (1e-6 if result.status == "exact" else 1e-3))


def test_a_large_weight_does_not_either() -> None:
    net, x = question(2)
    x[0] = 0.0
    plain = lc.measure(net, x, "linf", fixed=[0])
    weighted = lc.measure(net, x + np.eye(6)[0], "linf", weights=[1e30, 1, 1, 1, 1, 1])
    assert plain.status == weighted.status == "exact"
    assert weighted.lower >= weighted.upper * (1 - 1e-6) and weighted.upper == pytest.approx(plain.upper, rel=1e-5)


def test_beside_zero_nothing_is_noise() -> None:
    """No size says what rounding would be: a point is no witness of another one for being somewhere around x = 0."""
    assert not is_noise(np.zeros(2), np.array([1e-300, 0.0]))
    assert is_noise(np.array([1.0, 0.0]), np.array([1.0 + 1e-13, 1e-13]))
    assert not is_noise(np.array([1.7e12, 0.5]), np.array([1.7e12, 0.5 + 1e-11]))
