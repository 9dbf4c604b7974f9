"""Attacks end above the exact radius, verifiers below it, and whoever claims otherwise is found out."""

from __future__ import annotations

import csv
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert.audit import (
    Answers,
    Case,
    Score,
    Tool,
    Wanted,
    audit,
    ranking,
    read_scores,
    tools_named,
    truth,
    verifiers,
)
from layercert.audit.case import cases
from layercert.audit.libraries import installed
from layercert.audit.scores import measured
from layercert.audit.tools import OWN
from layercert.audit.verifiers import largest
from layercert.batch import LocalProcesses, Model, Options, Plan, run_batch
from layercert.cli import main
from layercert.errors import InputError, OptionError
from layercert.system import clock

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_attack.py"
#: Thirteen inputs, small: every tool answers in milliseconds.
WINE = Wanted(networks=("wine_plain_2x20",), inputs=3)


@pytest.fixture(scope="module")
def bench() -> lc.RadiusBench:
    return lc.radiusbench()


@pytest.fixture(scope="module")
def scores(bench: lc.RadiusBench, torch: ModuleType) -> list[Score]:
    """All tools of our own, and of foolbox where it is, on one network in all norms and settings."""
    heard: list[str] = []
    found = audit(bench, [*OWN, *(t for t in installed() if "deepfool" in t.name)], WINE, heard.append)
    assert not [line for line in heard if "failed" in line]
    return found


def test_every_tool_answers_every_question_it_takes(scores: list[Score]) -> None:
    asked = {(s.row.norm, s.row.setting) for s in scores}
    assert len(asked) == 6
    for tool in OWN:
        assert sum(s.tool == tool.name for s in scores) == 6 * 3


def test_attacks_end_above_and_verifiers_below_the_exact_radius(scores: list[Score]) -> None:
    assert not [s for s in scores if s.wrong]
    assert all(s.ratio >= 1 - 1e-6 for s in scores if s.kind == "attack")
    assert all(s.ratio <= 1 + 1e-6 for s in scores if s.kind == "verifier")


def test_tools_are_ordered_as_they_should_be(scores: list[Score]) -> None:
    def radii(tool: str) -> dict[str, float]:
        return {s.row.name: s.radius for s in scores if s.tool == tool}

    crown, interval = radii("crown"), radii("interval")
    assert all(crown[name] >= interval[name] > 0 for name in crown), "linear bounds take intervals as a start"
    standings = ranking([s for s in scores if s.row.norm == "linf" and s.row.setting == "box"], "attack")
    names = [s.tool for s in standings]
    assert names.index("pgd") < names.index("fgsm")
    assert standings[names.index("pgd")].median < 1.05


def test_a_verifier_that_claims_too_much_is_disproved(bench: lc.RadiusBench) -> None:
    boastful = Tool("boastful", "verifier", lambda case: np.full(len(case.X), 10.0))
    found = audit(bench, [boastful], WINE)
    assert found and all(s.wrong for s in found)
    assert ranking(found, "verifier")[0].wrong == len(found)


def test_an_attack_is_judged_by_the_network_and_not_by_its_word(bench: lc.RadiusBench) -> None:
    lazy = Tool("lazy", "attack", lambda case: case.X)
    assert all(math.isinf(s.radius) for s in audit(bench, [lazy], WINE))
    heard: list[str] = []
    assert audit(bench, [Tool("odd", "attack", lambda case: case.X[:, :2])], WINE, heard.append) == []
    assert any("an attack returns one point per input" in line for line in heard)


def test_a_point_outside_the_domain_is_moved_into_it(bench: lc.RadiusBench) -> None:
    row = bench.select("wine_plain_2x20", "linf", "box", "exact").rows[0]
    x = bench.x(row)
    case = Case(bench.network(row.network), x[None], np.array([row.label]), "linf", (0.0, 1.0))
    (distance,) = measured(case, x[None] + 100.0 * np.sign(0.5 - x))
    assert distance <= 1.0 or math.isinf(distance)


def test_large_has_seconds_of_the_processor(bench: lc.RadiusBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit would otherwise be shorter on a busy machine, where all other tools have no limit."""

    def waits(*args: Any, **options: Any) -> SimpleNamespace:
        begun = clock.now()
        time.sleep(0.3)
        return SimpleNamespace(lower=clock.now() - begun)

    monkeypatch.setattr(verifiers, "measure", waits)
    case, _ = next(cases(bench, replace(WINE, inputs=1)))
    assert verifiers.large(case)[0] < 0.2
    begun = clock.now()
    time.sleep(0.01)
    assert clock.now() - begun >= 0.01, "the clock of others is as it was"


def test_loading_packages_does_not_count_as_seconds(bench: lc.RadiusBench) -> None:
    """The first tool that used torch was otherwise said to take as long as its import."""
    asked: list[int] = []

    def slow_to_load(case: Case) -> np.ndarray:
        begun = time.process_time()
        while not asked and time.process_time() < begun + 0.5:
            pass
        asked.append(len(case.X))
        return np.zeros(len(case.X))

    found = audit(bench, [Tool("slow to load", "verifier", slow_to_load, loads=True)], replace(WINE, norms=("linf",)))
    assert asked == [1, 3, 1, 3]  # a small network before each of box and free
    assert max(score.seconds for score in found) < 0.1
    assert all(tool.loads for tool in [*OWN, *installed()])


def test_the_largest_provable_radius_is_found() -> None:
    assert largest(lambda radius: radius <= 0.3, 1.0) == pytest.approx(0.3, rel=1e-3)
    assert largest(lambda radius: False, 1.0) == 0.0


def test_an_attack_of_ones_own_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = EXAMPLE.read_text().split("def walk")[1].split("TOOLS")[0].strip().splitlines()
    assert len(code) <= 10
    arguments = ["--network", "wine_plain_2x20", "--norm", "linf", "--setting", "box", "--out", str(tmp_path)]
    assert main(["audit", "--plugin", str(EXAMPLE), "--tool", "walk", "--tool", "interval", *arguments]) == 0
    out = capsys.readouterr().out
    assert "| walk |" in out and "| interval |" in out
    page = (tmp_path / "index.html").read_text()
    assert page.count("<svg") == 2 and "walk" in page
    lines = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert all(float(line["ratio"]) >= 1 - 1e-6 for line in lines if line["tool"] == "walk")
    assert not any(line["wrong"] == "True" for line in lines)


def test_an_audit_that_was_killed_goes_on(bench: lc.RadiusBench, tmp_path: Path) -> None:
    asked: list[str] = []
    one = replace(WINE, norms=("linf",), inputs=2)

    def zeros(case: Case) -> np.ndarray:
        asked.append("free" if case.domain is None else "box")
        return np.zeros(len(case.X))

    def run(resume: bool, wanted: Wanted = one) -> list[Score]:
        asked.clear()
        return audit(bench, [Tool("zeros", "verifier", zeros)], wanted, answers=Answers(tmp_path, resume))

    first = run(resume=False)
    assert sorted(asked) == ["box", "free"]
    file = tmp_path / "answers.jsonl"
    file.write_text(file.read_text()[:-20])  # killed while the last line was written
    again = run(resume=True)
    assert len(asked) == 1  # the case whose line was cut off
    assert [(s.row, s.radius) for s in again] == [(s.row, s.radius) for s in first]
    assert run(resume=True) == again and asked == []
    run(resume=True, wanted=replace(one, inputs=3))  # other inputs are another question
    assert sorted(asked) == ["box", "free"]
    run(resume=False)
    assert sorted(asked) == ["box", "free"]


#: A verifier that says which cases it is asked, and that is killed in the second one of its first run.
KILLED = """
import os, signal
from pathlib import Path
import numpy as np
from layercert.audit import Tool

def zeros(case):
    with open(Path(__file__).with_name("asked"), "a") as file:
        file.write("free" if case.domain is None else "box")
        file.write("\\n")
    if len(Path(__file__).with_name("asked").read_text().split()) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.zeros(len(case.X))

TOOLS = [Tool("zeros", "verifier", zeros)]
"""


def test_an_audit_goes_on_after_kill_9(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "killed.py"
    plugin.write_text(KILLED)
    command = ["audit", "--plugin", str(plugin), "--tool", "zeros", "--network", "wine_plain_2x20", "--norm", "linf"]
    command += ["--inputs", "2", "--out", str(tmp_path / "out"), "--resume"]
    ended = subprocess.run([sys.executable, "-m", "layercert.cli", *command], capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    first, second = (tmp_path / "asked").read_text().split()
    assert main(command) == 0
    assert (tmp_path / "asked").read_text().split() == [first, second, second]  # what was answered is not asked again
    assert "| zeros |" in capsys.readouterr().out
    lines = list(csv.DictReader((tmp_path / "out" / "scores.csv").read_text().splitlines()))
    assert len(lines) == 4 and {line["setting"] for line in lines} == {"box", "free"}


def test_answers_are_not_lost_where_taking_them_up_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = '{"question": "q", "radii": [1.0], "seconds": 0.5}\n{"question": "cut'
    (tmp_path / "answers.jsonl").write_text(before)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", killed)  # the new file is written, but has not taken its place
        with pytest.raises(KeyboardInterrupt):
            Answers(tmp_path, resume=True)
    assert (tmp_path / "answers.jsonl").read_text() == before


def test_slow_tools_are_asked_where_they_are_named() -> None:
    pytest.importorskip("foolbox", reason="the attacks of foolbox")
    slow = [tool.name for tool in installed() if tool.slow]
    assert slow == ["foolbox-cw-l2-full", "foolbox-ead-l1-full"]
    assert not set(slow) & {tool.name for tool in tools_named([])}
    assert [tool.name for tool in tools_named(slow[:1])] == slow[:1]


def test_radii_from_elsewhere(bench: lc.RadiusBench, tmp_path: Path) -> None:
    row = bench.select("wine_plain_2x20", "linf", "box", "exact").rows[0]
    head = "tool,kind,network,norm,setting,input,radius\n"
    line = f"mine,verifier,{row.network},linf,box,{row.input},{{}}\n"
    file = tmp_path / "mine.csv"
    file.write_text(head + line.format(row.lower / 2) + line.format(row.upper * 1.1))
    right, wrong = read_scores(file, bench, WINE)
    assert right.ratio == pytest.approx(0.5, rel=1e-5) and not right.wrong and wrong.wrong
    for text, message in (
        (head + line.format("far"), "line 2 of .*: the radius 'far' is no number"),
        (head + line.format("nan"), "line 2 of .*: the radius 'nan' is no number >= 0"),
        (head + line.format(-1), "line 2 of .*: the radius '-1' is no number >= 0"),
        (head + '"' + "1" * 200_000, "cannot be read: field larger"),
        (head + line.format(1).replace("verifier", "oracle"), "kind is 'oracle'; expected attack or verifier"),
        ("tool,radius\nmine,1\n", "has no kind; expected the columns tool, kind"),
        (head + line.format(1).replace(row.network, "other"), "is about a question with an exact radius"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_scores(file, bench, WINE)


def test_answers_that_cannot_be_read_do_not_count(bench: lc.RadiusBench, tmp_path: Path) -> None:
    tool, rows = tools_named(["interval"])[0], bench.rows[:2]
    Answers(tmp_path).put(tool, rows, [1.0, 2.0], 0.5)
    assert Answers(tmp_path, resume=True).get(tool, rows) == ([1.0, 2.0], 0.5)
    good = (tmp_path / "answers.jsonl").read_text()
    for bad in (good.replace("[1.0, 2.0]", "[1.0]"), good.replace("1.0", "1" + "0" * 400), "[" * 100_000):
        (tmp_path / "answers.jsonl").write_text(bad)
        assert Answers(tmp_path, resume=True).get(tool, rows) is None


def test_a_run_is_a_truth_too(bench: lc.RadiusBench, tmp_path: Path) -> None:
    data = bench.inputs("wine").take(np.arange(2))
    network = bench.network("wine_plain_2x20")
    run_batch(Plan((Model("wine", network),), data, Options(domain=(0.0, 1.0))), tmp_path / "run", LocalProcesses())
    source = truth(tmp_path / "run")
    known = {r.input: r for r in bench.select("wine_plain_2x20", "linf", "box")}
    assert [r.status for r in source.rows] == ["exact"] * 2
    assert all(r.upper == pytest.approx(known[r.input].upper, rel=1e-5) for r in source.rows)
    found = audit(source, tools_named(["interval"]))
    assert len(found) == 2 and all(0 < s.ratio <= 1 for s in found)
    with pytest.raises(InputError, match=r"is neither a RadiusBench .* nor a run"):
        truth(tmp_path)


def test_names_and_files_that_are_wrong_are_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown attack or verifier 'pdg'.*pgd"):
        tools_named(["pdg"])
    plugin = tmp_path / "plugin.py"
    for text, message in (("TOOLS = []", "has no list TOOLS"), ("1/0", "cannot be run: ZeroDivisionError")):
        plugin.write_text(text)
        with pytest.raises(OptionError, match=message):
            tools_named([], [plugin])
    with pytest.raises(OptionError, match="is no Python file"):
        tools_named([], [tmp_path / "none.py"])


def test_questions_that_the_truth_does_not_have_are_told(bench: lc.RadiusBench) -> None:
    for wanted, message in (
        (Wanted(networks=("wine_plain_2x2",)), r"unknown network of the truth .*did you mean 'wine_plain_2x20'"),
        (Wanted(norms=("linfty",)), r"unknown norm of the truth 'linfty'.*known: l1, l2, linf"),
        (Wanted(settings=("boxed",)), r"unknown setting of the truth 'boxed'.*known: box, free"),
    ):
        with pytest.raises(OptionError, match=message):
            audit(bench, list(OWN), wanted)


def test_auto_lirpa_is_called_as_its_documentation_says(
    bench: lc.RadiusBench, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in with its documented interface: bounds of C f on the box by intervals, as its method IBP gives them."""

    class Bounded:
        def __init__(self, module: Any, example: Any) -> None:
            self.module = module

        def compute_bounds(self, x: Any, C: Any, method: str, bound_upper: bool) -> Any:
            low, high = x[0].ball.x_L, x[0].ball.x_U
            for layer in self.module:
                if isinstance(layer, torch.nn.Linear):
                    mid, half = layer((low + high) / 2), (high - low) / 2 @ layer.weight.abs().T
                    low, high = mid - half, mid + half
                else:
                    low, high = layer(low), layer(high)
            mid, half = (low + high) / 2 @ C[0].T, (high - low) / 2 @ C[0].abs().T
            return mid - half, None

    fake = ModuleType("auto_LiRPA")
    fake.BoundedModule = Bounded  # type: ignore[attr-defined]
    fake.BoundedTensor = lambda x, ball: SimpleNamespace(x=x, ball=ball)  # type: ignore[attr-defined]
    fake.PerturbationLpNorm = lambda norm, eps, **box: SimpleNamespace(norm=norm, eps=eps, **box)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "auto_LiRPA", fake)
    from layercert.audit.libraries import _lirpa

    tool = Tool("stand-in", "verifier", _lirpa("IBP"), ("linf",), ("box",))
    found = audit(bench, [tool, OWN[2]], replace(WINE, norms=("linf",), settings=("box",)))
    ours = {s.row.name: s.radius for s in found if s.tool == "interval"}
    assert len(found) == 2 * len(ours) == 6
    for score in found:
        if score.tool == "stand-in":  # it bounds the outputs one by one, which loses what they have in common
            assert 0 < score.radius <= ours[score.row.name] * 1.01
