"""A page about a bench: what it holds, and the robustness curves of its networks."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from statistics import median

from layercert import __version__
from layercert.bench.table import BOUNDS, EXACT, ROBUST, Radius, RadiusBench
from layercert.report import html
from layercert.report.analysis import Curve, curve_between
from layercert.report.figures import robustness_figure
from layercert.report.tables import Table

#: More curves than colours in one figure cannot be told apart.
MOST = 8
WORDS = {"box": "inside the unit box", "free": "without a domain"}


def write_page(bench: RadiusBench, path: Path) -> Path:
    """Write the page.

    Args:
        bench: What it is about.
        path: The HTML file.

    Returns:
        The path.
    """
    rows = bench.rows
    tiles = [
        ("radii", f"{len(rows)}"),
        ("networks", f"{len(bench.networks)}"),
        ("inputs", f"{len({(r.collection, r.input) for r in rows})}"),
        *((status, str(sum(r.status == status for r in rows))) for status in (EXACT, ROBUST, BOUNDS)),
        ("certificates checked", str(sum(r.checked for r in rows))),
        ("of certificates", f"{sum(r.certificate_bytes for r in rows) / 1e6:.0f} MB"),
    ]
    body = [
        "<header><h1>RadiusBench</h1><p class='soft'>Distances from inputs to the nearest point of another class. "
        "Exact means: a witness at that distance, and a checked certificate that nothing is nearer.</p></header><main>",
        html.tiles(tiles),
        f'<h2>Networks</h2><div class="card scroll">{html.table(summary(bench), 3)}</div>',
    ]
    for collection in dict.fromkeys(row.collection for row in rows):
        body.append(f'<h2>{escape(collection)}</h2><div class="cards">{"".join(_cards(bench, collection))}</div>')
    body.append(f"</main><footer>Made by LayerCert {__version__}.</footer>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html.document("RadiusBench", "".join(body)), encoding="utf-8")
    return path


def _cards(bench: RadiusBench, collection: str) -> list[str]:
    cards: list[str] = []
    rows = [row for row in bench if row.collection == collection]
    for norm in dict.fromkeys(row.norm for row in rows):
        for setting in dict.fromkeys(row.setting for row in rows):
            asked = [row for row in rows if row.norm == norm and row.setting == setting]
            names = list(dict.fromkeys(row.network for row in asked))
            for start in range(0, len(names), MOST):
                curves = {
                    name: curve_of([r for r in asked if r.network == name]) for name in names[start : start + MOST]
                }
                hint = f"{WORDS[setting]}; share of inputs with no other class within the radius"
                cards.append(html.card(norm, hint, robustness_figure(curves, norm)))
    return cards


def curve_of(rows: list[Radius]) -> Curve:
    """The robustness curve of some rows; where a radius is exact, lower and upper bound count as the same number."""
    return curve_between([(row.upper if row.status == EXACT else row.lower, row.upper) for row in rows])


def summary(bench: RadiusBench) -> Table:
    """A line for each network and domain: how many are exact, and the median radius in each norm."""
    norms = list(dict.fromkeys(row.norm for row in bench))
    header = ["network", "collection", "domain", "radii", "exact", *(f"median {norm}" for norm in norms), "median s"]
    lines: list[list[str]] = []
    for name in bench.networks:
        for setting in WORDS:
            rows = bench.select(network=name, setting=setting).rows
            if not rows:
                continue
            exact = sum(row.status != BOUNDS for row in rows)
            medians = [_median([row for row in rows if row.norm == norm]) for norm in norms]
            seconds = f"{median(row.seconds for row in rows):.3g}"
            domain = "[0, 1]" if setting == "box" else "none"
            lines.append(
                [name, rows[0].collection, domain, str(len(rows)), f"{exact / len(rows):.0%}", *medians, seconds]
            )
    return header, lines


def _median(rows: list[Radius]) -> str:
    """A number, or the interval in which the median lies."""
    if not rows:
        return ""
    low = median(row.upper if row.status == EXACT else row.lower for row in rows)
    high = median(row.upper for row in rows)
    if math.isclose(low, high, rel_tol=1e-3):
        return f"{high:.3g}"
    return f"{low:.3g} .. {high:.3g}" if math.isfinite(high) else f">= {low:.3g}"
