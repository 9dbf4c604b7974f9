"""Just enough plotting for the page: axes, steps, bands and dots as inline SVG.

Colours come from the page's style sheet, so that figures follow light and dark mode and scale to the screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from layercert.arrays import Vector

WIDTH, HEIGHT = 560.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 72.0, 14.0, 12.0, 46.0


@dataclass(frozen=True)
class Axis:
    """Data to pixels along one direction; `log` axes need positive ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        a, b, v = (math.log(t) for t in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (v - a) / (b - a) * (self.end - self.start) if b > a else self.start

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = [10.0**k for k in range(first, last + 1)]
            marks = decades if len(decades) > 3 else [m * d for d in decades for m in (1, 2, 5)]
            return [m for m in marks if self.low * 0.999 <= m <= self.high * 1.001]
        step = nice_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice_step(rough: float) -> float:
    """The 1, 2 or 5 times a power of ten next above."""
    if not 0 < rough < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def number(value: float) -> str:
    return f"{value:.4g}"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


@dataclass
class Figure:
    """A plot in the making: add parts, then `svg()`."""

    title: str
    x: Axis
    y: Axis
    x_label: str
    y_label: str
    x_text: Callable[[float], str] = number
    y_text: Callable[[float], str] = number
    parts: list[str] = field(default_factory=list)
    y_ticks: Sequence[tuple[float, str]] | None = None
    height: float = HEIGHT

    def steps(self, xs: Vector, ys: Vector, kind: str, last: float) -> None:
        """A line that holds each value until the next x."""
        self.parts.append(f'<path class="line {kind}" d="M{" L".join(self._corners(xs, ys, last))}"/>')

    def band(self, xs: Vector, low: Vector, high: Vector, kind: str, last: float) -> None:
        outline = [*self._corners(xs, high, last), *reversed(self._corners(xs, low, last))]
        self.parts.append(f'<path class="band {kind}" d="M{" L".join(outline)}Z"/>')

    def _corners(self, xs: Vector, ys: Vector, last: float) -> list[str]:
        points: list[str] = []
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            end = xs[i + 1] if i + 1 < len(xs) else max(last, x)
            points += [
                f"{self.x(float(x)):.1f} {self.y(float(y)):.1f}",
                f"{self.x(float(end)):.1f} {self.y(float(y)):.1f}",
            ]
        return points

    def dot(self, x: float, y: float, kind: str, tip: str, size: float = 3.5) -> None:
        self.parts.append(
            f'<circle class="dot {kind}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{size}">'
            f"<title>{escape(tip)}</title></circle>"
        )

    def segment(self, x1: float, y1: float, x2: float, y2: float, kind: str, tip: str = "") -> None:
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<line class="{kind}" x1="{self.x(x1):.1f}" y1="{self.y(y1):.1f}" '
            f'x2="{self.x(x2):.1f}" y2="{self.y(y2):.1f}">{inner}</line>'
        )

    def svg(self) -> str:
        return (
            f'<svg class="plot" viewBox="0 0 {WIDTH:g} {self.height:g}" role="img" aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title>{''.join(self._frame())}{''.join(self.parts)}</svg>"
        )

    def _frame(self) -> Iterable[str]:
        bottom, right = self.height - BOTTOM, WIDTH - RIGHT
        for value in self.x.ticks():
            at = self.x(value)
            yield f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}"/>'
            yield _text("tick", at, bottom + 17, self.x_text(value))
        for value, text in self.y_ticks or [(v, self.y_text(v)) for v in self.y.ticks()]:
            at = self.y(value)
            yield f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
            yield _text("tick", LEFT - 7, at + 4.5, text, anchor="end")
        yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>'
        yield _text("name", (LEFT + right) / 2, self.height - 8, self.x_label)
        yield _text("name", 14, (TOP + bottom) / 2, self.y_label, turned=True)


def _text(kind: str, x: float, y: float, text: str, anchor: str = "middle", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(text)}</text>'


def horizontal(low: float, high: float, log: bool = False) -> Axis:
    return Axis(low, high, LEFT, WIDTH - RIGHT, log)


def vertical(low: float, high: float, log: bool = False, height: float = HEIGHT) -> Axis:
    return Axis(low, high, height - BOTTOM, TOP, log)


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """(class, text) pairs as a line of swatches under a figure."""
    items = "".join(f'<li><i class="swatch {kind}"></i>{escape(text)}</li>' for kind, text in entries)
    return f'<ul class="legend">{items}</ul>'
