"""Files that commands write: found out to be impossible before any work; several certificates side by side."""

from __future__ import annotations

import os
from pathlib import Path

from layercert.errors import OptionError


def check_folder(path: str, what: str) -> None:
    folder = Path(path).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OptionError(f"{what} cannot be written to '{folder}'; make the folder or choose another")


def part(path: str, number: int) -> Path:
    """proof.npz, proof-2.npz, proof-3.npz, .. for the first, second, third part."""
    first = Path(path)
    return first if number == 1 else first.with_name(f"{first.stem}-{number}{first.suffix}")


def all_parts(path: str) -> list[Path]:
    """The first part and as many of the following as there are."""
    parts = [Path(path)]
    while (after := part(path, len(parts) + 1)).is_file():
        parts.append(after)
    return parts


def remove_parts(path: str, after: int) -> None:
    """Remove leftovers of an earlier, longer proof under the same name."""
    for old in all_parts(path)[after:]:
        old.unlink()
