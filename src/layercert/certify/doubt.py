"""Would every checker follow? It reads the same numbers as the prover, but has margins for rounding of its own, so
that its bounds of neurons would be a little different, and with them all that follows.

Bounds that rows prove cannot differ: the file says what each counts for at most (`limit`, docs/certificate-format.md),
which the prover takes too. Only those of the start do. Let e be how far the checker's lo and hi of an open neuron can
be from the prover's. Its upper line su z + iu has

    su = hi / (hi - lo),   |change of su| <= (e_hi |lo| + e_lo hi) / (hi - lo)^2
    iu = su |lo|,          |change of iu| <= (e_hi lo^2 + e_lo hi^2) / (hi - lo)^2

to first order, and with A at that neuron a pass changes by at most |A| (|change of su| T + |change of iu|) on the ball.
T bounds what becomes of z in the rest of the pass: lower and upper lines keep |z| <= T, since iu = (1 - su) hi. It is
as large as the whole ball makes it, also where lo and hi are those of a small cap: a multiplier that cancels what the
prover has of a neuron leaves that change of the checker's times T. Neurons that are off all over the ball have no part
in it: behind max pooling many a neuron is the difference of two of them, and its range is nothing but rounding, so that
its line can be any. A row moves with its own pass, and with lam and pull times the halfspace. Its limit is below its
bound by more than that; where a halfspace that closes a node could be moved that far the proof is in doubt, and is
tried on the checker.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layercert.arrays import Indices, Mask, Matrix, Vector
from layercert.certificate.reach import fall
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import Halfspaces, StepFloats

#: What decides must be away by so many times what can move it: moves are bounded to first order only.
SURE = 10.0
#: Limits are stored with so many parts of their power of two.
DIGITS = 2.0**30


class Doubt:
    """Of the proofs that one arithmetic makes. Bounds of neurons are counted as in digest.py: 2i is lo of neuron i,
    2i + 1 is hi; those that no event gave are the start's."""

    def __init__(self, floats: StepFloats) -> None:
        self.floats, self.setting = floats, floats.setting
        start, plain = floats.start, StepFloats(floats.setting).start
        Q, L = floats.ground.Q, self.setting.network.L
        self.T = np.concatenate([np.zeros(0), *_sizes(self.setting, start.side[0] >= 0, floats.starts)])
        #: how far the bounds of the start can be from the checker's: as they are, and for other orders of sums
        self.slips = np.empty(2 * len(Q))
        for end, ours, theirs in ((0, start.lo, plain.lo), (1, start.hi, plain.hi)):
            self.slips[end::2] = np.abs(ours[0] - theirs[0]) + Q
        #: what the slips of its inputs make of the line of a facet
        widest, maps = np.maximum(self.slips[0::2], self.slips[1::2]), self.setting.network.maps
        below = [widest[a:b] for a, b in zip(floats.starts[:-2], floats.starts[1:-1], strict=True)]
        facets = [abs(W) @ part for W, part in zip(maps[1:-1], below, strict=True)]
        self.facets = np.concatenate([np.zeros(maps[0].shape[0] if L else 0), *facets])
        ends = np.abs(np.stack([start.lo[0], start.hi[0]], axis=1)).ravel()
        # an end of 0 itself is a sum of zeros (intervals.py), in every arithmetic
        near = (ends <= SURE * self.slips) & (ends > 0)
        #: would something be decided otherwise if the checker's bounds were a little different?
        self.any = bool(near.any())

    def lines(self, regions: Any, given_by: Indices) -> Matrix:
        """For each node and neuron, how far its upper line can move anywhere on the ball."""
        from layercert.certify.digest import line_moves

        return np.asarray(line_moves(regions, given_by, self.slips, self.T))

    def halfspaces(self, lines: Matrix, halves: Halfspaces, bent: bool, closed: Mask) -> Vector:
        """How far halfspaces of nodes can move; is there one that closes its node by no more than that?

        bent: are there facets? Then all coefficients may be theirs.
        """
        if halves.uppers is None:
            return np.zeros(len(closed))
        moves = np.einsum("ij,ji->i", lines + self.facets if bent else lines, np.abs(halves.uppers.coef))
        if closed.any() and not self.any:
            apart = halves.s - fall(self.setting, halves.g)
            self.any = not bool((apart > SURE * moves)[closed].all())
        return np.asarray(moves)

    def limits(self, line: Vector, trace: Matrix, values: Vector, half: Vector) -> Vector:
        """What rows of a node count for at most. half: how far the part that each has of its halfspace can move."""
        from layercert.certify.digest import limits_of

        return np.asarray(limits_of(line, trace, values, half))

    def empty(self, lo: float, hi: float, given_by: Indices, neuron: int) -> None:
        """A node is closed by lo > hi of a neuron."""
        at = slice(2 * neuron, 2 * neuron + 2)
        slip = np.where(given_by[at] < 0, self.slips[at], 0.0).sum()
        self.any = self.any or not bool(lo - hi > SURE * slip)


def _sizes(setting: Setting, live: Mask, starts: Indices) -> list[Vector]:
    """T, layer by layer, where only live neurons are read."""
    network, sizes = setting.network, list[Vector]()
    for k in range(network.L):
        W, b = network.maps[k], network.biases[k]
        if k == 0:
            sizes.append(setting.T[0])
        else:
            read = np.where(live[starts[k - 1] : starts[k]], sizes[-1], 0.0)
            sizes.append(np.asarray(abs(W) @ read + np.abs(b)) * (1.0 + setting.noise))
    return sizes
