"""The smallest proofs there are."""

from __future__ import annotations

import numpy as np

from layercert.arrays import Matrix
from layercert.certificate.steps import StepTree


def one_leaf(neurons: int, rows: int, alpha: Matrix | None = None) -> StepTree:
    """A tree of one leaf with one step: equal weights of the rows, and these lower slopes, 1 if they are left out."""
    none, no_numbers = np.zeros(0, np.int64), np.zeros(0)
    return StepTree(
        layer=np.zeros(1, np.int64), neuron=np.zeros(1, np.int64), steps=np.ones(1, np.int64),
        objective=np.zeros(1, np.int64), uses=np.zeros(1, np.int64), row=none, lam=no_numbers,
        mu=np.ones((1, rows)), alpha=np.ones((1, neurons)) if alpha is None else alpha, beta=np.zeros((1, neurons)),
        target=none, side=none, pull=no_numbers, slope_count=none, slope_at=none, slope=no_numbers,
        split_count=none, split_at=none, split=no_numbers,
    )  # fmt: skip
