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
from layercert.experiments.duel import duel_line, duel_table, duels
from layercert.experiments.figures import hard_inputs
from layercert.experiments.runs import Pool, Row
from layercert.experiments.setup import EXPERIMENTS, PAPER_METHODS
from layercert.experiments.summary import adaptive_line, count_line, other_line, reason_lines, scale_line, summary_table
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
        (2, {"geocert_lip": (100, 4.0)}, "100 programs, geocert 100"),
        (3, {"geocert": (100, 2.0)}, "layercert-basic 3.000 s, geocert 2.000 s"),
        (4, {"geocert_lip": (60, 2.5)}, "layercert-basic 3.000 s, geocert-lip 2.500 s"),
        (5, {"layercert_basic": (50, 0.5)}, "layercert-both 1.000 s, layercert-basic 0.500 s"),
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


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, {"geocert_lip": (19, 4.0)}, "20 programs, geocert-lip 19"),
        (1, {"geocert": (29, 5.0)}, "30 programs, geocert 29"),
        (2, {"layercert_ia": (101, 2.0)}, "101 programs, geocert 100"),
        (3, {"layercert_ia": (40, 6.0)}, "layercert-ia 6.000 s, geocert 5.000 s"),
        (4, {"layercert_ia": (40, 4.5)}, "layercert-ia 4.500 s, geocert-lip 4.000 s"),
    ],
)
def test_a_claim_in_l2_that_fails_says_where(number: int, change: dict[str, Any], words: str) -> None:
    claim = l2_claims(paper_pool(**change))[number]
    assert claim.verdict == FAILED and claim.networks == "0 of 2" and words in claim.detail


def test_the_summary_has_verdict_distance_and_reason() -> None:
    claims = table1_claims(paper_pool(geocert=(49, 2.0)))
    table = summary_table(claims)
    assert table.header == ("no.", "the paper says", "where", "held", "networks", "how far", "why")
    assert len(table.rows) == len(claims) - 1  # ours is not the paper's
    by_text = {r[1].text: [c.text for c in r[3:]] for r in table.rows}
    held, networks, far, why = by_text["LayerCert-Basic is faster than GeoCert, on every network"]
    assert (held, networks, far) == ("no", "0 of 2", "1.50 times the seconds (1.50 to 1.50)")
    assert why == "cheap faces"
    assert [line.partition(":")[0] for line in reason_lines(claims)] == ["**Theorem 4.2**", "**cheap faces**"]
    held, networks, far, why = by_text["LayerCert-Both solves the fewest programs of the six methods, on every network"]
    assert (held, networks, far, why) == ("yes", "2 of 2", "0.67 times the programs (0.67 to 0.67)", "")
    assert table.notes[0] == "Claim 2: not on 2x10 (1.02), 3x20 (1.02)."


def test_reasons_about_our_solvers_are_not_given_for_those_of_others() -> None:
    """With the paper's solvers a face is a call of its own: cheap faces cannot be why a claim fails there."""
    slow = replace(paper_pool(geocert=(49, 2.0), geocert_lip=(60, 0.5)), stack="paper")
    assert [line.partition(":")[0] for line in reason_lines(table1_claims(slow))] == ["**Theorem 4.2**"]
    assert reason_lines(l2_claims(slow)) == ()


def test_a_claim_about_no_network_says_what_was_measured() -> None:
    p = pool(row("geocert", 100, 1), row("layercert-basic", 50, 1), row("layercert-basic-late", 55, 1))
    cells = [c.text for c in summary_table(ablation_claims(p)).rows[1]]
    assert cells[3:] == ["yes", "-", "10.0% of the gain", ""]


def test_how_many_claims_held() -> None:
    claims = table1_claims(paper_pool(geocert=(49, 2.0)))
    assert count_line(claims) == (
        "**Claims.** 2 of 6 claims of the paper hold in full (1 of 3 about programs, 1 of 3 about time)."
    )
    assert count_line(claims[:1]).endswith(" in full (1 of 1 about programs).")
    ours = [adaptive_claim(paper_pool())]
    settings = {"l_2": claims, "nothing": [], "ours": ours, "l_1": claims[:1]}
    assert other_line(settings) == "**Other settings**, claims that hold in full: 2 of 6 (l_2); 1 of 1 (l_1)."
    assert count_line([]) == "" == count_line(ours) and other_line({"ours": ours}) == ""


def test_our_own_search_has_a_line_of_its_own() -> None:
    claim = adaptive_claim(pool(row("layercert-both", 20, 10.0, solved=False), row("adaptive", 1, 0.1)))
    line = adaptive_line([replace(claim, where="ours (linf)")])
    assert line.endswith(
        "limits: linf: 1 of 1 questions; slowest 0.100 s (1 of the 1 that none of the paper's methods finished)."
    )
    assert adaptive_line(l2_claims(paper_pool())[:1]) == ""


def test_two_methods_are_counted_on_the_inputs_that_both_finished() -> None:
    """Both finish a, b and c. One is stopped on d after 7 programs, where 6 are enough; one on e, and both on f."""
    lip, both = {"a": 3, "b": 4, "c": 9, "d": 7, "e": 5, "f": 1}, {"a": 5, "b": 4, "c": 2, "d": 6, "e": 1, "f": 2}
    rows = [row("geocert-lip", n, 1, i=i, solved=i not in "df") for i, n in lip.items()]
    rows += [row("layercert-both", n, 1, i=i, solved=i not in "ef") for i, n in both.items()]
    (found,) = duels(pool(*rows))
    assert (found.shared, found.inputs, found.lip, found.both, found.ratio) == (3, 6, 16, 11, 11 / 16)
    assert (found.lip_fewer, found.both_fewer, found.lip_alone, found.both_alone) == (1, 2, 1, 1)
    assert duel_line([found], "l_inf") == (
        "l_inf: GeoCert-Lip solves fewer programs than LayerCert-Both on 0 of 1 networks, and on 1 of 6 questions "
        "(LayerCert-Both on 2); LayerCert-Both alone finished 1 more, GeoCert-Lip alone 1."
    )
    cells = duel_table([found], "duel", "l_inf").rows[0]
    assert [c.text for c in cells] == ["2x10", "3", "16", "11", "0.69", "1", "2", "1", "1", "17", ">= 23"]
    assert [c.best for c in cells[2:4]] == [False, True]
    assert duels(pool(row("geocert-lip", 1, 1.0))) == [] and duel_line([], "l_2") == ""


def test_a_search_that_was_stopped_needs_at_least_what_it_had_solved() -> None:
    """GeoCert-Lip needs fewer on a, and is stopped on b: after 3 programs nothing is known, after 90 it has lost."""
    mine = [row("layercert-both", n, 1, i=i) for i, n in (("a", 20), ("b", 30))]
    quick = row("geocert-lip", 10, 1)
    for so_far, ahead, held in ((3, True, False), (90, False, True)):
        p = pool(*mine, quick, row("geocert-lip", so_far, 10, i="b", solved=False))
        (found,) = duels(p)
        assert found.lip_ahead is ahead and (found.both_all, found.lip_least) == (50, 10 + so_far)
        test = fewer(p, "2x10", "layercert-both", ["geocert-lip"])
        assert test.holds is held and test.ratio == (0.5 if held else 2.0)
        assert fewer(p, "2x10", "geocert-lip", ["layercert-both"]).holds is not held
        words = (
            "on 1 of 1 networks (on 1 of them it finished fewer inputs), and" if ahead else "on 0 of 1 networks, and"
        )
        assert words in duel_line([found], "l_inf")


def test_a_method_that_was_stopped_after_more_programs_has_lost_there() -> None:
    """LayerCert-Both is ahead on a alone, GeoCert-Lip on both inputs: it finished b where the other was stopped."""
    rows = [row("layercert-both", 5, 1), row("layercert-both", 40, 10, i="b", solved=False)]
    p = pool(*rows, row("geocert-lip", 10, 1), row("geocert-lip", 30, 1, i="b"))
    test = fewer(p, "2x10", "layercert-both", ["geocert-lip"])
    assert test.holds is False and test.ratio == 45 / 40


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
    assert scale_line([p]).endswith("This run: l_inf: 1 input on 2 networks, 10 s by the clock per question.")
    late = replace(p.rows[0], solved=False, limit=1.0)
    p = pool(late, *p.rows[1:])
    assert scale_line([p]).endswith("This run: l_inf: 1 input on 2 networks, 1 s by the clock per question.")
    assert scale_line([]) == ""
