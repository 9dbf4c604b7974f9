"""Many inputs from Python: `measure` over an array or a data loader, in order, on several processes."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from layercert.batch.local import LocalProcesses
from layercert.batch.plan import Model, Options, Plan
from layercert.batch.work import Outcome
from layercert.errors import InputError, MissingPackageError, OptionError
from layercert.how import is_count
from layercert.io.datasets import Dataset
from layercert.methods import AUTO
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import robustness
from layercert.questions import Fixed, OneOf, Target, Weights, check_network, in_positions, whole_number
from layercert.result import Result, Status
from layercert.run import GAP, measure
from layercert.shapes import flattened
from layercert.system import notebook

#: What a row of the table says, from left to right.
COLUMNS = (
    "input", "label", "status", "lower", "upper", "target", "norm", "method", "programs", "seconds", "note",
)  # fmt: skip


class Measurements:
    """The answers of `measure_all`, in the order of the inputs.

    Iterating gives each `Result` as soon as it and all before it are there; a second time, and by index or slice, those
    that are there already come at once. What was not asked for is not computed.
    """

    def __init__(self, results: Iterator[Result], count: int) -> None:
        self._coming, self._count = results, count
        self._results: list[Result] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Result]:
        for i in range(self._count):
            self._wait_for(i)
            yield self._results[i]

    def __getitem__(self, which: int | slice) -> Any:
        wanted = range(self._count)[which]
        last = wanted if isinstance(wanted, int) else max(wanted, default=-1)
        self._wait_for(last)
        return self._results[wanted] if isinstance(wanted, int) else [self._results[i] for i in wanted]

    def _wait_for(self, i: int) -> None:
        while len(self._results) <= i:
            self._results.append(next(self._coming))

    def rows(self) -> list[dict[str, Any]]:
        """The answers as a table of plain values, when all are there.

        Returns:
            A dictionary per input: its number, class, status, bounds, the class of the witness and what it took.
        """
        return [
            {name: i if name == "input" else _plain(getattr(r, name)) for name in COLUMNS} for i, r in enumerate(self)
        ]

    def to_pandas(self) -> Any:
        """The same table as a pandas DataFrame, which needs `pip install 'layercert[pandas]'`.

        Returns:
            A DataFrame with a row per input.
        """
        try:
            import pandas
        except ImportError:
            raise MissingPackageError("pandas", "a table of results as a DataFrame", "pandas") from None
        return pandas.DataFrame(self.rows(), columns=list(COLUMNS))

    def __str__(self) -> str:
        """The table as text, with a line of counts."""
        shown = [name for name in COLUMNS if name not in ("norm", "method", "programs")]
        lines = [shown, *([_text(row[name]) for name in shown] for row in self.rows())]
        widths = [max(len(line[i]) for line in lines) for i in range(len(shown))]
        text = ["  ".join(v.ljust(w) for v, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([*text, _text_of(Counter(str(r.status) for r in self))])

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of the answers that are there, and their counts."""
        shown = [name for name in COLUMNS if name not in ("norm", "method", "programs")]
        ready = [(i, r) for i, r in enumerate(self._results)]
        cells = [[_text(i if name == "input" else _plain(getattr(r, name))) for name in shown] for i, r in ready]
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        head = "".join(f"<th>{name}</th>" for name in shown)
        counts = _text_of(Counter(str(r.status) for _, r in ready))
        text = f"{len(ready)} of {self._count} inputs measured" + (f": {counts}" if counts else "")
        return f"<p>{text}</p><table><tr>{head}</tr>{body}</table>"

    def __repr__(self) -> str:
        return f"Measurements({len(self._results)} of {self._count} inputs measured)"


# The signature is a contract, as that of `measure`; inside, it is a Plan with its Options.
def measure_all(
    network: Network,
    X: ArrayLike | Iterable[Any],
    labels: ArrayLike | None = None,
    norm: str | float = "linf",
    radius: float | None = None,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    method: str | None = None,
    time_limit: float | None = None,
    certificate: bool = False,
    *,
    target: Target | None = None,
    weights: Weights | None = None,
    fixed: Fixed | None = None,
    integer: Fixed | None = None,
    one_of: OneOf | None = None,
    jobs: int = 1,
    gap: float = GAP,
    threads: int | None = None,
    stack: str = "default",
    progress: bool | None = None,
) -> Measurements:
    """`measure` for many inputs, in order, on several processes if asked.

    A process that crashes or runs out of memory costs one input a second try, nothing else. For runs that survive the
    end of this process, and for reports, there is `layercert.batch.run_batch`.

    Args:
        network: A network.
        X: An array or tensor with an input per row, a list of inputs, or a data loader or data set of PyTorch
            (anything that yields batches or single inputs, each with or without labels).
        labels: The true class of every input; by default those of the loader, else the network's own answers.
        norm: l1, l2, linf or a number p >= 1.
        radius: Look no farther than this; None for no limit.
        domain: (low, high), two numbers or two arrays: the range of every coordinate; None for all points.
        method: Name of the search; by default the one that measured best for each input.
        time_limit: Seconds for each input; None for no limit.
        certificate: Whether every answer gets a certificate.
        target: Ask for points of this class, or of one of these, instead of any other class.
        weights: One number > 0 per input, or a mapping from some inputs to theirs: distances are ||weights * (v - x)||.
        fixed: Inputs that stay as they are, by position or by name.
        integer: Inputs that are whole numbers, by position or by name.
        one_of: Groups of inputs of which exactly one is 1 and the others are 0.
        jobs: Processes; 1 works in this process.
        gap: A search ends when (upper - lower) / upper is this small, and "exact" means exact up to it.
        threads: How many threads one search may use; by default the method's own choice.
        stack: The solvers for distance programs.
        progress: Whether to draw a progress bar; by default on a terminal and in a notebook.

    Returns:
        The results: iterate to have them as they come, or take `rows()`, `to_pandas()`, `print`.

    Raises:
        InputError: An input, its label or its shape does not fit the network; nothing was started.
        OptionError: An option has a value that it cannot have.
    """
    check_network(network)
    points, found = _collect(X)
    given = found if labels is None else list(np.asarray(_local(labels)).reshape(-1))
    if given is not None and len(given) != len(points):
        raise InputError(f"there are {len(points)} inputs and {len(given)} labels; pass one label for each input")
    if not is_count(jobs):
        raise OptionError(f"measure_all needs at least one process, got jobs={jobs!r:.60}")
    classes: list[int | None] = [None] * len(points) if given is None else [_label(k) for k in given]
    ends = None if domain is None else (_end(network, domain[0]), _end(network, domain[1]))
    columns = tuple(str(name) for name in getattr(X, "columns", ()))
    if len(columns) == network.inputs:
        network = replace(network, input_names=columns)
    given_question = {"target": target, "weights": weights, "fixed": fixed, "integer": integer, "one_of": one_of}
    asked: dict[str, Any] = in_positions(network.classifier, given_question)
    options = Options(
        (Norm.of(norm).name,), (method or AUTO,), radius, ends, time_limit, stack, certificate,
        gap=gap, threads=threads, **asked,
    )  # fmt: skip
    flat = np.zeros((len(points), network.inputs))
    for i, (x, label) in enumerate(zip(points, classes, strict=True)):
        try:
            problem = robustness(network, x, norm, label, radius, ends, **options.question)
        except InputError as error:
            raise InputError(f"input {i}: {error}") from None
        flat[i], classes[i] = problem.x, problem.label
    results = _here(network, flat, classes, options) if jobs == 1 else _elsewhere(network, flat, classes, options, jobs)
    shaped = (replace(r, shape=tuple(np.shape(x))) for r, x in zip(results, points, strict=True))
    return Measurements(_shown(shaped, len(points), progress), len(points))


def _here(network: Network, X: Any, labels: list[int | None], options: Options) -> Iterator[Result]:
    (norm,), (method,) = options.norms, options.methods
    for x, label in zip(X, labels, strict=True):
        yield measure(
            network, x, norm, label, options.radius, options.domain, method, options.time_limit, options.certificates,
            gap=options.gap, threads=options.threads, stack=options.stack, watch=_unwatched, **options.question,
        )  # fmt: skip


def _unwatched(progress: object, event: object) -> None:
    """The line of all inputs is enough."""


def _elsewhere(network: Network, X: Any, labels: list[int | None], options: Options, jobs: int) -> Iterator[Result]:
    """Outcomes come as they finish; each waits here until all before it are there."""
    numbers = np.arange(len(X))
    data = Dataset(X, np.array(labels, dtype=np.intp), numbers, tuple(map(str, numbers)))
    plan = Plan((Model("network", network),), data, options)
    early: dict[int, Result] = {}
    following = 0
    with closing(LocalProcesses(jobs).run(plan, plan.jobs)) as outcomes:  # type: ignore[type-var]
        for outcome in outcomes if len(X) else ():
            early[outcome.job] = _result(outcome, plan)
            while following in early:
                yield early.pop(following)
                following += 1


def _result(outcome: Outcome, plan: Plan) -> Result:
    """What the worker answered, or what it had proved when it was ended, with the question."""
    result, options = outcome.examined(plan).result, plan.options
    if result.x is not None:
        return result
    return replace(
        result,
        label=plan.label(plan.jobs[outcome.job].input) if result.label is None else result.label,
        norm=options.norms[0],
        radius=math.inf if options.radius is None else options.radius,
        method=options.methods[0],
        x=plan.data.X[plan.jobs[outcome.job].input],
        names=plan.models[0].network.input_names,
    )


def _shown(results: Iterator[Result], count: int, progress: bool | None) -> Iterator[Result]:
    """The same results, with a bar on stderr while they come, or a line in a notebook."""
    if notebook.in_notebook():
        yield from _shown_in_notebook(results, count, progress is not False)
        return
    on = sys.stderr.isatty() if progress is None else progress
    columns = (MofNCompleteColumn(), BarColumn(bar_width=24), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not on) as bar:
        task = bar.add_task("", total=count, state="")
        counts: Counter[str] = Counter()
        for result in results:
            counts[str(result.status)] += 1
            bar.update(task, advance=1, state=_text_of(counts))
            yield result


def _shown_in_notebook(results: Iterator[Result], count: int, on: bool) -> Iterator[Result]:
    line, counts, started = notebook.Line(), Counter[str](), time.monotonic()
    for done, result in enumerate(results, 1):
        counts[str(result.status)] += 1
        if on:
            seconds = time.monotonic() - started
            line.show(f"{done} of {count} inputs, {seconds:.0f} s: {_text_of(counts)}", last=done == count)
        yield result


def _text_of(counts: Counter[str]) -> str:
    return ", ".join(f"{k} {status}" for status, k in sorted(counts.items()))


def _collect(X: Any) -> tuple[list[Any], list[Any] | None]:
    """Single inputs, each in its own shape, and their labels where they come with them."""
    if hasattr(X, "to_numpy"):  # a table of pandas, whose rows are not what it yields
        X = X.to_numpy()
    if hasattr(X, "__array__") or isinstance(X, (list, tuple)):
        return [_local(x) for x in X], None
    if not isinstance(X, Iterable) and not hasattr(X, "__getitem__"):
        raise InputError(f"X must be an array with an input per row or a data loader, got {type(X).__name__}")
    points: list[Any] = []
    labels: list[Any] = []
    for item in X:
        x, y = (item[0], item[1]) if isinstance(item, (list, tuple)) and len(item) > 1 else (item, None)
        x = _local(x[0] if isinstance(x, (list, tuple)) else x)
        if x.ndim == 0:
            raise InputError(f"X must yield inputs or batches of them, got {item!r:.60} from {type(X).__name__}")
        if y is None:
            points += list(x)  # a batch
            continue
        single = np.ndim(_local(y)) == 0
        points += [x] if single else list(x)
        labels += [y] if single else list(_local(y))
    if labels and len(labels) != len(points):
        raise InputError(
            f"the loader gave {len(points)} inputs and {len(labels)} labels; give a label for each or none"
        )
    return points, labels or None


def _local(value: Any) -> Any:
    """An array on this machine, also from a tensor that has a gradient or lives on another device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _end(network: Network, end: ArrayLike) -> Any:
    """An end of the domain as plain numbers, which can be sent to other processes."""
    array = _local(end)
    if array.ndim == 0:
        try:
            return float(array)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"an end of the domain is a number or an array of them, got {end!r:.60}") from None
    return tuple(flattened(array, network.inputs, network.input_shape, "end of the domain").tolist())


def _label(value: Any) -> int:
    number = whole_number(value)
    if number is None:
        raise InputError(f"a label is a whole number, the number of a class; got {value}")
    return number


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Status) else value


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
