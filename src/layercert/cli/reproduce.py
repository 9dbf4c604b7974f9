"""`layercert reproduce`: the paper's experiments as batches, with a page that checks its claims."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
WHAT = ("table1", "table-l2", "ablation", "profiles", "large", "example", "all")


def add_reproduce(commands: Commands) -> argparse.ArgumentParser:
    p = commands.add_parser("reproduce", help="the paper's tables and figures, with its claims checked")
    p.add_argument("what", choices=WHAT, help="which table or figure")
    p.add_argument("--out", default="reproduction", metavar="DIR", help="folder; the same command continues it")
    p.add_argument("--time-limit", type=float, default=1800.0, metavar="SECONDS", help="for each input (default 1800)")
    p.add_argument(
        "--first", type=float, metavar="SECONDS", help="a first pass with this limit; then what it left open"
    )
    p.add_argument("--cpu-time", action="store_true", help="the limit counts CPU seconds: fair on a busy machine")
    p.add_argument("--inputs", type=int, default=100, help="how many of the 100 shipped digits (default 100)")
    p.add_argument(
        "--from", dest="recorded", metavar="FILE", help="take answers of an earlier results.csv, after a test of some"
    )
    p.add_argument("--jobs", type=int, default=1, help="worker processes, one thread each (default 1)")
    p.add_argument("--nets", metavar="DIR", help="folder with mnist17_l1_2x10.npz and so on (default: shipped ones)")
    p.add_argument("--mnist", metavar="DIR", help="train the networks from the MNIST idx files here (needs torch)")
    p.add_argument("--family", default="l1", help="l1 (the paper's recipe) or plain (no penalty on weights)")
    p.add_argument("--sizes", help="only these networks: e.g. 2x10,3x20")
    p.add_argument("--stack", default="default", help="distance solvers: default, library or paper")
    p.add_argument("--log", action="store_true", help="a line per question on stderr instead of the progress bar")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    return p


def run(args: argparse.Namespace) -> int:
    from layercert.cli import OK, OPEN
    from layercert.cli.batch import Bar
    from layercert.experiments import Settings, reproduce

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    settings = Settings(
        out=Path(args.out),
        time_limit=args.time_limit,
        inputs=args.inputs,
        jobs=args.jobs,
        stack=args.stack,
        family=args.family,
        sizes=None if args.sizes is None else tuple(args.sizes.split(",")),
        nets=None if args.nets is None else Path(args.nets),
        mnist=None if args.mnist is None else Path(args.mnist),
        cpu_time=args.cpu_time,
        first=args.first,
        recorded=None if args.recorded is None else Path(args.recorded),
    )
    try:
        with Bar(quiet=args.quiet, log=args.log) as bar:
            page, still_open = reproduce(args.what, settings, say, bar.watch)
    except KeyboardInterrupt:
        print(f"layercert: interrupted; the same command goes on where it stopped ({args.out})", file=sys.stderr)
        return OPEN
    print(f"{page}: {still_open} questions without an answer" if still_open else str(page))
    return OK if still_open == 0 else OPEN
