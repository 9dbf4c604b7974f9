"""Train a network of the paper from the MNIST files: the recipe of scripts/train_nets.py, which a test holds it to.

Adam at 1e-3, 10 epochs, batches of 16, cross-entropy + 1e-3 * (l1 norm of all weights) for the family l1 (GeoCert's
recipe, which the paper follows) or without that term for the family plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layercert.errors import InputError, MissingPackageError
from layercert.io.datasets import load_dataset
from layercert.network import Network

DIGITS = (1, 7)
L1_WEIGHT = {"l1": 1e-3, "plain": 0.0}
LEARNING_RATE, BATCH, EPOCHS = 1e-3, 16, 10
#: Deep l1 networks can die in training and answer one class for every input: then the next seed is tried.
SEEDS, COLLAPSED = range(6), 0.9
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def train_network(mnist: Path, size: str, family: str) -> Network:
    """A 1-vs-7 classifier with hidden layers as in '2x10': 2 of 10 neurons."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingPackageError("torch", "training networks from MNIST (--mnist)", "torch") from None
    data = load_dataset(_file(mnist, IMAGES), None, _file(mnist, LABELS), DIGITS)
    assert data.y is not None
    depth, width = (int(part) for part in size.split("x"))
    widths = [width] * depth + [len(DIGITS)]
    X, y = data.X.astype(np.float32), data.y.astype(np.int64)
    for seed in SEEDS:
        weights, biases = zip(*fit(X, y, widths, L1_WEIGHT[family], seed, EPOCHS), strict=True)
        network = Network.from_arrays(list(weights), list(biases), source=f"trained from {mnist}, seed {seed}")
        if float(np.mean(network(data.X).argmax(axis=1) == data.y)) >= COLLAPSED:
            break
    return network


def fit(
    X: NDArray[np.float32], y: NDArray[np.int64], widths: Sequence[int], l1_weight: float, seed: int, epochs: int
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """(W, b) a layer; `widths` counts the neurons of every layer after the input, the outputs last."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in a fixed order: the same seed gives the same weights
    torch.manual_seed(seed)
    inputs, labels = torch.from_numpy(X), torch.from_numpy(y)
    linears = [torch.nn.Linear(n, m) for n, m in pairwise([X.shape[1], *widths])]
    modules: list[torch.nn.Module] = [linears[0]]
    for linear in linears[1:]:
        modules += [torch.nn.ReLU(), linear]
    net = torch.nn.Sequential(*modules)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(net(inputs[batch]), labels[batch])
            if l1_weight:
                loss = loss + l1_weight * sum(linear.weight.abs().sum() for linear in linears)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.set_num_threads(threads)
    return [(linear.weight.detach().numpy(), linear.bias.detach().numpy()) for linear in linears]


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise InputError(f"no {name} (or {name}.gz) in '{folder}'; --mnist names the folder with the MNIST idx files")
