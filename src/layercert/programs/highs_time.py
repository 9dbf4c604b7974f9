"""The time that HiGHS may take."""

from __future__ import annotations

import math
from typing import Any

from layercert.system import clock

#: Seconds that it gets in any case: with none at all it answers nothing.
LEAST = 0.01


def give_time(highs: Any, most: float = math.inf) -> None:
    """Let the next run end with the scope of the clock, and after `most` seconds."""
    left = min(clock.left(), most)
    # its own clock goes on from run to run
    highs.setOptionValue("time_limit", highs.getRunTime() + max(left, LEAST) if left < math.inf else math.inf)
