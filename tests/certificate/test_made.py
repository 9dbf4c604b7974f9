"""How certificates are made: from what the search told, whatever its threads, its end and its question."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import layercert as lc
from helpers.standalone import alone
from layercert import network as network_module
from layercert.certificate.checker import check
from layercert.certificate.claim import BoxTree
from layercert.certificate.plain import without_weights
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import StepFloats
from layercert.certify import Recording, prove
from layercert.certify.branch import goals_of
from layercert.certify.digest import Digest
from layercert.certify.doubt import Doubt
from layercert.certify.log import Aim, Log, LoggedRows, Node, Step
from layercert.certify.recording import Plan
from layercert.how import deadline_of_proof
from layercert.network import Network
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import adaptive
from layercert.search.adaptive.record import Halfspace
from layercert.search.events import Bound
from layercert.search.task import Task
from layercert.system import clock


def network_of(seed: int, sizes: list[int]) -> tuple[Network, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    return Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in sizes[1:]]), rng.uniform(-1, 1, sizes[0])


@pytest.fixture
def no_second_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a second search")

    monkeypatch.setattr(sys.modules["layercert.certify.prove"], "adaptive", never)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 3])
def test_two_threads_leave_a_proof_too(norm: Any, no_second_search: None) -> None:
    net, x = network_of(3, [5, 14, 12, 3])
    r = lc.measure(net, x, norm, domain=(x - 2, x + 2), method="adaptive", threads=2, certificate=True)
    assert r.status == "exact" and r.certificate is not None and check(net, r.certificate).ok


@pytest.mark.parametrize("bounds", [2, 4, 8])
def test_a_search_that_is_stopped_leaves_a_proof_of_the_bound_it_had_reached(
    bounds: int, no_second_search: None
) -> None:
    """The best open nodes wait in the queue: their halfspaces are leaves."""
    net, x = network_of(28, [6, 20, 20, 3])
    problem = robustness(net, x, "linf", domain=(x - 3, x + 3), radius=1.0)
    recording, lower, seen = Recording(), 0.0, 0
    task = Task(problem, make_chain("default", problem.norm), 1.0)
    for event in adaptive(replace_recorder(task, recording)):
        lower = max(lower, event.lower) if isinstance(event, Bound) else lower
        seen += isinstance(event, Bound)
        if seen == bounds and lower > 0:
            break
    assert 0 < lower < 1
    proof = prove(problem, lower, None, math.inf, by_boxes=False, recording=recording)
    assert proof.radius == pytest.approx(lower, rel=2e-6) and check(net, proof).ok


def replace_recorder(task: Task, recording: Recording) -> Task:
    task.recorder = recording
    return task


def test_a_radius_that_was_asked_for_is_proved_in_full(no_second_search: None) -> None:
    net, x = network_of(4, [6, 12, 12, 3])
    far = lc.measure(net, x, "l2", method="adaptive").lower
    r = lc.verify(net, x, 0.9 * far, "l2", method="adaptive", certificate=True)
    assert r.status == "robust" and r.certificate is not None and r.certificate.radius == 0.9 * far
    assert check(net, r.certificate).ok


def test_properties_are_proved_from_their_own_search(no_second_search: None, tmp_path: Path) -> None:
    net, x = network_of(7, [6, 14, 14, 2])
    y = int(net.classify(x))
    lines = [f"(declare-const X_{i} Real)" for i in range(6)] + [f"(declare-const Y_{j} Real)" for j in range(2)]
    r = 0.7 * lc.measure(net, x, "linf", method="adaptive").lower
    for i, v in enumerate(x):
        lines += [f"(assert (>= X_{i} {v - r:.17f}))", f"(assert (<= X_{i} {v + r:.17f}))"]
    (tmp_path / "p.vnnlib").write_text("\n".join([*lines, f"(assert (<= Y_{y} Y_{1 - y}))"]))
    spec = lc.load_spec(tmp_path / "p.vnnlib")
    result = lc.verify_spec(net, spec, method="adaptive", certificate=True)
    assert result.answer == "unsat" and len(result.certificates) == 1, result.note
    assert lc.check_spec(net, spec, result.certificates).ok


def test_networks_that_do_not_fit_dense_have_certificates(
    monkeypatch: pytest.MonkeyPatch, no_second_search: None
) -> None:
    """A band of weights, as convolutions have; the limit is made small, so that nothing may become dense."""
    rng = np.random.default_rng(0)
    bands = [csr_array(np.triu(np.tril(rng.normal(size=(60, 60)), 3), -3)) for _ in range(2)]
    net = Network(
        (*bands, rng.normal(size=(3, 60)) * 0.2), (*(rng.normal(size=60) * 0.3 for _ in range(2)), rng.normal(size=3))
    )
    monkeypatch.setattr(network_module, "DENSE_BYTES", 1000)
    assert not net.fits_dense
    x = rng.uniform(size=60)
    r = lc.verify(net, x, 0.01, "linf", domain=(0, 1), certificate=True)
    assert r.status == "robust" and r.certificate is not None, r.note
    assert check(net, r.certificate).ok


def rows_at(first: int, targets: list[int]) -> LoggedRows:
    """Rows without slopes or multipliers of sides."""
    n, none = len(targets), np.zeros(0, np.int32)
    zeros = np.zeros(n, np.int64)
    own = Digest(zeros, none, zeros, none, none.astype(np.uint8), zeros, none, np.zeros(0))
    return LoggedRows(first, np.array(targets), np.ones(n), np.zeros(n), np.arange(1.0, n + 1), np.zeros(n), own)


def test_what_no_leaf_rests_on_is_left_out() -> None:
    """Two rows of which one is needed, a step that nobody needs, and a split whose first part is closed without it."""
    log, aim = Log((3,)), Aim(np.full(3, 0.5), np.zeros(3), np.ones(1))
    none = np.zeros(0, np.int64)
    first = log.add(np.array([0]), none)  # a halfspace
    rows = log.add(np.array([1, 1]), np.array([first, first]))  # which two rows use
    idle = log.add(np.array([1]), np.array([rows + 1]))  # a second step, whose halfspace uses the second row
    log.root.steps = [Step(first, aim, [rows_at(rows, [0, 1])]), Step(idle, aim)]
    parts = [Node(), Node()]
    for node in parts:
        log.root.splits.append(log.add(np.array([0]), none))
        closer = log.add(np.array([1]), np.array([rows]))
        node.steps, node.closers = [Step(closer, aim)], [closer]
    log.root.neuron, log.root.children = 2, parts
    tree = log.pack(False, 1)
    assert tree.layer.tolist() == [0] and tree.steps.tolist() == [2] and tree.uses.tolist() == [1, 0]
    assert tree.target.tolist() == [0] and tree.lam.tolist() == [1.0]


def test_a_split_that_a_leaf_rests_on_stays() -> None:
    log, aim = Log((3,)), Aim(np.full(3, 0.5), np.zeros(3), np.ones(1))
    none = np.zeros(0, np.int64)
    parts = [Node(), Node()]
    for node in parts:
        log.root.splits.append(log.add(np.array([0]), none))
        closer = log.add(np.array([1]), np.array([log.root.splits[-1]]))
        node.steps, node.closers = [Step(closer, aim)], [closer]
    log.root.neuron, log.root.children = 2, parts
    tree = log.pack(False, 1)
    assert tree.layer.tolist() == [1, 0, 0] and tree.neuron.tolist() == [2, 0, 0]


def test_box_trees_with_weights_in_the_stand_alone_checker(tmp_path: Path) -> None:
    accepted = 0
    for seed in (0, 2, 3, 5):
        net, x = network_of(seed, [3, 8, 8, 3])
        weights = np.random.default_rng(seed).uniform(0.3, 3, 3)
        domain = (x - 2, x + 1) if seed % 2 else None
        r = lc.verify(net, x, 0.1, "linf", method="input-split", weights=weights, domain=domain, certificate=True)
        if r.certificate is None or not isinstance(r.certificate.trees[0], BoxTree):
            continue
        net.save(tmp_path / "n.npz")
        r.certificate.save(tmp_path / "c.npz")
        files = [str(tmp_path / "c.npz"), str(tmp_path / "n.npz")]
        assert check(net, r.certificate).ok and alone.main(files) == 0
        wider = replace(r.certificate, radius=40 * r.certificate.radius)
        wider.save(tmp_path / "c.npz")
        assert not check(net, wider).ok and alone.main(files) == 1
        accepted += 1
    assert accepted >= 2


@pytest.mark.parametrize("weight", [1e-60, 1e60])
def test_weights_of_any_size_in_the_stand_alone_checker(weight: float, tmp_path: Path) -> None:
    """Its floats have margins for weights up to 1e50; whole numbers need none, but units as small as the inverse."""
    net, x = network_of(2, [3, 8, 3])
    proof = lc.measure(net, x, "l2", weights=[weight] * 3, certificate=True).certificate
    assert proof is not None and proof.radius > 0 and all(check(net, proof, exact).ok for exact in (False, True))
    net.save(tmp_path / "n.npz")
    proof.save(tmp_path / "c.npz")
    files = [str(tmp_path / "c.npz"), str(tmp_path / "n.npz")]
    assert alone.main(files) == 1 and alone.main([*files, "--exact"]) == 0


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_max_pooling_leaves_a_proof(norm: str, no_second_search: None, tmp_path: Path) -> None:
    """Leaves that few steps of an ascent do not close: the search's last halfspace does, or more steps. In l_2 the root
    has no rows that count if neurons whose range is nothing but rounding can move it (doubt.py): no proof in 20 s."""
    bench = lc.radiusbench()
    row = next(r for r in bench.rows if r.network == "digits_cnn_pool" and r.input == 0)
    net, x = bench.network(row.network), bench.x(row)
    r = lc.measure(net, x, norm, domain=(0, 1), certificate=True)
    assert r.status == "exact" and r.certificate is not None and r.certificate.leaves < 50
    assert check(net, r.certificate).ok
    net.save(tmp_path / "network.npz")
    r.certificate.save(tmp_path / "proof.npz")
    files = [str(tmp_path / "proof.npz"), str(tmp_path / "network.npz")]
    assert alone.main(files) == 0
    replace(r.certificate, radius=r.upper * 1.001).save(tmp_path / "proof.npz")
    assert alone.main(files) == 1


def test_inputs_that_stay_fixed_leave_a_proof_behind_max_pooling(no_second_search: None) -> None:
    """Neurons that carry an output on are on at the start. Without interval arithmetic there is no proof in 4 s."""
    bench = lc.radiusbench()
    row = next(r for r in bench.rows if r.network == "digits_cnn_pool" and r.input == 0)
    net, x = bench.network(row.network), bench.x(row)
    r = lc.measure(net, x, "l2", domain=(0, 1), fixed=list(range(0, 64, 2)), certificate=True)
    assert r.status == "exact" and r.certificate is not None and r.certificate.leaves < 50
    assert check(net, r.certificate).ok


def test_a_node_that_was_closed_for_the_proof_is_not_split() -> None:
    """The ball of the search is larger: it splits what reaches far enough for us."""
    own = Halfspace(np.zeros(2), np.zeros(2), np.ones(1))
    for bound, closes in ((0.9, False), (1.0, True), (1.5, True)):
        goals = goals_of(Plan(owns=[own], bound=bound, entry=bound, neuron=0, children=(1, 2)), 1.0, own)
        assert [goal.closes for goal in goals] == [False, True][: 1 + closes]
    assert [goal.closes for goal in goals_of(Plan(owns=[own], bound=0.9), 1.0, own)] == [True]


def test_a_certificate_has_half_a_second_whatever_the_limit() -> None:
    assert deadline_of_proof(None) is None
    for limit, seconds in ((0.01, 0.5), (3.0, 3.0)):
        end = deadline_of_proof(limit)
        assert end is not None and end - clock.now() == pytest.approx(seconds, abs=0.1)


@pytest.mark.parametrize("doubtful", [False, True])
def test_only_a_proof_in_doubt_is_tried_on_the_checker(doubtful: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    begin = Doubt.__init__

    def doubting(self: Doubt, floats: StepFloats) -> None:
        begin(self, floats)
        self.any = self.any or doubtful

    def trial(*args: Any) -> Any:
        tried.append(args)
        return check(*args)

    monkeypatch.setattr(sys.modules["layercert.certify.prove"], "check", trial)
    monkeypatch.setattr(Doubt, "__init__", doubting)
    net, x = network_of(3, [5, 14, 12, 3])
    r = lc.measure(net, x, "l2", method="adaptive", certificate=True)
    assert r.certificate is not None and check(net, r.certificate).ok
    assert bool(tried) == doubtful


def test_a_neuron_beside_zero_is_a_doubt() -> None:
    """z = 0 everywhere: whether it is on, off or open is for the checker's rounding to say."""
    weights = [np.array([[1.0], [0.0]]), np.array([[1.0, 1.0], [-1.0, 0.0]])]
    net = Network.from_arrays(weights, [np.zeros(2), np.array([0.0, 1.0])])
    problem = robustness(net, np.array([2.0]), "linf", radius=1.0)
    setting = Setting(net, problem.x, math.inf, 1.0, None)
    assert Doubt(StepFloats(setting, 2.0)).any


def banded(rng: np.random.Generator) -> tuple[Network, Network]:
    """A network of two bands of weights, as convolutions have, sparse and dense."""
    bands = [np.triu(np.tril(rng.normal(size=(60, 60)), 3), -3) for _ in range(2)]
    last, biases = rng.normal(size=(3, 60)) * 0.2, [rng.normal(size=n) * 0.3 for n in (60, 60, 3)]
    sparse = Network((*map(csr_array, bands), last), tuple(biases))
    return sparse, Network.from_arrays([*bands, last], biases)


def test_weights_on_sparse_layers_are_divided_as_on_dense_ones() -> None:
    rng = np.random.default_rng(1)
    x, weights = rng.uniform(size=60), rng.uniform(0.3, 3.0, 60)
    plain = []
    for net in banded(rng):
        asked = robustness(net, x, "l2", label=0, radius=0.1, domain=(0, 1), weights=weights)
        plain.append(without_weights(asked))
    sparse, dense = plain
    assert sparse.network.is_sparse and not dense.network.is_sparse
    assert (sparse.network.maps[0].toarray() == dense.network.maps[0]).all()
    np.testing.assert_allclose(sparse.network.biases[0], dense.network.biases[0], rtol=1e-12)
    for a, b in zip(sparse.clauses, dense.clauses, strict=True):
        assert (a.d > 0).all()  # what dividing rounds off is added
        np.testing.assert_allclose(a.d, b.d, rtol=1e-9)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_weights_on_networks_that_do_not_fit_dense(norm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    net, dense = banded(rng)
    x, weights = rng.uniform(size=60), rng.uniform(0.3, 3.0, 60)
    far = lc.measure(dense, x, norm, domain=(0, 1), weights=weights, time_limit=5).upper
    monkeypatch.setattr(network_module, "DENSE_BYTES", 1000)
    assert not net.fits_dense
    r = lc.verify(net, x, 0.2 * far, norm, domain=(0, 1), weights=weights, certificate=True)
    assert r.status == "robust" and r.certificate is not None, r.note
    assert check(net, r.certificate).ok
    pytest.importorskip("flint", reason="python-flint is not installed; run: pip install 'layercert[exact]'")
    for exact in (False, True):
        assert check(net, r.certificate, exact=exact).ok
        assert not check(net, replace(r.certificate, radius=far * 1.01), exact=exact).ok
        assert not check(net, replace(r.certificate, weights=weights * 0.1), exact=exact).ok
    net.save(tmp_path / "network.npz")
    r.certificate.save(tmp_path / "proof.npz")
    files = [str(tmp_path / "proof.npz"), str(tmp_path / "network.npz")]
    assert alone.main(files) == 0 and alone.main([*files, "--exact"]) == 0


def test_a_distance_beyond_the_horizon_is_proved_in_full() -> None:
    """The big-M model knows the whole ball of the witness, which a search without a radius does not look at."""
    network = Network.from_arrays([[[1.0], [-1.0]], [[-1.0, 1.0], [0.0, 0.0]]], [[0.0, 0.0], [1e8, 0.0]])
    result = lc.measure(network, [0.5], method="mip", certificate=True)
    assert result.status == "exact" and result.certificate is not None
    assert check(network, result.certificate).lower >= 1e8 * (1.0 - 5e-6)
