"""Figures of the experiments with matplotlib: performance profiles, and bounds over time. Each as SVG and PNG."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layercert.errors import MissingPackageError
from layercert.experiments.averages import column
from layercert.experiments.claims import sorted_times
from layercert.experiments.runs import Pool, Row
from layercert.experiments.setup import HARD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: As in the paper: GeoCert-Lip blue, dotted, circles; LayerCert-Both orange, crosses. Ours: green.
STYLES: dict[str, dict[str, Any]] = {
    "geocert-lip": {"color": "#1f77b4", "ls": ":", "marker": "o"},
    "layercert-both": {"color": "#ff7f0e", "ls": "-", "marker": "x"},
    "adaptive": {"color": "#2ca02c", "ls": "-", "marker": "s"},
}
FORMATS = (".svg", ".png")
#: Faster than this is noise; log axes start here.
FLOOR = 1e-3


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError("matplotlib", "drawing the figures", "plot") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """The same bytes every time: no date, and ids that do not depend on chance."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", dpi=110)


def profiles_figure(pool: Pool) -> Figure:
    """One panel a network: how many inputs are solved within a time."""
    nets = pool.nets
    columns = min(4, len(nets))
    rows = math.ceil(len(nets) / columns)
    figure = new_figure(3.1 * columns, 2.5 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, net in zip(panels, nets, strict=False):
        for method, style in STYLES.items():
            _profile(axes, sorted_times(pool, net, method), pool.limit, column(method), style)
        axes.set_title(net, fontsize=10)
        axes.set_xscale("log")
        axes.set_xlim(FLOOR, pool.limit)
        axes.set_ylim(0, pool.inputs * 1.05)
        axes.tick_params(labelsize=8)
    for axes in panels[len(nets) :]:
        axes.set_axis_off()
    _finish(figure, panels[0], "CPU seconds", "inputs solved")
    return figure


def _profile(axes: Axes, times: list[float], limit: float, label: str, style: dict[str, Any]) -> None:
    seconds = [FLOOR, *(max(t, FLOOR) for t in times), limit]
    solved = [0, *range(1, len(times) + 1), len(times)]
    every = 10 if len(times) > 20 else 1  # the paper marks every tenth input
    marked = list(range(every, len(times) + 1, every))
    axes.plot(seconds, solved, drawstyle="steps-post", label=label, ms=4, lw=1.5, markevery=marked, **style)


def large_figure(pool: Pool, net: str) -> Figure:
    """One panel a hard input: the proved radius over time, and where the upper bound ends up."""
    inputs = hard_inputs(pool, net)
    columns = min(5, len(inputs))
    rows = math.ceil(len(inputs) / columns)
    figure = new_figure(2.9 * columns + 0.4, 2.5 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, i in zip(panels, inputs, strict=False):
        for method, style in STYLES.items():
            row = pool.select(net, method).get(i)
            if row is not None:
                _bounds(axes, row, pool.limit, column(method), style)
                axes.set_title(f"input {row.name}", fontsize=10)
        axes.set_xscale("log")
        axes.set_xlim(FLOOR, pool.limit)
        axes.tick_params(labelsize=8)
    for axes in panels[len(inputs) :]:
        axes.set_axis_off()
    _finish(figure, panels[0], "CPU seconds", "proved radius")
    return figure


def hard_inputs(pool: Pool, net: str) -> list[str]:
    """As the paper chooses them: neither of its two methods finished. At most ten."""
    a, b = pool.select(net, "geocert-lip"), pool.select(net, "layercert-both")
    return [i for i in a if i in b and not a[i].solved and not b[i].solved][:HARD]


def _bounds(axes: Axes, row: Row, limit: float, label: str, style: dict[str, Any]) -> None:
    try:
        points = json.loads(row.trace.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        points = [[row.seconds, row.lower, None]]
    seconds = [max(t, FLOOR) for t, _, _ in points]
    lower = [low for _, low, _ in points]
    line = {k: v for k, v in style.items() if k != "marker"}
    axes.plot(seconds, lower, drawstyle="steps-post", label=label, lw=1.5, **line)
    if row.solved:
        axes.plot(seconds[-1], lower[-1], ls="", marker=style["marker"], color=style["color"], ms=7)
        axes.axhline(lower[-1], color=style["color"], lw=0.6, alpha=0.5)


def _finish(figure: Figure, first: Axes, x: str, y: str) -> None:
    figure.supxlabel(x, fontsize=10)
    figure.supylabel(y, fontsize=10)
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
