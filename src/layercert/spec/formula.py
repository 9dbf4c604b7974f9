"""From assertions to formulas: linear expressions in exact rationals, comparisons, and/or trees.

A comparison becomes e <= 0 or e < 0 with e linear in the variables. An expression in one input is a bound of the box,
one in outputs only is a row of a polyhedron; anything else has no place in this form and is an error at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from layercert.spec.cases import Row
from layercert.spec.sexpr import Atom, Node, Sequence, number, unsupported

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


@dataclass(frozen=True, slots=True)
class Bound:
    """input <= value (upper) or input >= value, strictly or not."""

    index: int
    value: Fraction
    upper: bool
    strict: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """A conjunction ("and") or disjunction ("or"); an empty "and" is true, an empty "or" false."""

    kind: str
    parts: tuple[Formula, ...]


Formula: TypeAlias = Tree | Bound | Row
_ONE = Fraction(1)
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
        if isinstance(sides[0], Atom) and isinstance(sides[1], Atom):
            plain = _plain(node, sides[0], sides[1], lookup)
            if plain is not None:
                return plain
        left, right = (linear(side, lookup) for side in sides)
        return _compare(node.head, left.plus(right, Fraction(-1)), node)
    unsupported(node, f"the construct '{node.head or node}'", f"known here: and, or, {', '.join(sorted(comparisons))}")


def _plain(node: Sequence, left: Atom, right: Atom, lookup: Lookup) -> Formula | None:
    """A variable compared with a number, nearly all that generated files consist of; None when it is another thing."""
    variable = lookup(left)
    value = None if variable is None or node.head not in ("<=", "<", ">=", ">") else number(right)
    if variable is None or value is None:
        return None
    (kind, index), upper, strict = variable, node.head[0] == "<", len(node.head) == 1
    if kind == "X":
        return Bound(index, value, upper, strict)
    return Row(((index, _ONE if upper else -_ONE),), value if upper else -value, strict, node.place.line)


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
