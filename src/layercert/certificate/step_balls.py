"""Format 2 in balls (Arb, through python-flint): every number carries its own rigorous error.

Bounds of neurons are rounded outward to float64 after each pass; everything else stays a ball. No error analysis of
ours is involved.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.ball_maps import ball_map, some_rows
from layercert.certificate.balls import BallArithmetic, _down
from layercert.certificate.region import Region
from layercert.certificate.setting import Setting
from layercert.certificate.steps import Objective, Passes
from layercert.facets import Facets

#: Rows that go down the layers together: those of a large layer would need a lot of memory at once.
TOGETHER = 64


class BallHalfspace(NamedTuple):
    g: Any  # one row
    s: Any
    uppers: list[tuple[Any, Any]]  # uppers[k]: a row over the inputs of layer k, and a constant


class StepBalls:
    """The passes of steps in ball arithmetic."""

    exact = True

    def __init__(self, setting: Setting) -> None:
        self.balls = BallArithmetic(setting)
        self.setting, self.name = setting, self.balls.name
        self.arb, self.mat = self.balls.flint.arb, self.balls.flint.arb_mat
        self.widths = setting.network.widths
        self.starts = np.cumsum([0, *self.widths])

    @cached_property
    def start(self) -> Region:
        """Bounds on the whole ball: one pass for each neuron and side, lower lines 0 or z, whichever is nearer; where
        the claim says so, interval arithmetic too."""
        region = Region([], [], [])
        for k, width in enumerate(self.widths):
            # before its pass a layer has the bounds that those of the layer below leave to it, as the format says
            size = self._size(k, np.maximum(region.hi[k - 1], 0.0)) if k > 0 else self.setting.T[0]
            region.add_layer(-size, size.copy())
            slopes = region.nearer_slopes(k)
            neurons, sides = np.tile(np.arange(width), 2), np.repeat([1.0, -1.0], width)
            zeros = np.zeros(2 * width)
            rows = Passes(neurons, sides, zeros, zeros, np.tile(slopes, (2 * width, 1)), None)
            self.narrow(region, None, k, rows)
            if self.setting.intervals and k > 0:
                values = np.concatenate([self._interval(k, region, side) for side in (1.0, -1.0)])
                region.narrow(k, neurons, sides, values)
        return region

    def _interval(self, k: int, region: Region, side: float) -> Vector:
        """The least of side * z for the neurons of layer k, given the bounds of the layer below, rounded down."""
        W, b = self.setting.network.maps[k], self.setting.network.biases[k]
        low, high = (self.balls._matrix(np.maximum(ends[k - 1], 0.0)[:, None]) for ends in (region.lo, region.hi))
        falling = 0.5 * (abs(W) - side * W)  # exact: each entry is |w| or 0
        sums = ball_map(abs(W) - falling, self.balls.flint) * low - ball_map(falling, self.balls.flint) * high
        totals = [sums[i, 0] + side * float(b[i]) for i in range(len(b))]
        # a neuron that is on is not to be open by the last digit: 0 itself is a float
        return np.array([0.0 if total.is_zero() else _down(total) for total in totals])

    def _size(self, k: int, below: Vector) -> Vector:
        """|W| below + |b| of layer k, rounded up."""
        W, b = self.setting.network.maps[k], self.setting.network.biases[k]
        sizes = ball_map(abs(W), self.balls.flint) * self.balls._matrix(below[:, None])
        return np.array([-_down(-(sizes[i, 0] + abs(float(b[i])))) for i in range(len(b))])

    def objective(self, C: Matrix, d: Vector, region: Region, own: Objective) -> BallHalfspace:
        """g.w + s <= mu.(C f(x + w) - d) on the node."""
        balls, L = self.balls, len(self.widths)
        row = balls._matrix(own.mu[None]) * balls._matrix(C)
        A = row * balls.W[-1]
        c = (row * balls.b[-1] - balls._matrix(own.mu[None]) * balls._matrix(d[:, None]))[0, 0]
        if L == 0:
            return BallHalfspace(A, c + (A * balls._matrix(self.setting.x[:, None]))[0, 0], [])
        uppers: list[tuple[Any, Any]] = []
        for k in range(L - 1, -1, -1):
            part = slice(int(self.starts[k]), int(self.starts[k + 1]))
            above = A
            A, constants = self._layer(A, [c], region, k, own.alpha[None, part], own.beta[None, part])
            c = constants[0]
            if own.facets is not None:
                c += self._bend(above, A, 0, region, k, own.facets)
            uppers.append((A, c))
        return BallHalfspace(A, c, uppers[::-1])

    def _bend(self, above: Any, below: Any, r: int, region: Region, k: int, facets: Facets) -> Any:
        """Give the facets of layer k their shares of what its chords have; what this adds to the constant.

        Row r of `above` is over the outputs of the layer, that of `below` over its inputs. The latter is changed.
        """
        entries, lines, more = self.setting.entries, region.lines(k), self.arb(0)
        ends = np.concatenate([[0], np.cumsum(entries.counts[facets.neurons])])
        least, most = (-self.setting.room[0], self.setting.room[1]) if k == 0 else self._outputs(region, k - 1)
        for f, neuron in enumerate(facets.neurons.tolist()):
            i = neuron - int(self.starts[k])
            if not 0 <= i < self.widths[k] or not lines.open[i]:
                continue
            own = self.balls._negative(above[r, i]) * float(facets.shares[f])
            b = (self.balls.b[k] if k > 0 else self.balls.z0)[i, 0]
            row = slice(int(entries.begin[neuron]), int(entries.begin[neuron + 1]))
            parts, weights = facets.parts[ends[f] : ends[f + 1]], entries.weight[row]
            zero, over, su = self.arb(0), b, self.arb(float(lines.su[i]))
            for j, w, part in zip(entries.column[row].tolist(), weights.tolist(), parts.tolist(), strict=True):
                a = self.arb(w) * part
                zero -= a * float(least[j] if w > 0 else most[j])
                over += (self.arb(w) - a) * float(most[j] if w > 0 else least[j])
                below[r, j] += own * (a - su * w)
            more += own * (zero.max(over) - float(lines.iu[i]) - su * b)
        return more

    def _outputs(self, region: Region, k: int) -> tuple[Vector, Vector]:
        """The range of relu(z) in layer k."""
        off = region.lines(k).side < 0
        lo, hi = (np.where(off, 0.0, np.maximum(end[k], 0.0)) for end in (region.lo, region.hi))
        return lo, hi

    def excludes(self, half: BallHalfspace) -> bool:
        return bool(half.s > self.balls._fall(half.g, 0))

    def narrow(self, region: Region, half: BallHalfspace | None, k: int, rows: Passes) -> bool:
        """Take the bounds that rows of layer k prove; False when the node turns out empty."""
        for first in range(0, len(rows.sides), TOGETHER):
            if not self._narrow(region, half, k, rows.some(slice(first, first + TOGETHER))):
                return False
        return True

    def _narrow(self, region: Region, half: BallHalfspace | None, k: int, rows: Passes) -> bool:
        W = some_rows(self.setting.network.maps[k], rows.neurons)
        A = self.balls._matrix(rows.sides[:, None] * W)
        source = self.balls.b[k] if k > 0 else self.balls.z0
        c = [source[int(i), 0] * float(side) for i, side in zip(rows.neurons, rows.sides, strict=True)]
        if half is not None and k > 0 and rows.pulls.any():
            row, constant = half.uppers[k]
            A += self.balls._matrix(rows.pulls[:, None]) * row
            c = [own + constant * float(pull) for own, pull in zip(c, rows.pulls, strict=True)]
        for j in range(k - 1, -1, -1):
            part = slice(int(self.starts[j]), int(self.starts[j + 1]))
            side = region.lines(j).side
            betas = None if rows.betas is None else np.maximum(rows.betas[:, part] * side, 0.0)
            above = A
            A, c = self._layer(A, c, region, j, rows.slopes[:, part], betas)
            for i, facets in enumerate(rows.facets or ()):
                if facets is not None:
                    c[i] += self._bend(above, A, i, region, j, facets)
        n = A.ncols()
        values = np.empty(len(c))
        for i, lam in enumerate(rows.lams):
            value, T = c[i], A
            if lam > 0:
                assert half is not None
                value = value + half.s * float(lam)
                T = self.mat([[A[i, j] + half.g[0, j] * float(lam) for j in range(n)]])
            values[i] = _down(value - self.balls._fall(T, 0 if lam > 0 else i))
        return region.narrow(k, rows.neurons, rows.sides, np.minimum(values, rows.limits))

    def _layer(
        self, A: Any, c: list[Any], region: Region, k: int, slopes: Matrix, betas: Matrix | None
    ) -> tuple[Any, list[Any]]:
        """Rows over the outputs of layer k as rows over its inputs."""
        balls, lines = self.balls, region.lines(k)
        balls._check_lines(region.lo[k], region.hi[k], lines.su, lines.iu, lines.open)
        S = self.mat(A.nrows(), A.ncols())
        for i in range(A.nrows()):
            for j in range(A.ncols()):
                own, off = float(slopes[min(i, len(slopes) - 1), j]), not (lines.on[j] or lines.open[j])
                value = balls._slope(A[i, j], lines.on[j], off, own, float(lines.su[j]))
                if lines.open[j]:
                    c[i] = c[i] + balls._negative(A[i, j]) * float(lines.iu[j])
                elif betas is not None and betas[i, j] > 0:
                    value = value - self.arb(float(betas[i, j])) * float(lines.side[j])
                S[i, j] = value
        shift = S * (balls.b[k] if k > 0 else balls.z0)
        return S * balls.W[k], [c[i] + shift[i, 0] for i in range(A.nrows())]
