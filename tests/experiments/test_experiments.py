"""The paper's experiments: what is run, what is counted, which claims hold, what the page shows."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layercert import shipped
from layercert.batch import Job, Outcome, Plan, Tally
from layercert.batch.errors import RunError
from layercert.cli import BAD, OK, OPEN, main
from layercert.errors import InputError, MissingPackageError, OptionError
from layercert.experiments import Settings, example, reproduce, runs, train, work
from layercert.experiments.claims import (
    HELD,
)
from layercert.experiments.networks import find_networks
from layercert.experiments.runs import read_pools, run_experiment
from layercert.experiments.setup import LARGE_SIZES, SIZES, Experiment, chosen
from layercert.io import load
from layercert.io.datasets import load_dataset
from layercert.network import Network

#: GeoCert alone in l_inf: nothing to compare, little to compute.
GEOCERT = Experiment("one", "One method", "linf", "linf", ("geocert",))


@dataclass(frozen=True)
class InProcess:
    """In place of worker processes, which take seconds to start."""

    jobs: int = 1
    memory: int | None = None
    work: str = ""

    def describe(self) -> str:
        return "this process"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        do = getattr(work, self.work.partition(":")[2])
        for job in jobs:
            yield do(plan.models[job.model].network, plan.data.X[job.input], plan.label(job.input), job, plan.options)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LocalProcesses", InProcess)
    monkeypatch.setattr(work, "LocalProcesses", InProcess)


# networks


def test_all_networks_of_the_paper_are_shipped(tmp_path: Path) -> None:
    digits = load_dataset(shipped.path("digits"))
    for sizes, family in ((SIZES, "l1"), (LARGE_SIZES, "plain")):
        found = find_networks(sizes, family, Settings(tmp_path), digits)
        assert [m.name for m in found.models] == [f"mnist17_{family}_{s}" for s in sizes]
        assert not found.remarks
        assert all((m.network(digits.X).argmax(axis=1) == digits.y).all() for m in found.models)


def test_a_collapsed_network_is_left_out_with_a_remark(tmp_path: Path) -> None:
    constant = Network.from_arrays([np.zeros((2, 784))], [[1.0, 0.0]])
    constant.save(tmp_path / "mnist17_l1_2x10.npz")
    settings = Settings(tmp_path, nets=tmp_path, sizes=("2x10",))
    found = find_networks(SIZES, "l1", settings, load_dataset(shipped.path("digits")))
    assert not found.models and "right on 50% of the shipped digits" in found.remarks[0]


def test_training_is_that_of_the_script() -> None:
    pytest.importorskip("torch", reason="training needs torch")
    spec = importlib.util.spec_from_file_location("train_nets", Path(__file__).parents[2] / "scripts" / "train_nets.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["train_nets"] = script  # dataclasses look their module up
    spec.loader.exec_module(script)
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 6), dtype=np.float32), rng.integers(0, 2, 40)
    theirs = script.train(script.Samples(X, y, np.arange(40)), [5, 5, 2], script.L1_WEIGHT["l1"], 3, 2)
    ours = train.fit(X, y, [5, 5, 2], train.L1_WEIGHT["l1"], 3, 2)
    for left, right in zip(ours, theirs, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
    assert (train.BATCH, train.LEARNING_RATE, train.L1_WEIGHT) == (script.BATCH, script.LEARNING_RATE, script.L1_WEIGHT)


def test_training_without_torch_or_data_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch, pytest.raises(MissingPackageError, match=r"--mnist.*layercert\[torch\]"):
        patch.setitem(sys.modules, "torch", None)
        train.train_network(tmp_path, "2x10", "l1")
    pytest.importorskip("torch", reason="training needs torch")
    with pytest.raises(InputError, match="no train-images-idx3-ubyte"):
        train.train_network(tmp_path, "2x10", "l1")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"inputs": 0}, "from 1 to 100"),
        ({"time_limit": 0.0}, "above 0 seconds"),
        ({"time_limit": 2.0, "first": 2.0}, "fewer seconds per question than the time limit"),
        ({"stack": "gurobi"}, "unknown solver stack"),
        ({"family": "l2"}, "unknown family"),
        ({"sizes": ("2x11",)}, "unknown network '2x11'; did you mean '2x1"),
        ({"nets": Path(), "mnist": Path()}, "give one of them"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=words.replace("(", r"\(")):
        Settings(tmp_path, **wrong)


def test_unknown_experiment() -> None:
    with pytest.raises(OptionError, match="did you mean 'table1'"):
        chosen("table-1")


# Appendix A


def test_example_of_appendix_a() -> None:
    geo, layer = found = example.orders()
    assert {c.verdict for c in example.example_claims(found)} == {HELD}
    # three quadrants are cut in two by the second layer's neuron, that of x is not
    assert len(geo.nodes(2)) == len(layer.nodes(2)) == 7 and len(layer.nodes(1)) == 4
    # from x = (-1, -1.25) the axes are at 1 and 1.25, the origin at their hypotenuse
    assert [s.distance for s in layer.edges(1)] == pytest.approx([1.0, 1.25, np.hypot(1.0, 1.25)])


# the command


def test_the_command_runs_resumes_and_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With worker processes; two networks, one input."""
    args = ["reproduce", "ablation", "--out", str(tmp_path), "--inputs", "1", "--time-limit", "20", "--sizes",
            "2x10,3x20", "--quiet"]  # fmt: skip
    assert main(args) == OK
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*/*/run.sqlite")}
    assert len(before) == 3
    assert main(args) == OK
    assert {p: p.stat().st_mtime_ns for p in before} == before  # nothing is computed twice
    page = (tmp_path / "index.html").read_text()
    assert "accounts for only a small part of the gain" in page and "http" not in page.replace("http://www.w3.org", "")
    report = (tmp_path / "report.md").read_text()
    assert (
        "1 input on the networks 2x10, 3x20 (family l1), 3 methods: 6 questions with 20 s by the clock each" in report
    )
    assert "| 2x10 |" in report and "layercert reproduce" not in capsys.readouterr().err
    for kind in ("html", "md", "csv"):
        assert (tmp_path / "tables" / f"ablation-seconds.{kind}").exists()


@pytest.mark.usefixtures("in_process")
def test_a_tiny_version_of_everything(tmp_path: Path) -> None:
    """One input on two networks for the tables; a small network stands in for a large one."""
    nets = tmp_path / "nets"
    nets.mkdir()
    for size in ("2x10", "2x20"):
        shutil.copy(shipped.path(f"mnist17_l1_{size}"), nets)
    shutil.copy(shipped.path("mnist17_plain_3x20"), nets / "mnist17_plain_8x20.npz")
    said: list[str] = []
    settings = Settings(tmp_path / "out", 2.0, 1, nets=nets, sizes=("2x10", "2x20", "8x20"))
    page, _ = reproduce("all", settings, said.append)
    figures = {p.name for p in (tmp_path / "out" / "figures").iterdir()}
    assert {f"{n}.{k}" for n in ("profiles", "example", "large-8x20") for k in ("svg", "png")} == figures
    with open(tmp_path / "out" / "tables" / "claims.csv", newline="") as file:
        claims = list(csv.DictReader(file))
    assert len(claims) == 7 + 6 + 2 + 1 + 2 + 4
    assert all(c["verdict"] == HELD for c in claims if c["where"].startswith(("ours", "appendix A")))
    text = page.read_text()
    for key in ("table1", "table-l2", "duel", "ablation", "profiles", "large", "example"):
        assert f'<h2 id="{key}">' in text
    trace = json.loads((tmp_path / "out/runs/large-plain/layercert-both/traces/0.json").read_text())
    lower = [point[1] for point in trace]
    assert lower == sorted(lower) and len(lower) > 1


@pytest.mark.usefixtures("in_process")
def test_another_stack_is_compared_with_ours(tmp_path: Path) -> None:
    settings = {"time_limit": 20.0, "inputs": 1, "sizes": ("2x10",)}
    reproduce("ablation", Settings(tmp_path, **settings), lambda text: None)  # type: ignore[arg-type]
    reproduce("ablation", Settings(tmp_path, stack="library", **settings), lambda text: None)  # type: ignore[arg-type]
    report = (tmp_path / "report.md").read_text()
    assert "## Solvers: ours against the stack 'library' (linf)" in report
    assert "| geocert | 1 of 1 |" in report
    first, second = report.split(", with the solvers of the stack 'library'", 1)
    text = "| 1 | marking patterns as seen early never costs programs | appendix D |"
    assert first.count(text) == second.count(text) == 1  # the summary is about our solvers, the section about theirs
    name = "l_inf with the solvers of the stack 'library': 1 input on 1 network, 20 s by the clock per question"
    assert f"2 of 2 ({name})." in first and f"; {name}." in first


def test_networks_that_are_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["reproduce", "large", "--out", str(tmp_path), "--nets", str(tmp_path), "--quiet"]
    assert main(args) == BAD
    assert "of the family plain, 8x20, 6x30, 5x50, 5x60 are not in" in (err := capsys.readouterr().err)
    assert "give a folder of networks with --nets" in err


@pytest.mark.usefixtures("in_process")
def test_a_run_grows_by_inputs_and_asks_again_what_a_longer_limit_may_finish(tmp_path: Path) -> None:
    """3x50 of the family plain: one search is far from done after 0.05 s, and is after 0.1 s."""
    asked: list[tuple[int, int]] = []

    def watch(tally: Tally, job: Job | None, outcome: Outcome | None) -> None:
        if outcome is not None:
            asked.append((tally.total, outcome.job))

    def run(inputs: int, limit: float) -> list[tuple[int, int]]:
        settings = Settings(tmp_path, limit, inputs, family="plain", sizes=("3x50",), cpu_time=True)
        asked.clear()
        run_experiment(GEOCERT, settings, lambda text: None, watch)
        return list(asked)

    assert run(1, 0.05) == [(1, 0)]
    assert run(2, 0.05) == [(2, 1)]  # the first one stays as it is
    assert run(1, 0.05) == []
    assert run(2, 0.1) == [(2, 0), (2, 1)]
    assert run(2, 0.1) == []
    (found,) = read_pools(tmp_path)
    assert found.limit_words == "0.1 CPU s" and found.inputs == 2
    assert all(not row.solved and 0.09 < row.seconds < 5 for row in found.rows)


@pytest.mark.usefixtures("in_process")
def test_a_first_pass_asks_everything_and_then_what_is_open_is_asked_with_more_time(tmp_path: Path) -> None:
    """3x50 of the family plain: 0.05 s are too few on any input, 0.15 s too."""
    asked: list[int] = []
    settings = Settings(tmp_path, 0.15, 2, family="plain", sizes=("3x50",), cpu_time=True)

    def watch(tally: Tally, job: Job | None, outcome: Outcome | None) -> None:
        if outcome is not None:
            asked.append(outcome.job)

    def run(**changes: Any) -> list[int]:
        asked.clear()
        run_experiment(GEOCERT, replace(settings, **changes), lambda text: None, watch)
        return list(asked)

    assert run(inputs=1) == [0]  # a run that was made in one pass
    assert run(first=0.05) == [1]  # what has an answer with the longer limit keeps it
    assert run(first=0.05) == []
    (half,) = read_pools(tmp_path)
    assert half.limit_words == "0.15 CPU s" and [row.limit for row in half.rows] == [0.15, 0.05]
    (every,) = half.views(("geocert",))
    assert every.hurried and every.limit_words == "0.05 CPU s" and every.inputs == 2
    assert run(inputs=1) == []  # the second pass goes part by part
    assert run() == [1]
    assert run() == []
    (whole,) = read_pools(tmp_path)
    assert [row.limit for row in whole.rows] == [0.15, 0.15]
    assert [view.hurried for view in whole.views(("geocert",))] == [False]
    assert all(not row.solved and 0.14 < row.seconds < 5 for row in whole.rows)
    with pytest.raises(
        RunError, match=r"time_limit was 0\.15, now 0\.1"
    ):  # a shorter limit is a first pass, or a mistake
        run(time_limit=0.1)


@pytest.mark.usefixtures("in_process")
def test_a_run_that_was_killed_before_it_began_begins_anew(tmp_path: Path) -> None:
    """kill -9 while the file of the run is made leaves an empty one, for one method of several."""
    killed = tmp_path / "runs" / "linf-l1" / "layercert-basic"
    killed.mkdir(parents=True)
    (killed / "run.sqlite").touch()
    (killed.parent / "remarks.json").write_text("[]")
    assert read_pools(tmp_path) == []
    reproduce("ablation", Settings(tmp_path, 20.0, 1, sizes=("2x10",)), lambda text: None)
    (found,) = read_pools(tmp_path)
    assert len(found.rows) == 3 and all(row.solved for row in found.rows)


def test_a_first_pass_goes_over_all_inputs_before_the_second_one(tmp_path: Path) -> None:
    parts = Settings(tmp_path, 10.0, 45, first=1.0).parts()
    assert [(p.first, p.inputs) for p in parts] == [(f, n) for f in (1.0, None) for n in (20, 40, 45)]


def test_parts_end_with_all_inputs(tmp_path: Path) -> None:
    assert [part.inputs for part in Settings(tmp_path, inputs=100).parts()] == [20, 40, 60, 80, 100]
    assert [part.inputs for part in Settings(tmp_path, inputs=25).parts()] == [20, 25]
    assert [part.inputs for part in Settings(tmp_path, inputs=5).parts()] == [5]


@pytest.mark.usefixtures("in_process")
def test_a_question_without_an_answer_shows_in_the_exit_code(tmp_path: Path) -> None:
    args = ["reproduce", "profiles", "--family", "plain", "--sizes", "3x50", "--inputs", "1", "--time-limit", "0.3"]
    assert main([*args, "--out", str(tmp_path), "--quiet"]) == OPEN
    assert load(shipped.path("mnist17_plain_3x50")).neurons == 150
