"""Distance programs: every solver on the same faces, recorded from real LayerCert searches, in one run.

    python benchmarks/programs.py            all settings, about 20 minutes
    python benchmarks/programs.py --quick    one size, a minute or two

Times are CPU time of one process (`time.process_time`): the kernels answer all faces of a region in one call, so a
program's time is its family's time divided by the faces. Searches for l_2 without a box state their programs in the row
space of the first layer: CVXPY gets them in all inputs, as the paper states them, and the kernel's time includes the
way of its points back there. "checked" includes the proof and the verification of every answer.
A failure is an answer that does not pass `check` (for the paper's solvers with the paper's wide gap); "gap" is
the worst relative distance between a verified point and what its multipliers prove of the stored rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from layercert import shipped
from layercert.attack.attack import attack
from layercert.geometry.rowspace import RowSpace
from layercert.io import load
from layercert.methods import METHODS
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.programs.chain import SolverChain
from layercert.programs.kernels import kernels
from layercert.programs.program import GAP, Candidates, Programs, Solutions, Solver, _nominal, check
from layercert.programs.solvers.gram import Gram
from layercert.programs.solvers.highs import Highs
from layercert.programs.solvers.paper import ECOS, PaperSolver
from layercert.programs.solvers.smooth import Smooth
from layercert.programs.stacks import PAPER_GAP, make_chain
from layercert.search.task import Task

#: Inputs and networks: three sizes each, named by what decides the number of rows.
SIZES = {
    784: ["mnist17_l1_2x20", "mnist17_plain_2x20", "mnist17_plain_3x50"],
    5: ["2x10", "2x20", "3x20"],
}


class Recorder(SolverChain):
    """A chain that keeps the families it was asked for."""

    def __init__(self, solvers: tuple[Solver, ...]) -> None:
        super().__init__(solvers)
        self.families: list[Programs] = []

    def solve(self, programs: Programs) -> Solutions:
        self.families.append(programs)
        return super().solve(programs)


def problems(n: int, net: str, norm: Norm, boxed: bool) -> Iterator[Problem]:
    """One problem after the other, always the same ones."""
    domain = (0.0, 1.0) if boxed else None
    if n == 784:
        network = load(shipped.path(net))
        with np.load(shipped.path("digits")) as digits:
            for x, y in zip(digits["X"].astype(float), digits["y"], strict=True):
                label = int(y == 7) if network.classes == 2 else int(y)
                if int(network(x).argmax()) == label:
                    yield robustness(network, x, norm, domain=domain)
        return
    layers, width = map(int, net.split("x"))
    for seed in itertools.count():
        rng = np.random.default_rng(seed)
        sizes = [n, *[width] * layers, 2]
        weights = [rng.normal(size=(b, a)) / math.sqrt(a) for a, b in itertools.pairwise(sizes)]
        network = Network.from_arrays(weights, [0.3 * rng.normal(size=b) for b in sizes[1:]])
        yield robustness(network, rng.random(n), norm, domain=domain)


@dataclass(frozen=True)
class Family:
    """Faces as the search asked for them, and the row space that their coordinates belong to."""

    programs: Programs
    space: RowSpace | None

    def __len__(self) -> int:
        return len(self.programs)

    def take(self, index: np.ndarray) -> Family:
        return replace(self, programs=self.programs.take(index))

    def of_the_paper(self) -> Family:
        """The same faces with all inputs as variables."""
        if self.space is None:
            return self
        rows = self.programs.rows
        return Family(replace(self.programs, rows=replace(rows, A=self.space.lift(rows.A))), None)

    def answered_by(self, solver: Solver) -> Candidates:
        candidates = solver.solve(self.programs)
        if self.space is not None:
            self.space.lift(candidates.steps[np.isfinite(candidates.steps[:, 0])])
        return candidates


def record(n: int, net: str, norm: Norm, boxed: bool, faces: int) -> list[Family]:
    """Families that LayerCert-Basic asks for, U from the attack, at most a quarter of them from one input."""
    families: list[Family] = []
    count = 0
    for problem in itertools.islice(problems(n, net, norm, boxed), 60):
        found = attack(problem)
        if found is None or found[1] == 0.0:
            continue
        chain = Recorder(make_chain("default", norm).solvers)
        limit = min(faces - count, max(faces // 4, 1))
        task = Task(problem, chain, limit=found[1])
        for _ in METHODS["layercert-basic"].search(task):
            if chain.programs >= limit:
                break
        families += [Family(programs, task.cells.space) for programs in chain.families]
        count += chain.programs
        if count >= faces:
            break
    return families


@dataclass
class Tally:
    """One solver on one setting."""

    solver: str
    seconds: list[float] = field(default_factory=list)  # a program each
    checked: list[float] = field(default_factory=list)
    failures: int = 0
    gap: float = 0.0

    def row(self, reference: float) -> str:
        ms, both = 1e3 * np.array(self.seconds), 1e3 * np.array(self.checked)
        times = f"{reference / np.median(ms):,.0f}x" if reference else ""
        return (
            f"| {self.solver} | {len(ms)} | {np.median(ms):.4f} | {np.percentile(ms, 95):.4f} | {np.median(both):.4f} "
            f"| {self.failures} | {self.gap:.0e} | {times} |"
        )


def measure(solver: Solver, families: list[Family], gap: float, one_by_one: bool) -> Tally:
    """Time a solver; a library gets its faces as a search would hand them over, too, in one call."""
    tally = Tally(solver.name)
    families[0].take(np.arange(1)).answered_by(solver)  # compiled and imported
    for family in families:
        parts = [family.take(np.array([i])) for i in range(len(family))] if one_by_one else [family]
        for asked in parts:
            part = asked.programs
            start = time.process_time()
            candidates = asked.answered_by(solver)
            middle = time.process_time()
            answers = check(part, candidates, gap)
            end = time.process_time()
            tally.seconds += [(middle - start) / len(part)] * len(part)
            tally.checked += [(end - start) / len(part)] * len(part)
            tally.failures += int((~answers.decided).sum())
            # beyond the cutoff a proof is enough, and below 1e-9 of it a distance is rounding
            there = (answers.lower < part.cutoff) & (answers.value > 1e-9 * part.cutoff) & np.isfinite(answers.value)
            if there.any():
                merit = np.maximum(_nominal(part, candidates.multipliers), answers.lower)
                relative = (answers.value[there] - merit[there]) / answers.value[there]
                tally.gap = max(tally.gap, float(relative.max()))
    return tally


def some(families: list[Family], faces: int) -> list[Family]:
    """About that many faces, spread over all families."""
    step = max(1, sum(map(len, families)) // faces)
    offsets = itertools.accumulate((len(f) for f in families), initial=0)
    picked = [f.take(np.arange(-start % step, len(f), step)) for f, start in zip(families, offsets, strict=False)]
    return [f for f in picked if len(f)]


def rivals(norm: Norm) -> list[Solver]:
    """Libraries that know the norm."""
    if norm.p in (1.0, math.inf):
        return [Highs()]
    return [Gram(), Smooth()] if norm.p == 2.0 else [Smooth()]


def conic(norm: Norm) -> list[Solver]:
    """CVXPY with ECOS as in the paper, and Clarabel where power cones are needed."""
    if importlib.util.find_spec("cvxpy") is None:
        return []
    clarabel = PaperSolver("clarabel", {})
    return [ECOS] if norm.p in (1.0, 2.0, math.inf) else [ECOS, clarabel]


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the middle size only, fewer faces")
    parser.add_argument("--faces", type=int, help="faces a setting for the kernels")
    parser.add_argument("--slow", type=int, help="faces a setting for CVXPY, a subset of the same faces")
    parser.add_argument("--p", type=float, nargs="+", default=[math.inf, 2.0, 1.0, 3.0])
    args = parser.parse_args()
    faces = args.faces or (100 if args.quick else 500)
    slow = args.slow or (5 if args.quick else 15)
    print(machine())
    total = lost = 0
    worst = 0.0
    for p, n, boxed in itertools.product(args.p, SIZES, (False, True)):
        for net in SIZES[n][1:2] if args.quick else SIZES[n]:
            norm = Norm(p)
            families = record(n, net, norm, boxed, faces)
            rows = np.repeat([len(f.programs.rows) for f in families], [len(f) for f in families])
            domain = "[0,1]" if boxed else "none"
            print(f"\n**{norm.name}, domain {domain}, {net}, n = {n}, {np.median(rows):.0f} rows (median)**\n")
            print("| solver | faces | ms median | ms p95 | ms checked | failures | gap | vs CVXPY |")
            print("|---|---|---|---|---|---|---|---|")
            few = [family.of_the_paper() for family in some(families, slow)]
            tallies = [measure(s, few, PAPER_GAP, one_by_one=True) for s in conic(norm)]
            reference = 1e3 * float(np.median(tallies[-1].seconds)) if tallies else 0.0
            for tally in tallies:
                print(tally.row(reference))
            for solver in rivals(norm):
                print(measure(solver, some(families, 8 * slow), GAP, one_by_one=False).row(reference), flush=True)
            kernel = next(k for k in kernels(norm) if k.supports(families[0].programs))
            mine = measure(kernel, families, GAP, one_by_one=False)
            print(mine.row(reference), flush=True)
            total, lost, worst = total + len(mine.seconds), lost + mine.failures, max(worst, mine.gap)
    print(f"\nkernels: {total} faces, {lost} failures, worst relative gap {worst:.1e}")


if __name__ == "__main__":
    main()
