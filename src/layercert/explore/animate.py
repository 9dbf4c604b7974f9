"""Searches as moving pictures: a GIF, or an HTML page with a slider. Two methods move in step, program by program."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layercert.errors import LayerCertError, MissingPackageError, OptionError
from layercert.explore.draw import Scene, bare, describe, figure, legend
from layercert.explore.trace import State, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
ANIMATIONS = (".gif", ".html")
#: Dots per inch of the pictures in a page: sharp at the largest width that it gives them.
PAGE_DPI = 140


def save(traces: Sequence[Trace], scene: Scene, path: Path, frames: int = 60) -> None:
    """A picture of the end (.png, .svg, .pdf) or an animation of the way (.gif, .html)."""
    kind = path.suffix.lower()
    if kind not in PICTURES + ANIMATIONS:
        raise OptionError(f"cannot draw to '{path}': expected a name that ends in {', '.join(PICTURES + ANIMATIONS)}")
    if frames < 2:
        raise OptionError(f"an animation needs at least 2 frames, got {frames}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind in PICTURES:
            states = [replace(t.state(), current=None) for t in traces]  # at the end nothing is being processed
            figure(traces, states, scene).savefig(path)
        elif kind == ".gif":
            _gif(traces, scene, path, frames)
        else:
            _html(traces, scene, path, frames)
    except OSError as error:
        raise LayerCertError(f"cannot write '{path}': {error.strerror or error}") from None


def moments(traces: Sequence[Trace], frames: int) -> Iterator[list[State]]:
    """States of all traces, frame by frame. One trace: step by step. Several: equal numbers of distance programs."""
    if len(traces) == 1:
        steps = traces[0].steps()
        for i in _evenly(len(steps), frames):
            yield [traces[0].state(steps[i])]
        return
    most = max(trace.programs for trace in traces)
    for i in _evenly(most + 1, frames):
        yield [trace.state(_until(trace, i)) for trace in traces]


def _until(trace: Trace, programs: int) -> int:
    return sum(m.programs <= programs for m in trace.moments)


def _evenly(count: int, frames: int) -> list[int]:
    """At most `frames` of the indices 0..count-1, first and last included."""
    if count <= frames:
        return list(range(count))
    return sorted({round(k * (count - 1) / (frames - 1)) for k in range(frames)})


def _png(made: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    made.savefig(buffer, format="png", **options)
    return buffer.getvalue()


def _embedded(made: Figure, **options: Any) -> str:
    return "data:image/png;base64," + base64.b64encode(_png(made, **options)).decode()


def _gif(traces: Sequence[Trace], scene: Scene, path: Path, frames: int) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("pillow", "writing a GIF", "plot") from None
    pictures = [
        Image.open(io.BytesIO(_png(figure(traces, states, scene, 72)))).convert("RGB").quantize(128)
        for states in moments(traces, frames)
    ]
    pace = [max(60, 12_000 // len(pictures))] * (len(pictures) - 1) + [3_000]  # milliseconds; the end stays a while
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=pace, loop=0, optimize=True)


def _html(traces: Sequence[Trace], scene: Scene, path: Path, frames: int) -> None:
    """A picture per method and moment, which stand side by side where there is room and under each other on a phone."""
    sources, captions = [], []
    for states in moments(traces, frames):
        pairs = list(zip(traces, states, strict=True))
        sources.append([_embedded(bare(t, s, scene, PAGE_DPI)) for t, s in pairs])
        captions.append([describe(t, s) for t, s in pairs])
    ends = [trace.state() for trace in traces]
    key = _embedded(legend(ends, scene, PAGE_DPI), bbox_inches="tight")
    names = [trace.method for trace in traces]
    page = resources.files("layercert.explore").joinpath("player.html").read_text(encoding="utf-8")
    page = page.replace("TITLE", " and ".join(names))
    for word, value in (("NAMES", names), ("CAPTIONS", captions), ("LEGEND", key), ("SOURCES", sources)):
        page = page.replace(word, json.dumps(value).replace("<", "\\u003c"))
    path.write_text(page, encoding="utf-8")
