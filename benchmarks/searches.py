"""Whole searches of the paper's methods with our distance programs and with the paper's, on the same inputs in one run.

    python benchmarks/searches.py --nets mnist17_l1_2x10 --inputs 3 --norm linf --radius 0.3

Prints for each method the CPU seconds with each stack (one process, one thread) and their ratio, and whether radii and
program counts are the same.
--profile shows where a whole layercert-both run spends its time.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import cProfile
import pstats
import sys
import time

import numpy as np

import layercert as lc
from layercert import shipped

PAPER = ["geocert", "geocert-lip", "layercert-basic", "layercert-ia", "layercert-crown", "layercert-both"]


def ask(net: lc.Network, x: np.ndarray, method: str, stack: str, args: argparse.Namespace) -> lc.Result:
    return lc.measure(net, x, args.norm, radius=args.radius, method=method, stack=stack, time_limit=args.time_limit)


def compare(net: lc.Network, name: str, X: np.ndarray, args: argparse.Namespace) -> None:
    print(f"\n{name}, {args.norm}, radius {args.radius}, {args.inputs} inputs, limit {args.time_limit:g} s")
    print(f"{'method':18} {'kernels s':>10} {'paper s':>10} {'ratio':>8}  programs (kernels / paper)   radii")
    for method in args.methods:
        start = time.process_time()
        ours = [ask(net, X[i], method, "default", args) for i in range(args.inputs)]
        middle = time.process_time()
        theirs = [ask(net, X[i], method, "paper", args) for i in range(args.inputs)]
        a, b = middle - start, time.process_time() - middle
        worst = max(
            (abs(p.upper - q.upper) / p.upper for p, q in zip(ours, theirs, strict=True) if np.isfinite(p.upper)),
            default=0.0,
        )
        late = sum("time limit" in r.note for r in theirs)
        counts = f"{sum(r.programs for r in ours)} / {sum(r.programs for r in theirs)}"
        note = f"differ by {worst:.1e}" + (f", {late} stopped at the limit" if late else "")
        print(f"{method:18} {a:10.3f} {b:10.2f} {b / a:8.0f}  {counts:28} {note}", flush=True)


def profile(net: lc.Network, x: np.ndarray, args: argparse.Namespace) -> None:
    watcher = cProfile.Profile()
    watcher.enable()
    r = ask(net, x, "layercert-both", "default", args)
    watcher.disable()
    print(f"\n{r}")
    pstats.Stats(watcher, stream=sys.stdout).sort_stats("tottime").print_stats(18)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nets", nargs="*", default=["mnist17_l1_2x10", "mnist17_plain_2x10"])
    parser.add_argument("--methods", nargs="*", default=PAPER)
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--radius", type=float, default=0.3)
    parser.add_argument("--inputs", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=300.0)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    X = np.load(shipped.path("digits"))["X"].astype(float)
    for name in args.nets:
        net = lc.load(shipped.path(name))
        ask(net, X[0], "layercert-both", "default", args)  # compile and warm up
        if args.profile:
            profile(net, X[0], args)
        else:
            compare(net, name, X, args)


if __name__ == "__main__":
    main()
