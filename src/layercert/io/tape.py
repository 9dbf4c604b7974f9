"""The neurons of a model while it is being read, and how they are put into layers once it is read.

Variables are the network's inputs, then the ReLU neurons in the order in which the reader made them. Every value of the
model is an affine function of variables (`layercert.io.affine`), and so is the pre-activation of every neuron:

    variable n_0 + i = relu(A_i v + c_i),   v = the variables before it

A network has layers, each a function of the one before it. So neurons get a depth, and a variable that is used later
than in the next layer is carried there by neurons that change nothing: relu(z) = z where z >= 0 is a neuron's output,
and v = relu(v) - relu(-v) for an input v. All this is exact: it moves weights and rounds none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from layercert.arrays import Indices, Mask, Sparse, Vector


@dataclass(frozen=True, eq=False)
class Group:
    """Neurons made together: variables ids = relu(A v + c). The network's output is a group without its ReLU."""

    A: Sparse
    c: Vector
    ids: Indices


@dataclass(eq=False)
class Tape:
    """All neurons made so far."""

    inputs: int
    groups: list[Group] = field(default_factory=list)
    size: int = 0
    #: The range to which the model itself clips its input.
    clipped: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self.size = self.inputs

    def relu(self, A: Sparse, c: Vector) -> Indices:
        """New neurons relu(A v + c); returns their variables."""
        ids = np.arange(self.size, self.size + len(c))
        self.groups.append(Group(A, c, ids))
        self.size += len(c)
        return ids

    def nonnegative(self, A: Sparse, c: Vector) -> Mask:
        """Rows of A v + c that cannot be negative, at sight: sums of neurons' outputs with positive weights."""
        doubtful = (A.data < 0) | (A.indices < self.inputs)
        return np.asarray((np.bincount(row_of_entry(A)[doubtful], minlength=len(c)) == 0) & (c >= 0))


def row_of_entry(A: Sparse) -> Indices:
    return np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))


def widened(A: Sparse, columns: int) -> Sparse:
    """The same rows over more variables."""
    return A if A.shape[1] == columns else csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], columns))


def layers(tape: Tape, A: Sparse, c: Vector) -> list[tuple[Sparse, Vector]]:
    """The layers (W, b) of the network with output A v + c: neurons that it does not depend on are left out."""
    plan = _Plan(tape, A, c)
    plan.shorten()
    return plan.assemble()


class _Plan:
    """Depths: inputs 0, a group one more than the deepest variable it uses. `groups` ends with the output."""

    def __init__(self, tape: Tape, A: Sparse, c: Vector) -> None:
        self.inputs = tape.inputs
        self.tape = tape
        self.groups = _needed(tape, Group(A, c, np.zeros(0, np.intp)))
        self.depth: NDArray[np.intp] = np.zeros(tape.size, np.intp)
        self.level: list[int] = []
        for group in self.groups:
            self.level.append(1 + int(self.depth[group.A.indices].max(initial=0)))
            self.depth[group.ids] = self.level[-1]

    def shorten(self) -> None:
        """Where a group uses many old variables in few rows, carry the rows instead of the variables.

        The old part of a row is one number: relu of it where it cannot be negative, relu(z) - relu(-z) elsewhere.
        """
        todo = list(range(len(self.groups)))
        while todo:
            at = todo.pop()
            group, level = self.groups[at], self.level[at]
            old = self.depth[group.A.indices] < level - 1
            columns = np.unique(group.A.indices[old])
            rows = np.unique(row_of_entry(group.A)[old])
            if len(rows) >= len(columns) + int((columns < self.inputs).sum()):
                continue
            past = csr_array(_only(group.A, old)[rows])
            none = np.zeros(len(rows))
            signed = np.flatnonzero(~self.tape.nonnegative(past, none))
            # relu(z) for every row, relu(-z) where z may be negative
            if len(rows) + len(signed) >= len(columns) + int((columns < self.inputs).sum()):
                continue
            first = len(self.depth)
            aux = np.arange(first, first + len(rows) + len(signed))
            self.depth = np.concatenate([self.depth, np.full(len(aux), 1 + int(self.depth[columns].max()))])
            pick = csr_array(
                (np.repeat([1.0, -1.0], [len(rows), len(signed)]), (np.concatenate([rows, rows[signed]]), aux)),
                shape=(group.A.shape[0], len(self.depth)),
            )
            recent = widened(_only(group.A, ~old), len(self.depth))
            self.groups[at] = Group(csr_array(recent + pick), group.c, group.ids)
            # before the output, which stays last
            held = Group(csr_array(vstack([past, -past[signed]], format="csr")), np.zeros(len(aux)), aux)
            self.groups.insert(0, held)
            self.level.insert(0, int(self.depth[first]))
            todo = [0, *(i + 1 for i in todo)]

    def assemble(self) -> list[tuple[Sparse, Vector]]:
        until = np.zeros(len(self.depth), np.intp)  # the last layer whose outputs must hold the variable
        for group, level in zip(self.groups, self.level, strict=True):
            np.maximum.at(until, group.A.indices, level - 1)
        # output j of the layer before is the variable var[j], or one of two parts whose signed sum it is
        var, sign = np.arange(self.inputs), np.ones(self.inputs)
        result: list[tuple[Sparse, Vector]] = []
        top = self.level[-1]
        for t in range(1, top + 1):
            known = csr_array((sign, (var, np.arange(len(var)))), shape=(len(self.depth), len(var)))
            own = [g for g, level in zip(self.groups, self.level, strict=True) if level == t]
            blocks = [csr_array(widened(g.A, len(self.depth)) @ known) for g in own]
            keep = np.flatnonzero(until[var] >= t)
            through = csr_array((np.ones(len(keep)), (np.arange(len(keep)), keep)), shape=(len(keep), len(var)))
            if t == 1:  # an input has any sign
                through = csr_array(vstack([through, -through], format="csr"))
                keep, sign = np.concatenate([keep, keep]), np.concatenate([np.ones(len(keep)), -np.ones(len(keep))])
            else:
                sign = sign[keep]
            bias = np.concatenate([*(g.c for g in own), np.zeros(len(keep))])
            result.append((csr_array(vstack([*blocks, through], format="csr")), bias))
            sign = np.concatenate([np.ones(len(bias) - len(keep)), sign])
            var = np.concatenate([*(g.ids for g in own), var[keep]])
        return result


def _needed(tape: Tape, output: Group) -> list[Group]:
    needed = np.zeros(tape.size, np.bool_)
    needed[output.A.indices] = True
    kept = [output]
    for group in reversed(tape.groups):
        rows = np.flatnonzero(needed[group.ids])
        if len(rows) == 0:
            continue
        part = group
        if len(rows) < len(group.ids):
            part = Group(csr_array(group.A[rows]), group.c[rows], group.ids[rows])
        needed[part.A.indices] = True
        kept.append(part)
    return kept[::-1]


def _only(A: Sparse, entries: Mask) -> Sparse:
    """A without the other entries."""
    count = np.concatenate([[0], np.cumsum(entries)])
    return csr_array((A.data[entries], A.indices[entries], count[A.indptr]), shape=A.shape)
