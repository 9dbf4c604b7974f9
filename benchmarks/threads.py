"""One thread against two (or more) on the same questions, in the wall's seconds.

    python benchmarks/threads.py NETWORK:INDEX:RADIUS NETWORK:INDEX NETWORK:PROPERTY.vnnlib .. --data IMAGES

A question is the input with this number and a radius (`verify`), without one (`measure`), or a property. Each is asked
with one thread, then with `--threads`; before the first one of a network both are asked for a moment, so that nothing
is loaded or compiled inside. Printed per question: seconds of both and how many times as fast the threads are, CPU
seconds, and closed nodes of the last tree (not of properties). A bad ratio comes from a larger tree where nodes grew,
from waiting where the CPU seconds did not. Then the geometric mean and the least ratio. The exit code says whether all
answers agree. Seconds of the wall want a machine that does nothing else; `--pause` leaves it to others in between.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import layercert as lc
from layercert import shipped
from layercert.io.datasets import load_dataset
from layercert.search.events import Nodes

#: Seconds of each question before the clock runs: what is loaded and compiled when it is first used.
MOMENT = 1.0
#: Radii of two searches for the same distance agree up to this (relative): twice the gap.
SAME = 2e-6


class Run(NamedTuple):
    """One answer."""

    status: str
    upper: float  # nan where the question has no distance
    seconds: float
    cpu: float
    closed: int  # nodes


def asker(question: str, data: str | None) -> Callable[[int, float], Run]:
    """A function of threads and time limit that asks the question."""
    parts = question.split(":")
    network = lc.load(shipped.path(parts[0]))
    closed = 0

    def watch(_: object, event: object) -> None:
        nonlocal closed
        if isinstance(event, Nodes):
            closed = event.closed

    def ask(threads: int, limit: float) -> Run:
        nonlocal closed
        closed, how = 0, {"threads": threads, "time_limit": limit}
        started, worked = time.perf_counter(), time.process_time()
        answer: Any
        if parts[1].endswith(".vnnlib"):
            answer = lc.verify_spec(network, spec, **how)
        elif len(parts) > 2:
            answer = lc.verify(network, x, float(parts[2]), domain=(0.0, 1.0), watch=watch, **how)
        else:
            answer = lc.measure(network, x, domain=(0.0, 1.0), watch=watch, **how)
        seconds, cpu = time.perf_counter() - started, time.process_time() - worked
        if parts[1].endswith(".vnnlib"):
            return Run(str(answer.answer), math.nan, seconds, cpu, closed)
        return Run(str(answer.status), math.nan if len(parts) > 2 else answer.upper, seconds, cpu, closed)

    if parts[1].endswith(".vnnlib"):
        spec = lc.load_spec(parts[1])
    else:
        x = load_dataset(shipped.path(data or "digits"), parts[1], None, None).X[0]
    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+")
    parser.add_argument("--data", help="inputs: anything that `layercert batch --data` reads")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1, help="runs per question and number of threads; medians count")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of rest before each run")
    args = parser.parse_args()
    ratios, agree, warm = [], True, set[str]()
    print("answer, seconds, CPU seconds, closed nodes: one thread / several: times as fast", flush=True)
    for question in args.questions:
        ask = asker(question, args.data)
        for threads in (1, args.threads) if (network := question.split(":")[0]) not in warm else ():
            ask(threads, MOMENT)
            warm.add(network)
        runs: dict[int, list[Run]] = {1: [], args.threads: []}
        for _ in range(args.repeat):
            for threads, done in runs.items():
                time.sleep(args.pause)
                done.append(ask(threads, args.time_limit))
        one, several = ([*sorted(done, key=lambda run: run.seconds)][len(done) // 2] for done in runs.values())
        same = one.status == several.status and not abs(one.upper / several.upper - 1.0) > SAME
        ratio = one.seconds / several.seconds
        ratios.append(ratio)
        agree = agree and same
        print(
            f"{Path(question.split(':')[0]).stem}:{':'.join(Path(p).name for p in question.split(':')[1:])}"
            f" {one.status}{'' if same else f' / {several.status}: NOT THE SAME'},"
            f" {one.seconds:.2f} / {several.seconds:.2f} s, CPU {one.cpu:.2f} / {several.cpu:.2f} s,"
            f" nodes {one.closed} / {several.closed}: {ratio:.2f}",
            flush=True,
        )
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}, {len(ratios)} questions")
    sys.exit(not agree)


if __name__ == "__main__":
    main()
