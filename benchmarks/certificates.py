"""Certificates: CPU seconds to find an answer, to make its certificate, and to check that, on the same inputs.

    python benchmarks/certificates.py --nets mnist17_plain_3x50 --inputs 3 --norms linf l2 --exact

Prints a row for each network, norm and input: seconds (one process, one thread, warm), the ratio of checking to
finding, leaves and the size of the file; then the geometric means of the ratios. Every certificate is checked, with
--exact in ball arithmetic too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

import layercert as lc
from layercert import shipped

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    find: float
    make: float
    check: float
    exact: float | None
    leaves: int
    size: int


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def run(net: lc.Network, x: np.ndarray, norm: str, args: argparse.Namespace) -> Row | str:
    """The certificate is made by a run of its own after the search: its time is the difference."""
    domain = tuple(args.domain) if args.domain else None

    def ask(certificate: bool) -> lc.Result:
        return lc.measure(net, x, norm, domain=domain, time_limit=args.time_limit, certificate=certificate)

    _, find = timed(lambda: ask(False))
    result, both = timed(lambda: ask(True))
    proof = result.certificate
    if proof is None:
        return result.note
    report, check = timed(lambda: lc.check(net, proof))
    if not report.ok:
        return f"REJECTED: {report}"
    exact = None
    if args.exact:
        report, exact = timed(lambda: lc.check(net, proof, exact=True))
        if not report.ok:
            return f"REJECTED in ball arithmetic: {report}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.npz"
        proof.save(path)
        size = path.stat().st_size
    return Row(find, max(both - find, 0.0), check, exact, report.leaves, size)


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nets", nargs="*", default=["mnist17_plain_2x20", "mnist17_plain_2x50", "mnist17_plain_3x50"])
    parser.add_argument("--norms", nargs="*", default=["linf", "l2"])
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--domain", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument("--no-domain", dest="domain", action="store_const", const=None)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--exact", action="store_true", help="check in ball arithmetic too")
    args = parser.parse_args()
    X = np.load(shipped.path("digits"))["X"].astype(float)
    rows: list[Row] = []
    print("| net | norm | input | find | make | check | exact check | check / find | leaves | KB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in args.nets:
        net = lc.load(shipped.path(name))
        for norm in args.norms:
            run(net, X[0], norm, args)  # compile and warm up
            for i in range(args.inputs):
                row = run(net, X[i], norm, args)
                if isinstance(row, str):
                    print(f"| {name} | {norm} | {i} | {row} |", flush=True)
                    continue
                rows.append(row)
                exact = "" if row.exact is None else f"{row.exact:.2f}"
                print(
                    f"| {name} | {norm} | {i} | {row.find:.3f} | {row.make:.3f} | {row.check:.3f} | {exact} "
                    f"| {row.check / row.find:.2f} | {row.leaves} | {row.size / 1000:.1f} |",
                    flush=True,
                )
    if rows:
        print(
            f"\n{len(rows)} certificates, all accepted; geometric means: "
            f"make / find {mean([max(r.make, 1e-6) / r.find for r in rows]):.2f}, "
            f"check / find {mean([r.check / r.find for r in rows]):.2f}"
        )


if __name__ == "__main__":
    main()
