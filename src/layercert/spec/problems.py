"""A case of a property as a distance problem: its box as the domain, its regions as clauses, all rounded outward.

The problem's unsafe set contains the case's, so "nothing unsafe in the domain" proves the case empty. Strict
inequalities are closed here for the same reason. Whether a point is a true counterexample is decided elsewhere, in
rationals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from layercert.arrays import SMALLEST, Matrix, Vector, gamma
from layercert.errors import SpecError
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.questions import check_network
from layercert.spec.cases import Case, Row, Spec
from layercert.spec.rounding import float_above, float_below


def check_fit(spec: Spec, network: Network) -> None:
    """The property must speak about this network's inputs and outputs."""
    check_network(network)
    if not isinstance(spec, Spec):
        got = f"{type(spec).__name__} {str(spec)!r:.60}"
        raise SpecError(f"a property is what lc.load_spec(FILE) returns, got {got}; write lc.load_spec(...) around it")
    for what, wanted, there in (("inputs", spec.inputs, network.inputs), ("outputs", spec.outputs, network.classes)):
        if wanted != there:
            raise SpecError(
                f"{spec.source} is about a network with {wanted} {what}, {network.source} has {there}; "
                "is it the property of another model?"
            )
    dropped = getattr(network, "dropped", "")
    if dropped:
        raise SpecError(
            f"{spec.source} speaks about the model's outputs, but the {dropped} at the end of {network.source} is not "
            "part of the network here; state the property for a model that ends with its logits"
        )


def box_of(case: Case) -> tuple[Vector, Vector]:
    """The smallest box of float64 numbers that contains the case's."""
    try:
        low = [float_below(side.low) for side in case.box if side.low is not None]
        high = [float_above(side.high) for side in case.box if side.high is not None]
    except OverflowError:
        low = high = [math.inf]
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SpecError("an input bound is beyond the range of float64")
    return np.array(low), np.array(high)


def problem_of(case: Case, network: Network, shrink: float = 0.0) -> Problem:
    """The question whether the case holds anywhere; `shrink` > 0 asks for points that are unsafe by that much."""
    low, high = box_of(case)
    x = np.clip(0.5 * low + 0.5 * high, low, high)
    sizes = _output_sizes(network, np.maximum(np.abs(low), np.abs(high)))
    clauses = []
    for region in case.regions:
        C, d = clause_of(region, sizes)
        clauses.append(Clause(C, d - shrink * (1.0 + np.abs(d))))
    whole = Problem(network, x, tuple(clauses), Norm(math.inf), domain=(low, high))
    return whole.within(whole.reach)


def _scale(row: Row) -> Fraction:
    """What makes the coefficients whole numbers without a common divisor, times a power of two: about 1 at most."""
    whole = math.lcm(*(c.denominator for _, c in row.coefficients))
    common = math.gcd(*(int(c * whole) for _, c in row.coefficients))
    top = max(abs(int(c * whole)) // common for _, c in row.coefficients)
    return Fraction(whole, common * (1 << (top.bit_length() - 1)))


def hull_problem(cases: Sequence[Case], lows: Matrix, highs: Matrix, network: Network) -> Problem:
    """The regions of several cases, in their order, as clauses over the least box that contains all of theirs.

    Args:
        lows: The cases' boxes (`box_of`), a row each.
        highs: Their upper ends.
    """
    low, high = lows.min(axis=0), highs.max(axis=0)
    sizes = _output_sizes(network, np.maximum(np.abs(low), np.abs(high)))
    clauses = tuple(Clause(*clause_of(region, sizes)) for case in cases for region in case.regions)
    return Problem(network, np.clip(0.5 * low + 0.5 * high, low, high), clauses, Norm(math.inf), domain=(low, high))


def clause_of(region: tuple[Row, ...], sizes: Vector) -> tuple[Vector, Vector]:
    """Rows C f <= d that contain the region's; one row of zeros, always true, for a region without rows."""
    C, d = np.zeros((max(len(region), 1), len(sizes))), np.zeros(max(len(region), 1))
    for i, row in enumerate(region):
        try:
            d[i] = _fill(row, C[i], sizes)
        except (OverflowError, ValueError):
            raise SpecError(f"line {row.line}: the numbers of the constraint are beyond the range of float64") from None
    return C, d


def _fill(row: Row, out: Vector, sizes: Vector) -> float:
    """Write the coefficients and return the right-hand side, rounded up.

    The row is scaled to whole numbers first, then by a power of two: decimals such as 0.1 become exact. Where they do
    not (more than 53 bits), the bound is enlarged by what the rounded coefficients may be wrong by: |f_j| <= sizes_j.
    """
    scale = _scale(row)
    bound = row.bound * scale
    for j, c in row.coefficients:
        out[j] = float(c * scale)
        error = abs(Fraction(float(out[j])) - c * scale)
        if error:
            bound += error * Fraction(float(sizes[j]))
    return float_above(bound)


def exact_clauses(regions: Sequence[tuple[Row, ...]], outputs: int) -> tuple[tuple[Clause, ...], list[int]]:
    """Clauses whose coefficients are the regions' own, whatever their digits, and the outputs that they need twice.

    A coefficient of more than 53 bits is a sum of float64 numbers. Each but the first has a column of its own, for a
    copy of the output: column `outputs + i` stands for output `copies[i]`.
    """
    copies: list[int] = []
    split = []
    for region in regions:
        rows = []
        for row in region:
            scale = _scale(row)
            bound = row.bound * scale
            try:
                cells = [(j, part) for j, c in row.coefficients for part in _parts(c * scale)]
                rows.append((_placed(cells, copies, outputs), float_above(bound)))
            except (OverflowError, ValueError):
                raise SpecError(f"line {row.line}: the constraint's numbers are beyond the range of float64") from None
        split.append(rows or [({}, 0.0)])
    clauses = []
    for rows in split:
        C, d = np.zeros((len(rows), outputs + len(copies))), np.array([bound for _, bound in rows])
        for r, (cells_of_row, _) in enumerate(rows):
            for column, part in cells_of_row.items():
                C[r, column] = part
        clauses.append(Clause(C, d))
    return tuple(clauses), copies


def _placed(cells: list[tuple[int, float]], copies: list[int], outputs: int) -> dict[int, float]:
    """A column for each part: the output's own for the first, that of a copy for the next; adds missing copies."""
    placed: dict[int, float] = {}
    for j, part in cells:
        columns = [j, *(outputs + i for i, copy in enumerate(copies) if copy == j)]
        free = next((column for column in columns if column not in placed), None)
        if free is None:
            copies.append(j)
            free = outputs + len(copies) - 1
        placed[free] = part
    return placed


def _parts(q: Fraction) -> list[float]:
    """Float64 numbers whose sum is q exactly, the largest first; ValueError where what is left vanishes."""
    parts = []
    while q:
        part = float(q)
        if part == 0.0:
            raise ValueError("below the least float64")
        parts.append(part)
        q -= Fraction(part)
    return parts


def _output_sizes(network: Network, size: Vector) -> Vector:
    """Bounds of |f_j| wherever |x| <= size, rounded up."""
    with np.errstate(over="ignore", invalid="ignore"):
        for W, b in zip(network.maps, network.biases, strict=True):
            # products may vanish: each is then wrong by the least float64 at most
            size = (abs(W) @ size + np.abs(b)) * (1.0 + gamma(W.shape[1] + 8)) + SMALLEST * W.shape[1]
            size = np.where(np.isnan(size), np.inf, size)
    return size
