"""Batches on a Dask cluster: a real scheduler and real workers, one of which is killed in the middle."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from helpers.batches import comparable, plan
from helpers.dask_cluster import Cluster, cluster, kill
from layercert.batch import LocalProcesses, RunError, open_store, run_batch
from layercert.batch.drive import Tally
from layercert.cli import main
from layercert.errors import OptionError

pytest.importorskip("distributed")
from layercert.batch.cluster import DaskCluster


@pytest.mark.slow
def test_a_worker_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs are done again by the others; nothing is lost, nothing is counted twice, nothing differs."""
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("LAYERCERT_TEST_MARKS", str(marks))
    wanted = plan(40)
    with cluster(tmp_path) as made:
        killed = threading.Event()

        def watch(tally: Tally, *_: object) -> None:
            asleep = marks / f"asleep {made.processes[1].pid}"
            if tally.done >= 6 and not killed.is_set():
                while asleep.exists():  # it has just begun a job when it is killed
                    time.sleep(0.001)
                until = time.monotonic() + 60
                while not asleep.exists() and time.monotonic() < until:
                    time.sleep(0.001)
                killed.set()
                kill(made.processes[1])

        crew = DaskCluster(made.address, work="helpers.batches:slow_and_counted")
        tally = run_batch(wanted, tmp_path / "run", crew, watch)
        assert killed.is_set() and tally.counts == {"exact": 40} and tally.done == 40
        _a_crashing_job_fails_and_the_others_go_on(made, tmp_path / "crash")
        _the_command(made, tmp_path)
        _bounds_are_kept(made, tmp_path / "crash with bounds", "killed_a_little_later", "the worker crashed again")
        _bounds_are_kept(made, tmp_path / "no end", "hangs_on_the_way", "did not stop at its time limit of 0.5 s")
    begun = [len((marks / str(job.id)).read_text()) for job in wanted.jobs]
    assert min(begun) == 1 and sum(begun) > 40, "the job that was running on the killed worker was begun again"
    run_batch(wanted, tmp_path / "local", LocalProcesses())
    with closing(open_store(tmp_path / "run")) as ours, closing(open_store(tmp_path / "local")) as local:
        assert comparable(ours) == comparable(local)
        assert "Dask cluster at tcp://127.0.0.1" in ours.sessions()[0]["workers"]


def _a_crashing_job_fails_and_the_others_go_on(made: Cluster, folder: Path) -> None:
    """os._exit in a worker: its nanny brings it back, Dask tries again, then gives the job up."""
    tally = run_batch(plan(5), folder, DaskCluster(made.address, work="helpers.batches:exits"))
    assert tally.counts == {"exact": 4, "failed": 1}
    with closing(open_store(folder)) as store:
        rows = list(store.rows())
    assert rows[2]["note"].startswith("the worker crashed again and again")


def _bounds_are_kept(made: Cluster, folder: Path, work: str, reason: str) -> None:
    """Workers say their bounds on the way; a worker that does not stop is started again and goes on."""
    limit = 0.5 if "hangs" in work else None
    crew = DaskCluster(made.address, work=f"helpers.batches:{work}", grace=6.0)
    tally = run_batch(plan(6, time_limit=limit), folder, crew)
    assert tally.counts == {"exact": 5, "undecided": 1} and tally.ended == 1
    with closing(open_store(folder)) as store:
        row = list(store.rows())[2]
    assert row["status"] == "undecided" and row["note"].startswith(reason)
    assert 0.0 < row["lower"] <= 0.03 + 1e-9 and row["upper"] == pytest.approx(0.03, rel=1e-3)


def _the_command(made: Cluster, folder: Path) -> None:
    command = ["batch", "mnist17_l1_2x10", "--data", "digits", "--index", "0:4", "--domain", "0", "1"]
    assert main([*command, "--scheduler", made.address, "--out", str(folder / "command")]) == 0
    assert main([*command, "--out", str(folder / "command")]) == 0  # where it ran does not matter: nothing left to do


@pytest.mark.slow
def test_a_scheduler_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is finished is kept, the message says so, and the run can be finished on this machine."""
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("LAYERCERT_TEST_MARKS", str(tmp_path / "marks"))
    with cluster(tmp_path, workers=1) as made:

        def watch(tally: Tally, *_: object) -> None:
            if tally.done == 3:
                kill(made.processes[0])

        crew = DaskCluster(made.address, work="helpers.batches:slow_and_counted", connect_timeout=5.0)
        with pytest.raises(RunError, match="went away; what is finished is kept: give the same command again"):
            run_batch(plan(20), tmp_path / "run", crew, watch)
    tally = run_batch(plan(20), tmp_path / "run", LocalProcesses())
    assert 3 <= tally.earlier < 20 and tally.counts == {"exact": 20}


def test_nobody_there(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(
        RunError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 .* start one with: dask scheduler"
    ):
        run_batch(plan(1), tmp_path / "run", DaskCluster("tcp://127.0.0.1:9", connect_timeout=1.0))
    assert time.monotonic() - started < 30
    with pytest.raises(OptionError, match="cannot read the address 'nonsense://x'"):
        run_batch(plan(1), tmp_path / "run", DaskCluster("nonsense://x", connect_timeout=1.0))
