"""Train a network by its recipe, in PyTorch or scikit-learn: the same seed and version give the same weights."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layercert.bench.recipes import ADVERSARIAL, INTERVAL, RECIPES, SKLEARN, Recipe
from layercert.bench.samples import MNIST, Samples, samples
from layercert.errors import MissingPackageError
from layercert.io import from_sklearn, from_torch
from layercert.network import Network

if TYPE_CHECKING:
    import torch

LEARNING_RATE, BATCH = 2e-3, 32
#: Steps of the attack in adversarial training, and the length of one as a part of eps.
ATTACK_STEPS, ATTACK_PACE = 7, 0.25
#: Of the loss of interval training, the plain part; eps grows over the first part of the epochs.
PLAIN_SHARE, RAMP = 0.5, 0.6


def train(recipe: Recipe, mnist: Path | None = None) -> tuple[Network, float]:
    """Follow a recipe.

    Args:
        recipe: What to train, and how.
        mnist: The folder of the MNIST files, for recipes that need it.

    Returns:
        The network, and its share of right answers on the part of the data that it has not seen.

    Raises:
        MissingPackageError: PyTorch or scikit-learn is not installed.
    """
    data = samples(recipe.data, mnist)
    network = _by_sklearn(recipe, data) if recipe.training == SKLEARN else _by_torch(recipe, data)
    right = network(data.test.X.astype(np.float64)).argmax(axis=1) == data.test.y
    return network, float(right.mean())


def trainable(mnist: Path | None) -> list[Recipe]:
    """The recipes that can be followed with or without MNIST."""
    return [recipe for recipe in RECIPES if mnist is not None or recipe.data not in MNIST]


def _by_sklearn(recipe: Recipe, data: Samples) -> Network:
    try:
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        raise MissingPackageError("scikit-learn", f"training {recipe.name}", "bench") from None
    model = MLPClassifier(recipe.hidden, max_iter=recipe.epochs, random_state=0)
    return from_sklearn(model.fit(data.train.X, data.train.y))


def _by_torch(recipe: Recipe, data: Samples) -> Network:
    try:
        import torch
    except ImportError:
        raise MissingPackageError("torch", f"training {recipe.name}", "torch") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in a fixed order
    torch.manual_seed(0)
    shape = _shape(recipe, data.train.X.shape[1])
    model = _model(recipe, shape, data.classes)
    X, y = torch.from_numpy(data.train.X).reshape(-1, *shape), torch.from_numpy(data.train.y)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for epoch in range(recipe.epochs):
        eps = recipe.eps * min(1.0, epoch / max(1.0, RAMP * recipe.epochs))
        for batch in torch.randperm(len(y)).split(BATCH):
            loss = _loss(recipe, model, X[batch], y[batch], eps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.set_num_threads(threads)
    return from_torch(model.eval(), shape)


def _shape(recipe: Recipe, inputs: int) -> tuple[int, ...]:
    if not recipe.conv:
        return (inputs,)
    side = math.isqrt(inputs)
    return (1, side, side)


def _model(recipe: Recipe, shape: tuple[int, ...], classes: int) -> torch.nn.Sequential:
    import torch

    modules: list[torch.nn.Module] = []
    channels = 1
    for number, (out, kernel, stride) in enumerate(recipe.conv):
        modules += [torch.nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2), torch.nn.ReLU()]
        channels = out
        if recipe.pool and number == 0:
            modules.append(torch.nn.MaxPool2d(2))
    if recipe.conv:
        modules.append(torch.nn.Flatten())
    with torch.no_grad():
        features = int(torch.nn.Sequential(*modules)(torch.zeros(1, *shape)).numel())
    for n, m in pairwise([features, *recipe.hidden]):
        modules += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    return torch.nn.Sequential(*modules, torch.nn.Linear(recipe.hidden[-1], classes))


def _loss(recipe: Recipe, model: torch.nn.Sequential, X: torch.Tensor, y: torch.Tensor, eps: float) -> torch.Tensor:
    from torch.nn.functional import cross_entropy

    if recipe.training == ADVERSARIAL:
        return cross_entropy(model(_attacked(model, X, y, eps)), y)
    if recipe.training == INTERVAL:
        return PLAIN_SHARE * cross_entropy(model(X), y) + (1 - PLAIN_SHARE) * cross_entropy(_worst(model, X, y, eps), y)
    loss = cross_entropy(model(X), y)
    if recipe.l1:
        loss = loss + recipe.l1 * sum(p.abs().sum() for name, p in model.named_parameters() if name.endswith("weight"))
    return loss


def _attacked(model: torch.nn.Sequential, X: torch.Tensor, y: torch.Tensor, eps: float) -> torch.Tensor:
    """Projected gradient steps in the l_inf ball and [0, 1], from a random start (Madry et al. 2018)."""
    import torch

    V = (X + eps * (2 * torch.rand_like(X) - 1)).clamp(0, 1)
    for _ in range(ATTACK_STEPS):
        V.requires_grad_()
        (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(V), y), V)
        V = V.detach() + ATTACK_PACE * eps * slope.sign()
        V = torch.minimum(torch.maximum(V, X - eps), X + eps).clamp(0, 1)
    return V.detach()


def _worst(model: torch.nn.Sequential, X: torch.Tensor, y: torch.Tensor, eps: float) -> torch.Tensor:
    """The worst outputs that intervals allow: lowest of the true class, highest of others (Gowal et al. 2018)."""
    import torch

    low, high = (X - eps).clamp(0, 1), (X + eps).clamp(0, 1)
    for layer in model:
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            centre, spread = layer((low + high) / 2), _spread(layer, (high - low) / 2)
            low, high = centre - spread, centre + spread
        else:  # ReLU, pooling and flattening keep the order
            low, high = layer(low), layer(high)
    true = torch.nn.functional.one_hot(y, high.shape[1]).bool()
    return torch.where(true, low, high)


def _spread(layer: Any, radius: torch.Tensor) -> torch.Tensor:
    """|W| radius."""
    import torch

    if isinstance(layer, torch.nn.Linear):
        return torch.nn.functional.linear(radius, layer.weight.abs())
    return torch.nn.functional.conv2d(radius, layer.weight.abs(), None, layer.stride, layer.padding)
