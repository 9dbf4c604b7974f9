"""A line in a notebook that changes in place. A notebook is no terminal, and widgets may not be installed."""

from __future__ import annotations

import sys
import time
from typing import Any

#: Seconds between two looks of a line.
PAUSE = 0.25


def in_notebook() -> bool:
    """Is this a kernel of Jupyter? IPython in a terminal has none, and Python alone has no IPython."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Line:
    """Text below the cell, replaced by the next; nothing is shown before `patience` seconds have passed."""

    def __init__(self, patience: float = 0.0) -> None:
        self._handle: Any = None
        self._next = time.monotonic() + patience

    def show(self, text: str, last: bool = False) -> None:
        """Show the text, unless another one was shown a moment ago; the last one always replaces what is there."""
        if time.monotonic() < self._next and not (last and self._handle is not None):
            return
        from IPython.display import display  # type: ignore[import-not-found]

        self._next = time.monotonic() + PAUSE
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
