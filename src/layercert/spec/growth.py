"""measure_spec: how far the input boxes of a property can grow before it is violated.

With c the centre and h the half widths of a box, t is the largest factor such that c +- t h holds no unsafe point: a
distance in the l_inf norm scaled by h. Substituting v_i = s_i u_i makes it a plain one: W^0 diag(s) u = W^0 v, from
u = c/s. Here s is h rounded up to so few bits that all products with the weights are exact in float64, so the network
in u *is* the network; what s and the rounded centre are off by is put back into both bounds in rationals.
Inputs whose range is a single number (h = 0) stay fixed. Strict inequalities count as closed: t is an infimum.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from layercert.arrays import LinearMap, Vector
from layercert.errors import SpecError
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem
from layercert.result import Result, Status, Verdict
from layercert.run import GAP, How, closest, deadline_of, decide
from layercert.session import GRACE
from layercert.spec.cases import Case, Interval, Spec
from layercert.spec.counterexample import holds_exactly
from layercert.spec.problems import check_fit, exact_clauses
from layercert.spec.rounding import float_above, float_below
from layercert.system import clock

#: With fewer bits than this for the half widths, the box would no longer be the property's.
FEWEST_BITS = 8
#: Where a witness is this near, in half widths, it may be the centre itself, which is no float64: it is looked at as it
#: is, in rationals.
AT_THE_CENTRE = 1e-9
#: Later cases are searched this much (relative) beyond the best bound so far, to cover the rounding of s.
BEYOND = 1e-5


@dataclass(frozen=True, eq=False)
class Growth:
    """lower <= t <= upper; the witness is an unsafe input at the factor `upper`.

    Attributes:
        status: exact, robust (no violation in reach) or undecided.
        lower: Proved: boxes this many times as large hold no counterexample.
        upper: The factor at which the witness lies, inf without one.
        witness: An unsafe input.
        case: Whose box the witness comes from, counted from 0.
        seconds: Wall seconds, without compiling.
        note: What else there is to say.
    """

    status: Status
    lower: float
    upper: float
    witness: Vector | None
    case: int | None
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        if self.status == Status.EXACT:
            text = f"exact: t = {self.upper:.6g}"
        elif self.status == Status.ROBUST and math.isinf(self.lower):
            text = "robust: every t"
        elif self.status == Status.ROBUST:
            text = f"robust: t > {self.lower:.6g}, no violation was found in reach"
        else:
            text = f"undecided: {self.lower:.6g} <= t <= {self.upper:.6g}"
        text += f", {self.seconds:.2f} s; {self.meaning}"
        return f"{text}; {self.note}" if self.note else text

    @property
    def meaning(self) -> str:
        """What t says about the property itself."""
        if math.isinf(self.lower):
            return "the property holds whatever the size of its boxes"
        if self.lower > 1:
            return "t > 1: the property holds with this much room"
        return "t <= 1: violated" if self.upper <= 1 else "t may be below or above 1: not decided"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; infinite numbers become None.

        Returns:
            A dictionary of numbers, strings and lists.
        """
        return {
            "status": str(self.status),
            "lower": self.lower if math.isfinite(self.lower) else None,
            "upper": self.upper if math.isfinite(self.upper) else None,
            "case": self.case,
            "meaning": self.meaning,
            "seconds": self.seconds,
            "note": self.note,
            "witness": None if self.witness is None else self.witness.tolist(),
        }


def measure_spec(
    network: Network,
    spec: Spec,
    time_limit: float | None = None,
    method: str | None = None,
    stack: str = "default",
    gap: float = GAP,
    threads: int | None = None,
) -> Growth:
    """The factor by which the input boxes can grow around their centres before the property is violated.

    Args:
        network: The network that the property speaks about.
        spec: The property, from `load_spec`.
        time_limit: Seconds, shared by the cases; None for no limit.
        method: Name of the search; by default chosen as `verify_spec` chooses: input splitting for few inputs.
        stack: The solvers for distance programs: "default", "library" or "paper".
        gap: The search ends when (upper - lower) / upper is this small, and "exact" means exact up to it.
        threads: How many threads each search may use; by default the method's own choice.

    Returns:
        Bounds of the factor t, and an input that violates the property at the upper one.

    Raises:
        SpecError: The property does not fit the network, or an input has no bounds.
        OptionError: An unknown method or stack, or a time limit, gap or number of threads out of range.
    """
    check_fit(spec, network)
    how = How(method, time_limit, stack=stack, gap=gap, threads=threads)
    started, deadline = clock.now(), deadline_of(time_limit)
    best = Growth(Status.ROBUST, math.inf, math.inf, None, None, 0.0)
    notes: list[str] = []
    for number, case in enumerate(spec.cases):
        # what is left, shared among the cases that are left
        left = None if deadline is None else max(deadline - clock.now(), 1e-3) / (len(spec.cases) - number)
        lower, upper, witness, note = _measure(network, case, best.upper, replace(how, time_limit=left))
        if upper < best.upper:
            best = replace(best, upper=upper, witness=witness, case=number)
        best = replace(best, lower=min(best.lower, lower))
        notes += [note] if note and note not in notes else []
    lower = min(best.lower, best.upper)
    if math.isfinite(best.upper) and best.upper - lower <= gap * best.upper:
        status = Status.EXACT
    else:
        status = Status.ROBUST if math.isinf(best.upper) and not notes else Status.UNDECIDED
    # what one case lacks may not matter for all of them
    note = "; ".join(notes) if status == Status.UNDECIDED else spec.why_none
    return replace(best, status=status, lower=lower, seconds=clock.now() - started, note=note)


def _measure(network: Network, case: Case, known: float, how: How) -> tuple[float, float, Vector | None, str]:
    """Bounds of one case's t, an unsafe input at the upper one, and a note; nothing beyond `known` matters."""
    frame = _Frame(network, case)
    problem = frame.problem(known * (1.0 + BEYOND))
    deadline = deadline_of(how.time_limit)
    # the exact answer, if half of the time is enough for it; otherwise the rest goes into a better lower bound
    half = None if how.time_limit is None else 0.5 * how.time_limit
    begun = clock.now()
    result = closest(problem, replace(how, time_limit=half))
    if result.status == Status.UNDECIDED and deadline is not None and half is not None and not result.interrupted:
        result = _narrowed(problem, result, how, deadline, clock.now() - begun - half)
    lower = frame.lower(result.lower)
    if not frame.moving.any():  # one point only: it is unsafe at every factor or at none
        lower = math.inf if result.status == Status.ROBUST else 0.0
    note = "" if result.status != Status.UNDECIDED else result.note or "the search ended without an answer"
    if result.witness is None or result.upper > problem.radius:
        return lower, math.inf, None, note
    upper, point = math.inf, None
    with suppress(clock.OutOfTime), clock.until(None if deadline is None else deadline + GRACE):
        upper, point = frame.upper(result)
    return lower, upper, point, note if point is not None else "the nearest unsafe point holds up to rounding only"


def _narrowed(problem: Problem, result: Result, how: How, deadline: float, late: float) -> Result:
    """Better bounds by deciding single radii: first t = 1, the property itself, then between the bounds reached.

    A search for the nearest point works in the whole ball of its upper bound and proves little before it ends. `late`
    is how much longer than it should the last search took: on large networks a look at a point alone takes a while, and
    many short searches would be late by the sum.
    """
    radius = 1.0
    tried = math.inf  # the least radius that could not be decided
    while deadline - clock.now() > late:
        top = min(result.upper, problem.radius, tried)
        if not result.lower < radius < top:
            radius = 2.0 * max(result.lower, 1.0) if math.isinf(top) else math.sqrt(max(result.lower, 1e-3 * top) * top)
        if not result.lower < radius < top or top <= result.lower * 1.05:
            break
        # a third of what is left for each, so that a radius out of reach does not use up everything
        ball = problem.within(radius)
        begun, third = clock.now(), max((deadline - clock.now()) / 3, 1e-3)
        part = decide(ball, replace(how, time_limit=third))
        late = max(late, clock.now() - begun - third)
        if part.interrupted:
            break
        if part.status == Verdict.ROBUST:
            result = replace(result, lower=max(result.lower, radius))
        elif part.status == Verdict.NOT_ROBUST:
            result = replace(result, upper=part.upper, witness=part.witness)
        else:
            tried = radius
    return result


class _Frame:
    """The change of variables of one case."""

    def __init__(self, network: Network, case: Case) -> None:
        self.network, self.case = network, case
        ends = [(side.low, side.high) for side in case.box if side.low is not None and side.high is not None]
        self.centre = [(low + high) / 2 for low, high in ends]
        self.half = [(high - low) / 2 for low, high in ends]
        self.moving = np.array([h > 0 for h in self.half])
        first = csr_array(network.maps[0])
        bits = 53 - _significant_bits(first.data[self.moving[first.indices]])
        if bits < FEWEST_BITS:
            raise SpecError(
                f"the first layer of {network.source} has weights with {53 - bits} significant bits, too many to "
                "rescale its inputs exactly; store the weights in float32"
            )
        self.scale = np.array([_up(h, bits) if h else 1.0 for h in self.half])
        self.x = np.array([float(c / Fraction(float(s))) for c, s in zip(self.centre, self.scale, strict=True)])

    def problem(self, radius: float) -> Problem:
        """The distance problem in u; its l_inf distance is t, up to the rounding of s and c."""
        network = self.network
        W0 = self._first_layer()
        # without bounds of the outputs coefficients must be exact: long ones are sums over copies of an output
        clauses, copies = exact_clauses(self.case.regions, network.classes)
        twice = np.concatenate([np.arange(network.classes), np.array(copies, np.intp)])
        maps, biases = [W0, *network.maps[1:]], list(network.biases)
        if copies:
            maps[-1], biases[-1] = maps[-1][twice], biases[-1][twice]
        scaled = Network.from_arrays(maps, biases, network.source)
        low = np.array([-np.inf if h else float_below(c) for c, h in zip(self.centre, self.half, strict=True)])
        high = np.array([np.inf if h else float_above(c) for c, h in zip(self.centre, self.half, strict=True)])
        return Problem(scaled, self.x, clauses, Norm(math.inf), radius, (low, high))

    def _first_layer(self) -> LinearMap:
        """W diag(s), which must be exact."""
        W = csr_array(self.network.maps[0])
        scale = self.scale[W.indices]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            product = W.data * scale
            kept = (product / W.data == scale) | (W.data == 0)
        if not (np.isfinite(product).all() and kept.all()):  # products that overflow or vanish
            raise SpecError(f"the ranges of {self.network.source}'s inputs cannot be rescaled within float64")
        return csr_array((product, W.indices.copy(), W.indptr.copy()), shape=W.shape)

    def lower(self, distance: float) -> float:
        """The t for which the box c +- t h is inside the ball of this radius in u."""
        if math.isinf(distance):
            return distance
        best = Fraction(10) ** 400
        for c, h, s, u in self._coordinates():
            off = abs(c - s * u)
            if h:
                best = min(best, (Fraction(distance) * s - off) / h)
            elif off > distance:
                return 0.0
        return max(0.0, float_below(best)) if best < Fraction(10) ** 300 else math.inf

    def upper(self, result: Result) -> tuple[float, Vector | None]:
        """The factor at which the witness lies, and the witness; (inf, None) when it holds up to rounding only."""
        assert result.witness is not None
        free = tuple(Interval() if h else side for h, side in zip(self.half, self.case.box, strict=True))
        closed = tuple(tuple(replace(row, strict=False) for row in region) for region in self.case.regions)
        case = Case(free, closed)
        if result.upper <= AT_THE_CENTRE and holds_exactly(case, self.network, self.centre):
            return 0.0, np.array([float(c) for c in self.centre])
        for stretch in (0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 5e-7):
            u = self.x + (result.witness - self.x) * (1.0 + stretch)
            point = [Fraction(float(v)) * s if h else c for v, (c, h, s, _) in zip(u, self._coordinates(), strict=True)]
            if holds_exactly(case, self.network, point):
                t = max(
                    (abs(v - c) / h for v, (c, h, _, _) in zip(point, self._coordinates(), strict=True) if h), default=0
                )
                return float_above(Fraction(t)), np.array([float(v) for v in point])
        return math.inf, None

    def _coordinates(self) -> list[tuple[Fraction, Fraction, Fraction, Fraction]]:
        """c, h, s and the rounded c/s of every input."""
        rounded = zip(self.centre, self.half, self.scale, self.x, strict=True)
        return [(c, h, Fraction(float(s)), Fraction(float(u))) for c, h, s, u in rounded]


def _significant_bits(W: Vector) -> int:
    """The most bits of a mantissa, trailing zeros left out."""
    mantissa = np.ldexp(np.abs(np.frexp(W)[0]), 53).astype(np.int64)
    lowest = (mantissa & -mantissa)[mantissa > 0]
    return 53 - int(np.log2(lowest).min()) if lowest.size else 0


def _up(h: Fraction, bits: int) -> float:
    """h rounded up to so many significant bits."""
    mantissa, exponent = math.frexp(float_above(h))
    return math.ldexp(math.ceil(math.ldexp(mantissa, bits)), exponent - bits)
