"""Exact radii: the adaptive search against the MIP and the paper's best method, all in one run on one core.

    python benchmarks/exact.py --inputs 5 --time-limit 60
    python benchmarks/exact.py --nets DIR/mnist17_plain_5x50.npz ... --methods adaptive --norm l2

Prints, for each network and method, the share solved, median and worst seconds, the geometric mean and the extremes of
the ratios of the other methods to adaptive (an unsolved input counts at the time limit), and any disagreement.
--out FOLDER also writes every row as CSV, draws performance profiles and adaptive's time against the size of the nets.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import math
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import layercert as lc
from layercert import shipped
from layercert.attack.attack import attack
from layercert.problem import robustness

sys.path.insert(0, str(Path(__file__).parent))
import rivals


@dataclass(frozen=True)
class Row:
    net: str
    norm: str
    input: int
    method: str
    solved: bool
    lower: float
    upper: float
    seconds: float
    programs: int


def run(net: lc.Network, name: str, x: np.ndarray, i: int, method: str, args: argparse.Namespace) -> Row:
    domain = tuple(args.domain) if args.domain else None
    start = time.perf_counter()
    if method in rivals.available():
        problem = robustness(net, x, args.norm, domain=domain)
        found = attack(problem)
        U = problem.reach if found is None else found[1]
        lower, upper = rivals.available()[method](problem, U, args.time_limit)
        seconds = time.perf_counter() - start
        solved = upper - lower <= 1e-5 * upper
        return Row(name, args.norm, i, method, solved, lower, upper, seconds, 0)
    r = lc.measure(net, x, args.norm, domain=domain, method=method, time_limit=args.time_limit, radius=args.radius)
    return Row(
        name, args.norm, i, method, r.status != "undecided", r.lower, r.upper, time.perf_counter() - start, r.programs
    )


def summary(rows: list[Row], methods: list[str], limit: float) -> None:
    print(
        f"{'network':28} {'method':16} solved  median s   worst s  ratio to adaptive: geometric mean, least, greatest"
    )
    for net in dict.fromkeys(r.net for r in rows):
        base = {r.input: r for r in rows if r.net == net and r.method == "adaptive"}
        for method in methods:
            mine = [r for r in rows if r.net == net and r.method == method]
            seconds = [r.seconds if r.solved else max(limit, r.seconds) for r in mine]
            text = f"{net:28} {method:16} {sum(r.solved for r in mine):3}/{len(mine):<3}"
            text += f" {np.median(seconds):9.3f} {max(seconds):9.3f}"
            pairs = [(s, base[r.input]) for s, r in zip(seconds, mine, strict=True) if base and base[r.input].solved]
            if method != "adaptive" and pairs:
                ratios = [s / b.seconds for s, b in pairs]
                text += f"  {np.exp(np.mean(np.log(ratios))):9.1f} {min(ratios):9.2f} {max(ratios):9.1f}"
            print(text, flush=True)


def disagreements(rows: list[Row]) -> list[str]:
    """Two methods that both finished must agree within 1e-6 (rivals: their own 1e-5)."""
    found = []
    for key in dict.fromkeys((r.net, r.norm, r.input) for r in rows):
        done = [r for r in rows if (r.net, r.norm, r.input) == key and r.solved]
        for a in done:
            for b in done:
                tolerance = 2e-5 if {a.method, b.method} & {"gurobi", "scip"} else 2e-6
                if a.lower > b.upper * (1 + tolerance):
                    found.append(f"{key}: {a.method} says at least {a.lower}, {b.method} has {b.upper}")
    return found


def profiles(rows: list[Row], methods: list[str], out: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 4))
    for method in methods:
        times = np.sort([r.seconds if r.solved else math.inf for r in rows if r.method == method])
        ax.step(np.r_[1e-3, times], np.r_[0, np.arange(1, len(times) + 1)] / len(times), where="post", label=method)
    ax.set_xscale("log")
    ax.set_xlabel("seconds")
    ax.set_ylabel("share of inputs solved")
    ax.legend()
    figure.tight_layout()
    figure.savefig(out / "profiles.png", dpi=120)


def growth(rows: list[Row], out: Path) -> None:
    """Median seconds of adaptive against width, a line for each depth, a panel for each family (FAMILY_DEPTHxWIDTH)."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    times: dict[str, dict[int, dict[int, list[float]]]] = {}
    for r in rows:
        shape = re.fullmatch(r"(.*)_(\d+)x(\d+)", r.net)
        if shape and r.method == "adaptive":
            family, depth, width = shape[1], int(shape[2]), int(shape[3])
            times.setdefault(family, {}).setdefault(depth, {}).setdefault(width, []).append(r.seconds)
    if not times:
        return
    figure, axes = plt.subplots(1, len(times), figsize=(4.5 * len(times), 3.6), sharey=True, squeeze=False)
    for ax, (family, depths) in zip(axes[0], sorted(times.items()), strict=True):
        for depth, widths in sorted(depths.items()):
            at = sorted(widths)
            ax.plot(at, [np.median(widths[w]) for w in at], marker="o", label=f"{depth} layers")
        ax.set(title=family, xlabel="neurons a layer", xscale="log", yscale="log")
        ax.set_xticks([10, 20, 30, 50, 100], ["10", "20", "30", "50", "100"])
        ax.legend()
    axes[0][0].set_ylabel("median seconds")
    figure.tight_layout()
    figure.savefig(out / "growth.png", dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nets", nargs="*", default=[n for n in shipped.names() if n.startswith("mnist17")])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--methods", nargs="*", default=["adaptive", "mip", "layercert-both", *rivals.available()])
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--radius", type=float)
    parser.add_argument("--domain", nargs=2, type=float, default=[0.0, 1.0])
    parser.add_argument("--no-domain", dest="domain", action="store_const", const=None)
    parser.add_argument("--inputs", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    X = np.load(shipped.path(args.data))["X"].astype(float)
    rows: list[Row] = []
    for name in args.nets:
        net = lc.load(shipped.path(name))
        lc.measure(net, X[0], args.norm, domain=tuple(args.domain) if args.domain else None, time_limit=1.0)  # warm
        for i in range(args.inputs):
            rows += [run(net, Path(name).stem, X[i], i, m, args) for m in args.methods]
        summary([r for r in rows if r.net == Path(name).stem], args.methods, args.time_limit)
    print("\nall networks")
    for method in args.methods:
        mine = [r for r in rows if r.method == method]
        other = {(r.net, r.input): r.seconds for r in rows if r.method == "adaptive"}
        ratios = [
            max(r.seconds, 0 if r.solved else args.time_limit) / other.get((r.net, r.input), math.nan) for r in mine
        ]
        median = np.median([r.seconds for r in mine])
        mean = np.exp(np.mean(np.log(ratios)))
        print(
            f"{method:16} solved {sum(r.solved for r in mine)}/{len(mine)}, median {median:.3f} s,"
            f" ratio to adaptive {mean:.1f} (least {min(ratios):.2f})"
        )
    wrong = disagreements(rows)
    print(f"{len(wrong)} disagreements", *wrong, sep="\n")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        with (args.out / "exact.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])))
            writer.writeheader()
            writer.writerows(asdict(r) for r in rows)
        profiles(rows, args.methods, args.out)
        growth(rows, args.out)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
