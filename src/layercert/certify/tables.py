"""A format 2 tree under construction: nodes with their steps, and the tables of objectives and rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Indices, Vector
from layercert.certificate.steps import Objective, StepTree, parts_of_one
from layercert.search.adaptive.record import Halfspace

#: Slopes of objectives have 16 bits: a leaf may be closed by a hair.
ALPHA = np.uint16


@dataclass
class Step:
    """An objective and the rows that are used on its cap, in the order of their layers."""

    objective: int
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    lams: list[NDArray[np.float32]] = field(default_factory=list)


@dataclass
class Node:
    steps: list[Step] = field(default_factory=list)
    layer: int = 0
    neuron: int = 0


class Tables:
    """Objectives and rows that were suggested; those that no step uses are left out of the file."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.starts = np.cumsum([0, *widths])
        self.neurons = int(self.starts[-1])
        self.alpha: list[NDArray[Any]] = []
        self.beta: list[NDArray[Any]] = []  # of float32, or of float64 where a leaf needs it
        self.mu: list[Vector] = []
        self.target: list[int] = []
        self.side: list[int] = []
        self.pull: list[float] = []
        self.slopes: list[NDArray[np.uint8]] = []  # over all neurons below
        self.splits: list[tuple[NDArray[Any], NDArray[np.float32]]] = []

    def add_objective(self, own: Halfspace, precise: bool = False) -> tuple[int, Objective]:
        """Its number, and the values as they will be read; precise: multipliers of sides in float64, not in float32."""
        alpha = np.rint(own.alpha * np.iinfo(ALPHA).max).astype(ALPHA)
        beta = own.beta if precise else own.beta.astype(np.float32)
        self.alpha.append(alpha)
        self.beta.append(beta)
        self.mu.append(own.weights)
        return len(self.mu) - 1, Objective(parts_of_one(alpha), beta.astype(np.float64), own.weights)

    def add_rows(self, at: Indices, slopes: NDArray[np.uint8], betas: Any, pulls: NDArray[np.float32]) -> Indices:
        """Their numbers; `at` as in KeptRows, betas as compressed rows or None."""
        first = len(self.target)
        self.target += (at // 2).tolist()
        self.side += (1 - 2 * (at % 2)).tolist()
        self.pull += pulls.tolist()
        self.slopes += list(slopes)
        for i in range(len(at)):
            part = slice(0, 0) if betas is None else slice(betas.indptr[i], betas.indptr[i + 1])
            self.splits.append((betas.indices[part], betas.data[part]) if betas is not None else _NONE)
        return np.arange(first, len(self.target))

    def pack(self, nodes: list[Node]) -> StepTree:
        steps = [step for node in nodes for step in node.steps]
        uses = [np.concatenate([np.zeros(0, np.int64), *step.rows]) for step in steps]
        row = np.concatenate([np.zeros(0, np.int64), *uses])
        lam = np.concatenate([np.zeros(0, np.float32), *(part for step in steps for part in step.lams)])
        used, row = np.unique(row, return_inverse=True)
        wanted, objective = np.unique([step.objective for step in steps], return_inverse=True)
        slopes = [np.flatnonzero(self.slopes[i]) for i in used]
        splits = [self.splits[i] for i in used]
        wide = np.uint16 if self.neurons <= 1 << 16 else np.uint32
        mu = np.array([self.mu[i] for i in wanted]) if len(wanted) else np.zeros((0, 1))
        return StepTree(
            layer=np.array([node.layer for node in nodes], np.int32),
            neuron=np.array([node.neuron for node in nodes], np.int32),
            steps=np.array([len(node.steps) for node in nodes], np.int32),
            objective=objective.astype(np.int32),
            uses=np.array([len(use) for use in uses], np.int32),
            row=row.astype(np.int32),
            lam=lam,
            mu=mu,
            alpha=np.array([self.alpha[i] for i in wanted]).reshape(len(wanted), self.neurons),
            beta=np.array([self.beta[i] for i in wanted], ndmin=2).reshape(len(wanted), self.neurons),
            target=np.array([self.target[i] for i in used], np.int32),
            side=np.array([self.side[i] for i in used], np.int8),
            pull=np.array([self.pull[i] for i in used], np.float32),
            slope_count=np.array([len(at) for at in slopes], np.int32),
            slope_at=np.concatenate([np.zeros(0, np.int64), *slopes]).astype(wide),
            slope=np.concatenate(
                [np.zeros(0, np.uint8), *(self.slopes[i][at] for i, at in zip(used, slopes, strict=True))]
            ),
            split_count=np.array([len(at) for at, _ in splits], np.int32),
            split_at=np.concatenate([np.zeros(0, np.int64), *(at for at, _ in splits)]).astype(wide),
            split=np.concatenate([np.zeros(0, np.float32), *(values for _, values in splits)]),
        )


def whole(values: Vector) -> NDArray[np.uint8]:
    """Numbers of [0, 1] as parts of 255."""
    return np.rint(values * 255.0).astype(np.uint8)


_NONE = (np.zeros(0, np.int32), np.zeros(0, np.float32))
