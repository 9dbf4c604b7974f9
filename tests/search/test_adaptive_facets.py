"""Upper lines over neurons' inputs (hulls.py, cuts.py): above relu in rational arithmetic, as tight as the convex hull,
and of use to programs, searches and certificates."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import highspy
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

import layercert as lc
from helpers.brute import brute_force, exact_values
from helpers.patterns import dot
from layercert.arrays import Matrix, Vector
from layercert.facets import Facets
from layercert.network import Network
from layercert.problem import Problem, robustness
from layercert.run import How, closest
from layercert.search.adaptive import cuts, pieces, relaxation, worker
from layercert.search.adaptive.bent import bent_pass
from layercert.search.adaptive.hulls import Hulls
from layercert.search.adaptive.lines import fix
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE, build, open_mask
from layercert.search.adaptive.node import Node, Packing, settle
from layercert.search.adaptive.program import Programs

CHECKER = Path(__file__).parents[2] / "standalone" / "check_certificate.py"


@pytest.fixture
def facets_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On small dense networks too, and at every node."""
    monkeypatch.setattr(pieces, "SPARSE", 2.0)
    monkeypatch.setattr(worker, "NEAR", 1.0)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_line_is_above_relu_on_the_whole_box(layer: int) -> None:
    """relu minus a line is convex: its largest value is at a corner, where rationals look."""
    rng, problem, U = np.random.default_rng(1), _problem(1), 0.7
    hulls, root = _hulls(problem, U)
    box = hulls.box(layer, root, U)
    rows, first = hulls.rows(layer), int(hulls.noff[layer])
    for own in range(len(rows.bias)):
        parts = rng.uniform(size=(1, rows.weights.shape[1]))
        line = hulls.lines(layer, np.array([first + own]), parts, box)
        a = [Fraction(float(v)) for v in (parts * rows.weights[own])[0]]
        w, c = [Fraction(float(v)) for v in rows.weights[own]], Fraction(float(line.offsets[0]))
        ends = [(box[0][j], box[1][j]) for j in rows.columns[own]]
        tight = []
        for corner in product(*ends):
            x = [Fraction(float(v)) for v in corner]
            tight.append(dot(a, x) + c - max(dot(w, x) + Fraction(float(rows.bias[own])), Fraction(0)))
        assert 0 <= min(tight) < Fraction(1, 10**9)


def test_the_most_violated_line_is_the_convex_hull() -> None:
    """Its value is that of the best average of corners."""
    rng, problem, U = np.random.default_rng(2), _problem(2), 0.7
    hulls, root = _hulls(problem, U)
    rows, found = hulls.rows(0), 0
    low, high = box = hulls.box(0, root, U)
    corners = np.array(list(product(*zip(low, high, strict=True))))
    for own in np.flatnonzero((root[LO, : hulls.noff[1]] < 0) & (root[HI, : hulls.noff[1]] > 0)):
        x = low + rng.uniform(size=len(low)) * (high - low)
        values = np.maximum(corners[:, rows.columns[own]] @ rows.weights[own] + rows.bias[own], 0.0)
        best = linprog(-values, A_eq=np.vstack([corners.T, np.ones(len(corners))]), b_eq=np.append(x, 1.0))
        line = hulls.violated(0, np.array([own]), box, (x, np.array([math.inf])))
        value = (line.parts[0] * rows.weights[own]) @ x[rows.columns[own]] + line.offsets[0]
        assert value == pytest.approx(-best.fun, abs=1e-9)
        found += 1
    assert found > 3


@pytest.mark.parametrize("both", [0.0, 0.2, 3.0])
def test_a_pass_with_facets_bounds_f_in_rationals(both: float) -> None:
    """Also where neurons have some of both lines, and those that are on have facets."""
    rng, checked = np.random.default_rng(3), 0
    for seed in range(4):
        problem, U = _problem(seed), 0.7
        net, N = problem.network, sum(problem.network.widths)
        hulls, root = _hulls(problem, U)
        free = np.flatnonzero((root[LO] < 0) & (root[HI] > 0))
        for _ in range(5):
            state, point = root.copy(), rng.uniform(-U, U, net.inputs)
            z = np.concatenate(net.preactivations(problem.x + point))
            for i in rng.choice(free, 3, replace=False):
                fix(state, i, 1.0 if z[i] > 0 else -1.0)
            state[ALPHA], state[BETA] = rng.uniform(size=N), rng.exponential(size=N) * (state[PHASE] != 0)
            bent = np.sort(rng.choice(free, len(free) // 2, replace=False))
            sizes = [_weights(net, int(i)) for i in bent]
            facets = Facets(bent, rng.uniform(size=len(bent)), rng.uniform(size=sum(sizes)))
            clause, bends = problem.clauses[0], hulls.bends(state, facets, U)
            if both > 0.0:
                share = np.zeros(N)
                share[bent] = facets.shares
                bends = bends._replace(both=both * rng.exponential(size=N), share=share)
            done, _ = bent_pass(hulls.model, state, np.ones(1), 0, bends)
            g, s = [Fraction(float(v)) for v in done.g[0]], Fraction(float(done.s[0]))
            for _ in range(20):
                v = [Fraction(float(a)) + Fraction(float(b)) for a, b in _near(rng, problem, point, U)]
                values = exact_values(net, v)
                zs = [z for layer in values[:-1] for z in layer]
                if any(zs[i] * int(state[PHASE, i]) < 0 for i in range(N)):
                    continue
                w = [a - Fraction(float(b)) for a, b in zip(v, problem.x, strict=True)]
                F = dot([Fraction(float(c)) for c in clause.C[0]], values[-1]) - Fraction(float(clause.d[0]))
                drift = Fraction(float(done.drift[0])) * max(abs(each) for each in w)
                assert dot(g, w) + s - drift <= F
                checked += 1
    assert checked > 100


def test_a_pass_with_facets_is_that_of_the_formats_page() -> None:
    """The same halfspace, neuron by neuron, from docs/certificate-format.md: what counts, boxes of inputs, shares."""
    rng, U, counted = np.random.default_rng(6), 0.7, 0
    for seed in range(4):
        problem = _problem(seed)
        net, N = problem.network, sum(problem.network.widths)
        hulls, state = _hulls(problem, U)
        for i in rng.choice(np.flatnonzero((state[LO] < 0) & (state[HI] > 0)), 3, replace=False):
            fix(state, i, rng.choice([-1.0, 1.0]))
        state[ALPHA], state[BETA] = rng.uniform(size=N), rng.exponential(size=N) * (state[PHASE] != 0)
        neurons = np.arange(N)  # of stable ones too, where they do not count
        facets = Facets(neurons, rng.uniform(size=N), rng.uniform(size=sum(_weights(net, i) for i in range(N))))
        done, _ = bent_pass(hulls.model, state, np.ones(1), 0, hulls.bends(state, facets, U))
        A, c, counts = _pass(problem, state, facets, U)
        counted += counts
        np.testing.assert_allclose(done.g[0], A, rtol=1e-9, atol=1e-12)
        assert done.s[0] == pytest.approx(c + A @ problem.x, rel=1e-9, abs=1e-9)
    assert counted > 10


def _pass(problem: Problem, state: Matrix, facets: Facets, U: float) -> tuple[Vector, float, int]:
    """A over v, its constant, and how many facets count."""
    net, clause = problem.network, problem.clauses[0]
    starts, counts = np.cumsum([0, *net.widths]), 0
    ends = np.cumsum([0, *(_weights(net, i) for i in range(int(starts[-1])))])
    A, c = clause.C[0] @ net.weights[-1], float(clause.C[0] @ net.biases[-1] - clause.d[0])
    for k in range(net.L - 1, -1, -1):
        W, b, below = net.weights[k], net.biases[k], np.zeros(net.weights[k].shape[1])
        if k == 0:
            box = problem.x - U, problem.x + U
        else:
            part = slice(int(starts[k - 1]), int(starts[k]))
            off = state[PHASE, part] < 0
            box = tuple(np.where(off, 0.0, np.maximum(state[end, part], 0.0)) for end in (LO, HI))
        for j, coefficient in enumerate(A):
            i = int(starts[k]) + j
            phase, lo, hi, alpha, beta = (float(state[row, i]) for row in (PHASE, LO, HI, ALPHA, BETA))
            if phase == 0 and lo < 0 < hi and coefficient > 0:
                S = coefficient * alpha
            elif phase == 0 and lo < 0 < hi:
                w, t = W[j], np.zeros(len(W[j]))
                t[w != 0] = facets.parts[ends[i] : ends[i + 1]]
                a, s = t * w, facets.shares[i]
                zero, rest = np.maximum(-a * box[0], -a * box[1]), np.maximum((w - a) * box[0], (w - a) * box[1])
                S = (1 - s) * coefficient * hi / (hi - lo)
                c += -S * lo + s * coefficient * max(zero.sum(), b[j] + rest.sum())
                below += s * coefficient * a
                counts += 1
            elif phase > 0 or (phase == 0 and lo >= 0):
                S = coefficient - beta
            else:
                S = beta
            c += S * b[j]
            below += S * W[j]
        A = below
    return A, c, counts


def test_programs_with_facets_are_tighter_and_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the least value on the triangles and the least value there is; also where rows are dropped at once."""
    rng, gained = np.random.default_rng(4), 0
    for drops in (False, True):
        if drops:
            monkeypatch.setattr(cuts, "MANY", 0.0)
            monkeypatch.setattr(cuts, "IDLE", 0)
        problem, U = _problem(5), 0.7
        maps = [csr_array(W) for W in problem.network.weights]
        hulls, root = _hulls(problem, U)
        plain, bent = Programs(problem, maps, root), Programs(problem, maps, root, hulls)
        steps = [rng.uniform(-U, U, problem.network.inputs) for _ in range(400)]
        zs = [np.concatenate(problem.network.preactivations(problem.x + w)) for w in steps]
        for _ in range(15):
            state = root.copy()
            for i in rng.choice(bent.free, rng.integers(0, 3), replace=False):
                fix(state, i, rng.choice([-1.0, 1.0]))
            less, more = plain.solve(0, state, U), bent.solve(0, state, U)
            if less is None or more is None:
                continue
            inside = [w for w, z in zip(steps, zs, strict=True) if (z * state[PHASE] >= 0).all()]
            margins = (float(problem.clauses[0].margins(problem.network(problem.x + w))[0]) for w in inside)
            least = min(margins, default=math.inf)
            assert less.value - 1e-7 <= more.value <= least + 1e-7
            gained += more.value > less.value + 1e-4 and more.facets is not None
    assert gained > 5


def test_programs_without_rows_that_held_nothing_go_on_from_their_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where such a row is not basic, as on these coarse weights with ties."""
    monkeypatch.setattr(cuts, "MANY", 0.0)
    monkeypatch.setattr(cuts, "IDLE", 0)
    rng, dropped = np.random.default_rng(11), list[int]()
    delete = highspy.Highs.deleteRows
    monkeypatch.setattr(
        highspy.Highs, "deleteRows", lambda highs, count, rows: dropped.append(count) or delete(highs, count, rows)
    )
    for seed in range(6):
        problem, U = _problem(seed), 0.7
        hulls, root = _hulls(problem, U)
        programs = Programs(problem, [csr_array(W) for W in problem.network.weights], root, hulls)
        for _ in range(15):
            state = root.copy()
            for i in rng.choice(programs.free, rng.integers(0, 3), replace=False):
                fix(state, i, rng.choice([-1.0, 1.0]))
            if programs.solve(0, state, U) is not None:
                (model,) = programs._idle[0]
                assert model.highs.getBasis().valid
    assert sum(dropped) > 50


def test_what_a_program_says_is_proved_in_full() -> None:
    """Where ends of a neuron's range hold its point too, and where a neuron that is on has a facet: its multipliers are
    worth its value, which a pass with one line for each neuron misses."""
    rng, U, both, on = np.random.default_rng(9), 0.7, 0, 0
    for seed in range(12):
        problem = _problem(seed)
        maps = [csr_array(W) for W in problem.network.weights]
        hulls, root = _hulls(problem, U)
        programs = Programs(problem, maps, root, hulls)
        for _ in range(6):
            state, w = root.copy(), rng.uniform(-U, U, problem.network.inputs)
            z = np.concatenate(problem.network.preactivations(problem.x + w))
            for i in rng.choice(programs.free, 3, replace=False):
                fix(state, i, 1.0 if z[i] > 0 else -1.0)
            # ranges as if something had proved them, with a point inside
            free = programs.free[state[PHASE, programs.free] == 0]
            state[LO, free] = np.minimum(z[free] - 0.1, 0.3 * root[LO, free])
            state[HI, free] = np.maximum(z[free] + 0.1, 0.3 * root[HI, free])
            settle(state, np.isin(np.arange(state.shape[1]), programs.free))
            first = programs.solve(0, state, U)
            bent = [] if first is None or first.facets is None else first.facets.neurons.tolist()
            child = state.copy()
            for i in bent:
                fix(child, i, 1.0 if z[i] > 0 else -1.0)
            for node in (state, child):
                found = programs.solve(0, node, U)
                if found is None or found.facets is None:
                    continue
                node[ALPHA] = np.where(found.alpha >= 0, found.alpha, node[ALPHA])
                node[BETA], share = found.beta, np.zeros(node.shape[1])
                share[found.facets.neurons] = found.facets.shares
                bends = hulls.bends(node, found.facets, U)
                plain, full = (
                    bent_pass(hulls.model, node, found.mu, 0, each)[0]
                    for each in (bends, bends._replace(both=found.both, share=share))
                )
                less, value = (float(done.s[0] - U * np.abs(done.g[0]).sum()) for done in (plain, full))
                assert value == pytest.approx(found.value, abs=1e-6 * (1.0 + abs(found.value)))
                is_open = open_mask(node)
                both += bool(found.both[is_open].any()) and less < value - 1e-3
                on += bool(share[~is_open & (node[PHASE] > 0)].any()) and less < value - 1e-3
    assert both > 3 and on > 3


def test_a_second_model_goes_on_where_the_first_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is in use: the same facets in the same rows, the same basis, the same answer without a step."""
    problem, U = _problem(5), 0.7
    hulls, root = _hulls(problem, U)
    programs = Programs(problem, [csr_array(W) for W in problem.network.weights], root, hulls)
    monkeypatch.setattr(cuts, "MANY", 0.0)  # rows are dropped and their places move
    state = root.copy()
    fix(state, int(programs.free[0]), 1.0)
    for each in (root, state, root):
        assert programs.solve(0, each, U) is not None
    first = programs.solve(0, root, U)
    with programs._model(0) as busy:
        again = programs.solve(0, root, U)
        (other,) = programs._idle[0]
        assert other is not busy and other.cuts is not None and busy.cuts is not None
        assert len(other.cuts) >= len(busy.cuts) > 0
        for k, layer in busy.cuts.layers.items():
            copied = other.cuts.layers[k]
            np.testing.assert_array_equal(copied.neurons[: len(layer.neurons)], layer.neurons)
            np.testing.assert_array_equal(copied.row[: len(layer.row)], layer.row)
        assert other.highs.getInfo().simplex_iteration_count <= 1
    assert first is not None and again is not None and again.value == pytest.approx(first.value, abs=1e-9)
    assert [model is busy for model in programs._idle[0]] == [False, True]  # the last one to be used comes next


def test_whoever_wants_a_first_program_hears_that_somebody_is_at_it() -> None:
    problem, U = _problem(5), 0.7
    _, root = _hulls(problem, U)
    programs = Programs(problem, [csr_array(W) for W in problem.network.weights], root)
    assert not programs.begins(0)
    with programs._model(0):
        assert programs.begins(0)
    assert not programs.begins(0)
    with pytest.raises(ZeroDivisionError), programs._model(0) as model:
        raise ZeroDivisionError
    assert not programs.begins(0) and model not in programs._idle[0]


@pytest.mark.usefixtures("facets_everywhere")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", [0, 3, 5, 6, 9, 13])
def test_searches_with_facets_are_exact(seed: int, threads: int) -> None:
    problem = _problem(seed, [3, 6, 6, 2])
    true, _ = brute_force(problem)
    result = closest(problem, How(threads=threads))
    assert result.status == "exact"
    assert result.lower <= true * (1 + 1e-9) and result.upper == pytest.approx(true, rel=1e-6)


@pytest.mark.usefixtures("facets_everywhere")
def test_a_solver_that_lies_about_facets_costs_nodes_and_no_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, honest, asked = np.random.default_rng(8), relaxation.Relaxation._solution, [0]

    def lying(self: relaxation.Relaxation) -> tuple[Vector, Vector, Vector]:
        asked[0] += 1
        point, reduced, dual = honest(self)
        return point * rng.choice([1.0, -3.0]), reduced, dual * rng.choice([0.0, -1.0, 1.0, 1e12], len(dual))

    monkeypatch.setattr(relaxation.Relaxation, "_solution", lying)
    for seed in (5, 6, 8):
        problem = _problem(seed, [3, 6, 6, 2])
        true, _ = brute_force(problem)
        found = closest(problem)
        assert found.lower <= true * (1 + 1e-7) and found.upper >= true * (1 - 1e-7)
    assert asked[0] > 20


@pytest.mark.usefixtures("facets_everywhere")
def test_certificates_hold_the_facets_of_the_search(tmp_path: Path) -> None:
    bent = 0
    for seed in (0, 3, 10, 12):  # roots with bounds by hulls close the others before any facet is needed
        problem = _problem(seed, [6, 8, 8, 2])
        net = problem.network
        r = lc.measure(net, problem.x, method="adaptive", certificate=True)
        assert r.status == "exact" and r.certificate is not None
        bent += any(getattr(tree, "facet_at", None) is not None for tree in r.certificate.trees)
        assert lc.check(net, r.certificate).ok and lc.check(net, r.certificate, exact=True).ok
        net.save(tmp_path / "net.npz")
        r.certificate.save(tmp_path / "proof.npz")
        done = subprocess.run([sys.executable, CHECKER, tmp_path / "proof.npz", tmp_path / "net.npz"], check=False)
        assert done.returncode == 0
    assert bent > 2


def test_a_neuron_that_bounds_settle_is_as_good_as_split() -> None:
    problem, U = _problem(1), 0.7
    _, root = build(problem, U)
    meets = (root[LO] < 0) & (root[HI] > 0)
    free, state = np.flatnonzero(meets), root.copy()
    fix(state, free[0], 1.0)
    state[LO, free[1]] = 0.01
    state[HI, free[2]] = -0.01
    settle(state, meets)
    assert state[PHASE, free[:4]].tolist() == [1.0, 1.0, -1.0, 0.0]
    assert not state[PHASE, ~meets].any()
    packing = Packing.of(root)
    again = packing.unpack(packing.pack(Node(0, 0, 0.1, state, np.ones(1), U, splits=1)), 1)
    assert again.splits == 1  # what is settled is no deeper in the tree
    assert (again.state[PHASE] == state[PHASE]).all()


def _problem(seed: int, sizes: list[int] | None = None) -> Problem:
    """A network whose first layer reads three inputs at a time, if it has more."""
    rng = np.random.default_rng(seed)
    sizes = sizes or [5, 8, 6, 2]
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    for i, row in enumerate(weights[0]):
        row[[(i + j) % sizes[0] for j in range(3, sizes[0])]] = 0.0
    net = Network.from_arrays(weights, [0.3 * rng.normal(size=b) for b in sizes[1:]])
    return robustness(net, rng.normal(size=sizes[0]), math.inf)


def _hulls(problem: Problem, U: float) -> tuple[Hulls, Matrix]:
    model, root = build(problem, U)
    return Hulls([csr_array(W) for W in problem.network.weights], model, root), root


def _weights(net: Network, neuron: int) -> int:
    """How many a neuron has."""
    starts = np.cumsum([0, *net.widths])
    k = int(np.searchsorted(starts, neuron, side="right")) - 1
    return int(np.count_nonzero(net.weights[k][neuron - starts[k]]))


def _near(rng: np.random.Generator, problem: Problem, point: Vector, U: float) -> list[tuple[float, float]]:
    """A point of the ball, as x and an offset."""
    w = np.clip(point + rng.normal(size=len(point)) * rng.choice([0.0, 0.05, 0.3]), -U, U)
    return list(zip(problem.x, w, strict=True))
