"""What a question may say beyond the input: target classes, weights of the inputs, inputs that stay as they are.

An input is meant by its position or, where columns have names, by its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from layercert.arrays import Indices, Mask, Vector
from layercert.errors import InputError, ModelError, OptionError
from layercert.network import Network
from layercert.shapes import flattened

#: Weights outside of this range are refused: their products with weights of a network could leave that of float64.
LEAST, MOST = 1e-100, 1e100

Column: TypeAlias = int | str
Target: TypeAlias = int | Sequence[int]
Weights: TypeAlias = ArrayLike | Mapping[Column, float]
Fixed: TypeAlias = Column | Iterable[Column]
OneOf: TypeAlias = Iterable[Iterable[Column]]


def names_of(network: Network, x: Any) -> tuple[str, ...]:
    """The names of the inputs: those of a pandas Series, else those that the network knows; () where there are none."""
    index = getattr(x, "index", None)
    if index is not None and not callable(index) and len(index) == network.inputs:
        names = tuple(str(name) for name in index)
        if any(not name.isdecimal() for name in names):
            return names
    return network.input_names


def check_radius(radius: float | None) -> float:
    if radius is None:
        return math.inf
    try:
        r = float(radius)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"the radius must be a number >= 0 or None, got {radius!r:.60}") from None
    if math.isnan(r) or r < 0:
        raise OptionError(f"the radius must be >= 0, got {r:g}; leave it out to measure without a limit")
    return r + 0.0  # -0.0 is 0


def check_network(network: Any) -> Network:
    """The network itself; for a model of another package, which function reads it.

    Args:
        network: What was given as one.

    Returns:
        The network.

    Raises:
        ModelError: It is something else.
    """
    if isinstance(network, Network):
        return network
    home = type(network).__module__.partition(".")[0]
    kinds = {kind.__module__.partition(".")[0] for kind in type(network).__mro__}
    remedy = "read it first: lc.load(path), lc.from_torch(module), lc.from_sklearn(model), lc.Network.from_arrays(W, b)"
    if home == "torch" or "torch" in kinds:
        remedy = "read it first: lc.from_torch(module)"
    elif "sklearn" in kinds:
        remedy = "read it first: lc.from_sklearn(model)"
    elif isinstance(network, (str, PathLike)):
        remedy = "read it first: lc.load(path)"
    raise ModelError(f"the network must be a layercert Network, got {type(network).__name__}; {remedy}")


def whole_number(value: Any) -> int | None:
    """The whole number that a value is, of whatever type; None where it is none."""
    try:
        number = int(value)
        return number if number == value else None
    except (TypeError, ValueError, OverflowError):
        return None


def check_targets(network: Network, target: Target) -> tuple[int, ...]:
    """One class or several, each once, in order.

    Args:
        network: The classifier.
        target: A class number, or several.

    Returns:
        The class numbers.

    Raises:
        InputError: One of them is not a class of the network, or there is none.
    """
    given: list[Any] = [target] if np.ndim(target) == 0 else list(target)  # type: ignore[arg-type]
    found = []
    for t in given:
        number = whole_number(t)
        if number is None:
            raise InputError(f"a target is a class number or several of them, got {t!r}")
        if not 0 <= number < network.classes:
            raise InputError(
                f"target {number} is out of range: the network has {network.classes} outputs, "
                f"so classes are 0..{network.classes - 1}"
            )
        found.append(number)
    if not found:
        raise InputError("there is no target; name at least one class, or leave it out for any other class")
    return tuple(sorted(set(found)))


def check_weights(network: Network, weights: Weights, names: Sequence[str] = ()) -> Vector:
    """One number > 0 per input.

    Args:
        network: The classifier.
        weights: An array with a number per input, or a mapping from some inputs to their weights (1 for the others).
        names: The names of the inputs, if they have any.

    Returns:
        A flat vector.

    Raises:
        InputError: There are too many or too few, or a name is unknown.
        OptionError: One is not above 0 or too large.
    """
    if isinstance(weights, Mapping):
        w = np.ones(network.inputs)
        for column, weight in weights.items():
            i = column_of(column, network.inputs, names)
            try:
                w[i] = float(weight)
            except (TypeError, ValueError, OverflowError):
                w[i] = math.nan
            if math.isnan(w[i]):
                raise OptionError(f"a weight is a number > 0, got {weight!r:.60} for input {_said(i, names)}")
    else:
        w = flattened(weights, network.inputs, network.input_shape, "list of weights")
    bad = np.flatnonzero(~((w >= LEAST) & (w <= MOST)))
    if len(bad):
        i = int(bad[0])
        raise OptionError(
            f"a weight is a number > 0 (from {LEAST:.0e} to {MOST:.0e}), got {w[i]:g} for input {_said(i, names)}; "
            "an input that must not change belongs in fixed, one that does not matter needs a small weight"
        )
    return w


def check_fixed(network: Network, fixed: Fixed, names: Sequence[str] = ()) -> Indices:
    """The positions of inputs that stay as they are.

    Args:
        network: The classifier.
        fixed: Positions or names, or an array of one truth value per input.
        names: The names of the inputs, if they have any.

    Returns:
        Positions, each once, in order.

    Raises:
        InputError: A position is out of range or a name is unknown.
    """
    return np.array(_columns(fixed, network.inputs, names), dtype=np.intp)


def column_of(column: Any, inputs: int, names: Sequence[str]) -> int:
    """The position of an input that is given by its position or its name.

    Args:
        column: The position or the name.
        inputs: How many inputs there are.
        names: Their names, if they have any.

    Returns:
        The position.

    Raises:
        InputError: There is no such input.
    """
    if isinstance(column, str) and column in names:
        if list(names).count(column) > 1:
            raise InputError(f"two inputs have the name {column!r}; give the position of the one you mean")
        return list(names).index(column)
    try:
        number = int(column)
        whole = isinstance(column, str) or number == column
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or isinstance(column, bool | np.bool_):
        known = f"the names are {', '.join(names[:20])}" if names else "inputs have no names here"
        raise InputError(f"there is no input {column!r}; {known}; positions are 0..{inputs - 1}")
    if not 0 <= number < inputs:
        raise InputError(f"input {number} is out of range: there are {inputs} inputs, 0..{inputs - 1}")
    return number


def _said(i: int, names: Sequence[str]) -> str:
    return f"{i} ({names[i]})" if names else str(i)


@dataclass(frozen=True, eq=False)
class Discrete:
    """Inputs that are whole numbers, and groups of inputs of which one is 1 and the others are 0.

    Attributes:
        integer: Positions.
        groups: Positions of each group.
        inputs: How many inputs there are.
    """

    integer: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    inputs: int

    @cached_property
    def among(self) -> Mask:
        """Which inputs are meant at all."""
        found = np.zeros(self.inputs, np.bool_)
        found[[*self.integer, *(i for group in self.groups for i in group)]] = True
        return found

    def admits(self, v: Vector) -> bool:
        """Is a point whole where it has to be, exactly?

        Args:
            v: A point.

        Returns:
            Whether it is.
        """
        whole = v[list(self.integer)]
        chosen = (v[list(group)] for group in self.groups)
        return bool((whole == np.floor(whole)).all()) and all(np.sort(g).tolist() == one_hot(len(g)) for g in chosen)

    def nearest(self, v: Vector, low: Vector, high: Vector) -> Vector:
        """An admissible point of a box next to a point of it: rounded, the largest of a group chosen.

        Args:
            v: A point of the box.
            low: The box's lower ends, whole where inputs are.
            high: Its upper ends.

        Returns:
            A copy; what is not meant stays.
        """
        found, at = v.copy(), list(self.integer)
        found[at] = np.clip(np.rint(v[at]), low[at], high[at])
        for group in self.groups:
            members = list(group)
            most = members[int(np.where(high[members] >= 1.0, v[members], -np.inf).argmax())]
            found[members] = 0.0
            found[most] = 1.0
        return found


def one_hot(n: int) -> list[float]:
    return [0.0] * (n - 1) + [1.0]


def check_discrete(
    x: Vector, integer: Fixed | None, one_of: OneOf | None, names: Sequence[str] = ()
) -> Discrete | None:
    """Which inputs are whole numbers and which are alternatives.

    Args:
        x: The input, which must be admissible itself.
        integer: Inputs that are whole numbers, by position or name.
        one_of: Groups of inputs of which exactly one is 1 and the others are 0.
        names: The names of the inputs, if they have any.

    Returns:
        Both in positions, None where neither was given.

    Raises:
        InputError: An input is unknown or in two groups, or x itself is not admissible.
    """
    if integer is None and one_of is None:
        return None
    n = len(x)
    wholes = _columns(() if integer is None else integer, n, names)
    groups = tuple(_columns(group, n, names) for group in one_of or ())
    everywhere = [i for group in groups for i in group]
    if any(len(group) < 2 for group in groups):
        raise InputError("a group of alternatives needs two inputs or more: one_of=[[2, 3, 4], [5, 6]]")
    twice = next((i for i in everywhere if everywhere.count(i) > 1), None)
    if twice is not None:
        raise InputError(f"input {_said(twice, names)} is in two groups of alternatives; an input can be in one")
    wholes = tuple(i for i in wholes if i not in everywhere)
    for i in wholes:
        if x[i] != np.floor(x[i]):
            raise InputError(f"input {_said(i, names)} must be a whole number, x has {x[i]:g} there; round x first")
    for group in groups:
        if np.sort(x[list(group)]).tolist() != one_hot(len(group)):
            values = ", ".join(f"{x[i]:g}" for i in group)
            raise InputError(
                f"of the alternatives {', '.join(_said(i, names) for i in group)} exactly one must be 1 and the others "
                f"0, x has {values}"
            )
    return Discrete(wholes, groups, n)


def _columns(columns: Fixed, inputs: int, names: Sequence[str]) -> tuple[int, ...]:
    """Positions, each once, in order, from positions, names or an array of one truth value per input."""
    if getattr(columns, "dtype", None) == np.bool_:
        mask = np.asarray(columns).reshape(-1)
        if len(mask) != inputs:
            raise InputError(f"there are {len(mask)} truth values for {inputs} inputs; give one for each")
        return tuple(np.flatnonzero(mask).tolist())
    given = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else [columns]
    return tuple(sorted({column_of(c, inputs, names) for c in given}))


def in_positions(network: Network, asked: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """A question in plain numbers, as other processes and runs take it; what was not asked is ().

    Args:
        network: The classifier, which may know its inputs by name.
        asked: target, weights, fixed, integer and one_of, as `measure` takes them.

    Returns:
        The same, in positions.

    Raises:
        InputError: An input or a class does not exist.
        OptionError: A weight is out of range.
    """
    n, names = network.inputs, network.input_names
    target, weights, fixed, integer, one_of = (
        asked.get(name) for name in ("target", "weights", "fixed", "integer", "one_of")
    )
    return {
        "target": () if target is None else check_targets(network, target),
        "weights": () if weights is None else tuple(check_weights(network, weights, names).tolist()),
        "fixed": () if fixed is None else tuple(check_fixed(network, fixed, names).tolist()),
        "integer": () if integer is None else _columns(integer, n, names),
        "one_of": tuple(_columns(group, n, names) for group in one_of or ()),
    }
