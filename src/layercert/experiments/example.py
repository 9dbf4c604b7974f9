"""Appendix A: the order in which GeoCert and LayerCert-Basic process nodes and edges, listed, drawn and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Matrix
from layercert.experiments.claims import FAILED, HELD, Claim
from layercert.experiments.figures import new_figure
from layercert.experiments.tables import Cell, Table
from layercert.explore.plane import appendix_a
from layercert.explore.regions import Region, Window, regions
from layercert.run import Progress, measure
from layercert.search.events import Event, Queue, Visit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = ("geocert", "layercert-basic")
#: All seven regions and the input are inside.
WINDOW = Window(-2.6, 3.4, -2.9, 3.1)


@dataclass(frozen=True)
class Step:
    """A node taken from the queue, an edge (distance to the face between two regions), or the way a layer down."""

    kind: str  # "node", "edge" or "down"
    layer: int
    cell: bytes
    origin: bytes
    distance: float


@dataclass(frozen=True, eq=False)
class Order:
    """One search over the network of Appendix A, in l_2."""

    method: str
    steps: tuple[Step, ...]
    programs: int

    def nodes(self, layer: int) -> list[bytes]:
        return [s.cell for s in self.steps if s.kind == "node" and s.layer == layer]

    def edges(self, layer: int) -> list[Step]:
        return [s for s in self.steps if s.kind == "edge" and s.layer == layer]


def orders() -> list[Order]:
    return [_order(method) for method in METHODS]


def _order(method: str) -> Order:
    network, x = appendix_a()
    steps: list[Step] = []

    def watch(progress: Progress, event: Event | None) -> None:
        if isinstance(event, Visit):
            steps.append(Step("node", event.cell.level, event.cell.key, b"", event.distance))
        elif isinstance(event, Queue):
            kind = "edge" if event.origin.level == event.cell.level else "down"
            steps.append(Step(kind, event.cell.level, event.cell.key, event.origin.key, event.distance))

    result = measure(network, x, "l2", method=method, watch=watch)
    return Order(method, tuple(steps), result.programs)


def order_table(found: list[Order]) -> Table:
    """Every step of both searches; regions are named by the signs of their neurons."""
    names = _names()
    rows: list[tuple[Cell, ...]] = []
    for order in found:
        for number, s in enumerate(order.steps, 1):
            what = names[s.cell] if s.kind == "node" else f"{names[s.origin]} → {names[s.cell]}"
            words = (order.method, str(number), s.kind, str(s.layer), what, f"{s.distance:.4f}")
            rows.append(tuple(map(Cell, words)))
    header = ("method", "step", "kind", "layer", "region or face", "distance")
    return Table("example-order", "Order of nodes and edges in Appendix A", header, tuple(rows), words=True)


def example_claims(found: list[Order]) -> list[Claim]:
    geo, layer = found
    nodes = [sum(s.kind == "node" for s in order.steps) for order in found]
    last = 2
    top_right = next(key for key, name in _names().items() if name == "++")
    into = sum(s.cell == top_right for s in layer.edges(1))
    inside = [[key.startswith(top_right) for key in (s.cell, s.origin)] for s in geo.edges(last)]
    into_geo = sum(cell and not origin for cell, origin in inside)

    def claim(text: str, measured: str, holds: bool) -> Claim:
        return Claim("appendix A", text, measured, HELD if holds else FAILED)

    return [
        claim("LayerCert visits more nodes than GeoCert", f"{nodes[1]} against {nodes[0]}", nodes[1] > nodes[0]),
        claim("it visits the nodes of the last layer in the same order", f"{len(layer.nodes(last))} nodes each",
              layer.nodes(last) == geo.nodes(last)),
        claim("it computes the distance to the top-right node of the first layer once",
              f"{into} against {into_geo} distances from outside to its regions in GeoCert", into == 1),
        claim("it solves fewer convex programs (Theorem 4.2)", f"{layer.programs} against {geo.programs}",
              layer.programs <= geo.programs),
    ]  # fmt: skip


def example_figure(found: list[Order]) -> Figure:
    """As in the paper: the graph of GeoCert, and the two layers of LayerCert's."""
    network, x = appendix_a()
    layers = regions(network, WINDOW)
    geo, layer = found
    figure = new_figure(13.5, 4.9)
    panels = figure.subplots(1, 3)
    for axes, order, level, title in zip(
        panels, (geo, layer, layer), (2, 1, 2),
        ("GeoCert", "LayerCert-Basic, layer 1", "LayerCert-Basic, layer 2"), strict=True,
    ):  # fmt: skip
        _panel(axes, order, level, layers[level - 1], layers[0])
        axes.plot(*x, "*", color="#111827", ms=11, zorder=6)
        axes.annotate("x", (float(x[0]), float(x[1])), xytext=(6, -10), textcoords="offset points")
        axes.set_title(title, fontsize=11)
    legend = "circles: nodes, in the order visited; squares: edges, in the order their distance is computed"
    figure.supxlabel(legend, fontsize=9)
    return figure


def _panel(axes: Axes, order: Order, level: int, cells: list[Region], first: list[Region]) -> None:
    from matplotlib.collections import PolyCollection

    outlines = PolyCollection([c.polygon for c in cells], facecolors="#f8fafc", edgecolors="#94a3b8", linewidths=0.8)
    axes.add_collection(outlines, autolim=False)
    thick = PolyCollection([c.polygon for c in first], facecolors="none", edgecolors="#334155", linewidths=1.4)
    axes.add_collection(thick, autolim=False)
    centre = {c.key: _centre(c.polygon) for c in cells}
    visited = order.nodes(level)
    numbered = {s: i for i, s in enumerate((s for s in order.steps if s.kind == "edge"), 1)}
    drawn: dict[frozenset[bytes], list[int]] = {}
    for s in order.edges(level):
        drawn.setdefault(frozenset((s.cell, s.origin)), []).append(numbered[s])
    for ends, numbers in drawn.items():
        a, b = (centre[key] for key in sorted(ends))
        axes.plot([a[0], b[0]], [a[1], b[1]], color="#2563eb", lw=1.3, zorder=2)
        middle = (a + b) / 2
        box = {"boxstyle": "square,pad=0.2", "fc": "white", "ec": "#2563eb", "lw": 0.8}
        text = ", ".join(map(str, numbers))
        axes.text(middle[0], middle[1], text, fontsize=8, color="#2563eb", ha="center", va="center", bbox=box, zorder=3)
    everything = [s.cell for s in order.steps if s.kind == "node"]
    for key, at in centre.items():
        number = str(everything.index(key) + 1) if key in visited else ""
        box = {"boxstyle": "circle,pad=0.3", "fc": "#dcfce7" if number else "#f1f5f9", "ec": "#15803d", "lw": 1.0}
        axes.text(at[0], at[1], number or " ", fontsize=9, ha="center", va="center", bbox=box, zorder=4)
    axes.set_xlim(WINDOW.left, WINDOW.right)
    axes.set_ylim(WINDOW.bottom, WINDOW.top)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def _centre(polygon: Matrix) -> Matrix:
    return np.asarray(polygon.mean(axis=0))


def _names() -> dict[bytes, str]:
    """Signs of the neurons: '+-' in layer 1, '+-/+' in layer 2."""
    network, _ = appendix_a()
    names: dict[bytes, str] = {}
    for layer in regions(network, WINDOW):
        for region in layer:
            z, parts = region.polygon.mean(axis=0), []
            for W, b in list(zip(network.weights, network.biases, strict=True))[: region.level]:
                z = W @ z + b
                parts.append("".join("+" if value > 0 else "-" for value in z))
                z = np.maximum(z, 0.0)
            names[region.key] = "/".join(parts)
    return names
