"""Reports of runs: one self-contained HTML page and the same as plain tables.

write_report([Path("run")], Path("run/report"))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from layercert.arrays import Vector
from layercert.batch.errors import RunError
from layercert.errors import OptionError
from layercert.pictures import data_uri, difference, picture
from layercert.report import tables
from layercert.report.page import Pictures, page
from layercert.report.records import Points, Record, Results, read_runs

__all__ = ["write_report"]

PAGE = "index.html"


def write_report(
    runs: Sequence[Path],
    out: Path,
    class_names: Sequence[str] = (),
    gallery: int = 200,
    title: str | None = None,
    extras: Sequence[tuple[str, Path]] = (),
    eps: Sequence[float] = (),
) -> Path:
    """Write index.html, report.md and the tables as CSV into a folder; the path of the page.

    Args:
        runs: Folders of batches; several are shown side by side.
        out: The folder of the report.
        class_names: Names of the classes, in order.
        gallery: At most this many pictures of witnesses.
        title: The page's title.
        extras: Captions and picture files (from `layercert explore`, say) that the page holds besides its own.
        eps: Radii for the table of certified accuracy; by default those at which the runs verified.

    Returns:
        The path of index.html.

    Raises:
        OptionError: A negative number of pictures, or a folder that cannot be written.
        RunError: A folder that holds no run.
    """
    if gallery < 0:
        raise OptionError(f"the number of pictures must be >= 0, got {gallery}")
    if not all(0 < e < math.inf for e in eps):
        raise OptionError(f"radii for certified accuracy must be above 0 and finite, got {', '.join(map(str, eps))}")
    found = read_runs(runs, out)
    results = replace(found, eps=tuple(sorted(set(eps))) or found.asked)
    title = title or f"Robustness of {' and '.join(results.series[:3])}{' ...' if len(results.series) > 3 else ''}"
    html = page(results, title, class_names, _pictures(results, gallery), extras)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / PAGE).write_text(html, encoding="utf-8")
        (out / "report.md").write_text(tables.markdown(results, title, class_names), encoding="utf-8")
        tables.write_csv(tables.summary_table(results), out / "summary.csv")
        tables.write_csv(tables.curve_table(results), out / "curve.csv")
        tables.write_csv(tables.confusion_table(results, class_names), out / "confusion.csv")
        if results.eps:
            tables.write_csv(tables.accuracy_table(results), out / "accuracy.csv")
        if len(results.methods) > 1:
            tables.write_csv(tables.profile_table(results), out / "methods.csv")
        if len(results.series) > 1:
            tables.write_csv(tables.comparison_table(results), out / "comparison.csv")
    except OSError as error:
        raise RunError(f"cannot write the report to '{out}': {error.strerror or error}; choose another --out") from None
    return out / PAGE


def _pictures(results: Results, count: int) -> Pictures:
    """Input, adversarial image and difference of the least robust inputs of every model and norm; for tables, what
    changes."""
    chosen: list[Record] = []
    for series in results.series:
        for norm in results.norms:
            best = [b.best for b in results.bounds(series, norm).values() if b.best.result.target is not None]
            chosen += sorted(best, key=lambda r: r.result.upper)[:count]
    pictures: Pictures = {}
    with closing(Points(results.runs)) as points:
        for r in chosen:
            x, witness = points.pair(r)
            if witness is None:
                continue
            facts = results.runs[r.run].facts
            columns = facts.get("columns") or ()
            if columns:
                pictures[r.run, r.job] = {"changes": _changes(columns, x, witness)}
                continue
            shape = None if facts["image_shape"] is None else tuple(facts["image_shape"])
            low, high = facts["identity"]["domain"] or (min(x.min(), witness.min()), max(x.max(), witness.max()))
            three = (picture(x, shape, low, high), picture(witness, shape, low, high), difference(x, witness, shape))
            pictures[r.run, r.job] = {"pictures": [data_uri(each) for each in three]}
    return pictures


def _changes(columns: Sequence[str], x: Vector, witness: Vector) -> list[tuple[str, float, float]]:
    """What the witness changes in a row of a table: name, before, after, the largest relative change first."""
    moved = [int(i) for i in np.flatnonzero(x != witness)]
    size = np.abs(witness - x) / np.maximum(np.abs(x), np.abs(witness))  # columns have units of their own
    return [(columns[i], float(x[i]), float(witness[i])) for i in sorted(moved, key=lambda i: -size[i])]
