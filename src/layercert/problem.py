"""What is asked: a network, an input point, an unsafe set of outputs, a norm, a radius, a box domain.

The unsafe set is a union of polyhedra in output space, {f : C f <= d} for each clause. Robustness of label y is the
special case of one row for each target j: f_y - f_j <= 0. A tie therefore counts as unsafe: the unsafe set is closed
and the nearest unsafe point always exists when the set is not empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from layercert.arrays import SMALLEST, Indices, Matrix, Vector, gamma
from layercert.errors import InputError
from layercert.network import Network
from layercert.norms import Box, Norm, WeightedNorm
from layercert.questions import (
    Discrete,
    Fixed,
    OneOf,
    Target,
    Weights,
    check_discrete,
    check_fixed,
    check_network,
    check_radius,
    check_targets,
    check_weights,
    names_of,
    whole_number,
)
from layercert.shapes import flattened


@dataclass(frozen=True, eq=False)
class Clause:
    """One polyhedron {f : C f <= d} of the unsafe set.

    Attributes:
        C: One row of coefficients per inequality, a column per output.
        d: The right-hand sides.
        target: The class it stands for, if any.
    """

    C: Matrix
    d: Vector
    target: int | None = None

    def margins(self, f: Vector) -> Vector:
        """C f - d along the last axis; the output is in the clause when all are <= 0.

        Args:
            f: One output of the network, or several along the first axis.

        Returns:
            One number per row of C.
        """
        return f @ self.C.T - self.d

    def rounding(self, f: Vector, error: Vector) -> Vector:
        """By how much computed margins may be wrong, underflow included.

        Args:
            f: One output of the network, computed in float64.
            error: How far each entry of f may be from the truth.

        Returns:
            One number per row of C.
        """
        size, operations = np.abs(self.C), len(f) + 4
        noise = gamma(operations) * (size @ np.abs(f) + np.abs(self.d))
        return np.asarray(size @ error * 1.01 + noise + 4.0 * operations * SMALLEST)

    def exact_margins(self, f: Sequence[Fraction]) -> list[Fraction]:
        """C f - d in rational numbers.

        Args:
            f: One output of the network, exactly.

        Returns:
            One number per row of C.
        """
        return [
            sum((Fraction(float(c)) * y for c, y in zip(row, f, strict=True) if c), -Fraction(float(d)))
            for row, d in zip(self.C, self.d, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Problem:
    """Find the point nearest to x whose output is unsafe, within the radius and inside the domain.

    `robustness` makes the usual one; with clauses of your own, `layercert.run.closest` and `decide` answer it.

    Attributes:
        network: The network f.
        x: The point from which distances count.
        clauses: The unsafe set, a union of polyhedra of outputs.
        norm: The norm of distances.
        radius: How far the search looks.
        domain: (low, high), the box of points that count; None for all points.
        label: The class whose robustness is asked, if that is the question.
        targets: The classes that were asked for, None for any other class.
        names: The names of the inputs, () where they have none.
        discrete: Inputs that are whole numbers or alternatives, None where there are none.
        shape: The shape in which the input was given, () where it was not.
    """

    network: Network
    x: Vector
    clauses: tuple[Clause, ...]
    norm: Norm
    radius: float = math.inf
    domain: tuple[Vector, Vector] | None = None
    label: int | None = None
    targets: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    discrete: Discrete | None = None
    shape: tuple[int, ...] = ()

    @cached_property
    def box(self) -> Box | None:
        """The domain as offsets from x, each widened by one rounding so that nothing is cut off."""
        if self.domain is None:
            return None
        low, high = self.domain
        lo = np.where(low == self.x, 0.0, np.nextafter(low - self.x, -np.inf))
        hi = np.where(high == self.x, 0.0, np.nextafter(high - self.x, np.inf))
        return Box(np.minimum(lo, 0.0), np.maximum(hi, 0.0))

    @cached_property
    def reach(self) -> float:
        """No point of the domain is farther from x than this (inf without a domain), rounded up."""
        if self.box is None:
            return math.inf
        ends = np.maximum(-self.box.lo, self.box.hi)
        return self.norm.distance_up(np.zeros_like(ends), ends) * (1 + 1e-9)

    def margin(self, v: Vector) -> float:
        """How far the output at v is from unsafe: <= 0 exactly when some clause holds (in float64).

        Args:
            v: A point.

        Returns:
            The least over the clauses of their largest margin; inf without clauses.
        """
        return min((float(c.margins(self.network(v)).max()) for c in self.clauses), default=math.inf)

    def violated(self, v: Vector) -> Clause | None:
        """The clause that holds at v with the greatest slack, or None when v is safe (in float64).

        Args:
            v: A point.

        Returns:
            The clause, or None.
        """
        nearest = self.nearest_clause(v)
        return nearest if float(nearest.margins(self.network(v)).max()) <= 0 else None

    def nearest_clause(self, v: Vector) -> Clause:
        """The clause that holds at v, or comes nearest to it, by its margin.

        Args:
            v: A point.

        Returns:
            The clause.
        """
        f = self.network(v)
        return min(self.clauses, key=lambda clause: float(clause.margins(f).max()))

    def is_unsafe(self, v: Vector, strict: bool = False) -> bool:
        """Does some clause hold at v, for the network as a function of real numbers?

        Args:
            v: A point.
            strict: Whether a tie does not count.

        Returns:
            The truth, whatever the rounding.
        """
        return self.holding(v, strict) is not None

    def holding(self, v: Vector, strict: bool = False) -> Clause | None:
        """A clause that holds at v, for the network as a function of real numbers.

        Float64 decides where its rounding error allows; a tie up to rounding is settled in rational arithmetic.

        Args:
            v: A point.
            strict: Whether a tie does not count.

        Returns:
            Of the clauses that hold, the one with the greatest slack in float64; None when v is safe.
        """
        exact: list[Fraction] | None = None
        with np.errstate(over="ignore", invalid="ignore"):
            f, error = self.network(v), self.network.forward_error(v)
            judged = [(clause, clause.margins(f), clause.rounding(f, error)) for clause in self.clauses]
        for clause, margins, noise in sorted(judged, key=lambda one: float(one[1].max())):
            if bool((margins > noise).any()):
                continue
            if bool((margins < -noise).all()):
                return clause
            if exact is None:
                exact = self.network.exact(v)
            worst = max(clause.exact_margins(exact))
            if worst < 0 or (worst == 0 and not strict):
                return clause
        return None

    def distance(self, v: Vector) -> float:
        """||v - x||, rounded up.

        Args:
            v: A point.

        Returns:
            The distance, which is at most the radius only for points within the radius.
        """
        return self.norm.distance_up(self.x, v)

    def into_domain(self, v: Vector) -> Vector:
        """v clipped to the domain.

        Args:
            v: A point.

        Returns:
            The point of the domain nearest to it, coordinate by coordinate.
        """
        return v if self.domain is None else np.clip(v, *self.domain)

    def depends_on_input(self) -> bool:
        """Do the clauses' outputs depend on the input at all, as far as the zeros of the weights tell?

        Returns:
            False only if none of them does.
        """
        moves = np.ones(self.network.inputs, dtype=np.bool_)
        for W in self.network.maps:
            moves = np.asarray((W != 0) @ moves, dtype=np.bool_)
        return any(bool(((clause.C != 0) & moves).any()) for clause in self.clauses)

    def within(self, radius: float) -> Problem:
        """The same problem with another radius.

        Args:
            radius: How far the search looks.

        Returns:
            A new problem.
        """
        return replace(self, radius=radius)


# The signature is a contract, the part of `measure` that says what is asked.
def robustness(
    network: Network,
    x: ArrayLike,
    norm: str | float | Norm = "linf",
    label: int | None = None,
    radius: float | None = None,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    *,
    target: Target | None = None,
    weights: Weights | None = None,
    fixed: Fixed | None = None,
    integer: Fixed | None = None,
    one_of: OneOf | None = None,
) -> Problem:
    """The robustness problem of the paper (eq. 1), every argument checked at the door.

    Args:
        network: The classifier; with a single output its classes are 0 and 1, divided by its threshold.
        x: One input: an array of any shape with as many numbers as the network has inputs.
        norm: "l1", "l2", "linf" or any number p >= 1.
        label: The class whose robustness is asked for; by default the class that the network gives x.
        radius: How far a search looks; None for no limit.
        domain: (low, high), two numbers or two arrays: only points inside this box count, and x must be one.
        target: Ask for points of this class, or of one of these, instead of any other class.
        weights: One number > 0 per input, or a mapping from some inputs to theirs: distances are ||weights * (v - x)||.
        fixed: Inputs that stay as they are, by position or by name.
        integer: Inputs that are whole numbers, by position or by name.
        one_of: Groups of inputs of which exactly one is 1 and the others are 0.

    Returns:
        The problem, with one clause per other class, or per target.

    Raises:
        InputError: x, the label or the domain does not fit the network.
        OptionError: An unknown norm or a radius out of range.
    """
    network = check_network(network).classifier
    point, names, shape = network.point(x), names_of(network, x), tuple(np.shape(x))
    box = check_domain(network, point, domain)
    if fixed is not None:
        box = _held(point, box, check_fixed(network, fixed, names))
    y = network.classify(point) if label is None else check_label(network, label)
    measured_by = Norm.of(norm)
    if weights is not None:
        measured_by = WeightedNorm(measured_by.p, check_weights(network, weights, names))
    targets = None if target is None else check_targets(network, target)
    if targets is None:
        clauses = tuple(over(j, (y,), network.classes) for j in range(network.classes) if j != y)
    else:
        clauses = tuple(over(j, range(network.classes), network.classes) for j in targets)
    discrete = check_discrete(point, integer, one_of, names)
    return Problem(network, point, clauses, measured_by, check_radius(radius), box, y, targets, names, discrete, shape)


def over(target: int, others: Iterable[int], classes: int) -> Clause:
    """The outputs of which the target's is at least as large as those of some others: f_k - f_target <= 0 for each k.

    Args:
        target: A class.
        others: Classes; the target itself among them does not count.
        classes: How many classes there are.

    Returns:
        The clause, a row per other class.
    """
    rows = [k for k in others if k != target]
    C = np.zeros((len(rows), classes))
    C[np.arange(len(rows)), rows] = 1.0
    C[:, target] = -1.0
    return Clause(C, np.zeros(len(rows)), target=target)


def _held(x: Vector, domain: tuple[Vector, Vector] | None, fixed: Indices) -> tuple[Vector, Vector]:
    """The domain in which some inputs stay as they are."""
    low, high = domain or (np.full(len(x), -np.inf), np.full(len(x), np.inf))
    low, high = low.copy(), high.copy()
    low[fixed] = high[fixed] = x[fixed]
    return low, high


def check_label(network: Network, label: int) -> int:
    y = whole_number(label)
    if y is None:
        raise InputError(f"the label must be a class number, got {label!r}")
    if not 0 <= y < network.classes:
        raise InputError(
            f"label {y} is out of range: the network has {network.classes} outputs, "
            f"so labels are 0..{network.classes - 1}; leave it out to take the network's own class"
        )
    return y


def check_domain(
    network: Network, x: Vector, domain: tuple[ArrayLike, ArrayLike] | None
) -> tuple[Vector, Vector] | None:
    if domain is None:
        return None
    try:
        low_in, high_in = domain
        low, high = _end_of_domain(network, low_in, "low"), _end_of_domain(network, high_in, "high")
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        got = " ".join(repr(domain).split())
        raise InputError(
            f"a domain is (low, high), two numbers or two arrays of {network.inputs} numbers, got {got:.80}"
        ) from None
    if np.isnan(low).any() or np.isnan(high).any():
        raise InputError("the domain holds NaN; give finite or infinite ends")
    if (low > high).any():
        i = int(np.flatnonzero(low > high)[0])
        raise InputError(
            f"the domain is empty: at position {i} low = {low[i]:g} is above high = {high[i]:g}; swap the ends?"
        )
    if (x < low).any() or (x > high).any():
        i = int(np.flatnonzero((x < low) | (x > high))[0])
        raise InputError(
            f"the input is outside the domain: x[{i}] = {x[i]:g}, allowed {low[i]:g}..{high[i]:g}; "
            "scale the input as the model expects, or widen the domain"
        )
    return low, high


def _end_of_domain(network: Network, end: ArrayLike, name: str) -> Vector:
    """A number for all inputs, or one for each in the model's own shape or flat."""
    array = np.asarray(end, dtype=np.float64)
    if array.size == network.inputs:
        return flattened(array, network.inputs, network.input_shape, f"{name} end of the domain")
    return np.broadcast_to(array.reshape(-1), (network.inputs,)).copy()
