"""Distance programs with known or independently computed answers, for every solver there is.

A case is a function of the norm and of whether there is a box. The reference is the textbook program in another
solver (linprog for p = 1 and inf, Clarabel for the rest), never one of ours.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.geometry import Polyhedron
from layercert.norms import Box, Norm
from layercert.programs.program import GAP, Programs, Solver
from layercert.programs.solvers.dykstra import Dykstra
from layercert.programs.solvers.gram import Gram
from layercert.programs.solvers.highs import Highs
from layercert.programs.solvers.levels import Levels
from layercert.programs.solvers.paper import ECOS, OSQP, SCS
from layercert.programs.solvers.smooth import Smooth
from layercert.programs.stacks import PAPER_GAP

NORMS = [1.0, 1.5, 2.0, 3.0, math.inf]


@dataclass(frozen=True)
class UnderTest:
    """A solver in the conformance suite: add a line to SOLVERS and every case below judges it."""

    solver: Solver
    norms: tuple[float, ...] = tuple(NORMS)
    gap: float = GAP
    coarse: bool = False  # a solver with absolute tolerances: spared the cases that are tiny, huge or ill-conditioned

    @property
    def name(self) -> str:
        return self.solver.name


SOLVERS: list[UnderTest] = [
    UnderTest(Highs()),
    UnderTest(Gram()),
    UnderTest(Smooth()),
    UnderTest(Dykstra()),
    UnderTest(Levels(), norms=(1.0, math.inf)),
    UnderTest(ECOS, gap=PAPER_GAP, coarse=True),
    UnderTest(OSQP, norms=(2.0,), gap=PAPER_GAP, coarse=True),  # off by percents on linear programs
    UnderTest(SCS, norms=(1.0, 2.0, math.inf), gap=PAPER_GAP, coarse=True),
]


@dataclass(frozen=True, eq=False)
class Case:
    """A family of programs, with the closed forms it was built from where there are any (NaN elsewhere)."""

    programs: Programs
    known: Vector

    @staticmethod
    def of(programs: Programs, known: Iterable[float] | None = None) -> Case:
        values = np.full(len(programs), np.nan) if known is None else np.array(list(known), dtype=float)
        return Case(programs, values)


def polyhedron(A: object, r: object, norm: Norm) -> Polyhedron:
    """Rows with honest margins: their entries count as rounded, as those of a network's regions are."""
    A = np.atleast_2d(np.asarray(A, dtype=float))
    r = np.atleast_1d(np.asarray(r, dtype=float))
    noise = gamma(A.shape[1] + 8)
    return Polyhedron(A, r, noise * (np.abs(r) + 1e-3 * np.abs(A).max(axis=1)), noise * norm.dual(A))


def box_around(n: int, rng: np.random.Generator) -> Box:
    """Pixels in [0, 1] around a random image: a third of them black, some white, so that many rooms are zero."""
    x = rng.random(n)
    x[rng.random(n) < 0.3] = 0.0
    x[rng.random(n) < 0.1] = 1.0
    return Box(-x, 1.0 - x)


def programs_of(
    rows: Polyhedron, faces: Iterable[int], norm: Norm, box: Box | None, cutoff: float = math.inf
) -> Programs:
    return Programs(rows, np.array(list(faces), dtype=np.intp), norm, box, cutoff)


# The families. Each takes (norm, boxed); the same seed always gives the same numbers.


def random_faces(n: int, m: int, faces: int, seed: int) -> Callable[[Norm, bool], Case]:
    """Rows around a random point w0: some are violated at x, so the region and its faces lie away from x."""

    def case(norm: Norm, boxed: bool) -> Case:
        rng = np.random.default_rng(seed)
        box = box_around(n, rng) if boxed else None
        A = rng.normal(size=(m, n)) / math.sqrt(n)
        w0 = 0.2 * rng.normal(size=n)
        w0 = w0 if box is None else box.clip(w0)
        r = A @ w0 + 0.5 * rng.random(m) * np.abs(rng.normal(size=m))
        cutoff = 3.0 * norm.value(w0) + 1.0
        # faces whose hyperplane passes near w0, so that they are seldom empty
        nearest = np.argsort(r - A @ w0)[:faces]
        return Case.of(programs_of(polyhedron(A, r, norm), [-1, *nearest.tolist()], norm, box, cutoff))

    return case


def halfspace(norm: Norm, boxed: bool) -> Case:
    """One row at distance 0.5: the closed form s/||g||_q, and both signs of the same equality."""
    g = np.array([3.0, -1.0, 0.5, 0.0, 2.0])
    size = float(norm.dual(g))
    box = Box(np.full(5, -0.5), np.full(5, 0.5)) if boxed else None  # the nearest point has no longer coordinate
    rows = polyhedron([g, -g], [-0.5 * size, 2.0 * size], norm)
    return Case.of(programs_of(rows, [-1, 0], norm, box, 4.0), [0.5, 0.5])


def box_corner(norm: Norm, boxed: bool) -> Case:
    """w >= c in every coordinate: the corner c itself, which is a corner of the box as well."""
    c = np.array([0.3, -0.2, 0.7, 0.1])
    s = np.sign(c)
    box = Box(np.minimum(c, 0.0), np.maximum(c, 0.0)) if boxed else None
    rows = polyhedron(-np.diag(s), -np.abs(c), norm)
    value = norm.value(c)
    return Case.of(programs_of(rows, [-1, 0, 3], norm, box, 3.0), [value, value, value])


def duplicate_rows(norm: Norm, boxed: bool) -> Case:
    """The same rows three times, once with another length: multipliers are not unique."""
    base = random_faces(5, 6, 2, 11)(norm, boxed).programs
    A = np.concatenate([base.rows.A, base.rows.A, 7.0 * base.rows.A])
    r = np.concatenate([base.rows.r, base.rows.r, 7.0 * base.rows.r])
    return Case.of(replace(base, rows=polyhedron(A, r, norm)))


def rank_deficient(norm: Norm, boxed: bool) -> Case:
    """Twelve rows in a plane of R^6."""
    rng = np.random.default_rng(12)
    box = box_around(6, rng) if boxed else None
    A = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 6))
    w0 = 0.3 * rng.normal(size=6)
    w0 = w0 if box is None else box.clip(w0)
    r = A @ w0 + 0.1 * rng.random(12)
    return Case.of(programs_of(polyhedron(A, r, norm), [-1, 0, 5], norm, box, 10.0))


def x_inside(norm: Norm, boxed: bool) -> Case:
    """x in the interior, and x on two faces at once: distance zero."""
    rng = np.random.default_rng(13)
    A = rng.normal(size=(6, 4))
    r = np.array([0.0, 0.0, 0.4, 0.2, 1.0, 3.0])
    box = Box(np.array([0.0, -1.0, -1.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])) if boxed else None
    return Case.of(programs_of(polyhedron(A, r, norm), [-1, 0, 1], norm, box, 5.0), [0.0, 0.0, 0.0])


def zero_offset(norm: Norm, boxed: bool) -> Case:
    """r_e = 0 while other rows are violated: x lies on the hyperplane, not on the face."""
    rng = np.random.default_rng(14)
    box = Box(np.full(5, -2.0), np.full(5, 2.0)) if boxed else None
    A = rng.normal(size=(5, 5))
    r = np.array([0.0, -0.3, 0.0, 0.2, -0.1])
    return Case.of(programs_of(polyhedron(A, r, norm), [0, 2, -1], norm, box, 20.0))


def both_sides(norm: Norm, boxed: bool) -> Case:
    """Equalities with x on the wrong side (r_e < 0) and on the right one (r_e > 0): the multiplier changes sign."""
    g = np.array([[2.0, 1.0, 0.0], [1.0, -3.0, 1.0]])
    r = np.array([-0.5, 0.8])
    size = norm.dual(g)
    far = np.eye(3)  # rows that never bind
    rows = polyhedron(np.concatenate([g[:1], far]), np.concatenate([r[:1], np.full(3, 9.0)]), norm)
    box = Box(np.full(3, -1.0), np.full(3, 1.0)) if boxed else None
    wrong = programs_of(rows, [0], norm, box, 5.0)
    rows = polyhedron(np.concatenate([wrong.rows.A, g[1:]]), np.concatenate([wrong.rows.r, r[1:]]), norm)
    # the face of row 4 must satisfy row 0 too, so it has no closed form
    return Case.of(programs_of(rows, [0, 4], norm, box, 5.0), [0.5 / float(size[0]), np.nan])


def vertex(norm: Norm, boxed: bool) -> Case:
    """More rows than dimensions through one point, all active there: a degenerate vertex."""
    rng = np.random.default_rng(15)
    w0 = np.array([0.5, -0.4, 0.3])
    A = rng.normal(size=(9, 3))
    A = A * np.where(A @ w0 < 0, 1.0, -1.0)[:, None]  # all of them cut x off
    box = Box(np.full(3, -0.5), np.full(3, 0.5)) if boxed else None
    return Case.of(programs_of(polyhedron(A, A @ w0, norm), [-1, 0, 4], norm, box, 5.0))


def nearly_parallel(norm: Norm, boxed: bool) -> Case:
    """Two rows at an angle of 1e-5: the point is where they meet or far along one of them."""
    rng = np.random.default_rng(16)
    g, d = rng.normal(size=(2, 5))
    A = np.array([g, g + 1e-5 * d, rng.normal(size=5)])
    r = np.array([-0.5, -0.5 + 2e-6, 0.4])
    box = Box(np.full(5, -1.5), np.full(5, 1.5)) if boxed else None
    return Case.of(programs_of(polyhedron(A, r, norm), [-1, 0, 1], norm, box, 50.0))


def scaled_faces(length: float) -> Callable[[Norm, bool], Case]:
    """The same geometry in another unit, with rows of very different size."""

    def case(norm: Norm, boxed: bool) -> Case:
        base = random_faces(5, 9, 3, 17)(norm, boxed).programs
        factor = np.logspace(-4, 4, len(base.rows))
        rows = polyhedron(base.rows.A * factor[:, None], base.rows.r * factor * length, norm)
        box = None if base.box is None else Box(base.box.lo * length, base.box.hi * length)
        return Case.of(Programs(rows, base.equalities, norm, box, base.cutoff * length))

    return case


def empty(norm: Norm, boxed: bool) -> Case:
    """Nothing satisfies the rows: a pair of opposite rows, three rows round a triangle, a constant row."""
    rng = np.random.default_rng(18)
    box = Box(np.full(4, -3.0), np.full(4, 3.0)) if boxed else None
    g = rng.normal(size=(3, 4))
    A = np.array([g[0], g[1], -g[0] - g[1], g[2]])
    r = np.array([-0.2, 0.1, -0.3, 0.5])  # the first three add up to 0 <= -0.4
    return Case.of(programs_of(polyhedron(A, r, norm), [-1, 0, 3], norm, box, 2.0), [math.inf] * 3)


def opposite_rows(norm: Norm, boxed: bool) -> Case:
    """g.w <= -0.5 and g.w >= 0.5; the faces ask for each hyperplane in turn."""
    g = np.array([1.0, -2.0, 0.5])
    box = Box(np.full(3, -3.0), np.full(3, 3.0)) if boxed else None
    return Case.of(programs_of(polyhedron([g, -g], [-0.5, -0.5], norm), [-1, 0, 1], norm, box, 2.0), [math.inf] * 3)


def constant_row(norm: Norm, boxed: bool) -> Case:
    """0.w <= -1 is never true (a dead neuron on the wrong side); 0.w <= 1 always is."""
    A = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    box = Box(np.full(3, -3.0), np.full(3, 3.0)) if boxed else None
    broken = polyhedron(A, [-1.0, 0.3, 1.0], norm)
    return Case.of(programs_of(broken, [-1, 1], norm, box, 2.0), [math.inf] * 2)


def harmless_row(norm: Norm, boxed: bool) -> Case:
    """The always true constant row must not disturb anything."""
    A = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 0.0]])
    box = Box(np.full(3, -3.0), np.full(3, 3.0)) if boxed else None
    value = 0.6 / float(norm.dual(A[1]))
    return Case.of(programs_of(polyhedron(A, [1.0, -0.6], norm), [-1, 1], norm, box, 2.0), [value, value])


def outside_the_box(norm: Norm, boxed: bool) -> Case:
    """A halfspace that no point of the box reaches; without a box, simply a halfspace."""
    g = np.array([1.0, 2.0, -1.0])
    box = Box(np.array([-0.5, -0.25, 0.0]), np.array([1.0, 1.0, 0.5])) if boxed else None
    s = 1.6  # the box reaches 0.5 + 2*0.25 + 0.5 = 1.5 only
    value = math.inf if boxed else s / float(norm.dual(g))
    return Case.of(programs_of(polyhedron(g, -s, norm), [-1, 0], norm, box, 3.0), [value, value])


def one_dimension(norm: Norm, boxed: bool) -> Case:
    """n = 1: an interval [0.25, 0.75] away from x."""
    box = Box(np.array([-1.0]), np.array([0.5])) if boxed else None
    rows = polyhedron([[1.0], [-1.0]], [0.75, -0.25], norm)
    return Case.of(programs_of(rows, [-1, 0, 1], norm, box, 2.0), [0.25, math.inf if boxed else 0.75, 0.25])


def tilted(make: Callable[[Norm, bool], Case], steepness: float, seed: int) -> Callable[[Norm, bool], Case]:
    """The same rows with a tilt of dual length `steepness`."""

    def case(norm: Norm, boxed: bool) -> Case:
        base = make(norm, boxed)
        direction: Vector = np.random.default_rng(seed).normal(size=(1, base.programs.rows.A.shape[1]))[0]
        h = direction * (steepness / float(norm.dual(direction)))
        known = np.where(np.isinf(base.known), base.known, np.nan)  # what is empty stays empty
        return Case(replace(base.programs, tilt=h, cutoff=2.0 * base.programs.cutoff), known)

    return case


CASES: dict[str, Callable[[Norm, bool], Case]] = {
    "n=1": one_dimension,
    "n=2": random_faces(2, 5, 4, 1),
    "n=5": random_faces(5, 20, 6, 2),
    "n=40": random_faces(40, 60, 3, 3),
    "n=784": random_faces(784, 50, 2, 4),
    "halfspace": halfspace,
    "box corner": box_corner,
    "duplicate rows": duplicate_rows,
    "rank deficient": rank_deficient,
    "x inside": x_inside,
    "zero offset": zero_offset,
    "both sides": both_sides,
    "vertex": vertex,
    "nearly parallel": nearly_parallel,
    "tiny": scaled_faces(1e-7),
    "huge": scaled_faces(1e5),
    "empty": empty,
    "opposite rows": opposite_rows,
    "constant row": constant_row,
    "harmless row": harmless_row,
    "outside the box": outside_the_box,
    "tilt 0.5, n=5": tilted(random_faces(5, 20, 6, 2), 0.5, 21),
    "tilt 0.9, n=40": tilted(random_faces(40, 60, 2, 3), 0.9, 22),
    "tilt 0.999, n=2": tilted(random_faces(2, 5, 3, 1), 0.999, 23),
    "tilt, x inside": tilted(x_inside, 0.7, 24),
    "tilt, empty": tilted(empty, 0.8, 25),
    "tilt, opposite rows": tilted(opposite_rows, 0.999, 26),
    "tilt, duplicate rows": tilted(duplicate_rows, 0.3, 27),
}

#: Cases in units or shapes that a solver with absolute tolerances cannot be asked for.
FINE = {"nearly parallel", "tiny", "huge", "n=784", "tilt 0.999, n=2"}


@cache
def build(name: str, p: float, boxed: bool) -> Case:
    return CASES[name](Norm(p), boxed)


@cache
def reference(name: str, p: float, boxed: bool) -> Vector:
    """The optimal values: the closed forms, or the textbook program in a solver that is not under test."""
    case = build(name, p, boxed)
    values = case.known.copy()
    for i in np.flatnonzero(np.isnan(values)):
        values[i] = textbook(case.programs, int(case.programs.equalities[i]))
    return values


def textbook(programs: Programs, e: int) -> float:
    if programs.norm.p == 1.0 or math.isinf(programs.norm.p):
        return textbook_linear(programs, e)
    return textbook_conic(programs, e)


def textbook_linear(programs: Programs, e: int) -> float:
    """min sum t or max t with -t <= w <= t, by linprog."""
    from scipy.optimize import linprog

    A, r = programs.rows.A, programs.rows.r
    m, n = A.shape
    k = 1 if math.isinf(programs.norm.p) else n  # one t for all coordinates, or one for each
    cover = np.ones((n, 1)) if k == 1 else np.eye(n)
    h = np.zeros(n) if programs.tilt is None else programs.tilt
    others = np.arange(m) != e
    upper: Matrix = np.block([[np.eye(n), -cover], [-np.eye(n), -cover], [A[others], np.zeros((others.sum(), k))]])
    lo, hi = (np.full(n, -np.inf), np.full(n, np.inf)) if programs.box is None else (programs.box.lo, programs.box.hi)
    found = linprog(
        np.concatenate([h, np.ones(k)]),
        A_ub=upper,
        b_ub=np.concatenate([np.zeros(2 * n), r[others]]),
        A_eq=np.concatenate([A[e], np.zeros(k)])[None] if e >= 0 else None,
        b_eq=r[e : e + 1] if e >= 0 else None,
        bounds=[*zip(lo, hi, strict=True), *[(0, None)] * k],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status == 2:
        return math.inf
    assert found.status == 0, found.message
    return float(np.asarray(found.fun))


def textbook_conic(programs: Programs, e: int) -> float:
    """min ||w||_p + h.w in CVXPY's own words, by Clarabel with tight tolerances, in units where the cutoff is ten."""
    import cvxpy as cp

    unit = programs.cutoff / 10.0
    A, r = programs.rows.A, programs.rows.r / unit
    size = np.where(A.any(axis=1), np.linalg.norm(A, axis=1), 1.0)
    A, r = A / size[:, None], r / size
    w = cp.Variable(A.shape[1])
    others = np.arange(len(r)) != e
    constraints = [A[others] @ w <= r[others]] if others.any() else []
    if e >= 0:
        constraints.append(A[e] @ w == r[e])
    if programs.box is not None:
        constraints += [w >= programs.box.lo / unit, w <= programs.box.hi / unit]
    objective = cp.norm(w, programs.norm.p) + (0.0 if programs.tilt is None else programs.tilt @ w)
    problem = cp.Problem(cp.Minimize(objective), constraints)
    tight = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "max_iter": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", **tight)
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        return math.inf
    assert problem.status in ("optimal", "optimal_inaccurate"), problem.status
    return float(np.asarray(problem.value)) * unit
