"""Jobs that reached their time limit go on from where they stopped."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from helpers.batches import exact
from helpers.networks import random_question
from layercert.batch import LocalProcesses, Model, Options, Outcome, Plan, open_store, run_batch
from layercert.batch import work as batch_work
from layercert.batch.errors import RunError
from layercert.batch.searches import Searches, can_be_kept, keep_searches, path_of, with_searches
from layercert.batch.work import unanswered
from layercert.io.datasets import Dataset
from layercert.search.saved import Saved
from layercert.system import clock

NET, X0 = random_question(8, 3)
EXACT = lc.measure(NET, X0, "l1", method="adaptive")


def plan(time_limit: float | None, **options: object) -> Plan:
    X = np.stack([X0, X0 + 1e-3])
    data = Dataset(X, None, np.arange(2), ("a", "b"), None, "two points")
    asked = Options(norms=("l1",), methods=("adaptive",), time_limit=time_limit, **options)  # type: ignore[arg-type]
    return Plan((Model("random", NET),), data, asked)


def test_with_more_time_a_run_goes_on(tmp_path: Path) -> None:
    tally = run_batch(plan(0.1), tmp_path, LocalProcesses())
    assert tally.counts["undecided"] == 2
    with closing(open_store(tmp_path)) as store:
        before = {row["job"]: row for row in store.rows()}
    first = with_searches(replace(plan(0.1).jobs[0], search=path_of(tmp_path, 0)))
    assert first.saved is not None and Saved.from_bytes(first.saved["distance"]).lower == before[0]["lower"]
    with pytest.raises(RunError, match=r"time_limit was 0\.1, now 60"):
        run_batch(plan(60.0), tmp_path, LocalProcesses())
    tally = run_batch(plan(60.0), tmp_path, LocalProcesses(), resume_undecided=True)
    assert tally.counts == {"exact": 2} and tally.open == 0
    with closing(open_store(tmp_path)) as store:
        rows = list(store.rows())
        assert store.identity() == json.loads(json.dumps(plan(60.0).identity))
    assert rows[0]["upper"] == pytest.approx(EXACT.upper, rel=2e-6)
    assert not path_of(tmp_path, 0).exists()
    assert run_batch(plan(60.0), tmp_path, LocalProcesses()).counts == {"exact": 2}  # the same command, nothing to do


def test_what_is_decided_is_not_touched(tmp_path: Path) -> None:
    run_batch(plan(60.0), tmp_path, LocalProcesses())
    with closing(open_store(tmp_path)) as store:
        before = list(store.rows())
    run_batch(plan(90.0), tmp_path, LocalProcesses(), resume_undecided=True)
    with closing(open_store(tmp_path)) as store:
        assert list(store.rows()) == before


@pytest.mark.parametrize("eps", [(), (3.0, 4.8, 5.5)])
def test_a_job_takes_up_its_searches_and_hands_them_back(eps: tuple[float, ...]) -> None:
    job, options = replace(plan(None).jobs[0], keep=True), plan(None, eps=eps).options
    outcome, made = Outcome(0, unanswered()), []
    for looks in (1500, 2500, 4000, 6000, 8000, np.inf):
        with clock.until(None, looks=looks):
            outcome = batch_work.solve(NET, X0, None, job, options)
        job = replace(job, saved=outcome.saved)
        made.append(sum(len(blob) for blob in (outcome.saved or {}).values()))
    assert outcome.decided and outcome.saved is None and max(made) > 1000
    assert (
        outcome.status == ("not_robust" if eps else "exact")
        and outcome.result.lower <= EXACT.upper <= outcome.result.upper + 1e-9
    )


def test_damaged_and_large_searches_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(plan(None).jobs[0], search=path_of(tmp_path, 0))
    assert with_searches(job) is job
    keep_searches(tmp_path, Outcome(0, unanswered(), saved={"distance": b"abc"}))
    assert with_searches(job).saved == {"distance": b"abc"}
    path_of(tmp_path, 0).write_bytes(b"PK nothing")
    assert with_searches(job).saved is None
    keep_searches(tmp_path, exact(0, 0.1))
    assert not path_of(tmp_path, 0).exists()
    monkeypatch.setattr("layercert.batch.searches.MOST", 2)
    with Searches({"distance": b"abc"}, wanted=True) as searches:
        assert searches.file("distance") is not None
        assert searches.all() is None


def test_which_jobs_can_be_kept() -> None:
    job, options = plan(None).jobs[0], plan(None).options
    few = lc.Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    assert can_be_kept(NET, job, options) and can_be_kept(NET, replace(job, method="auto"), options)
    assert not can_be_kept(few, replace(job, method="auto"), options)
    assert not can_be_kept(NET, replace(job, method="mip"), options)
    assert not can_be_kept(NET, job, replace(options, integer=(0,)))
