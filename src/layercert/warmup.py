"""Compile kernels ahead of their first use, on all cores: `layercert warmup`, and a helper of a first measurement.

Which functions are needed, for which types, nobody has to write down: a process of its own runs tiny questions with the
kernels as plain Python and records every call (`recorded`). The functions are then compiled by several processes, those
that others call first; they share what they make through the files of machine code (`layercert.compiled.sharing`).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from layercert.compiled.helper import INSIDE
from layercert.system.threads import cores

NORMS = ("linf", "l2", "l1", "3")
#: After so many calls of a kernel only some are looked at; seconds for a question in plain Python.
ENOUGH, PATIENCE = 20, 1.0
#: Nodes of a tree that has reached what trees reach.
SPLIT = 12
#: What a first measurement needs, and what there is besides.
FIRST, ALL = "first", "all"


class Kernel(NamedTuple):
    """A compiled function with the types of its arguments."""

    module: str
    name: str
    types: tuple[Any, ...]
    inner: bool  # called by another kernel


def warm_up(told: Callable[[int, int], None] | None = None, jobs: int | None = None) -> int:
    """Compile every kernel that is not kept yet.

    Args:
        told: Called with how many of how many kernels are done.
        jobs: Processes; by default one per core.

    Returns:
        The number of kernels.
    """
    kernels = in_fresh_process(ALL)
    jobs = jobs or cores()
    with _marked(), ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(compile_kernel, kernel) for kernel in kernels]
        for done, _ in enumerate(as_completed(waiting), 1):
            if told is not None:
                told(done, len(kernels))
    return len(kernels)


@contextmanager
def _marked() -> Iterator[None]:
    os.environ[INSIDE] = "1"
    try:
        yield
    finally:
        del os.environ[INSIDE]


def compile_kernel(kernel: Kernel) -> None:
    """Compile one function for some types, or find it compiled."""
    compiled: Any = getattr(import_module(kernel.module), kernel.name)
    if hasattr(compiled, "compile"):  # else somebody debugs without the compiler
        (compiled if kernel.inner else compiled.kernel.entry).compile(kernel.types)


def in_fresh_process(what: str) -> list[Kernel]:
    """The kernels that some questions need, recorded by a process in which none is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels"
        command, quiet = [sys.executable, "-m", "layercert.warmup", "record", what, str(file)], subprocess.DEVNULL
        subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=True, stdout=quiet, stderr=quiet)
        kernels: list[Kernel] = pickle.loads(file.read_bytes())  # written by ourselves, a moment ago
        return kernels


def recorded(what: str) -> list[Kernel]:
    """The same in this process, which must not have imported any kernel yet; inner functions come before those that
    call them."""
    import numba

    from layercert.compiled.jit import record_instead

    found: dict[Kernel, None] = {}
    calls: Counter[tuple[Callable[..., object], bool]] = Counter()

    def told(function: Callable[..., object], args: tuple[Any, ...], inner: bool) -> None:
        calls[function, inner] += 1
        count = calls[function, inner]
        if count > ENOUGH and count % ENOUGH:  # types take time to tell, and change little
            return
        types = tuple(numba.typeof(a) for a in args)
        found[Kernel(function.__module__, function.__qualname__, types, inner)] = None

    record_instead(told)
    for ask in _questions(what):
        with suppress(Exception):  # a method that cannot take this norm needs no kernels for it
            ask()
    return list(found)


def _questions(what: str) -> Iterator[Callable[[], object]]:
    """Tiny questions that reach every kernel: norms, methods, certificates. A domain changes no type."""
    import numpy as np

    from layercert.certificate.checker import check
    from layercert.methods import ADAPTIVE, INPUT_SPLIT, METHODS
    from layercert.network import Network
    from layercert.run import measure

    rng = np.random.default_rng(0)
    sizes = (3, 6, 6, 3)  # few regions, but enough for every search to branch
    tiny = Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) for m in sizes[1:]]
    )
    x, domain = [0.2, 0.3, 0.4], (-1.0, 2.0)
    yield partial(measure, tiny, x, "linf", domain=domain, method=ADAPTIVE)
    if what == FIRST:
        return

    def proved(norm: str, method: str) -> None:
        certificate = measure(tiny, x, norm, domain=domain, method=method, certificate=True).certificate
        if certificate is not None:
            check(tiny, certificate)

    for norm in NORMS:
        yield partial(proved, norm, ADAPTIVE)
        yield partial(measure, tiny, x, norm, method=ADAPTIVE)
    yield partial(proved, "linf", INPUT_SPLIT)
    for norm in NORMS:
        yield partial(_branched, norm)
        yield partial(_walked, norm)
    yield _curved
    yield _hulled
    for method in METHODS:
        for norm in NORMS:
            yield partial(measure, tiny, x, norm, domain=domain, method=method, time_limit=PATIENCE)
        yield partial(measure, tiny, x, "l2", method=method, time_limit=PATIENCE)


def _branched(norm: str) -> None:
    """A tree that is worked on with so little effort that it has to split, of a clause with two rows."""
    import numpy as np

    from layercert.network import Network
    from layercert.problem import Clause, robustness
    from layercert.programs.stacks import make_chain
    from layercert.search.adaptive.tree import Ball, Effort
    from layercert.search.events import Nodes
    from layercert.search.task import Task

    rng = np.random.default_rng(28)  # the first hundred others are closed sooner
    weights = [rng.normal(size=shape) for shape in ((6, 3), (6, 6), (3, 6))]
    net = Network.from_arrays(weights, [rng.normal(size=len(W)) for W in weights])
    asked = robustness(net, rng.uniform(size=3), norm, domain=(-1.0, 2.0))
    both = Clause(np.vstack([c.C for c in asked.clauses]), np.concatenate([c.d for c in asked.clauses]))
    problem = replace(asked, clauses=(*asked.clauses, both))
    weak = Effort(1, 1, 1, 1, 1, steps=2, candidates=2, probe_steps=1, rounds=1, passes=1, seek_steps=1)
    ball = Ball(Task(problem, make_chain("default", problem.norm)), weak, None, 1.0)
    for event in ball.run():
        if isinstance(event, Nodes) and ball.frontier.made > SPLIT:
            return


def _walked(norm: str) -> None:
    """An attack that walks, as on networks too large to be a question here."""
    import numpy as np

    from layercert.attack.kernel import PackedProblem
    from layercert.attack.walk import walks
    from layercert.network import Network
    from layercert.problem import robustness
    from layercert.system import clock

    tiny = Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    asked = PackedProblem.of(robustness(tiny, [1.0, 0.0], norm, domain=(-1.0, 2.0)))
    walks(asked, np.array([-0.6, 0.6]), 0, 0.9, 1, 0, clock.timer())


def _curved() -> None:
    """Parabolas of a sparse first layer, which are for networks too large to be a question here."""
    import numpy as np

    from layercert.network import Network
    from layercert.problem import robustness
    from layercert.programs.stacks import make_chain
    from layercert.search.adaptive.tree import Ball, Effort
    from layercert.search.task import Task

    weights = [np.eye(4), np.ones((3, 4)) - np.eye(3, 4), np.eye(2, 3)]
    tiny = Network.from_arrays(weights, [np.zeros(4), np.array([-0.5, 0.0, 0.5]), np.zeros(2)])
    problem = robustness(tiny, [0.2, -0.1, 0.3, 0.4], "l2")
    Ball(Task(problem, make_chain("default", problem.norm)), Effort(), None, 1.0, curved=True).quick()


def _hulled() -> None:
    """Facets, games and what is fixed by them, at a root that other bounds would close."""
    import numpy as np

    from layercert.facets import Facets
    from layercert.network import Network
    from layercert.problem import robustness
    from layercert.programs.stacks import make_chain
    from layercert.search.adaptive.bent import bent_pass
    from layercert.search.adaptive.model import COEF
    from layercert.search.adaptive.played import bound_by_play
    from layercert.search.adaptive.programmed import bound_by_programs, fix_and_tighten
    from layercert.search.adaptive.tree import Ball, Effort
    from layercert.search.task import Task

    rng, inputs = np.random.default_rng(1), 12
    weights = [rng.normal(size=(2, inputs - 2))]
    for width in (inputs - 1, inputs):  # each neuron reads two
        weights.insert(
            0, (np.eye(width - 1, width) + np.eye(width - 1, width, 1)) * rng.normal(size=(width - 1, width))
        )
    net = Network.from_arrays(weights, [0.3 * rng.normal(size=len(W)) for W in weights])
    problem = robustness(net, rng.uniform(size=inputs), "linf", domain=(-1.0, 2.0))
    ball = Ball(Task(problem, make_chain("default", problem.norm)), Effort(), None, 1.0)
    node, worker, hulls = ball.roots(0, 1)[0], ball.workers[0], ball.hulls
    bound_by_play(worker, node)
    bound_by_programs(worker, node)
    if hulls is not None:  # a program of so few inputs has no facets, and without them nothing is fixed
        neurons = np.arange(len(weights[0]))
        facets = Facets(neurons, np.ones(len(neurons)), np.full(2 * len(neurons), 0.5))
        bends = hulls.bends(node.state, facets, ball.U)
        done, node.state[COEF] = bent_pass(ball.model, node.state, node.weights, 0, bends)
        fix_and_tighten(worker, node, node.halfspace, bends, done)


def help_first() -> None:
    """The helper of a first measurement: what that calls last comes first here, so that the two meet in the middle."""
    kernels = in_fresh_process(FIRST)
    for kernel in reversed([kernel for kernel in kernels if not kernel.inner]):
        compile_kernel(kernel)


def main(argv: Sequence[str]) -> None:
    if argv[0] == "record":
        Path(argv[2]).write_bytes(pickle.dumps(recorded(argv[1])))
    else:
        help_first()


if __name__ == "__main__":
    from layercert import warmup  # under its own name, which is the one that pickle writes

    warmup.main(sys.argv[1:])
