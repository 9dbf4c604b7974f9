"""Batches that verify at given radii: which radii are asked, what the answers settle, what is stored and reported."""

from __future__ import annotations

import csv
import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from helpers.batches import line_network, plan, points
from layercert.batch import Options, open_store
from layercert.batch.work import at_each, solve
from layercert.cli import main
from layercert.errors import OptionError
from layercert.result import Result, Verdict

EPS = (0.01, 0.02, 0.04, 0.08, 0.16)


class Oracle:
    """verify for an input at a known distance; the radii in `hard` stay undecided."""

    def __init__(self, distance: float, hard: tuple[float, ...] = ()) -> None:
        self.distance, self.hard = distance, hard
        self.asked: list[float] = []

    def __call__(self, radius: float) -> Result:
        self.asked.append(radius)
        robust = radius < self.distance
        status = Verdict.UNDECIDED if radius in self.hard else Verdict.ROBUST if robust else Verdict.NOT_ROBUST
        found = status == Verdict.NOT_ROBUST
        return Result(
            status, radius if status == Verdict.ROBUST else 0.0, self.distance if found else math.inf,
            np.array([self.distance]) if found else None, 1 if found else None, 0, "linf", radius, "adaptive", 10, 0.5,
            "time limit reached" if status == Verdict.UNDECIDED else "",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("distance", "asked", "status", "lower", "upper"),
    [
        (1.0, [0.04, 0.16], "robust", 0.16, math.inf),
        (0.05, [0.04, 0.16], "not_robust", 0.04, 0.05),  # the witness at 0.05 settles 0.08 too
        (0.001, [0.04], "not_robust", 0.0, 0.001),
        (0.015, [0.04, 0.01], "not_robust", 0.01, 0.015),
    ],
)
def test_each_answer_helps_the_next(
    distance: float, asked: list[float], status: str, lower: float, upper: float
) -> None:
    oracle = Oracle(distance)
    result = at_each(EPS, oracle)
    assert oracle.asked == asked
    assert (result.status, result.lower, result.upper) == (status, lower, upper)
    assert (result.programs, result.seconds) == (10 * len(asked), 0.5 * len(asked)) and result.note == ""
    assert (result.witness is None) == math.isinf(upper)


def test_a_proof_beyond_all_radii_is_robust_at_each() -> None:
    """Outputs that depend on nothing: the first answer proves all, and no witness was ever there."""
    network = lc.Network.from_arrays([np.zeros((3, 2)), np.ones((2, 3))], [np.zeros(3), np.array([1.0, 0.0])])
    for eps in (EPS, (0.1, 0.1 * (1 + 1e-12))):
        for question in ({}, {"domain": (-1, 1)}, {"integer": [0]}):
            result = at_each(eps, lambda radius, asked=question: lc.verify(network, [0.0, 0.0], radius, **asked))
            assert result.status == "robust" and result.witness is None
    near = lc.Network.from_arrays([[[1.0], [-1.0]], [[0.0, 0.0], [1.0, 1.0]]], [[0.0, 0.0], [0.5, 0.0]])
    assert at_each((0.1, 0.1 * (1 + 1e-12)), lambda radius: lc.verify(near, [0.0], radius)).status == "robust"


def test_radii_that_stay_undecided() -> None:
    """Undecided at 0.04 and 0.08, robust below, attacked above: the bounds say all of it."""
    result = at_each(EPS, Oracle(0.1, hard=(0.04, 0.08)))
    assert (result.status, result.lower, result.upper) == ("undecided", 0.02, 0.1)
    assert result.note == "time limit reached"
    result = at_each(EPS, Oracle(1.0, hard=(0.04,)))
    assert result.status == "robust", "robust at 0.16 settles 0.04"


def test_the_same_as_the_distance_says() -> None:
    """Points at 0.01 .. 0.06 on the real network, through the work function itself; none lies at a radius."""
    made = plan(6, eps=(0.015, 0.045, 0.1), methods=("layercert-both",))
    for job in made.jobs:
        outcome = solve(made.models[0].network, made.data.X[job.input], 1, job, made.options)
        distance = (job.input + 1) / 100
        assert outcome.status == "not_robust" and outcome.result.lower <= distance <= outcome.result.upper * (1 + 1e-9)
        for e in made.options.eps:
            assert (outcome.result.upper <= e) == (distance < e) and (outcome.result.lower >= e) == (e < distance)


def test_options() -> None:
    assert Options(eps=(0.1, 0.01, 0.1), time_limit=2.0).eps == (0.01, 0.1)
    assert Options(eps=(0.1, 0.01), time_limit=2.0).job_limit == 4.0 and Options(time_limit=2.0).job_limit == 2.0
    assert "eps" not in plan(1).identity and plan(1, eps=(0.5,)).identity["eps"] == [0.5]
    for bad in ((0.0,), (-1.0,), (math.inf,), (math.nan,)):
        with pytest.raises(OptionError, match="must be above 0 and finite"):
            Options(eps=bad)
    with pytest.raises(OptionError, match="give one of the two"):
        Options(eps=(0.1,), radius=0.2)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Distances 0.01, 0.02, 0.03 and a misclassified input, at two radii; then the same table from the distances."""
    line_network().save(tmp_path / "line.npz")
    np.savez(tmp_path / "points.npz", X=points(4).X, y=[1, 1, 1, 0])
    names = [str(tmp_path / name) for name in ("line.npz", "points.npz")]
    command = ["batch", names[0], "--data", names[1], "--method", "layercert-both"]
    assert main([*command, "--out", str(tmp_path / "at"), "--eps", "0.015,1/40"]) == 0
    assert "4 of 4 done: 3 not robust, 1 robust" in capfd.readouterr().out
    assert main([*command, "--out", str(tmp_path / "measured")]) == 0
    wanted = [
        ["0.015", "75.0 %", "50.0 %", "50.0 %", "0.0 %", "4"],
        ["0.025", "75.0 %", "25.0 %", "75.0 %", "0.0 %", "4"],
    ]
    for run, more in (("at", []), ("measured", ["--eps", "0.015,0.025"])):
        assert main(["report", str(tmp_path / run), *more]) == 0
        with open(tmp_path / run / "report" / "accuracy.csv", newline="") as handle:
            header, *rows = csv.reader(handle)
        assert header[2:] == ["eps", "clean", "certified", "attacked", "undecided", "inputs"]
        assert [row[2:] for row in rows] == wanted
        assert "## Certified accuracy" in (tmp_path / run / "report" / "report.md").read_text()
    with closing(open_store(tmp_path / "at")) as store:
        assert store.facts()["identity"]["eps"] == [0.015, 0.025]
    capfd.readouterr()
    for bad in ("0.1;0.2", "1/0", "", "-0.1"):
        assert main([*command, "--out", str(tmp_path / "at"), f"--eps={bad}"]) == 2
    assert main([*command, "--out", str(tmp_path / "at"), "--eps", "0.3"]) == 2
    err = capfd.readouterr().err
    assert "expected numbers such as 0.01,0.03 or 2/255,8/255" in err
    assert "eps was (0.015, 0.025), now (0.3)" in err
