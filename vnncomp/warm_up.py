"""Compile (or load) every kernel that an instance may need: tiny properties, decided by each default method."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layercert.network import Network
from layercert.spec.read import parse_spec
from layercert.spec.verify import Answer, verify_spec

answers = []
# a geometric method on the smallest network compiles the distance programs that close single linear pieces
for inputs, method in ((2, None), (20, None), (2, "layercert-both")):
    rng = np.random.default_rng(0)
    sizes = [inputs, 16, 16, 2]
    weights = [rng.normal(size=(m, n)).astype(np.float32) for n, m in pairwise(sizes)]
    network = Network.from_arrays(weights, [rng.normal(size=m) for m in sizes[1:]])
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)] + [f"(declare-const Y_{j} Real)" for j in range(2)]
    lines += [f"(assert (<= X_{i} 1))(assert (>= X_{i} -1))" for i in range(inputs)]
    bound = float(np.abs(network(rng.choice([-1.0, 1.0], (1000, inputs)))[:, 0]).max())
    answer = Answer.SAT
    while answer is Answer.SAT:  # the first bound that is hardly out of reach: neurons must be split to prove it
        spec = parse_spec("\n".join([*lines, f"(assert (>= Y_0 {bound!r}))"]))
        answer = verify_spec(network, spec, time_limit=120, method=method).answer
        bound *= 1.05
    answers.append(str(answer))
print(f"kernels are ready ({', '.join(answers)})")
