"""Kernel over a batch of boxes: bound, close or shave, and advise where to cut."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.attack.kernel import preactivations, row_value
from layercert.compiled.jit import njit_sums
from layercert.search.input_split.exclude import linear_rows, shave, weigh
from layercert.search.input_split.forms import LATE, spread
from layercert.search.input_split.model import Model, Scratch, Sides, scratch
from layercert.system import clock

#: Over 1 by more than the rounding of a difference.
UP = 1.0 + 4e-16


@dataclass(eq=False)
class Boxes:
    """Boxes in columns; `side` is what is known of every neuron: +1 on, -1 off, 0 either."""

    lo: Matrix
    hi: Matrix
    side: Sides
    clause: Indices
    key: Vector  # proved distance from x

    def __len__(self) -> int:
        return len(self.key)

    def take(self, which: Any) -> Boxes:
        return Boxes(self.lo[which], self.hi[which], self.side[which], self.clause[which], self.key[which])


class Part(NamedTuple):
    """Boxes as the kernel takes them, which shaves them and fills in their sides."""

    lo: Matrix
    hi: Matrix
    side: Sides
    clause: Indices
    timer: clock.Timer


class Findings(NamedTuple):
    """What the kernel says of each box; it has shaved the box itself."""

    margin: Vector  # > 0: the box holds no unsafe point, proved
    axis: Indices  # where to cut it
    unstable: Indices
    point: Matrix  # a point of the box, and
    value: Vector  # its worst row: unsafe (up to rounding) when <= 0


class Workers:
    """Threads over the parts of a batch. Each box is treated alone, so the answers do not depend on their number."""

    def __init__(self, model: Model, threads: int) -> None:
        self.model = model
        self.memory = [scratch(model) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def __call__(self, boxes: Boxes) -> Findings:
        m = len(boxes)
        # a box that the kernel does not come to is open, with nothing known
        found = Findings(
            np.full(m, -np.inf), np.zeros(m, np.intp), np.full(m, -1, np.intp), boxes.lo.copy(), np.full(m, np.inf)
        )
        timer = clock.timer()  # of this thread's scope
        ends = np.linspace(0, m, len(self.memory) + 1).astype(int)
        jobs: list[Callable[[], None]] = []
        for memory, start, stop in zip(self.memory, ends[:-1], ends[1:], strict=True):
            some = slice(start, stop)
            part = Part(boxes.lo[some], boxes.hi[some], boxes.side[some], boxes.clause[some], timer)
            jobs.append(partial(examine, self.model, memory, part, Findings._make(a[some] for a in found)))
        if self._pool is None or m < 8 * len(jobs):
            for job in jobs:
                job()
        else:
            for future in [self._pool.submit(job) for job in jobs]:
                future.result()
        clock.check()
        return found


def default_threads() -> int:
    """The cores this process may use, or what NUMBA_NUM_THREADS says (1 in the workers of a batch)."""
    told = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) > 0 else len(os.sched_getaffinity(0))


@njit_sums
def examine(model: Model, s: Scratch, boxes: Part, found: Findings) -> None:
    """One box after the other; when the time is up, those that are left stay as they are."""
    lo, hi, side, clause, timer = boxes
    margin, axis, unstable, point, value = found
    n = lo.shape[1]
    mid, rad = s.mid, s.rad
    for t in range(len(lo)):
        first, last = model.first[clause[t]], model.first[clause[t] + 1]
        for j in range(n):
            mid[j] = lo[t, j] + 0.5 * (hi[t, j] - lo[t, j])
            # mid is rounded: the radius reaches both ends
            rad[j] = max(hi[t, j] - mid[j], mid[j] - lo[t, j]) * UP
            point[t, j] = mid[j]
        unstable[t] = spread(model, s, mid, rad, side[t], timer)
        if unstable[t] == LATE:
            return
        if unstable[t] < 0:
            margin[t], value[t], axis[t] = -np.inf, np.inf, 0
            for j in range(n):
                if rad[j] > rad[axis[t]]:
                    axis[t] = j
            continue
        linear_rows(model, s, side[t], first, last)
        margin[t] = weigh(s, last - first, rad, model.noise)
        if margin[t] > 0.0:
            continue
        if not shave(s, last - first, mid, lo[t], hi[t], model.noise):
            margin[t] = 1.0
            continue
        _try_points(model, s, first, last, lo[t], hi[t], point[t], value[t : t + 1])
        axis[t] = _cut(s, last - first, side[t], lo[t], hi[t])


@njit_sums
def _try_points(
    model: Model, s: Scratch, first: int, last: int, lo: Vector, hi: Vector, point: Vector, value: Vector
) -> None:
    """The centre of what is left of the box, or the corner where the weighted rows are least: the better one."""
    n = len(lo)
    for turn in range(2):
        for j in range(n):
            if turn == 0:
                s.mid[j] = min(max(0.5 * (lo[j] + hi[j]), lo[j]), hi[j])
            else:
                s.mid[j] = lo[j] if s.g[j] > 0.0 else hi[j]
        preactivations(model.asked.net, s.mid, s.z)
        worst = -np.inf
        for r in range(first, last):
            worst = max(worst, row_value(model.asked, s.mid, s.z, r))
        if turn == 0 or worst < value[0]:
            value[0] = worst
            point[:] = s.mid


@njit_sums
def _cut(s: Scratch, rows: int, side: Sides, lo: Vector, hi: Vector) -> int:
    """The input that is to blame most for what the unstable neurons cost the bound.

    An unstable neuron costs |A| iu, which shrinks with its width; input j makes up influence/width of that. Where no
    neuron is unstable: the input that the rows depend on most. s.g and s.best are those of `shave` and `weigh`.
    """
    n = len(lo)
    s.g[:] = 0.0
    for i in range(len(side)):
        if side[i] == 0:
            cost = 0.0
            for r in range(rows):
                cost += s.best[r] * s.coef[r, i]
            cost *= s.iu[i] / (s.hi[i] - s.lo[i])
            for j in range(n):
                s.g[j] += cost * s.influence[i, j]
    axis, most = 0, 0.0
    for turn in range(3):
        for j in range(n):
            width = 0.5 * (hi[j] - lo[j])
            blame = width
            if turn == 0:
                blame = s.g[j] * (width / s.rad[j]) if s.rad[j] > 0.0 else 0.0  # shaved since
            elif turn == 1:
                blame = 0.0
                for r in range(rows):
                    blame += s.best[r] * abs(s.G[r, j]) * width
            if blame > most:
                axis, most = j, blame
        if most > 0.0:
            break
    return axis
