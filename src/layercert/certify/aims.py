"""Parameters of halfspaces, side by side and as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from layercert.arrays import Indices
from layercert.certificate.step_floats import Objectives
from layercert.certify.facets import as_stored
from layercert.certify.log import ALPHA
from layercert.search.adaptive.record import Halfspace


def stacked(owns: list[Halfspace]) -> Objectives:
    """A line for each."""
    alpha, beta, mu = (np.stack(part) for part in zip(*(own[:3] for own in owns), strict=True))
    bent = any(own.facets is not None for own in owns)
    return Objectives(alpha, beta, mu, [own.facets for own in owns] if bent else None)


def rounded_to(own: Halfspace) -> Halfspace:
    """As it will be read from a file."""
    one = float(np.iinfo(ALPHA).max)
    facets = None if own.facets is None else as_stored(own.facets)
    beta = own.beta.astype(np.float32).astype(np.float64)
    return Halfspace(np.rint(own.alpha * one) / one, beta, own.weights, facets)


def put(kept: Sequence[Any], at: Indices, taken: Sequence[Any], which: Indices) -> None:
    """Some lines of arrays take the place of lines of others."""
    for into, of in zip(kept, taken, strict=True):
        if len(of):
            into[at] = of[which]
