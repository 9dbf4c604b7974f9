"""Kernels: the lines that stand for the neurons of a node, and what is lost by them.

relu(z) is replaced by lower * z where its coefficient is >= 0, by upper * z + offset where it is < 0. A neuron that is
on has lower = upper = 1, one that is off lower = upper = 0; only an open one loses anything.
"""

from __future__ import annotations

from layercert.arrays import Matrix, Vector
from layercert.bounds.relu import upper_line
from layercert.compiled.jit import inner, known_to_kernels
from layercert.search.adaptive.model import ALPHA, COEF, HI, LO, PHASE, POINT, SINK

known_to_kernels(upper_line)

#: What a line loses at worst decides among neurons that lose nothing at the point.
WORST_SHARE = 1e-3


@inner
def is_open(phase: float, lo: float, hi: float) -> bool:
    """May the neuron have either sign?"""
    return phase == 0.0 and lo < 0.0 < hi


@inner
def is_on(phase: float, lo: float) -> bool:
    """Has a neuron that is not open the positive side?"""
    return phase > 0.0 or (phase == 0.0 and lo >= 0.0)


@inner
def upper(lo: float, hi: float) -> tuple[float, float]:
    """Slope and offset of the upper line of an open neuron; no rounding of it may be reordered."""
    return upper_line(lo, hi)


@inner
def scores(state: Matrix, out: Vector) -> None:
    """How much a split may bring: what the neuron's line loses at POINT, weighted by its coefficient; -1: not open."""
    for i in range(len(out)):
        lo, hi, a = state[LO, i], state[HI, i], state[COEF, i]
        out[i] = -1.0
        if is_open(state[PHASE, i], lo, hi):
            z = min(max(state[POINT, i], lo), hi)
            if a < 0.0:
                worst = a * hi * lo / (hi - lo)
                here = -a * max(hi * (z - lo) / (hi - lo) - state[SINK, i] - max(z, 0.0), 0.0)
            else:
                worst = a * min(hi, -lo)
                here = a * (max(z, 0.0) - state[ALPHA, i] * z)
            out[i] = here + WORST_SHARE * worst


@inner
def fix(state: Matrix, neuron: int, phase: float) -> None:
    """Split: the neuron has this phase from here on."""
    state[PHASE, neuron] = phase
    if phase > 0:
        state[LO, neuron] = max(state[LO, neuron], 0.0)
    else:
        state[HI, neuron] = min(state[HI, neuron], 0.0)
