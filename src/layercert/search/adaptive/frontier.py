"""The open nodes of a tree: those that wait, best first, and those that somebody works on.

Every part of the ball that is not closed is in one of the two, at any time: so the least bound of all is proved, and
what they hold is all that has to be saved. A node stays in somebody's hands until its place is taken (`replace`) by
what became of it. Any number of threads may take and replace. Ctrl-C may come between any two lines: so whatever moves
is first where it goes, then no longer where it was. What is found twice after that costs time and nothing else.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from layercert.search.adaptive.node import Node, Packing, bound_of, splits_of
from layercert.search.events import Nodes
from layercert.search.queue import PriorityQueue

#: Nodes wait as they are up to so many bytes together, the others packed.
ROOMY = 2**30
#: Of a bound on memory, the part that nodes may take as they are. At FULL of it the search goes depth first, until the
#: queue is down to EASED.
UNPACKED, FULL, EASED = 0.35, 0.9, 0.7
#: What Python needs for a packed node beside its bytes, about.
BESIDE = 200

#: A node as it is, or packed, with its number.
Waiting: TypeAlias = Node | tuple[int, bytes]


class Frontier:
    """The open nodes; `memory` bounds the bytes of those that wait."""

    def __init__(self, packing: Packing, trees: int, memory: int | None = None) -> None:
        self.lock = threading.RLock()
        self.packing, self.trees = packing, max(trees, 1)
        self.memory = math.inf if memory is None else memory
        self.closed_bound = math.inf  # least proved bound of a closed node
        self.made = 0
        self.closed = 0
        self.late = 0
        self.share = 0.0
        self.depth_first = False
        self._queue: PriorityQueue[Waiting] = PriorityQueue()
        self._latest: list[tuple[float, Waiting]] = []  # taken first, the last one before all, where memory is short
        self._hands: dict[int, Waiting] = {}
        self._roomy = self._bytes = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue) + len(self._latest)

    @property
    def busy(self) -> int:
        """How many are worked on."""
        return len(self._hands)

    @property
    def least(self) -> float:
        """Proved for everything that was ever in the tree, closed nodes too."""
        with self.lock:
            held = min((_bound(each) for each in self._hands.values()), default=math.inf)
            late = min((key for key, _ in self._latest), default=math.inf)
            return min(self._queue.least, late, held, self.closed_bound)

    @property
    def count(self) -> Nodes:
        with self.lock:
            return Nodes(len(self) + self.busy, self.closed, min(self.share, 1.0), self.depth_first)

    @property
    def next_is_root(self) -> bool:
        """Roots that were not bounded yet come before all others."""
        return not self._latest and self._queue.least == -math.inf

    def number(self) -> int:
        """A number for a new node."""
        with self.lock:
            self.made += 1
            return self.made - 1

    def push(self, node: Node) -> None:
        """A node waits."""
        with self.lock:
            waiting: Waiting = node
            if self._roomy + node.state.nbytes > min(ROOMY, UNPACKED * self.memory):
                waiting = node.number, self.packing.pack(node)
                self._bytes += len(waiting[1]) + BESIDE
            else:
                self._roomy += node.state.nbytes
            size = self._roomy + self._bytes
            self.depth_first = size > (EASED if self.depth_first else FULL) * self.memory
            if self.depth_first:
                self._latest.append((node.bound, waiting))
            else:
                self._queue.push(node.bound, waiting)

    def restore(self, blobs: Iterable[bytes], numbers: Sequence[int] = ()) -> None:
        """Nodes that were packed elsewhere, with the numbers that they had there or with new ones."""
        with self.lock:
            for i, blob in enumerate(blobs):
                self._bytes += len(blob) + BESIDE
                number = numbers[i] if numbers else self.number()
                self._queue.push(bound_of(blob), (number, blob))

    def take(self) -> Node | None:
        """The best node, into somebody's hands; None where none waits."""
        with self.lock:
            if not len(self):
                return None
            waiting = self._latest[-1][1] if self._latest else self._queue.first
            node = self.packing.unpack(waiting[1], waiting[0]) if isinstance(waiting, tuple) else waiting
            self._hands[node.number] = node
            if self._latest:
                self._latest.pop()
            else:
                self._queue.pop()
            if isinstance(waiting, tuple):
                self._bytes -= len(waiting[1]) + BESIDE
            else:
                self._roomy -= waiting.state.nbytes
            return node

    def hold(self, node: Node) -> None:
        """A new node, in somebody's hands from the start."""
        with self.lock:
            self._hands[node.number] = node

    def replace(
        self, node: Node, parts: Sequence[Node], closed: Sequence[Node] = (), late: Sequence[Node] = ()
    ) -> None:
        """What became of a node: parts that wait from now on, that are closed, that there is no time left for.

        Each may be the node itself. What is late stays open, though nobody will take it.
        """
        with self.lock:
            for part in closed:
                # what is not a number proves nothing, and Python's min would pass over it
                self.closed_bound = min(self.closed_bound, -math.inf if math.isnan(part.bound) else part.bound)
                self.closed += 1
                self.share += 2.0**-part.splits / self.trees
            for part in parts:
                part.packed = None  # it may have changed since
                self.push(part)
            self._hands.update({part.number: part for part in late})
            self.late += len(late)
            if all(part.number != node.number for part in late):
                del self._hands[node.number]

    def lend(self, most: int) -> list[tuple[int, bytes]]:
        """The best nodes that wait, packed, with their numbers: for somebody elsewhere. They stay open here."""
        with self.lock:
            lent: list[tuple[int, bytes]] = []
            while len(lent) < most and (node := self.take()) is not None:
                lent.append((node.number, self.packing.pack(node)))
                self._hands[node.number] = lent[-1]
            return lent

    def returned(self, numbers: Iterable[int], closed_bound: float, closed: int, share: float) -> None:
        """Nodes that were lent are done elsewhere; what is open of them is to be restored."""
        with self.lock:
            self.closed_bound = min(self.closed_bound, closed_bound)
            self.closed, self.share = self.closed + closed, self.share + share
            for number in numbers:
                del self._hands[number]

    def reserve(self, count: int) -> int:
        """Numbers for so many nodes that were made elsewhere; the first one."""
        with self.lock:
            self.made += count
            return self.made - count

    def give_back(self, numbers: Iterable[int]) -> None:
        """Nodes that were lent or taken wait again, as they were."""
        with self.lock:
            for number in tuple(numbers):
                each = self._hands[number]
                if isinstance(each, Node):
                    self.push(each)
                else:
                    self._bytes += len(each[1]) + BESIDE
                    self._queue.push(_bound(each), each)
                del self._hands[number]

    def take_back(self) -> None:
        """All nodes that were taken wait again: nobody works on them any more."""
        with self.lock:
            self.give_back(tuple(self._hands))
            self.late = 0

    def numbered(self) -> list[tuple[int, bytes]]:
        """All open nodes with their numbers, packed."""
        with self.lock:
            waiting = [*self._queue.items(), *(each for _, each in self._latest), *self._hands.values()]
            return [each if isinstance(each, tuple) else (each.number, self.packing.pack(each)) for each in waiting]


def _bound(each: Waiting) -> float:
    return bound_of(each[1]) if isinstance(each, tuple) else each.bound


def share_of(blobs: Iterable[bytes], trees: int) -> float:
    """The part of the tree that packed nodes stand for."""
    return sum(2.0 ** -splits_of(blob) for blob in blobs) / max(trees, 1)
