"""What the page says: a section for each experiment and stack, from the runs in the folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean

from layercert.experiments import claims, example, figures
from layercert.experiments.averages import average_tables
from layercert.experiments.claims import Claim, claims_table
from layercert.experiments.duel import LEAD as DUEL_LEAD
from layercert.experiments.duel import WORDS as DUEL_WORDS
from layercert.experiments.duel import duel_line, duel_table, duels
from layercert.experiments.runs import Pool, Row
from layercert.experiments.setup import EXPERIMENTS, LARGE_SIZES, SIZES, Experiment
from layercert.experiments.summary import OURS, scale, summary_table
from layercert.experiments.tables import Cell, Table

BOLD = "Bold (green on the page): the best of the paper's methods, and an addition of ours that is faster still."
OURS_MARK = "+: our additions, not in the paper's tables."
MARKS = (
    f"{BOLD} †n: n inputs were not finished within the limit; each counts with the limit in the mean of seconds, and "
    f"with the programs solved until then in the mean of programs. {OURS_MARK}"
)
#: The view of a first pass.
HURRIED_MARKS = (
    f"{BOLD} †n: n inputs were not finished within the limit; each counts with the limit in the mean of seconds. An "
    f"input that was given more time counts here as if it had not. {OURS_MARK}"
)
NORMS = {"linf": "l_inf", "l2": "l_2"}
NOTES = {
    "table1": MARKS,
    "table-l2": MARKS,
    "ablation": "layercert-basic-late marks a pattern as seen when it is visited, as GeoCert does. "
    "†n: n inputs were not finished within the limit.",
    "profiles": "How many inputs are solved within a time limit. adaptive is our addition.",
    "large": "The radius proved over time on inputs that neither of the paper's two methods finished. A mark and a "
    "thin line: the exact radius, where a method finished. The networks are of the family plain: with the l1 penalty "
    "8x20, 6x30 and 5x50 became constant classifiers in training, with each of six seeds; 5x60 did not.",
}


@dataclass
class Section:
    """A heading, words, claims, tables and figures (name, caption), in this order."""

    key: str
    title: str
    words: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)
    long_tables: list[Table] = field(default_factory=list)  # files only: too long for the page
    setting: str = ""  # of a second setting: its claims stand in the section, not in the summary
    line: str = ""  # for the summary

    def all_tables(self) -> list[Table]:
        found = [*self.tables, *self.long_tables]
        return [claims_table(f"{self.key}-claims", self.claims), *found] if self.claims else found


CHECKS: dict[str, Callable[[Pool], list[Claim]]] = {
    "table1": claims.table1_claims,
    "table-l2": claims.l2_claims,
    "ablation": claims.ablation_claims,
    "profiles": claims.profile_claims,
    "large": claims.large_claims,
}


def sections(pools: list[Pool], with_example: bool, folder: Path) -> list[Section]:
    """Everything that can be shown; figures are drawn into the folder."""
    made: list[Section] = []
    for e in EXPERIMENTS.values():
        views = [view for p in pools if p.has(e) for view in p.views(e.methods)]
        made += [_section(e, view, folder, first=view is views[0]) for view in views]
        if e.name == "table-l2":  # both norms are there
            made += _duel_section(pools)
    made += _stack_sections(pools)
    if with_example:
        made.append(_example(folder))
    return made


def _section(experiment: Experiment, pool: Pool, folder: Path, first: bool) -> Section:
    usual = ("plain" if experiment.name == "large" else "l1", "default")
    suffix = "".join(f"-{part}" for part in (pool.family, pool.stack) if part not in usual)
    suffix += "-more" if pool.hurried else ""
    section = Section(experiment.name + suffix, _title(experiment, pool), setup_lines(experiment, pool))
    checked = CHECKS[experiment.name](pool)
    note = NOTES[experiment.name]
    section.words.append(HURRIED_MARKS if pool.hurried and note is MARKS else note)
    section.claims = [replace(c, where=_where(c.where, pool)) for c in checked]
    if experiment.name == "profiles":
        figures.save_figure(figures.profiles_figure(pool), folder, section.key)
        section.figures.append((section.key, "Inputs solved against time, one panel a network"))
    elif experiment.name == "large":
        _add_large(section, pool, folder)
    else:
        section.tables = average_tables(pool, section.key, experiment.methods)
    if not first:
        section.tables.insert(0, summary_table(checked, f"{section.key}-summary"))
        section.setting = f"{pool.label}: {scale(pool)}"
    return section


def _duel_section(pools: list[Pool]) -> list[Section]:
    """GeoCert-Lip against LayerCert-Both with our solvers, in each norm of the tables."""
    section = Section("duel", "GeoCert-Lip against LayerCert-Both", [DUEL_WORDS])
    for name in ("table1", "table-l2"):
        e = EXPERIMENTS[name]
        view = next((v for p in pools if p.has(e) and p.stack == "default" for v in p.views(e.methods)), None)
        if view is not None:
            found, norm = duels(view), NORMS[e.norm]
            section.tables.append(duel_table(found, f"duel-{e.pool}", norm))
            section.line = f"{section.line or DUEL_LEAD} {duel_line(found, norm)}"
    return [section] if section.tables else []


def _add_large(section: Section, pool: Pool, folder: Path) -> None:
    rows: list[tuple[Cell, ...]] = []
    short: list[tuple[Cell, ...]] = []
    for net in pool.nets:
        hard = figures.hard_inputs(pool, net)
        for method in EXPERIMENTS["large"].methods:
            by_input = pool.select(net, method)
            found = [by_input[i] for i in hard if i in by_input]
            for r in found:
                words = (net, r.name, method, r.status, f"{r.lower:.5f}", f"{r.upper:.5f}", f"{r.seconds:.3f}")
                rows.append(tuple(map(Cell, words)))
            if found:
                short.append(tuple(map(Cell, (net, method, *_large_row(found, pool.limit)))))
        if hard:
            name = f"{section.key}-{net}"
            figures.save_figure(figures.large_figure(pool, net), folder, name)
            section.figures.append((name, f"{net}: proved radius over time"))
    header = ("network", "input", "method", "status", "lower", "upper", "CPU seconds")
    section.long_tables = [Table(f"{section.key}-bounds", "Bounds at the end", header, tuple(rows), words=True)]
    means = ("network", "method", "finished", "mean proved radius", "mean CPU seconds")
    section.tables = [Table(f"{section.key}-means", "Bounds at the end", means, tuple(short), words=True)]


def _large_row(found: list[Row], limit: float) -> tuple[str, str, str]:
    seconds = fmean(r.seconds if r.solved else limit for r in found)
    return f"{sum(r.solved for r in found)} of {len(found)}", f"{fmean(r.lower for r in found):.5f}", f"{seconds:.3f}"


def _where(where: str, pool: Pool) -> str:
    """Claims of one paragraph in two norms or with two stacks must not be confused."""
    stack = "" if pool.stack == "default" else f", stack '{pool.stack}'"
    every = f", {pool.inputs} inputs" if pool.hurried else ""
    return f"{where} ({pool.pool}{stack}{every})" if where == OURS or stack or every else where


def _title(experiment: Experiment, pool: Pool) -> str:
    stack = "" if pool.stack == "default" else f", with the solvers of the stack '{pool.stack}'"
    family = "" if pool.family == "l1" or experiment.name == "large" else f", networks of the family {pool.family}"
    every = f", {pool.inputs} inputs with {pool.limit_words} each" if pool.hurried else ""
    return experiment.title + family + stack + every


def setup_lines(experiment: Experiment, pool: Pool) -> list[str]:
    """Exactly what was run."""
    known = LARGE_SIZES if experiment.name == "large" else SIZES
    names = f"all {len(known)} networks" if len(pool.nets) == len(known) else f"the networks {', '.join(pool.nets)}"
    methods = len(experiment.methods)
    lines = [
        f"{pool.inputs} input{'s' if pool.inputs > 1 else ''} on {names} (family {pool.family}), {methods} methods: "
        f"{len(pool.rows)} questions with {pool.limit_words} each, in {NORMS[experiment.norm]} up to radius "
        f"{pool.options['radius']:g}, without a domain, solver stack '{pool.stack}'. "
        f"{sum(not r.solved for r in pool.rows)} were not finished, {sum(r.status == 'failed' for r in pool.rows)} "
        f"failed; all took {sum(_seconds(r, pool) for r in pool.rows) / 60:.1f} CPU minutes."
    ]
    if pool.remarks:
        lines.append(f"Networks: {'; '.join(pool.remarks)}.")
    return lines


def _seconds(row: Row, pool: Pool) -> float:
    return min(row.seconds, pool.limit) if pool.hurried else row.seconds


def _stack_sections(pools: list[Pool]) -> list[Section]:
    """Our solvers against another stack, on the questions that both have answered."""
    made: list[Section] = []
    for other in pools:
        for ours in pools:
            alike = (ours.pool, ours.family) == (other.pool, other.family)
            if ours.stack == "default" and other.stack != "default" and alike:
                key = f"stacks-{other.pool}-{other.stack}"
                title = f"Solvers: ours against the stack '{other.stack}' ({other.options['norms'][0]})"
                words = "Totals over the questions that both stacks finished; time-outs are left out on both sides."
                made.append(Section(key, title, [words], tables=[_stack_table(key, ours, other)]))
    return made


def _stack_table(name: str, ours: Pool, other: Pool) -> Table:
    mine = {(r.net, r.method, r.input): r for r in ours.rows if r.solved}
    rows: list[tuple[Cell, ...]] = []
    for method in other.methods:
        theirs = [r for r in other.rows if r.method == method]
        pairs = [(mine[key], r) for r in theirs if r.solved and (key := (r.net, r.method, r.input)) in mine]
        if not pairs:
            continue
        a, b = (sum(p[i].seconds for p in pairs) for i in (0, 1))
        words = (
            method, f"{len(pairs)} of {len(theirs)}", str(sum(p[0].programs for p in pairs)),
            str(sum(p[1].programs for p in pairs)), f"{a:.2f}", f"{b:.2f}", f"{b / a:.1f}",
        )  # fmt: skip
        rows.append(tuple(map(Cell, words)))
    stack = other.stack
    header = (
        "method",
        "questions",
        "programs, ours",
        f"programs, {stack}",
        "CPU s, ours",
        f"CPU s, {stack}",
        "speed-up",
    )
    return Table(name, "Our solvers against the others", header, tuple(rows), words=True)


def _example(folder: Path) -> Section:
    found = example.orders()
    figures.save_figure(example.example_figure(found), folder, "example")
    words = (
        "The network of Appendix A from x = (-1, -1.25), in l_2 (the paper names no norm). A node is a region taken "
        "from the queue, an edge the distance to the face between two regions, 'down' the step to the next layer (no "
        "program)."
    )
    checked = example.example_claims(found)
    return Section(
        "example", "Appendix A: the order of nodes and edges", [words], checked,
        figures=[("example", "Nodes and edges in the order they are processed")],
        long_tables=[example.order_table(found)],
    )  # fmt: skip


def origin_lines(pools: list[Pool]) -> list[str]:
    """Machine, versions, commands and times, as the runs recorded them."""
    lines: list[str] = []
    for pool in pools:
        started, finished = pool.sessions[0]["started"], pool.finished
        wall = (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds() / 60
        lines.append(
            f"{pool.pool}, family {pool.family}, stack {pool.stack}: {len(pool.rows)} of {pool.planned} questions, "
            f"{started} to {finished} ({wall:.1f} minutes)"
        )
        lines += [f"  {text}" for text in dict.fromkeys(_command(s["command"]) for s in pool.sessions)]
        lines += [f"  {text}" for text in dict.fromkeys(s["workers"] for s in pool.sessions)]
    for session in [pools[-1].sessions[-1]] if pools else []:
        m = session["machine"]
        lines.append(
            f"machine: {m['processor']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GB, {m['system']}"
        )
        lines.append("versions: " + ", ".join(f"{k} {v}" for k, v in session["versions"].items()))
    return lines


def _command(text: str) -> str:
    """Without the path of the script."""
    program, _, rest = text.partition(" ")
    return f"{Path(program).name} {rest}".strip()
