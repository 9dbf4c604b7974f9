"""The open boxes, kept in plain arrays: taken from the end (depth first) or by their distance."""

from __future__ import annotations

import math

import numpy as np

from layercert.search.input_split.boxes import Boxes


class Frontier:
    """A bag of boxes. With `nearest` the boxes nearest to x are taken first, else the latest."""

    def __init__(self, inputs: int, neurons: int, nearest: bool) -> None:
        self.nearest = nearest
        self.size = 0
        self._all = _empty(256, inputs, neurons)

    def __len__(self) -> int:
        return self.size

    def push(self, boxes: Boxes) -> None:
        end = self.size + len(boxes)
        if end > len(self._all):
            old, self._all = self._all, _empty(2 * end, self._all.lo.shape[1], self._all.side.shape[1])
            self._put(slice(0, self.size), old.take(slice(0, self.size)))
        self._put(slice(self.size, end), boxes)
        self.size = end

    def pop(self, most: int) -> Boxes:
        """At most so many boxes."""
        count = min(most, self.size)
        left = self.size - count
        if self.nearest and left:
            order = np.argpartition(self._all.key[: self.size], count - 1)
            out = self._all.take(order[:count])
            # the places of those taken that lie before `left` are filled with those kept that lie behind it
            holes, movers = order[:count][order[:count] < left], order[count:][order[count:] >= left]
            self._put(holes, self._all.take(movers))
        else:
            out = self._all.take(np.arange(left, self.size))
        self.size = left
        return out

    def least(self) -> float:
        """The least distance of an open box."""
        return float(self._all.key[: self.size].min()) if self.size else math.inf

    def _put(self, where: slice | np.ndarray, boxes: Boxes) -> None:
        for name in ("lo", "hi", "side", "clause", "key"):
            getattr(self._all, name)[where] = getattr(boxes, name)


def _empty(size: int, inputs: int, neurons: int) -> Boxes:
    return Boxes(
        np.empty((size, inputs)), np.empty((size, inputs)), np.empty((size, neurons), np.int8),
        np.empty(size, np.intp), np.empty(size),
    )  # fmt: skip
