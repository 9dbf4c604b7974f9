"""Batches: what is stored, what survives, what is refused before any work."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.batches import comparable, line_network, plan, points
from layercert import __version__
from layercert.attack.strict import Holds
from layercert.batch import LocalProcesses, Model, Options, Plan, RunError, Store, open_store, run_batch
from layercert.batch.export import export
from layercert.batch.folder import hold
from layercert.batch.plan import differences, memory_bytes
from layercert.cli import main
from layercert.errors import InputError, LayerCertError, OptionError
from layercert.methods import AUTO, method_named
from layercert.report.records import read_runs
from layercert.run import measure


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two norms and two methods on four points at distances 0.01 .. 0.04."""
    folder = tmp_path_factory.mktemp("batch") / "run"
    tally = run_batch(
        plan(4, norms=("linf", "l2"), methods=("geocert", "layercert-both"), domain=(0.0, 1.0)),
        folder,
        LocalProcesses(jobs=2),
    )
    assert (tally.total, tally.done, tally.open) == (16, 16, 0)
    return folder


def test_every_combination_is_measured_exactly(finished: Path) -> None:
    with closing(open_store(finished)) as store:
        rows = list(store.rows())
        assert [row["job"] for row in rows] == list(range(16))
        assert {(row["norm"], row["method"]) for row in rows} == {
            (norm, method) for norm in ("linf", "l2") for method in ("geocert", "layercert-both")
        }
        for row in rows:
            assert row["status"] == "exact" and row["label"] == 1 and row["target"] == 0
            assert row["upper"] == pytest.approx((row["input"] + 1) / 100, rel=1e-6)
            witness = store.witness(row["job"])
            assert witness is not None and witness[0] == pytest.approx(0.5)


def test_a_run_can_be_repeated_from_its_file_alone(finished: Path, tmp_path: Path) -> None:
    with closing(open_store(finished)) as store:
        facts, sessions = store.facts(), store.sessions()
        assert facts["identity"]["norms"] == ["linf", "l2"] and facts["identity"]["domain"] == [0.0, 1.0]
        assert sessions[0]["versions"]["layercert"] == __version__ and "numpy" in sessions[0]["versions"]
        assert sessions[0]["machine"]["cores"] and sessions[0]["machine"]["memory_bytes"] > 0
        assert "2 local processes" in sessions[0]["workers"]
        network = store.network(0)
        assert network.sha256 == line_network().sha256 == store.models()[0][1]
        assert np.array_equal(np.stack([store.x(i) for i in range(4)]), points(4).X)
        again = Plan(
            (Model("line", network),),
            points(4),
            Options(norms=("linf", "l2"), methods=("geocert", "layercert-both"), domain=(0.0, 1.0)),
        )
        first = comparable(store)
    run_batch(again, tmp_path / "again", LocalProcesses(jobs=1))
    with closing(open_store(tmp_path / "again")) as store:
        assert comparable(store) == first


def test_a_finished_run_has_nothing_left_to_do(finished: Path) -> None:
    class Nobody:
        def describe(self) -> str:
            raise AssertionError("no work expected")

        run = describe

    same = plan(4, norms=("linf", "l2"), methods=("geocert", "layercert-both"), domain=(0.0, 1.0))
    assert run_batch(same, finished, Nobody()).earlier == 16  # type: ignore[arg-type]


def test_other_options_are_refused(finished: Path) -> None:
    other = plan(4, norms=("l2",), methods=("geocert", "layercert-both"), domain=(0.0, 2.0))
    with pytest.raises(
        RunError, match=r"made with other options: domain was \(0.0, 1.0\), now \(0.0, 2.0\); norms was"
    ):
        run_batch(other, finished, LocalProcesses())
    more = plan(5, norms=("linf", "l2"), methods=("geocert", "layercert-both"), domain=(0.0, 1.0))
    with pytest.raises(RunError, match=r"inputs was 4, now 5.*another folder with --out"):
        run_batch(more, finished, LocalProcesses())


def test_a_run_can_grow_by_inputs(tmp_path: Path) -> None:
    """What is there is kept under its number; the grown run is that of the larger plan."""
    run_batch(plan(2, norms=("linf", "l2")), tmp_path, LocalProcesses())
    larger = plan(3, norms=("linf", "l2"))
    with closing(open_store(tmp_path)) as store:
        before = list(store.rows())
    tally = run_batch(larger, tmp_path, LocalProcesses(), more_inputs=True)
    assert (tally.total, tally.earlier, tally.counts["exact"]) == (6, 4, 6)
    with closing(open_store(tmp_path)) as store:
        assert list(store.rows())[:4] == before
        assert [row["name"] for row in store.rows()] == ["0", "0", "1", "1", "2", "2"]
    assert run_batch(larger, tmp_path, LocalProcesses()).earlier == 6
    with pytest.raises(RunError, match="inputs was 3, now 2"):
        run_batch(plan(2, norms=("linf", "l2")), tmp_path, LocalProcesses(), more_inputs=True)
    other = plan(4, norms=("linf", "l2"), domain=(0.0, 1.0))
    with pytest.raises(RunError, match=r"made with other options: domain was unset, now \(0.0, 1.0\); give"):
        run_batch(other, tmp_path, LocalProcesses(), more_inputs=True)


def test_exports(finished: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with closing(open_store(finished)) as store:
        for suffix in ("csv", "jsonl", "parquet"):
            assert export(store, tmp_path / f"results.{suffix}") == 16
        with pytest.raises(OptionError, match=r"ends in .csv, .jsonl, .parquet"):
            export(store, tmp_path / "results.xlsx")
        rows = list(store.rows())
    with open(tmp_path / "results.csv", newline="") as handle:
        table = list(csv.DictReader(handle))
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    columns = parquet.read_table(tmp_path / "results.parquet").to_pydict()
    for i, row in enumerate(rows):
        assert float(table[i]["upper"]) == lines[i]["upper"] == columns["upper"][i] == row["upper"]
        assert table[i]["method"] == lines[i]["method"] == columns["method"][i]
        assert lines[i]["witness"] == columns["witness"][i] and len(lines[i]["witness"]) == 2


def test_infinite_bounds_survive_storage_and_json(tmp_path: Path) -> None:
    run_batch(plan(2, radius=0.001), tmp_path / "run", LocalProcesses())
    with closing(open_store(tmp_path / "run")) as store:
        assert [(row["status"], row["upper"]) for row in store.rows()] == [("robust", float("inf"))] * 2
        export(store, tmp_path / "r.jsonl")
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["upper"] is None


# refused before any work


def test_by_default_the_method_is_chosen_as_measure_chooses_it() -> None:
    assert Options().methods == (AUTO,) and method_named(AUTO) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norms": ()}, "at least one norm"),
        ({"norms": ("l2", "2")}, "a norm is named twice"),
        ({"methods": ("geocrt",)}, "unknown method 'geocrt'; did you mean 'geocert'"),
        ({"time_limit": 0.0}, "time limit must be above 0"),
        ({"stack": "none"}, "unknown .*'none'"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(LayerCertError, match=message):
        plan(1, **options)


def test_bad_inputs_are_found_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"input 0 on model line: the input is outside the domain"):
        run_batch(plan(2, domain=(0.0, 0.1)), tmp_path / "run", LocalProcesses())
    assert not (tmp_path / "run").exists()
    with pytest.raises(OptionError, match="two models have the same name"):
        Plan((Model("a", line_network()), Model("a", line_network())), points(1), Options())
    with pytest.raises(OptionError, match="at least one worker process, got 0"):
        LocalProcesses(jobs=0)


def test_memory_sizes() -> None:
    assert memory_bytes("2G") == 2**31 and memory_bytes("500m") == 500 * 2**20 and memory_bytes("1e6") == 1_000_000
    for bad in ("lots", "", "-1G", "0"):
        with pytest.raises(OptionError, match="memory"):
            memory_bytes(bad)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere, so for a while we are not root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_folder() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o555)
        try:
            for target in (Path(name), Path(name) / "run"):
                with (
                    as_nobody(),
                    pytest.raises(RunError, match=r"cannot write to .*: Permission denied; choose a folder"),
                ):
                    run_batch(plan(1), target, LocalProcesses())
        finally:
            os.chmod(name, 0o755)


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match="is a file; a run needs a folder"):
        run_batch(plan(1), tmp_path / "run", LocalProcesses())


def test_no_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(RunError, match=r"too full: this batch may need 20 MB, 1 MB are free; make room"):
        run_batch(plan(1), tmp_path / "run", LocalProcesses())


def test_a_disk_that_fills_up_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's page limit gives the same error as a full disk; what was recorded stays, and the run goes on later."""
    wanted = plan(60)
    (tmp_path / "run").mkdir()
    with closing(Store(tmp_path / "run")) as store:
        store.adopt(wanted)
    real, squeezed = sqlite3.connect, True

    def connect(*args: object, **kwargs: object) -> sqlite3.Connection:
        db = real(*args, **kwargs)  # type: ignore[arg-type]
        if squeezed:
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages + 1}")
        return db

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(RunError, match="database or disk is full; everything recorded before is kept: free some space"):
        run_batch(wanted, tmp_path / "run", LocalProcesses())
    squeezed = False
    with closing(open_store(tmp_path / "run")) as store:
        assert 0 < len(store.done()) < 60
    tally = run_batch(wanted, tmp_path / "run", LocalProcesses())
    assert tally.earlier > 0 and tally.open == 0


def test_something_else_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").write_text("no database, but long enough to look at: " + "x" * 200)
    with pytest.raises(RunError, match="is not a run of layercert"):
        run_batch(plan(1), tmp_path, LocalProcesses())
    (tmp_path / "run.sqlite").unlink()
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db:
        db.execute("CREATE TABLE accounts (id)")
    with pytest.raises(RunError, match="a database of something else"):
        run_batch(plan(1), tmp_path, LocalProcesses())
    with pytest.raises(RunError, match=r"no run in .* make one with: layercert batch"):
        open_store(tmp_path / "nowhere")


def test_a_folder_in_use(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(RunError, match=rf"in use by process {os.getpid()} on .* since"):
        run_batch(plan(1), tmp_path, LocalProcesses())
    assert run_batch(plan(1), tmp_path, LocalProcesses()).open == 0


# the command


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line_network().save(tmp_path / "line.npz")
    np.savez(tmp_path / "points.npz", X=points(3).X, y=[1, 1, 0])  # the third is misclassified: distance 0
    command = [
        "batch",
        str(tmp_path / "line.npz"),
        "--data",
        str(tmp_path / "points.npz"),
        "--out",
        str(tmp_path / "r"),
    ]
    assert main([*command, "--log", "--norm", "l1", "--export", str(tmp_path / "r.csv")]) == 0
    out, log = capfd.readouterr()
    assert "3 of 3 done: 3 exact. Next: layercert report" in out
    assert log.count("exact") == 3 and "0.02 <= distance <= 0.02" in log
    assert main([*command, "--norm", "l1"]) == 0
    out, log = capfd.readouterr()
    assert "(3 from before)" in out and log == ""
    assert main([*command, "--norm", "l2"]) == 2
    assert "made with other options: norms was (l1), now (l2)" in capfd.readouterr().err
    for extra in (["--export", "x.doc"], ["--classes", "a"], ["--memory", "much"]):
        assert main([*command, *extra]) == 2


def test_what_a_result_says_of_its_witness_and_method_is_kept(tmp_path: Path) -> None:
    """From the search to the store, the exported rows and the report's records."""
    asked = plan(2, gap=0.5)
    run_batch(asked, tmp_path / "run", LocalProcesses(jobs=1))
    answer = measure(asked.models[0].network, asked.data.X[0], label=asked.label(0), gap=0.5)
    with closing(open_store(tmp_path / "run")) as store:
        row = next(iter(store.rows()))
        assert row["method"] == "auto" and row["used"] == answer.method
        assert Holds(**json.loads(row["holds"])) == answer.holds
        export(store, tmp_path / "r.jsonl")
        assert "gap was 0.5, now unset" in str(differences(store.facts()["identity"], plan(2).identity))
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["used"] == answer.method
    record = read_runs([tmp_path / "run"], tmp_path).records[0]
    result = record.result
    assert (result.method, result.holds, record.status) == (answer.method, answer.holds, "exact")
    near = replace(record, result=replace(result, lower=result.upper * (1.0 - 1e-9)))
    assert near.proved == result.upper  # but for rounding
    wide = replace(record, result=replace(result, lower=0.5 * result.upper))
    assert wide.proved == wide.result.lower  # a gap that was asked for is no proof of the distance
