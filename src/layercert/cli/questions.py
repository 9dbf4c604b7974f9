"""Targets, weights and fixed inputs as they are written on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from layercert.errors import InputError, OptionError
from layercert.io.datasets import is_number
from layercert.io.inputs import load_numpy

Named = dict[int | str, float]


def question(args: argparse.Namespace) -> dict[str, Any]:
    """What `robustness` takes, as it was written."""
    return {
        "target": targets(args.target),
        "weights": weights(args.weights),
        "fixed": columns(args.fixed),
        "integer": columns(args.integer),
        "one_of": None if args.one_of is None else [columns(group) for group in args.one_of.split(";")],
    }


def targets(text: str | None) -> tuple[int, ...] | None:
    """Class numbers with commas between them."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"cannot read the target {text!r}; expected a class or several: 3 or 3,5") from None


def columns(text: str | None) -> tuple[str, ...] | None:
    """Positions or names with commas between them, ranges such as 0:10 among them."""
    if text is None:
        return None
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        first, colon, last = part.partition(":")
        if colon and first.isdecimal() and last.isdecimal():
            found += [str(i) for i in range(int(first), int(last))]
        else:
            found.append(part)
    return tuple(found)


def weights(text: str | None) -> Any:
    """Numbers with commas between them, some inputs with theirs (age=2,3=0.5), or a file with one per input."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all("=" in part for part in parts):
        return _named(text, parts)
    try:
        return [float(part) for part in parts]
    except ValueError:
        return _from_file(Path(text))


def _named(text: str, parts: list[str]) -> Named:
    pairs = [part.rpartition("=") for part in parts]
    try:
        return {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        raise OptionError(f"cannot read the weights {text!r}; expected names with numbers: age=2,income=0.5") from None


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise OptionError(
            f"no file of weights at '{path}'; expected a .npy file or a text file with one number per input, a list of "
            "numbers (1,2,0.5), or names with numbers (age=2,income=0.5)"
        )
    if path.suffix.lower() == ".npy":
        array = load_numpy(path, (), "save it with numpy.save(path, weights)")
        if isinstance(array, dict):
            raise InputError(f"'{path}' holds several arrays; expected one, saved with numpy.save(path, weights)")
        return array
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the weights in '{path}' cannot be read: {error}") from None
    cells = [cell.strip() for line in lines for cell in line.split(",")]
    if len(lines) == 2 and not is_number(cells[0]):  # a header of names, and their numbers below
        half = len(cells) // 2
        return _named(str(path), [f"{name}={value}" for name, value in zip(cells[:half], cells[half:], strict=True)])
    if cells and not all(is_number(cell) for cell in cells):
        bad = next(cell for cell in cells if not is_number(cell))
        raise InputError(f"the weights in '{path}' must be numbers, one per input, got {bad!r}")
    return np.array([float(cell) for cell in cells])
