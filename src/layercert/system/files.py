"""Files that are there as a whole or not at all, written beside their place, then moved into it; and damaged ones."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: What reading a damaged .npz or .npy file may raise. RuntimeError: a flipped bit says that a member is encrypted.
DAMAGE = (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, RuntimeError)


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
