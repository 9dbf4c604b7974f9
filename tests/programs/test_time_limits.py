"""Distance programs and the time limit: solvers are told what is left, and what they have at a limit proves nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from helpers.program_cases import SOLVERS, UnderTest, polyhedron
from layercert.norms import Box, Norm
from layercert.programs.chain import SolverChain
from layercert.programs.kernels import KernelSolver, kernels
from layercert.programs.program import Candidates, Programs, check, single
from layercert.programs.solvers.highs import Highs
from layercert.system import clock


def family(p: float) -> Programs:
    """Many halfspaces, so that the simplex method has something to do: a program without any iteration has no limit."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(60, 20))
    return single(polyhedron(A, -rng.uniform(0.5, 1.0, 60) * (np.arange(60) < 12) + 0.5, Norm(p)), Norm(p), None)


def large(p: float, boxed: bool) -> Programs:
    """Rows of a region far from x, more entries than a small program has; the region, and some of its faces."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(120, 100))
    point = rng.uniform(-1.0, 1.0, 100)
    rows = polyhedron(A, A @ point + rng.uniform(0.0, 0.1, 120), Norm(p))
    box = Box(np.full(100, -1.2), np.full(100, 1.2)) if boxed else None
    return Programs(rows, np.array([-1, 0, 1, 2]), Norm(p), box)


class Watched:
    """HiGHS, with a record of the limits it is given; `none` leaves it no time at all."""

    def __init__(self, highs: Any, given: list[float], none: bool) -> None:
        self._highs, self._given, self._none = highs, given, none

    def __getattr__(self, name: str) -> Any:
        return getattr(self._highs, name)

    def setOptionValue(self, name: str, value: Any) -> None:
        if name == "time_limit":
            self._given.append(value - self._highs.getRunTime())
            value = 0.0 if self._none else value
        self._highs.setOptionValue(name, value)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[float]:
    """The limits that HiGHS is given; with the parameter True it has no time whatever it is given."""
    import highspy

    given: list[float] = []
    made, none = highspy.Highs, getattr(request, "param", False)
    monkeypatch.setattr(highspy, "Highs", lambda: Watched(made(), given, none))
    return given


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_highs_gets_the_time_that_is_left(p: float, limits: list[float]) -> None:
    with clock.until(clock.now() + 1e6):
        Highs().solve(family(p))
    Highs().solve(family(p))
    in_time, endless = limits
    assert 0.9e6 < in_time <= 1e6 and math.isinf(endless)


@pytest.mark.parametrize("limits", [True], indirect=True)
@pytest.mark.parametrize("p", [1.0, math.inf])
def test_what_highs_has_at_a_limit_proves_nothing(p: float, limits: list[float]) -> None:
    chain = SolverChain([Highs()])
    answers = chain.solve(family(p))
    assert limits, "HiGHS was not asked"
    assert not answers.decided[0] and answers.lower[0] == 0.0 and math.isinf(answers.value[0])
    assert chain.undecided == 1
    with clock.until(clock.now() + 1e6):  # its own limit, not ours: the next solver may still be asked
        assert not SolverChain([Highs()]).solve(family(p)).decided[0]


@pytest.mark.parametrize("limits", [True], indirect=True)
@pytest.mark.parametrize("p", [1.0, math.inf])
def test_a_limit_that_is_ours_ends_the_search(p: float, limits: list[float]) -> None:
    with clock.until(None, looks=2.0), pytest.raises(clock.OutOfTime):  # one look before it is asked, one after
        Highs().solve(family(p))
    assert limits, "HiGHS was not asked"
    limits.clear()
    with clock.until(clock.now() - 1.0), pytest.raises(clock.OutOfTime):
        SolverChain([Highs()]).solve(family(p))
    assert not limits, "nobody is asked when it is too late"


@pytest.mark.parametrize(("p", "boxed"), [(1.0, True), (1.5, True), (2.0, False), (2.0, True), (math.inf, False)])
def test_a_kernel_stops_at_any_of_its_looks(p: float, boxed: bool) -> None:
    """Wherever it is stopped its multipliers are sound, and it says so by the clock."""
    programs = large(p, boxed)
    solver = next(each for each in kernels(programs.norm) if each.supports(programs))
    assert isinstance(solver, KernelSolver)
    whole = check(programs, solver.solve(programs))
    assert whole.decided.all()
    stopped = 0
    for looks in (1.0, 2.0, 3.0, 5.0, 9.0, 17.0, 65.0):
        entry = solver._entry  # the kernel itself: what it has when it gives up
        with clock.until(None, looks):
            claims = Candidates(*solver._run(entry, programs))
            stopped += clock.left() == 0.0
        found = check(programs, claims)
        assert (found.lower <= whole.value * (1 + 1e-9)).all() and (found.value >= whole.lower * (1 - 1e-9)).all()
    assert stopped >= 3, "the kernel does not look at the clock as it works"
    with clock.until(None, 2.0), pytest.raises(clock.OutOfTime):
        solver.solve(programs)


@pytest.mark.parametrize(
    "under", [each for each in SOLVERS if each.name != "kernel-tilted"], ids=lambda each: each.name
)
def test_no_solver_begins_when_it_is_too_late(under: UnderTest) -> None:
    programs = next(each for p in under.norms if under.solver.supports(each := large(p, boxed=False)))
    with clock.until(clock.now() - 1.0), pytest.raises(clock.OutOfTime):
        under.solver.solve(programs)


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_with_time_the_same_program_is_decided(p: float) -> None:
    answers = SolverChain([Highs()]).solve(family(p))
    assert answers.decided[0] and 0.0 < answers.lower[0] <= answers.value[0] < math.inf
