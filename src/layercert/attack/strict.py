"""Honest witnesses: which arithmetics agree that a point is misclassified, and a point on which more of them do.

A witness found by a search is unsafe for the network as a function of real numbers. Where the model came from a file
or a module with a runtime of its own, the witness is moved a little further, onto numbers that float32 can hold, until
that runtime says the same; never by more than `STRETCH` of its distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layercert.arrays import FEW, Vector
from layercert.problem import Problem
from layercert.system import clock

#: A witness may move away by this much of its distance to satisfy the model's own runtime.
STRETCH = 8e-7


@dataclass(frozen=True)
class Holds:
    """What is true of a witness."""

    exact: str  # "misclassified" or "tie", in real arithmetic
    runtime: str | None = None  # the runtime that was asked
    runtime_agrees: bool | None = None
    float32_error: float = 0.0  # what float32 inference may be wrong by there, in any output

    def __str__(self) -> str:
        text = f"{self.exact} in exact arithmetic"
        if self.runtime is not None:
            text += f", {'also' if self.runtime_agrees else 'not'} under {self.runtime}"
        return text


def examine(problem: Problem, v: Vector) -> Holds:
    """What holds at a witness."""
    error = float(problem.network.float32_error(v).max())
    name, answer = _ask(problem, v)
    return Holds("misclassified" if strictly_unsafe(problem, v) else "tie", name, answer, error)


def strictly_unsafe(problem: Problem, v: Vector) -> bool:
    """Unsafe with something to spare, in real arithmetic: another class, not a tie."""
    return problem.is_unsafe(v, strict=True)


def harden(problem: Problem, v: Vector, most: float = math.inf) -> tuple[Vector, Holds]:
    """The witness itself, or one next to it that the model's own runtime misclassifies too, nearer than `most`.

    Where the time is up, the witness stays as it is: every try costs some passes through the network.
    """
    holds = examine(problem, v)
    if holds.runtime is None or (holds.runtime_agrees and holds.exact == "misclassified"):
        return v, holds
    distance = problem.distance(v)
    farthest = min(distance * (1.0 + STRETCH), most * (1.0 - FEW))
    if distance <= problem.radius:  # an answer to "within the radius?" stays one
        farthest = min(farthest, problem.radius)
    network, norm = problem.network, problem.norm
    clause = problem.nearest_clause(v)
    F, _ = network.linear_piece(network.pattern(v))
    row = int(clause.margins(network(v)).argmax())
    inwards = -norm.steepest((clause.C[row] @ F)[None])[0]
    outwards = (v - problem.x) / distance if distance > 0 else inwards
    for push in (0.0, 1e-8, 1e-7, 3e-7, 5e-7, 0.9 * STRETCH):
        for direction in (inwards, outwards):
            if clock.passed():
                return v, holds
            with np.errstate(over="ignore"):  # beyond float32 there is no such point
                single = (v + push * distance * direction).astype(np.float32)
            u = problem.into_domain(single.astype(np.float64))
            if problem.distance(u) > farthest or not problem.is_unsafe(u, strict=True):
                continue
            better = examine(problem, u)
            if better.runtime_agrees:
                return u, better
    return v, holds


def _ask(problem: Problem, v: Vector) -> tuple[str | None, bool | None]:
    """The model's own runtime on a robustness question; (None, None) when there is no runtime to ask."""
    runtime = problem.network.runtime
    if runtime is None or problem.label is None:
        return None, None
    outputs = runtime(v)
    if outputs is None or outputs.shape != (problem.network.classes,):
        return None, None
    given = int(outputs.argmax())
    agrees = given != problem.label if problem.targets is None else given in problem.targets
    agrees = agrees and bool(np.isfinite(outputs).all())  # of a point beyond its numbers a runtime says nothing
    return str(getattr(runtime, "name", "its runtime")), agrees
