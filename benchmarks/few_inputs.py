"""ACAS Xu, properties 1-4 on the 45 networks: answers, seconds and certificates of the methods for few inputs.

    python benchmarks/few_inputs.py FOLDER                                  all 180, input splitting
    python benchmarks/few_inputs.py FOLDER --methods adaptive layercert-both input-split --some --time-limit 20
    python benchmarks/few_inputs.py FOLDER --certify 20 --out rows.csv

FOLDER holds the networks (ACASXU_run2a_*.onnx, in it or below it) and, if answers are to be compared, expected.csv with
the columns network, property, answer. Prints a line per instance and a summary per method.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import math
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import layercert as lc
from layercert.certificate.checker import check
from layercert.certify import prove
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.result import Verdict
from layercert.run import How, decide

#: The input boxes; properties 1 and 2 share theirs.
FAR = ((0.6, 0.679857769), (-0.5, 0.5), (-0.5, 0.5), (0.45, 0.5), (-0.5, -0.45))
AHEAD = ((-0.303531156, -0.298552812), (-0.009549297, 0.009549297))
BOXES = {
    1: FAR,
    2: FAR,
    3: (*AHEAD, (0.493380324, 0.5), (0.3, 0.5), (0.3, 0.5)),
    4: (*AHEAD, (0.0, 0.0), (0.318181818, 0.5), (0.083333333, 0.166666667)),
}
#: The first output: unsafe if >= this (1), if greatest of all (2), if least of all (3, 4).
COC = 3.991125645861615
#: The first eight are hard, each in its way; two more are quick, two are sat.
SOME = [("1_1", 1), ("2_9", 1), ("4_6", 1), ("5_5", 1), ("4_2", 2), ("1_8", 2), ("3_3", 2), ("1_1", 3)]
SOME += [("3_5", 4), ("1_1", 4), ("2_2", 2), ("1_8", 3)]


@dataclass
class Row:
    network: str
    property: int
    method: str
    answer: str
    expected: str
    seconds: float
    cpu: float
    programs: int
    leaves: int = 0
    prove_cpu: float = 0.0
    check_cpu: float = 0.0


def problem(net: lc.Network, number: int) -> Problem:
    low, high = (np.array(ends) for ends in zip(*BOXES[number], strict=True))
    if number == 1:
        C, d = np.array([[-1.0, 0, 0, 0, 0]]), np.array([-COC])
    else:
        rest = np.eye(5)[1:]
        C, d = rest - np.eye(5)[0], np.zeros(4)
        C = C if number == 2 else -C
    whole = Problem(net, 0.5 * low + 0.5 * high, (Clause(C, d),), Norm(math.inf), domain=(low, high))
    return whole.within(whole.reach)


def answer(p: Problem, method: str, limit: float) -> tuple[str, float, float, int]:
    start, cpu = time.perf_counter(), time.process_time()
    result = decide(p, How(method, limit))
    found = {Verdict.NOT_ROBUST: "sat", Verdict.ROBUST: "unsat"}.get(Verdict(result.status), "unknown")
    return found, time.perf_counter() - start, time.process_time() - cpu, result.programs


def certify(row: Row, p: Problem) -> None:
    start = time.process_time()
    certificate = prove(p, p.radius, None, math.inf)
    middle = time.process_time()
    report = check(p.network, certificate)
    row.leaves, row.prove_cpu, row.check_cpu = certificate.leaves, middle - start, time.process_time() - middle
    if not report.ok:
        raise SystemExit(f"{row.network} {row.property}: the certificate is not accepted: {report.reason}")


def summary(method: str, rows: list[Row]) -> str:
    wrong = [r for r in rows if r.answer != "unknown" and r.expected and r.answer != r.expected]
    solved = [r for r in rows if r.answer != "unknown"]
    proofs = [r for r in rows if r.leaves]
    median = statistics.median(r.seconds for r in rows)
    text = (
        f"{method}: {len(solved)} of {len(rows)} solved, {len(wrong)} wrong, median {median:.3f} s, "
        f"worst {max(r.seconds for r in rows):.1f} s, CPU {sum(r.cpu for r in rows):.1f} s"
    )
    if proofs:
        found, made, checked = (sum(getattr(r, f) for r in proofs) for f in ("cpu", "prove_cpu", "check_cpu"))
        text += (
            f"; {len(proofs)} certificates accepted, CPU s to find {found:.1f}, make {made:.1f}, check {checked:.1f}"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--methods", nargs="+", default=["input-split"])
    parser.add_argument("--some", action="store_true", help="twelve instances instead of 180")
    parser.add_argument("--time-limit", type=float, default=116.0)
    parser.add_argument("--certify", type=int, default=0, metavar="N", help="certify every n-th unsat so that N are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    files = {path.stem[13:16]: path for path in args.folder.rglob("ACASXU_run2a_*.onnx")}
    if len(files) != 45:
        raise SystemExit(f"expected the 45 networks ACASXU_run2a_*.onnx below '{args.folder}', found {len(files)}")
    known = {}
    if (args.folder / "expected.csv").is_file():
        with (args.folder / "expected.csv").open() as file:
            known = {(r["network"][13:16], int(r["property"][5])): r["answer"] for r in csv.DictReader(file)}
    nets = {name: lc.load(path) for name, path in sorted(files.items())}
    for method in args.methods:  # compile first
        answer(problem(nets["1_1"], 4), method, 60.0)
    certify(Row("", 0, "", "", "", 0, 0, 0), problem(nets["1_1"], 4))
    instances = SOME if args.some else [(name, number) for number in BOXES for name in nets]
    every = 0
    if args.certify:
        every = max(1, sum(known.get(i, "unsat") == "unsat" for i in instances) // args.certify)
    rows: list[Row] = []
    for method in args.methods:
        mine, unsat = [], 0
        for name, number in instances:
            p = problem(nets[name], number)
            found, seconds, cpu, programs = answer(p, method, args.time_limit)
            row = Row(name, number, method, found, known.get((name, number), ""), seconds, cpu, programs)
            if found == "unsat" and every:
                unsat += 1
                if unsat % every == 0:
                    certify(row, p)
            print(f"{method} {name} property {number}: {found}, {seconds:.2f} s, CPU {cpu:.2f} s", flush=True)
            mine.append(row)
        print(summary(method, mine), flush=True)
        rows += mine
    if args.out:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])))
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    main()
