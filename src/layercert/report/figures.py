"""The figures of the page, as inline SVG."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import median

from layercert.report.analysis import Comparison, Curve, Profile, by_class
from layercert.report.records import Bounds, Record
from layercert.report.svg import BOTTOM, TOP, Figure, horizontal, legend, nice_step, percent, vertical

#: Colours repeat after this many series.
COLOURS = 8


def colour(i: int) -> str:
    return f"c{i % COLOURS}"


def axis_end(curves: Mapping[str, Curve]) -> float:
    """Where the axis of radii ends."""
    return _round_up(max(float(c.radii[-1]) for c in curves.values()) * 1.04)


def robustness_figure(curves: Mapping[str, Curve], norm: str) -> str:
    """Share of inputs robust against the radius; the band is what is undecided."""
    last = axis_end(curves)
    f = Figure(
        f"Share of inputs robust against the {norm} radius",
        horizontal(0.0, last),
        vertical(0.0, 1.0),
        f"{norm} radius",
        "robust inputs",
        y_text=percent,
    )
    entries: list[tuple[str, str]] = []
    banded = False
    for i, (name, c) in enumerate(curves.items()):
        if bool((c.possible - c.proved > 1e-12).any()):
            f.band(c.radii, c.proved, c.possible, colour(i), last)
            banded = True
        f.steps(c.radii, c.proved, colour(i), last)
        entries.append((colour(i), name))
    if banded:
        entries.append(("undecided", "band: undecided (from proved robust to not proved unsafe)"))
    return f.svg() + legend(entries)


def class_figure(bounds: Sequence[Bounds], norm: str, names: Sequence[str]) -> str:
    """Every input's radius by class, with quartiles; an undecided one is a line from its lower to its upper bound."""
    groups = by_class(bounds)
    finite = [v for b in bounds for v in (b.lower, b.upper) if math.isfinite(v)]
    last = _round_up(max(finite, default=1.0) * 1.04)
    height = TOP + BOTTOM + max(120.0, 34.0 * len(groups))
    f = Figure(
        f"{norm} radius of every input by class",
        horizontal(0.0, last),
        vertical(-0.5, len(groups) - 0.5, height=height),
        f"{norm} radius",
        "class",
        y_ticks=[(len(groups) - 1 - i, class_name(k, names)) for i, k in enumerate(groups)],
        height=height,
    )
    rng = random.Random(0)  # the same picture every time
    for i, members in enumerate(groups.values()):
        row = len(groups) - 1 - i
        for b in members:
            y = row + rng.uniform(-0.28, 0.28)
            tip = f"input {b.best.name}: {_interval(b)}"
            if b.exact:
                f.dot(b.upper, y, colour(i), tip, 3.0)
            else:
                f.segment(min(b.lower, last), y, min(b.upper, last), y, f"span {colour(i)}", tip)
        radii = sorted(b.upper for b in members if b.exact)
        if len(radii) >= 4:
            for q, kind in ((0.25, "quartile"), (0.5, "median"), (0.75, "quartile")):
                at = _quantile(radii, q)
                f.segment(at, row - 0.4, at, row + 0.4, kind, f"{percent(q)} of class below {at:.4g}")
    return f.svg()


def time_figure(records: Sequence[Record], norm: str, methods: Sequence[str]) -> str:
    """Seconds (log scale) against the radius; hollow where undecided."""
    shown = [r for r in records if r.status != "failed" and math.isfinite(min(r.result.upper, r.result.lower))]
    seconds = [max(r.result.seconds, 1e-4) for r in shown] or [1.0]
    last = _round_up(max((_place(r) for r in shown), default=1.0) * 1.04)
    low, high = 10 ** math.floor(math.log10(min(seconds))), 10 ** math.ceil(math.log10(max(seconds) * 1.01))
    f = Figure(
        f"Time against {norm} radius",
        horizontal(0.0, last),
        vertical(low, high, log=True),
        f"{norm} radius (upper bound where undecided)",
        "seconds",
    )
    for r in shown:
        kind = colour(methods.index(r.method)) + ("" if r.solved else " hollow")
        took = r.result.seconds
        f.dot(_place(r), max(took, 1e-4), kind, f"input {r.name}, {r.method}: {took:.3g} s, {r.status}", 3.0)
    entries = [(colour(i), m) for i, m in enumerate(methods)]
    if any(not r.solved for r in shown):
        entries.append(("hollow", "undecided"))
    return f.svg() + legend(entries)


def profile_figure(found: Sequence[Profile]) -> str:
    last = max(2.0, *(float(p.factors[-1]) for p in found)) * 1.1
    f = Figure(
        "Performance profile",
        horizontal(1.0, last, log=True),
        vertical(0.0, 1.0),
        "times the fastest method's time",
        "solved",
        y_text=percent,
    )
    for i, p in enumerate(found):
        f.steps(p.factors, p.shares, colour(i), last)
    return f.svg() + legend([(colour(i), p.method) for i, p in enumerate(found)])


def comparison_figure(c: Comparison) -> str:
    """One dot an input: above the diagonal the second is more robust."""
    values = [min(v.upper, v.lower if math.isinf(v.upper) else v.upper) for pair in c.pairs for v in pair]
    last = _round_up(max((v for v in values if math.isfinite(v)), default=1.0) * 1.04)
    f = Figure(
        f"{c.norm} radius of every input: {c.first} against {c.second}",
        horizontal(0.0, last),
        vertical(0.0, last),
        f"{c.norm} radius, {c.first}",
        c.second,
    )
    f.segment(0.0, 0.0, last, last, "diagonal")
    for a, b in c.pairs:
        exact = a.exact and b.exact
        x, y = (b_.upper if math.isfinite(b_.upper) else b_.lower for b_ in (a, b))
        if math.isfinite(x) and math.isfinite(y):
            f.dot(x, y, "c0" if exact else "c0 hollow", f"input {a.best.name}: {_interval(a)} against {_interval(b)}")
    return f.svg()


def class_name(k: int | None, names: Sequence[str]) -> str:
    if k is None:
        return "-"
    return names[k] if 0 <= k < len(names) else str(k)


def _interval(b: Bounds) -> str:
    return f"{b.upper:.5g}" if b.exact else f"{b.lower:.5g} .. {b.upper:.5g}"


def _place(r: Record) -> float:
    return r.result.upper if math.isfinite(r.result.upper) else r.result.lower


def _round_up(value: float) -> float:
    """An end of an axis a little beyond the data, on a fine round number."""
    step = nice_step(value / 20) if value > 0 else 1.0
    return math.ceil(value / step - 1e-9) * step if value > 0 else 1.0


def _quantile(ordered: Sequence[float], q: float) -> float:
    if q == 0.5:
        return median(ordered)
    at = q * (len(ordered) - 1)
    i = int(at)
    return ordered[i] + (at - i) * (ordered[min(i + 1, len(ordered) - 1)] - ordered[i])
