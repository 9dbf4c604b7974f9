"""numpy's files, .npz and .npy, read as if a stranger had written them.

`numpy.load` allocates what a header announces, evaluates headers as Python, and lets through whatever zip, zlib or lzma
raise on a damaged file. Here a header is matched, never evaluated; its size is compared with the bytes that are there
before anything is made of it; and everything that can be wrong is a `Damaged`. Python objects are never loaded.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

#: Compressed arrays may unpack to this many bytes whatever the size of the file ..
SMALL = 1 << 30
#: .. and to this many times the size of the file. Real data stay far below, a bomb of zeros is packed 1,000 times.
RATIO = 100
#: numpy itself writes headers of about 100 bytes and refuses those above this.
LONGEST_HEADER = 10_000
#: numpy allows 64 axes, older ones 32.
MOST_AXES = 32

#: Why an array of Python objects is refused.
OBJECTS = "it is an array of Python objects, which is never loaded (it could run code); store a plain float array"

_MAGIC = b"\x93NUMPY"
_ITEM = re.compile(
    r"""\s*(?P<q>['"])(?P<key>descr|fortran_order|shape)(?P=q)\s*:\s*"""
    r"""(?:(?P<r>['"])(?P<descr>[<>|=]?[A-Za-z?]\d{0,5})(?P=r)|(?P<order>True|False)|\((?P<shape>[\d\s,L]*)\))\s*(?:,|$)"""
)


class Damaged(ValueError):  # noqa: N818 (the file is, not the program)
    """What is wrong with a file, or with the array of that name in it."""

    def __init__(self, reason: str, member: str | None = None) -> None:
        super().__init__(reason if member is None else f"{member}: {reason}")
        self.reason = reason
        self.member = member


def read_numpy(
    stream: BinaryIO, wanted: Callable[[str], bool] = lambda name: True, largest: int | None = None
) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array in a .npy stream, or the wanted ones of an .npz stream by name; their numbers are native, in C order.

    An .npz that would unpack to more than `largest` bytes is refused; None stands for a multiple of the file's size.
    """
    start = stream.read(len(_MAGIC))  # a disk that fails is nothing that the file can help: OSError
    try:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if start == _MAGIC:
            return _array(stream.read())
        with zipfile.ZipFile(stream) as archive:
            return _members(archive, wanted, max(SMALL, RATIO * size) if largest is None else largest)
    except Damaged:
        raise
    except MemoryError:
        raise Damaged("it does not fit into memory") from None
    except Exception as error:  # zipfile lets through what is raised by whatever it calls: struct, seek, codecs
        raise Damaged(_first_line(error)) from None


def names_in(stream: BinaryIO) -> list[str]:
    """The names of all arrays of an .npz stream, none for anything else."""
    try:
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            return [_name(member) for member in archive.infolist()]
    except Exception:  # as above
        return []


def _members(archive: zipfile.ZipFile, wanted: Callable[[str], bool], largest: int) -> dict[str, NDArray[Any]]:
    members = [member for member in archive.infolist() if wanted(_name(member))]
    if sum(member.file_size for member in members) > largest:
        raise Damaged(f"it would unpack to more than {largest >> 20} MiB")
    arrays: dict[str, NDArray[Any]] = {}
    for member in members:
        name = _name(member)
        if name in arrays:
            raise Damaged("it is there twice", name)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Damaged("it is compressed in a way that numpy does not use", name)
        arrays[name] = _array(_unpacked(archive, member, name), name)
    return arrays


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> bytes:
    try:
        with archive.open(member) as file:
            data = file.read(member.file_size + 1)  # never more than announced: a lying size must not unpack on
    except MemoryError:
        raise
    except Exception as error:
        raise Damaged(_first_line(error), name) from None
    if len(data) != member.file_size:
        raise Damaged(f"it should have {member.file_size} bytes and has not", name)
    return data


def _array(data: bytes, name: str | None = None) -> NDArray[Any]:
    """One array; its announced shape is checked against its size before anything is allocated."""
    shape, fortran, dtype, start = _header(data, name)
    if dtype.hasobject:
        raise Damaged(OBJECTS, name)
    sizes = [n for n in shape if n]
    if math.prod(shape) * dtype.itemsize != len(data) - start or math.prod(sizes) >= 1 << 48:
        raise Damaged("an array's size differs from its header", name)
    flat = np.frombuffer(data, dtype, offset=start) if len(data) > start else np.empty(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    return np.array(array, dtype=dtype.newbyteorder("="), order="C")


def _header(data: bytes, name: str | None) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and type of the numbers, and where they begin."""
    width = {b"\x01": 2, b"\x02": 4, b"\x03": 4}.get(data[6:7], 0)
    length = int.from_bytes(data[8 : 8 + width], "little")
    start = 8 + width + length
    if data[:6] != _MAGIC or not width or length > LONGEST_HEADER or start > len(data):
        raise Damaged("it does not begin as numpy's arrays do", name)
    text = data[8 + width : start].decode("latin1").strip()
    items, position = {}, 1
    while match := _ITEM.match(text[:-1], position):
        items[match["key"]] = match["descr"] or match["order"] or match["shape"] or ""
        position = match.end()
    axes = [axis.strip().removesuffix("L") for axis in items.get("shape", "").split(",")]
    numbers = [int(axis) for axis in axes if axis.isdecimal() and len(axis) < 20]
    plain = text[:1] == "{" and text[-1:] == "}" and not text[position:-1].strip() and len(items) == 3
    try:
        dtype = np.dtype(items["descr"] if plain else "V")
    except TypeError:
        dtype = np.dtype("V")
    odd = dtype.itemsize == 0 or dtype.kind == "V" or items.get("fortran_order") not in ("True", "False")
    if odd or len(numbers) != sum(map(bool, axes)) or len(numbers) > MOST_AXES:
        raise Damaged(f"{text[:80]!r} does not announce an array of numbers", name)
    return tuple(numbers), items["fortran_order"] == "True", dtype, start


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
