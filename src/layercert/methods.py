"""One table: method name -> a search composed of its parts. Variants are compositions, never flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from layercert.bounds.interval import interval_contains_db
from layercert.errors import unknown
from layercert.problem import Problem
from layercert.search.adaptive import adaptive
from layercert.search.events import Event
from layercert.search.input_split import input_split, open_neurons, suits
from layercert.search.large import large
from layercert.search.mip import mip
from layercert.search.paper.geocert import distance_priority, geocert, lipschitz_priority
from layercert.search.paper.layercert import layercert
from layercert.search.paper.parts import SeenEarly, SeenLate, always, crown_restriction, no_restriction
from layercert.search.paper.recursive import crown_restrict, layercert_recursive, lp_restrict
from layercert.search.task import Task


@dataclass(frozen=True)
class Method:
    """A named search over a task."""

    name: str
    search: Callable[[Task], Iterator[Event]]
    summary: str
    complete: bool = True  # does it always end with the exact answer, given time?
    last_resort: bool = True  # is what rounding left open asked once more, in rationals? A cross-check has its own word
    attacks: bool = False  # does an attack come first even where a radius is given? the paper starts from the radius


#: The two that are chosen when no method is named.
ADAPTIVE, INPUT_SPLIT = "adaptive", "input-split"
#: What a run's record says where no method was named; it may be named, too.
AUTO = "auto"

_layercert = partial(layercert, contains_db=always, restriction=no_restriction, seen=SeenEarly)

_METHODS = [
    Method(
        ADAPTIVE, adaptive, "best-first over partial phases with optimised linear bounds (the default)", attacks=True
    ),
    Method(INPUT_SPLIT, input_split, "boxes of inputs cut in two, for networks with few inputs", attacks=True),
    Method("geocert", partial(geocert, priority_of=distance_priority), "GeoCert, l_p priority (Algorithm 1)"),
    Method("geocert-lip", partial(geocert, priority_of=lipschitz_priority), "GeoCert, Lipschitz priority"),
    Method("layercert-basic", _layercert, "LayerCert-Basic (Algorithm 2)"),
    Method("layercert-basic-late", partial(_layercert, seen=SeenLate), "ablation: seen only when visited"),
    Method(
        "layercert-ia",
        partial(_layercert, contains_db=interval_contains_db),
        "LayerCert with interval arithmetic pruning (Algorithm 3)",
    ),
    Method(
        "layercert-crown",
        partial(_layercert, restriction=crown_restriction),
        "LayerCert with CROWN's halfspace and warm start (Algorithm 3)",
    ),
    Method(
        "layercert-both",
        partial(_layercert, contains_db=interval_contains_db, restriction=crown_restriction),
        "LayerCert with both (Algorithm 3)",
    ),
    Method(
        "layercert-recursive",
        partial(layercert_recursive, contains_db=interval_contains_db, restrict=crown_restrict),
        "LayerCert with CROWN restrictions at every pattern (Algorithm 4)",
    ),
    Method(
        "layercert-recursive-lp",
        partial(layercert_recursive, contains_db=interval_contains_db, restrict=lp_restrict),
        "LayerCert with the LP relaxation at every pattern (Algorithm 4)",
    ),
    Method(
        "large",
        large,
        "linear bounds with sparse layers and a gradient attack, no branching, for networks of any size",
        complete=False,
        last_resort=False,
        attacks=True,
    ),
    Method("mip", mip, "big-M model in HiGHS, the independent cross-check (l1, linf)", last_resort=False),
]

METHODS: dict[str, Method] = {method.name: method for method in _METHODS}


#: With more neurons than this that may change sign in the ball, cutting a few inputs beats splitting neurons.
MANY_OPEN = 25


def choose(problem: Problem, U: float | None = None) -> str:
    """The method that measured best for such a problem; U is the distance of a witness, if one is known.

    With few inputs and l_inf, input splitting closes large balls that the adaptive search cannot, and costs the same
    on small ones. In other norms boxes fit the ball badly, and with more inputs there are too many ways to cut
    (PERFORMANCE.md, "Few inputs").
    """
    network = problem.network
    if not (suits(network) and network.fits_dense and math.isinf(problem.norm.p) and problem.clauses):
        return ADAPTIVE
    if network.neurons <= MANY_OPEN:  # whatever the ball; in one without an end, boxes would never be small enough
        return ADAPTIVE
    reach = min(problem.radius, problem.reach, math.inf if U is None else U)
    if math.isfinite(reach) and open_neurons(problem, reach) <= MANY_OPEN:
        return ADAPTIVE
    return INPUT_SPLIT


def method_named(name: str | None) -> Method | None:
    """The method of that name; None where the choice is left to `choose`."""
    if name is None or name == AUTO:
        return None
    if name not in METHODS:
        raise unknown("method", name, (*METHODS, AUTO))
    return METHODS[name]


def method_for(problem: Problem, U: float, name: str | None = None) -> Method:
    """The method of that name, or the one that `choose` takes."""
    return method_named(name) or METHODS[choose(problem, U)]
