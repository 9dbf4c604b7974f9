"""The answers of an audit in a file, written as they come: an audit that was killed goes on where it stopped.

A line per tool and case, as JSON. The last line may be cut off by a kill; it then does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layercert.audit.case import Tool
from layercert.bench.table import Radius
from layercert.system.files import whole_file

FILE = "answers.jsonl"


class Answers:
    """What tools have answered so far.

    A tool is known by its name alone: whoever changes it begins anew.
    """

    def __init__(self, folder: Path, resume: bool = False) -> None:
        """Open the file in the folder of an audit.

        Args:
            folder: The folder; made if missing.
            resume: Keep the answers that are there; otherwise they are dropped.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._known: dict[str, tuple[list[float], float]] = {}
        if resume and self.path.exists():
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                self._take(line)
        # written anew, so that a line that was cut off does not spoil the next one
        with whole_file(self.path) as file:
            file.write("".join(map(_line, self._known, self._known.values())).encode())

    def _take(self, line: str) -> None:
        try:
            found = json.loads(line)
            self._known[found["question"]] = [float(r) for r in found["radii"]], float(found["seconds"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return

    def get(self, tool: Tool, rows: Sequence[Radius]) -> tuple[list[float], float] | None:
        """The answer of a tool to a case.

        Args:
            tool: Who was asked.
            rows: The questions of the case.

        Returns:
            A radius per row and the seconds per question; None if the tool was not asked exactly these.
        """
        found = self._known.get(_question(tool, rows))
        return found if found is not None and len(found[0]) == len(rows) else None

    def put(self, tool: Tool, rows: Sequence[Radius], radii: Sequence[float], seconds: float) -> None:
        """Keep an answer.

        Args:
            tool: Who gave it.
            rows: The questions of the case.
            radii: One per row.
            seconds: Per question.
        """
        question, answer = _question(tool, rows), (list(radii), seconds)
        self._known[question] = answer
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(_line(question, answer))
            file.flush()
            os.fsync(file.fileno())


def _question(tool: Tool, rows: Sequence[Radius]) -> str:
    """Attacks work on all inputs of a case together, so the same inputs in the same order are one question."""
    first = rows[0]
    facts: list[Any] = [tool.name, tool.kind, first.network_sha256, first.norm, first.low, first.high]
    return json.dumps([*facts, [row.input_sha256 for row in rows]])


def _line(question: str, answer: tuple[list[float], float]) -> str:
    radii, seconds = answer
    return json.dumps({"question": question, "radii": radii, "seconds": seconds}) + "\n"
