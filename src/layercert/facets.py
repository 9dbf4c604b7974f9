"""Facets: upper lines of single neurons beside the chord of the triangle, as searches and proofs hand them on.

For a neuron with z = w.x + b and any a: relu(z) <= a.x + c where c is the largest value of relu(z) - a.x on the box of
its inputs x. Here a = t w, entry by entry. docs/certificate-format.md has the theorem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Indices, Vector


class Facets(NamedTuple):
    """The facets of one objective; values in range are sound anywhere."""

    neurons: Indices  # counted over all layers, increasing
    shares: Vector  # of each neuron's coefficient: the part in [0, 1] that the facet takes, the chord has the rest
    parts: Vector  # t in [0, 1]: for each facet one per nonzero entry of the neuron's row, by increasing column


def in_parts(facets: Facets, parts: float) -> Facets:
    """The same with shares and parts that are multiples of 1 / parts."""
    shares, own = (np.rint(np.clip(values, 0.0, 1.0) * parts) / parts for values in facets[1:])
    return Facets(facets.neurons, shares, own)
