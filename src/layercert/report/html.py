"""Parts that every page is made of: the frame with its style sheet, cards, tiles and plain tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources

from layercert.report.tables import Table


def asset(name: str) -> str:
    """A file of the page's style sheet or script."""
    return resources.files("layercert.report").joinpath("assets", name).read_text(encoding="utf-8")


def document(title: str, body: str) -> str:
    """A whole page with the style sheet inside: nothing is fetched from anywhere."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{asset('page.css')}</style></head><body>{body}</body></html>\n"
    )


def tiles(entries: Sequence[tuple[str, str]]) -> str:
    """(name, value) pairs as large numbers in a row."""
    inside = "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for name, value in entries)
    return f'<div class="tiles">{inside}</div>'


def table(content: Table, left: int) -> str:
    """A plain table; the first columns are words."""
    header, rows = content
    kinds = ["left" if i < left or name == "method" else "" for i, name in enumerate(header)]
    head = "".join(f'<th class="{kind}">{escape(h)}</th>' for h, kind in zip(header, kinds, strict=True))
    lines = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{escape(v)}</td>' for v, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"


def card(title: str, hint: str, inside: str, kind: str = "") -> str:
    """A figure with its title and what it shows."""
    caption = f"<figcaption>{escape(title)}<small>{escape(hint)}</small></figcaption>"
    return f'<figure class="card {kind}">{caption}{inside}</figure>'
