"""Facets on their way into a proof: as they will be stored, without what does not count, as arrays of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Matrix, Signs, Vector
from layercert.certificate.facets import side_by_side
from layercert.certificate.setting import Setting
from layercert.facets import Facets

#: Parts and shares have 16 bits, as the slopes of objectives. With 8 the lines of a leaf that is closed by a millionth
#: of the radius are off by more than that, and its proof has to be searched again.
PART, SHARE = np.uint16, np.uint16
#: Those of rows have 8, of which few are used: multiples of a fifteenth. There are many of them, and a bound may be a
#: little looser. On a convolutional network of 1,208 neurons 255 parts leave 0.656 of the chords' ranges in the second
#: layer, 15 leave 0.661 (7: 0.668), and their file is 0.58 of the size.
ROW_PART, ROW_LEVELS = np.uint8, 15


def as_stored(facets: Facets) -> Facets:
    """The facets of an objective that will be read from the file, with which a proof must be made."""
    return Facets(facets.neurons, _read(_parts(facets.shares, SHARE)), _read(_parts(facets.parts, PART)))


def as_stored_in_rows(facets: Facets) -> Facets:
    """The same for those of a row."""
    shares, parts = (np.rint(np.clip(values, 0.0, 1.0) * ROW_LEVELS) / ROW_LEVELS for values in facets[1:])
    return Facets(facets.neurons, _read(_parts(shares, ROW_PART)), _read(_parts(parts, ROW_PART)))


def counting(facets: Facets | None, coef: Vector, side: Signs, sizes: Indices) -> Facets | None:
    """The facets that count in a pass with the coefficients `coef`, those of open neurons where it is negative.

    `sizes` has the number of nonzero entries in the row of each neuron: `Setting.entries.counts`.
    """
    if facets is None:
        return None
    keep = (side[facets.neurons] == 0) & (coef[facets.neurons] < 0) & (facets.shares > 0)
    if not keep.any():
        return None
    parts = facets.parts[np.repeat(keep, sizes[facets.neurons])]
    return Facets(facets.neurons[keep], facets.shares[keep], parts)


def facet_arrays(own: Sequence[Facets | None], rows: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays of a tree whose objectives, or whose rows, have these facets; none where there are no facets."""
    some = [facets for facets in own if facets is not None]
    if not some:
        return {}
    of, share, part = ("row_", ROW_PART, ROW_PART) if rows else ("", SHARE, PART)
    at = np.concatenate([facets.neurons for facets in some])
    return {
        f"{of}facet_count": np.array([0 if facets is None else len(facets.neurons) for facets in own], np.int32),
        f"{of}facet_at": at.astype(np.uint16 if at.max(initial=0) < 1 << 16 else np.uint32),
        f"{of}facet_share": _parts(np.concatenate([facets.shares for facets in some]), share),
        f"{of}facet_part": _parts(np.concatenate([facets.parts for facets in some]), part),
    }


def needs_with_facets(
    coef: Matrix, regions: Any, beta: Matrix, given_by: Indices, facets: Sequence[Facets | None], setting: Setting
) -> tuple[Indices, Indices]:
    """`digest.needs` where objectives have facets: the events that gave the bounds which each halfspace needs.

    A facet needs bounds of its neuron's inputs. Its neuron's own bounds it does not need: they belong to the chord,
    which is left out where the facet takes all.
    """
    from layercert.certify.digest import input_needs

    lanes = side_by_side(facets, setting, 0.0)
    chord = coef.T < 0
    alone = lanes.share == 1.0
    chord[lanes.lane[alone], lanes.neuron[alone]] &= regions.side[lanes.lane[alone], lanes.neuron[alone]] != 0
    pinned = (coef.T > 0) & (regions.lo >= 0) & (regions.hi <= 0)  # each bound gives a side of its own
    hit = chord | pinned | ((regions.side != 0) & (beta != 0))
    needed = np.zeros(given_by.shape, np.bool_)
    needed[:, 0::2], needed[:, 1::2] = hit & (regions.side >= 0), hit & (regions.side <= 0)
    starts = np.cumsum([0, *setting.network.widths])
    input_needs(lanes, starts, coef, regions.side, regions.lo, needed)
    line, end = np.nonzero(needed & (given_by >= 0))
    return np.bincount(line, minlength=len(given_by)).astype(np.int64), given_by[line, end]


def _parts(values: Vector, of: Any) -> NDArray[Any]:
    return np.rint(np.clip(values, 0.0, 1.0) * np.iinfo(of).max).astype(of)


def _read(parts: NDArray[Any]) -> Vector:
    return np.asarray(parts / float(np.iinfo(parts.dtype).max))
