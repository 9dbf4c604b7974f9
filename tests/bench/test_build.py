"""A bench of one's own: built by the command, killed on the way, gone on with, checked and plotted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from layercert.batch import Job, Model, Outcome, Plan
from layercert.batch.work import solve
from layercert.bench import gather
from layercert.bench.build import Build, ask_again, build
from layercert.bench.checks import check_bench
from layercert.bench.collections import Collection, add_collection, collections_of
from layercert.bench.ship import ship
from layercert.bench.table import CSV, write_csv
from layercert.cli import main
from layercert.errors import OptionError
from layercert.io.datasets import Dataset, load_dataset


def make_files(folder: Path) -> tuple[Path, Path]:
    """A random network of three inputs and four points; small enough that a question takes milliseconds."""
    rng = np.random.default_rng(5)
    network = lc.Network.from_arrays(
        [rng.normal(size=(8, 3)), rng.normal(size=(8, 8)), rng.normal(size=(3, 8))],
        [rng.normal(size=8), rng.normal(size=8), rng.normal(size=3)],
    )
    network.save(folder / "small.npz")
    X = rng.uniform(size=(4, 3))
    np.savez(folder / "points.npz", X=X, y=network(X).argmax(axis=1))
    return folder / "small.npz", folder / "points.npz"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench whose build was killed with SIGKILL after some answers and then given the same command again."""
    folder = tmp_path_factory.mktemp("bench")
    model, data = make_files(folder)
    out = folder / "bench"
    command = [
        sys.executable, "-m", "layercert.cli", "radiusbench", "extend", str(model), "--data", str(data),
        "--name", "tiny", "--domain", "0", "1", "--out", str(out), "--inputs", "4", "--quiet",
    ]  # fmt: skip
    run = out / "runs" / "tiny" / "box-0000" / "run.sqlite"
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while first.poll() is None and answers(run) < 3:
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = answers(run)
    assert before >= 3
    assert main(command[3:]) == 0
    assert (out / CSV).exists()
    return out


def answers(path: Path) -> int:
    """How many answers a run holds; 0 while it is not there."""
    if not path.exists():
        return 0
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        try:
            return int(db.execute("SELECT count(*) FROM results").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def test_a_build_goes_on_after_kill_9_and_is_whole(built: Path) -> None:
    bench = lc.radiusbench(built)
    assert len(bench) == 4 * 3 * 2, "inputs x norms x domains, each once"
    assert len({row.name for row in bench}) == len(bench)
    network, points = bench.network("small"), bench.inputs("tiny")
    for row in bench.rows[::5]:
        fresh = lc.measure(network, points.X[row.input], row.norm, domain=row.domain)
        assert row.status == fresh.status and row.upper == pytest.approx(fresh.upper, rel=1e-5)


def test_all_certificates_are_proved_again(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["radiusbench", "check", str(built), "--jobs", "1"]) == 0
    assert "24 of 24 certificates proved" in capsys.readouterr().out


def test_a_row_that_no_certificate_proves_is_found(built: Path) -> None:
    table = (built / CSV).read_bytes()
    path = built / "runs" / "tiny" / "box-0000" / "certificates" / "000000.cert"
    proof = path.read_bytes()
    path.write_bytes(proof[: len(proof) // 2])
    wrong = [verdict for verdict in check_bench(built, jobs=1) if not verdict.ok]
    path.write_bytes(proof)
    assert [verdict.name for verdict in wrong] == ["small-linf-box-0"] * 2
    assert "the table says exact and no certificate proves it" in wrong[1].text
    assert all(verdict.ok for verdict in check_bench(built, jobs=1))
    assert (built / CSV).read_bytes() == table, "a check changes nothing"


def test_the_page_has_curves_and_the_table(built: Path, tmp_path: Path) -> None:
    assert main(["radiusbench", "plot", str(built), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 6 and "small" in page and "certificates checked" in page


def test_ship_takes_the_table_and_a_sample(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["radiusbench", "ship", str(built), str(tmp_path / "gift")]) == 0
    assert capsys.readouterr().out.startswith("6 certificates")
    assert (tmp_path / "gift" / CSV).read_bytes() == (built / CSV).read_bytes()


def test_the_shipped_sample_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    sample = [v for v in check_bench(None) if v.name.startswith(("wine", "iris", "digits_plain_2x20"))]
    assert len(sample) >= 20 and all(verdict.ok for verdict in sample)


def test_open_questions_are_asked_again_and_the_better_answer_counts(tmp_path: Path) -> None:
    model, data = make_files(tmp_path)
    points = load_dataset(data).take(np.arange(1))
    add_collection(tmp_path / "out", Collection("tiny", (Model("small", lc.load(model)),), points, (None,)))
    asked = Build(tmp_path / "out", inputs=1, time_limit=1e-9, only=("tiny",))
    assert {row.status for row in build(asked, say=str)} == {"bounds"}, "no time at all"
    # the run that was begun by the clock goes on so, and what is asked again gets seconds of the processor
    again = replace(asked, cpu_time=True)
    assert {row.status for row in build(again, say=str)} == {"bounds"}
    bench = ask_again(again, 20.0, say=str)
    assert [row.status for row in bench] == ["exact"] * 3
    assert [path.name for path in (tmp_path / "out" / "again" / "tiny").iterdir()] == ["free-20cpus-small-0000"]
    assert lc.radiusbench(tmp_path / "out").rows == bench.rows
    assert all(verdict.ok for verdict in check_bench(tmp_path / "out", jobs=1))


def test_asking_again_goes_on_where_some_norms_were_answered(tmp_path: Path) -> None:
    """The same command once more: what is open is then less than the run was begun with."""
    model, data = make_files(tmp_path)
    points = load_dataset(data).take(np.arange(1))
    add_collection(tmp_path / "out", Collection("tiny", (Model("small", lc.load(model)),), points, (None,)))
    asked = Build(tmp_path / "out", inputs=1, time_limit=1e-9, only=("tiny",))
    build(asked, say=str)
    ask_again(asked, 20.0, say=str)
    kept = tmp_path / "out" / "again" / "tiny" / "free-20s-small-0000" / "checked.json"
    found = json.loads(kept.read_text())
    kept.write_text(json.dumps([{**entry, "ok": entry["job"] != 0} for entry in found]))  # as if one were refused
    bench = ask_again(asked, 20.0, say=str)
    assert sorted(row.status for row in bench) == ["bounds", "exact", "exact"]


def test_a_run_that_was_killed_before_it_began_is_begun_again(tmp_path: Path) -> None:
    model, data = make_files(tmp_path)
    points = load_dataset(data).take(np.arange(1))
    out = tmp_path / "out"
    add_collection(out, Collection("tiny", (Model("small", lc.load(model)),), points, (None,)))
    asked = Build(out, inputs=1, only=("tiny",))
    (out / "runs" / "tiny" / "free-0000").mkdir(parents=True)
    (out / "runs" / "tiny" / "free-0000" / "run.sqlite").touch()
    assert [row.status for row in build(asked, say=str)] == ["exact"] * 3


def two_networks(folder: Path, points: int) -> Path:
    """A bench about two tiny networks that share inputs, without any answer yet."""
    rng = np.random.default_rng(6)
    X = rng.uniform(size=(points, 2))
    nets = [lc.Network.from_arrays([rng.normal(size=(3, 2)), rng.normal(size=(2, 3))], [np.zeros(3), np.zeros(2)])
            for _ in range(2)]  # fmt: skip
    models = tuple(Model(name, net) for name, net in zip(("first", "second"), nets, strict=True))
    data = Dataset(X, None, np.arange(points), tuple(str(i) for i in range(points)))
    add_collection(folder, Collection("pair", models, data, (None,)))
    return folder


@dataclass(frozen=True)
class InProcess:
    """In place of worker processes: starting them takes seconds."""

    jobs: int

    def describe(self) -> str:
        return "this process"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            network, label = plan.models[job.model].network, plan.label(job.input)
            yield solve(network, plan.data.X[job.input], label, job, plan.options)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[build.__module__], "LocalProcesses", InProcess)


def inputs_of(bench: lc.RadiusBench, network: str) -> list[int]:
    return sorted({row.input for row in bench.select(network=network)})


def run_names(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "runs" / "pair").iterdir())


@pytest.mark.usefixtures("in_process")
def test_some_networks_are_asked_about_more_inputs_than_others(tmp_path: Path) -> None:
    out = two_networks(tmp_path, 25)
    asked = Build(out, inputs=10, only=("pair",))
    build(asked, say=str)
    some = build(replace(asked, inputs=20, networks=("second",)), say=str)
    assert (inputs_of(some, "first"), inputs_of(some, "second")) == (list(range(10)), list(range(20)))
    assert run_names(out) == ["free-0000", "free-0010-second"], "what is known is not asked again"
    both = build(replace(asked, inputs=20), say=str)
    assert inputs_of(both, "first") == list(range(20))
    assert run_names(out) == ["free-0000", "free-0010-first", "free-0010-second"]
    assert all(verdict.ok for verdict in check_bench(out, jobs=1))
    with pytest.raises(OptionError, match="unknown network of RadiusBench 'third'"):
        build(replace(asked, networks=("third",)), say=str)


@pytest.mark.usefixtures("in_process")
def test_asking_again_is_about_the_networks_that_were_named(tmp_path: Path) -> None:
    out = two_networks(tmp_path, 1)
    asked = Build(out, inputs=1, time_limit=1e-9, only=("pair",))
    build(asked, say=str)
    bench = ask_again(replace(asked, networks=("second",)), 20.0, say=str)
    assert {row.network for row in bench if row.status == "exact"} == {"second"}


@pytest.mark.usefixtures("in_process")
def test_inputs_beyond_fifty_come_in_larger_parts_but_a_part_that_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with smaller numbers: parts of two, and of five beyond the first four."""
    parts = sys.modules[build.__module__]
    for name, value in (("PART", 2), ("MANY", 4), ("LARGER", 5)):
        monkeypatch.setattr(parts, name, value)
    out = two_networks(tmp_path, 12)
    asked = Build(out, inputs=5, only=("pair",))
    assert inputs_of(build(asked, say=str), "first") == list(range(9)), "a part is whole"
    assert run_names(out) == ["free-0000", "free-0002", "free-0004"]
    monkeypatch.setattr(parts, "LARGER", 8)  # as if what is there had been built with smaller parts
    assert inputs_of(build(replace(asked, inputs=12), say=str), "second") == list(range(12))
    assert run_names(out) == ["free-0000", "free-0002", "free-0004", "free-0009"]


@pytest.fixture(scope="module")
def shorter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shipped table but for the last six inputs of iris."""
    folder = tmp_path_factory.mktemp("shorter")
    rows = [row for row in lc.radiusbench() if row.collection != "iris" or row.input < 30]
    write_csv(rows, folder / CSV)
    shutil.copy(lc.radiusbench().folder / "about.json", folder)
    return folder


@pytest.fixture(scope="module")
def longer(shorter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That table with the inputs of iris that it lacks; 36 short questions."""
    out = tmp_path_factory.mktemp("longer") / "bench"
    command = ["radiusbench", "build", "--shipped", "--only", "iris", "--inputs", "36", "--out", str(out), "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "SHIPPED", shorter)
        assert main(command) == 0
    return out


def test_a_bench_that_begins_with_the_shipped_table_asks_only_what_that_lacks(shorter: Path, longer: Path) -> None:
    begun, bench = lc.radiusbench(shorter), lc.radiusbench(longer)
    assert sorted(path.name for path in (longer / "runs" / "iris").iterdir()) == ["box-0030", "free-0030"]
    assert set(begun.rows) < set(bench.rows)
    added = set(bench.rows) - set(begun.rows)
    assert len(added) == 36 and {row.status for row in added} == {"exact"}
    name = "digits_cnn_pool"
    assert bench.network(name).sha256 == lc.radiusbench().network(name).sha256, "all come along"
    about, before = (json.loads((folder / "about.json").read_text()) for folder in (longer, shorter))
    assert about["rows"] == len(begun) + 36 and set(before["time_limits"]) <= set(about["time_limits"])


def test_the_check_of_such_a_bench_is_about_its_own_certificates(
    shorter: Path, longer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["radiusbench", "check", str(longer), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "36 of 36 certificates proved" in said
    assert f"began with {len(lc.radiusbench(shorter))} rows of the shipped table" in said


def test_a_bench_without_rows_of_its_own_has_nothing_to_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench"
    build(Build(out, inputs=10, only=("iris",), shipped=True), say=str)
    assert set(lc.radiusbench(out).rows) == set(lc.radiusbench().rows)
    assert main(["radiusbench", "check", str(out)]) == 2
    assert "no rows but those of the shipped table" in capsys.readouterr().err


def test_ship_keeps_the_certificates_of_rows_that_were_taken_over(longer: Path, tmp_path: Path) -> None:
    gift = tmp_path / "gift"
    shutil.copytree(lc.radiusbench().folder, gift)
    before = {path.name: path.read_bytes() for path in (gift / "certificates").iterdir()}
    victim = next(name for name in before if name.startswith("wine"))
    (gift / "certificates" / victim).write_bytes(b"another one")
    count, _ = ship(longer, gift)
    after = {path.name: path.read_bytes() for path in (gift / "certificates").iterdir()}
    assert len(after) == count
    assert victim not in after, "not the one that the table is about"
    assert all(before[name] == after[name] for name in before if name != victim and not name.startswith("iris"))
    bench = lc.radiusbench(gift)
    assert all(bench.certificate(row) is None or row.status == "exact" for row in bench)
    for row in bench.select(network="iris_sklearn_2x10"):
        path = bench.certificate(row)
        assert path is None or lc.check(bench.network(row.network), lc.load_certificate(path)).ok


def test_names_that_are_taken_are_refused(tmp_path: Path) -> None:
    model, data = make_files(tmp_path)
    mine = Collection("digits", (Model("small", lc.load(model)),), load_dataset(data))
    with pytest.raises(OptionError, match="digits is a collection of RadiusBench itself; give yours another --name"):
        add_collection(tmp_path, mine)
    with pytest.raises(OptionError, match="unknown collection of RadiusBench 'foo'"):
        collections_of(tmp_path, ("foo",))
