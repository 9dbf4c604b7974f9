"""The adaptive search: exact radii by splitting single neurons under an optimised linear relaxation."""

from layercert.search.adaptive.record import Recorder
from layercert.search.adaptive.search import adaptive
from layercert.search.adaptive.tree import Effort

__all__ = ["Effort", "Recorder", "adaptive"]
