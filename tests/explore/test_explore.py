"""Pictures of searches: regions are those of the network, traces those of the search, files are what they say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.browser import Page, browse
from layercert.cli import main
from layercert.errors import InputError, LayerCertError, OptionError
from layercert.explore import Plane, Scene, appendix_a, save, trace
from layercert.explore.animate import moments
from layercert.explore.draw import unit_ball
from layercert.explore.regions import Window, clip, regions
from layercert.geometry import Cells
from layercert.methods import METHODS
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import robustness

#: Searches that walk from region to region; the others show their bounds only.
GEOMETRIC = [name for name in METHODS if name.startswith(("geocert", "layercert"))]


def random_network(seed: int, sizes: tuple[int, ...] = (2, 5, 4, 3)) -> Network:
    rng = np.random.default_rng(seed)
    return Network.from_arrays(
        [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)], [rng.normal(size=m) * 0.5 for m in sizes[1:]]
    )


def area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return 0.5 * abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1)))


def inside(polygon: np.ndarray, v: np.ndarray) -> bool:
    """In a convex polygon: on the same side of every edge."""
    edges, offsets = np.roll(polygon, -1, axis=0) - polygon, v - polygon
    side = edges[:, 0] * offsets[:, 1] - edges[:, 1] * offsets[:, 0]
    return bool((side >= 0).all() or (side <= 0).all())


@pytest.mark.parametrize("seed", range(4))
def test_regions_tile_the_window_and_carry_the_keys_of_their_cells(seed: int) -> None:
    network, window = random_network(seed), Window.around(np.zeros(2), 3.0)
    layers = regions(network, window)
    assert len(layers) == 2
    cells = Cells(robustness(network, [0.0, 0.0], "l2"))
    points = np.random.default_rng(seed).uniform(-3, 3, size=(200, 2))
    for level, layer in enumerate(layers, 1):
        assert sum(area(r.polygon) for r in layer) == pytest.approx(36.0)
        assert len({r.key for r in layer}) == len(layer)
        by_key = {r.key: r for r in layer}
        for v in points:
            key = cells.of(network.pattern(v)[:level]).key
            assert inside(by_key[key].polygon, v)


def test_degenerate_neurons_make_no_regions_of_their_own() -> None:
    """A dead neuron, a constant one, two equal ones: the plane is cut by one line only."""
    network = Network.from_arrays(
        [[[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [[1.0] * 4, [0.0] * 4]], [[-1.0, 1.0, 0.0, 0.0], [0.0, 0.5]]
    )
    (layer,) = regions(network, Window.around(np.zeros(2), 1.0))
    assert len(layer) == 2


def test_clipping() -> None:
    square = Window.around(np.zeros(2), 1.0).corners
    assert area(clip(square, np.array([1.0, 0.0]), 0.0)) == pytest.approx(2.0)
    assert area(clip(square, np.array([1.0, 1.0]), 0.0)) == pytest.approx(2.0)
    assert len(clip(square, np.array([1.0, 0.0]), -5.0)) == 0


@pytest.mark.parametrize("method", sorted(name for name, method in METHODS.items() if method.complete))
def test_every_method_can_be_watched(method: str) -> None:
    network, x = appendix_a()
    norm = "linf" if method == "mip" else "l2"
    made = trace(robustness(network, x, norm), method)
    end = made.state()
    # to x_1 + x_2 = 11 from (-1, -1.25): 13.25 / sqrt 2 in l2, half of 13.25 in linf
    distance = 13.25 / 2 if method == "mip" else 13.25 / np.sqrt(2)
    assert made.finished and end.upper == pytest.approx(distance, rel=1e-6)
    assert end.lower == pytest.approx(distance, rel=1e-5)
    assert end.witness is not None and end.witness.sum() == pytest.approx(11.0)
    assert bool(end.processed) == (method in GEOMETRIC)
    assert bool(end.cuts) == ("crown" in method or "both" in method or "recursive" in method)
    lowers = [m.lower for m in made.moments]
    assert lowers == sorted(lowers)


def test_layercert_needs_fewer_programs_than_geocert_on_appendix_a() -> None:
    network, x = appendix_a()
    geocert, layercert = (trace(robustness(network, x, "l2", radius=3.0), m) for m in ("geocert", "layercert-basic"))
    assert layercert.programs < geocert.programs
    last = {r.key for r in Scene.of([geocert]).layers[-1]}
    orders = [[key for key in made.state().processed if key in last] for made in (geocert, layercert)]
    assert len(orders[0]) == 7
    assert orders[0] == orders[1], "full patterns in the same order"


def test_pending_regions_are_processed_or_stay_beyond_the_bound() -> None:
    problem = robustness(random_network(1), [0.1, 0.2], "linf")
    made = trace(problem, "layercert-basic")
    seen_pending = set().union(*(made.state(i).pending for i in made.steps()))
    end = made.state()
    assert seen_pending <= set(end.processed) | end.pending and len(end.processed) > 3


def test_frames_are_in_step_and_end_at_the_end() -> None:
    network, x = appendix_a()
    traces = [trace(robustness(network, x, "l2"), m) for m in ("geocert", "layercert-basic")]
    frames = list(moments(traces, 6))
    assert len(frames) == 6
    for i, states in enumerate(frames[1:-1], 1):
        assert all(s.programs <= max(t.programs for t in traces) * i / 5 + 1 for s in states)
    assert [s.programs for s in frames[-1]] == [t.programs for t in traces]
    assert len(list(moments(traces[:1], 4))) == 4


def test_the_network_on_a_plane() -> None:
    rng = np.random.default_rng(0)
    network = random_network(0, (6, 5, 3))
    a, b, c = rng.normal(size=(3, 6))
    plane = Plane.through(a, b, c)
    flat = plane.restrict(network)
    for v in rng.normal(size=(20, 2)):
        assert np.allclose(flat(v), network(plane.point(v)))
        assert np.allclose(plane.coordinates(plane.point(v)), v)
    assert np.allclose(plane.point([0, 0]), a) and np.allclose(plane.point(plane.coordinates(c)), c)
    assert np.linalg.norm(plane.coordinates(b)) == pytest.approx(np.linalg.norm(b - a)), "l2 distances are kept"
    with pytest.raises(InputError, match="lie on one line"):
        Plane.through(a, b, 2 * b - a)


def test_balls() -> None:
    for p, corner in ((1.0, 1.0), (2.0, 1.0), (np.inf, np.sqrt(2))):
        outline = unit_ball(Norm(p))
        assert np.linalg.norm(outline, axis=1).max() == pytest.approx(corner, rel=1e-3)
        assert np.allclose([Norm(p).value(v) for v in outline], 1.0)


@pytest.fixture(scope="module")
def drawn() -> tuple[list[object], Scene]:
    pytest.importorskip("matplotlib")
    network, x = appendix_a()
    traces = [trace(robustness(network, x, "l2"), m) for m in ("geocert", "layercert-recursive")]
    return traces, Scene.of(traces)  # type: ignore[return-value]


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_pictures(drawn: tuple[list[object], Scene], tmp_path: Path, suffix: str, magic: bytes) -> None:
    traces, scene = drawn
    save(traces, scene, tmp_path / f"deep/search{suffix}")  # type: ignore[arg-type]
    assert (tmp_path / f"deep/search{suffix}").read_bytes().startswith(magic)


def test_a_gif_moves(drawn: tuple[list[object], Scene], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    traces, scene = drawn
    save(traces, scene, tmp_path / "search.gif", frames=4)  # type: ignore[arg-type]
    with image.open(tmp_path / "search.gif") as gif:
        assert gif.n_frames == 4
        first = np.asarray(gif.convert("RGB"))
        gif.seek(3)
        assert (np.asarray(gif.convert("RGB")) != first).any()


@pytest.fixture(scope="module")
def page(drawn: tuple[list[object], Scene], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "search.html"
    save(drawn[0], drawn[1], path, frames=3)  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def tab(chromium: str) -> Iterator[Page]:
    pytest.importorskip("websockets")
    with browse(chromium) as tab:
        yield tab


def press(tab: Page, key: str) -> str:
    """Press a key; where the player is then."""
    tab.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    tab.call("Input.dispatchKeyEvent", type="keyUp", key=key)
    where: str = tab.js("document.getElementById('count').textContent")
    return where


def test_a_page_plays(page: Path, tab: Page) -> None:
    tab.open(page)
    assert tab.js("document.getElementById('count').textContent") == "1 / 3"
    tab.js("(() => { const a = document.getElementById('at'); a.value = 2; a.dispatchEvent(new Event('input')); })()")
    assert "d ≤ 9.369" in tab.js("document.querySelector('figcaption').textContent")
    tab.js("document.getElementById('play').click()")
    assert tab.js("document.getElementById('play').textContent") == "Pause"
    assert tab.js(
        "Promise.all([...document.images].map(async i => { await i.decode(); return i.naturalWidth > 300; }))"
    )
    assert tab.errors == []


def test_keys_move_the_page(page: Path, tab: Page) -> None:
    tab.open(page)
    assert [press(tab, key) for key in ("ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home", "ArrowLeft")] == [
        "2 / 3", "3 / 3", "3 / 3", "2 / 3", "1 / 3", "1 / 3",
    ]  # fmt: skip
    tab.js("document.getElementById('at').focus()")  # whose own arrows must not count twice
    assert press(tab, "ArrowRight") == "2 / 3"
    press(tab, " ")
    assert tab.js("document.getElementById('play').textContent") == "Pause"
    press(tab, " ")
    assert tab.js("document.getElementById('play').textContent") == "Play"


@pytest.mark.parametrize(("width", "columns"), [(1280, 1), (400, 2)])
def test_a_phone_shows_one_method_under_the_other(page: Path, tab: Page, width: int, columns: int) -> None:
    tab.open(page, width, 800, width == 400)
    tab.js("Promise.all([...document.images].map(i => i.decode()))")
    boxes = "[...document.querySelectorAll('#frames img')].map(i => i.getBoundingClientRect())"
    assert len(set(tab.js(f"{boxes}.map(b => Math.round(b.top))"))) == columns
    assert min(tab.js(f"{boxes}.map(b => b.width)")) > 360
    assert tab.js("document.documentElement.scrollWidth") <= width


def test_a_page_is_dark_where_the_reader_wants_it(page: Path, tab: Page) -> None:
    colours = []
    for scheme in ("dark", "light"):
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.open(page)
        colours.append(tab.js("getComputedStyle(document.body).backgroundColor"))
        turned = tab.js("getComputedStyle(document.querySelector('#frames img')).filter")
        assert ("invert" in turned) == (scheme == "dark")
    assert colours == ["rgb(20, 24, 29)", "rgb(255, 255, 255)"]


def test_what_cannot_be_drawn(drawn: tuple[list[object], Scene], tmp_path: Path) -> None:
    traces, scene = drawn
    with pytest.raises(OptionError, match=re.escape("expected a name that ends in .png, .svg, .pdf, .gif, .html")):
        save(traces, scene, tmp_path / "search.bmp")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="at least 2 frames, got 1"):
        save(traces, scene, tmp_path / "search.gif", frames=1)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(LayerCertError, match="cannot write"):
        save(traces, scene, tmp_path / "file" / "search.png")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a network with 2 inputs, this one has 3"):
        regions(random_network(0, (3, 2, 2)), Window.around(np.zeros(2), 1.0))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "p.png"
    assert main(["explore", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "geocert: 7 regions" in printed and "layercert-basic: 11 regions" in printed and out.exists()
    plane = ["explore", "mnist17_l1_2x10", "--data", "digits", "--points", "0,1,2", "--norm", "linf"]
    assert main([*plane, "--method", "layercert-both", "--out", str(out)]) == 0
    random_network(3).save(tmp_path / "net.npz")
    assert (
        main(["explore", str(tmp_path / "net.npz"), "--at", "0.5,-1", "--method", "geocert-lip", "--out", str(out)])
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist17_l1_2x10"], "has 784 inputs: give the point of a network with two inputs with --at X,Y, or a plane"),
        (["mnist17_l1_2x10", "--data", "digits"], "--points I,J,K"),
        (
            ["mnist17_l1_2x10", "--data", "digits", "--points", "1,2"],
            "expected 3 numbers separated by commas, got '1,2'",
        ),
        (
            ["--method", "geocert", "--method", "mip", "--method", "geocert-lip"],
            "one method, or two side by side; got 3",
        ),
        (["--label", "0"], "misclassified"),
        (["--method", "nope"], "unknown method 'nope'"),
    ],
)
def test_bad_requests(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *arguments]) == 2
    assert message in capsys.readouterr().err
