"""Outcomes of jobs: what two tries prove together, what becomes of a witness, and rows that say the same again."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from helpers.batches import exact, plan
from layercert.attack.strict import Holds
from layercert.batch import Outcome
from layercert.batch.news import Proved
from layercert.batch.rows import RESULT, outcome_of, row_of
from layercert.batch.work import FAILED, unanswered
from layercert.result import Result, Status, Verdict

NEAR = unanswered(lower=0.1, upper=0.3, witness=np.array([0.3]), target=2, label=1, holds=Holds("tie"))
FAR = unanswered(
    lower=0.2, upper=0.5, witness=np.array([0.5]), target=0, label=1, holds=Holds("misclassified", "onnxruntime", True)
)


def test_a_witness_keeps_what_belongs_to_it() -> None:
    """Its distance, its class and the arithmetics it holds in, whichever try is joined to which."""
    for one, other in ((NEAR, FAR), (FAR, NEAR)):
        result = Outcome(0, one).joined(Outcome(0, other)).result
        assert (result.lower, result.upper, result.target, result.holds) == (0.2, 0.3, 2, Holds("tie"))
        assert result.witness is NEAR.witness and result.status == Status.UNDECIDED


def test_a_decided_job_stays_as_it_is() -> None:
    done = exact(0, 0.4)
    assert done.joined(Outcome(0, NEAR)) is done


def test_a_job_that_was_ended() -> None:
    """Nothing proved: failed. A bound: undecided with it, and so when an earlier try had one."""
    failed = Outcome.cut_short(Proved(3), "killed", "pid 1", 2.0)
    assert (failed.status, failed.decided, failed.result.note) == (FAILED, False, "killed")
    assert Outcome.cut_short(Proved(3, lower=0.1), "killed").status == "undecided"
    joined = failed.joined(Outcome(3, NEAR))
    assert (joined.status, joined.result.note, joined.result.holds) == ("undecided", "killed", Holds("tie"))


def test_what_nobody_looked_at_is_examined() -> None:
    """Input 2 is 0.53 on a line that crosses at 0.5: 0.48 is another class, and 0.5 a tie."""
    made = plan(3)
    for moved, found in ((0.05, "misclassified"), (0.03, "tie")):
        x = made.data.X[2]
        cut = Outcome.cut_short(Proved(2, 0.0, moved, 1, 0, np.array([x[0] - moved, 0.0])), "killed")
        holds = cut.examined(made).result.holds
        assert holds is not None and holds.exact == found
    answered = Outcome(2, FAR)
    assert answered.examined(made) is answered and exact(2, 0.1).examined(made).result.holds is None


def test_a_row_says_what_the_outcome_said() -> None:
    """All fields of a result that are stored come back, for every status; the others are those of the question."""
    question = {
        "norm",
        "radius",
        "interrupted",
        "solved_by",
        "fallbacks",
        "certificate",
        "x",
        "names",
        "weights",
        "shape",
    }
    outcomes = [
        Outcome(0, NEAR, "w"), Outcome(1, FAR), exact(2, 0.25, programs=7, seconds=0.5, note="é", method="geocert"),
        Outcome(3, unanswered(status=Verdict.NOT_ROBUST, upper=0.5)), Outcome.failed(4, "crashed"),
        Outcome(5, unanswered(status=Verdict.ROBUST, lower=math.inf)),
    ]  # fmt: skip
    for told in outcomes:
        row = dict(zip(RESULT, row_of(told, None, 1, "today"), strict=True))
        again = outcome_of(row, told.result.witness)
        assert (again.job, again.worker, again.ended, again.status) == (told.job, told.worker, told.ended, told.status)
        for field in fields(Result):
            if field.name not in question:
                assert getattr(again.result, field.name) == getattr(told.result, field.name), field.name
