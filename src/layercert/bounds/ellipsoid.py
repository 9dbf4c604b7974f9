"""Quadratic forms over the neurons' values on a ball of l_2: all neurons of all layers share the ball's budget.

Bends. On the ball ||w|| <= r let every open neuron be linear but for a bend: with p = 1 where it is on at x, else 0,

    relu(z) = p z + v,    v = relu(s z) >= 0,    s = 1 - 2p,                                                         (1)

exactly. Others are on (h = z) or off (h = 0). So the network is linear in w and the bends of its layers,

    z = zeta + J w + N v,    F = f + g.w + A.v,                                                                      (2)

N strictly lower: a neuron depends on bends of the layers below it. Here -s zeta = |zeta| =: a >= 0, so that u := s z =
-a + s (J w + N v): a bend begins where its neuron has moved by a. On the ball -L <= u <= H is known, so v <= H, and

    v^2 - v u = 0,    v^2 - H v <= 0,    v >= 0,    v >= u,    v <= (u + L) H / (H + L).                             (3)

The bound. At a point of the ball with F <= 0, for any multipliers c, tau (per bend), l, alpha, sigma, lam (per row F
and bend), all >= 0,

    ||w||^2 >= ||w||^2 + sum c (v^2 - v u) + tau (v^2 - H v) + l F - alpha v - sigma (v - u) - lam (...)
             = y.M y + rho.y + C,    y = (w, v),                                                                     (4)
    t = c + tau,    q = sigma - lam H / (H + L),    C = l f - sum (q a + lam L H / (H + L)),
    rho_w = l g + q s J,    rho_v = l A + c a - tau H + q s N - alpha - sigma + lam.

Where M > 0 the least value of that is C - rho.M^-1 rho / 4, a lower bound of the squared distance. M has c and tau
alone, so it is the same for all rows. M is indefinite where the c of a layer are too large for those of the layers
below. Its Schur complement by w is

    X = diag(t) - (c s N + N' s c) / 2 - c s J J' s c / 4,                                                           (5)

and M >= 0 where X >= 0.

Why it pays. A line of a neuron holds as if the whole ball were spent on this neuron, and a parabola (quadratic.py)
shares the ball among neurons of the first layer by absolute values. (4) keeps signs, and goes through all layers. It is
the Lagrangian of the quadratic program that semidefinite relaxations of networks start from. With tau H = c a there is
no linear term of v of its own, and {y.M y <= r^2} is an ellipsoid around x; but then a bend is held by one multiplier,
where its product (c), its range (tau) and its lines (alpha, sigma, lam) want one each (PERFORMANCE.md, 2026-11-19).

Units. Everything below has w in units of r, v in units of H: 0 <= v <= 1, ||w|| <= 1, a and L in units of H, and
squared distances in units of r^2. So no square leaves the range of doubles unless a coefficient is useless. The signs s
are in J and N.

Rounding. (2): J, N and zeta are taken at their word, and hold up to an error of at most e, which goes up the layers
with the absolute weights; all that is added on the way is `noise` times the size of the terms. In (4) it costs (c +
sigma + lam H / (H + L)) e, since v <= 1; H / (H + L) is rounded up, which keeps the line above. Multipliers are the
numbers that they are, and what is computed from them is wrong by gamma times its terms at most, each of which meets a
|w_j| or v_i of at most 1. t is rounded down. (5): X is computed up to gamma times its terms, and a Cholesky
factorisation that comes to its end proves X + E >= 0 with a diagonal E, by Demmel's bound |error_ij| <= gamma sqrt(X_ii
X_jj), whatever the order of its sums (Higham, Accuracy and Stability of Numerical Algorithms, 10.1; Rump, Verification
of positive definiteness, 2006). Any matrix of entries up to D_i D_j is between -n D^2 and n D^2, which makes it a
diagonal. And y.M y >= y.(M + E) y - sum of E, since v <= 1. A solution y' of 2 (M + E) y = -rho is taken at its word
too: with rest = rho + 2 (M + E) y',

    y.(M + E) y + rho.y = (y - y').(M + E)(y - y') + (rho.y' - rest.y') / 2 + rest.y.                                (6)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from layercert.arrays import EPS, FEW, TINY, Indices, LinearMap, Mask, Matrix, Vector, gamma
from layercert.linear_maps import dense
from layercert.network import Network

#: Sums of error bounds are rounded themselves: one per cent covers that.
OWN = 1.01
#: A bend's unit is at least this much larger than its error, and than this part of where it begins: a neuron that
#: hardly reaches its bend counts for nothing anyway.
ABOVE_ERROR, ABOVE_START = 1e6, 1e-9


@dataclass(frozen=True, eq=False)
class Rows:
    """Linear functions over w and the bends: value + slope.w + bends.v, up to an error of at most `error`."""

    value: Vector
    slope: Matrix
    bends: Matrix
    error: Vector


@dataclass(frozen=True, eq=False)
class Bends:
    """The open neurons of a network on a ball, in units of the ball and of the bends' reach; signs s are in J and N."""

    radius: float
    neurons: Indices  # numbered through all layers, in increasing order
    first: Indices  # per layer, and one more: its first bend
    start: Vector  # a
    J: Matrix
    N: Matrix
    reach: Vector  # H
    other: Vector  # L
    error: Vector


def bends_of(
    network: Network,
    x: Vector,
    radius: float,
    bounds: tuple[Vector, Vector],
    of: tuple[Matrix, Vector, Vector],
    noise: float,
) -> tuple[Bends, Rows]:
    """Equation (2) on the ball, where every neuron's z is within `bounds`; and rows R x^L + c, given up to an error, of
    the last layer's outputs. `noise` is gamma of the longest chain of sums in any pass."""
    lo, hi = bounds
    is_open: Mask = ~((lo >= 0) | (hi <= 0))  # so is what has no bounds
    neurons = np.flatnonzero(is_open)
    n, count = network.inputs, len(neurons)
    start, reach, other, error = np.empty((4, count))
    J, N, first = np.zeros((count, n)), np.zeros((count, count)), [0]
    at = base = 0
    below = Rows(x, np.zeros((0, n)), np.zeros((n, 0)), np.zeros(n))  # outputs of the layer below
    spread = np.zeros(n)  # the size of the terms that move in them
    for k in range(network.L):
        W = network.maps[k]
        z = times(W, network.biases[k], below, spread, noise, first=k == 0)
        here = slice(base, base + len(z.value))
        own = is_open[here]
        on = np.where(own, z.value > 0, lo[here] >= 0)
        end = at + int(own.sum())
        sign = np.where(on[own], -1.0, 1.0)
        a = np.abs(z.value[own])
        H = np.where(on[own], -lo[here][own], hi[here][own])
        H = np.maximum(np.maximum(H, ABOVE_START * a), ABOVE_ERROR * z.error[own] + TINY)
        start[at:end], reach[at:end] = a / H, H
        other[at:end] = np.maximum(np.where(on[own], hi[here][own], -lo[here][own]), 0.0) / H * (1.0 + 4.0 * EPS)
        moved = radius * np.abs(z.slope[own]).sum(1) + np.abs(z.bends[own]) @ reach[:at]
        error[at:end] = OWN * (z.error[own] + noise * (moved + a)) / H
        J[at:end] = (sign * (radius / H))[:, None] * z.slope[own]
        N[at:end, :at] = (sign / H)[:, None] * z.bends[own] * reach[:at]
        bends = np.zeros((len(on), end))
        bends[:, :at] = np.where(on[:, None], z.bends, 0.0)
        bends[np.flatnonzero(own), np.arange(at, end)] = 1.0
        below = Rows(np.where(on, z.value, 0.0), np.where(on[:, None], z.slope, 0.0), bends, np.where(on, z.error, 0.0))
        spread = OWN * (radius * np.abs(below.slope).sum(1) + np.abs(bends) @ reach[:end])
        first.append(end)
        at, base = end, here.stop
    R, c, given = of
    rows = times(R, c, below, spread, noise)
    in_units = Rows(rows.value, radius * rows.slope, rows.bends * reach, np.empty(0))
    size = np.abs(in_units.slope).sum(1) + np.abs(in_units.bends).sum(1)
    in_units = Rows(in_units.value, in_units.slope, in_units.bends, OWN * (given + rows.error + noise * size))
    return Bends(radius, neurons, np.array(first, np.intp), start, J, N, reach, other, error), in_units


def times(W: LinearMap, b: Vector, below: Rows, spread: Vector, noise: float, first: bool = False) -> Rows:
    """W h + b, h the outputs of the layer below; in the first layer these are x + w, and nothing is rounded but b."""
    size = abs(W)
    value = np.asarray(W @ below.value + b)
    terms = np.asarray(size @ (np.abs(below.value) + spread) + np.abs(b))
    error = OWN * (np.asarray(size @ below.error) + noise * terms) + TINY
    if first:
        return Rows(value, dense(W), np.zeros((len(value), 0)), error)
    return Rows(value, np.asarray(W @ below.slope), np.asarray(W @ below.bends), error)


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Of what is linear in (4), per row and each at least 0, in units."""

    row: Vector  # l, of F <= 0 as it is given
    above_zero: Matrix  # alpha, of v >= 0
    above_line: Matrix  # sigma, of v >= u
    below_chord: Matrix  # lam, of v <= (u + L) / (1 + L)


class Form:
    """The quadratic form of (4) for multipliers c and tau; `found`: M is positive definite, up to E."""

    def __init__(self, bends: Bends, c: Vector, tau: Vector, gram: Matrix) -> None:
        """`gram` is J J', as floating point has it."""
        self.bends, self.c, self.tau = bends, c, tau
        n, (count, inputs) = len(c), bends.J.shape
        self.t = (c + tau) * (1.0 - 4.0 * EPS)  # at most t
        X = (gram * (-0.25 * c) - 0.5 * bends.N) * c[:, None]  # its lower half: N has no other
        X[np.arange(n), np.arange(n)] += self.t
        P = np.abs(c[:, None] * bends.N)
        self._length = np.abs(bends.J).sum(1) * OWN  # of each row of J, at least
        self._terms = gamma(2 * (count + inputs) + 64)
        square = 0.25 * c * c * np.minimum(self._length**2, OWN * np.diag(gram) + OWN * self._terms * self._length**2)
        size = n * (square + np.abs(np.diag(X))) + 0.5 * (P.sum(0) + P.sum(1)) + self.t
        self.E = 2.0 * OWN * self._terms * size + TINY
        # LAPACK wants columns: the transpose, without a copy
        self._factor: Matrix
        self._factor, failed = dpotrf(X.T, lower=0, clean=0, overwrite_a=1) if n else (X, 0)
        #: what y.M y may be more than y.(M + E) y is, and what the errors of (2) cost
        self.excess = OWN * float((c * bends.error).sum() + self.E.sum())
        pivots = bool((np.diag(self._factor) > 0.0).all())  # false for what is no number
        valid = bool((c >= 0.0).all() and (tau >= 0.0).all())
        self.found = bool(failed == 0 and pivots and valid and math.isfinite(self.excess))

    def squares(self, rows: Rows, by: Multipliers) -> Vector:
        """Lower bounds of the squared distances, in units, of the points of the ball where a row is 0 or less."""
        bends = self.bends
        J, N, c, share = bends.J, bends.N, self.c, by.row[:, None]
        top = (1.0 + 4.0 * EPS) / (1.0 + bends.other)  # at least H / (H + L)
        down = by.below_chord * top
        q, size_q = by.above_line - down, by.above_line + down
        alone = by.above_zero + by.above_line + by.below_chord + c * bends.start + self.tau
        slope = share * rows.slope + q @ J
        bent = (
            share * rows.bends + q @ N + (c * bends.start - self.tau) - by.above_zero - by.above_line + by.below_chord
        )
        terms = np.abs(share * rows.slope).sum(1) + np.abs(share * rows.bends).sum(1)
        terms += size_q @ (self._length + np.abs(N).sum(1)) + alone.sum(1)
        value = by.row * rows.value - q @ bends.start - down @ bends.other
        terms += np.abs(by.row * rows.value) + size_q @ bends.start + down @ bends.other
        least, rest = self._least(slope, bent)
        error = self._terms * terms + rest + by.row * rows.error + size_q @ bends.error + self.excess
        found = value + least - 2.0 * OWN * error - FEW * (np.abs(value) + np.abs(least)) - TINY
        valid = (by.row >= 0.0) & (np.stack([by.above_zero, by.above_line, by.below_chord]) >= 0.0).all((0, 2))
        return np.where(np.isfinite(found) & valid, found, -math.inf)

    def _least(self, slope: Matrix, bent: Matrix) -> tuple[Vector, Vector]:
        """(6): half of rho.y' for rows rho = (slope, bent), and what it may err by, for all y of the ball."""
        c, J, N, t = self.c, self.bends.J, self.bends.N, self.t + self.E
        right = bent + 0.5 * c * (slope @ J.T)
        v = dpotrs(self._factor, np.asfortranarray(right.T), lower=0)[0].T if len(c) else right
        v = -0.5 * v
        w = 0.5 * ((v * c) @ J - slope)
        size, far = np.abs(v) * c, np.abs(w).max(1, initial=0.0)[:, None]
        rest = np.abs(bent + 2.0 * t * v - c * (w @ J.T + v @ N.T) - (v * c) @ N)
        terms = np.abs(bent) + 2.0 * t * np.abs(v) + c * (far * self._length + np.abs(v) @ np.abs(N).T)
        rest += 2.0 * self._terms * (terms + size @ np.abs(N))
        of_w = 2.0 * self._terms * (np.abs(slope).sum(1) + size @ self._length)  # nothing but rounding
        error = (rest * (1.0 + 0.5 * np.abs(v))).sum(1) + of_w * (1.0 + 0.5 * far[:, 0])
        sizes = (np.abs(slope) * np.abs(w)).sum(1) + (np.abs(bent) * np.abs(v)).sum(1)
        return 0.5 * ((slope * w).sum(1) + (bent * v).sum(1)), OWN * (error + self._terms * sizes)

    def distances(self, rows: Rows, by: Multipliers) -> Vector:
        """How far away the points are at least where a row is 0 or less: at most the radius."""
        found = np.zeros(len(rows.value))
        if self.found:
            share = np.sqrt(np.clip(self.squares(rows, by), 0.0, 1.0)) * (1.0 - 4.0 * EPS)
            found = self.bends.radius * share * (1.0 - 4.0 * EPS)
        return found
