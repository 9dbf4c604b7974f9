"""Box trees in ball arithmetic: the same proof as forms.py and boxes.py, with no error analysis of ours.

Floats only suggest: the slopes of the lines (which are checked), the weights of a clause's rows, the shaved box (which
is rounded outward from a ball).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.balls import BallArithmetic
from layercert.certificate.boxes import BAD_SPLIT, MISSING, MOST_OPEN, OPEN_LEAF, PROVED, SUPERFLUOUS, TOO_DEEP, weights
from layercert.certificate.floats import upper_line
from layercert.certificate.forms import Net
from layercert.certificate.setting import Setting

Sides = list[Vector]


def walk_in_balls(
    setting: Setting, C: Matrix, d: Vector, net: Net, lo: Vector, hi: Vector, axis: Any, cut: Vector
) -> tuple[int, int, int]:
    """As `boxes.walk`: (verdict, node, leaves)."""
    arithmetic = _Boxes(setting, C, d, net.unit)
    start: Sides = [np.zeros(n) for n in setting.network.widths]
    stack: list[tuple[Vector, Vector, Sides] | None] = [(lo.copy(), hi.copy(), start)]
    leaves = 0
    for node in range(len(axis)):
        if not stack:
            return SUPERFLUOUS, node, leaves
        box = stack.pop()
        if box is not None and arithmetic.examine(*box):
            box = None
        a = int(axis[node])
        if a < 0:
            if box is not None:
                return OPEN_LEAF, node, leaves
            leaves += 1
            continue
        if a >= len(lo) or not np.isfinite(cut[node]):
            return BAD_SPLIT, node, leaves
        if len(stack) + 2 > MOST_OPEN:
            return TOO_DEEP, node, leaves
        if box is None:
            stack += [None, None]
            continue
        for upper in (True, False):
            low, high = box[0].copy(), box[1].copy()
            if upper:
                low[a] = max(low[a], cut[node])
            else:
                high[a] = min(high[a], cut[node])
            stack.append((low, high, [side.copy() for side in box[2]]) if low[a] <= high[a] else None)
    return (MISSING if stack else PROVED), len(axis), leaves


class _Boxes:
    def __init__(self, setting: Setting, C: Matrix, d: Vector, unit: float) -> None:
        self.balls = BallArithmetic(setting)
        self.arb, self.mat = self.balls.flint.arb, self.balls.flint.arb_mat
        self.network, self.unit = setting.network, unit
        self.size = [self.balls._matrix(np.abs(W)) for W in setting.network.weights]
        rows = self.balls._matrix(C)
        self.R = rows * self.balls.W[-1]
        self.c = rows * self.balls.b[-1] - self.balls._matrix(d[:, None])

    def examine(self, lo: Vector, hi: Vector, side: Sides) -> bool:
        """True: no unsafe point in the box. Else the box is shaved; sides of neurons are filled in."""
        arb = self.arb
        mid = 0.5 * lo + 0.5 * hi
        rad = [(arb(float(h)) - float(m)).max(arb(float(m)) - float(l)) for l, m, h in zip(lo, mid, hi, strict=True)]
        lines = self._neurons(mid, rad, side)
        G, s = self._rows(mid, side, lines)
        middle = np.array([[float(G[r, j].mid()) for j in range(len(lo))] for r in range(G.nrows())])
        best = weights(
            middle, np.array([float(v.mid()) for v in s]), np.array([float(r.mid()) for r in rad]), self.unit
        )
        return any(self._shave(G, s, mu, mid, lo, hi) for mu in (*np.eye(len(s)), best))

    def _neurons(self, mid: Vector, rad: list[Any], side: Sides) -> list[tuple[Vector, Vector, Vector]]:
        """Affine forms layer by layer (a column for the centre, one for each symbol); alpha, su, iu of each layer."""
        arb, n = self.arb, len(mid)
        X = self.mat(n, n + 1)
        for j in range(n):
            X[j, 0], X[j, j + 1] = arb(float(mid[j])), rad[j]
        lines = []
        below = [(X[j, 0] - rad[j], X[j, 0] + rad[j]) for j in range(n)]  # outputs of the layer below
        for k in range(self.network.L):
            Z = self.balls.W[k] * X
            inner = self.balls.W[k] * self.mat([[(high + low) / 2] for low, high in below])
            outer = self.size[k] * self.mat([[(high - low) / 2] for low, high in below])
            width, symbols = Z.nrows(), Z.ncols()
            lo, hi = np.empty(width), np.empty(width)
            for i in range(width):
                centre = Z[i, 0] + self.balls.b[k][i, 0]
                reach = sum((abs(Z[i, t]) for t in range(1, symbols)), arb(0))
                Z[i, 0] = centre
                by_interval = inner[i, 0] + self.balls.b[k][i, 0]
                lo[i] = np.nextafter(float((centre - reach).max(by_interval - outer[i, 0]).lower()), -np.inf)
                hi[i] = np.nextafter(float((centre + reach).min(by_interval + outer[i, 0]).upper()), np.inf)
            lo, hi = np.where(side[k] > 0, np.maximum(lo, 0.0), lo), np.where(side[k] < 0, np.minimum(hi, 0.0), hi)
            side[k][:] = np.where(side[k] != 0, side[k], np.where(hi <= 0, -1.0, np.where(lo >= 0, 1.0, 0.0)))
            unstable = side[k] == 0
            su, iu = upper_line(lo, hi, unstable)
            self.balls._check_lines(lo, hi, su, iu, unstable)
            X = self.mat(width, symbols + int(unstable.sum()))
            new = symbols
            for i in range(width):
                if side[k][i] < 0:
                    continue
                slope, half = (arb(float(su[i])), arb(float(iu[i])) / 2) if unstable[i] else (arb(1), arb(0))
                for t in range(symbols):
                    X[i, t] = Z[i, t] * slope
                if unstable[i]:
                    X[i, 0] += half
                    X[i, new] = half
                    new += 1
            below = [(arb(max(float(low), 0.0)), arb(max(float(high), 0.0))) for low, high in zip(lo, hi, strict=True)]
            lines.append((np.where(unstable & (hi > -lo), 1.0, 0.0), su, iu))
        return lines

    def _rows(self, mid: Vector, side: Sides, lines: list[tuple[Vector, Vector, Vector]]) -> tuple[Any, list[Any]]:
        """G and s with G_r.(v - mid) + s_r <= row r at every v of the box."""
        A = self.R * self.arb(1)
        rows = A.nrows()
        c = [self.c[r, 0] for r in range(rows)]
        for k in range(self.network.L - 1, -1, -1):
            alpha, su, iu = lines[k]
            on, off = side[k] > 0, side[k] < 0
            S = self.mat(rows, A.ncols())
            for r in range(rows):
                for i in range(A.ncols()):
                    S[r, i] = self.balls._slope(A[r, i], on[i], off[i], float(alpha[i]), float(su[i]))
                    if not (on[i] or off[i]):
                        c[r] = c[r] + self.balls._negative(A[r, i]) * float(iu[i])
            shift = S * self.balls.b[k]
            c = [c[r] + shift[r, 0] for r in range(rows)]
            A = S * self.balls.W[k]
        shift = A * self.balls._matrix(mid[:, None])
        return A, [c[r] + shift[r, 0] for r in range(rows)]

    def _shave(self, G: Any, s: list[Any], mu: Vector, mid: Vector, lo: Vector, hi: Vector) -> bool:
        """Cut the box down to where the combination can be <= 0; True when that is nowhere."""
        arb, n = self.arb, len(lo)
        total = sum((arb(float(m)) * v for m, v in zip(mu, s, strict=True)), arb(0))
        g = [sum((arb(float(m)) * G[r, j] for r, m in enumerate(mu)), arb(0)) for j in range(n)]
        for j in range(n):
            below, above = arb(float(lo[j])) - float(mid[j]), arb(float(hi[j])) - float(mid[j])
            total += (g[j] * below).min(g[j] * above)
        if total > 0:
            return True
        for j in range(n):
            if g[j].contains(0):
                continue
            room = float(np.nextafter(float((-total / abs(g[j])).upper()), np.inf))
            if g[j] > 0:
                hi[j] = min(hi[j], np.nextafter(float((arb(float(lo[j])) + room).upper()), np.inf))
            else:
                lo[j] = max(lo[j], np.nextafter(float((arb(float(hi[j])) - room).lower()), -np.inf))
        return False
