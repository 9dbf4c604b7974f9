"""The audit of docs/audit.md: attacks and verifiers on 16 networks of RadiusBench, five inputs each, inside [0, 1].

    python benchmarks/audit.py --out audit       # the page, audit.md, ranking.csv and scores.csv
    python benchmarks/audit.py --draw benchmarks/results/audit_scores.csv --out docs/figures/audit.svg

An audit that was stopped, by kill -9 too, goes on with the same command. `--full` adds the attacks whose own settings
take minutes per network. What is installed is asked: torch and foolbox (`layercert[torch,audit]`), torchattacks by
hand.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from layercert.audit import Answers, Wanted, audit, tools_named, truth, write_audit
from layercert.audit.libraries import installed

NETWORKS = (
    "wine_plain_2x20", "digits_plain_2x20", "digits_adv_2x50", "mnist17_l1_2x20", "mnist17_plain_3x50",
    "digits_ibp_2x50", "cancer_adv_3x20", "encounters_plain_4x25", "digits_cnn_plain", "spirals_plain_4x20",
    "mnist17_plain_2x20", "mnist10_plain_2x20", "iris_sklearn_2x10", "wine_adv_2x20", "digits_plain_5x20",
    "encounters_plain_6x50",
)  # fmt: skip

NORMS = ("linf", "l2", "l1")
#: A panel shows distances up to so many times the exact radius, and certified radii from none to all of it.
FAR = 2.0


def draw(path: Path, target: Path) -> None:
    """A panel per norm and kind: which share of the questions a tool answers within a factor of the exact radius."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "audit", "svg.fonttype": "none"}  # the same bytes for the same numbers
    import matplotlib.pyplot as plt

    ratios: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ratios[row["kind"], row["norm"], row["tool"]].append(float(row["ratio"]))
    figure, panels = plt.subplots(2, len(NORMS), figsize=(11, 6.4), sharey=True, constrained_layout=True)
    for (kind, norm), axes in zip(product(("attack", "verifier"), NORMS), panels.flat, strict=True):
        for tool, found in curves(ratios, kind, norm):
            found = sorted(found) if kind == "attack" else sorted(found, reverse=True)
            shares = [(i + 1) / len(found) for i in range(len(found))]
            axes.step(found, shares, where="post", label=tool)
        axes.set(title=f"{kind}s, {norm}", xlabel="radius / exact radius", ylim=(0, 1))
        axes.set_xlim((1, FAR) if kind == "attack" else (1, 0))  # the better, the farther to the left
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="lower right")
    for axes in panels[:, 0]:
        axes.set_ylabel("share of questions")
    figure.savefig(target, metadata={"Date": None})


def curves(ratios: dict[tuple[str, str, str], list[float]], kind: str, norm: str) -> Iterator[tuple[str, list[float]]]:
    """The tools of one panel, in the order of the file."""
    for (each, asked, tool), found in ratios.items():
        if (each, asked) == (kind, norm):
            yield tool, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("audit"))
    parser.add_argument("--full", action="store_true", help="the slow attacks too: some 20 minutes of CPU time more")
    parser.add_argument("--draw", type=Path, metavar="CSV", help="only the picture of such a scores.csv, into --out")
    args = parser.parse_args()
    if args.draw is not None:
        draw(args.draw, args.out)
        return
    tools = tools_named([])
    if args.full:
        tools += [tool for tool in installed() if tool.slow]
    answers = Answers(args.out, resume=True)
    scores = []
    for name in NETWORKS:  # written after each network: a run stopped half way has whole networks
        wanted = Wanted((name,), settings=("box",), inputs=args.inputs)
        scores += audit(truth(None), tools, wanted, lambda text: print(text, flush=True), answers)
        write_audit(scores, args.out)


if __name__ == "__main__":
    main()
