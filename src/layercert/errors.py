"""Errors a user can meet: each message says what was expected, what came, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LayerCertError(ValueError):
    """Base of every error raised on purpose by this package."""


class ModelError(LayerCertError):
    """A file or object that is not a network this package can take exactly."""


class InputError(LayerCertError):
    """An input point, label, data file or domain that does not fit the network."""


class OptionError(LayerCertError):
    """An option outside its range: norm, radius, method, time limit."""


class SpecError(LayerCertError):
    """A property file that cannot be read exactly: the message names the line and the construct."""


class MissingPackageError(LayerCertError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the optional package '{package}', which is not installed; "
            f"run: pip install 'layercert[{extra}]'"
        )


def unknown(kind: str, given: object, known: Iterable[str]) -> OptionError:
    """The error for a name outside a fixed list, with the nearest names first."""
    names = sorted(known)
    near = get_close_matches(str(given), names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return OptionError(f"unknown {kind} {given!r}; {hint}known: {', '.join(names)}")
