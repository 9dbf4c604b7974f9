"""Networks with two inputs to look at: the paper's Appendix A, and any network restricted to a plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from layercert.arrays import Matrix, Vector
from layercert.errors import InputError
from layercert.network import Network


def appendix_a() -> tuple[Network, Vector]:
    """The network of Appendix A and its input (-1, -1.25)."""
    weights = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [[1.0], [0.0]]]
    biases = [[0.0, 0.0], [-1.0], [0.0, 10.0]]
    return Network.from_arrays(weights, biases, source="Appendix A"), np.array([-1.0, -1.25])


@dataclass(frozen=True, eq=False)
class Plane:
    """The plane through three points, with orthonormal axes: v in R^2 stands for origin + axes @ v."""

    origin: Vector
    axes: Matrix  # (inputs, 2)

    @staticmethod
    def through(a: Vector, b: Vector, c: Vector) -> Plane:
        """Coordinates (0, 0) for a; b lies on the first axis."""
        first, second = b - a, c - a
        length = float(np.linalg.norm(first))
        if length > 0:
            first = first / length
            second = second - (second @ first) * first
        height = float(np.linalg.norm(second))
        if length == 0 or height <= 1e-12 * (1.0 + float(np.linalg.norm(c - a))):
            raise InputError("the three points lie on one line, so they span no plane; choose three others")
        return Plane(a, np.stack([first, second / height], axis=1))

    def restrict(self, network: Network) -> Network:
        """The network on the plane: again a ReLU network, of two inputs; its first layer is composed with the plane."""
        W, b = network.weights[0], network.biases[0]
        return Network.from_arrays(
            [W @ self.axes, *network.weights[1:]],
            [W @ self.origin + b, *network.biases[1:]],
            source=f"{network.source} on a plane",
        )

    def coordinates(self, point: Vector) -> Vector:
        return np.asarray((point - self.origin) @ self.axes)

    def point(self, v: ArrayLike) -> Vector:
        return np.asarray(self.origin + self.axes @ np.asarray(v, dtype=np.float64))
