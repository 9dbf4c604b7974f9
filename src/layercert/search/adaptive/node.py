"""A node of the tree: as the kernels use it, and in few bytes, as it waits in a long queue, in a file or on its way.

What a packed node leaves out can be computed again: coefficients and the relaxed point by one pass, what should be
split by its linear programs, neurons that are stable in the whole ball from the root. Bounds of neurons are kept as
float32, rounded outwards: they stay proved.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Mask, Matrix, Vector
from layercert.errors import OptionError
from layercert.facets import Facets
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, POINT, SHARE, open_mask
from layercert.search.adaptive.record import Halfspace

#: clause, bound, radius, splits, what it has had, how many weights; which neurons are open in the root, by a checksum;
#: how many are open here, and split
_HEAD = struct.Struct("<iddiiiIii")
#: What a neuron that is open in the root is here: open, split, or stable by its bounds; the sign is its side.
_SPLIT, _STABLE = 1, 2
#: What a node has had: its linear programs; a root, its cheap bounds and no others; shares of facets.
_PROGRAMS, _CHEAP, _SHARES = 1, 2, 4


@dataclass(eq=False)
class Node:
    """An open node; `radius` is the ball its bounds were taken in."""

    number: int
    clause: int
    bound: float
    state: Matrix
    weights: Vector
    radius: float
    programmed: bool = False  # has had its linear programs
    cheap: bool = False  # a root that had its cheap bounds only
    stale: bool = False  # was packed: its coefficients and its point are to be computed again
    packed: bytes | None = None  # the node in few bytes, if anybody needed it
    wanted: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # what its programs say should be split
    splits: int = 0  # how deep in the tree it is
    played: bool = False  # its facets have been looked for without a program
    gained: bool = False  # and closed a part of its gap, or of its parent's
    facets: Facets | None = None  # those of its clause when it was bounded last; its shares are in the state

    @property
    def halfspace(self) -> Halfspace:
        facets = self.facets
        if facets is not None:
            facets = facets._replace(shares=np.clip(self.state[SHARE, facets.neurons], 0.0, 1.0))
        return Halfspace(self.state[ALPHA], self.state[BETA], self.weights, facets)

    @property
    def is_root(self) -> bool:
        """Was it not bounded yet?"""
        return self.bound == -math.inf

    @property
    def open(self) -> Indices:
        """Neurons that may have either sign."""
        return np.flatnonzero(open_mask(self.state))

    @property
    def sides(self) -> Vector:
        """Of the linear piece of a node without open neurons: 1 where a neuron is on, else -1."""
        phase, lo = self.state[PHASE], self.state[LO]
        return np.where((phase > 0) | ((phase == 0) & (lo >= 0)), 1.0, -1.0)


@dataclass(frozen=True, eq=False)
class Packing:
    """How nodes of one ball are packed: against its root."""

    root: Matrix
    free: Indices  # neurons that are open in the root

    @cached_property
    def mark(self) -> int:
        """Of the neurons that are open in the root: a node says of each of them what it is, and names none."""
        return zlib.crc32(self.free.astype("<i8").tobytes())

    @staticmethod
    def of(root: Matrix) -> Packing:
        return Packing(root, np.flatnonzero((root[LO] < 0) & (root[HI] > 0)))

    def pack(self, node: Node) -> bytes:
        """The node in few bytes; kept beside it, since a node that waits does not change."""
        if node.packed is None:
            state = node.state[:, self.free]
            phase, lo, hi = state[PHASE], state[LO], state[HI]
            is_open, is_split = open_mask(state), phase != 0
            code = np.where(is_open, 0, np.where(is_split, phase * _SPLIT, np.where(lo >= 0, _STABLE, -_STABLE)))
            shares = state[SHARE, is_open]
            bent = bool(shares.any())
            parts = (
                code.astype(np.int8), _down(lo[is_open]), -_down(-hi[is_open]),
                state[ALPHA, is_open].astype("<f4"), (shares if bent else shares[:0]).astype("<f4"),
                _multipliers(state[BETA, is_split]), node.weights.astype("<f8"),
            )  # fmt: skip
            has_had = _PROGRAMS * (node.programmed and not len(node.wanted)) + _CHEAP * node.cheap + _SHARES * bent
            head = _HEAD.pack(
                node.clause, node.bound, node.radius, node.splits, has_had,
                len(node.weights), self.mark, int(is_open.sum()), int(is_split.sum()),
            )  # fmt: skip
            node.packed = head + b"".join(part.tobytes() for part in parts)
        return node.packed

    def unpack(self, blob: bytes, number: int) -> Node:
        """The node again, but for what a pass has to compute."""
        clause, bound, radius, splits, has_had, rows, mark, opened, split = _HEAD.unpack_from(blob)
        at, free = _HEAD.size, len(self.free)
        if (
            mark != self.mark
            or len(blob) != at + free + (16 if has_had & _SHARES else 12) * opened + 4 * split + 8 * rows
        ):
            raise OptionError(
                "the open nodes are of another tree: the bounds with which this search began are not those that are "
                "found here, by another version of LayerCert or on another machine; go on there, or begin anew"
            )

        def take(count: int, kind: str) -> NDArray[np.float64]:
            nonlocal at
            part = np.frombuffer(blob, kind, count, at)
            at += part.nbytes
            return part.astype(np.float64)

        code = take(free, "<i1")
        state = self.root.copy()
        is_open, is_split = self.free[code == 0], self.free[np.abs(code) == _SPLIT]
        lo, hi, state[ALPHA, is_open] = (take(opened, "<f4") for _ in range(3))
        state[SHARE, is_open] = take(opened, "<f4") if has_had & _SHARES else 0.0
        # beyond the range of float32 they are infinite: the root's hold everywhere
        state[LO, is_open], state[HI, is_open] = np.maximum(lo, state[LO, is_open]), np.minimum(hi, state[HI, is_open])
        state[BETA, is_split], state[PHASE, is_split] = take(split, "<f4"), code[np.abs(code) == _SPLIT]
        state[LO, self.free[code > 0]] = 0.0
        state[HI, self.free[code < 0]] = 0.0
        state[POINT] = 0.0
        weights = take(rows, "<f8")
        had = bool(has_had & _PROGRAMS), bool(has_had & _CHEAP)
        return Node(number, clause, bound, state, weights, radius, *had, stale=True, packed=blob, splits=splits)


def settle(state: Matrix, meets: Mask) -> None:
    """A neuron whose bounds leave it one side at all unsafe points of a node is as good as split: it has a multiplier,
    and programs hold it. `meets`: those that may have either side in the ball."""
    free = meets & (state[PHASE] == 0)
    state[PHASE, free & (state[LO] >= 0)] = 1.0
    state[PHASE, free & (state[HI] <= 0) & (state[LO] < 0)] = -1.0


def bound_of(blob: bytes) -> float:
    """The bound of a packed node."""
    return float(_HEAD.unpack_from(blob)[1])


def splits_of(blob: bytes) -> int:
    """How deep in the tree a packed node is."""
    return int(_HEAD.unpack_from(blob)[3])


def _multipliers(values: Vector) -> NDArray[np.float32]:
    """As float32: any finite numbers >= 0 are sound."""
    return np.minimum(values, np.finfo(np.float32).max).astype("<f4")


def _down(values: Vector) -> NDArray[np.float32]:
    """As float32, rounded down."""
    with np.errstate(over="ignore"):
        near = values.astype("<f4")
    below = np.nextafter(near, np.float32(-np.inf))
    return np.where(near > values, below, near).astype("<f4")
