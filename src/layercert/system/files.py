"""Files that are there as a whole or not at all: written beside their place, then moved into it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write to, which becomes `target` at the end; after an error the old one stands as it was."""
    half = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with half.open("wb") as file:
            yield file
        os.replace(half, target)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def printable(name: str) -> str:
    """A file's name as text that every encoding of Unicode can hold: bytes that are none of UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
