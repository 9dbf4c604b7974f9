"""A priority queue with a stable tie-breaker: first in, first out among equals."""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._ticket = count()

    def push(self, key: float, item: T) -> None:
        heapq.heappush(self._heap, (key, next(self._ticket), item))

    def pop(self) -> tuple[float, T]:
        key, _, item = heapq.heappop(self._heap)
        return key, item

    @property
    def first(self) -> T:
        """What `pop` would take."""
        return self._heap[0][2]

    def items(self) -> list[T]:
        """All that is in it, in no order."""
        return [item for _, _, item in self._heap]

    @property
    def least(self) -> float:
        """The least key, inf of an empty queue."""
        return self._heap[0][0] if self._heap else math.inf

    def __len__(self) -> int:
        return len(self._heap)
