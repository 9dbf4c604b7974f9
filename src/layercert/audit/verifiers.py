"""Certified radii without branching: the largest radius at which a bound of the network still proves robustness."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layercert.arrays import Vector
from layercert.audit.case import Case
from layercert.bounds.interval import interval_contains_db
from layercert.bounds.linear import relax
from layercert.bounds.lipschitz import fast_lip
from layercert.bounds.relu import crown as crown_slopes
from layercert.bounds.relu import fast_lin as fast_lin_slopes
from layercert.geometry import Cells
from layercert.run import measure
from layercert.system import clock

#: Halvings of the interval in which the largest provable radius lies, and where the search for it begins.
HALVINGS, START = 16, 1e-4
#: CPU seconds for the linear bounds of the method `large`, which optimises them.
LARGE_LIMIT = 2.0


def largest(proves: Callable[[float], bool], unit: float) -> float:
    """The largest radius at which a proof succeeds, up to a part in 2^16: doubled until it fails, then halved.

    Args:
        proves: Whether robustness within a radius is proved; what holds at one radius holds at all smaller ones.
        unit: The order of distances.

    Returns:
        A radius at which it is proved, 0 where there is none.
    """
    low, high = 0.0, START * unit
    while proves(high):
        low, high = high, 2 * high
        if high > 1e6 * unit:
            return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if proves(middle) else (low, middle)
    return low


def interval(case: Case) -> Vector:
    """Interval arithmetic, layer by layer."""

    def proves(cells: Cells, radius: float) -> bool:
        return not interval_contains_db(cells.root, radius, cells.problem.clauses)

    return _each(case, proves)


def crown(case: Case) -> Vector:
    """CROWN (Zhang et al. 2018): linear bounds backwards through the layers, neuron bounds by the same."""
    return _each(case, lambda cells, radius: _linear(cells, radius, crown_slopes))


def fast_lin(case: Case) -> Vector:
    """Fast-Lin (Weng et al. 2018): the same with parallel lines."""
    return _each(case, lambda cells, radius: _linear(cells, radius, fast_lin_slopes))


def lipschitz(case: Case) -> Vector:
    """The lead of the class divided by a Lipschitz constant that holds everywhere."""
    radii = []
    for i in range(len(case.X)):
        cells = Cells(case.problem(i))
        leads = [np.max(c.margins(case.network(case.X[i])) / fast_lip(cells, c, None)) for c in cells.problem.clauses]
        radii.append(max(0.0, float(min(leads)) * (1 - 1e-9)))
    return np.array(radii)


def large(case: Case) -> Vector:
    """LayerCert's `large`: linear bounds with optimised slopes at growing radii, without branching."""
    with clock.of_processor():  # on a busy machine seconds of the wall would be fewer for this tool than for others
        answers = [
            measure(
                case.network, case.X[i], case.norm, int(case.y[i]), domain=case.domain, method="large",
                time_limit=LARGE_LIMIT,
            )
            for i in range(len(case.X))
        ]  # fmt: skip
    return np.array([answer.lower for answer in answers])


def _linear(cells: Cells, radius: float, slopes: Callable[[Vector, Vector, Vector], Vector]) -> bool:
    relaxation = relax(cells.root, radius, slopes)
    return relaxation is not None and all(relaxation.lower(clause) is None for clause in cells.problem.clauses)


def _each(case: Case, proves: Callable[[Cells, float], bool]) -> Vector:
    radii = []
    for i in range(len(case.X)):
        cells = Cells(case.problem(i))
        radii.append(largest(lambda radius, cells=cells: proves(cells, radius), case.unit))  # type: ignore[misc]
    return np.array(radii)
