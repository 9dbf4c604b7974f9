"""Binary heads: a classifier with a single output says class 1 where that output is above a threshold, else class 0.

As a network of two classes it has the outputs (threshold, f): class 1 is the larger one exactly where f > threshold,
and no weight changes. A Sigmoid at the end is monotone and left out: its threshold 0.5 is 0 in front of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from layercert.arrays import LinearMap, Vector
from layercert.errors import OptionError
from layercert.linear_maps import frozen, frozen_sparse


def is_sigmoid(dropped: str) -> bool:
    """Is the operation that a reader left out a Sigmoid? Its name begins with the operation's."""
    return dropped.lower().startswith("sigmoid")


def score_of(threshold: float, dropped: str, outputs: int) -> float:
    """The threshold of a network's own output, for one in the unit of the model's: a probability after a Sigmoid.

    The score whose sigmoid is that probability is rounded to float64; it is exact for 0.5.
    """
    if outputs > 1:
        raise OptionError(f"a threshold belongs to a network with one output, this one has {outputs}")
    if not is_finite(threshold):
        raise OptionError(f"the threshold must be a finite number, got {threshold!r:.60}")
    if not is_sigmoid(dropped):
        return float(threshold)
    if not 0.0 < threshold < 1.0:
        raise OptionError(
            f"the model ends in a Sigmoid, so its threshold is a probability between 0 and 1, got {threshold:g}"
        )
    return math.log(threshold) - math.log1p(-threshold)


def is_finite(value: object) -> bool:
    """Is it a number that float64 can hold?"""
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False


def after_sigmoid(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-score)) if score > -700 else 0.0


def two_rows(W: LinearMap, b: Vector, threshold: float) -> tuple[LinearMap, Vector]:
    """The last layer of the network with the outputs (threshold, f)."""
    bias = frozen(np.array([threshold, b[0]]), "the last bias")
    if isinstance(W, np.ndarray):
        return frozen(np.vstack([np.zeros_like(W), W]), "the last layer"), bias
    return frozen_sparse(vstack([csr_array(W.shape), W], format="csr"), "the last layer"), bias


@dataclass(frozen=True, eq=False)
class TwoScores:
    """A model's own runtime, whose one output is set beside the threshold (a probability after a Sigmoid)."""

    runtime: Callable[[Vector], Vector | None]
    threshold: float

    @property
    def name(self) -> str:
        return str(getattr(self.runtime, "name", "its runtime"))

    def __call__(self, v: Vector) -> Vector | None:
        outputs = self.runtime(v)
        return None if outputs is None or outputs.shape != (1,) else np.array([self.threshold, outputs[0]])
