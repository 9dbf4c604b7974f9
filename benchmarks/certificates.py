"""Certificates: CPU seconds to find an answer, to make its certificate, and to check that, on the same inputs.

    python benchmarks/certificates.py --nets mnist17_plain_3x50 model.onnx --inputs 0 1 2 --norms linf l2 --exact
    python benchmarks/certificates.py --nets --properties model.onnx=property.vnnlib

Prints a row for each network, norm and input, or for each property: seconds (one process, one thread, warm, the best of
--repeat), the ratios of making and checking to finding, leaves and the size of the file; then the geometric means of
the ratios, and the largest of those whose answer took more than 50 ms. Every certificate is checked, with --exact in
ball arithmetic too. `make` is what `certificate=True` adds to the search.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import layercert as lc
from layercert import shipped
from layercert.system import clock

T = TypeVar("T")
#: Answers that took longer than this are to be checked faster than they were found.
LONG = 0.05


@dataclass(frozen=True)
class Row:
    find: float
    make: float
    check: float
    exact: float | None
    leaves: int
    size: int


def timed(work: Callable[[], T], repeat: int) -> tuple[T, float]:
    """What it returns, and the least CPU seconds."""
    best = math.inf
    for _ in range(repeat):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return result, best


def size_of(proofs: Sequence[Any]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.npz" for i in range(len(proofs))]
        for proof, path in zip(proofs, paths, strict=True):
            proof.save(path)
        return sum(path.stat().st_size for path in paths)


def input_row(net: lc.Network, x: np.ndarray, norm: str, args: argparse.Namespace) -> Row | str:
    domain = tuple(args.domain) if args.domain else None

    def ask(certificate: bool) -> lc.Result:
        return lc.measure(
            net, x, norm, domain=domain, time_limit=args.time_limit, gap=args.gap, certificate=certificate
        )

    _, find = timed(lambda: ask(False), args.repeat)
    result, both = timed(lambda: ask(True), args.repeat)
    proof = result.certificate
    if proof is None:
        return f"{result.status}, {result.note}"
    report, check = timed(lambda: lc.check(net, proof), args.repeat)
    if not report.ok:
        return f"REJECTED: {report}"
    exact = None
    if args.exact:
        report, exact = timed(lambda: lc.check(net, proof, exact=True), 1)
        if not report.ok:
            return f"REJECTED in ball arithmetic: {report}"
    return Row(find, max(both - find, 0.0), check, exact, report.leaves, size_of([proof]))


def property_row(net: lc.Network, spec: lc.Spec, args: argparse.Namespace) -> Row | str:
    def ask(certificate: bool) -> lc.SpecResult:
        return lc.verify_spec(net, spec, time_limit=args.time_limit, certificate=certificate)

    _, find = timed(lambda: ask(False), args.repeat)
    result, both = timed(lambda: ask(True), args.repeat)
    if not result.certificates:
        return f"{result.answer}, {result.note}"
    report, check = timed(lambda: lc.check_spec(net, spec, result.certificates), args.repeat)
    if not report.ok:
        return f"REJECTED: {report}"
    return Row(find, max(both - find, 0.0), check, None, report.leaves, size_of(result.certificates))


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def show(name: str, kind: str, which: str, row: Row | str, rows: list[Row]) -> None:
    if isinstance(row, str):
        print(f"| {name} | {kind} | {which} | {row} |", flush=True)
        return
    rows.append(row)
    exact = "" if row.exact is None else f"{row.exact:.2f}"
    print(
        f"| {name} | {kind} | {which} | {row.find:.3f} | {row.make:.3f} | {row.check:.4f} | {exact} "
        f"| {row.make / row.find:.2f} | {row.check / row.find:.2f} | {row.leaves} | {row.size / 1000:.1f} |",
        flush=True,
    )


def loaded(name: str) -> lc.Network:
    return lc.load(name if Path(name).exists() else shipped.path(name))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    shipped_nets = ["mnist17_plain_2x20", "mnist17_plain_2x50", "mnist17_plain_3x20", "mnist17_plain_3x50"]
    parser.add_argument("--nets", nargs="*", default=shipped_nets, help="names of shipped networks, or files")
    parser.add_argument("--norms", nargs="*", default=["linf", "l2"])
    parser.add_argument("--inputs", type=int, nargs="*", default=[0, 1, 2], help="of the shipped digits")
    parser.add_argument("--domain", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument("--no-domain", dest="domain", action="store_const", const=None)
    parser.add_argument("--gap", type=float, default=1e-6, help="as far as the bounds may be apart (relative)")
    parser.add_argument("--properties", nargs="*", default=[], metavar="MODEL=SPEC")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--exact", action="store_true", help="check in ball arithmetic too")
    return parser.parse_args()


def main() -> None:
    args = parse()
    rows: list[Row] = []
    print("| net | question | input | find | make | check | exact check | make / find | check / find | leaves | KB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in args.nets:
        net = loaded(name)
        X = np.load(shipped.path("digits10" if net.classes == 10 else "digits"))["X"].astype(float)
        for norm in args.norms:
            warm = argparse.Namespace(**{**vars(args), "time_limit": 5.0, "repeat": 1, "gap": 0.05, "exact": False})
            input_row(net, X[args.inputs[0]], norm, warm)
            for i in args.inputs:
                show(Path(name).stem, norm, str(i), input_row(net, X[i], norm, args), rows)
    for pair in args.properties:
        model, spec = pair.split("=")
        net, asked = loaded(model), lc.load_spec(spec)
        lc.verify_spec(net, asked, time_limit=5.0)
        show(Path(model).stem, Path(spec).stem, "", property_row(net, asked, args), rows)
    if rows:
        long = [row for row in rows if row.find > LONG]
        print(
            f"\n{len(rows)} certificates, all accepted; geometric means: "
            f"make / find {mean([max(r.make / r.find, 0.01) for r in rows]):.2f}, "
            f"check / find {mean([r.check / r.find for r in rows]):.2f}; {len(long)} answers took more than {LONG} s: "
            f"largest make / find {max((r.make / r.find for r in long), default=0.0):.2f}, "
            f"check / find {max((r.check / r.find for r in long), default=0.0):.2f}"
        )


if __name__ == "__main__":
    with clock.of_processor(True):  # limits too: a busy machine would stop an answer before its end
        main()
