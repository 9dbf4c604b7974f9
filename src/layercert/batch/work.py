"""One job, wherever it runs: in a local worker process or on a cluster."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from layercert.arrays import Vector
from layercert.batch.plan import Job, Options
from layercert.errors import LayerCertError
from layercert.network import Network
from layercert.run import measure

#: The status of a job that ended without an answer; the others are those of `Result`.
FAILED = "failed"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What is stored about a finished job. A failed one has a reason and no bounds beyond 0 <= distance."""

    job: int
    status: str
    lower: float = 0.0
    upper: float = math.inf
    label: int | None = None
    target: int | None = None
    witness: Vector | None = None
    programs: int = 0
    seconds: float = 0.0
    note: str = ""
    worker: str = ""
    certificate: Any = None

    @staticmethod
    def failed(job: int, reason: str, worker: str = "", seconds: float = 0.0) -> Outcome:
        return Outcome(job, FAILED, note=reason, worker=worker, seconds=seconds)


Work: TypeAlias = Callable[[Network, Vector, int | None, Job, Options], Outcome]


@cache
def warm_up(options: Options) -> None:
    """Compile every kernel (or read it from the cache) before a clock runs: each norm and method on a tiny network."""
    rng = np.random.default_rng(0)
    sizes = (3, 6, 6, 3)  # few regions, but enough for every search to branch
    tiny = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    )
    domain = None if options.domain is None else (0.0, 1.0)
    for norm in options.norms:
        for method in options.methods:
            for x in ([0.2, 0.3, 0.4], [0.9, 0.1, 0.7]):
                with suppress(LayerCertError):  # a method that cannot take this norm says so in its own jobs
                    measure(tiny, x, norm, None, None, domain, method, None, options.certificates, stack=options.stack)


def solve(network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    """Measure one input; whatever goes wrong inside Python becomes a failed outcome with the reason."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    try:
        result = measure(
            network,
            x,
            job.norm,
            label,
            options.radius,
            options.domain,
            job.method,
            options.time_limit,
            options.certificates,
            stack=options.stack,
        )
    except MemoryError:
        return Outcome.failed(job.id, "out of memory: the memory limit of the worker was reached", worker)
    except Exception as error:  # one bad job must not take the batch down; the reason is in its row
        return Outcome.failed(job.id, f"{type(error).__name__}: {error}", worker)
    return Outcome(
        job=job.id,
        status=str(result.status),
        lower=result.lower,
        upper=result.upper,
        label=result.label,
        target=result.target,
        witness=result.witness,
        programs=result.programs,
        seconds=result.seconds,
        note=result.note,
        worker=worker,
        certificate=result.certificate,
    )
