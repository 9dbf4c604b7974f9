"""A case of a property as a distance problem: its box as the domain, its regions as clauses, all rounded outward.

The problem's unsafe set contains the case's, so "nothing unsafe in the domain" proves the case empty. Strict
inequalities are closed here for the same reason. Whether a point is a true counterexample is decided elsewhere, in
rationals.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from layercert.arrays import Vector, gamma
from layercert.errors import SpecError
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Clause, Problem
from layercert.spec.cases import Case, Row, Spec
from layercert.spec.rounding import float_above, float_below


def check_fit(spec: Spec, network: Network) -> None:
    """The property must speak about this network's inputs and outputs."""
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
        raise SpecError("an input bound is beyond the range of float64") from None
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
    whole = math.lcm(*(c.denominator for _, c in row.coefficients))
    common = math.gcd(*(int(c * whole) for _, c in row.coefficients))
    top = max(abs(int(c * whole)) // common for _, c in row.coefficients)
    scale = Fraction(whole, common) / 2 ** (top.bit_length() - 1)
    bound = row.bound * scale
    for j, c in row.coefficients:
        out[j] = float(c * scale)
        error = abs(Fraction(float(out[j])) - c * scale)
        if error:
            bound += error * Fraction(float(sizes[j]))
    return float_above(bound)


def _output_sizes(network: Network, size: Vector) -> Vector:
    """Bounds of |f_j| wherever |x| <= size, rounded up."""
    for W, b in zip(network.maps, network.biases, strict=True):
        size = (np.abs(W) @ size + np.abs(b)) * (1.0 + gamma(W.shape[1] + 8))
    return size
