"""The report: its numbers against hand-made records, and its page in a real browser."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from helpers.batches import exact, line_network, plan, points
from helpers.browser import Page, browse
from layercert import shipped
from layercert.batch import Model, Options, Outcome, Plan, RunError, Store
from layercert.batch.work import unanswered
from layercert.cli import main
from layercert.errors import OptionError
from layercert.io import load
from layercert.io.datasets import load_dataset
from layercert.network import Network
from layercert.pictures import difference, picture, png
from layercert.report import write_report
from layercert.report.analysis import accuracies, comparisons, confusions, curve, profiles, summarise
from layercert.report.page import page
from layercert.report.records import Record, Results
from layercert.report.svg import Axis, nice_step
from layercert.report.tables import accuracy_table, interval
from layercert.result import Status


def record(**changes: object) -> Record:
    """An exact radius of 0.1, class 0 against class 1, in a second."""
    result = unanswered(status=Status.EXACT, lower=0.1, upper=0.1, label=0, target=1, programs=5, seconds=1.0)
    base = Record(
        run=0, job=0, series="net", norm="linf", method="a", input=0, position=0, name="0", input_hash="h0",
        status="exact", result=result, certificate=None,
    )  # fmt: skip
    names = {field.name for field in fields(Record)}
    answered = {name: value for name, value in changes.items() if name not in names}
    asked = {name: value for name, value in changes.items() if name in names}
    return replace(base, **asked, result=replace(result, **answered))  # type: ignore[arg-type]


def results(*records: Record) -> Results:
    return Results([], [replace(r, job=i) for i, r in enumerate(records)])


# One input of each kind: exact at 0.1, robust at 0.3 (nothing within), undecided between 0.05 and 0.2, failed.
MIXED = results(
    record(input_hash="h0"),
    record(input_hash="h1", status="robust", lower=0.3, upper=math.inf, target=None),
    record(input_hash="h2", status="undecided", lower=0.05, upper=0.2),
    record(input_hash="h3", status="failed", lower=0.0, upper=math.inf, target=None),
)


@pytest.mark.parametrize(
    ("radius", "proved", "possible"),
    [
        (0.0, 0.75, 1.0),  # of the failed one nothing is known, not even at 0
        (0.04, 0.75, 1.0),
        (0.06, 0.5, 1.0),  # the undecided one joins the band
        (0.1, 0.25, 0.75),  # an unsafe point *at* the radius: not robust
        (0.2, 0.25, 0.5),
        (0.3, 0.25, 0.5),  # robust at 0.3 includes 0.3
        (0.31, 0.0, 0.5),
    ],
)
def test_robustness_curve(radius: float, proved: float, possible: float) -> None:
    assert curve(MIXED.bounds("net", "linf").values()).at(radius) == (proved, possible)


def test_summary_never_counts_the_unknown_as_robust() -> None:
    (line,) = summarise(MIXED)
    assert (line.inputs, line.exact, line.robust, line.undecided, line.failed) == (4, 1, 1, 1, 1)
    assert line.median == (pytest.approx(0.075), math.inf) and interval(*line.median) == ">= 0.075"
    assert line.mean_proved == pytest.approx((0.1 + 0.3 + 0.05 + 0.0) / 4)
    (line,) = summarise(results(record(), record(input_hash="h1", lower=0.3, upper=0.3), record(input_hash="h2")))
    assert line.median == (0.1, 0.1) and interval(*line.median) == "0.1"
    assert interval(0.03, 0.05) == "0.03 .. 0.05" and interval(0.3, 0.3 + 1e-7) == "0.3"


def test_methods_combine_and_contradictions_are_told() -> None:
    both = results(
        record(method="a", status="undecided", lower=0.05, upper=0.12),
        record(method="b", status="undecided", lower=0.08, upper=0.2),
    )
    (b,) = both.bounds("net", "linf").values()
    assert (b.lower, b.upper) == (0.08, 0.12) and both.contradictions() == []
    wrong = results(record(method="a", lower=0.1, upper=0.1), record(method="b", lower=0.2, upper=0.2))
    assert "one method proves distance >= 0.2, another has a witness at 0.1" in wrong.contradictions()[0]


def test_confusions() -> None:
    found = confusions(
        results(
            record(input_hash="a", label=3, target=5, upper=0.2),
            record(input_hash="b", label=3, target=5, upper=0.4),
            record(input_hash="c", label=3, target=8),
            record(input_hash="d", label=3, target=None, status="failed", upper=math.inf),
        )
        .bounds("net", "linf")
        .values()
    )
    assert [(c.label, c.target, c.count, round(c.median, 9)) for c in found] == [(3, 5, 2, 0.3), (3, 8, 1, 0.1)]


def test_performance_profile() -> None:
    """Method a: 1 s and 4 s; b: 2 s and not solved. So a is fastest twice; b solves one, at twice the time."""
    found = profiles(
        [
            record(input_hash="x", method="a", seconds=1.0),
            record(input_hash="y", method="a", seconds=4.0),
            record(input_hash="x", method="b", seconds=2.0),
            record(input_hash="y", method="b", seconds=0.5, status="undecided"),
        ]
    )
    assert found[0].shares.tolist() == [1.0, 1.0, 1.0]
    assert found[1].factors.tolist() == [1.0, 2.0] and found[1].shares.tolist() == [0.0, 0.5]


def test_comparison_counts_only_what_is_sure() -> None:
    (c,) = comparisons(
        results(
            record(series="A", input_hash="1", upper=0.1, lower=0.1),
            record(series="A", input_hash="2", upper=0.3, lower=0.3),
            record(series="A", input_hash="3", upper=0.3, lower=0.1, status="undecided"),
            record(series="B", input_hash="1", upper=0.2, lower=0.2),
            record(series="B", input_hash="2", upper=0.2, lower=0.2),
            record(series="B", input_hash="3", upper=0.2, lower=0.2),
        )
    )
    assert (c.first_wins, c.second_wins, len(c.pairs)) == (1, 1, 3)
    assert c.median_ratio == pytest.approx((2.0 + 2 / 3) / 2)


def test_every_pair_of_models_is_compared_by_decided_inputs_only() -> None:
    """Three models; the third is undecided on one input, which has no ratio then."""
    found = comparisons(
        results(
            *(record(series=s, input_hash=h, upper=u, lower=u) for s, u in (("A", 0.1), ("B", 0.2)) for h in "12"),
            record(series="C", input_hash="1", upper=0.4, lower=0.4),
            record(series="C", input_hash="2", upper=9.0, lower=0.0, status="undecided"),
        )
    )
    assert [(c.first, c.second, c.median_ratio, len(c.ratios)) for c in found] == [
        ("A", "B", 2.0, 2), ("A", "C", 4.0, 1), ("B", "C", 2.0, 1),
    ]  # fmt: skip
    assert [c.second_wins for c in found] == [2, 1, 1]


@pytest.mark.parametrize(
    ("eps", "certified", "attacked"),
    [
        (0.04, 3, 1),  # the undecided one is proved up to 0.05
        (0.05, 2, 1),  # a lower bound says nothing about the point at it
        (0.1, 1, 2),  # an unsafe point at eps is within eps
        (0.3, 1, 3),  # robust within 0.3 includes 0.3
        (0.31, 0, 3),
    ],
)
def test_certified_accuracy_from_radii(eps: float, certified: int, attacked: int) -> None:
    """Exact at 0.1, robust at 0.3, undecided in 0.05 .. 0.2, one failed, one misclassified."""
    found = results(*MIXED.records, record(input_hash="h4", lower=0.0, upper=0.0))
    (line,) = accuracies(found, [eps])
    assert (line.inputs, line.clean, line.unknown) == (5, 3, 1)
    assert (line.certified, line.attacked, line.undecided) == (certified, attacked, 5 - certified - attacked)
    assert accuracy_table(replace(found, eps=(eps,)))[1][0][3:5] == ["60.0-80.0 %", f"{20 * certified}.0 %"]


def test_certified_at_the_radii_that_were_asked() -> None:
    """Verified robust at 0.03 and attacked at 0.1: the lower bound is 0.03, and nothing lies there."""
    asked = {"asked": (0.03, 0.1), "status": "not_robust"}
    found = results(record(lower=0.03, upper=0.08, **asked), record(input_hash="h1", lower=0.05, upper=0.1, **asked))
    assert [(a.certified, a.attacked) for a in accuracies(found, found.asked)] == [(2, 0), (0, 2)]
    assert curve(found.bounds("net", "linf").values()).at(0.03) == (1.0, 1.0)
    assert summarise(found)[0].not_robust == 2


def test_axes() -> None:
    assert [nice_step(v) for v in (0.011, 0.2, 3, 7)] == pytest.approx([0.02, 0.2, 5, 10])
    assert Axis(0, 1, 0, 100).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert Axis(0.01, 100, 0, 100, log=True)(1.0) == pytest.approx(50)


def test_pictures_are_png_files_that_others_can_read() -> None:
    image = pytest.importorskip("PIL.Image")
    grey = picture(np.array([0.0, 0.5, 1.0, 0.25]), (2, 2), 0.0, 1.0)
    assert np.asarray(image.open(io.BytesIO(png(grey)))).tolist() == [[0, 128], [255, 64]]
    colour = picture(np.linspace(0, 1, 12), (3, 2, 2), 0.0, 1.0)
    assert image.open(io.BytesIO(png(colour))).size == (2, 2) and colour.shape == (2, 2, 3)
    strip = difference(np.zeros(3), np.array([1.0, 0.0, -1.0]), None)
    assert strip.shape == (1, 3, 3)
    assert (
        strip[0, 1].tolist() == [255, 255, 255] and strip[0, 0, 0] > strip[0, 0, 2] and strip[0, 2, 2] > strip[0, 2, 0]
    )


def write_run(folder: Path, made: Plan) -> Path:
    """A run whose answers are given: radius (input + 1)/100 by the first method, half the time by the second."""
    folder.mkdir(parents=True)
    with closing(Store(folder)) as store:
        store.adopt(made)
        store.begin_session("by hand")
        outcomes: list[tuple[Outcome, str | None]] = []
        for job in made.jobs:
            d = (job.input + 1) / 100 * (1 + job.model)
            x = made.data.X[job.input]
            witness = x.copy()
            witness[: len(x) // 2] = np.clip(witness[: len(x) // 2] + d, 0, 1)
            outcome = exact(
                job.id, d, label=made.label(job.input), target=1 - (made.label(job.input) or 0), witness=witness,
                programs=7, seconds=0.1 * (1 + job.input) / (1 + (job.method == "geocert")),
            )  # fmt: skip
            if job.input == 3:
                late = {"status": Status.UNDECIDED, "lower": d / 2, "note": "time limit reached <b>&</b>"}
                outcome = replace(outcome, result=replace(outcome.result, **late))
            if job.input == 4:
                outcome = Outcome.failed(job.id, "the worker crashed: exit code 7")
            outcomes.append((outcome, "certificates/000000.cert" if job.id == 0 else None))
        store.record(outcomes)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 digits, two models, two norms, two methods; one input undecided, one failed."""
    network = load(shipped.path("mnist17_l1_2x10"))
    made = Plan(
        (Model("small", network), Model("other", load(shipped.path("mnist17_plain_2x10")))),
        load_dataset(shipped.path("digits"), "0:60"),
        Options(norms=("linf", "l2"), methods=("geocert", "layercert-both"), domain=(0.0, 1.0)),
    )
    return write_run(tmp_path_factory.mktemp("report") / "run", made)


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    return write_report([run], run / "report", class_names=("1", "7")).parent


def test_the_tables(report: Path) -> None:
    with open(report / "summary.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 8
    assert rows[0] | {"inputs": "60", "exact": "58", "undecided": "1", "failed": "1"} == rows[0]
    text = (report / "report.md").read_text()
    for heading in (
        "Summary",
        "Share of inputs robust",
        "Who is confused",
        "Methods",
        "Comparison",
        "Least robust",
        "How",
    ):
        assert f"## {heading}" in text
    assert "| small | linf | 1 | 7 | 29 |" in text  # one of the 30 ones failed
    for name in ("curve", "confusion", "methods", "comparison"):
        assert (report / f"{name}.csv").stat().st_size > 0


def test_the_page_is_one_file(report: Path) -> None:
    html = (report / "index.html").read_text()
    assert "http://www.w3.org/2000/svg" in html
    assert html.replace("http://www.w3.org/2000/svg", "").count("http") == 0, "nothing may point to a network"
    assert 'src="' not in html.split("<script")[0]


@pytest.fixture(scope="module")
def tab(chromium: str) -> Iterator[Page]:
    pytest.importorskip("websockets")
    with browse(chromium) as page:
        yield page


def cells(tab: Page, column: int) -> list[str]:
    found: list[str] = tab.js(f"[...document.querySelectorAll('#rows tr')].map(r => r.children[{column}].textContent)")
    return found


def choose(tab: Page, name: str, value: str) -> None:
    tab.js(
        f"(() => {{ const e = document.getElementById('f-{name}'); e.value = {value!r};"
        " e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def headings(tab: Page) -> list[str]:
    found: list[str] = tab.js("[...document.querySelectorAll('#results th')].map(h => h.dataset.key)")
    return found


def test_the_page_sorts_and_filters(tab: Page, report: Path) -> None:
    tab.open(report / "index.html")
    assert tab.js("document.getElementById('count').value") == "480 of 480 results"
    keys = headings(tab)
    assert keys == ["name", "status", "lower", "upper", "label", "target", "series", "norm", "method", "seconds",
                    "programs", "certificate", "note"]  # fmt: skip
    upper = keys.index("upper")
    values = [float(v) for v in cells(tab, upper)]
    assert len(values) == 50 and values == sorted(values), "least robust first"
    click = "document.querySelector('th[data-key=\"{}\"] button').click()"
    tab.js(click.format("upper"))
    assert cells(tab, upper)[0] == "∞", "the failed ones have no upper bound"
    tab.js(click.format("seconds"))
    seconds = [float(v) for v in cells(tab, keys.index("seconds"))]
    assert seconds == sorted(seconds)
    choose(tab, "status", "failed")
    assert tab.js("document.getElementById('count').value") == "8 of 480 results"
    assert set(cells(tab, keys.index("note"))) == {"the worker crashed: exit code 7"}
    assert tab.js("document.querySelectorAll('#gallery .item').length") == 0
    assert tab.js("document.getElementById('no-items').hidden") is False
    choose(tab, "status", "")
    choose(tab, "label", "7")
    choose(tab, "norm", "l2")
    choose(tab, "series", "other")
    choose(tab, "method", "geocert")
    assert tab.js("document.getElementById('count').value") == "30 of 480 results"
    assert set(cells(tab, keys.index("label"))) == {"7"}
    choose(tab, "search", "time limit <b>")
    assert cells(tab, keys.index("note")) == ["time limit reached <b>&</b>"], "text is shown, never interpreted"
    assert tab.errors == [] and tab.fetched == [tab.fetched[0]] and tab.fetched[0].endswith("index.html")


def test_the_gallery_and_the_curve(tab: Page, report: Path) -> None:
    tab.open(report / "index.html")
    assert tab.js("document.querySelectorAll('#gallery .item').length") == 24
    sizes = tab.js(
        "Promise.all([...document.querySelectorAll('#gallery img')].slice(0, 6).map(async i => "
        "{ i.loading = 'eager'; await i.decode(); return [i.naturalWidth, i.naturalHeight]; }))"
    )
    assert sizes == [[28, 28]] * 6
    distances = [float(v) for v in tab.js("[...document.querySelectorAll('#gallery .what b')].map(b => b.textContent)")]
    assert distances == sorted(distances)
    tab.js("document.getElementById('more-items').click()")
    assert tab.js("document.querySelectorAll('#gallery .item').length") == 72
    assert tab.js("document.querySelector('#rows a, #gallery a').getAttribute('href')") == "../certificates/000000.cert"
    tab.js(
        "(() => { const s = document.querySelector('figure[data-curves] svg'), b = s.getBoundingClientRect();"
        " s.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, clientY: b.top + 5})); })()"
    )
    assert "% robust" in tab.js("document.querySelector('.readout').textContent")
    assert tab.errors == []


@pytest.mark.parametrize(("width", "mobile"), [(1280, False), (375, True)])
def test_the_page_fits_the_screen(tab: Page, report: Path, width: int, mobile: bool) -> None:
    tab.open(report / "index.html", width, 800, mobile)
    assert tab.js("document.documentElement.scrollWidth") <= width, "no sideways scrolling of the page"
    plots = tab.js("[...document.querySelectorAll('svg.plot')].map(s => s.getBoundingClientRect().width)")
    assert len(plots) >= 8 and min(plots) > 250
    small = tab.js(
        "[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect().height)"
        ".filter(h => h && h < 8).length"
    )
    assert small == 0, "axis labels stay readable"
    assert tab.errors == []


@pytest.fixture(scope="module")
def ten_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty random inputs of ten classes with long names, each nearest to some other class."""
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.normal(size=(8, 4)), rng.normal(size=(10, 8))], [np.zeros(8), np.zeros(10)])
    data = replace(points(60), X=rng.uniform(size=(60, 4)), y=np.arange(60) % 10)
    made = Plan((Model("a_model_with_a_long_name", network),), data, Options())
    folder = tmp_path_factory.mktemp("ten") / "run"
    folder.mkdir()
    with closing(Store(folder)) as store:
        store.adopt(made)
        store.begin_session("by hand")
        store.record(
            [
                (exact(j, 0.1234567, label=j % 10, target=(j % 10 + 1 + j % 7) % 10, witness=data.X[j]), None)
                for j in range(60)
            ]
        )
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    return write_report([folder], folder / "report", class_names=names, eps=(0.1, 0.2))


@pytest.mark.parametrize(("width", "mobile"), [(1280, False), (400, True)])
def test_ten_classes_fit(tab: Page, ten_classes: Path, width: int, mobile: bool) -> None:
    tab.open(ten_classes, width, 800, mobile)
    table = "document.querySelector('table.confusion')"
    assert tab.js(f"{table}.rows[0].cells.length") == 11
    assert tab.js(f"{table}.scrollWidth <= {table}.parentElement.clientWidth + 1"), "all columns of the matrix are seen"
    assert tab.js("document.documentElement.scrollWidth") <= width
    seen = tab.js(
        "(() => { const w = document.querySelector('#results').closest('.scroll').getBoundingClientRect().right;"
        " return [...document.querySelectorAll('#results th')].filter(h => h.getBoundingClientRect().right <= w + 1)"
        ".map(h => h.dataset.key); })()"
    )
    assert seen[:4] == ["name", "status", "lower", "upper"], "what matters comes first"
    assert [r[2:5] for r in csv.reader((ten_classes.parent / "accuracy.csv").read_text().splitlines())] == [
        ["eps", "clean", "certified"], ["0.1", "100.0 %", "100.0 %"], ["0.2", "100.0 %", "0.0 %"],
    ]  # fmt: skip
    assert tab.js("document.querySelector('#accuracy + .card').textContent.includes('100.0 %')")
    assert tab.errors == []


def test_a_hundred_classes_are_listed_by_frequency() -> None:
    once = [record(input_hash=str(i), label=i, target=(i + 1) % 100) for i in range(100)]
    many = results(*once, record(label=3, target=4))
    html = page(many, "many", (), {})
    assert '<table class="confusion' not in html
    assert '<td class="left">3</td><td class="left">4</td><td class="">2</td>' in html


def test_two_runs_are_compared(tmp_path: Path, tab: Page, run: Path) -> None:
    other = write_run(
        tmp_path / "second", Plan((Model("line", line_network()),), points(5), Options(methods=("geocert",)))
    )
    same = write_run(
        tmp_path / "third", Plan((Model("line2", line_network()),), points(5), Options(methods=("geocert",)))
    )
    assert main(["report", str(other), str(same), "--out", str(tmp_path / "both"), "--title", "Two <runs>"]) == 0
    text = (tmp_path / "both" / "report.md").read_text()
    assert "| second | third | linf | 5 | 0 | 0 | 1 | 3 |" in text
    tab.open(tmp_path / "both" / "index.html")
    assert tab.js("document.querySelector('h1').textContent") == "Two <runs>"
    assert tab.js("document.querySelectorAll('#comparison + .cards figure').length") == 1
    assert tab.errors == []


def test_a_run_half_way_can_be_reported(tmp_path: Path) -> None:
    made = plan(4)
    folder = tmp_path / "run"
    folder.mkdir()
    with closing(Store(folder)) as store:
        store.adopt(made)
        store.begin_session("by hand")
        with pytest.raises(RunError, match="nothing is finished yet"):
            write_report([folder], folder / "report")
        store.record([(exact(0, 0.01, label=1, target=0, witness=made.data.X[0], programs=1, seconds=0.1), None)])
    html = write_report([folder], folder / "report").read_text()
    assert "<b>3</b><span>not run yet</span>" in html


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "r"), "--gallery", "0"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r" / "index.html")
    assert main(["report", str(run), "--export", str(tmp_path / "all.csv")]) == 0
    assert "480 results" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "no run in" in capsys.readouterr().err
    with pytest.raises(OptionError, match="number of pictures must be >= 0"):
        write_report([run], tmp_path / "r", gallery=-1)
