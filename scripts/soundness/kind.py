"""What a case of any kind comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from numpy.random import Generator


class Outcome(NamedTuple):
    """How the case was answered, in a word, and what was wrong."""

    word: str
    faults: list[str]


#: One case, a function of its generator alone.
Kind: TypeAlias = Callable[[Generator], Outcome]
