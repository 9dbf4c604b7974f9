"""Sparse layers and large networks: the same network however it is stored, sound bounds, memory, whole models."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from scipy.sparse import csr_array

import layercert as lc
from helpers.brute import brute_force
from helpers.onnx_models import build
from helpers.profiles import examples
from helpers.tiny import degenerate, generic, seeds
from layercert import linear_maps
from layercert import network as network_module
from layercert.batch.store import network_bytes, network_from
from layercert.bounds.sparse import SparseRelaxation
from layercert.cli import main
from layercert.errors import ModelError
from layercert.io import load
from layercert.network import Network
from layercert.problem import Problem
from layercert.programs.stacks import make_chain
from layercert.search.events import Bound, Improve
from layercert.search.large import large
from layercert.search.task import Task


def stored_sparse(network: Network) -> Network:
    """The same network with every layer sparse, small as it is."""
    maps = [csr_array(W) for W in network.weights]
    return replace(network, maps=tuple(maps))


def convolutions(size: int, seed: int = 0) -> onnx.ModelProto:
    """A classifier of images with two strided convolutions."""
    rng = np.random.default_rng(seed)
    model = build(
        "a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, W, b); r = Relu(a);"
        "c = Conv<strides=[2,2], pads=[1,1,1,1]>(r, V, d); s = Relu(c); f = Flatten(s); y = Gemm<transB=1>(f, F, g)",
        (1, 1, size, size),
        W=(rng.normal(size=(4, 1, 4, 4)) / 4).astype(np.float32), b=(4,),
        V=(rng.normal(size=(8, 4, 4, 4)) / 8).astype(np.float32), d=(8,),
        F=(rng.normal(size=(10, 8 * (size // 4) ** 2)) / 10).astype(np.float32), g=(10,),
    )  # fmt: skip
    return model


# The same network, however it is stored.


@given(seed=seeds)
def test_sparse_layers_are_the_same_network(seed: int) -> None:
    dense = generic(seed).network
    sparse = stored_sparse(dense)
    assert sparse.is_sparse and sparse.fits_dense and not dense.is_sparse
    assert sparse.sha256 == dense.sha256
    X = np.random.default_rng(seed).normal(size=(3, dense.inputs))
    np.testing.assert_allclose(sparse(X), dense(X), rtol=1e-12, atol=1e-12)
    x = X[0]
    assert sparse.exact(x) == dense.exact(x)
    for mine, theirs in zip(sparse.pattern(x), dense.pattern(x), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    signs = dense.pattern(x)
    for piece in (sparse.linear_piece(signs), sparse._piece_from_the_end(signs)):
        for mine, theirs in zip(piece, dense.linear_piece(signs), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    exact = dense.exact(x)
    error = np.array(
        [float(abs(Fraction(mine) - theirs)) for mine, theirs in zip(sparse(x).tolist(), exact, strict=True)]
    )
    assert (error <= sparse.forward_error(x)).all() and (
        sparse.forward_error(x) <= dense.forward_error(x) * (1 + 1e-9)
    ).all()
    assert (sparse.float32_error(x) <= dense.float32_error(x) * (1 + 1e-9)).all()


def test_a_pickled_network_leaves_its_dense_copy_behind() -> None:
    net = stored_sparse(generic(5).network)
    assert net.weights and "weights" in vars(net)
    again = pickle.loads(pickle.dumps(net))
    assert again.is_sparse and "weights" not in vars(again) and again.sha256 == net.sha256


def test_only_large_matrices_of_few_entries_stay_sparse() -> None:
    n = math.isqrt(linear_maps.SPARSE_PLACES)
    bias = np.zeros(n + 1)
    eye = csr_array((np.ones(n + 1), (np.arange(n + 1), np.arange(n + 1))))
    assert Network.from_arrays([eye], [bias]).is_sparse
    assert not Network.from_arrays([eye[:n, :n]], [bias[:n]]).is_sparse  # not large
    half = csr_array(np.tile([1.0, 0.0], (n + 1, (n + 1) // 2 + 1)))
    assert not Network.from_arrays([half], [bias]).is_sparse  # not few
    net = Network.from_arrays([eye], [bias])
    with pytest.raises(ValueError, match="read-only"):
        net.maps[0].data[0] = 2.0


def test_sparse_matrices_are_checked_at_the_door() -> None:
    bad = csr_array(np.array([[0.0, 1.0], [0.0, np.nan]]))
    with pytest.raises(ModelError, match=r"weights\[0\] holds nan at \(1, 1\); weights must be finite numbers"):
        Network.from_arrays([bad], [np.zeros(2)])
    with pytest.raises(ModelError, match=r"weights\[0\] must be a non-empty matrix"):
        Network.from_arrays([csr_array((0, 2))], [np.zeros(0)])
    twice = csr_array((np.ones(2), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    np.testing.assert_array_equal(Network.from_arrays([twice], [np.zeros(1)]).weights[0], [[2.0]])


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks count as large: sparse layers stay sparse, and none fits as a dense matrix."""
    monkeypatch.setattr(linear_maps, "SPARSE_PLACES", 0)
    monkeypatch.setattr(linear_maps, "SPARSE_PART", 2.0)
    monkeypatch.setattr(network_module, "DENSE_BYTES", 0)


def test_sparse_layers_in_files_and_in_batches(tmp_path: Path, everything_is_large: None) -> None:
    net = stored_sparse(generic(3).network)
    net.save(tmp_path / "net.npz")
    for again in (load(tmp_path / "net.npz"), network_from(network_bytes(net))):
        assert again.is_sparse and again.sha256 == net.sha256
    parts = dict(np.load(tmp_path / "net.npz"))
    for change, message in [
        ({"W0_data": None}, "W0 lacks W0_data; a sparse matrix has the parts data, indices, indptr, shape"),
        ({"W0": np.ones((2, 2))}, "W0 is there twice, whole and in parts"),
        ({"W0_indices": parts["W0_indices"] + 99}, "W0 is not a sparse matrix"),
        ({"W0_indptr": parts["W0_indptr"].astype(float)}, "W0 is not a sparse matrix: indices, indptr and shape must"),
    ]:
        np.savez(tmp_path / "bad.npz", **{k: v for k, v in (parts | change).items() if v is not None})
        with pytest.raises(ModelError, match=message):
            load(tmp_path / "bad.npz")


def test_what_needs_dense_layers_says_so(everything_is_large: None) -> None:
    net = stored_sparse(generic(3).network)
    x = np.zeros(net.inputs)
    with pytest.raises(ModelError, match=r"layer \d is sparse, .* MiB as a dense matrix, which this needs .*'large'"):
        lc.measure(net, x, method="geocert")
    result = lc.measure(net, x)
    assert 0 < result.lower <= result.upper


def test_linear_pieces_are_closed_without_dense_layers(everything_is_large: None) -> None:
    """Nodes without open neurons end searches: the radius is that of the same network with dense layers."""
    compared = 0
    for seed in range(40):
        problem = generic(seed)
        dense = lc.measure(problem.network, problem.x, label=problem.label, domain=problem.domain)
        net = stored_sparse(problem.network)
        assert not net.fits_dense
        result = lc.measure(net, problem.x, label=problem.label, domain=problem.domain, certificate=True)
        assert result.status == dense.status
        assert result.certificate is not None and lc.check(net, result.certificate).ok
        if math.isfinite(dense.upper):
            assert result.upper == pytest.approx(dense.upper, rel=2e-6)
            compared += result.upper > 0
    assert compared >= 5


# Bounds are theorems.


def as_sparse(problem: Problem) -> Problem:
    return replace(problem, network=stored_sparse(problem.network))


@examples(60)
@given(seed=seeds)
def test_bounds_of_every_layer_hold(seed: int) -> None:
    """At random points of the ball (corners included) every pre-activation lies between its bounds."""
    problem = as_sparse(generic(seed))
    rng = np.random.default_rng(seed)
    r = float(rng.choice([0.01, 0.3, 2.0]))
    relaxation = SparseRelaxation(problem, r)
    assert list(relaxation.build())[-1] == problem.network.L - 1
    for _ in range(40):
        direction = rng.normal(size=problem.network.inputs)
        w = direction * r / problem.norm.value(direction) * rng.choice([1.0, rng.random()])
        v = problem.into_domain(problem.x + w)
        if problem.distance(v) > r:
            continue
        for z, layer in zip(problem.network.preactivations(v), relaxation.layers, strict=True):
            room = 1e-13 * (1.0 + np.abs(z))  # of this forward pass
            assert (z >= layer.lines.lo - room).all() and (z <= layer.lines.hi + room).all()


@examples(40)
@given(seed=seeds)
def test_linear_bounds_hold_in_exact_arithmetic(seed: int) -> None:
    """Where all classes share a large term, rounding errors are as large as the margins: bounds must count them."""
    problem = generic(seed)
    rng = np.random.default_rng(seed)
    *hidden, last = problem.network.weights
    shared = 10.0 ** rng.integers(6, 15) * rng.normal(size=last.shape[1])
    network = stored_sparse(Network.from_arrays([*hidden, last + shared], problem.network.biases))
    problem = replace(problem, network=network)
    r = float(rng.choice([0.3, 1e-9]))  # in the small ball nothing is relaxed: only rounding is left
    relaxation = SparseRelaxation(problem, r)
    list(relaxation.build())
    for clause in problem.clauses:
        for fast_lin in (False, True):
            G, s = relaxation.lower(clause, fast_lin)
            for _ in range(4):
                direction = rng.normal(size=network.inputs)
                v = problem.into_domain(problem.x + direction * 0.99 * r / problem.norm.value(direction))
                w = [Fraction(a) - Fraction(b) for a, b in zip(v.tolist(), problem.x.tolist(), strict=True)]
                f = network.exact(v)
                for row, offset, C, d in zip(G, s, clause.C, clause.d, strict=True):
                    bound = sum((Fraction(float(g)) * e for g, e in zip(row, w, strict=True)), Fraction(float(offset)))
                    value = sum((Fraction(float(c)) * e for c, e in zip(C, f, strict=True)), -Fraction(float(d)))
                    assert bound <= value


@examples(40)
@given(seed=seeds)
def test_the_search_is_sound_on_generic_and_degenerate_networks(seed: int) -> None:
    for family in (generic, degenerate):
        problem = as_sparse(family(seed))
        if problem.is_unsafe(problem.x):
            continue
        distance, _ = brute_force(replace(problem, network=family(seed).network))
        task = Task(problem, make_chain("default", problem.norm))
        for event in large(task):
            if isinstance(event, Bound):
                assert event.lower <= distance * (1 + 1e-7)
            elif isinstance(event, Improve):
                assert problem.margin(problem.into_domain(problem.x + event.step)) <= 1e-9  # up to rounding
                assert event.distance >= distance * (1 - 1e-7)


@examples(15)
@given(seed=seeds)
def test_the_default_method_stays_exact_on_sparse_layers(seed: int) -> None:
    problem = generic(seed)
    args = (problem.x, problem.norm.p, None, None, problem.domain)
    dense, sparse = lc.measure(problem.network, *args), lc.measure(stored_sparse(problem.network), *args)
    assert dense.status == sparse.status
    assert sparse.upper == pytest.approx(dense.upper, rel=2e-6) or math.isinf(dense.upper)


# Whole models.


@pytest.fixture(scope="module")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "conv.onnx"
    onnx.save(convolutions(28), path)
    return path


def test_a_convolutional_network_of_digits_end_to_end(image_model: Path) -> None:
    """1 x 28 x 28 -> 4 x 14 x 14 -> 8 x 7 x 7 -> 10: exact distance, certificate, checker."""
    net = lc.load(image_model)
    assert (net.inputs, net.widths, net.classes, net.input_shape) == (784, (784, 392), 10, (1, 1, 28, 28))
    x = np.random.default_rng(1).random(784)
    result = lc.measure(net, x, "linf", domain=(0, 1))
    assert result.status == "exact" and result.holds is not None and result.holds.exact == "misclassified"
    bounds = lc.measure(net, x, "linf", domain=(0, 1), method="large")
    assert 0.5 * result.upper < bounds.lower <= result.upper * (1 + 1e-6) <= bounds.upper * (1 + 2e-6)
    proved = lc.verify(net, x, 0.5 * result.upper, "linf", domain=(0, 1), certificate=True)
    assert proved.status == "robust" and proved.certificate is not None
    report = lc.check(net, proved.certificate)
    assert report.ok and report.lower == pytest.approx(0.5 * result.upper, rel=1e-5)


def test_measure_on_a_convolutional_model_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiny one with pooling and a skip connection: the command's answer is exact."""
    model = build(
        "k = Conv<pads=[1,1,1,1]>(x, W, b); r = Relu(k); p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r);"
        "c = Conv<pads=[1,1,1,1]>(p, V); s = Add(c, p); t = Relu(s); f = Flatten(t); y = Gemm<transB=1>(f, F, g)",
        ("N", 1, 4, 4), W=(2, 1, 3, 3), b=(2,), V=(2, 2, 3, 3), F=(3, 8), g=(3,),
    )  # fmt: skip
    onnx.save(model, tmp_path / "tiny.onnx")
    X = np.random.default_rng(0).random((1, 16))
    np.save(tmp_path / "x.npy", X)
    code = main(["measure", str(tmp_path / "tiny.onnx"), "--input", str(tmp_path / "x.npy"), "--domain", "0", "1"])
    out = capsys.readouterr().out
    assert code == 0 and "exact" in out
    net = lc.load(tmp_path / "tiny.onnx")
    mip = lc.measure(net, X[0], "linf", domain=(0, 1), method="mip", time_limit=30)
    mine = lc.measure(net, X[0], "linf", domain=(0, 1))
    assert mine.status == "exact" and mip.lower * (1 - 1e-5) <= mine.upper <= mip.upper * (1 + 1e-5)


CIFAR = """
import sys
import numpy as np
import layercert as lc
from layercert.system import clock

net = lc.load(sys.argv[1])
assert net.is_sparse and not net.fits_dense, net
x = np.random.default_rng(0).random(net.inputs)
np.testing.assert_allclose(net(x), net.runtime(x), rtol=1e-4, atol=1e-5)
near, far = lc.verify(net, x, 1e-4, domain=(0, 1)), lc.verify(net, x, 0.1, domain=(0, 1))
assert near.status == "robust", near
assert far.status == "not_robust" and far.upper <= 0.1, far
with clock.of_processor():
    found = lc.measure(net, x, domain=(0, 1), time_limit=10)
assert 1e-4 <= found.lower <= found.upper <= 0.1, found
assert found.status in ("exact", "undecided"), found
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
assert int(peak.split()[1]) < 1.0e6, peak  # kilobytes, of this process alone
"""


def test_a_network_for_cifar_needs_no_gigabytes(tmp_path: Path) -> None:
    """3 x 32 x 32 -> 16 x 32 x 32 -> 16 x 16 x 16 -> 10: dense matrices would take 940 MB before any work."""
    rng = np.random.default_rng(0)
    model = build(
        "a = Conv<pads=[1,1,1,1]>(x, W, b); r = Relu(a); c = Conv<strides=[2,2], pads=[1,1,1,1]>(r, V, d); s = Relu(c);"
        "f = Flatten(s); y = Gemm<transB=1>(f, F, g)",
        (1, 3, 32, 32),
        W=(rng.normal(size=(16, 3, 3, 3)) / 5).astype(np.float32), b=(16,),
        V=(rng.normal(size=(16, 16, 3, 3)) / 12).astype(np.float32), d=(16,),
        F=(rng.normal(size=(10, 4096)) / 64).astype(np.float32), g=(10,),
    )  # fmt: skip
    onnx.save(model, tmp_path / "cifar.onnx")
    # the child reads its own peak: what getrusage tells of children counts this process's pages, from before `exec`
    subprocess.run([sys.executable, "-c", CIFAR, str(tmp_path / "cifar.onnx")], check=True, timeout=300)
