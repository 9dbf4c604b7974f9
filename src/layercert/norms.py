"""Norms l_p, p >= 1: value, dual norm, steepest direction, distance to a halfspace with and without a box.

A halfspace is written from the input point x: {x + w : g.w <= -s}, where s is the value of the linear function at x.
So s <= 0 means that x is inside. A box is given by the offsets lo <= 0 <= hi of its ends from x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from layercert.arrays import Matrix, Vector, gamma
from layercert.errors import OptionError
from layercert.rationals import float_above, root_above, times_power_of_two, whole

#: Whole p up to this one have their powers taken exactly, with roots of at least so many bits (a float64 has 53).
MOST_POWER, ROOT_BITS = 64, 128
#: Decimal digits for the powers of any other p.
DIGITS = 34
#: Powers below exp of this count as much: nothing beside 1, and quick to compute.
LEAST_EXPONENT = Decimal(-10_000)

_NAMES = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


@dataclass(frozen=True)
class Norm:
    """The norm l_p for one p in [1, inf]."""

    p: float

    @staticmethod
    def of(norm: str | float | Norm) -> Norm:
        """A norm from what a user writes: 'l1', 'l2', 'linf', or any number p >= 1."""
        if isinstance(norm, Norm):
            return norm
        if isinstance(norm, str):
            text = norm.strip().lower()
            if text in _NAMES:
                return Norm(_NAMES[text])
            try:
                p = float(text.removeprefix("l"))
            except ValueError:
                raise OptionError(f"unknown norm {norm!r}; expected 'l1', 'l2', 'linf' or a number p >= 1") from None
        else:
            try:
                p = float(norm)
            except (TypeError, ValueError, OverflowError):
                raise OptionError(f"a norm is 'l1', 'l2', 'linf' or a number p >= 1, got {norm!r:.60}") from None
        if not p >= 1.0:
            raise OptionError(f"l_p is a norm only for p >= 1, got p = {p:g}; use 'l1', 'l2', 'linf' or p >= 1")
        return Norm(p)

    @property
    def q(self) -> float:
        """The dual exponent: 1/p + 1/q = 1."""
        if self.p == 1.0:
            return math.inf
        return 1.0 if math.isinf(self.p) else self.p / (self.p - 1.0)

    @property
    def name(self) -> str:
        for name, p in _NAMES.items():
            if p == self.p:
                return name
        short = f"{self.p:g}"
        return f"l{short if float(short) == self.p else self.p}"

    def __call__(self, v: Vector | Matrix) -> Vector:
        """The norm along the last axis."""
        return _norm(v, self.p)

    def value(self, v: Vector) -> float:
        return float(_norm(v, self.p))

    def distance_up(self, x: Vector, v: Vector) -> float:
        """||v - x||, rounded up: the least float64 that is not below it (inf beyond all of them).

        So `distance_up(x, v) <= radius` says that v is within the radius. The differences are exact. For p = 1, inf and
        whole p the answer is exact too; for any other p it is computed in so many decimal digits that only a true
        length less than 1e-25 of itself below a float64 may give the float64 above it.
        """
        if not (np.isfinite(x).all() and np.isfinite(v).all()):
            return math.inf
        moved, e = self._moved(x, v)
        try:
            return float_above(_exact_length_up([size for size in moved if size], self.p) * times_power_of_two(1, e))
        except OverflowError:
            return math.inf

    def _moved(self, x: Vector, v: Vector) -> tuple[list[int], int]:
        """Whole numbers n and an exponent e: the coordinates count n * 2**e each, exactly."""
        numbers, e = whole(np.concatenate([x, v]))
        return [abs(b - a) for a, b in zip(numbers[: len(x)], numbers[len(x) :], strict=True)], e

    def dual(self, g: Vector | Matrix) -> Vector:
        """||g||_q along the last axis."""
        return _norm(g, self.q)

    def steepest(self, g: Matrix) -> Matrix:
        """Unit vectors w (||w||_p = 1) with g.w = ||g||_q, along the last axis; zero where g is zero."""
        if math.isinf(self.p):
            return np.sign(g)
        size = np.abs(g)
        if self.p == 1.0:
            w = np.zeros_like(g)
            best = np.expand_dims(size.argmax(axis=-1), -1)
            np.put_along_axis(w, best, np.sign(np.take_along_axis(g, best, -1)), -1)
            return w
        top = size.max(axis=-1, keepdims=True, initial=0.0)
        scaled = size / np.where(top > 0, top, 1.0)
        w = np.sign(g) * scaled ** (self.q - 1.0)
        length = np.expand_dims(_norm(w, self.p), -1)
        return w / np.where(length > 0, length, 1.0)

    def halfspace(self, g: Vector, s: float, box: Box | None = None) -> tuple[float, Vector]:
        """Distance from x to {x + w : g.w <= -s} (inside the box) and the nearest offset w.

        The distance is inf when the set is empty. Without a box it is s / ||g||_q.
        """
        if s <= 0:
            return 0.0, np.zeros_like(g)
        if box is None:
            size = float(self.dual(g))
            if size == 0.0:
                return math.inf, np.zeros_like(g)
            return s / size, -(s / size) * self.steepest(g)
        with np.errstate(all="ignore"):
            u = _fill(np.abs(g)[None], np.array([s]), box.room(g[None]), self)[0]
        if float(np.abs(g) @ u) < s * (1 - 1e-12):
            return math.inf, -np.sign(g) * u
        return self.value(u), -np.sign(g) * u

    def prove_halfspace(self, g: Matrix, s: Vector, box: Box | None = None, drift: Vector | float = 0.0) -> Vector:
        """Proved lower bounds of the distance from x to {x + w : g.w - drift*||w|| <= -s}, one per row of g.

        For every split |g| = g1 + g2 with g1, g2 >= 0 and every w in the box with ||w|| = t,
        s <= |g|.|w| + drift*t <= t*(||g1||_q + drift) + g2.room, so t >= (s - g2.room)/(||g1||_q + drift).
        The best split comes from the nearest point; the formula is then evaluated with outward rounding.
        """
        size = np.abs(g)
        if box is None:
            return self._split_bound(size, np.zeros_like(s), s, drift)
        room = box.room(g)
        with np.errstate(all="ignore"):  # any split is sound: one that overflowed is a bad one, no more
            u = _fill(size, s, room, self)
            keep = _unfilled_part(size, u, room, self)
        t = self._split_bound(keep, _cost(size, keep, room), s, drift)
        full = ((u >= room) | (size == 0)).all(axis=-1)
        if bool(full.any()):  # nothing left to move: x + w is the corner, or the whole box falls short of s
            nothing = np.zeros_like(size)
            t = np.where(full, np.maximum(t, self._split_bound(nothing, _cost(size, nothing, room), s, drift)), t)
        return t

    def _split_bound(self, keep: Matrix, cost: Vector, s: Vector, drift: Vector | float) -> Vector:
        """(s - cost)/(||keep||_q + drift), rounded down; inf when nothing can make up for s."""
        numerator = s - cost - gamma(4) * (np.abs(s) + cost)
        denominator = (self.dual(keep) + drift) * (1.0 + gamma(2 * keep.shape[-1] + 64))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            t = numerator / denominator * (1.0 - gamma(8))
        # written so that a NaN proves nothing
        return np.where(numerator > 0, np.where(denominator > 0, t, np.where(denominator == 0, math.inf, 0.0)), 0.0)


@dataclass(frozen=True, eq=False)
class WeightedNorm(Norm):
    """||weights * v||_p, with one number > 0 per coordinate; distances stay exact.

    Searches know plain norms only and work on the equivalent problem in scaled coordinates (`layercert.scaled`).
    """

    weights: Vector

    @property
    def plain(self) -> Norm:
        """l_p, for what is already scaled."""
        return Norm(self.p)

    @property
    def name(self) -> str:
        return f"weighted {self.plain.name}"

    def __call__(self, v: Vector | Matrix) -> Vector:
        return self.plain(v * self.weights)

    def value(self, v: Vector) -> float:
        return self.plain.value(v * self.weights)

    def _moved(self, x: Vector, v: Vector) -> tuple[list[int], int]:
        moved, e = super()._moved(x, v)
        weights, own = whole(self.weights)
        return [n * w for n, w in zip(moved, weights, strict=True)], e + own

    def dual(self, g: Vector | Matrix) -> Vector:
        return self.plain.dual(g / self.weights)

    def steepest(self, g: Matrix) -> Matrix:
        return self.plain.steepest(g / self.weights) / self.weights

    def halfspace(self, g: Vector, s: float, box: Box | None = None) -> tuple[float, Vector]:
        scaled = None if box is None else Box(box.lo * self.weights, box.hi * self.weights)
        distance, step = self.plain.halfspace(g / self.weights, s, scaled)
        return distance, step / self.weights

    def prove_halfspace(self, g: Matrix, s: Vector, box: Box | None = None, drift: Vector | float = 0.0) -> Vector:
        raise TypeError("bounds are proved in scaled coordinates: see layercert.scaled")


@dataclass(frozen=True, eq=False)
class Box:
    """A box around x given by offsets lo <= 0 <= hi (entries may be infinite)."""

    lo: Vector
    hi: Vector

    def room(self, g: Matrix) -> Matrix:
        """How far each coordinate may move against the sign of g."""
        return np.where(g > 0, -self.lo, self.hi)

    def clip(self, w: Matrix) -> Matrix:
        return np.clip(w, self.lo, self.hi)


def box_around(radius: float, inputs: int, box: Box | None) -> tuple[Vector, Vector]:
    """The least box around a ball, cut to `box`, as offsets from x; for l_inf it is that ball."""
    if box is None:
        return np.full(inputs, -radius), np.full(inputs, radius)
    return np.maximum(box.lo, -radius), np.minimum(box.hi, radius)


def _norm(v: Matrix, p: float) -> Vector:
    size = np.abs(v)
    if math.isinf(p):
        return np.asarray(size.max(axis=-1, initial=0.0))
    if p == 1.0:
        return np.asarray(size.sum(axis=-1))
    # scaled by the largest entry: no overflow, no loss of tiny vectors
    top = size.max(axis=-1, keepdims=True, initial=0.0)
    with np.errstate(invalid="ignore"):
        scaled = size / np.where(top > 0, top, 1.0)
    total = (scaled * scaled).sum(axis=-1) if p == 2.0 else (scaled**p).sum(axis=-1)
    root = np.sqrt(total) if p == 2.0 else total ** (1.0 / p)
    return np.asarray(np.where(np.isinf(top[..., 0]), math.inf, root * top[..., 0]))


def _exact_length_up(sizes: list[int], p: float) -> Fraction:
    """The l_p length of a vector of whole numbers > 0, rounded up by much less than a float64 is."""
    if len(sizes) <= 1 or math.isinf(p):
        return Fraction(max(sizes, default=0))
    if p == 1.0:
        return Fraction(sum(sizes))
    if p.is_integer() and p <= MOST_POWER:
        # a float64 in these units is whole: none lies between the root and the whole number above it
        k = int(p)
        bits = max(ROOT_BITS - max(sizes).bit_length(), 0)
        return times_power_of_two(root_above(sum(size**k for size in sizes) << (bits * k), k), -bits)
    return _length_in_decimals(sizes, p)


def _length_in_decimals(sizes: list[int], p: float) -> Fraction:
    """top * (sum of (size/top)^p)^(1/p), rounded up at every step; decimal's ln and exp are correctly rounded."""
    top = max(sizes)
    with localcontext(Context(prec=DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        power, slip, total = Decimal(p), Decimal(10) ** (2 - DIGITS), Decimal(0)
        for size in sizes:
            ln = Decimal(0) if size == top else (Decimal(size) / Decimal(top)).ln()
            exponent = power * (ln + slip * (1 - ln)) if ln else ln
            total += min(max(exponent, LEAST_EXPONENT), Decimal(0)).exp()
        total *= 1 + slip * (len(sizes) + 4)
        root = (total.ln() * (1 + 4 * slip) / power).exp()
        return top * Fraction(root * (1 + 4 * slip))


def _fill(size: Matrix, s: Vector, room: Matrix, norm: Norm) -> Matrix:
    """min ||u||_p subject to size.u >= s, 0 <= u <= room, a problem per row; the full room where it is impossible.

    p > 1: u = min(room, tau * size^(q-1)), and size.u is piecewise linear in tau, so one sort finds tau.
    p = 1: fill the coordinates with the largest size first.
    """
    live = size > 0
    if norm.p == 1.0:
        order = np.argsort(-size, axis=-1, kind="stable")
        gain = np.take_along_axis(np.where(live, size, 0.0), order, -1)
        space = np.take_along_axis(np.where(live, room, 0.0), order, -1)
        before = np.zeros_like(size)
        before[..., 1:] = np.cumsum(gain * space, axis=-1)[..., :-1]
        part = np.where(gain > 0, (s[:, None] - before) / gain, 0.0)
        u_sorted = np.clip(np.nan_to_num(part, nan=0.0, posinf=math.inf, neginf=0.0), 0.0, space)
        u = np.zeros_like(size)
        np.put_along_axis(u, order, u_sorted, -1)
        return u
    top = size.max(axis=-1, keepdims=True, initial=0.0)
    unit = np.where(live, (size / np.where(top > 0, top, 1.0)) ** (norm.q - 1.0), 0.0)
    live = live & (unit > 0)
    stop = np.where(live, room / np.where(live, unit, 1.0), math.inf)  # tau at which a coordinate fills up
    order = np.argsort(stop, axis=-1, kind="stable")
    tau_sorted = np.take_along_axis(stop, order, -1)
    slope = np.take_along_axis(np.where(live, size * unit, 0.0), order, -1)
    volume = np.take_along_axis(size * np.where(live & np.isfinite(stop), room, 0.0), order, -1)
    filled = np.cumsum(volume, axis=-1) - volume  # gained by those that are full before breakpoint i
    rest = np.cumsum(slope[..., ::-1], axis=-1)[..., ::-1]  # slope of those still moving at breakpoint i
    tau = np.where(rest > 0, (s[:, None] - filled) / np.where(rest > 0, rest, 1.0), math.inf)
    enough = tau <= tau_sorted
    first = enough.argmax(axis=-1)
    rows = np.arange(len(size))
    reached = enough[rows, first]
    chosen = np.where(reached, np.maximum(tau[rows, first], 0.0), math.inf)
    u = np.where(live, np.minimum(room, np.where(live, chosen[:, None] * unit, 0.0)), 0.0)
    return np.nan_to_num(u, nan=0.0, posinf=0.0)


def _cost(size: Matrix, keep: Matrix, room: Matrix) -> Vector:
    """g2.room of the split g2 = size - keep, rounded up."""
    up = 1.0 + gamma(2 * size.shape[-1] + 64)
    over = np.where(keep < size, size - keep, 0.0) * up
    # an infinite room is never filled, so its product is zero by construction
    with np.errstate(over="ignore"):  # what overflows costs everything
        return np.asarray((over * np.where(over > 0, room, 0.0)).sum(axis=-1) * up)


def _unfilled_part(size: Matrix, u: Matrix, room: Matrix, norm: Norm) -> Matrix:
    """g1 of the split |g| = g1 + g2: all of |g| where u is below its room, what the norm's slope explains elsewhere.

    The slope is read off a coordinate that still moves; in a corner of the box, off the one that filled up last.
    """
    full = (u >= room) & (size > 0)
    if math.isinf(norm.p):
        return np.where(u < u.max(axis=-1, keepdims=True, initial=0.0), 0.0, size)
    if norm.p == 1.0:
        rest = np.where(full, 0.0, size).max(axis=-1, keepdims=True, initial=0.0)
        last = np.where(full & (room > 0), size, math.inf).min(axis=-1, keepdims=True, initial=math.inf)
        return np.asarray(np.minimum(size, np.where(rest > 0, rest, last)))
    # stationarity: g1 = c * u^(p-1), with the c of coordinate k
    top = size.max(axis=-1, keepdims=True, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        late = np.where(u > 0, np.where(full, u / (size / top) ** (norm.q - 1.0), math.inf), -1.0)
        k = late.argmax(axis=-1)[:, None]
        part = np.take_along_axis(size, k, -1) * (u / np.take_along_axis(u, k, -1)) ** (norm.p - 1.0)
    return np.asarray(np.where(full, np.minimum(size, np.where(u > 0, part, 0.0)), size))
