"""Means over inputs as the paper takes them: an input that is not finished counts with the time limit."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from layercert.experiments.runs import Pool, Row
from layercert.experiments.setup import ADDITIONS
from layercert.experiments.tables import Cell, Table


@dataclass(frozen=True)
class Average:
    """One network and method: `open` inputs were not finished within the limit."""

    inputs: int
    open: int
    programs: float
    seconds: float


def average(rows: list[Row], limit: float) -> Average | None:
    """None without rows. Programs of an unfinished input are those solved until it was stopped.

    Args:
        rows: One per input.
        limit: The seconds that an unfinished one counts with, unless it had fewer.
    """
    if not rows:
        return None
    return Average(
        inputs=len(rows),
        open=sum(not row.solved for row in rows),
        programs=fmean(row.programs for row in rows),
        seconds=fmean(row.seconds if row.solved else min(row.limit, limit) for row in rows),
    )


def averages(pool: Pool, methods: tuple[str, ...]) -> dict[tuple[str, str], Average]:
    found = {(n, m): average(list(pool.select(n, m).values()), pool.limit) for n in pool.nets for m in methods}
    return {key: value for key, value in found.items() if value is not None}


def average_tables(pool: Pool, name: str, methods: tuple[str, ...]) -> list[Table]:
    """Mean programs and mean seconds, networks x methods."""
    found = averages(pool, methods)
    return [
        _table(f"{name}-programs", "Mean number of convex programs", found, pool.nets, methods, "programs"),
        _table(f"{name}-seconds", "Mean CPU seconds", found, pool.nets, methods, "seconds"),
    ]


def _table(
    name: str, caption: str, found: dict[tuple[str, str], Average], nets: list[str], methods: tuple[str, ...], key: str
) -> Table:
    rows: list[list[Cell]] = []
    for net in nets:
        values = {m: float(getattr(found[net, m], key)) for m in methods if (net, m) in found}
        ours = {m for m in ADDITIONS if m in values}
        best_of_paper = min((v for m, v in values.items() if m not in ours), default=0.0)
        cells = [Cell(net)]
        for m in methods:
            if m not in values:
                cells.append(Cell("-"))
                continue
            # ours are marked where they beat the paper's; adaptive hardly solves programs, so its count says nothing
            best = values[m] < best_of_paper and key == "seconds" if m in ours else values[m] == best_of_paper
            cells.append(Cell(_number(values[m], key), best, found[net, m].open))
        rows.append(cells)
    return Table(name, caption, ("network", *(column(m) for m in methods)), tuple(map(tuple, rows)))


def column(method: str) -> str:
    """Our additions carry a plus sign."""
    return f"{method} +" if method in ADDITIONS else method


def _number(value: float, key: str) -> str:
    return f"{value:.1f}" if key == "programs" else f"{value:.3f}"
