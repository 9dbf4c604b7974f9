"""Box trees made: the checker's own kernel on every box, which is cut where it says until it is closed.

So the checker follows each step by construction, and checking costs what making the tree costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Matrix, Signs, Vector
from layercert.certificate.box_tree import root_box
from layercert.certificate.boxes import MOST_OPEN, examine
from layercert.certificate.claim import BoxTree
from layercert.certificate.forms import BoxScratch, Net, pack, work
from layercert.certificate.setting import Setting
from layercert.compiled.jit import njit
from layercert.system import clock

#: Nodes between two looks at the clock.
ROUND = 2000


class Unclosed(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """The tree could not be finished, and why."""


def box_tree(setting: Setting, C: Matrix, d: Vector, most: float = math.inf) -> BoxTree:
    """A tree that excludes the clause C f <= d from the ball's box; Unclosed beyond `most` nodes."""
    net = pack(setting.network, C, d)
    memory = work(net)
    n = setting.network.inputs
    lo, hi = np.empty((MOST_OPEN + 1, n)), np.empty((MOST_OPEN + 1, n))
    side = np.zeros((MOST_OPEN + 1, len(net.widths), net.W.shape[1]), np.int8)
    lo[0], hi[0] = root_box(setting)
    axes: list[Any] = []
    cuts: list[Vector] = []
    opened, nodes = 1, 0
    while opened:
        clock.check()
        axis, cut = np.full(ROUND, -1, np.int32), np.zeros(ROUND)
        opened, made = grow(net, memory, lo, hi, side, opened, axis, cut)
        if opened < 0:
            raise Unclosed("a box is closed by no number of cuts: rounding is as large as the margin")
        axes.append(axis[:made])
        cuts.append(cut[:made])
        nodes += made
        if nodes > most:
            raise Unclosed(f"the proof needs more than {nodes} boxes")
    return BoxTree(np.concatenate(axes), np.concatenate(cuts))


@njit
def grow(
    net: Net, w: BoxScratch, lo: Matrix, hi: Matrix, side: Signs, opened: int, axis: NDArray[np.int32], cut: Vector
) -> tuple[int, int]:
    """Fill in nodes in preorder, as many as fit; the number of boxes still open (-1: stuck), and of nodes made."""
    n = lo.shape[1]
    blame = np.empty(n)
    for node in range(len(axis)):
        if opened == 0:
            return 0, node
        top = opened - 1
        if examine(net, w, lo[top], hi[top], side[top], blame):
            opened -= 1
            continue
        a = 0
        for j in range(n):
            if blame[j] > blame[a]:
                a = j
        at = lo[top, a] + 0.5 * (hi[top, a] - lo[top, a])
        if not (lo[top, a] < at and at < hi[top, a]) or opened >= MOST_OPEN:
            return -1, node
        axis[node], cut[node] = a, at
        # the part above waits in the node's place
        lo[opened], hi[opened], side[opened] = lo[top], hi[top], side[top]
        lo[top, a] = at
        hi[opened, a] = at
        opened += 1
    return opened, len(axis)
