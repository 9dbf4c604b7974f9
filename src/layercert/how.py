"""How a question is answered: what a user may say beside the question itself, and its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from layercert.errors import OptionError
from layercert.methods import ADAPTIVE, method_named
from layercert.search.events import Event
from layercert.search.task import GAP
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.session import Progress

Watch = Callable[["Progress", Event | None], None]

#: Seconds that a certificate may take whatever the time limit: whoever stops a search after a few hundredths and asks
#: for the proof of what it reached would have none, since rows of a proof are bounded anew.
LEAST_FOR_PROOF = 0.5
#: More threads, processes or bytes than any machine has are a slip of the pen, which would hang or overflow.
MOST_THREADS, MOST_MEMORY = 1024, 1 << 60


@dataclass(frozen=True)
class How:
    """How a question is answered; what an answer means does not depend on it, but for the gap.

    Attributes:
        method: Name of the search; `layercert.methods.METHODS` lists them. None chooses the best for the problem.
        time_limit: Seconds after which the search stops with the bounds reached, None for no limit.
        certificate: Whether a certificate is made as well.
        stack: Name of the solvers for distance programs: "default", "library" or "paper".
        watch: Called with the progress and each event of the search.
        gap: The search for a distance ends when (upper - lower) / upper is this small.
        threads: How many threads one search may use; None leaves it to the method.
        save: A file that keeps the search, and that it goes on from where it is there already.
        memory: How many bytes the open nodes of the search may take; None for no bound.
        scheduler: Address of a Dask scheduler whose workers do the search.
    """

    method: str | None = None
    time_limit: float | None = None
    certificate: bool = False
    stack: str = "default"
    watch: Watch | None = None
    gap: float = GAP
    threads: int | None = None
    save: Path | str | None = None
    memory: int | None = None
    scheduler: str | None = None

    def __post_init__(self) -> None:
        method = method_named(self.method)
        check_gap(self.gap)
        check_threads(self.threads)
        check_memory(self.memory)
        if self.save is not None and not isinstance(self.save, str | PathLike):
            raise OptionError(f"save is the path of a file, got {self.save!r:.60}")
        if self.save is not None and method is not None:
            check_adaptive(method.name, "save", "be saved")
        if self.scheduler is not None and method is not None:
            check_adaptive(method.name, "scheduler", "run on a cluster")


def check_gap(gap: float) -> None:
    if isinstance(gap, bool) or not isinstance(gap, (int, float)) or not 0.0 < gap < 1.0:
        raise OptionError(
            f"the gap is a number above 0 and below 1, relative to the distance, got {gap!r}; "
            f"leave it out for {GAP:g}, which counts as exact"
        )


def check_threads(threads: int | None) -> None:
    if threads is None:
        return
    if not is_count(threads):
        raise OptionError(
            f"threads is a whole number, 1 or more, got {threads!r}; leave it out to let the method choose"
        )
    if threads > MOST_THREADS:
        raise OptionError(f"{threads!r:.60} threads are too many: at most {MOST_THREADS}, better one for each core")


def check_memory(memory: int | None) -> None:
    if memory is not None and not (is_count(memory) and memory <= MOST_MEMORY):
        raise OptionError(f"memory is a whole number of bytes above 0, got {memory!r:.60}; leave it out for no bound")


def is_count(value: object) -> bool:
    """Is it a whole number, 1 or more? What is true or false is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_adaptive(method: str, option: str, what: str) -> None:
    if method != ADAPTIVE:
        raise OptionError(
            f"a search by {method} cannot {what}, only one by {ADAPTIVE}; name that method, or leave {option} out"
        )


def deadline_of(time_limit: float | None) -> float | None:
    """The end of a run on our clock (which compiling does not move), None for no end."""
    if time_limit is None:
        return None
    try:
        seconds = float(time_limit)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"the time limit is a number of seconds or None, got {time_limit!r:.60}") from None
    if not seconds > 0:
        raise OptionError(f"the time limit must be above 0 seconds, got {seconds:g}; leave it out for no limit")
    return clock.now() + seconds


def deadline_of_proof(time_limit: float | None) -> float | None:
    """The end of the making of a certificate: the time limit once more, or half a second."""
    return None if time_limit is None else deadline_of(max(float(time_limit), LEAST_FOR_PROOF))
