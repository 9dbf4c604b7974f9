"""What the page of the experiments compares with what, which claims hold, and what its tables show."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layercert.experiments.averages import average_tables, averages
from layercert.experiments.claims import (
    FAILED,
    HELD,
    UNTESTED,
    ablation_claims,
    adaptive_claim,
    claims_table,
    faster,
    fewer,
    judge,
    l2_claims,
    large_claims,
    profile_claims,
    table1_claims,
)
from layercert.experiments.claims import Test as OnOneNetwork
from layercert.experiments.figures import hard_inputs
from layercert.experiments.runs import Pool, Row
from layercert.experiments.setup import EXPERIMENTS, PAPER_METHODS
from layercert.experiments.summary import EVERY, OURS, count_line, scale_line, summary_table
from layercert.experiments.tables import Cell, Table

LIMIT = 10.0


def row(method: str, programs: int, seconds: float, net: str = "2x10", i: str = "a", solved: bool = True) -> Row:
    status = "exact" if solved else "undecided"
    return Row(net, method, i, i, solved, status, 0.1, 0.1, programs, seconds, "", Path("none.json"))


def pool(*rows: Row, kind: str = "linf") -> Pool:
    return Pool(kind, "l1", "default", rows, {"time_limit": LIMIT, "radius": 0.3, "norms": ["linf"]}, (), "", 0, ())


#: Programs and seconds as the paper describes them: each claim holds.
AS_IN_THE_PAPER = {
    "geocert": (100, 5.0), "geocert-lip": (60, 4.0), "layercert-basic": (50, 3.0), "layercert-ia": (40, 2.0),
    "layercert-crown": (30, 1.5), "layercert-both": (20, 1.0), "adaptive": (1, 0.1),
}  # fmt: skip


def paper_pool(**changes: tuple[int, float]) -> Pool:
    values = {**AS_IN_THE_PAPER, **{k.replace("_", "-"): v for k, v in changes.items()}}
    return pool(*(row(m, *v, net=net) for net in ("2x10", "3x20") for m, v in values.items()))


def test_unfinished_inputs_count_with_the_limit() -> None:
    p = pool(row("geocert", 10, 2.0), row("geocert", 90, 10.3, i="b", solved=False))
    a = averages(p, ("geocert",))["2x10", "geocert"]
    assert (a.inputs, a.open, a.programs, a.seconds) == (2, 1, 50.0, (2.0 + LIMIT) / 2)


def test_best_of_the_papers_methods_is_marked_and_ours_where_faster_still() -> None:
    programs, seconds = average_tables(paper_pool(), "t", (*PAPER_METHODS, "adaptive"))
    assert [c.best for c in programs.rows[0]] == [False] * 6 + [True, False]  # adaptive's count is no merit
    assert [c.best for c in seconds.rows[0]] == [False] * 6 + [True, True]
    assert programs.header[-1] == "adaptive +"


def test_programs_are_compared_on_inputs_that_both_finished() -> None:
    stopped_early = [row("geocert", 3, 10.0, i="b", solved=False), row("layercert-both", 50, 1.0, i="b")]
    p = pool(row("geocert", 10, 1.0), row("layercert-both", 5, 1.0), *stopped_early)
    assert fewer(p, "2x10", "layercert-both", ["geocert"]).holds
    assert fewer(pool(*stopped_early), "2x10", "layercert-both", ["geocert"]).holds is None


def test_after_a_first_pass_there_are_two_views_each_with_one_limit() -> None:
    """Eleven inputs, the last one with 1 s for LayerCert-Both and, asked again, with 10 s for GeoCert."""
    rows = [row(m, 10, s, i=str(i)) for i in range(10) for m, s in (("geocert", 4.0), ("layercert-both", 0.5))]
    stopped = replace(row("layercert-both", 7, 1.01, i="10", solved=False), limit=1.0)
    p = pool(*rows, row("geocert", 90, 6.0, i="10"), stopped)
    full, every = p.views(("geocert", "layercert-both"))
    assert (full.inputs, full.limit, full.hurried) == (10, LIMIT, False) and all(r.solved for r in full.rows)
    assert (every.inputs, every.limit, every.hurried) == (11, 1.0, True)
    assert [r.solved for r in every.rows] == [False, True] * 10 + [False, False]
    a = averages(every, ("geocert", "layercert-both"))
    assert [(v.open, v.seconds) for v in a.values()] == [(11, 1.0), (1, pytest.approx(6 / 11))]
    assert scale_line([p]) == "" and not p.has(EXPERIMENTS["profiles"])
    (alone,) = p.views(("geocert",))
    assert alone.inputs == 11 and not alone.hurried
    # without ten inputs that had the whole time there is the short view alone
    assert [v.hurried for v in pool(*p.rows[2:]).views(("geocert", "layercert-both"))] == [True]
    assert p.views(("layercert-ia",)) == []


def test_programs_of_a_first_pass_are_those_of_the_inputs_that_all_finished() -> None:
    stopped = replace(row("geocert", 70, 1.01, i="b", solved=False), limit=1.0)
    p = pool(row("geocert", 10, 0.4), row("layercert-both", 5, 0.3), stopped, row("layercert-both", 50, 0.9, i="b"))
    (every,) = p.views(("geocert", "layercert-both"))
    programs, seconds = average_tables(every, "t", ("geocert", "layercert-both"))
    assert [c.text for c in programs.rows[0]] == ["2x10 (1)", "10.0", "5.0"]
    assert [c.text for c in seconds.rows[0]] == ["2x10", "0.700", "0.600"]


def test_two_methods_at_the_limit_are_no_comparison() -> None:
    p = pool(row("geocert", 9, 10.1, solved=False), row("layercert-basic", 5, 10.2, solved=False))
    assert faster(p, "2x10", ["layercert-basic"], ["geocert"]).holds is None


def test_cells_are_short_and_the_numbers_stand_below_the_table() -> None:
    slow = OnOneNetwork("2x10", False, "9 s, geocert 1 s")
    claims = [*table1_claims(paper_pool()), judge("here", "all", [slow] * 30)]
    table = claims_table("claims", claims)
    assert max(len(cell.text) for row in table.rows for cell in row[3:]) < 60
    brief = claims_table("claims", claims, full=False)
    assert brief.notes == (f"Claim {len(claims)}: not on {', '.join(['2x10'] * 30)}.",)
    assert len(table.notes) == 1 and table.notes[0].startswith(f"Claim {len(claims)}: not on 2x10 (9 s, geocert 1 s); ")
    assert table.markdown().endswith(f"\n\n* {table.notes[0]}") and f"<li>{table.notes[0]}</li>" in table.html()


def test_claims_hold_on_numbers_as_in_the_paper() -> None:
    assert {c.verdict for c in table1_claims(paper_pool())} == {HELD}
    assert {c.verdict for c in l2_claims(paper_pool())} == {HELD}
    assert {c.verdict for c in profile_claims(paper_pool())} == {HELD}


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, {"layercert_ia": (19, 2.0)}, "not on 2x10 (20 programs, layercert-ia 19)"),
        (1, {"geocert": (49, 5.0)}, "50 programs, geocert 49"),
        (2, {"geocert": (100, 2.0)}, "layercert-basic 3.000 s, geocert 2.000 s"),
        (3, {"layercert_basic": (50, 0.5)}, "layercert-both 1.000 s, layercert-basic 0.500 s"),
        (4, {"geocert_lip": (100, 4.0)}, "100 programs, geocert 100"),
        (5, {"geocert_lip": (60, 2.5)}, "layercert-basic 3.000 s, geocert-lip 2.500 s"),
    ],
)
def test_a_claim_that_fails_says_where(number: int, change: dict[str, Any], words: str) -> None:
    claim = table1_claims(paper_pool(**change))[number]
    assert claim.verdict == FAILED and claim.measured.startswith("0 of 2 networks; ratio ") and words in claim.detail


@pytest.mark.parametrize(("late", "share", "verdict"), [(55, "10.0%", HELD), (80, "60.0%", FAILED)])
def test_ablation_measures_the_part_of_the_gain(late: int, share: str, verdict: str) -> None:
    p = pool(row("geocert", 100, 1), row("layercert-basic", 50, 1), row("layercert-basic-late", late, 1))
    claim = ablation_claims(p)[1]
    assert claim.verdict == verdict and claim.measured == f"{share} of the gain"


def test_ablation_without_gain_is_no_test() -> None:
    p = pool(row("geocert", 50, 1), row("layercert-basic", 50, 1), row("layercert-basic-late", 50, 1))
    assert ablation_claims(p)[1].verdict == UNTESTED


def test_adaptive_must_answer_everything() -> None:
    open_question = row("layercert-both", 20, 10.0, solved=False)
    claim = adaptive_claim(pool(open_question, row("adaptive", 1, 0.1)))
    assert claim.verdict == HELD and "1 of the 1 that none of the paper's methods finished" in claim.detail
    assert adaptive_claim(pool(row("adaptive", 1, 10.0, solved=False))).verdict == FAILED


def test_hard_inputs_are_those_neither_method_finished() -> None:
    methods = ("geocert-lip", "layercert-both")
    p = pool(*(row(m, 1, 1.0, i=i, solved=i == "easy") for m in methods for i in ("easy", "hard")), kind="large")
    assert hard_inputs(p, "2x10") == ["hard"]
    assert large_claims(p)[0].verdict == HELD  # equal lower bounds


def test_tables_in_three_formats(tmp_path: Path) -> None:
    rows = ((Cell("2x10"), Cell("1.5", best=True), Cell("9.0", open=3)),)
    Table("t", "Caption", ("network", "a", "b"), rows).write(tmp_path)
    assert "| 2x10 | **1.5** | 9.0 †3 |" in (tmp_path / "t.md").read_text()
    assert '<td class="best">1.5</td><td class="open">9.0<sup>†3</sup></td>' in (tmp_path / "t.html").read_text()
    with open(tmp_path / "t.csv", newline="") as file:
        assert list(csv.reader(file)) == [
            ["network", "a", "a time-outs", "b", "b time-outs"],
            ["2x10", "1.5", "0", "9.0", "3"],
        ]


def test_only_inputs_that_all_methods_were_asked_on_all_networks_are_compared() -> None:
    whole = [row(m, 1, 1.0, net, "a") for m in ("geocert", "adaptive") for net in ("2x10", "3x20")]
    p = pool(*whole, row("geocert", 9, 9.0, "2x10", "b"), row("geocert", 9, 9.0, "3x20", "b"), row("mip", 9, 9.0))
    assert p.complete(("geocert", "adaptive")).rows == tuple(whole)
    assert p.complete(("geocert",)).inputs == 2


def test_the_summary_has_verdict_distance_and_reason() -> None:
    claims = [(OURS, c) for c in table1_claims(paper_pool(geocert=(49, 2.0)))]
    claims += [("stack 'paper'", c) for c in table1_claims(paper_pool())]
    table = summary_table(claims)
    assert table.header == ("claim", "where", "our solvers", "stack 'paper'", "why")
    assert len(table.rows) == len(claims) // 2
    by_text = {r[0].text: [c.text for c in r[2:]] for r in table.rows}
    ours, theirs, why = by_text["LayerCert-Basic beats GeoCert in both metrics on every network; second metric: time"]
    assert ours == "not held: 0 of 2 networks; ratio 1.50 (1.50 to 1.50)"
    assert theirs == "held: 2 of 2 networks; ratio 0.60 (0.60 to 0.60)"
    assert why.startswith("our kernels answer all faces")
    assert (
        by_text["LayerCert-Both solves the fewest convex programs of the paper's six methods on every network"][2] == ""
    )


def test_how_many_claims_held() -> None:
    claims = [(OURS, c) for c in table1_claims(paper_pool(geocert=(49, 2.0)))]
    claims += [("stack 'paper'", c) for c in table1_claims(paper_pool())]
    words = "Claims of the paper that held in full: 2 of 6."
    assert count_line(claims) == words
    claims += [(f"{OURS}, {EVERY}", c) for c in table1_claims(paper_pool())]
    assert count_line(claims) == "Claims of the paper that held in full: 2 of 6, 6 of 6 (more inputs, short limit)."
    assert summary_table(claims).header[2:-1] == (OURS, f"{OURS}, {EVERY}", "stack 'paper'")
    assert count_line([]) == ""


def test_profiles_are_compared_place_by_place() -> None:
    """Sorted seconds 1, 2, 3 against 0.5, 4 and nothing: ahead at two of three places."""
    mine = [row("layercert-both", 1, s, i=i) for i, s in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    p = pool(*mine, row("geocert-lip", 1, 0.5), row("geocert-lip", 1, 4.0, i="b"))
    (claim,) = profile_claims(p)
    assert claim.verdict == FAILED and claim.measured == "0 of 1 networks; above for 2 of 3 inputs"


def test_how_large_the_run_is() -> None:
    p = paper_pool()
    rest = [row(m, 9, 1.0, net=net) for net in p.nets for m in ("layercert-recursive",)]
    p = pool(*p.rows, *rest)
    assert scale_line([p]).endswith("This run: linf: 1 input on 2 networks, 10 s by the clock per question.")
    late = replace(p.rows[0], solved=False, limit=1.0)
    p = pool(late, *p.rows[1:])
    assert scale_line([p]).endswith("This run: linf: 1 input on 2 networks, 1 s by the clock per question.")
    assert scale_line([]) == ""
