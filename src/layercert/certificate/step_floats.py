"""Format 2 in float64: the passes of steps and their rounding errors.

A pass is taken at its word: the vectors that came out are exact numbers from then on, and each inequality between them
holds up to what that step rounded. On the ball let |z| <= Z, and M = |W| x + |b| the size of the terms behind a neuron.
The slopes S of a layer err by three roundings of |A| + beta, which meets Z; the next A = S W by gamma |S||W|, which
meets outputs of the layer below, in all at most M; the constant by gamma times its terms, at most |A| Z + |S| M.
Together at most gamma (|A| + beta)(4 Z + 3 M). In the first layer S W meets w instead, where |W w| <= r ||W||_q row by
row, and the values z at x are rounded by gamma M.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from layercert.arrays import TINY, LinearMap, Matrix, Vector
from layercert.certificate.reach import fall
from layercert.certificate.region import Region
from layercert.certificate.setting import MOST_AT_ONCE, Setting, dual_norm
from layercert.certificate.steps import Objective, Passes

#: Layers with more places than this, of which less than this part is filled, are worked on sparse.
SPARSE_PLACES, SPARSE_PART = 1 << 14, 0.15


class Upper(NamedTuple):
    """What the layers from k on make of the objective F: row.x^(k-1) + constant - error <= F at unsafe points."""

    row: Vector
    constant: float
    error: float


class Halfspace(NamedTuple):
    """g.w + s <= 0 at the node's unsafe points; `size` is at least r ||g||_q."""

    g: Vector
    s: float
    size: float
    uppers: list[Upper]  # uppers[k]: over the inputs of layer k; the first one is of no use


class StepFloats:
    """Bounds by backward passes, rounded outward. `caution` makes all margins larger, for whoever makes proofs."""

    name = "outward-rounded float64 arithmetic"
    exact = False

    def __init__(self, setting: Setting, caution: float = 1.0) -> None:
        self.setting = setting
        self.noise = caution * setting.noise
        self.maps = [_working(W) for W in setting.network.maps]
        self.biases = setting.network.biases
        self.starts = np.cumsum([0, *setting.network.widths])
        self.Q: list[Vector] = []  # of each layer: what |A| + beta is multiplied with to bound its rounding errors

    @cached_property
    def start(self) -> Region:
        """Bounds on the whole ball: one pass for each neuron and side, lower lines 0 or z, whichever is nearer."""
        setting, noise = self.setting, self.noise
        widths = setting.network.widths
        region = Region([], [], [])
        below = np.abs(setting.x)
        for k, width in enumerate(widths):
            W, b = self.maps[k], self.biases[k]
            M = (abs(W) @ below + np.abs(b)) * (1.0 + noise) + TINY
            size = M if k > 0 else (M + setting.r * setting.row_sizes) * (1.0 + noise)
            self.Q.append(3.03 * noise * M + TINY)
            region.add_layer(-size, size.copy())
            # every sum below is at most 2 size, which is covered before it is known how large z is
            self.Q[k] = self.Q[k] + 8.0 * noise * size
            step = max(1, MOST_AT_ONCE // (2 * max(setting.network.inputs, *widths)))
            for first in range(0, width, step):
                neurons = np.arange(first, min(first + step, width))
                self._default_rows(region, k, neurons)
            Z = np.maximum(np.abs(region.lo[k]), np.abs(region.hi[k]))
            self.Q[k] = noise * (3.03 * M + 4.04 * Z) + TINY
            below = np.maximum(region.hi[k], 0.0)
        return region

    def objective(self, C: Matrix, d: Vector, region: Region, own: Objective) -> Halfspace:
        """g.w + s <= mu.(C f(x + w) - d) on the node."""
        W, b, x = self.maps[-1], self.biases[-1], self.setting.x
        L = len(region.lo)
        row = own.mu @ C
        A = np.asarray(row @ W)
        c = float(own.mu @ (C @ b - d))
        below = np.maximum(self.start.hi[-1], 0.0) if L else np.abs(x)
        size = own.mu @ np.abs(C)
        error = 4.04 * self.noise * float(size @ (abs(W) @ below + np.abs(b)) + own.mu @ np.abs(d)) + TINY
        uppers: list[Upper] = []
        alphas, betas = _by_layer(own.alpha, region), _by_layer(own.beta, region)
        for k in range(L - 1, -1, -1):
            lines = region.lines(k)
            beta = np.where(lines.open, 0.0, betas[k])
            error = error + 1.01 * float((np.abs(A) + beta) @ self.Q[k])
            down = np.minimum(A, 0.0)
            S = np.where(lines.open & (A > 0), A * alphas[k], A * lines.su) - beta * lines.side
            c = c + float(down @ lines.iu) + float(S @ (self.biases[k] if k > 0 else self.setting.z0))
            A = np.asarray(S @ self.maps[k])
            uppers.append(Upper(A, c, error))
        if L:
            drift = self.setting.r * float(np.abs(S) @ self.setting.row_sizes) * (1.0 + self.noise)
        else:
            c, terms = c + float(A @ x), np.asarray(size @ abs(W))
            drift = self.setting.r * float(dual_norm(terms, self.setting.q)) * (1.0 + self.noise)
        return Halfspace(A, c - 1.02 * (error + self.noise * drift) - TINY, drift, uppers[::-1])

    def excludes(self, half: Halfspace) -> bool:
        """Is g.w + s > 0 on the whole ball and box?"""
        if not (np.isfinite(half.s) and np.isfinite(half.g).all()):
            return False
        return bool(half.s * (1.0 - 4e-16) > self.fall(half.g))

    def fall(self, g: Vector) -> float:
        """How far g.w can fall on ball and box, rounded up."""
        return float(fall(self.setting, g[None])[0])

    def narrow(self, region: Region, half: Halfspace, k: int, rows: Passes) -> bool:
        """Take the bounds that rows of layer k prove; False when the node turns out empty."""
        values = np.empty(len(rows.neurons))
        step = max(1, MOST_AT_ONCE // max(self.setting.network.inputs, *self.setting.network.widths))
        for first in range(0, len(values), step):
            part = slice(first, first + step)
            some = Passes(*(None if a is None else a[part] for a in rows))  # type: ignore[arg-type]
            G, c, size = self.functions(region, half, k, some)
            values[part] = self.least(G, c, size, half, some.lams)
        return region.narrow(k, rows.neurons, rows.sides, values)

    def functions(
        self, region: Region, half: Halfspace, k: int, rows: Passes, trace: list[Matrix] | None = None
    ) -> tuple[Matrix, Vector, Vector]:
        """G, c with G w + c <= side * z at the node's unsafe points (pull F <= 0 there), and r ||G||_q at most."""
        sides, pulls = rows.sides, rows.pulls
        A = sides[:, None] * _dense(self.maps[k][rows.neurons])
        c = sides * (self.biases[k] if k > 0 else self.setting.z0)[rows.neurons]
        error = self.Q[k][rows.neurons]  # of the values at x in the first layer; of roundings in b in others
        if k == 0:
            size = self.setting.r * self.setting.row_sizes[rows.neurons]
            return A, c - 1.01 * error - TINY, size
        if pulls.any():
            upper, P = half.uppers[k], np.maximum(self.start.hi[k - 1], 0.0)
            reach = float(np.abs(upper.row) @ P) + abs(upper.constant)
            A = A + pulls[:, None] * upper.row
            c = c + pulls * upper.constant
            error = error + pulls * (4.04 * self.noise * reach + 1.02 * upper.error)
        return self._backward(A, c, error, region, rows.slopes, rows.betas, trace)

    def least(self, G: Matrix, c: Vector, size: Vector, half: Halfspace, lams: Vector) -> Vector:
        """Lower bounds of G w + c on the cap: c + lam s - fall(G + lam g), rounded down."""
        if not lams.any():
            value = c - fall(self.setting, G)
            return np.asarray(value - 1e-15 * (np.abs(c) + np.abs(value)) - TINY)
        T = G + lams[:, None] * half.g
        drop = fall(self.setting, T)
        value = c + lams * half.s - drop
        slip = np.abs(c) + lams * abs(half.s) + drop + size + lams * half.size  # what cancels in T was rounded before
        return np.asarray(value - 1e-15 * slip - TINY)

    def _default_rows(self, region: Region, k: int, neurons: Any) -> None:
        """Bounds on the whole ball from below and above, with slopes that do not depend on the row."""
        m = len(neurons)
        W = self.maps[k][neurons]
        b = (self.biases[k] if k > 0 else self.setting.z0)[neurons]
        sides = np.repeat([1.0, -1.0], m)
        c, error = np.concatenate([b, -b]), np.tile(self.Q[k][neurons], 2)
        if k == 0:
            G = _dense(W)
            size = self.setting.r * self.setting.row_sizes[neurons]
            for side in (1.0, -1.0):
                value = self.least(side * G, side * b - 1.01 * self.Q[k][neurons] - TINY, size, _NO_CAP, np.zeros(m))
                region.narrow(k, neurons, np.full(m, side), value)
            return
        slopes = region.nearer_slopes(k)
        if issparse(W):
            G, c, size = self._backward_sparse(_stacked(W), c, error, k, region, slopes)
        else:
            G, c, size = self._backward(np.concatenate([W, -W]), c, error, region, slopes[None], None)
        region.narrow(k, np.tile(neurons, 2), sides, self.least(G, c, size, _NO_CAP, np.zeros(2 * m)))

    def _backward(
        self,
        A: Matrix,
        c: Vector,
        error: Vector,
        region: Region,
        slopes: Matrix,
        betas: Matrix | None,
        trace: list[Matrix] | None = None,
    ) -> tuple[Matrix, Vector, Vector]:
        """Through all layers that the slopes are of, every open neuron replaced by a line; `trace` takes each A."""
        setting = self.setting
        end, k = slopes.shape[1], int(np.searchsorted(self.starts, slopes.shape[1]))
        while k > 0:
            k -= 1
            lines = region.lines(k)
            start = int(self.starts[k])
            if trace is not None:
                trace.append(A)
            down = np.minimum(A, 0.0)
            S = (A - down) * np.where(lines.open, slopes[:, start:end], lines.su) + down * lines.su
            weight = np.abs(A)
            if betas is not None:
                beta = np.maximum(betas[:, start:end] * lines.side, 0.0)
                S = S - beta * lines.side
                weight = weight + beta
            error = error + 1.01 * (weight @ self.Q[k])
            c = c + down @ lines.iu + S @ (self.biases[k] if k > 0 else setting.z0)
            A = np.asarray(S @ self.maps[k])
            end = start
        size = setting.r * (np.abs(S) @ setting.row_sizes) * (1.0 + self.noise)
        return A, c - 1.02 * (error + self.noise * size) - TINY, size

    def _backward_sparse(
        self, A: Any, c: Vector, error: Vector, depth: int, region: Region, slopes: Vector
    ) -> tuple[Matrix, Vector, Vector]:
        """The same for compressed rows without multipliers."""
        setting = self.setting
        for k in range(depth - 1, -1, -1):
            lines = region.lines(k)
            at, values = A.indices, A.data
            lower = np.where(lines.open, slopes[self.starts[k] : self.starts[k + 1]], lines.su)[at]
            S = csr_array((np.where(values > 0, values * lower, values * lines.su[at]), at, A.indptr), shape=A.shape)
            down = csr_array((np.minimum(values, 0.0), at, A.indptr), shape=A.shape)
            error = error + 1.01 * (abs(A) @ self.Q[k])
            c = c + down @ lines.iu + S @ (self.biases[k] if k > 0 else setting.z0)
            W = self.maps[k]
            A = S @ W
            if not issparse(A) and k > 0:
                A = csr_array(A)
        size = setting.r * (abs(S) @ setting.row_sizes) * (1.0 + self.noise)
        return _dense(A), c - 1.02 * (error + self.noise * size) - TINY, size


_NO_CAP = Halfspace(np.zeros(0), 0.0, 0.0, [])


def _working(W: LinearMap) -> LinearMap:
    """The same matrix, dense or sparse, whichever products are cheaper with."""
    if issparse(W):
        return W
    places = W.shape[0] * W.shape[1]
    if places > SPARSE_PLACES and np.count_nonzero(W) < SPARSE_PART * places:
        return csr_array(W)
    return W


def _dense(A: LinearMap) -> Matrix:
    return A if isinstance(A, np.ndarray) else np.asarray(A.toarray())


def _stacked(W: Any) -> Any:
    """W above -W."""
    indptr = np.concatenate([W.indptr, W.indptr[1:] + W.indptr[-1]])
    data, indices = np.concatenate([W.data, -W.data]), np.concatenate([W.indices, W.indices])
    return csr_array((data, indices, indptr), shape=(2 * W.shape[0], W.shape[1]))


def _by_layer(values: Vector, region: Region) -> list[Vector]:
    return np.split(values, np.cumsum([len(lo) for lo in region.lo])[:-1]) if region.lo else []
