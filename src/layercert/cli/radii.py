"""Radii on the command line: 0.01,0.03,0.1 or fractions as papers write them, 2/255,8/255."""

from __future__ import annotations

from fractions import Fraction

from layercert.errors import OptionError


def radii(text: str | None) -> tuple[float, ...]:
    """The numbers of a list with commas; none for None."""
    if text is None:
        return ()
    try:
        return tuple(float(Fraction(part.strip())) for part in text.split(","))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise OptionError(
            f"cannot read the radii {text!r}; expected numbers such as 0.01,0.03 or 2/255,8/255"
        ) from None
