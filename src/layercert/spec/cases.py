"""What a property file means: a union of cases, each an input box with a union of output polyhedra, in exact rationals.

A point is a counterexample ("sat") when for some case its input lies in the box and its output in one of the regions,
strict inequalities taken strictly. Nothing is rounded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Interval:
    """low <= value <= high, each side perhaps strict or (None) open to infinity."""

    low: Fraction | None = None
    high: Fraction | None = None
    low_strict: bool = False
    high_strict: bool = False

    def below(self, value: Fraction, strict: bool) -> Interval:
        if self.high is None or value < self.high or (value == self.high and strict):
            return Interval(self.low, value, self.low_strict, strict)
        return self

    def above(self, value: Fraction, strict: bool) -> Interval:
        if self.low is None or value > self.low or (value == self.low and strict):
            return Interval(value, self.high, strict, self.high_strict)
        return self

    def meet(self, other: Interval) -> Interval:
        both = self if other.high is None else self.below(other.high, other.high_strict)
        return both if other.low is None else both.above(other.low, other.low_strict)

    @property
    def empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_strict or self.high_strict))

    def __contains__(self, value: Fraction) -> bool:
        above = self.low is None or value > self.low or (value == self.low and not self.low_strict)
        below = self.high is None or value < self.high or (value == self.high and not self.high_strict)
        return above and below


@dataclass(frozen=True, slots=True)
class Row:
    """sum of c * y_j over `coefficients` <= bound (or <, if strict)."""

    coefficients: tuple[tuple[int, Fraction], ...]
    bound: Fraction
    strict: bool
    line: int = 0

    def holds(self, y: Sequence[Fraction]) -> bool:
        value = sum((c * y[j] for j, c in self.coefficients), Fraction(0))
        return value < self.bound or (value == self.bound and not self.strict)


@dataclass(frozen=True, slots=True)
class Case:
    """A box of inputs and, over it, the union of `regions`: in each of them all rows hold."""

    box: tuple[Interval, ...]
    regions: tuple[tuple[Row, ...], ...]

    def allows(self, x: Sequence[Fraction]) -> bool:
        return len(x) == len(self.box) and all(value in side for value, side in zip(x, self.box, strict=True))

    def violated(self, y: Sequence[Fraction]) -> bool:
        return any(all(row.holds(y) for row in region) for region in self.regions)

    @property
    def strict(self) -> bool:
        """Does any inequality exclude its own boundary?"""
        sides = any(side.low_strict or side.high_strict for side in self.box)
        return sides or any(row.strict for region in self.regions for row in region)


@dataclass(frozen=True)
class Spec:
    """A property: the cases, and the variables it speaks about in the flattened order of the model.

    Attributes:
        version: "1.0" or "2.0", of VNN-LIB.
        inputs: How many input variables there are.
        outputs: How many output variables there are.
        cases: Input boxes, each with its unsafe set of outputs; a counterexample violates one of them.
        input_shape: The shape of the input as declared.
        output_shape: The shape of the output as declared.
        source: Where it was read from.
        why_none: With no case at all, why the constraints can never hold.
    """

    version: str
    inputs: int
    outputs: int
    cases: tuple[Case, ...]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    source: str = "specification"
    why_none: str = ""

    def satisfied(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """Is (x, y) a counterexample, exactly?

        Args:
            x: The inputs.
            y: The outputs.

        Returns:
            Whether some case's box holds x and its unsafe set holds y.
        """
        return any(case.allows(x) and case.violated(y) for case in self.cases)

    def __str__(self) -> str:
        regions = sum(len(case.regions) for case in self.cases)
        return (
            f"{self.source}: VNN-LIB {self.version}, {self.inputs} inputs, {self.outputs} outputs, "
            f"boxes: {len(self.cases)}, unsafe regions: {regions}"
        )
