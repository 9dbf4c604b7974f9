"""Linear programs of the adaptive search's relaxations (search/adaptive/program.py)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from layercert.arrays import Matrix
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.search.adaptive.lines import fix
from layercert.search.adaptive.model import HI, LO, PHASE, build
from layercert.search.adaptive.program import Programs


def test_programs_go_on_from_the_last_one_and_say_what_a_fresh_solver_says() -> None:
    """The nodes of a random walk through a tree, one after the other in the same model."""
    rng = np.random.default_rng(3)
    sizes = [4, 7, 6, 3]
    net = Network.from_arrays(
        [rng.normal(size=(b, a)) for a, b in pairwise(sizes)], [0.3 * rng.normal(size=b) for b in sizes[1:]]
    )
    problem = robustness(net, rng.normal(size=4), math.inf)
    U, compared = 0.7, 0
    _, root = build(problem, U)
    programs = Programs(problem, [csr_array(W) for W in net.weights], root)
    for _ in range(30):
        state = root.copy()
        for i in rng.choice(programs.free, rng.integers(0, 4), replace=False):
            fix(state, i, rng.choice([-1.0, 1.0]))
        at = int(rng.integers(len(problem.clauses)))
        found, true = programs.solve(problem.clauses[at], at, state, U), _least_relaxed(problem, at, state, U)
        assert (found is None) == (true is None)  # None: no point has the phases of the splits
        if found is not None and true is not None:
            compared += 1
            assert found.value == pytest.approx(true, abs=1e-7)
    assert compared > 15


def _least_relaxed(problem: Problem, at: int, state: Matrix, U: float) -> float | None:
    """The least F over the triangles of a node, from scratch: every pre-activation and output is a variable."""
    net, clause = problem.network, problem.clauses[at]
    n, N = net.inputs, len(state[PHASE])
    variables = n + 2 * N
    equal, right, less, most = [], [], [], []
    bounds: list[tuple[float | None, float | None]] = [(-U, U)] * n + [(None, None)] * (2 * N)
    i = 0
    for k, (W, b) in enumerate(zip(net.weights[:-1], net.biases[:-1], strict=True)):
        for j, row in enumerate(W):
            sums = np.zeros(variables)
            below = slice(0, n) if k == 0 else slice(n + N + i - j - len(row), n + N + i - j)
            sums[below], sums[n + i] = row, -1.0
            equal.append(sums)
            right.append(-b[j] - (row @ problem.x if k == 0 else 0.0))
            z, h, lo, hi, phase = n + i, n + N + i, state[LO, i], state[HI, i], state[PHASE, i]
            bounds[z] = (0.0, None) if phase > 0 else (None, 0.0) if phase < 0 else (None, None)
            unit = np.zeros(variables)
            if phase < 0 or (phase == 0 and hi <= 0):
                bounds[h] = (0.0, 0.0)
            elif phase > 0 or lo >= 0:
                unit[z], unit[h] = 1.0, -1.0
                equal.append(unit)
                right.append(0.0)
            else:
                bounds[h] = (0.0, None)
                unit[z], unit[h] = 1.0, -1.0
                less.append(unit)
                most.append(0.0)
                chord = np.zeros(variables)
                chord[z], chord[h] = -hi / (hi - lo), 1.0
                less.append(chord)
                most.append(-hi * lo / (hi - lo))
            i += 1
    cost = np.zeros(variables)
    cost[variables - net.widths[-1] :] = clause.C[0] @ net.weights[-1]
    answer = linprog(cost, np.array(less) if less else None, most or None, np.array(equal), right, bounds)
    return float(answer.fun + (clause.C @ net.biases[-1] - clause.d)[0]) if answer.status == 0 else None
