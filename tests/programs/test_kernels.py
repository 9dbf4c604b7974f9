"""The compiled kernels: the shared cases, degenerate families, real faces, and the proof inside a box."""

from __future__ import annotations

import itertools
import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba.core import event

import layercert as lc
from helpers.profiles import examples
from helpers.program_cases import CASES, NORMS, build, polyhedron, reference
from helpers.tiny import seeds
from layercert import shipped
from layercert.arrays import gamma
from layercert.attack.attack import attack
from layercert.compiled import compiling
from layercert.geometry import Polyhedron
from layercert.io import load
from layercert.methods import METHODS, Method
from layercert.network import Network
from layercert.norms import Box, Norm
from layercert.problem import robustness
from layercert.programs.chain import SolverChain
from layercert.programs.kernels import kernels
from layercert.programs.kernels.proof import bound_in_box
from layercert.programs.program import Programs, Solutions, Solver, check, prove
from layercert.programs.stacks import make_chain
from layercert.search.events import Bound, Event
from layercert.search.task import Task
from layercert.system import clock

PLAIN = [name for name in CASES if not name.startswith("tilt")]  # no kernel takes a tilt


def solved(solver: Solver, programs: Programs) -> Solutions:
    return check(programs, solver.solve(programs))


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [*NORMS, 1.2, 4.0, 6.0])
@pytest.mark.parametrize("name", PLAIN)
def test_shared_cases(name: str, p: float, boxed: bool) -> None:
    programs, truth = build(name, p, boxed).programs, reference(name, p, boxed)
    doubt = 1e-4 if name == "nearly parallel" else 1e-7  # of the reference, an interior-point method
    for kernel in kernels(programs.norm):
        if not kernel.supports(programs):
            continue
        answers = solved(kernel, programs)
        assert answers.decided.all(), (kernel.name, answers.lower, answers.value, truth)
        near = truth < programs.cutoff
        assert ((answers.lower >= programs.cutoff) == ~near).all()
        assert answers.value[near] == pytest.approx(truth[near], rel=doubt, abs=1e-9 * programs.cutoff)


# Degenerate families: small integers (ties everywhere), repeated and opposite rows, low rank, zero rows, r = 0.


@st.composite
def degenerate(draw: st.DrawFn, exponents: tuple[float, ...]) -> Programs:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    norm = Norm(draw(st.sampled_from(exponents)))
    n, m = draw(st.integers(1, 6)), draw(st.integers(0, 9))
    A = rng.integers(-2, 3, size=(m, n)).astype(float)
    r = rng.integers(-2, 4, size=m).astype(float)
    kind = draw(st.sampled_from(["integer", "opposite", "low rank", "cone", "dense"]))
    if kind == "opposite" and m > 2:  # the same hyperplane three times, a slab, a line or nothing between
        A[1], r[1] = A[0], r[0]
        A[2], r[2] = -A[0], -r[0] + rng.integers(-1, 2)
    if kind == "low rank":
        A = rng.normal(size=(m, 2)) @ rng.normal(size=(2, n))
    if kind == "cone":
        r[:] = 0.0
    if kind == "dense":
        A, r = rng.normal(size=(m, n)), rng.normal(size=m) + 0.5
    unit = draw(st.sampled_from([1e-5, 1.0, 1.0, 1e4]))
    factor = 10.0 ** rng.integers(-6, 7, size=m) if draw(st.booleans()) else np.ones(m)
    A, r = A * factor[:, None], r * factor * unit
    box = None
    if draw(st.booleans()):
        lo, hi = -unit * rng.integers(0, 4, size=n), unit * rng.integers(0, 4, size=n)
        endless = rng.random(n) < draw(st.sampled_from([0.0, 0.3]))
        box = Box(lo, np.where(endless, math.inf, hi))
    cutoff = unit * draw(st.sampled_from([0.1, 1.0, 10.0, 100.0]))
    return Programs(rows_of(A, r, norm), np.arange(-1, m), norm, box, cutoff)


def rows_of(A: np.ndarray, r: np.ndarray, norm: Norm) -> Polyhedron:
    return polyhedron(A, r, norm) if len(r) else Polyhedron.everything(A.shape[1])


@examples(150)
@given(degenerate((1.0, 2.0, math.inf)))
def test_degenerate_families_are_decided(programs: Programs) -> None:
    """`decided` is a proof, so nothing else needs to be compared."""
    for kernel in kernels(programs.norm):
        if kernel.supports(programs):
            answers = solved(kernel, programs)
            assert answers.decided.all(), (kernel.name, answers.lower, answers.value)


@examples(100)
@given(degenerate((1.5, 3.0)))
def test_degenerate_families_of_smooth_norms(programs: Programs) -> None:
    """Newton may give up on a degenerate vertex; then the next solver in the stack has to decide."""
    first, rest = kernels(programs.norm)[0], make_chain("library", programs.norm).solvers
    chain = SolverChain([first, *rest])
    answers = chain.solve(programs)
    assert chain.fallbacks[first.name] <= 0.2 * max(len(programs), 10)
    assert answers.decided.all()


@given(degenerate((1.0, 1.5, 2.0, 3.0, math.inf)))
def test_a_face_alone_is_answered_as_in_its_family(programs: Programs) -> None:
    """Warm starts, shared Gram rows and leftovers of other faces must not matter."""
    kernel = next(k for k in kernels(programs.norm) if k.supports(programs))
    together = solved(kernel, programs)
    for i in range(len(programs)):
        alone = solved(kernel, programs.take(np.array([i])))
        both = bool(together.decided[i] and alone.decided[0])
        if both and together.lower[i] < programs.cutoff and alone.lower[0] < programs.cutoff:
            scale = max(float(alone.value[0]), 1e-9 * programs.cutoff)
            assert together.value[i] == pytest.approx(alone.value[0], abs=3e-9 * scale)


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_almost_one_and_the_same_row(p: float, boxed: bool) -> None:
    """Rows that differ by 1e-5 and contradict each other, as in networks trained with an l1 penalty."""
    rng = np.random.default_rng(5)
    box = Box(np.full(60, -0.3), np.full(60, 0.5)) if boxed else None
    for _ in range(25):
        row = rng.normal(size=60)
        A = (row + 1e-5 * rng.normal(size=(8, 60))) * rng.choice([-1.0, 1.0], 8)[:, None]
        r = A @ (0.05 * rng.normal(size=60)) + 1e-3 * rng.normal(size=8)
        rows = Polyhedron(A, r, np.full(8, 1e-13), np.full(8, 1e-13))
        programs = Programs(rows, np.arange(-1, 8), Norm(p), box, cutoff=1.0)
        kernel = next(k for k in kernels(Norm(p)) if k.supports(programs))
        answers = solved(kernel, programs)
        assert answers.decided.all(), (kernel.name, answers.lower, answers.value)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("boxed", [False, True])
def test_no_rows_no_distance(p: float, boxed: bool) -> None:
    box = Box(np.full(3, -1.0), np.zeros(3)) if boxed else None
    programs = Programs(Polyhedron.everything(3), np.array([-1]), Norm(p), box)
    for kernel in kernels(programs.norm):
        if kernel.supports(programs):
            answers = solved(kernel, programs)
            assert answers.decided.all() and answers.value[0] == 0.0 and not answers.steps.any()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("boxed", [False, True])
def test_empty_without_a_cutoff_is_a_ray(p: float, boxed: bool) -> None:
    """Nothing proves infinity in floating point, but a ray proves more than any distance that matters."""
    norm = Norm(p)
    box = Box(np.full(2, -3.0), np.full(2, 3.0)) if boxed else None
    rows = polyhedron([[1.0, 2.0], [-1.0, -2.0], [0.3, 0.1]], [-0.5, -0.5, 1.0], norm)
    programs = Programs(rows, np.array([-1, 0, 2]), norm, box)
    for kernel in kernels(norm):
        if kernel.supports(programs):
            assert (prove(programs, kernel.solve(programs).multipliers) > 1e9).all()


def test_kernels_stop_at_the_cutoff() -> None:
    """Beyond the cutoff there is a proof and no point."""
    for p in (1.0, 1.5, 2.0, 3.0, math.inf):
        programs, truth = build("n=40", p, False).programs, reference("n=40", p, False)
        near = 0.5 * float(truth.min() + truth.max())
        part = Programs(programs.rows, programs.equalities, programs.norm, None, near)
        candidates = kernels(part.norm)[0].solve(part)
        assert (np.isnan(candidates.steps).all(axis=1) == (truth > near)).all()
        assert check(part, candidates).decided.all()


# Real faces: those that LayerCert asks for on the shipped networks.


class Recorder(SolverChain):
    """A chain that keeps the families it was asked."""

    families: list[Programs]

    def solve(self, programs: Programs) -> Solutions:
        self.families = [*getattr(self, "families", []), programs]
        return super().solve(programs)


@cache
def real_faces(net: str, p: float, boxed: bool, faces: int = 300) -> list[Programs]:
    with np.load(shipped.path("digits")) as digits:
        x = digits["X"][3].astype(float)
    problem = robustness(load(shipped.path(net)), x, p, domain=(0.0, 1.0) if boxed else None)
    found = attack(problem)
    assert found is not None
    chain = Recorder(make_chain("default", problem.norm).solvers)
    task = Task(problem, chain, limit=1.2 * found[1])  # a little too large, as it is early in a search
    for _ in itertools.takewhile(lambda _: chain.programs < faces, METHODS["layercert-basic"].search(task)):
        pass
    return chain.families


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("net", ["mnist17_l1_2x20", "mnist17_plain_2x20", "mnist17_plain_3x20"])
def test_real_faces(net: str, p: float, boxed: bool) -> None:
    """All decided by the kernel alone, and the library agrees."""
    families = real_faces(net, p, boxed)
    library = make_chain("library", Norm(p))
    compared = 0
    for programs in families:
        kernel = next(k for k in kernels(programs.norm) if k.supports(programs))
        answers = solved(kernel, programs)
        assert answers.decided.all()
        if compared < 40:
            part = programs.take(np.arange(min(len(programs), 4)))
            other = library.solve(part)
            compared += len(part)
            near = (answers.lower[: len(part)] < programs.cutoff) & (other.lower < programs.cutoff)
            assert near.sum() == (other.lower < programs.cutoff).sum() or not other.decided.all()
            # each one's bound is below the other's point
            assert (answers.lower[: len(part)][near] <= other.value[near] * (1 + 1e-9)).all()
            assert (other.lower[near] <= answers.value[: len(part)][near] * (1 + 1e-9)).all()


# The compiled proof inside a box.


def halfspaces(seed: int) -> tuple[Norm, Box, np.ndarray, np.ndarray, np.ndarray]:
    """Norm, box, g, s and drift: boxes with sides of no width and without end, often used up to the corner."""
    rng = np.random.default_rng(seed)
    norm = Norm(float(rng.choice([1.0, 1.05, 1.5, 2.0, 3.0, 20.0, math.inf])))
    n, k = int(rng.integers(1, 9)), 16
    g = rng.normal(size=(k, n)) * 10.0 ** rng.integers(-8, 8, size=(k, 1))
    g[rng.random(g.shape) < 0.2] = 0.0
    g = np.round(g) if rng.random() < 0.5 else g
    room = rng.random((2, n)) * 10.0 ** rng.integers(-3, 3, size=(2, n))
    room[rng.random((2, n)) < 0.3] = 0.0
    room[rng.random((2, n)) < 0.1] = math.inf
    box = Box(-room[0], room[1])
    finite = np.where(np.isfinite(box.room(g)), box.room(g), 0.0)
    reach = (np.abs(g) * finite).sum(axis=1)  # s at which the finite sides are used up: the corner of the box
    s = reach * rng.choice([-1.0, 0.1, 0.5, 0.9, 1.0, 1.1, 3.0], size=k) + rng.choice([0.0, 0.0, 1.0], size=k)
    return norm, box, g, s, np.abs(g).sum(axis=1) * rng.choice([0.0, 1e-14, 1e-3], size=k)


@examples(150)
@given(seeds)
@example(6016)  # p = 2, s is 1 + 2e-8 times what the box can pay: all but 8 digits of s cancel
@example(8688)  # the same for p = 1.05,
@example(12480)  # and p = 1
@example(19771)  # p = 1, s is what the box can pay: the last digit of s decides which split is taken
def test_compiled_proof_is_the_proof(seed: int) -> None:
    """Never stronger than the truth, and as strong as `Norm.prove_halfspace` up to the last digits of s.

    A bound is (s - what the box pays)/length. Near the corner of the box the difference cancels, and its rounding
    error, which depends on the order of a sum, is relative to s, not to the difference.
    """
    norm, box, g, s, drift = halfspaces(seed)
    mine = bound_in_box(norm, box, g, s, drift)
    with_less = [norm.prove_halfspace(g, s - less * np.abs(s), box, drift) for less in (0.0, 1e-14)]
    assert (mine >= np.minimum(*with_less) * (1 - 1e-12)).all()
    for i in range(len(g)):
        distance, w = norm.halfspace(g[i], float(s[i]), box)
        if math.isfinite(distance) and float(-g[i] @ w) >= s[i] * (1 - 1e-12):
            assert mine[i] <= distance * (1 + 1e-9)


def test_compiled_proof_of_sizes_far_apart() -> None:
    """p = 1: 3.8e-6 beside 1.4e6 that cannot move. The distance is s/3.8e-6, not a little less for a level that
    bisection has not reached."""
    box = Box(np.array([0.0, -1e-3]), np.array([0.0, 1e-3]))
    g, s = np.array([[-1.4e6, -3.8e-6]]), np.array([1e-9])
    bound = bound_in_box(Norm(1.0), box, g, s, np.zeros(1))
    assert bound[0] == pytest.approx(1e-9 / 3.8e-6, rel=1e-13)


def test_compiled_proof_survives_noise_on_an_endless_side() -> None:
    """A multiplier's rounding leaves 1e-17 on a coordinate without bound: it must not cost the proof."""
    box = Box(np.array([-1.0, -math.inf]), np.array([1.0, math.inf]))
    for p in (1.0, 1.5, 2.0, math.inf):
        bound = bound_in_box(Norm(p), box, np.array([[1.0, 1e-17]]), np.array([2.0]), np.zeros(1))
        assert bound[0] > 1e15


# The first compilation, and the caches.


def test_importing_the_kernels_does_not_load_numba() -> None:
    code = "import sys, layercert.programs.kernels; print('numba' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def unit_halfspace() -> Programs:
    rows = Polyhedron(np.array([[1.0, 0.0]]), np.array([-1.0]), np.full(1, gamma(8)), np.full(1, gamma(8)))
    return Programs(rows, np.array([-1]), Norm(2.0))


def fresh(module: str = "layercert.somewhere") -> Callable[[float], float]:
    """A compiled function of a module, not yet compiled and kept nowhere: the first call takes a while."""

    def function(v: float) -> float:
        total = 0.0
        for i in range(3):
            total += np.sin(v + i)
        return total

    function.__module__ = module
    return numba.njit(function)


class Hours(event.Listener):
    """A machine on which every compilation takes an hour; its time goes on by itself besides."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def on_start(self, event: event.Event) -> None:
        self.passed += 3600.0

    def on_end(self, event: event.Event) -> None:
        """Nothing: an hour has passed since the start."""


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hours]:
    machine = Hours()
    monkeypatch.setattr(clock, "time", machine)
    monkeypatch.setattr(clock, "_compiling", clock._compiling.copy())  # those hours are not the next test's
    with event.install_listener("numba:compile", machine):
        yield machine


def test_the_clock_stands_still_while_our_kernels_are_compiled(hours: Hours) -> None:
    for module, still in (("layercert.somewhere", True), ("mine", False)):
        function = fresh(module)
        started, clock_started = hours.monotonic(), clock.now()
        function(0.5)
        took, counted = hours.monotonic() - started, clock.now() - clock_started
        assert took > 3600.0 and (counted < 1800.0) == still, (module, took, counted)


@pytest.mark.parametrize(("module", "status"), [("layercert.somewhere", "exact"), ("mine", "undecided")])
def test_compiling_our_kernels_does_not_count_against_a_time_limit(
    monkeypatch: pytest.MonkeyPatch, hours: Hours, module: str, status: str
) -> None:
    def slow_start(task: Task) -> Iterator[Event]:
        fresh(module)(0.5)  # takes longer than the limit
        yield Bound(0.1)
        yield Bound(task.U)

    monkeypatch.setitem(METHODS, "slow-start", Method("slow-start", slow_start, "compiles first"))
    # logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3
    net = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
    r = lc.measure(net, [0.2], method="slow-start", time_limit=1800.0)
    assert hours.passed >= 3600.0
    assert r.status == status and (r.seconds < 1800.0) == (status == "exact"), (r.status, r.note, r.seconds)


def test_compiling_is_announced_once_and_only_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_said", set())
    fresh("mine")(0.5)
    assert capsys.readouterr().err == ""  # a user's own kernels
    for module, said in (("layercert.somewhere", compiling.KERNELS), ("layercert.certificate.cap", compiling.CHECKER)):
        fresh(module)(0.5)
        fresh(module)(0.5)
        assert capsys.readouterr().err == said + "\n"


def test_the_announcement_goes_to_the_log_where_somebody_listens(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_said", set())
    with caplog.at_level(logging.INFO, logger="layercert"):
        fresh()(0.5)
    assert compiling.KERNELS in [record.message for record in caplog.records]
    assert capsys.readouterr().err == ""
