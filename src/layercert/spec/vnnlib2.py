"""VNN-LIB 2.0: a version line, one network with one input and one output tensor, then assertions on their elements.

Hidden nodes, several networks and several tensors have no counterpart in a plain input-output property of one network:
they are refused by name.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from layercert.errors import SpecError
from layercert.spec.cases import Spec
from layercert.spec.formula import Formula, Variable, formula
from layercert.spec.normal_form import cases_of
from layercert.spec.sexpr import Atom, Node, Sequence, unsupported, whole_numbers

COMPARISONS = frozenset(["<=", ">=", "<", ">", "==", "!="])
#: Element types whose values are real numbers. The network is judged as a function of real numbers (docs/vnnlib.md).
TYPES = frozenset(["real", "float16", "float32", "float64"])
#: More elements than this are no network of ours.
LARGEST = 100_000_000


@dataclass(frozen=True)
class Tensor:
    """A declared input ("X") or output ("Y")."""

    kind: str
    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def element(self, index: tuple[int, ...]) -> int:
        """The position of an element in the flattened tensor, row by row."""
        flat = 0
        for i, n in zip(index, self.shape, strict=True):
            flat = flat * n + i
        return flat

    def element_name(self, flat: int) -> str:
        index = []
        for n in reversed(self.shape):
            flat, i = divmod(flat, n)
            index.append(str(i))
        return f"{self.name}[{','.join(reversed(index))}]" if index else self.name


def read_vnnlib2(nodes: list[Node], source: str) -> Spec:
    tensors: dict[str, Tensor] = {}
    network: Sequence | None = None
    asserted: list[Formula] = []

    def lookup(node: Node) -> Variable | None:
        return _variable(node, tensors)

    for position, node in enumerate(nodes):
        if not isinstance(node, Sequence) or node.square:
            raise node.place.error(f"expected a command in round brackets, got {node}")
        if node.head == "vnnlib-version":
            _version(node, position)
        elif node.head == "declare-network":
            if network is not None:
                unsupported(node, "a second declare-network", "one property speaks about one network here")
            network = node
            tensors = _network(node)
        elif node.head == "assert":
            if len(node.items) != 2:
                raise node.place.error(f"assert takes one constraint, got {len(node.items) - 1}")
            if network is None:
                raise node.place.error("an assertion before declare-network")
            asserted.append(formula(node.items[1], lookup, COMPARISONS))
        else:
            unsupported(node, f"the command '{node.head or node}'", "known: vnnlib-version, declare-network, assert")
    if network is None:
        raise SpecError(f"{source}: no declare-network")
    X, Y = (next(t for t in tensors.values() if t.kind == kind) for kind in "XY")
    cases, why_none = cases_of(asserted, X.size, source, X.element_name)
    return Spec("2.0", X.size, Y.size, cases, X.shape, Y.shape, source, why_none)


def _version(node: Sequence, position: int) -> None:
    if position != 0:
        raise node.place.error("vnnlib-version must be the first command")
    given = str(node.items[1]) if len(node.items) == 2 else str(node)
    if not re.fullmatch(r"<2\.\d+>", given):
        unsupported(node, f"the version {given}", "this program reads <2.0>, and 1.0 files without a version line")


def _network(node: Sequence) -> dict[str, Tensor]:
    if len(node.items) < 2 or not isinstance(node.items[1], Atom):
        raise node.place.error("declare-network needs a name")
    tensors: dict[str, Tensor] = {}
    kinds = {"declare-input": "X", "declare-output": "Y"}
    for item in node.items[2:]:
        head = item.head if isinstance(item, Sequence) else ""
        if not isinstance(item, Sequence) or head not in kinds:
            unsupported(item, f"'{head or item}' in declare-network", "known: declare-input, declare-output")
        tensor = _tensor(item, kinds[head])
        if any(t.kind == tensor.kind for t in tensors.values()):
            unsupported(item, f"a second {head}", "the network must have one input and one output tensor")
        if tensor.name in tensors:
            raise item.place.error(f"{tensor.name} is declared a second time")
        tensors[tensor.name] = tensor
    for head, kind in kinds.items():
        if all(t.kind != kind for t in tensors.values()):
            raise node.place.error(f"declare-network without a {head}")
    return tensors


def _tensor(node: Sequence, kind: str) -> Tensor:
    """(declare-input NAME TYPE [SHAPE] "ONNX NAME"), the last being optional."""
    parts = node.items[1:]
    if len(parts) == 4 and isinstance(parts[3], Atom) and parts[3].quoted:
        parts = parts[:3]  # the tensor's name in the model: there is only one it can be
    if len(parts) != 3 or not isinstance(parts[2], Sequence) or not parts[2].square:
        raise node.place.error(f"expected ({node.head} NAME TYPE [SHAPE]), got {node}")
    name, type_, shape = parts
    if not isinstance(name, Atom) or not re.fullmatch(r"[A-Za-z]\w*", name.text):
        raise name.place.error(f"expected a name for the tensor, got {name}")
    if str(type_).lower() not in TYPES:
        unsupported(type_, f"the element type {type_}", f"known: {', '.join(sorted(TYPES))}")
    sizes = whole_numbers(shape) if isinstance(shape, Sequence) else ()
    if not 0 < math.prod(sizes) <= LARGEST:
        raise shape.place.error(f"the shape {shape} has {math.prod(sizes)} elements; expected 1 to {LARGEST}")
    return Tensor(kind, name.text, sizes)


def _variable(node: Node, tensors: dict[str, Tensor]) -> Variable | None:
    """NAME[i, j, ..], or the bare name of a tensor with one element and no axes."""
    index: tuple[int, ...] = ()
    if isinstance(node, Sequence):
        if len(node.items) != 2 or not (isinstance(node.items[1], Sequence) and node.items[1].square):
            return None
        name, axes = node.items
        assert isinstance(axes, Sequence)
        index = whole_numbers(axes)
    else:
        name = node
    if not isinstance(name, Atom) or name.quoted or not re.fullmatch(r"[A-Za-z]\w*", name.text):
        return None
    tensor = tensors.get(name.text)
    if tensor is None:
        raise name.place.error(f"{name} is not declared; declared are {', '.join(sorted(tensors))}")
    if len(index) != len(tensor.shape):
        raise node.place.error(f"{name} has {len(tensor.shape)} axes {list(tensor.shape)}, the index has {len(index)}")
    if any(i >= n for i, n in zip(index, tensor.shape, strict=True)):
        raise node.place.error(f"the index {list(index)} is outside {name} with shape {list(tensor.shape)}")
    return tensor.kind, tensor.element(index)
