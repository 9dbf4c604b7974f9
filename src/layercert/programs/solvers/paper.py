"""The paper's solvers through CVXPY: ECOS, backed up by OSQP, backed up by SCS, in the paper's settings.

Their tolerances leave gaps of 1e-4 and more, so the paper's stack counts a wider gap as solved. CVXPY hands out no ray
for an infeasible program; a second program (the least violation of the rows) delivers it.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.errors import MissingPackageError
from layercert.norms import Box
from layercert.programs.program import Candidates, Programs, Solver
from layercert.programs.solvers.scaling import at_sight, beyond
from layercert.system import clock


@dataclass(frozen=True)
class PaperSolver:
    """One CVXPY solver with fixed settings."""

    name: str  # of the package, and of the solver in CVXPY
    settings: Mapping[str, Any]
    quadratic: bool = False  # a QP solver: squares the 2-norm and knows no other cone

    def supports(self, programs: Programs) -> bool:
        if not self.quadratic:
            return True
        p = programs.norm.p
        return p in (1.0, math.inf) or (p == 2.0 and programs.tilt is None)

    def solve(self, programs: Programs) -> Candidates:
        import cvxpy as cp

        answers = Candidates.none(programs)
        for i in at_sight(programs, answers):
            clock.check()
            e = programs.equalities[i]
            with warnings.catch_warnings():  # "may be inaccurate": `check` finds out by itself
                warnings.simplefilter("ignore")
                self._solve_one(cp, programs, int(e), answers.steps[i], answers.multipliers[i])
        return answers

    def _solve_one(self, cp: ModuleType, programs: Programs, e: int, step: Vector, multipliers: Vector) -> None:
        """Fill in the point and the multipliers of one program; leave NaN where the solver has none."""
        A, r, p = programs.rows.A, programs.rows.r, programs.norm.p
        w = cp.Variable(A.shape[1])
        others = np.arange(len(r)) != e
        box = [] if programs.box is None else _ends(programs.box, w)
        below = [A[others] @ w <= r[others]] if others.any() else []
        face = [A[e] @ w == r[e]] if e >= 0 else []
        if self.quadratic and p == 2.0:
            length = cp.sum_squares(w)  # the same minimiser, and the same multipliers up to a factor
        else:
            length = cp.norm(w, "inf") if math.isinf(p) else cp.norm(w, p)
        objective = length if programs.tilt is None else length + programs.tilt @ w
        status = self._run(cp, cp.Problem(cp.Minimize(objective), below + face + box))
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            step[:] = w.value
            multipliers[others] = below[0].dual_value if below else []
            multipliers[~others] = face[0].dual_value if face else []
        elif status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            v = cp.Variable(nonneg=True)
            below = [A[others] @ w <= r[others] + v] if others.any() else []
            face = [A[e] @ w <= r[e] + v, A[e] @ w >= r[e] - v] if e >= 0 else []
            least = cp.Problem(cp.Minimize(v), below + face + box)
            if self._run(cp, least) in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
                multipliers[others] = below[0].dual_value if below else []
                multipliers[~others] = face[0].dual_value - face[1].dual_value if face else []
                multipliers[:] = beyond(programs, multipliers)

    def _run(self, cp: ModuleType, problem: Any) -> str:
        try:
            problem.solve(solver=self.name.upper(), **self.settings)
        except cp.error.SolverError:
            return "failed"
        return str(problem.status)


def _ends(box: Box, w: Any) -> list[Any]:
    """The finite ends of the box as constraints."""
    low, high = np.isfinite(box.lo), np.isfinite(box.hi)
    return ([w[low] >= box.lo[low]] if low.any() else []) + ([w[high] <= box.hi[high]] if high.any() else [])


#: Appendix of the paper; *_inacc are ECOS's tolerances for giving up with an inaccurate answer.
ECOS = PaperSolver(
    "ecos",
    {
        "abstol": 1e-5,
        "reltol": 1e-4,
        "feastol": 1e-5,
        "abstol_inacc": 5e-3,
        "reltol_inacc": 5e-2,
        "feastol_inacc": 5e-3,
    },
)
OSQP = PaperSolver("osqp", {"eps_abs": 1e-3, "eps_rel": 1e-3}, quadratic=True)
SCS = PaperSolver("scs", {})


def paper_solvers() -> list[Solver]:
    """The three in the paper's order; MissingPackageError when a package behind them is absent."""
    for package in ("cvxpy", "ecos", "osqp", "scs"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(package, "the paper's solver stack", "paper")
    return [ECOS, OSQP, SCS]
