"""From assertions to cases: linear expressions in exact rationals, and/or trees, disjunctive normal form.

A comparison becomes e <= 0 or e < 0 with e linear in the variables. An expression in one input is a bound of the box,
one in outputs only is a row of a polyhedron; anything else has no place in this form and is an error at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from layercert.errors import SpecError
from layercert.spec.cases import Case, Interval, Row
from layercert.spec.sexpr import Atom, Node, Place, Sequence, number, unsupported

#: The most conjunctions that a formula may be multiplied out to, and the most bounds and rows in all of them together.
MOST_CASES = 10_000
MOST_PARTS = 5_000_000

#: A variable: ("X", 3) is the fourth input, ("Y", 0) the first output, in the flattened order of the model.
Variable: TypeAlias = tuple[str, int]
#: How a version of the language reads a variable: the variable, or None when the node is none.
Lookup: TypeAlias = Callable[[Node], Variable | None]


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * variable, exactly."""

    terms: dict[Variable, Fraction]
    constant: Fraction = Fraction(0)

    def plus(self, other: Linear, times: Fraction = Fraction(1)) -> Linear:
        terms = dict(self.terms)
        for v, c in other.terms.items():
            terms[v] = terms.get(v, Fraction(0)) + times * c
        return Linear({v: c for v, c in terms.items() if c}, self.constant + times * other.constant)

    def times(self, factor: Fraction) -> Linear:
        return Linear({}).plus(self, factor)


@dataclass(frozen=True)
class Bound:
    """input <= value (upper) or input >= value, strictly or not."""

    index: int
    value: Fraction
    upper: bool
    strict: bool


@dataclass(frozen=True)
class Tree:
    """A conjunction ("and") or disjunction ("or"); an empty "and" is true, an empty "or" false."""

    kind: str
    parts: tuple[Formula, ...]


Formula: TypeAlias = Tree | Bound | Row
TRUE, FALSE = Tree("and", ()), Tree("or", ())


def linear(node: Node, lookup: Lookup) -> Linear:
    """A linear expression: numbers, variables, +, -, * and / by constants."""
    variable = lookup(node)
    if variable is not None:
        return Linear({variable: Fraction(1)})
    if isinstance(node, Atom):
        value = number(node)
        if value is None:
            raise node.place.error(f"unknown name {node}; expected a number or a declared variable")
        return Linear({}, value)
    if node.square:
        raise node.place.error(f"expected an expression, got {node}")
    parts = [linear(item, lookup) for item in operands(node)]
    if node.head in ("+", "-", "*", "/") and not parts:
        raise node.place.error(f"'{node.head}' without anything to work on")
    if node.head == "+":
        return _sum(parts)
    if node.head == "-":
        return parts[0].times(Fraction(-1)) if len(parts) == 1 else parts[0].plus(_sum(parts[1:]), Fraction(-1))
    if node.head == "*":
        product = parts[0]
        for part in parts[1:]:
            if product.terms and part.terms:
                unsupported(node, f"the product of two variables in {node}", "only linear constraints can be decided")
            product = product.times(part.constant) if product.terms else part.times(product.constant)
        return product
    if node.head == "/":
        if len(parts) < 2 or any(p.terms or not p.constant for p in parts[1:]):
            unsupported(node, f"the division in {node}", "only division by constants other than zero is linear")
        for part in parts[1:]:
            parts[0] = parts[0].times(1 / part.constant)
        return parts[0]
    unsupported(node, f"the expression '{node.head}' in {node}", "use numbers, variables, +, - and *")


def operands(node: Sequence) -> list[Node]:
    """What follows the head of a list; a name and the index behind it ("X [0, 1]") are one operand."""
    items: list[Node] = []
    for item in node.items[1:]:
        if isinstance(item, Sequence) and item.square and items and isinstance(items[-1], Atom):
            items[-1] = Sequence((items[-1], item), items[-1].place)
        else:
            items.append(item)
    return items


def formula(node: Node, lookup: Lookup, comparisons: frozenset[str]) -> Formula:
    """A tree of and, or and comparisons."""
    if isinstance(node, Atom):
        if node.text in ("true", "false") and not node.quoted:
            return TRUE if node.text == "true" else FALSE
        raise node.place.error(f"expected a constraint such as (<= X 1.0), got {node}")
    if node.head in ("and", "or"):
        if len(node.items) == 1:
            raise node.place.error(f"({node.head}) without constraints inside")
        return Tree(node.head, tuple(formula(item, lookup, comparisons) for item in node.items[1:]))
    if node.head in comparisons:
        sides = operands(node)
        if len(sides) != 2:
            unsupported(node, f"'{node.head}' with {len(sides)} sides in {node}", "compare two expressions at a time")
        left, right = (linear(side, lookup) for side in sides)
        return _compare(node.head, left.plus(right, Fraction(-1)), node)
    unsupported(node, f"the construct '{node.head or node}'", f"known here: and, or, {', '.join(sorted(comparisons))}")


def _sum(parts: Iterable[Linear]) -> Linear:
    total = Linear({})
    for part in parts:
        total = total.plus(part)
    return total


def _compare(sign: str, e: Linear, node: Node) -> Formula:
    """e (sign) 0."""
    minus = e.times(Fraction(-1))
    if sign in ("<=", "<"):
        return _below(e, sign == "<", node)
    if sign in (">=", ">"):
        return _below(minus, sign == ">", node)
    if sign in ("==", "="):
        return Tree("and", (_below(e, False, node), _below(minus, False, node)))
    return Tree("or", (_below(e, True, node), _below(minus, True, node)))  # !=


def _below(e: Linear, strict: bool, node: Node) -> Formula:
    """e <= 0, or e < 0."""
    kinds = {kind for kind, _ in e.terms}
    if kinds == {"X", "Y"}:
        unsupported(node, f"a constraint that mixes inputs and outputs, {node},")
    if kinds == {"Y"}:
        coefficients = tuple(sorted((j, c) for (_, j), c in e.terms.items()))
        return Row(coefficients, -e.constant, strict, node.place.line)
    if kinds == {"X"}:
        if len(e.terms) > 1:
            unsupported(node, f"a constraint on several inputs at once, {node},", "inputs must range over boxes")
        ((_, i), c) = next(iter(e.terms.items()))
        return Bound(i, -e.constant / c, c > 0, strict)
    return TRUE if e.constant < 0 or (e.constant == 0 and not strict) else FALSE


@dataclass
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
        """Both at once; None when no input satisfies both."""
        box = dict(self.box)
        for i, interval in other.box.items():
            box[i] = box[i].meet(interval) if i in box else interval
            if box[i].empty:
                return None
        return Conjunction(box, self.rows + other.rows)


def normal_form(f: Formula, place: Place) -> list[Conjunction]:
    """The conjunctions whose union is f; those with an empty box are left out."""
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
    first = Conjunction(rows=tuple(r for r in literals if isinstance(r, Row)))
    if not first.bounded(b for b in literals if isinstance(b, Bound)):
        return []
    result = [first]
    for choice in choices:
        options = [c for part in choice.parts for c in normal_form(part, place)]
        if len(result) * len(options) > MOST_CASES:
            raise _too_large(place, f"more than {MOST_CASES} alternatives")
        met = (a.meet(b) for a in result for b in options)
        result = []
        parts = 0
        for c in met:
            if c is not None:
                result.append(c)
                parts += len(c.box) + len(c.rows)
                if parts > MOST_PARTS:
                    raise _too_large(place, f"alternatives with more than {MOST_PARTS} bounds and rows together")
    return result


def contradiction(f: Formula, place: Place) -> str:
    """Why f has no conjunctions, for people: is it the inputs' bounds alone, or what is asked of the outputs?"""
    try:
        inputs_exist = bool(normal_form(_of_inputs(f), place))
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


def _too_large(place: Place, what: str) -> SpecError:
    return place.error(f"multiplying the and/or tree out gives {what}; split the property into several files")


def cases_of(
    asserted: Iterable[Formula], inputs: int, source: str, name: Callable[[int], str]
) -> tuple[tuple[Case, ...], str]:
    """The cases of all assertions together; where there is none, also the reason.

    Conjunctions over the same box are one case with several regions; the box must bound every input.
    """
    whole, place = Tree("and", tuple(asserted)), Place(source, 1, 1)
    conjunctions = normal_form(whole, place)
    regions: dict[tuple[Interval, ...], list[tuple[Row, ...]]] = {}
    for c in conjunctions:
        for i in range(inputs):
            interval = c.box.get(i, Interval())
            if interval.low is None or interval.high is None:
                side = "lower" if interval.low is None else "upper"
                raise SpecError(f"{source}: the input {name(i)} has no {side} bound; every input needs a finite range")
        regions.setdefault(tuple(c.box[i] for i in range(inputs)), []).append(c.rows)
    cases = tuple(Case(box, tuple(dict.fromkeys(rows))) for box, rows in regions.items())
    return cases, "" if cases else contradiction(whole, place)
