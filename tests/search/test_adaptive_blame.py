"""What each neuron accounts for between a program's value and the network's (search/adaptive/blame.py)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from layercert.network import Network
from layercert.problem import robustness
from layercert.search.adaptive.blame import blame
from layercert.search.adaptive.model import HI, LO, build
from layercert.search.adaptive.program import Programs


def _network(rng: np.random.Generator, sizes: tuple[int, ...]) -> Network:
    weights = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(sizes)]
    return Network.from_arrays(weights, [rng.normal(size=len(W)) * 0.3 for W in weights])


@pytest.mark.parametrize("sizes", [(4, 6, 2), (4, 8, 7, 3), (3, 6, 6, 6, 2)])
def test_the_parts_add_up_to_the_whole_difference(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    for _ in range(20):
        net = _network(rng, sizes)
        v, form = rng.normal(size=sizes[0]), rng.normal(size=sizes[-1])
        outputs = np.where(rng.random(sum(sizes[1:-1])) < 0.3, np.nan, 0.0)
        h, at = v, 0
        for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):  # some outputs are above relu, some are none
            relu = np.maximum(W @ h + b, 0.0)
            part = slice(at, at + len(relu))
            above = rng.random(len(relu)) * (rng.random(len(relu)) < 0.6)
            h = np.where(np.isnan(outputs[part]), relu, relu + above)
            outputs[part], at = np.where(np.isnan(outputs[part]), np.nan, h), part.stop
        program = form @ (net.weights[-1] @ h + net.biases[-1])
        parts = blame(net, [csr_array(W) for W in net.weights], v, outputs, form)
        assert parts.sum() == pytest.approx(float(form @ net(v) - program), abs=1e-12)
        assert (parts[np.isnan(outputs)] == 0.0).all()


def test_a_program_names_first_what_accounts_for_its_value() -> None:
    """Splitting the neuron that is named first raises the program on its two sides more often than the last one."""
    rng, better, worse = np.random.default_rng(5), 0, 0
    for _ in range(12):
        net = _network(rng, (5, 12, 10, 2))
        problem, U = robustness(net, rng.normal(size=5), label=0), 0.8
        _, root = build(problem, U)
        programs = Programs(problem, [csr_array(W) for W in net.weights], root)
        found = programs.solve(0, root, U)
        if found is None or len(found.cheating) < 3:
            continue
        first, last = (_risen(programs, root, int(i), U) for i in found.cheating[[0, -1]])
        better, worse = better + (first > last + 1e-9), worse + (last > first + 1e-9)
    assert better + worse >= 6 and better >= 3 * worse


def _risen(programs: Programs, root: np.ndarray, neuron: int, U: float) -> float:
    """The lower one of the values on the two sides of a neuron."""
    values = []
    for row, end in ((LO, 0.0), (HI, 0.0)):
        state = root.copy()
        state[row, neuron] = end
        found = programs.solve(0, state, U)
        values.append(np.inf if found is None else found.value)
    return float(min(values))
