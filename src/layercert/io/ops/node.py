"""One operation of a model with its inputs computed: what every reader of an operation is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from layercert.errors import ModelError
from layercert.io.affine import Affine, Constant

#: A constant (a numpy array: floats as float64, integers as int64) or a function of the network's input.
Value: TypeAlias = Constant | Affine

#: A Softmax or Sigmoid may be left out in front of these: they keep the order of the classes.
AFTER_SOFTMAX = {
    *("Cast", "Dropout", "Expand", "Flatten", "Gather", "Identity", "LogSoftmax", "Reshape", "Shape", "Slice"),
    *("Softmax", "Squeeze", "Transpose", "Unsqueeze"),
}


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph with its inputs computed; an input left out is None."""

    op: str
    name: str
    opset: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    outputs: int = 1
    title: str = ""  # how errors call it, where that is not its operation and name

    def refuse(self, reason: str) -> ModelError:
        return ModelError(f"{self.title or f'{self.op} (node {self.name!r})'} {reason}")

    def value(self, i: int) -> Value:
        """Input i, an array or an Affine on which the node may compute."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise self.refuse(f"lacks its input {i}, which is not optional")
        if isinstance(value, Affine) and value.dropped and self.op not in AFTER_SOFTMAX:
            raise self.refuse(
                f"follows {value.dropped}, which is taken only at the end, where it does not change the class"
            )
        return value

    def values(self) -> list[Value]:
        return [self.value(i) for i in range(len(self.inputs))]

    def constant(self, i: int, what: str) -> Constant:
        """Input i, which must not depend on the network's input."""
        value = self.value(i)
        if isinstance(value, Affine):
            raise self.refuse(f"takes its {what} from the network's input; only constants are supported there")
        return value

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def integers(self, name: str, i: int, default: list[int] | None = None) -> list[int]:
        """A list of integers: an attribute in old opsets, input i in newer ones."""
        if name in self.attributes:
            return [int(k) for k in self.attributes[name]]
        if default is not None and not self.has(i):
            return default
        return [int(k) for k in self.constant(i, name).reshape(-1)]

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


Handler: TypeAlias = Callable[[Node], "Value | list[Value]"]
