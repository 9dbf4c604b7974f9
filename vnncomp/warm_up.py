"""Compile (or load) every kernel that an instance may need: one tiny property, decided by each default method."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layercert.methods import default_method
from layercert.network import Network
from layercert.spec.read import parse_spec
from layercert.spec.verify import verify_spec

rng = np.random.default_rng(0)
for inputs in (2, 20):
    sizes = [inputs, 8, 8, 2]
    weights = [rng.normal(size=(m, n)).astype(np.float32) for n, m in pairwise(sizes)]
    network = Network.from_arrays(weights, [np.zeros(m) for m in sizes[1:]])
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)] + [f"(declare-const Y_{j} Real)" for j in range(2)]
    lines += [f"(assert (<= X_{i} 1))(assert (>= X_{i} -1))" for i in range(inputs)]
    # one bound far out of reach (a quick proof), one near enough that neurons must be split, one that is met at once
    for bound in (1000.0, float(network(np.ones(inputs))[0]) * 0.5 + 8.0, -1000.0):
        spec = parse_spec("\n".join([*lines, f"(assert (>= Y_0 {bound!r}))"]))
        answer = verify_spec(network, spec, time_limit=60, method=default_method(network)).answer
print(f"kernels are ready ({answer})")
