"""Kernels: the parameters of rows with facets, found once more on the checker's own bounds (search/adaptive/hulled.py).

All of them are suggestions: what they prove is computed in the checker's arithmetic.
"""

from __future__ import annotations

import numpy as np

from layercert.arrays import Indices, Matrix, Vector
from layercert.compiled.jit import njit_sums
from layercert.compiled.packed import row_add
from layercert.search.adaptive.hulled import TURNS, Lines, cone_of, facets_of, play, slopes_of
from layercert.search.adaptive.model import Model


@njit_sums
def game_of(
    model: Model, state: Matrix, k: int, neurons: Indices, side: float, radius: float, slopes: Matrix
) -> list[Lines]:
    """The facets of rows that bound neurons of layer k from one side; a column of `slopes` is a row's lower lines."""
    net, found = model.net, []
    places = np.full(net.inputs + net.noff[k], -1, np.intp)
    for r in range(len(neurons)):
        coef: Vector = np.zeros(net.noff[k] - net.noff[k - 1])
        row_add(net, k, neurons[r], side, coef, 0)
        cone = cone_of(model, state, k, coef, radius, places)
        game = play(model, state, cone, coef, TURNS, radius)[1]
        own = np.zeros(net.noff[k])
        slopes_of(cone, game, own)
        slopes[:, r] = own
        found.append(facets_of(model, state, cone, game))
    return found
