"""Long searches from the command line: saved, taken up, on all cores, within a bound of memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import layercert.cli.commands as commands
from helpers.networks import random_question
from layercert.cli import main
from layercert.problem import Problem
from layercert.result import Result
from layercert.run import How, closest
from layercert.system import clock

NET, X = random_question(8, 3)


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    NET.save(tmp_path / "net.npz")
    np.save(tmp_path / "x.npy", np.stack([X, X + 1e-3]))
    return ["measure", str(tmp_path / "net.npz"), "--input", str(tmp_path / "x.npy"), "--norm", "l1", "--quiet"]


def test_the_same_command_goes_on(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*asked, "--save", str(tmp_path / "search-{}"), "--json", "--method", "adaptive", "--threads", "1"]
    with clock.until(None, looks=4000):
        assert main([*words, "--time-limit", "1000"]) == 3
    stopped = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["status"] for row in stopped} == {"undecided"} and (tmp_path / "search-0").exists()
    assert main(words) == 0
    done = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["status"] for row in done] == ["exact", "exact"]
    assert all(new["lower"] >= old["lower"] for new, old in zip(done, stopped, strict=True))
    assert main(words) == 0  # the answer is in the file
    assert [json.loads(line)["programs"] for line in capsys.readouterr().out.splitlines()] == [0, 0]
    assert main([*words, "--gap", "0.1"]) == 2
    assert "is about another question: its gap differs" in capsys.readouterr().err


def test_a_saved_search_says_how_it_goes_on(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*asked, "--index", "0", "--save", str(tmp_path / "a.search"), "--method", "adaptive", "--threads", "1"]
    with clock.until(None, looks=4000):
        assert main([*words, "--time-limit", "1000"]) == 3
    said = f"what is left is in {tmp_path / 'a.search'}; the same command goes on from there"
    assert said in capsys.readouterr().out
    assert main(words) == 0
    assert said not in capsys.readouterr().out


def test_one_file_for_several_inputs_is_refused(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--save", str(tmp_path / "a.search")]) == 2
    assert (
        "would be overwritten by each of the 2 inputs; put {} into the name, e.g. a-{}.search"
        in capsys.readouterr().err
    )
    assert main([*asked, "--save", str(tmp_path / "nowhere" / "{}.search")]) == 2
    assert "the saved search cannot be written to" in capsys.readouterr().err


def test_a_property_is_not_saved(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.vnnlib").write_text("(declare-const X_0 Real)")
    assert main(["verify", asked[1], str(tmp_path / "p.vnnlib"), "--save", "a"]) == 2
    assert "a property's searches cannot be saved; leave --save out" in capsys.readouterr().err


def test_all_cores_unless_told_otherwise(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[How] = []

    def ask(problem: Problem, how: How) -> Result:
        heard.append(how)
        return closest(problem, How("adaptive", time_limit=0.01))

    monkeypatch.setattr(commands, "closest", ask)
    monkeypatch.setattr(commands, "cores", lambda: 7)
    main([*asked, "--index", "0"])
    main([*asked, "--index", "0", "--threads", "2", "--memory", "3M", "--scheduler", "tcp://there:1"])
    assert [how.threads for how in heard] == [7, 2]
    assert heard[1].memory == 3 * 2**20 and heard[1].scheduler == "tcp://there:1" and heard[0].scheduler is None


def test_a_batch_with_more_time(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch", asked[1], "--data", asked[3], "--norm", "l1", "--method", "adaptive", "--quiet"]
    words += ["--out", str(tmp_path / "run"), "--index", "0"]
    assert main([*words, "--time-limit", "0.05"]) == 3
    assert "1 undecided" in capsys.readouterr().out
    assert main([*words, "--time-limit", "100"]) == 2
    assert "time_limit was 0.05, now 100" in capsys.readouterr().err
    assert main([*words, "--time-limit", "100", "--resume-undecided"]) == 0
    assert "1 of 1 done: 1 exact" in capsys.readouterr().out
