"""Counterexamples that hold: exactly, for the real numbers printed in the file, and in the model's own float32 runtime.

A search's witness is unsafe up to the outward rounding of its problem. Here it is moved onto float32 numbers inside the
property's own decimal box and judged in rationals, strict inequalities taken strictly; where that fails, or the runtime
disagrees, points deeper in the unsafe set are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from layercert.arrays import EPS, SMALLEST, Vector, gamma
from layercert.network import Network
from layercert.problem import Clause, Problem
from layercert.spec.cases import Case, Interval, Row
from layercert.spec.rounding import decimal_text, float32_above, float32_below, float_above, float_below

#: Steps into the unsafe set when a point on its edge does not convince every arithmetic.
STEPS = 40


@dataclass(frozen=True)
class Counterexample:
    """Decimal inputs inside the box, and what the network makes of them.

    Attributes:
        inputs: The inputs exactly, as decimals; as fractions such as "1/3" where no decimal is in an input's range.
        outputs: The outputs there, in the runtime if there is one, in float64 otherwise.
        runtime: Name of the runtime that was asked for the outputs.
        runtime_agrees: Whether the runtime's outputs violate the property too.
        off_grid: Inputs whose range holds no float32 number at all.
    """

    inputs: tuple[str, ...]
    outputs: tuple[float, ...]
    runtime: str | None = None
    runtime_agrees: bool | None = None
    off_grid: int = 0

    @property
    def x(self) -> Vector:
        """The inputs as float64 numbers."""
        return np.array([float(Fraction(t)) for t in self.inputs])

    @property
    def doubts(self) -> str:
        """What a reader should know about it; empty as a rule."""
        doubts = []
        if self.runtime_agrees is False:
            doubts.append(
                f"the counterexample holds for real numbers, but not with the float32 outputs of {self.runtime}"
            )
        if self.off_grid:
            doubts.append(f"{self.off_grid} inputs have a range without any float32 number; the runtime rounds them")
        return "; ".join(doubts)

    def text(self) -> str:
        """In the form of VNN-COMP: ((X_0 v) .. (Y_0 v) ..), one variable per line; fractions as SMT-LIB writes them.

        Returns:
            The text of a counterexample file.
        """
        pairs = [f"(X_{i} {_smt(t)})" for i, t in enumerate(self.inputs)]
        pairs += [f"(Y_{j} {y!r})" for j, y in enumerate(self.outputs)]
        return "(" + "\n".join(pairs) + ")\n"


def _smt(number: str) -> str:
    """A number of `Counterexample.inputs` as a term: -1/3 is (/ -1 3)."""
    top, _, bottom = number.partition("/")
    return f"(/ {top} {bottom})" if bottom else number


class Grid:
    """The float32 numbers inside a case's box."""

    def __init__(self, case: Case) -> None:
        self.case = case
        sides = [(side, side.low, side.high) for side in case.box]
        assert all(low is not None and high is not None for _, low, high in sides)
        self.low = np.array([float32_above(low, side.low_strict) for side, low, _ in sides if low is not None])
        self.high = np.array([float32_below(high, side.high_strict) for side, _, high in sides if high is not None])
        self.has = self.low <= self.high

    def snap(self, v: Vector) -> list[Fraction]:
        """The point of the box nearest to v whose coordinates float32 can hold (where its range has any such)."""
        with np.errstate(over="ignore"):  # beyond float32: the end of the range is nearest
            near = np.clip(v.astype(np.float32).astype(np.float64), self.low, np.maximum(self.low, self.high))
        return [
            Fraction(float(near[i])) if self.has[i] else _beside(side, float(v[i]))
            for i, side in enumerate(self.case.box)
        ]


def _beside(side: Interval, v: float) -> Fraction:
    """A number of a range without float32 numbers: v itself, or the end next to it as the file says it."""
    assert side.low is not None and side.high is not None
    q = min(max(Fraction(v), side.low), side.high)
    return q if q in side else _inside(side)


def _inside(side: Interval) -> Fraction:
    """A number of the interval: one of its ends, a float64 or the middle; with a finite decimal expansion if it can."""
    assert side.low is not None and side.high is not None
    tries = [side.low, side.high, Fraction(float_above(side.low)), Fraction(float_below(side.high))]
    tries.append((side.low + side.high) / 2)
    there = [q for q in tries if q in side]  # the middle of a range that is not empty always is
    return next((q for q in there if decimal_text(q) is not None), there[0])


def realise(case: Case, problem: Problem, v: Vector, grid: Grid) -> Counterexample | None:
    """A counterexample at v or deeper in the unsafe set; one that the runtime confirms if there is one."""
    second_best: Counterexample | None = None
    for u in _deeper(problem, v):
        w = grid.snap(u)
        if not holds_exactly(case, problem.network, w):
            continue
        found = run_at(case, problem.network, w, grid)
        if found.runtime_agrees is not False:
            return found
        second_best = second_best or found
    return second_best


def holds_exactly(case: Case, network: Network, w: list[Fraction]) -> bool:
    """Is w in the box and the network's output there in a region, for real numbers, strictly where asked?"""
    if not case.allows(w):
        return False
    x = np.array([float(q) for q in w])
    with np.errstate(over="ignore", invalid="ignore"):
        f, error = network(x), network.forward_error(x, np.abs(x) * EPS + SMALLEST)  # w is no float64 everywhere
    open_regions = []
    for region in case.regions:
        verdicts = [_row_holds(row, f, error) for row in region]
        if all(verdicts):
            return True
        if None in verdicts and False not in verdicts:
            open_regions.append(region)
    if not open_regions:
        return False
    exact = network.exact(w)
    return any(all(row.holds(exact) for row in region) for region in open_regions)


def _row_holds(row: Row, f: Vector, error: Vector) -> bool | None:
    """Does the row hold at outputs within `error` of f? None: it depends."""
    index = np.array([j for j, _ in row.coefficients])
    try:
        c, d = np.array([float(c) for _, c in row.coefficients]), float(row.bound)
    except OverflowError:  # products of constants can be larger than any float64: rationals decide
        return None
    size, operations = np.abs(c) + SMALLEST, len(c) + 8  # the coefficients are rounded, perhaps to zero
    with np.errstate(over="ignore", invalid="ignore"):
        noise = size @ error[index] * 1.01 + gamma(operations) * (size @ np.abs(f[index]) + abs(d))
        noise += SMALLEST * (float(np.abs(f[index]).sum()) + 4.0 * operations)
        margin = float(c @ f[index] - d)
    return None if not abs(margin) > noise else margin < 0  # a NaN decides nothing


def run_at(case: Case, network: Network, w: list[Fraction], grid: Grid) -> Counterexample:
    """The counterexample at a point that holds exactly, and what the model's own runtime makes of it."""
    texts = tuple(decimal_text(q) or str(q) for q in w)
    x = np.array([float(q) for q in w])
    off_grid = int((~grid.has).sum())
    answer = None if network.runtime is None else network.runtime(x)
    if answer is None or answer.shape != (network.classes,):
        return Counterexample(texts, tuple(float(y) for y in network(x)), off_grid=off_grid)
    outputs = tuple(float(y) for y in answer)
    agrees = bool(np.isfinite(answer).all()) and case.violated([Fraction(y) for y in outputs])
    return Counterexample(texts, outputs, str(getattr(network.runtime, "name", "its runtime")), agrees, off_grid)


def _deeper(problem: Problem, v: Vector) -> Iterator[Vector]:
    """v, then points with more and more slack: towards the corner of the box that lowers the worst row."""
    yield v
    assert problem.domain is not None
    low, high = problem.domain
    network = problem.network
    clause = problem.nearest_clause(v)
    margin = _margin(network, clause, v)
    for _ in range(STEPS):
        row = int(clause.margins(network(v)).argmax())
        F, _ = network.linear_piece(network.pattern(v))
        g = clause.C[row] @ F
        corner = np.where(g > 0, low, np.where(g < 0, high, v))
        tries = [v + s * (corner - v) for s in 0.5 ** np.arange(0, 24, 2)]
        values = [_margin(network, clause, u) for u in tries]
        best = int(np.argmin(values))
        if not values[best] < margin:
            return
        v, margin = tries[best], values[best]
        yield v


def _margin(network: Network, clause: Clause, v: Vector) -> float:
    return float(clause.margins(network(v)).max())
