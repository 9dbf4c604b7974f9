"""Bounds from the inputs up, for networks with few inputs: every neuron between two linear functions of the offset.

A pass back to the inputs costs as much for one neuron as the whole network costs here, where a layer is two products
with as many columns as there are inputs. The bounds are wider, but most neurons of a wide network have one side
already, and passes back are for the others (`build`).

Forms. Layer k's pre-activations at x + w, w in the box, satisfy

    lower_i.w + low_i - slip_i  <=  z_i  <=  upper_i.w + high_i + slip_i.

A ReLU keeps both forms where it is on; else the lower one is 0 or itself, the upper one goes through the neuron's upper
line. With M and D half the sum and half the difference of the outputs' forms the next layer has W M - |W| D and
W M + |W| D.

Rounding. A coefficient of those is wrong by gamma |W| max(|lower|, |upper|), since |M| + |D| is that maximum. `size`
bounds the sum of the maxima against the box, the constant and what cancels in the upper line included, so that all
coefficients of a row together err by gamma (|W| size + |b|), and inherit |W| slip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import TINY, LinearMap, Matrix, Vector, gamma
from layercert.bounds.relu import upper_line
from layercert.linear_maps import terms
from layercert.network import Network
from layercert.search.adaptive.model import HI, LO, Model

#: Forms are for networks with so few inputs, and so many neurons: with fewer a pass back costs nothing.
FEW_INPUTS, MANY_NEURONS = 64, 4096
#: Sums of errors are rounded themselves.
UP = 1.01


class Forms(NamedTuple):
    """Of one layer's pre-activations; the last column of each matrix is the constant."""

    lower: Matrix
    upper: Matrix
    slip: Vector


class Room(NamedTuple):
    """Where the offsets are: low <= w <= high, with a 1 below the constants; `reach` bounds their size."""

    low: Vector
    high: Vector
    reach: Vector


def is_suited(network: Network) -> bool:
    """Few inputs, many neurons?"""
    return network.inputs <= FEW_INPUTS and network.neurons > MANY_NEURONS


def room_of(low: Vector, high: Vector, U: float) -> Room:
    """The part of a box of offsets that a ball of radius U, in any norm, can meet."""
    low, high = np.append(np.maximum(low, -U), 1.0), np.append(np.minimum(high, U), 1.0)
    return Room(low, high, np.maximum(np.abs(low), np.abs(high)))


def into(below: Forms | None, model: Model, network: Network, state: Matrix, k: int, room: Room) -> Forms:
    """The forms of layer k, from those of the layer below it; its bounds in the state are narrowed by them."""
    noff = model.net.noff
    part = slice(noff[k], noff[k + 1])
    if below is None:
        forms = first_forms(network.maps[0], model.z0, model.Q[part])
    else:
        under = state[:, noff[k - 1] : noff[k]]
        forms = next_forms(below, under, network.maps[k], network.biases[k], room)
    state[LO, part], state[HI, part] = bounds_of(forms, room, state[LO, part], state[HI, part])
    return forms


def first_forms(W: LinearMap, z0: Vector, error: Vector) -> Forms:
    """Of the first layer: its functions themselves, whose value at x may err."""
    rows = W if isinstance(W, np.ndarray) else W.toarray()
    forms = np.column_stack([rows, z0])
    return Forms(forms, forms, error)


def next_forms(forms: Forms, state: Matrix, W: LinearMap, b: Vector, room: Room) -> Forms:
    """Those of the next layer, z = W relu(..) + b, from the bounds (columns of a state) of this one."""
    lo, hi = state[LO], state[HI]
    is_open, on = (lo < 0) & (hi > 0), lo >= 0
    su, iu = upper_line(np.where(is_open, lo, -1.0), np.where(is_open, hi, 1.0))
    su, iu = np.where(is_open, su, on), np.where(is_open, iu, 0.0)
    low = forms.lower * np.where(is_open, hi > -lo, on)[:, None]
    high = forms.upper * su[:, None]
    high[:, -1] += iu
    size = np.maximum(np.abs(low), np.abs(high)) @ room.reach + 2.0 * iu
    slip = np.where(is_open | on, forms.slip, 0.0)
    centre = np.asarray(W @ (0.5 * (low + high)))
    spread = np.asarray(abs(W) @ np.column_stack([0.5 * (high - low), slip, size]))
    centre[:, -1] += b
    noise = gamma(2 * terms(W) + len(room.reach) + 64)
    error = UP * spread[:, -2] + UP * noise * (spread[:, -1] + np.abs(b)) + TINY
    return Forms(centre - spread[:, :-2], centre + spread[:, :-2], error)


def bounds_of(forms: Forms, room: Room, lo: Vector, hi: Vector) -> tuple[Vector, Vector]:
    """What the forms say of a layer's bounds, where that is better and no number is too large."""
    noise = gamma(len(room.reach) + 64)
    with np.errstate(over="ignore", invalid="ignore"):
        low, least = _least(forms.lower, room)
        high, most = _least(-forms.upper, room)
        low = low - forms.slip - UP * noise * least - TINY
        high = -high + forms.slip + UP * noise * most + TINY
    lo = np.where(np.isfinite(least), np.fmax(lo, low), lo)
    return lo, np.where(np.isfinite(most), np.fmin(hi, high), hi)


def _least(form: Matrix, room: Room) -> tuple[Vector, Vector]:
    """The least value of each row, and the size of its terms."""
    return (form * np.where(form > 0.0, room.low, room.high)).sum(axis=1), np.abs(form) @ room.reach
