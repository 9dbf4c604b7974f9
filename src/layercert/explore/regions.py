"""The activation regions of a two-input network inside a window, as convex polygons: layer 1 and every deeper layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layercert.arrays import Mask, Matrix, Vector
from layercert.errors import InputError, OptionError
from layercert.network import Network

#: More regions than this are no picture any more.
MOST = 20_000
#: Parts thinner than this fraction of the window are rounding.
THIN = 1e-9


@dataclass(frozen=True)
class Window:
    """The square that is shown."""

    left: float
    right: float
    bottom: float
    top: float

    @staticmethod
    def around(centre: Vector, half: float) -> Window:
        x, y = (float(c) for c in centre)
        return Window(x - half, x + half, y - half, y + half)

    @property
    def corners(self) -> Matrix:
        return np.array(
            [[self.left, self.bottom], [self.right, self.bottom], [self.right, self.top], [self.left, self.top]]
        )


@dataclass(frozen=True, eq=False)
class Region:
    """R_A of an l-layer pattern: `key` is that of the Cell of the same pattern."""

    key: bytes
    level: int
    polygon: Matrix


def regions(network: Network, window: Window) -> list[list[Region]]:
    """For each layer l = 1..L, the regions of all l-layer patterns that meet the window."""
    if network.inputs != 2:
        raise InputError(
            f"pictures need a network with 2 inputs, this one has {network.inputs}; choose a plane through it"
        )
    whole = Region(b"", 0, window.corners)
    thin = THIN * (window.right - window.left)
    # with each region the affine map of the next layer's pre-activations on it (eq. 4)
    front = [(whole, network.weights[0], network.biases[0])]
    layers: list[list[Region]] = []
    for level in range(1, network.L + 1):
        W, b = network.weights[level], network.biases[level]
        fresh = []
        for parent, G, g in front:
            for polygon, signs in _arrangement(parent.polygon, G, g, thin):
                key = parent.key + np.packbits(signs).tobytes()
                on = W * signs
                fresh.append((Region(key, level, polygon), on @ G, on @ g + b))
            if len(fresh) > MOST:
                raise OptionError(
                    f"more than {MOST} regions of layer {level} in the window: too many for a picture; "
                    "choose a smaller radius or a smaller network"
                )
        front = fresh
        layers.append([region for region, _, _ in fresh])
    return layers


def _arrangement(polygon: Matrix, G: Matrix, g: Vector, thin: float) -> list[tuple[Matrix, Mask]]:
    """Cut a polygon by all lines G_j v + g_j = 0; each part with its signs (True: on)."""
    parts: list[tuple[Matrix, list[bool]]] = [(polygon, [])]
    for row, constant in zip(G, g, strict=True):
        size = float(np.linalg.norm(row))
        cut: list[tuple[Matrix, list[bool]]] = []
        for part, signs in parts:
            height = part @ row + constant
            if size == 0 or height.min() >= -thin * size:
                cut.append((part, [*signs, size > 0 or constant >= 0]))
            elif height.max() <= thin * size:
                cut.append((part, [*signs, False]))
            else:
                cut.append((clip(part, row, constant), [*signs, True]))
                cut.append((clip(part, -row, -constant), [*signs, False]))
        parts = cut
    return [(part, np.array(signs, dtype=bool)) for part, signs in parts]


def clip(polygon: Matrix, row: Vector, constant: float) -> Matrix:
    """The part of a convex polygon with row.v + constant >= 0 (Sutherland and Hodgman)."""
    height = polygon @ row + constant
    kept: list[Vector] = []
    for i, (v, h) in enumerate(zip(polygon, height, strict=True)):
        w, k = polygon[i - 1], height[i - 1]
        if (h > 0) != (k > 0):
            t = k / (k - h)
            kept.append(w + t * (v - w))
        if h > 0:
            kept.append(v)
    return np.array(kept).reshape(-1, 2)
