"""What a certificate needs to know of a search: the splits, and the parameters of every node."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from layercert.arrays import Vector
from layercert.problem import Clause


class Halfspace(NamedTuple):
    """The parameters of a node's halfspace: alpha and beta over all neurons, the weights of the clause's rows."""

    alpha: Vector
    beta: Vector
    weights: Vector


class Recorder(Protocol):
    """Told of every step of the proof. Node ids are counted up from 0; each root is announced before its subtree."""

    def root(self, node: int, clause: Clause) -> None:
        """A tree that excludes one clause inside a ball. A later root of the same clause replaces the earlier one."""

    def split(self, node: int, layer: int, neuron: int, children: tuple[int, int], own: Halfspace) -> None:
        """The children have the neuron on (first) and off (second); layers and neurons are counted from 0.

        The halfspace is the node's own, which tightened the bounds that the children inherit.
        """

    def close(self, node: int, own: Halfspace) -> None:
        """Nothing nearer than the ball's radius is in the node."""
