"""The HTML page: one file, nothing fetched; figures as SVG, pictures as data, a script to sort and filter."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from layercert import __version__
from layercert.report import figures, html
from layercert.report.analysis import Confusion, Curve, comparisons, confusions, curve, profiles
from layercert.report.figures import class_name
from layercert.report.records import Record, Results
from layercert.report.svg import LEFT, RIGHT, WIDTH
from layercert.report.tables import (
    accuracy_table,
    comparison_table,
    machine_lines,
    overview,
    question,
    summary_table,
)

#: By run and job: "pictures" (input, adversarial, difference) or, for tables, "changes" (name, before, after).
Pictures = dict[tuple[int, int], dict[str, Any]]
#: Figures of pairs of models; the table has all of them.
FIGURES = 12
#: A matrix of more classes than this would show nothing.
WIDEST = 24


def page(
    results: Results, title: str, names: Sequence[str], pictures: Pictures, extras: Sequence[tuple[str, Path]] = ()
) -> str:
    """The whole page; `pictures` holds what the gallery shows."""
    body = "".join(
        [
            f"<header><h1>{escape(title)}</h1>{_intro(results)}</header><main>",
            _alarms(results),
            _tiles(results),
            _summary(results),
            *(_norm_section(results, norm, names) for norm in results.norms),
            _methods(results),
            _comparisons(results),
            _extras(extras),
            _browser(results, names, pictures),
            _origin(results),
            f"</main><footer>Made by LayerCert {__version__}. Exact distances are proved on both sides: nothing nearer "
            "exists, and the picture shown is at that distance.</footer>",
        ]
    )
    data = json.dumps(_data(results, names, pictures), allow_nan=False).replace("<", "\\u003c")
    script = f'<script type="application/json" id="data">{data}</script><script>{html.asset("page.js")}</script>'
    return html.document(title, body + script)


def _intro(results: Results) -> str:
    links = [f'<a href="#norm-{escape(n)}">{escape(n)}</a>' for n in results.norms]
    if results.eps:
        links.insert(0, '<a href="#accuracy">certified accuracy</a>')
    if len(results.methods) > 1:
        links.append('<a href="#methods">methods</a>')
    if len(results.series) > 1:
        links.append('<a href="#comparison">comparison</a>')
    ends = {"pictures": "pictures", "all": "all results", "origin": "how it was made"}
    links += [f'<a href="#{key}">{text}</a>' for key, text in ends.items()]
    asked = "".join(f"<p>{escape(line)}</p>" for line in dict.fromkeys(map(question, results.runs)) if line)
    return f'<p class="soft">{escape(overview(results))}</p>{asked}<nav>{"".join(links)}</nav>'


def _alarms(results: Results) -> str:
    lines = results.contradictions()
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines[:20])
    return f'<div class="alarm"><b>Two methods contradict each other: please report this.</b><ul>{items}</ul></div>'


def _tiles(results: Results) -> str:
    records = results.records
    planned = sum(run.planned for run in results.runs)
    tiles = [("inputs", str(len({r.input_hash for r in records})))]
    for status in ("exact", "robust", "not_robust", "undecided", "failed"):
        count = sum(r.status == status for r in records)
        if count or status == "undecided":
            tiles.append((status.replace("_", " "), str(count)))
    if planned > len(records):
        tiles.append(("not run yet", str(planned - len(records))))
    seconds = sum(r.result.seconds for r in records)
    tiles.append(("computing time", f"{seconds:.1f} s" if seconds < 300 else f"{seconds / 60:.0f} min"))
    return html.tiles(tiles)


def _summary(results: Results) -> str:
    parts = f'<h2>Summary</h2><div class="card scroll">{html.table(summary_table(results), 2)}</div>'
    if results.eps:
        hint = (
            "clean: classified right. Certified: nothing of another class within eps, proved. Attacked: another class "
            "found within eps; misclassified inputs count."
        )
        table = html.table(accuracy_table(results), 2)
        parts += (
            f'<h2 id="accuracy">Certified accuracy</h2><div class="card scroll">{table}</div><p class="soft">{hint}</p>'
        )
    return parts


def _norm_section(results: Results, norm: str, names: Sequence[str]) -> str:
    bounds = {s: b for s in results.series if (b := list(results.bounds(s, norm).values()))}
    curves = {s: curve(b) for s, b in bounds.items()}
    cards = [
        f"<figure class='card' data-curves='{escape(_curve_data(curves), quote=True)}'><figcaption>Robustness curve"
        "<small>share of inputs with no other class within the radius</small></figcaption>"
        f"{figures.robustness_figure(curves, norm)}"
        '<p class="readout soft">Point at the curve to read it off.</p></figure>'
    ]
    for series, members in bounds.items():
        which = f" · {series}" if len(bounds) > 1 else ""
        if any(b.label is not None for b in members):
            figure = figures.class_figure(members, norm, names)
            hint = "a dot an input, bars for median and quartiles; below: nearest other class, count, median radius"
            pairs = confusions(members)
            inside = figure + _confusion(pairs, names)
            cards.append(html.card(f"Classes{which}", hint, inside, "classes" if _is_many(pairs) else ""))
    records = results.select(norm=norm)
    methods = [m for m in results.methods if any(r.method == m for r in records)]
    cards.append(html.card("Time against radius", "seconds, log scale", figures.time_figure(records, norm, methods)))
    return f'<h2 id="norm-{escape(norm)}">{escape(norm)}</h2><div class="cards">{"".join(cards)}</div>'


def _curve_data(curves: dict[str, Curve]) -> str:
    last = figures.axis_end(curves)
    plain = [
        {"name": s, "radii": c.radii.tolist(), "proved": c.proved.tolist(), "possible": c.possible.tolist()}
        for s, c in curves.items()
    ]
    return json.dumps({"last": last, "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH, "curves": plain})


def _confusion(found: Sequence[Confusion], names: Sequence[str]) -> str:
    """Rows are true classes, columns the nearest other class; the darker, the more often."""
    if not found:
        return ""
    labels = sorted({c.label for c in found})
    targets = sorted({c.target for c in found} | set(labels))
    if len(targets) > WIDEST:
        return _frequent(found, names)
    most = max(c.count for c in found)
    cells = {(c.label, c.target): c for c in found}

    def cell(k: int, t: int) -> str:
        c = cells.get((k, t))
        if c is None:
            return "<td></td>"
        share = round(15 + 70 * c.count / most)
        ink = "#fff" if share > 55 else "inherit"
        style = f"background:color-mix(in srgb, var(--c0) {share}%, var(--card));color:{ink}"
        tip = f"{class_name(k, names)} → {class_name(t, names)}: {c.count}, median radius {c.median:.4g}"
        return f'<td style="{style}" title="{escape(tip)}">{c.count}<small>{c.median:.2g}</small></td>'

    head = "".join(f'<th title="{escape(class_name(t, names))}">{escape(class_name(t, names))}</th>' for t in targets)
    rows = "".join(
        f'<tr><th title="{escape(class_name(k, names))}">{escape(class_name(k, names))}</th>'
        f"{''.join(cell(k, t) for t in targets)}</tr>"
        for k in labels
    )
    kind = "confusion many" if _is_many(found) else "confusion"
    corner = "↓ →" if _is_many(found) else "true ↓ nearest →"
    return (
        f'<div class="scroll"><table class="{kind}"><tr><th title="rows: true class, columns: nearest">{corner}</th>'
        f"{head}</tr>{rows}</table></div>"
    )


def _is_many(found: Sequence[Confusion]) -> bool:
    """So many classes that the matrix needs the whole width."""
    return len({c.target for c in found} | {c.label for c in found}) > 5


def _frequent(found: Sequence[Confusion], names: Sequence[str], count: int = 20) -> str:
    """For very many classes: the most frequent pairs instead of a matrix."""
    ordered = sorted(found, key=lambda c: (-c.count, c.median))[:count]
    rows = [[class_name(c.label, names), class_name(c.target, names), str(c.count), f"{c.median:.4g}"] for c in ordered]
    header = ["class", "nearest", "count", "median radius"]
    return f'<div class="scroll">{html.table((header, rows), 2)}</div>'


def _methods(results: Results) -> str:
    if len(results.methods) < 2:
        return ""
    cards = "".join(
        html.card(f"Performance profile · {norm}", "share solved within a factor of the fastest method's time",
              figures.profile_figure(found))
        for norm in results.norms
        if len(found := profiles(results.select(norm=norm))) > 1
    )  # fmt: skip
    return f'<h2 id="methods">Methods</h2><div class="cards">{cards}</div>'


def _extras(extras: Sequence[tuple[str, Path]]) -> str:
    if not extras:
        return ""
    cards = "".join(
        f'<figure class="card"><img class="wide" alt="{escape(caption)}" src="{_embedded(path)}">'
        f"<figcaption><small>{escape(caption)}</small></figcaption></figure>"
        for caption, path in extras
    )
    return f'<h2 id="search">The search in pictures</h2><div class="cards">{cards}</div>'


def _embedded(path: Path) -> str:
    kind = {".gif": "image/gif", ".png": "image/png"}[path.suffix]
    return f"data:{kind};base64," + base64.b64encode(path.read_bytes()).decode()


def _comparisons(results: Results) -> str:
    found = comparisons(results)
    if not found:
        return ""
    cards: list[str] = []
    for c in found[:FIGURES]:
        ratio = c.median_ratio
        words = (
            f"{c.first} is more robust on {c.first_wins} of {len(c.pairs)} shared inputs, {c.second} on {c.second_wins}"
            + ("" if ratio is None else f"; median ratio {ratio:.3g} over {len(c.ratios)} inputs exact for both")
        )
        cards.append(html.card(f"{c.first} against {c.second} · {c.norm}", words, figures.comparison_figure(c)))
    table = f'<div class="card scroll">{html.table(comparison_table(results), 3)}</div>' if len(found) > 1 else ""
    return f'<h2 id="comparison">Comparison</h2>{table}<div class="cards">{"".join(cards)}</div>'


#: In this order from the left: a narrow screen shows the first ones.
COLUMNS = (
    ("name", "input", "text"), ("status", "status", "text"), ("lower", "lower", "number"), ("upper", "upper", "number"),
    ("label", "class", "text"), ("target", "nearest", "text"), ("series", "model", "text"), ("norm", "norm", "text"),
    ("method", "method", "text"), ("seconds", "seconds", "number"), ("programs", "programs", "number"),
    ("certificate", "proof", "text"), ("checked", "checked", "text"), ("note", "note", "text"),
)  # fmt: skip


def _columns(results: Results) -> list[dict[str, str]]:
    """Columns that say something: no model column for one model, no notes where there are none."""
    said = {
        "series": len(results.series) > 1,
        "norm": len(results.norms) > 1,
        "method": len(results.methods) > 1,
        "certificate": any(r.certificate for r in results.records),
        "checked": any(r.checked for r in results.records),
        "note": any(_note(r) for r in results.records),
    }
    return [{"key": k, "title": t, "kind": kind} for k, t, kind in COLUMNS if said.get(k, True)]


def _data(results: Results, names: Sequence[str], pictures: Pictures) -> dict[str, Any]:
    return {
        "columns": _columns(results),
        "rows": [_row(r, names, pictures) for r in results.records],
        "series": len(results.series),
        "norms": results.norms,
        "sort": "upper",
    }


def _row(r: Record, names: Sequence[str], pictures: Pictures) -> dict[str, Any]:
    label, target = class_name(r.result.label, names), class_name(r.result.target, names)
    row = {
        "job": r.job,
        "name": int(r.name) if r.name.isdigit() else r.name,
        "series": r.series,
        "norm": r.norm,
        "method": r.method,
        "label": label,
        "target": target,
        "status": r.status,
        "lower": _finite(r.result.lower),
        "upper": _finite(r.result.upper),
        "programs": r.result.programs,
        "seconds": round(r.result.seconds, 4),
        "certificate": r.certificate,
        "checked": r.checked,
        "note": _note(r),
        "text": f"{r.name} {r.series} {r.norm} {r.method} {r.status} {label} {target} {_note(r)}".lower(),
    }
    return {**row, **pictures.get((r.run, r.job), {})}


def _note(r: Record) -> str:
    """The note, and what the model's own runtime says where it does not call the witness one."""
    doubt = str(r.result.holds) if r.result.holds is not None and r.result.holds.runtime_agrees is False else ""
    return "; ".join(part for part in (r.result.note, doubt and f"witness: {doubt}") if part)


def _browser(results: Results, names: Sequence[str], pictures: Pictures) -> str:
    choices = {
        "status": list(dict.fromkeys(r.status for r in results.records)),
        "norm": results.norms,
        "series": results.series,
        "method": results.methods,
        "label": list(dict.fromkeys(class_name(_label(r), names) for r in sorted(results.records, key=_order))),
    }
    titles = {"status": "status", "norm": "norm", "series": "model", "method": "method", "label": "class"}
    selects = "".join(
        f'<select id="f-{key}" aria-label="{titles[key]}"><option value="">every {titles[key]}</option>'
        + "".join(f"<option>{escape(o)}</option>" for o in options)
        + "</select>"
        for key, options in choices.items()
        if len(options) > 1
    )
    heads = "".join(
        f'<th class="{"" if c["kind"] == "number" else "left"}" data-key="{c["key"]}">'
        f'<button type="button">{c["title"]}</button></th>'
        for c in _columns(results)
    )
    table = any("changes" in shown for shown in pictures.values())
    title = "What changes in each input" if table else "Each input and its nearest adversarial image"
    explained = (
        "Columns by how much they change, relative to their size."
        if table
        else "Difference: red where the adversarial image is brighter, blue where it is darker, scaled to the "
        "greatest change."
    )
    return (
        f'<h2 id="pictures">{title}, least robust first</h2>'
        '<div class="filters"><input id="f-search" type="search" placeholder="search" aria-label="search">'
        f'{selects}<output id="count"></output></div><div class="gallery" id="gallery"></div>'
        '<p class="soft" id="no-items" hidden>No pictures for this selection.</p>'
        '<button class="more" id="more-items" type="button" hidden>show more pictures</button>'
        f'<p class="soft">{explained} The filters hold for the table too.</p><h2 id="all">All results</h2>'
        '<div class="card scroll">'
        f'<table id="results"><thead><tr>{heads}</tr></thead><tbody id="rows"></tbody></table></div>'
        '<button class="more" id="more-rows" type="button" hidden>show more results</button>'
    )


def _label(r: Record) -> int | None:
    return r.result.label


def _order(r: Record) -> int:
    return -1 if r.result.label is None else r.result.label


def _origin(results: Results) -> str:
    def block(lines: Iterator[str]) -> str:
        return f"<pre>{escape(chr(10).join(lines))}</pre>"

    inside = "".join(block(machine_lines(run)) for run in results.runs)
    title = "options, versions, machine, hashes"
    return f'<h2 id="origin">How it was made</h2><details><summary>{title}</summary>{inside}</details>'


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
