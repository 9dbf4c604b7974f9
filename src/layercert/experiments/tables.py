"""A table with marks, as HTML, Markdown and CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class Cell:
    """`best` of its row; `open` inputs were stopped at the time limit."""

    text: str
    best: bool = False
    open: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header; the first column names the row."""

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: bool = False  # cells hold sentences: flush left, and no column of time-outs in the CSV
    notes: tuple[str, ...] = ()  # sentences below the table: what is too long for a cell

    def markdown(self) -> str:
        lines = [list(self.header), ["---" if i == 0 or self.words else "--:" for i in range(len(self.header))]]
        lines += [[_markdown(cell) for cell in row] for row in self.rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return "\n".join([table, "", *(f"* {note}" for note in self.notes)]) if self.notes else table

    def html(self) -> str:
        def cells(row: tuple[Cell, ...]) -> str:
            return "".join(
                f'<td class="{self._class(i, cell)}">{escape(cell.text)}{_open_html(cell)}</td>'
                for i, cell in enumerate(row)
            )

        head = "".join(f'<th class="{self._class(i, Cell(""))}">{escape(h)}</th>' for i, h in enumerate(self.header))
        body = "".join(f"<tr>{cells(row)}</tr>" for row in self.rows)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"{table}<ul>{notes}</ul>" if notes else table

    def _class(self, i: int, cell: Cell) -> str:
        marks = ["note" if self.words else "left"] if self.words or i == 0 else []
        return " ".join([*marks, *(["best"] if cell.best else []), *(["open"] if cell.open else [])])

    def write(self, folder: Path) -> None:
        """NAME.html, NAME.md, NAME.csv."""
        folder.mkdir(parents=True, exist_ok=True)
        page = f"<!doctype html><meta charset='utf-8'><title>{escape(self.caption)}</title><style>{STYLE}</style>"
        (folder / f"{self.name}.html").write_text(f"{page}<p>{escape(self.caption)}</p>{self.html()}\n", "utf-8")
        (folder / f"{self.name}.md").write_text(f"{self.caption}\n\n{self.markdown()}\n", "utf-8")
        with open(folder / f"{self.name}.csv", "w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            for row in (tuple(map(Cell, self.header)), *self.rows):
                writer.writerow(self._plain(row, heading=row[0].text == self.header[0]))

    def _plain(self, row: tuple[Cell, ...], heading: bool) -> list[str]:
        if self.words:
            return [cell.text for cell in row]
        first, *rest = row
        pairs = [(c.text, f"{c.text} time-outs" if heading else str(c.open)) for c in rest]
        return [first.text, *(text for pair in pairs for text in pair)]


#: For a table on its own, and in addition to the style of reports on the page.
STYLE = (
    "table{border-collapse:collapse}td,th{padding:4px 10px;text-align:right}.left,.note{text-align:left}"
    "td.best{background:#b7e4c7;color:#12301d;font-weight:600}td.open{color:#7a7f87}td.best.open{color:#12301d}"
    "td sup{color:#9a3412}"
)


def _markdown(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    text = f"**{text}**" if cell.best else text
    return f"{text} †{cell.open}" if cell.open else text


def _open_html(cell: Cell) -> str:
    return f"<sup>†{cell.open}</sup>" if cell.open else ""
