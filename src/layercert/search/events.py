"""What a search reports while it runs. Time limits, progress bars, traces, pictures and records consume these events;
none of them enters the algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from layercert.arrays import Vector
from layercert.geometry import Cell
from layercert.problem import Clause
from layercert.scaled import Scaled


@dataclass(frozen=True, eq=False)
class Bound:
    """Every unsafe point is at least this far away (proved)."""

    lower: float


@dataclass(frozen=True, eq=False)
class Visit:
    """A pattern was taken from the queue."""

    cell: Cell
    distance: float


@dataclass(frozen=True, eq=False)
class Queue:
    """A pattern was put into the queue, `origin` being the pattern it was found from."""

    cell: Cell
    distance: float
    origin: Cell


@dataclass(frozen=True, eq=False)
class Prune:
    """A pattern and everything below it was dropped, and why."""

    cell: Cell
    why: str


@dataclass(frozen=True, eq=False)
class Improve:
    """The incumbent took a point nearer than any before: x + step but for settling, at this distance."""

    step: Vector
    distance: float
    clause: Clause


@dataclass(frozen=True)
class Nodes:
    """How far a tree of nodes is.

    Attributes:
        open: Nodes that wait or are worked on.
        closed: Nodes that are closed.
        share: The part of the tree that is closed, a node with d splits counting 2^-d.
        depth_first: Is the queue as large as its memory allows?
    """

    open: int
    closed: int
    share: float
    depth_first: bool = False


Event: TypeAlias = Bound | Visit | Queue | Prune | Improve | Nodes


def translated(view: Scaled, events: Iterator[Event]) -> Iterator[Event]:
    """The events of a search in scaled coordinates as those of the problem that was asked."""
    if view.problem is view.original:
        yield from events
        return
    for event in events:
        if isinstance(event, Bound):
            yield Bound(view.lower(event.lower))
        elif isinstance(event, Improve):
            clause, step = view.clause(event.clause), view.offset(event.step)
            yield Improve(step, view.original.norm.value(step), clause)
        else:
            yield event
