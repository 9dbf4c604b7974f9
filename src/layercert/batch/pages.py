"""The rows of a damaged SQLite file: every leaf page of a table that can still be read, whoever points to it.

SQLite stops at the first damaged page on its way down a tree. Here each page is looked at by itself, as SQLite's
"Database File Format" describes it (sections 1.6 and 2.1): the cells of table leaves are records, and what does not fit
on a page goes on in a chain of others. Nothing is trusted: the caller checks each row by its checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

PAGE_SIZE = 4096  # what SQLite makes unless told otherwise
TABLE_LEAF = 0x0D
HEADER = 100  # bytes before the first page's own header
LARGEST = 2**31  # a payload beyond this is damage

Row = tuple[int, tuple[object, ...]]


def rows(data: bytes) -> Iterator[Row]:
    """(rowid, columns) of every cell of every readable table leaf, in the order of the file."""
    size = _page_size(data)
    for start in range(0, len(data), size):
        page = data[start : start + size]
        yield from _leaf(data, page, HEADER if start == 0 else 0, size)


def _page_size(data: bytes) -> int:
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    return size if data.startswith(b"SQLite format 3\0") and size >= 512 and size & (size - 1) == 0 else PAGE_SIZE


def _leaf(data: bytes, page: bytes, at: int, size: int) -> Iterator[Row]:
    if len(page) < at + 8 or page[at] != TABLE_LEAF:
        return
    cells = int.from_bytes(page[at + 3 : at + 5], "big")
    for i in range(cells):
        try:
            (place,) = struct.unpack_from(">H", page, at + 8 + 2 * i)
            yield _cell(data, page, place, size)
        except (IndexError, ValueError, struct.error):
            continue  # a damaged cell; its neighbours may be sound


def _cell(data: bytes, page: bytes, place: int, size: int) -> Row:
    length, place = _varint(page, place)
    rowid, place = _varint(page, place)
    if length > min(len(data), LARGEST):
        raise ValueError("a payload longer than the file")
    local = _local(length, size)
    payload = page[place : place + local]
    if local < length:
        payload += _overflow(data, int.from_bytes(page[place + local : place + local + 4], "big"), length - local, size)
    if len(payload) != length:
        raise ValueError("a payload that ends too early")
    return rowid, _record(payload)


def _local(length: int, size: int) -> int:
    """How much of a payload is on the leaf itself."""
    most, least = size - 35, (size - 12) * 32 // 255 - 23
    if length <= most:
        return length
    fitting = least + (length - least) % (size - 4)
    return fitting if fitting <= most else least


def _overflow(data: bytes, number: int, length: int, size: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        start = (number - 1) * size
        if number < 1 or start + size > len(data):
            raise ValueError("a chain that leaves the file")
        part = data[start + 4 : start + size][:length]
        parts.append(part)
        length -= len(part)
        number = int.from_bytes(data[start : start + 4], "big")
    return b"".join(parts)


def _record(payload: bytes) -> tuple[object, ...]:
    end, at = _varint(payload, 0)
    if end > len(payload):
        raise ValueError("a header longer than its record")
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[object] = []
    for kind in kinds:
        value, at = _value(payload, kind, at)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, kind: int, at: int) -> tuple[object, int]:
    """A value by its serial type, and where the next one starts."""
    widths = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
    if kind in (10, 11):
        raise ValueError("a serial type that does not exist")
    width = widths[kind] if kind < 10 else (kind - 12) // 2
    raw = payload[at : at + width]
    if len(raw) != width:
        raise ValueError("a value that ends too early")
    value: object
    if kind == 0:
        value = None
    elif kind in (8, 9):
        value = kind - 8
    elif kind == 7:
        (value,) = struct.unpack(">d", raw)
    elif kind < 7:
        value = int.from_bytes(raw, "big", signed=True)
    else:
        value = raw if kind % 2 == 0 else raw.decode("utf-8")
    return value, at + width


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number in 1 to 9 bytes, seven bits each and eight in the ninth, and where the next thing starts."""
    value = 0
    for i in range(9):
        byte = raw[at + i]
        if i == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + i + 1
    raise AssertionError("unreachable")
