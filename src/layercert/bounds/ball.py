"""The ball of radius U around x, cut by the domain box: how far a linear function can fall on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.problem import Problem


@dataclass(frozen=True, eq=False)
class Ball:
    """B_{p,U}(x) inside the domain."""

    problem: Problem
    U: float

    @property
    def radius(self) -> float:
        """U, or less where the whole domain is nearer."""
        return min(self.U, self.problem.reach)

    def fall(self, G: Matrix) -> Vector:
        """Upper bounds, rounded up, of max -g.w over the offsets w of the ball, a row of G each.

        The ball gives U*||g||_q and the box the sum of |g_i| times the room; the least of the two is taken (for l_inf
        both at once, coordinate by coordinate, which is exact).
        """
        norm, box, U = self.problem.norm, self.problem.box, self.radius
        up = 1.0 + gamma(G.shape[-1] + 32)
        if math.isinf(U):
            size = norm.dual(G)
            bound = np.where(size > 0, math.inf, 0.0)
        else:
            bound = U * norm.dual(G)
        if box is not None:
            room = np.minimum(box.room(G), U)
            with np.errstate(invalid="ignore"):
                by_room = np.where(G != 0, np.abs(G) * room, 0.0).sum(axis=-1)
            bound = np.minimum(bound, by_room)
        return np.asarray(bound * up)
