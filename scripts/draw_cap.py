"""Draws docs/cap.png, the picture of docs/adaptive.md: the ball of the witness, a node's halfspace, and their cap.

The picture is computed, not sketched: a real network, CROWN's halfspace on the ball of the exact radius.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

import layercert as lc
from layercert.bounds.linear import relax
from layercert.geometry import Cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/cap.png"))
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(39)
    sizes = [2, 5, 4, 2]
    net = lc.Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) * 0.7 for m in sizes[1:]]
    )
    x = np.array([0.15, -0.1])
    grid = np.linspace(-3.0, 3.0, 1400)
    offsets = np.stack(np.meshgrid(grid, grid), axis=-1)
    f = net(x + offsets)
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.3))
    for ax, norm in zip(axes, ("l2", "linf"), strict=True):
        r = lc.measure(net, x, norm)
        assert r.status == "exact" and r.witness is not None
        problem = lc.robustness(net, x, norm)
        relaxation = relax(Cells(problem).root, r.upper)
        assert relaxation is not None
        halfspace = relaxation.lower(problem.clauses[0])  # rows A w <= r
        assert halfspace is not None
        g, s = halfspace.A[0], -float(halfspace.r[0])
        ball = problem.norm(offsets) - r.upper
        below = offsets @ g + s
        ax.contourf(grid, grid, np.maximum(ball, below), levels=[-1e9, 0], colors=["#f6c28b"])
        ax.contour(grid, grid, f[..., 0] - f[..., 1], levels=[0], colors="#b3261e", linewidths=2.0)
        ax.contour(grid, grid, ball, levels=[0], colors="#1f6f3f", linewidths=2.0)
        ax.contour(grid, grid, below, levels=[0], colors="#44546a", linewidths=1.6, linestyles="--")
        distance, step = problem.norm.halfspace(g, s)
        ax.plot([0.0, step[0]], [0.0, step[1]], color="#44546a", linewidth=1.2)
        ax.plot(0.0, 0.0, "o", color="#1f6f3f", markersize=5)
        ax.plot(*step, "s", color="#44546a", markersize=5)
        ax.plot(*(r.witness - x), "*", color="#b3261e", markersize=11)
        ax.annotate("x", (0.0, 0.0), textcoords="offset points", xytext=(-12, 4))
        ax.annotate("nearest point of the halfspace", step, textcoords="offset points", xytext=(-40, -16), fontsize=8)
        ax.set_title(f"{norm}: bound {distance:.3f}, U = {r.upper:.3f}", fontsize=10)
        ax.set_xlim(-1.5 * r.upper, 1.5 * r.upper)
        ax.set_ylim(-1.5 * r.upper, 1.5 * r.upper)
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
    figure.subplots_adjust(wspace=0.06)
    figure.savefig(args.out, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
