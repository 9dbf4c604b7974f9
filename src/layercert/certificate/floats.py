"""The checker's arithmetic in float64: linear bounds of a network with a proven bound of every rounding error.

A backward pass is taken at its word: the computed vectors are exact numbers, and each step's inequality holds up to
what that step rounded. At layer k, with |z| <= T_k: the slopes round by 3u(|A| + beta), the product with W by
gamma |S||W| (which meets x^{k-1} <= T_{k-1}, together at most T_k), the constant by gamma times its terms. In all, a
pass is wrong by at most 6 gamma sum_k (|A_k| + beta_k).T_k plus the roundings in the row it starts from and in the
first layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from layercert.arrays import TINY, Indices, Mask, Matrix, Vector, gamma
from layercert.certificate.reach import fall
from layercert.certificate.setting import Setting, dual_norm


@dataclass(eq=False)
class Bounds:
    """Phases (+1, -1, 0 = free) and bounds of every neuron, a list over the layers."""

    phase: list[Vector]
    lo: list[Vector]
    hi: list[Vector]

    def copy(self) -> Bounds:
        return Bounds([a.copy() for a in self.phase], [a.copy() for a in self.lo], [a.copy() for a in self.hi])

    def on(self, k: int) -> Mask:
        return np.asarray((self.phase[k] > 0) | ((self.phase[k] == 0) & (self.lo[k] >= 0)))

    def off(self, k: int) -> Mask:
        return np.asarray(~self.on(k) & ((self.phase[k] < 0) | (self.hi[k] <= 0)))

    def side(self, k: int) -> Vector:
        """+1 where a neuron is known to be on, -1 where off, 0 where neither: s*z >= 0 holds on the whole node."""
        return np.where(self.on(k), 1.0, np.where(self.off(k), -1.0, 0.0))

    def narrow(self, k: int, index: Indices, lo: Vector, hi: Vector) -> bool:
        """Keep the better of old and new; False when a neuron has no value left.

        What is not a finite number says nothing: a NaN or an overflow must never pass for an empty node.
        """
        self.lo[k][index] = np.maximum(self.lo[k][index], np.where(np.isfinite(lo), lo, -np.inf))
        self.hi[k][index] = np.minimum(self.hi[k][index], np.where(np.isfinite(hi), hi, np.inf))
        return not bool((self.lo[k] > self.hi[k]).any())


@dataclass(frozen=True, eq=False)
class Parameters:
    """alpha and beta of one node, a list over the layers; `touch` are the lower slopes while bounds are tightened."""

    alpha: list[Vector]
    beta: list[Vector]
    touch: list[Vector]


class Upper(NamedTuple):
    """What the layers from k on make of an objective F: row.x^k + constant - error <= F on the node."""

    row: Vector
    constant: float
    error: float


def upper_line(lo: Vector, hi: Vector, unstable: Mask) -> tuple[Vector, Vector]:
    """su, iu with su*z + iu >= relu(z) on [lo, hi], exactly: the line is lifted above both ends."""
    width = np.where(unstable, hi - lo, 1.0)
    su = np.where(unstable, np.minimum(hi / width, 1.0), 0.0)
    # the last term is for bounds so small that their products underflow
    iu = np.where(unstable, np.maximum(-su * lo, (1.0 - su) * hi) * (1.0 + 1e-15) + 1e-300, 0.0)
    return su, iu


def _finite(g: Vector, s: float) -> bool:
    """Overflow makes infinities and NaN; a halfspace with one of them says nothing."""
    return bool(np.isfinite(s) and np.isfinite(g).all())


def lower_slopes(
    k: int, lo: Vector, hi: Vector, parameters: Parameters | None, touch: list[Vector] | list[Matrix] | None
) -> Vector | Matrix:
    """Slopes of the lower lines in layer k: the node's own, or those to tighten with (a row's own), or CROWN's."""
    if parameters is not None:
        return parameters.alpha[k]
    return touch[k] if touch is not None else (hi > -lo).astype(np.float64)


class FloatArithmetic:
    """Lower bounds by backward passes, rounded down."""

    name = "outward-rounded float64 arithmetic"
    exact = False

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def backward(
        self,
        A: Matrix,
        c: Vector,
        error: Vector,
        depth: int,
        bounds: Bounds,
        parameters: Parameters | None,
        touch: list[Vector] | list[Matrix] | None = None,
        uppers: list[Upper] | None = None,
    ) -> tuple[Matrix, Vector]:
        """G, s with G w + s <= A x^depth + c on the node; `error` is what the given rows are wrong by.

        Without parameters: the slopes of `touch`, or CROWN's, and no multipliers. depth counts layers from 1. `uppers`
        takes the first row on its way down, for x^depth first.
        """
        setting = self.setting
        network = setting.network
        for k in range(depth - 1, -1, -1):
            if uppers is not None:
                uppers.append(Upper(A[0], float(c[0]), 1.01 * float(error[0]) + TINY))
            lo, hi = bounds.lo[k], bounds.hi[k]
            on, off = bounds.on(k), bounds.off(k)
            unstable = ~on & ~off
            su, iu = upper_line(lo, hi, unstable)
            alpha = lower_slopes(k, lo, hi, parameters, touch)
            up, down = np.maximum(A, 0.0), np.minimum(A, 0.0)
            S = np.where(unstable, up * alpha + down * su, np.where(on, A, 0.0))
            weight = np.abs(A)
            if parameters is not None:
                S = S - parameters.beta[k] * bounds.side(k)
                weight = weight + parameters.beta[k]
            error = error + 6.0 * setting.noise * (weight @ setting.T[k])
            c = c + down @ iu + S @ (network.biases[k] if k > 0 else setting.z0)
            if k > 0:
                A = S @ network.weights[k]
        G = S @ network.weights[0]
        error = error + setting.noise * setting.r * (np.abs(S) @ setting.row_sizes)
        return G, c - 1.01 * error - TINY

    def objective(
        self, C: Matrix, d: Vector, mu: Vector, bounds: Bounds, parameters: Parameters
    ) -> tuple[Vector, float, list[Upper]]:
        """g, s with g.w + s <= mu.(C f(x + w) - d) on the node: unsafe points have g.w + s <= 0.

        Also the same over x^1, .., x^L.
        """
        network, noise = self.setting.network, self.setting.noise
        A = (mu @ C) @ network.weights[-1]
        c = mu @ (C @ network.biases[-1] - d)
        size = mu @ np.abs(C)
        T = self.setting.T[-2] if network.L else np.abs(self.setting.x)
        error = 4.0 * noise * (size @ (np.abs(network.weights[-1]) @ T + np.abs(network.biases[-1])) + mu @ np.abs(d))
        if network.L == 0:
            s = c + float(A @ self.setting.x) - 1.01 * error - TINY
            return A, float(s - noise * self.setting.r * float(dual_norm(A, self.setting.q))), []
        uppers: list[Upper] = []
        G, s = self.backward(A[None], np.array([c]), np.array([error]), network.L, bounds, parameters, uppers=uppers)
        return G[0], float(s[0]), uppers[::-1]

    def excludes(self, g: Vector, s: float) -> bool:
        """Is g.w + s > 0 on the whole ball and box?"""
        return _finite(g, s) and s > float(fall(self.setting, g[None])[0])

    def tighten(
        self,
        bounds: Bounds,
        g: Vector | None,
        s: float,
        touch: list[Vector] | None = None,
        uppers: Sequence[Upper] = (),
    ) -> bool:
        """Bounds of the unstable neurons on the cap g.w + s <= 0 of the ball; False when the node turns out empty.

        Two passes: with the node's slopes, then for each row with those that touch where the first one was least. The
        second one takes the objective F <= 0 into the row, as far down as its upper part goes: lam F + z <= z, relaxed
        as one function.
        """
        network, setting = self.setting.network, self.setting
        if g is not None and not _finite(g, s):
            return True
        for k in range(network.L):
            free = np.flatnonzero((bounds.lo[k] < 0) & (bounds.hi[k] > 0))
            if not len(free):
                continue
            W, b = network.weights[k][free], network.biases[k][free]
            if k == 0:
                error = setting.noise * setting.T[0][free]
                G, c = np.concatenate([W, -W]), np.concatenate([setting.z0[free], -setting.z0[free]])
                c = c - np.concatenate([error, error]) - TINY
            else:
                rows, consts = np.concatenate([W, -W]), np.concatenate([b, -b])
                G, c = self.backward(rows, consts, setting.noise * np.abs(consts), k, bounds, None, touch)
            least, lam = self.lowest(G, g, s)
            low = c + least
            if k > 0 and g is not None:
                slopes = self.slopes_at_least_points(G + lam[:, None] * g, k)
                error = setting.noise * np.abs(consts)
                if uppers:
                    rows, consts, error = self.pulled(rows, consts, lam, uppers[k - 1], setting.T[k - 1])
                G, c = self.backward(rows, consts, error, k, bounds, None, slopes)
                low = np.maximum(low, c + self.lowest(G, g, s)[0])
            low = low - gamma(4) * np.abs(low)
            m = len(free)
            if not bounds.narrow(k, free, low[:m], -low[m:]):
                return False
        return True

    def pulled(
        self, rows: Matrix, consts: Vector, lam: Vector, upper: Upper, T: Vector
    ) -> tuple[Matrix, Vector, Vector]:
        """The rows plus lam times the objective, and what they are wrong by."""
        noise = self.setting.noise
        size = np.abs(rows) @ T + lam * float(np.abs(upper.row) @ T)
        error = noise * (np.abs(consts) + 2.0 * size + 2.0 * lam * abs(upper.constant)) + 1.01 * lam * upper.error
        return rows + lam[:, None] * upper.row, consts + lam * upper.constant, error

    def slopes_at_least_points(self, G: Matrix, depth: int) -> list[Matrix]:
        """Lower slopes of its own for each row: those that touch where the row is least, roughly (any are sound)."""
        network, (down, up) = self.setting.network, self.setting.room
        h = np.where(G > 0, -down, up)
        if not np.isinf(self.setting.p):
            size = np.sqrt((G * G).sum(axis=1, keepdims=True))
            h = np.clip(G * (-self.setting.r / np.maximum(size, 1e-300)), -down, up)
        h = h + self.setting.x
        slopes = []
        for W, b in zip(network.weights[:depth], network.biases[:depth], strict=True):
            z = h @ W.T + b
            slopes.append((z > 0).astype(np.float64))
            h = np.maximum(z, 0.0)
        return slopes

    def lowest(self, G: Matrix, g: Vector | None, s: float) -> tuple[Vector, Vector]:
        """Lower bounds of G w on the cap g.w + s <= 0 of ball and box, and the multipliers of the cap."""
        from layercert.certificate.cap import lowest_on_cap

        down, up = self.setting.room
        cap = np.zeros(0) if g is None else g
        low, lam = lowest_on_cap(np.ascontiguousarray(G), cap, s, self.setting.r, self.setting.q, down, up)
        return low, lam
