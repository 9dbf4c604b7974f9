"""What rounds of tightening did, written down by the kernels for whoever proves the same (certify/following.py).

A round has a halfspace, and rows that bound neurons on its cap. Each row that proved something is noted with the very
parameters of the pass that proved most. In a search that is recorded these are numbers that a certificate can hold
(`in_parts`), and bounds that are not worth a row there are not taken here either: so a proof that does the same steps
in the same order has the same bounds, up to rounding, and needs nothing else to close what was closed here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.jit import inner, njit
from layercert.facets import Facets
from layercert.search.adaptive.record import Halfspace, Tightened

#: Parts in which a certificate has slopes of rows and of halfspaces.
ROW_PARTS, PARTS = 255.0, 65535.0
#: Room for so many rounds of all nodes that are worked on together, so many rows, slopes and multipliers of them. Pages
#: that nobody writes to take no memory.
ROUNDS, ROWS, SLOPES, SPLITS = 1 << 10, 1 << 18, 1 << 26, 1 << 22
#: But fewer rounds of networks so large that their halfspaces would have more numbers than this.
NUMBERS = 1 << 24
#: A bound that narrows its neuron's range by less than this share is not worth a row, unless it settles the sign.
NARROWER = 0.003
#: Places in `used`: rounds, rows, slopes, multipliers; where the round has the slopes that rows without their own share
#: (-1: nowhere yet); is there something for which there was no room?
AT_ROUND, AT_ROW, AT_SLOPE, AT_SPLIT, SHARED, LOST = range(6)


class Trail(NamedTuple):
    """The rounds since the last look; without room where nobody wants them."""

    used: Indices
    node: NDArray[np.int32]  # per round: its place among those that are worked on together
    begin: Indices  # per round: its first row
    alpha: NDArray[np.uint16]  # a line per round, as parts
    share: NDArray[np.uint16]  # of facets
    beta: NDArray[np.float32]
    weights: Matrix
    neuron: NDArray[np.int32]  # per row
    side: NDArray[np.int8]
    pull: NDArray[np.float32]
    lam: NDArray[np.float32]
    slope_begin: Indices  # per row: those of all neurons below
    split_end: Indices  # per row: its multipliers end here, and begin where those of the row before end
    slopes: NDArray[np.uint8]
    split_at: NDArray[np.int32]
    splits: NDArray[np.float32]  # with the sign of the side


def trail_of(neurons: int, weights: int, wanted: bool) -> Trail:
    """With room, or without."""
    most = max(1, min(ROUNDS, NUMBERS // max(neurons, 1)))
    rounds, rows, slopes, splits = (most, ROWS, SLOPES, SPLITS) if wanted else (0, 0, 0, 0)
    return Trail(
        np.zeros(6, np.intp), np.empty(rounds, np.int32), np.empty(rounds, np.intp),
        np.empty((rounds, neurons), np.uint16), np.empty((rounds, neurons), np.uint16),
        np.empty((rounds, neurons), np.float32), np.empty((rounds, weights)), np.empty(rows, np.int32),
        np.empty(rows, np.int8), np.empty(rows, np.float32), np.empty(rows, np.float32), np.empty(rows, np.intp),
        np.empty(rows, np.intp), np.empty(slopes, np.uint8), np.empty(splits, np.int32), np.empty(splits, np.float32),
    )  # fmt: skip


@inner
def in_parts(values: Vector, parts: float) -> None:
    """Slopes as a certificate would hold them."""
    for i in range(len(values)):
        values[i] = np.floor(min(max(values[i], 0.0), 1.0) * parts + 0.5) / parts


@inner
def begin_round(trail: Trail, node: int, alpha: Vector, beta: Vector, share: Vector, weights: Vector) -> None:
    """A round at a node, with this halfspace."""
    used = trail.used
    at = used[AT_ROUND]
    if at == len(trail.node):
        used[LOST] = 1
    if used[LOST] == 1:
        return
    trail.node[at], trail.begin[at] = node, used[AT_ROW]
    for i in range(len(alpha)):
        trail.alpha[at, i] = np.uint16(alpha[i] * PARTS + 0.5)
        trail.share[at, i] = np.uint16(min(max(share[i], 0.0), 1.0) * PARTS + 0.5)
        trail.beta[at, i] = beta[i]
    for i in range(len(weights)):
        trail.weights[at, i] = weights[i]
    used[AT_ROUND], used[SHARED] = at + 1, -1


@inner
def note(trail: Trail, neuron: int, side: float, pull: float, lam: float) -> int:
    """A row of this round; its number, -1 where there is no room. Its slopes and multipliers follow."""
    used = trail.used
    at = used[AT_ROW]
    if at == len(trail.neuron):
        used[LOST] = 1
    if used[LOST] == 1 or used[AT_ROUND] == 0:
        return -1
    trail.neuron[at], trail.side[at], trail.pull[at] = neuron, np.int8(side), pull
    trail.lam[at] = lam
    trail.slope_begin[at], trail.split_end[at] = 0, used[AT_SPLIT]
    used[AT_ROW] = at + 1
    return at


@inner
def note_shared(trail: Trail, at: int, points: Vector) -> None:
    """Row `at` has the slopes that touch relu at a point, as all others of its round without their own."""
    used = trail.used
    if at < 0:
        return
    if used[SHARED] < 0:
        if used[AT_SLOPE] + len(points) > len(trail.slopes):
            used[LOST] = 1
            return
        used[SHARED] = used[AT_SLOPE]
        for i in range(len(points)):
            trail.slopes[used[AT_SLOPE] + i] = 255 if points[i] > 0.0 else 0
        used[AT_SLOPE] += len(points)
    trail.slope_begin[at] = used[SHARED]


@inner
def note_own(trail: Trail, at: int, slopes: Vector, betas: Vector, phases: Vector) -> None:
    """Row `at` has these slopes, and these multipliers of splits."""
    used = trail.used
    if at < 0:
        return
    if used[AT_SLOPE] + len(slopes) > len(trail.slopes) or used[AT_SPLIT] + len(slopes) > len(trail.splits):
        used[LOST] = 1
        return
    trail.slope_begin[at] = used[AT_SLOPE]
    for i in range(len(slopes)):
        trail.slopes[used[AT_SLOPE] + i] = np.uint8(slopes[i] * ROW_PARTS + 0.5)
        if phases[i] != 0.0 and betas[i] > 0.0:
            trail.split_at[used[AT_SPLIT]], trail.splits[used[AT_SPLIT]] = i, betas[i] * phases[i]
            used[AT_SPLIT] += 1
    used[AT_SLOPE] += len(slopes)
    trail.split_end[at] = used[AT_SPLIT]


class Won(NamedTuple):
    """Of the pass of each row that proved most: multipliers of the cap, pulls, slopes and multipliers of splits."""

    lams: Vector
    pulls: Vector
    slopes: Matrix
    betas: Matrix


@njit
def no_winners() -> Won:
    """Where nobody asks."""
    return Won(np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))


@inner
def win(won: Won, r: int, slopes: Matrix, betas: Matrix, pull: float, lam: float) -> None:
    """This pass is the best so far of row r. Rows without parameters of their own have matrices without columns."""
    won.lams[r], won.pulls[r] = lam, pull
    for i in range(len(slopes) if slopes.shape[1] > 0 else 0):
        won.slopes[i, r], won.betas[i, r] = slopes[i, r], betas[i, r]


@inner
def is_worth(lo: float, hi: float, side: float, best: Vector, r: int) -> bool:
    """Is side * z >= best[r] worth a row in a certificate? Where it is not, it is not to be taken either."""
    gain = best[r] - (lo if side > 0.0 else -hi)
    if gain > NARROWER * (hi - lo) or (gain > 0.0 and best[r] >= 0.0):
        return True
    best[r] = -np.inf
    return False


def rounds_of(trail: Trail, facets: list[Facets | None], rows: list[int]) -> list[tuple[int, Tightened]]:
    """All rounds since the last look with the places of their nodes, and the trail is empty again.

    facets: those of each node; rows: how many rows the clause of each has.
    """
    used = trail.used
    count, end, found = int(used[AT_ROUND]), int(used[AT_ROW]), []
    if count and not used[LOST]:  # part of a trail would lead elsewhere
        begins = [*trail.begin[:count].tolist(), end]
        slopes = trail.slopes[: used[AT_SLOPE]].copy()
        splits = trail.split_at[: used[AT_SPLIT]].copy(), trail.splits[: used[AT_SPLIT]].copy()
        for at, node in enumerate(trail.node[:count].tolist()):
            own = Halfspace(
                trail.alpha[at] / PARTS, trail.beta[at].astype(np.float64), trail.weights[at, : rows[node]].copy(),
                _shared(facets[node], trail.share[at]),
            )  # fmt: skip
            part = slice(begins[at], begins[at + 1])
            ends = trail.split_end[part].copy()
            first = trail.split_end[begins[at] - 1 : begins[at + 1] - 1] if begins[at] else np.append(0, ends[:-1])
            found.append(
                (
                    node,
                    Tightened(
                        own, trail.neuron[part].astype(np.intp), trail.side[part].astype(np.float64),
                        trail.pull[part].astype(np.float64), trail.lam[part].astype(np.float64),
                        trail.slope_begin[part].copy(), slopes, first[: len(ends)].copy(), ends, *splits,
                    ),
                )
            )  # fmt: skip
    used[:] = 0
    return found


def _shared(facets: Facets | None, shares: NDArray[np.uint16]) -> Facets | None:
    return None if facets is None else facets._replace(shares=shares[facets.neurons] / PARTS)
