"""What depth and max pooling cost: networks of the same number of neurons, the same digits, exact radii.

    python examples/depth_and_pooling.py --digits 10 --out cost.png

A dense network of 60 hidden neurons in 1 to 5 layers, and a small convolutional one whose first layer is made smaller
by a stride or by max pooling. All are trained alike. For each: test accuracy, median exact radius, seconds to find it.
Needs `layercert[torch,sklearn,plot]`.
"""

import argparse
from statistics import median

import matplotlib
import torch
from sklearn.datasets import load_digits

import layercert as lc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--digits", type=int, default=10)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--time-limit", type=float, default=20.0)
parser.add_argument("--out", default="cost.png")
args = parser.parse_args()

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)


def dense(depth):
    width, layers, inputs = 60 // depth, [torch.nn.Flatten()], 64
    for _ in range(depth):
        layers += [torch.nn.Linear(inputs, width), torch.nn.ReLU()]
        inputs = width
    return [*layers, torch.nn.Linear(width, 10)]


def convolution(first):
    return [*first, torch.nn.Flatten(), torch.nn.Linear(2 * 16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)]


def networks():
    """Name and layers; each made after the same seed."""
    for depth in (1, 2, 3, 5):
        yield f"{depth} x {60 // depth}", lambda depth=depth: dense(depth)
    yield "conv, stride 2", lambda: convolution([torch.nn.Conv2d(1, 2, 3, 2, 1), torch.nn.ReLU()])
    pooled = lambda: [torch.nn.Conv2d(1, 2, 3, 1, 1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]  # noqa: E731
    yield "conv, max pool", lambda: convolution(pooled())


names, seconds, medians = [], [], []
for name, layers in networks():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*layers())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(args.epochs):
        for batch in torch.randperm(len(y) - 400).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(X[400:][batch]), y[400:][batch]).backward()
            optimizer.step()
    right = model(X[:400]).argmax(1) == y[:400]
    chosen = right.nonzero().flatten()[: args.digits]
    network = lc.from_torch(model.eval(), (1, 8, 8))
    results = list(
        lc.measure_all(network, X[chosen], y[chosen], norm="linf", domain=(0, 1), time_limit=args.time_limit)
    )
    exact = sum(r.status == "exact" for r in results)
    names.append(name)
    seconds.append([r.seconds for r in results])
    medians.append(median(r.upper for r in results))
    print(
        f"{name}: {network.neurons} ReLUs, accuracy {right.float().mean():.3f}, exact {exact} of {len(results)}, "
        f"median radius {medians[-1]:.4f}, median {median(seconds[-1]):.3f} s, worst {max(seconds[-1]):.2f} s",
        flush=True,
    )

figure, (left, rest) = plt.subplots(1, 2, figsize=(8, 3.4))
left.boxplot(seconds, tick_labels=names)
left.set(ylabel="seconds to the exact radius", yscale="log")
rest.bar(names, medians)
rest.set(ylabel="median exact l_inf radius")
for axes in (left, rest):
    axes.tick_params(axis="x", rotation=40)
figure.tight_layout()
figure.savefig(args.out)
