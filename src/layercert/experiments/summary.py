"""The whole reproduction in a minute: what was run, and a line for each claim: held or not, how far, why."""

from __future__ import annotations

from collections.abc import Iterable

from layercert.experiments.claims import FAILED, HELD, Claim
from layercert.experiments.runs import Pool
from layercert.experiments.setup import EXPERIMENTS, INPUTS, TIME_LIMIT
from layercert.experiments.tables import Cell, Table

NO_DATA = "-"
EXPLAINED = (
    "A **ratio** compares programs or seconds with those of the best method on the other side of the claim, network by "
    "network: the median, and the range in brackets. Below 1 the claim holds."
)


def scale_line(pools: Iterable[Pool]) -> str:
    """How large this run is, beside the paper's; what only some methods were asked does not count."""
    parts: list[str] = []
    for pool in pools:
        whole = next((p for e in EXPERIMENTS.values() if pool.has(e) and (p := pool.complete(e.methods)).rows), None)
        if whole is not None:
            many = f"{whole.inputs} input{'s' if whole.inputs != 1 else ''}"
            nets = f"{len(whole.nets)} network{'s' if len(whole.nets) != 1 else ''}"
            parts.append(f"{whole.label}: {many} on {nets}, {whole.limit_words} per question")
    if not parts:
        return ""
    return f"The paper has {INPUTS} inputs and {TIME_LIMIT:g} s per question. This run: {'; '.join(parts)}."


def count_line(claims: Iterable[tuple[str, Claim]]) -> str:
    """How many of the paper's claims held with our solvers; other stacks are run on few inputs and do not count."""
    found = [claim.verdict for stack, claim in claims if stack == "default" and not claim.where.startswith("ours")]
    tested = [verdict for verdict in found if verdict in (HELD, FAILED)]
    return f"Claims of the paper that held in full: {tested.count(HELD)} of {len(tested)}." if tested else ""


def summary_table(claims: Iterable[tuple[str, Claim]]) -> Table:
    """A row per sentence; verdicts of the same sentence with our solvers and with another stack stand side by side.

    Args:
        claims: Each with the name of the solver stack it was measured with.
    """
    found: dict[tuple[str, str], dict[str, Claim]] = {}
    for stack, claim in claims:
        found.setdefault((claim.where, claim.text), {})[stack] = claim
    stacks = ["default", *sorted({stack for by in found.values() for stack in by} - {"default"})]
    rows: list[tuple[Cell, ...]] = []
    for (where, text), by_stack in found.items():
        cells = [Cell(text), Cell(where)]
        cells += [_verdict(by_stack.get(stack)) for stack in stacks]
        rows.append((*cells, Cell(_why(by_stack.values()))))
    heads = ["our solvers" if stack == "default" else f"stack '{stack}'" for stack in stacks]
    return Table("summary", "In a minute", ("claim", "where", *heads, "why"), tuple(rows), words=True)


def _verdict(claim: Claim | None) -> Cell:
    if claim is None:
        return Cell(NO_DATA)
    return Cell(f"{claim.verdict}: {claim.measured}", claim.verdict == HELD)


def _why(claims: Iterable[Claim]) -> str:
    """A reason is given where the claim fails; a theorem also where it holds."""
    reasons = [c.why for c in claims if c.why and (c.verdict == FAILED or c.why.startswith("Theorem"))]
    return next(iter(reasons), "")
