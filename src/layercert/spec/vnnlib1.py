"""VNN-LIB 1.0: SMT-LIB declarations of X_0, X_1, .. (inputs) and Y_0, Y_1, .. (outputs), then assertions."""

from __future__ import annotations

import re

from layercert.errors import SpecError
from layercert.spec.cases import Spec
from layercert.spec.formula import Formula, Variable, formula
from layercert.spec.normal_form import cases_of
from layercert.spec.sexpr import Atom, Node, Place, Sequence, unsupported

COMPARISONS = frozenset(["<=", ">=", "<", ">", "="])
#: Commands of SMT-LIB that say nothing about the property.
SILENT = frozenset(["set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"])

_NAME = re.compile(r"([XY])_(0|[1-9]\d{0,8})")


def read_vnnlib1(nodes: list[Node], source: str) -> Spec:
    declared: dict[Variable, Place] = {}
    asserted: list[Formula] = []

    def lookup(node: Node) -> Variable | None:
        match = _NAME.fullmatch(node.text) if isinstance(node, Atom) and not node.quoted else None
        if match is None:
            return None
        variable = (match.group(1), int(match.group(2)))
        if variable not in declared:
            raise node.place.error(f"{node} is used before it is declared; add (declare-const {node} Real)")
        return variable

    for node in nodes:
        if not isinstance(node, Sequence) or node.square:
            raise node.place.error(f"expected a command in round brackets, got {node}")
        if node.head in ("declare-const", "declare-fun"):
            _declare(node, declared)
        elif node.head == "assert":
            if len(node.items) != 2:
                raise node.place.error(f"assert takes one constraint, got {len(node.items) - 1}")
            asserted.append(formula(node.items[1], lookup, COMPARISONS))
        elif node.head not in SILENT:
            unsupported(node, f"the command '{node.head or node}'", "known: declare-const, declare-fun, assert")
    inputs, outputs = (_count(declared, kind, source) for kind in "XY")
    cases, why_none = cases_of(asserted, inputs, source, lambda i: f"X_{i}")
    return Spec("1.0", inputs, outputs, cases, (inputs,), (outputs,), source, why_none)


def _declare(node: Sequence, declared: dict[Variable, Place]) -> None:
    items = list(node.items)
    if node.head == "declare-fun" and len(items) == 4 and isinstance(items[2], Sequence) and not items[2].items:
        del items[2]  # a function without arguments is a constant
    if len(items) != 3 or not all(isinstance(item, Atom) for item in items):
        unsupported(node, f"the declaration {node}", "expected (declare-const X_0 Real)")
    name, sort = items[1], items[2]
    assert isinstance(name, Atom) and isinstance(sort, Atom)
    match = _NAME.fullmatch(name.text)
    if match is None:
        unsupported(name, f"the variable name {name}", "inputs are X_0, X_1, .. and outputs Y_0, Y_1, ..")
    if sort.text != "Real":
        unsupported(sort, f"the type {sort} of {name}", "variables of VNN-LIB 1.0 are Real")
    variable = (match.group(1), int(match.group(2)))
    if variable in declared:
        raise name.place.error(f"{name} is declared a second time, first in line {declared[variable].line}")
    declared[variable] = name.place


def _count(declared: dict[Variable, Place], kind: str, source: str) -> int:
    """How many variables of a kind there are; they must be numbered without gaps."""
    numbers = {i for k, i in declared if k == kind}
    if not numbers:
        raise SpecError(f"{source}: no {'input X_0' if kind == 'X' else 'output Y_0'} is declared")
    missing = next(i for i in range(len(numbers) + 1) if i not in numbers)
    if missing < len(numbers):
        raise SpecError(
            f"{source}: {kind}_{missing} is not declared, but {kind}_{max(numbers)} is; number without gaps"
        )
    return len(numbers)
