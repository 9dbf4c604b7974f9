"""layercert check and export: one certificate, all certificates of a run, exit codes, pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from layercert.batch.checking import checked_before
from layercert.cli import main
from layercert.network import Network

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
