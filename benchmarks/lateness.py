"""How long after their time limit answers come: every way to ask, every method, networks of all sizes.

    python benchmarks/lateness.py --nets NETS/*.onnx --data MNIST/t10k-images-idx3-ubyte.gz --limits 0.5 2 10
    python benchmarks/lateness.py --families VNNCOMP/oval21 VNNCOMP/sri_resnet_a --asks measure property
    python benchmarks/lateness.py --dense 3072-1024-1024-10 --methods layercert-both mip --norms linf 1.5
    python benchmarks/lateness.py --dense 784-256-256-10 --methods mip --threads 2 --wall

The seconds are those in which the process computed, without compiling, so that other work on the machine does not
count; questions run in one thread. With --wall they are the wall's, on a machine that has nothing else to do: for
several threads, and for `mip`, whose solver looks at the wall's clock alone. `verify` is asked half way between the
bounds that `measure` left. A row per network, way to ask, method, norm and limit: how many questions, the longest, and
how many were late, that is more than 1 s and more than a tenth of the limit over it. With --trace whoever is still at
work 0.3 s after the limit says where, every 0.2 s.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import faulthandler
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import layercert as lc
from layercert.arrays import Vector
from layercert.io.datasets import load_dataset
from layercert.spec.cases import Spec
from layercert.system import clock

#: Seconds, and part of the limit, that an answer may come after it.
LATE, PART = 1.0, 0.1
#: With --trace: the first look so long after the limit, and how often.
TRACE_AFTER, TRACE_EVERY = 0.3, 0.2


class Question(NamedTuple):
    """An input of a network, perhaps with a property about it."""

    x: Vector
    low: Vector | float
    high: Vector | float
    spec: Spec | None = None


def of_data(network: lc.Network, args: argparse.Namespace) -> list[Question]:
    data = load_dataset(args.data)
    right = [i for i in range(len(data.X)) if data.y is None or int(network(data.X[i]).argmax()) == data.y[i]]
    return [Question(data.X[i], 0.0, 1.0) for i in right[args.first : args.first + args.inputs]]


def of_family(folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, lc.Network, list[Question]]]:
    """The networks of a folder, each with its properties: asked as they are, and at the middle of their first box."""
    rows = [row for table in sorted(folder.glob("expected*.csv")) for row in csv.DictReader(table.open())]
    for name in sorted({row["network"] for row in rows if args.only in row["network"]}):
        properties = sorted({row["property"] for row in rows if row["network"] == name})
        network = lc.load(folder / "onnx" / name)
        questions = []
        for each in properties[args.first : args.first + args.inputs]:
            spec = lc.load_spec(folder / "vnnlib" / each)
            low = np.array([float(side.low if side.low is not None else 0) for side in spec.cases[0].box])
            high = np.array([float(side.high if side.high is not None else 0) for side in spec.cases[0].box])
            questions.append(Question((low + high) / 2, -math.inf, math.inf, spec))
        yield f"{folder.name}/{name.removesuffix('.onnx')}", network, questions


def of_sizes(text: str, args: argparse.Namespace) -> tuple[lc.Network, list[Question]]:
    """A random dense network, as at the start of a training."""
    sizes, rng = [int(part) for part in text.split("-")], np.random.default_rng(1)
    pairs = list(pairwise(sizes))
    W = [rng.normal(size=(b, a)) * math.sqrt(2 / a) for a, b in pairs]
    network = lc.Network.from_arrays(W, [rng.normal(size=b) * 0.1 for _, b in pairs])
    return network, [Question(rng.random(sizes[0]), 0.0, 1.0) for _ in range(args.inputs)]


@contextmanager
def tracing(limit: float, on: bool) -> Iterator[None]:
    """Say where the process is, as long as it computes beyond the limit."""
    if on:
        signal.setitimer(signal.ITIMER_PROF, limit + TRACE_AFTER, TRACE_EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def timed(ask: Callable[[], object], limit: float, args: argparse.Namespace) -> tuple[float, object]:
    with nullcontext() if args.wall else clock.of_processor():
        start = clock.now()
        with tracing(limit, args.trace):
            answer = ask()
        return clock.now() - start, answer


def ask(
    network: lc.Network, question: Question, how: str, args: argparse.Namespace
) -> Iterator[tuple[str, float, float, object]]:
    """One question at every limit: norm, limit, seconds, answer."""
    domain = None if np.any(np.isinf(question.low)) else (question.low, question.high)
    for norm in args.norms if how != "property" else ["linf"]:
        for limit in args.limits:
            common = {"time_limit": limit, "method": args.method, "threads": args.threads}
            if how == "property":
                call = partial(lc.verify_spec, network, question.spec, **common)
            elif how == "measure":
                call = partial(lc.measure, network, question.x, norm, domain=domain, **common)
            else:
                r = lc.measure(network, question.x, norm, domain=domain, time_limit=1.0, threads=1)
                radius = 0.5 * (r.lower + r.upper) if math.isfinite(r.upper) else max(r.lower, 0.01)
                call = partial(lc.verify, network, question.x, radius, norm, domain=domain, **common)
            yield (norm, limit, *timed(call, limit, args))


def report(name: str, network: lc.Network, questions: list[Question], args: argparse.Namespace) -> int:
    late = 0
    for how in args.asks:
        rows: dict[tuple[str, float], list[float]] = {}
        for question in questions:
            if how == "property" and question.spec is None:
                continue
            for norm, limit, seconds, answer in ask(network, question, how, args):
                rows.setdefault((norm, limit), []).append(seconds)
                if args.verbose or seconds > limit + max(LATE, PART * limit):
                    print(
                        f"  {name} {how} {args.method or 'auto'} {norm} {limit:g} s: {seconds:.2f} s, {answer}",
                        flush=True,
                    )
        for (norm, limit), seconds in rows.items():
            over = sum(each > limit + max(LATE, PART * limit) for each in seconds)
            late += over
            asked = f"{name:36s} {how:9s} {args.method or 'auto':22s} {norm:5s} {limit:5g}"
            print(f"{asked} {len(seconds):4d} {max(seconds):8.2f} {over:4d}", flush=True)
    return late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="*", type=Path, default=[])
    parser.add_argument("--data", type=Path, help="inputs with labels: anything that `layercert batch --data` reads")
    parser.add_argument(
        "--families", nargs="*", type=Path, default=[], help="folders with onnx/, vnnlib/, expected*.csv"
    )
    parser.add_argument("--only", default="", help="of the families' networks those with this in their name")
    parser.add_argument("--dense", nargs="*", default=[], help="sizes of random dense networks")
    parser.add_argument(
        "--asks", nargs="*", choices=["measure", "verify", "property"], default=["measure", "verify", "property"]
    )
    parser.add_argument("--methods", nargs="*", default=[None], help="by default the one that the tool chooses")
    parser.add_argument("--norms", nargs="*", default=["linf"])
    parser.add_argument("--limits", nargs="*", type=float, default=[0.5, 2.0, 10.0])
    parser.add_argument("--inputs", type=int, default=3, help="inputs (or properties) per network")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wall", action="store_true", help="the wall's seconds instead of the processor's")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.nets and args.data is None:
        parser.error("--nets needs --data, the inputs")
    if args.threads > 1 and not args.wall:
        parser.error("several threads compute at a time: ask for the wall's seconds with --wall")
    np.seterr(all="ignore")
    if args.trace:
        faulthandler.register(signal.SIGPROF, all_threads=False)
    print(f"{'network':36s} {'asked':9s} {'method':22s} norm  limit    n  longest late", flush=True)
    late = 0
    for method in args.methods:
        args.method = method
        for path in args.nets:
            network = lc.load(path)
            late += report(path.stem, network, of_data(network, args), args)
        for folder in args.families:
            for name, network, questions in of_family(folder, args):
                late += report(name, network, questions, args)
        for text in args.dense:
            network, questions = of_sizes(text, args)
            late += report(text, network, questions, args)
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()
