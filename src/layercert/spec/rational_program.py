"""Linear inequalities in rational arithmetic, strict ones among them: a point that satisfies all, or the proof of none.

Dantzig's simplex method on fractions, with Bland's rule, under which it always ends. Nothing is rounded, so "no point"
is a proof. It is meant for a handful of variables: what float64 cannot tell apart is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from layercert.system import clock

ZERO, ONE = Fraction(0), Fraction(1)


class Inequality(NamedTuple):
    """a . u <= bound, or < where it is strict."""

    a: Sequence[Fraction]
    bound: Fraction
    strict: bool = False


def feasible(rows: Sequence[Inequality], variables: int) -> list[Fraction] | None:
    """Some u >= 0 with all the inequalities, or None: then there is none. They must bound u."""
    # two more variables: `room`, which strict rows leave at least, and `excess`, by which all rows may be violated
    room, excess = variables, variables + 1
    table = [[row.bound, *(-v for v in row.a), -ONE if row.strict else ZERO, ONE] for row in rows]
    table.append([ONE, *([ZERO] * variables), -ONE, ONE])  # room <= 1
    start = _Dictionary(table, list(range(excess + 1)))
    if not start.remove(excess):
        return None
    start.maximise(room)
    values = start.values()
    if any(row.strict for row in rows) and not values[room] > 0:
        return None
    return values[:variables]


class _Dictionary:
    """Basic variables as affine functions of the others, which are 0 (Chvatal's dictionaries); all are >= 0.

    Column 0 of a row is the constant, column k + 1 the coefficient of variable free[k].
    """

    def __init__(self, table: list[list[Fraction]], free: list[int]) -> None:
        self.table, self.free = table, free
        self.variables = len(free)
        self.basic = [self.variables + i for i in range(len(table))]  # the slack of each row

    def values(self) -> list[Fraction]:
        values = [ZERO] * (self.variables + len(self.table))
        for variable, row in zip(self.basic, self.table, strict=True):
            values[variable] = row[0]
        return values

    def remove(self, excess: int) -> bool:
        """Make the constants non-negative with `excess` = 0, and drop it; False where that cannot be."""
        worst = min(range(len(self.table)), key=lambda i: self.table[i][0])
        if self.table[worst][0] < 0:
            self._pivot(worst, self.free.index(excess))
            self._climb({excess: -ONE}, excess)
            if excess in self.basic:
                at = self.basic.index(excess)
                if self.table[at][0] > 0:
                    return False
                self._pivot(at, next(k for k in range(len(self.free)) if self.table[at][k + 1]))
        k = self.free.index(excess)
        del self.free[k]
        for row in self.table:
            del row[k + 1]
        return True

    def maximise(self, variable: int) -> None:
        self._climb({variable: ONE})

    def _climb(self, objective: dict[int, Fraction], until_free: int | None = None) -> None:
        """Pivot until the objective can grow no more, or the variable named is no longer basic."""
        while until_free is None or until_free in self.basic:
            clock.check()
            gains = self._gains(objective)
            rising = [k for k, gain in enumerate(gains) if gain > 0]
            if not rising:
                return
            k = min(rising, key=lambda k: self.free[k])  # Bland's rule: the first variable, so that it ends
            falling = [i for i, row in enumerate(self.table) if row[k + 1] < 0]
            i = min(falling, key=lambda i: (self.table[i][0] / -self.table[i][k + 1], self.basic[i]))
            self._pivot(i, k)

    def _gains(self, objective: dict[int, Fraction]) -> list[Fraction]:
        """The objective's coefficients in the free variables."""
        gains = [objective.get(variable, ZERO) for variable in self.free]
        for variable, row in zip(self.basic, self.table, strict=True):
            share = objective.get(variable, ZERO)
            if share:
                gains = [gain + share * v for gain, v in zip(gains, row[1:], strict=True)]
        return gains

    def _pivot(self, i: int, k: int) -> None:
        """Basic variable i and free variable k change places."""
        row, pivot = self.table[i], self.table[i][k + 1]
        solved = [-v / pivot for v in row]
        solved[k + 1] = ONE / pivot
        for other, line in enumerate(self.table):
            factor = line[k + 1]
            if other != i and factor:
                line[k + 1] = ZERO
                self.table[other] = [v + factor * s if s else v for v, s in zip(line, solved, strict=True)]
        self.table[i] = solved
        self.basic[i], self.free[k] = self.free[k], self.basic[i]
