"""Points as pictures: PNG written by hand (a few lines), so that reports and notebooks need no imaging package."""

from __future__ import annotations

import base64
import math
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Vector

Shape = tuple[int, ...]


def image_of(stored: Shape, numbers: int) -> Shape | None:
    """(H, W) or (channels, H, W) to show so many numbers, stored in some shape, as a picture; a guess for flat ones."""
    axes = tuple(n for n in stored if n > 1)
    if len(axes) in (2, 3) and math.prod(axes) == numbers:
        return axes if len(axes) == 2 or axes[0] == 3 else None
    for channels in (1, 3):
        side = math.isqrt(numbers // channels)
        if side >= 4 and channels * side * side == numbers:
            return (side, side) if channels == 1 else (3, side, side)
    return None


def png(pixels: NDArray[np.uint8]) -> bytes:
    """(H, W) grey or (H, W, 3) colour bytes as a PNG file."""
    height, width = pixels.shape[:2]
    colour_type = 0 if pixels.ndim == 2 else 2
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw, 9)) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def data_uri(pixels: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def picture(x: Vector, shape: Shape | None, low: float, high: float) -> NDArray[np.uint8]:
    """A point between low and high; one that is no image becomes a strip, one cell a number."""
    scaled = np.clip((x - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    return _laid_out(np.rint(255 * scaled).astype(np.uint8), shape)


def difference(x: Vector, witness: Vector, shape: Shape | None) -> NDArray[np.uint8]:
    """witness - x from blue (less) over white to red (more), scaled to its greatest entry; channels are averaged."""
    d = witness - x
    if shape is not None and len(shape) == 3:
        d, shape = d.reshape(shape).mean(axis=0).reshape(-1), shape[1:]
    size = float(np.abs(d).max())
    t = d / size if size > 0 else d
    red, blue = np.array([178, 24, 43]), np.array([33, 102, 172])
    end = np.where(t[:, None] > 0, red, blue)
    rgb = np.rint(255 + (end - 255) * np.abs(t)[:, None]).astype(np.uint8)
    height, width = shape or (1, len(x))
    image: NDArray[np.uint8] = rgb.reshape(height, width, 3)
    return image


def _laid_out(flat: NDArray[np.uint8], shape: Shape | None) -> NDArray[np.uint8]:
    if shape is None:
        return flat.reshape(1, -1)
    image = flat.reshape(shape)
    if len(shape) == 2:
        return image
    image = image.transpose(1, 2, 0)
    return image if image.shape[2] == 3 else image[:, :, 0]
