"""`layercert radiusbench`: exact radii with certificates: build, extend, check and plot them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_radiusbench(commands: Commands) -> argparse.ArgumentParser:
    from layercert.cli.options import add_data, examples

    p = commands.add_parser(
        "radiusbench",
        help="a table of exact radii with certificates, to measure attacks and verifiers by",
        epilog=examples(
            "layercert radiusbench check",
            "layercert radiusbench build --out bench --inputs 50 --jobs 2",
            "layercert radiusbench build --shipped --out bench --inputs 50 --again 60",
            "layercert radiusbench extend model.onnx --data test.npz --index 0:20 --name mine --out bench",
            "layercert radiusbench plot --out bench.html",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = p.add_subparsers(title="actions", metavar="ACTION", required=True)

    build = actions.add_parser("build", help="measure every network and input, check all certificates, write the table")
    _add_work(build)
    build.add_argument("--only", metavar="NAMES", help="some collections: digits,wine (default: all)")
    build.add_argument("--networks", metavar="NAMES", help="some of their networks: wine_adv_2x20 (default: all)")
    build.add_argument(
        "--shipped", action="store_true", help="begin with the shipped table, and ask only what it lacks"
    )
    build.add_argument("--again", type=float, metavar="SECONDS", help="then ask open questions again, with this limit")
    build.set_defaults(act=_build)

    extend = actions.add_parser("extend", help="add networks and inputs of your own to a bench")
    extend.add_argument("model", nargs="+", help=".onnx or .npz networks that share inputs")
    add_data(extend, "--data", required=True)
    extend.add_argument("--name", required=True, help="what the table calls this collection")
    extend.add_argument("--domain", nargs=2, type=float, metavar=("LOW", "HIGH"), help="allowed range of every input")
    _add_work(extend)
    extend.set_defaults(act=_extend)

    check = actions.add_parser("check", help="prove every certificate again and compare the table with it")
    check.add_argument("folder", nargs="?", metavar="DIR", help="a bench that was built (default: the shipped sample)")
    check.add_argument("--exact", action="store_true", help="in ball arithmetic (slow; needs the extra 'exact')")
    check.add_argument("--jobs", type=int, help="processes (default: one per core)")
    check.set_defaults(act=_check)

    plot = actions.add_parser("plot", help="a page with the robustness curves of all networks")
    plot.add_argument("folder", nargs="?", metavar="DIR", help="a bench that was built (default: the shipped one)")
    plot.add_argument("--out", default="radiusbench.html", metavar="FILE", help="the page (default radiusbench.html)")
    plot.set_defaults(act=_plot)

    train = actions.add_parser("train", help="train the networks by their recipes and choose the inputs")
    train.add_argument("--out", required=True, metavar="DIR", help="folder for networks/ and inputs/")
    train.add_argument("--mnist", metavar="DIR", help="the MNIST idx files, for the networks of digits")
    train.add_argument("--only", metavar="NAMES", help="some networks: digits_plain_2x20,wine_adv_2x20 (default: all)")
    train.set_defaults(act=_train)

    ship = actions.add_parser("ship", help="copy a bench's table and a sample of its certificates to another folder")
    ship.add_argument("folder", metavar="DIR", help="the bench")
    ship.add_argument("target", metavar="TARGET", help="where to")
    ship.add_argument("--megabytes", type=float, default=4.0, help="of certificates, at most (default 4)")
    ship.set_defaults(act=_ship)
    return p


def _add_work(p: argparse.ArgumentParser) -> None:
    p.add_argument("--out", required=True, metavar="DIR", help="folder of the bench; the same command continues it")
    p.add_argument("--inputs", type=int, default=20, help="of each collection (default 20; more of them extend it)")
    p.add_argument("--time-limit", type=float, default=5.0, metavar="SECONDS", help="for each question (default 5)")
    p.add_argument("--cpu-time", action="store_true", help="limits count CPU seconds: fair on a busy machine")
    p.add_argument("--jobs", type=int, default=1, help="worker processes, one thread each (default 1)")
    p.add_argument("--log", action="store_true", help="a line per question on stderr instead of the progress bar")
    p.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _work(args: argparse.Namespace, only: tuple[str, ...]) -> int:
    from layercert.bench.build import Build, ask_again, build
    from layercert.cli import OK, OPEN
    from layercert.cli.batch import Bar

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    begun = getattr(args, "shipped", False)  # a collection of one's own is never there
    networks = _names(getattr(args, "networks", None))
    settings = Build(Path(args.out), args.inputs, args.time_limit, args.jobs, only, args.cpu_time, begun, networks)
    try:
        with Bar(quiet=args.quiet, log=args.log) as bar:
            bench = build(settings, say, bar.watch)
            if getattr(args, "again", None) is not None:
                bench = ask_again(settings, args.again, say, bar.watch)
    except KeyboardInterrupt:
        print(f"layercert: interrupted; the same command goes on where it stopped ({args.out})", file=sys.stderr)
        return OPEN
    print(f"{bench} in {args.out}. Next: layercert radiusbench plot {args.out}")
    return OK


def _build(args: argparse.Namespace) -> int:
    return _work(args, _names(args.only))


def _extend(args: argparse.Namespace) -> int:
    from layercert import shipped
    from layercert.batch import Model
    from layercert.bench.collections import Collection, add_collection
    from layercert.cli.commands import read_data
    from layercert.io import load
    from layercert.system.files import printable

    models = tuple(Model(printable(Path(name).stem), load(shipped.path(name))) for name in args.model)
    data = read_data(args, args.data)
    for model in models:
        data = data.arranged_for(model.network)
    domain = None if args.domain is None else (float(args.domain[0]), float(args.domain[1]))
    domains = (None,) if domain is None else (domain, None)
    add_collection(Path(args.out), Collection(args.name, models, data, domains))
    return _work(args, (args.name,))


def _check(args: argparse.Namespace) -> int:
    from layercert.bench.checks import check_bench
    from layercert.bench.gather import taken_over
    from layercert.cli import OK
    from layercert.cli.check import NOT_PROVED

    proved, failed, seconds = 0, 0, 0.0
    folder = None if args.folder is None else Path(args.folder)
    for verdict in check_bench(folder, args.exact, args.jobs):
        proved, failed, seconds = proved + verdict.ok, failed + (not verdict.ok), seconds + verdict.seconds
        if not verdict.ok:
            print(f"{verdict.name}: NOT PROVED: {verdict.text}", flush=True)
    print(f"{proved} of {proved + failed} certificates proved, {seconds:.1f} s of checking")
    taken = [] if folder is None else taken_over(folder)
    if taken:
        print(f"The bench began with {len(taken)} rows of the shipped table; their certificates are not here.")
    return OK if failed == 0 else NOT_PROVED


def _plot(args: argparse.Namespace) -> int:
    from layercert.bench.plots import write_page
    from layercert.bench.table import radiusbench
    from layercert.cli import OK

    print(write_page(radiusbench(args.folder), Path(args.out)))
    return OK


def _train(args: argparse.Namespace) -> int:
    from layercert.bench.ship import train_all
    from layercert.cli import OK

    for line in train_all(Path(args.out), None if args.mnist is None else Path(args.mnist), _names(args.only)):
        print(line, flush=True)
    return OK


def _ship(args: argparse.Namespace) -> int:
    from layercert.bench.ship import ship
    from layercert.cli import OK

    count, size = ship(Path(args.folder), Path(args.target), args.megabytes)
    print(f"{count} certificates, {size / 1e6:.1f} MB, in {args.target}")
    return OK
