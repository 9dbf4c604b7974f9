"""Many cases of many kinds, each a function of three numbers: the seed, its kind and its own number."""

from __future__ import annotations

import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np

from layercert.errors import LayerCertError
from soundness.answers import agreement, domains, facets, radii, scales, sparse, stopped, ties
from soundness.checkers import checkers
from soundness.discrete import whole
from soundness.files import files
from soundness.forgeries import forgeries
from soundness.graphs import graphs
from soundness.kind import Kind, Outcome
from soundness.operations import operations
from soundness.pieces import lent, resumed
from soundness.proofs import certificates
from soundness.properties import properties
from soundness.ways import ways

#: Every kind, and how many cases of it a full run has.
KINDS: dict[str, tuple[Kind, int]] = {
    "scales": (scales, 8000),
    "ties": (ties, 5000),
    "domains": (domains, 4000),
    "radii": (radii, 5000),
    "agreement": (agreement, 1400),
    "stopped": (stopped, 2000),
    "certificates": (certificates, 6000),
    "files": (files, 6000),
    "properties": (properties, 4000),
    "graphs": (graphs, 3000),
    "whole": (whole, 2000),
    "checkers": (checkers, 600),
    "sparse": (sparse, 2000),
    "facets": (facets, 2000),
    "resumed": (resumed, 1000),
    "lent": (lent, 600),
    "ways": (ways, 120),
    "forgeries": (forgeries, 6000),
    "operations": (operations, 3000),
}
#: Seconds after which a case that does not end is a fault; compiling is part of the first ones, on busy machines too.
PATIENCE = 1200
BLOCK = 20


@dataclass
class Tally:
    """What became of the cases of one kind."""

    cases: int = 0
    seconds: float = 0.0
    words: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.cases += other.cases
        self.seconds += other.seconds
        self.words += other.words
        self.faults += other.faults


def one(kind: str, number: int, seed: int) -> Outcome:
    """One case; anything that it raises, but an error of ours, is a fault, and so is a warning. These are listened for:
    made errors, some would be forgiven as those of a solver are."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), number])
    try:
        with warnings.catch_warnings(record=True) as heard, _patience():
            warnings.simplefilter("always")
            outcome = KINDS[kind][0](rng)
        return outcome._replace(faults=outcome.faults + [_told(warning) for warning in heard])
    except LayerCertError as error:
        return Outcome("refused", [] if str(error) else ["an error without a text"])
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("crashed", [f"{type(error).__name__}: {error} ({at.filename.rsplit('/', 1)[-1]}:{at.lineno})"])


def _told(warning: warnings.WarningMessage) -> str:
    return f"warned: {warning.message} ({warning.filename.rsplit('/', 1)[-1]}:{warning.lineno})"


@contextmanager
def _patience() -> Iterator[None]:
    def out(*_: object) -> None:
        raise TimeoutError(f"did not end within {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, out)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def block(kind: str, first: int, count: int, seed: int) -> Tally:
    tally, start = Tally(), time.process_time()
    for number in range(first, first + count):
        outcome = one(kind, number, seed)
        tally.cases += 1
        tally.words[outcome.word] += 1
        tally.faults += [(number, text) for text in dict.fromkeys(outcome.faults)]
    tally.seconds = time.process_time() - start
    return tally


def run(counts: dict[str, int], seed: int, jobs: int, first: int = 0) -> Iterator[tuple[str, Tally]]:
    """Blocks of cases as they are done, the kinds mixed so that a run stopped early has seen all of them."""
    parts = [
        (kind, start, min(BLOCK, first + count - start))
        for kind, count in counts.items()
        for start in range(first, first + count, BLOCK)
    ]
    parts.sort(key=lambda part: (part[1] - first) / counts[part[0]])
    if jobs == 1:
        for kind, start, count in parts:
            yield kind, block(kind, start, count, seed)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(block, kind, start, count, seed): kind for kind, start, count in parts}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:  # whoever stops listening does not wait for the rest
            pool.shutdown(wait=False, cancel_futures=True)
