"""What can go wrong with a run as a whole; a job that fails is a row, not an error."""

from __future__ import annotations

from layercert.errors import LayerCertError


class RunError(LayerCertError):
    """A run that cannot be made, continued or read."""


class EmptyRunError(RunError):
    """A run that was stopped before its plan was written: there is nothing to read, and nothing to lose."""
