"""The stand-alone checker: one short file that imports nothing of the package, and agrees with the package's own."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.standalone import SCRIPT, alone, around
from layercert.certificate.checker import check
from layercert.certificate.claim import BoxTree, Certificate, load_certificate
from layercert.certificate.steps import NAMES, StepTree
from layercert.errors import InputError
from layercert.network import Network


def network_of(rng: np.random.Generator, sizes: list[int]) -> Network:
    weights = [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    return Network.from_arrays(weights, [rng.normal(size=m) * 0.5 for m in sizes[1:]])


def code_of(network: Network, certificate: Certificate, folder: Path, exact: bool = False) -> int:
    network.save(folder / "network.npz")
    certificate.save(folder / "proof.npz")
    arguments = [str(folder / "proof.npz"), str(folder / "network.npz")]
    return int(alone.main([*arguments, "--exact"] if exact else arguments))


def test_it_is_short_and_uses_numpy_alone() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 500
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        )
    }  # fmt: skip
    assert imported == {"hashlib", "json", "math", "sys", "zipfile", "decimal", "fractions", "numpy"}


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 3])
def test_both_checkers_accept_the_same_certificates(norm: Any, tmp_path: Path) -> None:
    """Fifteen random questions per norm: with and without a domain, weights, a target, a radius."""
    accepted = 0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [[4, 6, 3], [3, 6, 5, 3], [5, 8, 6, 4, 2], [3, 2], [4, 5, 1]][seed % 5])
        x = rng.uniform(-1, 1, net.inputs)
        options: dict[str, Any] = {}
        if seed % 3 == 1:
            options["domain"] = (x - rng.random(net.inputs) * 0.5, x + rng.random(net.inputs))
        if seed % 7 == 2:
            options["weights"] = rng.uniform(0.5, 2.0, net.inputs)
        if seed % 11 == 3:
            options["radius"] = 0.05
        if seed % 13 == 4:
            options["fixed"] = [0]
        if seed % 5 == 0:
            options["target"] = (int(net.classifier.classify(x)) + 1) % net.classifier.classes
        r = lc.measure(net, x, norm, method="adaptive", certificate=True, **options)
        assert r.certificate is not None, r.note
        assert check(net, r.certificate).ok
        assert code_of(net, r.certificate, tmp_path) == 0
        accepted += 1
    assert accepted == 15


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", 1.5])
def test_rationals_agree(norm: Any, tmp_path: Path) -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        net = network_of(rng, [2, 3, 2, 2])
        x = rng.uniform(-1, 1, 2)
        domain = (x - 0.6, x + 0.4) if seed else None
        r = lc.measure(net, x, norm, domain=domain, method="adaptive", certificate=True)
        assert r.certificate is not None
        assert code_of(net, r.certificate, tmp_path, exact=True) == 0
        false = replace(r.certificate, radius=r.certificate.radius * 1.01)
        if math.isfinite(r.certificate.upper):
            assert code_of(net, false, tmp_path, exact=True) == 1


def test_box_trees_are_checked_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    net = network_of(rng, [2, 6, 5, 3])
    x = rng.uniform(-1, 1, 2)
    for target in (None, 2):
        radius = 0.1 * lc.measure(net, x, target=target).upper
        r = lc.verify(net, x, radius, method="input-split", certificate=True, target=target)
        assert r.status == "robust" and r.certificate is not None
        assert not any(isinstance(tree, StepTree) for tree in r.certificate.trees)
        assert code_of(net, r.certificate, tmp_path) == 0
        far = lc.measure(net, x, target=target)
        assert code_of(net, replace(r.certificate, radius=far.upper * 1.01), tmp_path) == 1


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_where_x_itself_is_the_witness_its_distance_is_zero(norm: str, tmp_path: Path, capsys: Any) -> None:
    """It was told as -0."""
    net = network_of(np.random.default_rng(0), [2, 4, 3])
    x = np.array([1.0, 0.0])
    result = lc.measure(net, x, norm, label=(net.classify(x) + 1) % 3, certificate=True)
    assert result.certificate is not None and result.upper == 0.0
    assert code_of(net, result.certificate, tmp_path) == 0
    assert "lies at distance 0 (" in capsys.readouterr().out


@pytest.fixture(scope="module")
def real() -> tuple[Network, Certificate]:
    rng = np.random.default_rng(28)
    net = network_of(rng, [4, 8, 8, 3])
    r = lc.measure(net, rng.uniform(-1, 1, 4), "l2", certificate=True)
    assert r.status == "exact" and r.certificate is not None and r.certificate.leaves > 2
    return net, r.certificate


def test_both_checkers_refuse_the_same_mutants(real: tuple[Network, Certificate], tmp_path: Path) -> None:
    """Numbers of the proof changed at random: what one accepts the other accepts, but for leaves closed by a hair."""
    net, certificate = real
    rng = np.random.default_rng(0)
    accepted = refused = 0
    for _ in range(120):
        i = int(rng.integers(len(certificate.trees)))
        tree = certificate.trees[i]
        name = str(rng.choice([*NAMES, "limit"]))
        array = np.array(getattr(tree, name))
        if not array.size:
            continue
        odd = [0, 1, -1, 2, 200, 10**4] if array.dtype.kind in "iu" else [0.0, 1.0, -1.0, 0.5, 1e29, math.nan, math.inf]
        with np.errstate(all="ignore"):
            array.reshape(-1)[int(rng.integers(array.size))] = np.array(rng.choice(odd)).astype(array.dtype)
        mutant = replace(
            certificate, trees=(*certificate.trees[:i], replace(tree, **{name: array}), *certificate.trees[i + 1 :])
        )
        ok = check(net, mutant).ok
        code = code_of(net, mutant, tmp_path)
        assert (code == 0) == ok, (name, code, check(net, mutant))
        accepted, refused = accepted + ok, refused + (not ok)
    assert accepted > 10 and refused > 10


def test_false_claims_are_refused(real: tuple[Network, Certificate], tmp_path: Path, capsys: Any) -> None:
    net, certificate = real
    assert certificate.witness is not None
    other = Network.from_arrays([-W for W in net.weights], net.biases)
    claims: dict[str, tuple[Network, Certificate]] = {
        "another network": (other, certificate),
        "leaf": (net, replace(certificate, radius=certificate.upper * (1 + 1e-9))),
        "not unsafe": (net, replace(certificate, witness=certificate.x)),
        "at distance": (net, replace(certificate, upper=certificate.upper * 1.001)),
        "a class is left out": (
            net,
            replace(certificate, clauses=certificate.clauses[:1], trees=certificate.trees[:1]),
        ),
        "names no other class|left out|another one": (net, replace(certificate, label=(certificate.label or 0) + 1)),
        "does not fit": (net, replace(certificate, witness=certificate.witness[:-1])),
    }
    for reason, (network, claim) in claims.items():
        assert code_of(network, claim, tmp_path) == 1, reason
        said = capsys.readouterr().err
        assert any(part in said for part in reason.split("|")), said


def test_the_witness_of_a_class_that_is_not_asked_for_is_refused(tmp_path: Path, capsys: Any) -> None:
    """A claim about fewer classes than there are clauses: a point of another class says nothing about these."""
    net, x = network_of(np.random.default_rng(2), [2, 6, 4]), np.array([0.3, -0.2])
    classes = [k for k in range(4) if k != int(net(x).argmax())]
    result = lc.measure(net, x, target=classes, domain=(-2, 2), certificate=True)
    certificate = result.certificate
    assert certificate is not None and certificate.witness is not None
    assert check(net, certificate).ok and code_of(net, certificate, tmp_path) == 0
    forged = replace(certificate, asked=tuple(k for k in classes if k != result.target))
    for exact in (False, True):
        report = check(net, forged, exact)
        assert not report.ok and "which is not asked for" in report.reason
        assert code_of(net, forged, tmp_path, exact) == 1
        assert "not asked for" in capsys.readouterr().err


def test_bounds_of_one_clause_do_not_leak_into_the_next(tmp_path: Path) -> None:
    """A clause that is true next to x, after one that is easily excluded: it must not be excluded by its bounds."""
    net = Network.from_arrays([[[1.0], [-1.0]], [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]], [[0.0, 0.0], [1.0, 0.0, 0.9]])
    r = lc.measure(net, [0.2], radius=0.05, certificate=True)
    assert r.certificate is not None and code_of(net, r.certificate, tmp_path) == 0
    low = Network.from_arrays([[[1.0], [-1.0]], [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]], [[0.0, 0.0], [0.0, -5.0, 0.1]])
    s = lc.measure(low, [0.2], certificate=True)
    assert s.certificate is not None and s.upper == pytest.approx(0.1) and code_of(low, s.certificate, tmp_path) == 0
    assert code_of(low, replace(s.certificate, radius=0.11), tmp_path) == 1


@pytest.mark.parametrize("hostile", ["empty", "text", "bomb", "pickle", "twice", "no header"])
def test_hostile_files_are_not_readable(
    hostile: str, tmp_path: Path, real: tuple[Network, Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    net, certificate = real
    net.save(tmp_path / "network.npz")
    path = tmp_path / "proof.npz"
    if hostile == "empty":
        path.write_bytes(b"")
    elif hostile == "text":
        path.write_text("not a zip")
    elif hostile == "bomb":
        monkeypatch.setattr(alone, "BYTES", 1 << 20)
        np.savez_compressed(path, x=np.zeros(1 << 18))
    elif hostile == "pickle":
        np.savez(path, header=np.array([object()], dtype=object), allow_pickle=True)
    elif hostile == "twice":
        certificate.save(path)
        with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", b"")
    else:
        np.savez(path, x=np.zeros(3))
    assert alone.main([str(path), str(tmp_path / "network.npz")]) == 2
    assert alone.main([str(path)]) == 2


def test_norms_are_bounded_from_above() -> None:
    rng = np.random.default_rng(0)
    for q in (Fraction(2), Fraction(3), Fraction(3, 2), Fraction(11, 10)):
        parts = rng.random((1, 5))
        bound = alone.norm(alone.units(parts, 80), q)[0]
        true = (parts ** float(q)).sum() ** (1 / float(q))
        assert true * (1 - 1e-12) <= bound / 2**80 <= true * (1 + 1e-12)
    whole = np.array([[9, 16], [3, 4], [0, 0], [0, 7]], dtype=object)
    assert alone.norm(whole, Fraction(2)).tolist() == [19, 5, 0, 7]  # the root of 337 is 18.36
    assert all(u**3 >= v for u, v in zip(alone.norm(whole, Fraction(3)), (9**3 + 16**3, 91, 0, 343), strict=True))


def test_a_neuron_that_is_zero_is_open_in_exact_arithmetic_too() -> None:
    """z_2 is zero everywhere. Multipliers of a proof are made where rounding leaves it open."""
    W = [np.array([[1.0]]), np.array([[0.0]]), np.array([[1.0], [0.0]])]
    b = [np.zeros(1), np.zeros(1), np.zeros(2)]
    x = np.ones(1)
    for exact in (False, True):
        proof = around(W, b, x, 2.0, 0.5, exact)
        low, high, _ = proof.known[:, 1]
        assert low < 0 < high
        assert proof.sides()[1] == 0


def test_exact_products_are_those_of_fractions() -> None:
    """Whole numbers of small units, zeros left out; numbers of many sizes, rows and columns of nothing."""
    rng = np.random.default_rng(4)
    A, W = (rng.normal(size=shape) * 10.0 ** rng.integers(-200, 200, shape) for shape in ((3, 5), (5, 4)))
    A[1], W[:, 2], A[0, 1], W[3, 0] = 0.0, 0.0, 0.0, 5e-324
    K = alone.fineness(A, W)
    fractions = [np.array([[Fraction(v) for v in row] for row in M], dtype=object) for M in (A, W)]
    units = [alone.units(M, K) for M in (A, W)]
    assert all((M == F * 2**K).all() for M, F in zip(units, fractions, strict=True))
    product = alone.times(units[0], alone.sparse(W, K))
    assert (product == fractions[0] @ fractions[1] * 4**K).all() and product[0].any() and not product[1].any()


def test_units_are_rounded_down() -> None:
    numbers = np.array([0.0, 1.0, -1.0, 1.75, -1.75, 1e-30, -1e-30, 5e-324, -5e-324, 1e300])
    assert alone.units(numbers, 1).tolist() == [0, 2, -2, 3, -4, 0, -1, 0, -1, 2 * int(1e300)]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_convolutions_are_checked_in_rationals(norm: Any, tmp_path: Path) -> None:
    """Two convolutions, 49 inputs; most weights are zero, and exact products leave zeros out."""
    rng = np.random.default_rng(2)
    first, second = convolution(rng, 7, 2, 3), convolution(rng, 5, 1, 3)
    maps = [first, np.hstack([second, -second]), rng.normal(size=(3, 9))]
    net = Network.from_arrays(maps, [rng.normal(size=len(m)) * 0.1 for m in maps])
    x = rng.uniform(0, 1, 49)
    radius = 0.5 * lc.measure(net, x, norm, domain=(0, 1), time_limit=20).upper
    r = lc.verify(net, x, radius, norm, domain=(0, 1), certificate=True)
    assert r.certificate is not None, r.note
    assert code_of(net, r.certificate, tmp_path, exact=True) == 0
    far = lc.measure(net, x, norm, domain=(0, 1), time_limit=20).upper * 1.01
    assert code_of(net, replace(r.certificate, radius=far), tmp_path, exact=True) == 1


def convolution(rng: np.random.Generator, size: int, channels: int, kernel: int) -> np.ndarray:
    """A valid convolution of a square picture as a matrix, one block of rows per channel."""
    out = size - kernel + 1
    blocks = []
    for _ in range(channels):
        weights = rng.normal(size=(kernel, kernel))
        for i, j in itertools.product(range(out), range(out)):
            row = np.zeros((size, size))
            row[i : i + kernel, j : j + kernel] = weights
            blocks.append(row.ravel())
    return np.array(blocks)


def test_boxes_that_interval_arithmetic_closes(tmp_path: Path) -> None:
    """A box of a million units whose second layer is off, since all its weights are negative: backward passes with the
    lower line z do not see it, however often the box is cut."""
    weights = [[[1.0, -0.9], [1.0, -0.8]], [[-1.0, -1.0]], [[-1.0], [1.0]]]
    net = Network.from_arrays(list(map(np.array, weights)), [np.zeros(2), np.array([-0.5]), np.array([1.0, 0.0])])
    x, domain = np.array([0.3, 0.2]), (np.zeros(2), np.full(2, math.inf))
    result = lc.measure(net, x, "linf", method="input-split", radius=1e6, domain=domain, certificate=True)
    assert result.certificate is not None and isinstance(result.certificate.trees[0], BoxTree)
    assert code_of(net, result.certificate, tmp_path) == code_of(net, result.certificate, tmp_path, exact=True) == 0


def test_boxes_that_no_row_of_a_clause_excludes_alone(tmp_path: Path) -> None:
    """One class against three others, and a box that only a mixture of the three excludes (as in the audit's case 78 of
    `ways`, seed 20261119): single rows and their mean left it open after ten cuts."""
    rng = np.random.default_rng(1)
    net = network_of(rng, [4, 8, 8, 4])
    result = lc.measure(net, rng.uniform(-1, 1, 4), "linf", target=2, method="input-split", certificate=True)
    assert result.status == "exact" and result.certificate is not None
    assert isinstance(result.certificate.trees[0], BoxTree)
    assert code_of(net, result.certificate, tmp_path) == code_of(net, result.certificate, tmp_path, exact=True) == 0
    assert code_of(net, replace(result.certificate, radius=result.upper * 1.0001), tmp_path) == 1


def test_neurons_that_are_off_cost_nothing(tmp_path: Path) -> None:
    """The margin is 1e-17, and neurons of size 1e-3 that are off on the box have no part in it: what rounding them
    could cost (the audit's case 170 of `checkers`, seed 314159) is not subtracted."""
    weights = [[[-1.0]], [[-1.0]], [[1.0], [-0.5]], [[0.0, -1.0], [2.0, -0.5]]]
    biases = [[5e-18], [5e-18], [2e-17, 2e-17], [0.0, -1e-17]]
    net = Network.from_arrays(list(map(np.array, weights)), list(map(np.array, biases)))
    result = lc.measure(net, np.array([-5e-18]), "linf", method="input-split", radius=6e-4, certificate=True)
    assert result.certificate is not None and isinstance(result.certificate.trees[0], BoxTree)
    assert code_of(net, result.certificate, tmp_path) == 0


@pytest.mark.parametrize(("name", "change"), [
    ("x", lambda a: a.astype(np.complex128)),
    ("C0", lambda a: a.astype("U5")),
    ("d0", lambda a: a.astype(bool)),
    ("d0", lambda a: a[None]),
    ("side0", lambda a: a.astype(np.float64)),
])  # fmt: skip
def test_arrays_of_other_types_are_refused_as_by_the_package(name: str, change: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    net = network_of(rng, [6, 10, 8, 3])
    proof = lc.measure(net, rng.uniform(-1, 1, 6), "linf", certificate=True).certificate
    assert proof is not None and code_of(net, proof, tmp_path) == 0
    with np.load(tmp_path / "proof.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "proof.npz", **{**arrays, name: change(arrays[name])})
    assert alone.main([str(tmp_path / "proof.npz"), str(tmp_path / "network.npz")]) != 0
    with contextlib.suppress(InputError):
        assert not check(net, load_certificate(tmp_path / "proof.npz")).ok
