"""Distances to violation: how far is an encounter of two aircraft from another advice?

    python examples/aircraft.py --grid 24 --out aircraft.png
    python examples/aircraft.py MODEL.onnx PROPERTY.vnnlib     # ACAS Xu's own networks and properties, if you have them

A network of ACAS Xu's kind (five inputs, five advices, six layers of 50; shipped with RadiusBench) is asked on a grid
of distances and bearings of the other aircraft: which advice, and how large is the smallest change of the situation, in
l_inf, that changes it? Every number is exact. Needs `layercert[plot]`.
"""

import argparse
import math

import matplotlib
import numpy as np

import layercert as lc
from layercert.bench.samples import ADVICE

matplotlib.use("Agg")
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", nargs="?")
parser.add_argument("spec", nargs="?")
parser.add_argument("--grid", type=int, default=24)
parser.add_argument("--out", default="aircraft.png")
args = parser.parse_args()

if args.model is not None:  # how far could the box of the property grow before it is violated?
    print(lc.measure_spec(lc.load(args.model), lc.load_spec(args.spec), time_limit=60))
    raise SystemExit

network = lc.radiusbench().network("encounters_plain_6x50")
distance, bearing = np.meshgrid(np.linspace(0.02, 1, args.grid), np.linspace(0, 1, args.grid))
rest = np.full(distance.size, 0.5)  # the other one flies as we do, both at half speed
X = np.stack([distance.ravel(), bearing.ravel(), rest, rest, rest], axis=1)
results = list(lc.measure_all(network, X, norm="linf", domain=(0, 1), time_limit=20))

radii = np.array([r.upper for r in results]).reshape(distance.shape)
advice = np.array([r.label for r in results]).reshape(distance.shape)
exact = sum(r.status == "exact" for r in results)
print(f"{exact} of {len(results)} distances exact, {sum(r.seconds for r in results):.1f} s")
for k, name in enumerate(ADVICE):
    if (advice == k).any():
        here = radii[advice == k]
        print(f"{name}: {len(here)} situations, nearest other advice {here.min():.4f} to {here.max():.4f} away")
worst = results[int(np.argmin(radii))]
print(f"least stable: {ADVICE[worst.label]} becomes {ADVICE[worst.target]} within {worst.upper:.2g}")

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.6), subplot_kw={"projection": "polar"}, layout="constrained")
angle = 2 * math.pi * (bearing - 0.5)
for each in axes:
    each.grid(False)
axes[0].pcolormesh(angle, distance, advice, cmap="tab10", vmin=0, vmax=9, shading="nearest")
axes[0].set_title("advice, by where the other aircraft is")
names = [plt.Rectangle((0, 0), 1, 1, color=f"C{k}", label=name) for k, name in enumerate(ADVICE)]
figure.legend(handles=names, loc="outside lower center", ncols=len(ADVICE), frameon=False)
shown = axes[1].pcolormesh(angle, distance, radii, cmap="viridis", shading="nearest")
axes[1].set_title("exact distance to another advice")
figure.colorbar(shown, ax=axes[1], pad=0.12)
figure.savefig(args.out)
