"""Targets, weights and fixed inputs: every method against brute force, certificates in both arithmetics, messages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import layercert as lc
from helpers.brute import brute_force
from layercert.batch import open_store
from layercert.certificate.checker import check
from layercert.certificate.claim import load_certificate
from layercert.certificate.plain import without_weights
from layercert.cli import main
from layercert.errors import InputError, OptionError
from layercert.methods import METHODS
from layercert.network import Network
from layercert.norms import Norm, WeightedNorm
from layercert.problem import Problem, robustness
from layercert.run import How, closest, decide
from layercert.scaled import scaled

NORMS = ["l1", "l2", "linf", 3.0]


def random_network(seed: int, inputs: int = 3) -> Network:
    rng = np.random.default_rng(seed)
    sizes = (inputs, 4, 3, 3)
    return Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in pairwise(sizes)],
        [rng.normal(size=m) for m in sizes[1:]],
    )


def in_scaled_inputs(problem: Problem) -> Problem:
    """The same question without weights, up to rounding: what brute force can answer."""
    assert isinstance(problem.norm, WeightedNorm)
    w, network = problem.norm.weights, problem.network
    return replace(
        problem,
        network=Network.from_arrays([network.weights[0] / w, *network.weights[1:]], network.biases),
        x=problem.x * w,
        norm=Norm(problem.norm.p),
        domain=None if problem.domain is None else (problem.domain[0] * w, problem.domain[1] * w),
    )


def questions() -> list[tuple[Problem, float]]:
    """Some weighted problems, with targets, domains and fixed inputs here and there, and their distances."""
    found = []
    for seed, norm in enumerate(NORMS * 3):
        rng = np.random.default_rng(100 + seed)
        network, x = random_network(seed), rng.normal(size=3)
        weights = rng.choice([0.37, 1.0, 3.3, 17.0], size=3)  # 1/w and w * x are rounded
        domain = (x - rng.uniform(1, 4, size=3), x + rng.uniform(1, 4, size=3)) if seed % 2 else (-9.0, 9.0)
        target = [(network.classify(x) + 1) % 3] if seed % 3 == 0 else None
        fixed = [seed % 3] if seed % 4 == 1 else None
        problem = robustness(network, x, norm, domain=domain, target=target, weights=weights, fixed=fixed)
        found.append((problem, brute_force(in_scaled_inputs(problem))[0]))
    return found


QUESTIONS = questions()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_weighted_distance(method: str) -> None:
    for problem, true in QUESTIONS:
        if method == "mip" and problem.norm.p not in (1.0, math.inf):
            continue
        r = closest(problem, How(method))
        assert r.lower <= true * (1 + 1e-7) and r.upper >= true * (1 - 1e-7)
        if METHODS[method].complete:
            assert r.status == ("robust" if math.isinf(true) else "exact"), r
        if r.witness is not None:
            assert problem.is_unsafe(r.witness)
            assert problem.domain is not None
            assert ((problem.domain[0] <= r.witness) & (r.witness <= problem.domain[1])).all()
            assert decide(problem.within(r.lower * 0.999), How(method)).status != "not_robust"


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("weight", [1e-12, 1e-30])
def test_an_input_that_hardly_counts(norm: str, weight: float) -> None:
    """The first witness was looked for where rounding far away from x loosens every clause, and there was none."""
    rng = np.random.default_rng(1)
    network = lc.Network.from_arrays(
        [rng.normal(size=(6, 3)), rng.normal(size=(3, 6))], [rng.normal(size=6), rng.normal(size=3)]
    )
    r = lc.measure(network, rng.normal(size=3), norm, weights=[weight, 1, 1])
    assert r.status == "exact" and r.upper == pytest.approx(0.5099688 * weight, rel=1e-6)


def test_some_of_these_have_an_answer_and_some_need_a_fixed_input() -> None:
    distances = [true for _, true in QUESTIONS]
    assert sum(math.isfinite(d) for d in distances) >= 6
    assert any(p.domain is not None and (p.domain[0] == p.domain[1]).any() for p, _ in QUESTIONS)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
def test_the_length_of_a_witness_is_exact(norm: float) -> None:
    """As rationals: no float64 below it is a bound of ||w * (v - x)||_p, and it is one."""
    rng = np.random.default_rng(3)
    x, v, w = rng.normal(size=5), rng.normal(size=5), rng.uniform(0.1, 10, size=5)
    upper = WeightedNorm(norm, w).distance_up(x, v)
    moved = [Fraction(c) * abs(Fraction(b) - Fraction(a)) for a, b, c in zip(x, v, w, strict=True)]
    below = math.nextafter(upper, 0.0)
    if math.isinf(norm):
        assert Fraction(upper) >= max(moved) > Fraction(below)
    else:
        k = int(norm)
        assert Fraction(upper) ** k >= sum(m**k for m in moved) > Fraction(below) ** k


def unsafe_points(problem: Problem, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    box = problem.domain or (np.full(3, -9.0), np.full(3, 9.0))
    points = (problem.into_domain(problem.x + rng.normal(size=3) * rng.uniform(0, 6)) for _ in range(4000))
    inside = (v for v in points if ((box[0] <= v) & (v <= box[1])).all() and problem.is_unsafe(v))
    return [v for v, _ in zip(inside, range(count), strict=False)]


def test_scaling_loses_no_unsafe_point() -> None:
    """In rationals: what is unsafe stays unsafe in scaled inputs, inside their domain, at the same distance."""
    seen = 0
    for problem, _ in QUESTIONS:
        view = scaled(problem, 200.0)
        plain = without_weights(replace(problem, radius=200.0))
        assert isinstance(problem.norm, WeightedNorm)
        for v in unsafe_points(problem, 5):
            offset = [Fraction(b) - Fraction(a) for a, b in zip(problem.x, v, strict=True)]
            x = view.problem.x
            # the search's coordinates: u = x' + (v - x) / s; the checker's: u = w (v - x)
            found = (
                (view.problem, [Fraction(c) + o / Fraction(s) for c, o, s in zip(x, offset, view.scale, strict=True)]),
                (plain, [o * Fraction(w) for o, w in zip(offset, problem.norm.weights, strict=True)]),
            )
            for inner, u in found:
                f = inner.network.exact(u)
                assert any(max(clause.exact_margins(f)) <= 0 for clause in inner.clauses)
                assert inner.domain is not None
                assert all(
                    Fraction(a) <= b <= Fraction(c) for (a, c), b in zip(np.transpose(inner.domain), u, strict=True)
                )
            here = max(abs(o) * Fraction(w) for o, w in zip(offset, problem.norm.weights, strict=True))
            there = max(abs(a - Fraction(b)) for a, b in zip(found[0][1], view.problem.x, strict=True))
            assert abs(here - there) <= here * Fraction(view.slip)
            seen += 1
    assert seen >= 20


def test_powers_of_two_change_nothing() -> None:
    network, x, w = random_network(1), np.array([0.3, -0.2, 0.7]), np.array([0.25, 4.0, 1.0])
    problem = robustness(network, x, "l2", domain=(-2.0, 2.0), weights=w)
    view = scaled(problem, 10.0)
    assert view.slip == 0.0
    assert all((a.d == b.d).all() for a, b in zip(view.problem.clauses, problem.clauses, strict=True))
    assert (view.problem.network.weights[0] * w == network.weights[0]).all()
    assert lc.measure(network, x, "l2", weights=np.ones(3)).upper == lc.measure(network, x, "l2").upper


@pytest.mark.parametrize("exact", [False, True])
def test_certificates_carry_weights_and_targets(exact: bool, tmp_path: Path) -> None:
    proved = 0
    for problem, true in QUESTIONS:
        r = closest(problem, How(certificate=True))
        assert r.certificate is not None, r.note
        r.certificate.save(tmp_path / "proof.npz")
        again = load_certificate(tmp_path / "proof.npz")
        report = check(problem.network, again, exact)
        assert report.ok, report
        assert report.lower <= true * (1 + 1e-7) and report.upper >= true * (1 - 1e-7)
        assert report.lower >= 0.99 * min(true, problem.reach)
        assert "weighted" in report.sentence
        if problem.targets is not None:
            assert f"is given class {problem.targets[0]}" in report.sentence
        proved += 1
    assert proved == len(QUESTIONS)


def test_a_certificate_for_other_weights_or_targets_proves_nothing() -> None:
    network, x = random_network(2), np.array([0.3, -0.2, 0.7])
    y = network.classify(x)
    r = lc.measure(network, x, "l2", weights=[1.0, 3.0, 0.3], certificate=True)
    assert r.certificate is not None and check(network, r.certificate).ok
    heavier = replace(r.certificate, weights=np.array([1.0, 3.0, 0.03]))  # a larger ball than was proved
    assert not check(network, heavier).ok
    assert "weights" in check(network, replace(r.certificate, weights=np.array([1.0, -1.0, 1.0]))).reason
    aimed = lc.measure(network, x, "l2", target=(y + 1) % 3, certificate=True).certificate
    assert aimed is not None and check(network, aimed).ok
    assert "nothing is said" in check(network, replace(aimed, asked=(0, 1, 2))).reason
    assert "not f_" in check(network, replace(aimed, asked=None)).reason


def test_a_target_is_the_class_of_the_witness() -> None:
    network, x = random_network(0), np.array([0.1, 0.4, -0.3])
    y = network.classify(x)
    distances = {}
    for t in range(3):
        r = lc.measure(network, x, "l2", target=t, radius=50.0)
        distances[t] = r.upper
        if t == y:
            assert r.upper == 0.0 and r.note == f"the input is already classified as {y}"
        elif r.witness is not None:
            f = network.exact(r.witness)
            assert f[t] == max(f) and r.target == t
    nearest = lc.measure(network, x, "l2", radius=50.0).upper
    others = [t for t in range(3) if t != y]
    assert nearest == pytest.approx(min(distances[t] for t in others), rel=1e-6)
    both = lc.measure(network, x, "l2", target=others, radius=50.0)
    assert both.upper == pytest.approx(nearest, rel=1e-6)


def test_a_fixed_input_does_not_move() -> None:
    network, x = random_network(4), np.array([0.1, 0.4, -0.3])
    r = lc.measure(network, x, "l1", fixed=[1])
    assert r.witness is not None and r.witness[1] == x[1]
    assert r.upper >= lc.measure(network, x, "l1").upper
    r = lc.measure(network, x, "l1", fixed=np.array([True, True, True]))
    assert r.status == "robust" and "no unsafe point anywhere" in r.note


def test_columns_have_names(tmp_path: Path) -> None:
    network = replace(random_network(4), input_names=("age", "income", "debt"))
    x = np.array([0.1, 0.4, -0.3])
    by_name = lc.measure(network, x, "l1", fixed="income", weights={"debt": 4.0, 0: 0.5})
    by_position = lc.measure(network, x, "l1", fixed=[1], weights=[0.5, 1.0, 4.0])
    assert by_name.upper == by_position.upper
    assert {row.name for row in by_name.changes} <= {"age", "debt"}
    table = str(by_name.changes).splitlines()
    assert table[0].split() == ["input", "from", "to", "change"] and len(table) == 1 + len(by_name.changes)
    network.save(tmp_path / "named.npz")
    assert lc.load(tmp_path / "named.npz").input_names == network.input_names


def test_a_series_of_pandas_brings_its_names() -> None:
    row = pandas.Series([0.1, 0.4, -0.3], index=["age", "income", "debt"])
    r = lc.measure(random_network(4), row, "l1", fixed=["income"])
    assert r.names == ("age", "income", "debt") and r.witness is not None and r.witness[1] == 0.4


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("target", 7, "target 7 is out of range: the network has 3 outputs"),
        ("target", "dog", "a target is a class number or several of them, got 'dog'"),
        ("target", [], "there is no target"),
        (
            "weights",
            [1.0, 2.0],
            "the list of weights has 2 numbers (shape (2,)), the network expects 3; pass one number per input",
        ),
        ("weights", [1.0, 0.0, 1.0], "got 0 for input 1"),
        ("weights", {"age": 2.0}, "there is no input 'age'; inputs have no names here; positions are 0..2"),
        ("weights", {0: "much"}, "a weight is a number > 0, got 'much' for input 0"),
        ("weights", {0: None}, "a weight is a number > 0, got None for input 0"),
        ("save", 5, "save is the path of a file, got 5"),
        ("fixed", 0.5, "there is no input 0.5"),
        ("fixed", [3], "input 3 is out of range: there are 3 inputs, 0..2"),
        ("fixed", ["age"], "there is no input 'age'"),
        ("fixed", np.array([True]), "there are 1 truth values for 3 inputs; give one for each"),
        ("fixed", [np.True_, np.False_, np.False_], "there is no input np.True_"),
        ("integer", np.array([True]), "there are 1 truth values for 3 inputs; give one for each"),
        ("one_of", [[np.True_, np.False_]], "there is no input np."),
        ("time_limit", 10**400, "the time limit is a number of seconds or None, got 1000"),
        ("threads", 10**400, "threads are too many: at most 1024"),
        ("memory", 10**400, "memory is a whole number of bytes above 0, got 1000"),
    ],
)
def test_messages(option: str, value: object, message: str) -> None:
    with pytest.raises((InputError, OptionError), match=re.escape(message)):
        lc.measure(random_network(0), np.zeros(3), **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [np.array, pandas.Series])
def test_truth_values_name_inputs_in_every_option(kind: Callable[[list[bool]], object]) -> None:
    """They were taken for the positions 0 and 1 in `integer`, `one_of` and where they were no array of numpy."""
    network, x, last = random_network(3), np.array([0.3, 1.0, 0.0]), kind([False, True, True])
    by_position: dict[str, object] = {"fixed": [1, 2], "integer": [1, 2], "one_of": [[1, 2]]}
    for option, value in by_position.items():
        asked: dict[str, Any] = {option: [last] if option == "one_of" else last}
        expected = robustness(network, x, **{option: value})  # type: ignore[arg-type]
        found = robustness(network, x, **asked)
        assert repr(found.discrete) == repr(expected.discrete)
        assert repr(found.domain) == repr(expected.domain)


def test_an_input_whose_outputs_overflow_warns_of_nothing() -> None:
    """Its class is known in rational numbers; nothing is proved of its neighbours in float64."""
    network = Network.from_arrays([[[1.0, -1.0], [2.0, 1.0]], [[1.0, -1.0], [-1.0, 1.0]]], [[0.1, -0.2], [0.0, 0.3]])
    for x in ([1e308, 1e308], [1e308, -1e308]):
        result = lc.measure(network, x, "l2")
        assert result.status == "undecided" and result.lower == 0.0 and "grow beyond 1e+75" in result.note


# On the command line, in batches and in reports.


@pytest.fixture
def credit(tmp_path: Path) -> Path:
    """A network of three named columns, and a table of four people whose columns stand in another order."""
    replace(random_network(4), input_names=("age", "income", "debt")).save(tmp_path / "credit.npz")
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4, 3))
    lines = ["income,age,Label,debt", *(f"{b!r},{a!r},0,{c!r}" for a, b, c in X.tolist())]
    (tmp_path / "people.csv").write_text("\n".join(lines))
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "weights.txt").write_text("age,income,debt\n0.5,1,4\n")
    return tmp_path


def test_the_command_line_asks_the_same(credit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network, x = lc.load(credit / "credit.npz"), np.load(credit / "X.npy")[2]
    label = int(network.classify(x))
    wanted = lc.measure(network, x, "l1", label=label, target=[1, 2], weights=[0.5, 1.0, 4.0], fixed=[1])
    asked = ["--norm", "l1", "--label", str(label), "--target", "1,2", "--index", "2", "--fixed", "income"]
    for given in ("0.5,1,4", "debt=4,age=0.5", str(credit / "weights.txt")):
        command = ["measure", str(credit / "credit.npz"), "--input", str(credit / "people.csv"), "--weights", given]
        assert main([*command, *asked, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["upper"] == wanted.upper and told["norm"] == "weighted l1"
        assert told["changes"] == {row.name: [row.before, row.after] for row in wanted.changes}
    assert main([*command, *asked]) == 0
    out = capsys.readouterr().out
    assert f"input 2, {label} -> {wanted.target}:" in out and str(wanted.changes) in out


def test_a_batch_asks_the_same_and_its_report_says_what(credit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["batch", str(credit / "credit.npz"), "--data", str(credit / "people.csv"), "--out", str(credit / "run")]
    asked = ["--norm", "l1", "--target", "1", "--weights", "debt=4,age=0.5", "--fixed", "income", "--certificates"]
    assert main([*run, *asked, "--quiet"]) == 0
    network, X = lc.load(credit / "credit.npz"), np.load(credit / "X.npy")
    results = lc.measure_all(network, X, [0] * 4, "l1", target=1, weights={"debt": 4.0, "age": 0.5}, fixed="income")
    with closing(open_store(credit / "run")) as store:
        rows = list(store.rows())
        assert [row["upper"] for row in rows] == [r.upper for r in results]
        proof = load_certificate(credit / "run" / rows[0]["certificate"])
        assert check(network, proof).ok and proof.asked == (1,) and proof.weights is not None
    assert main([*run, *asked[:-3], "--quiet"]) == 2
    assert "fixed was (1), now unset" in capsys.readouterr().err
    assert main(["report", str(credit / "run")]) == 0
    page = (credit / "run" / "report" / "index.html").read_text()
    sentence = "Asked: nearest point of class 1; distances weighted by age 0.5, income 1, debt 4; fixed: income."
    assert sentence in page and sentence in (credit / "run" / "report" / "report.md").read_text()
    assert "What changes in each input" in page and '"changes": [["' in page


def test_a_data_frame_keeps_its_columns() -> None:
    frame = pandas.DataFrame(np.random.default_rng(8).normal(size=(3, 3)), columns=["age", "income", "debt"])
    results = lc.measure_all(random_network(4), frame, norm="l1", fixed="income", jobs=2)
    for r, (_, row) in zip(results, frame.iterrows(), strict=True):
        assert r.names == ("age", "income", "debt") and "income" not in {c.name for c in r.changes}
        assert r.upper == lc.measure(random_network(4), row, "l1", fixed="income").upper


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--target", "dog", "cannot read the target 'dog'; expected a class or several: 3 or 3,5"),
        ("--weights", "age=x", "cannot read the weights 'age=x'; expected names with numbers"),
        ("--weights", "nowhere.txt", "no file of weights at 'nowhere.txt'"),
        ("--fixed", "height", "there is no input 'height'; the names are age, income, debt"),
    ],
)
def test_messages_of_the_command_line(
    credit: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    command = ["measure", str(credit / "credit.npz"), "--input", str(credit / "people.csv")]
    assert main([*command, option, value]) == 2
    assert message in capsys.readouterr().err


def test_a_column_that_is_missing(credit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (credit / "people.csv").write_text("income,debt\n1,2\n")
    assert main(["measure", str(credit / "credit.npz"), "--input", str(credit / "people.csv")]) == 2
    assert "people.csv has no column 'age', which the model expects" in capsys.readouterr().err
