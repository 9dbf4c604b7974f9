"""The time that HiGHS may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from layercert.system import clock

#: Seconds that it gets in any case: with none at all it answers nothing.
LEAST = 0.01


def give_time(highs: Any, most: float = math.inf) -> None:
    """Let the next run end with the scope of the clock, and after `most` seconds."""
    left = min(clock.left(), most)
    # its own clock goes on from run to run
    highs.setOptionValue("time_limit", highs.getRunTime() + max(left, LEAST) if left < math.inf else math.inf)


@dataclass
class Patience:
    """How long one of many programs that are alike may take.

    Now and then the simplex method goes round in circles, which no limit of iterations ends: one program in a thousand
    took as long as all the others together, or all the time there was.
    """

    times: float  # a program may take so many times as long as those that were answered take in the mean
    least: float  # and so many seconds in any case
    first: float  # so many, before there was any
    answered: int = 0
    seconds: float = 0.0

    @property
    def most(self) -> float:
        if self.answered == 0:
            return self.first
        return max(self.least, self.times * self.seconds / self.answered)

    def took(self, seconds: float) -> None:
        """A program was answered."""
        self.answered += 1
        self.seconds += seconds
