"""What the progress bar says of a tree."""

from __future__ import annotations

import pytest

from layercert.cli.live import WINDOW, Live, Pace
from layercert.run import Progress
from layercert.search.events import Nodes


def test_a_tree_that_grows_has_no_end_in_sight() -> None:
    pace = Pace()
    for second in range(60):
        said = pace.said(Nodes(100 + 5 * second, 10 * second, 0.25), float(second))
    assert said == "395 open, 590 closed (10.0/s), 25.0 % of the tree"


def test_a_tree_that_shrinks_says_about_how_long() -> None:
    pace = Pace()
    said = ""
    for second in range(40):
        said = pace.said(Nodes(1000 - 20 * second, 30 * second, 0.99996), float(second))
        assert ("left" in said) == (second >= WINDOW / 2)
    assert said == "220 open, 1170 closed (30.0/s), 99.9 % of the tree, about 11 s left"


def test_a_full_queue_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress: Progress = None  # type: ignore[assignment]  # not looked at away from a terminal
    for quiet in (False, True):
        with Live(1, quiet=quiet) as live:
            for _ in range(3):
                live.watch(progress, Nodes(1, 1, 0.5, depth_first=True))
    assert capsys.readouterr().err.count("the open nodes take all of --memory: the search goes depth first") == 1
