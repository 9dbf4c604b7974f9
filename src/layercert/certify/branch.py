"""A node of a proof that is being made."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Vector
from layercert.certify.ascent import STEPS, Better
from layercert.certify.log import Node
from layercert.certify.recording import Plan, Snapshot
from layercert.search.adaptive.record import Halfspace


@dataclass
class Branch:
    """A node that waits or is worked on."""

    node: Node
    plan: Plan
    lo: Vector
    hi: Vector
    phase: NDArray[np.int8]
    given_by: Indices  # which events gave the bounds (digest.py)
    rows: Snapshot | None
    moves: float = 0.0  # how far its halfspace can move (doubt.py)
    owns: list[Halfspace] = field(default_factory=list)
    gap: float = np.inf
    turns: int = 0
    better: Better | None = None  # the last parameters that were found here
    moving: bool = False  # rows are moved from pass to pass, in a store of its own
    steps: int = STEPS  # of an ascent of its halfspace
    piece: bool = False  # a linear piece with its own multipliers: nothing is left to try
    recalled: bool = False  # a linear piece was tried with what the search ended with
    done: bool = False
