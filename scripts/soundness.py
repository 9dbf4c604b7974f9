"""The long soundness run: random small networks, generic and degenerate, every answer certified and checked.

    python scripts/soundness.py --nets 1000

For each network and each of l1, l2, linf the distance is measured, the certificate is checked in float and (on every
tenth) in ball arithmetic, the witness is examined, and two other methods must agree. Only where the nearest unsafe
point is a tie that no float64 point attains may the answer stay undecided. Anything that does not hold is printed with
its seed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from rich.progress import track

import layercert as lc
from helpers import tiny
from helpers.brute import brute_force, only_ties
from layercert.norms import Norm
from layercert.problem import Problem


def faults(problem: Problem, exact: bool) -> list[str]:
    """What is wrong with the answer to one problem."""
    ask = (problem.network, problem.x, problem.norm.p, problem.label, None, problem.domain)
    r = lc.measure(*ask, certificate=True)
    found = []
    if r.status == "undecided" and not unattained(problem, r.lower):
        found.append(f"undecided: {r.lower} .. {r.upper} {r.note}")
    if r.certificate is None:
        found.append(f"no certificate: {r.note}")
    else:
        report = lc.check(problem.network, r.certificate)
        if not report.ok:
            found.append(f"certificate rejected: {report.reason}")
        if r.status == "exact" and not report.lower >= r.upper * (1 - 5e-6) - 1e-12:
            found.append(f"the certificate proves {report.lower} of {r.upper} only")
        if exact and not lc.check(problem.network, r.certificate, exact=True).ok:
            found.append("certificate rejected in ball arithmetic")
    if r.witness is not None and not problem.is_unsafe(r.witness):
        found.append("the witness is safe")
    for method in ("layercert-both", "geocert"):
        other = lc.measure(*ask, method=method, time_limit=60)
        slack = 1e-6 * max(1.0, r.upper) if math.isfinite(r.upper) else 0.0
        if other.lower > r.upper + slack or r.lower > other.upper + slack:
            found.append(f"{method} disagrees: {other.lower} .. {other.upper} against {r.lower} .. {r.upper}")
    return found


def unattained(problem: Problem, lower: float) -> bool:
    """Is the nearest unsafe point a tie without an inside, which no float64 point attains, and the bound right?"""
    true, _ = brute_force(problem)
    return math.isclose(lower, true, rel_tol=1e-6) and only_ties(problem, true)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nets", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for seed in track(range(args.first, args.first + args.nets), "networks"):
        base = (tiny.generic if seed % 2 else tiny.degenerate)(seed)
        for p in (1.0, 2.0, math.inf):
            problem = replace(base, norm=Norm(p), radius=math.inf)
            wrong = faults(problem, exact=seed % 10 == 0)
            counts["answers"] += 1
            counts["faulty"] += bool(wrong)
            for text in wrong:
                print(f"seed {seed}, {problem.norm.name}: {text}")
    print(f"{counts['answers']} answers, {counts['faulty']} faulty, {time.monotonic() - start:.0f} s")
    return 1 if counts["faulty"] else 0


if __name__ == "__main__":
    sys.exit(main())
