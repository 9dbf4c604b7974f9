"""Moments of searches as pictures, one panel per method: regions, ball, restriction, decision boundary, witness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.errors import MissingPackageError
from layercert.explore.regions import Region, Window, clip, regions
from layercert.explore.trace import Cut, State, Trace
from layercert.norms import Norm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Fill of processed regions, layer by layer; pending, pruned, the current one; lines.
LAYERS = ("#dbeafe", "#93c5fd", "#60a5fa", "#3b82f6", "#1d4ed8")
PENDING, PRUNED, CURRENT = "#f59e0b", "#9ca3af", "#facc15"
BALL, BOUNDARY, CUT, WITNESS = "#111827", "#dc2626", "#7c3aed", "#dc2626"
#: Visits are numbered in the picture up to this many.
NUMBERED = 40
#: Inches of a panel in a picture.
PANEL = 5.6
#: Points of the grid on which the decision boundary is found.
GRID = 301


@dataclass(frozen=True, eq=False)
class Scene:
    """What all panels share: the window, the regions of every layer, the margin on a grid."""

    window: Window
    layers: list[list[Region]]
    margin: Matrix
    marks: Sequence[tuple[Vector, str]] = ()

    @staticmethod
    def of(traces: Sequence[Trace], marks: Sequence[tuple[Vector, str]] = ()) -> Scene:
        problem = traces[0].problem
        window = _window(traces, marks)
        xs, ys = (np.linspace(a, b, GRID) for a, b in ((window.left, window.right), (window.bottom, window.top)))
        points = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
        f = problem.network(points)
        margins = np.min([clause.margins(f).max(axis=-1) for clause in problem.clauses], axis=0)
        return Scene(window, regions(problem.network, window), margins.reshape(GRID, GRID), marks)


def _window(traces: Sequence[Trace], marks: Sequence[tuple[Vector, str]]) -> Window:
    """Around x, so that the final ball fits; the ball of any p-norm reaches d along the axes."""
    x = traces[0].problem.x
    finals = [trace.state() for trace in traces]
    sizes = [s.upper if math.isfinite(s.upper) else s.lower for s in finals]
    sizes += [float(np.abs(mark - x).max()) for mark, _ in marks]
    half = 1.2 * max([s for s in sizes if math.isfinite(s)], default=0.0)
    return Window.around(x, half if half > 0 else 1.0 + float(np.abs(x).max()))


def figure(traces: Sequence[Trace], states: Sequence[State], scene: Scene, dpi: int = 110) -> Figure:
    """One panel per trace, each in its state, with its title; the legend stands below."""
    columns, below = (4, 1.3) if len(traces) > 1 else (2, 1.9)  # the same for all moments: frames are of one size
    made = _empty(0.4 + PANEL * len(traces), PANEL + below, dpi)
    panels = made.subplots(1, len(traces), squeeze=False)[0]
    for axes, trace, state in zip(panels, traces, states, strict=True):
        panel(axes, trace, state, scene)
        axes.set_title(f"{trace.method}\n{describe(trace, state)}", fontsize=10)
    made.legend(handles=_legend(states, scene), loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return made


def bare(trace: Trace, state: State, scene: Scene, dpi: int) -> Figure:
    """A panel alone, for a page that has title and legend of its own; small, so that a phone shows readable letters."""
    made = _empty(4.4, 4.4, dpi)
    panel(made.subplots(), trace, state, scene)
    return made


def legend(states: Sequence[State], scene: Scene, dpi: int) -> Figure:
    """The legend alone; to be saved with `bbox_inches="tight"`."""
    made = _empty(5.6, 1.6, dpi)
    made.legend(handles=_legend(states, scene), loc="center", ncols=2, frameon=False, fontsize=9)
    return made


def _empty(width: float, height: float, dpi: int) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError("matplotlib", "drawing a search", "plot") from None
    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")


def panel(axes: Axes, trace: Trace, state: State, scene: Scene) -> None:
    """Regions first, then lines, then points: what matters most is on top."""
    w = scene.window
    axes.set_xlim(w.left, w.right)
    axes.set_ylim(w.bottom, w.top)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=8)
    _fill(axes, state, scene)
    for level, layer in enumerate(scene.layers, 1):
        _outlines(axes, layer, "#374151" if level == 1 else "#6b7280", 1.3 if level == 1 else 0.5)
    _order(axes, state, scene)
    _unsafe(axes, scene)
    for cut in _last_cuts(state):
        _restriction(axes, cut, trace.problem.x, w)
    _balls(axes, trace, state)
    x = trace.problem.x
    axes.plot(*x, "o", color=BALL, ms=6, zorder=9)
    axes.annotate("x", (float(x[0]), float(x[1])), xytext=(5, 5), textcoords="offset points", zorder=9)
    for mark, name in scene.marks:
        axes.plot(*mark, "s", color="#374151", ms=4, zorder=8)
        axes.annotate(
            name, (float(mark[0]), float(mark[1])), xytext=(5, 5), textcoords="offset points", fontsize=8, zorder=9
        )
    if state.witness is not None:
        axes.plot(*state.witness, "*", color=WITNESS, mec="white", mew=0.6, ms=14, zorder=10)


def describe(trace: Trace, state: State) -> str:
    upper = "?" if math.isinf(state.upper) else f"{state.upper:.4g}"
    counts = f"{len(state.processed)} regions, {len(state.pending)} pending, " if state.processed else ""
    return f"{counts}{state.programs} programs, {state.lower:.4g} ≤ d ≤ {upper}"


def _fill(axes: Axes, state: State, scene: Scene) -> None:
    from matplotlib.collections import PolyCollection

    def add(polygons: list[Matrix], **style: Any) -> None:
        if polygons:
            axes.add_collection(PolyCollection(polygons, **style), autolim=False)

    for level, layer in enumerate(scene.layers, 1):
        here = {region.key: region.polygon for region in layer}
        colour = LAYERS[min(level, len(LAYERS)) - 1]
        done = [p for k, p in here.items() if k in state.processed and k not in state.pruned]
        add(done, facecolors=colour, edgecolors="none", zorder=1 + 0.1 * level)
        pruned = [p for k, p in here.items() if k in state.pruned]
        add(pruned, facecolors="#e5e7eb", edgecolors=PRUNED, hatch="///", linewidths=0, zorder=1.05 + 0.1 * level)
        waiting = [p for k, p in here.items() if k in state.pending]
        add(waiting, facecolors=PENDING + "30", edgecolors=PENDING, linewidths=1.6, zorder=2.2)
        current = [p for k, p in here.items() if k == state.current]
        add(current, facecolors="none", edgecolors=CURRENT, linewidths=2.6, zorder=2.4)


def _order(axes: Axes, state: State, scene: Scene) -> None:
    """The order in which full patterns are visited, as in the paper's figures, while few enough to read."""
    last = {region.key: region.polygon for layer in scene.layers[-1:] for region in layer}
    visited = [key for key in state.processed if key in last]  # in the order of the visits
    for number, key in enumerate(visited[: NUMBERED + 1], 1):
        if len(visited) <= NUMBERED:
            a, b = last[key].mean(axis=0)
            axes.text(float(a), float(b), str(number), fontsize=9, ha="center", va="center", clip_on=True, zorder=6.5)


def _outlines(axes: Axes, layer: list[Region], colour: str, width: float) -> None:
    from matplotlib.collections import PolyCollection

    outline = PolyCollection(
        [r.polygon for r in layer], facecolors="none", edgecolors=colour, linewidths=width, zorder=2
    )
    axes.add_collection(outline, autolim=False)


def _unsafe(axes: Axes, scene: Scene) -> None:
    """The decision boundary, and a tint behind it."""
    w, m = scene.window, scene.margin
    if not (m.min() <= 0 < m.max()):
        return
    xs, ys = np.linspace(w.left, w.right, GRID), np.linspace(w.bottom, w.top, GRID)
    axes.contourf(xs, ys, m, levels=[-math.inf, 0.0], colors=[BOUNDARY], alpha=0.13, zorder=2.6)
    axes.contour(xs, ys, m, levels=[0.0], colors=[BOUNDARY], linewidths=2.0, zorder=5)


def _last_cuts(state: State) -> list[Cut]:
    """Algorithm 3 has one cut per goal; Algorithm 4 adds one per pattern, the latest few of which tell the story."""
    return state.cuts[-3:]


def _restriction(axes: Axes, cut: Cut, x: Vector, window: Window) -> None:
    """The edge of M dashed, what lies outside of it hatched, the warm start as a triangle."""
    from matplotlib.collections import PolyCollection

    for row, r in zip(cut.M.A, cut.M.r, strict=True):
        outside = clip(window.corners, row, -float(r) - float(row @ x))
        if len(outside) >= 3:
            style: dict[str, Any] = {"facecolors": CUT + "10", "edgecolors": CUT + "55", "hatch": "..", "linewidths": 0}
            axes.add_collection(PolyCollection([outside], zorder=2.8, **style), autolim=False)
        if float(np.abs(row).max()) > 0:
            foot = x + row * (float(r) / float(row @ row))
            axes.axline(foot, foot + np.array([-row[1], row[0]]), color=CUT, ls="--", lw=1.4, zorder=6)
    axes.plot(*cut.start, "^", color=CUT, mec="white", mew=0.6, ms=9, zorder=9)


def _balls(axes: Axes, trace: Trace, state: State) -> None:
    for radius, style in ((state.lower, "-"), (state.upper, ":")):
        if 0 < radius < math.inf:
            outline = trace.problem.x + radius * unit_ball(trace.problem.norm)
            axes.plot(*outline.T, style, color=BALL, lw=2.0 if style == "-" else 1.2, zorder=7)


def unit_ball(norm: Norm, count: int = 241) -> Matrix:
    """The outline of the unit ball; corners of l1 and linf are hit."""
    angle = np.linspace(0.0, 2.0 * math.pi, count)
    u = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(u / np.array([norm.value(v) for v in u])[:, None])


def _legend(states: Sequence[State], scene: Scene) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color=BALL, lw=2, label="ball proved safe (lower bound)")]
    handles.append(Line2D([], [], color=BALL, ls=":", lw=1.2, label="upper bound"))
    handles.append(Line2D([], [], color=BOUNDARY, lw=2, label="decision boundary"))
    handles.append(Line2D([], [], color=WITNESS, marker="*", ms=11, ls="", label="witness"))
    if any(s.processed for s in states):
        for level in range(1, len(scene.layers) + 1):
            handles.append(Patch(color=LAYERS[min(level, len(LAYERS)) - 1], label=f"processed, layer {level}"))
        handles.append(Patch(fc=PENDING + "30", ec=PENDING, lw=1.6, label="pending"))
    if any(s.pruned for s in states):
        handles.append(Patch(fc="#e5e7eb", ec=PRUNED, hatch="///", label="pruned"))
    if any(s.cuts for s in states):
        handles.append(Line2D([], [], color=CUT, ls="--", marker="^", label="restriction M (CROWN), warm start"))
    return handles
