"""Format 2 in float64: the passes of steps and their rounding errors, many passes side by side (lanes.py).

A pass is taken at its word: the vectors that came out are exact numbers from then on, and each inequality between them
holds up to what that step rounded. On the ball let |z| <= Z, and M = |W| x + |b| the size of the terms behind a neuron.
The slopes S of a layer err by three roundings of |A| + beta, which meets Z; the next A = S W by gamma |S||W|, which
meets outputs of the layer below, in all at most M; the constant by gamma times its terms, at most |A| Z + |S| M.
Together at most gamma (|A| + beta)(4 Z + 3 M). In the first layer S W meets w instead, where |W w| <= r ||W||_q row by
row, and the values z at x are rounded by gamma M.

A facet of an objective or of a row takes the share s of a coefficient A at its neuron; the chord has the rest. That
both together are A holds up to three roundings of |A|, which meets Z. With T = |w| x + |b|, at least the size of what
is summed for the line's constant (in the first layer |w| meets the box of w, and the value at x stands for b): the
line's coefficients s A a err by gamma s |A| |a|, which meets inputs, at most T in all; its constant by gamma T; the sum
of constants by gamma s |A| T. The margin is |A| Q + 4 gamma s |A| T, where Q is that of a coefficient without facets;
it has the errors of values at x.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from layercert.arrays import TINY, Indices, Mask, Matrix, Vector
from layercert.certificate.facets import FacetLanes, no_facets, side_by_side, some_lanes
from layercert.certificate.reach import fall
from layercert.certificate.region import LEANING
from layercert.certificate.setting import Setting, dual_norm
from layercert.compiled.packed import PackedNetwork
from layercert.facets import Facets

#: Rows that go down the layers together: so many lanes of a layer of a thousand neurons still fit into the cache.
LANES = 128


class Objectives(NamedTuple):
    """What makes the halfspaces of some nodes, a line each."""

    alpha: Matrix
    beta: Matrix
    mu: Matrix
    facets: Sequence[Facets | None] | None = None  # per line; None where no line has any

    def some(self, at: Indices) -> Objectives:
        """Some of the lines."""
        facets = None if self.facets is None else [self.facets[i] for i in at.tolist()]
        return Objectives(self.alpha[at], self.beta[at], self.mu[at], facets)


class Halfspaces(NamedTuple):
    """g.w + s <= 0 at the unsafe points of each node; `size` is at least r ||g||_q."""

    g: Matrix
    s: Vector
    size: Vector
    uppers: Any  # lanes.Uppers: what the layers above make of the objectives
    margin: Vector  # what was taken off s for rounding


class StepFloats:
    """Bounds by backward passes, rounded outward. `caution` makes all margins larger, for whoever makes proofs."""

    name = "outward-rounded float64 arithmetic"
    exact = False

    def __init__(self, setting: Setting, caution: float = 1.0) -> None:
        self.setting = setting
        self.noise = caution * setting.noise
        self.starts = np.cumsum([0, *setting.network.widths])
        self.net: PackedNetwork = setting.network.packed

    @cached_property
    def ground(self) -> Any:
        """What the kernels need; `start` fills in the sizes of errors, and bounds of outputs."""
        from layercert.certificate.lanes import Ground

        setting, n = self.setting, int(self.starts[-1])
        some = setting.network.L > 0
        row_sizes, z0 = (setting.row_sizes, setting.z0) if some else (np.zeros(0), np.zeros(0))
        return Ground(self.net, z0, np.zeros(n), row_sizes, np.zeros(n), self.noise, setting.reach)

    @cached_property
    def start(self) -> Any:
        """Bounds on the whole ball, as Regions of one node: one pass for each neuron and side, lower lines 0 or z,
        whichever is nearer; where the claim says so, interval arithmetic too."""
        from layercert.certificate.intervals import narrow_by_intervals
        from layercert.certificate.lanes import relax

        setting, noise, Q = self.setting, self.noise, self.ground.Q
        regions = regions_of(np.zeros((1, len(Q))), np.zeros((1, len(Q))), np.zeros((1, len(Q)), np.int8))
        lo, hi = regions.lo[0], regions.hi[0]
        below = np.abs(setting.x)
        for k in range(setting.network.L):
            part = slice(int(self.starts[k]), int(self.starts[k + 1]))
            W, b = setting.network.maps[k], setting.network.biases[k]
            M = (abs(W) @ below + np.abs(b)) * (1.0 + noise) + TINY
            size = M if k > 0 else (M + setting.r * setting.row_sizes) * (1.0 + noise)
            lo[part], hi[part] = -size, size
            relax(regions)
            # every sum below is at most 2 size, which is covered before it is known how large z is
            Q[part] = 3.03 * noise * M + TINY + 8.0 * noise * size
            neurons = self.net.order[part]
            for first in range(0, len(neurons), LANES // 2):
                self._default_rows(regions, k, neurons[first : first + LANES // 2])
            if setting.intervals and k > 0:
                narrow_by_intervals(self.net, k, noise, lo, hi)
                relax(regions)
            Z = np.maximum(np.abs(lo[part]), np.abs(hi[part]))
            Q[part] = noise * (3.03 * M + 4.04 * Z) + TINY
            below = self.ground.outputs[part] = np.maximum(hi[part], 0.0)
        return regions

    @cached_property
    def no_facets(self) -> FacetLanes:
        return no_facets(self.setting.network.L)

    @property
    def outputs(self) -> Vector:
        """Bounds of the neurons' outputs on the whole ball: whoever asks before the start gets that first."""
        _ = self.start
        return np.asarray(self.ground.outputs)

    def halfspaces(self, C: Matrix, d: Vector, regions: Any, own: Objectives) -> Halfspaces:
        """For each node g.w + s <= mu.(C f(x + w) - d)."""
        from layercert.certificate.lanes import Uppers, objective_passes

        setting, noise = self.setting, self.noise
        network, L = setting.network, setting.network.L
        W, b = network.maps[-1], network.biases[-1]
        mu = own.mu
        row = np.asarray((mu @ C) @ W)
        c = mu @ (C @ b - d)
        below = self.outputs[self.starts[-2] :] if L else np.abs(setting.x)
        terms = mu @ np.abs(C)
        error = 4.04 * noise * (terms @ (abs(W) @ below + np.abs(b)) + mu @ np.abs(d)) + TINY
        if L == 0:
            drift = setting.r * dual_norm(np.asarray(terms @ abs(W)), setting.q) * (1.0 + noise)
            margin = 1.02 * (error + noise * drift) + TINY
            return Halfspaces(row, c + row @ setting.x - margin, drift, None, margin)
        coef = np.empty((int(self.starts[-1]), len(mu)))
        coef[self.starts[-2] :] = row.T
        bent = own.facets is not None and any(facets is not None for facets in own.facets)
        facets = side_by_side(own.facets or (), setting, noise) if bent else self.no_facets
        g, size, constant, slip = objective_passes(self.ground, regions, own.alpha, own.beta, facets, coef, c, error)
        drift = setting.r * size * (1.0 + noise)
        margin = 1.02 * (error + noise * drift) + TINY
        return Halfspaces(g, c - margin, drift, Uppers(coef, constant, slip), margin)

    def excluded(self, halves: Halfspaces) -> Mask:
        """For which nodes is g.w + s > 0 on the whole ball and box?"""
        finite = np.isfinite(halves.s) & np.isfinite(halves.g).all(axis=1)
        return np.asarray(finite & (halves.s * (1.0 - 4e-16) > fall(self.setting, halves.g)))

    def functions(
        self, regions: Any, halves: Halfspaces, k: int, uses: Any, trace: Matrix | None = None
    ) -> tuple[Matrix, Vector, Vector]:
        """G, c with G w + c <= side * z at unsafe points (where pull F <= 0), and r ||G||_q at most.

        `trace` takes the coefficients of all neurons below.
        """
        from layercert.certificate.lanes import functions

        return functions(self.ground, regions, halves, k, uses, np.zeros((0, 0)) if trace is None else trace)

    def least(self, G: Matrix, c: Vector, size: Vector, halves: Halfspaces, half: Indices, lams: Vector) -> Vector:
        """Lower bounds of G w + c on the caps, rounded down. G is of no more use after it."""
        from layercert.certificate.lanes import least

        return np.asarray(least(self.setting.reach, G, c, size, halves, half, lams))

    def narrow(
        self, regions: Any, halves: Halfspaces, k: int, uses: Any, lams: Vector, limits: Vector | float = np.inf
    ) -> Mask:
        """Take the bounds that rows of layer k prove, at most their limits; for each use, is its node empty by it?"""
        from layercert.certificate.lanes import take

        values = np.empty(len(lams))
        for first in range(0, len(lams), LANES):
            part = slice(first, first + LANES)
            some = part_of(uses, part)
            G, c, size = self.functions(regions, halves, k, some)
            values[part] = self.least(G, c, size, halves, some.half, lams[part])
        return np.asarray(take(regions, uses, np.minimum(values, limits)))

    def _default_rows(self, regions: Any, k: int, neurons: Indices) -> None:
        """Bounds on the whole ball from below and above, with slopes that do not depend on the row."""
        from layercert.certificate.lanes import Uses, take

        m, base = 2 * len(neurons), int(self.starts[k])
        zeros, at = np.zeros(m), np.zeros(m, np.intp)
        lower = (regions.hi[0, :base] > -regions.lo[0, :base] * LEANING).astype(np.float64)
        slopes = np.ascontiguousarray(np.broadcast_to(lower[:, None], (base, m)))
        uses = Uses(at, at, np.tile(neurons, 2), np.repeat([1.0, -1.0], len(neurons)), zeros, slopes, _NO_SPLITS)
        none = no_halfspaces(m)
        G, c, size = self.functions(regions, none, k, uses)
        take(regions, uses, self.least(G, c, size, none, at, zeros))


_NO_SPLITS = np.zeros((0, 0))


def no_halfspaces(rows: int) -> Halfspaces:
    """For rows that use none."""
    from layercert.certificate.lanes import Uppers

    zeros = np.zeros(rows)
    return Halfspaces(np.zeros((0, 0)), zeros, zeros, Uppers(_NO_SPLITS, _NO_SPLITS, _NO_SPLITS), zeros)


def regions_of(lo: Matrix, hi: Matrix, phase: Any) -> Any:
    """Regions from bounds and phases, a line per node."""
    from layercert.certificate.lanes import Regions, relax

    regions = Regions(lo, hi, phase, np.zeros(lo.shape, np.int8), np.zeros(lo.shape), np.zeros(lo.shape))
    relax(regions)
    return regions


def part_of(uses: Any, part: slice) -> Any:
    """Some of the uses of a layer."""
    if part.start == 0 and part.stop >= len(uses.neuron):
        return uses
    return uses._replace(
        node=uses.node[part], half=uses.half[part], neuron=uses.neuron[part], side=uses.side[part],
        pull=uses.pull[part], slopes=np.ascontiguousarray(uses.slopes[:, part]),
        splits=np.ascontiguousarray(uses.splits[:, part]) if len(uses.splits) else uses.splits,
        facets=some_lanes(uses.facets, part) if len(uses.facets.lane) else uses.facets,
    )  # fmt: skip
