"""What is known at a node of a format 2 tree: phases of split neurons, bounds of all, and the lines that follow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Mask, Vector
from layercert.certificate.floats import upper_line

#: A range counts as leaning upwards if it is so much longer there. Where x is far smaller than the ball, ranges are
#: symmetric but for rounding, which must not decide: every checker has its own, and a proof relies on the choice.
LEANING = 1.0 + 1e-9


class Lines(NamedTuple):
    """What stands for the neurons of a layer."""

    on: Mask
    open: Mask
    side: Vector  # +1 on, -1 off, 0 open: side * z >= 0 at the node's unsafe points
    su: Vector  # relu(z) <= su z + iu where open; 1 where on, 0 where off
    iu: Vector


class Region:
    """Bounds lo <= z <= hi at the unsafe points of a node, a list over the layers."""

    def __init__(self, lo: list[Vector], hi: list[Vector], phase: list[Vector]) -> None:
        self.lo, self.hi, self.phase = lo, hi, phase
        self._lines: list[Lines | None] = [None] * len(lo)

    def copy(self) -> Region:
        copied = Region([a.copy() for a in self.lo], [a.copy() for a in self.hi], [a.copy() for a in self.phase])
        copied._lines = list(self._lines)
        return copied

    def add_layer(self, lo: Vector, hi: Vector) -> None:
        """One more layer, with nothing split in it."""
        self.lo.append(lo)
        self.hi.append(hi)
        self.phase.append(np.zeros(len(lo)))
        self._lines.append(None)

    def lines(self, k: int) -> Lines:
        known = self._lines[k]
        if known is None:
            lo, hi, phase = self.lo[k], self.hi[k], self.phase[k]
            on = (phase > 0) | ((phase == 0) & (lo >= 0))
            off = ~on & ((phase < 0) | (hi <= 0))
            free = ~on & ~off
            su, iu = upper_line(lo, hi, free)
            known = Lines(on, free, on.astype(np.float64) - off, np.where(on, 1.0, su), iu)
            self._lines[k] = known
        return known

    def nearer_slopes(self, depth: int) -> Vector:
        """Of all neurons in the first layers: 1 where the line z is nearer to relu than the line 0."""
        return np.concatenate([np.zeros(0), *((self.hi[k] > -self.lo[k] * LEANING) * 1.0 for k in range(depth))])

    def child(self, k: int, neuron: int, phase: float) -> Region | None:
        """The part where the neuron is on (phase 1) or off (-1); None where it is known to be on the other side."""
        part = self.copy()
        part._lines[k] = None
        part.phase[k][neuron] = phase
        if phase > 0:
            part.lo[k][neuron] = max(part.lo[k][neuron], 0.0)
        else:
            part.hi[k][neuron] = min(part.hi[k][neuron], 0.0)
        return None if part.lo[k][neuron] > part.hi[k][neuron] else part

    def narrow(self, k: int, neurons: Indices, sides: Vector, values: Vector) -> bool:
        """Take bounds side * z >= value where they are better; False when a neuron has no value left.

        What is not a finite number says nothing: a NaN or an overflow must never pass for an empty node.
        """
        low = (sides > 0) & np.isfinite(values)
        high = (sides < 0) & np.isfinite(values)
        np.maximum.at(self.lo[k], neurons[low], values[low])
        np.minimum.at(self.hi[k], neurons[high], -values[high])
        self._lines[k] = None
        return not bool((self.lo[k] > self.hi[k]).any())
