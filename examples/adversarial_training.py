"""Adversarial training measured exactly: the radius of the same digits after every few epochs.

    python examples/adversarial_training.py --epochs 40 --digits 20 --out training.png

Two networks 64-30-30-10 start from the same weights. One is trained plainly, one on the points that PGD finds within
0.1 in l_inf. The curves hold exact radii: neither an attack's optimism nor a verifier's pessimism is in them. Needs
`layercert[torch,sklearn,plot]`.
"""

import argparse

import matplotlib
import numpy as np
import torch
from sklearn.datasets import load_digits

import layercert as lc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPS, STEPS = 0.1, 7
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--digits", type=int, default=20)
parser.add_argument("--out", default="training.png")
args = parser.parse_args()

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16.0, dtype=torch.float32), torch.tensor(y)
train, test = slice(400, None), slice(0, args.digits)
loss = torch.nn.functional.cross_entropy


def attacked(model, X, y):
    """Projected gradient steps from a random start."""
    V = (X + EPS * (2 * torch.rand_like(X) - 1)).clamp(0, 1)
    for _ in range(STEPS):
        V.requires_grad_()
        (slope,) = torch.autograd.grad(loss(model(V), y), V)
        V = (V.detach() + EPS / 4 * slope.sign()).clamp(X - EPS, X + EPS).clamp(0, 1)
    return V.detach()


def radii(model):
    """l_inf radii of the test digits inside [0, 1], to three digits; 0 for one that is classified wrong."""
    network = lc.from_torch(model, (64,))
    results = lc.measure_all(network, X[test], y[test], norm="linf", domain=(0, 1), time_limit=20, gap=1e-3)
    still_open = sum(r.status != "exact" for r in results)
    if still_open:
        print(f"{still_open} radii are not exact: the middle of their bounds counts")
    return [(r.lower + r.upper) / 2 for r in results]


curves = {}
for kind in ("plain", "adversarial"):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 30), torch.nn.ReLU(), torch.nn.Linear(30, 30), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(30, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    curves[kind] = []
    for epoch in range(1, args.epochs + 1):
        for batch in torch.randperm(len(y[train])).split(32):
            V, t = X[train][batch], y[train][batch]
            V = attacked(model, V, t) if kind == "adversarial" else V
            optimizer.zero_grad()
            loss(model(V), t).backward()
            optimizer.step()
        if epoch in (1, 2, 5) or epoch % 10 == 0 or epoch == args.epochs:
            found = radii(model)
            curves[kind].append((epoch, *np.quantile(found, (0.25, 0.5, 0.75))))
            right = (model(X[:400]).argmax(1) == y[:400]).float().mean()
            robust = np.mean(np.array(found) > EPS)
            print(
                f"{kind}, epoch {epoch}: accuracy {right:.3f}, median exact radius {curves[kind][-1][2]:.4f}, "
                f"robust at {EPS:g}: {robust:.0%}",
                flush=True,
            )

figure, axes = plt.subplots(figsize=(6, 3.6))
for kind, points in curves.items():
    epochs, low, middle, high = np.transpose(points)
    axes.plot(epochs, middle, marker="o", markersize=3, label=kind)
    axes.fill_between(epochs, low, high, alpha=0.2)
axes.axhline(EPS, color="grey", linewidth=0.8, linestyle="--", label="eps of the training")
axes.set(xlabel="epoch", ylabel="exact l_inf radius: median, quartiles")
axes.legend()
figure.tight_layout()
figure.savefig(args.out)
