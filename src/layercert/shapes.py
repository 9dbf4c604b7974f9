"""The shape of one input: a network takes numbers in its own order, and another shape would be another image."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from layercert.arrays import Vector
from layercert.errors import InputError
from layercert.linear_maps import real

Shape = tuple[int, ...]
#: What messages call the point itself.
INPUT = "input"


def image_shape(model: Shape) -> Shape:
    """A model's shape of one input without its batch axis, () for a vector or where it is not known."""
    axes = model[1:] if len(model) > 2 and model[0] == 1 else model
    return axes if sum(n > 1 for n in axes) > 1 else ()


def _as_image(inputs: int) -> str:
    """What so many numbers are as a square image, grey or of three colours; "" for anything else."""
    for channels, kind in ((1, "a grey"), (3, "a colour")):
        side = math.isqrt(inputs // channels)
        if side >= 8 and channels * side * side == inputs:
            return f" (as {kind} image: {side} x {side})"
    return ""


def _remedy(given: int, inputs: int, what: str) -> str:
    own = "in that shape or flattened in the model's own order"
    if what != INPUT:
        return f"pass one number per input, {own}"
    if given and given % inputs == 0:
        return f"these may be {given // inputs} inputs: lc.measure_all takes many, this takes one, {own}"
    return f"pass one input, {own}"


def flattened(x: ArrayLike, inputs: int, model: Shape, what: str) -> Vector:
    """One number per input, from an array that is flat or has the model's own shape (() where that is not known)."""
    try:
        v = real(x)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"the {what} must be an array of real numbers, got {type(x).__name__}") from None
    image = image_shape(model)
    if v.size != inputs:
        raise InputError(
            f"the {what} has {v.size} numbers (shape {v.shape}), the network expects {inputs}"
            f"{f' in the shape {image}' if image else _as_image(inputs)}; {_remedy(v.size, inputs, what)}"
        )
    axes, mine = ([n for n in shape if n > 1] for shape in (v.shape, model))
    # axes of length 1 change no order; rows of a grey image follow each other in every model that takes a vector
    if len(axes) > 1 and axes != mine and (len(mine) > 1 or len(axes) > 2):
        remedy = "transpose it" if sorted(axes) == sorted(mine) else "reshape it"
        raise InputError(
            f"the {what} has shape {v.shape}, the network expects {image or (inputs,)}; "
            f"{remedy} to that shape, or flatten it in that order"
        )
    return v.reshape(-1)
