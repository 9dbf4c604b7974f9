"""How the parameters of rows move from pass to pass: towards what touches at the row's own least point on the cap.

The same steps as the search's own (docs/adaptive.md): lower lines move towards the line that touches relu there,
multipliers of known sides rise where the point is on the wrong side, the pull grows where the objective is positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.reach import lowest_point
from layercert.certificate.region import Region
from layercert.certificate.step_floats import Halfspace, StepFloats
from layercert.certificate.steps import Passes

#: A pull grows by this share of what the cap asks for beyond it, or grows and falls by this share of itself.
PULL_PACE, PULL_SHARE = 0.3, 0.5
#: Pulls stay in this range, or are zero.
LEAST_PULL, MOST_PULL = 1e-20, 1e20


class Moved(NamedTuple):
    slopes: Matrix
    betas: Matrix  # signed
    pulls: Vector


def move(
    arithmetic: StepFloats,
    region: Region,
    half: Halfspace,
    k: int,
    rows: Passes,
    G: Matrix,
    trace: list[Matrix],
    pace: Vector,
) -> Moved:
    """New parameters after a pass; `rows.lams` are those that it was evaluated with, `pace` is one number per row."""
    h = lowest_point(arithmetic.setting, G + rows.lams[:, None] * half.g)
    slopes = rows.slopes.copy()
    betas = np.zeros_like(slopes) if rows.betas is None else rows.betas.copy()
    for layer in range(k):
        part = slice(int(arithmetic.starts[layer]), int(arithmetic.starts[layer + 1]))
        lines, A = region.lines(layer), trace[k - 1 - layer]
        z = np.asarray(h @ arithmetic.maps[layer].T) + (
            arithmetic.setting.z0 if layer == 0 else arithmetic.biases[layer]
        )
        known = region.phase[layer] != 0
        if known.any():
            side = region.phase[layer][known]
            size = np.abs(z[:, known]).max(axis=1)
            unit = pace * np.abs(A).max(axis=1) / np.where(size > 0, size, np.inf)
            old = np.maximum(betas[:, part][:, known] * side, 0.0)
            betas[:, np.flatnonzero(known) + part.start] = side * np.maximum(
                old - unit[:, None] * side * z[:, known], 0.0
            )
        own = slopes[:, part]
        h = np.where(lines.open, np.where(A > 0, own * z, lines.su * z + lines.iu), z * lines.su)
        slopes[:, part] = own + np.where(lines.open, pace[:, None] * ((z > 0) - own), 0.0)
    upper = half.uppers[k]
    value = h @ upper.row + upper.constant
    pulls = np.where(
        value < 0,
        (1.0 - PULL_SHARE) * rows.pulls,
        np.where(rows.lams > 0, rows.pulls + PULL_PACE * rows.lams, (1.0 + PULL_SHARE) * rows.pulls),
    )
    pulls = np.where(pulls > LEAST_PULL, np.minimum(pulls, MOST_PULL), 0.0)
    return Moved(slopes, betas, np.nan_to_num(pulls, nan=0.0))
