"""Box trees checked: the arrays make sense, and every leaf of the tree is proved, in floats or in ball arithmetic."""

from __future__ import annotations

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.certificate.claim import BoxTree
from layercert.certificate.rejected import Rejected
from layercert.certificate.setting import Setting


def prove_box_tree(setting: Setting, C: Matrix, d: Vector, tree: BoxTree, exact: bool) -> int:
    """The number of leaves, all proved; Rejected otherwise."""
    from layercert.certificate.boxes import BAD_SPLIT, MISSING, OPEN_LEAF, SUPERFLUOUS, TOO_DEEP, walk
    from layercert.certificate.forms import pack, work

    axis, cut = tree.axis, tree.cut
    if axis.ndim != 1 or not len(axis) or cut.shape != axis.shape:
        raise Rejected("a box tree's arrays do not fit each other")
    if axis.dtype.kind != "i" or cut.dtype.kind != "f":
        raise Rejected("the cuts of a box tree must be whole numbers (which input) and floating-point numbers (where)")
    lo, hi = root_box(setting)
    if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
        raise Rejected("the box around the ball is not finite")
    axis, cut = axis.astype(np.int64), cut.astype(np.float64)
    net = pack(setting.network, C, d)
    if exact:
        from layercert.certificate.box_balls import walk_in_balls

        verdict, node, leaves = walk_in_balls(setting, C, d, net, lo, hi, axis, cut)
    else:
        verdict, node, leaves = walk(net, work(net), lo, hi, axis, cut)
    reasons = {
        OPEN_LEAF: f"leaf {node} is not proved: unsafe points are not excluded there",
        MISSING: "the tree ends with subtrees missing",
        SUPERFLUOUS: f"the tree is complete before node {node}: superfluous nodes",
        BAD_SPLIT: f"node {node} cuts an input that does not exist, or nowhere",
        TOO_DEEP: f"node {node} is deeper than any useful tree",
    }
    if verdict in reasons:
        raise Rejected(reasons[verdict])
    return int(leaves)


def root_box(setting: Setting) -> tuple[Vector, Vector]:
    """The box around the ball, inside the domain, rounded outward."""
    lo, hi = np.nextafter(setting.x - setting.r, -np.inf), np.nextafter(setting.x + setting.r, np.inf)
    if setting.domain is None:
        return lo, hi
    return np.maximum(lo, setting.domain[0]), np.minimum(hi, setting.domain[1])
