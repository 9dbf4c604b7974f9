"""Progress in a notebook: a line that changes in place. IPython is not installed for the tests; a stand-in records."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert import run
from layercert.system import notebook


class Screen:
    """What IPython.display would have drawn: outputs in order, each with all texts that it has had."""

    def __init__(self) -> None:
        self.outputs: list[list[str]] = []

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        texts = [content["text/plain"]]
        self.outputs.append(texts)
        return SimpleNamespace(update=lambda content, raw: texts.append(content["text/plain"]))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A Jupyter kernel, as far as anybody asks."""
    made, package, display = Screen(), ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = made.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(run, "PATIENCE", 0.0)
    monkeypatch.setattr(notebook, "PAUSE", 0.0)
    return made


#: Class 0 where relu(t) < 0.5: from 0.1 the distance is 0.4.
NET = lc.Network.from_arrays([[[1.0]], [[-1.0], [0.0]]], [[0.0], [0.5, 0.0]])


def test_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not notebook.in_notebook()
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace())  # IPython in a terminal has no kernel
    monkeypatch.setitem(sys.modules, "IPython", shell)  # type: ignore[misc]
    assert not notebook.in_notebook()


def test_a_measurement_shows_its_bounds_and_clears_them(screen: Screen) -> None:
    assert lc.measure(NET, [0.1], method="layercert-both").upper == pytest.approx(0.4)
    [texts] = screen.outputs
    assert len(texts) > 1 and texts[-1] == ""
    assert all(" <= distance <= " in text for text in texts[:-1])


def test_who_watches_has_no_line(screen: Screen) -> None:
    lc.measure(NET, [0.1], method="layercert-both", watch=lambda progress, event: None)
    assert screen.outputs == []


def test_a_quick_answer_shows_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PATIENCE", 60.0)
    lc.measure(NET, [0.1], method="layercert-both")
    assert screen.outputs == []


@pytest.mark.parametrize(("progress", "lines"), [(None, 1), (True, 1), (False, 0)])
def test_many_inputs_share_a_line(screen: Screen, progress: bool | None, lines: int) -> None:
    results = lc.measure_all(NET, np.array([[0.1], [0.2]]), method="layercert-both", progress=progress)
    assert results._repr_html_().startswith("<p>0 of 2 inputs measured</p>"), "showing them computes nothing"
    assert [round(r.upper, 6) for r in results] == [0.4, 0.3]
    assert len(screen.outputs) == lines
    for texts in screen.outputs:
        assert [text.split(",")[0] for text in texts] == ["1 of 2 inputs", "2 of 2 inputs"]
        assert texts[-1].endswith("s: 2 exact")
    shown = results._repr_html_()
    assert "2 of 2 inputs measured: 2 exact" in shown and shown.count("<tr>") == 3 and "<td>0.3</td>" in shown
