"""What the paper says about its tables, checked against what was measured.

Programs are compared on the inputs that both methods finished: a method stopped early has solved few programs, which
is no merit. Times are compared on all inputs, an unfinished one counting with the limit, as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median

from layercert.experiments.averages import averages
from layercert.experiments.runs import Pool
from layercert.experiments.setup import ADDITIONS, LATE, PAPER_METHODS
from layercert.experiments.tables import Cell, Table


@dataclass(frozen=True)
class Reason:
    """Why a claim fails here, or why it must hold: a name for a cell, and the sentence."""

    name: str
    text: str


#: Known from elsewhere: the study in docs/geocert-lip.md, the theorems of the paper, and how our solvers work.
THEOREM = Reason(
    "Theorem 4.2",
    "it is proved, in sum; on single easy inputs pruning by U can turn it round (docs/paper-notes.md, E10)",
)
BALL = Reason(
    "the ball",
    "CROWN's bounds are those of the whole ball that the search starts from. Without a domain and from the paper's "
    "radius they say little; with a domain or a nearer witness LayerCert-Both solves 2 to 8 times fewer programs than "
    "GeoCert-Lip (docs/geocert-lip.md)",
)
FACES = Reason(
    "cheap faces",
    "our kernels answer all faces of a region in one call, so the additional faces of GeoCert cost little; with the "
    "paper's solvers each face is a call of its own",
)
PRIORITY = Reason(
    "GeoCert-Lip",
    "on the larger networks it solves several times fewer programs than LayerCert without CROWN; on the small ones all "
    "methods need about 10 ms",
)
EASY = Reason("10 ms", "where all methods need about 10 ms, lower bounds cost more than they save")
CROSSING = Reason(
    "easy inputs",
    "the curves cross mostly at the easiest ones, where CROWN's bounds take longer than GeoCert-Lip's whole search",
)
HELD, FAILED, UNTESTED = "held", "not held", "not testable"
GEOCERTS = ("geocert", "geocert-lip")
WITH_BOUNDS = ("layercert-ia", "layercert-crown", "layercert-both")
#: "A small fraction" of the gain, in the paper's words; the number is ours.
SMALL = 0.25
#: What a ratio compares.
PROGRAMS, SECONDS = "programs", "seconds"


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper (or of ours), the numbers in a few words, the verdict, and the numbers in full.

    Attributes:
        where: The section of the paper, or "ours".
        text: The sentence.
        measured: How far it holds, short enough for a cell.
        verdict: Held, not held, or not testable.
        detail: Network by network, where there is more to say.
        brief: The same in a line.
        why: Why it does not hold here, or why it must: known from elsewhere, not from these numbers.
        networks: On how many of the networks it holds, for a claim about each of them.
        far: What was measured besides that, in plain words.
    """

    where: str
    text: str
    measured: str
    verdict: str
    detail: str = ""
    brief: str = ""
    why: Reason | None = None
    networks: str = ""
    far: str = ""


@dataclass(frozen=True)
class Test:
    """A claim on one network: None where nothing can be compared; the words are shown where it fails.

    `ratio`: the programs or seconds that should be fewer over those they are compared with; below 1 the claim holds.
    """

    net: str
    holds: bool | None
    words: str
    ratio: float | None = None


def claims_table(name: str, claims: Iterable[Claim], full: bool = True) -> Table:
    """A row per claim in a few words; below it, by the number of the row, what does not fit into a cell."""
    numbered = list(enumerate(claims, 1))
    rows = tuple(
        (Cell(str(i)), Cell(c.where), Cell(c.text), Cell(c.measured), Cell(c.verdict, c.verdict == HELD))
        for i, c in numbered
    )
    words = [(i, c.detail if full else c.brief or c.detail) for i, c in numbered]
    notes = tuple(f"Claim {i}: {text}." for i, text in words if text)
    return Table(name, "Claims", ("no.", "where", "claim", "measured", "verdict"), rows, words=True, notes=notes)


def judge(where: str, text: str, tests: Iterable[Test], why: Reason | None = None, unit: str = PROGRAMS) -> Claim:
    """Held when it holds on every network where it can be tested; `unit` is what the ratios compare."""
    tests = list(tests)
    tested = [t for t in tests if t.holds is not None]
    failing = [t for t in tested if not t.holds]
    networks = f"{len(tested) - len(failing)} of {len(tested)}" if tested else ""
    measured, far = f"{networks} networks" if tested else "nothing to compare", ""
    ratios = [t.ratio for t in tested if t.ratio is not None]
    if ratios:
        extent = f"({min(ratios):.2f} to {max(ratios):.2f})"
        measured += f"; ratio {median(ratios):.2f} {extent}"
        far = f"{median(ratios):.2f} times the {unit} {extent}"
    full = ["not on " + "; ".join(f"{t.net} ({t.words})" for t in failing)] if failing else []
    brief = ["not on " + ", ".join(t.net if t.ratio is None else f"{t.net} ({t.ratio:.2f})" for t in failing)]
    left_out = [t.net for t in tests if t.holds is None]
    rest = [f"not testable on {', '.join(left_out)}"] if left_out else []
    verdict = UNTESTED if not tested else FAILED if failing else HELD
    words, short = "; ".join(full + rest), "; ".join((brief if failing else []) + rest)
    return Claim(where, text, measured, verdict, words, short, why, networks, far)


def programs(pool: Pool, net: str, a: str, b: str) -> tuple[int, int] | None:
    """Total programs of two methods, on inputs where they compare.

    A search that was stopped needs at least the programs that it had solved. If one method needs fewer than that on all
    inputs that it finished, these count; if each does on its own, the larger set. Otherwise only those that both
    finished do: they are the easier ones for the method that was stopped more often.
    """
    first, second = pool.select(net, a), pool.select(net, b)
    asked = [i for i in first if i in second]
    mine, theirs = ([i for i in asked if rows[i].solved] for rows in (first, second))
    shared = [i for i in mine if i in theirs]

    def totals(inputs: list[str]) -> tuple[int, int]:
        return sum(first[i].programs for i in inputs), sum(second[i].programs for i in inputs)

    (a_mine, b_mine), (a_theirs, b_theirs) = totals(mine), totals(theirs)
    told = [some for some, is_told in ((mine, a_mine < b_mine), (theirs, a_theirs > b_theirs)) if is_told]
    best = max(told, key=len, default=shared)
    return totals(best) if best else None


def fewer(pool: Pool, net: str, a: str, others: Iterable[str], strictly: bool = False) -> Test:
    """Does `a` need no more programs than any of the others?"""
    pairs = {b: p for b in others if b != a and (p := programs(pool, net, a, b)) is not None}
    if not pairs:
        return Test(net, None, "")
    losing = {b: p for b, p in pairs.items() if p[0] > p[1] or (strictly and p[0] == p[1])}
    worst = max(p[0] / max(p[1], 1) for p in pairs.values())
    return Test(net, not losing, ", ".join(f"{p[0]} programs, {b} {p[1]}" for b, p in losing.items()), worst)


def faster(pool: Pool, net: str, group: Iterable[str], others: Iterable[str]) -> Test:
    """Is the fastest of a group faster than the fastest of the others? Equal where all ran into the limit."""
    group, others = tuple(group), tuple(others)
    found = averages(pool, group + others)
    mine = {m: found[net, m].seconds for m in group if (net, m) in found}
    theirs = {m: found[net, m].seconds for m in others if (net, m) in found}
    if not mine or not theirs:
        return Test(net, None, "")
    a, b = min(mine, key=mine.__getitem__), min(theirs, key=theirs.__getitem__)
    if all(found[net, m].open == found[net, m].inputs for m in (a, b)):  # both ran into the limit everywhere
        return Test(net, None, "")
    ratio = mine[a] / theirs[b] if theirs[b] > 0 else None
    return Test(net, mine[a] < theirs[b], f"{a} {mine[a]:.3f} s, {b} {theirs[b]:.3f} s", ratio)


def _worst(tests: Iterable[Test]) -> float | None:
    return max((t.ratio for t in tests if t.ratio is not None), default=None)


def each(pool: Pool, test: Callable[[str], Test]) -> list[Test]:
    return [test(net) for net in pool.nets]


def _with_ours(pool: Pool, why: Reason) -> Reason | None:
    """A reason that speaks of how long our own solvers take says nothing about another stack."""
    return why if pool.stack == "default" else None


def table1_claims(pool: Pool) -> list[Claim]:
    basic = "layercert-basic"
    s = "section 6"
    return [
        judge(s, "LayerCert-Both solves the fewest programs of the six methods, on every network",
              each(pool, lambda n: fewer(pool, n, "layercert-both", PAPER_METHODS)), BALL),
        judge(s, "LayerCert-Basic solves fewer programs than GeoCert, on every network",
              each(pool, lambda n: fewer(pool, n, basic, ["geocert"], True)), THEOREM),
        judge(s, "GeoCert-Lip solves fewer programs than GeoCert, on every network",
              each(pool, lambda n: fewer(pool, n, "geocert-lip", ["geocert"], True))),
        judge(s, "LayerCert-Basic is faster than GeoCert, on every network",
              each(pool, lambda n: faster(pool, n, [basic], ["geocert"])), _with_ours(pool, FACES), SECONDS),
        judge(s, "LayerCert-Basic is faster than GeoCert and GeoCert-Lip, on every network",
              each(pool, lambda n: faster(pool, n, [basic], GEOCERTS)), _with_ours(pool, FACES), SECONDS),
        judge(s, "the fastest of the six is LayerCert with lower bounds (-IA, -CROWN or -Both), on every network",
              each(pool, lambda n: faster(pool, n, WITH_BOUNDS, (*GEOCERTS, basic))), _with_ours(pool, EASY), SECONDS),
        adaptive_claim(pool),
    ]  # fmt: skip


def l2_claims(pool: Pool) -> list[Claim]:
    d = "appendix D, l_2"
    layercerts = ("layercert-basic", *WITH_BOUNDS)
    rest = tuple(m for m in PAPER_METHODS if m != "geocert")
    return [
        judge(d, "LayerCert-Both solves fewer programs than both GeoCert methods, on every network",
              each(pool, lambda n: fewer(pool, n, "layercert-both", GEOCERTS)), BALL),
        judge(d, "LayerCert-CROWN solves fewer programs than both GeoCert methods, on every network",
              each(pool, lambda n: fewer(pool, n, "layercert-crown", GEOCERTS)), BALL),
        judge(d, "GeoCert solves the most programs of the six, on every network",
              (_all(n, [fewer(pool, n, m, ["geocert"]) for m in rest]) for n in pool.nets)),
        judge(d, "GeoCert is the slowest of the six, on every network",
              (_all(n, [faster(pool, n, [m], ["geocert"]) for m in rest]) for n in pool.nets),
              _with_ours(pool, FACES), SECONDS),
        judge(d, "every LayerCert method is faster than both GeoCert methods, on every network",
              (_all(n, [faster(pool, n, [m], GEOCERTS) for m in layercerts]) for n in pool.nets),
              _with_ours(pool, PRIORITY), SECONDS),
        adaptive_claim(pool),
    ]  # fmt: skip


def _all(net: str, tests: list[Test]) -> Test:
    tested = [t for t in tests if t.holds is not None]
    words = ", ".join(dict.fromkeys(t.words for t in tested if not t.holds))
    return Test(net, all(t.holds for t in tested) if tested else None, words, _worst(tested))


def ablation_claims(pool: Pool) -> list[Claim]:
    """The part of the gain over GeoCert that is lost when patterns are marked late."""
    total = {m: 0 for m in ("geocert", "layercert-basic", LATE)}
    slower: list[Test] = []
    for net in pool.nets:
        rows = {m: pool.select(net, m) for m in total}
        shared = [i for i in rows[LATE] if all(i in r and r[i].solved for r in rows.values())]
        for m, r in rows.items():
            total[m] += sum(r[i].programs for i in shared)
        slower.append(fewer(pool, net, "layercert-basic", [LATE]))
    gain = total["geocert"] - total["layercert-basic"]
    overhead = total[LATE] - total["layercert-basic"]
    words = (
        f"programs on the inputs all three finished: GeoCert {total['geocert']}, LayerCert-Basic "
        f"{total['layercert-basic']}, late {total[LATE]}"
    )
    small, measured = UNTESTED, "no gain to compare with"
    if gain > 0:
        measured = f"{overhead / gain:.1%} of the gain"
        words += f"; small here means below {SMALL:.0%}"
        small = HELD if overhead < SMALL * gain else FAILED
    return [
        judge("appendix D", "marking patterns as seen early never costs programs", slower),
        Claim(
            "appendix D",
            "marking patterns as seen early accounts for only a small part of the gain",
            measured,
            small,
            words,
        ),
    ]


def profile_claims(pool: Pool) -> list[Claim]:
    ahead = places = 0

    def dominates(net: str) -> Test:
        nonlocal ahead, places
        first, second = (sorted_times(pool, net, m) for m in ("layercert-both", "geocert-lip"))
        if not first and not second:
            return Test(net, None, "")
        pairs = list(zip_longest(first, second, fillvalue=math.inf))
        reached = sum(a <= b for a, b in pairs)
        ahead, places = ahead + reached, places + len(pairs)
        return Test(
            net, reached == len(pairs), f"{len(first)} against {len(second)} solved, but not at every time limit"
        )

    text = "LayerCert-Both solves at least as many inputs as GeoCert-Lip within every time, on every network (profiles)"
    claim = judge("section 6", text, each(pool, dominates), CROSSING)
    far = f"above for {ahead} of {places} inputs"
    return [replace(claim, measured=f"{claim.measured}; {far}", far=far) if places else claim]


def sorted_times(pool: Pool, net: str, method: str) -> list[float]:
    return sorted(row.seconds for row in pool.select(net, method).values() if row.solved)


def adaptive_claim(pool: Pool) -> Claim:
    """Ours: adaptive answers every question, in particular those that no method of the paper finished."""
    mine = {(r.net, r.input): r for r in pool.rows if r.method == "adaptive"}
    finished = {(r.net, r.input) for r in pool.rows if r.solved and r.method not in ADDITIONS}
    beyond = [r for key, r in mine.items() if key not in finished]
    solved = sum(r.solved for r in mine.values())
    measured = f"{solved} of {len(mine)} questions"
    if mine:
        measured += f"; slowest {max(r.seconds for r in mine.values()):.3f} s"
    words = ""
    if beyond:
        words = f"{sum(r.solved for r in beyond)} of the {len(beyond)} that none of the paper's methods finished"
    verdict = UNTESTED if not mine else HELD if solved == len(mine) else FAILED
    return Claim("ours", "adaptive finishes all that the paper's methods could not", measured, verdict, words)


def large_claims(pool: Pool) -> list[Claim]:
    """The paper shows curves without a sentence about them; the sentence here is what they show."""
    tests: list[Test] = []
    for net in pool.nets:
        a, b = pool.select(net, "layercert-both"), pool.select(net, "geocert-lip")
        hard = [i for i in a if i in b and not a[i].solved and not b[i].solved]
        ahead = sum(a[i].lower >= b[i].lower for i in hard)
        words = f"{ahead} of {len(hard)} hard inputs"
        tests.append(Test(net, ahead == len(hard) if hard else None, words))
    text = "LayerCert-Both has proved at least as large a radius as GeoCert-Lip at the limit (read from the curves)"
    return [judge("appendix D", text, tests), adaptive_claim(pool)]
