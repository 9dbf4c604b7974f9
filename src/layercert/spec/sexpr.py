"""S-expressions with line numbers: the form that both versions of VNN-LIB share.

Three kinds of nodes: atoms (names, numbers, operators, quoted strings), lists in round brackets, and lists in square
brackets (shapes and indices of VNN-LIB 2.0). Every node knows the line and column where it begins, for errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, NoReturn, TypeAlias

from layercert.errors import SpecError

#: Formulas nested deeper than this are refused; people and generators stay below ten.
DEEPEST = 200
#: Exponents beyond this are refused: no float64 is so large or small, and 1e999999999 would fill the memory.
LARGEST_EXPONENT = 300
LONGEST_NUMBER = 1000

_TOKEN = re.compile(r"""(?P<space>[ \t\r\f\v]+|;[^\n]*)|(?P<line>\n)|(?P<mark>[()\[\],])|"(?P<text>[^"\n]*)"|"""
                    r"""(?P<atom>[^\s()\[\],;"]+)""")  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Place(NamedTuple):
    """A position in a file."""

    source: str
    line: int
    column: int

    def error(self, message: str) -> SpecError:
        return SpecError(f"{self.source}, line {self.line}, column {self.column}: {message}")


@dataclass(frozen=True, slots=True)
class Atom:
    text: str
    place: Place
    quoted: bool = False

    def __str__(self) -> str:
        return f'"{self.text}"' if self.quoted else self.text


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list in round or square brackets."""

    items: tuple[Node, ...]
    place: Place
    square: bool = False

    def __str__(self) -> str:
        inside = (", " if self.square else " ").join(map(str, self.items))
        text = f"[{inside}]" if self.square else f"({inside})"
        return text if len(text) <= 80 else f"{text[:76]} ..."

    @property
    def head(self) -> str:
        """The word that says what the list is, "" if there is none."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Atom) and not first.quoted else ""


Node: TypeAlias = Atom | Sequence


def parse(text: str, source: str) -> list[Node]:
    """All expressions of a file; brackets that do not match are an error at their line."""
    top: list[Node] = []
    open_lists: list[tuple[list[Node], Place, bool]] = []
    line, line_start, position = 1, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            remainder = text[position : position + 20]
            at = Place(source, line, position - line_start + 1)
            raise at.error(f"cannot read {remainder!r}; is a quotation mark left open?")
        column, position = position - line_start + 1, match.end()
        kind, token = match.lastgroup, match.group()
        if kind == "space":
            continue
        place = Place(source, line, column)
        inside = open_lists[-1][0] if open_lists else top
        if kind == "line":
            line, line_start = line + 1, position
        elif kind == "text":
            inside.append(Atom(match.group("text"), place, quoted=True))
        elif kind == "atom":
            inside.append(Atom(token, place))
        elif token in ("(", "["):
            if len(open_lists) == DEEPEST:
                raise place.error(f"brackets nested deeper than {DEEPEST}")
            open_lists.append(([], place, token == "["))
        elif token in (")", "]"):
            if not open_lists or open_lists[-1][2] != (token == "]"):
                raise place.error(f"'{token}' closes nothing that is open")
            items, start, square = open_lists.pop()
            (open_lists[-1][0] if open_lists else top).append(Sequence(tuple(items), start, square))
        elif token == "," and not (open_lists and open_lists[-1][2]):
            raise place.error("a comma belongs between numbers in square brackets only")
    if open_lists:
        _, start, square = open_lists[-1]
        raise start.error(f"'{'[' if square else '('}' is never closed")
    return top


def number(atom: Atom) -> Fraction | None:
    """The exact value of a decimal literal, None when the atom is no number."""
    match = None if atom.quoted else _NUMBER.fullmatch(atom.text)
    if match is None:
        return None
    if len(atom.text) > LONGEST_NUMBER:
        raise atom.place.error(f"the number {atom.text[:30]}... has more than {LONGEST_NUMBER} characters; round it")
    if match.group(3) and abs(int(match.group(3)[1:])) > LARGEST_EXPONENT:
        raise atom.place.error(f"the number {atom.text[:30]} is beyond what is supported (10^{LARGEST_EXPONENT})")
    return _value(atom.text)


@lru_cache(maxsize=100_000)
def _value(text: str) -> Fraction:
    """Generated files repeat their numbers: one object for each."""
    return Fraction(text)


def whole_numbers(node: Sequence) -> tuple[int, ...]:
    """The entries of a shape or an index: whole numbers >= 0."""
    values = []
    for item in node.items:
        if not isinstance(item, Atom) or not re.fullmatch(r"\d{1,9}", item.text):
            raise item.place.error(f"expected a whole number >= 0 in {node}, got {item}")
        values.append(int(item.text))
    return tuple(values)


def unsupported(node: Node, what: str, remedy: str = "") -> NoReturn:
    raise node.place.error(f"{what} is not supported" + (f"; {remedy}" if remedy else ""))
