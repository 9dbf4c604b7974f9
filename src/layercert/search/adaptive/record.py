"""What a certificate needs to know of a search: the splits, and the proof of every closed node."""

from __future__ import annotations

from typing import Protocol

from layercert.arrays import Vector
from layercert.problem import Clause


class Recorder(Protocol):
    """Told of every step of the proof. Node ids are counted up from 0; each root is announced before its subtree."""

    def root(self, node: int, clause: Clause, radius: float) -> None:
        """A tree that excludes one clause inside a ball. A later root of the same clause replaces the earlier one."""

    def split(
        self,
        node: int,
        layer: int,
        neuron: int,
        children: tuple[int, int],
        alpha: Vector,
        beta: Vector,
        weights: Vector,
    ) -> None:
        """The children have the neuron on (first) and off (second); layers and neurons are counted from 0.

        alpha, beta and weights are the node's own, whose halfspace tightened the bounds that the children inherit.
        """

    def close(
        self,
        node: int,
        reason: str,
        bound: float,
        alpha: Vector | None,
        beta: Vector | None,
        weights: Vector | None,
        multipliers: Vector | None,
    ) -> None:
        """reason: 'bound' (alpha, beta over all neurons, weights of the clause's rows), 'empty' (the pre-activation
        bounds of the node contradict each other) or 'program' (multipliers of the neurons' rows, then the clause's)."""
