"""What a certificate needs to know of a search: the splits, the parameters of every node, those of its rows.

A recorder replays the search in the checker's own arithmetic. All parameters are suggestions to it: any values in range
are sound, so it does not matter in which pass they were used, only that passes with them bound about as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Vector
from layercert.facets import Facets

if TYPE_CHECKING:
    from layercert.search.adaptive.model import Kept, Model, Played


class Halfspace(NamedTuple):
    """The parameters of a node's halfspace: alpha and beta over all neurons, the weights of the clause's rows, and
    upper lines that are not chords."""

    alpha: Vector
    beta: Vector
    weights: Vector
    facets: Facets | None = None


class Fixed(NamedTuple):
    """Neurons with one side left: which, the side, and the multiplier t that excludes the other one."""

    neurons: Indices
    sides: Vector
    multipliers: Vector


class Tightened(NamedTuple):
    """A round of tightening: the halfspace on whose cap neurons were bounded, and the rows that proved something, layer
    by layer. Arrays without a note are one per row; slopes and multipliers may serve several rounds (trail.py)."""

    own: Halfspace
    neurons: Indices
    sides: Vector
    pulls: Vector
    lams: Vector
    slope_begin: Indices  # of the neurons below, one after the other
    slopes: NDArray[np.uint8]  # of all rows, as parts of 255
    split_begin: Indices
    split_end: Indices
    split_at: NDArray[np.int32]  # of all rows
    splits: NDArray[np.float32]  # with the sign of the side


class BallRecorder(Protocol):
    """Told of every step of the proof in one ball. Node ids are counted up from 0; a root comes before its subtree.

    Arrays are copied by the recorder before it returns: views of what a kernel will overwrite are welcome. Several
    threads may tell at the same time.
    """

    def root(self, node: int, clause: int) -> None:
        """A tree that excludes one clause inside the ball."""

    def rows(self, node: int, kept: Kept) -> None:
        """Neurons of this node were bounded, and rows are as these passes left them."""

    def bounded(self, node: int, bound: float, own: Halfspace) -> None:
        """The node's halfspace proves this bound. If the search is stopped now, the last one told stands.

        For a linear piece that was closed by its distance program, the halfspace may prove less.
        """

    def tightened(self, node: int, done: Tightened) -> None:
        """Neurons of this node were bounded so; where something is not told, no round of the node is."""

    def fixed(self, node: int, own: Halfspace, fixed: Fixed) -> None:
        """One side of each of these neurons is excluded by this halfspace of the node, all from the same bounds."""

    def split(self, node: int, neuron: int, children: tuple[int, int]) -> None:
        """The children have the neuron (counted over all layers) on, the first, and off, the second."""


class Recorder(Protocol):
    """Told of every ball that is searched; several may be under way in turns."""

    def ball(self, radius: float, model: Model, played: dict[int, Played] | None = None) -> BallRecorder:
        """A search in another ball begins, with nodes of its own, on this model; `played`: the rows by hulls behind
        its bounds, by layer."""

    def packed(self, ball: BallRecorder, made: int, *, brief: bool = False) -> bytes:
        """What was told of a ball, its nodes below the number `made`, for a search that goes on from there; `brief`:
        for its way through a network, as small as it can be."""

    def elsewhere(self) -> Recorder:
        """One that knows nothing yet, for a part of the search on another machine: it can be pickled."""

    def join(self, ball: BallRecorder, record: bytes, here: Callable[[int], int]) -> None:
        """What was told elsewhere of some nodes of a ball, and packed there; here(number) is a node's number here."""

    def resumed(self, record: bytes, model: Model | None, played: dict[int, Played] | None = None) -> BallRecorder:
        """A search that was packed goes on, and nothing else was told; without a model it has nothing left to do."""
