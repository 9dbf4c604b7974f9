"""`layercert demo`: shipped digits on a shipped network, from the first radius to the report with pictures."""

from __future__ import annotations

import argparse
import os
import threading
import time
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from layercert import shipped
from layercert.batch import LocalProcesses, Model, Options, Plan, Store, open_store, run_batch
from layercert.batch.store import FILE
from layercert.cli.batch import Bar
from layercert.errors import InputError, MissingPackageError
from layercert.explore import Plane, Scene, Trace, appendix_a, save, trace
from layercert.io import load
from layercert.io.datasets import load_dataset
from layercert.network import Network
from layercert.problem import robustness
from layercert.report import write_report

NAME = "mnist17_l1_2x20"
CLASSES = ("1", "7")


def run_demo(args: argparse.Namespace) -> int:
    """Exact l_inf and l_2 radii in a table, two searches as pictures, and a page that holds it all."""
    from layercert.cli import OK, OPEN

    if args.inputs < 1:
        raise InputError(f"the demo needs at least one input, got {args.inputs}")
    out, started = Path(args.out), time.monotonic()
    network = load(shipped.path(NAME))
    data = load_dataset(shipped.path("digits"), f"0:{args.inputs}")
    plan = Plan((Model(NAME, network),), data, Options(norms=("linf", "l2"), domain=(0.0, 1.0)))
    print(
        f"Exact radii of {len(data)} shipped MNIST digits (1 vs 7) on the shipped network {NAME}, pixels in [0, 1].\n",
        flush=True,
    )
    run = out / "run"
    (run / FILE).unlink(missing_ok=True)  # a demo starts afresh
    # The radii are measured by processes of their own. Meanwhile this one draws: it needs other kernels, whose
    # compilation then takes no time of its own where there are two cores. A daemon: Ctrl-C does not wait for it.
    pictures: Future[list[tuple[str, Path]]] = Future()
    threading.Thread(target=_deliver, args=(pictures, network, out), daemon=True).start()
    with Bar(quiet=False, log=False) as bar:
        tally = run_batch(plan, run, LocalProcesses(min(2, len(os.sched_getaffinity(0)))), bar.watch)
    with closing(open_store(run)) as store:
        _print(store)
    extras = pictures.result()
    page = write_report([run], out, CLASSES, title=f"Demo: robustness of {NAME}", extras=extras)
    print(f"\nReport with pictures: {page} ({time.monotonic() - started:.0f} s). Open it in a browser.")
    return OK if tally.open == 0 else OPEN


def _print(store: Store) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("input", "digit", "nearest", "norm", "status", "lower", "upper", "seconds"):
        table.add_column(heading, justify="left" if heading in ("norm", "status") else "right")
    for row in store.rows():
        label, target = ("-" if k is None else CLASSES[k] for k in (row["label"], row["target"]))
        bounds = (f"{row['lower']:.7g}", f"{row['upper']:.7g}")
        table.add_row(row["name"], label, target, row["norm"], row["status"], *bounds, f"{row['seconds']:.3f}")
    Console().print(table)


def _deliver(pictures: Future[list[tuple[str, Path]]], network: Network, out: Path) -> None:
    try:
        pictures.set_result(_pictures(network, out))
    except Exception as error:  # raised again where the pictures are asked for
        pictures.set_exception(error)


def _pictures(network: Network, out: Path) -> list[tuple[str, Path]]:
    """GeoCert and LayerCert on the network of Appendix A, moving; and on a plane through three of the digits."""
    example, x = appendix_a()
    small = [trace(robustness(example, x, "l2"), method) for method in ("geocert", "layercert-both")]
    digits = load_dataset(shipped.path("digits"), "0:3").X
    plane = Plane.through(*digits)
    large = [trace(robustness(plane.restrict(network), [0.0, 0.0], "l2"), m) for m in ("geocert", "layercert-both")]
    marks = [(plane.coordinates(digits[i]), f"input {i}") for i in (1, 2)]
    wanted: list[tuple[str, str, list[Trace], Scene]] = [
        ("appendix-a.gif", "Two methods on the network of the paper's Appendix A, in step", small, Scene.of(small)),
        ("plane.png", "The digits' network on the plane through inputs 0, 1 and 2", large, Scene.of(large, marks)),
    ]
    made: list[tuple[str, Path]] = []
    try:
        for name, caption, traces, scene in wanted:
            save(traces, scene, out / name, frames=14)
            made.append((caption, out / name))
    except MissingPackageError as error:
        print(f"\nno pictures of the search: {error}")
    return made
