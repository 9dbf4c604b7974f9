"""One table: a name -> the solvers to try for a norm, in order, with the gap that counts as solved."""

from __future__ import annotations

from collections.abc import Callable

from layercert.errors import unknown
from layercert.norms import Norm
from layercert.programs.chain import SolverChain
from layercert.programs.kernels import kernels
from layercert.programs.program import Solver
from layercert.programs.solvers.dykstra import Dykstra
from layercert.programs.solvers.gram import Gram
from layercert.programs.solvers.highs import Highs
from layercert.programs.solvers.levels import Levels
from layercert.programs.solvers.paper import paper_solvers
from layercert.programs.solvers.smooth import Smooth

#: The paper's tolerances leave gaps of about 1e-4, OSQP's up to a percent (which then falls to SCS).
PAPER_GAP = 5e-3


def _kernels(norm: Norm) -> list[Solver]:
    """The compiled kernels of programs/kernels/ go here: they are tried before any library."""
    return [*kernels(norm), Levels()] if norm.p in (1.0, float("inf")) else kernels(norm)


def _library(norm: Norm) -> list[Solver]:
    """The best library for the norm, then what else knows it."""
    if norm.p == 2.0:
        # a box with many sides in reach is cheap in the dual and dear in an active set
        return [Gram(sides=100), Smooth(), Gram(), Dykstra()]
    return [Smooth()] if 1.0 < norm.p < float("inf") else [Highs()]


def _default(norm: Norm) -> SolverChain:
    return SolverChain([*_kernels(norm), *_library(norm)])


def _only_library(norm: Norm) -> SolverChain:
    return SolverChain(_library(norm))


def _paper(norm: Norm) -> SolverChain:
    """ECOS, then OSQP, then SCS, in the paper's settings and on the paper's programs: all inputs are variables."""
    return SolverChain(paper_solvers(), PAPER_GAP, rotates=False)


STACKS: dict[str, Callable[[Norm], SolverChain]] = {
    "default": _default,
    "library": _only_library,
    "paper": _paper,
}


def make_chain(stack: str, norm: Norm) -> SolverChain:
    """A fresh chain (its counters at zero) of a stack in the table."""
    if stack not in STACKS:
        raise unknown("solver stack", stack, STACKS)
    return STACKS[stack](norm)
