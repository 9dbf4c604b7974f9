"""What a question may say beyond the input: target classes, weights of the inputs, inputs that stay as they are.

An input is meant by its position or, where columns have names, by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from layercert.arrays import Indices, Vector
from layercert.errors import InputError, OptionError
from layercert.network import Network
from layercert.shapes import flattened

#: Weights outside of this range are refused: their products with weights of a network could leave that of float64.
LEAST, MOST = 1e-100, 1e100

Column: TypeAlias = int | str
Target: TypeAlias = int | Sequence[int]
Weights: TypeAlias = ArrayLike | Mapping[Column, float]
Fixed: TypeAlias = Column | Iterable[Column]


def names_of(network: Network, x: Any) -> tuple[str, ...]:
    """The names of the inputs: those of a pandas Series, else those that the network knows; () where there are none."""
    index = getattr(x, "index", None)
    if index is not None and not callable(index) and len(index) == network.inputs:
        names = tuple(str(name) for name in index)
        if any(not name.isdecimal() for name in names):
            return names
    return network.input_names


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
        try:
            number = int(t)
            whole = number == t
        except (TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
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
            w[column_of(column, network.inputs, names)] = float(weight)
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
    if isinstance(fixed, np.ndarray) and fixed.dtype == np.bool_:
        if fixed.size != network.inputs:
            raise InputError(f"fixed has {fixed.size} truth values, the network has {network.inputs} inputs")
        return np.flatnonzero(fixed.reshape(-1))
    columns = [fixed] if isinstance(fixed, (int, str, np.integer)) else list(fixed)
    return np.array(sorted({column_of(c, network.inputs, names) for c in columns}), dtype=np.intp)


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
    if not whole or isinstance(column, bool):
        known = f"the names are {', '.join(names[:20])}" if names else "inputs have no names here"
        raise InputError(f"there is no input {column!r}; {known}; positions are 0..{inputs - 1}")
    if not 0 <= number < inputs:
        raise InputError(f"input {number} is out of range: there are {inputs} inputs, 0..{inputs - 1}")
    return number


def _said(i: int, names: Sequence[str]) -> str:
    return f"{i} ({names[i]})" if names else str(i)
