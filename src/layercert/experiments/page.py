"""The report of a reproduction: index.html (one file, nothing fetched), report.md, results.csv, tables/, figures/."""

from __future__ import annotations

import base64
import csv
from dataclasses import dataclass, replace
from html import escape
from importlib import resources
from pathlib import Path

from layercert import __version__
from layercert.experiments.claims import claims_table
from layercert.experiments.runs import Pool, read_pools
from layercert.experiments.sections import Section, origin_lines, sections
from layercert.experiments.summary import (
    EXPLAINED,
    adaptive_line,
    count_line,
    other_line,
    reason_lines,
    scale_line,
    summary_table,
)
from layercert.experiments.tables import STYLE, Table

TITLE = "Reproduction of Hierarchical Verification for Adversarial Robustness"
DONE = (
    "Lim, Urtasun and Yumer, ICML 2020: every table and figure that its text describes, measured anew. The paper's "
    "networks and inputs are not published and its tables are pictures, so what can be compared are its claims.",
    "Networks: digits 1 and 7 of MNIST, trained by GeoCert's recipe, which the paper follows. Its text names 3x50 and "
    "the four larger networks, and otherwise 'two to five hidden layers, with between 10 to 50 neurons'; the list of "
    "twelve is ours. Inputs: the first of the 100 digits shipped with LayerCert.",
    "Programs are compared on the inputs that both methods finished; or on all that one of them finished, where it "
    "needs fewer than the other had solved when it finished or was stopped. Seconds are compared on all inputs, an "
    "unfinished one counting with the limit.",
    "Seconds are CPU seconds of one process on the machine named below, and depend on the solvers. With our own stack "
    "the programs of GeoCert-Lip, whose objective is not a plain distance, take a library (l_2) or about ten programs "
    "of the compiled kernel that answers those of all other methods (l_inf): its seconds do not compare with theirs.",
    "Every answer is a line of results.csv (in the repository: benchmarks/results/reproduction.csv); its limit is that "
    "of the run, or the one that an unfinished question had.",
    "`layercert reproduce all` makes all of it again, with the paper's 100 inputs and 1800 s per question; `--inputs`, "
    "`--time-limit 10 --cpu-time` and so on make it smaller, and `--from results.csv` takes over the answers of an "
    "earlier run. The commands of this run are at the end.",
)

#: Every answer, one line each.
ROWS = "results.csv"
COLUMNS = ("network", "input", "method", "status", "lower", "upper", "programs", "cpu_seconds")


def write_page(out: Path) -> Path:
    """Read every run in the folder and write the whole report anew."""
    figures, tables = out / "figures", out / "tables"
    pools = read_pools(out)
    made = sections(pools, (out / "example").exists(), figures)
    every = claims_table("claims", [claim for section in made for claim in section.claims], full=False)
    settings = {name: [c for s in made if s.setting == name for c in s.claims] for name in _settings(made)}
    claims = settings.pop("")
    summary = summary_table(claims)
    for table in (summary, every, *(t for section in made for t in section.all_tables())):
        table.write(tables)
    write_rows(pools, out / ROWS)
    lines = [count_line(claims), *(section.line for section in made), adaptive_line(claims), scale_line(pools)]
    lines.append(other_line(settings))
    front, origin = Front(tuple(filter(None, lines)), summary, reason_lines(claims)), origin_lines(pools)
    (out / "report.md").write_text(_markdown(made, front, origin), encoding="utf-8")
    page = out / "index.html"
    page.write_text(_html(made, front, origin, figures), encoding="utf-8")
    return page


def _settings(made: list[Section]) -> list[str]:
    """That of the summary first."""
    return list(dict.fromkeys(["", *(section.setting for section in made)]))


@dataclass(frozen=True)
class Front:
    """What stands before the sections."""

    lines: tuple[str, ...]  # how large the run is, how many claims held, and what else is worth a sentence
    summary: Table
    reasons: tuple[str, ...]


def write_rows(pools: list[Pool], path: Path) -> None:
    """Every answer as a line of a CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(("norm", "family", "stack", "limit", *COLUMNS))
        for pool in pools:
            question = (pool.options["norms"][0], pool.family, pool.stack)
            for row in sorted(pool.rows, key=lambda r: (pool.nets.index(r.net), int(r.name), r.method)):
                answer = (row.status, repr(row.lower), repr(row.upper), row.programs, f"{row.seconds:.4f}")
                limit = pool.in_words(min(row.limit, pool.limit))
                writer.writerow((*question, limit, row.net, row.name, row.method, *answer))


def _markdown(made: list[Section], front: Front, origin: list[str]) -> str:
    parts = [f"# {TITLE}", "## In a minute", "\n".join(f"* {line}" for line in front.lines)]
    parts += [replace(front.summary, notes=()).markdown(), EXPLAINED]
    parts += ["Why:\n\n" + "\n".join(f"* {line}" for line in front.reasons)] if front.reasons else []
    parts += ["## What was done", "\n".join(f"* {line}" for line in DONE)]
    if front.summary.notes:
        parts += ["## The claims, network by network", "\n".join(f"* {note}" for note in front.summary.notes)]
    for section in made:
        parts += [f"## {section.title}", *section.words]
        for table in section.tables:
            parts += [f"**{table.caption}**", table.markdown()]
        parts += [f"![{caption}](figures/{name}.svg)" for name, caption in section.figures]
    if origin:
        parts += ["## How it was made", "\n".join(f"    {line}" for line in origin)]
    return "\n\n".join(parts) + "\n"


def _html(made: list[Section], front: Front, origin: list[str], figures: Path) -> str:
    style = resources.files("layercert.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{s.key}">{escape(s.title)}</a>' for s in made)
    body = [
        f"<header><h1>{escape(TITLE)}</h1><nav>{links}</nav></header><main>",
        f"<h2>In a minute</h2>{_list(front.lines)}"
        f'<div class="card scroll">{replace(front.summary, notes=()).html()}</div>'
        f"<p>{escape(EXPLAINED.replace('**', ''))}</p>{_list(front.reasons)}",
        f"<h2>What was done</h2>{_list(DONE)}",
        f"<h2>The claims, network by network</h2>{_list(front.summary.notes)}" if front.summary.notes else "",
        *(_section(section, figures) for section in made),
    ]
    if origin:
        body.append(f"<h2>How it was made</h2><pre>{escape(chr(10).join(origin))}</pre>")
    body.append(f"</main><footer>Made by LayerCert {__version__}.</footer>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(TITLE)}</title><style>{style}{STYLE}img{{max-width:100%;background:#fff}}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _list(lines: tuple[str, ...]) -> str:
    items = (escape(line.replace("`", "").replace("**", "")) for line in lines)
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _section(section: Section, figures: Path) -> str:
    parts = [f'<h2 id="{section.key}">{escape(section.title)}</h2>', *(f"<p>{escape(w)}</p>" for w in section.words)]
    for table in section.tables:
        files = " ".join(f'<a href="tables/{table.name}.{kind}">{kind}</a>' for kind in ("html", "md", "csv"))
        parts.append(
            f'<figure class="card scroll"><figcaption>{escape(table.caption)} <small>{files}</small></figcaption>'
            f"{table.html()}</figure><p></p>"
        )
    for name, caption in section.figures:
        data = base64.b64encode((figures / f"{name}.svg").read_bytes()).decode()
        files = " ".join(f'<a href="figures/{name}.{kind}">{kind}</a>' for kind in ("svg", "png"))
        parts.append(
            f'<figure class="card"><figcaption>{escape(caption)} <small>{files}</small></figcaption>'
            f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{data}"></figure><p></p>'
        )
    return "".join(parts)
