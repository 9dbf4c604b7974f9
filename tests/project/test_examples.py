"""The examples run as a reader would run them, and say what they promise; so does the demo."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path) -> str:
    """An example in an empty folder, with this Python's scripts first on the path."""
    command = (
        ["bash", str(EXAMPLES / name)]
        if name.endswith(".sh")
        else [sys.executable, str(EXAMPLES / name), str(folder / "run")]
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pytorch_in_ten_lines(tmp_path: Path, torch: ModuleType) -> None:
    out = run("pytorch_ten_lines.py", tmp_path)
    assert out.startswith("exact: ")
    code = [
        line for line in (EXAMPLES / "pytorch_ten_lines.py").read_text().split('"""')[2].splitlines() if line.strip()
    ]
    assert len(code) <= 10


def test_onnx_from_the_command_line(tmp_path: Path) -> None:
    out = run("onnx_command_line.sh", tmp_path)
    assert out.count("exact") == 3 and "robust" in out


def test_a_batch_with_a_report(tmp_path: Path) -> None:
    out = run("batch_with_report.py", tmp_path)
    assert "48 of 48 done" in out
    assert (tmp_path / "run" / "report" / "index.html").stat().st_size > 50_000


def test_many_inputs_from_python(tmp_path: Path) -> None:
    lines = run("many_inputs.py", tmp_path).splitlines()
    assert len(lines) == 11 and all(line.startswith("exact: ") for line in lines[:10])
    assert lines[10].startswith("certified accuracy at 0.03: ")


def test_counterfactuals(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="the table needs pandas: pip install 'layercert[pandas]'")
    answers = run("counterfactuals.py", tmp_path).split("\n\n")
    assert [answer.partition(": ")[0] for answer in answers[:3]] == [
        "Any other grower", "Grower 2", "Grower 2, the same ash, whole numbers",
    ]  # fmt: skip
    assert all("exact: " in answer and "change" in answer for answer in answers[:3])
    assert "alcalinity_of_ash" in answers[1] and "alcalinity_of_ash" not in answers[2]
    assert "is given class 2, and a point that is lies at distance" in answers[3]
    distances = [float(answer.partition("exact: ")[2].partition(" ")[0]) for answer in answers[:3]]
    assert distances == sorted(distances), "each question asks for more"


def test_certified_accuracy(tmp_path: Path) -> None:
    lines = run("certified_accuracy.sh", tmp_path).splitlines()
    table = lines[lines.index("model,norm,eps,clean,certified,attacked,undecided,inputs") + 1 :]
    assert [line.split(",")[2] for line in table] == ["0.01", "0.03", "0.1"] * 2
    assert all(line.endswith(",0.0 %,12") for line in table), "nothing is undecided"


def in_process(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An example as a script, without a new interpreter: torch and the kernels are loaded already."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_adversarial_training_by_epoch(
    tmp_path: Path, torch: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--epochs", "2", "--digits", "2", "--out", str(tmp_path / "training.svg")]
    in_process("adversarial_training.py", arguments, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "plain, epoch 1", "plain, epoch 2", "adversarial, epoch 1", "adversarial, epoch 2",
    ]  # fmt: skip
    assert "<svg" in (tmp_path / "training.svg").read_text()


def test_what_depth_and_pooling_cost(
    tmp_path: Path, torch: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--epochs", "1", "--digits", "1", "--time-limit", "2", "--out", str(tmp_path / "cost.svg")]
    in_process("depth_and_pooling.py", arguments, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    names = ["1 x 60", "2 x 30", "3 x 20", "5 x 12", "conv, stride 2", "conv, max pool"]
    assert [line.partition(":")[0] for line in lines] == names
    radii = [float(line.partition("median radius ")[2].partition(",")[0]) for line in lines]
    assert all(radius > 0 for radius in radii), "digits that the network gets right"
    assert " exact 1 of 1" in lines[3], "the smallest network needs a hundredth of a second"
    assert "<svg" in (tmp_path / "cost.svg").read_text()


def test_distances_to_another_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    in_process("aircraft.py", ["--grid", "3", "--out", str(tmp_path / "aircraft.svg")], monkeypatch)
    out = capsys.readouterr().out
    assert out.startswith("9 of 9 distances exact") and "least stable: " in out
    assert "<svg" in (tmp_path / "aircraft.svg").read_text()


@pytest.mark.slow
def test_a_dask_cluster(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    assert "8 of 8 done: {'exact': 8}" in run("dask_cluster.py", tmp_path)


@pytest.mark.slow
def test_a_big_question(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    one, two, cluster = run("big_question.py", tmp_path).splitlines()
    assert one.startswith("one thread") and two.startswith("two threads")
    assert cluster.startswith("a cluster: exact: 3.61399 (")


@pytest.mark.slow
def test_the_demo_ends_in_a_report_with_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    old = tmp_path / "demo" / "run" / "run.sqlite"
    old.parent.mkdir(parents=True)
    old.write_text("left by an earlier demo with other options: a demo starts afresh")
    done = subprocess.run(
        [sys.executable, "-m", "layercert.cli", "demo", "--inputs", "2", "--out", str(tmp_path / "demo")],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.count("exact") >= 4 and "Report with pictures" in done.stdout
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "data:image/gif;base64" in page and "The search in pictures" in page
    for name in ("appendix-a.gif", "plane.png", "report.md", "run/run.sqlite"):
        assert (tmp_path / "demo" / name).exists()
