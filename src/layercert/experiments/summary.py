"""The whole reproduction in a minute: what was run, and a line for each claim: held or not, how far, why."""

from __future__ import annotations

from collections.abc import Iterable

from layercert.experiments.claims import FAILED, HELD, Claim
from layercert.experiments.runs import Pool
from layercert.experiments.setup import EXPERIMENTS, INPUTS, TIME_LIMIT
from layercert.experiments.tables import Cell, Table

NO_DATA = "-"
#: Columns of the summary: with our own solvers; and what a first pass with a short limit says about more inputs.
OURS, EVERY = "our solvers", "more inputs, short limit"
EXPLAINED = (
    "A **ratio** compares programs or seconds with those of the best method on the other side of the claim, network by "
    "network: the median, and the range in brackets. Below 1 the claim holds."
)


def scale_line(pools: Iterable[Pool]) -> str:
    """How large this run is, beside the paper's; what only some methods were asked does not count."""
    parts: list[str] = []
    for pool in pools:
        views = next((v for e in EXPERIMENTS.values() if pool.has(e) and (v := pool.views(e.methods))), [])
        if views:
            parts.append(f"{pool.label}: {', and '.join(map(_scale, views))}")
    if not parts:
        return ""
    return f"The paper has {INPUTS} inputs and {TIME_LIMIT:g} s per question. This run: {'; '.join(parts)}."


def _scale(view: Pool) -> str:
    many = f"{view.inputs} input{'s' if view.inputs != 1 else ''}"
    nets = f"{len(view.nets)} network{'s' if len(view.nets) != 1 else ''}"
    return f"{many} on {nets}, {view.limit_words} per question"


def count_line(claims: Iterable[tuple[str, Claim]]) -> str:
    """How many of the paper's claims held with our solvers; other stacks are run on few inputs and do not count."""
    claims = list(claims)
    parts: list[str] = []
    for name in (OURS, f"{OURS}, {EVERY}"):
        found = [claim.verdict for column, claim in claims if column == name and not claim.where.startswith("ours")]
        tested = [verdict for verdict in found if verdict in (HELD, FAILED)]
        if tested:
            words = "" if name == OURS else f" ({EVERY})"
            parts.append(f"{tested.count(HELD)} of {len(tested)}{words}")
    return f"Claims of the paper that held in full: {', '.join(parts)}." if parts else ""


def summary_table(claims: Iterable[tuple[str, Claim]]) -> Table:
    """A row per sentence; verdicts of the same sentence with our solvers and with another stack stand side by side.

    Args:
        claims: Each with its column.
    """
    claims = list(claims)
    found: dict[tuple[str, str], dict[str, Claim]] = {}
    for column, claim in claims:
        found.setdefault((claim.where, claim.text), {})[column] = claim
    columns = sorted({OURS, *(column for column, _ in claims)}, key=lambda name: (not name.startswith(OURS), name))
    rows: list[tuple[Cell, ...]] = []
    for (where, text), by_column in found.items():
        cells = [Cell(text), Cell(where)]
        cells += [_verdict(by_column.get(column)) for column in columns]
        rows.append((*cells, Cell(_why(by_column.values()))))
    return Table("summary", "In a minute", ("claim", "where", *columns, "why"), tuple(rows), words=True)


def _verdict(claim: Claim | None) -> Cell:
    if claim is None:
        return Cell(NO_DATA)
    return Cell(f"{claim.verdict}: {claim.measured}", claim.verdict == HELD)


def _why(claims: Iterable[Claim]) -> str:
    """A reason is given where the claim fails; a theorem also where it holds."""
    reasons = [c.why for c in claims if c.why and (c.verdict == FAILED or c.why.startswith("Theorem"))]
    return next(iter(reasons), "")
