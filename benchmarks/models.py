"""Convolutional networks with random weights: how they are stored, bounds, exact distances, seconds, peak memory.

    python benchmarks/models.py digits cifar resnet --time-limit 60

Every network runs in a process of its own, so that its peak memory is its own. Weights are random, inputs uniform in
the domain [0, 1], the norm is l_inf. Needs torch to build the networks; a first run compiles kernels.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

import layercert as lc

#: name -> shape of an input, and the radii at which it is verified
SHAPES: dict[str, tuple[int, ...]] = {"digits": (1, 28, 28), "cifar": (3, 32, 32), "resnet": (3, 32, 32)}
RADII = (1e-4, 1e-3, 1e-1)


def module(name: str) -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        """Two convolutions, normalised, and a skip connection."""

        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
            )  # fmt: skip
            self.skip = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride)
            self.relu = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.main(x) + self.skip(x))

    torch.manual_seed(0)
    if name == "digits":
        return nn.Sequential(
            nn.Conv2d(1, 4, 4, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10)
        )
    if name == "cifar":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4096, 10),
        )
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def run(name: str, time_limit: float) -> None:
    start = time.perf_counter()
    network = lc.from_torch(module(name), SHAPES[name])
    entries = sum(np.count_nonzero(W) if isinstance(W, np.ndarray) else W.nnz for W in network.maps)
    stored, exact = "sparse" if network.is_sparse else "dense", "yes" if network.fits_dense else "no, too large"
    print(f"{name}: {network}, {network.neurons} neurons, {entries} weights, {stored}")
    print(f"  read in {time.perf_counter() - start:.2f} s, exact search: {exact}")
    x = np.random.default_rng(0).random(network.inputs)
    lc.verify(network, x, 1e-9, domain=(0, 1))  # compiled kernels are loaded
    for radius in RADII:
        print(f"  verify at {radius:g}: {lc.verify(network, x, radius, domain=(0, 1), time_limit=time_limit)}")
    print(f"  measure: {lc.measure(network, x, domain=(0, 1), time_limit=time_limit)}")
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB, torch included", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(SHAPES), help=f"some of {', '.join(SHAPES)}")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per question")
    args = parser.parse_args()
    if len(args.networks) == 1:
        run(args.networks[0], args.time_limit)
        return
    for name in args.networks:
        subprocess.run([sys.executable, __file__, name, "--time-limit", str(args.time_limit)], check=True)


if __name__ == "__main__":
    main()
