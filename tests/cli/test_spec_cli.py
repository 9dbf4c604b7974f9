"""Properties on the command line: the competition's answers, files and scripts, and the runner over many instances."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from helpers.properties import simple_text, write_onnx
from layercert.cli import BAD, OK, OPEN, main
from layercert.network import Network

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]

# outputs are (1 - t, t) for t >= 0: y_1 passes y_0 at t = 0.5
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
PROPERTIES = {
    "holds": simple_text([("0", "0.4")], 2, "(>= Y_1 Y_0)"),
    "fails": simple_text([("0", "0.7")], 2, "(>= Y_1 Y_0)"),
    "edge": simple_text([("0", "0.5")], 2, "(> Y_1 Y_0)"),
    "never": simple_text([("0", "1")], 2, "(< Y_0 Y_0)"),
    "mixed": simple_text([("0", "1")], 2, "(>= Y_1 X_0)"),
    "split": simple_text([("0", "1")], 2, "(or (and (<= X_0 0.4) (>= Y_1 Y_0)) (>= Y_1 1.5))"),
}
PAIR = re.compile(r"\(([XY])_(\d+) ([^()\s]+)\)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    LINE.save("line.npz")
    write_onnx(LINE, tmp_path / "line.onnx")
    for name, text in PROPERTIES.items():
        (tmp_path / f"{name}.vnnlib").write_text(text)
    return tmp_path


def values(text: str) -> dict[str, Fraction]:
    """The counterexample as the competition reads it."""
    assert text.startswith("((X_0 ") and text.rstrip().endswith("))")
    return {f"{kind}_{i}": Fraction(value) for kind, i, value in PAIR.findall(text)}


class TestVerify:
    def test_unsat(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "holds.vnnlib", "--time-limit", "60"]) == OK
        shown = capsys.readouterr()
        assert shown.out == "unsat\n"
        assert "1 of 1 cases closed" in shown.err

    def test_sat_with_the_counterexample_on_stdout(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.onnx", "fails.vnnlib", "--time-limit", "60"]) == OK
        first, rest = capsys.readouterr().out.split("\n", 1)
        assert first == "sat"
        point = values(rest)
        assert list(point) == ["X_0", "Y_0", "Y_1"]
        assert Fraction(1, 2) <= point["X_0"] <= Fraction(7, 10)
        assert point["Y_1"] >= point["Y_0"]

    def test_sat_with_the_counterexample_in_a_file(self, folder: Path, capsys: Capture) -> None:
        pytest.importorskip("onnxruntime", reason="needs the extra 'onnxruntime'")
        command = ["verify", "line.onnx", "fails.vnnlib", "--counterexample", "c.txt", "--quiet"]
        assert main(command) == OK
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("sat\n", "")
        point = values((folder / "c.txt").read_text())
        runtime = lc.load("line.onnx").runtime
        assert runtime is not None
        outputs = runtime(np.array([float(point["X_0"])]))
        assert outputs is not None
        assert outputs.tolist() == [float(point["Y_0"]), float(point["Y_1"])]

    def test_what_is_touched_within_rounding_is_decided_in_rationals(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "edge.vnnlib", "--quiet"]) == OK
        assert capsys.readouterr().out == "unsat\n"

    def test_unknown_and_timeout_leave_the_code_of_undecided(
        self, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("layercert.spec.last_resort.MOST_NEURONS", 0)  # too large for rationals
        assert main(["verify", "line.npz", "edge.vnnlib", "--quiet"]) == OPEN
        shown = capsys.readouterr()
        assert shown.out == "unknown\n"
        assert "touched within rounding only" in shown.err  # --quiet hides progress, not doubts

    def test_errors_name_line_and_construct(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "mixed.vnnlib"]) == BAD
        shown = capsys.readouterr()
        assert shown.out == "error\n"
        assert re.search(r"mixed\.vnnlib, line 6, column \d+: .*mixes inputs and outputs", shown.err)
        assert main(["verify", "nothing.onnx", "holds.vnnlib", "--json"]) == BAD
        assert json.loads(capsys.readouterr().out)["answer"] == "error"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--input", "points.npz"], "--input does not go with a property file"),
            (["--radius", "0.1"], "--radius does not go with a property file"),
            (["--norm", "l2"], "--norm does not go with a property file"),
            (["--method", "magic"], "unknown method 'magic'"),
            (["--time-limit", "0"], "time limit must be above 0"),
            (["--certificate", "nowhere/p.npz"], "certificates cannot be written to"),
            (["--counterexample", "nowhere/c.txt"], "the counterexample cannot be written to"),
        ],
    )
    def test_options_that_do_not_fit(self, folder: Path, capsys: Capture, options: list[str], message: str) -> None:
        assert main(["verify", "line.npz", "holds.vnnlib", *options]) == BAD
        shown = capsys.readouterr()
        assert shown.out == "error\n" and message in shown.err

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (["verify", "line.npz"], "verify needs --input FILE with points, or a property file"),
            (["measure", "line.npz"], "measure needs --input FILE"),
            (["verify", "line.npz", "--input", "p.npz"], "verify needs --radius R"),
            (["verify", "line.npz", "--input", "p.npz", "--radius", "1", "--counterexample", "c"], "property file"),
        ],
    )
    def test_neither_points_nor_property(self, folder: Path, capsys: Capture, command: list[str], message: str) -> None:
        assert main(command) == BAD
        assert message in capsys.readouterr().err

    def test_json(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "fails.vnnlib", "--json", "--quiet"]) == OK
        answer = json.loads(capsys.readouterr().out)
        assert answer["answer"] == "sat"
        assert Fraction(answer["inputs"][0]) >= Fraction(1, 2)
        assert answer["runtime"] is None


class TestCertificates:
    def test_one_file_a_case_and_the_property_checked(self, folder: Path, capsys: Capture) -> None:
        (folder / "p-3.npz").write_bytes(b"left over from another proof")
        (folder / "p-2.npz").write_bytes(b"also")
        assert main(["verify", "line.npz", "split.vnnlib", "--certificate", "p.npz", "--quiet"]) == OK
        assert sorted(p.name for p in folder.glob("p*.npz")) == ["p-2.npz", "p.npz"]
        assert capsys.readouterr().out == "unsat\n"
        for name in ("p.npz", "p-2.npz"):
            assert main(["check", name, "line.npz"]) == OK
            assert re.search(r"no point of the domain [\[(].*[\])] has an unsafe output", capsys.readouterr().out)
        assert main(["check", "p.npz", "line.npz", "--spec", "split.vnnlib"]) == OK
        assert "Proved, unsat" in capsys.readouterr().out
        assert main(["check", "p.npz", "line.npz", "--spec", "fails.vnnlib"]) == 1
        assert "NOT PROVED" in capsys.readouterr().err

    def test_a_contradiction_needs_no_file(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "never.vnnlib", "--certificate", "p.npz", "--quiet"]) == OK
        shown = capsys.readouterr()
        assert shown.out == "unsat\n" and "there is no certificate to write" in shown.err
        assert not (folder / "p.npz").exists()
        assert main(["check", "p.npz", "line.npz", "--spec", "never.vnnlib"]) == OK
        assert "Proved, unsat" in capsys.readouterr().out

    def test_a_counterexample(self, folder: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "fails.vnnlib", "--certificate", "p.npz", "--quiet"]) == OK
        assert main(["check", "p.npz", "line.npz", "--spec", "fails.vnnlib"]) == OK
        assert "Proved, sat" in capsys.readouterr().out


class TestMeasure:
    def test_the_growth(self, folder: Path, capsys: Capture) -> None:
        assert main(["measure", "line.npz", "holds.vnnlib"]) == OK
        out = capsys.readouterr().out
        assert out.startswith("exact: t = 1.5,")  # centre 0.2, half width 0.2, the classes cross at 0.5
        assert "t > 1: the property holds with this much room" in out
        assert main(["measure", "line.npz", "fails.vnnlib", "--json"]) == OK
        growth = json.loads(capsys.readouterr().out)
        assert growth["upper"] == pytest.approx(3 / 7, rel=1e-6)
        assert growth["meaning"] == "t <= 1: violated"

    def test_what_it_does_not_do(self, folder: Path, capsys: Capture) -> None:
        assert main(["measure", "line.npz", "holds.vnnlib", "--certificate", "p.npz"]) == BAD
        assert "verify --certificate" in capsys.readouterr().err


@pytest.fixture
def environment() -> dict[str, str]:
    """The scripts take the Python of the tests."""
    return {**os.environ, "LAYERCERT_PYTHON": sys.executable}


def script(name: str, *args: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "vnncomp" / name), *map(str, args)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


class TestCompetition:
    def test_an_instance_from_preparation_to_result(self, folder: Path, environment: dict[str, str]) -> None:
        files = (folder / "line.onnx", folder / "fails.vnnlib")
        prepared = script("prepare_instance.sh", "v1", "test", *files, env=environment)
        assert prepared.returncode == 0, prepared.stderr
        done = script("run_instance.sh", "v1", "test", *files, folder / "results.txt", "60", env=environment)
        assert done.returncode == 0, done.stderr
        first, rest = (folder / "results.txt").read_text().split("\n", 1)
        assert first == "sat"
        assert values(rest)["Y_1"] >= values(rest)["Y_0"]

    def test_what_goes_wrong(self, folder: Path, environment: dict[str, str]) -> None:
        files = (folder / "line.onnx", folder / "mixed.vnnlib")
        done = script("run_instance.sh", "v1", "test", *files, folder / "results.txt", "60", env=environment)
        assert done.returncode != 0
        assert (folder / "results.txt").read_text() == "error\n"
        assert script("prepare_instance.sh", "v1", "test", "a.onnx", files[1], env=environment).returncode == 1
        for name in ("install_tool.sh", "prepare_instance.sh", "run_instance.sh"):
            wrong = script(name, "v2", env=environment)
            assert wrong.returncode == 1 and "usage" in wrong.stderr

    def test_the_runner(self, folder: Path, environment: dict[str, str]) -> None:
        (folder / "instances.csv").write_text(
            "line.onnx,holds.vnnlib,60\nline.onnx,fails.vnnlib,60\nline.onnx,mixed.vnnlib,60\n"
        )
        (folder / "expected.csv").write_text(
            "network,property,answer\nline.onnx,holds.vnnlib,unsat\nline.onnx,fails.vnnlib,unsat\n"
        )
        command = [sys.executable, str(ROOT / "vnncomp" / "run_all.py"), "instances.csv"]
        command += ["--out", "results.csv", "--expected", "expected.csv"]
        first = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert first.returncode == 1  # what was expected of the second instance is wrong
        assert "2 of 3 solved (67 %), 1 wrong" in first.stdout
        assert "WRONG: line.onnx fails.vnnlib: sat, expected unsat" in first.stdout
        with (folder / "results.csv").open(newline="") as file:
            answers = {row["vnnlib"]: row["answer"] for row in csv.DictReader(file)}
        assert answers == {"holds.vnnlib": "unsat", "fails.vnnlib": "sat", "mixed.vnnlib": "error"}
        again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert again.stdout.splitlines() == first.stdout.splitlines()[3:]  # nothing left to run, the same summary

    def test_an_instance_that_overstays_is_killed(self, folder: Path, environment: dict[str, str]) -> None:
        slow = folder / "slow.sh"
        slow.write_text("#!/bin/bash\nsleep 600\n")
        slow.chmod(0o755)
        (folder / "instances.csv").write_text("line.onnx,holds.vnnlib,1\n")
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); import run_all; run_all.GRACE = 1.0; run_all.main()"
        command = [sys.executable, "-c", program, str(ROOT / "vnncomp"), "instances.csv", "--out", "r.csv"]
        environment["LAYERCERT_PYTHON"] = str(slow)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert "0 of 1 solved" in done.stdout and "1 timeout" in done.stdout
