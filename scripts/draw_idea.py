"""Draws docs/idea.png, the picture in the README: activation regions, the decision boundary and the exact ball."""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

import layercert as lc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/idea.png"))
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(7)
    sizes = [2, 7, 7, 2]
    net = lc.Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)], [rng.normal(size=m) * 0.7 for m in sizes[1:]]
    )
    x = np.array([0.15, -0.1])
    grid = np.linspace(-2.2, 2.2, 900)
    points = np.stack(np.meshgrid(grid, grid), axis=-1)
    h1 = points @ net.weights[0].T + net.biases[0]
    h2 = np.maximum(h1, 0) @ net.weights[1].T + net.biases[1]
    f = net(points)
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.6))
    for ax, norm in zip(axes, ("l1", "l2", "linf"), strict=True):
        r = lc.measure(net, x, norm)
        assert r.status == "exact" and r.witness is not None
        ax.contourf(grid, grid, f[..., 0] - f[..., 1], levels=[-1e9, 0, 1e9], colors=["#fde3d3", "#dcebf7"])
        for j in range(sizes[2]):
            ax.contour(grid, grid, h2[..., j], levels=[0], colors="#c58a4a", linewidths=0.7)
        for j in range(sizes[1]):
            ax.contour(grid, grid, h1[..., j], levels=[0], colors="#44546a", linewidths=0.9)
        ax.contour(grid, grid, f[..., 0] - f[..., 1], levels=[0], colors="#b3261e", linewidths=2.0)
        ball = lc.norms.Norm.of(norm)(points - x)
        ax.contour(grid, grid, ball, levels=[r.upper], colors="#1f6f3f", linewidths=2.0)
        ax.plot(*x, "o", color="#1f6f3f", markersize=5)
        ax.plot(*r.witness, "*", color="#b3261e", markersize=11)
        ax.set_title(f"{norm}: exact distance {r.upper:.4f}", fontsize=10)
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
    figure.subplots_adjust(wspace=0.06)
    figure.savefig(args.out, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
