"""Are a problem's numbers of a size for which the rounding margins of the searches hold?

Relative margins say nothing about numbers that overflow or vanish. While every value and every coefficient that a pass
can meet is at most LARGE, no product of two overflows, and an underflow (5e-324 at a time, enlarged by two such numbers
at most) costs less than TINY, which all margins include. Beyond that nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from layercert.arrays import LARGE
from layercert.problem import Clause, Problem

#: Clauses that go through the layers side by side.
TOGETHER = 64


def out_of_range(problem: Problem, radius: float) -> str:
    """Why nothing can be proved on the ball of this radius in double precision; "" where all is well."""
    network = problem.network
    box = problem.box
    reach = np.full(network.inputs, radius) if box is None else np.minimum(np.maximum(-box.lo, box.hi), radius)
    sizes = [abs(W) for W in network.maps]
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.abs(problem.x) + reach
        top = float(value.max())
        for W, b in zip(sizes, network.biases, strict=True):
            value = W @ value + np.abs(b)
            top = max(top, float(value.max()))
        for clauses in _batches(problem.clauses):
            size = np.abs(np.concatenate([clause.C for clause in clauses]))
            d = np.abs(np.concatenate([clause.d for clause in clauses]))
            top = max(top, float((size @ value + d).max(initial=0.0)), float(size.max(initial=0.0)))
            pull = size
            for W in reversed(sizes):
                pull = pull @ W
                top = max(top, float(pull.max(initial=0.0)))
        # passes for the bounds of a hidden layer start there
        pull = np.ones(network.widths[-1]) if network.L else np.zeros(0)
        for W in reversed(sizes[:-1]):
            pull = np.maximum(pull, 1.0) @ W
            top = max(top, float(pull.max()))
    if top <= LARGE:  # a NaN is not
        return ""
    return (
        f"numbers of this network grow beyond {LARGE:.0e} within the ball, too large for proofs in double precision; "
        "scale the weights down (a layer's weights and all later biases by the same factor)"
    )


def _batches(clauses: Sequence[Clause]) -> Iterator[Sequence[Clause]]:
    return (clauses[start : start + TOGETHER] for start in range(0, len(clauses), TOGETHER))
