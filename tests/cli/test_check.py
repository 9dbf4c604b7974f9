"""layercert check and export: one certificate, all certificates of a run, exit codes, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert.batch.checking import another_question, checked_before, without
from layercert.cli import main
from layercert.network import Network
from layercert.problem import robustness

Capture = pytest.CaptureFixture[str]

# logits are (1 - t, t): they cross at t = 0.5
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The network line.npz, the points 0.2, 0.9, 0.1 in points.npz, and the proof of the first one."""
    monkeypatch.chdir(tmp_path)
    LINE.save("line.npz")
    np.savez("points.npz", X=np.array([[0.2], [0.9], [0.1]]))
    r = lc.measure(LINE, [0.2], certificate=True, method="adaptive")
    assert r.certificate is not None
    r.certificate.save("proof.npz")
    return tmp_path


def test_a_proof_is_tied_to_an_input(folder: Path, capsys: Capture) -> None:
    assert main(["check", "proof.npz", "line.npz", "--input", "points.npz", "--index", "0"]) == 0
    assert "x is input 0 of points.npz" in capsys.readouterr().out
    assert main(["check", "proof.npz", "line.npz", "--input", "points.npz", "--index", "2"]) == 1
    assert "about another input: x differs from input 2 by up to 0.1" in capsys.readouterr().err
    assert main(["check", "proof.npz", "line.npz", "--input", "points.npz"]) == 2
    assert "--input has 3 points" in capsys.readouterr().err
    assert main(["check", "proof.npz"]) == 2
    assert "check needs a model" in capsys.readouterr().err
    assert main(["check", "no-such-run"]) == 2
    assert "expected a certificate or a run's folder, got no-such-run, which does not exist" in capsys.readouterr().err


def test_pictures_of_x_and_the_witness(folder: Path, capsys: Capture) -> None:
    assert main(["check", "proof.npz", "line.npz", "--show", "shown"]) == 0
    assert {path.name for path in Path("shown").iterdir()} == {"x.png", "witness.png", "difference.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in Path("shown").iterdir())


def test_export_writes_what_load_reads(folder: Path, capsys: Capture) -> None:
    assert main(["export", "line.npz", "plain.npz"]) == 0
    assert LINE.sha256 in capsys.readouterr().out
    assert lc.load("plain.npz").sha256 == LINE.sha256


def test_all_certificates_of_a_run(folder: Path, capsys: Capture) -> None:
    batch = ["batch", "line.npz", "--data", "points.npz", "--out", "run", "--method", "adaptive", "--certificates"]
    assert main(batch) == 0
    capsys.readouterr()
    assert main(["check", "run", "--jobs", "1"]) == 0
    assert "3 of 3 certificates proved" in capsys.readouterr().out
    found = checked_before(Path("run"))
    assert [each.ok for each in found.values()] == [True] * 3
    assert all(str(each).startswith("proved and checked, ") for each in found.values())
    first, second = sorted(Path("run/certificates").glob("*.cert"))[:2]
    second.write_bytes(first.read_bytes())  # a proof of another input in its place
    assert len(checked_before(Path("run"))) == 2  # what was found of the old file does not count for the new one
    assert main(["check", "run", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "2 of 3 certificates proved" in out and "about another input than the run's" in out
    assert main(["check", "run", "line.npz"]) == 2
    assert "leave out: model" in capsys.readouterr().err
    assert main(["report", "run", "--out", "page"]) == 0
    page = "".join(path.read_text() for path in Path("page").rglob("*.html"))
    assert "proved and checked" in page and "NOT PROVED" in page


def test_a_proof_of_another_question_is_none(folder: Path, capsys: Capture) -> None:
    """The same network and input, and a claim that is true: it is not what this row of the run asks."""
    norms = ["--norm", "linf", "--norm", "l2"]
    batch = ["batch", "line.npz", "--data", "points.npz", "--out", "run", "--certificates", *norms]
    assert main(batch) == 0
    first, second = sorted(Path("run/certificates").glob("*.cert"))[:2]
    first.write_bytes(second.read_bytes())
    capsys.readouterr()
    assert main(["check", "run", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "line, linf, input 0 (certificates/000000.cert): NOT PROVED" in out and "another norm than the run's" in out
    assert "line, l2, input 0 (certificates/000001.cert): proved and checked" in out


@pytest.mark.parametrize(("other", "asked"), [
    ("input", {"x": [0.25]}), ("norm", {"norm": "l2"}), ("domain", {"domain": (0.0, 1.0)}), ("domain", {"fixed": [0]}),
    ("class", {"label": 1}), ("target", {"target": 1}), ("choice of weights", {"weights": [2.0]}),
    ("choice of whole numbers", {"integer": [0], "x": [0.0]}),
])  # fmt: skip
def test_what_a_proof_may_be_about_instead(other: str, asked: dict[str, Any]) -> None:
    question = {"x": [0.0] if "integer" in asked else [0.2], **asked}
    here, there = ({"network": LINE, "norm": "linf", "label": 0} | part for part in ({"x": question["x"]}, question))
    if "x" in asked and "integer" not in asked:
        here["x"] = [0.2]
    for one, two in ((here, there), (there, here)):
        proof = lc.measure(one.pop("network"), radius=0.1, certificate=True, **one).certificate
        assert proof is not None
        assert another_question(robustness(LINE, **one), proof) == ""
        one["network"] = LINE
        assert another_question(robustness(**two), proof) == f"it is about another {other} than the run's"


def test_a_proof_of_less_than_the_run_says_tells_so(folder: Path, capsys: Capture) -> None:
    assert main(["batch", "line.npz", "--data", "points.npz", "--out", "run", "--certificates"]) == 0
    less = lc.verify(LINE, [0.2], 0.1, certificate=True, method="adaptive").certificate
    assert less is not None
    less.save("run/certificates/000000.cert")
    capsys.readouterr()
    assert main(["check", "run", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "input 0 (certificates/000000.cert): proved and checked up to 0.1 (the run says 0.3), " in out
    assert "input 1 (certificates/000001.cert): proved and checked, " in out


def test_answers_without_a_certificate_are_told(folder: Path, capsys: Capture) -> None:
    assert main(["batch", "line.npz", "--data", "points.npz", "--index", "0:2", "--out", "run"]) == 0
    assert without(Path("run")) == [f"line, linf, input {i}: exact" for i in range(2)]
    assert main(["check", "run"]) == 2
    assert "the run has no certificates" in capsys.readouterr().err
