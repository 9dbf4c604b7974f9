"""The whole reproduction in a minute: what was run, and a line for each claim: held or not, how far, why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from layercert.experiments.claims import FAILED, HELD, THEOREM, UNTESTED, Claim, Reason
from layercert.experiments.runs import Pool
from layercert.experiments.setup import EXPERIMENTS, INPUTS, TIME_LIMIT
from layercert.experiments.tables import Cell, Table

NO_DATA = "-"
#: Where a claim of ours comes from; the paper's come from one of its sections.
OURS = "ours"
#: A claim about seconds or about what is solved in a time.
TIME = re.compile(r"faste[rs]|slow|time")
HELD_WORDS = {HELD: "yes", FAILED: "no", UNTESTED: "not testable"}
EXPLAINED = (
    "**How far**: the programs or seconds of the method that should need less, divided by those of the best one that "
    "it is compared with, network by network; the median, and the range in brackets. Below 1 the claim holds. A claim "
    "about every network is held when no network speaks against it."
)


def scale_line(pools: Iterable[Pool]) -> str:
    """How large this run is, beside the paper's; what only some methods were asked does not count."""
    parts: list[str] = []
    for pool in pools:
        views = next((v for e in EXPERIMENTS.values() if pool.has(e) and (v := pool.views(e.methods))), [])
        if views:
            parts.append(f"{pool.label}: {', and '.join(map(scale, views))}")
    if not parts:
        return ""
    return f"**Size.** The paper has {INPUTS} inputs and {TIME_LIMIT:g} s per question. This run: {'; '.join(parts)}."


def scale(view: Pool) -> str:
    """Inputs, networks and time limit."""
    many = f"{view.inputs} input{'s' if view.inputs != 1 else ''}"
    nets = f"{len(view.nets)} network{'s' if len(view.nets) != 1 else ''}"
    return f"{many} on {nets}, {view.limit_words} per question"


def count_line(claims: Iterable[Claim]) -> str:
    """How many of the paper's claims held with our solvers: in all, and of those about programs and about time."""
    tested = _tested(claims)
    if not tested:
        return ""
    kinds = (("about programs", [c for c in tested if "program" in c.text]),
             ("about time", [c for c in tested if TIME.search(c.text)]))  # fmt: skip
    parts = ", ".join(f"{_held(some)} {words}" for words, some in kinds if some)
    return f"**Claims.** {_held(tested)} claims of the paper hold in full" + (f" ({parts})." if parts else ".")


def other_line(settings: Mapping[str, Iterable[Claim]]) -> str:
    """The same in other settings, in one sentence."""
    parts = [f"{_held(tested)} ({name})" for name, claims in settings.items() if (tested := _tested(claims))]
    return f"**Other settings**, claims that hold in full: {'; '.join(parts)}." if parts else ""


def _tested(claims: Iterable[Claim]) -> list[Claim]:
    return [c for c in claims if not c.where.startswith(OURS) and c.verdict in (HELD, FAILED)]


def _held(tested: Sequence[Claim]) -> str:
    return f"{sum(c.verdict == HELD for c in tested)} of {len(tested)}"


def adaptive_line(claims: Iterable[Claim]) -> str:
    """What our own search did on the same questions, from the claims about it."""
    ours = [c for c in claims if c.where.startswith(OURS)]
    parts = [f"{c.where[len(OURS) :].strip(' ()')}: {c.measured}{f' ({c.detail})' if c.detail else ''}" for c in ours]
    return f"**Our own search** (adaptive) finished, within the same limits: {'; '.join(parts)}." if parts else ""


def summary_table(claims: Iterable[Claim], name: str = "summary") -> Table:
    """A row per claim of the paper: held or not, on how many networks, how far, why. Notes say where one fails."""
    numbered = list(enumerate((c for c in claims if not c.where.startswith(OURS)), 1))
    rows = tuple(
        (
            Cell(str(i)),
            Cell(c.text),
            Cell(c.where),
            Cell(HELD_WORDS[c.verdict], c.verdict == HELD),
            Cell(c.networks or NO_DATA),
            Cell(c.far or (NO_DATA if c.networks else c.measured)),
            Cell(_why(c)),
        )
        for i, c in numbered
    )
    header = ("no.", "the paper says", "where", "held", "networks", "how far", "why")
    notes = tuple(f"Claim {i}: {text}." for i, c in numbered if (text := c.brief or c.detail))
    return Table(name, "Claims of the paper", header, rows, words=True, notes=notes)


def reason_lines(claims: Iterable[Claim]) -> tuple[str, ...]:
    """The reasons that the table names, each as a sentence."""
    found = dict.fromkeys(reason for c in claims if (reason := _reason(c)) is not None)
    return tuple(f"**{reason.name}**: {reason.text}." for reason in found)


def _reason(claim: Claim) -> Reason | None:
    """A reason is given where the claim fails; a theorem also where it holds."""
    return claim.why if claim.verdict == FAILED or claim.why is THEOREM else None


def _why(claim: Claim) -> str:
    reason = _reason(claim)
    return "" if reason is None else reason.name
