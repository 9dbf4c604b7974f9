"""Disjunctive normal form: the and/or tree of a property as boxes of inputs, each with its rows of outputs.

A tree multiplies out to the product of its disjunctions, and many of the products are empty boxes. What all of them
share (the range of every pixel) is kept once; an alternative holds only the inputs that it bounds itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from layercert.errors import SpecError
from layercert.spec.cases import Case, Interval, Row
from layercert.spec.formula import TRUE, Bound, Formula, Tree
from layercert.spec.sexpr import Place

#: The most bounds and rows that all cases may have together: some hundreds of megabytes.
MOST_PARTS = 10_000_000
#: Where the products outnumber that, so many meetings of two alternatives are tried (about a second): in most
#: formulas of this kind nearly all of them are empty.
TRIES = 200_000


@dataclass(slots=True)
class Conjunction:
    """Bounds of some inputs, and rows that all hold."""

    box: dict[int, Interval] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    def bounded(self, bounds: Iterable[Bound]) -> bool:
        """Take bounds into the box; False when it becomes empty."""
        for b in bounds:
            before = self.box.get(b.index, Interval())
            self.box[b.index] = before.below(b.value, b.strict) if b.upper else before.above(b.value, b.strict)
            if self.box[b.index].empty:
                return False
        return True

    def meet(self, other: Conjunction) -> Conjunction | None:
        """Both at once; None when no input satisfies both. The smaller box is laid over the larger one."""
        small, large = (self, other) if len(self.box) < len(other.box) else (other, self)
        box = large.box
        if small.box:
            box = dict(box)
            for i, interval in small.box.items():
                box[i] = box[i].meet(interval) if i in box else interval
                if box[i].empty:
                    return None
        return Conjunction(box, self.rows + other.rows)

    def inside(self, common: dict[int, Interval]) -> Conjunction | None:
        """The same, its own bounds cut down to the common ones; None when nothing is left."""
        box = {i: interval.meet(common[i]) if i in common else interval for i, interval in self.box.items()}
        return None if any(interval.empty for interval in box.values()) else Conjunction(box, self.rows)


@dataclass
class _Budget:
    """How much multiplying out may cost, before it is given up."""

    tries: float
    place: Place

    def pay(self, price: int) -> None:
        self.tries -= price
        if self.tries < 0:
            raise self.place.error(
                f"multiplying the and/or tree out gives alternatives with more than {MOST_PARTS} bounds and rows "
                "together; split the property into several files"
            )


def products(f: Formula) -> tuple[int, int]:
    """How many conjunctions f multiplies out to when none is empty, and their bounds and rows together."""
    if not isinstance(f, Tree):
        return 1, 1
    count, parts = (1, 0) if f.kind == "and" else (0, 0)
    for part in f.parts:
        c, p = products(part)
        count, parts = (count * c, parts * c + p * count) if f.kind == "and" else (count + c, parts + p)
        if count > 10 * MOST_PARTS:
            return count, max(parts, count)
    return count, parts


def normal_form(f: Formula, place: Place) -> tuple[dict[int, Interval], list[Conjunction]]:
    """The bounds that hold in all of f, and the conjunctions over them whose union is f; empty ones are left out."""
    _, parts = products(f)
    return _split(f, _Budget(math.inf if parts <= MOST_PARTS else TRIES, place))


def _split(f: Formula, budget: _Budget) -> tuple[dict[int, Interval], list[Conjunction]]:
    literals: list[Bound | Row] = []
    choices: list[Tree] = []
    waiting = [f]
    while waiting:  # one flat conjunction: nested ands are opened, disjunctions kept for later
        part = waiting.pop()
        if isinstance(part, Tree) and (part.kind == "and" or len(part.parts) == 1):
            waiting.extend(reversed(part.parts))
        elif isinstance(part, Tree):
            choices.append(part)
        else:
            literals.append(part)
    first = Conjunction()
    if not first.bounded(b for b in literals if isinstance(b, Bound)):
        return {}, []
    result = [Conjunction(rows=tuple(r for r in literals if isinstance(r, Row)))]
    for choice in choices:
        options = [c.inside(first.box) for part in choice.parts for c in _joined(*_split(part, budget))]
        there = [c for c in options if c is not None]
        budget.pay(len(result) * len(there))
        met = (a.meet(b) for a in result for b in there)
        result = [c for c in met if c is not None]
    return first.box, result


def _joined(common: dict[int, Interval], own: list[Conjunction]) -> list[Conjunction]:
    """The conjunctions with the common bounds in each; their own bounds are inside these already."""
    if not common:
        return own
    return [Conjunction({**common, **c.box} if c.box else common, c.rows) for c in own]


def contradiction(f: Formula, place: Place) -> str:
    """Why f has no conjunctions, for people: is it the inputs' bounds alone, or what is asked of the outputs?"""
    try:
        inputs_exist = bool(normal_form(_of_inputs(f), place)[1])
    except SpecError:  # with what is left out, there are too many alternatives: so there are some
        inputs_exist = True
    if inputs_exist:
        return "no output satisfies the constraints: they contradict each other"
    return "no input satisfies the constraints on the inputs"


def _of_inputs(f: Formula) -> Formula:
    """What f asks of the inputs; rows, and comparisons that never hold (an empty "or"), count as met."""
    if isinstance(f, Bound):
        return f
    return Tree(f.kind, tuple(_of_inputs(part) for part in f.parts)) if isinstance(f, Tree) and f.parts else TRUE


def cases_of(
    asserted: Iterable[Formula], inputs: int, source: str, name: Callable[[int], str]
) -> tuple[tuple[Case, ...], str]:
    """The cases of all assertions together; where there is none, also the reason.

    Conjunctions over the same box are one case with several regions; the box must bound every input.
    """
    whole, place = Tree("and", tuple(asserted)), Place(source, 1, 1)
    common, conjunctions = normal_form(whole, place)
    regions: dict[frozenset[tuple[int, Interval]], list[tuple[Row, ...]]] = {}
    for c in conjunctions:
        regions.setdefault(frozenset(c.box.items()), []).append(c.rows)
    if len(regions) * inputs > MOST_PARTS:
        _Budget(0, place).pay(1)
    cases = []
    for own, rows in regions.items():
        box = {**common, **dict(own)}
        for i in range(inputs):
            interval = box.get(i, Interval())
            if interval.low is None or interval.high is None:
                side = "lower" if interval.low is None else "upper"
                raise SpecError(f"{source}: the input {name(i)} has no {side} bound; every input needs a finite range")
        cases.append(Case(tuple(box[i] for i in range(inputs)), tuple(dict.fromkeys(rows))))
    return tuple(cases), "" if cases else contradiction(whole, place)
