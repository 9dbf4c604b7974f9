"""The ball of radius U around x, cut by the domain box: how far a linear function can fall on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.problem import Problem

#: Steps towards the best split between ball and box.
_SPLITS = 4


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
        """Upper bounds, rounded up, of max -g.w over the offsets w of the ball, one per row of G.

        For every split |g| = g1 + g2 into parts >= 0 this is at most U*||g1||_q + g2.room. The ball alone (g2 = 0), the
        box alone (g1 = 0; exact for l_inf) and, for 1 < p < inf, a few steps towards the best split are tried.
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
            if 1.0 < norm.p < math.inf and math.isfinite(U):
                bound = np.minimum(bound, self._shared(np.abs(G), room))
        return np.asarray(bound * up)

    def _shared(self, size: Matrix, room: Matrix) -> Vector:
        """The split g1 = min(|g|, mu room^(p-1)), best where mu = ||g1||_q / U^(p-1); any mu is sound."""
        norm, U = self.problem.norm, self.radius
        best = np.full(size.shape[:-1], math.inf)
        if U == 0.0:
            return best
        reach = (room / U) ** (norm.p - 1.0)
        part = np.where(room > 0, size, 0.0)
        for _ in range(_SPLITS):
            best = np.minimum(best, U * norm.dual(part) + ((size - part) * room).sum(axis=-1))
            part = np.minimum(size, norm.dual(part)[..., None] * reach)
        return best
