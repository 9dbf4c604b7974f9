"""The page of an audit: a ranking and curves per norm and domain, a table per network, and the same as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median

import numpy as np

from layercert import __version__
from layercert.arrays import Vector
from layercert.audit.scores import ATTACK, CLOSE, VERIFIER, Score, Standing, ranking
from layercert.report import html
from layercert.report.figures import colour
from layercert.report.svg import Figure, horizontal, legend, percent, vertical
from layercert.report.tables import Table

WORDS = {"box": "inside the domain", "free": "without a domain"}
#: The axis of an attack's curve ends here: farther than three times the exact radius is a miss.
FAR = 3.0
SCORES = (
    "tool",
    "kind",
    "network",
    "norm",
    "setting",
    "input",
    "radius",
    "lower",
    "upper",
    "ratio",
    "wrong",
    "seconds",
)
PAGE, CSV, RANKING, MARKDOWN = "index.html", "scores.csv", "ranking.csv", "audit.md"


def write_audit(scores: Sequence[Score], out: Path) -> Path:
    """Write index.html, audit.md (the rankings), ranking.csv and scores.csv.

    Args:
        scores: All of them.
        out: The folder.

    Returns:
        The path of the page.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / PAGE).write_text(html.document("Audit against exact radii", _body(scores)), encoding="utf-8")
    (out / MARKDOWN).write_text(markdown(scores), encoding="utf-8")
    with open(out / CSV, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(SCORES)
        writer.writerows(_line(score) for score in scores)
    with open(out / RANKING, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["norm", "setting", "kind", *ATTACK_HEAD])
        for norm, setting, kind, standings in groups(scores):
            writer.writerows([norm, setting, kind, *_cells(s)] for s in standings)
    return out / PAGE


def _line(score: Score) -> list[object]:
    row = score.row
    facts = [score.tool, score.kind, row.network, row.norm, row.setting, row.input]
    return [*facts, score.radius, row.lower, row.upper, f"{score.ratio:.6g}", score.wrong, f"{score.seconds:.4g}"]


def groups(scores: Sequence[Score]) -> list[tuple[str, str, str, list[Standing]]]:
    """The ranking of each norm, setting and kind that occurs."""
    found: list[tuple[str, str, str, list[Standing]]] = []
    for norm in dict.fromkeys(score.row.norm for score in scores):
        for setting in dict.fromkeys(score.row.setting for score in scores):
            for kind in (ATTACK, VERIFIER):
                standings = ranking(_of(scores, norm, setting), kind)
                if standings:
                    found.append((norm, setting, kind, standings))
    return found


def _of(scores: Sequence[Score], norm: str, setting: str) -> list[Score]:
    return [score for score in scores if score.row.norm == norm and score.row.setting == setting]


ATTACK_HEAD = [
    "tool", "questions", f"within {CLOSE:.0%}", "median ratio", "90 % within", "nothing found", "disproved", "seconds",
]  # fmt: skip
VERIFIER_HEAD = [
    "tool", "questions", "at least half", "median ratio", "90 % above", "radius 0", "disproved", "seconds",
]  # fmt: skip


def _cells(s: Standing) -> list[str]:
    seconds = "" if math.isnan(s.seconds) else f"{s.seconds:.2g}"
    counts = [str(s.failed), str(s.wrong)]
    return [s.tool, str(s.questions), f"{s.close:.0%}", _number(s.median), _number(s.worst), *counts, seconds]


def _number(ratio: float) -> str:
    return f"{ratio:.3f}" if math.isfinite(ratio) else "none"


def ranking_table(standings: Sequence[Standing]) -> Table:
    head = ATTACK_HEAD if standings[0].kind == ATTACK else VERIFIER_HEAD
    return head, [_cells(s) for s in standings]


def markdown(scores: Sequence[Score]) -> str:
    """The rankings as Markdown."""
    parts = [f"# Audit: {len(scores)} radii against the truth"]
    for norm, setting, kind, standings in groups(scores):
        head, lines = ranking_table(standings)
        parts.append(f"**{kind.capitalize()}s, {norm}, {WORDS[setting]}**")
        rule = "|" + " --- |" + " --: |" * (len(head) - 1)
        parts.append("\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(r) + " |" for r in lines)]))
    return "\n\n".join(parts) + "\n"


def _body(scores: Sequence[Score]) -> str:
    questions = {(s.row.name, s.row.collection) for s in scores}
    wrong = [s for s in scores if s.wrong]
    tiles = [
        ("questions", str(len(questions))),
        ("networks", str(len({s.row.network for s in scores}))),
        ("tools", str(len({s.tool for s in scores}))),
        ("answers", str(len(scores))),
        ("disproved", str(len(wrong))),
    ]
    parts = [
        "<header><h1>Audit against exact radii</h1><p class='soft'>Attacks end above the exact radius, verifiers below "
        "it. A ratio is a tool's radius divided by the exact one; only questions with an exact radius are asked.</p>"
        "</header>",
        f"<main>{html.tiles(tiles)}{_alarm(wrong)}",
    ]
    for norm, setting, kind, standings in groups(scores):
        members = [s for s in _of(scores, norm, setting) if s.kind == kind]
        head = f"{kind.capitalize()}s · {norm}, {WORDS[setting]}"
        parts.append(
            f'<h2>{escape(head)}</h2><div class="card scroll">{html.table(ranking_table(standings), 1)}</div>'
            f'<div class="cards" style="margin-top: 16px">{_curves(members, standings, kind)}'
            f"{_networks(members, standings)}</div>"
        )
    parts.append(f"</main><footer>Made by LayerCert {__version__}.</footer>")
    return "".join(parts)


def _alarm(wrong: Sequence[Score]) -> str:
    if not wrong:
        return ""
    items = "".join(
        f"<li>{escape(s.tool)} on {escape(s.row.name)}: {s.radius:.9g}, the exact radius is {s.row.upper:.9g}</li>"
        for s in wrong[:20]
    )
    return f'<div class="alarm"><b>Disproved claims: {len(wrong)}</b><ul>{items}</ul></div>'


def _curves(scores: Sequence[Score], standings: Sequence[Standing], kind: str) -> str:
    """Attacks: share of questions within a ratio. Verifiers: share of questions above a ratio."""
    attack = kind == ATTACK
    x = horizontal(1.0, FAR, log=True) if attack else horizontal(0.0, 1.0)
    label = "distance / exact radius" if attack else "certified / exact radius"
    f = Figure(f"{kind}s against exact radii", x, vertical(0.0, 1.0), label, "share of questions", y_text=percent)
    for i, standing in enumerate(standings):
        ratios = np.sort([s.ratio for s in scores if s.tool == standing.tool])
        xs, ys = _attack_steps(ratios) if attack else _verifier_steps(ratios)
        f.steps(xs, ys, colour(i), FAR if attack else 1.0)
    hint = "share of questions answered within a factor" if attack else "share of questions certified up to a part"
    return html.card(
        f"{kind.capitalize()}s", hint, f.svg() + legend([(colour(i), s.tool) for i, s in enumerate(standings)])
    )


def _attack_steps(ratios: Vector) -> tuple[Vector, Vector]:
    near = np.clip(ratios[ratios <= FAR], 1.0, FAR)
    xs = np.concatenate([[1.0], np.unique(near)])
    return xs, np.searchsorted(near, xs, side="right") / len(ratios)


def _verifier_steps(ratios: Vector) -> tuple[Vector, Vector]:
    parts = np.clip(ratios, 0.0, 1.0)
    xs = np.concatenate([[0.0], np.unique(parts)])
    return xs, 1.0 - np.searchsorted(parts, xs, side="right") / len(parts)


def _networks(scores: Sequence[Score], standings: Sequence[Standing]) -> str:
    """The median ratio of each tool on each network."""
    tools = [standing.tool for standing in standings]
    head, lines = ["network", *tools], []
    for network in dict.fromkeys(s.row.network for s in scores):
        cells = []
        for tool in tools:
            ratios = [s.ratio for s in scores if s.tool == tool and s.row.network == network]
            cells.append(_number(median(ratios)) if ratios else "")
        lines.append([network, *cells])
    return html.card("Median ratio by network", "", f'<div class="scroll">{html.table((head, lines), 1)}</div>')
