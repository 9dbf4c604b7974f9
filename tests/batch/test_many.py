"""measure_all: arrays, lists, loaders; results in order however they finish; a table of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.batches import line_network, points
from layercert.batch import Job, Outcome, Plan, many
from layercert.batch.news import Proved
from layercert.batch.work import solve
from layercert.errors import InputError, MissingPackageError, OptionError

X = points(6).X  # class 1, at distances 0.01 .. 0.06
METHOD = {"method": "layercert-both", "domain": (0.0, 1.0)}


class Loader:
    """As PyTorch's: batches of two, with labels or without."""

    def __init__(self, labelled: bool) -> None:
        self.labelled = labelled

    def __iter__(self) -> Iterator[Any]:
        for i in range(0, 6, 2):
            yield [X[i : i + 2], np.ones(2, dtype=int)] if self.labelled else X[i : i + 2]


def distances(results: lc.Measurements) -> list[float]:
    return [round(r.upper, 6) for r in results]


@pytest.mark.parametrize(
    "inputs", [X, X.tolist(), list(X), Loader(True), Loader(False), [(x, 1) for x in X].__iter__()]
)
def test_every_kind_of_input(inputs: Any) -> None:
    assert distances(lc.measure_all(line_network(), inputs, **METHOD)) == [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]


def test_labels() -> None:
    results = lc.measure_all(line_network(), Loader(True), [1, 1, 0, 1, 1, 1], **METHOD)
    assert [r.label for r in results] == [1, 1, 0, 1, 1, 1] and results[2].upper == 0.0
    assert [r.label for r in lc.measure_all(line_network(), X, **METHOD)] == [1] * 6, "the network's own"


def test_a_loader_of_pytorch(torch: ModuleType) -> None:
    data = torch.utils.data.TensorDataset(torch.tensor(X, requires_grad=True), torch.ones(6, dtype=torch.long))
    for inputs in (torch.utils.data.DataLoader(data, batch_size=4), data, torch.tensor(X, requires_grad=True)):
        assert distances(lc.measure_all(line_network(), inputs, **METHOD)) == [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]


def test_nothing_is_computed_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> lc.Result:
        calls.append(1)
        return lc.measure(*args, **kwargs)

    monkeypatch.setattr(many, "measure", counted)
    results = lc.measure_all(line_network(), X, **METHOD)
    assert len(results) == 6 and calls == []
    first = next(iter(results))
    assert len(calls) == 1 and first is results[0] and len(calls) == 1
    assert [r.upper for r in results[1:3]] == pytest.approx([0.02, 0.03]) and len(calls) == 3
    assert results[-1].upper == pytest.approx(0.06) and len(calls) == 6
    assert len(list(results)) == 6 and len(calls) == 6
    assert repr(results) == "Measurements(6 of 6 inputs measured)"
    with pytest.raises(IndexError):
        results[6]


@dataclass
class Backwards:
    """Instead of processes: the last job finishes first, and job 2 is killed with bounds, job 4 without."""

    jobs: int

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in reversed(jobs):
            outcome = solve(plan.models[0].network, plan.data.X[job.input], plan.label(job.input), job, plan.options)
            if job.id == 2:
                outcome = Outcome.cut_short(Proved(2, 0.01, 0.05, 1, 0, X[2] - [0.05, 0.0]), "killed")
            if job.id == 4:
                outcome = Outcome.failed(4, "killed")
            yield outcome


def test_results_come_in_order_however_they_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "LocalProcesses", Backwards)
    results = list(lc.measure_all(line_network(), X, jobs=2, **METHOD))
    assert [round(r.upper, 6) for r in results] == [0.01, 0.02, 0.05, 0.04, float("inf"), 0.06]
    assert [str(r.status) for r in results] == ["exact", "exact", "undecided", "exact", "undecided", "exact"]
    assert (results[2].lower, results[2].note, results[2].label) == (0.01, "killed", 1)
    assert results[2].holds is not None and results[2].holds.exact == "misclassified", "looked at afterwards"
    assert (results[4].lower, results[4].norm, results[4].radius) == (0.0, "linf", float("inf"))
    assert results[0].holds is not None, "the whole result, not only what a run stores"


def test_two_processes_answer_as_one() -> None:
    ends = (np.zeros(2), np.ones(2))
    one = lc.measure_all(line_network(), X, norm=2, domain=ends, method="layercert-both", certificate=True)
    two = lc.measure_all(
        line_network(), X, norm=2, domain=ends, method="layercert-both", certificate=True, jobs=2, progress=True
    )
    for a, b in zip(one, two, strict=True):
        assert (a.status, a.lower, a.upper, a.label, a.target) == (b.status, b.lower, b.upper, b.label, b.target)
        assert b.certificate is not None and lc.check(line_network(), b.certificate).ok


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    results = lc.measure_all(line_network(), X[:2], [1, 0], **METHOD)
    rows = results.rows()
    assert [(r["input"], r["label"], r["status"], r["target"]) for r in rows] == [
        (0, 1, "exact", 0),
        (1, 0, "exact", 1),
    ]
    assert type(rows[0]["status"]) is str and rows[1]["upper"] == 0.0
    lines = str(results).splitlines()
    assert lines[0].split() == ["input", "label", "status", "lower", "upper", "target", "seconds", "note"]
    assert lines[1].split()[:3] == ["0", "1", "exact"] and lines[-1] == "2 exact"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'layercert\[pandas\]'"):
        results.to_pandas()
    stand_in = ModuleType("pandas")
    stand_in.DataFrame = lambda data, columns: (data, columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    assert results.to_pandas() == (rows, list(many.COLUMNS))


@pytest.mark.parametrize(
    ("inputs", "more", "error", "message"),
    [
        (X[:, :1], {}, InputError, "input 0: "),
        (X, {"labels": [1, 1]}, InputError, "there are 6 inputs and 2 labels"),
        (X, {"labels": [1, 1, 1, 1, 1, 0.5]}, InputError, "a label is a whole number"),
        (X, {"labels": [1, 1, 1, 1, 1, 7]}, InputError, "input 5: "),
        (X[:1], {"labels": ["a"]}, InputError, "a label is a whole number, the number of a class; got a"),
        (X[:1], {"labels": [np.nan]}, InputError, "a label is a whole number"),
        (X[:1], {"labels": [np.inf]}, InputError, "a label is a whole number"),
        ("abc", {}, InputError, "X must yield inputs or batches of them, got 'a' from str"),
        ({1: 2}, {}, InputError, "X must yield inputs or batches of them, got 1 from dict"),
        (X, {"domain": (0.0, 0.52)}, InputError, "input 2: the input is outside the domain"),
        (7, {}, InputError, "X must be an array with an input per row or a data loader, got int"),
        (X, {"jobs": 0}, OptionError, "at least one process, got jobs=0"),
        (X, {"jobs": np.nan}, OptionError, "at least one process, got jobs=nan"),
        (X, {"jobs": "2"}, OptionError, "at least one process, got jobs='2'"),
        (X, {"domain": (-(10**400), 1.0)}, InputError, "an end of the domain is a number or an array of them"),
        (X, {"method": "geocrt"}, OptionError, "did you mean 'geocert'"),
    ],
)
def test_mistakes_are_told_before_any_work(
    inputs: Any, more: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lc.measure_all(line_network(), inputs, **more)


def test_no_inputs() -> None:
    assert list(lc.measure_all(line_network(), [])) == [] and list(lc.measure_all(line_network(), [], jobs=2)) == []
