"""Many inputs from Python: the distances of ten digits on two processes, in order, and what a table says of them.

    python examples/many_inputs.py

X may as well be a tensor, a list, or a data loader of PyTorch, whose labels are taken then.
"""

import numpy as np

import layercert as lc
from layercert import shipped

network = lc.load(shipped.path("mnist17_l1_2x10"))
with np.load(shipped.path("digits")) as digits:
    X, y = digits["X"][:10], digits["y"][:10]

results = lc.measure_all(network, X, y, norm="linf", domain=(0, 1), time_limit=20, jobs=2)
for result in results:  # each as soon as it and all before it are there
    print(result)

radii = [row["lower"] for row in results.rows()]  # or results.to_pandas(), with pandas
print(f"certified accuracy at 0.03: {np.mean(np.array(radii) > 0.03):.0%}")
