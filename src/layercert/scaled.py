"""A problem with a weighted norm as one with a plain norm: in scaled coordinates u, in which every search works.

Let D hold the weights and S = diag(s) their inverses, rounded. With x' = x / s, rounded, and v = x + S(u - x'):

    ||D(v - x)|| = ||D S (u - x')||, and D S is the identity up to one rounding per coordinate;
    W^0 v + b^0 = W' u + b^0 + e, where W' = W^0 S, rounded.

What rounding leaves, |e| <= E(|x'| + room) + |W^0||x - S x'| with E = |W^0 S - W'|, grows through the layers by their
absolute weights and loosens the unsafe set: every unsafe point of the problem is one of the scaled problem, so a proved
bound there is one here. Witnesses are settled here, on the network itself. For weights that are powers of two
nothing is rounded and the two problems are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from layercert.arrays import EPS, SMALLEST, LinearMap, Mask, Vector, gamma
from layercert.errors import OptionError
from layercert.linear_maps import frozen, frozen_sparse, terms
from layercert.network import Network
from layercert.norms import Norm, WeightedNorm
from layercert.problem import Clause, Problem

#: D S differs from the identity by less than this.
SLIP = 2.0**-51


@dataclass(frozen=True, eq=False)
class Scaled:
    """A problem and its equal in scaled coordinates; without weights they are the same.

    Attributes:
        original: The problem that was asked.
        problem: The one for the searches, with a plain norm. Its unsafe set holds within `reach` of x'.
        scale: s, what a coordinate of an offset is multiplied by on the way back.
        slip: How much a distance may differ between the two, relative.
        reach: No farther than this are distances of the scaled problem meant.
    """

    original: Problem
    problem: Problem
    scale: Vector
    slip: float
    reach: float

    def offset(self, step: Vector) -> Vector:
        """v - x for the offset u - x'."""
        return step * self.scale

    def inwards(self, offset: Vector) -> Vector:
        """u - x' for the offset v - x."""
        return offset / self.scale

    def clause(self, clause: Clause) -> Clause:
        """The clause of the problem that a clause of the scaled one stands for."""
        at = next(i for i, each in enumerate(self.problem.clauses) if each is clause)
        return self.original.clauses[at]

    def lower(self, bound: float) -> float:
        """A proved bound of the scaled problem as one of the problem."""
        return min(bound, self.reach) * (1.0 - self.slip)

    def within(self, distance: float) -> float:
        """What is within this distance is within so much in scaled coordinates."""
        return distance * (1.0 + self.slip)

    def inside(self, distance: float) -> float:
        """A distance of the problem that `within` does not take beyond this one of the scaled problem."""
        return math.nextafter(distance / (1.0 + self.slip), 0.0) if math.isfinite(distance) else distance


@np.errstate(over="ignore", invalid="ignore")  # margins that are no numbers prove nothing
def scaled(problem: Problem, reach: float) -> Scaled:
    """The problem in coordinates in which its norm is a plain one; `reach` is how far a search will look.

    Args:
        problem: The question.
        reach: No search looks at points farther away than this, a finite distance; the smaller, the less is lost to
            rounding.

    Returns:
        Both problems; the same one twice where the norm has no weights.

    Raises:
        OptionError: A weight is so small that the network's numbers overflow.
    """
    norm = problem.norm
    if not isinstance(norm, WeightedNorm):
        return Scaled(problem, problem, np.ones_like(problem.x), 0.0, math.inf)
    network = problem.network
    s = 1.0 / norm.weights
    x = problem.x / s
    exact = _is_power_of_two(norm.weights)
    slip = 0.0 if exact.all() else SLIP
    W, rounding = _times_columns(network.maps[0], s, exact)
    reach = min(reach, problem.reach) * (1.0 + slip)
    domain = _domain(problem, s, x)
    room = np.full(len(x), reach)
    if domain is not None:
        room = np.minimum(room, np.maximum(x - domain[0], domain[1] - x) * (1.0 + gamma(2)))
    kept = x * s == problem.x  # exact for a power of two, unless something underflows
    lost = np.where(exact & kept, 0.0, 2.0 * EPS * np.abs(problem.x) + 4.0 * (1.0 + s) * SMALLEST)
    error = _grown(network, rounding @ (np.abs(x) + room), abs(network.maps[0]) @ lost)
    clauses = tuple(_loosened(clause, error) for clause in problem.clauses)
    inner = replace(
        problem,
        network=Network((W, *network.maps[1:]), network.biases, network.source, input_range=_range(problem, s, x)),
        x=x,
        clauses=clauses,
        norm=Norm(norm.p),
        radius=problem.radius * (1.0 + 2.0 * slip),
        domain=domain,
    )
    return Scaled(problem, inner, s, slip, reach)


def _range(problem: Problem, s: Vector, x: Vector) -> tuple[Vector, Vector] | None:
    """What the model clips its input to, an interval per coordinate now: for attacks; nothing is proved with it."""
    if problem.network.input_range is None:
        return None
    low, high = ((end - problem.x) / s + x for end in problem.network.input_range)
    return low, high


def _is_power_of_two(values: Vector) -> Mask:
    return np.asarray(np.frexp(values)[0] == 0.5)


def _times_columns(W: LinearMap, s: Vector, exact: Mask) -> tuple[LinearMap, LinearMap]:
    """W S, rounded, and a bound of the error of each entry."""
    with np.errstate(over="ignore"):
        product: LinearMap = W * s if isinstance(W, np.ndarray) else W.multiply(s[None, :]).tocsr()
    if not np.isfinite(product if isinstance(product, np.ndarray) else product.data).all():
        at = int(s.argmax())
        raise OptionError(
            f"the weight {1.0 / s[at]:g} at position {at} is too small for this network: its first layer overflows in "
            "the scaled inputs; use weights nearer to 1"
        )
    size = abs(product)
    # an entry that underflows may lose all its bits, also by a power of two
    if isinstance(size, np.ndarray):
        kept = exact[None, :] & (product / s == W)
        rounding = np.where(kept, 0.0, EPS * size + SMALLEST)
        return frozen(product, "the first layer"), np.asarray(rounding * (W != 0))
    back: LinearMap = product.multiply(1.0 / s[None, :]).tocsr()
    kept = exact.all() and (back != W).nnz == 0
    rounding = size * 0.0 if kept else EPS * size + SMALLEST * (abs(W) > 0).astype(np.float64)
    return frozen_sparse(product, "the first layer"), rounding


def _domain(problem: Problem, s: Vector, x: Vector) -> tuple[Vector, Vector] | None:
    """The domain around x', each end moved outwards by more than it may be wrong."""
    if problem.domain is None:
        return None
    ends = []
    for end, outwards in zip(problem.domain, (-math.inf, math.inf), strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            offset = (end - problem.x) / s * (1.0 + gamma(4))
            moved = np.nextafter(np.where(np.isinf(end), end, x + offset), outwards)
        ends.append(np.where(end == problem.x, x, moved))
    return np.minimum(ends[0], x), np.maximum(ends[1], x)


def _grown(network: Network, *parts: Vector) -> Vector:
    """How far the outputs may be off when the first preactivations are off by the sum of the parts; rounded up."""
    error = np.asarray(sum(parts)) * (1.0 + gamma(2 * network.inputs + 8))
    if not error.any():
        return np.zeros(network.classes)
    for W in network.maps[1:]:
        error = abs(W) @ error * (1.0 + gamma(terms(W) + 4)) + terms(W) * SMALLEST
    return np.asarray(error)


def _loosened(clause: Clause, error: Vector) -> Clause:
    """C f <= d for the true outputs implies C f <= d + |C| error for those that are off by the error."""
    if not error.any():
        return Clause(clause.C, clause.d, clause.target)
    more = np.abs(clause.C) @ error * (1.0 + gamma(len(error) + 4))
    return Clause(clause.C, np.nextafter(clause.d + more, np.inf), clause.target)
