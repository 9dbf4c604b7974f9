"""Every distance solver against the same cases, and the check that makes their answers proofs."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.program_cases import CASES, FINE, NORMS, SOLVERS, UnderTest, box_around, build, polyhedron, reference
from layercert.errors import MissingPackageError, OptionError
from layercert.geometry import Polyhedron
from layercert.norms import Box, Norm
from layercert.programs.chain import SolverChain
from layercert.programs.chain import forgive as USERS_FORGIVE  # noqa: N812 - as imported, before the tests replace it
from layercert.programs.program import Candidates, Programs, Solutions, check, prove, single, verify
from layercert.programs.solvers import smooth
from layercert.programs.solvers.gram import Gram
from layercert.programs.solvers.highs import Highs
from layercert.programs.solvers.scaling import Scaled, box_ends
from layercert.programs.solvers.smooth import Smooth
from layercert.programs.stacks import STACKS, make_chain

#: Cases in which the reference itself is off by more than its tolerance: interior points near an edge of 1e-5.
REFERENCE_ERROR = {"nearly parallel": 1e-4}


def questions() -> list[Any]:
    """Every solver with every norm, box and case that it supports."""
    combinations = []
    for under in SOLVERS:
        for p in under.norms:
            for boxed in (False, True):
                for name in CASES:
                    if under.coarse and name in FINE:
                        continue
                    if under.solver.supports(build(name, p, boxed).programs):
                        label = f"{under.name}-{Norm(p).name}-{'box' if boxed else 'free'}-{name}"
                        combinations.append(pytest.param(under, p, boxed, name, id=label))
    return combinations


@pytest.mark.parametrize(("under", "p", "boxed", "name"), questions())
def test_conformance(under: UnderTest, p: float, boxed: bool, name: str) -> None:
    programs, truth = build(name, p, boxed).programs, reference(name, p, boxed)
    answers = check(programs, under.solver.solve(programs), under.gap)
    lengths = np.where(np.isfinite(truth), np.abs(truth), 0.0)
    if programs.tilt is not None:  # a difference of lengths, each as wrong as itself
        lengths = np.maximum(lengths, programs.norm(np.nan_to_num(answers.steps)))
    doubt = REFERENCE_ERROR.get(name, 1e-9 if p in (1.0, math.inf) else 1e-8) * lengths + 1e-13 * programs.cutoff
    beyond = answers.lower >= programs.cutoff
    there = ~beyond & answers.decided
    assert answers.decided.all() or (under.coarse and answers.decided.any()), (answers.lower, answers.value, truth)
    assert (answers.lower <= truth + doubt).all(), (answers.lower, truth)
    assert (answers.value >= truth - doubt - 1e-7 * lengths).all(), (answers.value, truth)
    # the bound reaches the point, up to the gap and what the rows' own margins are worth
    margin = 1e4 * float((programs.rows.slack / np.maximum(programs.norm.dual(programs.rows.A), 1e-9)).max())
    width = answers.value[there] - answers.lower[there]
    assert (width <= max(under.gap, 1e-8) * lengths[there] + margin).all(), width


def test_every_norm_has_a_solver_with_and_without_box_and_tilt() -> None:
    for p in NORMS:
        for name in ("n=5", "tilt 0.5, n=5"):
            for boxed in (False, True):
                programs = build(name, p, boxed).programs
                assert any(under.solver.supports(programs) for under in SOLVERS if not under.coarse)


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.05, 1.2, 6.0, 50.0])
def test_extreme_exponents_are_solved_or_left_open(p: float, boxed: bool) -> None:
    """At p = 50 double precision seldom gives a point; what is claimed must hold all the same."""
    programs, truth = build("n=5", p, boxed).programs, reference("n=5", p, boxed)
    answers = check(programs, Smooth().solve(programs))
    assert (answers.lower <= truth * (1 + 1e-6)).all()
    assert (answers.value >= truth * (1 - 1e-6)).all()
    assert answers.decided.all() or p == 50.0


@pytest.mark.parametrize("i", range(3))
def test_newton_arrives_where_the_gain_is_less_than_rounding(i: int) -> None:
    """With a tilt the dual's terms cancel: near the optimum their rounding hides the gain, but not the residual."""
    programs = build("tilt 0.9, n=40", 3.0, boxed=True).programs
    assert programs.box is not None and programs.tilt is not None
    (lo, hi), h, rows = box_ends(programs), programs.tilt, Scaled.of(programs)

    def dual(t: float) -> smooth._Dual:
        return smooth._Dual(programs.norm, rows.A, rows.r / t, int(rows.faces[i]), lo / t, hi / t, h)

    t, optimum = smooth._tilted(dual, float(rows.lengths()[i]), math.inf)
    for shift in np.logspace(-10, -7, 50):  # in another unit the optimum is as far away as this
        moved = dual(t * (1 + shift))
        assert moved.residual(moved.newton(moved.at(optimum.lam), math.inf)) <= smooth._RESIDUAL


def test_cutoff_spares_the_point() -> None:
    """Beyond the cutoff a proof is enough, and the solvers stop there."""
    for under in SOLVERS:
        if under.coarse:
            continue
        for p in NORMS:
            programs = build("n=40", p, boxed=False).programs
            if not under.solver.supports(programs):
                continue
            truth = reference("n=40", p, False)
            near = float(np.sort(truth)[1]) * (1 - 1e-6)
            part = Programs(programs.rows, programs.equalities, programs.norm, None, near)
            answers = check(part, under.solver.solve(part))
            assert answers.decided.all()
            assert ((answers.lower >= near) == (truth >= near)).all()


# The check itself: it must accept nothing that is not so.


def unit_square(p: float = 2.0, cutoff: float = math.inf) -> Programs:
    """w_1 >= 1 and w_2 >= 1: the point (1, 1), multipliers on both rows."""
    norm = Norm(p)
    return single(polyhedron([[-1.0, 0.0], [0.0, -1.0]], [-1.0, -1.0], norm), norm, cutoff=cutoff)


def test_check_accepts_the_truth() -> None:
    programs = unit_square()
    answer = check(programs, Candidates(np.array([[1.0, 1.0]]), np.array([[1.0, 1.0]])))
    assert answer.decided[0]
    assert answer.lower[0] == pytest.approx(math.sqrt(2), rel=1e-12)
    assert answer.lower[0] <= math.sqrt(2) <= answer.value[0] * (1 + 1e-12)


def test_check_moves_a_point_onto_the_rows_but_not_through_them() -> None:
    """A solver's tolerance is forgiven by a correction; the value is that of the corrected point."""
    programs = unit_square()
    steps, value = verify(programs, np.array([[1.0 - 1e-6, 1.0]]))
    assert value[0] >= math.sqrt(2) * (1 - 1e-12)
    assert programs.rows.contains(steps[0], value[0])


def test_check_rejects_a_point_that_violates_a_row() -> None:
    """An empty set has no point, however hard a solver claims one."""
    programs = build("opposite rows", 2.0, False).programs
    k, n = len(programs), programs.rows.A.shape[1]
    answers = check(programs, Candidates(np.zeros((k, n)), np.zeros((k, 2))))
    assert np.isinf(answers.value).all() and np.isnan(answers.steps).all() and not answers.decided.any()


def test_check_rejects_a_point_outside_the_box() -> None:
    norm = Norm(2.0)
    rows = polyhedron([[-1.0, 0.0]], [-1.0], norm)
    programs = single(rows, norm, Box(np.full(2, -0.5), np.full(2, 0.5)))
    assert np.isinf(verify(programs, np.array([[1.0, 0.0]]))[1][0])


def test_check_cuts_negative_multipliers_off() -> None:
    programs = unit_square()
    assert prove(programs, np.array([[-1.0, -1.0]]))[0] == 0.0
    assert prove(programs, np.array([[1.0, -5.0]]))[0] == pytest.approx(1.0, rel=1e-12)  # row 0 alone


def test_an_equality_may_have_either_sign() -> None:
    norm = Norm(2.0)
    rows = polyhedron([[1.0, 0.0]], [0.5], norm)
    face = Programs(rows, np.array([0]), norm)
    assert prove(face, np.array([[-3.0]]))[0] == pytest.approx(0.5, rel=1e-12)
    assert prove(single(rows, norm), np.array([[-3.0]]))[0] == 0.0


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320])
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("tilt", [False, True])
def test_garbage_claims_nothing(junk: float, p: float, tilt: bool) -> None:
    programs = unit_square(p)
    if tilt:
        programs = Programs(programs.rows, programs.equalities, programs.norm, tilt=np.array([0.1, 0.0]))
    best = Norm(p).value(np.ones(2)) + (0.1 if tilt else 0.0)
    for steps, lam in (([junk, 1.0], [1.0, junk]), ([junk, junk], [junk, junk]), ([1.0, junk], [junk, 0.0])):
        answer = check(programs, Candidates(np.array([steps]), np.array([lam])))
        assert answer.lower[0] <= best
        assert answer.value[0] >= best * (1 - 1e-12)
        assert not answer.decided[0] or answer.value[0] <= best * (1 + 1e-9)


def test_margins_of_the_rows_are_honoured() -> None:
    """Rows that may be off by 0.1 prove only what holds for all of them."""
    norm = Norm(2.0)
    rows = Polyhedron(np.array([[1.0, 0.0]]), np.array([-1.0]), np.array([0.1]), np.array([0.25]))
    # w_1 <= -1 + 0.1 + 0.25*||w||: the nearest such point has w = (-t, 0), t = 0.9 - 0.25 t
    assert prove(single(rows, norm), np.array([[2.0]]))[0] == pytest.approx(0.72, rel=1e-12)


def test_margins_do_not_keep_a_solved_program_open() -> None:
    """A face a few roundings away from x: nobody can close the gap of its own margin, and it counts as solved."""
    norm = Norm(2.0)
    rows = Polyhedron(np.array([[1.0, 0.0]]), np.array([-1e-12]), np.array([5e-13]), np.array([1e-15]))
    answer = check(single(rows, norm), Gram().solve(single(rows, norm)))
    assert answer.decided[0] and answer.lower[0] == pytest.approx(5e-13, rel=1e-3)
    lazy = check(single(rows, norm), Candidates(np.array([[-1e-3, 0.0]]), np.array([[1.0]])))
    assert not lazy.decided[0]  # its point is far from its own bound


def test_rows_of_denormal_size_warn_of_nothing() -> None:
    """One over their size overflows. Made an error, such a warning would be forgiven as a solver's, and not be seen."""
    chain = make_chain("library", Norm(3.0))
    rows = Polyhedron(np.array([[1e-310, 0.0], [0.0, 1.0]]), np.array([-1e-310, -1.0]), np.zeros(2), np.zeros(2))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        chain.solve(single(rows, Norm(3.0)))
    assert not heard


def test_no_answer_is_no_bound_for_a_steep_tilt() -> None:
    """||w|| + h.w with ||h|| = 2 falls without end: zero would be a false bound."""
    programs = unit_square()
    steep = Programs(programs.rows, programs.equalities, programs.norm, tilt=np.array([-2.0, 0.0]))
    assert Solutions.empty(steep).lower[0] == -math.inf
    assert prove(steep, np.zeros((1, 2)))[0] == -math.inf
    box = Box(np.zeros(2), np.array([1.0, 3.0]))
    held = Programs(programs.rows, programs.equalities, programs.norm, box, tilt=np.array([-2.0, 0.0]))
    bound = float(prove(held, np.zeros((1, 2)))[0])
    assert -math.sqrt(10.0) * (1 + 1e-9) <= bound <= math.sqrt(2) - 2.0  # at w = (1, 1) the value is sqrt(2) - 2


# Properties: whatever the multipliers, no bound exceeds the value of a point of the set.


@st.composite
def proofs(draw: st.DrawFn) -> tuple[Programs, np.ndarray, np.ndarray]:
    """Programs that hold a known point w, and arbitrary multipliers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    norm = Norm(draw(st.sampled_from([1.0, 1.05, 1.5, 2.0, 3.0, 20.0, math.inf])))
    n, m = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    w = rng.normal(size=n) * draw(st.sampled_from([1e-6, 1.0, 1e4]))
    w[rng.random(n) < 0.3] = 0.0
    box = None
    if draw(st.booleans()):
        ends = np.where(rng.random(n) < 0.5, 0.0, np.abs(rng.normal(size=n)) * np.abs(w).max())
        box = Box(np.minimum(w, 0.0) - ends, np.maximum(w, 0.0) + rng.permutation(ends))
        if draw(st.booleans()):
            box = Box(np.where(rng.random(n) < 0.3, -math.inf, box.lo), box.hi)
    A = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-6, 6, size=(m, 1))
    A[rng.random(m) < 0.1] = 0.0
    room = np.where(rng.random(m) < 0.5, 0.0, rng.random(m)) * np.abs(A).sum(axis=1) * np.abs(w).max()
    e = int(rng.integers(-1, m))
    if e >= 0:
        room[e] = 0.0
    tilt = None
    if draw(st.booleans()):
        tilt = rng.normal(size=n)
        tilt *= draw(st.sampled_from([0.0, 0.5, 1.0 - 1e-9, 1.0, 1.5])) / max(float(norm.dual(tilt)), 1e-300)
    programs = Programs(polyhedron(A, A @ w + room, norm), np.array([e]), norm, box, tilt=tilt)
    lam = rng.normal(size=(64, m)) * 10.0 ** rng.integers(-4, 4, size=(64, m))
    lam[::2] = np.abs(lam[::2])
    lam[rng.random(lam.shape) < 0.3] = 0.0
    if tilt is not None and A.any():  # in the dual ball, where tilted multipliers count
        lam /= np.maximum(norm.dual(np.abs(lam) @ np.abs(A)), 1e-300)[:, None] / rng.random((64, 1))
    return programs, w, lam


@given(proofs())
def test_no_multipliers_prove_more_than_the_truth(given_proof: tuple[Programs, np.ndarray, np.ndarray]) -> None:
    programs, w, lam = given_proof
    family = Programs(
        programs.rows, np.repeat(programs.equalities, len(lam)), programs.norm, programs.box, tilt=programs.tilt
    )
    value = programs.norm.value(w) + (0.0 if programs.tilt is None else float(programs.tilt @ w))
    rounding = 1e-14 * (programs.norm.value(w) * 3 + abs(value))
    assert (prove(family, lam) <= value + rounding).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1.5, 2.0, 3.0, math.inf]), st.booleans())
def test_optimal_multipliers_prove_the_distance(seed: int, p: float, boxed: bool) -> None:
    """Rows made so that w and lam satisfy the optimality conditions: the proof must reach ||w||."""
    rng = np.random.default_rng(seed)
    norm = Norm(p)
    n, m = int(rng.integers(1, 30)), int(rng.integers(1, 6))
    w = rng.normal(size=n)
    size = np.abs(w)
    if math.isinf(p):  # the slope of ||w||: spread over the coordinates of greatest length
        slope = np.where(size >= 0.5 * size.max(), np.sign(w), 0.0)
        w = np.where(slope != 0, slope * size.max(), w)
        size = np.abs(w)
        slope = slope / np.abs(slope).sum()
    elif p == 1.0:
        slope = np.sign(w)
    else:
        slope = np.sign(w) * (size / norm.value(w)) ** (p - 1.0)
    box, push = None, np.zeros(n)
    if boxed:  # some coordinates at their end, which presses them back
        at_end = rng.random(n) < 0.4
        push = np.where(at_end, np.sign(w) * rng.random(n) * 0.3, 0.0)
        far = np.abs(rng.normal(size=n)) + 0.5
        box = Box(np.where(at_end & (w < 0), w, -size - far), np.where(at_end & (w > 0), w, size + far))
        box = Box(np.minimum(box.lo, 0.0), np.maximum(box.hi, 0.0))
    lam = rng.random(m) + 0.1
    A = rng.normal(size=(m, n))
    A[-1] = -(slope + push + lam[:-1] @ A[:-1]) / lam[-1]  # A^T lam = -(slope + push)
    programs = single(polyhedron(A, A @ w, norm), norm, box)
    answer = check(programs, Candidates(w[None], lam[None]))
    assert answer.value[0] == pytest.approx(norm.value(w), rel=1e-9)
    assert answer.lower[0] == pytest.approx(norm.value(w), rel=1e-9)
    assert answer.decided[0]


@given(st.integers(0, 2**32 - 1), st.sampled_from(NORMS), st.booleans())
def test_merging_keeps_the_better_half_of_each(seed: int, p: float, boxed: bool) -> None:
    rng = np.random.default_rng(seed)
    programs = build("n=5", p, boxed).programs
    k, (m, n) = len(programs), programs.rows.A.shape
    first = check(programs, Candidates(rng.normal(size=(k, n)), rng.random((k, m))))
    second = check(programs, Candidates(rng.normal(size=(k, n)), rng.random((k, m))))
    both = first.merge(np.arange(k), second)
    assert (both.lower == np.maximum(first.lower, second.lower)).all()
    assert (both.value == np.minimum(first.value, second.value)).all()
    assert (both.decided == (first.decided | second.decided)).all()


# The stacks.


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("stack", sorted(STACKS))
def test_stacks_decide(stack: str, p: float, boxed: bool) -> None:
    chain = make_chain(stack, Norm(p))
    for name in ("n=5", "empty", "tilt 0.5, n=5"):
        programs, truth = build(name, p, boxed).programs, reference(name, p, boxed)
        answers = chain.solve(programs)
        assert answers.decided.all()
        there = answers.lower < programs.cutoff
        assert answers.value[there] == pytest.approx(truth[there], rel=10 * chain.gap)
    assert chain.undecided == 0 and sum(chain.solved_by.values()) == chain.programs


def test_a_stack_is_fresh_each_time() -> None:
    chain = make_chain("library", Norm(2.0))
    chain.solve(build("n=2", 2.0, False).programs)
    assert chain.programs > 0 and make_chain("library", Norm(2.0)).programs == 0


class Crashing:
    name = "crashing"

    def supports(self, programs: Programs) -> bool:
        return True

    def solve(self, programs: Programs) -> Candidates:
        raise ZeroDivisionError("a bug in a solver")


def test_a_crash_is_seen_in_tests_and_survived_by_users(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = build("n=2", 2.0, False).programs
    with pytest.raises(ZeroDivisionError, match="a bug in a solver"):
        SolverChain([Crashing(), Gram()]).solve(programs)
    with monkeypatch.context() as patch:
        patch.setattr("layercert.programs.chain.forgive", USERS_FORGIVE)
        chain = SolverChain([Crashing(), Gram()])
        assert chain.solve(programs).decided.all()
        assert chain.crashes == {"crashing": len(programs)} and chain.solved_by["daqp"] == len(programs)


def test_unknown_stack() -> None:
    with pytest.raises(OptionError, match=r"unknown solver stack 'libary'; did you mean 'library'\? known: default"):
        make_chain("libary", Norm(2.0))


def test_the_paper_stack_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ecos" else real(name))
    with pytest.raises(MissingPackageError, match=r"'ecos', which is not installed; run: pip install"):
        make_chain("paper", Norm(2.0))


def test_a_solver_that_fails_passes_the_program_on() -> None:
    class Broken:
        name = "broken"

        def supports(self, programs: Programs) -> bool:
            return True

        def solve(self, programs: Programs) -> Candidates:
            return Candidates.none(programs)

    chain = SolverChain([Broken(), Highs()])
    programs = build("n=5", 1.0, False).programs
    assert chain.solve(programs).decided.all()
    assert chain.fallbacks["broken"] == len(programs) and chain.solved_by["highs"] == len(programs)


def test_importing_the_stacks_loads_no_solver() -> None:
    heavy = ["highspy", "daqp", "scipy.optimize", "cvxpy", "numba"]
    code = f"import sys, layercert.programs.stacks; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_box_around_has_sides_without_room() -> None:
    """The generator's own promise: the boxes of the cases are as tight as an image's."""
    box = box_around(200, np.random.default_rng(0))
    assert (box.lo == 0).any() and (box.hi == 0).any() and (box.lo <= 0).all() and (box.hi >= 0).all()


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_tilted_programs_look_at_the_clock_one_by_one(p: float) -> None:
    """Each is a dozen programs itself, and a batch holds hundreds."""
    from layercert.programs.solvers.levels import Levels
    from layercert.system import clock

    programs = build("tilt 0.5, n=5", p, boxed=True).programs
    assert len(programs) > 1
    with clock.until(None, looks=2), pytest.raises(clock.OutOfTime):
        Levels().solve(programs)
