"""Parabolas above ReLUs, and how far a linear function less a sum of squares can fall on a ball: l_2, sparse layers.

The upper line of a neuron z = z0 + dz holds as if the whole ball were spent on this neuron. In l_2 a step w that moves
one neuron of a convolution far moves the others little, and lines cannot say so: with them all neurons of a layer lose
at once. Parabolas can. On lo <= z <= hi let

    relu(z) <= v + s dz + q dz^2,    q >= 0.                                                                        (1)

For any s and q this holds with v = max over [lo, hi] of relu(z) - s dz - q dz^2, the larger of two concave parabolas'
maxima. Then a sum of neurons with coefficients a_i < 0 is

    sum_i a_i relu(z_i) >= sum_i a_i v_i + sum_i a_i s_i dz_i - sum_i T_i dz_i^2,    T_i = -a_i q_i >= 0,

and with dz_i = W_i.w, by Cauchy and Schwarz, (W_i.w)^2 <= ||W_i||_1 sum_j |W_ij| w_j^2, so that

    sum_i T_i dz_i^2 <= sum_j D_j w_j^2,    D_j = sum_i T_i ||W_i||_1 |W_ij|.                                       (2)

What is left is separable. In units of the ball, t = w / U with g_j for g_j U and D_j for D_j U^2, for every mu >= 0 and
all t with ||t||_2 <= 1 inside the box

    g.t - sum_j D_j t_j^2 >= -mu + sum_j min ((mu - D_j) t_j^2 + g_j t_j  over the room of t_j).                    (3)

On five convolutional networks the largest eigenvalue of the right side of (2) was 1.0 to 2.0 times that of the left one
with 4 filters in the first layer, 1.0 to 3.3 times with 16.

Rounding. (1): v is rounded up (`offset_above`). (2): sums of terms >= 0, rounded up by the caller. (3): every term is
taken as a cost >= 0, with a margin where it may cancel, and the sum is rounded up (`curved_fall`). In units of the ball
all of (3) are values that neurons may have, which TINY looks after. U^2, or the square of a weight, is no such value:
on a ball of 1e-170 it vanishes, and half of the fall with it.
"""

from __future__ import annotations

import math

import numpy as np

from layercert.arrays import EPS, FEW, TINY, Vector
from layercert.compiled.jit import inner, inner_sums
from layercert.compiled.norms import over

#: Covers ninety roundings of the terms of (1), second-order errors of its vertices included.
_MARGIN = 1e-14
#: Halvings of the range of mu: the bound is flat at the best one, so a 256th of the range will do.
_HALVINGS = 8


@inner
def least_slope(q: float, lo: float, hi: float, z: float) -> float:
    """The slope at z of the parabola of curvature q above relu on [lo, hi] that is least at z: a hint, not a proof.

    It touches relu on both sides, or goes through an end of the interval that comes before the point of touching.
    """
    left = -lo
    if q * (hi - lo) ** 2 <= min(hi, left):  # through both ends
        return hi / (hi - lo) - q * (hi + lo - 2.0 * z)
    if left <= hi and 4.0 * q * left <= 1.0:  # through the left end, touching z on the right
        touch = lo + math.sqrt(left / q)
        return 1.0 + 2.0 * q * (min(z, touch) - touch)
    if hi < left and 4.0 * q * hi <= 1.0:  # through the right end, touching 0 on the left
        touch = hi - math.sqrt(hi / q)
        return 2.0 * q * (max(z, touch) - touch)
    touch = 0.25 / q
    return 2.0 * q * min(max(z, -touch), touch) + 0.5


@inner
def offset_above(s: float, q: float, z0: float, lo: float, hi: float) -> float:
    """v of (1), rounded up, for any s, any q >= 0 and lo < 0 < hi."""
    first, zero, last = lo - z0, -z0, hi - z0
    best = max(-s * first - q * first * first, hi - s * last - q * last * last)
    best = max(best, -s * zero - q * zero * zero)
    if q > 0.0:
        off = min(max(-s / (2.0 * q), first), zero)
        on = min(max((1.0 - s) / (2.0 * q), zero), last)
        best = max(best, -s * off - q * off * off)
        best = max(best, z0 + (1.0 - s) * on - q * on * on)
    reach = max(abs(first), abs(last))
    size = abs(lo) + abs(hi) + abs(z0) + (abs(s) + 1.0) * reach + q * reach * reach
    return best + _MARGIN * size + TINY


@inner_sums
def curved_fall(g: Vector, D: Vector, below: Vector, above: Vector) -> float:
    """How far g.t - sum_j D_j t_j^2 can fall below 0 by (3), rounded up.

    All in units of the ball; -below_j <= t_j <= above_j, at most 1 each, is the room that the domain leaves.
    """
    square, most = 0.0, 0.0
    for j in range(len(g)):
        square += g[j] * g[j]
        most = max(most, D[j])
    low, high = 0.0, 0.5 * np.sqrt(square) + most
    best = np.inf
    for turn in range(_HALVINGS + 1):
        mu = high if turn == 0 else 0.5 * (low + high)
        cost, length = _cost(g, D, below, above, mu)
        best = cost if cost < best else best  # what is no number proves nothing
        if turn > 0:
            if length > 1.0:
                low = mu
            else:
                high = mu
    return best * over(len(g)) + TINY


@inner_sums
def _cost(g: Vector, D: Vector, below: Vector, above: Vector, mu: float) -> tuple[float, float]:
    """mu and what the coordinates fall, and ||t||^2 where they do."""
    total, length = mu, 0.0
    for j in range(len(g)):
        size = abs(g[j])
        if size == 0.0 and D[j] <= mu:
            continue
        against, along = below[j], above[j]
        if g[j] < 0.0:
            against, along = along, against
        bend = mu - D[j]
        bend -= 4.0 * EPS * abs(bend)  # less bend, deeper fall
        if bend > 0.0 and size <= 2.0 * bend * against:
            total += size * size / (4.0 * bend)
            length += (size / (2.0 * bend)) ** 2
        elif bend > 0.0:
            total += against * (size - bend * against)  # at least half of its first term
            length += against * against
        else:  # at one of the ends
            near, far = against * (size - bend * against), along * (-bend * along - size)
            far += FEW * along * (size - bend * along)  # what may cancel
            total += max(near, far)
            length += against * against if near >= far else along * along
    return total, length
