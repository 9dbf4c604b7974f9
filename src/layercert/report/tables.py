"""The report as plain tables: Markdown for people, CSV for programs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from layercert.report.analysis import accuracies, comparisons, confusions, curve, profiles, summarise
from layercert.report.figures import axis_end, class_name
from layercert.report.records import Results, Run
from layercert.report.svg import nice_step

Table = tuple[list[str], list[list[str]]]


def overview(results: Results) -> str:
    inputs = len({r.input_hash for r in results.records})
    sources = ", ".join(dict.fromkeys(run.facts["data"] for run in results.runs))
    parts = [
        f"{inputs} input{'s' if inputs != 1 else ''} from {sources}",
        ", ".join(results.series),
        f"norm {', '.join(results.norms)}",
        f"method {', '.join(results.methods)}",
    ]
    return " · ".join(parts)


def question(run: Run) -> str:
    """What the run asks beyond the nearest point of any other class, in a sentence; "" where it asks no more."""
    asked, columns = run.facts["identity"], run.facts.get("columns") or ()

    def named(i: int) -> str:
        return columns[i] if columns else str(i)

    parts = []
    if asked.get("target"):
        parts.append(f"nearest point of class {' or '.join(map(str, asked['target']))}")
    if asked.get("weights"):
        weights = asked["weights"]
        some = ", ".join(f"{named(i)} {w:.4g}" for i, w in enumerate(weights[:20]))
        parts.append(f"distances weighted by {some}{', ...' if len(weights) > 20 else ''}")
    if asked.get("fixed"):
        fixed = asked["fixed"]
        some = ", ".join(named(i) for i in fixed[:20])
        parts.append(f"fixed: {some}{f' and {len(fixed) - 20} more' if len(fixed) > 20 else ''}")
    if asked.get("integer"):
        parts.append(f"whole numbers: {', '.join(map(named, asked['integer']))}")
    parts += [f"one of {', '.join(map(named, group))}" for group in asked.get("one_of") or ()]
    text = "; ".join(parts)
    return f"Asked: {text}." if text else ""


def summary_table(results: Results) -> Table:
    """What matters first, for narrow screens: the median, what is decided, then the rest."""
    header = ["model", "norm", "median radius", "exact", "robust", "not robust", "undecided", "failed", "misclassified",
              "inputs", "mean proved", "method", "median s", "total s", "programs"]  # fmt: skip
    rows = [
        [s.series, s.norm, interval(*s.median),
         *map(str, (s.exact, s.robust, s.not_robust, s.undecided, s.failed, s.wrong, s.inputs)),
         f"{s.mean_proved:.5g}", s.method, f"{s.median_seconds:.3g}", f"{s.seconds:.4g}", str(s.programs)]
        for s in summarise(results)
    ]  # fmt: skip
    # columns of zeros say nothing: these appear when there are any
    dull = {
        header.index(name)
        for name in ("robust", "not robust", "failed", "misclassified")
        if all(row[header.index(name)] == "0" for row in rows)
    }
    keep = [i for i in range(len(header)) if i not in dull]
    return [header[i] for i in keep], [[row[i] for i in keep] for row in rows]


def interval(low: float, high: float) -> str:
    """A number known to lie between two: itself, where they agree."""
    if math.isinf(high):
        return "inf" if math.isinf(low) else f">= {low:.4g}"
    return f"{high:.5g}" if high - low <= 1e-5 * high else f"{low:.4g} .. {high:.4g}"


def accuracy_table(results: Results) -> Table:
    """The table every paper prints; certified, attacked and undecided add up to all inputs."""
    rows = [
        [a.series, a.norm, f"{a.eps:.6g}", share(a.clean, a.clean + a.unknown, a.inputs),
         *(share(k, k, a.inputs) for k in (a.certified, a.attacked, a.undecided)), str(a.inputs)]
        for a in accuracies(results, results.eps)
    ]  # fmt: skip
    return ["model", "norm", "eps", "clean", "certified", "attacked", "undecided", "inputs"], rows


def share(low: int, high: int, total: int) -> str:
    """A part of all inputs, between two counts."""
    text = f"{100 * low / total:.1f}"
    return f"{text} %" if low == high else f"{text}-{100 * high / total:.1f} %"


def curve_table(results: Results) -> Table:
    rows = [
        [series, norm, repr(float(r)), f"{low:.6g}", f"{high:.6g}"]
        for norm in results.norms
        for series in results.series
        if (bounds := results.bounds(series, norm))
        for c in [curve(bounds.values())]
        for r, low, high in zip(c.radii, c.proved, c.possible, strict=True)
    ]
    return ["model", "norm", "radius", "robust proved", "robust possible"], rows


def confusion_table(results: Results, names: Sequence[str]) -> Table:
    rows = [
        [series, norm, class_name(c.label, names), class_name(c.target, names), str(c.count), f"{c.median:.6g}"]
        for norm in results.norms
        for series in results.series
        for c in confusions(results.bounds(series, norm).values())
    ]
    return ["model", "norm", "class", "nearest", "count", "median radius"], rows


def profile_table(results: Results) -> Table:
    """Share solved as fast as the best, within 2, 10 and 100 times, and at all."""
    rows: list[list[str]] = []
    for norm in results.norms:
        for p in profiles(results.select(norm=norm)):
            within = [float(p.shares[p.factors <= f].max(initial=0.0)) for f in (1.0, 2.0, 10.0, 100.0, math.inf)]
            rows.append([p.method, norm, *(f"{100 * share:.0f} %" for share in within)])
    return ["method", "norm", "fastest", "within 2x", "within 10x", "within 100x", "solved"], rows


def comparison_table(results: Results) -> Table:
    """Every pair of models; the ratio is second / first, over the inputs on which both distances are exact."""
    rows = [
        [c.first, c.second, c.norm, str(len(c.pairs)), str(c.first_wins), str(c.second_wins),
         "-" if c.median_ratio is None else f"{c.median_ratio:.4g}", str(len(c.ratios))]
        for c in comparisons(results)
    ]  # fmt: skip
    header = ["first", "second", "norm", "shared inputs", "first more robust", "second more robust", "median ratio"]
    return [*header, "both exact"], rows


def least_robust_table(results: Results, names: Sequence[str], count: int = 20) -> Table:
    rows: list[list[str]] = []
    for norm in results.norms:
        for series in results.series:
            ordered = sorted(results.bounds(series, norm).values(), key=lambda b: b.upper)
            rows += [
                [series, norm, b.best.name, class_name(b.label, names), class_name(b.best.result.target, names),
                 b.best.status, f"{b.lower:.6g}", f"{b.upper:.6g}"]
                for b in ordered[:count]
            ]  # fmt: skip
    return ["model", "norm", "input", "class", "nearest", "status", "lower", "upper"], rows


def markdown(results: Results, title: str, names: Sequence[str]) -> str:
    """The page in words and tables."""
    parts = [f"# {title}", overview(results), *dict.fromkeys(filter(None, map(question, results.runs)))]
    for line in results.contradictions():
        parts.append(f"**Contradiction, please report: {line}**")
    parts += ["## Summary", _markdown_table(summary_table(results))]
    if results.eps:
        parts += ["## Certified accuracy", _markdown_table(accuracy_table(results))]
    parts += ["## Share of inputs robust", _markdown_table(share_table(results))]
    parts += ["## Who is confused with whom", _markdown_table(confusion_table(results, names))]
    if len(results.methods) > 1:
        parts += ["## Methods", _markdown_table(profile_table(results))]
    if len(results.series) > 1:
        parts += ["## Comparison", _markdown_table(comparison_table(results))]
    parts += ["## Least robust inputs", _markdown_table(least_robust_table(results, names))]
    parts.append("## How it was made")
    parts += ["\n".join(f"    {line}" for line in machine_lines(run)) for run in results.runs]
    return "\n\n".join(parts) + "\n"


def share_table(results: Results, columns: int = 6) -> Table:
    """The robustness curve at a few round radii: '62 %', or '60-64 %' where some inputs are undecided."""
    rows: list[list[str]] = []
    for norm in results.norms:
        curves = {s: curve(b.values()) for s in results.series if (b := results.bounds(s, norm))}
        step = nice_step(axis_end(curves) / columns)
        for series, c in curves.items():
            for k in range(1, columns + 1):
                low, high = c.at(k * step)
                share = f"{100 * low:.0f} %" if high - low < 1e-9 else f"{100 * low:.0f}-{100 * high:.0f} %"
                rows.append([series, norm, f"{k * step:.4g}", share])
    return ["model", "norm", "radius", "robust"], rows


def write_csv(table: Table, path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([table[0], *table[1]])


def _markdown_table(table: Table) -> str:
    header, rows = table
    if not rows:
        return "(nothing)"
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def machine_lines(run: Run) -> Iterator[str]:
    """Options, hashes, versions and machine of a run, a line each."""
    yield f"run: {run.folder}, created {run.facts['created']}, data {run.facts['data']}"
    for key, value in run.facts["identity"].items():
        if key not in ("models", "positions", "labels"):
            yield f"{key}: {value}"
    for name, sha in run.models:
        yield f"model {name}: sha256 {sha}"
    for i, s in enumerate(run.sessions, 1):
        yield f"session {i}: {s['started']}, {s['workers']}: {s['command']}"
        yield "  " + ", ".join(f"{k} {v}" for k, v in s["versions"].items())
        m = s["machine"]
        yield f"  {m['host']}, {m['processor']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GB, {m['system']}"
