"""Kernels: how far the linear function t = sign h + lam g can fall on the ball of radius U inside the box.

For every split |t| = t1 + t2 into parts >= 0 and every w of ball and box, -t.w <= U ||t1||_q + t2.room. The best split
is t1_j = min(|t_j|, mu room_j^(p-1)) with mu = ||t1||_q / U^(p-1): a coordinate that the box stops first keeps in t1
what the norm explains. A few steps of that equation from t1 = |t| come near; any mu gives a bound.

`warm` is ||t1||_q at a nearby lam, 0 where none is known, and saves l_2 a pass; the caller keeps it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from layercert.arrays import Vector
from layercert.compiled.jit import inner_sums
from layercert.search.adaptive.model import Model

#: Steps towards the best split.
SPLITS = 3
#: Bisections of mu for p = 1.
HALVINGS = 6
#: Sums of squares in this range lose nothing by overflow or underflow.
LEAST, MOST = 1e-250, 1e250

#: The bound, not yet rounded up; its slope in lam; ||h||_q.
Fall: TypeAlias = tuple[float, float, float]


@inner_sums
def fall(h: Vector, sign: float, lam: float, g: Vector, U: float, model: Model, warm: Vector) -> Fall:
    """Whatever the norm."""
    p = model.p
    if np.isinf(p):
        return fall_linf(h, sign, lam, g, U, model)
    if p == 1.0:
        return fall_l1(h, sign, lam, g, U, model)
    if p == 2.0:
        if model.boxed and warm[0] > 0.0:
            drop, slope, sound = split_l2(h, sign, lam, g, U, model, warm)
            if sound:
                return drop, slope, 0.0
        total, inner, size = 0.0, 0.0, 0.0
        for j in range(len(h)):
            t = sign * h[j] + lam * g[j]
            total += t * t
            inner += t * g[j]
            size += h[j] * h[j]
        if size < MOST and total > LEAST:  # squares lose nothing
            length = np.sqrt(total)
            if not model.boxed:
                return U * length, U * inner / max(length, 1e-300), np.sqrt(size)
            warm[0] = length
            drop, slope, _ = split_l2(h, sign, lam, g, U, model, warm)
            return drop, slope, np.sqrt(size)
    return fall_lp(h, sign, lam, g, U, model)


@inner_sums
def room_of(t: float, j: int, U: float, model: Model) -> float:
    """How far coordinate j can go against t."""
    return min(U, -model.box_lo[j] if t > 0.0 else model.box_hi[j])


@inner_sums
def fall_linf(h: Vector, sign: float, lam: float, g: Vector, U: float, model: Model) -> Fall:
    """Coordinate by coordinate, which is exact."""
    total, inner, size = 0.0, 0.0, 0.0
    if model.boxed:
        for j in range(len(h)):
            t = sign * h[j] + lam * g[j]
            room = room_of(t, j, U, model)
            total += abs(t) * room
            inner += g[j] * (room if t > 0.0 else -room)
            size += abs(h[j])
        return total, inner, size
    for j in range(len(h)):
        t = sign * h[j] + lam * g[j]
        total += abs(t)
        inner += g[j] if t > 0.0 else -g[j]
        size += abs(h[j])
    return U * total, U * inner, size


@inner_sums
def fall_l1(h: Vector, sign: float, lam: float, g: Vector, U: float, model: Model) -> Fall:
    """U mu + sum_j max(|t_j| - mu, 0) room_j, least where the rooms above mu add up to U."""
    top, inner, size = 0.0, 0.0, 0.0
    for j in range(len(h)):
        t = sign * h[j] + lam * g[j]
        size = max(size, abs(h[j]))
        if abs(t) > top and room_of(t, j, U, model) > 0.0:
            top = abs(t)
            inner = g[j] if t > 0.0 else -g[j]
    best, slope = U * top, U * inner
    if not model.boxed or top == 0.0:
        return best, slope, size
    low, high = 0.0, top
    for _ in range(HALVINGS):
        mu = 0.5 * (low + high)
        drop, filled, inner, last = U * mu, 0.0, 0.0, 0.0
        for j in range(len(h)):
            t = sign * h[j] + lam * g[j]
            if abs(t) > mu:
                room = room_of(t, j, U, model)
                drop += (abs(t) - mu) * room
                filled += room
                inner += g[j] * (room if t > 0.0 else -room)
                last = g[j] if t > 0.0 else -g[j]
        if drop < best:
            best, slope = drop, inner + (U - filled) * last  # roughly: who takes the rest of the ball is near mu
        if filled > U:
            low = mu
        else:
            high = mu
    return best, slope, size


@inner_sums
def split_l2(
    h: Vector, sign: float, lam: float, g: Vector, U: float, model: Model, warm: Vector
) -> tuple[float, float, bool]:
    """Steps from the length in warm, which takes the last one; also whether no square left the range of doubles."""
    best, slope, length, whole = np.inf, 0.0, warm[0], 0.0
    for _ in range(SPLITS):
        mu = length / U
        square, cost, inner, whole = 0.0, 0.0, 0.0, 0.0
        for j in range(len(h)):
            t = sign * h[j] + lam * g[j]
            room = room_of(t, j, U, model)
            part = min(abs(t), mu * room)
            square += part * part
            whole += t * t
            cost += (abs(t) - part) * room
            inner += g[j] * (part if t > 0.0 else -part)
        length = np.sqrt(square)
        drop = U * length + cost
        if drop < best:
            best, slope = drop, inner * U / max(length, 1e-300)
    warm[0] = length
    return best, slope, LEAST < whole < MOST


@inner_sums
def raised(x: float, exponent: float) -> float:
    """x**exponent, without logarithms where roots do (p = 3 and p = 1.5)."""
    if exponent == 0.5:
        return np.sqrt(x)
    if exponent == 1.5:
        return x * np.sqrt(x)
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    return x**exponent


@inner_sums
def fall_lp(h: Vector, sign: float, lam: float, g: Vector, U: float, model: Model) -> Fall:
    """Any 1 < p < inf, in units of the largest |t_j| against overflow."""
    n, p = len(h), model.p
    q = p / (p - 1.0)
    top, most = 0.0, 0.0
    for j in range(n):
        top = max(top, abs(sign * h[j] + lam * g[j]))
        most = max(most, abs(h[j]))
    if top == 0.0:
        return 0.0, 0.0, 0.0
    power, size = 0.0, 0.0
    for j in range(n):
        power += raised(abs(sign * h[j] + lam * g[j]) / top, q)
        size += raised(abs(h[j]) / most, q) if most > 0.0 else 0.0
    size = most * size ** (1.0 / q)
    length = power ** (1.0 / q)
    best, slope = np.inf, 0.0
    for _ in range(SPLITS if model.boxed else 1):
        # the longest part is the unit of the powers: for p near 1 those of a tenth vanish already
        unit = 1.0
        if model.boxed:
            unit = 0.0
            for j in range(n):
                unit = max(unit, part_of((sign * h[j] + lam * g[j]) / top, j, length, U, model))
        power, cost, inner = 0.0, 0.0, 0.0
        for j in range(n):
            t = (sign * h[j] + lam * g[j]) / top
            part = abs(t)
            if model.boxed:
                part = part_of(t, j, length, U, model)
                cost += (abs(t) - part) * room_of(t, j, U, model)
            if part > 0.0:
                power += raised(part / unit, q)
                inner += g[j] * (raised(part / unit, q - 1.0) if t > 0.0 else -raised(part / unit, q - 1.0))
        root = power ** (1.0 / q)
        length = unit * root
        drop = U * length + cost
        if drop < best:
            best, slope = drop, inner * U / max(root, 1.0) ** (q - 1.0)
    return best * top, slope, size


@inner_sums
def part_of(t: float, j: int, length: float, U: float, model: Model) -> float:
    """What coordinate j keeps in t1 where ||t1||_q is `length`; rooms in units of U, since powers of either vanish."""
    room = room_of(t, j, U, model)
    return min(abs(t), length * raised(room / U, model.p - 1.0))
