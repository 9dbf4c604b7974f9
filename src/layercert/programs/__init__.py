"""Distance programs: the question, solver adapters, and the check that makes an answer a proof."""

from layercert.programs.program import Candidates, Programs, Solutions, Solver, check, single

__all__ = ["Candidates", "Programs", "Solutions", "Solver", "check", "single"]
