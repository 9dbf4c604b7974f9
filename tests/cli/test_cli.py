"""The command line: tables, JSON, exit codes, and one clear line for everything that can be wrong with a request."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from layercert import shipped
from layercert.cli import BAD, OK, OPEN, commands, main
from layercert.errors import unknown
from layercert.io.inputs import load_inputs
from layercert.methods import METHODS
from layercert.network import Network
from layercert.problem import Problem
from layercert.run import How, closest

Capture = pytest.CaptureFixture[str]

# logits are (1 - t, t): they cross at t = 0.5, so from t = 0.2 the distance is 0.3 in every norm
LINE = Network.from_arrays([[[1.0]], [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
BOTH = ["--method", "layercert-both"]
#: The radius of digit 2 on mnist17_l1_2x10 in l_inf with pixels in [0, 1] (three methods agree, and a MIP).
RADIUS_2 = 0.0703654808
DIGIT_2 = ["mnist17_l1_2x10", "--input", "digits", "--index", "2", "--domain", "0", "1"]


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the network line.npz and the points t = 0.2, 0.9, 0.1 in points.npz, of the classes 0, 1, 0."""
    monkeypatch.chdir(tmp_path)
    LINE.save("line.npz")
    np.savez("points.npz", X=[[0.2], [0.9], [0.1]], y=[0, 1, 0])
    return tmp_path


def rows(out: str) -> list[dict[str, str]]:
    """The table as dictionaries; the headings are the keys."""
    lines = [line for line in out.splitlines() if line.strip()]
    start = next(i for i, line in enumerate(lines) if line.split()[0] == "input" and "status" in line)
    heads = lines[start].split()
    body = [re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 :] if re.match(r"\s*\d+ ", line)]
    return [dict(zip(heads, cells, strict=True)) for cells in body]


class TestMeasure:
    def test_the_table(self, line: Path, capsys: Capture) -> None:
        assert main(["measure", "line.npz", "--input", "points.npz", *BOTH]) == OK
        table = rows(capsys.readouterr().out)
        assert list(table[0]) == ["input", "label", "nearest", "status", "lower", "upper", "programs", "seconds"]
        assert [(r["input"], r["label"], r["nearest"], r["status"]) for r in table] == [
            ("0", "0", "1", "exact"),
            ("1", "1", "0", "exact"),
            ("2", "0", "1", "exact"),
        ]
        assert [float(r["upper"]) for r in table] == pytest.approx([0.3, 0.4, 0.4], rel=1e-6)
        assert all(float(r["lower"]) == pytest.approx(float(r["upper"]), rel=1e-6) for r in table)
        assert all(int(r["programs"]) >= 0 and float(r["seconds"]) >= 0 for r in table)

    def test_json_is_the_librarys_result(self, capsys: Capture) -> None:
        assert main(["measure", *DIGIT_2, *BOTH, "--json"]) == OK
        answer = json.loads(capsys.readouterr().out)
        x = load_inputs(shipped.path("digits"), "2").X[0]
        network = lc.load(shipped.path("mnist17_l1_2x10"))
        expected = lc.measure(network, x, domain=(0, 1), method="layercert-both").as_dict()
        assert answer.pop("index") == 2
        assert answer.keys() == expected.keys()
        for key in expected.keys() - {"seconds"}:
            assert answer[key] == expected[key], key
        assert answer["upper"] == pytest.approx(RADIUS_2, rel=1e-8)
        witness = np.array(answer["witness"])
        assert network(witness).argmax() != answer["label"]
        assert np.abs(witness - x).max() == answer["upper"]

    def test_one_json_object_a_line(self, line: Path, capsys: Capture) -> None:
        assert main(["measure", "line.npz", "--input", "points.npz", "--index", "2,0", *BOTH, "--json"]) == OK
        answers = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
        assert [a["index"] for a in answers] == [2, 0]
        assert [a["upper"] for a in answers] == pytest.approx([0.4, 0.3], rel=1e-6)

    def test_nothing_within_the_radius(self, line: Path, capsys: Capture) -> None:
        command = ["measure", "line.npz", "--input", "points.npz", "--index", "0", "--radius", "0.25", *BOTH]
        assert main(command) == OK
        assert rows(capsys.readouterr().out)[0]["status"] == "robust"
        assert main([*command, "--json"]) == OK
        answer = json.loads(capsys.readouterr().out)
        assert (answer["status"], answer["radius"], answer["upper"]) == ("robust", 0.25, None)  # no infinity in JSON

    def test_label_norm_and_domain_reach_the_search(self, line: Path, capsys: Capture) -> None:
        command = ["measure", "line.npz", "--input", "points.npz", "--index", "0", *BOTH, "--json"]
        assert main([*command, "--label", "1"]) == OK  # 0.2 is of class 0: as class 1 it is wrong already
        answer = json.loads(capsys.readouterr().out)
        assert (answer["label"], answer["upper"]) == (1, 0.0)
        assert "already classified as 0, not as 1" in answer["note"]
        assert main([*command, "--norm", "1.5"]) == OK
        assert json.loads(capsys.readouterr().out)["norm"] == "l1.5"
        assert main([*command, "--domain", "0", "0.4"]) == OK  # the boundary is outside
        assert json.loads(capsys.readouterr().out)["status"] == "robust"

    def test_a_row_is_printed_when_its_answer_is_there(
        self, line: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown: list[int] = []  # rows on the screen when each of the three searches starts

        def watched(problem: Problem, how: How) -> lc.Result:
            print(end="", flush=True)
            out = printed[0] = printed[0] + capsys.readouterr().out
            shown.append(len(rows(out)) if out else 0)
            return closest(problem, how)

        printed = [""]
        monkeypatch.setattr(commands, "closest", watched)
        assert main(["measure", "line.npz", "--input", "points.npz", *BOTH]) == OK
        assert shown == [0, 1, 2]

    def test_notes_stand_below_the_table(self, line: Path, capsys: Capture) -> None:
        assert main(["measure", "line.npz", "--input", "points.npz", "--index", "1", "--label", "0", *BOTH]) == OK
        assert "input 1: the input is already classified as 1, not as 0" in capsys.readouterr().out

    def test_without_labels_the_networks_own_class_counts(self, line: Path, capsys: Capture) -> None:
        np.save("one.npy", np.array([0.9]))
        assert main(["measure", "line.npz", "--input", "one.npy", *BOTH]) == OK
        assert rows(capsys.readouterr().out)[0]["label"] == "1"

    @pytest.mark.parametrize("method", [m for m in METHODS if m != "mip" and METHODS[m].complete])
    def test_every_method_by_its_name(self, method: str, capsys: Capture) -> None:
        assert main(["measure", *DIGIT_2, "--method", method, "--json"]) == OK
        answer = json.loads(capsys.readouterr().out)
        assert answer["method"] == method
        assert answer["upper"] == pytest.approx(RADIUS_2, rel=1e-6)

    def test_a_stop_before_the_end_has_its_own_exit_code(self, capsys: Capture) -> None:
        command = ["measure", "mnist17_plain_3x50", "--input", "digits", "--index", "3", "--domain", "0", "1"]
        assert main([*command, "--method", "geocert", "--time-limit", "0.3"]) == OPEN
        out = capsys.readouterr().out
        row = rows(out)[0]
        assert row["status"] == "undecided"
        assert 0.0 <= float(row["lower"]) < float(row["upper"])
        assert "input 3: time limit reached" in out


class TestVerify:
    @pytest.mark.parametrize(("radius", "status"), [("0.29", "robust"), ("0.31", "not robust")])
    def test_either_answer_is_a_success(self, line: Path, capsys: Capture, radius: str, status: str) -> None:
        command = ["verify", "line.npz", "--input", "points.npz", "--index", "0", "--radius", radius, *BOTH]
        assert main(command) == OK
        assert rows(capsys.readouterr().out)[0]["status"] == status

    def test_json(self, line: Path, capsys: Capture) -> None:
        command = ["verify", "line.npz", "--input", "points.npz", "--index", "0", "--radius", "0.31", *BOTH, "--json"]
        assert main(command) == OK
        answer = json.loads(capsys.readouterr().out)
        assert answer["status"] == "not_robust"
        assert answer["upper"] <= 0.31 and LINE(answer["witness"])[1] >= LINE(answer["witness"])[0]

    def test_a_radius_is_required(self, line: Path, capsys: Capture) -> None:
        assert main(["verify", "line.npz", "--input", "points.npz"]) == BAD
        assert "verify needs --radius R with --input" in capsys.readouterr().err


class TestDemo:
    def test_radii(self, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without its pictures and its page, which have their own tests and take ten seconds."""
        monkeypatch.setattr("layercert.cli.demo._pictures", lambda network, out: ())
        monkeypatch.setattr("layercert.cli.demo.write_report", lambda runs, out, *names, **rest: out / "index.html")
        assert main(["demo", "--inputs", "2", "--out", str(tmp_path)]) == OK
        table = rows(capsys.readouterr().out)
        network, inputs = lc.load(shipped.path("mnist17_l1_2x20")), load_inputs(shipped.path("digits"), "0:2")
        assert len(table) == 4
        for row in table:
            x = inputs.X[int(row["input"])]
            result = lc.measure(network, x, row["norm"], domain=(0, 1), method="layercert-both")
            assert row["status"] == "exact"
            assert float(row["upper"]) == pytest.approx(result.upper, rel=2e-6)

    def test_no_inputs(self, capsys: Capture) -> None:
        assert refused(["demo", "--inputs", "0"], capsys) == "the demo needs at least one input, got 0"


def test_a_name_that_is_nothing_lists_what_is_shipped(capsys: Capture) -> None:
    assert main(["measure", "mnist17_l1_2x2", "--input", "digits"]) == BAD
    err = capsys.readouterr().err
    assert "unknown file or shipped name 'mnist17_l1_2x2'; did you mean 'mnist17_l1_2x" in err
    assert all(name in err for name in shipped.names())


def test_every_shipped_data_set_is_named_in_the_help(capsys: Capture) -> None:
    sets = [name for name in shipped.names() if "X" in np.load(shipped.path(name))]
    assert {"digits", "digits10"} <= set(sets)
    for command in ("measure", "verify", "batch"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        out = capsys.readouterr().out
        assert all(f"'{name}'" in out for name in sets), command


def test_no_command_prints_help(capsys: Capture) -> None:
    assert main([]) == OK
    assert "measure" in capsys.readouterr().out


# -- what can be wrong ------------------------------------------------------------------------------------------------


def refused(argv: list[str], capsys: Capture) -> str:
    """The one line on stderr of a request that is refused; nothing on stdout."""
    assert main(argv) == BAD
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layercert: error: ") and captured.err.endswith("\n")
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    return captured.err.removeprefix("layercert: error: ").rstrip("\n")


class TestBadModels:
    def measure(self, model: str, capsys: Capture) -> str:
        return refused(["measure", model, "--input", "points.npz", *BOTH], capsys)

    def test_missing(self, line: Path, capsys: Capture) -> None:
        assert "no file 'nothing.onnx'; check the path" in self.measure("nothing.onnx", capsys)

    def test_a_folder(self, line: Path, capsys: Capture) -> None:
        assert "is a folder; give the path of a model file" in self.measure(".", capsys)

    @pytest.mark.parametrize("name", ["model.onnx", "model.npz"])
    def test_not_a_model(self, line: Path, capsys: Capture, name: str) -> None:
        Path(name).write_text("not a model\nat all\n")
        assert re.match(rf"{name}: not an \.?\w+ (model|file), or a damaged one", self.measure(name, capsys))

    def test_unsupported_suffix(self, line: Path, capsys: Capture) -> None:
        Path("model.pt").write_text("x")
        assert "its suffix '.pt'; supported: .onnx, .npz" in self.measure("model.pt", capsys)

    def test_data_instead_of_a_network(self, line: Path, capsys: Capture) -> None:
        assert "no array W0 in the file" in self.measure("points.npz", capsys)

    def test_nan_weights(self, line: Path, capsys: Capture) -> None:
        np.savez("nan.npz", W0=np.array([[1.0], [math.nan]]), b0=np.zeros(2))
        assert "weights[0] holds nan at (1, 0); weights must be finite" in self.measure("nan.npz", capsys)

    def test_no_output(self, line: Path, capsys: Capture) -> None:
        np.savez("none.npz", W0=np.ones((0, 1)), b0=np.zeros(0))
        assert "weights[0] must be a non-empty matrix (out, in), got shape (0, 1)" in self.measure("none.npz", capsys)

    def test_a_threshold_beside_two_outputs(self, line: Path, capsys: Capture) -> None:
        err = refused(["measure", "line.npz", "--input", "points.npz", "--threshold", "0.5"], capsys)
        assert err == "a threshold belongs to a network with one output, this one has 2"


class TestBadInputs:
    def measure(self, file: str, capsys: Capture) -> str:
        return refused(["measure", "line.npz", "--input", file, *BOTH], capsys)

    def test_missing(self, line: Path, capsys: Capture) -> None:
        assert "no data at 'nothing.npz'; expected .npz or .npy, .csv" in self.measure("nothing.npz", capsys)

    def test_not_numbers(self, line: Path, capsys: Capture) -> None:
        Path("text.npy").write_text("0.2\n0.3\n")
        assert "'text.npy' is not a .npz or .npy file of numbers" in self.measure("text.npy", capsys)

    def test_nan_is_found_before_any_search(self, line: Path, capsys: Capture) -> None:
        """In the second of two inputs: the first is not measured in vain, the message says which."""
        np.savez("nan.npz", X=[[0.2], [math.nan]])
        assert self.measure("nan.npz", capsys).startswith("input 1: the input has nan at position 0; every entry must")

    def test_wrong_shape(self, line: Path, capsys: Capture) -> None:
        np.savez("wide.npz", X=np.zeros((2, 3)))
        assert "the input has 3 numbers (shape (3,)), the network expects 1" in self.measure("wide.npz", capsys)

    def test_label_of_the_file_out_of_range(self, line: Path, capsys: Capture) -> None:
        np.savez("label.npz", X=[[0.2]], y=[7])
        assert "label 7 is out of range: the network has 2 outputs, so labels are 0..1" in self.measure(
            "label.npz", capsys
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--label 2", "label 2 is out of range: the network has 2 outputs, so labels are 0..1"),
        ("--label -1", "label -1 is out of range"),
        ("--norm 0.5", "l_p is a norm only for p >= 1, got p = 0.5"),
        ("--norm nan", "l_p is a norm only for p >= 1, got p = nan"),
        ("--norm euclid", "unknown norm 'euclid'; expected 'l1', 'l2', 'linf' or a number p >= 1"),
        ("--radius -1", "the radius must be >= 0, got -1"),
        ("--radius nan", "the radius must be >= 0, got nan"),
        ("--domain 1 0", "the domain is empty: at position 0 low = 1 is above high = 0; swap the ends?"),
        ("--domain nan 1", "the domain holds NaN"),
        ("--domain 0.5 1", "the input is outside the domain: x[0] = 0.2, allowed 0.5..1"),
        ("--index 3", "index 3 is out of range: there are 3 inputs, 0..2"),
        ("--index 1:1", "the index '1:1' chooses none of the 3 inputs"),
        ("--index first", "cannot read the index 'first'; expected e.g. 7, 0:10"),
        ("--time-limit 0", "the time limit must be above 0 seconds, got 0"),
        ("--method layercert-bot", "unknown method 'layercert-bot'; did you mean 'layercert-both' or"),
        ("--method nothing-like-it", "unknown method 'nothing-like-it'; known: adaptive, auto, geocert"),
        ("--method mip --norm l2", "method 'mip' knows linear norms only, l1 and linf, got l2"),
        ("--stack libary", "unknown solver stack 'libary'; did you mean 'library'?"),
    ],
)
def test_bad_options(line: Path, capsys: Capture, options: str, text: str) -> None:
    argv = ["measure", "line.npz", "--input", "points.npz"]
    if "--index" not in options:
        argv += ["--index", "0"]
    if "--method" not in options:
        argv += BOTH
    assert text in refused([*argv, *options.split()], capsys)


@pytest.mark.parametrize("options", ["--radius wide", "--label one", "--domain 0", "--colour red"])
def test_options_that_do_not_parse(line: Path, capsys: Capture, options: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["measure", "line.npz", "--input", "points.npz", *options.split()])
    assert stop.value.code == BAD
    assert "error: " in capsys.readouterr().err


def test_a_missing_optional_package(line: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)  # what `import cvxpy` finds where it is not installed
    message = refused(["measure", "line.npz", "--input", "points.npz", *BOTH, "--stack", "paper"], capsys)
    assert message == (
        "the paper's solver stack needs the optional package 'cvxpy', which is not installed; "
        "run: pip install 'layercert[paper]'"
    )


def test_the_nearest_names_come_first() -> None:
    error = unknown("method", "geocert-lipp", ["mip", "geocert", "geocert-lip"])
    assert str(error).startswith("unknown method 'geocert-lipp'; did you mean 'geocert-lip' or 'geocert'? known: geo")
    assert str(unknown("fruit", "xyz", ["apple"])) == "unknown fruit 'xyz'; known: apple"


# -- real processes ---------------------------------------------------------------------------------------------------

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
LAYERCERT = [sys.executable, "-m", "layercert"]


def run(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAYERCERT, *argv], capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, timeout=120)


def heard(err: str) -> list[str]:
    """The lines on stderr but for the one about the first compilation, which any process may be the one to need."""
    return [text for text in err.splitlines() if not re.search("compil(es|ing) .* this once", text)]


def test_a_process_that_succeeds_and_one_that_is_refused(line: Path) -> None:
    good = run("measure", "line.npz", "--input", "points.npz", *BOTH, cwd=line)
    assert (good.returncode, heard(good.stderr)) == (OK, [])
    assert len(rows(good.stdout)) == 3
    bad = run("measure", "line.npz", "--input", "points.npz", "--norm", "0", cwd=line)
    assert (bad.returncode, bad.stdout) == (BAD, "")
    assert bad.stderr.count("\n") == 1 and bad.stderr.startswith("layercert: error: l_p is a norm only for p >= 1")


def test_a_reader_that_goes_away_is_no_error(line: Path) -> None:
    """`layercert ... | head -0`: the pipe is closed before the first line is written."""
    read, write = os.pipe()
    os.close(read)
    command = [*LAYERCERT, "measure", "line.npz", "--input", "points.npz", *BOTH, "--json"]
    with open(write, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=120)
    assert (done.returncode, heard(done.stderr)) == (OK, [])


#: The command line with a progress bar that says when the search has a bound, and waits: so Ctrl-C comes in its midst
#: and not in the middle of a line.
TELLING = """
import sys
import time
from layercert.cli import live, main
def watch(self, run, event):
    if run.lower > 0:
        sys.stderr.write("begun\\n")
        sys.stderr.flush()
        time.sleep(2)
live.Live.watch = watch
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("method", ["geocert", "layercert-both", "adaptive"])
def test_ctrl_c_prints_the_bounds_reached(method: str) -> None:
    """Two digits whose search takes minutes: the first is interrupted, the second never starts."""
    command = ["measure", "mnist17_plain_3x50", "--input", "digits", "--index", "3,5", "--domain", "0", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *command, "--method", method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stderr is not None
    try:
        begun = next(text for text in process.stderr if heard(text))
        assert begun == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == OPEN
    assert set(heard(err)) <= {"begun"}
    table = rows(out)
    assert len(table) == 1
    assert table[0]["status"] == "undecided"
    assert 0.0 <= float(table[0]["lower"]) < float(table[0]["upper"]) < 1.0
    assert "input 3: interrupted" in out


HEAVY = {"numpy", "scipy", "numba", "onnx", "torch", "rich", "highspy", "cvxpy", "matplotlib", "flint"}


@pytest.mark.parametrize("argv", [None, ["--help"], ["measure", "--help"], ["--version"], ["verify", "--radius", "x"]])
def test_import_and_help_load_nothing_heavy(argv: list[str] | None) -> None:
    """Counted in modules, not in seconds: what is not imported cannot be slow."""
    code = "import sys, layercert\n"
    if argv is not None:
        code += f"from layercert.cli import main\ntry:\n    main({argv!r})\nexcept SystemExit:\n    pass\n"
    code += "print('loaded:', sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(re.findall(r"'(\w+)'", done.stdout.rpartition("loaded:")[2]))
    assert "layercert" in loaded
    assert not loaded & HEAVY


def test_the_library_loads_what_is_asked_for() -> None:
    assert lc.Network is Network
    assert {"measure", "verify", "load"} <= set(dir(lc))
    with pytest.raises(AttributeError, match="module 'layercert' has no attribute 'mesure'"):
        lc.mesure  # noqa: B018


class TestNames:
    """Names that no terminal can show are shown escaped."""

    def test_a_name_that_does_not_fit_the_encoding_of_the_terminal(self, tmp_path: Path) -> None:
        lc.Network.from_arrays([[[1.0], [0.5]]], [[0.0, 0.0]]).save(tmp_path / "net.npz")
        bounds = "(assert (>= X_0 0))(assert (<= X_0 1))(assert (<= Y_0 -1))"
        declared = "".join(f"(declare-const {name} Real)" for name in ("X_0", "Y_0", "Y_1"))
        (tmp_path / "prüf_λ.vnnlib").write_text(declared + bounds)
        environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
        for command in (
            ["verify", "net.npz", "prüf_λ.vnnlib", "--certificate", "proof.npz"],
            ["check", "proof.npz", "net.npz", "--spec", "prüf_λ.vnnlib"],
        ):
            done = subprocess.run(
                [*LAYERCERT, *command], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
            )
            assert done.returncode == 0, done.stderr
        assert r"pr\xfcf_\u03bb.vnnlib" in done.stdout

    @pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take names in UTF-8 only")
    def test_a_name_that_is_not_unicode(self, tmp_path: Path) -> None:
        name = os.fsdecode(b"bad\xff.npz")
        lc.Network.from_arrays([[[1.0], [0.5]]], [[0.0, 0.0]]).save(tmp_path / name)
        np.savez(tmp_path / "points.npz", X=np.array([[0.3]]), y=np.array([0]))
        done = run("batch", name, "--data", "points.npz", "--out", "run", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        done = run("report", "run", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (page,) = (tmp_path / "run").rglob("index.html")
        assert r"bad\udcff" in page.read_text(encoding="utf-8")


def test_measure_reads_what_batch_reads(tmp_path: Path, capsys: Capture) -> None:
    """The same two grey pictures of 2 x 2, as idx, as a folder and as CSV, give the same answers."""
    from PIL import Image

    pixels = np.array([[[0, 51], [102, 255]], [[255, 0], [0, 51]]], dtype=np.uint8)
    (tmp_path / "idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + pixels.tobytes())
    (tmp_path / "pictures").mkdir()
    for i, picture in enumerate(pixels):
        Image.fromarray(picture).save(tmp_path / "pictures" / f"{i}.png")
    X = (pixels.astype(np.float32) / np.float32(255)).astype(np.float64).reshape(2, -1)
    (tmp_path / "table.csv").write_text("\n".join(",".join(map(repr, row)) for row in X.tolist()))
    rng = np.random.default_rng(0)
    Network.from_arrays([rng.normal(size=(6, 4)), rng.normal(size=(2, 6))], [rng.normal(size=6), np.zeros(2)]).save(
        tmp_path / "net.npz"
    )
    answers = []
    for name in ("idx3-ubyte", "pictures", "table.csv"):
        assert main(["measure", str(tmp_path / "net.npz"), "--input", str(tmp_path / name), "--json"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line.get("name") for line in lines] == (["0.png", "1.png"] if name == "pictures" else [None, None])
        answers.append([(line["upper"], line["lower"]) for line in lines])
    assert answers[0] == answers[1] == answers[2] and len(answers[0]) == 2
