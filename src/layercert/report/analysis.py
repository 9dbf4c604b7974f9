"""The numbers behind the figures: robustness curves, radii per class, confusions, performance profiles, comparisons."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

import numpy as np

from layercert.arrays import Vector
from layercert.report.records import Bounds, Record, Results


@dataclass(frozen=True, eq=False)
class Curve:
    """Share of inputs robust at each radius: at least `proved`, at most `possible`. Steps go down *at* a radius."""

    radii: Vector
    proved: Vector
    possible: Vector

    def at(self, radius: float) -> tuple[float, float]:
        i = int(np.searchsorted(self.radii, radius, side="right")) - 1
        return float(self.proved[i]), float(self.possible[i])


def curve(bounds: Iterable[Bounds]) -> Curve:
    """An input is robust at r when its distance exceeds r: surely if lower > r, possibly if upper > r.

    An input proved robust at radius R has nothing within R, R included: it falls out just behind R.
    """
    return curve_between([(_last_safe(b), max(b.lower, b.upper)) for b in bounds])


def curve_between(pairs: Sequence[tuple[float, float]]) -> Curve:
    """The same from (lower, upper) bounds of distances."""
    lower, upper = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    radii = np.unique(np.concatenate([[0.0], lower[np.isfinite(lower)], upper[np.isfinite(upper)]]))
    lower, upper = np.sort(lower), np.sort(upper)
    count = max(len(pairs), 1)
    proved = (len(pairs) - np.searchsorted(lower, radii, side="right")) / count
    possible = (len(pairs) - np.searchsorted(upper, radii, side="right")) / count
    return Curve(radii, proved, possible)


def _last_safe(b: Bounds) -> float:
    return math.nextafter(b.lower, math.inf) if b.closed and b.lower == b.sure < b.upper else b.lower


@dataclass(frozen=True)
class Accuracy:
    """A line of the table every paper prints; certified + attacked + undecided are all inputs."""

    series: str
    norm: str
    eps: float
    inputs: int
    clean: int  # classified right
    unknown: int  # failed before anybody looked at their class
    certified: int  # nothing of another class within eps, proved
    attacked: int  # another class found within eps; misclassified inputs count

    @property
    def undecided(self) -> int:
        return self.inputs - self.certified - self.attacked


def accuracies(results: Results, eps: Sequence[float]) -> list[Accuracy]:
    """Certified accuracy at each radius, from what is proved about every distance."""
    lines: list[Accuracy] = []
    for norm in results.norms:
        for series in results.series:
            bounds = list(results.bounds(series, norm).values())
            unknown = sum(b.best.status == "failed" for b in bounds)
            clean = sum(b.upper > 0.0 for b in bounds) - unknown
            for e in eps if bounds else ():
                attacked = sum(b.upper <= e for b in bounds)
                certified = sum(b.certified(e) and b.upper > e for b in bounds)
                lines.append(Accuracy(series, norm, e, len(bounds), clean, unknown, certified, attacked))
    return lines


@dataclass(frozen=True)
class Summary:
    """One line of the summary: a series in a norm by a method."""

    series: str
    norm: str
    method: str
    inputs: int
    exact: int
    robust: int
    undecided: int
    failed: int
    wrong: int  # misclassified to begin with: distance 0
    not_robust: int  # decided at the radii asked about, and attacked at one of them
    median: tuple[float, float]  # the median distance lies between these
    mean_proved: float  # mean robust radius proved; a lower bound of the average certified radius
    seconds: float
    median_seconds: float
    programs: int


def summarise(results: Results) -> list[Summary]:
    lines: list[Summary] = []
    for series in results.series:
        for norm in results.norms:
            for method in results.methods:
                records = results.select(series, norm, method)
                if records:
                    lines.append(_summary(series, norm, method, records))
    return lines


def _summary(series: str, norm: str, method: str, records: list[Record]) -> Summary:
    counts = Counter(r.status for r in records)
    low, high = median(r.proved for r in records), median(r.result.upper for r in records)
    finite = [r.proved for r in records if math.isfinite(r.proved)]
    return Summary(
        series=series,
        norm=norm,
        method=method,
        inputs=len(records),
        exact=counts["exact"],
        robust=counts["robust"],
        undecided=counts["undecided"],
        failed=counts["failed"],
        wrong=sum(r.status == "exact" and r.result.upper == 0.0 for r in records),
        not_robust=counts["not_robust"],
        median=(low, high),
        mean_proved=fmean(finite) if finite else math.inf,
        seconds=sum(r.result.seconds for r in records),
        median_seconds=median(r.result.seconds for r in records),
        programs=sum(r.result.programs for r in records),
    )


def by_class(bounds: Iterable[Bounds]) -> dict[int, list[Bounds]]:
    """Inputs of each true class; those without a label are left out."""
    groups: dict[int, list[Bounds]] = defaultdict(list)
    for b in bounds:
        if b.label is not None:
            groups[b.label].append(b)
    return dict(sorted(groups.items()))


@dataclass(frozen=True)
class Confusion:
    """How often the nearest other class of `label` is `target`, and the median distance to it."""

    label: int
    target: int
    count: int
    median: float


def confusions(bounds: Iterable[Bounds]) -> list[Confusion]:
    pairs: dict[tuple[int, int], list[float]] = defaultdict(list)
    for b in bounds:
        if b.label is not None and b.best.result.target is not None and math.isfinite(b.upper):
            pairs[b.label, b.best.result.target].append(b.upper)
    return [Confusion(*key, len(d), median(d)) for key, d in sorted(pairs.items())]


@dataclass(frozen=True, eq=False)
class Profile:
    """Share of questions that a method solves within a factor of the fastest method's time (Dolan and More 2002)."""

    method: str
    factors: Vector
    shares: Vector


def profiles(records: Iterable[Record], floor: float = 1e-3) -> list[Profile]:
    """Times below the floor count as the floor: faster than that is noise."""
    times: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    methods: dict[str, None] = {}
    for r in records:
        methods[r.method] = None
        times[r.series, r.input_hash][r.method] = max(r.result.seconds, floor) if r.solved else math.inf
    best = {key: min(t.values()) for key, t in times.items()}
    found: list[Profile] = []
    for method in methods:
        ratios = np.sort(
            [t.get(method, math.inf) / best[key] if math.isfinite(best[key]) else math.inf for key, t in times.items()]
        )
        solved = ratios[np.isfinite(ratios)]
        factors = np.concatenate([[1.0], solved])
        shares = np.searchsorted(ratios, factors, side="right") / len(ratios)
        found.append(Profile(method, factors, shares))
    return found


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two series on the inputs they share, in one norm: pairs of distances, and who is more robust on how many."""

    first: str
    second: str
    norm: str
    pairs: list[tuple[Bounds, Bounds]]

    @property
    def first_wins(self) -> int:
        """Inputs on which the first is surely more robust."""
        return sum(a.lower > b.upper for a, b in self.pairs)

    @property
    def second_wins(self) -> int:
        return sum(b.lower > a.upper for a, b in self.pairs)

    @property
    def ratios(self) -> list[float]:
        """second / first on the inputs on which both are exact; others have no ratio yet."""
        return [b.upper / a.upper for a, b in self.pairs if a.exact and b.exact and a.upper > 0]

    @property
    def median_ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None


def comparisons(results: Results) -> list[Comparison]:
    """Every pair of series, in every norm they share."""
    found: list[Comparison] = []
    for first, second in combinations(results.series, 2):
        for norm in results.norms:
            a, b = results.bounds(first, norm), results.bounds(second, norm)
            shared = [(a[key], b[key]) for key in a if key in b]
            if shared:
                found.append(Comparison(first, second, norm, shared))
    return found
