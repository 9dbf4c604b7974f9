"""Many cases at once: the boxes that one linear bound closes, in batches, before any of them gets a search of its own.

A search costs some milliseconds to start, and generated properties have thousands of small boxes. The kernel of input
splitting bounds a box in microseconds; what it closes is closed, what it leaves open is searched as ever.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Mask
from layercert.bounds.magnitude import out_of_range
from layercert.network import Network
from layercert.search.input_split import suits
from layercert.search.input_split.boxes import Boxes, Workers
from layercert.search.input_split.model import build
from layercert.spec.cases import Case
from layercert.spec.problems import box_of, hull_problem
from layercert.system import clock

#: With fewer cases than this there is nothing to gain.
FEWEST = 8
#: Cases per batch: they share one packed model, and the clock is looked at between batches.
BATCH = 64


def closed_at_once(network: Network, cases: tuple[Case, ...]) -> Mask:
    """Which cases are proved to hold no counterexample by a single bound each; none where the kernel does not suit."""
    closed = np.zeros(len(cases), np.bool_)
    if len(cases) < FEWEST or not suits(network):
        return closed
    for start in range(0, len(cases), BATCH):
        clock.check()
        part = cases[start : start + BATCH]
        closed[start : start + len(part)] = _closed(network, part)
    return closed


def _closed(network: Network, cases: tuple[Case, ...]) -> Mask:
    """The same for one batch. Bounds hold for points of the hull of all boxes, so rows are rounded for all of it."""
    lows, highs = map(np.array, zip(*(box_of(case) for case in cases), strict=True))
    problem = hull_problem(cases, lows, highs, network)
    if out_of_range(problem, problem.reach):
        return np.zeros(len(cases), np.bool_)
    owner = np.repeat(np.arange(len(cases)), [len(case.regions) for case in cases])
    side = np.zeros((len(owner), network.neurons), np.int8)
    boxes = Boxes(lows[owner], highs[owner], side, np.arange(len(owner)), np.zeros(len(owner)))
    with Workers(build(problem), 1) as workers:
        margin = workers(boxes).margin
    open_cases = np.zeros(len(cases), np.bool_)
    np.logical_or.at(open_cases, owner, ~(margin > 0))
    return ~open_cases
