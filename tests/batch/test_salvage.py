"""Damaged run files: a clear error from every reader, and every readable row is kept."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.batches import comparable, exact, line_network, points
from layercert.batch import Model, Options, Outcome, Plan, RunError, Store, open_store, run_batch
from layercert.batch.pages import rows
from layercert.batch.rows import RESULT
from layercert.batch.salvage import read as read_pages
from layercert.batch.salvage import salvage
from layercert.batch.work import unanswered
from layercert.cli import main
from layercert.network import Network
from layercert.report.records import Points, read_runs

COUNT, SIZE = 60, 700
PAGE = 4096


def wide(**options: Any) -> Plan:
    """Sixty inputs of 700 numbers; the network looks at the first one only."""
    X = np.zeros((COUNT, SIZE))
    X[:, 0] = 0.5 + np.arange(1, COUNT + 1) / 100
    first = np.zeros((1, SIZE))
    first[0, 0] = 1.0
    network = Network.from_arrays([first, [[-1.0], [1.0]]], [[0.0], [1.0, 0.0]])
    data = replace(points(COUNT), X=X)
    return Plan((Model("wide", network),), data, Options(**options))


def outcome(job: int) -> Outcome:
    """An answer with a witness that fills pages: random numbers do not compress, and every third one is short."""
    witness = np.random.default_rng(job).normal(size=SIZE)
    if job % 3 == 0:
        witness[40:] = 0.0
    if job == 7:
        return Outcome.failed(job, "the worker crashed: exit code 7")
    note = "é" * (job % 5)
    answered = exact(job, job / 8, label=1, target=0, witness=witness, programs=job, seconds=0.25, note=note)
    return replace(answered, worker="w")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of sixty jobs, in several transactions."""
    folder, made = tmp_path_factory.mktemp("salvage") / "run", wide()
    folder.mkdir()
    with closing(Store(folder)) as store:
        store.adopt(made)
        for first in range(0, COUNT, 20):
            store.begin_session("by hand")
            store.record([(outcome(job), None) for job in range(first, first + 20)])
    return folder


def damaged(whole: Path, target: Path, change: Callable[[bytearray], object]) -> Path:
    shutil.copytree(whole, target)
    data = bytearray((target / "run.sqlite").read_bytes())
    change(data)
    (target / "run.sqlite").write_bytes(data)
    return target


def overwrite(data: bytearray, at: int, new: bytes) -> None:
    data[at : at + len(new)] = new


def test_pages_read_what_sqlite_reads(whole: Path) -> None:
    with closing(sqlite3.connect(whole / "run.sqlite")) as db:
        wanted = {(job, witness) for job, witness in db.execute("SELECT job, witness FROM results")}
        runs = set(db.execute("SELECT key, value FROM run"))
    found = list(rows((whole / "run.sqlite").read_bytes()))
    assert {(rowid, values[9]) for rowid, values in found if len(values) == len(RESULT)} == wanted
    assert {values for _, values in found if len(values) == 2} == runs


def test_every_page_in_turn_is_lost(whole: Path, tmp_path: Path) -> None:
    """Whatever page is overwritten: no reader ends in a traceback, and salvage keeps every row of the other pages."""
    with closing(open_store(whole)) as store:
        reference = comparable(store)
    noise = np.random.default_rng(0).bytes(PAGE)
    pages, refused, kept = (whole / "run.sqlite").stat().st_size // PAGE, 0, []
    assert pages > 60
    for page in (*range(16), *range(16, pages, 4)):  # the trees' roots and the first leaves, then a sample
        folder = damaged(whole, tmp_path / str(page), partial(overwrite, at=page * PAGE, new=noise))
        for reader in (_resumed, _reported):
            try:
                reader(folder)
            except RunError as error:
                assert "--salvage" in str(error), error
                refused += 1
        count, old = salvage(wide(), folder)
        kept.append(count)
        assert old.read_bytes()[page * PAGE :][:PAGE] == noise
        with closing(open_store(folder)) as store:
            assert set(comparable(store)) <= set(reference) and len(store.done()) == count
            assert np.array_equal(store.x(5), wide().data.X[5]) and store.network(0).sha256 == store.models()[0][1]
        shutil.rmtree(folder)
    assert refused > 30 and min(kept) >= COUNT - 6 and sum(k == COUNT for k in kept) >= 5


def _resumed(folder: Path) -> None:
    class Nobody:
        def describe(self) -> str:
            raise RunError("--salvage is not needed: it goes on")

        run = describe

    run_batch(wide(), folder, Nobody())  # type: ignore[arg-type]


def _reported(folder: Path) -> None:
    results = read_runs([folder], folder / "report")
    with closing(Points(results.runs)) as points:
        for record in results.records:
            points.pair(record)


@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes_never_change_an_answer(whole: Path, tmp_path: Path, seed: int) -> None:
    """SQLite does not notice a changed byte inside a value; the checksum does."""
    rng = np.random.default_rng(seed)

    def change(data: bytearray) -> None:
        for at in rng.integers(0, len(data), 200):
            data[at] ^= int(rng.integers(1, 256))

    folder = damaged(whole, tmp_path / "run", change)
    with closing(open_store(whole)) as store:
        reference = comparable(store)
    try:
        with closing(open_store(folder)) as store:
            assert set(comparable(store)) <= set(reference)
    except RunError as error:
        assert "is damaged" in str(error) and "--salvage" in str(error)
    count, _ = salvage(wide(), folder)
    assert 0 < count < COUNT
    with closing(open_store(folder)) as store, closing(open_store(whole)) as sound:
        assert set(comparable(store)) <= set(reference)
        for job in store.done():
            assert np.array_equal(store.witness(job), sound.witness(job))  # type: ignore[arg-type]


def test_a_changed_row_is_never_taken_over(tmp_path: Path) -> None:
    """A bound that changed on the disk must not become part of a new row, with a checksum of its own."""
    made = wide()
    with closing(Store(tmp_path)) as store:
        store.adopt(made)
        store.begin_session("by hand")
        answers = [Outcome(job, unanswered(lower=0.25, note="time limit reached")) for job in range(3)]
        store.record([(answer, None) for answer in answers])
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db, db:
        db.execute("UPDATE results SET lower = 0.75 WHERE job = 1")
    with closing(open_store(tmp_path)) as store:
        for read in (store.done, store.undecided, partial(store.record, [(answers[1], None)])):
            with pytest.raises(RunError, match=r"is damaged \(the row of job 1 has changed\).*--salvage"):
                read()
    count, _ = salvage(made, tmp_path)
    assert count == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE jobs SET norm = 'l3' WHERE id = 5",
        "UPDATE inputs SET position = 8 WHERE id = 5",
        "UPDATE models SET name = 'wild'",
        "UPDATE run SET value = replace(value, 'linf', 'lin')",
        "DELETE FROM jobs WHERE id = 59",
    ],
)
def test_a_changed_question_is_noticed(whole: Path, tmp_path: Path, change: str) -> None:
    """An answer beside another question would be a wrong answer."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        db.execute(change)
    with closing(open_store(folder)) as store, pytest.raises(RunError, match=r"is damaged \(.*--salvage"):
        list(store.rows())


def test_a_run_of_before_has_no_sum_of_its_questions(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        db.execute("DELETE FROM run WHERE key = 'questions'")
    with closing(open_store(folder)) as store:
        assert len(list(store.rows())) == COUNT


def test_of_two_rows_of_a_job_the_answer_is_kept(tmp_path: Path) -> None:
    """A page that is no longer used may hold the row of an earlier session, whichever comes first."""
    made = wide()
    rows_of = {}
    for name, answer in (
        ("open", Outcome(0, unanswered(lower=0.25, note="time limit reached"))),
        ("exact", outcome(0)),
    ):
        with closing(Store(tmp_path, name)) as store:
            store.create(made)
            store.record([(answer, None)])
        rows_of[name] = (tmp_path / name).read_bytes()
    for data in (rows_of["open"] + rows_of["exact"], rows_of["exact"] + rows_of["open"]):
        found = read_pages(data, made)
        assert found.results[0]["status"] == "exact"


def test_half_of_the_file_is_gone(whole: Path, tmp_path: Path) -> None:
    folder = damaged(whole, tmp_path / "run", lambda data: data.__delitem__(slice(len(data) // 2, None)))
    assert 20 < salvage(wide(), folder)[0] < 45


def test_salvage_that_is_killed_leaves_the_run_where_it_was(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = damaged(whole, tmp_path / "run", partial(overwrite, at=PAGE, new=bytes(PAGE)))

    replaced = os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(target).name == "run.sqlite":
            raise KeyboardInterrupt
        replaced(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.replace", killed)
        salvage(wide(), folder)
    assert (folder / "run.sqlite").exists() and (folder / "run.sqlite.damaged").exists()
    assert salvage(wide(), folder)[1].name == "run.sqlite.damaged-2"


def test_nothing_is_mixed_by_salvage(whole: Path, tmp_path: Path) -> None:
    lost = damaged(whole, tmp_path / "run", partial(overwrite, at=PAGE, new=bytes(2 * PAGE)))
    with pytest.raises(RunError, match=r"made with other options: domain was unset, now \(0.0, 1.0\)"):
        salvage(wide(domain=(0.0, 1.0)), lost)
    assert not (lost / "run.sqlite.damaged").exists()
    (lost / "plan.json").unlink()
    with pytest.raises(RunError, match=r"cannot tell what the run .* was made with.*start anew"):
        salvage(wide(), lost)
    with pytest.raises(RunError, match="nothing to salvage"):
        salvage(wide(), tmp_path / "nowhere")


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run of three, the page of its results lost: an error that names the way out, which computes them again."""
    line_network().save(tmp_path / "line.npz")
    np.savez(tmp_path / "points.npz", X=points(3).X, y=[1, 1, 1])
    command = [
        "batch",
        str(tmp_path / "line.npz"),
        "--data",
        str(tmp_path / "points.npz"),
        "--out",
        str(tmp_path / "r"),
    ]
    assert main(command) == 0
    path = tmp_path / "r" / "run.sqlite"
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'results'").fetchone()
    data = bytearray(path.read_bytes())
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    capfd.readouterr()
    assert main(command) == 2 and main(["report", str(tmp_path / "r")]) == 2
    err = capfd.readouterr().err
    assert err.count("is damaged (database disk image is malformed); give its batch command again with --salvage") == 2
    assert main([*command, "--salvage"]) == 0
    out, err = capfd.readouterr()
    assert "salvaged 0 results" in err and "run.sqlite.damaged" in err and "3 of 3 done: 3 exact" in out
    assert main([*command, "--salvage"]) == 0  # of a sound file everything is kept
    assert "salvaged 3 results" in capfd.readouterr().err
