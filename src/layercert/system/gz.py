"""Compressed files, never unpacked without end."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from layercert.system.npz import RATIO, SMALL, Damaged


def is_gzip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def read_gzip(path: Path) -> bytes:
    """The unpacked content; what is damaged, or grows beyond any reason, is `Damaged`."""
    most = max(SMALL, RATIO * path.stat().st_size)
    try:
        with gzip.open(path) as file:
            data = file.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Damaged(str(error)) from None
    except MemoryError:
        raise Damaged("it does not fit into memory") from None
    if len(data) > most:
        raise Damaged(f"it unpacks to more than {most >> 20} MiB")
    return data
