"""Certificates of networks with whole numbers, where neurons are exactly zero: balls and floats see other sides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import layercert as lc
from layercert.network import Network


def whole_numbers(seed: int) -> tuple[Network, np.ndarray]:
    """A network of weights, biases and an input rounded to whole numbers."""
    rng = np.random.default_rng(seed)
    inputs, depth = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    sizes = [inputs, *(int(rng.integers(2, 8)) for _ in range(depth)), int(rng.integers(2, 4))]
    W = [np.round(rng.normal(size=(m, n))) for n, m in itertools.pairwise(sizes)]
    b = [np.round(0.5 * rng.normal(size=m)) for m in sizes[1:]]
    rng.integers(0, 5)
    return Network.from_arrays(W, b), np.round(rng.normal(size=inputs))


@pytest.mark.parametrize(
    ("seed", "norm", "domain"),
    [(47, 3.0, None), (101, math.inf, 1.0)],  # two of 182 random certificates that balls did not follow
)
def test_balls_follow_what_floats_close_by_a_hair(seed: int, norm: float, domain: float | None) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    net, x = whole_numbers(seed)
    box = None if domain is None else (np.minimum(x, -domain), np.maximum(x, domain))
    r = lc.measure(net, x, norm, domain=box, certificate=True, method="adaptive")
    assert r.status == "exact" and r.certificate is not None and r.certificate.radius > 0
    assert lc.check(net, r.certificate).ok
    report = lc.check(net, r.certificate, exact=True)
    assert report.ok, report.reason
