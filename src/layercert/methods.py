"""One table: method name -> a search composed of its parts. Variants are compositions, never flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from layercert.bounds.interval import interval_contains_db
from layercert.errors import unknown
from layercert.mip import mip
from layercert.search.adaptive import adaptive
from layercert.search.events import Event
from layercert.search.geocert import distance_priority, geocert, lipschitz_priority
from layercert.search.large import large
from layercert.search.layercert import layercert
from layercert.search.parts import SeenEarly, SeenLate, always, crown_restriction, no_restriction
from layercert.search.recursive import crown_restrict, layercert_recursive, lp_restrict
from layercert.search.task import Task


@dataclass(frozen=True)
class Method:
    """A named search over a task."""

    name: str
    search: Callable[[Task], Iterator[Event]]
    summary: str
    complete: bool = True  # does it always end with the exact answer, given time?


_layercert = partial(layercert, contains_db=always, restriction=no_restriction, seen=SeenEarly)

_METHODS = [
    Method("adaptive", adaptive, "best-first over partial phases with optimised linear bounds (the default)"),
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
    ),
    Method("mip", mip, "big-M model in HiGHS, the independent cross-check (l1, linf)"),
]

METHODS: dict[str, Method] = {method.name: method for method in _METHODS}


def method_named(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
