"""A folder that begins with the answers of an earlier results.csv: which are taken, and when none is."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from layercert.batch import Job, Outcome, Plan, Tally
from layercert.cli import BAD, main
from layercert.errors import InputError, OptionError
from layercert.experiments import Settings, runs, work
from layercert.experiments.page import write_rows
from layercert.experiments.recorded import COLUMNS, read_answers
from layercert.experiments.runs import read_pools, run_experiment
from layercert.experiments.setup import Experiment

ASKED: list[tuple[str, int]] = []
TWO = Experiment("two", "Two methods", "linf", "linf", ("layercert-both", "adaptive"))


@dataclass(frozen=True)
class InProcess:
    """In place of worker processes; writes down what it is asked."""

    jobs: int = 1
    work: str = field(default="")

    def describe(self) -> str:
        return "this process"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            ASKED.append((job.method, job.id))
            network, label = plan.models[job.model].network, plan.label(job.input)
            yield work.timed(network, plan.data.X[job.input], label, job, plan.options)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LocalProcesses", InProcess)
    ASKED.clear()


def settings(out: Path, **changes: Any) -> Settings:
    return replace(Settings(out, 20.0, 2, sizes=("2x10", "3x10"), cpu_time=True), **changes)


def run(found: Settings) -> list[tuple[str, int]]:
    ASKED.clear()
    run_experiment(TWO, found, lambda text: None)
    return list(ASKED)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The results.csv of two inputs on two networks: jobs 0 to 3 of each method, by input and then by network."""
    assert len(run(settings(tmp_path / "earlier"))) == 8
    path = tmp_path / "earlier.csv"
    write_rows(read_pools(tmp_path / "earlier"), path)
    return path


def change(path: Path, name: str = "1", **changes: str) -> None:
    """Change LayerCert-Both's answer for an input on 3x10; that of input 1 is job 3."""
    with open(path, newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows:
        if (row["network"], row["input"], row["method"]) == ("3x10", name, "layercert-both"):
            row.update(changes)
    with open(path, "w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def test_one_answer_for_each_network_is_asked_anew_and_the_others_are_taken(file: Path, tmp_path: Path) -> None:
    asked = run(settings(tmp_path / "new", recorded=file))
    both, adaptive = ([i for method, i in asked if method == name] for name in TWO.methods)
    assert both == [0, 1] and adaptive == [0, 1, 2, 3]  # our own search is not known by its programs
    (old,), (new,) = read_pools(tmp_path / "earlier"), read_pools(tmp_path / "new")
    assert len(new.rows) == len(old.rows) == 8
    for a, b in zip(old.rows, new.rows, strict=True):
        assert (a.net, a.method, a.input, a.status, a.programs) == (b.net, b.method, b.input, b.status, b.programs)
        assert (a.lower, a.upper) == (b.lower, b.upper)
    assert [row.note for row in new.select("2x10", "layercert-both").values()] == ["", "from earlier.csv"]
    assert "answers that earlier.csv has are taken from there" in new.sessions[0]["workers"]
    assert run(settings(tmp_path / "new", recorded=file)) == []


def test_more_inputs_are_asked_as_ever(file: Path, tmp_path: Path) -> None:
    asked = run(settings(tmp_path / "new", recorded=file, inputs=3))
    assert [i for method, i in asked if method == "layercert-both"] == [0, 1, 4, 5]


@pytest.mark.parametrize(
    "changes",
    [{"programs": "7"}, {"status": "robust", "lower": "0.3", "upper": "inf"}, {"lower": "0.2", "upper": "0.2"}],
)
def test_nothing_is_taken_from_a_file_of_another_version(changes: dict[str, str], file: Path, tmp_path: Path) -> None:
    change(file, **changes)
    taken: list[Tally] = []
    found = settings(tmp_path / "new", recorded=file, sizes=("3x10",))
    run(replace(found, inputs=1))  # job 0 is answered; what is left for the test of the file is the changed answer
    with pytest.raises(
        InputError, match=r"earlier.csv is not of this version: layercert-both on mnist17_l1_3x10, input 1"
    ):
        run_experiment(TWO, found, lambda text: None, lambda tally, job, outcome: taken.append(tally))
    (pool,) = read_pools(tmp_path / "new")
    assert {row.name for row in pool.select("3x10", "layercert-both").values()} == {"0"}


def test_open_answers_are_taken_with_the_same_limit_only(file: Path, tmp_path: Path) -> None:
    open_answer = {"status": "undecided", "lower": "0.01", "upper": "inf", "cpu_seconds": "20.0002"}
    for limit, expected in (("0.2 CPU s", [0, 1, 3]), ("20 s by the clock", [0, 1, 3]), ("20 CPU s", [0, 1])):
        change(file, **open_answer, limit=limit)
        out = tmp_path / limit
        assert [i for method, i in run(settings(out, recorded=file)) if method == "layercert-both"] == expected
    row = read_pools(out)[0].select("3x10", "layercert-both").popitem()[1]
    assert not row.solved and row.limit == 20.0 and row.lower == 0.01
    change(file, status="exact", limit="20 CPU s", cpu_seconds="20.5")  # decided, but later than the limit
    asked = run(settings(tmp_path / "late", recorded=file))
    assert [i for method, i in asked if method == "layercert-both"] == [0, 1, 3]


def test_an_answer_that_needed_most_of_the_limit_does_not_test_the_file(file: Path, tmp_path: Path) -> None:
    """It may not come out within the limit a second time. The next input of the network is asked instead."""
    change(file, "0", cpu_seconds="0.9", programs="7")
    found = settings(tmp_path / "new", recorded=file, time_limit=2.0, sizes=("3x10",))
    assert [i for method, i in run(found) if method == "layercert-both"] == [1]


def test_where_no_decided_answer_is_left_to_test_the_file_nothing_is_taken(file: Path, tmp_path: Path) -> None:
    change(file, status="undecided", lower="0.01", upper="inf", limit="20 CPU s")
    found = settings(tmp_path / "new", recorded=file, sizes=("3x10",))
    run(replace(found, inputs=1))
    assert [i for method, i in run(found) if method == "layercert-both"] == [1]
    assert all(row.solved for row in read_pools(tmp_path / "new")[0].rows)


def test_a_file_that_is_none_is_refused(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"cannot read the answers in 'none\.csv'"):
        read_answers(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        InputError, match=r"'other.csv' is no results.csv of a reproduction: its first line must be norm,"
    ):
        read_answers(tmp_path / "other.csv")
    (tmp_path / "other.csv").write_text(",".join(COLUMNS) + '\n"' + "1" * 200_000)
    with pytest.raises(InputError, match=r"cannot read the answers in 'other\.csv': field larger"):
        read_answers(tmp_path / "other.csv")
    for changes in (
        {"lower": "nan"},
        {"upper": "nan"},
        {"upper": "0.05"},
        {"programs": "many"},
        {"status": "sure"},
        {"cpu_seconds": "-1"},
    ):
        change(
            file, **{"status": "exact", "lower": "0.1", "upper": "0.1", "programs": "9", "cpu_seconds": "1", **changes}
        )
        with pytest.raises(InputError, match=r"line 9 of 'earlier\.csv' is no answer"):
            read_answers(file)
    args = ["reproduce", "ablation", "--inputs", "1", "--cpu-time", "--from", str(tmp_path / "none.csv"), "--quiet"]
    assert main([*args, "--out", str(tmp_path / "new")]) == BAD
    assert "cannot read the answers in 'none.csv'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "words"), [({"cpu_time": False}, "--from goes with --cpu-time"), ({"nets": Path()}, "without --nets")]
)
def test_recorded_answers_are_of_the_shipped_networks_and_of_cpu_seconds(
    wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=words):
        settings(tmp_path, recorded=tmp_path / "results.csv", **wrong)
