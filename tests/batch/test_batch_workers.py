"""Workers that crash, hang or eat memory; runs that are killed at any moment; two processes on one run."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from helpers.batches import LAYERCERT, PATIENT, comparable, plan
from layercert.batch import LocalProcesses, RunError, open_store, run_batch
from layercert.batch.news import JobClock
from layercert.batch.process import _cpu_seconds
from layercert.cli.batch import _summary

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ("exits", "the worker crashed: exit code 7"),
        ("segfaults", "the worker crashed: killed by SIGSEGV; Fatal Python error: Segmentation fault"),
        (
            "compiles_and_is_killed",
            "the worker crashed: killed by SIGKILL, perhaps by the system because memory ran out (",
        ),
        ("raises", "OptionError: the radius must be >= 0, got -1"),
        ("swallows_memory", "memory limit exceeded: "),
        ("asks_for_too_much", "out of memory: "),
        ("hangs", "did not stop at its time limit of 0.2 s"),
    ],
)
def test_a_job_that_fails_is_recorded_and_the_others_go_on(tmp_path: Path, work: str, reason: str) -> None:
    memory = 600 * 2**20 if "memory" in work or "much" in work else None
    crew = LocalProcesses(jobs=1, memory=memory, work=f"helpers.batches:{work}", grace=1.0)
    limit = 0.2 if work == "hangs" else 30.0
    tally = run_batch(plan(4, time_limit=limit), tmp_path, crew)
    assert tally.counts == {"exact": 3, "failed": 1}
    with closing(open_store(tmp_path)) as store:
        rows = list(store.rows())
        assert [row["status"] for row in rows] == ["exact", "exact", "failed", "exact"]
        assert rows[2]["note"].startswith(reason)
        assert (rows[2]["lower"], rows[2]["upper"]) == (0.0, float("inf"))  # nothing is claimed


def test_failed_jobs_are_kept_until_asked_to_be_repeated(tmp_path: Path) -> None:
    run_batch(plan(4), tmp_path, LocalProcesses(work="helpers.batches:exits"))
    assert run_batch(plan(4), tmp_path, LocalProcesses()).counts["failed"] == 1
    assert run_batch(plan(4), tmp_path, LocalProcesses(), retry_failed=True).counts == {"exact": 4}


def test_workers_that_cannot_start_are_an_error_not_a_failed_job(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"a worker process cannot start: .*no_such_function"):
        run_batch(plan(2), tmp_path, LocalProcesses(work="helpers.batches:no_such_function"))
    with closing(open_store(tmp_path)) as store:
        assert store.done() == {}


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ("killed_on_the_way", "the worker crashed: killed by SIGKILL, perhaps by the system because memory ran out"),
        ("hangs_on_the_way", "did not stop at its time limit of 0.2 s"),
        ("out_of_memory_on_the_way", "out of memory: "),
    ],
)
def test_bounds_proved_before_the_end_are_kept(tmp_path: Path, work: str, reason: str) -> None:
    """The search had a witness and a lower bound: the row is undecided with both, and the reason."""
    crew = LocalProcesses(work=f"helpers.batches:{work}", grace=1.0)
    tally = run_batch(plan(4, time_limit=0.2 if "hangs" in work else 30.0), tmp_path, crew)
    assert tally.counts == {"exact": 3, "undecided": 1} and tally.ended == 1
    with closing(open_store(tmp_path)) as store:
        row, witness = list(store.rows())[2], store.witness(2)
    assert row["status"] == "undecided" and row["note"].startswith(reason)
    assert row["note"].endswith("(tried twice)") == ("killed" in work)
    assert 0.0 < row["lower"] <= 0.03 + 1e-9 and row["upper"] == pytest.approx(0.03, rel=1e-3)
    assert witness is not None and abs(witness[0] - 0.53) == pytest.approx(row["upper"])
    assert (row["label"], row["target"]) == (1, 0)
    assert "1 failed or ended early" in _summary(tally, tmp_path) and "--retry-failed" in _summary(tally, tmp_path)
    tally = run_batch(plan(4, time_limit=0.2 if "hangs" in work else 30.0), tmp_path, LocalProcesses(), None, True)
    assert tally.counts == {"exact": 4} and tally.ended == 0 and "--retry-failed" not in _summary(tally, tmp_path)


def test_a_job_whose_worker_is_killed_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _count_starts(tmp_path, monkeypatch)
    tally = run_batch(plan(3), tmp_path / "run", LocalProcesses(work="helpers.batches:killed_once"))
    assert tally.counts == {"exact": 3} and tally.ended == 0
    assert [(tmp_path / "marks" / str(job)).read_text() for job in range(3)] == ["xx"] * 3


@pytest.mark.parametrize(("jobs", "killed"), [(1, "0-1"), (2, "1-99")])
def test_a_worker_killed_while_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, killed: str
) -> None:
    """One worker whose first two starts are killed; two, of which the second never starts: the first does the work."""
    _count_starts(tmp_path, monkeypatch, killed)
    crew = LocalProcesses(jobs, work="helpers.killed_starts:solve", pause=0.0)
    assert run_batch(plan(30), tmp_path / "run", crew).counts == {"exact": 30}


def test_workers_that_are_always_killed_end_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _count_starts(tmp_path, monkeypatch, "0-99")
    crew = LocalProcesses(2, work="helpers.killed_starts:solve", pause=0.0)
    with pytest.raises(RunError, match=r"cannot start \(4 in a row\): killed by SIGKILL.*the same command again"):
        run_batch(plan(2), tmp_path / "run", crew)
    assert len((tmp_path / "marks" / "starts").read_text()) == 4


def _count_starts(folder: Path, monkeypatch: pytest.MonkeyPatch, killed: str = "99") -> None:
    (folder / "marks").mkdir()
    monkeypatch.setenv("LAYERCERT_TEST_MARKS", str(folder / "marks"))
    monkeypatch.setenv("LAYERCERT_TEST_KILLED", killed)


def test_the_watchdog_stands_still_while_a_worker_compiles(tmp_path: Path) -> None:
    """Compiling takes 2.5 s and 320 MB, where a job may take 1.1 s and the memory of an idle worker and 200 MB."""
    crew = LocalProcesses(memory=500 * 2**20, work="helpers.batches:compiles", grace=1.0)
    tally = run_batch(plan(4, time_limit=0.05), tmp_path, crew)
    assert tally.counts == {"exact": 4}


def test_the_clock_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = JobClock()
    now[0] = 102.0
    clock.stop()
    now[0] = 170.0
    assert clock.seconds == 2.0 and not clock.running
    clock.go_on()
    now[0] = 171.5
    assert clock.seconds == 3.5 and clock.running


def test_a_limit_of_cpu_seconds_outlasts_waiting(tmp_path: Path) -> None:
    """The work sleeps for 1.5 s, three times what the watchdog allows by the clock, and computes next to nothing."""
    crew = LocalProcesses(work="helpers.batches:sleeps", grace=0.4)
    tally = run_batch(plan(1, time_limit=0.05, cpu_time=True), tmp_path / "cpu", crew)
    assert tally.counts == {"exact": 1}
    tally = run_batch(plan(1, time_limit=0.05), tmp_path / "clock", crew)
    assert tally.counts == {"failed": 1}


def test_cpu_seconds_of_a_process() -> None:
    before, seen = time.process_time(), _cpu_seconds(os.getpid())
    assert before - 0.1 <= seen <= time.process_time() + 0.1
    assert _cpu_seconds(2**22 + 1) == 0.0  # beyond the largest number of a process


def test_numerical_libraries_have_one_thread(tmp_path: Path) -> None:
    run_batch(plan(1), tmp_path, LocalProcesses(work="helpers.batches:tells_threads"))
    with closing(open_store(tmp_path)) as store:
        threads, variable = next(iter(store.rows()))["note"].split()
    assert variable == "1"
    assert int(threads) <= 2  # the worker and the one that watches for its parent


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """Also in the middle of a job: nothing keeps computing for a parent that was killed."""
    script = (
        "from helpers import batches; from layercert.batch import *; from pathlib import Path; "
        "place = LocalProcesses(jobs=1, work='helpers.batches:hangs'); run_batch(batches.plan(4), "
        f"Path({str(tmp_path / 'run')!r}), place)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=TESTS)
    workers: list[int] = []
    deadline = time.monotonic() + 60
    while not workers and time.monotonic() < deadline:
        time.sleep(0.1)
        workers = _children(parent.pid)
    while _recorded(tmp_path / "run") < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    while _alive(workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workers and not _alive(workers)


@pytest.mark.slow
def test_killed_at_random_moments_and_continued(tmp_path: Path) -> None:
    """kill -9, again and again; each time the file is sound, and in the end nothing is missing, double or different.

    However slow the disk and fast the work: after each start a few jobs are allowed, and the others wait.
    """
    options = [
        "batch", "mnist17_l1_2x10", "--data", "digits", "--index", "0:40", "--domain", "0", "1",
        "--method", "layercert-both",
    ]  # fmt: skip
    whole, broken, allowed = tmp_path / "whole", tmp_path / "broken", tmp_path / "allowed"
    subprocess.run([*LAYERCERT, *options, "--out", str(whole)], check=True, stdout=subprocess.DEVNULL)
    with closing(open_store(whole)) as store:
        reference = comparable(store)
    seed = 1
    rng = random.Random(seed)
    done: list[int] = [0]
    environment = {**os.environ, "LAYERCERT_TEST_ALLOWED": str(allowed)}
    for kill in range(8):
        # twice in the first moments, when the file is being made; then somewhere in the work
        wanted = 0 if kill < 2 else done[-1] + rng.randint(1, 3)
        allowed.write_text(str(wanted + rng.randint(0, 2)))
        process = subprocess.Popen(
            [*PATIENT, *options, "--out", str(broken)], stdout=subprocess.DEVNULL, cwd=TESTS, env=environment
        )
        while _recorded(broken) < wanted and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.5) if kill < 2 else rng.uniform(0.0, 0.03))
        assert process.poll() is None, f"it ended before it was killed, seed {seed}"
        process.kill()
        process.wait()
        if (broken / "run.sqlite").exists():
            with closing(sqlite3.connect(broken / "run.sqlite")) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",), f"seed {seed}"
        done.append(_recorded(broken))
        assert done[-1] >= max(wanted, done[-2]), f"results were lost: {done}, seed {seed}"
        if done[-1]:
            with closing(open_store(broken)) as store:
                assert set(comparable(store)) <= set(reference), f"seed {seed}"
    assert 6 <= done[-1] < len(reference)
    subprocess.run([*LAYERCERT, *options, "--out", str(broken)], check=True, stdout=subprocess.DEVNULL)
    with closing(open_store(broken)) as store:
        assert comparable(store) == reference, f"seed {seed}"


def test_two_processes_on_one_run(tmp_path: Path) -> None:
    """The second one is told who holds the run, and leaves it alone."""
    command = [
        *LAYERCERT, "batch", "mnist17_l1_2x10", "--data", "digits", "--index", "0:8",
        "--domain", "0", "1", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(process.communicate(timeout=100), process.returncode) for process in both]
    codes = sorted(code for _, code in ended)
    assert codes in ([0, 2], [0, 0]), ended  # [0, 0]: the first had finished before the second began
    if codes == [0, 2]:
        (_, message), _ = next(e for e in ended if e[1] == 2)
        assert "is in use by process" in message and "choose another --out" in message
    with closing(open_store(tmp_path / "run")) as store:
        assert len(store.done()) == 8 and len(store.sessions()) == 1


def test_who_holds_a_run_is_named_even_if_it_has_not_said_so_yet(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "lock").open("w+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        timer = threading.Timer(0.1, lambda: (held.write("process 7 on a host\n"), held.flush()))
        timer.start()
        with pytest.raises(RunError, match="is in use by process 7 on a host"):
            run_batch(plan(1), tmp_path / "run", LocalProcesses(jobs=1))
        timer.join()
    (tmp_path / "run" / "lock").write_text("")
    with (tmp_path / "run" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="is in use by another process"):
            run_batch(plan(1), tmp_path / "run", LocalProcesses(jobs=1))


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    command = [  # half a second a job: the signal comes in the middle, never after the end
        *LAYERCERT, "batch", "mnist17_plain_2x50", "--data", "digits", "--norm", "linf", "--norm", "l2", "--norm", "l1",
        "--method", "geocert", "--time-limit", "0.5", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300  # a cold start compiles kernels
    while _recorded(tmp_path / "run") < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3 and "interrupted; the same command goes on where it stopped" in err
    assert 3 <= _recorded(tmp_path / "run") < 300


def _recorded(run: Path) -> int:
    try:
        with closing(open_store(run)) as store:
            return len(store.done())
    except (RunError, sqlite3.OperationalError):
        return 0


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _alive(pids: list[int]) -> bool:
    """Running, and not merely waiting to be reaped."""
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                return True
        except OSError:
            continue
    return False
