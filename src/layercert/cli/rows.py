"""The table of `measure` and `verify`, printed a row at a time: an answer is seen when it is there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from layercert.result import Result, Status, Verdict

_COLOURS = {
    Status.EXACT: "green",
    Status.ROBUST: "cyan",
    Status.UNDECIDED: "yellow",
    Verdict.NOT_ROBUST: "red",
}
#: Columns and their widths: those of the longest number, 1.234567e-05, and of "not robust".
_COLUMNS = {"input": 5, "label": 5, "nearest": 7, "status": 10, "lower": 12, "upper": 12, "programs": 8, "seconds": 8}


class ResultTable:
    """One row per input; notes below, so that the table stays narrow."""

    def __init__(self, names: Sequence[str]) -> None:
        self._widths = {**_COLUMNS, "input": max(_COLUMNS["input"], *(len(name) for name in names))}
        self._console = Console(highlight=False)
        self._notes: list[str] = []
        self._begun = False

    def add(self, name: str, r: Result, saved: str | None = None) -> None:
        """One more result; `saved`: where its search is, in case it is open."""
        if not self._begun:
            self._begun = True
            self._print(list(self._widths), "bold", "bold")
        values = (r.lower, r.upper)
        cells = [name, _name(r.label), _name(r.target), str(r.status).replace("_", " ")]
        cells += [*("inf" if math.isinf(v) else f"{v:.7g}" for v in values), str(r.programs), f"{r.seconds:.3f}"]
        self._print(cells, "", _COLOURS.get(r.status, ""))
        if r.note:
            self._notes.append(f"input {name}: {r.note}")
        if saved is not None and r.status == Status.UNDECIDED and Path(saved).exists():
            self._notes.append(f"input {name}: what is left is in {saved}; the same command goes on from there")
        if r.names and r.changes:  # columns of a table: what changes is the answer
            self._notes.append(f"\ninput {name}, {_name(r.label)} -> {_name(r.target)}:\n{r.changes}")

    def notes(self) -> None:
        for note in self._notes:
            self._console.print(note, markup=False, soft_wrap=True)

    def _print(self, cells: list[str], style: str, status_style: str) -> None:
        line = Text()
        for (name, width), cell in zip(self._widths.items(), cells, strict=True):
            padded = cell.ljust(width) if name == "status" else cell.rjust(width)
            line.append(padded, status_style if name == "status" else style)
            line.append("" if name == "seconds" else "  ")
        self._console.print(line, soft_wrap=True)


def _name(k: int | None) -> str:
    return "-" if k is None else str(k)
