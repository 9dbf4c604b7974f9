"""The checker's arithmetic in balls (Arb, through python-flint): every number carries its own rigorous error.

Slow, and the last word: no error analysis of ours is involved. The float arithmetic only suggests (multipliers of the
cap, splits of a vector between ball and box); whatever it suggests, what is proved here is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.ball_maps import ball_map, ball_matrix
from layercert.certificate.floats import Bounds, FloatArithmetic, Parameters, lower_slopes, upper_line
from layercert.certificate.reach import kept
from layercert.certificate.setting import Setting
from layercert.errors import MissingPackageError

#: Bits of the ball arithmetic.
PRECISION = 128


def precision() -> AbstractContextManager[Any]:
    """While this is open, balls have so many bits; whoever else computes with flint finds its own precision again."""
    try:
        import flint
    except ImportError:
        raise MissingPackageError("python-flint", "checking a certificate in ball arithmetic", "exact") from None
    context: AbstractContextManager[Any] = flint.ctx.workprec(PRECISION)
    return context


class BallArithmetic:
    """Lower bounds by backward passes, in ball arithmetic; made and used inside `precision()`."""

    name = f"ball arithmetic with {PRECISION} bits"
    exact = True

    def __init__(self, setting: Setting) -> None:
        import flint

        self.flint: Any = flint
        self.setting = setting
        self.guide = FloatArithmetic(setting)
        self.q = flint.arb(1)  # the dual exponent as a ball: p/(p - 1) is no float64; of no use for p = 1 and inf
        if 1.0 < setting.p < math.inf:
            self.q = flint.arb(setting.p) / (flint.arb(setting.p) - 1)
        network = setting.network
        self.W = [ball_map(W, flint) for W in network.maps]
        self.b = [self._matrix(b[:, None]) for b in network.biases]
        self.z0 = self.W[0] * self._matrix(setting.x[:, None]) + self.b[0]

    def _matrix(self, A: Matrix) -> Any:
        return ball_matrix(A, self.flint)

    def objective(
        self, C: Matrix, d: Vector, mu: Vector, bounds: Bounds, parameters: Parameters
    ) -> tuple[Any, Any, list[Any]]:
        """g (one row) and s as balls, with g.w + s <= mu.(C f(x + w) - d) on the node; the same over x^k."""
        row = self._matrix(mu[None]) * self._matrix(C)
        A = row * self.W[-1]
        c = row * self.b[-1] - self._matrix(mu[None]) * self._matrix(d[:, None])
        if self.setting.network.L == 0:
            return A, (c + A * self._matrix(self.setting.x[:, None]))[0, 0], []
        uppers: list[Any] = []
        G, s = self._backward(A, [c[0, 0]], self.setting.network.L, bounds, parameters, uppers=uppers)
        return G, s[0], uppers[::-1]

    def excludes(self, g: Any, s: Any) -> bool:
        return bool(s > self._fall(g, 0))

    def tighten(
        self, bounds: Bounds, g: Any, s: Any, touch: list[Vector] | None = None, uppers: Sequence[Any] = ()
    ) -> bool:
        network = self.setting.network
        for k in range(network.L):
            free = np.flatnonzero((bounds.lo[k] < 0) & (bounds.hi[k] > 0))
            if not len(free):
                continue
            W, b = network.weights[k][free], network.biases[k][free]
            rows = self._matrix(np.concatenate([W, -W]))
            if k == 0:
                up = [self.z0[int(i), 0] for i in free]
                G, c = rows, up + [-v for v in up]
            else:
                consts = [self.flint.arb(float(v)) for v in np.concatenate([b, -b])]
                G, c = self._backward(rows, list(consts), k, bounds, None, touch)
            low, lam = self._lowest(G, c, g, s)
            if k > 0 and g is not None:
                halves = _middle(G) + lam[:, None] * _middle(g)
                if uppers:
                    row, constant = uppers[k - 1]
                    rows += self._matrix(lam[:, None]) * row
                    consts = [own + constant * float(pull) for own, pull in zip(consts, lam, strict=True)]
                G, c = self._backward(rows, list(consts), k, bounds, None, self.guide.slopes_at_least_points(halves, k))
                low = np.maximum(low, self._lowest(G, c, g, s)[0])
            m = len(free)
            if not bounds.narrow(k, free, low[:m], -low[m:]):
                return False
        return True

    def _backward(
        self,
        A: Any,
        c: list[Any],
        depth: int,
        bounds: Bounds,
        parameters: Parameters | None,
        touch: list[Vector] | list[Matrix] | None = None,
        uppers: list[Any] | None = None,
    ) -> Any:
        for k in range(depth - 1, -1, -1):
            if uppers is not None:
                uppers.append((A, c[0]))
            lo, hi, side = bounds.lo[k], bounds.hi[k], bounds.side(k)
            on, off = bounds.on(k), bounds.off(k)
            unstable = ~on & ~off
            su, iu = upper_line(lo, hi, unstable)
            self._check_lines(lo, hi, su, iu, unstable)
            alpha = np.broadcast_to(lower_slopes(k, lo, hi, parameters, touch), (A.nrows(), len(lo)))
            beta = np.zeros_like(lo) if parameters is None else parameters.beta[k]
            S = self.flint.arb_mat(A.nrows(), A.ncols())
            for i in range(A.nrows()):
                for j in range(A.ncols()):
                    value = self._slope(A[i, j], on[j], off[j], float(alpha[i, j]), float(su[j]))
                    if unstable[j]:
                        c[i] = c[i] + self._negative(A[i, j]) * float(iu[j])
                    if beta[j] and side[j]:
                        value = value - self.flint.arb(float(beta[j])) * float(side[j])
                    S[i, j] = value
            shift = S * (self.b[k] if k > 0 else self.z0)
            c = [c[i] + shift[i, 0] for i in range(A.nrows())]
            A = S * self.W[k]
        return A, c

    def _slope(self, a: Any, on: bool, off: bool, alpha: float, su: float) -> Any:
        if on:
            return a
        if off:
            return self.flint.arb(0)
        # A ball that straddles zero takes both lines at once: its positive and its negative part.
        return (a - self._negative(a)) * alpha + self._negative(a) * su

    def _negative(self, a: Any) -> Any:
        return (a - abs(a)) / 2

    def _check_lines(self, lo: Vector, hi: Vector, su: Vector, iu: Vector, unstable: Any) -> None:
        arb = self.flint.arb
        for j in np.flatnonzero(unstable):
            slope, lift = arb(float(su[j])), arb(float(iu[j]))
            # for certain, and written so that 128 bits suffice: the lines are lifted by 1e-15 of what is added here
            if not (slope * float(lo[j]) + lift >= 0 and (slope - 1) * float(hi[j]) + lift >= 0):
                raise ArithmeticError("an upper line does not lie above the ReLU")

    def _fall(self, G: Any, i: int) -> Any:
        """max -g.w over the ball and box for row i, as a ball whose upper end is valid."""
        arb, setting = self.flint.arb, self.setting
        n = G.ncols()
        g = np.array([[float(G[i, j].mid()) for j in range(n)]])
        down, up = setting.room
        keep = kept(setting, g)
        total, powers, top = arb(0), arb(0), arb(0)
        for j in range(n):
            size = abs(G[i, j])
            part = size if setting.domain is None else arb(float(keep[0, j]))
            over = size - part
            # by the ball itself: its centre as a float may be zero
            room = down[j] if G[i, j] > 0 else up[j] if G[i, j] < 0 else max(down[j], up[j])
            if setting.domain is not None and not over <= 0:
                total += abs(over) * float(room)
            if math.isinf(setting.p):
                powers += part
            elif setting.p == 1.0:
                top = top.max(part)
            elif part > 0:
                powers += part**self.q
            elif not part.is_zero():
                powers += part.abs_upper() ** self.q
        if math.isinf(setting.p):
            length = powers
        elif setting.p == 1.0:
            length = top
        else:
            powers = powers.abs_upper()  # of wide balls the sum may not be above zero for certain
            length = powers ** (1 / self.q) if powers > 0 else arb(0)
        return total + length * setting.r

    def _lowest(self, G: Any, c: list[Any], g: Any, s: Any) -> tuple[Vector, Vector]:
        """Lower bounds of the rows on the cap, rounded down to floats, and the multipliers of the cap."""
        m, n = G.nrows(), G.ncols()
        lam = np.zeros(m)
        if g is not None:
            halfspace = _middle(g)[0]
            if halfspace.any():
                lam = self.guide.lowest(_middle(G), halfspace, float(s.mid()))[1]
        out = []
        for i in range(m):
            value = c[i] - self._fall(G, i)
            if lam[i] > 0:
                H = self.flint.arb_mat([[G[i, j] + g[0, j] * float(lam[i]) for j in range(n)]])
                value = value.max(c[i] + s * float(lam[i]) - self._fall(H, 0))
            out.append(_down(value))
        return np.array(out), lam


def _middle(G: Any) -> Matrix:
    """The centres of a matrix of balls."""
    return np.array([[float(G[i, j].mid()) for j in range(G.ncols())] for i in range(G.nrows())])


def _down(a: Any) -> float:
    """A float below the whole ball."""
    return float(np.nextafter(float(a.lower()), -np.inf))
