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
#: An attack's axis is how far above the exact radius it ends: it begins with what is as good as exact.
NEAR, FAR = 1e-4, 3.0
COLOURS = {
    "fgsm": "C0", "pgd": "C1", "fmn": "C3", "cw": "C4", "ead": "C5", "fab": "C6", "deepfool": "C2",
    "interval": "C0", "lipschitz": "C1", "fast-lin": "C2", "crown": "C3", "large": "C4",
}  # fmt: skip


def draw(path: Path, target: Path) -> None:
    """A panel per norm and kind: which share of the questions a tool answers how near to the exact radius."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "audit", "svg.fonttype": "none"}  # the same bytes for the same numbers
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter

    ratios: defaultdict[tuple[str, str], defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ratios[row["kind"], row["norm"]][plain_name(row["tool"], row["norm"])].append(float(row["ratio"]))
    figure, panels = plt.subplots(2, len(NORMS), figsize=(12, 6.6), sharex="row", sharey=True, layout="constrained")
    for kind, line in zip(("attack", "verifier"), panels, strict=True):
        shown = {}
        for norm, axes in zip(NORMS, line, strict=True):
            for tool, found in ratios[kind, norm].items():
                xs, shares = steps(found, kind)
                name = tool.rpartition(" ")[2]
                style = (
                    "--" if tool.startswith("torchattacks") else "-"
                )  # the same attack of two libraries may coincide
                (shown[tool],) = axes.step(xs, shares, where="post", color=COLOURS.get(name), linestyle=style)
            axes.set(title=f"{kind}s, {norm}", ylim=(0, 1.01))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            if kind == "attack":
                axes.set(xscale="log", xlim=(NEAR, FAR), xlabel="ends at most so far above the exact radius")
                axes.set_xticks([1e-4, 1e-3, 1e-2, 0.1, 1.0], ["0.01%", "0.1%", "1%", "10%", "100%"])
            else:  # the better, the farther to the left, as above
                axes.set(xlim=(1, 0), xlabel="proves at least this part of the exact radius")
                axes.xaxis.set_major_formatter(PercentFormatter(1.0))
            axes.grid(alpha=0.3)
        line[0].set_ylabel("share of questions")
        line[-1].legend(shown.values(), shown, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.savefig(target, metadata={"Date": None})


def plain_name(tool: str, norm: str) -> str:
    """The library and the attack, without the norm that the panel names: `foolbox fmn`."""
    return tool.removesuffix(f"-{norm}").replace("foolbox-", "foolbox ").replace("torchattacks-", "torchattacks ")


def steps(ratios: list[float], kind: str) -> tuple[list[float], list[float]]:
    """A curve from the left end of the axis to the right one: where the share grows, and how large it is then."""
    if kind == "attack":
        places, ends = sorted(max(ratio - 1.0, NEAR) for ratio in ratios if ratio - 1.0 <= FAR), (NEAR, FAR)
    else:
        places, ends = sorted(ratios, reverse=True), (1.0, 0.0)
    shares = [i / len(ratios) for i in range(len(places) + 1)]
    return [ends[0], *places, ends[1]], [*shares, shares[-1]]


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
