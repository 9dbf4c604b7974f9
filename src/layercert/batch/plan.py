"""What a batch asks: models x inputs x norms x methods, with one set of options. A plan is a value."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.errors import InputError, OptionError
from layercert.io.datasets import Dataset
from layercert.methods import AUTO, method_named
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.search.task import GAP
from layercert.session import check_gap, check_threads

#: A job may overrun its time limit by that limit and this many seconds (loading code, a long step) before it is ended.
GRACE = 60.0


#: Options that a run made before there were any of them does not have: they are told apart where they are set.
QUESTION = ("target", "weights", "fixed", "integer", "one_of")
LATER = ("eps", "cpu_time", *QUESTION)


@dataclass(frozen=True)
class Options:
    """Everything that shapes an answer, apart from the model and the input; stored with the run.

    Attributes:
        norms: Names of norms, each one a job per input, model and method.
        methods: Names of methods; "auto" chooses one for each job.
        radius: How far a search looks; None for no limit.
        domain: (low, high), the range of every coordinate; None for all points.
        time_limit: Seconds per job, with `eps` per radius; None for no limit.
        stack: The solvers for distance programs.
        certificates: Whether every answer gets a certificate.
        eps: Radii at which to verify instead of measuring the distance; empty for the distance.
        target: The classes asked for, empty for any other class.
        weights: One number > 0 per input: distances are ||weights * (v - x)||; empty for the plain norm.
        fixed: Positions of inputs that stay as they are.
        integer: Positions of inputs that are whole numbers.
        one_of: Groups of positions of which exactly one is 1 and the others are 0.
        gap: A search for a distance ends when (upper - lower) / upper is this small.
        threads: How many threads one job may use; None leaves it to the method. Any number gives the same answers.
        cpu_time: Whether the time limit counts CPU seconds of the worker process instead of those of the clock.
    """

    norms: tuple[str, ...] = ("linf",)
    methods: tuple[str, ...] = (AUTO,)
    radius: float | None = None
    domain: tuple[float, float] | None = None
    time_limit: float | None = None
    stack: str = "default"
    certificates: bool = False
    eps: tuple[float, ...] = ()
    target: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    fixed: tuple[int, ...] = ()
    integer: tuple[int, ...] = ()
    one_of: tuple[tuple[int, ...], ...] = ()
    gap: float = GAP
    threads: int | None = None
    cpu_time: bool = False

    def __post_init__(self) -> None:
        norms = tuple(Norm.of(norm).name for norm in self.norms)
        for kind, names in (("norm", norms), ("method", self.methods)):
            if not names:
                raise OptionError(f"a batch needs at least one {kind}, got none")
            if len(set(names)) < len(names):
                raise OptionError(f"a {kind} is named twice: {', '.join(names)}; name each one once")
        object.__setattr__(self, "norms", norms)
        for method in self.methods:
            method_named(method)
        check_gap(self.gap)
        check_threads(self.threads)
        for norm in norms:
            make_chain(self.stack, Norm.of(norm))
        if self.time_limit is not None and not self.time_limit > 0:
            raise OptionError(f"the time limit must be above 0 seconds, got {self.time_limit:g}")
        object.__setattr__(self, "eps", tuple(sorted({float(e) for e in self.eps})))
        for e in self.eps:
            if not 0 < e < math.inf:
                raise OptionError(f"a radius to verify must be above 0 and finite, got eps = {e:g}")
        if self.eps and self.radius is not None:
            raise OptionError("eps asks at given radii, radius ends a search for the distance; give one of the two")

    @property
    def question(self) -> dict[str, Any]:
        """What `robustness`, `measure` and `verify` take by these names."""
        return {name: getattr(self, name) or None for name in QUESTION}

    @property
    def identity(self) -> dict[str, Any]:
        """What shapes an answer, as JSON gives it back; how many threads there are does not."""
        unasked = {"threads", *(name for name in LATER if not getattr(self, name))}
        if self.gap == GAP:
            unasked.add("gap")
        plain = {k: v for k, v in asdict(self).items() if k not in unasked}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}

    @property
    def job_limit(self) -> float | None:
        """Seconds of a whole job: the time limit for each radius asked about."""
        return None if self.time_limit is None else self.time_limit * max(1, len(self.eps))


@dataclass(frozen=True, eq=False)
class Model:
    """A network under the name the report shows."""

    name: str
    network: Network

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", self.network.classifier)  # a run is about classes, its threshold included


@dataclass(frozen=True)
class Job:
    """One question of a batch; ids count from 0 in the order of the plan."""

    id: int
    model: int
    input: int
    norm: str
    method: str
    keep: bool = field(default=False, compare=False)  # is what a time limit leaves open wanted?
    search: Path | None = field(default=None, compare=False)  # where that of an earlier session is
    saved: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)  # the same, read


@dataclass(frozen=True, eq=False)
class Plan:
    """Models x inputs x norms x methods.

    Attributes:
        models: Networks with names.
        data: The inputs, with labels where known.
        options: Norms, methods, limits.
    """

    models: tuple[Model, ...]
    data: Dataset
    options: Options

    def __post_init__(self) -> None:
        if not self.models:
            raise OptionError("a batch needs at least one model, got none")
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise OptionError(f"two models have the same name ({', '.join(names)}); rename one file")

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """Every question of the batch, in order."""
        return tuple(Job(i, *rest) for i, rest in enumerate(self._products()))

    def _products(self) -> Iterator[tuple[int, int, str, str]]:
        # input by input, so that a run stopped half way has complete inputs to compare
        for i in range(len(self.data)):
            for model in range(len(self.models)):
                for norm in self.options.norms:
                    for method in self.options.methods:
                        yield model, i, norm, method

    def first(self, inputs: int) -> Plan:
        """The plan for the first inputs alone.

        Args:
            inputs: How many; more than there are stand for all of them.

        Returns:
            The same models and options; its jobs are the first ones of this plan, under the same ids.
        """
        return Plan(self.models, self.data.take(np.arange(min(inputs, len(self.data)))), self.options)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the inputs, those of a table or of the models; () where they have none."""
        return self.data.columns or self.models[0].network.input_names

    def label(self, i: int) -> int | None:
        """The label of an input.

        Args:
            i: Its position in the data.

        Returns:
            The class, None where the data have no labels.
        """
        return None if self.data.y is None else int(self.data.y[i])

    def check(self) -> None:
        """Find everything that is wrong with the inputs before any work starts."""
        for model in self.models:
            for i, name in enumerate(self.data.names):
                o = self.options
                try:
                    x = self.data.point(i, model.network)
                    robustness(model.network, x, o.norms[0], self.label(i), o.radius, o.domain, **o.question)
                except InputError as error:
                    raise InputError(f"input {name} on model {model.name}: {error}") from None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must agree for a run to be continued. How many workers there are and where they run does not matter."""
        return {
            "models": [[model.name, model.network.sha256] for model in self.models],
            "inputs": len(self.data),
            "inputs_sha256": _joint_hash([input_hash(x) for x in self.data.X]),
            "positions": [int(i) for i in self.data.index],
            "labels": None if self.data.y is None else [int(k) for k in self.data.y],
            **self.options.identity,
        }


def input_hash(x: Vector) -> str:
    return hashlib.sha256(np.ascontiguousarray(x, dtype="<f8").tobytes()).hexdigest()


def _joint_hash(hashes: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Where two identities disagree, in words."""
    lines: list[str] = []
    for key in sorted({*stored, *wanted}):
        old, new = stored.get(key), wanted.get(key)
        if old != new:
            brief = len(repr(old)) + len(repr(new)) < 160
            lines.append(f"{key} was {_shown(old)}, now {_shown(new)}" if brief else f"{key} differ")
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(_shown(v) for v in value) + ")"
    return "unset" if value is None else str(value)


def memory_bytes(text: str) -> int:
    """'2G', '500M', '800000K' or a plain number of bytes."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    try:
        size = float(number) * units.get(unit, 1)
    except ValueError:
        raise OptionError(f"cannot read the memory size {text!r}; expected a number with a unit: 500M or 2G") from None
    if not 0 < size < math.inf:
        raise OptionError(f"a memory limit must be above 0, got {text}")
    return int(size)
