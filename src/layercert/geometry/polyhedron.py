"""Polyhedra written from the input point x: {x + w : A w <= r}, with the rounding error of their rows.

Rows are computed in floating point from the weights, so the true row differs a little from the stored one. The true set
is inside {w : A w <= r + slack + growth*||w||}; every bound proved later is proved for this larger set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from layercert.arrays import Indices, Matrix, Vector


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """Rows A w <= r in offsets w from x, each with its rounding margin."""

    A: Matrix
    r: Vector
    slack: Vector
    growth: Vector

    @classmethod
    def stack(cls, parts: Sequence[Polyhedron]) -> Polyhedron:
        if len(parts) == 1:
            return parts[0]
        return Polyhedron(
            np.concatenate([p.A for p in parts]),
            np.concatenate([p.r for p in parts]),
            np.concatenate([p.slack for p in parts]),
            np.concatenate([p.growth for p in parts]),
        )

    @classmethod
    def everything(cls, n: int) -> Polyhedron:
        return Polyhedron(np.zeros((0, n)), np.zeros(0), np.zeros(0), np.zeros(0))

    def take(self, index: Indices) -> Polyhedron:
        return Polyhedron(self.A[index], self.r[index], self.slack[index], self.growth[index])

    def residual(self, w: Vector) -> Vector:
        """A w - r: a row is violated where this is positive."""
        return self.A @ w - self.r

    def contains(self, w: Vector, length: float) -> bool:
        """Is x + w inside, up to the rounding error of the rows (length = ||w||)?"""
        return bool((self.residual(w) <= self.slack + self.growth * length).all())

    def __len__(self) -> int:
        return len(self.r)

    def __and__(self, other: Polyhedron) -> Self | Polyhedron:
        return Polyhedron.stack([self, other]) if len(other) else self
