"""Means over inputs as the paper takes them: an input that is not finished counts with the time limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """None without rows. Programs of an unfinished input are those solved until it was stopped."""
    if not rows:
        return None
    return Average(
        inputs=len(rows),
        open=sum(not row.solved for row in rows),
        programs=fmean(row.programs for row in rows),
        seconds=fmean(row.seconds if row.solved else limit for row in rows),
    )


def averages(pool: Pool, methods: tuple[str, ...]) -> dict[tuple[str, str], Average]:
    found = {(n, m): average(list(pool.select(n, m).values()), pool.limit) for n in pool.nets for m in methods}
    return {key: value for key, value in found.items() if value is not None}


def average_tables(pool: Pool, name: str, methods: tuple[str, ...]) -> list[Table]:
    """Mean programs and mean seconds, networks x methods.

    Where inputs are cut off at the limit of a first pass, the programs until then are not known: the means are those of
    the inputs that every method finished.
    """
    found = averages(pool, methods)
    caption, counted, names = "Mean number of convex programs", found, {}
    if pool.hurried:
        shared = finished_by_all(pool, methods)
        caption += ", on the inputs that every method finished within the limit (in brackets: how many)"
        counted, names = averages(shared, methods), {n: f"{n} ({_count(shared, n)})" for n in pool.nets}
    return [
        _table(f"{name}-programs", caption, counted, pool.nets, methods, "programs", names),
        _table(f"{name}-seconds", "Mean CPU seconds", found, pool.nets, methods, "seconds"),
    ]


def finished_by_all(pool: Pool, methods: tuple[str, ...]) -> Pool:
    """Only the pairs of network and input that each of the methods finished."""
    late = {(row.net, row.input) for row in pool.rows if row.method in methods and not row.solved}
    return replace(pool, rows=tuple(row for row in pool.rows if (row.net, row.input) not in late))


def _count(pool: Pool, net: str) -> int:
    return len({row.input for row in pool.rows if row.net == net})


def _table(
    name: str,
    caption: str,
    found: dict[tuple[str, str], Average],
    nets: list[str],
    methods: tuple[str, ...],
    key: str,
    names: dict[str, str] | None = None,
) -> Table:
    rows: list[list[Cell]] = []
    for net in nets:
        values = {m: float(getattr(found[net, m], key)) for m in methods if (net, m) in found}
        ours = {m for m in ADDITIONS if m in values}
        best_of_paper = min((v for m, v in values.items() if m not in ours), default=0.0)
        cells = [Cell((names or {}).get(net, net))]
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
