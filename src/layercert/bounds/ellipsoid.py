"""An ellipsoid around the neurons' values on a ball of l_2: all neurons of all layers share the ball's budget.

Bends. On the ball ||w|| <= r let every open neuron be linear but for a bend: with p = 1 where it is on at x, else 0,

    relu(z) = p z + v,    v = relu(s z) >= 0,    s = 1 - 2p,                                                         (1)

exactly. Others are on (h = z) or off (h = 0). So the network is linear in w and the bends of its layers,

    z = zeta + J w + N v,    F = f + g.w + A.v,                                                                      (2)

N strictly lower: a neuron depends on bends of the layers below it. Here -s zeta = |zeta| =: a >= 0, so that s z = -a
+ s (J w + N v): a bend begins where its neuron has moved by a. It ends at v <= H, which is known of s z on the ball, so

    t v^2 <= c v s (J w + N v),    any c >= 0, t = c (1 + a / H),                                                    (3)

since for v = 0 both sides are zero, and for v > 0 it says t v <= c (v + a), which holds up to v = H.

The ellipsoid. All (3) added to ||w||^2 <= r^2,

    q(w, v) = ||w||^2 + sum_i t_i v_i^2 - c_i v_i s_i (J_i w + N_i v) = y.M y <= r^2,    y = (w, v).                 (4)

Where M > 0 this is an ellipsoid that holds the bends of all points of the ball, whatever c is. A linear function b.y
is at least -r sqrt(b.M^-1 b) on it, and coefficients of bends may be lowered to any smaller number, since v >= 0. M is
indefinite where the c of a layer are too large for those of the layers below. Its Schur complement by w is

    X = diag(t) - (c s N + N' s c) / 2 - c s J J' s c / 4,                                                           (5)

and M >= 0 where X >= 0. As q is a square of lengths, what it proves at radius d <= r is -d sqrt(b.M^-1 b): one
ellipsoid proves a distance, min(r, f / sqrt(b.M^-1 b)), and for all clauses at once.

Why it pays. A line of a neuron holds as if the whole ball were spent on this neuron, and a parabola (quadratic.py)
shares the ball among neurons of the first layer by absolute values. (4) keeps signs, and goes through all layers. It is
the Lagrangian of the quadratic program that semidefinite relaxations of networks start from (LipSDP is the case a = 0).

Units. Everything below has w in units of r, v in units of H: 0 <= v <= 1, ||w|| <= 1, a in units of H, and rows of F
are divided by f. So no square leaves the range of doubles unless a coefficient is useless.

Rounding. (2): J, N and zeta are taken at their word, and hold up to an error of at most e, which goes up the layers
with the absolute weights; all that is added on the way is `noise` times the size of the terms. In (4) it costs c e,
since v <= 1. (5): X is computed up to gamma times its terms, and a Cholesky factorisation that comes to its end proves
X + E >= 0 with a diagonal E, by Demmel's bound |error_ij| <= gamma sqrt(X_ii X_jj), whatever the order of its sums
(Higham, Accuracy and Stability of Numerical Algorithms, 10.1; Rump, Verification of positive definiteness, 2006). Any
matrix of entries up to D_i D_j is between -n D^2 and n D^2, which makes it a diagonal. With E, q + v.E v <= ||w||^2 +
sum of E. A solution of M y = b is taken at its word too: b = M y + rest, and b.y' >= -sqrt(y.M y) sqrt(y'.M y') -
|rest||y'| by Cauchy and Schwarz in the norm of M.
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
    start, reach, error = np.empty(count), np.empty(count), np.empty(count)
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
    return Bends(radius, neurons, np.array(first, np.intp), start, J, N, reach, error), in_units


def times(W: LinearMap, b: Vector, below: Rows, spread: Vector, noise: float, first: bool = False) -> Rows:
    """W h + b, h the outputs of the layer below; in the first layer these are x + w, and nothing is rounded but b."""
    size = abs(W)
    value = np.asarray(W @ below.value + b)
    terms = np.asarray(size @ (np.abs(below.value) + spread) + np.abs(b))
    error = OWN * (np.asarray(size @ below.error) + noise * terms) + TINY
    if first:
        return Rows(value, dense(W), np.zeros((len(value), 0)), error)
    return Rows(value, np.asarray(W @ below.slope), np.asarray(W @ below.bends), error)


class Ellipsoid:
    """(4) for multipliers c, in units; `found`: M is positive definite, up to E."""

    def __init__(self, bends: Bends, c: Vector, gram: Matrix) -> None:
        """`gram` is J J', as floating point has it."""
        self.bends, self.c = bends, c
        n, (count, inputs) = len(c), bends.J.shape
        self.t = c * (1.0 + bends.start) * (1.0 - 8.0 * EPS)
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
        #: how much more than ||w||^2 the squares may be
        self.excess = OWN * float((c * bends.error).sum() + self.E.sum())
        pivots = bool((np.diag(self._factor) > 0.0).all())  # false for what is no number
        self.found = bool(failed == 0 and pivots and math.isfinite(self.excess) and self.excess < 1.0)

    def lengths(self, slope: Matrix, bends: Matrix) -> tuple[Vector, Vector]:
        """L and e for rows b = (slope, bends): b.y >= -L sqrt(||w||^2 + excess) - e on the ball, for all y of (4).

        Positive coefficients of bends count as zero.
        """
        c, J, N = self.c, self.bends.J, self.bends.N
        b = np.minimum(bends, 0.0)
        right = b + 0.5 * c * (slope @ J.T)
        v = dpotrs(self._factor, np.asfortranarray(right.T), lower=0)[0].T if len(c) else right
        u = slope + 0.5 * (v * c) @ J
        rest = b - ((self.t + self.E) * v - 0.5 * c * (u @ J.T + v @ N.T) - 0.5 * (v * c) @ N)
        size, moved = np.abs(v) * c, np.abs(u).max(1, initial=0.0)[:, None] * self._length
        terms = np.abs(b) + (self.t + self.E) * np.abs(v) + 0.5 * c * (moved + np.abs(v) @ np.abs(N).T)
        terms += 0.5 * size @ np.abs(N)
        rest = np.abs(rest) + 2.0 * self._terms * terms  # that of w is nothing but rounding
        of_w = 2.0 * self._terms * (np.abs(slope).sum(1) + size @ self._length)
        inner = (slope * u).sum(1) + (b * v).sum(1)
        inner += OWN * self._terms * ((np.abs(slope) * np.abs(u)).sum(1) + (np.abs(b) * np.abs(v)).sum(1))
        inner += OWN * ((rest * np.abs(v)).sum(1) + of_w * np.abs(u).max(1, initial=0.0))
        return np.sqrt(np.maximum(inner, 0.0) + TINY) * (1.0 + FEW), OWN * (rest.sum(1) + of_w)

    def distances(self, rows: Rows) -> Vector:
        """How far away the points are at least where a row is 0 or less: at most the radius."""
        found = np.zeros(len(rows.value))
        if not self.found:
            return found
        sound = rows.error < 0.5 * rows.value  # false for what is no number
        f = np.where(sound, rows.value, 1.0)
        slope, bends = rows.slope / f[:, None], rows.bends / f[:, None]
        L, e = self.lengths(slope, bends)
        e = OWN * (e + rows.error / f + FEW * (np.abs(slope).sum(1) + np.abs(bends).sum(1)))
        far = (1.0 - e) * (1.0 - FEW) / L
        square = far * far * (1.0 - FEW) - self.excess * (1.0 + FEW)
        sound &= (e < 1.0) & (square > 0.0)
        share = np.minimum(np.sqrt(np.where(sound, square, 0.0)) * (1.0 - FEW), 1.0)
        found[sound] = self.bends.radius * share[sound]
        return found
